/** A location on its way to a drawn cell: read once, drawn from, and forgotten. */

import { isNumber, isObject } from "./canonical.ts";
import { whenAborted } from "./collector.ts";
import type { MechanismDocument } from "./document.ts";
import type { Drawn } from "./ledger.ts";
import { InvalidInput, Refused } from "./refusal.ts";
import { general } from "./words.ts";

/** Where somebody is, in degrees, and how accurate that is in kilometres, if it was measured. */
export interface Fix {
  readonly lat: number;
  readonly lng: number;
  readonly accuracyKm?: number | undefined;
}

/** A fix, or a function that reads one; it is called only after every check has passed. */
export type Locate = Fix | (() => Fix | Promise<Fix>);

/** A location outside the cells: a report is drawn there too, or nothing is sent. */
export type Beyond = "clamp" | "refuse";

const DEGREE_KM = 111.3; // of latitude
const FINEST_DECIMALS = 6;

/** How the browser measures: its own name for this is known to pages only, and Node and workers compile this too. */
interface MeasuringOptions {
  readonly enableHighAccuracy?: boolean;
  readonly maximumAge?: number;
  readonly timeout?: number;
}

/** The browser's location, for `report`; what the browser throws is thrown as it is. */
export function browserLocation(options: MeasuringOptions = {}): () => Promise<Fix> {
  return () =>
    new Promise((resolve, reject) => {
      const settings = { enableHighAccuracy: true, maximumAge: 0, timeout: 30_000, ...options };
      navigator.geolocation.getCurrentPosition(
        ({ coords }) => {
          resolve({ lat: coords.latitude, lng: coords.longitude, accuracyKm: coords.accuracy / 1000 });
        },
        reject,
        settings,
      );
    });
}

/** Refuse what is neither a fix nor a function, without its value. */
export function checkLocate(where: Locate | undefined): void {
  const fix = isObject(where) && "lat" in where && "lng" in where;
  if (!fix && typeof where !== "function")
    throw new InvalidInput("report must be given lat and lng, or a function that reads them");
}

/** Read the location, unless that is cancelled: whoever is asked for a permission may never answer. */
export async function locationOf(where: Locate, signal?: AbortSignal): Promise<Fix> {
  signal?.throwIfAborted();
  if (typeof where !== "function") return where;
  return new Promise((resolve, reject) => {
    const end = whenAborted(signal, reject); // why is said by whoever made the signal
    void Promise.resolve().then(where).finally(end).then(resolve, reject);
  });
}

/** Draw from a location; the same work everywhere. */
export function drawFrom(fix: Fix, document: MechanismDocument, bits: Uint8Array, outside: Beyond): Drawn {
  const { area, law } = document;
  const { lat, lng, accuracyKm } = { ...fix } as Partial<Fix>;
  if (!isNumber(lat) || !isNumber(lng) || Math.abs(lat) > 90) throw new Refused("location");
  if (accuracyKm !== undefined) checkAccuracy(lat, lng, accuracyKm, area.cellKm);
  if (outside === "refuse" && !area.inside(lat, lng)) throw new Refused("outside");
  const cell = law.draw(law.stepsOf(area.placeKm(lat, lng)), bits);
  const { pitchKm, east, north } = law.centres;
  const centre = area.toLatLng([east[cell]! * pitchKm, north[cell]! * pitchKm]);
  return { cell, lat: centre[0], lng: centre[1] };
}

/** Refuse a measured fix that is coarser than a cell, or was snapped to such a raster; for the map's sake. */
function checkAccuracy(lat: number, lng: number, accuracyKm: number, cellKm: number): void {
  const cells = `cells of ${general(1000 * cellKm, 4)} m`;
  if (!(accuracyKm >= 0 && accuracyKm <= cellKm)) throw new Refused("accuracy", cells);
  if (rasterKm(lat, lng) > cellKm) throw new Refused("accuracy", `snapped to a raster; ${cells}`);
}

/** How far apart places are that have no more decimals than this one. */
function rasterKm(lat: number, lng: number): number {
  for (let decimals = 0; decimals < FINEST_DECIMALS; decimals++) {
    const whole = [lat, lng].every((degrees) => Number(degrees.toFixed(decimals)) === degrees);
    if (whole) return DEGREE_KM / 10 ** decimals;
  }
  return 0;
}
