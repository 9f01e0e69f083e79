/** Times that reports name: hours, hours of the week, or times of the operator's own, as the form holds them. */

/** How own times come again. */
export type Every = "day" | "week" | "once";
export type Kind = "none" | "hour" | "weekday-hour" | Every;

/** A time of one's own: its name, and when it begins; a weekday from 0, Monday. */
export interface Own {
  readonly name: string;
  readonly weekday: number;
  /** HH:MM. */
  readonly clock: string;
  /** YYYY-MM-DDTHH:MM, of a period. */
  readonly date: string;
}

export interface SlotWish {
  readonly kind: Kind;
  readonly zone: string;
  readonly own: readonly Own[];
  /** When the last period ends. */
  readonly end: string;
}

export const MOST_SLOTS = 168;
export const NAME_LENGTH = 40;
const DAY_MINUTES = 1440;

/** The zone of this browser. */
export function zoneHere(): string {
  return new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
}

export const FIRST_SLOTS: SlotWish = { kind: "none", zone: zoneHere(), own: [], end: "" };

/** The time that begins with the day or the week, and a second one. */
export function firstOwn(every: Every, names: readonly [string, string]): readonly Own[] {
  const second = { day: { clock: "12:00" }, week: { weekday: 5 }, once: {} }[every];
  const begin: Own = { name: names[0], weekday: 0, clock: "00:00", date: "" };
  return [begin, { ...begin, name: names[1], ...second }];
}

export function isOwn(kind: Kind): kind is Every {
  return kind === "day" || kind === "week" || kind === "once";
}

/** As the service takes them: nothing without times. */
export function slotsOf({ kind, zone, own, end }: SlotWish): { slots?: unknown; zone?: string } {
  if (kind === "none") return {};
  if (!isOwn(kind)) return { slots: kind, zone };
  const starts = own.map((time) => startOf(time, kind, zone));
  if (kind === "once") starts.push(secondsOf(end, zone));
  return { slots: { every: kind, names: own.map(({ name }) => name.trim()), starts }, zone };
}

/** Why own times are refused, as far as it is about when they begin and end. */
export function wrongStarts(wish: SlotWish): "missing" | "order" | undefined {
  const { kind, own, end } = wish;
  if (!isOwn(kind)) return undefined;
  const times = kind === "once" ? [...own.map(({ date }) => date), end] : own.map(({ clock }) => clock);
  if (times.includes("")) return "missing";
  const { starts } = slotsOf(wish).slots as { starts: readonly number[] };
  return starts.every((start, at) => at === 0 || start > starts[at - 1]!) ? undefined : "order";
}

function startOf({ weekday, clock, date }: Own, every: Every, zone: string): number {
  if (every === "once") return secondsOf(date, zone);
  const [hours = 0, minutes = 0] = clock.split(":").map(Number);
  return (every === "week" ? DAY_MINUTES * weekday : 0) + 60 * hours + minutes;
}

/**
 * Seconds since 1970 at a time that clocks of a zone show; the first of the two where they show it twice. 0, which the
 * service refuses beside any other, where it is no time or no zone.
 */
export function secondsOf(local: string, zone: string): number {
  const shown = Date.parse(`${local}Z`);
  if (!Number.isFinite(shown)) return 0;
  try {
    const before = shown - ahead(zone, shown - 86_400_000); // with what clocks show the day before
    const later = shown - ahead(zone, before);
    return (ahead(zone, before) === shown - before ? before : later) / 1000;
  } catch {
    return 0;
  }
}

/** How many milliseconds the clocks of a zone are ahead of UTC at a time. */
function ahead(zone: string, time: number): number {
  const format = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
  const part = Object.fromEntries(format.formatToParts(time).map(({ type, value }) => [type, value]));
  const shown = Date.parse(
    `${part["year"]}-${part["month"]}-${part["day"]}T${part["hour"]}:${part["minute"]}:${part["second"]}Z`,
  );
  return shown - Math.floor(time / 1000) * 1000;
}
