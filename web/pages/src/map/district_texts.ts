import { texts } from "../texts/language.ts";

/** What is said of districts. */
export const say = texts(
  {
    districts: "districts",
    wait: "Working out the districts …",
    others: "The districts have been changed; load this page again.",
    unknown: "too little is known here: the error is more than half of the value",
    hover: "Point at a district, or go through the table, to see its share.",
    table: "Districts",
    district: "District",
    share: "Share",
    interval: (level: string) => `${level} interval`,
    cells: "Cells",
    range: (low: string, high: string) => `${low} to ${high}`,
    between: (name: string, share: string, low: string, high: string) =>
      `${name}: ${share} of the people, between ${low} and ${high}`,
    leftOut: (share: string) => `${share} of the people are in no district.`,
    twice: (share: string) => `${share} of the people are counted twice, since districts overlap.`,
  },
  {
    districts: "Bezirke",
    wait: "Die Bezirke werden berechnet …",
    others: "Die Bezirke wurden geändert; laden Sie diese Seite neu.",
    unknown: "hier ist zu wenig bekannt: Der Fehler ist mehr als die Hälfte des Werts",
    hover: "Zeigen Sie auf einen Bezirk, oder gehen Sie durch die Tabelle, um seinen Anteil zu sehen.",
    table: "Bezirke",
    district: "Bezirk",
    share: "Anteil",
    interval: (level: string) => `${level}-Intervall`,
    cells: "Zellen",
    range: (low: string, high: string) => `${low} bis ${high}`,
    between: (name: string, share: string, low: string, high: string) =>
      `${name}: ${share} der Menschen, zwischen ${low} und ${high}`,
    leftOut: (share: string) => `${share} der Menschen sind in keinem Bezirk.`,
    twice: (share: string) => `${share} der Menschen sind doppelt gezählt, weil sich Bezirke überschneiden.`,
  },
);
