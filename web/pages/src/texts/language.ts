import { roundedDown, roundedUp } from "../../../sdk/src/words.ts";

/** One file of texts for each page, complete in every language: what is missing in one does not compile. */

const SPOKEN = ["en", "de"] as const;

/** A language that every page speaks. */
export type Language = (typeof SPOKEN)[number];

/** The first of the reader's languages that the pages speak; English where there is none. */
export function languageOf(tags: readonly string[]): Language {
  for (const tag of tags) {
    const spoken = SPOKEN.find((language) => language === tag.slice(0, 2).toLowerCase());
    if (spoken) return spoken;
  }
  return "en";
}

/** The language of this page, which is also told to the browser for its voice. */
export const language: Language =
  typeof navigator === "undefined" ? "en" : languageOf(navigator.languages ?? [navigator.language]);

/** The texts of a page. English says which there are; every other language must have the same, and no more. */
export function texts<Texts extends object>(english: Texts, german: NoInfer<Texts>): Texts {
  return { en: english, de: german }[language];
}

/** Tell browser and screen reader which language the page speaks, and name the tab. */
export function announce(title: string): void {
  document.documentElement.lang = language;
  document.title = title;
}

// --- Numbers as the reader writes them

/** A number with so many significant digits at most. */
export function number(value: number, digits = 3): string {
  return value.toLocaleString(language, { maximumSignificantDigits: digits });
}

/** A number as one types it: all its digits, and nothing between thousands. */
export function asTyped(value: number): string {
  return language === "de" ? String(value).replace(".", ",") : String(value);
}

/** What something costs, never below it. */
export function cost(value: number): string {
  return number(Number(roundedUp(value)), 6);
}

/** What is left or allowed, never above it. */
export function left(value: number): string {
  return number(Number(roundedDown(value)), 6);
}

/** So many of them, in the singular where it is one. */
export function numberOf(count: number, one: string, several: string): string {
  return `${number(count, 9)} ${count === 1 ? one : several}`;
}

/** A share as a percentage with two digits that count. */
export function percent(share: number): string {
  return `${number(100 * share, 2)} %`;
}

/** A distance: metres below a kilometre. */
export function distance(km: number): string {
  return km < 0.9995 ? `${number(1000 * km)} m` : `${number(km)} km`;
}

/** A number with exactly so many decimals. */
export function fixed(value: number, decimals: number): string {
  return value.toLocaleString(language, { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** Degrees as coordinates are written on maps, with so many decimals. */
export function degrees(lat: number, lng: number, decimals = 4): string {
  const coordinate = (value: number, ahead: string, behind: string): string => {
    return `${fixed(Math.abs(value), decimals)}° ${value < 0 ? behind : ahead}`;
  };
  const [east, west] = language === "de" ? ["O", "W"] : ["E", "W"];
  return `${coordinate(lat, "N", "S")}, ${coordinate(lng, east!, west!)}`;
}
