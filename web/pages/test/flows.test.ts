/** Flows of a campaign of trips on the dashboard and the public map: arrows, matrix, table, files. */

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { executablePath, launch, SERVICE } from "./browser.ts";
import { openTab, operator, Service } from "./server.ts";

describe.skipIf(!SERVICE || !executablePath)("flows", () => {
  let browser: Browser;
  let service: Service;
  let id = "";
  beforeAll(async () => {
    [browser, service] = await Promise.all([launch(), Service.given()]);
    id = await service.campaign({ name: "Ways", trips: true, epsilon_per_km: 4, cell_km: 1.5 });
    const answer = await fetch(`${service.url}/api/campaigns/${id}/mechanism`);
    const { id: mechanism } = (await answer.json()) as { id: string };
    const reports = Array.from({ length: 90 }, (_, n) => ({
      mechanism,
      id: Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString("hex"),
      cell: n % 5 ? 6 : n % 20,
      to: n % 3 ? 18 : n % 5 ? 6 : (7 * n) % 20,
    }));
    const sent = await service.call("POST", `/api/campaigns/${id}/reports`, { reports });
    expect(sent.ok).toBe(true);
    await service.estimate(id, 1);
    await service.call("PATCH", `/api/campaigns/${id}`, { published: true });
  }, 150_000); // a busy machine takes its time
  afterAll(() => service?.end());

  it("are drawn with widths, directions and what is not sure, on the dashboard", async () => {
    const tab = await operator(browser, service, id);
    const { page } = tab;
    await page.locator(".flow-map").waitFor();
    expect(await page.locator("path.flow").count()).toBeGreaterThan(3);
    expect(await page.locator("path.flow-pale").count()).toBeGreaterThan(0);
    expect(await page.locator("circle.flow-stay").count()).toBeGreaterThan(0);
    const largest = await page.locator("path.flow title").last().textContent();
    expect(largest).toMatch(/^\d+ → \d+: [\d.]+ % \([\d.]+ % to [\d.]+ %\)$/);
    await page
      .locator("details", { has: page.locator("#flow-table") })
      .locator("summary")
      .click();
    const rows = page.locator("#flow-table tbody tr");
    const all = await rows.count();
    const first = await rows.first().innerText();
    expect(first).toMatch(/% to .*%/);
    await page.locator("#flows-from").selectOption("0");
    expect(await rows.count()).toBeLessThan(all);
    await page.locator("summary", { hasText: "matrix" }).click();
    const districts = Math.sqrt(await page.locator(".flow-matrix rect").count());
    expect(Number.isInteger(districts)).toBe(true);
    for (const name of ["GeoJSON", "CSV", "GeoParquet", "JSON"]) {
      const href = await page.locator(".flows a", { hasText: name }).first().getAttribute("href");
      expect((await fetch(href!)).status).toBe(200);
    }
    expect(tab.complaints).toEqual([]);
    await tab.close();
  });

  it("are shown to everybody where they are published", async () => {
    const tab = await openTab(browser, `${service.url}/m/${id}`);
    await tab.page.locator(".flow-map").waitFor();
    expect(await tab.page.locator("h1").innerText()).toBe("Ways");
    expect(await tab.page.locator("path.flow").count()).toBeGreaterThan(3);
    expect(await tab.page.locator("body").innerText()).toMatch(/90 trips/);
    expect(tab.complaints).toEqual([]);
    await tab.close();
  });
});
