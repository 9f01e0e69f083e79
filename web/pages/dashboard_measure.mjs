/** Measures the dashboard in Chromium, with answers played: first paint of the map, and script a frame while panning. */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./chromium.mjs";

const [built, side] = [process.argv[2], Number(process.argv[3])];
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
const ADDRESS = "http://127.0.0.1:9";

const km = 0.05 * (side - 0.5);
const space = { kind: "grid", rows: side, columns: side, cell_km: 0.05, box: [0, 0, km / 110.574, km / 111.3195] };
const raw = Array.from({ length: side * side }, (_, n) => 1 + Math.sin(n / 37) * Math.sin(n / (side * 11)));
const total = raw.reduce((sum, each) => sum + each, 0);
const distribution = raw.map((each) => each / total);
const estimate = {
  campaign: "x", round: 1, closed_at: 0, epsilon_per_km: 1, space, reports: 1e6, rounds: [], distribution,
  certificate_nats_per_report: 0, steps: 1, stopped: "played", unfinished: [], blocks: [],
  standard_error: distribution.map((each) => each / 3),
  interval: { level: 0.95, low: distribution.map((x) => x / 2), high: distribution.map((x) => 2 * x), method: "played" },
}; // prettier-ignore
const state = {
  id: "x", name: "Played", link: `${ADDRESS}/c/x`, state: "open", published: false, round: 2, mechanism: "", expires: 0,
  settings: { ...space, minimum_reports: 1 }, reports_counted: { round: 0, all: 1e6 }, rounds_closed: 1,
  estimate: { round: 1, reports: 1e6, made_at: 0 }, alarm: null,
}; // prettier-ignore
const ANSWERS = {
    "/api/campaigns/x": state,
    "/api/campaigns/x/rounds": { minimum_reports: 1, rounds: [] },
    "/api/campaigns/x/rounds/1/estimate": estimate,
    "/api/campaigns/x/counts": { counts: distribution.map((each) => Math.round(1e6 * each)), outside: 0 },
    "/api/map": { tiles: null, attribution: "" },
};

const browser = await launch();
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
await page.route("**/*", (route) => {
    const { pathname } = new URL(route.request().url());
    if (pathname in ANSWERS) return route.fulfill({ json: ANSWERS[pathname] });
    const file = join(built, pathname === "/" ? "index.html" : pathname.slice(1));
    if (!existsSync(file)) return route.fulfill({ status: 204 });
    return route.fulfill({ body: readFileSync(file), contentType: TYPES[file.split(".").pop()] });
});
await page.goto(`${ADDRESS}/#/?token=a-token-to-measure-with&campaign=x`);
const handle = await page.waitForFunction(() => {
    const canvas = document.querySelector("canvas.map-canvas");
    return (
        canvas &&
        canvas.getContext("2d").getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data[3] &&
        performance.now()
    );
});
const paintMs = await handle.jsonValue();

const box = await page.locator("canvas.map-canvas").first().boundingBox();
await page.mouse.move(box.x + 500, box.y + 300);
await page.mouse.down();
await browser.startTracing(page, { categories: ["devtools.timeline"] });
for (let n = 0; n < 90; n++) await page.mouse.move(box.x + 500 - 4 * n, box.y + 300 + 2 * n);
await page.waitForTimeout(200);
const trace = JSON.parse((await browser.stopTracing()).toString());
const events = trace.traceEvents.filter((each) => each.dur !== undefined).sort((a, b) => a.ts - b.ts);
let [since, most, frames] = [0, 0, 0];
for (const { name, dur, tdur: busy = dur } of events) {
    // the thread's own time, where the trace has it: others may run in between
    if (name === "EventDispatch") since += busy;
    if (name !== "FireAnimationFrame") continue;
    most = Math.max(most, since + busy);
    since = 0;
    frames++;
}
console.log(JSON.stringify({ paint_ms: paintMs, frame_ms: most / 1000, frames }));
await browser.close();
