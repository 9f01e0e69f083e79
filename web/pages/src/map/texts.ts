import { distance, number, numberOf, texts } from "../texts/language.ts";
import { type AnyCells, Places } from "./places.ts";

/** What every map says. */
export const say = texts(
  {
    map: (name: string, cells: string) =>
      `Map of ${name}, ${cells} cells. Arrow keys move it, plus and minus change its scale, 0 shows all of it.`,
    closer: "Closer",
    farther: "Farther",
    all: "Show all",
    of: "of the people",
    ofReports: "of the reports",
    perCell: (cell: string) => `share of the people in a cell of ${cell}`,
    perCellReports: (cell: string) => `share of the reports in a cell of ${cell}`,
    between: (low: string, high: string) => `between ${low} and ${high}`,
    noInterval: "no interval",
    nothing: "the reports say nothing about this cell",
    cell: "Cell",
    place: "Middle of the cell",
    share: "Share",
    interval: (level: string) => `${level} interval`,
    table: "The same as a table",
    rows: (from: string, to: string, all: string) => `Cells ${from} to ${to} of ${all}, the largest first`,
    next: "Next cells",
    before: "Cells before",
    inSquare: (side: string) => `in this square of ${side}`,
    doubtNote:
      "As fine as it is known: every colour stands for the smallest square around a place whose share has an error of at most half of it.",
    perDistrict: (cell: string) => `share of the people for each ${cell} of a district`,
    districtNote:
      "Every district in the shade of its people for each cell of its area. Its interval is its own: those of cells do not add up.",
    unknown: "too little is known here: the error is more than half of the value, however large the square",
    hover: "Point at a cell, or click it, to see its share.",
    select: "Select a region",
    selecting: "Drag on the map to choose a region.",
    clear: "Clear",
    regionWait: "Working out the interval …",
    region: (share: string, low: string, high: string, level: string, cells: number) =>
      `${share} of the people are in this region (${level} interval: ${low} to ${high}; ${numberOf(cells, "cell", "cells")}).`,
    regionNote: "The interval is that of the region: the intervals of its cells do not add up.",
    toldApart: "The reports tell all cells apart.",
    notToldApart: (cells: number) =>
      `Of ${numberOf(cells, "cell", "cells")} the reports say nothing: there the interval is everything.`,
    notLooked: "Whether the reports tell all cells apart was not looked into: there are too many cells.",
    ofSize: (cell: string) => `${cell} × ${cell}`,
    ofArea: (area: string) => `${area} km²`,
    rounded: {
      inSquare: (_side: string) => "in this cell",
      unknown: "too little is known here: the error is more than half of the value",
      doubtNote: "As far as it is known: a colour stands where the share has an error of at most half of it.",
    },
    places: {
      map: (name: string, places: string) =>
        `Map of ${name}, ${places} places. Arrow keys move it, plus and minus change its scale, 0 shows all of it.`,
      perCell: (_cell: string) => "share of the people at each place",
      perCellReports: (_cell: string) => "share of the reports of each place",
      perDistrict: (_cell: string) => "share of the people for each place in a district",
      districtNote:
        "Every district in the shade of its people for each place in it. Its interval is its own: those of places do not add up.",
      nothing: "the reports say nothing about this place",
      toldApart: "The reports tell all places apart.",
      notToldApart: (places: number) =>
        `Of ${numberOf(places, "place", "places")} the reports say nothing: there the interval is everything.`,
      notLooked: "Whether the reports tell all places apart was not looked into: there are too many.",
      cell: "Place",
      place: "Where it is",
      rows: (from: string, to: string, all: string) => `Places ${from} to ${to} of ${all}, the largest first`,
      next: "Next places",
      before: "Places before",
      inSquare: (_side: string) => "at this place",
      hover: "Point at a place, or click it, to see its share.",
      region: (share: string, low: string, high: string, level: string, places: number) =>
        `${share} of the people are in this region (${level} interval: ${low} to ${high}; ${numberOf(places, "place", "places")}).`,
      regionNote: "The interval is that of the region: the intervals of its places do not add up.",
    },
  },
  {
    map: (name: string, cells: string) =>
      `Karte von ${name}, ${cells} Zellen. Pfeiltasten verschieben sie, Plus und Minus ändern den Maßstab, 0 zeigt alles.`,
    closer: "Näher",
    farther: "Weiter",
    all: "Alles zeigen",
    of: "der Menschen",
    ofReports: "der Meldungen",
    perCell: (cell: string) => `Anteil der Menschen in einer Zelle von ${cell}`,
    perCellReports: (cell: string) => `Anteil der Meldungen in einer Zelle von ${cell}`,
    between: (low: string, high: string) => `zwischen ${low} und ${high}`,
    noInterval: "kein Intervall",
    nothing: "die Meldungen sagen nichts über diese Zelle",
    cell: "Zelle",
    place: "Mitte der Zelle",
    share: "Anteil",
    interval: (level: string) => `${level}-Intervall`,
    table: "Dasselbe als Tabelle",
    rows: (from: string, to: string, all: string) => `Zellen ${from} bis ${to} von ${all}, die größten zuerst`,
    next: "Nächste Zellen",
    before: "Zellen davor",
    inSquare: (side: string) => `in diesem Quadrat von ${side}`,
    doubtNote:
      "So fein, wie es bekannt ist: Jede Farbe steht für das kleinste Quadrat um einen Ort, dessen Anteil auf die Hälfte genau ist.",
    perDistrict: (cell: string) => `Anteil der Menschen je ${cell} eines Bezirks`,
    districtNote:
      "Jeder Bezirk im Ton seiner Menschen je Zelle seiner Fläche. Sein Intervall ist sein eigenes: Die der Zellen lassen sich nicht zusammenzählen.",
    unknown: "hier ist zu wenig bekannt: Der Fehler ist mehr als die Hälfte des Werts, wie groß das Quadrat auch ist",
    hover: "Zeigen oder klicken Sie auf eine Zelle, um ihren Anteil zu sehen.",
    select: "Gebiet wählen",
    selecting: "Ziehen Sie auf der Karte ein Gebiet auf.",
    clear: "Aufheben",
    regionWait: "Das Intervall wird berechnet …",
    region: (share: string, low: string, high: string, level: string, cells: number) =>
      `${share} der Menschen sind in diesem Gebiet (${level}-Intervall: ${low} bis ${high}; ${numberOf(cells, "Zelle", "Zellen")}).`,
    regionNote: "Das Intervall gilt dem Gebiet: Die Intervalle seiner Zellen lassen sich nicht zusammenzählen.",
    toldApart: "Die Meldungen unterscheiden alle Zellen.",
    notToldApart: (cells: number) =>
      `Über ${numberOf(cells, "Zelle", "Zellen")} sagen die Meldungen nichts: Ihr Intervall ist alles.`,
    notLooked: "Ob die Meldungen alle Zellen unterscheiden, wurde nicht untersucht: Es sind zu viele.",
    ofSize: (cell: string) => `${cell} × ${cell}`,
    ofArea: (area: string) => `${area} km²`,
    rounded: {
      inSquare: (_side: string) => "in dieser Zelle",
      unknown: "hier ist zu wenig bekannt: Der Fehler ist mehr als die Hälfte des Werts",
      doubtNote: "So weit es bekannt ist: Eine Farbe steht, wo der Anteil auf die Hälfte genau ist.",
    },
    places: {
      map: (name: string, places: string) =>
        `Karte von ${name}, ${places} Orte. Pfeiltasten verschieben sie, Plus und Minus ändern den Maßstab, 0 zeigt alles.`,
      perCell: (_cell: string) => "Anteil der Menschen an jedem Ort",
      perCellReports: (_cell: string) => "Anteil der Meldungen an jedem Ort",
      perDistrict: (_cell: string) => "Anteil der Menschen je Ort eines Bezirks",
      districtNote:
        "Jeder Bezirk im Ton seiner Menschen je Ort darin. Sein Intervall ist sein eigenes: Die der Orte lassen sich nicht zusammenzählen.",
      nothing: "die Meldungen sagen nichts über diesen Ort",
      toldApart: "Die Meldungen unterscheiden alle Orte.",
      notToldApart: (places: number) =>
        `Über ${numberOf(places, "Ort", "Orte")} sagen die Meldungen nichts: Ihr Intervall ist alles.`,
      notLooked: "Ob die Meldungen alle Orte unterscheiden, wurde nicht untersucht: Es sind zu viele.",
      cell: "Ort",
      place: "Wo er liegt",
      rows: (from: string, to: string, all: string) => `Orte ${from} bis ${to} von ${all}, die größten zuerst`,
      next: "Nächste Orte",
      before: "Orte davor",
      inSquare: (_side: string) => "an diesem Ort",
      hover: "Zeigen oder klicken Sie auf einen Ort, um seinen Anteil zu sehen.",
      region: (share: string, low: string, high: string, level: string, places: number) =>
        `${share} der Menschen sind in diesem Gebiet (${level}-Intervall: ${low} bis ${high}; ${numberOf(places, "Ort", "Orte")}).`,
      regionNote: "Das Intervall gilt dem Gebiet: Die Intervalle seiner Orte lassen sich nicht zusammenzählen.",
    },
  },
);

/** The words of a map: of squares, of cells of another shape, or of places. */
export function wordsFor(cells: AnyCells): Omit<typeof say, "places" | "rounded"> {
  if (!(cells instanceof Places)) return say;
  return cells.around ? { ...say, ...say.rounded } : { ...say, ...say.rounded, ...say.places };
}

/** How large a cell is; of places, how far apart they are. */
export function sizeOf(cells: AnyCells): string {
  const round = cells instanceof Places && cells.around;
  return round ? say.ofArea(number(cells.cellKm ** 2)) : say.ofSize(distance(cells.cellKm));
}
