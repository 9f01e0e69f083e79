/** Districts: given by an operator, seen with share and interval on the dashboard and by strangers on the public map. */

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { beyond, launch, PHONE } from "./browser.ts";
import { findings } from "./findings.ts";
import { openTab, operator, Service } from "./server.ts";

const HOSTILE = `<img src=x onerror="window.hacked=1">`;
const area = (name: string, west: number, east: number) => ({
  type: "Feature",
  properties: { name },
  geometry: {
    type: "Polygon",
    coordinates: [[[west, 45.72], [east, 45.72], [east, 45.78], [west, 45.78], [west, 45.72]]],
  },
}); // prettier-ignore
const file = (name: string, content: unknown) => ({
  name,
  mimeType: "application/geo+json",
  buffer: Buffer.from(typeof content === "string" ? content : JSON.stringify(content)),
});

let service: Service;
let browser: Browser;
let lyon = "";

beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
  lyon = await service.campaign();
  await service.report(lyon, 600);
  await service.estimate(lyon, 1);
}, 180_000);
afterAll(() => service?.end());

const rows = (page: Page): Promise<string[]> => page.locator("#districts tbody tr").allTextContents();

test("an operator gives districts, and everybody sees the share and the interval of each", async () => {
  const { page, complaints, close } = await operator(browser, service, lyon);
  await page.getByLabel("Districts (GeoJSON, optional)").waitFor({ timeout: 30_000 });
  expect(await page.getByRole("button", { name: "districts", exact: true }).count()).toBe(0);
  const removable = () => page.getByRole("button", { name: /^Remove the/ }).allTextContents();
  expect(await removable()).toEqual([]); // there is nothing to remove
  const given = page.getByLabel("Districts (GeoJSON, optional)");
  await given.setInputFiles(file("bad.json", { type: "LineString", coordinates: [[4.8, 45.7], [4.9, 45.8]] })); // prettier-ignore
  await page.locator("#new-districts-said", { hasText: "must hold areas" }).waitFor();
  const halves = [area(HOSTILE, 4.8, 4.84), area("East", 4.84, 4.88)];
  await given.setInputFiles(file("halves.geojson", { type: "FeatureCollection", features: halves }));
  await page.getByRole("button", { name: "districts", exact: true }).click({ timeout: 30_000 });
  await page.locator("#districts tbody tr").first().waitFor({ timeout: 60_000 });
  expect(await removable()).toEqual(["Remove the districts"]);
  const told = await rows(page);
  expect(told).toHaveLength(2);
  expect(told[0]).toContain(HOSTILE);
  expect(told[1]).toMatch(/^East[\d.]+ %[\d.]+ % to [\d.]+ %/);
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
  await page.getByRole("button", { name: "East" }).focus(); // by keyboard, marked on the map and said below it
  await page.locator(".map-reading", { hasText: /^East: [\d.]+ % of the people, between/ }).waitFor();
  const canvas = page.locator("canvas.map-canvas").first();
  const { width, height } = (await canvas.boundingBox())!;
  await canvas.hover({ position: { x: width * 0.46, y: height * 0.5 } });
  await page.locator(".map-reading", { hasText: HOSTILE }).waitFor();
  expect(await findings(page)).toEqual([]);

  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: true });
  const stranger = await openTab(browser, `${service.url}/m/${lyon}`, { ...PHONE, colorScheme: "dark" });
  await stranger.page.getByRole("button", { name: "Districts", exact: true }).click({ timeout: 30_000 });
  await stranger.page.locator("#districts tbody tr").first().waitFor({ timeout: 60_000 });
  expect(await rows(stranger.page)).toEqual(told);
  expect(await findings(stranger.page)).toEqual([]);
  expect(await beyond(stranger.page)).toBeLessThanOrEqual(0);
  expect(stranger.complaints).toEqual([]);
  await stranger.close();
  const late = (await openTab(browser, "about:blank")).page; // whose first wish for what lies behind fails
  await late.route("**/backdrop", (route) => route.abort(), { times: 1 });
  await late.clock.install();
  await late.goto(`${service.url}/m/${lyon}`);
  await late.getByRole("button", { name: "How sure" }).waitFor();
  expect(await late.getByRole("button", { name: "Districts", exact: true }).count()).toBe(0);
  await late.clock.fastForward(60_000);
  await late.getByRole("button", { name: "Districts", exact: true }).waitFor({ timeout: 30_000 });
  await late.context().close();
  const kinds = async () => {
    const answer = await fetch(`${service.url}/api/campaigns/${lyon}/backdrop`, { cache: "no-store" });
    if (answer.status === 204) return [];
    const { features } = (await answer.json()) as { features: { properties: { kind?: string } }[] };
    return features.map(({ properties }) => properties.kind ?? "line").sort();
  };
  const early = await openTab(browser, `${service.url}/m/${lyon}`); // before there are others
  await early.page.getByRole("button", { name: "Districts", exact: true }).waitFor({ timeout: 30_000 });
  const three = ["North", "East", "South"].map((name, at) => area(name, 4.8 + 0.02 * at, 4.82 + 0.02 * at));
  await given.setInputFiles(file("three.geojson", { type: "FeatureCollection", features: three }));
  await expect.poll(kinds, { timeout: 20_000 }).toHaveLength(3);
  await early.page.getByRole("button", { name: "Districts", exact: true }).click();
  await early.page.getByText("The districts have been changed").waitFor({ timeout: 60_000 });
  expect(early.complaints).toEqual([]);
  await early.close();

  const street = { type: "LineString", coordinates: [[4.8, 45.72], [4.88, 45.78]] }; // prettier-ignore
  await page.getByLabel("Streets and coast").setInputFiles(file("streets.json", street));
  await expect.poll(kinds, { timeout: 20_000 }).toEqual(["district", "district", "district", "line"]); // neither takes the other away
  await expect.poll(removable).toEqual(["Remove the districts", "Remove the backdrop"]);
  await page.reload();
  await expect.poll(removable, { timeout: 20_000 }).toEqual(["Remove the districts", "Remove the backdrop"]);
  await page.getByRole("button", { name: "Remove the districts" }).click();
  await expect.poll(kinds, { timeout: 20_000 }).toEqual(["line"]);
  await expect.poll(() => page.getByRole("button", { name: "districts", exact: true }).count()).toBe(0);
  await page.getByRole("button", { name: "Remove the backdrop" }).click();
  await expect.poll(kinds, { timeout: 20_000 }).toEqual([]);
  await expect.poll(removable).toEqual([]);
  expect(complaints).toEqual([]);
  await close();
}, 180_000);
