/** The device, off the page's own thread: a certificate may take seconds, and the page is being read meanwhile. */

import {
  costOf,
  Device,
  type Fix,
  IndexedDbStorage,
  type Kept,
  meanDistanceKm,
  MechanismDocument,
  Refused,
  slotAt,
  type Transport,
  Unacknowledged,
} from "@geoveil/client";
import type { Bytes } from "../../../sdk/src/canonical.ts";
import { Address, FetchTransport } from "../../../sdk/src/collector.ts";
import { newKey } from "../../../sdk/src/keys.ts";
import type { Cloud, Failure, Limits, Message, Offer, Question, Rule } from "./device.ts";

let device: Device | undefined;
/** The rule as the page shows it. */
let document: MechanismDocument | undefined;
/** What the service answered last where it was asked for the rule. */
let served: Uint8Array | undefined;

const network = new FetchTransport();
const transport: Transport = {
  async get(url, limit) {
    const answer = await network.get(url, limit);
    served = answer.body;
    return answer;
  },
  post: (...request) => network.post(...request),
};

/** How long the browser may take to read the list of reports. */
const LEDGER_MS = 15_000;

/** The list of reports; a browser that never answers does not keep the page checking for ever. */
class AnsweringStorage extends IndexedDbStorage {
  override load(): Promise<Kept | undefined> {
    return new Promise((resolve, reject) => {
      setTimeout(() => reject(new DOMException("", "TimeoutError")), LEDGER_MS);
      super.load().then(resolve, reject);
    });
  }
}

/** What this browser asks for a ticket with, by link: the same again until its report is made. */
type Wishes = Record<string, { readonly invitation: string; readonly seed: Bytes } | undefined>;

/** Beside the ledger, and erased with it. */
const wishes = new AnsweringStorage("geoveil-tickets");

/** Problems of an invitation itself, at any time. */
const WITHOUT_TICKET = new Set(["unknown-invitation", "invitation-used"]);

/** Keep an invitation, before anything is asked with it; or forget the one that is kept, if it is still this one. */
async function keep(link: string, invitation?: string, only?: string): Promise<void> {
  for (;;) {
    const { book, version } = (await wishes.load()) ?? { book: {}, version: 0 };
    const kept = book as Wishes;
    const now = kept[link]?.invitation;
    if (now === invitation || (only && now !== only)) return;
    const changed: Wishes = { ...kept, [link]: invitation ? { invitation, seed: newKey() } : undefined };
    if (await wishes.save(changed, version)) return; // else another tab was quicker
  }
}

async function wishFor(link: string) {
  return ((await wishes.load())?.book as Wishes | undefined)?.[link];
}

const CALLS = {
  /** Open the ledger, then check the rule; `rule` is told as soon as it is read. */
  async open(link: string, limits: Limits, promisePerKm?: number): Promise<Offer> {
    const ledger = self.indexedDB ? new AnsweringStorage() : undefined; // the device says why not
    device = await Device.open(link, { ...limits, promisePerKm, transport, ledger });
    const offered = await device.offered((current, all) => {
      document = current;
      const levels = all.map((level) => ({
        promise: level.promise,
        cost: costOf(level),
        meanKm: meanDistanceKm(level),
      }));
      tell({ kind: "rule", rule: { ...ruleOf(current), levels } });
    });
    return { earlier: "cell" in offered ? offered : undefined };
  },

  /** How often each cell would be reported from a place, by the whole numbers of the rule. */
  cloud(lat: number, lng: number): Cloud {
    const { law, area } = document!;
    const placeKm = area.placeKm(lat, lng);
    const row = law.row(law.stepsOf(placeKm)).map(Number);
    const total = row.reduce((sum, entry) => sum + entry, 0);
    const { pitchKm, low, high, east, north } = law.centres;
    const inside = [0, 1].map((axis) =>
      Math.min(Math.max(placeKm[axis]!, low[axis]! * pitchKm), high[axis]! * pitchKm),
    );
    const awayKm = row.map((_, at) => Math.hypot(east[at]! * pitchKm - inside[0]!, north[at]! * pitchKm - inside[1]!));
    return {
      shares: Float64Array.from(row, (entry) => entry / total),
      halfWithinKm: within(row, awayKm, 0.5 * total),
      mostWithinKm: within(row, awayKm, 0.9 * total),
      outside: !area.inside(lat, lng),
    };
  },

  /** Keep an invitation as it was typed, if it is one; whether there is one now. */
  async invite(link: string, typed: string): Promise<boolean> {
    const code = typed && (await import("../../../sdk/src/ticket.ts")).invitationOf(typed);
    if (code) await keep(link, code);
    return code !== undefined && (await wishFor(link)) !== undefined;
  },

  /**
   * The ticket for the invitation that is kept, until the service says that it is good for none; undefined where
   * another tab has reported: whoever asked then would be known as one of those.
   */
  async ticket(link: string): Promise<string | undefined> {
    const { requestTicket } = await import("../../../sdk/src/ticket.ts");
    const wish = await wishFor(link);
    const { name } = new Address(link);
    if ((await device!.history()).some(({ campaign }) => campaign === name)) return undefined;
    if (!wish) throw new Refused("invitation", "needed"); // another tab has deleted the list
    try {
      return await requestTicket({ link, ...wish });
    } catch (problem) {
      if (problem instanceof Refused && WITHOUT_TICKET.has(problem.detail))
        await keep(link, undefined, wish.invitation);
      throw problem;
    }
  },

  /** The invitation has done its work, or has none: what the ticket was drawn from would tell which it was. */
  forget(link: string): Promise<void> {
    return keep(link);
  },

  report(fix: Fix, ticket?: string) {
    return device!.report(asShown(fix), { ticket });
  },

  reportTrip(origin: Fix, destination: Fix, ticket?: string) {
    return device!.reportTrip({ origin: asShown(origin), destination }, { ticket });
  },

  /** Send again, unchanged, what was not confirmed; its receipt where it now is. */
  async flush() {
    return (await device!.flush())[0];
  },

  async ledger() {
    return { standing: await device!.standing(), history: await device!.history() };
  },

  async erase(): Promise<void> {
    await wishes.erase();
    await new IndexedDbStorage().erase();
  },
};

export type Calls = typeof CALLS;

/** The rule of now is not the one that the person read about. */
class Changed extends Error {}

/** Refusals of a rule that asks for trips where the one shown asked for places, or the other way round. */
const OTHER_KIND = new Set<string>(["trips", "places"]);

/** A place, read last of all: not where the page told of a stronger promise, other cells or other things sent. */
function asShown(fix: Fix): () => Promise<Fix> {
  return async () => {
    const levels = await MechanismDocument.readLevels(served!);
    const { promise } = document!;
    const now = levels.find((level) => level.promise.epsilonPerKm === promise.epsilonPerKm);
    if (!now || now.promise.slackNats > promise.slackNats || sentBy(now) !== sentBy(document!)) throw new Changed();
    return fix;
  };
}

function sentBy({ area, rim, slots, trips }: MechanismDocument): string {
  return JSON.stringify([area.json, rim, slots, trips]);
}

/** The distance within which reports of this weight lie, together. */
function within(row: readonly number[], awayKm: readonly number[], weight: number): number {
  const nearest = [...awayKm.keys()].sort((one, other) => awayKm[one]! - awayKm[other]!);
  let sum = 0;
  const last = nearest.find((at) => (sum += row[at]!) >= weight);
  return awayKm[last ?? nearest.at(-1)!]!;
}

function ruleOf(document: MechanismDocument): Omit<Rule, "levels"> {
  const { id, round, promise, area, rim, law, expiresS, slots, trips } = document;
  const now = slots ? slotAt(slots, Date.now() / 1000) : null;
  const { pitchKm, east, north, low, high, lattice } = law.centres;
  const origin = area.toLatLng([0, 0]);
  return {
    ...{
      id,
      round,
      promise,
      rim,
      expiresS,
      trips,
      cost: costOf(document),
      cellKm: area.cellKm,
      cells: area.size,
      onGrid: lattice !== undefined,
    },
    east: east.map((steps) => steps * pitchKm),
    north: north.map((steps) => steps * pitchKm),
    low: [low[0] * pitchKm, low[1] * pitchKm],
    high: [high[0] * pitchKm, high[1] * pitchKm],
    plane: [area.plane.lat, area.plane.lng],
    origin: area.plane.toPlane(origin[0], origin[1]),
    slot: slots && now !== null ? { name: slots.names[now]!, of: slots.names.length, zone: slots.zone } : undefined,
  };
}

// --- Questions of the page, each answered once

function tell(message: Message): void {
  postMessage(message);
}

/** Why it failed, in words for programs; nothing of a location. */
function failure(problem: unknown): Failure {
  if (problem instanceof Unacknowledged)
    return { reason: "waiting", detail: problem.problem, sent: true, receipt: problem.receipt };
  const other = problem instanceof Refused && OTHER_KIND.has(problem.reason);
  if (other || problem instanceof Changed) return { reason: "changed", detail: "", sent: false };
  if (problem instanceof Refused) return { reason: problem.reason, detail: problem.detail, sent: problem.sent };
  return { reason: "fault", detail: problem instanceof Error ? problem.name : "", sent: false };
}

onmessage = ({ data: { ticket, call, parameters } }: MessageEvent<Question>) => {
  const work = CALLS[call] as (...all: unknown[]) => unknown;
  Promise.resolve()
    .then(() => work(...parameters))
    .then(
      (value) => tell({ kind: "answer", ticket, value }),
      (problem: unknown) => tell({ kind: "failure", ticket, failure: failure(problem) }),
    );
};
