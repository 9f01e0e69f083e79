/** The dashboard, the published map and the certificate: a real service, a real browser. */

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { beyond, launch, LOOKS } from "./browser.ts";
import { findings } from "./findings.ts";
import { Gate, openTab, operator, Service, TOKEN } from "./server.ts";

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

  await page.getByLabel("Side of a cell, in km").fill("1"); // first: the service says what each wish would mean
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

test("two operators see what the other does, and a service that is out of reach for a while is found again", async () => {
  const gate = await new Gate(service).open();
  const id = await service.campaign({ name: "Together" });
  const [one, other] = await Promise.all([operator(browser, gate, id), operator(browser, gate, id)]);
  await one.page.getByRole("heading", { name: "Together" }).waitFor();
  await one.page.locator("#rename").fill("Renamed");
  await one.page.getByRole("button", { name: "Rename" }).click();
  await other.page.getByRole("heading", { name: "Renamed" }).waitFor({ timeout: 15_000 });
  await other.page.getByRole("button", { name: "Pause" }).click();
  await one.page.getByText("paused", { exact: true }).waitFor({ timeout: 15_000 });
  await one.page.getByRole("button", { name: "Resume" }).click();
  await other.page.getByText("taking reports").waitFor({ timeout: 15_000 });

  await gate.close();
  await one.page.getByText("not connected").waitFor({ timeout: 15_000 });
  await gate.open();
  await one.page.getByText("live", { exact: true }).waitFor({ timeout: 20_000 });
  await service.report(id, 70);
  await expect.poll(() => one.page.locator(".figures dd").nth(1).textContent(), { timeout: 20_000 }).toBe("70");

  await one.page.getByRole("button", { name: "Delete" }).click();
  await one.page.getByRole("button", { name: "No", exact: true }).click();
  await one.page.getByRole("button", { name: "Delete" }).click();
  await one.page.getByRole("button", { name: "Yes, do it" }).click();
  await one.page.getByRole("heading", { name: "Campaigns" }).waitFor();
  expect(await one.page.getByText("Renamed").count()).toBe(0);
  await other.page.getByText("there is no campaign").waitFor({ timeout: 15_000 });
  expect(await other.page.locator(".figures").count()).toBe(0); // they stand for nothing any more
  const events = (): number => other.asked.filter((line) => line.endsWith("/events")).length;
  const asked = events();
  await other.page.waitForTimeout(2500); // longer than until it listens again
  expect(events()).toBe(asked);
  await Promise.all([one.close(), other.close()]);
  await gate.close();
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

test("everybody can use it, in light at a desk and in dark on a phone", async () => {
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: true });
  await service.campaign({ name: "Donaudampfschifffahrt".repeat(4) });
  const { page, close } = await openTab(browser, service.url, { colorScheme: "light" });
  const words = ["New campaign", "What this will mean", "What stands behind the map", "The same as a table"];
  await walk(page, "Sign in", [...words, "What this page cannot prove"], async (place) => {
    for (const [colorScheme, size] of LOOKS) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize(size);
      expect(await findings(page), `${place}, ${colorScheme}`).toEqual([]);
      await expect.poll(() => beyond(page), { message: `${place}, ${colorScheme}` }).toBeLessThanOrEqual(0);
    }
  });
  await close();
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: false });
});

/** The words of heads that go on in the next line, where nothing says that they may; runs in the page. */
function broken(heads: Element[]): string[] {
  return heads.flatMap((head) => {
    const [text, range] = [head.firstChild as Text, document.createRange()];
    return (text.data.match(/[^\s\u00ad]{2,}/g) ?? []).filter((word) => {
      const at = text.data.indexOf(word);
      range.setStart(text, at + 1); // before that a hyphen may stand in the line above
      range.setEnd(text, at + word.length);
      return range.getClientRects().length > 1;
    });
  });
}

test("everything fits 320 pixels, as at 400 % on a desk, in German too", async () => {
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: true });
  await service.campaign({ name: "Donaudampfschifffahrt".repeat(4) });
  const small = { locale: "de-DE", viewport: { width: 320, height: 640 } };
  const { page, close } = await openTab(browser, service.url, small);
  const words = ["Neue Kampagne", "Was das bedeuten wird", "Was hinter der Karte steht", "Dasselbe als Tabelle"];
  await walk(page, "Anmelden", [...words, "Was diese Seite nicht beweisen kann"], () =>
    expect.poll(() => beyond(page)).toBe(0),
  );
  await page.locator("th[scope=col]").first().waitFor();
  expect(await page.locator("th[scope=col]").evaluateAll(broken)).toEqual([]);
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

test("the dashboard speaks German to whoever does", async () => {
  const { page, close } = await openTab(browser, service.url, { locale: "de-DE" });
  await page.getByRole("button", { name: "Anmelden" }).waitFor();
  expect(await page.evaluate(() => document.documentElement.lang)).toBe("de");
  await close();
  const campaign = await operator(browser, service, await service.campaign(), { locale: "de-DE" });
  await campaign.page.getByRole("button", { name: "Runde jetzt schließen" }).click();
  await campaign.page.getByText("Die Runde hat zu wenige Meldungen, um geschlossen zu werden.").waitFor();
  await campaign.page.emulateMedia({ media: "print" });
  expect(await campaign.page.getByText("Noch keine Karte.").isVisible()).toBe(true);
  expect(await campaign.page.getByRole("button").count()).toBe(1); // on paper, the one to copy the link
  await campaign.close();
});
