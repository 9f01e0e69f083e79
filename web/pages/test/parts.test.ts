/** What the pages share: languages, numbers as people write them, and where kilometres lie on a screen. */

import { expect, it } from "vitest";
import { inGerman } from "../src/dashboard/problem_words.tsx";
import { fitted, scaleBarKm, toPlace, toScreen, zoomed } from "../src/map/view.ts";
import { say } from "../src/participant/texts.ts";
import { REASONS } from "../../sdk/src/refusal.ts";
import { cost, languageOf, left } from "../src/texts/language.ts";

it("speaks the first language that the reader has and the pages know", () => {
  expect(languageOf(["fr-CA", "de-AT", "en"])).toBe("de");
  expect(languageOf(["en-GB", "de"])).toBe("en");
  expect(languageOf(["ja"])).toBe("en");
  expect(languageOf([])).toBe("en");
});

it("fits a rectangle into a view, north up, and finds places again", () => {
  const view = fitted([-2, -1], [6, 3], 420, 320, 10);
  expect(view.pixelsPerKm).toBe(50);
  expect(toScreen(view, [-2, 3])[0]).toBeCloseTo(10);
  expect(toScreen(view, [0, 3])[1]).toBeLessThan(toScreen(view, [0, -1])[1]);
  for (const place of [
    [0, 0],
    [5.25, -0.5],
  ] as const) {
    const [x, y] = toScreen(view, place);
    expect(toPlace(view, x, y)[0]).toBeCloseTo(place[0]);
    expect(toPlace(view, x, y)[1]).toBeCloseTo(place[1]);
  }
});

it("zooms around a point, which stays where it is", () => {
  const view = fitted([0, 0], [10, 10], 300, 300, 0);
  const nearer = zoomed(view, 4, 30, 60);
  expect(nearer.pixelsPerKm).toBe(120);
  expect(toPlace(nearer, 30, 60)[0]).toBeCloseTo(toPlace(view, 30, 60)[0]);
  expect(toPlace(nearer, 30, 60)[1]).toBeCloseTo(toPlace(view, 30, 60)[1]);
});

it("draws a scale bar of a round length that is no longer than it may be", () => {
  for (const pixelsPerKm of [0.3, 1, 7, 50, 333, 4000]) {
    const view = { centre: [0, 0] as const, pixelsPerKm, width: 300, height: 200 };
    const km = scaleBarKm(view, 100);
    expect(km * pixelsPerKm).toBeLessThanOrEqual(100 * (1 + 1e-9));
    expect(km * pixelsPerKm).toBeGreaterThan(39);
    expect(Number((km / 10 ** Math.floor(Math.log10(km) + 1e-9)).toPrecision(3))).toSatisfy((digit: number) =>
      [1, 2, 5].includes(digit),
    );
  }
});

it("costs are never said to be less than they are, nor what is left to be more", () => {
  expect([cost(0.69314712), left(0.69314789), cost(2), left(10), cost(0)]).toEqual([
    "0.693148",
    "0.693147",
    "2",
    "10",
    "0",
  ]);
});

it("tells people why nothing was reported in their words, not in those of programs", () => {
  expect(Object.keys(say.reasons)).toEqual(expect.arrayContaining(Object.keys(REASONS)));
  for (const words of Object.values(say.reasons)) {
    expect(words).not.toMatch(/collector|ledger|mechanism|document|process|\bfix\b|\bbox\b|\bcells?\b|reportTrip|_/i);
  }
});

it("has German for every sentence about a campaign to be", () => {
  const likely = "any report is at most 5.03 times as likely from one as from the other";
  const often = "of 1,000 such reports from one, at least 9 on average would also come from the other";
  const said = {
    [`Whoever stands within 200 m of you could have sent the same report: ${likely}; ${often}.`]:
      /^Wer im Umkreis von 200 m .* höchstens 5,03-mal .*; von 1\.000 .* mindestens 9 auch von der anderen\.$/,
    [`Two people 200 m apart: ${likely}.`]: /^Zwei Menschen, die 200 m voneinander stehen: .* von der anderen\.$/,
    [`Two people whose trips begin 200 m apart and end 200 m apart: ${likely}; ${often}.`]:
      /^Zwei Menschen, deren Wege 200 m voneinander beginnen/,
    "A report lands 1.1 km from its person on average.": /im Mittel 1,1 km von/,
    "It tells 1.6 of the 5.1 bits of which cell a person is in.": /1,6 der 5,1 Bit .* in welcher Zelle/,
    "It tells 1.6 of the 5.1 bits of which place a person is at.": /an welchem Ort/,
    "With 1 report of an example city the map that comes back is about 2.2 km off, and the map of the reports as they are 2.5 km.":
      /^Mit 1 Meldung einer .* etwa 2,2 km daneben, .* um 2,5 km\.$/,
    "Worked out on 140 cells of 0.58 km in the place of your 1,920.": /140 Zellen von 0,58 km anstelle Ihrer 1\.920/,
    "Worked out on the middle of your area of 17,018 cells: 156 cells of 1 km, and in proportion 1,132 of 123,456 people.":
      /17\.018 Zellen: 156 Zellen von 1 km, .* 1\.132 von 123\.456 Menschen/,
    "A trip costs ε = 4.2 per km, and the page at the campaign's link sends nothing above 2 per km unless the person raises that limit there: nobody else can take part on it.":
      /^Ein Weg kostet ε = 4,2 je km, .* nichts über 2 je km, /,
    "The page at the campaign's link lets nobody choose a promise above 2 per km unless the person raises that limit there.":
      /niemand ein Versprechen über 2 je km wählen/,
    "A trip is charged twice, since it is two reports that are known to be one person's.": /kostet doppelt/,
    "Each end of a trip lands 1.1 km from where it was on average, and tells 1.6 of the 5.1 bits of which cell that was.":
      /im Mittel 1,1 km .* 1,6 der 5,1 Bit/,
    "How far off the flows will be is not worked out beforehand: they come with intervals between districts.": /Ströme/,
  };
  for (const [sentence, german] of Object.entries(said)) expect(inGerman(sentence)).toMatch(german);
  expect(inGerman("Something else.")).toBeUndefined();
});
