/** What tests of the form for a new campaign share. */

import type { Browser, Page } from "playwright-core";
import { operator, type Service, type Tab } from "./server.ts";

/** The form for a new campaign, signed in. */
export async function form(browser: Browser, service: Service): Promise<Tab> {
  const tab = await operator(browser, service, "new");
  await tab.page.getByLabel("Name, as people will see it").waitFor();
  return tab;
}

/** A box of 49 cells. */
export async function small(page: Page): Promise<void> {
  await page.getByLabel("Name, as people will see it").fill("Lyon");
  for (const [edge, value] of Object.entries({ South: 45.72, West: 4.8, North: 45.78, East: 4.88 })) {
    await page.getByLabel(edge, { exact: true }).fill(String(value));
  }
  await page.getByLabel("Side of a cell, in km").fill("1");
}
