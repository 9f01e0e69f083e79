/** Colours of maps: a scale whose steps look equally far apart, and one that says less where less is known. */

export type Colour = readonly [red: number, green: number, blue: number];

/** Lightness, chroma and hue in OKLCH, at equal distances along a scale; hue in degrees. */
type Stop = readonly [lightness: number, chroma: number, hue: number];

// From paper to dark violet by way of amber and red; in the dark from night to pale yellow. The ends of each stand
// out from the ground of the page, and lightness alone, which everybody sees, tells the order.
const LIGHT: readonly Stop[] = [
  [0.965, 0.018, 95],
  [0.88, 0.095, 82],
  [0.77, 0.135, 55],
  [0.64, 0.165, 28],
  [0.5, 0.165, 355],
  [0.36, 0.14, 318],
  [0.23, 0.09, 290],
];
const DARK: readonly Stop[] = [
  [0.235, 0.022, 255],
  [0.34, 0.11, 292],
  [0.46, 0.155, 325],
  [0.58, 0.165, 5],
  [0.7, 0.15, 35],
  [0.83, 0.13, 75],
  [0.955, 0.075, 100],
];
const STEPS = 256;
const FINE = 2048;

type Lab = readonly [number, number, number];

function labOf([lightness, chroma, hue]: Stop): Lab {
  const turn = (hue * Math.PI) / 180;
  return [lightness, chroma * Math.cos(turn), chroma * Math.sin(turn)];
}

/** OKLab to the bytes of a screen. */
export function bytesOf([lightness, a, b]: Lab): Colour {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const screen = (value: number): number => {
    const within = Math.min(1, Math.max(0, value));
    return Math.round(255 * (within <= 0.0031308 ? 12.92 * within : 1.055 * within ** (1 / 2.4) - 0.055));
  };
  return [
    screen(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    screen(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    screen(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function between(stops: readonly Stop[], at: number): Lab {
  const place = at * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(place));
  const part = place - index;
  const one = labOf(stops[index]!);
  const other = labOf(stops[index + 1]!);
  return [0, 1, 2].map((n) => one[n]! + part * (other[n]! - one[n]!)) as unknown as Lab;
}

/** A scale cut into steps that are equally far apart in OKLab, so that equal steps of value look equal. */
export function evenScale(dark: boolean): readonly Lab[] {
  const path = Array.from({ length: FINE }, (_, n) => between(dark ? DARK : LIGHT, n / (FINE - 1)));
  const lengths = [0];
  for (let n = 1; n < FINE; n++) {
    lengths.push(lengths[n - 1]! + Math.hypot(...[0, 1, 2].map((axis) => path[n]![axis]! - path[n - 1]![axis]!)));
  }
  const whole = lengths[FINE - 1]!;
  let at = 0;
  return Array.from({ length: STEPS }, (_, step) => {
    while (at < FINE - 1 && lengths[at]! < (step / (STEPS - 1)) * whole) at++;
    return path[at]!;
  });
}

const scales = new Map<boolean, readonly Lab[]>();

function scale(dark: boolean): readonly Lab[] {
  let steps = scales.get(dark);
  if (!steps) scales.set(dark, (steps = evenScale(dark)));
  return steps;
}

/** The colour of a value from 0 to 1. */
export function colour(value: number, dark: boolean): Colour {
  return bytesOf(scale(dark)[Math.round(Math.min(1, Math.max(0, value)) * (STEPS - 1))]!);
}

/** Where too little is known for any colour of the scale. */
export function unknownColour(dark: boolean): Colour {
  return bytesOf([dark ? 0.4 : 0.78, 0, 0]);
}

/** As CSS writes it. */
export function css([red, green, blue]: Colour): string {
  return `rgb(${red} ${green} ${blue})`;
}
