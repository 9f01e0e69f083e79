/** Takes the pictures of the dashboard for the documentation: `tools/dashboard_pictures.py` runs this. */

import { DESK, take } from "./chromium.mjs";

const [address, folder] = process.argv.slice(2);

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
];

await take(folder, SHOTS);
