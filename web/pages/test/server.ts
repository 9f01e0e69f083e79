/** A real service and a real browser for the tests of the pages. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";

import { enter, leave, SERVICE } from "./browser.ts";

export const TOKEN = "a-token-for-tests-only";

/** `geoveil serve` over a database of its own, which can be stopped and started again at the same address. */
export class Service {
  url = "";
  private readonly settings: Readonly<Record<string, string>>;
  private readonly folder = mkdtempSync(join(tmpdir(), "geoveil-pages-"));
  private process: ChildProcess | undefined;
  private port = 0;

  /** With settings by the names of their variables. */
  constructor(settings: Readonly<Record<string, string>> = {}) {
    this.settings = settings;
  }

  /** The one that is running for all tests, or one of its own where none is. */
  static async given(): Promise<Service> {
    const given = new Service();
    given.url = SERVICE;
    return SERVICE ? given : given.start();
  }

  async start(): Promise<this> {
    const python = process.env["GEOVEIL_PYTHON"] ?? "python3";
    const flags = ["--json", `--port=${this.port}`, "--no-limit-loopback", "--tick-s=0.1", "--log-level=error"];
    const others = Object.entries(process.env).filter(([name]) => !name.startsWith("GEOVEIL_"));
    this.process = spawn(python, ["-m", "geoveil", "serve", ...flags], {
      env: {
        ...Object.fromEntries(others),
        GEOVEIL_DATABASE: `sqlite:///${join(this.folder, "pages.db")}`,
        GEOVEIL_OPERATOR_TOKEN: TOKEN,
        ...this.settings,
      },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    for await (const piece of this.process.stdout!) {
      said += String(piece);
      if (said.trimEnd().endsWith("}")) break;
    }
    this.url = (JSON.parse(said) as { url: string }).url;
    this.port = Number(new URL(this.url).port);
    return this;
  }

  async stop(): Promise<void> {
    const { process } = this;
    if (!process) return;
    const ended = new Promise((resolve) => process.once("exit", resolve));
    process.kill("SIGTERM");
    await ended;
  }

  async end(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async call(method: string, path: string, body?: unknown): Promise<Response> {
    return fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }

  /** A campaign; its id. */
  async campaign(changes: object = {}): Promise<string> {
    const lyon = { name: "Lyon", box: [45.72, 4.8, 45.78, 4.88], cell_km: 1, epsilon_per_km: 1, minimum_reports: 50 };
    const made = await this.call("POST", "/api/campaigns", { ...lyon, ...changes });
    if (made.status !== 201) throw new Error(await made.text());
    return ((await made.json()) as { id: string }).id;
  }

  /** So many reports, crowded in the middle of the numbers of cells. */
  async report(campaign: string, number: number): Promise<void> {
    const answer = await fetch(`${this.url}/api/campaigns/${campaign}/mechanism`);
    const { id: mechanism, weights } = (await answer.json()) as { id: string; weights: string };
    const cells = Buffer.from(weights, "base64").length / 4;
    const reports = Array.from({ length: number }, (_, n) => ({
      mechanism,
      id: Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString("hex"),
      cell: n % 3 ? Math.floor(cells / 2) : n % cells,
    }));
    for (let at = 0; at < number; at += 1000) {
      const sent = await this.call("POST", `/api/campaigns/${campaign}/reports`, {
        reports: reports.slice(at, at + 1000),
      });
      if (!sent.ok) throw new Error(await sent.text());
    }
  }

  /** Close the round and wait for its estimate. */
  async estimate(campaign: string, round: number): Promise<void> {
    await this.call("POST", `/api/campaigns/${campaign}/rounds`);
    for (let looks = 0; looks < 600; looks++) {
      if ((await fetch(`${this.url}/api/campaigns/${campaign}/rounds/${round}/estimate`)).ok) return;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error("no estimate");
  }
}

/** Another address of a service, where it can be out of reach for a while: what pages see of one that starts again. */
export class Gate {
  url = "";
  private readonly port: number;
  private readonly through = new Set<Socket>();
  private server: Server | undefined;

  constructor(service: { readonly url: string }) {
    this.port = Number(new URL(service.url).port);
  }

  async open(): Promise<this> {
    this.server = createServer((near) => {
      const far = connect(this.port, "127.0.0.1");
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.through.add(one);
        one.pipe(other);
        one.on("error", () => other.destroy()).on("close", () => (this.through.delete(one), other.destroy()));
      }
    });
    this.server.listen(Number(new URL(this.url || "http://x:0").port), "127.0.0.1");
    await new Promise((resolve) => this.server!.once("listening", resolve));
    this.url = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
    return this;
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.server!.close(resolve));
    for (const each of this.through) each.destroy();
    await closed;
  }
}

/** A tab of its own, with everything it asked for and complained about. */
export interface Tab {
  readonly page: Page;
  readonly asked: string[];
  readonly complaints: string[];
  close(): Promise<void>;
}

export async function openTab(browser: Browser, address: string, options: BrowserContextOptions = {}): Promise<Tab> {
  const page = await enter(browser, { locale: "en-GB", viewport: { width: 1280, height: 900 }, ...options });
  const [asked, complaints]: [string[], string[]] = [[], []];
  page.on("request", (request) => asked.push(`${request.method()} ${request.url()}`));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (line) => line.type() === "error" && complaints.push(line.text()));
  await page.goto(address);
  return { page, asked, complaints, close: () => leave(page.context()) };
}

/** The dashboard, signed in, at a place of it. */
export async function operator(
  browser: Browser,
  service: { readonly url: string },
  place = "",
  options: BrowserContextOptions = {},
): Promise<Tab> {
  return openTab(
    browser,
    `${service.url}/#/?${new URLSearchParams({ token: TOKEN, campaign: place }).toString()}`,
    options,
  );
}
