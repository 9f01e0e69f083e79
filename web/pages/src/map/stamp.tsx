/** A map as a picture of one pixel a cell, which canvases and the browser enlarge. */

import { useEffect, useRef } from "preact/hooks";
import type { Colour } from "./colours.ts";
import type { Cells } from "./grid.ts";

/** Paint every cell on a canvas of a pixel each, north above; what `paint` leaves out, and what is no cell, is clear. */
export function paintCells(
  canvas: HTMLCanvasElement,
  cells: Cells,
  paint: (cell: number) => Colour | undefined,
): HTMLCanvasElement {
  canvas.width = cells.columns;
  canvas.height = cells.rows;
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(cells.columns, cells.rows);
  for (let cell = 0; cell < cells.size; cell++) {
    const found = paint(cell);
    if (!found) continue;
    const [row, column] = cells.placeOf(cell);
    const at = 4 * ((cells.rows - 1 - row) * cells.columns + column); // pictures begin in the north
    image.data.set(found, at);
    image.data[at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

interface Painted {
  readonly cells: Cells;
  readonly paint: (cell: number) => Colour;
  /** What the colours depend on: painted anew when one of these changes. */
  readonly of: readonly unknown[];
}

/** A small map without words; what it shows is said beside it. */
export function Stamp({ cells, paint, of }: Painted) {
  const place = useRef<HTMLCanvasElement>(null);
  useEffect(() => void paintCells(place.current!, cells, paint), [cells, ...of]);
  return <canvas ref={place} class="stamp" width={cells.columns} height={cells.rows} aria-hidden="true" />;
}
