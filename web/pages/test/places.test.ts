/** Campaigns over places and hexagons in a real browser. */

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { beyond, launch, PHONE } from "./browser.ts";
import { findings } from "./findings.ts";
import { form } from "./form.ts";
import { type Corner, middles } from "./hexagons.ts";
import { openTab, operator, Service } from "./server.ts";

let service: Service;
let browser: Browser;
beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
}, 180_000);
afterAll(() => service?.end());

const feature = ([x, y]: Corner, properties: object = {}) => ({
  type: "Feature",
  properties,
  geometry: { type: "Point", coordinates: [4.806 + x / 77.7, 45.725 + y / 111.2] },
});
const HEXAGONS = { type: "FeatureCollection", features: middles(5, 6).map((at) => feature(at, { area_km2: 1 })) };
const SHOPS = {
  type: "FeatureCollection",
  features: ([[0.3, 0.5], [1.1, 4.8], [2.2, 2.0], [2.6, 2.2], [2.4, 2.6], [4.9, 1.0], [4.0, 5.5]] as const).map((at) =>
    feature(at, { name: "<img src=x onerror='window.hacked=1'>" }),
  ),
}; // prettier-ignore

async function estimated(area: object, name: string): Promise<string> {
  const id = await service.campaign({ name, epsilon_per_km: 2 });
  const drawn = await service.call("PUT", `/api/campaigns/${id}/area`, area);
  expect(drawn.status, await drawn.text()).toBe(204);
  await service.report(id, 900);
  await service.estimate(id, 2);
  return id;
}

test("a campaign over hexagons is drawn on dashboard and public map, with shares, intervals and regions", async () => {
  const id = await estimated(HEXAGONS, "Hexagons");
  await service.call("PATCH", `/api/campaigns/${id}`, { published: true });
  const { page, complaints, close } = await operator(browser, service, id);
  const canvas = page.locator("canvas.map-canvas").first();
  await canvas.waitFor({ timeout: 30_000 });
  const { width, height } = (await canvas.boundingBox())!;
  await canvas.hover({ position: { x: width / 2, y: height / 2 } });
  await page.locator(".map-reading", { hasText: /of the people, between [\d.]+ % and/ }).waitFor();
  await page.getByText("share of the people in a cell of 1 km²").waitFor();
  await page.getByRole("button", { name: "how sure" }).click();
  await page.getByText("a colour stands where the share has an error").waitFor();
  await page.getByText("The same as a table").click();
  expect(await page.locator(".cell-table tbody tr").count()).toBe(30);
  expect(await findings(page)).toEqual([]);
  await page.getByRole("button", { name: "Select a region" }).click();
  await canvas.scrollIntoViewIfNeeded();
  const box = (await canvas.boundingBox())!;
  await page.mouse.move(box.x + 0.35 * box.width, box.y + 0.3 * box.height);
  await page.mouse.down();
  await page.mouse.move(box.x + 0.6 * box.width, box.y + 0.7 * box.height, { steps: 4 });
  await page.mouse.up();
  await page.locator(".region", { hasText: /% of the people are in this region \(95 % interval/ }).waitFor({ timeout: 60_000 }); // prettier-ignore
  expect(complaints).toEqual([]);
  await close();
  for (const colorScheme of ["light", "dark"] as const) {
    const stranger = await openTab(browser, `${service.url}/m/${id}`, { ...PHONE, colorScheme });
    await stranger.page.locator("canvas.map-canvas").waitFor({ timeout: 30_000 });
    await stranger.page.getByText("share of the people in a cell of 1 km²").waitFor();
    expect(await findings(stranger.page)).toEqual([]);
    expect(await beyond(stranger.page)).toBeLessThanOrEqual(0);
    expect(stranger.complaints).toEqual([]);
    await stranger.close();
  }
  const certificate = await openTab(browser, `${service.url}/certificate/${id}`);
  await certificate.page.getByText("takes people to stand around the places").waitFor({ timeout: 60_000 });
  await certificate.close();
}, 240_000);

test("a person takes part in a campaign over places, and sees which one was sent", async () => {
  const id = await estimated(SHOPS, "Shops");
  const { page, complaints, close } = await openTab(browser, `${service.url}/c/${id}`, PHONE);
  await page.locator("#certified.notice-good").waitFor({ timeout: 60_000 });
  await page.locator("#measure").waitFor();
  await page.locator(".map-face").press("Enter");
  await page.locator("#from-here p", { hasText: "of 100 reports about 50 name a place within" }).waitFor();
  await page.getByText("the number of one place out of 7, drawn at random").waitFor();
  await page.locator("#send-now").click();
  await page.locator(".receipt-good").waitFor({ timeout: 60_000 });
  expect(await page.locator(".receipt").innerText()).toMatch(/Place [0-6] was sent/);
  const sent = page.locator(".map-sent polygon");
  expect(await sent.count()).toBe(1);
  expect(await sent.evaluate((shape) => getComputedStyle(shape).fill)).toBe("none"); // only its edge
  expect(await findings(page)).toEqual([]);
  expect(await beyond(page)).toBeLessThanOrEqual(0);
  expect(complaints).toEqual([]);
  const state = (await (await fetch(`${service.url}/api/campaigns/${id}`)).json()) as {
    reports_counted: { all: number };
  };
  expect(state.reports_counted.all).toBe(901); // prettier-ignore
  await close();

  const certificate = await openTab(browser, `${service.url}/certificate/${id}`);
  await certificate.page.getByText("The promise holds.").waitFor({ timeout: 60_000 });
  await certificate.page.getByText("A report names one of 7 places.").waitFor();
  await certificate.page.getByText("takes people to stand at the places").waitFor();
  expect(certificate.complaints).toEqual([]);
  await certificate.close();
}, 240_000);

test("an operator gives a file of points, sees them and what they mean, and makes the campaign", async () => {
  const { page, complaints, close } = await form(browser, service);
  await page.getByLabel("Name, as people will see it").fill("Shops");
  await page.getByText("City limits or places, streets and coast").click();
  const given = page.getByLabel("City limits, or places (GeoJSON, optional)");
  const file = (content: unknown) => ({
    name: "shops.geojson",
    mimeType: "application/geo+json",
    buffer: Buffer.from(JSON.stringify(content)),
  });
  const ring = [[4.8, 45.7], [4.9, 45.7], [4.9, 45.8], [4.8, 45.7]]; // prettier-ignore
  const mixed = { type: "GeometryCollection", geometries: [SHOPS.features[0]!.geometry, { type: "Polygon", coordinates: [ring] }] }; // prettier-ignore
  await given.setInputFiles(file(mixed));
  await page.locator("#limits-said", { hasText: "areas only, or points only" }).waitFor();
  await given.setInputFiles(file(SHOPS));
  await page.locator("#left", { hasText: "7 places take the place of cells" }).waitFor({ timeout: 30_000 });
  await page.getByText("Not used: points take the place of squares.").waitFor();
  await page.locator(".meaning", { hasText: "bits of which place a person is at" }).waitFor({ timeout: 60_000 });
  expect(await findings(page)).toEqual([]);
  await page.getByRole("button", { name: "Create the campaign" }).click();
  await page.waitForURL(/#\/shops-/, { timeout: 30_000 });
  const id = decodeURIComponent(new URL(page.url()).hash.slice(2));
  const document = (await (await fetch(`${service.url}/api/campaigns/${id}/mechanism`)).json()) as {
    space: { kind: string };
  };
  expect(document.space.kind).toBe("centres"); // prettier-ignore
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
  expect(complaints).toEqual([]);
  await close();
}, 240_000);
