/** The dashboard, the published map and the certificate of campaigns that few have, and in browsers that few use. */

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launch, PHONE } from "./browser.ts";
import { seenLarge } from "./large_map.ts";
import { openTab, operator, Service, TOKEN } from "./server.ts";

let service: Service;
let browser: Browser;

beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
}, 180_000);
afterAll(() => service?.end());

test("a link that is no text leads to words, not to an empty page", async () => {
  for (const [place, words] of [
    ["/certificate/%E0", "There is no such campaign."],
    ["/m/%E0", "There is no published map here."],
    [`/#/?${new URLSearchParams({ token: TOKEN, campaign: "" }).toString()}`, "Campaigns"],
  ] as const) {
    const { page, close } = await openTab(browser, service.url + place);
    await page.getByRole("heading", { name: words }).waitFor();
    if (words === "Campaigns") {
      await page.evaluate(() => (location.hash = "#/%E0"));
      await page.getByText("The service refused: there is no campaign").waitFor();
      await page.evaluate(() => (location.hash = "#/?campaign=none&simulated=A"));
      await page.reload();
      await page.getByText("The service refused: there is no campaign 'none'").waitFor();
      await page.getByRole("heading", { name: "none", level: 1 }).waitFor();
    }
    await close();
  }
});

test("the truth of a simulated city stands beside its map, where it is one of as many cells", async () => {
  const id = await service.campaign();
  await service.report(id, 60);
  await service.estimate(id, 1);
  for (const [cells, times] of [
    [49, 1],
    [48, 0],
  ] as const) {
    const { page, close } = await operator(browser, service, id);
    const simulated = Buffer.alloc(2 * cells, 1).toString("base64url");
    await page.evaluate((to) => (location.hash = to), `#/?campaign=${id}&simulated=${simulated}`);
    await page.reload();
    await page.locator("canvas.map-canvas").first().waitFor();
    expect(await page.getByRole("heading", { name: "Simulated truth" }).count()).toBe(times);
    await close();
  }
});

test("a certificate whose program does not arrive does not load for ever", async () => {
  const id = await service.campaign();
  const { page, close } = await openTab(browser, "about:blank");
  await page.route("**/assets/worker-*.js", (route) => route.abort());
  await page.goto(`${service.url}/certificate/${id}`);
  await page.getByText("The service does not answer").waitFor();
  expect(await page.locator(".notice-good").count()).toBe(0);
  await close();
});

test("the certificate of another campaign is none", async () => {
  const [id, other] = [await service.campaign(), await service.campaign()];
  const { page, close } = await openTab(browser, "about:blank");
  await page.route(`**/api/campaigns/${id}/mechanism`, async (route) => {
    await route.fulfill({ response: await route.fetch({ url: `${service.url}/api/campaigns/${other}/mechanism` }) });
  });
  await page.goto(`${service.url}/certificate/${id}`);
  await page.getByText("Every device refuses this mechanism: campaign").waitFor();
  expect(await page.locator(".notice-good").count()).toBe(0);
  await close();
});

test("the certificate offers to take part only where that can be done", async () => {
  const id = await service.campaign();
  const { page, close } = await openTab(browser, `${service.url}/certificate/${id}`);
  await page.getByRole("link", { name: "Take part" }).waitFor({ timeout: 30_000 });
  const nothing = async (words: string): Promise<void> => {
    await page.reload();
    await page.getByText(words).waitFor({ timeout: 30_000 });
    expect(await page.getByRole("link", { name: "Take part" }).count()).toBe(0);
    expect(await page.getByText("geoveil audit").count()).toBe(0);
  };
  await service.call("PATCH", `/api/campaigns/${id}`, { state: "paused" });
  await nothing("it is being prepared or is paused");
  await service.call("PATCH", `/api/campaigns/${id}`, { state: "ended" });
  await nothing("The campaign has ended. It publishes no mechanism any more");
  await close();
});

test("one report is no reports, and one round agrees with none", async () => {
  const id = await service.campaign({ minimum_reports: 1 });
  const dashboard = await operator(browser, service, id);
  await dashboard.page.getByText("a round with at least 1 report has closed").waitFor();
  await dashboard.page.route("**/rounds/1/estimate", (route) => route.abort(), { times: 1 }); // and is asked again
  await service.report(id, 1);
  await service.estimate(id, 1);
  await service.call("PATCH", `/api/campaigns/${id}`, { published: true });
  const map = await openTab(browser, `${service.url}/m/${id}`);
  const participant = await openTab(browser, `${service.url}/c/${id}`);
  const several = /(?<![\d.,])1 (noisy )?(reports|rounds|cells|places)\b/;
  for (const [{ page }, words] of [
    [dashboard, "Made from 1 report of one round."],
    [map, "From 1 noisy report,"],
    [participant, "1 report counted so far"],
  ] as const) {
    await page.getByText(words).waitFor({ timeout: 30_000 });
    expect(await page.locator("body").innerText(), words).not.toMatch(several);
    expect(await page.getByText("rounds agree").count()).toBe(0);
  }
  await participant.close();
  for (const [state, certificates] of [
    ["running", 1],
    ["paused", 0],
    ["ended", 0],
  ] as const) {
    await service.call("PATCH", `/api/campaigns/${id}`, { state }); // only a mechanism that is published has one
    for (const { page } of [dashboard, map]) {
      if (state !== "running") await page.reload();
      await page.getByRole("link", { name: "CSV" }).waitFor({ timeout: 30_000 });
      expect(await page.locator(`a[href$="/certificate/${id}"]`).count(), `${state} ${page.url()}`).toBe(certificates);
    }
  }
  await Promise.all([dashboard.close(), map.close()]);
});

test("a round whose estimate was given up says so", async () => {
  const id = await service.campaign();
  const { page, close } = await operator(browser, service, id);
  await page.route(`**/api/campaigns/${id}/rounds`, async (route) => {
    const { rounds, ...more } = (await (await route.fetch()).json()) as { rounds: object[] };
    await route.fulfill({
      json: { ...more, rounds: rounds.map((each) => ({ ...each, closed_at: 1, given_up: true })) },
    });
  });
  await page.reload();
  await page.locator(".timeline li", { hasText: "the estimate failed" }).waitFor();
  await page.getByText("No map yet.").waitFor(); // of a round to come
  const over = { state: "ended", given_up: 1, reports_counted: { round: 60, all: 60 } };
  await saying(page, id, over);
  await page.reload();
  await page.getByText("every attempt at its estimate failed").waitFor();
  await saying(page, id, { ...over, round: 2 }); // whose own estimate is still to come
  await page.reload();
  await page.getByText("No map yet.").waitFor();
  await close();
});

/** Let the service say of a campaign what it says, but for some entries. */
async function saying(page: Page, id: string, entries: object): Promise<void> {
  await page.route(`**/api/campaigns/${id}`, async (route) => {
    const state = (await (await route.fetch()).json()) as object;
    await route.fulfill({ json: { ...state, ...entries } });
  });
}

test("a published map says that a later estimate was given up, and promises none that cannot come", async () => {
  const id = await service.campaign();
  await service.call("PATCH", `/api/campaigns/${id}`, { published: true });
  const { page, close } = await openTab(browser, `${service.url}/m/${id}`);
  const says = async (entries: object, words: string): Promise<void> => {
    await saying(page, id, entries);
    await page.reload();
    await page.getByText(words).waitFor({ timeout: 30_000 });
  };
  const over = { state: "ended", given_up: 1, reports_counted: { round: 60, all: 60 } };
  const soFar = "The map is not there yet: every attempt at the last estimate failed.";
  await says({ given_up: 1, round: 2 }, soFar);
  await says(over, "There is no map: the campaign has ended, and every attempt at its estimate failed.");
  await says({ ...over, round: 2 }, soFar); // its own estimate is still to come
  await service.report(id, 60);
  await service.estimate(id, 1);
  await says({ given_up: 2, round: 3 }, "Every attempt at a later estimate failed. Its reports enter the next map.");
  await says({ ...over, given_up: 2, round: 2 }, "this is its last map");
  await page.getByRole("link", { name: "CSV" }).waitFor();
  await says({}, "From 60 noisy reports,");
  expect(await page.getByText("later estimate").count()).toBe(0);
  await close();
});

test("without a map it says why there is none, and promises none that cannot come", async () => {
  const words = async (id: string): Promise<string> => {
    const { page, complaints, close } = await openTab(browser, `${service.url}/m/${id}`, PHONE);
    await page
      .locator("h1", { hasText: "map:" })
      .or(page.locator("h1", { hasText: "yet:" }))
      .waitFor();
    const said = await page.locator("h1").innerText();
    expect(complaints).toEqual([]);
    await close();
    return said;
  };
  const open = await service.campaign({ name: "Open" });
  await service.report(open, 60); // enough, in a round that is open
  await service.call("PATCH", `/api/campaigns/${open}`, { published: true });
  expect(await words(open)).toBe("The map is not there yet: it comes when a round with enough reports has closed.");
  const ended = await service.campaign({ name: "Ended" });
  await service.call("PATCH", `/api/campaigns/${ended}`, { published: true, state: "ended" });
  const none = "There is no map: the campaign has ended, and its last round had too few reports.";
  expect(await words(ended)).toBe(none);
  const { page, complaints, close } = await operator(browser, service, ended);
  await page.getByText(none).waitFor();
  expect(await page.locator(".badge-live").count()).toBe(0);
  await expect.poll(() => page.locator(".timeline li").innerText()).toContain("never released");
  expect(await page.locator(".timeline li").innerText()).not.toMatch(/^open$/m);
  expect(complaints).toEqual([]);
  await close();
});

test("districts are asked for where the map shows them, which one of trips does not", async () => {
  const trips = await service.campaign({ name: "Ways", trips: true });
  const { page, close } = await operator(browser, service, trips);
  await page.getByLabel("Streets and coast").waitFor();
  expect(await page.getByLabel("Districts (GeoJSON, optional)").count()).toBe(0);
  await close();
});

test("it works where a tab may keep nothing, and says so when no answer comes", async () => {
  const { page, complaints, close } = await openTab(browser, "about:blank");
  await page.addInitScript(() => {
    const denied = { get: () => { throw new DOMException("denied", "SecurityError"); } }; // prettier-ignore
    Object.defineProperty(window, "sessionStorage", denied);
    Object.defineProperty(navigator, "clipboard", {}); // as over plain HTTP
    const { timeout } = AbortSignal;
    AbortSignal.timeout = (milliseconds) => timeout.call(AbortSignal, milliseconds / 10); // time is short here
  });
  await page.goto(service.url);
  await page.route("**/api/campaigns", () => undefined); // hangs
  await page.getByLabel("Operator's token").fill(TOKEN);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").filter({ hasText: "does not answer" }).waitFor();
  await page.unroute("**/api/campaigns");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("link", { name: "New campaign" }).click();
  await page.getByLabel("Name, as people will see it").fill("Kept in the page");
  await page.getByRole("link", { name: "Geoveil" }).click();
  await page.getByRole("link", { name: "New campaign" }).click();
  expect(await page.getByLabel("Name, as people will see it").inputValue()).toBe("Kept in the page");
  await page.evaluate((id) => (location.hash = `#/${id}`), await service.campaign());
  await page.getByText("Link for participants").waitFor();
  expect(await page.getByRole("button", { name: "Copy" }).count()).toBe(0);
  expect(complaints).toEqual([]);
  await close();
});

test("what got no answer is to be tried again, and whoever is denied signs in again and finds their draft", async () => {
  const id = await service.campaign({ name: "Denied" });
  const { page, close } = await operator(browser, service, id);
  await page.route(`**/api/campaigns/${id}`, (route) =>
    route.request().method() === "PATCH" ? route.abort() : route.continue(),
  );
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText("The service does not answer. Please try again in a moment.").waitFor();
  await page.getByRole("link", { name: "Geoveil" }).click();
  await page.getByRole("link", { name: "New campaign" }).click();
  const name = page.getByLabel("Name, as people will see it");
  await name.fill("Long typed");
  const make = (): Promise<void> => page.getByRole("button", { name: "Create the campaign" }).click();
  await page.route("**/api/campaigns", (route) => route.abort(), { times: 1 });
  await make();
  await page.getByText("Whether Long typed was made is not known.").waitFor();
  const deny = (): Promise<void> =>
    page.evaluate(() => sessionStorage.setItem("geoveil-operator-token", "a-token-that-was-taken-back"));
  const enter = async (): Promise<void> => {
    await page.getByRole("alert").filter({ hasText: "does not take your token any more" }).waitFor();
    await page.getByLabel("Operator's token").fill(TOKEN);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  await deny();
  await make();
  await enter();
  expect(await name.inputValue()).toBe("Long typed");
  await deny();
  await page.getByRole("link", { name: "Geoveil" }).click();
  await enter();
  await page.getByRole("link", { name: "Denied" }).click();
  await page.unrouteAll();
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await deny();
  await page.getByRole("button", { name: "Pause" }).click();
  await enter();
  await page.getByRole("heading", { name: "Denied" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Operator's token").waitFor();
  expect(await page.getByRole("alert").count()).toBe(0);
  await close();
});

test("a campaign that waits for city limits says how it gets them, and promises nobody a time", async () => {
  const id = await service.campaign({ cell_km: 0.025 });
  const dashboard = await operator(browser, service, id);
  await dashboard.page.getByText(`send them to /api/campaigns/${id}/area`).waitFor();
  await dashboard.close();
  const participant = await openTab(browser, `${service.url}/c/${id}`);
  await participant.page.getByText("is being prepared. This page goes on by itself").waitFor();
  expect(participant.complaints).toEqual([]);
  await participant.close();
});

test("a map of 256 cells a side is drawn, moved and read", () => seenLarge(browser, service, 256));

test("a service that stops and starts again is found again, with what was counted meanwhile", async () => {
  const own = await new Service().start(); // to be stopped
  const id = await own.campaign({ name: "Stopped" });
  const { page, close } = await operator(browser, own, id);
  await page.getByText("live", { exact: true }).waitFor({ timeout: 20_000 });
  await own.stop();
  await page.getByText("not connected").waitFor({ timeout: 15_000 });
  await own.start();
  await page.getByText("live", { exact: true }).waitFor({ timeout: 20_000 });
  await own.report(id, 70);
  await expect.poll(() => page.locator(".figures dd").nth(1).textContent(), { timeout: 20_000 }).toBe("70");
  await close();
  await own.end();
});
