/** A collector for tests: a real HTTP server that serves a document, counts reports and remembers every request. */

import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { JsonObject } from "../src/canonical.ts";
import { canonicalText, sha256 } from "../src/canonical.ts";
import { mechanism } from "./vectors.ts";

export interface Request {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
}

export interface Reply {
  status: number;
  headers?: Record<string, string>;
  body?: string | Uint8Array | undefined;
}

export const PARIS = { lat: 48.8584, lng: 2.2945 };

/** The served text of a document with other entries, and the id that fits. */
export async function served(base: string, changes: JsonObject = {}): Promise<string> {
  const values = { ...(JSON.parse(mechanism(base).document) as JsonObject), ...changes };
  return canonicalText({ ...values, id: await sha256(canonicalText(values)) });
}

export function problem(status: number, name: string): Reply {
  const body = JSON.stringify({ type: `https://geoveil.org/problems/${name}` });
  return { status, headers: { "content-type": "application/problem+json" }, body };
}

export class FakeCollector {
  readonly requests: Request[] = [];
  /** Replies that come before the usual ones, one for each request. */
  readonly next: Reply[] = [];
  document: string | Uint8Array = mechanism("paris").served;
  /** Path → type and text of what else it serves, to a browser. */
  private readonly pages = new Map<string, [type: string, text: string]>();
  private readonly server: Server;

  private constructor() {
    this.server = createServer((request, response) => {
      const pieces: Buffer[] = [];
      request.on("data", (piece: Buffer) => pieces.push(piece));
      request.on("end", () => {
        const body = Buffer.concat(pieces).toString();
        const { method = "", url: path = "", headers } = request;
        const page = this.pages.get(path);
        if (page) return response.writeHead(200, { "content-type": page[0] }).end(page[1]);
        this.requests.push({ method, path, headers, body });
        const reply = this.next.shift() ?? this.usual(method, body);
        return response
          .writeHead(reply.status, { "content-type": "application/json", ...reply.headers })
          .end(reply.body);
      });
    });
  }

  static async start(): Promise<FakeCollector> {
    const collector = new FakeCollector();
    await new Promise<void>((resolve) => collector.server.listen(0, "127.0.0.1", resolve));
    return collector;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  get link(): string {
    return `${this.origin}/c/paris`;
  }

  get reports(): Request[] {
    return this.requests.filter((request) => request.method === "POST");
  }

  /** Serve a page that runs this program, and the program for workers. */
  serve(program: string): void {
    const head = '<title>test</title><link rel="icon" href="data:,">';
    this.pages.set("/", ["text/html", `<!doctype html>${head}<script type="module" src="/page.js"></script>`]);
    this.pages.set("/page.js", ["text/javascript", program]);
  }

  stop(): Promise<void> {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(() => resolve()));
  }

  private usual(method: string, body: string): Reply {
    if (method === "GET") return { status: 200, body: this.document };
    const { id } = JSON.parse(body) as { id: string };
    return { status: 200, body: JSON.stringify({ id, status: "counted" }) };
  }
}
