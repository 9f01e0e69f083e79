/** Slots: times of a day or a week, or periods, that a campaign tells apart. */

import { isObject, isWhole, type Json } from "./canonical.ts";

const MOST_SLOTS = 168;
const NAME = /^(?: |\p{Cn}|[^\p{C}\p{Z}]){1,40}$/u; // up to 40 characters that are seen, or spaces
const LATEST_S = 2 ** 40;
const END_S = 2.53e11; // in the year 9987: calendars of other devices end soon after
const MINUTES = { day: 1440, week: 10080, once: Infinity } as const;
const ZONE = /^[A-Z][A-Za-z0-9_+-]{0,29}(\/[A-Za-z0-9_+-]{1,30}){0,2}$/;
const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

export type Every = keyof typeof MINUTES;

/**
 * Slots one after another: each begins at its start and ends where the next one begins. Starts are minutes
 * of local wall-clock time in the day or the week; with `once` seconds since 1970, one more than there are slots.
 */
export interface Slots {
  readonly zone: string;
  readonly every: Every;
  readonly names: readonly string[];
  readonly starts: readonly number[];
}

/** The slots of a document; a `RangeError` for anything else. */
export function readSlots(values: Json | undefined): Slots {
  if (!isObject(values)) throw new RangeError();
  const { zone, every, names, starts } = values;
  if (
    Object.keys(values).sort().join() !== "every,names,starts,zone" ||
    typeof zone !== "string" ||
    !ZONE.test(zone) ||
    typeof every !== "string" ||
    !Object.hasOwn(MINUTES, every) ||
    !Array.isArray(names) ||
    names.length < 1 ||
    names.length > MOST_SLOTS ||
    !names.every(isName) ||
    new Set(names).size < names.length
  )
    throw new RangeError();
  return { zone, every: every as Every, names, starts: checkedStarts(starts, every as Every, names.length) };
}

/** The number of the slot at a time in seconds since 1970; null outside all periods and years. */
export function slotAt({ starts, every, zone }: Slots, timeS: number): number | null {
  const once = every === "once";
  const [first, end] = once ? [starts[0]!, starts.at(-1)!] : [0, END_S];
  if (!(timeS >= first && timeS < end)) return null;
  const now = once ? timeS : localMinute(zone, every, timeS);
  return starts.filter((start) => start <= now).length - 1;
}

/** One of them, and how many there are. */
export function slotInWords({ names, every, zone }: Slots, slot: number): string {
  const often = { day: "of every day", week: "of every week", once: "in all" }[every];
  return `“${names[slot]}”, one of ${names.length} ${often}, ${zone}`;
}

function localMinute(zone: string, every: Every, timeS: number): number {
  const format = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    weekday: "short",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });
  const parts = Object.fromEntries(format.formatToParts(new Date(timeS * 1000)).map((part) => [part.type, part.value]));
  const minute = 60 * Number(parts["hour"]) + Number(parts["minute"]);
  return every === "week" ? minute + 1440 * WEEKDAYS.indexOf(parts["weekday"]!) : minute;
}

/** What Unicode has assigned since this browser was made is as good as any: older and newer ones read the same. */
function isName(name: Json): name is string {
  return typeof name === "string" && name === name.trim() && NAME.test(name);
}

function checkedStarts(starts: Json | undefined, every: Every, slots: number): number[] {
  if (!Array.isArray(starts) || !starts.every((start) => isWhole(start, 0, LATEST_S))) {
    throw new RangeError();
  }
  const minutes = starts as number[];
  const rise = minutes.every((start, at) => !(start <= minutes[at - 1]!));
  const count = slots + (every === "once" ? 1 : 0);
  const inside = (every === "once" || minutes[0] === 0) && minutes.at(-1)! < MINUTES[every];
  if (!rise || minutes.length !== count || !inside) throw new RangeError();
  return minutes;
}
