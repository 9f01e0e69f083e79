/** The corpus of hostile documents that the Python device is tested with; its tests hand it over as a file. */

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Device, MemoryStorage, Refused } from "../src/index.ts";
import { FakeCollector } from "./collector.ts";

interface Corpus {
  now_s: number;
  /** In base 64, as all bodies are. */
  honest: string;
  cases: { name: string; body: string; reason: string; detail: string; seen: boolean }[];
}

const file = process.env["GEOVEIL_HOSTILE"];
const corpus: Corpus = file ? (JSON.parse(readFileSync(file, "utf8")) as Corpus) : { now_s: 0, honest: "", cases: [] };

describe.skipIf(!file)(file ? "the hostile corpus" : "the hostile corpus (run by tests/test_web.py)", () => {
  let collector: FakeCollector;
  beforeAll(async () => {
    collector = await FakeCollector.start();
  });
  afterAll(() => collector.stop());

  it.each(corpus.cases)("refused before a location is read: $name", async ({ body, reason, detail, seen }) => {
    const options = { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger: new MemoryStorage(), clock: () => corpus.now_s };
    const device = await Device.open(`${collector.origin}/c/lyon`, { ...options, again: "round" });
    collector.document = Buffer.from(corpus.honest, "base64");
    if (seen) await device.report({ lat: 45.76, lng: 4.84 });
    collector.document = Buffer.from(body, "base64");
    const sent = collector.reports.length;
    const asking = device.report(() => {
      throw new Error("a location was read");
    });
    const refused: unknown = await asking.catch((failure: unknown) => failure);
    if (!(refused instanceof Refused)) throw refused;
    expect([refused.reason, refused.detail, refused.sent]).toEqual([reason, detail, false]);
    expect(collector.reports.length).toBe(sent);
  });

  it("is whole", () => {
    expect(corpus.cases.length).toBeGreaterThan(100);
  });
});
