import { numberOf, texts } from "../texts/language.ts";

/** What a map says about slots of time. */
export const say = texts(
  {
    time: "Time",
    all: "All times together",
    side: "Side by side",
    sideNote: "All on one scale.",
    reports: (reports: number) => numberOf(reports, "report", "reports"),
    none: (name: string, minimum: number) =>
      `${name}: fewer than ${numberOf(minimum, "report", "reports")} so far, so there is no map; this is the one of all times.`,
    zone: (zone: string) => `Times are those of ${zone}.`,
    wait: "The maps of single times are being fetched.",
    failed: "The maps of single times could not be fetched; load the page again.",
    only: "This is there for all times together.",
  },
  {
    time: "Zeit",
    all: "Alle Zeiten zusammen",
    side: "Nebeneinander",
    sideNote: "Alle auf einer Skala.",
    reports: (reports: number) => numberOf(reports, "Meldung", "Meldungen"),
    none: (name: string, minimum: number) =>
      `${name}: bisher weniger als ${numberOf(minimum, "Meldung", "Meldungen")}, also keine Karte; dies ist die aller Zeiten.`,
    zone: (zone: string) => `Zeiten sind die von ${zone}.`,
    wait: "Die Karten einzelner Zeiten werden abgerufen.",
    failed: "Die Karten einzelner Zeiten konnten nicht abgerufen werden; laden Sie die Seite neu.",
    only: "Das gibt es für alle Zeiten zusammen.",
  },
);
