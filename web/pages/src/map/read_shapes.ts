/** A GeoJSON file that somebody chose: read strictly, bounded, and kept as nothing but shapes, kinds and names. */

import type { Backdrop } from "./backdrop.ts";
import { say } from "./file_texts.ts";
import type { Box } from "./grid.ts";

/** What the service takes. */
const MOST_BYTES = 4 << 20;
const MOST_POSITIONS = 400_000;
/** Levels of brackets around a position. */
const DEPTH: Readonly<Record<string, number>> = {
  Point: 0,
  MultiPoint: 1,
  LineString: 1,
  MultiLineString: 2,
  Polygon: 2,
  MultiPolygon: 3,
};
const AREAS = ["Polygon", "MultiPolygon"];
const POINTS = ["Point", "MultiPoint"];
/** Lines and areas, points left out; areas only; or areas only, or points only. */
export type Contents = "shapes" | "areas" | "areas or points";
const NAME_LENGTH = 200;

/** A file that was read: its text as the service gets it, and its shapes as a map draws them. */
export interface ShapeFile {
  readonly name: string;
  readonly text: string;
  readonly shapes: Backdrop;
}

/** A file that cannot be used; its message says why, in the reader's words. */
export class UnusableFile extends Error {}

type Feature = Backdrop["features"][number];

/** Read a file; districts are areas, and the area of a campaign is areas too, or points. */
export async function readShapes(file: File, contents: Contents = "shapes"): Promise<ShapeFile> {
  if (file.size > MOST_BYTES) throw new UnusableFile(say.tooLarge);
  const text = await file.text();
  let geoJson: unknown;
  try {
    geoJson = JSON.parse(text);
  } catch {
    throw new UnusableFile(say.noJson);
  }
  return { name: file.name, text, shapes: shapesOf(geoJson, contents) };
}

/** The shapes of parsed GeoJSON. */
export function shapesOf(geoJson: unknown, contents: Contents): Backdrop {
  const features: Feature[] = [];
  const kinds = new Set<boolean>(); // whether points
  let positions = 0;
  const waiting: [unknown, unknown][] = [[geoJson, undefined]];
  while (waiting.length) {
    const [object, properties] = waiting.pop()!;
    if (!isObject(object)) throw new UnusableFile(say.noGeoJson);
    const inside = { FeatureCollection: object["features"], GeometryCollection: object["geometries"] };
    const type = String(object["type"]);
    if (type in inside) {
      const several = inside[type as keyof typeof inside];
      if (!Array.isArray(several)) throw new UnusableFile(say.noGeoJson);
      for (let at = several.length - 1; at >= 0; at--) waiting.push([several[at], properties]);
    } else if (type === "Feature") {
      if (object["geometry"] !== null) waiting.push([object["geometry"], object["properties"]]);
    } else if (contents === "areas or points" || !POINTS.includes(type)) {
      if (!Object.hasOwn(DEPTH, type)) throw new UnusableFile(say.noGeoJson);
      const point = POINTS.includes(type);
      if (contents !== "shapes" && !point && !AREAS.includes(type)) throw new UnusableFile(missing(contents));
      if (kinds.add(point).size > 1) throw new UnusableFile(say.mixed);
      positions += countOf(object["coordinates"], DEPTH[type]!);
      if (positions > MOST_POSITIONS) throw new UnusableFile(say.tooMany);
      features.push({ properties: labels(properties), geometry: { type, coordinates: object["coordinates"] } });
    }
  }
  if (!features.length) throw new UnusableFile(missing(contents));
  return { features };
}

/** The box around all shapes, in degrees; undefined where they have no extent. */
export function boundsOf({ features }: Backdrop): Box | undefined {
  let [south, west, north, east] = [90, 180, -90, -180];
  const visit = (part: unknown): void => {
    const list = part as readonly unknown[];
    if (typeof list[0] !== "number") return list.forEach(visit);
    const [lng, lat] = list as readonly [number, number];
    [west, east] = [Math.min(west, lng), Math.max(east, lng)];
    [south, north] = [Math.min(south, lat), Math.max(north, lat)];
  };
  for (const feature of features) visit(feature.geometry.coordinates);
  return south < north && west < east ? [south, west, north, east] : undefined;
}

/** How many positions a list of coordinates has; refused where it is none of such a depth, in degrees. */
function countOf(part: unknown, depth: number): number {
  if (!Array.isArray(part)) throw new UnusableFile(say.noGeoJson);
  if (depth === 0) {
    const [lng, lat] = part as readonly unknown[];
    const degrees = typeof lng === "number" && typeof lat === "number" && Math.abs(lng) <= 180 && Math.abs(lat) <= 90;
    if (!degrees) throw new UnusableFile(say.noDegrees);
    return 1;
  }
  if (!part.length) throw new UnusableFile(say.noGeoJson);
  return part.reduce((sum: number, inner: unknown) => sum + countOf(inner, depth - 1), 0);
}

function missing(contents: Contents): string {
  return { shapes: say.nothing, areas: say.noArea, "areas or points": say.noAreaNorPoint }[contents];
}

/** Whether the shapes are places, and no areas. */
export function arePoints({ features }: Backdrop): boolean {
  return POINTS.includes(features[0]!.geometry.type);
}

function labels(properties: unknown): Feature["properties"] {
  const { kind, name } = isObject(properties) ? properties : {};
  return {
    ...(typeof kind === "string" ? { kind } : {}),
    ...(typeof name === "string" ? { name: name.slice(0, NAME_LENGTH) } : {}),
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
