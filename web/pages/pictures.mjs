/** Takes the pictures of the pages for the documentation: `make pictures` starts a service and runs this. */

import { PHONE, take } from "./chromium.mjs";

const [url, folder] = process.argv.slice(2);
const PAGE = `${url}/c/paris`;
const DESKTOP = { viewport: { width: 1100, height: 900 }, deviceScaleFactor: 1.5 };

/** Choose a place with the keyboard, and show a part of the page. */
async function participant(page, { section, send = false }) {
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

const wanted = process.argv[4] ?? "";
await take(
    folder,
    SHOTS.filter(([name]) => name.includes(wanted)).map(([name, size, scheme, show]) => [
        name,
        size,
        scheme,
        PAGE,
        show,
    ]),
);
