/**
 * A device's ledger: what every report cost and said, and nothing true.
 *
 * Each change loads the book, works on it and saves it if nobody else did meanwhile; else it begins again. So any
 * number of tabs and workers may share one.
 */

import { type Bytes, hex, isNumber, isObject, isWhole, unhex } from "./canonical.ts";
import type { Promised } from "./document.ts";
import { Exact, leftOf } from "./exact.ts";
import { type Again, type Bits, bitsOf, movedOn, newKey, type Period } from "./keys.ts";
import { Refused } from "./refusal.ts";
import type { Kept, LedgerStorage } from "./storage.ts";
import { roundedDown } from "./words.ts";

const FORMAT = 1;
const WAIT_MS = 10_000; // how long to try while others keep writing
const MOST_STEPS = 4096; // a key is moved on by no more; a report farther ahead begins with a new one
const DAY_S = 86_400;
const YEAR_DAYS = 365;

/** `sent`: drawn, and may have left; then what the collector said. */
export type State = "sent" | "acknowledged" | "refused";

/** A report's cell, and the latitude and longitude of its centre in degrees. */
export interface Drawn {
  readonly cell: number;
  readonly lat: number;
  readonly lng: number;
}

/** One report in the ledger: what it cost, and what was sent. */
export interface Charge extends Drawn, Promised {
  /** Of a trip: where it ended, as it was drawn. */
  readonly to?: Drawn;
  /** The campaign's link. */
  readonly campaign: string;
  readonly round: number;
  readonly mechanism: string;
  /** The id that was sent. */
  readonly report: string;
  readonly state: State;
  /** Why the collector refused, where it did. */
  readonly problem: string;
  /** Days since 1970 (UTC) by the device's clock. */
  readonly day: number;
  /** The slot that was sent, where the document has slots. */
  readonly slot?: number | undefined;
  /** The ticket that it counts with, where it needs one; until it is counted or refused. */
  ticket?: string | undefined;
}

/** A mechanism document as the ledger knows it. */
export interface Round {
  readonly campaign: string;
  /** SHA-256 of the space. */
  readonly space: string;
  readonly number: number;
  readonly mechanism: string;
  readonly promise: Promised;
  readonly expiresS: number;
  /** SHA-256 of the document but for its round and times. */
  readonly timeless: string;
}

/** What is known of a campaign; `key` makes the reports of `next` and of later numbers, and is null once erased. */
interface Page {
  space: string | null;
  expiresS: number | null;
  again: Again | null;
  next: number | null;
  key: string | null;
}

interface Book {
  format: typeof FORMAT;
  campaigns: Record<string, Page>;
  charges: Charge[];
  /** Documents whose promise was checked here, by `timeless`, and when they end. */
  certified: Record<string, number>;
}

/** What the reports in a ledger have cost, each sum exact. */
export interface Spent {
  readonly reports: number;
  readonly lifetime: Exact;
  readonly slack: Exact;
  readonly day: Exact;
  readonly year: Exact;
  readonly operator: Exact;
  readonly operatorSlack: Exact;
  /** Whether a report bears a date after today: then the clock was wrong, or is. */
  readonly ahead: boolean;
  /** Whether some reports are trips, with two ends. */
  readonly trips: boolean;
}

/** What all reports in a ledger may cost together: for ever, η among it, and optionally in a day and in 365 days. */
export interface Limits {
  readonly lifetime: number;
  readonly slack: number;
  readonly day: number | undefined;
  readonly year: number | undefined;
}

export function dayOf(nowS: number): number {
  return Math.floor(nowS / DAY_S);
}

export class Ledger {
  private readonly storage: LedgerStorage;

  constructor(storage: LedgerStorage) {
    this.storage = storage;
  }

  // --- What it says

  async charges(): Promise<Charge[]> {
    return (await this.book()).charges;
  }

  /** What was sent to a campaign and neither counted nor refused for good, in order. */
  async waiting(campaign: string): Promise<Charge[]> {
    return (await this.charges()).filter((charge) => charge.campaign === campaign && charge.state === "sent");
  }

  async reported(campaign: string, period: Period, mechanism = ""): Promise<Charge | undefined> {
    return reported(await this.book(), campaign, period, mechanism);
  }

  async certified(timeless: string): Promise<boolean> {
    return Object.hasOwn((await this.book()).certified, timeless);
  }

  async spent(origin: string, nowS: number): Promise<Spent> {
    return spent(await this.book(), origin, nowS);
  }

  /** Refuse another space than the first, and a report that the budget does not hold. */
  async check(current: Round, limits: Limits, nowS: number): Promise<void> {
    check(await this.book(), current, limits, nowS);
  }

  // --- Reporting

  /** A key for a campaign seen for the first time; keys of campaigns that have ended are erased. */
  openCampaign(name: string, period: Period, nowS: number): Promise<void> {
    return this.change((book) => {
      forgetEnded(book, nowS);
      openCampaign(book, name, period);
    });
  }

  /** `check`, and the id and the bits for the report, before a location is read; the report itself if it was made. */
  accept(current: Round, period: Period, limits: Limits, nowS: number): Promise<Charge | Bits> {
    return this.change(async (book) => {
      const earlier = reported(book, current.campaign, period, current.mechanism);
      if (earlier) return earlier;
      check(book, current, limits, nowS);
      forgetEnded(book, nowS);
      book.certified[current.timeless] = current.expiresS;
      return bitsOf(await keyFor(book, current, period), current.mechanism, period);
    });
  }

  /**
   * Charge a report that was drawn; once this resolves, it may be sent. With the charge the key moves on: nobody
   * can work out from the ledger what the report was drawn from. Where another tab was quicker, its report is the one,
   * that of today too where the day of `period` is over.
   */
  charge(
    current: Round,
    period: Period,
    limits: Limits,
    nowS: number,
    report: string,
    sent: Pick<Charge, keyof Drawn | "to" | "slot" | "ticket">,
  ): Promise<Charge> {
    return this.change(async (book) => {
      const { campaign, number: round, mechanism, promise } = current;
      const day = dayOf(nowS);
      const earlier = reported(book, campaign, period, mechanism, day);
      if (earlier) return earlier;
      check(book, current, limits, nowS);
      const paid = { campaign, round, mechanism, report, ...promise, ...sent, day };
      const charge: Charge = { ...paid, state: "sent", problem: "" };
      book.charges.push(charge);
      await moveOn(book, campaign, period);
      return charge;
    });
  }

  /** What became of a report, or the ticket that it lacked; an acknowledged one stays so. */
  mark(report: string, values: Partial<Charge>): Promise<void> {
    return this.change((book) => {
      const one = book.charges.find((charge) => charge.report === report && charge.state !== "acknowledged");
      Object.assign(one ?? {}, values);
    });
  }

  /** Erase the key of a campaign that has ended, and its tickets; what was reported stays. */
  end(campaign: string): Promise<void> {
    return this.change((book) => {
      erase(book.campaigns[campaign]);
      for (const charge of book.charges) if (charge.campaign === campaign) delete charge.ticket;
    });
  }

  forgetEnded(nowS: number): Promise<void> {
    return this.change((book) => forgetEnded(book, nowS));
  }

  // --- The book

  private async load(): Promise<{ book: Book; version: number }> {
    let entry: Kept | undefined;
    try {
      entry = await this.storage.load();
      if (entry) entry = JSON.parse(JSON.stringify(entry)) as Kept; // what is not saved stands in no book of an app's
    } catch (problem) {
      throw new Refused("ledger-unreadable", nameOf(problem));
    }
    if (entry === undefined) return { book: { format: FORMAT, campaigns: {}, charges: [], certified: {} }, version: 0 };
    if (!isWhole(entry?.version, 1) || !isBook(entry.book)) throw new Refused("ledger-unreadable");
    return { book: entry.book, version: entry.version };
  }

  private async book(): Promise<Book> {
    return (await this.load()).book;
  }

  private async change<Result>(work: (book: Book) => Result | Promise<Result>): Promise<Result> {
    const last = Date.now() + WAIT_MS;
    for (;;) {
      const { book, version } = await this.load();
      const before = JSON.stringify(book);
      const result = await work(book);
      if (version > 0 && JSON.stringify(book) === before) return result;
      try {
        if (await this.storage.save(book, version)) return result;
      } catch (problem) {
        throw new Refused("ledger-unwritable", nameOf(problem));
      }
      if (Date.now() > last) throw new Refused("ledger-busy");
    }
  }
}

function nameOf(problem: unknown): string {
  return problem instanceof Error ? problem.name : "";
}

// --- Questions and changes of one book

/** The report of a period that was made already; of a round by its mechanism, whatever its number; of a day or today. */
function reported(
  book: Book,
  campaign: string,
  { again, number }: Period,
  mechanism: string,
  today = number,
): Charge | undefined {
  return book.charges.find((charge) => {
    if (charge.campaign !== campaign) return false;
    if (again === "day") return charge.day === number || charge.day === today;
    return again === "never" || charge.mechanism === mechanism;
  });
}

function spent(book: Book, origin: string, nowS: number): Spent {
  const today = dayOf(nowS);
  const cost = (charges: Charge[], what: keyof Promised = "epsilonPerKm"): Exact =>
    Exact.sum(charges.map((charge) => charge[what]));
  const within = (days: number): Charge[] => book.charges.filter((charge) => Math.abs(charge.day - today) <= days);
  const operator = book.charges.filter((charge) => charge.campaign.startsWith(`${origin}/`));
  return {
    reports: book.charges.length,
    lifetime: cost(book.charges),
    slack: cost(book.charges, "slackNats"),
    day: cost(within(0)),
    year: cost(within(YEAR_DAYS - 1)),
    operator: cost(operator),
    operatorSlack: cost(operator, "slackNats"),
    ahead: book.charges.some((charge) => charge.day > today),
    trips: book.charges.some((charge) => charge.to !== undefined),
  };
}

function limitRows(limits: Limits, sums: Spent): ["lifetime" | "day" | "year", number, Exact][] {
  return (["lifetime", "day", "year"] as const).flatMap((which) => {
    const limit = limits[which];
    return limit === undefined ? [] : [[which, limit, sums[which]]];
  });
}

function check(book: Book, current: Round, limits: Limits, nowS: number): void {
  const space = book.campaigns[current.campaign]?.space ?? null;
  if (space !== null && space !== current.space) throw new Refused("space");
  const sums = spent(book, "", nowS);
  const { epsilonPerKm, slackNats } = current.promise;
  for (const [which, limit, sofar] of [...limitRows(limits, sums), ["slack", limits.slack, sums.slack] as const]) {
    const cost = Exact.of(which === "slack" ? slackNats : epsilonPerKm);
    if (sofar.plus(cost).isAbove(Exact.of(limit))) throw new Refused("budget", which);
  }
}

/** How much is left of each limit, as the end of a sentence. */
export function leftInWords(limits: Limits, sums: Spent): string {
  const words = { lifetime: "", day: "today ", year: "within 365 days " };
  const [first, ...others] = limitRows(limits, sums).map(
    ([which, limit, sofar]) => `${words[which]}${roundedDown(leftOf(limit, sofar))} of ${roundedDown(limit)}`,
  );
  return `${first} per km are left${others.length ? ` (${others.join("; ")})` : ""}`;
}

// --- Keys: they make the reports of one number and of all later ones, and only move forward

function openCampaign(book: Book, name: string, period: Period): Page {
  book.campaigns[name] ??= {
    space: null,
    expiresS: null,
    again: period.again,
    next: period.number,
    key: hex(newKey()),
  };
  return book.campaigns[name];
}

/** The key of a report to come; a new one where there is none that reaches it. */
async function keyFor(book: Book, current: Round, period: Period): Promise<Bytes> {
  const page = openCampaign(book, current.campaign, period);
  const behind = period.number - (page.next ?? 0);
  if (page.key === null || page.again !== period.again || behind < 0 || behind > MOST_STEPS) {
    Object.assign(page, { again: period.again, next: period.number, key: hex(newKey()) });
  }
  page.space = current.space;
  page.expiresS = Math.max(page.expiresS ?? 0, current.expiresS);
  return movedOn(unhex(page.key!)!, period.number - page.next!);
}

/** From now on the key makes later reports only; none where there are none. */
async function moveOn(book: Book, campaign: string, period: Period): Promise<void> {
  const page = book.campaigns[campaign];
  if (period.again === "never") return erase(page);
  if (!page || page.key === null || page.again !== period.again) return;
  const behind = period.number - page.next!;
  if (behind < 0 || behind > MOST_STEPS) return;
  page.key = hex(await movedOn(unhex(page.key)!, behind + 1));
  page.next = period.number + 1;
}

function forgetEnded(book: Book, nowS: number): void {
  for (const page of Object.values(book.campaigns)) if (page.expiresS !== null && page.expiresS <= nowS) erase(page);
  for (const [mechanism, expiresS] of Object.entries(book.certified)) {
    if (expiresS <= nowS) delete book.certified[mechanism];
  }
}

function erase(page: Page | undefined): void {
  if (page) Object.assign(page, { again: null, next: null, key: null });
}

// --- Whether a book is one that this program wrote

function isBook(value: unknown): value is Book {
  if (!isObject(value) || value["format"] !== FORMAT) return false;
  const { campaigns, charges, certified } = value;
  if (!isObject(campaigns) || !isObject(certified) || !Array.isArray(charges)) return false;
  const times = Object.values(certified).every((expiresS) => isWhole(expiresS, 0));
  return times && Object.values(campaigns).every(isPage) && charges.every(isCharge);
}

function isPage(page: unknown): boolean {
  if (!isObject(page)) return false;
  const { space, expiresS, again, next, key } = page;
  const valid = (space === null || typeof space === "string") && (expiresS === null || isWhole(expiresS, 0));
  if (key === null) return valid && again === null && next === null;
  const usual = again === "never" || again === "day" || again === "round";
  return valid && usual && isWhole(next, 0) && typeof key === "string" && unhex(key)?.length === 32;
}

function isCharge(charge: unknown): boolean {
  if (!isObject(charge)) return false;
  const texts = ["campaign", "mechanism", "report", "problem"].every((name) => typeof charge[name] === "string");
  const { state, epsilonPerKm, slackNats, to, slot, ticket } = charge;
  const costs = [epsilonPerKm, slackNats].every((cost) => isNumber(cost) && cost >= 0);
  const places = isDrawn(charge) && (to === undefined || (isObject(to) && isDrawn(to)));
  const wholes = isWhole(charge["round"], 1) && isWhole(charge["day"], 0);
  const slotted = slot === undefined || isWhole(slot, 0);
  const ticketed = ticket === undefined || typeof ticket === "string";
  const validState = state === "sent" || state === "acknowledged" || state === "refused";
  return texts && costs && places && wholes && slotted && ticketed && validState;
}

function isDrawn({ cell, lat, lng }: Record<string, unknown>): boolean {
  return isNumber(lat) && isNumber(lng) && isWhole(cell, 0);
}
