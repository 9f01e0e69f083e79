/** Sums over the centres of a grid in a window around the one nearest to a place (steps 4 and 5). */

import type { Lattice } from "./area.ts";
import { type RoundedCone, TERMS } from "./cone.ts";
import type { Pair } from "./plane.ts";

const FADED = 40; // from where on all that lies farther counts as if it lay here
const REACH = 12; // centres up to so many 1/β away are summed one by one
const FARTHER = 13; // the same of many cells, where 12 would nearly always be doubled
const MANY = 4096;

export class Windows {
  private readonly lattice: Lattice;
  private readonly cone: RoundedCone;
  private readonly side: number;
  private readonly weights: Float64Array;
  private readonly below: Float64Array;
  /** The first and the last column of every row that have a weight. */
  private readonly spans: [number, number][];
  /** What lies beyond the window, by how often it was doubled. */
  private readonly beyond: Float64Array[] = [];
  /** The kernel and its derivatives in the window, likewise; those of this place are the first `filled`. */
  private readonly terms: Float64Array[] = [];
  private filled = 0;
  private inner: Pair = [0, 0];
  private shift: Pair = [0, 0];
  private rho = 0;
  private readonly first: number;

  constructor(lattice: Lattice, weights: Float64Array, cone: RoundedCone, side: number) {
    this.lattice = lattice;
    this.cone = cone;
    this.side = side;
    const { rows, columns, rim, at } = lattice;
    this.first = at.length - 2 * rim * (rows + columns - 2) > MANY ? FARTHER : REACH;
    this.weights = new Float64Array(rows * columns);
    this.spans = Array.from({ length: rows }, () => [columns, -1]);
    at.forEach((cell, index) => {
      this.weights[cell] = weights[index]!;
      const span = this.spans[Math.floor(cell / columns)]!;
      span[0] = Math.min(span[0], cell % columns);
      span[1] = Math.max(span[1], cell % columns);
    });
    this.below = sumsBelow(this.weights, rows, columns);
  }

  /** How many cells a window has, which all that check a document agree on. */
  get size(): number {
    const { rows, columns } = this.lattice;
    const reach = this.cells(REACH);
    return (2 * Math.min(reach, rows - 1) + 1) * (2 * Math.min(reach, columns - 1) + 1);
  }

  /** From now on squares whose centres lie as this one does in its node, the first. */
  turnTo([east, north]: Pair, rho: number): void {
    const at: Pair = [east / this.side, north / this.side];
    this.shift = [Math.floor(at[0] + 0.5), Math.floor(at[1] + 0.5)];
    this.inner = [at[0] - this.shift[0], at[1] - this.shift[1]];
    this.rho = rho;
    this.filled = 0;
  }

  /** Z and the other sums around a node; the window is doubled until what is beyond has a share of `most`. */
  sums(node: Pair, floor: number, most: number, sums: Float64Array): number {
    const { rows, columns, rim } = this.lattice;
    const [column, row] = [node[0] + this.shift[0] + rim, node[1] + this.shift[1] + rim];
    const grows = Math.exp(2 * this.cone.beta * this.rho);
    for (let doubled = 0; ; doubled++) {
      const cells = this.cells(this.first * 2 ** doubled);
      const [up, across] = [Math.min(cells, rows - 1), Math.min(cells, columns - 1)];
      if (doubled === this.filled) this.fill(up, across);
      addUp(this.weights, this.spans, columns, row, column, up, across, this.terms[doubled]!, sums);
      sums[0]! += floor;
      const beyond = (this.beyond[doubled] ??= this.beyondOf(cells));
      const share = (beyond[row * columns + column]! * grows) / sums[0]!;
      if (share <= most) return share;
    }
  }

  /** How many cells of a window that reaches so many 1/β lie on every side. */
  private cells(reach: number): number {
    return Math.ceil(reach / (this.cone.beta * this.side) + 0.5);
  }

  private fill(up: number, across: number): void {
    const wide = 2 * across + 1;
    const terms = (this.terms[this.filled++] ??= new Float64Array((2 * up + 1) * wide * TERMS));
    for (let row = -up; row <= up; row++) {
      for (let column = -across; column <= across; column++) {
        const east = (this.inner[0] - column) * this.side;
        const north = (this.inner[1] - row) * this.side;
        this.cone.expand(east, north, this.rho, terms, ((row + up) * wide + column + across) * TERMS);
      }
    }
  }

  /** Σ c·f over the centres outside the window, at most, shell by shell, for each cell. */
  private beyondOf(reach: number): Float64Array {
    const { rows, columns } = this.lattice;
    const total = new Float64Array(rows * columns);
    const step = Math.ceil(1 / (this.cone.beta * this.side));
    for (let cells = reach; cells < Math.max(rows, columns) - 1; cells += step) {
      const falls = this.cone.decay((cells + 0.5) * this.side);
      const faded = falls >= FADED;
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          const shell =
            this.within(row, column, faded ? rows + columns : cells + step) - this.within(row, column, cells);
          total[row * columns + column]! += shell * Math.exp(-falls);
        }
      }
      if (faded) break;
    }
    return total.map((sum) => Math.max(sum, 0));
  }

  /** The weight within so many cells. */
  private within(row: number, column: number, cells: number): number {
    const { rows, columns } = this.lattice;
    const [south, north] = [Math.max(row - cells, 0), Math.min(row + cells + 1, rows)];
    const [west, east] = [Math.max(column - cells, 0), Math.min(column + cells + 1, columns)];
    const sum = (r: number, c: number): number => this.below[r * (columns + 1) + c]!;
    return sum(north, east) - sum(south, east) - sum(north, west) + sum(south, west);
  }
}

/** (rows + 1) × (columns + 1) sums of the weights below and left of each corner. */
function sumsBelow(weights: Float64Array, rows: number, columns: number): Float64Array {
  const wide = columns + 1;
  const below = new Float64Array((rows + 1) * wide);
  for (let row = 0; row < rows; row++) {
    let along = 0;
    for (let column = 0; column < columns; column++) {
      along += weights[row * columns + column]!;
      below[(row + 1) * wide + column + 1] = below[row * wide + column + 1]! + along;
    }
  }
  return below;
}

/** Σ weight × each of the terms over a window: most of the time goes here. Cells without a weight add nothing. */
function addUp(
  weights: Float64Array,
  spans: readonly Pair[],
  columns: number,
  row: number,
  column: number,
  up: number,
  across: number,
  terms: Float64Array,
  sums: Float64Array,
): void {
  const last = Math.min(row + up, spans.length - 1);
  let s0 = 0,
    s1 = 0,
    s2 = 0,
    s3 = 0,
    s4 = 0,
    s5 = 0,
    s6 = 0,
    s7 = 0,
    s8 = 0,
    s9 = 0,
    s10 = 0;
  for (let r = Math.max(row - up, 0); r <= last; r++) {
    const west = Math.max(column - across, spans[r]![0]);
    const east = Math.min(column + across, spans[r]![1]);
    let term = ((r - row + up) * (2 * across + 1) + west - column + across) * TERMS;
    for (let cell = r * columns + west; cell <= r * columns + east; cell++, term += TERMS) {
      const weight = weights[cell]!;
      s0 += weight * terms[term]!;
      s1 += weight * terms[term + 1]!;
      s2 += weight * terms[term + 2]!;
      s3 += weight * terms[term + 3]!;
      s4 += weight * terms[term + 4]!;
      s5 += weight * terms[term + 5]!;
      s6 += weight * terms[term + 6]!;
      s7 += weight * terms[term + 7]!;
      s8 += weight * terms[term + 8]!;
      s9 += weight * terms[term + 9]!;
      s10 += weight * terms[term + 10]!;
    }
  }
  sums.set([s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10]);
}
