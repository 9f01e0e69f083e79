/**
 * The largest loss per kilometre between any two positions, bounded over all of them.
 *
 * A report y from the position x has probability c(y)·k(|x − y|)/Z(x). With φ = −log k, the row w, a_y = ∇φ(x − y)
 * and g = Σ w_y·a_y, the loss per km is at most sup_x max_y |a_y − g|. A square of centre q and half-diagonal ρ is
 * bounded by Taylor's theorem around q, and quartered while its bound lies above the claim. The steps are those of
 * decision 11 of Geoveil, by number.
 */

import type { Centres, Lattice } from "./area.ts";
import { FLOOR, type RoundedCone, TERMS } from "./cone.ts";
import type { Pair } from "./plane.ts";

const TOLERANCE = 0.004; // for each β·cell
const FIRST = 0.5; // β times the side of the squares to begin with, at most
const DEEPEST = 8; // how often a square is quartered, at most
const REACH = 12; // centres up to so many 1/β away are summed one by one
const BEYOND = 1 / 32; // the share of those beyond, at most, in parts of the tolerance
const LOOKS = 16; // how many places are looked at closely before the threshold is set anew
const ENTRIES = 1 << 16;
const AHEAD = 5;
const LONG = 0.1;
const ROUNDING = 1e-11; // of sums of up to 2¹⁶ numbers of one sign, relative, with a margin
const MOST_SQUARES = 2 ** 22; // to begin with; a law that needs more is not believed

export interface PositionCertificate {
  /** No two positions lose more per km. */
  readonly epsilonPerKm: number;
  /** The loss per km around the worst place that was looked at: a lower bound. */
  readonly seenPerKm: number;
  /** How many squares were bounded. */
  readonly squares: number;
}

/** Squares at one place of their undivided squares, which share the values of the kernel. */
interface Group {
  readonly part: Pair;
  /** Pairs east, north, in sides of an undivided square. */
  readonly nodes: ArrayLike<number>;
}

/** Squares whose bound lies above the claim. */
interface Candidates {
  readonly node: number[];
  readonly part: number[];
  readonly place: number[];
  /** Six numbers each: g, ∇g (three), and how far g may be from that. */
  readonly mean: number[];
  readonly bound: number[];
  /** β + |g(q)|: at least max |a_y − g| at q. */
  readonly alone: number[];
}

/** Centres, a weight for each, and how it falls with the distance. */
export class PositionLaw {
  private readonly cone: RoundedCone;
  private readonly weights: Float64Array;
  private readonly east: Float64Array;
  private readonly north: Float64Array;
  private readonly lattice: Lattice | undefined;
  private readonly low: Pair;
  private readonly high: Pair;
  /** The rectangle of the centres, the rim included. */
  private readonly corners: readonly [Pair, Pair];
  /** The side of an undivided square: a cell of the grid, or a tip of the kernel. */
  private readonly side: number;
  private readonly tolerance: number;
  private readonly floor: number;

  constructor(centres: Centres, weights: ArrayLike<number>, cone: RoundedCone) {
    const { pitchKm, lattice } = centres;
    this.cone = cone;
    this.weights = Float64Array.from(weights);
    this.east = centres.east.map((steps) => steps * pitchKm);
    this.north = centres.north.map((steps) => steps * pitchKm);
    this.lattice = lattice;
    this.low = [centres.low[0] * pitchKm, centres.low[1] * pitchKm];
    this.high = [centres.high[0] * pitchKm, centres.high[1] * pitchKm];
    const { east, north } = this;
    this.corners = [
      [Math.min(...east), Math.min(...north)],
      [Math.max(...east), Math.max(...north)],
    ];
    this.side = lattice ? lattice.step * pitchKm : cone.radius;
    this.tolerance = Math.min(Math.max(TOLERANCE * cone.beta * this.side, 0.001), 0.02);
    this.floor = FLOOR * this.weights.reduce((sum, weight) => sum + weight, 0);
  }

  /**
   * ε between any two positions. With a claim, no square is cut whose bound is at most that: the answer is then at
   * most the claim, or above it. Without one (0), a little above the loss at the worst place looked at.
   */
  certify(claimPerKm = 0): PositionCertificate {
    const { beta } = this.cone;
    const extent = this.extent();
    const sides: Pair = [this.length(0) / Math.max(extent[0], 1), this.length(1) / Math.max(extent[1], 1)];
    let parts = this.firstParts();
    if (Math.max(extent[0], 1) * Math.max(extent[1], 1) * parts ** 2 > MOST_SQUARES) {
      return { epsilonPerKm: Infinity, seenPerKm: 0, squares: 0 };
    }
    let groups: Iterable<Group> = firstGroups(extent, parts);
    let [best, closed, squares, threshold] = [0, 0, 0, claimPerKm];
    for (let depth = 0; depth <= DEEPEST; depth++) {
      const rho = Math.hypot(...sides) / 2 / parts;
      const open: Candidates = { node: [], part: [], place: [], mean: [], bound: [], alone: [] };
      for (const { square, bound, mean } of this.bounded(groups, parts, sides, rho)) {
        squares++;
        if (bound <= claimPerKm) {
          closed = Math.max(closed, bound); // no threshold is lower
          continue;
        }
        open.node.push(square.node[0], square.node[1]);
        open.part.push(square.part[0], square.part[1]);
        open.place.push(square.place[0], square.place[1]);
        for (let entry = 0; entry < 6; entry++) open.mean.push(mean[entry]!);
        open.bound.push(bound);
        open.alone.push(beta + length(mean[0]!, mean[1]!));
      }
      [best, threshold] = this.lookClosely(open, rho, best, claimPerKm);
      if (claimPerKm > 0 && best > claimPerKm) {
        const most = open.bound.reduce((largest, bound) => Math.max(largest, bound), closed);
        return { epsilonPerKm: most, seenPerKm: best, squares };
      }
      const left: number[] = [];
      open.bound.forEach((bound, index) => {
        if (bound > threshold && depth < DEEPEST) left.push(index);
        else closed = Math.max(closed, bound);
      });
      if (!left.length) break;
      groups = quartered(open, left, parts);
      parts *= 2;
    }
    return { epsilonPerKm: closed, seenPerKm: best, squares };
  }

  // --- Squares (step 3)

  private length(axis: 0 | 1): number {
    return this.high[axis] - this.low[axis];
  }

  /** How many undivided squares cover the rectangle, east and north; 0 where it has no width. */
  private extent(): Pair {
    const cells = (axis: 0 | 1): number => Math.ceil(this.length(axis) / this.side - 1e-9);
    return [cells(0), cells(1)];
  }

  /** Flat enough for β, and with ρ at most the radius of the tip. */
  private firstParts(): number {
    const longest = Math.max(this.cone.beta / FIRST, 0.75 / this.cone.radius) * this.side;
    let parts = 1;
    while (longest > parts) parts *= 2;
    return parts;
  }

  /** Every square with its first bound (steps 4 to 7); `mean` is overwritten by the next one. */
  private *bounded(
    groups: Iterable<Group>,
    parts: number,
    sides: Pair,
    rho: number,
  ): Generator<{ square: { node: Pair; part: Pair; place: Pair }; bound: number; mean: Float64Array }> {
    const { beta } = this.cone;
    const sums = new Float64Array(TERMS);
    const mean = new Float64Array(6);
    const windows = this.lattice ? new Windows(this.lattice, this.weights, this.cone, this.side, this.low) : undefined;
    for (const { part, nodes } of groups) {
      const at: Pair = [(part[0] + 0.5) / parts, (part[1] + 0.5) / parts];
      windows?.turnTo([at[0] * sides[0], at[1] * sides[1]], rho);
      for (let next = 0; next < nodes.length; next += 2) {
        const node: Pair = [nodes[next]!, nodes[next + 1]!];
        const place: Pair = [this.low[0] + sides[0] * (node[0] + at[0]), this.low[1] + sides[1] * (node[1] + at[1])];
        const share = windows
          ? windows.sums(node, this.floor, BEYOND * this.tolerance, sums)
          : this.sumsOfAll(place, rho, sums);
        this.expand(sums, rho, share, mean);
        const most = longest(mean[0]!, mean[1]!, mean[2]!, mean[3]!, mean[4]!, rho) + mean[5]!;
        yield { square: { node, part, place }, bound: beta + Math.min(most, beta), mean };
      }
    }
  }

  // --- g and its change in a square (steps 4 to 6)

  /** Sums over all centres, where they lie on no grid; nothing is left beyond. */
  private sumsOfAll(place: Pair, rho: number, sums: Float64Array): number {
    const terms = new Float64Array(TERMS);
    sums.fill(0);
    for (let index = 0; index < this.weights.length; index++) {
      this.cone.expand(place[0] - this.east[index]!, place[1] - this.north[index]!, rho, terms, 0);
      for (let term = 0; term < TERMS; term++) sums[term]! += this.weights[index]! * terms[term]!;
    }
    sums[0]! += this.floor;
    return 0;
  }

  /** g = N/D with N = −∇Z/Z(q) and D = Z/Z(q), both expanded at q; `beyond` is the share of what was not summed. */
  private expand(sums: Float64Array, rho: number, beyond: number, mean: Float64Array): void {
    const { beta } = this.cone;
    const whole = sums[0]!;
    const ne = -sums[1]! / whole;
    const nn = -sums[2]! / whole;
    const aee = -sums[3]! / whole;
    const aen = -sums[4]! / whole;
    const ann = -sums[5]! / whole;
    const beee = -sums[6]! / whole;
    const been = -sums[7]! / whole;
    const benn = -sums[8]! / whole;
    const bnnn = -sums[9]! / whole;
    const rest = sums[10]! / whole;
    const n = length(ne, nn);
    const jee = aee + ne * ne;
    const jen = aen + ne * nn;
    const jnn = ann + nn * nn;
    const a = norm(aee, aen, ann);
    const j = norm(jee, jen, jnn);
    const b = normOfThird(beee, been, benn, bnnn);
    const t = normOfThird(
      beee + 2 * ne * jee + aee * ne,
      been + 2 * ne * jen + aee * nn,
      benn + 2 * nn * jen + ann * ne,
      bnnn + 2 * nn * jnn + ann * nn,
    );
    const bent = (rho ** 2 / 2) * t;
    let above = rest + rho * n * bent + (rho ** 2 / 2) * a * (rho * j + bent);
    above += ((rho ** 3 / 6) * b + rho * rest) * (n + rho * j + bent);
    const least = Math.max(1 - rho * (n + (rho / 2) * (a + (rho / 3) * b) + rest), Math.exp(-beta * rho));
    mean[0] = ne;
    mean[1] = nn;
    mean[2] = jee;
    mean[3] = jen;
    mean[4] = jnn;
    mean[5] = bent + above / least + 2 * beta * beyond + beta * ROUNDING;
  }

  // --- Every centre (steps 7 and 8)

  /** Look at places from the largest β + |g| down, lower their bounds; the worst seen, and the last threshold. */
  private lookClosely(open: Candidates, rho: number, bestBefore: number, claim: number): Pair {
    const order = Array.from(open.alone.keys()).sort((one, other) => open.alone[other]! - open.alone[one]!);
    const edge = order.map((index) => this.fewAhead(open, index));
    let [best, next, size] = [bestBefore, 0, LOOKS];
    for (;;) {
      const threshold = Math.max((1 + this.tolerance) * best, claim);
      let looked = 0;
      for (; next < order.length && looked < size; next++) {
        const index = order[next]!;
        const near = open.alone[index]! > (1 - 0.75 * this.tolerance) * threshold;
        if (!(edge[next] || near) || open.bound[index]! <= threshold) continue;
        const [seen, most] = this.closely(open, index, rho);
        open.bound[index] = Math.min(open.bound[index]!, most);
        best = Math.max(best, seen);
        if (claim > 0 && best > claim) return [best, threshold]; // broken, whatever the rest shows
        looked++;
      }
      if (!looked) return [best, threshold];
      size = Math.max(LOOKS, Math.floor(ENTRIES / this.weights.length));
    }
  }

  /** Whether g is long there, and leads out of the rectangle of the centres before it meets many of them. */
  private fewAhead(open: Candidates, index: number): boolean {
    const g = length(open.mean[6 * index]!, open.mean[6 * index + 1]!);
    if (g <= LONG * this.cone.beta) return false;
    let steps = Infinity;
    const [lows, highs] = this.corners;
    for (const axis of [0, 1] as const) {
      const along = open.mean[6 * index + axis]!;
      const place = open.place[2 * index + axis]!;
      const way = along > 0 ? highs[axis] - place : place - lows[axis];
      steps = Math.min(steps, Math.max(way, 0) / Math.max(Math.abs(along), 1e-300));
    }
    return steps * g < AHEAD * this.side;
  }

  /** max over all centres of |a_y − g|, at q and, at most, in the square. */
  private closely(open: Candidates, index: number, rho: number): Pair {
    const { cone } = this;
    const [ge, gn, jee, jen, jnn, rest] = open.mean.slice(6 * index, 6 * index + 6) as [
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    let [seen, most] = [0, 0];
    for (let centre = 0; centre < this.weights.length; centre++) {
      const east = open.place[2 * index]! - this.east[centre]!;
      const north = open.place[2 * index + 1]! - this.north[centre]!;
      const r = Math.sqrt(east * east + north * north);
      const near = Math.exp(-cone.decay(r));
      const share = near / (near + FLOOR);
      const slope = cone.rate(r);
      const rate = share * slope; // of φ: φ′ = s·ψ′ and φ″ = s·ψ″ − s(1 − s)·ψ′²
      const bend = share * (cone.turn(r) - (1 - share) * slope * slope);
      const be = rate * east - ge;
      const bn = rate * north - gn;
      const ee = rate + bend * east * east - jee;
      const en = bend * east * north - jen;
      const nn = rate + bend * north * north - jnn;
      const reached = longest(be, bn, ee, en, nn, rho) + (rho ** 2 / 2) * cone.bendChange(r, rho);
      most = Math.max(most, reached);
      seen = Math.max(seen, be * be + bn * bn);
    }
    return [Math.sqrt(seen), most * (1 + 1e-12) + rest];
  }
}

/** Sums over the centres of a grid in a window around the one nearest to a place (steps 4 and 5). */
class Windows {
  private readonly lattice: Lattice;
  private readonly cone: RoundedCone;
  private readonly side: number;
  private readonly low: Pair;
  private readonly weights: Float64Array;
  private readonly below: Float64Array;
  /** What lies beyond the window, by how often it was doubled. */
  private readonly beyond: Float64Array[] = [];
  private terms: (Float64Array | undefined)[] = [];
  private inner: Pair = [0, 0];
  private shift: Pair = [0, 0];
  private rho = 0;

  constructor(lattice: Lattice, weights: Float64Array, cone: RoundedCone, side: number, low: Pair) {
    this.lattice = lattice;
    this.cone = cone;
    this.side = side;
    this.low = low;
    const { rows, columns, at } = lattice;
    this.weights = new Float64Array(rows * columns);
    at.forEach((cell, index) => (this.weights[cell] = weights[index]!));
    this.below = sumsBelow(this.weights, rows, columns);
  }

  /** From now on squares whose centres lie at this place of their node, in km. */
  turnTo([east, north]: Pair, rho: number): void {
    const at: Pair = [(this.low[0] + east) / this.side, (this.low[1] + north) / this.side];
    this.shift = [Math.floor(at[0] + 0.5), Math.floor(at[1] + 0.5)];
    this.inner = [at[0] - this.shift[0], at[1] - this.shift[1]];
    this.rho = rho;
    this.terms = [];
  }

  /** Z and the other sums around a node; the window is doubled until what is beyond has a share of `most`. */
  sums(node: Pair, floor: number, most: number, sums: Float64Array): number {
    const { rows, columns, rim } = this.lattice;
    const [column, row] = [node[0] + this.shift[0] + rim, node[1] + this.shift[1] + rim];
    const grows = Math.exp(2 * this.cone.beta * this.rho);
    for (let doubled = 0; ; doubled++) {
      const cells = this.reach(doubled);
      const [up, across] = [Math.min(cells, rows - 1), Math.min(cells, columns - 1)];
      const terms = (this.terms[doubled] ??= this.termsWithin(up, across));
      addUp(this.weights, rows, columns, row, column, up, across, terms, sums);
      sums[0]! += floor;
      const beyond = (this.beyond[doubled] ??= this.beyondOf(cells));
      const share = (beyond[row * columns + column]! * grows) / sums[0]!;
      if (share <= most) return share;
    }
  }

  /** How many cells of the window lie on every side. */
  private reach(doubled: number): number {
    return Math.ceil((REACH * 2 ** doubled) / (this.cone.beta * this.side) + 0.5);
  }

  private termsWithin(up: number, across: number): Float64Array {
    const wide = 2 * across + 1;
    const terms = new Float64Array((2 * up + 1) * wide * TERMS);
    for (let row = -up; row <= up; row++) {
      for (let column = -across; column <= across; column++) {
        const east = (this.inner[0] - column) * this.side;
        const north = (this.inner[1] - row) * this.side;
        this.cone.expand(east, north, this.rho, terms, ((row + up) * wide + column + across) * TERMS);
      }
    }
    return terms;
  }

  /** Σ c·f over the centres outside the window, at most, shell by shell, for each cell. */
  private beyondOf(reach: number): Float64Array {
    const { rows, columns } = this.lattice;
    const total = new Float64Array(rows * columns);
    const step = Math.ceil(1 / (this.cone.beta * this.side));
    for (let cells = reach; cells < Math.max(rows, columns) - 1; cells += step) {
      const falls = Math.exp(-this.cone.decay((cells + 0.5) * this.side));
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          const shell = this.within(row, column, cells + step) - this.within(row, column, cells);
          total[row * columns + column]! += shell * falls;
        }
      }
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

/** Σ weight × each of the terms over a window: nine tenths of all the time goes here. */
function addUp(
  weights: Float64Array,
  rows: number,
  columns: number,
  row: number,
  column: number,
  up: number,
  across: number,
  terms: Float64Array,
  sums: Float64Array,
): void {
  const [west, east] = [Math.max(column - across, 0), Math.min(column + across, columns - 1)];
  const last = Math.min(row + up, rows - 1);
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
  sums[0] = s0;
  sums[1] = s1;
  sums[2] = s2;
  sums[3] = s3;
  sums[4] = s4;
  sums[5] = s5;
  sums[6] = s6;
  sums[7] = s7;
  sums[8] = s8;
  sums[9] = s9;
  sums[10] = s10;
}

/** Every part of every undivided square. */
function* firstGroups(extent: Pair, parts: number): Generator<Group> {
  const [across, up] = [Math.max(extent[0], 1), Math.max(extent[1], 1)];
  const nodes = new Int32Array(2 * across * up);
  for (let index = 0; index < across * up; index++) {
    nodes[2 * index] = Math.floor(index / up);
    nodes[2 * index + 1] = index % up;
  }
  for (let east = 0; east < parts; east++) {
    for (let north = 0; north < parts; north++) yield { part: [east, north], nodes };
  }
}

/** Four for each of the chosen. */
function quartered(open: Candidates, chosen: readonly number[], parts: number): Group[] {
  const groups = new Map<number, { part: Pair; nodes: number[] }>();
  for (const index of chosen) {
    for (const [right, up] of [
      [0, 0],
      [1, 0],
      [0, 1],
      [1, 1],
    ] as const) {
      const part: Pair = [2 * open.part[2 * index]! + right, 2 * open.part[2 * index + 1]! + up];
      const code = part[0] * 2 * parts + part[1];
      const group = groups.get(code) ?? { part, nodes: [] };
      group.nodes.push(open.node[2 * index]!, open.node[2 * index + 1]!);
      groups.set(code, group);
    }
  }
  return [...groups.values()];
}

function length(east: number, north: number): number {
  return Math.sqrt(east * east + north * north);
}

/** |v + M·h| over |h| ≤ ρ, at most, for a symmetric 2 × 2 matrix M. */
function longest(east: number, north: number, ee: number, en: number, nn: number, rho: number): number {
  const pulled = length(ee * east + en * north, en * east + nn * north);
  const change = rho * norm(ee, en, nn);
  return Math.sqrt(east * east + north * north + 2 * rho * pulled + change * change);
}

/** The largest eigenvalue, in size, of a symmetric 2 × 2 matrix. */
function norm(ee: number, en: number, nn: number): number {
  return Math.abs(ee + nn) / 2 + length((ee - nn) / 2, en);
}

/** |T·hhh| over |h| = 1, at most: the waves of one and of three turns that it is the sum of. */
function normOfThird(eee: number, een: number, enn: number, nnn: number): number {
  return (length(eee - 3 * enn, 3 * een - nnn) + 3 * length(eee + enn, een + nnn)) / 4;
}
