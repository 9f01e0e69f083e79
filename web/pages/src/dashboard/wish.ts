/** A campaign that an operator is about to make: what the form holds, kept in this tab until it exists. */

import type { Box } from "../map/grid.ts";
import { type AnySpace, isPlaces } from "../map/places.ts";
import { keep, recall } from "./service.ts";
import { type SlotWish, FIRST_SLOTS, slotsOf } from "./slot_wish.ts";

export interface Wish {
  readonly name: string;
  readonly box: Box;
  readonly cellKm: number;
  readonly epsilonPerKm: number;
  /** More promises that people may choose instead of the first. */
  readonly others: readonly number[];
  readonly camouflage: number;
  readonly people: number;
  readonly minimum: number;
  readonly roundSize: number | undefined;
  readonly roundHours: number | undefined;
  readonly rounds: number | undefined;
  readonly trips: boolean;
  readonly tickets: boolean;
  readonly guarded: boolean;
  readonly slots: SlotWish;
  /** Names of the files that were chosen; a page keeps no file over a reload. */
  readonly files: { readonly limits?: string | undefined; readonly streets?: string | undefined };
}

/** More than the API takes would be refused. */
export const MOST_PROMISES = 8;
export const MOST_TRIP_CELLS = 512;

export const FIRST_WISH: Wish = {
  name: "",
  box: [48.8286, 2.2855, 48.8798, 2.3909],
  cellKm: 0.5,
  epsilonPerKm: 2,
  others: [],
  camouflage: 0.5,
  people: 10_000,
  minimum: 100,
  roundSize: 2000,
  roundHours: undefined,
  rounds: undefined,
  trips: false,
  tickets: false,
  guarded: false,
  slots: FIRST_SLOTS,
  files: {},
};

/** The settings as the service takes them. Trips have one promise, no times and no guard, whatever else was wished. */
export function settingsOf(wish: Wish): Record<string, unknown> {
  const { trips, others } = wish;
  const several = !trips && others.length > 0;
  return {
    name: wish.name,
    box: wish.box,
    cell_km: wish.cellKm,
    ...(several ? { promises_per_km: [wish.epsilonPerKm, ...others] } : { epsilon_per_km: wish.epsilonPerKm }),
    camouflage: wish.camouflage,
    minimum_reports: Math.round(wish.minimum),
    round_size: whole(wish.roundSize),
    round_hours: wish.roundHours ?? null,
    rounds: whole(wish.rounds),
    trips,
    tickets: wish.tickets,
    guarded: wish.guarded && !trips,
    ...(trips ? {} : slotsOf(wish.slots)),
  };
}

/** As the form asks for it before it can be sent; what is being typed may have a fraction yet. */
function whole(value: number | undefined): number | null {
  return value === undefined ? null : Math.round(value);
}

/** What the service is asked before anything is made; the name makes no difference. */
export function questionOf(wish: Wish, space: AnySpace | undefined): Record<string, unknown> {
  const { name: _, ...settings } = settingsOf(wish);
  const area = space && isPlaces(space) ? { places: space } : { mask: space?.mask ?? null };
  return { ...settings, people: Math.round(wish.people), ...area };
}

/** Where in the form a setting of the service stands. */
export const CONTROLS: Readonly<Record<string, string>> = {
  name: "name",
  box: "edge-0",
  cell_km: "cell",
  epsilon_per_km: "epsilon",
  promises_per_km: "epsilon",
  camouflage: "dial",
  people: "people",
  minimum_reports: "minimum",
  round_size: "size",
  round_hours: "hours",
  rounds: "rounds",
  slots: "slots",
  zone: "zone",
  guarded: "guarded",
  trips: "trips",
  tickets: "tickets",
  mask: "limits",
};

// --- The draft: what was typed outlives a reload and a service that is away, and ends with the tab

const DRAFT = "geoveil-new-campaign";

/** Keep what was typed; null is a field that was emptied, which would be left out and filled again. */
export function keepDraft(wish: Wish): void {
  const typed = JSON.stringify(wish, (_, value: unknown) => value ?? null);
  keep(DRAFT, typed);
}

export function forgetDraft(): void {
  keep(DRAFT, null);
}

/** What was typed before in this tab, or a first wish; of a draft that is none nothing is taken. */
export function draft(): Wish {
  try {
    const typed = JSON.parse(recall(DRAFT) ?? "null") as Partial<Record<keyof Wish, unknown>> | null;
    if (!typed) return FIRST_WISH;
    const entries = Object.entries(typed).map(([name, value]) => [name, value ?? undefined]);
    const wish = { ...FIRST_WISH, ...Object.fromEntries(entries) } as Wish;
    slotsOf(wish.slots);
    Object.values(wish.files);
    const sound = wish.box.every(Number.isFinite) && wish.others.every(Number.isFinite);
    return sound && typeof wish.name === "string" ? wish : FIRST_WISH;
  } catch {
    return FIRST_WISH;
  }
}
