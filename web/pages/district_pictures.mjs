/** Takes the pictures of a city with limits and districts: `tools/district_pictures.py` runs this. */

import { readFileSync } from "node:fs";
import { DESK, PHONE, take } from "./chromium.mjs";

const [address, campaign, limits, folder, wanted = ""] = process.argv.slice(2);
const service = new URL(address).origin;

const map = (page) => page.locator("canvas.map-canvas").first().waitFor({ timeout: 60_000 });
const districts = async (page) => {
    await page.getByRole("button", { name: /^districts$/i }).click({ timeout: 60_000 });
    const row = page.locator("#districts tbody tr", { hasText: "Midtown" });
    await row.waitFor({ timeout: 60_000 });
    await row.hover();
    await page.evaluate(() => document.querySelector(".switch")?.scrollIntoView());
};
const form = async (page) => {
    await page.getByLabel("Name, as people will see it").fill("Manhattan on foot");
    await page.getByText("City limits or places, streets and coast").click();
    await page.locator("#limits").setInputFiles({
        name: "manhattan.geojson",
        mimeType: "application/geo+json",
        buffer: readFileSync(limits),
    });
    await page.locator("#left", { hasText: "remain" }).waitFor({ timeout: 60_000 });
    await page.getByText("More: choice, times, trips").click();
    await page.locator("#add-promise").click();
    await page.locator("#slots").selectOption("hour");
    await page.locator("#zone").fill("America/New_York");
    await page.locator("#choices").waitFor({ timeout: 120_000 });
    await page.getByText("The slot is not noisy").waitFor({ timeout: 120_000 });
    await page.evaluate(() => document.activeElement?.blur());
    await page.evaluate(() => scrollTo(0, 0));
};
const made = address.replace(/campaign=[^&]*/, "campaign=new");

const SHOTS = [
    ["map-published", DESK, "light", `${service}/m/${campaign}`, map],
    ["dashboard-phone", PHONE, "light", address, map],
    [
        "certificate",
        { viewport: { width: 1000, height: 1000 } },
        "light",
        `${service}/certificate/${campaign}`,
        (page) => page.getByText("The promise holds.").waitFor({ timeout: 120_000 }),
    ],
    ["dashboard-districts", DESK, "light", address, districts],
    ["dashboard-districts-dark", DESK, "dark", address, districts],
    ["map-districts-phone", PHONE, "light", `${service}/m/${campaign}`, districts],
    ["dashboard-form", { viewport: { width: 1280, height: 1560 } }, "light", made, form],
];
await take(
    folder,
    SHOTS.filter(([name]) => wanted.split(",").some((each) => name.includes(each))),
);
