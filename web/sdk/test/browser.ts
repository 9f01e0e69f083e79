/** A real browser, where there is one. */

import { existsSync } from "node:fs";
import type { Page } from "playwright-core";
import type { InBrowser } from "./in_browser.ts";

declare global {
  interface Window {
    geoveil: InBrowser;
  }
}

/** The first is Chromium without its windows, which takes a third of the processor. */
const PROGRAMS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"].map(
  (name) => `/usr/bin/${name}`,
);

export const executablePath = PROGRAMS.find(existsSync);
export const ARGUMENTS = [
  ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
  "--disable-background-networking",
  "--disable-dev-shm-usage",
];

/** A tab with the page that {@link FakeCollector.serve} serves. */
export async function tabOf(context: { newPage(): Promise<Page> }, origin: string): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${origin}/`);
  await page.waitForFunction("window.geoveil");
  return page;
}
