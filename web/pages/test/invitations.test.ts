/** Invitations: made on the dashboard, used on the participant page, and never told with a report. */

import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { beyond, launch, LOOKS, PHONE, Visit } from "./browser.ts";
import { findings } from "./findings.ts";
import { form, small } from "./form.ts";
import { choosePlace, sendAndWait } from "./participant.ts";
import { operator, Service } from "./server.ts";

let service: Service;
let browser: Browser;
let id = "";

beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
  id = await service.campaign({ tickets: true });
}, 180_000);
afterAll(() => service?.end());

async function codes(count: number): Promise<string[]> {
  const made = await service.call("POST", `/api/campaigns/${id}/invitations`, { count });
  return ((await made.json()) as { invitations: string[] }).invitations;
}

const standing = async (): Promise<unknown> => (await service.call("GET", `/api/campaigns/${id}/invitations`)).json();
const counted = async (): Promise<number> => {
  const state = await service.call("GET", `/api/campaigns/${id}`);
  return ((await state.json()) as { reports_counted: { all: number } }).reports_counted.all;
};

/** Open the page, with an invitation or without, and choose a place. */
async function arrive(page: Page, fragment = ""): Promise<void> {
  await page.goto(`${service.url}/c/${id}${fragment}`);
  await page.locator("#certified.notice-good").waitFor();
  await choosePlace(page);
}

/** What the page keeps of invitations, as text. */
const kept = (page: Page): Promise<string> =>
  page.evaluate(async () => {
    const database = await new Promise<IDBDatabase>((resolve) => {
      const request = indexedDB.open("geoveil-tickets");
      request.onsuccess = () => resolve(request.result);
    });
    const all = database.transaction("ledger").objectStore("ledger").getAll();
    await new Promise((resolve) => (all.onsuccess = resolve));
    database.close();
    return JSON.stringify(all.result);
  });

/** What the page keeps of invitations, in its hands: puts it back. */
const holdKept = async (): Promise<() => Promise<void>> => {
  const begin = async (mode: IDBTransactionMode): Promise<IDBObjectStore> => {
    const request = indexedDB.open("geoveil-tickets");
    await new Promise((resolve) => (request.onsuccess = resolve));
    const store = request.result.transaction("ledger", mode).objectStore("ledger");
    request.result.close();
    return store;
  };
  const ended = (request: IDBRequest) => new Promise((resolve) => (request.onsuccess = resolve));
  const reading = (await begin("readonly")).get("book");
  await ended(reading);
  const { book, version } = reading.result as { book: unknown; version: number };
  return async () => void (await ended((await begin("readwrite")).put({ book, version: version + 9 }, "book")));
};

test("a link for one person counts one report, and nothing that is sent with it tells the invitation", async () => {
  const [code] = await codes(1);
  const before = [await standing(), await counted()] as [{ made: number; used: number }, number];
  const visit = await Visit.begin(browser);
  const { page } = visit;
  await page.route(`**/api/campaigns/${id}`, (route) => route.abort());
  await page.goto(`${service.url}/c/${id}#invitation=${code}`);
  await page.getByRole("heading", { name: "The service does not answer" }).waitFor();
  await page.unroute(`**/api/campaigns/${id}`);
  await page.reload(); // as people do where nothing comes
  await page.locator('#invitation[data-kept="true"]').waitFor();
  await expect.poll(() => page.url()).toBe(`${service.url}/c/${id}`);
  await choosePlace(page);
  expect(await page.locator("#one").innerText()).toBe("It takes one report for each invitation.");
  const words = await page.locator("#invitation").innerText();
  expect(words).toMatch(/and so that you take part, if it knows .* does not tell it which report is yours\. Time and/);
  expect(await page.locator("#code").count()).toBe(0);
  const quiet = visit.asked.length;
  expect(await kept(page)).toContain(code!.replaceAll("-", ""));
  await sendAndWait(page);
  await expect.poll(() => kept(page)).not.toContain(code!.replaceAll("-", "")); // nor what the ticket was drawn from
  expect(visit.asked.slice(quiet)).toEqual([
    `GET /api/campaigns/${id}`,
    `POST /api/campaigns/${id}/tickets`,
    `GET /api/campaigns/${id}/mechanism`,
    `POST /api/campaigns/${id}/reports`,
  ]);
  for (const request of visit.requests) {
    const [headers, path] = [await request.allHeaders(), new URL(request.url()).pathname];
    const isReport = path.endsWith("/reports");
    expect(headers["authorization"]?.startsWith('PrivateToken token="') ?? false).toBe(isReport);
    const told = `${request.url()} ${JSON.stringify(headers)} ${request.postData() ?? ""}`.replaceAll("-", "");
    expect(told.includes(code!.replaceAll("-", ""))).toBe(path.endsWith("/tickets"));
    expect(headers["referer"] ?? "").toBe("");
  }
  expect(await page.locator(".receipt .lead").innerText()).toMatch(/but the ticket and, before it, your invitation/);
  expect(await standing()).toEqual({ ...before[0], used: before[0].used + 1 });
  await expect.poll(counted, { timeout: 10_000 }).toBe(before[1] + 1); // the state may be a second behind

  await page.reload();
  await page.locator("#receipt").waitFor(); // made, and nothing is asked for again
  expect(await page.locator("#invitation").count()).toBe(0);
  await page.goto(`${service.url}/c/${id}#invitation=${code}`); // the link once more: nothing to keep it for
  await expect.poll(() => page.url()).toBe(`${service.url}/c/${id}`);
  await page.locator("#receipt").waitFor();
  await expect.poll(() => kept(page)).not.toContain(code!.replaceAll("-", ""));
  await page.locator("#erase").click();
  expect(await page.locator('[aria-labelledby="erase-title"]').innerText()).toMatch(/used stays used/);
  await page.locator("#erase-now").click();
  await page.locator("#code").waitFor(); // with the list the invitation is forgotten
  await page.goto(`${service.url}/c/${id}#invitation=${code}`); // in the same page: only the fragment changes
  await page.locator('#invitation[data-kept="true"]').waitFor();
  await expect.poll(() => page.url()).toBe(`${service.url}/c/${id}`);
  await choosePlace(page);
  await page.locator("#send-now").click();
  await page.locator('[data-reason="invitation"]').waitFor();
  expect(await page.locator("[data-reason]").innerText()).toMatch(/Not reported: This invitation was used already/);
  expect(await page.locator("#send-now").isDisabled()).toBe(true);
  expect(await kept(page)).not.toContain(code!.replaceAll("-", "")); // a reload asks for another one too
  expect(await counted()).toBe(before[1] + 1);
  await visit.end();
});

test("an invitation waits while a campaign is paused and goes with the list", async () => {
  const [code] = await codes(1);
  const visit = await Visit.begin(browser);
  const tabs = [visit.page, await visit.context.newPage(), await visit.context.newPage()] as const;
  for (const tab of tabs) await arrive(tab, `#invitation=${code}`);
  const [first, second, third] = tabs;
  await service.call("PATCH", `/api/campaigns/${id}`, { state: "paused" });
  await first.locator("#send-now").click();
  await first.locator('[data-reason="invitation"]').waitFor();
  expect(await first.locator("[data-reason]").innerText()).toMatch(/^Not reported: The campaign is paused/);
  expect(await first.locator("#invitation").getAttribute("data-kept")).toBe("true"); // nothing was wrong with it
  await service.call("PATCH", `/api/campaigns/${id}`, { state: "running" });
  await sendAndWait(first);
  await sendAndWait(second); // the report of the first
  const ids = await Promise.all([first, second].map((tab) => tab.locator(".receipt dd").first().innerText()));
  expect(new Set(ids).size).toBe(1);
  await first.locator("#erase").click();
  await first.locator("#erase-now").click();
  await first.locator("#code").waitFor();
  await third.locator("#send-now").click();
  await third.locator('[data-reason="invitation"]').waitFor();
  expect(await third.locator("[data-reason]").innerText()).toBe("Not reported: An invitation is needed first.");
  await third.locator("#code").waitFor();
  await visit.end();
});

test("another tab asks for no ticket once there is a report, though the first was closed before it forgot the code", async () => {
  const [code] = await codes(1);
  const visit = await Visit.begin(browser);
  await arrive(visit.page, `#invitation=${code}`);
  const other = await Visit.of(visit.context);
  await arrive(other.page);
  const held = await other.page.evaluateHandle(holdKept);
  await sendAndWait(visit.page);
  await expect.poll(() => kept(visit.page)).not.toContain(code!.replaceAll("-", ""));
  await visit.page.close();
  await held.evaluate((putBack) => putBack());
  expect(await kept(other.page)).toContain(code!.replaceAll("-", ""));
  const quiet = other.asked.length;
  await sendAndWait(other.page);
  expect(other.asked.slice(quiet)).toEqual([]);
  await expect.poll(() => kept(other.page)).not.toContain(code!.replaceAll("-", ""));
  await visit.end();
});

test("an invitation that is refused in one tab takes none with it that another tab was given meanwhile", async () => {
  const [code] = await codes(1);
  const visit = await Visit.begin(browser);
  await arrive(visit.page, "#invitation=22222-22222-22222-22222");
  const other = await visit.context.newPage();
  let answer = (): void => undefined;
  const held = new Promise<void>((resolve) => (answer = resolve));
  await visit.context.route(`**/api/campaigns/${id}/tickets`, (route) => held.then(() => route.continue()));
  await visit.page.locator("#send-now").click();
  await arrive(other, `#invitation=${code}`);
  answer();
  await visit.page.locator('[data-reason="invitation"]').waitFor();
  expect(await visit.page.locator("[data-reason]").innerText()).toMatch(/does not know this invitation/);
  expect(await kept(other)).toContain(code!.replaceAll("-", ""));
  await sendAndWait(other);
  await visit.end();
});

test("without an invitation nothing can be sent, and a code can be typed", async () => {
  const [code] = await codes(1);
  const visit = await Visit.begin(browser, { ...PHONE, reducedMotion: "reduce" });
  const { page } = visit;
  await arrive(page);
  const words = page.locator("#invitation");
  expect(await words.innerText()).toMatch(/takes one report for each invitation, and without one nothing can be sent/);
  expect(await page.locator("#send-now").isDisabled()).toBe(true);
  expect(await page.locator("#send-status").innerText()).toBe("An invitation is needed first.");
  await page.locator("#code").fill(code!.slice(1));
  await page.locator("#code").press("Enter");
  await page.locator("#code-wrong").waitFor();
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("code");
  for (const [colorScheme, size] of LOOKS) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(size);
    expect(await findings(page)).toEqual([]);
    expect(await beyond(page)).toBeLessThanOrEqual(0);
  }
  await page.locator("#code").fill("22222-22222-22222-22222");
  await page.locator("#code").press("Enter");
  await page.locator('#invitation[data-kept="true"]').waitFor();
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("next");
  await page.locator("#send-now").click();
  await page.locator('[data-reason="invitation"]').waitFor();
  expect(await page.locator("[data-reason]").innerText()).toMatch(/does not know this invitation/);
  expect(visit.asked.filter((line) => line.endsWith("/reports"))).toEqual([]);
  await page.locator("#code").fill(` ${code!.toUpperCase().replaceAll("-", " ")}`);
  await page.locator("#code").press("Enter");
  await page.locator('#invitation[data-kept="true"]').waitFor();
  expect(await page.locator("[data-reason]").count()).toBe(0);
  await sendAndWait(page);
  await visit.end();
});

test("a code that could not be kept is not called wrong, and stays in the link until it is", async () => {
  const [code] = await codes(1);
  const visit = await Visit.begin(browser);
  const { page } = visit;
  await page.route("**/assets/ticket-*.js", (route) => route.abort());
  await arrive(page, `#invitation=${code}`);
  await page.locator('[data-reason="fault"]').waitFor();
  expect(await page.locator("#code-wrong").count()).toBe(0);
  await page.unrouteAll();
  await page.reload();
  await page.locator('#invitation[data-kept="true"]').waitFor();
  await expect.poll(() => new URL(page.url()).hash).toBe("");
  expect(await page.locator("[data-reason]").count()).toBe(0);
  await visit.end();
});

test("an answer that was lost is asked for again, after another visit too; a collector that cheats gets no report", async () => {
  const [code] = await codes(1);
  const visit = await Visit.begin(browser, { locale: "de-DE" });
  const { page, context } = visit;
  await arrive(page, `#invitation=${code}`);
  expect(await page.locator("#invitation").innerText()).toMatch(
    /dass Sie mitmachen, wenn .* verraten, die die Verbindung sehen, auch dem Dienst;/,
  );
  const tickets = `**/api/campaigns/${id}/tickets`;
  await context.route(tickets, async (route) => {
    await route.fetch(); // it arrives
    await route.abort();
  });
  await page.locator("#send-now").click();
  await page.locator('[data-reason="unreachable"]').waitFor();
  await context.unroute(tickets);
  await page.reload();
  await page.locator('#invitation[data-kept="true"]').waitFor();
  await choosePlace(page);
  await context.route(tickets, (route) => route.fulfill({ json: { signature: "A".repeat(342) } }));
  await page.locator("#send-now").click();
  await page.locator('[data-reason="ticket"]').waitFor();
  expect(await page.locator("[data-reason]").innerText()).toMatch(
    /^Nicht gemeldet: der Schlüssel oder die Unterschrift/,
  );
  expect(visit.asked.filter((line) => line.endsWith("/reports"))).toEqual([]);
  await context.unroute(tickets);
  await sendAndWait(page);
  const asked = visit.requests.filter((each) => each.url().endsWith("/tickets")).map((each) => each.postData());
  expect([asked.length, new Set(asked).size]).toEqual([7, 1]); // five tries at first
  await visit.end();
});

test("an operator makes a campaign with invitations, and has them once, as a file", async () => {
  const { page, complaints, close } = await form(browser, service);
  await small(page);
  await page.locator("details.more summary").last().click();
  await page.getByLabel("Only with invitations").check();
  await page.getByRole("button", { name: "Create the campaign" }).click();
  const words = page.locator("#invitations-standing");
  await expect.poll(() => words.textContent()).toBe("0 invitations made, 0 used.");
  await page.getByLabel("How many").fill("3");
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Make and download them" }).click(),
  ]);
  const made = decodeURIComponent(new URL(page.url()).hash.slice(2));
  expect(file.suggestedFilename()).toBe(`${made}-invitations.csv`);
  const lines = readFileSync(await file.path(), "utf-8").split("\r\n");
  expect([lines[0], lines.length, lines.at(-1)]).toEqual(["invitation,link", 5, ""]);
  const all = lines.slice(1, -1).map((line) => line.split(",") as [string, string]);
  for (const [code, link] of all) {
    expect(code).toMatch(/^([2-9a-z]{5}-){3}[2-9a-z]{5}$/);
    expect(link).toBe(`${service.url}/c/${made}#invitation=${code}`);
  }
  expect(await page.locator("#invitations pre").innerText()).toBe(all.map(([code]) => code).join("\n"));
  await expect.poll(() => words.textContent()).toBe("3 invitations made, 0 used.");
  for (const [colorScheme, size] of LOOKS) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(size);
    expect(await findings(page)).toEqual([]);
    expect(await beyond(page)).toBeLessThanOrEqual(0);
  }
  await page.reload();
  await expect.poll(() => words.textContent()).toBe("3 invitations made, 0 used.");
  expect(await page.locator("#invitations pre").count()).toBe(0);
  await page.getByLabel("How many").fill("10001");
  await page.getByRole("button", { name: "Make and download them" }).click();
  expect(await page.locator("#invitations-count:invalid").count()).toBe(1);
  await page.getByRole("button", { name: "End for good" }).click();
  await page.getByRole("button", { name: "Yes, do it" }).click();
  await expect.poll(() => page.locator("#invitations-count").count()).toBe(0);
  expect(complaints).toEqual([]);
  await close();
});

test("an invitation is forgotten as soon as the report has its ticket, or the campaign is known to be over", async () => {
  const [code, other] = (await codes(2)).map((each) => each.replaceAll("-", "")) as [string, string];
  const visit = await Visit.begin(browser);
  await arrive(visit.page, `#invitation=${code}`);
  const reports = `**/api/campaigns/${id}/reports`;
  await visit.context.route(reports, (route) => route.abort());
  await visit.page.locator("#send-now").click();
  await visit.page.locator("#send-again").waitFor();
  await expect.poll(() => kept(visit.page)).not.toContain(code);
  await visit.context.unroute(reports);
  await visit.page.locator("#send-again").click();
  await visit.page.locator(".receipt-good").waitFor(); // with the ticket
  await visit.end();
  const over = await service.campaign({ tickets: true });
  for (const late of [true, false]) {
    const visit = await Visit.begin(browser);
    const { page, context } = visit;
    const state = `**/api/campaigns/${over}`;
    await context.route(state, (route) => route.fulfill({ json: running }));
    const running = { name: "Lyon", state: "running", settings: {}, ticket_key: "" };
    await page.goto(`${service.url}/c/${over}#invitation=${other}`);
    if (late) {
      await choosePlace(page);
      expect(await kept(page)).toContain(other);
      await context.unroute(state);
      await service.call("PATCH", `/api/campaigns/${over}`, { state: "ended" });
      await page.locator("#send-now").click();
    }
    await page.locator('[data-reason="ended"]').waitFor();
    await expect.poll(() => kept(page)).not.toContain(other);
    await visit.end();
  }
});

test("other campaigns speak of no invitations, and where all is over none is kept", async () => {
  const other = await service.campaign();
  const { page, asked, close } = await operator(browser, service, other);
  await page.getByText("No map yet.").waitFor();
  expect(await page.locator("#invitations").count()).toBe(0);
  expect(asked.filter((each) => each.includes("invitations"))).toEqual([]);
  await page.goto(`${service.url}/c/${other}#invitation=22222-22222-22222-22222`);
  await page.locator("#certified.notice-good").waitFor();
  await expect.poll(() => page.url()).toBe(`${service.url}/c/${other}`);
  expect(await page.locator("#one, #invitation, #ticket").count()).toBe(0);
  const over = await service.campaign({ tickets: true });
  const link = `${service.url}/c/${over}#invitation=22222-22222-22222-22222`;
  await page.goto(link);
  await page.locator('#invitation[data-kept="true"]').waitFor();
  await service.call("PATCH", `/api/campaigns/${over}`, { state: "ended" });
  await page.goto(link);
  await expect.poll(() => page.url()).toBe(`${service.url}/c/${over}`);
  await expect.poll(() => kept(page)).not.toContain("22222");
  await close();
});
