import { texts } from "../texts/language.ts";

export const say = texts(
  {
    title: (name: string) => `Certificate: ${name}`,
    loading: "Loading the mechanism …",
    unknown: "There is no such campaign.",
    notNow: "The campaign publishes no mechanism now: it is being prepared or is paused.",
    over: "The campaign has ended. It publishes no mechanism any more, so there is nothing to check.",
    unreachable: "The service does not answer.",
    checking: "Your browser is checking the promise over all positions …",
    holds: "The promise holds. Your browser has recomputed it from the whole numbers that devices draw from.",
    fails: "THE PROMISE DOES NOT HOLD. Do not take part.",
    refused: (reason: string) => `Every device refuses this mechanism: ${reason}`,
    took: (time: string) => `Checked in ${time} s in this browser.`,
    promised: "Promised, between any two positions",
    fingerprint: "Fingerprint of the document",
    fingerprintWhy:
      "Whoever fetches the mechanism of this round sees the same. Compare it with others, or with geoveil audit.",
    fingerprintsWhy:
      "One for each promise, the strongest first; the numbers above are those of the weakest. Whoever fetches the mechanism of this round sees the same. Compare them with others, and the first, of the strongest, with geoveil audit.",
    cells: "Cells or places that can be reported",
    round: "Round",
    until: "To be used until",
    odds: "How many times as likely a report is from one of two places, at most",
    listed: (places: string, around: boolean) =>
      `A report names one of ${places} places. It is drawn from where a person stands, at one of them or elsewhere. The service says that its map takes people to stand ${around ? "around the places, each person in the cell of one" : "at the places, and nowhere else"}; the promise does not depend on that.`,
    apart: "Two people this far apart",
    times: "times as likely",
    common: "of 100 reports, so many at least would also come from the other",
    /** Where a report is a trip. */
    trip: {
      odds: "How many times as likely a report, which holds both ends of a trip, is from one of two trips, at most",
      apart: "Two trips whose begins, and whose ends, lie this far apart",
      promised: "Promised of each end, between any two positions",
    },
    cannot: "What this page cannot prove",
    cannotWhy:
      "This page comes from the service that it checks. Whoever does not trust that runs the check from a program of their own:",
    back: "Take part",
  },
  {
    title: (name: string) => `Zertifikat: ${name}`,
    loading: "Der Mechanismus wird geladen …",
    unknown: "Diese Kampagne gibt es nicht.",
    notNow: "Die Kampagne veröffentlicht gerade keinen Mechanismus: Sie wird vorbereitet oder ist angehalten.",
    over: "Die Kampagne ist beendet. Sie veröffentlicht keinen Mechanismus mehr, also gibt es nichts zu prüfen.",
    unreachable: "Der Dienst antwortet nicht.",
    checking: "Ihr Browser prüft das Versprechen über alle Orte …",
    holds: "Das Versprechen gilt. Ihr Browser hat es aus den ganzen Zahlen nachgerechnet, aus denen Geräte ziehen.",
    fails: "DAS VERSPRECHEN GILT NICHT. Nehmen Sie nicht teil.",
    refused: (reason: string) => `Jedes Gerät lehnt diesen Mechanismus ab: ${reason}`,
    took: (time: string) => `In ${time} s in diesem Browser geprüft.`,
    promised: "Versprochen, zwischen je zwei Orten",
    fingerprint: "Fingerabdruck des Dokuments",
    fingerprintWhy:
      "Wer den Mechanismus dieser Runde abruft, sieht denselben. Vergleichen Sie ihn mit anderen oder mit geoveil audit.",
    fingerprintsWhy:
      "Einer für jedes Versprechen, der des stärksten zuerst; die Zahlen darüber sind die des schwächsten. Wer den Mechanismus dieser Runde abruft, sieht dieselben. Vergleichen Sie sie mit anderen, und den ersten, den des stärksten, mit geoveil audit.",
    cells: "Zellen oder Orte, die gemeldet werden können",
    round: "Runde",
    until: "Zu verwenden bis",
    odds: "Wievielmal so wahrscheinlich eine Meldung von einem zweier Orte ist, höchstens",
    listed: (places: string, around: boolean) =>
      `Eine Meldung nennt einen von ${places} Orten. Gezogen wird sie von dort aus, wo jemand steht, an einem von ihnen oder anderswo. Der Dienst sagt, dass seine Karte Menschen ${around ? "rund um die Orte annimmt, jeden in der Zelle eines Orts" : "an den Orten annimmt und nirgends sonst"}; das Versprechen hängt davon nicht ab.`,
    apart: "Zwei Menschen in diesem Abstand",
    times: "mal so wahrschein\u00adlich",
    common: "von 100 Meldungen kämen mindestens so viele auch vom anderen",
    trip: {
      odds: "Wievielmal so wahrscheinlich eine Meldung, die beide Enden eines Wegs enthält, von einem zweier Wege ist, höchstens",
      apart: "Zwei Wege, deren Anfänge und deren Enden so weit auseinander\u00adliegen",
      promised: "Versprochen für jedes Ende, zwischen je zwei Orten",
    },
    cannot: "Was diese Seite nicht beweisen kann",
    cannotWhy:
      "Diese Seite kommt von dem Dienst, den sie prüft. Wer ihm nicht traut, prüft mit einem eigenen Programm:",
    back: "Teilnehmen",
  },
);
