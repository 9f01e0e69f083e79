/** What visitors of the participant page do. */

import type { Page } from "playwright-core";
import { SERVICE, type Visit } from "./browser.ts";

/** Open a campaign's link and wait until its rule is checked. */
export async function open(visit: Visit, campaign: string): Promise<void> {
  await visit.page.goto(`${SERVICE}/c/${campaign}`);
  await visit.page.locator("#certified.notice-good").waitFor();
}

/** Choose the middle of the map with the keyboard, as soon as a place may be chosen. */
export async function choosePlace(page: Page): Promise<void> {
  await page.locator("#measure").waitFor();
  await page.locator(".map-face").press("Enter");
  await page.locator("#from-here p").first().waitFor();
}

export async function sendAndWait(page: Page): Promise<void> {
  await page.locator("#send-now").click();
  await page.locator(".receipt-good").waitFor();
}
