/** How places and hexagons are drawn in the place of squares, and in which words. */

import { expect, test } from "vitest";
import { knownSquares, type Estimate } from "../src/map/estimate.ts";
import { cellsOf, Places, shapesAround } from "../src/map/places.ts";
import { wordsFor } from "../src/map/texts.ts";
import { type Corner, middles } from "./hexagons.ts";

const areaOf = (shape: readonly Corner[]): number =>
  Math.abs(
    shape.reduce((sum, [x, y], at) => {
      const [nextX, nextY] = shape[(at + 1) % shape.length]!;
      return sum + x * nextY - nextX * y;
    }, 0),
  ) / 2;

test("middles of hexagons become hexagons again, and a lonely place is a disc", () => {
  const at = [...middles(5, 5), [40, 40] as const];
  const shapes = shapesAround(Float64Array.from(at, ([x]) => x), Float64Array.from(at, ([, y]) => y), 1); // prettier-ignore
  const inner = shapes[12]!; // in the middle, with six neighbours
  expect(inner).toHaveLength(6);
  expect(areaOf(inner)).toBeCloseTo(1, 6);
  expect(areaOf(shapes[25]!)).toBeCloseTo(Math.PI * 0.63 ** 2, 1);
  for (const [place, shape] of shapes.entries()) {
    const [x, y] = at[place]!;
    for (const [east, north] of shape) {
      const own = Math.hypot(east - x, north - y);
      expect(own).toBeLessThan(0.64);
      for (const [otherX, otherY] of at) expect(Math.hypot(east - otherX, north - otherY)).toBeGreaterThan(own - 1e-9);
    }
  }
});

test("thousands of places, most of them in one crowd, are cut and none overlaps another", () => {
  let state = 1;
  const even = (): number => (state = (state * 16807) % 2147483647) / 2147483647;
  const crowd = (n: number): number => (n % 10 ? 10 + even() + even() + even() : 30 * even());
  const [east, north] = [0, 1].map(() => Float64Array.from({ length: 4096 }, (_, n) => crowd(n)));
  const shapes = shapesAround(east!, north!, 0.5);
  expect(shapes.every((shape) => shape.length >= 3)).toBe(true);
  const area = shapes.reduce((sum, shape) => sum + areaOf(shape), 0);
  expect(area).toBeGreaterThan(50);
  expect(area).toBeLessThan(31 * 31);
});

const SPACE = { kind: "points", lat: [45.73, 45.75, 45.77], lng: [4.81, 4.84, 4.87] } as const;

test("a place is found in its own part, on maps and in small pictures, and across 180°", () => {
  for (const space of [SPACE, { ...SPACE, lng: [179.99, -179.98, -179.95] }]) {
    const places = cellsOf(space) as Places;
    expect(places.size).toBe(3);
    for (let place = 0; place < 3; place++) {
      expect(places.at(places.centreKm(place))).toBe(place);
      expect(places.centre(place)[0]).toBeCloseTo(space.lat[place]!, 9);
    }
    expect(places.at([places.corner[0] - 1, 0])).toBeUndefined();
    expect(places.widthKm).toBeLessThan(20);
    const seen = new Set<number | undefined>();
    for (let row = 0; row < places.rows; row++)
      for (let column = 0; column < places.columns; column++) seen.add(places.in(row, column));
    expect(seen).toEqual(new Set([undefined, 0, 1, 2]));
  }
});

test("words are those of places, of cells around them, or of squares", () => {
  expect(wordsFor(new Places(SPACE)).cell).toBe("Place");
  const around = new Places({ ...SPACE, cell_km: 1.5 });
  expect([wordsFor(around).cell, wordsFor(around).inSquare("x")]).toEqual(["Cell", "in this cell"]);
  expect(around.cellKm).toBe(1.5);
  const interval = { level: 0.95, low: [0.1, 0, 0], high: [0.5, 1, 1], method: "" };
  const made = { space: SPACE, distribution: [0.3, 0.3, 0.4], standard_error: [0.1, 0.2, null], interval, blocks: [] };
  const known = knownSquares(made as unknown as Estimate, new Places(SPACE))!;
  expect(known.map((each) => each?.side)).toEqual([1, undefined, undefined]);
});
