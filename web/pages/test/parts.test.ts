/** What the pages share: languages, numbers as people write them, and where kilometres lie on a screen. */

import { expect, it } from "vitest";
import { fitted, scaleBarKm, toPlace, toScreen, zoomed } from "../src/map/view.ts";
import { say } from "../src/participant/texts.ts";
import { REASONS } from "../../sdk/src/refusal.ts";
import { cost, languageOf, left } from "../src/texts/language.ts";

it("speaks the first language that the reader has and the pages know", () => {
  expect(languageOf(["fr-CA", "de-AT", "en"])).toBe("de");
  expect(languageOf(["en-GB", "de"])).toBe("en");
  expect(languageOf(["ja"])).toBe("en");
  expect(languageOf([])).toBe("en");
});

it("fits a rectangle into a view, north up, and finds places again", () => {
  const view = fitted([-2, -1], [6, 3], 420, 320, 10);
  expect(view.pixelsPerKm).toBe(50);
  expect(toScreen(view, [-2, 3])[0]).toBeCloseTo(10);
  expect(toScreen(view, [0, 3])[1]).toBeLessThan(toScreen(view, [0, -1])[1]);
  for (const place of [
    [0, 0],
    [5.25, -0.5],
  ] as const) {
    const [x, y] = toScreen(view, place);
    expect(toPlace(view, x, y)[0]).toBeCloseTo(place[0]);
    expect(toPlace(view, x, y)[1]).toBeCloseTo(place[1]);
  }
});

it("zooms around a point, which stays where it is", () => {
  const view = fitted([0, 0], [10, 10], 300, 300, 0);
  const nearer = zoomed(view, 4, 30, 60);
  expect(nearer.pixelsPerKm).toBe(120);
  expect(toPlace(nearer, 30, 60)[0]).toBeCloseTo(toPlace(view, 30, 60)[0]);
  expect(toPlace(nearer, 30, 60)[1]).toBeCloseTo(toPlace(view, 30, 60)[1]);
});

it("draws a scale bar of a round length that is no longer than it may be", () => {
  for (const pixelsPerKm of [0.3, 1, 7, 50, 333, 4000]) {
    const view = { centre: [0, 0] as const, pixelsPerKm, width: 300, height: 200 };
    const km = scaleBarKm(view, 100);
    expect(km * pixelsPerKm).toBeLessThanOrEqual(100 * (1 + 1e-9));
    expect(km * pixelsPerKm).toBeGreaterThan(39);
    expect(Number((km / 10 ** Math.floor(Math.log10(km) + 1e-9)).toPrecision(3))).toSatisfy((digit: number) =>
      [1, 2, 5].includes(digit),
    );
  }
});

it("costs are never said to be less than they are, nor what is left to be more", () => {
  expect([cost(0.69314712), left(0.69314789), cost(2), left(10), cost(0)]).toEqual([
    "0.693148",
    "0.693147",
    "2",
    "10",
    "0",
  ]);
});

it("tells people why nothing was reported in their words, not in those of programs", () => {
  expect(Object.keys(say.reasons)).toEqual(expect.arrayContaining(Object.keys(REASONS)));
  for (const words of Object.values(say.reasons)) {
    expect(words).not.toMatch(/collector|ledger|mechanism|document|process|\bfix\b|\bbox\b|\bcells?\b|reportTrip|_/i);
  }
});
