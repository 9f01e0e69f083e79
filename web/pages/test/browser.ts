/** A real service and a real browser; `tests/test_pages.py` starts the one, these tests the other. */

import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
  type Request,
} from "playwright-core";
import { executablePath, started } from "../../sdk/test/browser.ts";

/** Where the service is; empty where these tests were not started by it. */
export const SERVICE = process.env["GEOVEIL_SERVICE"] ?? "";
export const OPERATOR = process.env["GEOVEIL_OPERATOR"] ?? "";
export { executablePath };
export const PHONE: BrowserContextOptions = {
  viewport: { width: 390, height: 844 },
  hasTouch: true,
  isMobile: true,
  deviceScaleFactor: 2,
};

/** In light at a desk and in dark as narrow as a phone: for one tab that is looked at in both. */
export const LOOKS = [
  ["light", { width: 1280, height: 900 }],
  ["dark", PHONE.viewport!],
] as const;

/** By how much a page is wider than its window; a phone shows one that is by making it smaller, and says so itself. */
export const beyond = async (page: Page): Promise<number> =>
  (await page.evaluate(() => document.documentElement.scrollWidth)) - page.viewportSize()!.width;

let running: Promise<Browser> | undefined;

/** The one browser of all files, which run one after another in one process and end it with them. */
export function launch(): Promise<Browser> {
  return (running ??= started(chromium, "--js-flags=--single-threaded --no-opt")); // no page computes for long
}

/** A tab in a profile of its own, and everything that it asks for and complains about. */
export class Visit {
  readonly context: BrowserContext;
  readonly page: Page;
  readonly requests: Request[] = [];
  readonly complaints: string[] = [];

  private constructor(context: BrowserContext, page: Page) {
    this.context = context;
    this.page = page;
    page.on("request", (request) => this.requests.push(request));
    page.on("console", (message) => {
      if (message.type() === "error") this.complaints.push(message.text());
    });
    page.on("pageerror", (error) => this.complaints.push(String(error)));
  }

  static async begin(browser: Browser, options: BrowserContextOptions = {}): Promise<Visit> {
    const page = await enter(browser, { locale: "en-GB", ...options });
    return new Visit(page.context(), page);
  }

  /** Another tab of the same profile. */
  static async of(context: BrowserContext): Promise<Visit> {
    return new Visit(context, await context.newPage());
  }

  /** Method and path of what was asked for, in order; files of the pages left out. */
  get asked(): string[] {
    return this.requests
      .map((request) => `${request.method()} ${new URL(request.url()).pathname}`)
      .filter((line) => !line.startsWith("GET /assets/"));
  }

  get bodies(): string[] {
    return this.requests.filter((request) => request.method() === "POST").map((request) => request.postData() ?? "");
  }

  end(): Promise<void> {
    return leave(this.context);
  }
}

/** Profiles that nobody is in, by what they were made with: a new one would start a process and compile all anew. */
const wiped = new Map<string, Page[]>();
const made = new WeakMap<BrowserContext, string>();

/** The only tab of a profile that nothing is kept in. */
export async function enter(browser: Browser, options: BrowserContextOptions): Promise<Page> {
  const kind = JSON.stringify(options);
  const known = wiped.get(kind)?.pop();
  if (known) return known;
  const context = await browser.newContext(options);
  made.set(context, kind);
  return context.newPage();
}

/**
 * Close the tabs of a profile and wipe it, or close it where it has been elsewhere than at the service.
 * A request that a test is just answering itself ends with it, and is no error.
 */
export async function leave(context: BrowserContext): Promise<void> {
  const tabs = context.pages();
  await Promise.all(tabs.map((page) => page.unrouteAll({ behavior: "ignoreErrors" })));
  const places = tabs.flatMap((page) => page.frames().map((frame) => frame.url()));
  if (!SERVICE || !places.every((place) => place.startsWith(`${SERVICE}/`))) return context.close();
  const next = await context.newPage(); // before the others go, and their process with them
  await Promise.all(tabs.map((page) => page.close()));
  const debug = await context.newCDPSession(next);
  await debug.send("Storage.clearDataForOrigin", { origin: SERVICE, storageTypes: "all" });
  await debug.send("Network.clearBrowserCache");
  await debug.detach();
  await context.clearCookies();
  const kind = made.get(context)!;
  wiped.set(kind, [...(wiped.get(kind) ?? []), next]);
}

/** Make a campaign as the operator; its id. */
export async function campaign(changes: Record<string, unknown> = {}): Promise<string> {
  const settings = {
    name: "Lyon",
    box: [45.72, 4.8, 45.78, 4.88],
    cell_km: 1,
    epsilon_per_km: 1,
    camouflage: 0.5,
    minimum_reports: 50,
  };
  const answer = await operator("POST", "/api/campaigns", { ...settings, ...changes });
  return ((await answer.json()) as { id: string }).id;
}

export async function operator(method: string, path: string, body?: unknown): Promise<Response> {
  const answer = await fetch(SERVICE + path, {
    method,
    headers: { Authorization: `Bearer ${OPERATOR}`, "Content-Type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}
