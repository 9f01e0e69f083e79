/** A campaign of trips, on the participant page: two places, one report, charged twice, nothing true in it. */

import type { Browser } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { campaign, executablePath, launch, SERVICE, Visit } from "./browser.ts";
import { open, sendAndWait } from "./participant.ts";

const BEGIN = ["45.7534567", "4.8412345"] as const;
const END = ["45.7612345", "4.8112345"] as const;

describe.skipIf(!SERVICE || !executablePath)("trips on the participant page", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launch();
  });

  it("needs both places, sends two squares once, and says that it costs twice", async () => {
    const id = await campaign({ trips: true });
    const visit = await Visit.begin(browser, {});
    const { page } = visit;
    await open(visit, id);
    expect(await page.locator(".head .lead").innerText()).toMatch(/where trips go/);
    expect(await page.locator("#guess").innerText()).toMatch(/which of two trips you made/);
    const typed = async (prefix: string, [lat, lng]: readonly [string, string]): Promise<void> => {
      const form = page.locator("details", { has: page.locator(`#${prefix}lat`) });
      await form.locator("summary").click();
      await page.locator(`#${prefix}lat`).fill(lat);
      await page.locator(`#${prefix}lng`).fill(lng);
      await form.locator("button[type=submit]").click();
      await page.locator(`#${prefix}from-here p`).first().waitFor();
    };
    await typed("", BEGIN);
    expect(await page.locator("#send-now").isDisabled()).toBe(true);
    expect(await page.locator("#send-status").innerText()).toMatch(/both places/);
    await typed("end-", END);
    expect(await page.locator("#act").innerText()).toMatch(
      /costs 2 per km .* left now. A trip costs twice the promise/s,
    );
    await sendAndWait(page);
    const [body, ...others] = visit.bodies;
    expect(others).toEqual([]);
    const sent = JSON.parse(body!) as Record<string, unknown>;
    expect(Object.keys(sent)).toEqual(["mechanism", "id", "cell", "to"]);
    expect(await page.locator(".receipt").innerText()).toContain(
      `Squares ${String(sent["cell"])} and ${String(sent["to"])} were sent`,
    );
    expect(await page.locator("tbody tr").innerText()).toContain(`${String(sent["cell"])} → ${String(sent["to"])}`);
    expect(await page.locator("#budget").innerText()).toMatch(/^8 of 10 per km are left/);
    for (const request of visit.requests) {
      const all = `${request.url()} ${request.postData() ?? ""}`;
      for (const degrees of [...BEGIN, ...END]) expect(all).not.toContain(degrees.slice(0, 6));
    }
    await page.goto(`${SERVICE}/certificate/${id}`);
    await page.getByText("The promise holds.").waitFor();
    const row = page.locator("tbody tr", { hasText: "1 km" }).first();
    expect(await row.locator("td").first().innerText()).toMatch(/^7\.[3-9]/); // e², not e: both ends are in a report
    await page.getByText("Two trips whose begins, and whose ends, lie this far apart").waitFor();
    expect(visit.complaints).toEqual([]);
    await visit.end();
  });
});
