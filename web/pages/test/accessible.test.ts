/** The participant page for everybody: by rule, by keyboard, without motion, without colour, without WebGL. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, Page } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { beyond, campaign, executablePath, launch, LOOKS, PHONE, SERVICE, Visit } from "./browser.ts";
import { choosePlace, open, sendAndWait } from "./participant.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf-8");

/** What axe finds, by rule and element; its own rules and those of good practice. */
async function findings(page: Page): Promise<string[]> {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(AXE); // by the debugger, which no policy binds
  return page.evaluate(async () => {
    const { axe } = window as unknown as {
      axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
    };
    const { violations } = await axe.run();
    return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
  });
}

describe.skipIf(!SERVICE || !executablePath)("the participant page is accessible", () => {
  let browser: Browser;
  let id: string;
  beforeAll(async () => {
    browser = await launch();
    id = await campaign();
  });

  it("has no findings of axe, contrast included, in light at a desk and in dark on a phone", async () => {
    const visit = await Visit.begin(browser, { colorScheme: "light", reducedMotion: "reduce" });
    const { page } = visit;
    const look = async (): Promise<void> => {
      for (const [colorScheme, size] of LOOKS) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize(size);
        expect(await findings(page), colorScheme).toEqual([]);
      }
    };
    await open(visit, id);
    for (const summary of await page.locator("summary").all()) await summary.click();
    await look();
    await choosePlace(page);
    await look();
    await sendAndWait(page);
    await page.locator("#erase").click();
    await look();
    expect(await page.evaluate(() => document.getAnimations().length)).toBe(0);
    await visit.end();
  });

  it("keeps its keys to colours where colours are forced", async () => {
    const visit = await Visit.begin(browser, { forcedColors: "active" });
    const { page } = visit;
    await open(visit, id);
    const [luck, report, ground] = await page.evaluate(() =>
      [".dot.dot-luck", ".dot.dot-report", "body"].map(
        (each) => getComputedStyle(document.querySelector(each)!).backgroundColor,
      ),
    );
    expect(new Set([luck, report, ground]).size).toBe(3);
    await visit.end();
  });

  it("never loses the keyboard's place where what was pressed goes", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await open(visit, id);
    const focused = (): Promise<string | undefined> => page.evaluate(() => document.activeElement?.id);
    await choosePlace(page);
    await page.locator("#lat").evaluate((input: HTMLInputElement) => (input.value = "45.7534567"));
    await page.locator("#clear").press("Enter");
    await expect.poll(() => page.locator("#clear").count()).toBe(0);
    expect(await page.locator("#lat").inputValue()).toBe(""); // a place is forgotten however it was chosen
    await expect.poll(focused).toBe("measure");
    await choosePlace(page);
    await sendAndWait(page);
    await page.locator("#erase").press("Enter");
    await expect.poll(focused).toBe("erase-title");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await expect.poll(focused).toBe("erase");
    await visit.end();
  });

  it("keeps the place that was chosen last, and the keyboard's, whatever comes late, and forgets it for whoever comes back", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await page.addInitScript(() =>
      Object.assign(Geolocation.prototype, {
        getCurrentPosition: (found: PositionCallback) => Object.assign(window, { found }),
      }),
    );
    await open(visit, id);
    const focused = (): Promise<string | undefined> => page.evaluate(() => document.activeElement?.id);
    const measure = page.locator("#measure");
    await measure.press("Enter");
    await expect.poll(() => measure.innerText()).toBe("Measuring …");
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 50))));
    expect(await focused()).toBe("measure");
    await choosePlace(page);
    await expect.poll(() => measure.innerText()).toBe("Use my location");
    const chosen = await page.locator("#from-here").innerText();
    await page.evaluate(() => {
      const { found } = window as unknown as { found(fix: object): void };
      found({ coords: { latitude: 45.73, longitude: 4.81, accuracy: 10 } });
    });
    await page.waitForTimeout(300);
    expect(await page.locator("#from-here").innerText()).toBe(chosen);
    await page.route("**/mechanism", (route) => route.fulfill({ json: {} }));
    await page.locator("#send-now").press("Enter");
    await page.locator('[data-reason="document"]').waitFor();
    await expect.poll(focused).toBe("next");
    await page.unroute("**/mechanism");
    await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }))); // "Back"
    await expect.poll(() => page.locator("#clear, [data-reason]").count()).toBe(0);
    await page.locator("#certified.notice-good").waitFor();
    expect(await page.locator("#clear").count()).toBe(0);
    expect(visit.complaints).toEqual([]);
    await visit.end();
  });

  it("takes whoever tries again to what comes of it", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    const focused = (): Promise<string | undefined> =>
      page.evaluate(() => `${document.activeElement?.tagName} ${document.activeElement?.textContent}`);
    await page.route(`**/api/campaigns/${id}`, (route) => route.abort());
    await page.goto(`${SERVICE}/c/${id}`);
    await page.locator("button").press("Enter");
    await expect.poll(focused).toMatch(/^H1 The service does not answer/);
    await page.unroute(`**/api/campaigns/${id}`);
    await page.route("**/mechanism", (route) => route.fulfill({ json: {} }));
    await page.locator("button").press("Enter");
    await expect.poll(focused).toBe("H1 Lyon");
    let go = (): void => undefined;
    const held = new Promise<void>((resolve) => (go = resolve));
    await page.locator("#again").waitFor();
    await page.unroute("**/mechanism");
    await page.route("**/mechanism", (route) => held.then(() => route.continue()));
    await page.locator("#again").press("Enter");
    await expect.poll(focused).toBe("DIV Your browser is checking the rule. You can read on.");
    go();
    await page.locator("#send-now").waitFor();
    expect(await focused()).toMatch(/^DIV Send/);
    await visit.end();
  });

  it("is used from the first line to the receipt by keyboard alone", async () => {
    const visit = await Visit.begin(browser, { reducedMotion: "reduce" });
    const { page } = visit;
    await open(visit, id);
    expect(await page.evaluate(() => document.createElement("canvas").getContext("webgl"))).toBe(null);
    const reach = async (wanted: string): Promise<void> => {
      for (let presses = 0; presses < 30; presses++) {
        if (await page.evaluate((selector) => document.activeElement?.matches(selector), wanted)) return;
        await page.keyboard.press("Tab");
      }
      throw new Error(`${wanted} is not reached by Tab`);
    };
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.className)).toBe("skip");
    await reach("#apart");
    const before = await page.locator("#guess").innerText();
    const told = await page.locator("#apart").getAttribute("aria-valuetext");
    await page.keyboard.press("End");
    expect(await page.locator("#guess").innerText()).not.toBe(before);
    expect(await page.locator("#apart").getAttribute("aria-valuetext")).not.toBe(told);
    expect(await page.locator(".distance").innerText()).toBe("5 km");
    await reach(".map-face");
    await page.keyboard.press("ArrowUp");
    const first = await page.locator("#from-here").innerText();
    await page.keyboard.press("Shift+ArrowUp");
    await expect.poll(() => page.locator("#from-here").innerText()).not.toBe(first);
    await page.keyboard.press("+");
    await reach("#send-now");
    await page.keyboard.press("Enter");
    await page.locator(".receipt-good").waitFor();
    expect(visit.bodies.length).toBe(1);
    await visit.end();
  });

  it("takes typed coordinates, with a comma too, and refuses what is none", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await open(visit, id);
    await page.locator("summary").first().click();
    await page.locator("#lat").fill("145");
    await page.locator("#lng").fill("4.84");
    await page.locator(".typed button").first().click();
    await page.locator("[role=alert]").waitFor();
    await page.locator("#lat").fill("45,7512");
    await page.locator("#lat").press("Enter");
    await page.locator("#from-here p").first().waitFor();
    expect(await page.locator("#from-here").innerText()).toMatch(/45\.7512° N, 4\.8400° E/);
    expect(await page.locator("[role=alert]").count()).toBe(0);
    await visit.end();
  });

  it("stays usable with text twice as large, and without a place that the browser allows", async () => {
    const visit = await Visit.begin(browser, { ...PHONE, permissions: [] });
    const { page } = visit;
    await open(visit, id);
    await page.addStyleTag({ url: "data:text/css,html{font-size:200%}" }).catch(() => undefined); // the policy may stop it
    await page.evaluate(() => (document.documentElement.style.fontSize = "200%"));
    expect(await beyond(page)).toBeLessThanOrEqual(0);
    await page.locator("#measure").click();
    await page.locator("[role=alert]").waitFor();
    expect(await page.locator("[role=alert]").innerText()).toMatch(/did not allow/);
    await visit.end();
  });
});
