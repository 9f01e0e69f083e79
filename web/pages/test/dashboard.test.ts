/** The dashboard, the published map and the certificate: a real service, a real browser. */

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { beyond, launch, PHONE } from "./browser.ts";
import { findings } from "./findings.ts";
import { openTab, operator, Service, TOKEN } from "./server.ts";

const HOSTILE = `<img src=x onerror="window.hacked=1">'"=1+1`;

let service: Service;
let browser: Browser;
let lyon = ""; // has an estimate of 600 reports

beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
  lyon = await service.campaign();
  await service.report(lyon, 600);
  await service.estimate(lyon, 1);
}, 180_000);
afterAll(() => service?.end());

/** How many different colours the map shows. */
async function colours(page: Page): Promise<number> {
  return page
    .locator("canvas.map-canvas")
    .first()
    .evaluate((canvas: HTMLCanvasElement) => {
      const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
      const seen = new Set<number>();
      for (let at = 0; at < data.length; at += 4) seen.add(data[at]! * 65536 + data[at + 1]! * 256 + data[at + 2]!);
      return seen.size;
    });
}

test("from signing in to a map that a stranger sees, and nothing else", async () => {
  const { page, asked, complaints, close } = await openTab(browser, service.url);
  await page.getByText("or one that it was given").waitFor(); // as here, where the service printed none
  await page.getByLabel("Operator's token").fill("not-the-right-token");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect.poll(() => page.getByRole("alert").textContent()).toContain("not the token of an operator");
  await page.getByLabel("Operator's token").fill(TOKEN);
  await page.getByLabel("Operator's token").press("Enter");
  await page.getByRole("link", { name: "New campaign" }).click();

  await page.getByLabel("Name, as people will see it").fill("Paris on foot");
  const map = (await page.locator("canvas.map-canvas").boundingBox())!;
  await page.mouse.move(map.x + map.width * 0.35, map.y + map.height * 0.3);
  await page.mouse.down();
  await page.mouse.move(map.x + map.width * 0.6, map.y + map.height * 0.75, { steps: 4 });
  await page.mouse.up();
  const edges = await Promise.all(["South", "West", "North", "East"].map((edge) => page.getByLabel(edge).inputValue()));
  const [south, west, north, east] = edges.map(Number) as [number, number, number, number];
  expect(south).toBeLessThan(north);
  expect(west).toBeLessThan(east);
  expect(edges).not.toContain("48.8286");
  await page.getByLabel("Side of a cell, in km").fill("1");
  await page.getByLabel("Promise: ε per km").fill("1");
  await page.getByLabel("Reports a round needs to be released").fill("50");
  await page.getByLabel("A round closes at this many").fill("");
  await page.getByText("at most 1.24 times as likely").waitFor({ timeout: 120_000 });
  await page.getByText("what comes back").waitFor();
  await page.getByRole("button", { name: "Create the campaign" }).click();
  await page.getByText("No map yet.").waitFor();

  const id = decodeURIComponent(new URL(page.url()).hash.slice(2));
  await service.report(id, 300);
  await expect.poll(() => page.locator(".figures dd").nth(1).textContent(), { timeout: 20_000 }).toBe("300");
  await page.getByRole("button", { name: "Close the round now" }).click();
  await page.getByRole("button", { name: "estimate", exact: true }).waitFor({ timeout: 60_000 });
  expect(await colours(page)).toBeGreaterThan(5);
  await page.getByRole("button", { name: "Show the map of this round: 1" }).waitFor();

  const stranger = await openTab(browser, `${service.url}/m/${id}`);
  await stranger.page.getByText("There is no published map here.").waitFor();
  await stranger.close();
  await page.getByRole("button", { name: "Publish the map" }).click();
  await page.getByRole("button", { name: "Take the map back" }).waitFor();
  const another = await openTab(browser, `${service.url}/m/${id}`);
  await another.page.getByRole("heading", { name: "Paris on foot" }).waitFor();
  await another.page.getByText("From 300 noisy reports").waitFor();
  await expect.poll(() => colours(another.page)).toBeGreaterThan(5);
  await another.page.getByRole("button", { name: "How sure" }).click();
  const api = another.asked.map((each) => each.replace(service.url, "")).filter((each) => each.includes("/api/"));
  expect(new Set(api)).toEqual(
    new Set(["", "/estimate", "/backdrop"].map((rest) => `GET /api/campaigns/${id}${rest}`).concat("GET /api/map")),
  );
  expect(another.asked.every((each) => each.startsWith(`GET ${service.url}/`))).toBe(true);
  expect(await another.page.getByRole("button", { name: "noisy counts" }).count()).toBe(0);
  await another.page.getByRole("button", { name: "Select a region" }).click();
  const theirs = (await another.page.locator("canvas.map-canvas").boundingBox())!;
  await another.page.mouse.move(theirs.x + theirs.width * 0.4, theirs.y + theirs.height * 0.3);
  await another.page.mouse.down();
  await another.page.mouse.move(theirs.x + theirs.width * 0.6, theirs.y + theirs.height * 0.7, { steps: 3 });
  await another.page.mouse.up();
  await another.page.getByText(/of the people are in this region \(95 % interval/).waitFor({ timeout: 60_000 });
  expect(another.complaints).toEqual([]);
  await another.close();
  expect(asked.every((each) => each.split(" ")[1]!.startsWith(service.url))).toBe(true);
  expect(complaints.filter((each) => !each.includes("401"))).toEqual([]);
  expect(await page.context().cookies()).toEqual([]);
  await close();
}, 240_000);

test("the map says what is where, as fine as it is known, in a table, and for a region", async () => {
  const { page, complaints, close } = await operator(browser, service, lyon);
  const canvas = page.locator("canvas.map-canvas").first();
  await canvas.waitFor();
  await canvas.hover();
  await page.getByText(/of the people, between .* and/).waitFor();
  await page.getByRole("button", { name: "how sure" }).click();
  await canvas.hover();
  await page.locator(".map-reading", { hasText: /in this square of|too little is known/ }).waitFor();
  await page.getByRole("button", { name: "noisy counts" }).click();
  await page.getByText("before anything was reconstructed").waitFor();
  await page.getByRole("button", { name: "estimate", exact: true }).click();
  await page.getByText("The same as a table").click();
  expect(await page.locator("tbody tr").count()).toBe(49);
  expect(await page.locator("tbody tr").first().textContent()).toMatch(/%.*between/);

  await page.getByRole("button", { name: "Select a region" }).click();
  const box = (await canvas.boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.4, box.y + box.height * 0.3);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + box.height * 0.7, { steps: 3 });
  await page.mouse.up();
  await page.getByText(/of the people are in this region \(95 % interval/).waitFor({ timeout: 60_000 });

  await canvas.focus(); // by keyboard
  const before = await canvas.screenshot();
  for (const key of ["ArrowRight", "+", "+"]) await page.keyboard.press(key);
  await page.waitForTimeout(200);
  expect((await canvas.screenshot()).equals(before)).toBe(false);

  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "PNG picture" }).click();
  const picture = readFileSync((await (await download).path())!);
  expect(picture.subarray(1, 4).toString()).toBe("PNG");
  for (const name of ["GeoJSON", "CSV", "GeoParquet"]) {
    const address = await page.getByRole("link", { name, exact: true }).getAttribute("href");
    expect((await fetch(address!)).status).toBe(200);
  }
  expect(complaints).toEqual([]);
  await close();
});

test("names, backdrops and answers that attack are text, and nothing of them runs", async () => {
  const id = await service.campaign({ name: HOSTILE });
  await service.call("PUT", `/api/campaigns/${id}/backdrop`, {
    type: "Feature",
    properties: { kind: "javascript:alert(1)", name: HOSTILE },
    geometry: {
      type: "LineString",
      coordinates: [
        [4.8, 45.72],
        [4.88, 45.78],
      ],
    },
  });
  await service.call("PATCH", `/api/campaigns/${id}`, { published: true });
  await service.report(id, 60);
  await service.estimate(id, 1);
  for (const place of [`/#/?token=${TOKEN}&campaign=${id}`, `/m/${id}`, `/certificate/${id}`]) {
    const { page, close } = await openTab(browser, service.url + place);
    await expect.poll(() => page.locator("h1").textContent(), { timeout: 20_000 }).toContain(HOSTILE);
    await page.waitForTimeout(300);
    expect(await page.evaluate(() => "hacked" in window)).toBe(false);
    expect(await page.locator("img").count()).toBe(0);
    await close();
  }
  const { page, close } = await operator(browser, service);
  await page.getByText(HOSTILE).waitFor();
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
  await close();
  const csv = await (await fetch(`${service.url}/api/campaigns/${id}/estimate.csv`)).text();
  expect(
    csv
      .split("\n")
      .flatMap((line) => line.split(/,(?=")|,/))
      .filter((cell) => /^"?[=+@]/.test(cell)),
  ).toEqual([]);
  await service.call("DELETE", `/api/campaigns/${id}`);
});

test("a script of the page may not be inline, and only the published map may be in a frame", async () => {
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: true });
  const policies = await Promise.all(
    ["/", `/m/${lyon}`, `/certificate/${lyon}`, `/m/none`].map(async (path) =>
      (await fetch(service.url + path, { headers: { accept: "text/html" } })).headers.get("content-security-policy"),
    ),
  );
  expect(policies.map((policy) => /frame-ancestors ([^;]*)/.exec(policy!)![1])).toEqual([
    "'none'",
    "*",
    "'none'",
    "'none'",
  ]);
  expect(policies.every((policy) => policy!.includes("script-src 'self'") && !policy!.includes("unsafe"))).toBe(true);

  const foreign = await openTab(browser, "about:blank");
  const frames = `<iframe name=map src="${service.url}/m/${lyon}"></iframe><iframe name=dashboard src="${service.url}/"></iframe>`;
  const other = createServer((_, answer) => answer.setHeader("content-type", "text/html").end(frames)).listen(0);
  await foreign.page.goto(`http://127.0.0.1:${(other.address() as AddressInfo).port}/`);
  await foreign.page.frame("map")!.getByRole("heading", { name: "Lyon" }).waitFor();
  expect(await foreign.page.frame("dashboard")!.locator("form").count()).toBe(0);
  await foreign.close();
  other.close();
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: false });
});

test("two operators see what the other does, and a restart is survived", async () => {
  const service = await new Service().start(); // of its own, to be stopped
  const id = await service.campaign({ name: "Together" });
  const [one, other] = await Promise.all([operator(browser, service, id), operator(browser, service, id)]);
  await one.page.getByRole("heading", { name: "Together" }).waitFor();
  await one.page.locator("#rename").fill("Renamed");
  await one.page.getByRole("button", { name: "Rename" }).click();
  await other.page.getByRole("heading", { name: "Renamed" }).waitFor({ timeout: 15_000 });
  await other.page.getByRole("button", { name: "Pause" }).click();
  await one.page.getByText("paused", { exact: true }).waitFor({ timeout: 15_000 });
  await one.page.getByRole("button", { name: "Resume" }).click();
  await other.page.getByText("taking reports").waitFor({ timeout: 15_000 });
  await other.close();

  await service.stop();
  await one.page.getByText("not connected").waitFor({ timeout: 15_000 });
  await service.start();
  await one.page.getByText("live", { exact: true }).waitFor({ timeout: 20_000 });
  await service.report(id, 70);
  await expect.poll(() => one.page.locator(".figures dd").nth(1).textContent(), { timeout: 20_000 }).toBe("70");

  await one.page.getByRole("button", { name: "Delete" }).click();
  await one.page.getByRole("button", { name: "No", exact: true }).click();
  await one.page.getByRole("button", { name: "Delete" }).click();
  await one.page.getByRole("button", { name: "Yes, do it" }).click();
  await one.page.getByRole("heading", { name: "Campaigns" }).waitFor();
  expect(await one.page.getByText("Renamed").count()).toBe(0);
  await one.close();
  await service.end();
});

test("the certificate is recomputed in the browser", async () => {
  const { page, complaints, close } = await openTab(browser, `${service.url}/certificate/${lyon}`);
  await page.getByText("The promise holds.").waitFor({ timeout: 30_000 });
  const { id } = (await (await fetch(`${service.url}/api/campaigns/${lyon}/mechanism`)).json()) as { id: string };
  await page.getByText(id).waitFor();
  expect(complaints).toEqual([]);
  await close();
  const none = await openTab(browser, `${service.url}/certificate/none`);
  await none.page.getByRole("heading", { name: "There is no such campaign." }).waitFor();
  expect(await none.page.locator("body").innerText()).not.toContain("Loading");
  await none.close();
});

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
    }
    await close();
  }
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
  expect(complaints).toEqual([]);
  await close();
});

test("a token in the address is taken on this machine, and wiped", async () => {
  const { page, asked, close } = await operator(browser, service, lyon);
  await page.getByRole("heading", { name: "Lyon" }).waitFor();
  expect(page.url()).not.toContain(TOKEN);
  expect(asked.some((each) => each.includes(TOKEN))).toBe(false);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Operator's token").waitFor();
  expect(await page.evaluate(() => sessionStorage.length + localStorage.length)).toBe(0);
  await close();
});

/** Open the pages one after another in a tab: signed out, then all that an operator and others see. */
async function walk(
  page: Page,
  signIn: string,
  words: string[],
  look: (place: string) => Promise<void>,
): Promise<void> {
  await page.getByRole("button", { name: signIn }).waitFor();
  await look("signed out");
  await page.locator("input[type=password]").fill(TOKEN);
  await page.getByRole("button", { name: signIn }).click();
  const places = ["/#/", "/#/new", `/#/${lyon}`, `/m/${lyon}`, `/certificate/${lyon}`];
  for (const [at, place] of places.entries()) {
    if (at) await page.goto(service.url + place);
    await page.getByText(words[at]!).first().waitFor();
    await look(place);
  }
}

test.each([
  ["light, at a desk", { colorScheme: "light" as const }],
  ["dark, on a phone", { ...PHONE, colorScheme: "dark" as const }],
])("everybody can use it: %s", async (_, options) => {
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: true });
  await service.campaign({ name: "Donaudampfschifffahrt".repeat(4) });
  const { page, close } = await openTab(browser, service.url, options);
  const words = ["New campaign", "What this will mean", "What stands behind the map", "The same as a table"];
  await walk(page, "Sign in", [...words, "What this page cannot prove"], async (place) => {
    expect(await findings(page), place).toEqual([]);
    expect(await beyond(page), place).toBeLessThanOrEqual(0);
  });
  await close();
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: false });
});

test("everything fits 320 pixels, as at 400 % on a desk, in German too", async () => {
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: true });
  await service.campaign({ name: "Donaudampfschifffahrt".repeat(4) });
  const small = { locale: "de-DE", viewport: { width: 320, height: 640 } };
  const { page, close } = await openTab(browser, service.url, small);
  const words = ["Neue Kampagne", "Was das bedeuten wird", "Was hinter der Karte steht", "Dasselbe als Tabelle"];
  await walk(page, "Anmelden", [...words, "Was diese Seite nicht beweisen kann"], () =>
    expect.poll(() => beyond(page)).toBe(0),
  );
  await close();
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: false });
});

test("the keyboard's place and the title follow the reader, and colours that are forced tell what is pressed", async () => {
  const id = await service.campaign({ name: "Followed" });
  const { page, close } = await operator(browser, service, "", { forcedColors: "active" });
  const focused = (): Promise<string | undefined> => page.evaluate(() => document.activeElement?.tagName);
  await page.getByRole("link", { name: "Followed" }).press("Enter");
  await page.getByRole("heading", { name: "Followed" }).waitFor();
  await expect.poll(focused).toBe("MAIN");
  await expect.poll(() => page.title()).toBe("Followed · Geoveil dashboard");
  await page.getByRole("button", { name: "Delete", exact: true }).press("Enter");
  const asked = page.getByRole("alertdialog");
  await expect.poll(() => asked.evaluate((dialog) => dialog === document.activeElement)).toBe(true);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("alertdialog").waitFor({ state: "detached" });
  await expect.poll(() => page.evaluate(() => document.activeElement?.textContent)).toBe("Delete");
  await page.getByRole("link", { name: "All campaigns" }).press("Enter");
  await page.getByRole("link", { name: "New campaign" }).press("Enter");
  await page.getByRole("button", { name: "Zoom in" }).waitFor();
  await expect.poll(() => page.title()).toBe("New campaign · Geoveil dashboard");
  const ground = (name: string): Promise<string> =>
    page.getByRole("button", { name }).evaluate((button) => getComputedStyle(button).backgroundColor);
  expect(await ground("Draw the box")).not.toBe(await ground("Move the map"));
  expect((await service.call("GET", `/api/campaigns/${id}`)).status).toBe(200);
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

test("the dashboard speaks German to whoever does", async () => {
  const { page, close } = await openTab(browser, service.url, { locale: "de-DE" });
  await page.getByRole("button", { name: "Anmelden" }).waitFor();
  expect(await page.evaluate(() => document.documentElement.lang)).toBe("de");
  await close();
  const campaign = await operator(browser, service, await service.campaign(), { locale: "de-DE" });
  await campaign.page.getByRole("button", { name: "Runde jetzt schließen" }).click();
  await campaign.page.getByText("Die Runde hat zu wenige Meldungen, um geschlossen zu werden.").waitFor();
  await campaign.close();
});
