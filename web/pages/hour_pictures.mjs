/** Takes the picture of a published map by the hour: `tools/hour_pictures.py` runs this. */

import { take } from "./chromium.mjs";

const [address, folder] = process.argv.slice(2);
const HOUR = 9;

const hours = async (page) => {
    await page.locator("#side-by-side:enabled").click();
    await page.locator("#small-maps button").nth(HOUR).click();
};
await take(folder, [["map-hours", { viewport: { width: 1280, height: 1480 } }, "light", address, hours]]);
