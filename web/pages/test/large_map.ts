/** Estimates that a test plays: the service would need minutes to make those of large grids. */

import type { Browser, Locator, Route } from "playwright-core";
import { expect } from "vitest";
import type { Estimate } from "../src/map/estimate.ts";
import { operator, type Service, type Tab } from "./server.ts";

export const SPACE = { kind: "grid", rows: 4, columns: 6, cell_km: 1, box: [45.7, 4.8, 45.7359, 4.8771] } as const;

export function estimate(changes: Partial<Estimate>): Estimate {
  const cells = SPACE.rows * SPACE.columns;
  return {
    campaign: "x", round: 1, closed_at: 0, epsilon_per_km: 1, space: SPACE, reports: 100, rounds: [],
    distribution: new Array<number>(cells).fill(1 / cells), certificate_nats_per_report: 0, steps: 1, stopped: "",
    unfinished: [], standard_error: new Array<number>(cells).fill(1), ...changes,
    interval: { level: 0.95, low: new Array<number>(cells).fill(0), high: new Array<number>(cells).fill(1), method: "" },
  }; // prettier-ignore
}

function played(side: number): { estimate: Estimate; counts: number[] } {
  const cells = side * side;
  const km = 0.05 * (side - 0.5);
  const box = [0, 0, km / 110.574, km / 111.3195]; // a degree at the equator
  const space = { kind: "grid", rows: side, columns: side, cell_km: 0.05, box };
  const shares = Array.from({ length: cells }, (_, n) => 1 + Math.sin(n / 37) * Math.sin(n / (side * 11)));
  const total = shares.reduce((sum, each) => sum + each, 0);
  const distribution = shares.map((each) => each / total);
  const interval = {
    level: 0.95,
    low: distribution.map((each) => each / 2),
    high: distribution.map((each) => 2 * each),
  };
  return {
    estimate: {
      ...estimate({}), space: space as unknown as Estimate["space"], distribution, blocks: [],
      standard_error: distribution.map((each) => each / 3), interval: { ...interval, method: "played" },
    },
    counts: distribution.map((each) => Math.round(1e6 * each)),
  }; // prettier-ignore
}

/** The map of an operator, and what it is drawn on. */
export async function shown(
  browser: Browser,
  service: Service,
  played: Estimate,
  counts: number[],
): Promise<{ tab: Tab; canvas: Locator }> {
  const id = await service.campaign();
  const tab = await operator(browser, service);
  const answer = (value: unknown) => (route: Route) => route.fulfill({ json: value });
  await tab.page.route(`**/api/campaigns/${id}/rounds/1/estimate`, answer(played));
  await tab.page.route(`**/api/campaigns/${id}/counts?round=1`, answer({ counts, outside: 0 }));
  await tab.page.route(`**/api/campaigns/${id}`, async (route) => {
    const state = (await (await route.fetch()).json()) as object;
    await route.fulfill({ json: { ...state, estimate: { round: 1, reports: 1, made_at: 0 } } });
  });
  await tab.page.evaluate((to) => (location.hash = `#/${to}`), id);
  const canvas = tab.page.locator("canvas.map-canvas").first();
  await canvas.waitFor();
  return { tab, canvas };
}

/** A map of so many cells a side, drawn, moved and read by an operator. */
export async function seenLarge(browser: Browser, service: Service, side: number): Promise<void> {
  const { estimate: large, counts } = played(side);
  const { tab, canvas } = await shown(browser, service, large, counts);
  const box = (await canvas.boundingBox())!;
  await tab.page.mouse.move(box.x + 400, box.y + 200);
  await tab.page.mouse.down();
  for (let n = 0; n < 20; n++) await tab.page.mouse.move(box.x + 400 - 6 * n, box.y + 200 + 4 * n);
  await tab.page.mouse.up();
  await tab.page.getByText(/of the people, between/).waitFor();
  await tab.page.getByRole("button", { name: "how sure" }).click();
  await tab.page.getByText("The same as a table").click();
  expect(await tab.page.locator("tbody tr").count()).toBe(50);
  expect(tab.complaints).toEqual([]);
  await tab.close();
}
