/** Takes the pictures of the dashboard for the documentation: `tools/dashboard_pictures.py` runs this. */

import { DESK, PHONE, take } from "./chromium.mjs";

const [address, campaign, folder] = process.argv.slice(2);
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
    ["map-published", DESK, "light", `${service}/m/${campaign}`, shown],
    [
        "certificate",
        { viewport: { width: 1000, height: 1000 } },
        "light",
        `${service}/certificate/${campaign}`,
        (page) => page.getByText("The promise holds.").waitFor({ timeout: 120_000 }),
    ],
];

await take(folder, SHOTS);
