/** The rounded cone: how the weight of a report falls with its distance from a position. */

/** Radius of the rounded tip in cells. */
export const ROUNDING_CELLS = 0.87;
/** What is left far away: flat is private, and integers of 32 bits can hold it. */
export const FLOOR = 2 ** -21;
/** Entries of an expansion: f, its nine derivatives to third order, and the remainder. */
export const TERMS = 11;

const PIECES = 64; // of the tip, on which the fourth derivative is bounded
const CORNERS = [
  [0, 0],
  [0.25, 0],
  [0.5, 1 / 6],
  [0.75, 0.5],
  [1, 1],
] as const;

/**
 * k(r) = e^{−ψ(r)} + τ, where ψ is a cone of slope β with a rounded tip of radius a: ψ′(r) = β·t(5 − t⁴)/4 for
 * t = r/a ≤ 1 and β beyond. So ψ has two continuous derivatives, slope at most β and no cusp at a centre.
 */
export class RoundedCone {
  readonly beta: number;
  readonly radius: number;
  private readonly fourth: Float64Array;
  /** d′/r inside, with d = (ψ″ − ψ′/r)/r². */
  private readonly inner: number;
  /** Of ∇³f at r = a, at most. */
  private readonly jump: number;

  constructor(betaPerKm: number, radiusKm: number) {
    this.beta = betaPerKm;
    this.radius = radiusKm;
    this.inner = (-2 * betaPerKm) / radiusKm ** 5;
    this.jump = ((5 * betaPerKm) / radiusKm ** 2) * Math.exp((-betaPerKm * radiusKm * 14) / 24);
    this.fourth = this.fourthOfTip();
  }

  /** ψ(r). */
  decay(r: number): number {
    const t = squared(Math.min(r / this.radius, 1));
    return this.beta * ((this.radius / 24) * t * (15 - t * t) + Math.max(r - this.radius, 0));
  }

  /** k(r). */
  value(r: number): number {
    return Math.exp(-this.decay(r)) + FLOOR;
  }

  /** ψ′/r: β(5 − t⁴)/4a inside, β/r outside. */
  rate(r: number): number {
    const t = squared(Math.min(r / this.radius, 1));
    return ((this.beta / 4) * (5 - t * t)) / Math.max(r, this.radius);
  }

  /** (ψ″ − ψ′/r)/r²: −βr²/a⁵ inside and −β/r³ outside. */
  turn(r: number): number {
    const t = Math.min(r / this.radius, 1);
    const far = Math.max(r, this.radius);
    return (-this.beta * t * t) / (far * far * far);
  }

  /** ‖∇³φ‖, at most, within `rho` of places this far from the centre; φ = −log k. */
  bendChange(r: number, rho: number): number {
    const { beta, radius: a } = this;
    const low = Math.max(r - rho, 0);
    const third = low < a ? (5 * beta) / (a * a) : ((2 / Math.sqrt(3)) * beta) / (low * low);
    return third + this.fades(r + rho) * beta * (3 * this.rate(low) + beta * beta);
  }

  /** s(1 − s), at most, so far from the centre and nearer; s = e^{−ψ}/k. */
  fades(r: number): number {
    const falls = this.decay(r);
    return falls > 14 ? 0.25 : Math.min(0.25, FLOOR * Math.exp(falls)); // e¹⁴/2²¹ is above a quarter
  }

  /**
   * f = e^{−ψ} at an offset, its derivatives ∂e, ∂n, ∂ee, ∂en, ∂nn, ∂eee, ∂een, ∂enn, ∂nnn, and how far ∇f may be,
   * within `rho` (at most a), from its expansion to second order; written to `terms` from `at` on.
   */
  expand(east: number, north: number, rho: number, terms: Float64Array, at: number): void {
    const a = this.radius;
    const r = Math.sqrt(east * east + north * north);
    const f = Math.exp(-this.decay(r));
    const p = this.rate(r);
    const d = this.turn(r);
    const e = r < a ? this.inner : (-3 * d) / (r * r);
    const first = -p * f;
    const second = (p * p - d) * f;
    const third = (p * (3 * d - p * p) - e) * f;
    const ee = east * east;
    const nn = north * north;
    const across = Math.max(rho - Math.abs(r - a), 0); // how far a square reaches over r = a
    terms[at] = f;
    terms[at + 1] = first * east;
    terms[at + 2] = first * north;
    terms[at + 3] = first + second * ee;
    terms[at + 4] = second * east * north;
    terms[at + 5] = first + second * nn;
    terms[at + 6] = (3 * second + third * ee) * east;
    terms[at + 7] = (second + third * ee) * north;
    terms[at + 8] = (second + third * nn) * east;
    terms[at + 9] = (3 * second + third * nn) * north;
    terms[at + 10] =
      ((rho * rho * rho) / 6) * this.fourthAtMost(Math.max(r - rho, 0)) + ((across * across) / 2) * this.jump;
  }

  /** ‖∇⁴f‖, at most, so far from the centre and farther (but at r = a, where ∇³f jumps). */
  private fourthAtMost(r: number): number {
    const { beta, radius: a } = this;
    if (r < a) return this.fourth[Math.floor(Math.min((r / a) * PIECES, PIECES - 1))] as number;
    const square = beta * beta;
    const slopes = (beta * (1.5 * square + (3 * beta + 3 / r) / r)) / r;
    return Math.max(square * square, slopes) * Math.exp(-this.decay(r));
  }

  /**
   * For each piece of the tip, ‖∇⁴f‖ there and farther out, at most. In units of a, with b = βa and p = b(5 − t⁴)/4,
   * a direction of squared cosine x has f·(X₂ + X₃x + X₄x²); each term rises or falls with t, so that its ends on
   * a piece bound it, and the quadratic in x is bounded by its Bernstein coefficients of degree four.
   */
  private fourthOfTip(): Float64Array {
    const { beta, radius: a } = this;
    const b = beta * a;
    const slopes = (1.5 * beta ** 3) / a + (3 * beta ** 2) / a ** 2 + (3 * beta) / a ** 3;
    let farther = Math.max(beta ** 4, slopes) * Math.exp((-b * 14) / 24);
    const table = new Float64Array(PIECES);
    for (let piece = PIECES - 1; piece >= 0; piece--) {
      const [low, high] = [piece / PIECES, (piece + 1) / PIECES];
      const [most, least] = [(b * (5 - low ** 4)) / 4, (b * (5 - high ** 4)) / 4]; // of p
      const constant = [3 * (least ** 2 + b * low ** 2), 3 * (most ** 2 + b * high ** 2)] as const;
      const linear = product(6 * low ** 2, 6 * high ** 2, [
        2 * b - 3 * b * most * high ** 2 - most ** 3,
        2 * b - 3 * b * least * low ** 2 - least ** 3,
      ]);
      const square = product(low ** 4, high ** 4, [
        3 * b ** 2 * low ** 4 - 8 * b * most + 6 * b * least ** 2 * low ** 2 + least ** 4,
        3 * b ** 2 * high ** 4 - 8 * b * least + 6 * b * most ** 2 * high ** 2 + most ** 4,
      ]);
      let bound = 0;
      for (const [u, w] of CORNERS) {
        const reached = (side: 0 | 1): number => constant[side] + u * linear[side] + w * square[side];
        bound = Math.max(bound, -reached(0), reached(1));
      }
      farther = Math.max(farther, (bound * Math.exp(-this.decay(low * a))) / a ** 4);
      table[piece] = farther;
    }
    return table;
  }
}

function squared(value: number): number {
  return value * value;
}

type Range = readonly [least: number, most: number];

/** The ends of a product of a number ≥ 0 between two others and one in a range. */
function product(low: number, high: number, [least, most]: Range): Range {
  return [Math.min(low * least, high * least), Math.max(low * most, high * most)];
}
