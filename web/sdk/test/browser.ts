/** A real browser, where there is one. */

import { existsSync } from "node:fs";
import type { Browser, BrowserType, Page } from "playwright-core";
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

/** Little of what the browser does beside the pages is needed here, and threads only cost: a quarter less processor. */
const ARGUMENTS = [
  ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
  "--disable-gpu",
  "--disable-3d-apis", // no WebGL
  "--disable-background-networking",
  "--disable-dev-shm-usage",
  "--in-process-gpu",
  "--enable-features=NetworkServiceInProcess2",
  "--renderer-process-limit=1",
  "--num-raster-threads=1",
];

/** On a busy machine Chromium crashes now and then as it starts, before any test has begun: it is started once more. */
export function started(chromium: BrowserType, ...more: string[]): Promise<Browser> {
  const launch = () => chromium.launch({ executablePath: executablePath!, args: [...ARGUMENTS, ...more] });
  return launch().catch(launch);
}

/** A tab with the page that {@link FakeCollector.serve} serves. */
export async function tabOf(context: { newPage(): Promise<Page> }, origin: string): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${origin}/`);
  await page.waitForFunction("window.geoveil");
  return page;
}
