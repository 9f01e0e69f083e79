/** The form for a new campaign with a choice, with hours and with trips: what is said before, and what is made. */

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launch } from "./browser.ts";
import { findings } from "./findings.ts";
import { form, small } from "./form.ts";
import { Service } from "./server.ts";

let service: Service;
let browser: Browser;

beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
}, 180_000);
afterAll(() => service?.end());

const settings = async (page: Page): Promise<Record<string, unknown>> => {
  await page.getByText("No map yet.").waitFor({ timeout: 30_000 });
  const id = decodeURIComponent(new URL(page.url()).hash.slice(2));
  return ((await (await service.call("GET", `/api/campaigns/${id}`)).json()) as { settings: Record<string, unknown> })
    .settings;
};

test("a campaign with a choice and with hours, by keyboard, and what it means before", async () => {
  const { page, complaints, close } = await form(browser, service);
  await small(page);
  expect(await page.getByLabel("Maps of single times").isVisible()).toBe(false); // nobody is bothered
  await page.getByText("More: choice, times, trips").focus();
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Add a promise" }).press("Enter");
  expect(await page.getByLabel("Promise 2: ε per km").inputValue()).toBe("1");
  await page.getByLabel("Promise 2: ε per km").fill("2");
  await page.locator("#others-said", { hasText: "must be 2 to 8 different numbers" }).waitFor({ timeout: 30_000 });
  await page.getByLabel("Promise 2: ε per km").fill("1");
  await page.getByLabel("Maps of single times").selectOption("hour");
  await page.getByLabel("Whose clock").fill("Europe/Atlantis");
  await page.locator("#zone-said", { hasText: "time zone that the service knows" }).waitFor({ timeout: 30_000 });
  expect(await page.getByLabel("Whose clock").getAttribute("aria-invalid")).toBe("true");
  await page.getByLabel("Whose clock").fill("Europe/Paris");
  await page.getByText("The slot is not noisy").waitFor({ timeout: 60_000 });
  await page.getByText("Whoever chooses nothing has the strongest, ε = 1 per km").waitFor();
  expect(await page.locator("#choices tbody tr").count()).toBe(2);
  expect(await page.locator("#zone-said").count()).toBe(0);
  expect(await findings(page)).toEqual([]);
  await page.getByRole("button", { name: "Create the campaign" }).press("Enter");
  expect(await settings(page)).toMatchObject({ promises_per_km: [2, 1], slots: "hour", zone: "Europe/Paris" });
  expect(complaints.filter((each) => !each.includes("422"))).toEqual([]); // what was refused on the way
  await close();
});

test("trips: what they cost is said, what they cannot have is off, and too many cells are told beside the field", async () => {
  const { page, close } = await form(browser, service);
  await small(page);
  await page.getByText("More: choice, times, trips").click();
  await page.getByRole("button", { name: "Add a promise" }).click();
  await page.getByLabel("Ask for trips instead of places").check();
  await page.getByText("It costs a person twice the promise").waitFor();
  expect(await page.getByText("Not with trips.").count()).toBe(3);
  expect(await page.getByLabel("Maps of single times").isDisabled()).toBe(true);
  expect(await page.getByRole("button", { name: "Add a promise" }).isDisabled()).toBe(true);
  await page.getByLabel("Side of a cell, in km").fill("0.2");
  await page.locator("#cell-said", { hasText: "at most 512 cells for trips" }).waitFor({ timeout: 30_000 });
  await page.getByLabel("Side of a cell, in km").fill("1");
  await page.getByText("A trip is charged twice").waitFor({ timeout: 60_000 });
  expect(await page.getByText("what comes back").count()).toBe(0);
  await page.getByRole("button", { name: "Create the campaign" }).click();
  expect(await settings(page)).toMatchObject({ trips: true, epsilon_per_km: 2, slots: null, promises_per_km: null });
  await close();
});
