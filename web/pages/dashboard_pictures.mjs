/** Takes the pictures of the dashboard for the documentation: `tools/dashboard_pictures.py` runs this. */

import { existsSync, mkdirSync } from "node:fs";
import { chromium } from "playwright-core";

const [address, campaign, folder] = process.argv.slice(2);
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const DESK = { viewport: { width: 1280, height: 1080 } };
const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 };
const service = new URL(address).origin;

const shown = (page) => page.locator("canvas.map-canvas").first().waitFor({ timeout: 60_000 });
const SHOTS = [
    ["dashboard", DESK, "light", address, shown],
    [
        "dashboard-sure",
        DESK,
        "light",
        address,
        async (page) => {
            await shown(page);
            await page.getByRole("button", { name: "how sure" }).click();
        },
    ],
    ["dashboard-dark", DESK, "dark", address, shown],
    ["dashboard-phone", PHONE, "light", address, shown],
    [
        "dashboard-new",
        DESK,
        "light",
        address.replace(/campaign=[^&]*/, "campaign=new"),
        (page) => page.getByText("what comes back").waitFor({ timeout: 120_000 }),
    ],
    ["map-published", DESK, "light", `${service}/m/${campaign}`, shown],
    [
        "certificate",
        { viewport: { width: 1000, height: 1000 } },
        "light",
        `${service}/certificate/${campaign}`,
        (page) => page.getByText("The promise holds.").waitFor({ timeout: 120_000 }),
    ],
];

mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({
    executablePath: PROGRAMS.find(existsSync),
    args: [...(process.getuid?.() === 0 ? ["--no-sandbox"] : []), "--disable-background-networking"],
});
for (const [name, size, colorScheme, place, ready] of SHOTS) {
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
