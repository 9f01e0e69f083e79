/** The browser of pictures and measurements. */

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const PROGRAMS = ["chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"].map(
    (name) => `/usr/bin/${name}`,
);
export const DESK = { viewport: { width: 1280, height: 1080 } };
export const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 };

export function launch() {
    return chromium.launch({
        executablePath: PROGRAMS.find(existsSync),
        args: [...(process.getuid?.() === 0 ? ["--no-sandbox"] : []), "--disable-background-networking"],
    });
}

/** Take pictures: each has a name, a size, light or dark, an address, and what to do there before. */
export async function take(folder, shots) {
    const browser = await launch();
    for (const [name, size, colorScheme, place, ready] of shots) {
        const context = await browser.newContext({ ...size, colorScheme, locale: "en-GB" });
        const page = await context.newPage();
        await page.goto(place);
        await ready(page);
        await page.waitForTimeout(700);
        await page.screenshot({ path: `${folder}/${name}.png` });
        console.log(`${folder}/${name}.png`);
        await context.close();
    }
    await browser.close();
}
