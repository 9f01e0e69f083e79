/** Takes the picture of a published map by the hour: `tools/hour_pictures.py` runs this. */

import { existsSync, mkdirSync } from "node:fs";
import { chromium } from "playwright-core";

const [address, folder] = process.argv.slice(2);
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const HOUR = 9;

mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({
    executablePath: PROGRAMS.find(existsSync),
    args: [...(process.getuid?.() === 0 ? ["--no-sandbox"] : []), "--disable-background-networking"],
});
const context = await browser.newContext({ viewport: { width: 1280, height: 1480 }, locale: "en-GB" });
const page = await context.newPage();
await page.goto(address);
await page.locator("#side-by-side:enabled").click();
await page.locator("#small-maps button").nth(HOUR).click();
await page.waitForTimeout(700);
await page.screenshot({ path: `${folder}/map-hours.png` });
console.log(`${folder}/map-hours.png`);
await browser.close();
