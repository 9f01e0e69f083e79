/** The law of positions in whole numbers: what a device draws from, and what everybody certifies. */

import { type Centres, ends } from "./area.ts";
import { PositionLaw } from "./certificate.ts";
import { FLOOR, type RoundedCone } from "./cone.ts";
import type { Pair } from "./plane.ts";

/** Random bytes that one report takes. */
export const DRAW_BYTES = 16;

const UNIT = 2 ** 31; // of the kernel
const LONGEST_TABLE = 1 << 14;
const OFF = 0.51; // how far an entry may lie from the kernel: half a unit, and the last digit of an exponential

/**
 * P(y|x) ∝ c(y)·T[⌊|x − y|⌋], with whole numbers c and T and x on a lattice, all lengths in its steps. T[j] is the
 * kernel at (j + ½) steps in units of 2⁻³¹, off by 0.51 at most; the last one goes on for ever.
 */
export class WholeLaw {
  readonly centres: Centres;
  readonly weights: Uint32Array;
  readonly cone: RoundedCone;
  readonly table: Uint32Array;

  /** A `RangeError` unless the table is the kernel of the cone, as far as any position is from any centre. */
  constructor(centres: Centres, weights: Uint32Array, cone: RoundedCone, table: Uint32Array) {
    this.centres = centres;
    this.weights = weights;
    this.cone = cone;
    this.table = table;
    if (table.length > LONGEST_TABLE) throw new RangeError();
    const own = (entry: number, at: number): boolean =>
      Math.abs(entry - cone.value((at + 0.5) * centres.pitchKm) * UNIT) <= OFF;
    if (!table.every(own)) throw new RangeError();
    const flat = Math.abs(table.at(-1)! - FLOOR * UNIT) <= OFF;
    if (!flat && (table.length - 1) ** 2 <= this.widestSquared()) throw new RangeError();
  }

  /** The square of a distance, in steps, that no position has from a centre. */
  private widestSquared(): number {
    const { east, north, low, high } = this.centres;
    const spread = (along: Float64Array, axis: 0 | 1): number => {
      const [least, most] = ends(along);
      return Math.max(most, high[axis]) - Math.min(least, low[axis]);
    };
    return spread(east, 0) ** 2 + spread(north, 1) ** 2;
  }

  /** η, rounded up: two moves to the lattice, two whole steps of distance, the rounding of T. */
  slackAt(epsilonPerKm: number): number {
    const { pitchKm } = this.centres;
    const moved = Math.sqrt(2) * pitchKm * epsilonPerKm + 2 * pitchKm * this.cone.beta;
    const least = this.table.reduce((one, other) => Math.min(one, other));
    return Math.ceil((moved + (4 * OFF) / least) * 1e4 + 1e-6) / 1e4;
  }

  /** Whether ε and η hold between any two positions. */
  keeps(epsilonPerKm: number, slackNats: number): boolean {
    if (this.slackAt(epsilonPerKm) > slackNats) return false;
    const law = this.positions();
    const { seenPerKm, epsilonPerKm: boundPerKm } = law.certify(epsilonPerKm);
    const open = seenPerKm <= epsilonPerKm && epsilonPerKm < boundPerKm && boundPerKm < Infinity;
    // neither shown nor broken: the answer without a claim decides, as it does in a design
    return (open ? law.certify().epsilonPerKm : boundPerKm) <= epsilonPerKm;
  }

  /** The law in kilometres, for its certificate. */
  positions(): PositionLaw {
    return new PositionLaw(this.centres, this.weights, this.cone);
  }

  /** A place in km from the origin of the centres → whole steps, moved into the rectangle first. */
  stepsOf(placeKm: Pair): Pair {
    const { pitchKm, low, high } = this.centres;
    const moved = (axis: 0 | 1): number => {
      const inside = Math.min(Math.max(placeKm[axis], low[axis] * pitchKm), high[axis] * pitchKm);
      return halfToEven(inside / pitchKm);
    };
    return [moved(0), moved(1)];
  }

  /** weight × kernel for each report from a position in steps: whole numbers that sum below 2⁶³. */
  row(steps: Pair): bigint[] {
    const { centres, table } = this;
    const { low, high } = centres;
    const inside = (axis: 0 | 1): number => Math.min(Math.max(steps[axis], low[axis]), high[axis]);
    const [east, north] = [inside(0), inside(1)];
    const last = table.length - 1;
    return Array.from(this.weights, (weight, report) => {
      // what is farther than the table along one axis is farther in all; nearer, squares are exact
      const x = Math.min(Math.abs(east - centres.east[report]!), last);
      const y = Math.min(Math.abs(north - centres.north[report]!), last);
      const square = x * x + y * y;
      let distance = Math.floor(Math.sqrt(square));
      if (distance * distance > square) distance--; // a root may have been rounded up to a whole number
      return BigInt(weight) * BigInt(table[Math.min(distance, last)]!);
    });
  }

  /** The report from a position for 16 random bytes: the place of ⌊u·S/2¹²⁸⌋ among the running sums of the row. */
  draw(steps: Pair, bytes: Uint8Array): number {
    if (bytes.length !== DRAW_BYTES) throw new RangeError();
    const row = this.row(steps);
    const total = row.reduce((sum, entry) => sum + entry, 0n);
    const u = bytes.reduce((number, byte) => (number << 8n) | BigInt(byte), 0n);
    const target = (u * total) >> 128n;
    let [sum, report] = [0n, 0];
    for (const entry of row) {
      sum += entry;
      report += sum <= target ? 1 : 0; // the same work wherever it is
    }
    return report;
  }
}

/** The nearest whole number; of two, the even one. */
function halfToEven(value: number): number {
  const down = Math.floor(value);
  const over = value - down;
  return over > 0.5 || (over === 0.5 && down % 2) ? down + 1 : down;
}
