/** A person's end of a campaign: one report, and everything is checked before a location is read. */

import { canonicalText, isNumber, sha256 } from "./canonical.ts";
import {
  Address,
  Collector,
  costOf,
  ENDED,
  FetchTransport,
  manyTimes,
  type Patience,
  refusing,
  type Transport,
} from "./collector.ts";
import type { MechanismDocument, Promised } from "./document.ts";
import { Exact, leftOf } from "./exact.ts";
import type { Again, Period } from "./keys.ts";
import { type Charge, dayOf, type Drawn, Ledger, leftInWords, type Limits, type Round, type Spent } from "./ledger.ts";
import { type Beyond, checkLocate, drawFrom, type Locate, locationOf } from "./location.ts";
import { InvalidInput, Refused, Unacknowledged } from "./refusal.ts";
import { IndexedDbStorage, type LedgerStorage } from "./storage.ts";
import { amount, explainDocument, explainNearby, explainPromise } from "./words.ts";

const LATEST_S = 2 ** 40; // no clock that tells a time shows a later one
/** What `outside: "refuse"` means; it is also written to the console. */
export const SILENCE_TELLS =
  'with outside: "refuse" nothing is sent from outside the campaign\'s box, and that silence tells ' +
  "whoever watches that the person is not inside; by default a report is drawn there too";
const TICKET = /^[\w-]*$/; // nothing else can be kept, and sent in a header
const MANY = 30; // so many reports are spoken of before the first where a person lets the device report again
const OF_TRIPS =
  " Some reports are trips: both their ends were charged, and for those the sentence is about people whose trips " +
  "begin and end so far apart.";
const AHEAD =
  " Some reports bear a later date than this device's clock shows: it was wrong then, or is now. " +
  "The lifetime limit counts them all; the others those near today.";

/** One report that left the device; `lat` and `lng` are the centre of the *sent* cell, for a map. */
export interface Receipt extends Promised {
  readonly campaign: string;
  readonly round: number;
  /** Id of the mechanism document: the same for everybody, so it can be compared. */
  readonly mechanism: string;
  readonly report: string;
  readonly cell: number;
  readonly lat: number;
  readonly lng: number;
  readonly budgetLeftPerKm: number;
  /** What the reports to all campaigns of this origin have cost so far. */
  readonly operatorSpentPerKm: number;
  readonly acknowledged: boolean;
  /** The slot that was sent, where the document has slots: when the location was true. */
  readonly slot?: number | undefined;
  /** Of a trip: the other *sent* cell, where it ended, and its centre. */
  readonly to?: Drawn;
}

/** What all reports of the ledger have cost, each sum as it is written and never below it. */
export interface Standing {
  readonly reports: number;
  readonly spent: Promised;
  readonly budgetLeftPerKm: number;
  /** Of `spent`, what went to all campaigns of this origin. */
  readonly operator: Promised;
}

/** Is shown the document that a report would be drawn from, and all that are offered. */
export type Seen = (document: MechanismDocument, levels: readonly MechanismDocument[]) => void;

export interface DeviceOptions {
  /** The weakest promise that one report may have. */
  readonly maxEpsilonPerKm: number;
  /** The most that all reports of the ledger may cost together, over all campaigns, for ever. */
  readonly budgetPerKm: number;
  /** Chooses among the promises that a campaign offers; by default the strongest. */
  readonly promisePerKm?: number | undefined;
  readonly again?: Again | undefined;
  readonly budgetPerDayPerKm?: number | undefined;
  readonly budgetPerYearPerKm?: number | undefined;
  /** The most that η of all reports of the ledger may add up to; by default 10 nats, or `budgetPerKm` of them. */
  readonly slackBudgetNats?: number | undefined;
  /** Where the ledger is; by default a database of this origin. */
  readonly ledger?: LedgerStorage | undefined;
  /** Allows plain http to other machines. */
  readonly insecure?: boolean | undefined;
  readonly patience?: Partial<Patience> | undefined;
  readonly transport?: Transport | undefined;
  /** Seconds since 1970. */
  readonly clock?: (() => number) | undefined;
}

/** How one report is made. */
export interface ReportOptions {
  /** Where the location is outside the cells; by default a report is drawn there too. */
  readonly outside?: Beyond | undefined;
  /** Of a campaign with tickets, from `requestTicket`: each counts once. Sent with the report only, and kept until that is counted. */
  readonly ticket?: string | undefined;
  /**
   * Cancels it. Before the charge `report` throws the signal's reason, and nothing was charged or sent; after it
   * `Unacknowledged`, and the ledger keeps what was drawn for the next `report` or `flush`.
   */
  readonly signal?: AbortSignal | undefined;
}

/**
 * A person's end of a campaign. A second `report` returns the first receipt: it reads no location, sends nothing
 * new and costs nothing, unless `again` is `"day"` or `"round"`.
 */
export class Device {
  private readonly address: Address;
  private readonly ledger: Ledger;
  private readonly collector: Collector;
  private readonly limits: Limits;
  private readonly again: Again;
  private readonly options: DeviceOptions;

  private constructor(url: string | URL, options: DeviceOptions) {
    this.address = new Address(url, options.insecure);
    this.options = options;
    const optional = (name: "budgetPerDayPerKm" | "budgetPerYearPerKm" | "promisePerKm"): number | undefined =>
      options[name] === undefined ? undefined : positive(name, options[name]);
    positive("maxEpsilonPerKm", options.maxEpsilonPerKm);
    optional("promisePerKm");
    this.limits = {
      lifetime: positive("budgetPerKm", options.budgetPerKm),
      slack: positive("slackBudgetNats", options.slackBudgetNats ?? Math.max(10, options.budgetPerKm)),
      day: optional("budgetPerDayPerKm"),
      year: optional("budgetPerYearPerKm"),
    };
    this.again = oneOf("again", options.again ?? "never", ["never", "day", "round"]);
    if (!globalThis.crypto?.subtle) throw new Refused("insecure", "no WebCrypto here");
    if (!options.ledger && typeof indexedDB === "undefined")
      throw new Refused("ledger-unwritable", "no IndexedDB; give a ledger");
    this.ledger = new Ledger(options.ledger ?? new IndexedDbStorage());
    this.collector = new Collector(this.address, options.transport ?? new FetchTransport(), options.patience);
  }

  /** Opens the ledger, and makes the key of a campaign seen for the first time; sends nothing. */
  static async open(url: string | URL, options: DeviceOptions): Promise<Device> {
    const device = new Device(url, options);
    const nowS = device.nowS();
    await device.ledger.openCampaign(device.address.name, device.period(nowS), nowS);
    return device;
  }

  /**
   * Send one noisy cell; the receipt, once the collector has counted it. `Refused` where a check fails (nothing was
   * sent unless its `sent` says so), `Unacknowledged` where it was charged and sent and may still count.
   */
  async report(where: Locate, options: ReportOptions = {}): Promise<Receipt> {
    return this.send([where], options);
  }

  /**
   * Send one noisy trip: a cell drawn around its origin and one around its destination, in one report that is charged
   * **twice** the promise. Fails as `report` does.
   */
  async reportTrip(
    { origin, destination }: { origin: Locate; destination: Locate },
    options: ReportOptions = {},
  ): Promise<Receipt> {
    return this.send([origin, destination], options);
  }

  /** Send again what was not acknowledged; the receipts of what now is. Never a new draw. */
  async flush(): Promise<Receipt[]> {
    const arrived: Receipt[] = [];
    for (const charge of await this.ledger.waiting(this.address.name)) {
      try {
        arrived.push(await this.delivered(charge));
      } catch (problem) {
        if (problem instanceof Refused || (problem instanceof Unacknowledged && problem.problem)) continue;
        if (problem instanceof Unacknowledged) break;
        throw problem;
      }
    }
    return arrived;
  }

  /**
   * What a report would be drawn from, every check passed, the check of the budget too; or the report that was made
   * already. Reads no location and charges nothing. `show` gets the document before its certificate, which takes
   * longest, and all that the campaign offers to choose among, the strongest promise first.
   */
  async offered(show?: Seen): Promise<MechanismDocument | Charge> {
    const nowS = this.nowS();
    const before = await this.earlier(nowS);
    if (before) return before;
    const [document, current] = await this.current(nowS, { show });
    const earlier = await this.ledger.reported(current.campaign, this.period(nowS, document), document.id);
    if (!earlier) await this.ledger.check(current, this.limits, nowS);
    return earlier ?? document;
  }

  /** In plain words what a report would send and cost; reads no location and charges nothing. */
  async explain(): Promise<string> {
    const spent = await this.ledger.spent(this.address.origin, this.nowS());
    const document = await this.offered();
    if ("cell" in document) return this.nothingMore(document, spent);
    return (
      `Round ${document.round} of the campaign ${document.campaign} at ${this.address.origin}: ` +
      `${explainDocument(document, this.collector.slot(document, this.nowS()))} This report costs ${amount(costOf(document))}; ` +
      `${leftInWords(this.limits, spent)}. ${this.operator(spent, costOf(document))} ` +
      `${this.manyMore(costOf(document))}${spent.ahead ? AHEAD : ""}`
    );
  }

  /** Whether others will follow, and what many of this kind tell together about somebody who moves a little. */
  private manyMore(cost: Promised): string {
    if (this.again === "never") return "It is the only report to this campaign, whatever rounds follow.";
    const together = manyTimes(cost, MANY);
    return (
      `Every ${this.again} with a report is charged anew. ` +
      `${MANY} such reports cost ${amount(together)} together. ${explainNearby(together, MANY)}`
    );
  }

  /** The ledger in words: what all reports have cost together, and those to this operator. */
  async summary(): Promise<string> {
    const spent = await this.ledger.spent(this.address.origin, this.nowS());
    const together = summed(spent.lifetime, spent.slack);
    const { reports } = spent;
    return (
      `${reports} report${reports === 1 ? "" : "s"} so far, together ${amount(together)}; ` +
      `${leftInWords(this.limits, spent)}. ${this.operator(spent)}${reports ? ` ${explainPromise(together, reports)}` : ""}` +
      `${reports > 1 ? ` ${explainNearby(together, reports)}` : ""}${spent.trips ? OF_TRIPS : ""}${spent.ahead ? AHEAD : ""}`
    );
  }

  /** What the reports so far have cost. */
  async standing(): Promise<Standing> {
    const spent = await this.ledger.spent(this.address.origin, this.nowS());
    return {
      reports: spent.reports,
      spent: summed(spent.lifetime, spent.slack),
      budgetLeftPerKm: leftOf(this.limits.lifetime, spent.lifetime),
      operator: summed(spent.operator, spent.operatorSlack),
    };
  }

  /** Everything that ever left through this ledger, over all campaigns, in order. */
  history(): Promise<Charge[]> {
    return this.ledger.charges();
  }

  // --- One report

  private async send(
    ends: [Locate, Locate?],
    { outside = "clamp", ticket = "", signal }: ReportOptions,
  ): Promise<Receipt> {
    ends.forEach(checkLocate);
    if (oneOf("outside", outside, ["clamp", "refuse"]) === "refuse") console.warn(SILENCE_TELLS);
    if (typeof ticket !== "string" || !TICKET.test(ticket))
      throw new InvalidInput("ticket must be one that requestTicket gave");
    const made = await this.drawn(ends, outside, signal).finally(() => signal?.throwIfAborted());
    return this.delivered("cell" in made ? made : await made(ticket), signal, ticket);
  }

  /** The report that was made already, or how to charge a new one, which was drawn: of a place, or both ends of a trip. */
  private async drawn(
    [where, end]: [Locate, Locate?],
    outside: Beyond,
    signal?: AbortSignal,
  ): Promise<Charge | ((ticket?: string) => Promise<Charge>)> {
    const nowS = this.nowS();
    const earlier = await this.earlier(nowS);
    if (earlier) return earlier;
    const [document, current] = await this.current(nowS, { trip: end !== undefined, signal });
    const period = this.period(nowS, document);
    const accepted = await this.ledger.accept(current, period, this.limits, nowS);
    if ("cell" in accepted) return accepted;
    try {
      const draw = async (from: Locate, bits: Uint8Array): Promise<Drawn> =>
        drawFrom(await locationOf(from, signal), document, bits, outside);
      const start = await draw(where, accepted.draw);
      const cells = end === undefined ? start : { ...start, to: await draw(end, accepted.end) };
      const readS = this.nowS(); // reading may have taken hours
      const slot = this.collector.slot(document, readS);
      return (ticket) =>
        this.ledger.charge(current, period, this.limits, readS, accepted.report, { ...cells, slot, ticket });
    } finally {
      accepted.draw.fill(0); // beside what is sent, it would tell from where
      accepted.end.fill(0);
    }
  }

  /** The report that was made already, where no document is needed to know it. */
  private async earlier(nowS: number): Promise<Charge | undefined> {
    return this.again === "round" ? undefined : this.ledger.reported(this.address.name, this.period(nowS));
  }

  private period(nowS: number, document?: MechanismDocument): Period {
    const number = this.again === "day" ? dayOf(nowS) : this.again === "round" ? (document?.round ?? 0) : 0;
    return { again: this.again, number };
  }

  /** The current mechanism within what this device was told to accept, and as the ledger knows it. */
  private async current(
    nowS: number,
    { show, ...asked }: { show?: Seen | undefined; trip?: boolean | undefined; signal?: AbortSignal | undefined },
  ): Promise<[MechanismDocument, Round]> {
    const { maxEpsilonPerKm, promisePerKm } = this.options;
    let document: MechanismDocument;
    try {
      document = await this.collector.mechanism({ maxEpsilonPerKm, promisePerKm, nowS, ...asked });
    } catch (problem) {
      const reason = problem instanceof Refused && problem.reason;
      if (reason === "ended") await this.ledger.end(this.address.name);
      if (reason === "expired") await this.ledger.forgetEnded(nowS);
      throw problem;
    }
    show?.(document, this.collector.levels);
    if (!(await this.ledger.certified(document.timeless))) await refusing(() => document.checkPromise());
    return [
      document,
      {
        campaign: this.address.name,
        space: await sha256(canonicalText(document.area.json)),
        number: document.round,
        mechanism: document.id,
        promise: costOf(document),
        expiresS: document.expiresS,
        timeless: document.timeless,
      },
    ];
  }

  private nowS(): number {
    const nowS = this.options.clock?.() ?? Date.now() / 1000;
    if (!(isNumber(nowS) && nowS >= 0 && nowS <= LATEST_S)) throw new Refused("clock");
    return nowS;
  }

  /** Send a drawn report until it is acknowledged, with a ticket if it lacks one; one that already is stays here. */
  private async delivered(charge: Charge, signal?: AbortSignal, ticket?: string): Promise<Receipt> {
    if (charge.state === "refused") throw new Refused("problem", charge.problem, true);
    const receipt = await this.receipt(charge);
    if (receipt.acknowledged) return receipt;
    if (ticket) await this.ledger.mark(charge.report, { ticket: (charge.ticket ||= ticket) });
    const waits = await this.collector.count(charge, signal).catch(async (problem: unknown) => {
      if (problem instanceof Refused) await this.note(charge, problem.detail);
      throw problem;
    });
    if (waits) throw new Unacknowledged(receipt, waits.why, waits.problem);
    await this.note(charge);
    return { ...receipt, acknowledged: true };
  }

  /** Note what became of a report; where the ledger fails now, `flush` asks again. */
  private async note(charge: Charge, problem = ""): Promise<void> {
    try {
      await this.ledger.mark(charge.report, {
        state: problem ? "refused" : "acknowledged",
        problem,
        ticket: undefined,
      });
      if (problem === ENDED) await this.ledger.end(charge.campaign);
    } catch (failure) {
      if (!(failure instanceof Refused)) throw failure;
    }
  }

  private async receipt(charge: Charge): Promise<Receipt> {
    const spent = await this.ledger.spent(this.address.origin, 0);
    const { day, state, problem, ticket, ...sent } = charge;
    return {
      ...sent,
      campaign: this.address.campaign,
      budgetLeftPerKm: leftOf(this.limits.lifetime, spent.lifetime),
      operatorSpentPerKm: spent.operator.noLess(),
      acknowledged: state === "acknowledged",
    };
  }

  // --- In words

  private nothingMore(earlier: Charge, spent: Spent): string {
    const when = { never: "", day: " today", round: " in this round" }[this.again];
    return (
      `This device has reported to the campaign ${this.address.campaign} at ${this.address.origin}${when}: it said ` +
      `cell ${earlier.cell}${earlier.to ? ` to cell ${earlier.to.cell}` : ""}, under the mechanism of round ${earlier.round}. Another call reads no location, sends ` +
      `nothing new and costs nothing; ${leftInWords(this.limits, spent)}. ${this.operator(spent)}` +
      `${spent.ahead ? AHEAD : ""}`
    );
  }

  /** What all campaigns of this origin have cost so far, and with one more report. */
  private operator(spent: Spent, cost?: Promised): string {
    const { origin } = this.address;
    if (!spent.operator.isAbove(Exact.of(0))) return `Nothing was reported to any campaign at ${origin} so far.`;
    const more =
      cost &&
      summed(spent.operator.plus(Exact.of(cost.epsilonPerKm)), spent.operatorSlack.plus(Exact.of(cost.slackNats)));
    const sofar = amount(summed(spent.operator, spent.operatorSlack));
    return `All campaigns at ${origin} together have cost ${sofar} so far${more ? `, and ${amount(more)} with this report` : ""}.`;
  }
}

function summed(epsilon: Exact, slack: Exact): Promised {
  return { epsilonPerKm: epsilon.noLess(), slackNats: slack.noLess() };
}

function positive(name: string, value: unknown): number {
  if (!isNumber(value) || value <= 0) throw new InvalidInput(`${name} (${String(value)}) must be a number above 0`);
  return value;
}

function oneOf<Word extends string>(name: string, word: Word, words: readonly Word[]): Word {
  if (!words.includes(word)) throw new InvalidInput(`${name} (${word}) must be one of ${words.join(", ")}`);
  return word;
}
