/**
 * Places in the place of squares: each has the part of the plane that is nearer to it than to any other, as far as
 * a cell reaches. Middles of hexagons become hexagons again, and a lonely place is a disc.
 */

import { type Pair, TangentPlane } from "../../../sdk/src/plane.ts";
import { Cells, type Space } from "./grid.ts";

/** What the service says of places: where they are and, where people stand around them, how large a cell is. */
export interface PlacesSpace {
  readonly kind: "points";
  readonly lat: readonly number[];
  readonly lng: readonly number[];
  readonly cell_km?: number;
}

export type AnySpace = Space | PlacesSpace;
export type AnyCells = Cells | Places;

/** Corners of a part of the plane, in km. */
export type Shape = readonly Pair[];

/** How far a part reaches from its place, in cells: to the corners of a hexagon that is as large as a cell. */
const REACH = 0.63;
const CORNERS = 24;
/** Of small pictures, along the longer side. */
const PIXELS = 128;

export class Places {
  readonly size: number;
  readonly plane: TangentPlane;
  readonly cellKm: number;
  /** Whether people stand anywhere around a place, and not at it. */
  readonly around: boolean;
  /** The south-western corner of what is drawn, in km. */
  readonly corner: Pair;
  readonly widthKm: number;
  readonly heightKm: number;
  /** Of small pictures, in pixels. */
  readonly rows: number;
  readonly columns: number;
  private readonly east: Float64Array;
  private readonly north: Float64Array;
  private drawn: readonly Shape[] | undefined;
  private pixels: Int32Array | undefined;

  /** In the plane that touches the globe in their middle, or in another one. */
  constructor(space: PlacesSpace, plane: TangentPlane = planeAround(space)) {
    this.size = space.lat.length;
    this.plane = plane;
    const at = space.lat.map((lat, place) => this.plane.toPlane(lat, space.lng[place]!, false));
    this.east = Float64Array.from(at, ([east]) => east);
    this.north = Float64Array.from(at, ([, north]) => north);
    const [low, high] = [this.corners(Math.min), this.corners(Math.max)];
    const [width, height] = [high[0] - low[0], high[1] - low[1]];
    this.around = space.cell_km !== undefined;
    this.cellKm =
      space.cell_km ?? Math.max(Math.sqrt((width * height) / this.size), Math.max(width, height) / this.size);
    const reach = REACH * this.cellKm;
    this.corner = [low[0] - reach, low[1] - reach];
    this.widthKm = width + 2 * reach;
    this.heightKm = height + 2 * reach;
    const pixel = Math.max(this.widthKm, this.heightKm) / PIXELS;
    this.columns = Math.max(1, Math.round(this.widthKm / pixel));
    this.rows = Math.max(1, Math.round(this.heightKm / pixel));
  }

  private corners(most: (...values: number[]) => number): Pair {
    return [this.east, this.north].map((all) => all.reduce((one, other) => most(one, other))) as unknown as Pair;
  }

  /** The part of each place. */
  get shapes(): readonly Shape[] {
    return (this.drawn ??= shapesAround(this.east, this.north, this.cellKm));
  }

  /** The place whose part holds a point of the plane; undefined where none does. */
  at([east, north]: Pair): number | undefined {
    let [nearest, least] = [-1, (REACH * this.cellKm) ** 2];
    for (let place = 0; place < this.size; place++) {
      const away = (this.east[place]! - east) ** 2 + (this.north[place]! - north) ** 2;
      if (away <= least) [nearest, least] = [place, away];
    }
    return nearest < 0 ? undefined : nearest;
  }

  /** The place at a pixel of a small picture, rows from the south; undefined where there is none. */
  in(row: number, column: number): number | undefined {
    this.pixels ??= Int32Array.from({ length: this.rows * this.columns }, (_, pixel) => {
      const up = Math.floor(pixel / this.columns);
      const right = pixel - up * this.columns;
      return (
        this.at([
          this.corner[0] + ((right + 0.5) / this.columns) * this.widthKm,
          this.corner[1] + ((up + 0.5) / this.rows) * this.heightKm,
        ]) ?? -1
      );
    });
    const place = this.pixels[row * this.columns + column]!;
    return place < 0 ? undefined : place;
  }

  centreKm(place: number): Pair {
    return [this.east[place]!, this.north[place]!];
  }

  /** Latitude and longitude of a place. */
  centre(place: number): Pair {
    return this.plane.toLatLng(this.centreKm(place));
  }
}

export function cellsOf(space: AnySpace): AnyCells {
  return isPlaces(space) ? new Places(space) : new Cells(space);
}

export function isPlaces(space: AnySpace): space is PlacesSpace {
  return space.kind === "points";
}

/** The plane that touches the globe in the middle of places, the shorter way round. */
function planeAround({ lat, lng }: PlacesSpace): TangentPlane {
  const turned = lng.map((degrees) => ((((degrees - lng[0]!) % 360) + 540) % 360) - 180);
  const middle = (all: readonly number[]): number =>
    (all.reduce((one, other) => Math.min(one, other)) + all.reduce((one, other) => Math.max(one, other))) / 2;
  const east = lng[0]! + middle(turned);
  return new TangentPlane(middle(lat), ((((east + 180) % 360) + 360) % 360) - 180);
}

/** The part of each place: nearer to it than to any other, and no farther from it than a cell reaches. */
export function shapesAround(east: ArrayLike<number>, north: ArrayLike<number>, cellKm: number): readonly Shape[] {
  const size = east.length;
  const order = Array.from({ length: size }, (_, place) => place).sort((one, other) => east[one]! - east[other]!);
  const shapes = new Array<Shape>(size);
  order.forEach((place, rank) => {
    const here: Pair = [east[place]!, north[place]!];
    let shape: Shape = discAround(here, REACH * cellKm);
    let reach = farthest(shape, here);
    let [west, onwards] = [rank - 1, rank + 1];
    for (;;) {
      // outwards along the east, the nearer of the two first, until none can cut any more
      const gaps = [
        west < 0 ? Infinity : here[0] - east[order[west]!]!,
        onwards >= size ? Infinity : east[order[onwards]!]! - here[0],
      ] as const;
      if (Math.min(...gaps) > 2 * reach) break;
      const other = order[gaps[0] <= gaps[1] ? west-- : onwards++]!;
      const there: Pair = [east[other]!, north[other]!];
      if (Math.hypot(there[0] - here[0], there[1] - here[1]) > 2 * reach) continue;
      shape = nearerTo(here, there, shape);
      reach = farthest(shape, here);
    }
    shapes[place] = shape;
  });
  return shapes;
}

function discAround([east, north]: Pair, reach: number): Shape {
  const radius = reach / Math.cos(Math.PI / CORNERS);
  return Array.from({ length: CORNERS }, (_, corner): Pair => {
    const turn = (2 * Math.PI * corner) / CORNERS;
    return [east + radius * Math.cos(turn), north + radius * Math.sin(turn)];
  });
}

function farthest(shape: Shape, [east, north]: Pair): number {
  return shape.reduce((most, corner) => Math.max(most, Math.hypot(corner[0] - east, corner[1] - north)), 0);
}

/** What of a convex shape is nearer to one place than to another. */
function nearerTo(here: Pair, there: Pair, shape: Shape): Shape {
  const [dx, dy] = [there[0] - here[0], there[1] - here[1]];
  const [x, y] = [(here[0] + there[0]) / 2, (here[1] + there[1]) / 2];
  const beyond = ([east, north]: Pair): number => (east - x) * dx + (north - y) * dy;
  const corners: Pair[] = [];
  shape.forEach((corner, at) => {
    const next = shape[(at + 1) % shape.length]!;
    const [one, other] = [beyond(corner), beyond(next)];
    if (one <= 0) corners.push(corner);
    if (one < 0 !== other < 0 && one !== other) {
      const part = one / (one - other);
      corners.push([corner[0] + part * (next[0] - corner[0]), corner[1] + part * (next[1] - corner[1])]);
    }
  });
  return corners.length >= 3 ? corners : shape;
}
