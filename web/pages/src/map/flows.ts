/** Flows as the service releases them: shares between districts, which are blocks of cells. */

import type { Pair } from "../../../sdk/src/plane.ts";
import type { Cells } from "./grid.ts";

export interface Flows {
  /** Cells a side of a district, and districts in a row. */
  readonly side: number;
  readonly columns: number;
  /** By origin, then by destination. */
  readonly share: readonly number[];
  readonly low?: readonly number[];
  readonly high?: readonly number[];
  readonly level?: number;
  readonly stay_share: number;
  readonly stay_in_district_share: number;
}

/** One flow from district to district. */
export interface Flow {
  readonly from: number;
  readonly to: number;
  readonly share: number;
  readonly low: number | undefined;
  readonly high: number | undefined;
}

/** How many districts there are. */
export function districtsOf({ share }: Flows): number {
  return Math.round(Math.sqrt(share.length));
}

/** The middle of a district, in km; those at the edge may be smaller. */
export function middleKm({ side, columns }: Flows, cells: Cells, district: number): Pair {
  const middle = (first: number, most: number): number => (side * first + Math.min(side * (first + 1), most)) / 2;
  const row = Math.floor(district / columns);
  const [west, south] = cells.corner;
  return [
    west + cells.cellKm * middle(district - row * columns, cells.columns),
    south + cells.cellKm * middle(row, cells.rows),
  ];
}

/** All flows, or those from one district, the largest first. */
export function largestFlows(flows: Flows, from: number | undefined, most: number): Flow[] {
  const districts = districtsOf(flows);
  const origin = (pair: number): number => Math.floor(pair / districts);
  return Array.from(flows.share.keys())
    .filter((pair) => flows.share[pair]! > 0 && (from === undefined || origin(pair) === from))
    .sort((one, other) => flows.share[other]! - flows.share[one]!)
    .slice(0, most)
    .map((pair) => ({
      from: origin(pair),
      to: pair % districts,
      share: flows.share[pair]!,
      low: flows.low?.[pair],
      high: flows.high?.[pair],
    }));
}

/** Whether the interval of a flow stays clear of zero; undefined where there is none. */
export function sure({ low }: Flow): boolean | undefined {
  return low === undefined ? undefined : low > 0;
}

/** The outline of a curved arrow from one point of the screen to another, so that there and back lie side by side. */
export function arrow([x1, y1]: Pair, [x2, y2]: Pair, width: number): string {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const long = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / long, dy / long];
  const bend = 0.18 * long;
  const head = Math.min(6 + width, long / 2);
  const at = (along: number, aside: number): string =>
    `${(x1 + ux * along - uy * aside).toFixed(1)} ${(y1 + uy * along + ux * aside).toFixed(1)}`;
  const half = width / 2;
  const neck = long - head;
  return (
    `M${at(0, half)}Q${at(long / 2, bend + half)} ${at(neck, half)}L${at(neck, half + 3)}L${at(long, 0)}` +
    `L${at(neck, -half - 3)}L${at(neck, -half)}Q${at(long / 2, bend - half)} ${at(0, -half)}Z`
  );
}
