/** What lies behind the cells of every map of a campaign: lines and areas that its operator gave. */

import type { TangentPlane } from "../../../sdk/src/plane.ts";

/** As the service keeps it. */
export interface Backdrop {
  readonly features: readonly {
    readonly properties: { readonly kind?: string; readonly name?: string };
    readonly geometry: { readonly type: string; readonly coordinates: unknown };
  }[];
}

/** A line or an area in km east and north, as a canvas draws it. */
export interface Outline {
  readonly kind: string;
  readonly area: boolean;
  readonly path: Path2D;
}

/** How much of a full cell's colour, and of an empty one's, covers what lies behind it. */
export const COVERING = 0.86;
export const THIN = 0.5;

/** What an operator's district says it is: it has a name, and is drawn by the line around it. */
export const DISTRICT = "district";

/** A shape as a canvas draws it, in km of the plane. */
export function pathOf(geometry: Backdrop["features"][number]["geometry"], plane: TangentPlane): Path2D {
  const path = new Path2D();
  for (const line of linesOf(geometry)) {
    line.forEach(([lng, lat], n) => {
      const [east, north] = plane.toPlane(lat!, lng!, false);
      if (n) path.lineTo(east, north);
      else path.moveTo(east, north);
    });
  }
  return path;
}

export function outlinesOf(backdrop: Backdrop | undefined, plane: TangentPlane): readonly Outline[] {
  return (backdrop?.features ?? []).map(({ properties, geometry }) => {
    const kind = properties.kind ?? "line";
    return { kind, area: geometry.type.endsWith("Polygon") && kind !== DISTRICT, path: pathOf(geometry, plane) };
  });
}

/** Draw the areas or the lines; (x, y) is where the plane has its origin, in pixels of the page. */
export function drawOutlines(
  context: CanvasRenderingContext2D,
  outlines: readonly Outline[],
  which: "areas" | "lines",
  [x, y]: readonly [number, number],
  pixelsPerKm: number,
): void {
  const look = getComputedStyle(context.canvas);
  context.save();
  context.transform(pixelsPerKm, 0, 0, -pixelsPerKm, x, y);
  context.lineJoin = "round";
  for (const { kind, area, path } of outlines) {
    const paint = look.getPropertyValue(`--behind-${kind}`);
    if (area && which === "areas") {
      context.fillStyle = paint;
      context.fill(path, "evenodd");
    } else if (!area && which === "lines") {
      context.strokeStyle = paint;
      context.lineWidth = (kind === "border" || kind === DISTRICT ? 1.6 : 1) / pixelsPerKm;
      context.stroke(path);
    }
  }
  context.restore();
}

/** Areas as the lines around them: city limits and districts, over the cells. */
export function bordersOf(areas: Backdrop | undefined): Backdrop {
  const features = (areas?.features ?? []).map(({ properties, geometry }) => ({
    properties: { ...properties, kind: "border" },
    geometry: { type: "MultiLineString", coordinates: linesOf(geometry) },
  }));
  return { features };
}

function linesOf({ type, coordinates }: { type: string; coordinates: unknown }): readonly number[][][] {
  if (type === "LineString") return [coordinates as number[][]];
  if (type === "MultiPolygon") return (coordinates as number[][][][]).flat();
  return coordinates as number[][][];
}
