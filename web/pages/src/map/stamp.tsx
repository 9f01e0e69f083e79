/** A map as a picture of one pixel a square cell, which canvases and the browser enlarge; of places in some pixels. */

import { useEffect, useRef } from "preact/hooks";
import type { Colour } from "./colours.ts";
import type { AnyCells } from "./places.ts";

/** Paint every cell on a small canvas, north above; what `paint` leaves out, and what is no cell, is clear. */
export function paintCells(
  canvas: HTMLCanvasElement,
  cells: AnyCells,
  paint: (cell: number) => Colour | undefined,
): HTMLCanvasElement {
  canvas.width = cells.columns;
  canvas.height = cells.rows;
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(cells.columns, cells.rows);
  const colours = Array.from({ length: cells.size }, (_, cell) => paint(cell));
  for (let row = 0; row < cells.rows; row++) {
    for (let column = 0; column < cells.columns; column++) {
      const cell = cells.in(row, column);
      const colour = cell === undefined ? undefined : colours[cell];
      if (!colour) continue;
      const at = 4 * ((cells.rows - 1 - row) * cells.columns + column); // pictures begin in the north
      image.data.set(colour, at);
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

interface StampProps {
  readonly cells: AnyCells;
  readonly paint: (cell: number) => Colour;
  /** What the colours depend on: painted anew when one of these changes. */
  readonly of: readonly unknown[];
}

/** A small map without words; what it shows is said beside it. */
export function Stamp({ cells, paint, of }: StampProps) {
  const place = useRef<HTMLCanvasElement>(null);
  useEffect(() => void paintCells(place.current!, cells, paint), [cells, ...of]);
  return <canvas ref={place} class="stamp" width={cells.columns} height={cells.rows} aria-hidden="true" />;
}
