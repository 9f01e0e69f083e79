/**
 * Cells as an estimate names them: rows from the south, columns from the west, on the plane of the box. Where
 * there is a mask, only those exist that it leaves, and they are numbered one after another.
 */

import { type Pair, TangentPlane } from "../../../sdk/src/plane.ts";
import { type Box, cornerOf, widthOf } from "../../../sdk/src/area.ts";

export type { Box };

/** What the service says of the cells of a map. */
export interface Space {
  readonly kind: string;
  readonly rows: number;
  readonly columns: number;
  readonly cell_km: number;
  readonly box: Box;
  /** One bit for each cell of the box, in base 64; without one all exist. */
  readonly mask?: string;
}

export class Cells {
  readonly rows: number;
  readonly columns: number;
  readonly cellKm: number;
  readonly plane: TangentPlane;
  /** The south-western corner, in km. */
  readonly corner: Pair;
  /** How many cells there are. */
  readonly size: number;
  /** By place in the box, row by row: the number of the cell there, or -1. */
  private readonly numbers: Int32Array;
  /** By cell: its place in the box, row by row. */
  private readonly places: Int32Array;

  constructor(space: Space) {
    this.rows = space.rows;
    this.columns = space.columns;
    this.cellKm = space.cell_km;
    this.plane = planeOf(space.box);
    this.corner = cornerOf(space.box, this.plane, space.rows, space.columns, space.cell_km);
    this.numbers = numbersOf(space);
    this.places = Int32Array.from(this.numbers.keys()).filter((place) => this.numbers[place]! >= 0);
    this.size = this.places.length;
  }

  /** Row and column of a cell in the box. */
  placeOf(cell: number): Pair {
    const place = this.places[cell]!;
    const row = Math.floor(place / this.columns);
    return [row, place - row * this.columns];
  }

  /** The cell in a row and a column of the box; undefined where there is none. */
  in(row: number, column: number): number | undefined {
    const cell = this.numbers[row * this.columns + column]!;
    return cell < 0 ? undefined : cell;
  }

  get widthKm(): number {
    return this.columns * this.cellKm;
  }

  get heightKm(): number {
    return this.rows * this.cellKm;
  }

  /** The cell at a place in the plane; undefined beside the map, and where there is no cell. */
  at([east, north]: Pair): number | undefined {
    const column = Math.floor((east - this.corner[0]) / this.cellKm);
    const row = Math.floor((north - this.corner[1]) / this.cellKm);
    return column >= 0 && column < this.columns && row >= 0 && row < this.rows ? this.in(row, column) : undefined;
  }

  centreKm(cell: number): Pair {
    const [row, column] = this.placeOf(cell);
    return [this.corner[0] + (column + 0.5) * this.cellKm, this.corner[1] + (row + 0.5) * this.cellKm];
  }

  /** Latitude and longitude of the middle of a cell. */
  centre(cell: number): Pair {
    return this.plane.toLatLng(this.centreKm(cell));
  }
}

function numbersOf(space: Space): Int32Array {
  const bits = space.mask === undefined ? undefined : atob(space.mask);
  let next = 0;
  return Int32Array.from({ length: space.rows * space.columns }, (_, place) => {
    const exists = !bits || (bits.charCodeAt(place >> 3) >> (7 - (place & 7))) & 1;
    return exists ? next++ : -1;
  });
}

/** The plane that touches the globe in the middle of a box. */
export function planeOf(box: Box): TangentPlane {
  const [south, west, north] = box;
  return new TangentPlane((south + north) / 2, west + widthOf(box) / 2);
}
