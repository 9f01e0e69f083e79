/** The form for a new campaign with a choice, with hours and with trips: what is said before, and what is made. */

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { beyond, launch } from "./browser.ts";
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

test("odd input is drawn as it is, or said not to be, and leads on", async () => {
  const { page, complaints, close } = await form(browser, service);
  const edges = async (...box: number[]): Promise<void> => {
    for (const [at, value] of box.entries()) await page.locator(`#edge-${at}`).fill(String(value));
  };
  const canvas = page.locator("canvas.map-canvas").first();
  const middle = () =>
    canvas.evaluate((each: HTMLCanvasElement) => [
      ...each.getContext("2d")!.getImageData(each.width / 2, each.height / 2, 1, 1).data,
    ].join()); // prettier-ignore
  const drawn = await middle();
  await edges(40, 0, 52, 12);
  await page.locator("#box-not-drawn", { hasText: "boxes of less than 10° on a side" }).waitFor();
  await expect.poll(middle).not.toBe(drawn); // no other box stays in its place
  await edges(-18, 177, -17, -179);
  await expect.poll(() => page.locator("#box-not-drawn").count()).toBe(0); // across ±180°
  await expect.poll(middle).toBe(drawn);

  await small(page);
  await page.getByLabel("People you expect").fill("0");
  await page.locator("#people-said", { hasText: "people (0) must lie between 1 and" }).waitFor({ timeout: 20_000 });
  await page.getByLabel("People you expect").fill("100");
  const refused = async (id: string, words: string): Promise<void> => {
    await page.locator(`#${id}-said`, { hasText: words }).waitFor({ timeout: 20_000 });
  };
  await page.getByLabel("Side of a cell, in km").fill("0"); // in the words of the form, not of the interface
  await refused("cell", "the side of a cell (0) must lie between 0.01 and 100");
  await page.getByLabel("Side of a cell, in km").fill("1");
  await page.locator("#size").fill("50");
  await refused(
    "size",
    "the reports at which a round closes (50) must be at least the reports that a round needs (100)",
  );
  await page.locator("#size").fill("2000.5"); // while it is being typed
  await expect.poll(() => page.locator("#size-said, .meaning .notice").count(), { timeout: 20_000 }).toBe(0);
  await page.locator("#size").fill("2000");
  await page.getByText("More: choice, times, trips").click();
  await page.getByLabel("Maps of single times").selectOption("once");
  await refused("slots", "Every time below must be filled in.");
  await page.locator("#own-0-start").fill("2100-02-01T00:00");
  await page.locator("#own-1-start").fill("2100-01-01T00:00");
  await page.locator("#own-end").fill("2100-03-01T00:00");
  await refused("slots", "The times below must follow one another: each must be later than the one before.");
  await page.getByLabel("Maps of single times").selectOption("none");
  await page.getByLabel("Name, as people will see it").fill("x".repeat(200));
  let go = (): void => undefined;
  const held = new Promise<void>((resolve) => (go = resolve));
  await page.route("**/api/campaigns", async (route) => held.then(() => route.continue()));
  await page.getByRole("button", { name: "Create the campaign" }).click();
  await page.getByRole("button", { name: "Creating the campaign …" }).waitFor();
  go();
  await page.getByText("No map yet.").waitFor({ timeout: 30_000 });
  expect(await beyond(page)).toBeLessThanOrEqual(0);
  expect(complaints.filter((each) => !each.includes("422"))).toEqual([]);
  await close();
});
