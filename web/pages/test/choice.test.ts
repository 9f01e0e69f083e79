/** A campaign that offers several promises, and slots of time, on the participant page. */

import type { Browser } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { campaign, executablePath, launch, SERVICE, Visit } from "./browser.ts";
import { choosePlace, open, sendAndWait } from "./participant.ts";

describe.skipIf(!SERVICE || !executablePath)("what people choose", () => {
  let browser: Browser;
  let id: string; // on few cells: each promise is designed
  beforeAll(async () => {
    browser = await launch();
    const slots = { slots: "hour", zone: "Europe/Paris" };
    id = await campaign({ epsilon_per_km: null, promises_per_km: [0.5, 1, 3], cell_km: 2, ...slots });
  });

  it("offers every promise with its consequences, the strongest first and chosen, and sends the one chosen", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await open(visit, id);
    const options = page.locator(".choice-of");
    expect(await options.count()).toBe(3);
    const before = (await page.locator("p:has(+ .choices)").boundingBox())!;
    expect((await options.first().boundingBox())!.y).toBeGreaterThan(before.y + before.height + 4);
    expect(await page.locator("input[name=promise]:checked").inputValue()).toBe("0.5");
    const words = await options.allInnerTexts();
    const guessed = words.map((line) => Number(/at most (\d+) times in 100/.exec(line)?.[1]));
    const away = words.map((line) => /report lies ([\d.]+) km away/.exec(line)?.[1]);
    expect(guessed[0]).toBeLessThan(guessed[1]!);
    expect(guessed[1]).toBeLessThan(guessed[2]!);
    expect(Number(away[0])).toBeGreaterThan(Number(away[1]));
    expect(words[2]).toContain("Your limits at the end of this page do not allow it.");
    expect(await page.locator("input[name=promise]").nth(2).isDisabled()).toBe(true);
    expect(await page.locator("body").innerText()).not.toMatch(/[α-ωΑ-Ω]/);
    const strongest = await page.locator("#fingerprint").innerText();
    await page.locator("input[name=promise]").nth(1).check();
    await page.locator("#certified.notice-good").waitFor();
    await expect.poll(() => page.locator("#fingerprint").innerText()).not.toBe(strongest);
    await choosePlace(page);
    await sendAndWait(page);
    const sent = JSON.parse(visit.bodies[0]!) as Record<string, unknown>;
    expect(sent["mechanism"]).toBe(await page.locator("#fingerprint").innerText());
    expect(await page.locator("#budget").innerText()).toMatch(/^9 of 10 per km are left/);
    expect(await options.count()).toBe(0);
    expect(visit.complaints).toEqual([]);
    await visit.end();
  });

  it("has the fingerprint of every promise in the certificate, first that which geoveil audit shows", async () => {
    const visit = await Visit.begin(browser);
    await visit.page.goto(`${SERVICE}/certificate/${id}`);
    await visit.page.getByText("The promise holds.").waitFor();
    const offered = await (await fetch(`${SERVICE}/api/campaigns/${id}/mechanism`)).json();
    const { levels } = offered as { levels: readonly { id: string }[] };
    expect(await visit.page.locator("dd code").allInnerTexts()).toEqual(levels.map((level) => level.id));
    await visit.page.getByText("the first, of the strongest, with geoveil audit.").waitFor();
    await visit.end();
  });

  it("names the slot before and after it is sent, in the reader's language too", async () => {
    const visit = await Visit.begin(browser, { locale: "de-DE" });
    const { page } = visit;
    await open(visit, id);
    expect(await page.locator("#choice").innerText()).toBe("Wie viel darf Ihre Meldung sagen?");
    expect(await page.locator("#slot").innerText()).toMatch(/„\d\d“ \(einer von 24, Zeit von Europe\/Paris\)/);
    await choosePlace(page);
    await sendAndWait(page);
    const sent = JSON.parse(visit.bodies[0]!) as { slot: number; cell: number };
    expect(Object.keys(sent)).toEqual(["mechanism", "id", "cell", "slot"]);
    expect(await page.locator(".receipt").innerText()).toContain(
      `Feld ${sent.cell} und Zeitabschnitt ${sent.slot} wurden gesendet, und sonst nichts`,
    );
    await visit.end();
  });
});
