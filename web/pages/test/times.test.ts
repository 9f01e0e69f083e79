/** Maps of single times, what people chose and whether rounds agree: on the dashboard and on the public map. */

import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launch, PHONE } from "./browser.ts";
import { openTab, operator, Service } from "./server.ts";

const AXE = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf-8");
const NAMES = ["night", "<b>day</b>", "evening"];

let service: Service;
let browser: Browser;
let id = "";

/** So many reports of one cell in one slot under one of the promises. */
async function report(level: number, slot: number, cell: number, number: number): Promise<void> {
  const answer = await fetch(`${service.url}/api/campaigns/${id}/mechanism`);
  const { levels } = (await answer.json()) as { levels: { id: string }[] };
  const reports = Array.from({ length: number }, () => ({
    mechanism: levels[level]!.id,
    id: Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString("hex"),
    cell,
    slot,
  }));
  const sent = await service.call("POST", `/api/campaigns/${id}/reports`, { reports });
  if (!sent.ok) throw new Error(await sent.text());
}

beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
  const slots = { every: "day", names: NAMES, starts: [0, 360, 1080] };
  id = await service.campaign({ epsilon_per_km: null, promises_per_km: [1, 2], slots, zone: "Europe/Paris" });
  await report(1, 0, 8, 120);
  await report(1, 1, 38, 90);
  await report(0, 2, 20, 5);
  await service.estimate(id, 1);
  await service.call("PATCH", `/api/campaigns/${id}`, { published: true });
}, 180_000);
afterAll(() => service?.end());

function picture(page: Page): Promise<string> {
  return page
    .locator("canvas.map-canvas")
    .first()
    .evaluate((canvas: HTMLCanvasElement) => canvas.toDataURL());
}

/** Choose a time with the keyboard: 0 is all of them together. */
async function choose(page: Page, place: number): Promise<void> {
  await page.locator("#time").press("Home");
  for (let step = 0; step < place; step++) await page.locator("#time").press("ArrowRight");
}

async function slides(page: Page): Promise<void> {
  await page.locator("#side-by-side:enabled").waitFor();
  expect(await page.locator("#time-name").innerText()).toBe("All times together");
  const all = await picture(page);
  await choose(page, 1);
  expect(await page.locator("#time-name").innerText()).toBe("night");
  expect(await page.locator(".times-note").innerText()).toBe("120 reports. Times are those of Europe/Paris.");
  const night = await picture(page);
  expect(night).not.toBe(all);
  await choose(page, 3);
  expect(await page.locator(".times-note").innerText()).toContain("evening: fewer than 50 reports so far");
  expect(await picture(page)).toBe(all); // there is no other
  await page.locator("#side-by-side").click();
  expect(await page.locator("#small-maps li").allInnerTexts()).toEqual(["night", "<b>day</b>"]);
  await page.locator("#small-maps button").nth(1).click();
  expect(await page.locator("#time-name").innerText()).toBe("<b>day</b>");
  expect(await page.locator("#time").getAttribute("aria-valuetext")).toBe("<b>day</b>, 90 reports");
  expect(await picture(page)).not.toBe(night);
  expect(await page.locator("main b").count()).toBe(0);
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run(): Promise<{ violations: { impact: string; id: string }[] }> } };
    return (await axe.run()).violations
      .filter(({ impact }) => ["serious", "critical"].includes(impact))
      .map((v) => v.id);
  });
  expect(found).toEqual([]);
}

test("the public map slides from time to time, and shows all side by side", async () => {
  const { page, complaints, close } = await openTab(browser, `${service.url}/m/${id}`, PHONE);
  await slides(page);
  expect(await page.getByRole("link", { name: "CSV" }).getAttribute("href")).toMatch(/estimate\.csv\?slot=1$/);
  expect(await page.locator("main").innerText()).toContain("From 90 noisy reports");
  expect(complaints).toEqual([]);
  await close();
});

test("the dashboard does too, and says what people chose and whether rounds agree", async () => {
  const { page, complaints, close } = await operator(browser, service, id);
  await slides(page);
  expect(await page.getByRole("link", { name: "CSV" }).getAttribute("href")).toMatch(/estimate\.csv\?slot=1$/);
  expect(await page.getByRole("button", { name: "Noisy counts" }).isDisabled()).toBe(true);
  await choose(page, 0);
  expect(await page.getByRole("button", { name: "Noisy counts" }).isDisabled()).toBe(false);
  expect(await page.locator("#choices tbody tr").allInnerTexts()).toEqual([
    "1\ttoo few to tell\t–",
    expect.stringMatching(/^2\t210\t[\d.]+$/),
  ]);
  expect(await page.locator("#choices").innerText()).toContain("1 of the promises had fewer than 50 reports");
  expect(await page.locator("#drift").innerText()).not.toBe("");
  expect(await page.locator("#alarms").innerText()).toMatch(/Each time by itself: .*2 of 2 slots with a map looked at/);
  expect(complaints).toEqual([]);
  await close();
});
