import { numberOf, texts } from "../texts/language.ts";

export const say = texts(
  {
    loading: "Loading the map …",
    notPublished: "There is no published map here.",
    noEstimate: "The map is not there yet: it comes when a round with enough reports has closed.",
    noMap: "There is no map: the campaign has ended, and its last round had too few reports.",
    mapFailed: "There is no map: the campaign has ended, and every attempt at its estimate failed.",
    failedSoFar: "The map is not there yet: every attempt at the last estimate failed. Its reports enter the next one.",
    laterFailed: "Every attempt at a later estimate failed, and the campaign has ended: this is its last map.",
    laterFailedSoFar: "Every attempt at a later estimate failed. Its reports enter the next map.",
    unreachable: "The service does not answer. This page tries again by itself.",
    reports: (reports: number, date: string) => `From ${numberOf(reports, "noisy report", "noisy reports")}, ${date}.`,
    how: (odds: string) =>
      `Nobody told where they are: every device reported a blurred place. Whether somebody stood here or 200 m away, any report was at most ${odds} times as likely.`,
    made: "Made with Geoveil",
    certificate: "How the promise is certified",
    estimate: "Map",
    doubt: "How sure",
    showing: "Show",
    data: "The numbers:",
    noInterval: "There is no interval for this region.",
    regionFailed: "The service could not work this out now. Please try again later.",
  },
  {
    loading: "Die Karte wird geladen …",
    notPublished: "Hier ist keine Karte veröffentlicht.",
    noEstimate: "Die Karte ist noch nicht da: Sie kommt, wenn eine Runde mit genug Meldungen geschlossen ist.",
    noMap: "Es gibt keine Karte: Die Kampagne ist beendet, und ihre letzte Runde hatte zu wenige Meldungen.",
    mapFailed: "Es gibt keine Karte: Die Kampagne ist beendet, und jeder Versuch ihrer Schätzung schlug fehl.",
    failedSoFar:
      "Die Karte ist noch nicht da: Jeder Versuch der letzten Schätzung schlug fehl. Ihre Meldungen gehen in die nächste ein.",
    laterFailed:
      "Jeder Versuch einer späteren Schätzung schlug fehl, und die Kampagne ist beendet: Dies ist ihre letzte Karte.",
    laterFailedSoFar:
      "Jeder Versuch einer späteren Schätzung schlug fehl. Ihre Meldungen gehen in die nächste Karte ein.",
    unreachable: "Der Dienst antwortet nicht. Diese Seite versucht es von selbst wieder.",
    reports: (reports: number, date: string) =>
      `Aus ${numberOf(reports, "verrauschter Meldung", "verrauschten Meldungen")}, ${date}.`,
    how: (odds: string) =>
      `Niemand hat gesagt, wo er ist: Jedes Gerät hat einen verwischten Ort gemeldet. Ob jemand hier stand oder 200 m weiter: Jede Meldung war höchstens ${odds}-mal so wahrscheinlich.`,
    made: "Mit Geoveil gemacht",
    certificate: "Wie das Versprechen zertifiziert ist",
    estimate: "Karte",
    doubt: "Wie sicher",
    showing: "Zeigen",
    data: "Die Zahlen:",
    noInterval: "Für dieses Gebiet gibt es kein Intervall.",
    regionFailed: "Der Dienst konnte das gerade nicht berechnen. Bitte versuchen Sie es später noch einmal.",
  },
);
