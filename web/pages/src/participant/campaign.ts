/** The campaign at this address, and the limits that the person set; all answers are checked before they are shown. */

import type { Backdrop } from "../map/backdrop.ts";
import type { Limits } from "./device.ts";

export interface Campaign {
  readonly name: string;
  readonly state: string;
  /** Whether it takes no reports any more, or has had its last map. */
  readonly over: boolean;
  readonly reports: number;
  /** Whether it asks for trips; the rule says so too, later. */
  readonly trips: boolean;
  /** Whether a report counts with a ticket only, one for each invitation. */
  readonly tickets: boolean;
}

export type Missing = "unknown" | "unreachable";

const STORAGE_KEY = "geoveil-limits";
const USUAL: Limits = { maxEpsilonPerKm: 2, budgetPerKm: 10 };
const TIMEOUT_MS = 10_000;
const LONGEST_NAME = 200;
/** What no name has at the service: it would change how other text reads, or cover it. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;
const STACKED = /(\p{M}{3})\p{M}+/gu;

/** The link that this page is: what a device opens, and what `geoveil audit` is given. */
export const LINK = (location.origin + location.pathname).replace(/\/$/, "");
export const HOST = location.host;

/** The invitation in the fragment of a link for one person, which reaches no server; empty where there is none. */
export function invitationInAddress(): string {
  return /^#invitation=(.*)$/.exec(location.hash)?.[1] ?? "";
}

/** Nobody who looks at the screen or goes back has it then; the browser's own list of visits may hold it. */
export function takeInvitationOut(): void {
  if (invitationInAddress()) history.replaceState(null, "", location.pathname + location.search);
}

/** Ask the service about this campaign; with nothing but the address, and nothing kept. */
function ask(rest: string, accept: string): Promise<Response> {
  return fetch(LINK.replace(/\/c\/([^/]*)$/, "/api/campaigns/$1") + rest, {
    headers: { Accept: accept },
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
    referrerPolicy: "no-referrer",
    signal: AbortSignal.timeout?.(TIMEOUT_MS) ?? null, // older browsers wait as long as they like
  });
}

/** What the operator wants behind the cells of the map, if anything; undefined where there is no such thing. */
export async function fetchBackdrop(): Promise<Backdrop | undefined> {
  try {
    const answer = await ask("/backdrop", "application/geo+json");
    return answer.status === 200 ? ((await answer.json()) as Backdrop) : undefined;
  } catch {
    return undefined;
  }
}

export async function fetchCampaign(): Promise<Campaign | Missing> {
  try {
    const answer = await ask("", "application/json");
    if (answer.status === 404) return "unknown";
    if (!answer.ok) return "unreachable";
    return campaignOf((await answer.json()) as unknown);
  } catch {
    return "unreachable";
  }
}

/** What the page shows of an answer that may be anything. */
function campaignOf(answer: unknown): Campaign | Missing {
  if (typeof answer !== "object" || answer === null) return "unreachable";
  const { name, state, reports_counted: counted, settings, ticket_key: key } = answer as Record<string, unknown>;
  const options = typeof settings === "object" && settings !== null ? (settings as Record<string, unknown>) : {};
  const all = typeof counted === "object" && counted !== null ? (counted as Record<string, unknown>)["all"] : 0;
  if (typeof name !== "string" || typeof state !== "string") return "unreachable";
  return {
    name: [...name.replace(UNSEEN, "").replace(STACKED, "$1")].slice(0, LONGEST_NAME).join(""),
    state,
    over: state === "ended" || state === "finished",
    reports: typeof all === "number" && Number.isSafeInteger(all) && all > 0 ? all : 0,
    trips: options["trips"] === true,
    tickets: typeof key === "string",
  };
}

// --- Limits: the person's own, kept in this browser

export function recallLimits(): Limits {
  try {
    const saved = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "null") as unknown;
    const { maxEpsilonPerKm, budgetPerKm } = { ...USUAL, ...(saved as Partial<Limits> | null) };
    return isLimit(maxEpsilonPerKm) && isLimit(budgetPerKm) ? { maxEpsilonPerKm, budgetPerKm } : USUAL;
  } catch {
    return USUAL; // no storage: the ledger will say so
  }
}

export function keepLimits(limits: Limits): void {
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(limits));
  } catch {} // they hold as long as the page is open
}

export function isLimit(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value > 0;
}
