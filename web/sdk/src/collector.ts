/** A campaign's collector as a device sees it: its address, documents checked, reports handed over. */

import { type Bytes, isObject, type Json, strictJson } from "./canonical.ts";
import { CAMPAIGN, LARGEST_ANSWER, MechanismDocument, type Promised } from "./document.ts";
import { Exact } from "./exact.ts";
import type { Charge } from "./ledger.ts";
import { InvalidInput, REASONS, Refused, RefusedDocument } from "./refusal.ts";
import { type Slots, slotAt } from "./slots.ts";

/** No IPv4 address in the form of IPv6, which would be a second name of one host. */
const HOST = "https?://(?!\\[::ffff:)[^/@]+";
const LINK = new RegExp(`^${HOST}((?:/[\\w.~-]+)*?)/(?:c|api/campaigns)/(${CAMPAIGN})/?[?#]*$`);
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;
const TIMEOUT_MS = 10_000; // for all of one exchange
const CLOCK_SKEW_S = 300; // a device's clock may be this much behind the collector's
const ANSWER_BYTES = 1 << 16;
const PROBLEM = /^https:\/\/geoveil\.org\/problems\/([A-Za-z-]{1,40})$/;
const LATER = [408, 425, 429];
export const ENDED = "campaign-ended";
/** Problems of the report itself or of its campaign, at any time and wherever it is sent; any other may pass. */
const FINAL = ["mechanism-expired", "cell-out-of-range", "slot-out-of-range", "malformed-body", ENDED];

/** A campaign's collector and id, from `…/c/ID` or `…/api/campaigns/ID`. */
export class Address {
  /** Scheme, host and, where it is not the usual one, port. */
  readonly origin: string;
  readonly campaign: string;
  /** One spelling for one campaign: what the ledger files it under. */
  readonly name: string;
  /** Of the interface; all else of the campaign lies below it. */
  readonly campaignUrl: string;

  constructor(url: string | URL, insecure?: boolean | undefined) {
    let link: URL | undefined;
    try {
      link = new URL(url);
    } catch {} // said below
    const path = link && LINK.exec(link.href);
    if (!link || !path) {
      throw new InvalidInput("url must be a campaign's link, such as https://collector.example/c/lyon");
    }
    if (link.protocol === "http:" && !insecure && !LOOPBACK.test(link.hostname)) throw new Refused("insecure");
    this.origin = link.origin.replace(/\.(?=:\d+$|$)/, ""); // with a dot at its end a host is the same
    this.campaign = path[2]!;
    this.name = `${this.origin}${path[1]}/c/${this.campaign}`;
    this.campaignUrl = `${link.origin}${path[1]}/api/campaigns/${this.campaign}`;
  }
}

// --- Requests: nothing of ours that tells devices apart, bounded in every way

/** No whole answer came; whether the request arrived is unknown. */
export class Unreachable extends Error {}

export interface Answer {
  /** 302 for every redirect, which is never followed. */
  readonly status: number;
  readonly media: string;
  readonly retryAfterS: number;
  readonly body: Uint8Array;
  /** When it was made by the collector's clock, in seconds since 1970, where it says so. */
  readonly dateS?: number | undefined;
}

/** How requests travel; an app may bring its own. Throws `Unreachable` where no whole answer comes, or is cancelled. */
export interface Transport {
  get(url: string, limit: number, signal?: AbortSignal): Promise<Answer>;
  /** With the ticket of a report, where it has one, in the header `Authorization: PrivateToken token="…"`. */
  post(url: string, body: string, limit: number, signal?: AbortSignal, ticket?: string): Promise<Answer>;
}

/** `fetch` without cookies, cache, referrer or redirects; reads no more than it was told to, where answers are streams. */
export class FetchTransport implements Transport {
  get(url: string, limit: number, signal?: AbortSignal): Promise<Answer> {
    return exchange(url, {}, limit, signal);
  }

  post(url: string, body: string, limit: number, signal?: AbortSignal, ticket?: string): Promise<Answer> {
    const headers = {
      "Content-Type": "application/json",
      ...(ticket && { Authorization: `PrivateToken token="${ticket}"` }),
    };
    return exchange(url, { method: "POST", headers, body }, limit, signal);
  }
}

/** Acts once, when a signal says so, or has said so, or some time has passed; what is returned ends the wait. */
export function whenAborted(signal: AbortSignal | undefined, act: () => void, ms?: number): () => void {
  const once = (): void => (end(), act());
  const end = (): void => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", once);
  };
  const timer = ms === undefined ? ms : setTimeout(once, ms);
  signal?.addEventListener("abort", once);
  if (signal?.aborted) once();
  return end;
}

async function exchange(url: string, request: RequestInit, limit: number, signal?: AbortSignal): Promise<Answer> {
  const controller = new AbortController(); // not every browser joins signals
  const end = whenAborted(signal, () => controller.abort(), TIMEOUT_MS);
  try {
    const response = await fetch(url, {
      ...request,
      headers: { Accept: "application/json", ...request.headers },
      credentials: "omit",
      cache: "no-store", // a tag of the collector's choosing could mark a device
      redirect: "manual",
      referrerPolicy: "no-referrer",
      signal: controller.signal,
    });
    const { status } = response;
    const onward = !status || (status >= 300 && status < 400); // browsers hide where it leads, and its number
    const header = (name: string): string => response.headers.get(name) ?? "";
    const media = header("content-type").split(";")[0]!.trim().toLowerCase();
    const retryAfterS = waitOf(header("retry-after"));
    const date = header("date");
    const dateMs = Date.parse(date);
    const dateS = date.length === 29 && new Date(dateMs).toUTCString() === date ? dateMs / 1000 : undefined;
    return { status: onward ? 302 : status, media, retryAfterS, body: await readUpTo(response, limit), dateS };
  } catch (problem) {
    throw problem instanceof Refused ? problem : new Unreachable();
  } finally {
    end();
  }
}

async function readUpTo(response: Response, limit: number): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  if (!reader) return new Uint8Array(await response.arrayBuffer()); // no streams here, or nothing to read
  const pieces: Bytes[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(pieces).arrayBuffer());
    pieces.push(value);
    size += value.length;
    if (size > limit) {
      await reader.cancel();
      throw new Refused("answer", "size");
    }
  }
}

function waitOf(header: string): number {
  if (/^\d+$/.test(header)) return Number(header);
  return Math.max(0, (Date.parse(header) - Date.now()) / 1000) || 0; // of no date none
}

/** At most `attempts` tries within `totalS`; the k-th pause is random, up to `firstS`·2ᵏ. */
export interface Patience {
  readonly attempts: number;
  readonly totalS: number;
  readonly firstS: number;
}

// --- The collector: a document to fetch, a report to hand over, both with patience

/** What a device accepts. */
export interface Accepted {
  readonly maxEpsilonPerKm: number;
  readonly promisePerKm: number | undefined;
  readonly nowS: number;
  /** Whether a trip is to be reported, or a place; undefined where nobody knows yet. */
  readonly trip?: boolean | undefined;
  /** Ends the wait for an answer. */
  readonly signal?: AbortSignal | undefined;
}

/** Why a report may count later only. */
export interface Waits {
  readonly why: string;
  readonly problem?: string;
}

export class Collector {
  private readonly address: Address;
  private readonly transport: Transport;
  private readonly patience: Partial<Patience> | undefined;
  private latest: { body: Uint8Array; levels: MechanismDocument[] } | undefined;
  /** How far the collector's clock was ahead of the device's at the last answer; 0 where it did not say. */
  private aheadS = 0;

  constructor(address: Address, transport: Transport, patience?: Partial<Patience>) {
    this.address = address;
    this.transport = transport;
    this.patience = patience;
  }

  /**
   * The current document, in its time and within the limit; all is checked but its certificate. All levels are
   * asked for, so that asking does not show the choice: the one chosen, or the strongest promise.
   */
  async mechanism({ maxEpsilonPerKm, promisePerKm, nowS, trip, signal }: Accepted): Promise<MechanismDocument> {
    const levels = await this.fetchLevels(nowS, signal);
    const document = levels.find(({ promise }) => (promisePerKm ?? promise.epsilonPerKm) === promise.epsilonPerKm);
    if (!document)
      throw new Refused("level", `it offers ${levels.map((each) => each.promise.epsilonPerKm).join(", ")} per km`);
    if (document.campaign !== this.address.campaign) throw new Refused("campaign");
    if (trip !== undefined && trip !== document.trips) throw new Refused(document.trips ? "trips" : "places");
    if (costOf(document).epsilonPerKm > maxEpsilonPerKm) throw new Refused("promise");
    this.slot(document, nowS);
    return document;
  }

  /**
   * The slot of a location that is read now, under a document of now: by the device's clock, never one of the
   * collector's choosing. Where the collector's clock is in another one and more than a moment away, one is wrong.
   */
  slot({ slots, notBeforeS, expiresS }: MechanismDocument, nowS: number): number | undefined {
    if (nowS < notBeforeS - CLOCK_SKEW_S) throw new Refused("not-yet-valid");
    if (nowS >= expiresS) throw new Refused("expired");
    if (!slots) return undefined;
    const { aheadS } = this;
    const slot = checkedSlot(slots, nowS);
    const theirs = checkedSlot(slots, nowS + aheadS);
    if (slot === null) throw new Refused("slot");
    if (slot !== theirs && Math.abs(aheadS) > CLOCK_SKEW_S) throw new Refused("clocks");
    return slot;
  }

  /** All levels of the last answer, the strongest promise first; each sound but for its certificate. */
  get levels(): readonly MechanismDocument[] {
    return this.latest?.levels ?? [];
  }

  private async fetchLevels(nowS: number, signal?: AbortSignal): Promise<MechanismDocument[]> {
    const get = () => this.transport.get(`${this.address.campaignUrl}/mechanism`, LARGEST_ANSWER, signal);
    const answer = await patiently(get, this.patience, signal);
    if (!answer) throw new Refused("unreachable");
    this.aheadS = (answer.dateS ?? nowS) - nowS;
    if (answer.status === 200) return this.read(answer.body);
    if (answer.status === 302) throw new Refused("redirect");
    const problem = problemOf(answer);
    if (problem) throw problem === ENDED ? new Refused("ended") : new Refused("problem", problem);
    throw new Refused("answer", `status ${answer.status}`);
  }

  /** The levels in a body; the same body is read once, so that what was certified stays so. */
  private async read(body: Uint8Array): Promise<MechanismDocument[]> {
    const { latest } = this;
    if (latest?.body.length === body.length && latest.body.every((byte, at) => byte === body[at])) return latest.levels;
    const levels = await refusing(() => MechanismDocument.readLevels(body));
    this.latest = { body, levels };
    return levels;
  }

  /** Hand over a drawn report with its ticket; nothing is returned once it is counted, and `Refused` where it can never count. */
  async count(charge: Charge, signal?: AbortSignal): Promise<Waits | undefined> {
    const { mechanism, report: id, cell, slot, to, ticket } = charge;
    const body = JSON.stringify({ mechanism, id, cell, slot, to: to?.cell }); // what the document does not ask for is not in it
    let answer: Answer | undefined;
    let why = "the collector did not answer";
    try {
      const post = () => this.transport.post(`${this.address.campaignUrl}/reports`, body, ANSWER_BYTES, signal, ticket);
      answer = await patiently(post, this.patience, signal);
    } catch (failure) {
      why = failure instanceof Refused ? REASONS[failure.reason] : "the transport failed"; // not the report
    }
    if (!answer) return { why: signal?.aborted ? "it was cancelled" : why };
    if (answer.status === 200 && isCounted(jsonOf(answer), id)) return undefined;
    const problem = answer.status >= 400 ? problemOf(answer) : "";
    if (FINAL.includes(problem)) throw new Refused("problem", problem, true);
    if (problem) return { why: `the collector did not count it now (${problem})`, problem };
    return { why: "the answer was not a collector's" };
  }
}

/** The first answer that is not a request to wait; none is asked for once it is cancelled. */
export async function patiently(
  request: () => Promise<Answer>,
  patience?: Partial<Patience>,
  signal?: AbortSignal,
): Promise<Answer | undefined> {
  const { attempts = 5, totalS = 30, firstS = 0.5 } = { ...patience };
  const last = performance.now() + totalS * 1000;
  for (let attempt = 0; attempt < attempts && !signal?.aborted; attempt++) {
    let leastS = 0;
    try {
      const answer = await request();
      if (answer.status < 500 && !LATER.includes(answer.status)) return answer;
      leastS = answer.retryAfterS;
    } catch (problem) {
      if (!(problem instanceof Unreachable)) throw problem;
    }
    const jitter = crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32;
    const pauseMs = 1000 * Math.max(leastS, firstS * 2 ** attempt * jitter);
    if (attempt + 1 === attempts || performance.now() + pauseMs > last) return undefined;
    await new Promise<void>((resume) => whenAborted(signal, resume, pauseMs));
  }
  return undefined;
}

function checkedSlot(slots: Slots, timeS: number): number | null {
  try {
    return slotAt(slots, timeS);
  } catch {
    throw new Refused("zone");
  }
}

/** What one report under a document is charged: a trip, with two ends, twice. */
export function costOf({ promise, trips }: MechanismDocument): Promised {
  return trips ? manyTimes(promise, 2) : promise;
}

/** What so many reports cost together. */
export function manyTimes({ epsilonPerKm, slackNats }: Promised, reports: number): Promised {
  const all = (value: number): number => Exact.sum(Array<number>(reports).fill(value)).noLess();
  return { epsilonPerKm: all(epsilonPerKm), slackNats: all(slackNats) };
}

/** What a check of a document returns; what it refuses is refused by the device. */
export async function refusing<Checked>(check: () => Checked | Promise<Checked>): Promise<Checked> {
  try {
    return await check();
  } catch (problem) {
    throw problem instanceof RefusedDocument ? new Refused("document", problem.reason) : problem;
  }
}

function isCounted(body: Json | undefined, id: string): boolean {
  return isObject(body) && Object.keys(body).length === 2 && body["id"] === id && body["status"] === "counted";
}

/** The name of the collector's problem; empty where the answer is none. */
export function problemOf(answer: Answer): string {
  const body = jsonOf(answer);
  const kind = answer.media === "application/problem+json" && isObject(body) && body["type"];
  return (typeof kind === "string" && PROBLEM.exec(kind)?.[1]) || "";
}

export function jsonOf(answer: Answer): Json | undefined {
  try {
    return strictJson(answer.body);
  } catch {
    return undefined;
  }
}
