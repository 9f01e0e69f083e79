/** The service itself, from Node and from a page of another origin; the tests in Python start it. */

import { describe, expect, it } from "vitest";
import { Device, MemoryStorage } from "../src/index.ts";
import { executablePath, tabOf } from "./browser.ts";
import { inBrowser, launch } from "./bundle.ts";
import { FakeCollector } from "./collector.ts";

const link = process.env["GEOVEIL_LINK"] ?? "";
const places = process.env["GEOVEIL_PLACES"] ?? "";
const HERE = { lat: 45.75, lng: 4.84 };

describe.skipIf(!link)(link ? "the service" : "the service (started by tests/test_web.py)", () => {
  it("counts the reports of two devices, each once", async () => {
    const reports = new Set<string>();
    for (const ledger of [new MemoryStorage(), new MemoryStorage()]) {
      const device = await Device.open(link, { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger });
      expect(await device.explain()).toMatch(/^Round 1 of the campaign /);
      const receipt = await device.report(HERE);
      expect(receipt.acknowledged).toBe(true);
      expect(await device.report({ lat: 45.7, lng: 4.8 })).toEqual(receipt);
      reports.add(receipt.report);
    }
    expect(reports.size).toBe(2);
  });

  it("counts the report of one of a list of places", async () => {
    const device = await Device.open(places, { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger: new MemoryStorage() });
    expect(await device.explain()).toContain("One of 5 places about ");
    const receipt = await device.report(HERE);
    expect(receipt).toMatchObject({ round: 2, acknowledged: true });
    expect(receipt.cell).toBeLessThan(5);
  });

  it.skipIf(!executablePath)("counts the report of a page of another origin", async () => {
    const other = await FakeCollector.start();
    other.serve(await inBrowser());
    const page = await tabOf(await launch(), other.origin);
    try {
      const receipt = await page.evaluate(([to, from]) => window.geoveil.report(to, from), [link, HERE] as const);
      expect(receipt).toMatchObject({ round: 1, acknowledged: true });
    } finally {
      await page.close();
      await other.stop();
    }
  });
});
