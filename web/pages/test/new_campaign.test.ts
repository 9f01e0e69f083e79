/** The form for a new campaign: choice, times, trips, city limits, and what is said before anything is made. */

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { secondsOf, slotsOf } from "../src/dashboard/slot_wish.ts";
import { FIRST_WISH, questionOf, settingsOf } from "../src/dashboard/wish.ts";
import { boundsOf, shapesOf } from "../src/map/read_shapes.ts";
import { beyond, launch, PHONE } from "./browser.ts";
import { findings } from "./findings.ts";
import { form, small } from "./form.ts";
import { operator, Service } from "./server.ts";

let service: Service;
let browser: Browser;

beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
}, 180_000);
afterAll(() => service?.end());

// --- Without a browser

test("a wish becomes settings, and trips leave out what they cannot have", () => {
  const plain = settingsOf(FIRST_WISH);
  expect(plain).toMatchObject({ epsilon_per_km: 2, trips: false, guarded: false });
  expect("slots" in plain || "promises_per_km" in plain).toBe(false);
  const wish = {
    ...FIRST_WISH,
    others: [1, 0.5],
    guarded: true,
    slots: { kind: "hour", zone: "Europe/Paris", own: [], end: "" },
  } as const;
  expect(settingsOf(wish)).toMatchObject({
    promises_per_km: [2, 1, 0.5],
    guarded: true,
    slots: "hour",
    zone: "Europe/Paris",
  });
  expect("epsilon_per_km" in settingsOf(wish)).toBe(false);
  const trips = settingsOf({ ...wish, trips: true });
  expect(trips).toMatchObject({ epsilon_per_km: 2, trips: true, guarded: false });
  expect("slots" in trips || "promises_per_km" in trips || "zone" in trips).toBe(false);
  expect("name" in questionOf(wish, { kind: "points", lat: [45, 46], lng: [4, 5] })).toBe(false);
});

test("own times become minutes and seconds, across the change of clocks", () => {
  const own = { name: " a ", weekday: 0, clock: "00:00", date: "2026-03-01T00:00" };
  const two = [own, { ...own, name: "b", weekday: 5, clock: "06:30", date: "2026-04-01T00:00" }];
  const of = (kind: "day" | "week" | "once") =>
    slotsOf({ kind, zone: "Europe/Paris", own: two, end: "2026-05-01T12:00" });
  expect(of("day").slots).toEqual({ every: "day", names: ["a", "b"], starts: [0, 390] });
  expect(of("week").slots).toMatchObject({ starts: [0, 5 * 1440 + 390] });
  const starts = ["2026-02-28T23:00Z", "2026-03-31T22:00Z", "2026-05-01T10:00Z"].map((each) => Date.parse(each) / 1000);
  expect(of("once").slots).toMatchObject({ every: "once", starts });
  const utc = (text: string): number => Date.parse(text) / 1000;
  expect(secondsOf("2026-10-25T02:30", "Europe/Paris")).toBe(utc("2026-10-25T00:30Z")); // shown twice: the first
  expect(secondsOf("2026-10-25T03:30", "Europe/Paris")).toBe(utc("2026-10-25T02:30Z"));
  expect(secondsOf("2026-03-29T03:30", "Europe/Paris")).toBe(utc("2026-03-29T01:30Z"));
  expect(secondsOf("2026-07-01T00:00", "America/New_York")).toBe(utc("2026-07-01T04:00Z"));
  expect(secondsOf("2026-07-01T00:00", "Pacific/Auckland")).toBe(utc("2026-06-30T12:00Z"));
  expect(secondsOf("", "Europe/Paris")).toBe(0);
  expect(secondsOf("2026-07-01T00:00", "Europe/Atlantis")).toBe(0);
});

const ring = (west: number, south: number, east: number, north: number): number[][] => [
  [west, south],
  [east, south],
  [east, north],
  [west, north],
  [west, south],
];
const LIMITS = { type: "Polygon", coordinates: [ring(4.8, 45.72, 4.86, 45.78)] };
const HOSTILE = "<img src=x onerror='window.hacked=1'>";

test("files with shapes are read strictly, and nothing else of them is kept", () => {
  const feature = { type: "Feature", properties: { name: HOSTILE, kind: 7, more: 1 }, geometry: LIMITS };
  const read = shapesOf(
    { type: "FeatureCollection", features: [feature, { type: "Point", coordinates: "x" }] },
    "areas",
  );
  expect(read.features).toEqual([{ properties: { name: HOSTILE }, geometry: LIMITS }]);
  expect(boundsOf(read)).toEqual([45.72, 4.8, 45.78, 4.86]);
  let deep: unknown = 1;
  for (let n = 0; n < 3000; n++) deep = [deep];
  const bad: unknown[] = [
    null, 7, "x", [], {}, { type: "Polygon" }, { type: "Polygon", coordinates: [] }, { type: "constructor" },
    { type: "Polygon", coordinates: deep }, { type: "Polygon", coordinates: [[["4", "45"]]] },
    { type: "Polygon", coordinates: [[[1e9, 0]]] }, { type: "LineString", coordinates: ring(0, 0, 1, 1) },
    { type: "FeatureCollection", features: {} }, { type: "FeatureCollection", features: [] }, { type: "Feature" },
    { type: "FeatureCollection", features: [null] }, { type: "__proto__", coordinates: [[0, 0]] },
  ]; // prettier-ignore
  for (const each of bad) expect(() => shapesOf(each, "areas"), JSON.stringify(each)?.slice(0, 80)).toThrow(/must/);
});

// --- In a browser

const file = (content: unknown, name = "city.geojson") => ({
  name,
  mimeType: "application/geo+json",
  buffer: Buffer.from(typeof content === "string" ? content : JSON.stringify(content)),
});
test("city limits are seen on the map, leave so many cells, and hold from the first report on", async () => {
  const { page, complaints, close } = await form(browser, service);
  await small(page);
  await page.getByText("City limits or places, streets and coast").click();
  const limits = page.getByLabel("City limits, or places (GeoJSON, optional)");
  const hostile: [unknown, RegExp][] = [
    ["{", /this one is no JSON/],
    [{ type: "Polygon", coordinates: [[["x"]]] }, /longitudes within/],
    [{ type: HOSTILE }, /no shape of it/],
    [{ type: "LineString", coordinates: ring(4.8, 45.7, 4.9, 45.8) }, /must hold areas .* or points/],
    [{ type: "Point", coordinates: [4.8, 45.7] }, /must be at least 2/],
    [" ".repeat((4 << 20) + 1), /at most 4 MiB/],
    [{ type: "Polygon", coordinates: [[[4.8, 45.72], [4.86, 45.78], [4.86, 45.72], [4.8, 45.78], [4.8, 45.72]]] }, /must/],
    [{ type: "Polygon", coordinates: [[...ring(4.8, 45.7, 4.8, 45.7)]] }, /must/],
  ]; // prettier-ignore
  for (const [content, words] of hostile) {
    await limits.setInputFiles(file(content));
    await page.locator("#limits-said", { hasText: words }).waitFor({ timeout: 20_000 });
  }
  const feature = { type: "Feature", properties: { name: HOSTILE }, geometry: LIMITS };
  await limits.setInputFiles(file(feature, `${HOSTILE}.json`));
  await page.locator("#left", { hasText: /^\d+ of the \d+ cells of the box remain\.$/ }).waitFor({ timeout: 20_000 });
  expect(await page.getByLabel("East", { exact: true }).inputValue()).toBe("4.86"); // the box goes around them
  await page.getByLabel("East", { exact: true }).fill("4.88");
  await page.locator("#left", { hasText: "42 of the 49 cells" }).waitFor({ timeout: 20_000 });
  const canvas = page.locator("canvas.map-canvas").first();
  const middle = () =>
    canvas.evaluate((each: HTMLCanvasElement) => [
      ...each.getContext("2d")!.getImageData(each.width / 2, each.height / 2, 1, 1).data,
    ]);
  await expect.poll(async () => (await middle())[3]).toBeGreaterThan(200); // a cell that exists
  await page.locator("#cell-hint", { hasText: "42 cells" }).waitFor();
  expect(await findings(page)).toEqual([]);
  await page.getByRole("button", { name: "Create the campaign" }).click();
  await page.getByText("No map yet.").waitFor({ timeout: 30_000 });
  const id = decodeURIComponent(new URL(page.url()).hash.slice(2));
  const document = await (await fetch(`${service.url}/api/campaigns/${id}/mechanism`)).text();
  expect(document).toMatch(/"mask":"[^"]+"/);
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
  expect(complaints.filter((each) => !each.includes("422"))).toEqual([]);
  await close();
}, 120_000);

test("a draft outlives what fails, and nothing half made stays behind", async () => {
  const { page, close } = await form(browser, service);
  await small(page);
  const [cell, size] = [page.getByLabel("Side of a cell, in km"), page.getByLabel("A round closes at this many")];
  const dial = page.getByLabel(/^Camouflage/);
  await size.fill("");
  await cell.fill("");
  await dial.fill("0.6"); // draws the form anew, as an answer that comes does
  expect(await cell.inputValue()).toBe(""); // and leaves alone what is being typed
  for (const key of "0.05") {
    await cell.press(key);
    await dial.fill(key === "5" ? "0.6" : "0.7");
    await cell.focus();
  }
  expect(await cell.inputValue()).toBe("0.05");
  await cell.fill("1");
  await page.getByLabel("Name, as people will see it").fill("Kept");
  await page.getByText("City limits or places, streets and coast").click();
  await page.getByLabel("City limits, or places (GeoJSON, optional)").setInputFiles(file(LIMITS));
  await page.locator("#left", { hasText: "remain" }).waitFor({ timeout: 20_000 });
  await page.route("**/area", (route) =>
    route.request().method() === "PUT" ? route.fulfill({ status: 503, json: {} }) : route.continue(),
  );
  await page.getByRole("button", { name: "Create the campaign" }).click();
  await page.getByRole("alert").filter({ hasText: "does not answer" }).waitFor({ timeout: 30_000 });
  expect(await page.getByLabel("Name, as people will see it").inputValue()).toBe("Kept");
  const listed = (await (await service.call("GET", "/api/campaigns")).json()) as { campaigns: { name: string }[] };
  expect(listed.campaigns.map(({ name }) => name)).not.toContain("Kept");
  await page.reload();
  await page.getByText("what you had typed before").waitFor();
  await page.getByText("choose city.geojson again, or the campaign is made without").waitFor();
  expect(await page.getByLabel("Name, as people will see it").inputValue()).toBe("Kept");
  expect([await cell.inputValue(), await size.inputValue()]).toEqual(["1", ""]);
  await cell.fill("0.5");
  await cell.fill("");
  await page.getByRole("button", { name: "Begin anew" }).click();
  expect(await page.getByText("Files are not kept").count()).toBe(0);
  expect(await page.getByLabel("Name, as people will see it").inputValue()).toBe("");
  expect([await cell.inputValue(), await size.inputValue()]).toEqual(["0.5", "2000"]);
  await page.getByLabel("Name, as people will see it").fill("a\u202eb");
  await page.getByRole("button", { name: "Create the campaign" }).click();
  await page.locator("#name-said", { hasText: "1 to 200 printable characters" }).waitFor({ timeout: 30_000 });
  await expect.poll(() => page.evaluate(() => document.activeElement?.id)).toBe("name");
  await close();
});

test("the form fits a phone in the dark with all of it open, and speaks German", async () => {
  const { page, close } = await operator(browser, service, "new", { ...PHONE, colorScheme: "dark", locale: "de-DE" });
  await page.getByText("Mehr: Wahl, Zeiten, Wege").click();
  await page.getByText("Stadtgrenzen oder Orte, Straßen und Küsten").click();
  await page.getByRole("button", { name: "Versprechen hinzufügen" }).click();
  await page.getByLabel("Karten einzelner Zeiten").selectOption("week");
  expect(await page.getByLabel("Name der Zeit 2").inputValue()).toBe("Wochenende");
  await page.getByRole("button", { name: "Zeit hinzufügen" }).click();
  await page.locator("#slots-said").waitFor({ timeout: 60_000 }); // two times that begin together
  await page.getByRole("button", { name: "Zeit 3 entfernen" }).click();
  await page.locator(".meaning .facts li").first().waitFor({ timeout: 60_000 });
  await page.locator(".meaning:not([aria-busy=true])").waitFor({ timeout: 60_000 });
  const meant = await page.locator(".meaning").innerText();
  for (const words of [
    "Alle wählen unter 2",
    "Wer im Umkreis von 200 m",
    " Bit darüber",
    "eine von 2 Zeiten (",
    "Eine Zeit mit",
  ])
    expect(meant).toContain(words);
  expect(await page.locator(".meaning [lang=en]").count(), meant).toBe(0);
  await page.locator("#minimum").fill("-3");
  await page.locator("#name").fill("Lyon");
  await page.locator("form").evaluate((form: HTMLFormElement) => (form.noValidate = true));
  await page.getByRole("button", { name: "Kampagne anlegen" }).click();
  await page.locator("#minimum-said").waitFor();
  expect(await page.locator("#minimum-said").innerText()).toMatch(/^Vom Dienst, auf Englisch: the reports that/);
  expect(await page.locator("#minimum-said [lang=en]").innerText()).not.toContain("Dienst");
  expect(await findings(page)).toEqual([]);
  expect(await beyond(page)).toBeLessThanOrEqual(0);
  await close();
});
