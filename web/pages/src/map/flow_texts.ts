import { numberOf, texts } from "../texts/language.ts";

/** What every map of flows says. */
export const say = texts(
  {
    title: "Flows between districts",
    of: (trips: number, stay: string) =>
      `From ${numberOf(trips, "trip", "trips")}. ${stay} of all trips begin and end in one and the same district.`,
    map: (lines: string) =>
      `Map of the largest flows between districts, ${lines} of them. Wider is more; arrows show the direction; pale where the interval reaches zero; rings are trips that stay.`,
    from: "Trips from",
    anywhere: "all districts",
    district: (number: string, place: string) => `${number}: ${place}`,
    wide: (share: string) => `${share} of the trips`,
    pale: "the interval reaches zero: there may be no such trips",
    ring: "stay in their district",
    matrix: "All pairs as a matrix",
    matrixOf: (districts: string) =>
      `${districts} districts: rows are where trips begin, columns where they end; the stronger the colour, the more.`,
    table: "The largest flows as a table",
    origin: "From",
    destination: "To",
    share: "Share of trips",
    interval: (level: string) => `${level} interval`,
    between: (low: string, high: string) => `${low} to ${high}`,
    unfinished: "The intervals were not ready in time; the shares alone say nothing about how sure they are.",
    use: "Quote districts with their intervals, not cells. A flow map shows where the large flows are; it does not show that nobody goes somewhere, and says nothing about single people.",
    data: "The flows:",
  },
  {
    title: "Ströme zwischen Bezirken",
    of: (trips: number, stay: string) =>
      `Aus ${numberOf(trips, "Weg", "Wegen")}. ${stay} aller Wege beginnen und enden in ein und demselben Bezirk.`,
    map: (lines: string) =>
      `Karte der größten Ströme zwischen Bezirken, ${lines} an der Zahl. Breiter ist mehr; Pfeile zeigen die Richtung; blass, wo das Intervall bis null reicht; Ringe sind Wege, die bleiben.`,
    from: "Wege von",
    anywhere: "allen Bezirken",
    district: (number: string, place: string) => `${number}: ${place}`,
    wide: (share: string) => `${share} der Wege`,
    pale: "das Intervall reicht bis null: Vielleicht gibt es keine solchen Wege",
    ring: "bleiben in ihrem Bezirk",
    matrix: "Alle Paare als Matrix",
    matrixOf: (districts: string) =>
      `${districts} Bezirke: Zeilen sind, wo Wege beginnen, Spalten, wo sie enden; je kräftiger die Farbe, desto mehr.`,
    table: "Die größten Ströme als Tabelle",
    origin: "Von",
    destination: "Nach",
    share: "Anteil der Wege",
    interval: (level: string) => `${level}-Intervall`,
    between: (low: string, high: string) => `${low} bis ${high}`,
    unfinished: "Die Intervalle wurden nicht rechtzeitig fertig; die Anteile allein sagen nicht, wie sicher sie sind.",
    use: "Nennen Sie Bezirke mit ihren Intervallen, nicht Zellen. Eine Stromkarte zeigt, wo die großen Ströme sind; sie zeigt nicht, dass irgendwo niemand hingeht, und sagt nichts über einzelne Menschen.",
    data: "Die Ströme:",
  },
);
