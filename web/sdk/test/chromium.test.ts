/** The same vectors and the same report in a real browser, where there is one. */

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { executablePath, tabOf } from "./browser.ts";
import { inBrowser, launch } from "./bundle.ts";
import { FakeCollector, PARIS } from "./collector.ts";
import { mechanism, NAMES } from "./vectors.ts";

describe.skipIf(!executablePath)(executablePath ? "Chromium" : "Chromium (not installed here)", () => {
  let browser: Browser;
  let collector: FakeCollector;
  let page: Page; // for what a page only computes

  beforeAll(async () => {
    collector = await FakeCollector.start();
    collector.serve(await inBrowser());
    browser = await launch();
    page = await tabOf(browser, collector.origin);
  });
  afterAll(async () => {
    await page?.close();
    await collector?.stop();
  });

  it.each(NAMES)("agrees with Python on mechanism-%s.json", async (name) => {
    const vector = mechanism(name);
    const found = await page.evaluate((given) => window.geoveil.agree(given), vector);
    const [draws, sums] = [vector.draws.length, vector.sums.length];
    expect(Math.min(draws, sums)).toBeGreaterThanOrEqual(60);
    expect(found).toMatchObject({ id: vector.id, draws, places: 200, sums });
    expect(found.epsilonPerKm).toBeGreaterThanOrEqual(vector.seen_epsilon_per_km);
    expect(found.epsilonPerKm).toBeLessThanOrEqual(
      (JSON.parse(vector.document) as { epsilon_per_km: number }).epsilon_per_km,
    );
  });

  it("makes one report from two tabs and a worker at once, and none on a later visit", async () => {
    const context = await browser.newContext();
    const [one, other] = [await tabOf(context, collector.origin), await tabOf(context, collector.origin)];
    const { link } = collector;
    const ask = (page: Page, fix: { lat: number; lng: number }): Promise<unknown> =>
      page.evaluate(([to, from]) => window.geoveil.report(to, from), [link, fix] as const);
    const worker = one.evaluate(
      `new Promise((resolve, reject) => {
        const worker = new Worker("/page.js", { type: "module" });
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = () => reject(new Error("the worker failed"));
        worker.postMessage(["${link}", { lat: 48.87, lng: 2.3 }]);
      })`,
    );
    const receipts = await Promise.all([ask(one, PARIS), ask(other, { lat: 48.83, lng: 2.39 }), worker]);
    expect(receipts[0]).toMatchObject({ campaign: "paris", acknowledged: true, budgetLeftPerKm: 8 });
    const bodies = collector.reports.map((request) => request.body);
    expect(new Set(bodies).size).toBe(1);
    expect(Object.keys(JSON.parse(bodies[0]!) as object)).toEqual(["mechanism", "id", "cell"]);
    const asked = collector.requests.length;
    expect(await ask(await tabOf(context, collector.origin), { lat: 48.83, lng: 2.39 })).toEqual(receipts[0]);
    expect(collector.requests.length).toBe(asked);
    expect(collector.requests.every(({ headers }) => !("cookie" in headers) && !("if-none-match" in headers))).toBe(
      true,
    );
    await context.close();
  });
});
