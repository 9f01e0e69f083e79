/** Cells on a canvas: one shade for each, from nothing to the accent of the page. */

import type { Shape } from "./places.ts";
import { toScreen, type View } from "./view.ts";

/** Where cells lie, in km; squares on a grid, and elsewhere their shapes. */
export interface CellMap {
  readonly east: ArrayLike<number>;
  readonly north: ArrayLike<number>;
  readonly cellKm: number;
  readonly shapes?: readonly Shape[] | undefined;
}

/** Colours as CSS writes them, read from the page so that light and dark are its own. */
export interface Palette {
  readonly ground: string;
  readonly empty: string;
  readonly full: string;
  readonly line: string;
}

const EVEN = 0.6; // a power below 1: shares that are small beside the largest are still seen

/**
 * Draw every cell; `shades` from 0 to 1, none for an empty map. `inside` tells those that belong to the map itself, and
 * `covering` how much the empty ones hide of what lies behind them.
 */
export function drawCells(
  context: CanvasRenderingContext2D,
  view: View,
  cells: CellMap,
  shades: ArrayLike<number> | undefined,
  inside: (cell: number) => boolean,
  palette: Palette,
  covering = 1,
): void {
  const side = cells.cellKm * view.pixelsPerKm;
  const gap = side > 6 ? 1 : 0;
  for (let cell = 0; cell < cells.east.length; cell++) {
    const [x, y] = toScreen(view, [cells.east[cell]!, cells.north[cell]!]);
    if (x < -side || y < -side || x > view.width + side || y > view.height + side) continue;
    const path = new Path2D();
    const shape = cells.shapes?.[cell];
    if (!shape) {
      const [left, top] = [edge(x - side / 2), edge(y - side / 2)];
      path.rect(left, top, edge(x + side / 2) - left - gap, edge(y + side / 2) - top - gap);
    } else {
      const inner = Math.max(0.5, 1 - gap / side);
      shape.forEach((corner, at) => {
        const [right, down] = toScreen(view, corner);
        const to = [x + (right - x) * inner, y + (down - y) * inner] as const;
        if (at) path.lineTo(...to);
        else path.moveTo(...to);
      });
      path.closePath();
    }
    if (inside(cell)) {
      context.globalAlpha = covering;
      context.fillStyle = palette.empty;
      context.fill(path);
    }
    const shade = shades?.[cell] ?? 0;
    if (shade > 0) {
      context.globalAlpha = shade ** EVEN;
      context.fillStyle = palette.full;
      context.fill(path);
    }
  }
  context.globalAlpha = 1;
}

/** A whole pixel, the same for the two cells that meet there. */
function edge(at: number): number {
  return Math.floor(at + 0.5 + 1e-6);
}

/** The palette of the page as it is now. */
export function paletteOf(element: Element): Palette {
  const style = getComputedStyle(element);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  return {
    ground: colour("--map-ground"),
    empty: colour("--map-empty"),
    full: colour("--map-full"),
    line: colour("--map-line"),
  };
}
