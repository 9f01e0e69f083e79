/** Leaving centres out by tiles changes nothing: the largest is that over all of them, to the last digit. */

import { expect, it } from "vitest";
import { FLOOR, RoundedCone } from "../src/cone.ts";
import { longest } from "../src/norms.ts";
import { type Mean, Steepest } from "../src/steepest.ts";

/** Numbers from 0 to 1, the same in every run (the minimal generator of Park and Miller). */
function numbers(seed: number): () => number {
  let state = seed;
  return () => (state = (48271 * state) % 2147483647) / 2147483647;
}

/** The same by walking over all centres. */
function overAll(
  east: Float64Array,
  north: Float64Array,
  cone: RoundedCone,
  at: readonly [number, number],
  [ge, gn, jee, jen, jnn, rest]: Mean,
  rho: number,
): [number, number] {
  let [seen, most] = [0, 0];
  east.forEach((along, centre) => {
    const [e, n] = [at[0] - along, at[1] - north[centre]!];
    const r = Math.sqrt(e * e + n * n);
    const near = Math.exp(-cone.decay(r));
    const share = near / (near + FLOOR);
    const rate = share * cone.rate(r);
    const bend = share * (cone.turn(r) - (1 - share) * cone.rate(r) * cone.rate(r));
    const [be, bn] = [rate * e - ge, rate * n - gn];
    const matrix = [rate + bend * e * e - jee, bend * e * n - jen, rate + bend * n * n - jnn] as const;
    most = Math.max(most, longest(be, bn, ...matrix, rho) + ((rho * rho) / 2) * cone.bendChange(r, rho));
    seen = Math.max(seen, be * be + bn * bn);
  });
  return [Math.sqrt(seen), most * (1 + 1e-12) + rest];
}

class CountingCone extends RoundedCone {
  turns = 0;

  override turn(r: number): number {
    this.turns++;
    return super.turn(r);
  }
}

type Layout = (size: number, next: () => number) => readonly [east: number, north: number];

/** How centres lie, and the part of them that is walked over, at most; between two towns all are equally far. */
const LAYOUTS: [name: string, most: number, layout: Layout][] = [
  ["a grid", 0.4, (size) => [size % 20, Math.floor(size / 20)]],
  ["a line", 0.4, (size) => [size, 0]],
  ["scattered places", 0.4, (_, next) => [30 * next(), 22 * next()]],
  ["two towns far apart", 1, (size, next) => [(size % 2) * 900 + 5 * next(), 5 * next()]],
];

it.each(LAYOUTS)("finds the steepest centre of %s", (_, most, layout) => {
  const next = numbers(7);
  const places = Array.from({ length: 400 }, (_, size) => layout(size, next));
  const [east, north] = [0, 1].map((axis) => Float64Array.from(places, (each) => each[axis]!)) as [
    Float64Array,
    Float64Array,
  ];
  const [right, top] = [Math.max(...east), Math.max(...north)];
  let walked = 0;
  for (const beta of [0.05, 0.8, 4]) {
    const cone = new CountingCone(beta, 0.87);
    const steepest = new Steepest(east, north, cone);
    for (let look = 0; look < 300; look++) {
      const rho = 0.6 * next() ** 3;
      const place = [right * (1.1 * next() - 0.05), top * (1.1 * next() - 0.05)] as const;
      const [long, turn] = [beta * Math.max(1.2 * next() - 0.2, 0), 2 * Math.PI * next()];
      const matrix = [0, 1, 2].map(() => beta ** 2 * (next() - 0.5)) as [number, number, number];
      const mean: Mean = [long * Math.cos(turn), long * Math.sin(turn), ...matrix, 0.01 * next()];
      cone.turns = 0;
      const found = steepest.at(place, mean, rho);
      walked += cone.turns;
      expect(found).toEqual(overAll(east, north, cone, place, mean, rho));
    }
  }
  expect(walked / (3 * 300 * places.length)).toBeLessThan(most);
});

it("bounds a tile that is a single centre, near and far, where nothing is to spare", () => {
  const next = numbers(11);
  const [east, north] = [Float64Array.of(0, 1000), Float64Array.of(0, 0)];
  const below: object[] = []; // asked once: so many expectations would take longer than all the rest
  for (let look = 0; look < 4_000; look++) {
    const beta = 4 * next() + 0.2;
    const cone = new RoundedCone(beta, 0.87);
    const steepest = new Steepest(east, north, cone);
    const far = (20 * next()) / beta; // where the floor of the kernel takes over, and before
    const rho = next() / beta;
    const ahead = beta * Math.max(next() - 0.5, 0);
    const mean: Mean = [0, -ahead, 0, 0, 0, 0];
    steepest.at([0, far], mean, rho);
    const tile = steepest["tiles"].findIndex(({ east }) => east === 0);
    const [seen, most] = overAll(east.subarray(0, 1), north, cone, [0, far], mean, rho);
    const [atMost, withinMost] = [steepest["atMost"][tile]!, steepest["withinMost"][tile]!];
    if (!(atMost >= seen && withinMost >= most)) below.push({ beta, far, rho, atMost, seen, withinMost, most });
  }
  expect(below).toEqual([]);
});
