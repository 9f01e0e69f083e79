/** The service as an operator calls it. The token lives in this tab and goes with its end. */

import type { Backdrop } from "../map/backdrop.ts";
import type { Alarm, Choices, Estimate } from "../map/estimate.ts";
import type { Box } from "../map/grid.ts";
import type { AnySpace } from "../map/places.ts";
import type { RegionShares } from "../map/region.tsx";
import type { SlotMaps } from "../map/times.tsx";

export interface Listed {
  readonly id: string;
  readonly name: string;
  readonly link: string;
  readonly created_at: number;
  readonly state: string;
  readonly published: boolean;
}

export interface CampaignSettings {
  readonly box: Box;
  readonly cell_km: number;
  readonly epsilon_per_km: number;
  readonly camouflage: number;
  readonly minimum_reports: number;
  readonly round_size: number | null;
  readonly round_hours: number | null;
  readonly rounds: number | null;
  /** Whether reports are trips, and estimates flows. */
  readonly trips?: boolean;
  /** Whether a report needs a ticket, one for each invitation. */
  readonly tickets?: boolean;
}

export interface State {
  readonly id: string;
  readonly name: string;
  readonly link: string;
  readonly state: string;
  readonly published: boolean;
  readonly settings: CampaignSettings;
  /** A round whose mechanism is being made, or why it cannot be. */
  readonly preparation: {
    readonly round: number;
    readonly problem: string | null;
    readonly needs_area: boolean;
  } | null;
  readonly round: number;
  readonly mechanism: string | null;
  /** Of a list of places, whether people are taken to stand around each, in a cell, instead of at it. */
  readonly around: boolean;
  readonly expires: number | null;
  readonly reports_counted: { readonly round: number; readonly all: number };
  readonly rounds_closed: number;
  readonly estimate: { readonly round: number; readonly reports: number; readonly made_at: number } | null;
  /** The newest round whose estimate was given up after every attempt failed; `null` where a later one has one. */
  readonly given_up: number | null;
  readonly alarm: Alarm | null;
  readonly choices: Choices | null;
}

/** Whether a campaign takes no reports any more. */
export function isOver({ state }: State): boolean {
  return state === "ended" || state === "finished";
}

/** Whether there is a mechanism that anybody can check now. */
export function hasMechanism({ state }: State): boolean {
  return !["preparing", "paused", "ended"].includes(state);
}

/** Whether a campaign has no map and gets none: it is over, and its last round has too few reports. */
export function staysWithoutMap(state: State): boolean {
  return !state.estimate && comesToNothing(state);
}

/** Whether every attempt at the newest estimate failed, and no round to come can make up for it. */
export function failedForGood(state: State): boolean {
  return state.given_up !== null && (comesToNothing(state) || (isOver(state) && state.given_up === state.round));
}

function comesToNothing(state: State): boolean {
  return isOver(state) && state.reports_counted.round < state.settings.minimum_reports;
}

export interface RoundOf {
  readonly round: number;
  readonly opened_at: number;
  readonly closed_at: number | null;
  readonly reports: number;
  readonly estimated: boolean;
  /** Whether every attempt at its estimate failed, so that there comes none. */
  readonly given_up: boolean;
}

export interface Rounds {
  readonly minimum_reports: number;
  readonly rounds: readonly RoundOf[];
}

export interface Advice {
  readonly cells: number;
  readonly mean_distance_km: number;
  readonly leakage_bits: number;
  readonly expected_error_km: number | null;
  readonly reported_error_km: number | null;
  /** Of several promises, what each will mean, the strongest first. */
  readonly choices: readonly {
    readonly epsilon_per_km: number;
    readonly mean_distance_km: number;
    readonly leakage_bits: number;
    readonly expected_error_km: number | null;
  }[];
  readonly sentences: readonly string[];
  /** Nothing for trips. */
  readonly example: {
    readonly space: AnySpace;
    readonly people: readonly number[];
    readonly reports: readonly number[];
    readonly map: readonly number[];
  } | null;
}

/** What city limits leave of a box. */
export interface AreaLeft {
  readonly cells: number;
  readonly of: number;
  readonly parts: number;
  readonly space: AnySpace;
}

/** An answer that is an error: the name of the problem and its sentence. */
export class Refusal extends Error {
  readonly problem: string;
  readonly status: number;
  /** The setting that it is about; empty where it is about none. */
  readonly field: string;

  constructor(problem: string, status: number, detail: string, field = "") {
    super(detail);
    this.problem = problem;
    this.status = status;
    this.field = field;
  }
}

const TOKEN = "geoveil-operator-token";
export const token = {
  get: (): string => recall(TOKEN) ?? "",
  set: (value: string): void => keep(TOKEN, value),
  forget: (): void => keep(TOKEN, null),
};

/** Where a browser lets a page keep nothing: as long as it is open. */
const memory = new Map<string, string>();

/** Keep something in this tab; or forget it. */
export function keep(name: string, value: string | null): void {
  memory.delete(name);
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, value);
  } catch {
    if (value !== null) memory.set(name, value);
  }
}

/** What this tab keeps. */
export function recall(name: string): string | null {
  try {
    return memory.get(name) ?? sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

/** An address of the service; pages lie at `/`, `/m/ID` and `/certificate/ID`, maybe behind a prefix of a proxy. */
export function address(path: string): string {
  const below = /\/(m|certificate)\/[^/]*\/?$/.test(location.pathname);
  return new URL(path, new URL(below ? ".." : ".", location.href)).href;
}

const UNREACHABLE = "unreachable";

interface How {
  /** The body is a text of GeoJSON as it is. */
  readonly raw?: boolean;
  /** As it is now, not as the browser remembers it from a second ago. */
  readonly fresh?: boolean;
  /** There is little to work out and little to send: without an answer soon there is none. */
  readonly soon?: boolean;
}

/** Until a service counts as one that does not answer: longer than it works on any question, or {@link How.soon}. */
export const [PATIENCE_MS, SOON_MS] = [90_000, 15_000];

async function ask(method: string, path: string, body?: unknown, { raw, fresh, soon }: How = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  if (token.get()) headers["authorization"] = `Bearer ${token.get()}`;
  if (body !== undefined) headers["content-type"] = raw ? "application/geo+json" : "application/json";
  const sent = body === undefined ? null : raw ? (body as string) : JSON.stringify(body);
  const options: RequestInit = {
    method,
    headers,
    body: sent,
    credentials: "omit",
    referrerPolicy: "no-referrer",
    cache: fresh ? "no-cache" : "default",
    signal: AbortSignal.timeout?.(soon ? SOON_MS : PATIENCE_MS) ?? null, // older browsers wait as long as they like
  };
  let answer: Response;
  try {
    answer = await fetch(address(path), options);
  } catch {
    throw new Refusal(UNREACHABLE, 0, "");
  }
  if (answer.ok) return answer;
  const problem = (await answer.json().catch(() => ({}))) as { type?: string; detail?: string; field?: string };
  const name = (problem.type ?? "").split("/").pop() ?? "";
  throw new Refusal(name, answer.status, problem.detail ?? answer.statusText, problem.field);
}

async function json<Answer>(method: string, path: string, body?: unknown, how: How = {}): Promise<Answer> {
  const answer = await ask(method, path, body, how);
  return answer.json().catch(() => {
    throw new Refusal(UNREACHABLE, 0, ""); // it ended in the middle
  }) as Promise<Answer>;
}

const of = (campaign: string, rest = ""): string => `api/campaigns/${encodeURIComponent(campaign)}${rest}`;

export const service = {
  campaigns: () =>
    json<{ campaigns: readonly Listed[] }>("GET", "api/campaigns", undefined, { soon: true }).then(
      (answer) => answer.campaigns,
    ),
  create: (settings: object) => json<{ id: string; link: string }>("POST", "api/campaigns", settings),
  advice: (question: object) => json<Advice>("POST", "api/advice", question),
  areaLeft: (question: object) => json<AreaLeft>("POST", "api/advice/area", question),
  keepArea: (campaign: string, text: string) => ask("PUT", of(campaign, "/area"), text, { raw: true }),
  state: (campaign: string) => json<State>("GET", of(campaign), undefined, { fresh: true, soon: true }),
  change: (campaign: string, changes: object) => json<State>("PATCH", of(campaign), changes),
  remove: (campaign: string) => ask("DELETE", of(campaign)),
  closeRound: (campaign: string) => ask("POST", of(campaign, "/rounds")),
  rounds: (campaign: string) => json<Rounds>("GET", of(campaign, "/rounds")),
  estimate: (campaign: string, round?: number) =>
    json<Estimate>("GET", of(campaign, round === undefined ? "/estimate" : `/rounds/${round}/estimate`)),
  slots: (campaign: string, round: number) => json<SlotMaps>("GET", of(campaign, `/rounds/${round}/estimate?slot=all`)),
  counts: (campaign: string, round: number) =>
    json<{ counts: readonly number[]; outside: number }>("GET", of(campaign, `/counts?round=${round}`)),
  regions: (campaign: string, round: number, zones: object) =>
    json<RegionShares>("POST", of(campaign, `/estimate/regions?round=${round}`), zones),
  regionOfMap: (campaign: string, zone: object) => json<RegionShares>("POST", of(campaign, "/map/region"), zone),
  backdrop: (campaign: string) =>
    ask("GET", of(campaign, "/backdrop"), undefined, { fresh: true }).then(async (answer) =>
      answer.status === 204 ? undefined : ((await answer.json()) as Backdrop),
    ),
  keepBackdrop: (campaign: string, text: string) => ask("PUT", of(campaign, "/backdrop"), text, { raw: true }),
  forgetBackdrop: (campaign: string) => ask("DELETE", of(campaign, "/backdrop")),
  invitations: (campaign: string) =>
    json<{ readonly made: number; readonly used: number }>("GET", of(campaign, "/invitations"), undefined, {
      fresh: true,
    }),
  invite: (campaign: string, count: number) =>
    json<{ invitations: readonly string[] }>("POST", of(campaign, "/invitations"), { count }).then(
      (answer) => answer.invitations,
    ),
  districtsOfMap: (campaign: string) => json<RegionShares>("GET", of(campaign, "/map/districts")),
  tiles: () =>
    json<{ tiles: string | null; attribution: string }>("GET", "api/map").catch(() => ({
      tiles: null,
      attribution: "",
    })),
};

/** Tell what changes in a campaign until the returned function is called; listens again after a break. */
export function listen(campaign: string, changed: (live: boolean) => void): () => void {
  let source: EventSource | undefined;
  let again = 0;
  const open = (): void => {
    source = new EventSource(address(of(campaign, "/events")));
    for (const name of ["round", "counts", "alarm"]) source.addEventListener(name, () => changed(true));
    source.onerror = () => {
      changed(false);
      source?.close();
      again = window.setTimeout(open, 2000);
    };
  };
  open();
  return () => {
    clearTimeout(again);
    source?.close();
  };
}
