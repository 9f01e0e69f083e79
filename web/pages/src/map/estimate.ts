/** An estimate as the service releases it, and what can be said about its cells. */

import { type Colour, colour, unknownColour } from "./colours.ts";
import type { Flows } from "./flows.ts";
import { type AnyCells, type AnySpace, cellsOf, Places } from "./places.ts";

export interface Alarm {
  readonly raised: boolean;
  readonly still_raised: boolean;
  readonly summary: string;
  readonly suspicious: readonly number[];
  /** Of every slot by itself: only of a campaign with slots, once that is worked out. */
  readonly slots?: { readonly raised: boolean; readonly summary: string } | null;
}

export interface Estimate {
  readonly campaign: string;
  readonly round: number;
  readonly closed_at: number;
  readonly epsilon_per_km: number;
  /** Of the promise between positions; campaigns of old promised between cells, and have none. */
  readonly slack_nats?: number;
  readonly space: AnySpace;
  readonly reports: number;
  readonly rounds: readonly { readonly round: number; readonly mechanism: string; readonly reports: number }[];
  readonly distribution: readonly number[];
  readonly certificate_nats_per_report: number;
  readonly steps: number;
  readonly stopped: string;
  readonly unfinished: readonly string[];
  /** Null where the reports say nothing about a cell. */
  readonly standard_error?: readonly (number | null)[];
  readonly interval?: {
    readonly level: number;
    readonly low: readonly number[];
    readonly high: readonly number[];
    readonly method: string;
  };
  readonly blocks?: readonly Blocks[];
  /** Only of a campaign of trips, whose distribution counts both ends of each. */
  readonly flows?: Flows;
  readonly alarm?: Alarm;
  readonly manipulation_gain?: { readonly summary: string };
  readonly drift?: { readonly summary: string; readonly waiting: readonly number[]; readonly aside: readonly number[] };
  readonly choices?: Choices;
  readonly slots?: SlotsOf;
}

/** What each promise contributed, where people choose; the numbers are null where too few chose it. */
export interface Choices {
  readonly levels: readonly {
    readonly epsilon_per_km: number;
    readonly reports: number | null;
    readonly bits_per_report: number | null;
  }[];
  readonly dependent: boolean;
  readonly summary: string;
}

/** The slots of time, and the reports of those that have a map of their own. */
export interface SlotsOf {
  readonly zone: string;
  readonly names: readonly string[];
  readonly minimum_reports: number;
  readonly reports: readonly (number | null)[];
  readonly summary: string;
}

/** Errors and intervals of squares of side × side cells, by rows from the south-west. */
export interface Blocks {
  readonly side: number;
  readonly columns: number;
  readonly standard_error: readonly (number | null)[];
  readonly low: readonly number[];
  readonly high: readonly number[];
}

/** Above so many cells the service does not look for cells that cannot be told apart. */
export const LOOKED_FOR = 2048;

/** What a map can show. */
export type Showing = "estimate" | "doubt" | "counts" | "truth" | "districts";

export interface Values {
  readonly cells: AnyCells;
  /** Share of every cell, of people or of reports. */
  readonly shares: readonly number[];
  readonly errors: readonly (number | null)[] | undefined;
  readonly low: readonly number[] | undefined;
  readonly high: readonly number[] | undefined;
  readonly most: number;
  /** By cell, the finest square around it whose share is known; undefined where there are no error bars. */
  readonly known?: readonly (Known | undefined)[] | undefined;
}

/** A square of cells whose share is known well enough. */
export interface Known {
  readonly side: number;
  readonly share: number;
  readonly low: number;
  readonly high: number;
  /** How many cells it has; fewer at the edge of the map. */
  readonly cells: number;
}

/** The share of a square is known where its standard error is at most so large a part of it. */
const KNOWN_WITHIN = 0.5;

export function valuesOf(estimate: Estimate): Values {
  const cells = cellsOf(estimate.space);
  return {
    cells,
    known: knownSquares(estimate, cells),
    shares: estimate.distribution,
    errors: estimate.standard_error,
    low: estimate.interval?.low,
    high: estimate.interval?.high,
    most: largest(estimate.distribution),
  };
}

/** For every cell the finest square around it that is known: from the cell itself to the largest block. */
export function knownSquares(estimate: Estimate, cells: AnyCells): readonly (Known | undefined)[] | undefined {
  const { distribution: shares, standard_error: errors, interval, blocks } = estimate;
  if (!errors || !interval || !blocks) return undefined;
  const single: Blocks = { side: 1, columns: cells.columns, standard_error: errors, ...interval };
  const known: (Known | undefined)[] = new Array<undefined>(cells.size).fill(undefined);
  for (const level of [single, ...blocks]) {
    const sums = new Float64Array(level.low.length);
    const sizes = new Uint32Array(level.low.length);
    const squareOf = (cell: number): number => {
      if (level === single || cells instanceof Places) return cell; // places have no blocks
      const [row, column] = cells.placeOf(cell);
      return Math.floor(row / level.side) * level.columns + Math.floor(column / level.side);
    };
    for (let cell = 0; cell < cells.size; cell++) {
      sums[squareOf(cell)]! += shares[cell]!;
      sizes[squareOf(cell)]! += 1;
    }
    for (let cell = 0; cell < cells.size; cell++) {
      const square = squareOf(cell);
      const error = level.standard_error[square] ?? Infinity;
      const share = sums[square]!;
      if (known[cell] || !(error <= KNOWN_WITHIN * share)) continue;
      known[cell] = {
        side: level.side,
        share,
        low: level.low[square]!,
        high: level.high[square]!,
        cells: sizes[square]!,
      };
    }
  }
  return known;
}

export function largest(values: readonly number[]): number {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

/** A share as a part of the scale: its square root, so that small crowds are seen beside large ones. */
export function onScale(share: number, most: number): number {
  return most > 0 ? Math.sqrt(Math.min(1, share / most)) : 0;
}

/** The share at a part of the scale. */
export function fromScale(part: number, most: number): number {
  return part * part * most;
}

/** How every cell is painted. */
export function painter(values: Values, showing: Showing, dark: boolean): (cell: number) => Colour {
  const { shares, known, most } = values;
  if (showing === "doubt" && known) {
    return (cell) => {
      const square = known[cell];
      return square ? colour(onScale(square.share / square.cells, most), dark) : unknownColour(dark);
    };
  }
  return (cell) => colour(onScale(shares[cell]!, most), dark);
}

/** How many cells the reports say nothing about. */
export function unknown(estimate: Estimate): number {
  return estimate.standard_error?.filter((error) => error === null).length ?? 0;
}
