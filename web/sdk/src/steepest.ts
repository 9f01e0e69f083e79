/**
 * The largest |a_y − g| over all centres y, a_y = ∇φ(x − y), at a place q and within ρ of it (step 7).
 *
 * Centres lie in tiles, and one bound for all centres of a tile tells whether any of them can be the largest. Few
 * tiles can, and the rest is left out: what is found is the largest over all centres, to the last digit.
 */

import { ends } from "./area.ts";
import { FLOOR, type RoundedCone } from "./cone.ts";
import { length, longest, norm } from "./norms.ts";
import type { Pair } from "./plane.ts";

const MARGIN = 1 + 1e-9; // makes up for the rounding of a tile's bound, many times over

/** Centres from number `first` up to `end`, all within `reach` of a place. */
interface Tile {
  readonly east: number;
  readonly north: number;
  readonly reach: number;
  readonly first: number;
  readonly end: number;
}

/** g, ∇g (three) and how far g may be from that within ρ. */
export type Mean = readonly [east: number, north: number, ee: number, en: number, nn: number, rest: number];

export class Steepest {
  private readonly cone: RoundedCone;
  private readonly east: Float64Array;
  private readonly north: Float64Array;
  private readonly tiles: Tile[] = [];
  /** Of every tile, what no |a_y − g| of its centres exceeds, at q and within ρ. */
  private readonly atMost: Float64Array;
  private readonly withinMost: Float64Array;
  /** The largest so far: at q, squared, and within ρ. */
  private squared = 0;
  private most = 0;

  constructor(east: Float64Array, north: Float64Array, cone: RoundedCone) {
    this.cone = cone;
    const most = Math.sqrt(east.length); // centres of a tile
    const order: number[] = [];
    const cut = (centres: number[]): void => {
      const [west, right] = ends(centres.map((centre) => east[centre]!));
      const [south, top] = ends(centres.map((centre) => north[centre]!));
      const [width, height] = [right - west, top - south];
      if (centres.length > most) {
        const along = width > height ? east : north;
        centres.sort((one, other) => along[one]! - along[other]!);
        cut(centres.splice(centres.length >> 1));
        cut(centres);
      } else {
        const middle = { east: west + width / 2, north: south + height / 2, reach: length(width, height) / 2 };
        this.tiles.push({ ...middle, first: order.length, end: order.push(...centres) });
      }
    };
    cut([...east.keys()]);
    this.east = Float64Array.from(order, (centre) => east[centre]!);
    this.north = Float64Array.from(order, (centre) => north[centre]!);
    this.atMost = new Float64Array(this.tiles.length);
    this.withinMost = new Float64Array(this.tiles.length);
  }

  /**
   * max |a_y − g| over all centres, at q and, at most, within ρ. Tiles of which the bound is at most `enough` count
   * with that, and are not looked at.
   */
  at(place: Pair, mean: Mean, rho: number, enough = 0): Pair {
    const { tiles, atMost, withinMost } = this;
    const steep = length(mean[0], mean[1]);
    const change = rho * norm(mean[2], mean[3], mean[4]);
    let first = 0;
    for (let tile = 0; tile < tiles.length; tile++) {
      this.bound(tile, place, mean, steep, change, rho);
      if (withinMost[tile]! > withinMost[first]!) first = tile;
    }
    [this.squared, this.most] = [0, 0];
    this.look(first, place, mean, rho, enough);
    for (let tile = 0; tile < tiles.length; tile++) {
      const none = atMost[tile]! ** 2 <= this.squared && withinMost[tile]! <= this.most; // is larger
      if (!none && tile !== first) this.look(tile, place, mean, rho, enough);
    }
    return [Math.sqrt(this.squared), this.most * (1 + 1e-12) + mean[5]];
  }

  private look(tile: number, place: Pair, mean: Mean, rho: number, enough: number): void {
    const within = this.withinMost[tile]!;
    if (within * (1 + 1e-12) + mean[5] > enough) this.walk(this.tiles[tile]!, place, mean, rho);
    else this.most = Math.max(this.most, within);
  }

  /**
   * With v = q − y, u = v/|v| and α = |a_y| ≤ β·s, s = e^{−ψ}/k: |a_y − g|² = α² − 2α·u·g + |g|². Over a tile s is
   * largest, and ψ′/r too, at its least distance; −u·g is at most that of v + h, |h| ≤ reach, over the least distance
   * (the largest, where it is below 0); and a convex function of α is largest at one of its ends. Within ρ it grows by
   * ρ(‖∇²φ‖ + ‖∇g‖) + ρ²/2·‖∇³φ‖, where ‖∇²φ‖ ≤ ψ′/r + s(1 − s)·β².
   */
  private bound(number: number, place: Pair, mean: Mean, steep: number, change: number, rho: number): void {
    const { cone } = this;
    const { beta } = cone;
    const tile = this.tiles[number]!;
    const { reach } = tile;
    const east = place[0] - tile.east;
    const north = place[1] - tile.north;
    const r = length(east, north);
    const low = Math.max(r - reach, 0);
    const near = Math.exp(-cone.decay(low));
    const alpha = (beta * near) / (near + FLOOR);
    const ahead = reach * steep - east * mean[0] - north * mean[1];
    const lead = ahead < 0 ? ahead / (r + reach) : low > reach ? Math.min(ahead / low, steep) : steep;
    const at = Math.sqrt(steep * steep + Math.max(alpha * (alpha + 2 * lead), 0));
    const bend = cone.rate(low) + cone.fades(r + reach) * beta * beta;
    const within = at + rho * bend + change + ((rho * rho) / 2) * cone.bendChange(r, reach + rho);
    this.atMost[number] = at * MARGIN;
    this.withinMost[number] = within * MARGIN;
  }

  /** Every centre of a tile. */
  private walk({ first, end }: Tile, place: Pair, mean: Mean, rho: number): void {
    const { cone } = this;
    const [ge, gn, jee, jen, jnn] = mean;
    let { squared, most } = this;
    for (let centre = first; centre < end; centre++) {
      const east = place[0] - this.east[centre]!;
      const north = place[1] - this.north[centre]!;
      const r = length(east, north);
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
      most = Math.max(most, longest(be, bn, ee, en, nn, rho) + ((rho * rho) / 2) * cone.bendChange(r, rho));
      squared = Math.max(squared, be * be + bn * bn);
    }
    [this.squared, this.most] = [squared, most];
  }
}
