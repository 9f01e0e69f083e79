/** Cells as an estimate names them: rows from the south, columns from the west, on the plane of the box. */

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
}

export class Cells {
  readonly rows: number;
  readonly columns: number;
  readonly cellKm: number;
  readonly plane: TangentPlane;
  /** The south-western corner, in km. */
  readonly corner: Pair;

  constructor(space: Space) {
    this.rows = space.rows;
    this.columns = space.columns;
    this.cellKm = space.cell_km;
    this.plane = planeOf(space.box);
    this.corner = cornerOf(space.box, this.plane, space.rows, space.columns, space.cell_km);
  }

  get size(): number {
    return this.rows * this.columns;
  }

  get widthKm(): number {
    return this.columns * this.cellKm;
  }

  get heightKm(): number {
    return this.rows * this.cellKm;
  }

  /** The cell at a place in the plane; undefined beside the map. */
  at([east, north]: Pair): number | undefined {
    const column = Math.floor((east - this.corner[0]) / this.cellKm);
    const row = Math.floor((north - this.corner[1]) / this.cellKm);
    return column >= 0 && column < this.columns && row >= 0 && row < this.rows
      ? row * this.columns + column
      : undefined;
  }

  centreKm(cell: number): Pair {
    const row = Math.floor(cell / this.columns);
    const column = cell - row * this.columns;
    return [this.corner[0] + (column + 0.5) * this.cellKm, this.corner[1] + (row + 0.5) * this.cellKm];
  }

  /** Latitude and longitude of the middle of a cell. */
  centre(cell: number): Pair {
    return this.plane.toLatLng(this.centreKm(cell));
  }
}

/** The plane that touches the globe in the middle of a box. */
export function planeOf(box: Box): TangentPlane {
  const [south, west, north] = box;
  return new TangentPlane((south + north) / 2, west + widthOf(box) / 2);
}
