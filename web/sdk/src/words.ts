/**
 * Every sentence about privacy, made in one place from a promise; the same as those of the Python device.
 *
 * Numbers that bound a loss are rounded up, and those that bound how much two people have in common down.
 */

import type { MechanismDocument, Promised } from "./document.ts";
import { slotInWords } from "./slots.ts";

/** How far apart the two people are whom a sentence speaks of. */
export const NEARBY_KM = 0.2;

const ALIKE = Math.log(10); // up to this loss two people are said to be able to send the same report
const MOST_IN_WORDS = 1e6;
const DOUBLES = 1e-12; // what doubles are off by is no reason to round to the next digit

/** A number that is not negative with so many digits, never below it. */
export function roundedUp(value: number, digits = 6): string {
  return rounded(value, 1 - DOUBLES, digits);
}

/** A number that is not negative with so many digits, never above it. */
export function roundedDown(value: number, digits = 6): string {
  return rounded(value, 1 + DOUBLES, digits);
}

function rounded(value: number, slack: number, digits: number): string {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const [mantissa, exponent] = Math.min(value * slack, Number.MAX_VALUE)
    .toExponential(60)
    .split("e") as [string, string];
  const all = mantissa.replace(".", "");
  const more = slack < 1 && /[1-9]/.test(all.slice(digits)) ? 1n : 0n;
  return general(Number(`${BigInt(all.slice(0, digits)) + more}e${Number(exponent) - digits + 1}`), digits);
}

/** So many significant digits, without zeros at the end. */
export function general(value: number, digits: number): string {
  if (value === 0) return "0";
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e") as [string, string];
  const strip = (text: string): string => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  const power = Number(exponent);
  if (power >= -4 && power < digits) return strip(value.toFixed(digits - 1 - power));
  return `${strip(mantissa)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

/** What a promise costs, in a few words. */
export function amount({ epsilonPerKm, slackNats }: Promised): string {
  return `ε = ${roundedUp(epsilonPerKm)} per km and ${roundedUp(slackNats, 2)} for rounding`;
}

/** What a promise means for two people so far apart; never more favourable than it is. */
export interface Odds {
  /** εd + η. */
  readonly level: number;
  /** A report is at most so many times as likely from one as from the other; Infinity from a million on. */
  readonly times: number;
  /** Who knows it was one of the two, and nothing else, guesses right at most so often of 100 times. */
  readonly guessedOf100: number;
}

export function odds({ epsilonPerKm, slackNats }: Promised, apartKm: number): Odds {
  const level = epsilonPerKm * apartKm + slackNats;
  return { level, times: timesOf(level), guessedOf100: Math.ceil((100 / (1 + Math.exp(-level))) * (1 - DOUBLES)) };
}

/** What reports tell about two people 200 m apart, in plain words; with several, of all of them together. */
export function explainPromise(promise: Promised, reports = 1): string {
  const { level } = odds(promise, NEARBY_KM);
  const several = reports > 1;
  const away = `${roundedDown(NEARBY_KM * 1000, 4)} m`;
  const same = several ? `${grouped(reports)} reports, where neither of you moves` : "report";
  const pair =
    level <= ALIKE
      ? `Whoever stands within ${away} of you could have sent the same ${same}`
      : `Two people ${away} apart${several ? ", who do not move" : ""}`;
  return sentence(pair, level, reports);
}

/** The same about people who move a little between their reports, each within 100 m of a place of their own. */
export function explainNearby(promise: Promised, reports: number): string {
  const pair = "Two people who each stay within 100 m of a place, these places 200 m apart";
  return sentence(pair, odds(promise, 2 * NEARBY_KM).level, reports);
}

/** The same about two people whose trips begin and end 200 m apart; `promise` is the promise of one end. */
export function explainTrip(promise: Promised): string {
  const away = `${roundedDown(NEARBY_KM * 1000, 4)} m apart`;
  const pair = `Two people whose trips begin ${away} and end ${away}`;
  return sentence(pair, 2 * odds(promise, NEARBY_KM).level, 1);
}

function sentence(pair: string, level: number, reports: number): string {
  const several = reports > 1;
  const what = several ? `any ${grouped(reports)} reports together are` : "any report is";
  if (level === 0) return `${pair}: ${what} exactly as likely from one as from the other.`;
  const times = timesOf(level);
  return (
    `${pair}: ${what} at most ${times < Infinity ? grouped(times) : `e^${roundedUp(level, 3)}`} times as likely from one as from the other` +
    `${frequency(level, several ? "sets of reports" : "reports")}.`
  );
}

function timesOf(level: number): number {
  return level < Math.log(MOST_IN_WORDS) ? Number(roundedUp(Math.exp(level), 3)) : Infinity;
}

function frequency(level: number, what: string): string {
  let of = 100;
  while (of * Math.exp(-level) < 1 && of < MOST_IN_WORDS) of *= 10;
  const least = Math.floor(of * Math.exp(-level) * (1 + DOUBLES));
  if (!least) return "";
  return `; of ${grouped(of)} such ${what} from one, at least ${least} on average would also come from the other`;
}

function grouped(value: number): string {
  return value.toLocaleString("en-US", { maximumSignificantDigits: 6 });
}

/** How far from the middle of the map a report from there lies on average. */
export function meanDistanceKm({ law }: MechanismDocument): number {
  const { centres } = law;
  const middle = [0, 1].map((axis) => ((centres.low[axis]! + centres.high[axis]!) / 2) * centres.pitchKm) as [
    number,
    number,
  ];
  let [weight, weighted] = [0, 0];
  law.row(law.stepsOf(middle)).forEach((entry, report) => {
    const [east, north] = [centres.east[report]! * centres.pitchKm, centres.north[report]! * centres.pitchKm];
    weight += Number(entry);
    weighted += Number(entry) * Math.hypot(east - middle[0], north - middle[1]);
  });
  return weighted / weight;
}

/** What a report tells about two people, what is sent (the slot among it), and how far from the truth it lies. */
export function explainDocument(document: MechanismDocument, slot?: number): string {
  const { area, rim, law, promise, slots, trips } = document;
  const when =
    slots && slot !== undefined
      ? `, and the slot of now (${slotInWords(slots, slot)}), which says when, not where, and is not changed by chance`
      : "";
  const meanKm = general(meanDistanceKm(document), 2);
  const side = `${(1000 * area.cellKm).toFixed(0)} m`;
  const cells = law.centres.lattice
    ? `${area.size} cells of ${side}${rim ? " or of a ring around them" : ""}`
    : `${area.size} places about ${side} apart`;
  if (trips)
    return (
      `${explainTrip(promise)} Two of ${cells} would be sent, one drawn at random around where your trip began and ` +
      `one around where it ended, with a random number and the id of the rule they were drawn by${when}; nothing ` +
      `else. From the middle of the map each lies ${meanKm} km away on average. That both ends are one person's is ` +
      "known, and is why a trip costs twice."
    );
  const stand = `where you stand${law.centres.lattice ? "" : ", at one of them or elsewhere"}`;
  return (
    `${explainPromise(promise)} One of ${cells} would be sent, drawn at random around ${stand}, with a random ` +
    `number and the id of the rule it was drawn by${when}; nothing else. From the middle of the map it lies ` +
    `${meanKm} km away on average.`
  );
}
