/** Where kilometres lie on the screen: a plane seen from above, north up. */

/** East and north in km. */
export type Place = readonly [east: number, north: number];

/** A part of the plane on a rectangle of the screen. */
export interface View {
  /** What lies in the middle. */
  readonly centre: Place;
  readonly pixelsPerKm: number;
  readonly width: number;
  readonly height: number;
}

/** All of a rectangle, with a margin in pixels around it. */
export function fitted(low: Place, high: Place, width: number, height: number, margin: number): View {
  const [across, up] = [high[0] - low[0], high[1] - low[1]];
  const pixelsPerKm = Math.min((width - 2 * margin) / across, (height - 2 * margin) / up);
  return { centre: [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2], pixelsPerKm, width, height };
}

export function toScreen({ centre, pixelsPerKm, width, height }: View, [east, north]: Place): [x: number, y: number] {
  return [width / 2 + (east - centre[0]) * pixelsPerKm, height / 2 - (north - centre[1]) * pixelsPerKm];
}

export function toPlace({ centre, pixelsPerKm, width, height }: View, x: number, y: number): Place {
  return [centre[0] + (x - width / 2) / pixelsPerKm, centre[1] - (y - height / 2) / pixelsPerKm];
}

/** The view after zooming so many times around a point of the screen. */
export function zoomed(view: View, times: number, x = view.width / 2, y = view.height / 2): View {
  const [east, north] = toPlace(view, x, y);
  const pixelsPerKm = view.pixelsPerKm * times;
  return {
    ...view,
    pixelsPerKm,
    centre: [east - (x - view.width / 2) / pixelsPerKm, north + (y - view.height / 2) / pixelsPerKm],
  };
}

/** The longest of 1, 2, 5, 10 … km (or m) that a bar of so many pixels shows. */
export function scaleBarKm(view: View, longestPixels: number): number {
  const longest = longestPixels / view.pixelsPerKm;
  const power = 10 ** Math.floor(Math.log10(longest));
  return [5, 2, 1].map((step) => step * power).find((km) => km <= longest * (1 + 1e-9)) ?? power;
}
