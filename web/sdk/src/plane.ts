/** Degrees at the border: the plane that touches the WGS84 ellipsoid at one place, in kilometres. */

const EQUATOR_KM = 6378.137;
const FLATTENING = 1 / 298.257223563;
const E2 = FLATTENING * (2 - FLATTENING);
const STRETCH = 1 / (1 - E2);
const LIMB_KM = 6400; // just beyond the outline of the globe seen from above any point
const RADIANS = Math.PI / 180;

/** East and north. */
export type Pair = readonly [number, number];

/** A longitude in −180 ≤ lng < 180; one that already is stays exactly as it is. */
export function wrapped(lng: number): number {
  if (lng >= -180 && lng < 180) return lng;
  const turned = (lng % 360) + (lng < 0 ? 360 : 0); // to the last digit as everywhere
  return turned >= 180 ? turned - 360 : turned;
}

/** x east, y north, in kilometres; sound across ±180° and beside the poles. */
export class TangentPlane {
  readonly lat: number;
  readonly lng: number;
  private readonly sine: number;
  private readonly cosine: number;
  private readonly normal: number;

  constructor(lat: number, lng: number) {
    if (!(Math.abs(lat) <= 90) || !Number.isFinite(lng)) throw new RangeError("lat and lng must be degrees");
    this.lat = lat;
    this.lng = wrapped(lng);
    this.sine = Math.sin(lat * RADIANS);
    this.cosine = Math.cos(lat * RADIANS);
    this.normal = EQUATOR_KM / Math.sqrt(1 - E2 * this.sine * this.sine);
  }

  /**
   * A place in the plane. The far side of the globe is folded back onto the near one, as it would be seen
   * through the ground: no two places come farther apart than they are. Unfolded, all of it is one place,
   * due north beyond every point of the near side.
   */
  toPlane(lat: number, lng: number, folded = true): Pair {
    const turn = (wrapped(lng) - this.lng) * RADIANS;
    const sine = Math.sin(lat * RADIANS);
    const cosine = Math.cos(lat * RADIANS);
    const normal = EQUATOR_KM / Math.sqrt(1 - E2 * sine * sine);
    const axial = cosine * Math.cos(turn); // towards the meridian of the origin
    if (!folded && this.cosine * axial + this.sine * sine < 0) return [0, LIMB_KM];
    const north = normal * (this.cosine * (1 - E2) * sine - this.sine * axial);
    return [normal * (cosine * Math.sin(turn)), north + E2 * this.normal * this.sine * this.cosine];
  }

  /** Latitude and longitude in degrees; the height above the plane solves A u² + 2 B u + C = 0. */
  toLatLng([east, north]: Pair): Pair {
    const a = this.cosine ** 2 + STRETCH * this.sine ** 2;
    const b = this.normal + (STRETCH - 1) * this.sine * this.cosine * north;
    const c = east * east + (this.sine ** 2 + STRETCH * this.cosine ** 2) * north * north;
    const up = -c / (b + Math.sqrt(b * b - a * c)); // the root near 0, without cancellation
    const x = this.normal * this.cosine - this.sine * north + this.cosine * up;
    const z = (this.normal * this.sine) / STRETCH + this.cosine * north + this.sine * up;
    const lat = Math.atan2(z, Math.hypot(x, east) / STRETCH) / RADIANS;
    return [lat, wrapped(this.lng + Math.atan2(east, x) / RADIANS)];
  }
}
