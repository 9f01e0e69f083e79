/** The map: its colours, what is known how well, and large grids in a real browser. */

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { unpacked } from "../src/dashboard/simulated.ts";
import { niceStep } from "../src/map/canvas.ts";
import { bytesOf, evenScale } from "../src/map/colours.ts";
import { knownSquares, onScale } from "../src/map/estimate.ts";
import { Cells } from "../src/map/grid.ts";
import { launch } from "./browser.ts";
import { estimate, seenLarge, shown, SPACE } from "./large_map.ts";
import { Service } from "./server.ts";

test.each([false, true])("equal steps of the scale look equally far apart (dark: %s)", (dark) => {
  const scale = evenScale(dark);
  const steps = scale.slice(1).map((each, n) => Math.hypot(...[0, 1, 2].map((axis) => each[axis]! - scale[n]![axis]!)));
  const mean = steps.reduce((sum, step) => sum + step, 0) / steps.length;
  expect(Math.max(...steps)).toBeLessThan(1.5 * mean);
  expect(Math.min(...steps)).toBeGreaterThan(0.5 * mean);
  const lightness = scale.map(([l]) => (dark ? l! : -l!)); // seen without any colour, the order is the same
  expect(lightness.every((each, n) => n === 0 || each > lightness[n - 1]! - 1e-9)).toBe(true);
  expect(scale.every((each) => bytesOf(each).every((byte) => byte >= 0 && byte <= 255))).toBe(true);
});

test("every place belongs to the finest square that is known", () => {
  const cells = new Cells(SPACE);
  const errors: (number | null)[] = new Array<number>(24).fill(1);
  errors[0] = 0.01; // a cell of 1/24 that is known
  errors[7] = null;
  const two = {
    side: 2,
    columns: 3,
    standard_error: [0.01, 1, 1, 1, 1, null],
    low: [0.1, 0, 0, 0, 0, 0],
    high: [0.2, 1, 1, 1, 1, 1],
  };
  const four = { side: 4, columns: 2, standard_error: [0.2, 1], low: [0.5, 0], high: [0.8, 1] };
  const known = knownSquares(estimate({ standard_error: errors, blocks: [two, four] }), cells)!;
  expect(known[0]).toMatchObject({ side: 1, cells: 1 });
  expect(known[1]).toMatchObject({ side: 2, cells: 4, low: 0.1, high: 0.2 });
  expect(known[1]!.share).toBeCloseTo(4 / 24);
  expect(known[7]!.side).toBe(2);
  expect(known[2]).toMatchObject({ side: 4, cells: 16, low: 0.5 });
  expect(known[23]).toBeUndefined();
  expect(knownSquares(estimate({}), cells)).toBeUndefined();
});

test("cells, steps and packed shares", () => {
  const cells = new Cells(SPACE);
  for (const cell of [0, 5, 6, 23]) expect(cells.at(cells.centreKm(cell))).toBe(cell);
  expect(cells.at([cells.corner[0] - 0.1, cells.corner[1]])).toBeUndefined();
  expect(cells.centre(0)[0]).toBeLessThan(cells.centre(23)[0]); // the first row is in the south
  expect([0.7, 3, 99, 5e-3].map(niceStep)).toEqual([0.5, 2, 50, 0.005]);
  expect(onScale(0.25, 1)).toBe(0.5);
  expect(unpacked("AAD_____")).toEqual([0, 0.5, 0.5]);
});

test("cells that a mask leaves out do not exist", () => {
  const bits = Array.from({ length: 24 }, (_, place) => (place === 0 || place === 7 ? "0" : "1")).join("");
  const bytes = bits.match(/.{8}/g)!.map((each) => String.fromCharCode(parseInt(each, 2)));
  const city = { ...SPACE, mask: btoa(bytes.join("")) };
  const [cells, whole] = [new Cells(city), new Cells(SPACE)];
  expect([cells.size, whole.size]).toEqual([22, 24]);
  expect(cells.in(0, 0)).toBeUndefined();
  expect(cells.at(whole.centreKm(7))).toBeUndefined();
  expect(cells.placeOf(0)).toEqual([0, 1]);
  for (let cell = 0; cell < 22; cell++) expect(cells.at(cells.centreKm(cell))).toBe(cell);
  expect(cells.centreKm(21)).toEqual(whole.centreKm(23));
  const errors = new Array<number>(22).fill(1);
  const two = { side: 2, columns: 3, standard_error: [0.01, 1, 1, 1, 1, 1], low: [0.1], high: [0.2] };
  const shares = new Array<number>(22).fill(1 / 22);
  const known = knownSquares(
    estimate({ space: city, standard_error: errors, distribution: shares, blocks: [two] }),
    cells,
  )!;
  expect(known[0]).toMatchObject({ side: 2, cells: 2 }); // of four, two do not exist
  expect(known.filter(Boolean)).toHaveLength(2);
});

// --- Large grids, played by the test: the service would need minutes to make their estimate

let service: Service;
let browser: Browser;

beforeAll(async () => {
  [service, browser] = await Promise.all([Service.given(), launch()]);
}, 180_000);
afterAll(() => service?.end());

test("a map of 64 cells a side is drawn, moved and read", () => seenLarge(browser, service, 64));

test("degrees can be read on a cell of their own colour", async () => {
  const { tab, canvas } = await shown(browser, service, estimate({}), new Array<number>(24).fill(4)); // all are darkest
  for (let n = 0; n < 3; n++) await tab.page.getByRole("button", { name: "Closer" }).click();
  const edge = (): Promise<number> =>
    canvas.evaluate((canvas: HTMLCanvasElement) => {
      const { data } = canvas.getContext("2d")!.getImageData(6, 60, 60, canvas.height - 140);
      return data.filter((byte, at) => at % 4 === 1 && byte > 220).length; // green: cells and ink have little of it
    });
  await expect.poll(edge).toBeGreaterThan(100);
  await tab.close();
});
