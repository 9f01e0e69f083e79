/** A GeoJSON file that somebody chose: read strictly, bounded, and kept as nothing but shapes, kinds and names. */

import type { Backdrop } from "./backdrop.ts";
import { say } from "./file_texts.ts";
import type { Box } from "./grid.ts";

/** What the service takes. */
const MOST_BYTES = 4 << 20;
const MOST_POSITIONS = 400_000;
/** Levels of brackets around a position. */
const DEPTH: Readonly<Record<string, number>> = { LineString: 1, MultiLineString: 2, Polygon: 2, MultiPolygon: 3 };
const AREAS = ["Polygon", "MultiPolygon"];
const LEFT_OUT = ["Point", "MultiPoint"];
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

/** Read a file; with `areas` its shapes must be areas, as those of city limits and districts are. */
export async function readShapes(file: File, { areas = false } = {}): Promise<ShapeFile> {
  if (file.size > MOST_BYTES) throw new UnusableFile(say.tooLarge);
  const text = await file.text();
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch {
    throw new UnusableFile(say.noJson);
  }
  return { name: file.name, text, shapes: shapesOf(given, areas) };
}

/** The lines and areas of parsed GeoJSON. */
export function shapesOf(given: unknown, areas: boolean): Backdrop {
  const features: Feature[] = [];
  let positions = 0;
  const waiting: [unknown, unknown][] = [[given, undefined]];
  while (waiting.length) {
    const [found, properties] = waiting.pop()!;
    if (!isObject(found)) throw new UnusableFile(say.noGeoJson);
    const inside = { FeatureCollection: found["features"], GeometryCollection: found["geometries"] };
    const type = String(found["type"]);
    if (type in inside) {
      const several = inside[type as keyof typeof inside];
      if (!Array.isArray(several)) throw new UnusableFile(say.noGeoJson);
      for (let at = several.length - 1; at >= 0; at--) waiting.push([several[at], properties]);
    } else if (type === "Feature") {
      if (found["geometry"] !== null) waiting.push([found["geometry"], found["properties"]]);
    } else if (!LEFT_OUT.includes(type)) {
      if (!Object.hasOwn(DEPTH, type)) throw new UnusableFile(say.noGeoJson);
      if (areas && !AREAS.includes(type)) throw new UnusableFile(say.noArea);
      positions += countOf(found["coordinates"], DEPTH[type]!);
      if (positions > MOST_POSITIONS) throw new UnusableFile(say.tooMany);
      features.push({ properties: said(properties), geometry: { type, coordinates: found["coordinates"] } });
    }
  }
  if (!features.length) throw new UnusableFile(areas ? say.noArea : say.nothing);
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
  return part.reduce((sum: number, each: unknown) => sum + countOf(each, depth - 1), 0);
}

function said(properties: unknown): Feature["properties"] {
  const { kind, name } = isObject(properties) ? properties : {};
  return {
    ...(typeof kind === "string" ? { kind } : {}),
    ...(typeof name === "string" ? { name: name.slice(0, NAME_LENGTH) } : {}),
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
