/** Middles of hexagons for the tests of places. */

export type Corner = readonly [number, number];

/** Middles of hexagons of 1 km², in km. */
export function middles(columns: number, rows: number): readonly Corner[] {
  const pitch = Math.sqrt(2 / Math.sqrt(3));
  return Array.from({ length: columns * rows }, (_, n) => {
    const row = Math.floor(n / columns);
    return [(n % columns) * pitch + (row % 2 ? pitch / 2 : 0), (row * pitch * Math.sqrt(3)) / 2];
  });
}
