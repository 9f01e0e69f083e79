/** Takes the pictures of the pages for the documentation: `make pictures` starts a service and runs this. */

import { mkdirSync } from "node:fs";
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const [url, folder] = process.argv.slice(2);
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 };
const DESKTOP = { viewport: { width: 1100, height: 900 }, deviceScaleFactor: 1.5 };

/** Open the participant page, choose a place with the keyboard, and show a part of the page. */
async function participant(page, { section, send = false }) {
    await page.goto(`${url}/c/paris`);
    await page.locator("#certified.notice-good").waitFor();
    const face = page.locator(".map-face");
    await face.press("Enter");
    for (let step = 0; step < 6; step++) await face.press("ArrowLeft");
    await page.locator("#from-here p").first().waitFor();
    await page.evaluate(() => document.activeElement?.blur());
    if (send) {
        await page.locator("#send-now").click();
        await page.locator("#receipt").waitFor();
        await page.evaluate(() => document.activeElement?.blur());
    }
    await page.evaluate((id) => document.querySelector(id)?.closest(".card, header, main")?.scrollIntoView(), section);
    await page.evaluate((id) => id === "h1" && scrollTo(0, 0), section);
}

const SHOTS = [
    ["participant-phone-light", PHONE, "light", (page) => participant(page, { section: "h1" })],
    ["participant-phone-dark", PHONE, "dark", (page) => participant(page, { section: "#place" })],
    ["participant-desktop-light", DESKTOP, "light", (page) => participant(page, { section: "#place" })],
    ["participant-desktop-dark", DESKTOP, "dark", (page) => participant(page, { section: "h1", send: true })],
];

mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({
    executablePath: PROGRAMS.find(existsSync),
    args: [...(process.getuid?.() === 0 ? ["--no-sandbox"] : []), "--disable-background-networking"],
});
const wanted = process.argv[4] ?? "";
for (const [name, size, colorScheme, show] of SHOTS.filter(([name]) => name.includes(wanted))) {
    const context = await browser.newContext({ ...size, colorScheme, locale: "en-GB" });
    const page = await context.newPage();
    await show(page);
    await page.screenshot({ path: `${folder}/${name}.png` });
    if (process.env.WHOLE) await page.screenshot({ path: `${folder}/${name}-whole.png`, fullPage: true });
    await context.close();
    console.log(`${folder}/${name}.png`);
}
await browser.close();
