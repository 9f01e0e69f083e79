/**
 * The largest loss per kilometre between any two positions, bounded over all of them.
 *
 * A report y from the position x has probability c(y)·k(|x − y|)/Z(x). With φ = −log k, the row w, a_y = ∇φ(x − y)
 * and g = Σ w_y·a_y, the loss per km is at most sup_x max_y |a_y − g|. A square of centre q and half-diagonal ρ is
 * bounded by Taylor's theorem around q, and quartered while its bound lies above the claim. The steps are those of
 * decision 11 of Geoveil, by number.
 */

import { type Centres, ends } from "./area.ts";
import { FLOOR, type RoundedCone, TERMS } from "./cone.ts";
import { length, longest, norm, normOfThird } from "./norms.ts";
import type { Pair } from "./plane.ts";
import { type Mean, Steepest } from "./steepest.ts";
import { Windows } from "./windows.ts";

const TOLERANCE = 0.004; // for each β·cell
const FIRST = 0.5; // β times the side of the squares to begin with, at most
const DEEPEST = 8; // how often a square is quartered, at most
const BEYOND = 1 / 32; // the share of those beyond, at most, in parts of the tolerance
const LOOKS = 16; // how many places are looked at closely before the threshold is set anew
const ENTRIES = 1 << 16;
const AHEAD = 5;
const LONG = 0.1;
const ROUNDING = 1e-11; // of sums of up to 2¹⁶ numbers of one sign, relative, with a margin
const MOST_SQUARES = 2 ** 22; // to begin with; a law that needs more is not believed
const MOST_WORK = 2 ** 30; // those times the centres in a window, or in a list, likewise

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
  /** The numbers of those, column by column. */
  readonly nodes: number[];
}

/**
 * A square whose bound lies above the claim: its number, its part, its bound, β + |g(q)| (at least max |a_y − g| at q)
 * and g. There may be millions, so they lie in one array, so many numbers each.
 */
type Square = readonly [number: number, east: number, north: number, bound: number, alone: number, ...mean: Mean];
const WIDE = 11;

/** Centres, a weight for each, and how it falls with the distance. */
export class PositionLaw {
  private readonly cone: RoundedCone;
  private readonly weights: Float64Array;
  private readonly east: Float64Array;
  private readonly north: Float64Array;
  /** Where the centres lie on a grid. */
  private readonly windows: Windows | undefined;
  private readonly low: Pair;
  /** Of the rectangle of positions. */
  private readonly size: Pair;
  /** Those of the rectangle of the centres, the rim included, east and north. */
  private readonly ends: readonly [Pair, Pair];
  /** The side of an undivided square: a cell of the grid, or a tip of the kernel. */
  private readonly side: number;
  private readonly steepest: Steepest;
  private readonly tolerance: number;
  private readonly floor: number;

  constructor(centres: Centres, weights: ArrayLike<number>, cone: RoundedCone) {
    const { pitchKm, lattice } = centres;
    this.cone = cone;
    this.weights = Float64Array.from(weights);
    this.east = centres.east.map((steps) => steps * pitchKm);
    this.north = centres.north.map((steps) => steps * pitchKm);
    this.low = [centres.low[0] * pitchKm, centres.low[1] * pitchKm];
    this.size = [centres.high[0] * pitchKm - this.low[0], centres.high[1] * pitchKm - this.low[1]];
    const { east, north } = this;
    this.ends = [ends(east), ends(north)];
    this.steepest = new Steepest(east, north, cone);
    this.side = lattice ? lattice.step * pitchKm : cone.radius;
    this.windows = lattice && new Windows(lattice, this.weights, cone, this.side);
    this.tolerance = Math.min(Math.max(TOLERANCE * cone.beta * this.side, 0.001), 0.02);
    this.floor = FLOOR * this.weights.reduce((sum, weight) => sum + weight, 0);
  }

  /**
   * ε between any two positions. With a claim, no square is cut whose bound is at most that: the answer is then at
   * most the claim, or above it; where no place was seen that breaks it, the answer without one may still be below.
   * Without one (0), a little above the loss at the worst place looked at.
   */
  certify(claimPerKm = 0): PositionCertificate {
    const { low, size, windows } = this;
    const { beta } = this.cone;
    // how many undivided squares cover the rectangle, east and north
    const [across, up] = size.map((length) => Math.max(Math.ceil(length / this.side - 1e-9), 1)) as [number, number];
    const sides: Pair = [size[0] / across, size[1] / up];
    const placeOf = (number: number, east: number, north: number): Pair => [
      low[0] + sides[0] * (Math.floor(number / up) + (east + 0.5) / parts),
      low[1] + sides[1] * ((number % up) + (north + 0.5) / parts),
    ];
    let parts = this.firstParts();
    const many = across * up * parts ** 2;
    if (many > MOST_SQUARES || many * (windows?.size ?? this.east.length) > MOST_WORK) {
      return { epsilonPerKm: Infinity, seenPerKm: 0, squares: 0 };
    }
    const sums = new Float64Array(TERMS);
    let groups = firstGroups(across * up, parts);
    let [best, closed, squares, threshold] = [0, 0, 0, 0];
    for (let depth = 0; depth <= DEEPEST; depth++) {
      const rho = Math.hypot(...sides) / 2 / parts;
      const many = groups.reduce((sum, { nodes }) => sum + nodes.length, 0);
      const open = new Float64Array(WIDE * many);
      let end = 0;
      squares += many;
      for (const { part, nodes } of groups) {
        windows?.turnTo(placeOf(0, ...part), rho);
        for (const number of nodes) {
          const share = windows
            ? windows.sums([Math.floor(number / up), number % up], this.floor, BEYOND * this.tolerance, sums)
            : this.sumsOfAll(placeOf(number, ...part), rho, sums);
          const mean = this.expand(sums, rho, share);
          const [east, north, ee, en, nn, rest] = mean;
          const bound = beta + Math.min(longest(east, north, ee, en, nn, rho) + rest, beta);
          if (bound > claimPerKm) {
            open.set([number, ...part, bound, beta + length(east, north), ...mean], end);
            end += WIDE;
          } else closed = Math.max(closed, bound); // no threshold is lower
        }
      }
      [best, threshold] = this.lookClosely(open, end, rho, best, claimPerKm, placeOf);
      const undecided: number[] = [];
      for (let at = 0; at < end; at += WIDE) {
        const bound = open[at + 3]!;
        if (bound > threshold && depth < DEEPEST) undecided.push(open[at]!, open[at + 1]!, open[at + 2]!);
        else closed = Math.max(closed, bound);
      }
      if (!undecided.length) break;
      groups = quartered(undecided, parts);
      parts *= 2;
    }
    return { epsilonPerKm: closed, seenPerKm: best, squares };
  }

  // --- Squares (step 3)

  /** Flat enough for β, and with ρ at most the radius of the tip. */
  private firstParts(): number {
    const longest = Math.max(this.cone.beta / FIRST, 0.75 / this.cone.radius) * this.side;
    let parts = 1;
    while (longest > parts) parts *= 2;
    return parts;
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
  private expand(sums: Float64Array, rho: number, beyond: number): Mean {
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
    const half = (rho * rho) / 2;
    const bent = half * t;
    let above = rest + rho * n * bent + half * a * (rho * j + bent);
    above += (((half * rho) / 3) * b + rho * rest) * (n + rho * j + bent);
    const least = Math.max(1 - rho * (n + (rho / 2) * (a + (rho / 3) * b) + rest), Math.exp(-beta * rho));
    return [ne, nn, jee, jen, jnn, bent + above / least + 2 * beta * beyond + beta * ROUNDING];
  }

  // --- Every centre (steps 7 and 8)

  /** Look at places from the largest β + |g| down, lower their bounds; the worst seen, and the last threshold, Infinity where the claim is broken. */
  private lookClosely(
    open: Float64Array,
    end: number,
    rho: number,
    bestBefore: number,
    claim: number,
    placeOf: (number: number, east: number, north: number) => Pair,
  ): Pair {
    const order = Uint32Array.from({ length: end / WIDE }, (_, index) => index * WIDE);
    order.sort((one, other) => open[other + 4]! - open[one + 4]!);
    let [best, next, size] = [bestBefore, 0, LOOKS];
    for (;;) {
      const threshold = Math.max((1 + this.tolerance) * best, claim);
      let looks = 0;
      for (; next < order.length && looks < size; next++) {
        const at = order[next]!;
        const [number, east, north, bound, alone, ...mean] = open.subarray(at, at + WIDE) as unknown as Square;
        if (bound <= threshold) continue;
        const place = placeOf(number, east, north);
        if (alone <= (1 - 0.75 * this.tolerance) * threshold && !this.fewAhead(place, mean)) continue;
        const [loss, most] = this.steepest.at(place, mean, rho, threshold);
        open[at + 3] = Math.min(bound, most);
        best = Math.max(best, loss);
        if (claim > 0 && best > claim) return [best, Infinity]; // broken, whatever the rest shows
        looks++;
      }
      if (!looks) return [best, threshold];
      size = Math.max(LOOKS, Math.floor(ENTRIES / this.weights.length));
    }
  }

  /** Whether g is long there, and leads out of the rectangle of the centres before it meets many of them. */
  private fewAhead(place: Pair, mean: Mean): boolean {
    const g = length(mean[0], mean[1]);
    if (g <= LONG * this.cone.beta) return false;
    const steps = this.ends.map(([low, high], axis) => {
      const along = mean[axis]!;
      const way = along > 0 ? high - place[axis]! : place[axis]! - low;
      return Math.max(way, 0) / Math.max(Math.abs(along), 1e-300);
    });
    return Math.min(...steps) * g < AHEAD * this.side;
  }
}

/** Every part of every undivided square. */
function firstGroups(squares: number, parts: number): Group[] {
  const nodes = [...Array(squares).keys()];
  return Array.from({ length: parts * parts }, (_, at) => ({ part: [Math.floor(at / parts), at % parts], nodes }));
}

/** Four for each of the chosen: number and part of each. */
function quartered(chosen: readonly number[], parts: number): Group[] {
  const groups = new Map<number, Group>();
  for (let at = 0; at < chosen.length; at += 3) {
    for (const corner of [0, 1, 2, 3]) {
      const part: Pair = [2 * chosen[at + 1]! + (corner & 1), 2 * chosen[at + 2]! + (corner >> 1)];
      const code = part[0] * 2 * parts + part[1];
      const group = groups.get(code) ?? { part, nodes: [] };
      group.nodes.push(chosen[at]!);
      groups.set(code, group);
    }
  }
  return [...groups.values()];
}
