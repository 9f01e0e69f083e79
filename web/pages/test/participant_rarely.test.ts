/** The participant page in what befalls few: no room, no list, no location, no network, and a campaign that is over. */

import type { Browser, Route } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { campaign, executablePath, launch, PHONE, SERVICE, Visit } from "./browser.ts";
import { choosePlace, open, sendAndWait } from "./participant.ts";

describe.skipIf(!SERVICE || !executablePath)("the participant page, rarely", () => {
  let browser: Browser;
  let id: string; // for tests that leave it as it is: every visitor has a ledger of their own
  beforeAll(async () => {
    browser = await launch();
    id = await campaign();
  });

  it("says that its list cannot be read where the browser never answers, and goes on when it does", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    const silent = `IDBFactory.prototype.open = () => ({});\nconst later = self.setTimeout.bind(self);\nself.setTimeout = (work, ms) => later(work, ms / 50);\n`;
    await page.route("**/assets/device_worker-*.js", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: silent + (await answer.text()) });
    });
    await page.goto(`${SERVICE}/c/${id}`);
    await page.locator('[data-reason="ledger-unreadable"]').waitFor();
    expect(visit.asked).toEqual([`GET /c/${id}`, `GET /api/campaigns/${id}`]);
    await page.unroute("**/assets/device_worker-*.js");
    await page.locator("#again").click();
    await page.locator("#certified.notice-good").waitFor();
    await visit.end();
  });

  it("says when it is offline, and goes on when asked again; a slow network changes nothing", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await page.route("**/api/**", (route) => route.abort("internetdisconnected"));
    await page.goto(`${SERVICE}/c/${id}`);
    await page.locator("h1").waitFor();
    expect(await page.locator("h1").innerText()).toMatch(/does not answer now. Nothing was sent/);
    await page.unroute("**/api/**");
    await page.route("**/*", async (route) => {
      await new Promise((resume) => setTimeout(resume, 300));
      await route.continue();
    });
    await page.locator("button").click();
    await page.locator("#certified.notice-good").waitFor();
    await choosePlace(page);
    await sendAndWait(page);
    expect(visit.bodies.length).toBe(1);
    await visit.end();
  });

  it("lets people choose on the map where the browser has no location", async () => {
    const visit = await Visit.begin(browser);
    await visit.page.addInitScript(() =>
      Object.defineProperty(Navigator.prototype, "geolocation", { get: () => undefined }),
    );
    await open(visit, id);
    await visit.page.locator("#measure").click();
    await visit.page.getByText("The browser could not find your location.").waitFor();
    expect(await visit.page.locator("#measure").isEnabled()).toBe(true);
    expect(visit.complaints).toEqual([]);
    await visit.end();
  });

  it("offers nothing more in a campaign that has had its last round", async () => {
    const id = await campaign();
    const visit = await Visit.begin(browser);
    const state = (await (await fetch(`${SERVICE}/api/campaigns/${id}`)).json()) as object;
    await visit.page.route(`**/api/campaigns/${id}`, (route) =>
      route.fulfill({ json: { ...state, state: "finished" } }),
    );
    await visit.page.goto(`${SERVICE}/c/${id}`);
    await visit.page.getByText("its last round is over").waitFor();
    await visit.page.locator("#ledger").waitFor();
    expect(await visit.page.locator("#send-now, #again, .map-face, #apart").count()).toBe(0);
    await visit.end();
  });

  it("refuses in German, with names at most in another language", async () => {
    const visit = await Visit.begin(browser, { locale: "de-DE" });
    const { page } = visit;
    const told = async (answer: Parameters<Route["fulfill"]>[0], reason: string): Promise<string> => {
      await page.route("**/mechanism", (route) => route.fulfill(answer));
      await page.goto(`${SERVICE}/c/${id}`);
      const notice = page.locator(`[data-reason="${reason}"]`);
      await notice.waitFor();
      await page.unroute("**/mechanism");
      return notice.innerText();
    };
    const problem = (name: string) => ({
      status: 409,
      contentType: "application/problem+json",
      body: JSON.stringify({ type: `https://geoveil.org/problems/${name}` }),
    });
    expect(await told(problem("unknown-campaign"), "problem")).toBe(
      "Nicht gemeldet: Unter dieser Adresse gibt es keine Kampagne.",
    );
    expect(await told(problem("constructor"), "problem")).toBe(
      "Nicht gemeldet: der Dienst hat abgelehnt. (constructor)",
    );
    expect(await told({ body: "{}" }, "document")).toMatch(/^Nicht gemeldet: die Regel ist nicht in Ordnung. \(\w+\)$/);
    await page.route("**/assets/device_worker-*.js", async (route) => {
      const answer = await route.fetch();
      const without = 'Object.defineProperty(self, "indexedDB", { value: undefined });';
      await route.fulfill({ response: answer, body: `${without}\n${await answer.text()}` });
    });
    expect(await told({ body: "{}" }, "ledger-unwritable")).toBe(
      "Nicht gemeldet: die Liste der Meldungen lässt sich nicht schreiben; ohne sie kann nichts gemeldet werden.",
    );
    await visit.end();
  });

  it("draws no map where there is no room for one, and draws it when there is", async () => {
    const visit = await Visit.begin(browser, PHONE);
    const { page } = visit;
    await open(visit, id);
    const map = page.locator(".map");
    const drawn = page.locator(".map-face :is(canvas, svg)");
    await expect.poll(() => drawn.count()).toBe(2);
    for (const width of ["16px", "20px", "0px"]) {
      await map.evaluate((frame: HTMLElement, narrow) => (frame.style.width = narrow), width);
      await expect.poll(() => drawn.count()).toBe(0);
      await map.evaluate((frame: HTMLElement) => (frame.style.width = ""));
      await expect.poll(() => drawn.count()).toBe(2);
    }
    await page.locator(".map-face").tap();
    await page.locator("#from-here p").first().waitFor();
    expect(visit.complaints).toEqual([]);
    await visit.end();
  });
});
