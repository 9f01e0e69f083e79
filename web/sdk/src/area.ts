/** Where the reports of a document lie: a grid, the cells of one that a mask leaves, or any list of places. */

import { isNumber, isObject, isWhole, type Json, type JsonObject } from "./canonical.ts";
import { type Pair, TangentPlane, wrapped } from "./plane.ts";

const MOST_CELLS = 1 << 16;
const WIDEST_GRID = 2 * MOST_CELLS; // of which a mask leaves some cells
const MOST_PLACES = 4096;
const REACH_KM = 500; // how far a flat map may reach from its centre
const POLE_MARGIN = 0.05;
const WIDEST = 90;
const SLACK = 0.01; // a place at most this part of a cell off the lattice counts as inside

/** Places that a report may name, in whole steps of `pitchKm` east and north of an origin. */
export interface Centres {
  readonly pitchKm: number;
  readonly east: Float64Array;
  readonly north: Float64Array;
  /** The rectangle that positions are moved into. */
  readonly low: Pair;
  readonly high: Pair;
  /** The grid that the places lie on, where they do; the rim's cells included. */
  readonly lattice: Lattice | undefined;
}

export interface Lattice {
  readonly rows: number;
  readonly columns: number;
  readonly step: number;
  readonly rim: number;
  /** row · columns + column of each place. */
  readonly at: Int32Array;
}

interface Grid {
  readonly rows: number;
  readonly columns: number;
  readonly corner: Pair;
  readonly mask: readonly boolean[] | undefined;
}

/** Cells on a map, without the rim that a law may have around them; 2 to 65,536, of a list to 4,096. */
export class Area {
  readonly cellKm: number;
  /** How many cells there are. */
  readonly size: number;
  /** As plain JSON values, in the one way that a document writes them. */
  readonly json: JsonObject;
  readonly plane: TangentPlane;
  private readonly grid: Grid | undefined;
  private readonly points: Int32Array;

  private constructor(
    json: JsonObject,
    plane: TangentPlane,
    cellKm: number,
    grid: Grid | undefined,
    points: Int32Array,
  ) {
    this.json = json;
    this.plane = plane;
    this.cellKm = cellKm;
    this.grid = grid;
    this.points = points;
    this.size = points.length / 2;
    if (grid) this.size = grid.mask ? grid.mask.filter(Boolean).length : grid.rows * grid.columns;
    if (this.size < 2 || this.size > (grid ? MOST_CELLS : MOST_PLACES)) throw new RangeError();
  }

  /** The weights of a document, one for each report; weights of many cells are packed closer. */
  weights(text: Json | undefined): Uint32Array {
    return this.size > MOST_PLACES ? unpackedWeights(text) : unpackedIntegers(text);
  }

  /** The area of a document; a `RangeError` for anything else. */
  static read(values: Json | undefined): Area {
    if (!isObject(values)) throw new RangeError();
    return values["kind"] === "centres" ? Area.ofPlaces(values) : Area.ofGrid(values);
  }

  private static ofGrid(values: JsonObject): Area {
    const { mask: bits, ...rest } = values;
    const { kind, rows, columns, cell_km: cellKm, box: edges } = rest;
    if (kind !== "grid" || Object.keys(rest).length !== 5) throw new RangeError();
    const most = bits === undefined ? MOST_CELLS : WIDEST_GRID;
    if (!isWhole(rows, 1, MOST_CELLS) || !isWhole(columns, 1, MOST_CELLS) || rows * columns > most) {
      throw new RangeError();
    }
    if (!isNumber(cellKm) || cellKm < 1e-9 || cellKm > 1e9) throw new RangeError();
    const box = checkedBox(edges);
    const [south, west, north] = box;
    const plane = new TangentPlane((south + north) / 2, west + widthOf(box) / 2);
    const corner = cornerOf(box, plane, rows, columns, cellKm);
    const mask = bits === undefined ? bits : unpackedBits(bits, rows * columns);
    return new Area({ ...values, box: [...box] }, plane, cellKm, { rows, columns, corner, mask }, new Int32Array());
  }

  private static ofPlaces(values: JsonObject): Area {
    const { origin, cell_km: cellKm, points: packed } = values;
    const names = Object.keys(values).sort().join();
    if (names !== "cell_km,kind,origin,points" || !Array.isArray(origin) || origin.length !== 2) {
      throw new RangeError();
    }
    const [lat, lng] = origin;
    if (!isNumber(lat) || !isNumber(lng) || !isNumber(cellKm) || cellKm < 1e-3 || cellKm > 1e3) {
      throw new RangeError();
    }
    const points = Int32Array.from(unpackedIntegers(packed)); // 2³¹ and more come out below 0, as they went in
    if (points.length % 2) throw new RangeError();
    const distinct = new Set<string>();
    for (let at = 0; at < points.length; at += 2) distinct.add(`${points[at]} ${points[at + 1]}`);
    if (distinct.size < points.length / 2) throw new RangeError();
    const plane = new TangentPlane(lat, lng);
    return new Area({ ...values, origin: [plane.lat, plane.lng] }, plane, cellKm, undefined, points);
  }

  /** Where reports lie, in steps of the lattice: `step` of them make a cell. */
  centres(step: number, rim: number): Centres {
    const pitchKm = this.cellKm / step;
    return this.grid ? centresOfGrid(this.grid, step, rim, pitchKm) : centresOfPlaces(this.points, rim, pitchKm);
  }

  /** The origin of the centres in the plane: cell 0 of the grid, or the origin of the plane. */
  private get originKm(): Pair {
    const corner = this.grid?.corner;
    return corner ? [corner[0] + 0.5 * this.cellKm, corner[1] + 0.5 * this.cellKm] : [0, 0];
  }

  /** A position anywhere on the globe, in km from the origin of the centres. */
  placeKm(lat: number, lng: number): Pair {
    const [east, north] = this.plane.toPlane(lat, lng);
    const origin = this.originKm;
    return [east - origin[0], north - origin[1]];
  }

  /** A place given from the origin of the centres, in degrees. */
  toLatLng([east, north]: Pair): Pair {
    const origin = this.originKm;
    return this.plane.toLatLng([east + origin[0], north + origin[1]]);
  }

  /** Whether a position lies in one of the cells; where there is no grid, everybody is inside. */
  inside(lat: number, lng: number): boolean {
    const { grid, cellKm } = this;
    if (!grid) return true;
    const [east, north] = this.plane.toPlane(lat, lng, false);
    const column = (east - grid.corner[0]) / cellKm;
    const row = (north - grid.corner[1]) / cellKm;
    if (column < -SLACK || column > grid.columns + SLACK || row < -SLACK || row > grid.rows + SLACK) return false;
    const clamped = (at: number, cells: number): number => Math.min(Math.max(Math.floor(at), 0), cells - 1);
    return grid.mask?.[clamped(row, grid.rows) * grid.columns + clamped(column, grid.columns)] ?? true;
  }
}

// --- Boxes: all places between two parallels and two meridians; west > east crosses ±180°

export type Box = readonly [south: number, west: number, north: number, east: number];

/** Refused where one tangent plane is no sound map: beside a pole, or too wide. */
function checkedBox(edges: Json | undefined): Box {
  if (!Array.isArray(edges) || edges.length !== 4 || !edges.every(isNumber)) {
    throw new RangeError();
  }
  const [south, west, north, east] = edges as unknown as Box;
  const box: Box = [south, west === 180 ? west : wrapped(west), north, east === 180 ? east : wrapped(east)];
  const degrees = east - west >= 360 ? east - west : widthOf(box);
  const polar = north > 90 - POLE_MARGIN || south < POLE_MARGIN - 90;
  if (!(south < north && degrees > 0 && degrees <= WIDEST) || polar) {
    throw new RangeError();
  }
  return box;
}

export function widthOf([, west, , east]: Box): number {
  return east - west >= 0 ? east - west : east - west + 360;
}

/** The south-western corner of a grid over the bounding rectangle of a box, in km; refused unless it fits. */
export function cornerOf(box: Box, plane: TangentPlane, rows: number, columns: number, cellKm: number): Pair {
  const [west, south, east, north] = rectangleKm(box, plane);
  checkReach(east - west, north - south);
  for (const [cells, km] of [
    [rows, north - south],
    [columns, east - west],
  ] as const) {
    const over = cells - Math.max(km / cellKm - SLACK, 0.5);
    if (!(over >= -1e-6 && over <= 1 + 1e-6)) throw new RangeError();
  }
  const [width, height] = [columns * cellKm, rows * cellKm];
  checkReach(width, height);
  const corner: Pair = [(west + east - width) / 2, (south + north - height) / 2];
  const pole = plane.toPlane(plane.lat < 0 ? -90 : 90, 0, false);
  const slack = SLACK * cellKm;
  const over = (at: number, from: number, size: number): boolean => at >= from - slack && at <= from + size + slack;
  if (over(pole[0], corner[0], width) && over(pole[1], corner[1], height)) {
    throw new RangeError();
  }
  return corner;
}

/** West, south, east and north in the plane: corners, middles and the equator are extreme. */
export function rectangleKm([south, west, north, east]: Box, plane: TangentPlane): [number, number, number, number] {
  const lats = [south, Math.min(Math.max(0, south), north), north];
  const xy = lats.flatMap((lat) => [west, plane.lng, east].map((lng) => plane.toPlane(lat, lng, false)));
  const [[left, right], [low, high]] = [ends(xy.map((pair) => pair[0])), ends(xy.map((pair) => pair[1]))];
  return [left, low, right, high];
}

function checkReach(widthKm: number, heightKm: number): void {
  if (!(Math.hypot(widthKm, heightKm) / 2 <= REACH_KM)) {
    throw new RangeError();
  }
}

// --- Centres

/** The cells of a grid that exist, row by row from the south-west, then the rim of the whole grid. */
function centresOfGrid(grid: Grid, step: number, rim: number, pitchKm: number): Centres {
  const { rows, columns, mask } = grid;
  const cells: [row: number, column: number][] = [];
  const ring: [row: number, column: number][] = [];
  for (let row = 0 - rim; row < rows + rim; row++) {
    for (let column = 0 - rim; column < columns + rim; column++) {
      const inner = row >= 0 && row < rows && column >= 0 && column < columns;
      if (!inner) ring.push([row, column]);
      else if (mask?.[row * columns + column] ?? true) cells.push([row, column]);
    }
  }
  if (!cells.length) throw new RangeError();
  const beyond = rim ? 0 : step / 2;
  const reach = (axis: 0 | 1): Pair => {
    const [low, high] = ends(cells.map((cell) => cell[axis]));
    return [low * step - beyond, high * step + beyond];
  };
  const [[south, north], [west, east]] = [reach(0), reach(1)];
  const all = [...cells, ...ring];
  const wide = columns + 2 * rim;
  return {
    pitchKm,
    east: Float64Array.from(all, (cell) => cell[1] * step),
    north: Float64Array.from(all, (cell) => cell[0] * step),
    low: [west, south],
    high: [east, north],
    lattice: {
      rows: rows + 2 * rim,
      columns: wide,
      step,
      rim,
      at: Int32Array.from(all, (cell) => (cell[0] + rim) * wide + cell[1] + rim),
    },
  };
}

/** Any places; positions are moved into their bounding rectangle. */
function centresOfPlaces(points: Int32Array, rim: number, pitchKm: number): Centres {
  if (rim) throw new RangeError();
  const east = Float64Array.from(points.filter((_, at) => at % 2 === 0));
  const north = Float64Array.from(points.filter((_, at) => at % 2 === 1));
  const farthest = (along: Float64Array): number => ends(along.map(Math.abs))[1];
  checkReach(farthest(east) * 2 * pitchKm, farthest(north) * 2 * pitchKm);
  const [[west, right], [south, top]] = [ends(east), ends(north)];
  return { pitchKm, east, north, low: [west, south], high: [right, top], lattice: undefined };
}

/** The least and the largest of some numbers. */
export function ends(numbers: Iterable<number>): Pair {
  let [low, high] = [Infinity, -Infinity];
  for (const number of numbers) {
    low = Math.min(low, number);
    high = Math.max(high, number);
  }
  return [low, high];
}

// --- Many whole numbers in few characters: four bytes each, the highest first, in base 64

/** The numbers of a text; every list of numbers has one text. */
export function unpackedIntegers(text: Json | undefined): Uint32Array {
  return unpacked(text, 4);
}

/** Weights of 12 leading bits in two bytes each: five for e, eleven for m; m where e is 0, else (2048 + m)·2^(e − 1). */
function unpackedWeights(text: Json | undefined): Uint32Array {
  return unpacked(text, 2).map((code) => {
    const exponent = code >> 11;
    if (exponent > 21) throw new RangeError();
    return exponent ? (2048 + (code & 2047)) * 2 ** (exponent - 1) : code;
  });
}

function unpacked(text: Json | undefined, bytes: 2 | 4): Uint32Array {
  const data = bytesOf(text);
  if (data.length % bytes || !data.length) throw new RangeError();
  const view = new DataView(data.buffer);
  return new Uint32Array(data.length / bytes).map((_, at) =>
    bytes === 4 ? view.getUint32(4 * at) : view.getUint16(2 * at),
  );
}

function unpackedBits(text: Json, size: number): boolean[] {
  const data = bytesOf(text);
  const bits = Array.from(
    { length: 8 * data.length },
    (_, at) => (((data[at >> 3] as number) >> (7 - (at & 7))) & 1) === 1,
  );
  if (data.length !== Math.ceil(size / 8) || bits.slice(size).includes(true)) {
    throw new RangeError();
  }
  return bits.slice(0, size);
}

function bytesOf(text: Json | undefined): Uint8Array {
  if (typeof text !== "string" || text.length % 4) throw new RangeError();
  let plain: string;
  try {
    plain = atob(text);
  } catch {
    throw new RangeError();
  }
  if (btoa(plain) !== text) throw new RangeError();
  return new Uint8Array(plain.length).map((_, at) => plain.charCodeAt(at));
}
