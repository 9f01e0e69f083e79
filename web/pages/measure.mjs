/** Times the participant page in Chromium, by the marks that it leaves: `make benchmark ARGS=pages` runs this. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { launch } from "./chromium.mjs";

const [url, repeats, ...campaigns] = process.argv.slice(2);
const TICK_MS = 10; // of /proc

/** Processor time so far of the busiest worker thread below this process; NaN where the system does not tell. */
function workerMs() {
    const parents = new Map();
    const workers = [];
    for (const id of existsSync("/proc") ? readdirSync("/proc").filter((name) => /^\d+$/.test(name)) : []) {
        try {
            parents.set(id, statOf(`/proc/${id}/stat`)[1]);
            for (const task of readdirSync(`/proc/${id}/task`)) {
                const named = readFileSync(`/proc/${id}/task/${task}/comm`, "utf-8").startsWith("DedicatedWorker");
                if (named) workers.push([id, statOf(`/proc/${id}/task/${task}/stat`)]);
            }
        } catch {} // it has ended
    }
    const ours = (id) => id === String(process.pid) || (parents.has(id) && ours(parents.get(id)));
    const times = workers.filter(([id]) => ours(id)).map(([, stat]) => TICK_MS * (Number(stat[11]) + Number(stat[12])));
    return times.length ? Math.max(...times) : NaN;
}

/** What stands after the name in a stat file: state, parent, …; user and system time are 11 and 12. */
function statOf(path) {
    return readFileSync(path, "utf-8").split(") ").at(-1).split(" ");
}

const browser = await launch();
const figures = {};
for (const campaign of campaigns) {
    const all = [];
    for (let repeat = 0; repeat < Number(repeats); repeat++) {
        const context = await browser.newContext();
        const page = await context.newPage();
        await page.goto(`${url}/c/${campaign}`);
        await page.locator("#measure").waitFor();
        const worker_ms = workerMs();
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
            worker_ms,
        });
        await context.close();
    }
    const best = (name) => Math.min(...all.map((each) => each[name]));
    figures[campaign] = Object.fromEntries(Object.keys(all[0]).map((name) => [name, best(name)]));
}
await browser.close();
console.log(JSON.stringify(figures));
