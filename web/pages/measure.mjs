/** Times the participant page in Chromium, by the marks that it leaves: `make benchmark ARGS=pages` runs this. */

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const [url, repeats, ...campaigns] = process.argv.slice(2);
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const browser = await chromium.launch({
    executablePath: PROGRAMS.find(existsSync),
    args: [...(process.getuid?.() === 0 ? ["--no-sandbox"] : []), "--disable-background-networking"],
});
const figures = {};
for (const campaign of campaigns) {
    const all = [];
    for (let repeat = 0; repeat < Number(repeats); repeat++) {
        const context = await browser.newContext();
        const page = await context.newPage();
        await page.goto(`${url}/c/${campaign}`);
        await page.locator("#measure").waitFor();
        await page.locator(".map-face").press("Enter");
        await page.locator("#from-here p").first().waitFor();
        await page.locator("#send-now").click();
        await page.locator(".receipt-good").waitFor();
        const marks = await page.evaluate(() =>
            Object.fromEntries(performance.getEntriesByType("mark").map(({ name, startTime }) => [name, startTime])),
        );
        all.push({
            check_ms: marks["rule checked"] - marks["rule read"],
            receipt_ms: marks["receipt shown"] - marks["sending"],
        });
        await context.close();
    }
    const best = (name) => Math.min(...all.map((each) => each[name]));
    figures[campaign] = { check_ms: best("check_ms"), receipt_ms: best("receipt_ms") };
}
await browser.close();
console.log(JSON.stringify(figures));
