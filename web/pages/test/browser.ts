/** A real service and a real browser; `tests/test_pages.py` starts the one, these tests the other. */

import { existsSync } from "node:fs";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
  type Request,
} from "playwright-core";

/** The first is Chromium without its windows, which takes a third of the processor. */
const PROGRAMS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"].map(
  (name) => `/usr/bin/${name}`,
);

/** Where the service is; empty where these tests were not started by it. */
export const SERVICE = process.env["GEOVEIL_SERVICE"] ?? "";
export const OPERATOR = process.env["GEOVEIL_OPERATOR"] ?? "";
export const executablePath = PROGRAMS.find(existsSync);
export const PHONE: BrowserContextOptions = {
  viewport: { width: 390, height: 844 },
  hasTouch: true,
  isMobile: true,
  deviceScaleFactor: 2,
};

/** Little of what the browser does beside the pages is needed here, and threads only cost: a quarter less processor. */
const ARGUMENTS = [
  ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
  "--disable-gpu",
  "--disable-3d-apis", // no WebGL
  "--disable-background-networking",
  "--disable-dev-shm-usage",
  "--in-process-gpu",
  "--enable-features=NetworkServiceInProcess2",
  "--renderer-process-limit=1",
  "--num-raster-threads=1",
  "--js-flags=--single-threaded --no-opt",
];

let running: Promise<Browser> | undefined;

/** The one browser of all files, which run one after another in one process and end it with them. */
export function launch(): Promise<Browser> {
  return (running ??= chromium.launch({ executablePath: executablePath!, args: ARGUMENTS }));
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
    return Visit.of(await browser.newContext({ locale: "en-GB", ...options }));
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

/** Close a profile; a request that a test is just answering itself ends with it, and is no error. */
export async function leave(context: BrowserContext): Promise<void> {
  await Promise.all(context.pages().map((page) => page.unrouteAll({ behavior: "ignoreErrors" })));
  await context.close();
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
