/** Keys, sums and words by themselves, and the size of the package. */

import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { expect, it } from "vitest";
import type { Centres } from "../src/area.ts";
import { type Json, type JsonObject, strictJson, unhex } from "../src/canonical.ts";
import { manyTimes } from "../src/collector.ts";
import { ROUNDING_CELLS, RoundedCone } from "../src/cone.ts";
import { MechanismDocument } from "../src/document.ts";
import { Exact, leftOf } from "../src/exact.ts";
import { type Again, bitsOf, movedOn } from "../src/keys.ts";
import { WholeLaw } from "../src/law.ts";
import { wrapped } from "../src/plane.ts";
import {
  amount,
  explainDocument,
  explainNearby,
  explainPromise,
  general,
  odds,
  roundedDown,
  roundedUp,
} from "../src/words.ts";
import { bundled } from "./bundle.ts";
import { bytes, load, mechanism, NAMES } from "./vectors.ts";

interface ReportsVector {
  key: string;
  mechanism: string;
  reports: [Again, number, string, string, string][];
  later: [number, string][];
  words: Record<string, string>;
  nearby: [number, string, string][];
}
const VECTOR = load<ReportsVector>("reports.json");
const hex = (data: Uint8Array): string => Buffer.from(data).toString("hex");

it("makes the same ids and bits from a key, and the same later keys", async () => {
  const key = unhex(VECTOR.key)!;
  for (const [again, number, report, draw, end] of VECTOR.reports) {
    const bits = await bitsOf(key, VECTOR.mechanism, { again, number });
    expect([bits.report, hex(bits.draw), hex(bits.end)]).toEqual([report, draw, end]);
  }
  for (const [steps, later] of VECTOR.later) expect(hex(await movedOn(key, steps))).toBe(later);
});

it.each(NAMES)("says %s in the same words as Python", async (name) => {
  const document = await MechanismDocument.read(bytes(mechanism(name).document));
  expect(explainDocument(document, document.slots && 0)).toBe(VECTOR.words[name]); // in its first slot
});

it("says what many reports tell about people who move a little in the same words as Python", async () => {
  const { promise } = await MechanismDocument.read(bytes(mechanism("paris").document));
  for (const [many, cost, words] of VECTOR.nearby) {
    const together = manyTimes(promise, many);
    expect([amount(together), explainNearby(together, many)]).toEqual([cost, words]);
  }
});

it("adds costs as they are written, and rounds sums up", () => {
  expect(Exact.sum([0.1, 0.1, 0.1]).noLess()).toBe(0.3);
  expect(Exact.sum([0.1, 0.2]).isAbove(Exact.of(0.3))).toBe(false);
  expect(leftOf(0.3, Exact.sum([0.1, 0.2]))).toBe(0);
  expect(leftOf(1, Exact.of(2))).toBe(0);
  expect(Exact.sum([1e-7, 1e21, 1.5e-9]).nearest()).toBe(1e21);
  const long = Exact.sum([1e16, 0.3]);
  expect(long.noLess()).toBeGreaterThan(long.nearest());
  expect(Exact.of(long.noLess()).isAbove(long)).toBe(true);
});

it("rounds bounds to the safe side", () => {
  expect([roundedUp(1.4918, 3), roundedUp(2), roundedUp(0.1 + 0.2)]).toEqual(["1.5", "2", "0.3"]);
  expect([roundedDown(Number.MAX_VALUE), roundedDown(Infinity)]).toEqual(["1.79769e+308", "Infinity"]);
  expect([roundedDown(1.4999, 3), roundedDown(0.7 - 0.4), roundedUp(9.999, 2)]).toEqual(["1.49", "0.3", "10"]);
  expect([general(1e-5, 2), general(1234567, 3), general(0, 3), general(100, 3)]).toEqual([
    "1e-05",
    "1.23e+06",
    "0",
    "100",
  ]);
});

it("speaks of odds that hold", () => {
  const promise = { epsilonPerKm: 20, slackNats: 0.1 };
  expect(explainPromise(promise)).toBe(
    "Two people 200 m apart: any report is at most 60.4 times as likely from one as from the other; " +
      "of 100 such reports from one, at least 1 on average would also come from the other.",
  );
  expect(explainPromise({ epsilonPerKm: 4, slackNats: 0.03 }, 2)).toMatch(
    /^Whoever stands within 200 m of you could have sent the same 2 reports, where neither of you moves: any 2 reports together are at most 2\.3 times/,
  );
  expect(explainPromise({ epsilonPerKm: 200, slackNats: 0 })).toMatch(
    /at most e\^40 times as likely from one as from the other\.$/,
  );
  expect(explainPromise({ epsilonPerKm: 0, slackNats: 0 })).toMatch(/exactly as likely/);
});

it("never makes odds better than they are", () => {
  expect(odds({ epsilonPerKm: 0, slackNats: 0 }, 3)).toEqual({ level: 0, times: 1, guessedOf100: 50 });
  for (const epsilonPerKm of [0.1, 0.5, 1, 2, 7, 300]) {
    for (const km of [0.1, 0.37, 1, 5]) {
      const { level, times, guessedOf100 } = odds({ epsilonPerKm, slackNats: 0.01 }, km);
      expect(level).toBe(epsilonPerKm * km + 0.01);
      expect(times).toBeGreaterThanOrEqual(Math.min(Math.exp(level), 1e6) * (1 - 1e-11));
      const factor = Math.exp(level);
      expect(guessedOf100 / 100).toBeGreaterThanOrEqual(
        (1 - 1e-11) * (factor === Infinity ? 1 : factor / (1 + factor)),
      );
      expect(guessedOf100).toBeLessThanOrEqual(100);
    }
  }
});

it("reads JSON that names everything once, and nothing else", () => {
  expect(strictJson(bytes('{"a":{"b":1},"b":[{"a":"x\\\\\\"{"},{"a":":"}]}'))).toEqual({
    a: { b: 1 },
    b: [{ a: 'x\\"{' }, { a: ":" }],
  });
  for (const text of [
    '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}',
    '[{"x":{"a":1,"b":{},"a":2}}]',
    "{'a':1}",
    "\ufeff{}",
    "1 2",
    "",
    "[".repeat(100) + "]".repeat(100),
  ]) {
    expect(() => strictJson(bytes(text)), text).toThrow(SyntaxError);
  }
  expect(() => strictJson(Uint8Array.of(0x22, 0xff, 0x22))).toThrow(SyntaxError);
});

it("turns longitudes as the Python device does, to the last digit", () => {
  const turned = [180.1, 359.9, -180.3, -370.1, 1000000.1].map(wrapped);
  expect(turned).toEqual([-179.9, -0.10000000000002274, 179.7, -10.100000000000023, -79.90000000002328]);
});

it("names no type of places that only pages know: Node and workers compile with it", () => {
  const source = readFileSync(new URL("../src/location.ts", import.meta.url), "utf8");
  expect(source).not.toMatch(/\b(?:Position|Geolocation)[A-Z]\w*/);
});

it("has at most 20 kB, compressed", async () => {
  const size = gzipSync(await bundled("../src/index.ts")).length;
  expect(size).toBeGreaterThan(5_000);
  expect(size).toBeLessThanOrEqual(20_000);
  console.info(`@geoveil/client: ${size} bytes compressed`);
});

function packed(numbers: readonly number[]): string {
  const data = Buffer.alloc(4 * numbers.length);
  numbers.forEach((number, at) => data.writeUInt32BE(number, 4 * at));
  return data.toString("base64");
}

/** A document in order in every respect: two places on the corners of so large a square, with cells of a metre. */
function farApart(sideKm: number): JsonObject {
  const [cellKm, step, beta] = [0.001, 2, 3];
  const cone = new RoundedCone(beta, ROUNDING_CELLS * cellKm);
  const kernel = Array.from({ length: 16_000 }, (_, at) =>
    Math.round(cone.value(((at + 0.5) * cellKm) / step) * 2 ** 31),
  );
  const corner = (sideKm / cellKm) * step;
  const space: Json = { kind: "centres", origin: [0, 0], cell_km: cellKm, points: packed([0, 0, corner, corner]) };
  const values = JSON.parse(mechanism("places").document) as JsonObject;
  return {
    ...values,
    space,
    step,
    beta_per_km: beta,
    epsilon_per_km: 2 * beta,
    slack_nats: 0.02,
    weights: packed([1, 1]),
    kernel: packed(kernel),
  };
}

it("confirms what a law was certified at by its design", () => {
  const laws = [
    [2, 0.3, 3],
    [2, 4.3, 1],
    [3, 4.1, 1],
  ] as const;
  for (const [columns, beta, first] of laws) {
    const steps = Float64Array.from({ length: columns }, (_, column) => 100 * column);
    const centres: Centres = {
      ...{ pitchKm: 0.01, east: steps, north: new Float64Array(columns) },
      ...{ low: [-50, -50], high: [100 * columns - 50, 50] },
      lattice: { rows: 1, columns, step: 100, rim: 0, at: Int32Array.from(steps.keys()) },
    };
    const cone = new RoundedCone(beta, ROUNDING_CELLS);
    const table = Uint32Array.from({ length: 142 * columns }, (_, at) =>
      Math.round(cone.value((at + 0.5) / 100) * 2 ** 31),
    );
    const law = new WholeLaw(
      centres,
      Uint32Array.from(steps, (_, at) => (at ? 1 : first) << 20),
      cone,
      table,
    );
    const { epsilonPerKm, seenPerKm } = law.positions().certify();
    expect(law.keeps(epsilonPerKm, 1)).toBe(true);
    expect(law.keeps(seenPerKm * (1 - 1e-9), 1)).toBe(false);
  }
});

it("does not certify for hours: a law that needs too many squares is not believed", async () => {
  const small = await MechanismDocument.read(farApart(0.1));
  expect(() => small.checkPromise()).not.toThrow();
  const wide = await MechanismDocument.read(farApart(200));
  expect(() => wide.checkPromise()).toThrow(/refused: certificate/);
});
