/** Everything that the participant page says, in English and in German. */

import type { Reason } from "@geoveil/client";
import { numberOf, texts } from "../texts/language.ts";

/** In the words of people who take part: those of the device are for whoever programs one. */
type Reasons = Record<Reason | "changed" | "waiting" | "fault", string>;

const ENGLISH_REASONS: Reasons = {
  insecure: "the service must be reached over https; http is for this computer itself only",
  unreachable: "the service did not answer; try again later",
  redirect: "the service pointed to another address",
  answer: "the service did not answer as a service of this kind does",
  document: "the rule is not in order",
  trips: "the campaign asks for trips, with a beginning and an end",
  places: "the campaign asks for places, not for trips",
  level: "the campaign does not offer the promise that was chosen",
  campaign: "the rule belongs to another campaign",
  promise: "the promise allows more than the limit that is set for this device",
  "not-yet-valid": "the rule is not valid yet, or this device's clock is behind",
  expired: "the rule has expired, or this device's clock is ahead",
  ended: "the campaign has ended",
  clock: "this device's clock does not tell a time; set it",
  zone: "the campaign's times are those of a time zone that this device does not know",
  slot: "the campaign asks about certain times only, and now is none of them",
  clocks: "this device's clock and that of the service are in different slots of time; set the clock",
  space: "the map is not the one that the campaign had when this device first saw it",
  budget: "the report would cost more than is left of the budget",
  location: "the place must have a latitude from −90 to 90 and a longitude, in degrees",
  accuracy: "your browser does not know your place well enough for this map",
  outside: "the place lies outside the area, and this device is to be silent there",
  invitation: "the service gives no ticket for the invitation",
  ticket: "the service's key or signature is not what a ticket is made with; tell whoever runs the campaign",
  problem: "the service refused",
  "ledger-unreadable": "the list of reports cannot be read; without it nothing can be reported",
  "ledger-unwritable": "the list of reports cannot be written; without it nothing can be reported",
  "ledger-busy": "another window is writing in the list of reports; try again",
  changed: "the campaign has changed its rule since this page showed it; try again to read about the new one",
  waiting: "the report left this browser, and the service has not confirmed it yet; it can be sent again, unchanged",
  fault: "something went wrong in this page; load it again",
};

const GERMAN_REASONS: Reasons = {
  insecure: "der Dienst muss über https erreicht werden; http ist nur für diesen Rechner selbst",
  unreachable: "der Dienst hat nicht geantwortet; versuchen Sie es später wieder",
  redirect: "der Dienst hat an eine andere Adresse verwiesen",
  answer: "der Dienst hat nicht geantwortet, wie ein Dienst dieser Art es tut",
  document: "die Regel ist nicht in Ordnung",
  trips: "die Kampagne fragt nach Wegen, mit Anfang und Ende",
  places: "die Kampagne fragt nach Orten, nicht nach Wegen",
  level: "die Kampagne bietet die gewählte Zusage nicht an",
  campaign: "die Regel gehört zu einer anderen Kampagne",
  promise: "die Zusage erlaubt mehr als die Grenze, die für dieses Gerät gesetzt ist",
  "not-yet-valid": "die Regel gilt noch nicht, oder die Uhr dieses Geräts geht nach",
  expired: "die Regel ist abgelaufen, oder die Uhr dieses Geräts geht vor",
  ended: "die Kampagne ist zu Ende",
  clock: "die Uhr dieses Geräts zeigt keine Zeit; stellen Sie sie",
  zone: "die Zeiten der Kampagne sind die einer Zeitzone, die dieses Gerät nicht kennt",
  slot: "die Kampagne fragt nur nach bestimmten Zeiten, und jetzt ist keine davon",
  clocks: "die Uhr dieses Geräts und die des Dienstes zeigen verschiedene Zeitabschnitte; stellen Sie die Uhr",
  space: "die Karte ist nicht die, welche die Kampagne hatte, als dieses Gerät sie zuerst sah",
  budget: "die Meldung würde mehr kosten, als vom Budget übrig ist",
  location: "der Ort muss eine Breite von −90 bis 90 und eine Länge haben, in Grad",
  accuracy: "Ihr Browser kennt Ihren Ort nicht genau genug für diese Karte",
  outside: "der Ort liegt außerhalb des Gebiets, und dieses Gerät soll dort schweigen",
  invitation: "der Dienst gibt für die Einladung kein Ticket",
  ticket:
    "der Schlüssel oder die Unterschrift des Dienstes ist nicht so, wie ein Ticket sie braucht; sagen Sie es denen, die die Kampagne betreiben",
  problem: "der Dienst hat abgelehnt",
  "ledger-unreadable": "die Liste der Meldungen lässt sich nicht lesen; ohne sie kann nichts gemeldet werden",
  "ledger-unwritable": "die Liste der Meldungen lässt sich nicht schreiben; ohne sie kann nichts gemeldet werden",
  "ledger-busy": "ein anderes Fenster schreibt gerade in die Liste der Meldungen; versuchen Sie es noch einmal",
  changed:
    "die Kampagne hat ihre Regel geändert, seit diese Seite sie gezeigt hat; versuchen Sie es noch einmal, um die neue zu lesen",
  waiting:
    "die Meldung hat diesen Browser verlassen, und der Dienst hat sie noch nicht bestätigt; sie kann unverändert noch einmal gesendet werden",
  fault: "in dieser Seite ist etwas schiefgegangen; laden Sie sie neu",
};

export const say = texts(
  {
    loading: "Asking for the campaign …",
    unknown: "There is no campaign at this address.",
    unreachable: "The service does not answer now. Nothing was sent; try again later.",
    tryAgain: "Try again",
    skip: "Skip to sending",
    by: (host: string) => `A campaign of ${host}, named by its operator`,
    lead: "This campaign maps where people are. If you take part, your browser draws a blurred place at random and sends that once. Where you really are never leaves your device.",
    counted: (reports: number) => `${numberOf(reports, "report", "reports")} counted so far`,
    paused: "The campaign is paused: it takes no reports for now.",
    preparing: "The campaign is being prepared. This page goes on by itself when it is ready.",
    ended: "The campaign has ended: it takes no more reports.",
    finished: "The campaign has ended: its last round is over, and no report would enter a map any more.",

    choice: {
      title: "How much may your report say?",
      how: "This campaign offers several promises, and everybody chooses. The stronger the promise, the less your report says about you, and the less it adds to the map.",
      name: (at: number, of: number): string =>
        at === 0 ? "The strongest promise." : at === of - 1 ? "The weakest promise." : "A promise between them.",
      guessed: (near: string, guessedNear: number, far: string, guessedFar: number) =>
        `Which of two places ${near} apart you were at is guessed right at most ${guessedNear} times in 100; ${far} apart, at most ${guessedFar} times.`,
      lies: (away: string) => `From the middle of the map a report lies ${away} away on average.`,
      costs: (cost: string) => `It costs ${cost} per km of your budget.`,
      above: "Your limits at the end of this page do not allow it.",
      seen: "Whoever receives your report sees which promise it was made under. Your browser asks for all of them, whichever you choose.",
    },

    reveals: {
      title: "What a report can reveal",
      distance: "How far apart are two places where you might be?",
      streets: "two streets",
      districts: "two districts",
      valueText: (apart: string, guessed: number) => `${apart} apart: guessed right at most ${guessed} times in 100`,
      guess: (apart: string, guessed: number) =>
        `Somebody who sees your report, and has no other clue which of two places ${apart} apart you were at, guesses right at most ${guessed} times in 100.`,
      coin: "Tossing a coin is right 50 times in 100.",
      factor: (times: string) => `Your report shifts the odds between the two by a factor of ${times} at most.`,
      manyTimes: "At this distance a report may tell the two apart: the factor is a million or more.",
      alike: "At this distance the report says little about which of the two it was.",
      apart: "At this distance the report may well show which of the two it was.",
      between: "At this distance the report is a hint, not an answer.",
      dots: (guessed: number) => `100 guesses: 50 right by luck alone, at most ${guessed} with your report`,
      byLuck: "right by luck alone",
      byReport: "more, at most, with your report",
      always:
        "The factor holds whatever else is known about you and whatever is done with the report. What somebody knows already is not undone: the report moves those odds by no more than this.",
      unchecked: "The numbers are those that the campaign states; your browser is checking them.",
      checked: "Your browser has checked these numbers itself, for every pair of places.",
      notHidden: "What it does not hide",
      notHiddenList: [
        "Which part of the map you are in, roughly: move the slider to the right.",
        "Your network address, and the kind and languages of your browser: any site that you open can see them. This service says that it keeps none of it; a page cannot prove that.",
        "Several reports together tell more than one. This page sends one to each campaign, and adds up what all have cost.",
      ],
    },

    place: {
      title: "What would be sent from where you are",
      how: "Choose a place. The map shows how often each square would be reported from there; the stronger the colour, the more often. One of them is drawn at random, in your browser.",
      measure: "Use my location",
      measuring: "Measuring …",
      clear: "Forget this place",
      typed: "Or type coordinates",
      lat: "Latitude, in degrees north",
      lng: "Longitude, in degrees east",
      show: "Show",
      wrong: "Latitude must lie between −90 and 90, longitude between −180 and 180.",
      map: "Map of the campaign. Arrow keys move the place by a quarter of a square, with Shift by four squares.",
      north: "N",
      zoomIn: "Zoom in",
      zoomOut: "Zoom out",
      whole: "Whole map",
      tap: "Tap the map, or use your location",
      from: (place: string) => `From ${place}:`,
      half: (half: string, most: string) =>
        `of 100 reports about 50 name a square within ${half}, about 90 one within ${most}.`,
      most: (percent: string) => `The square that is named most often: ${percent} of 100.`,
      legend: "Reported from here:",
      sentTitle: "What was sent",
      sentHow: "The square with the thick edge. The others are all that might have been drawn.",
      seldom: "seldom",
      often: "often",
      outside:
        "This place lies outside the area. A report is drawn here too, under the same promise: silence would tell that you are outside.",
      accuracy: (accuracy: string) => `Measured to within ${accuracy}.`,
      tooCoarse: (accuracy: string, cell: string) =>
        `Your browser knows your place only to within ${accuracy}, and a square is ${cell} wide. Such a report would spoil the map. Measure again, or choose the place on the map.`,
      denied: "The browser did not allow it. Choose a place on the map, or type coordinates.",
      failed: "The browser could not find your location. Choose a place on the map, or type coordinates.",
      stays: "The place that you choose stays in this page. It is forgotten when you send or leave.",
      sentHere: "sent",
      waits: "The map comes when the rule is checked.",
    },

    send: {
      title: "Send",
      leaves: "This leaves your browser",
      slot: (name: string, slots: string, zone: string) =>
        `the slot of time in which you send, such as “${name}” now (one of ${slots}, time of ${zone}): it is not blurred, and says when, not where`,
      leavesList: (cells: string) => [
        `the number of one square out of ${cells}, drawn at random`,
        "a random number, so that it is counted once",
        "the fingerprint of the rule it was drawn by, the same for everybody with this promise",
      ],
      notSent: "Nothing else is sent: no place, no name, no account, no cookie.",
      cost: (cost: string, rest: string, limit: string) =>
        `It costs ${cost} per km of the ${limit} per km that you allow all reports together; ${rest} are left now.`,
      operator: (host: string, spent: string) => `All campaigns of ${host} together have cost ${spent} per km so far.`,
      button: "Send one noisy report",
      again: "Send it again, unchanged",
      sending: "Sending …",
      checking: "Your browser is checking the rule. You can read on.",
      ready: "The rule is checked. Choose a place, then send.",
      place: "Choose a place first.",
      refused: "Not reported",
      refusedSent: "Sent, and not counted",
      late: "The rule that the report was drawn by had expired when it arrived.",
      coarse: "Choose the place on the map, or measure again.",
      limits: "You can change your limits at the end of this page.",
      waiting: "Sent, not confirmed yet",
      unconfirmed:
        "The campaign ended before the service confirmed the report to this browser. It may have been counted, or not.",
      lost: "The service has not confirmed the report, and this browser no longer has it to send again. It may have been counted, or not.",
    },

    receipt: {
      title: "Sent and counted",
      cell: (cell: string) => `Square ${cell} was sent, and nothing else about where you are.`,
      cellAndSlot: (cell: string, slot: string) =>
        `Square ${cell} and slot ${slot} of time were sent, and nothing else about where you are.`,
      where: (place: string) => `Its centre lies at ${place}. It was drawn at random.`,
      once: "This was your one report to this campaign. Opening the page again reads no location and sends no report.",
      forgotten:
        "This report is not in the list of this browser: the list was deleted while it was on its way, or cannot be read. This page could report to this campaign again; two reports tell more than one.",
      report: "Id of the report",
    },

    /** Where reports name one of a list of places, or of hexagons, instead of a square. */
    listed: {
      place: {
        how: "Choose a place. The map shows how often each place of the campaign would be reported from there; the stronger the colour, the more often. One of them is drawn at random, in your browser.",
        map: "Map of the campaign. Arrow keys move the place by a quarter of the way between two places of the campaign, with Shift by four times that way.",
        half: (half: string, most: string) =>
          `of 100 reports about 50 name a place within ${half}, about 90 one within ${most}.`,
        most: (percent: string) => `The place that is named most often: ${percent} of 100.`,
        sentHow: "The place with the thick edge. The others are all that might have been drawn.",
        tooCoarse: (accuracy: string, apart: string) =>
          `Your browser knows where you are only to within ${accuracy}, and the places of the campaign are about ${apart} apart. Such a report would spoil the map. Measure again, or choose on the map.`,
      },
      send: {
        leavesList: (places: string) => [
          `the number of one place out of ${places}, drawn at random`,
          "a random number, so that it is counted once",
          "the fingerprint of the rule it was drawn by, the same for everybody with this promise",
        ],
      },
      receipt: {
        cell: (place: string) => `Place ${place} was sent, and nothing else about where you are.`,
        cellAndSlot: (place: string, slot: string) =>
          `Place ${place} and slot ${slot} of time were sent, and nothing else about where you are.`,
        where: (place: string) => `It lies at ${place}. It was drawn at random.`,
      },
      numbers: {
        cells: "Places",
        cellsValue: (places: string, apart: string) => `${places}, about ${apart} apart`,
      },
    },

    ledger: {
      title: "What was ever sent from here",
      where: (host: string) =>
        `From this browser to ${host}. The list is kept in this browser only, until it clears the data of this site: Safari does so by itself after a week without a visit.`,
      none: "Nothing so far.",
      left: (rest: string, limit: string) => `${rest} of ${limit} per km are left of your budget.`,
      operator: (spent: string) => `This operator has had ${spent} per km of it.`,
      together: (reports: string, guessed: number) =>
        `All ${reports} together: between two places 200 m apart, for somebody who does not move, a guess is right at most ${guessed} times in 100.`,
      day: "Day",
      campaign: "Campaign",
      cell: "Reported",
      cost: "Cost per km",
      state: "State",
      states: { sent: "not confirmed", acknowledged: "counted", refused: "refused" },
      erase: "Delete this list …",
      eraseTitle: "Delete the list?",
      eraseMeans: [
        "This browser forgets what it sent, and what that has cost.",
        "The reports themselves stay counted. Nobody can tell which are yours, so nobody can take them back.",
        "This page could then report to the same campaign again. Two reports tell more than one: their costs add up, and nothing here would count that any more.",
      ],
      eraseNow: "Delete it",
      keep: "Keep it",
      erased: "The list is deleted.",
      notErased: "The list could not be deleted. Try again, or delete the data of this site in your browser.",
    },

    proof: {
      title: "What this page cannot prove",
      text: (host: string) =>
        `This page comes from ${host}, the operator that it checks. A dishonest operator could send you another page that only looks like this one.`,
      instead:
        "If you do not want to rely on that, report with a program that comes from elsewhere, in Python or TypeScript, or look at the rule yourself:",
      fingerprint:
        "Fingerprint of the rule. In this round everybody with this promise should see the same; compare it with others.",
    },

    numbers: {
      title: "In numbers",
      promise: "Promise",
      promiseValue: (epsilon: string, slack: string) => `ε = ${epsilon} per km, and η = ${slack} for rounding`,
      meaning:
        "For any two positions a distance d apart and any report: P(report | one) ≤ exp(ε·d + η) · P(report | the other).",
      cells: "Squares",
      cellsValue: (cells: string, side: string) => `${cells}, each ${side} wide`,
      round: "Round",
      expires: "Valid until",
    },

    limits: {
      title: "Your limits",
      text: "They hold for this browser and this site. The smaller the number, the stronger the promise that you ask for.",
      most: "One report may cost, per km, at most",
      budget: "All reports together may cost, per km, at most",
      save: "Use these limits",
      wrong: "Both must be numbers above 0.",
    },

    trip: {
      lead: "This campaign asks where trips go. If you take part, your browser draws two blurred places at random, one for where a trip of yours began and one for where it ended, and sends the two once, together. Where you really were never leaves your device.",
      begin: "Where the trip began",
      end: "Where the trip ended",
      distance: "How far apart are the begins, and how far the ends, of two trips you might have made?",
      guess: (apart: string, guessed: number) =>
        `Somebody who sees your report, and has no other clue which of two trips you made whose begins lie ${apart} apart and whose ends lie ${apart} apart, guesses right at most ${guessed} times in 100.`,
      notHidden: "That both blurred places are of one person. That is why a trip costs twice as much as a place.",
      leavesList: (cells: string) => [
        `the numbers of two squares out of ${cells}, each drawn at random`,
        "a random number, so that the trip is counted once",
        "the fingerprint of the rule they were drawn by, the same for everybody with this promise",
      ],
      twice: "A trip costs twice the promise of the campaign, once for each end.",
      ready: "The rule is checked. Choose both places, then send.",
      cells: (from: string, to: string) => `Squares ${from} and ${to} were sent, and nothing else about your trip.`,
      cellsAndSlot: (from: string, to: string, slot: string) =>
        `Squares ${from} and ${to} and slot ${slot} of time were sent, and nothing else about your trip.`,
      where: (from: string, to: string) => `Their centres lie at ${from} and ${to}. Both were drawn at random.`,
    },

    invitation: {
      one: "It takes one report for each invitation.",
      title: "Your invitation",
      kept: "This browser has your invitation. When you send, it first exchanges it for a ticket, which the service signs without seeing it, and then sends the report with the ticket.",
      needed: "This campaign takes one report for each invitation, and without one nothing can be sent.",
      hides:
        "The service can tell that your invitation was used, and so that you take part, if it knows whom it is for. The ticket does not tell it which report is yours. Time and network address could tell whoever sees the connection, the service too; it says that it keeps neither.",
      code: "Code of your invitation",
      use: "Use it",
      first: "An invitation is needed first.",
      wrong:
        "This is not the code of an invitation: those have 20 letters and digits, such as k7qf3-m2x4p-abcde-98765.",
      unknown: "The service does not know this invitation. Compare its code with the one that you were given.",
      used: "This invitation was used already: in another browser, or here before data of this site were deleted. Each gives one ticket only.",
      leaves:
        "your invitation, before the report, and with the report the ticket that it was exchanged for: neither shows which the other was",
      sent: "Nothing, that is, but the ticket and, before it, your invitation; the service cannot tell from the ticket which one that was.",
      erase: "An invitation that was used stays used: another report would need another one.",
    },

    reasons: ENGLISH_REASONS,
  },
  {
    loading: "Die Kampagne wird abgerufen …",
    unknown: "Unter dieser Adresse gibt es keine Kampagne.",
    unreachable: "Der Dienst antwortet gerade nicht. Nichts wurde gesendet; versuchen Sie es später wieder.",
    tryAgain: "Noch einmal versuchen",
    skip: "Direkt zum Senden",
    by: (host: string) => `Eine Kampagne von ${host}, vom Betreiber so genannt`,
    lead: "Diese Kampagne zeichnet eine Karte davon, wo Menschen sind. Wenn Sie mitmachen, zieht Ihr Browser einen verwischten Ort nach dem Zufall und sendet diesen einmal. Wo Sie wirklich sind, verlässt Ihr Gerät nie.",
    counted: (reports: number) => `${numberOf(reports, "Meldung", "Meldungen")} bisher gezählt`,
    paused: "Die Kampagne pausiert: Sie nimmt zurzeit keine Meldungen an.",
    preparing: "Die Kampagne wird vorbereitet. Diese Seite macht von selbst weiter, sobald sie bereit ist.",
    ended: "Die Kampagne ist zu Ende: Sie nimmt keine Meldungen mehr an.",
    finished: "Die Kampagne ist zu Ende: Ihre letzte Runde ist vorbei, und keine Meldung käme noch in eine Karte.",

    choice: {
      title: "Wie viel darf Ihre Meldung sagen?",
      how: "Diese Kampagne bietet mehrere Zusagen an, und jede und jeder wählt. Je stärker die Zusage, desto weniger sagt Ihre Meldung über Sie, und desto weniger trägt sie zur Karte bei.",
      name: (at: number, of: number): string =>
        at === 0 ? "Die stärkste Zusage." : at === of - 1 ? "Die schwächste Zusage." : "Eine Zusage dazwischen.",
      guessed: (near: string, guessedNear: number, far: string, guessedFar: number) =>
        `An welchem von zwei Orten im Abstand von ${near} Sie waren, wird höchstens ${guessedNear} von 100 Mal richtig geraten; im Abstand von ${far} höchstens ${guessedFar} Mal.`,
      lies: (away: string) => `Von der Mitte der Karte aus liegt eine Meldung im Mittel ${away} entfernt.`,
      costs: (cost: string) => `Sie kostet ${cost} je km von Ihrem Budget.`,
      above: "Ihre Grenzen am Ende dieser Seite lassen sie nicht zu.",
      seen: "Wer Ihre Meldung bekommt, sieht, unter welcher Zusage sie gemacht wurde. Ihr Browser fragt nach allen, welche auch immer Sie wählen.",
    },

    reveals: {
      title: "Was eine Meldung verraten kann",
      distance: "Wie weit liegen zwei Orte auseinander, an denen Sie sein könnten?",
      streets: "zwei Straßen",
      districts: "zwei Stadtteile",
      valueText: (apart: string, guessed: number) =>
        `${apart} auseinander: höchstens ${guessed} von 100 Mal richtig geraten`,
      guess: (apart: string, guessed: number) =>
        `Wer Ihre Meldung sieht und sonst nicht weiß, an welchem von zwei Orten im Abstand von ${apart} Sie waren, rät höchstens ${guessed} von 100 Mal richtig.`,
      coin: "Eine Münze liegt 50 von 100 Mal richtig.",
      factor: (times: string) =>
        `Ihre Meldung verschiebt die Chancen zwischen beiden höchstens um den Faktor ${times}.`,
      manyTimes:
        "In diesem Abstand kann eine Meldung die beiden Orte unterscheiden: Der Faktor ist eine Million oder mehr.",
      alike: "In diesem Abstand sagt die Meldung wenig darüber, welcher der beiden Orte es war.",
      apart: "In diesem Abstand kann die Meldung durchaus zeigen, welcher der beiden Orte es war.",
      between: "In diesem Abstand ist die Meldung ein Hinweis, keine Antwort.",
      dots: (guessed: number) => `100 Versuche: 50 durch bloßes Glück richtig, höchstens ${guessed} mit Ihrer Meldung`,
      byLuck: "durch bloßes Glück richtig",
      byReport: "höchstens mehr mit Ihrer Meldung",
      always:
        "Der Faktor gilt, was auch immer sonst über Sie bekannt ist und was auch immer mit der Meldung geschieht. Was jemand schon weiß, wird nicht ungeschehen: Die Meldung verschiebt diese Chancen um nicht mehr als dies.",
      unchecked: "Die Zahlen sind die, welche die Kampagne angibt; Ihr Browser prüft sie gerade.",
      checked: "Ihr Browser hat diese Zahlen selbst geprüft, für jedes Paar von Orten.",
      notHidden: "Was sie nicht verbirgt",
      notHiddenList: [
        "In welchem Teil der Karte Sie ungefähr sind: Schieben Sie den Regler nach rechts.",
        "Ihre Netzadresse und Art und Sprachen Ihres Browsers: Jede Seite sieht sie, die Sie öffnen. Dieser Dienst sagt, dass er nichts davon aufbewahrt; eine Seite kann das nicht beweisen.",
        "Mehrere Meldungen zusammen verraten mehr als eine. Diese Seite sendet jeder Kampagne eine und zählt zusammen, was alle gekostet haben.",
      ],
    },

    place: {
      title: "Was von Ihrem Ort aus gesendet würde",
      how: "Wählen Sie einen Ort. Die Karte zeigt, wie oft jedes Feld von dort gemeldet würde; je kräftiger die Farbe, desto öfter. Eines davon wird in Ihrem Browser nach dem Zufall gezogen.",
      measure: "Meinen Standort nehmen",
      measuring: "Wird gemessen …",
      clear: "Diesen Ort vergessen",
      typed: "Oder Koordinaten eingeben",
      lat: "Breite, in Grad Nord",
      lng: "Länge, in Grad Ost",
      show: "Zeigen",
      wrong: "Die Breite muss zwischen −90 und 90 liegen, die Länge zwischen −180 und 180.",
      map: "Karte der Kampagne. Pfeiltasten verschieben den Ort um ein Viertel eines Feldes, mit Umschalt um vier Felder.",
      north: "N",
      zoomIn: "Vergrößern",
      zoomOut: "Verkleinern",
      whole: "Ganze Karte",
      tap: "Tippen Sie auf die Karte, oder nehmen Sie Ihren Standort",
      from: (place: string) => `Von ${place}:`,
      half: (half: string, most: string) =>
        `von 100 Meldungen nennen etwa 50 ein Feld innerhalb von ${half}, etwa 90 eines innerhalb von ${most}.`,
      most: (percent: string) => `Das am häufigsten genannte Feld: ${percent} von 100.`,
      legend: "Von hier gemeldet:",
      sentTitle: "Was gesendet wurde",
      sentHow: "Das Feld mit dem dicken Rand. Die anderen sind alle, die hätten gezogen werden können.",
      seldom: "selten",
      often: "oft",
      outside:
        "Dieser Ort liegt außerhalb des Gebiets. Auch hier wird eine Meldung gezogen, unter demselben Versprechen: Schweigen würde verraten, dass Sie außerhalb sind.",
      accuracy: (accuracy: string) => `Auf ${accuracy} genau gemessen.`,
      tooCoarse: (accuracy: string, cell: string) =>
        `Ihr Browser kennt Ihren Ort nur auf ${accuracy} genau, und ein Feld ist ${cell} breit. Eine solche Meldung verdürbe die Karte. Messen Sie noch einmal, oder wählen Sie den Ort auf der Karte.`,
      denied: "Der Browser hat es nicht erlaubt. Wählen Sie einen Ort auf der Karte, oder geben Sie Koordinaten ein.",
      failed:
        "Der Browser konnte Ihren Standort nicht finden. Wählen Sie einen Ort auf der Karte, oder geben Sie Koordinaten ein.",
      stays: "Der gewählte Ort bleibt in dieser Seite. Er wird vergessen, wenn Sie senden oder gehen.",
      sentHere: "gesendet",
      waits: "Die Karte kommt, wenn die Regel geprüft ist.",
    },

    send: {
      title: "Senden",
      leaves: "Das verlässt Ihren Browser",
      slot: (name: string, slots: string, zone: string) =>
        `der Zeitabschnitt, in dem Sie senden, jetzt etwa „${name}“ (einer von ${slots}, Zeit von ${zone}): Er ist nicht verwischt und sagt wann, nicht wo`,
      leavesList: (cells: string) => [
        `die Nummer eines von ${cells} Feldern, nach dem Zufall gezogen`,
        "eine Zufallszahl, damit die Meldung nur einmal zählt",
        "der Fingerabdruck der Regel, nach der gezogen wurde, für alle mit dieser Zusage derselbe",
      ],
      notSent: "Sonst wird nichts gesendet: kein Ort, kein Name, kein Konto, kein Cookie.",
      cost: (cost: string, rest: string, limit: string) =>
        `Sie kostet ${cost} je km von den ${limit} je km, die Sie allen Meldungen zusammen erlauben; ${rest} sind jetzt übrig.`,
      operator: (host: string, spent: string) =>
        `Alle Kampagnen von ${host} zusammen haben bisher ${spent} je km gekostet.`,
      button: "Eine verrauschte Meldung senden",
      again: "Unverändert noch einmal senden",
      sending: "Wird gesendet …",
      checking: "Ihr Browser prüft die Regel. Sie können weiterlesen.",
      ready: "Die Regel ist geprüft. Wählen Sie einen Ort, dann senden Sie.",
      place: "Wählen Sie zuerst einen Ort.",
      refused: "Nicht gemeldet",
      refusedSent: "Gesendet und nicht gezählt",
      late: "Die Regel, nach der die Meldung gezogen wurde, war abgelaufen, als sie ankam.",
      coarse: "Wählen Sie den Ort auf der Karte, oder messen Sie noch einmal.",
      limits: "Ihre Grenzen können Sie am Ende dieser Seite ändern.",
      waiting: "Gesendet, noch nicht bestätigt",
      unconfirmed:
        "Die Kampagne endete, bevor der Dienst diesem Browser die Meldung bestätigte. Vielleicht wurde sie gezählt, vielleicht nicht.",
      lost: "Der Dienst hat die Meldung nicht bestätigt, und dieser Browser hat sie nicht mehr, um sie noch einmal zu senden. Vielleicht wurde sie gezählt, vielleicht nicht.",
    },

    receipt: {
      title: "Gesendet und gezählt",
      cell: (cell: string) => `Feld ${cell} wurde gesendet, und sonst nichts darüber, wo Sie sind.`,
      cellAndSlot: (cell: string, slot: string) =>
        `Feld ${cell} und Zeitabschnitt ${slot} wurden gesendet, und sonst nichts darüber, wo Sie sind.`,
      where: (place: string) => `Seine Mitte liegt bei ${place}. Es wurde nach dem Zufall gezogen.`,
      once: "Das war Ihre eine Meldung an diese Kampagne. Wenn Sie die Seite noch einmal öffnen, liest sie keinen Ort und sendet keine Meldung.",
      forgotten:
        "Diese Meldung steht nicht in der Liste dieses Browsers: Die Liste wurde gelöscht, während die Meldung unterwegs war, oder lässt sich nicht lesen. Diese Seite könnte dieser Kampagne noch einmal melden; zwei Meldungen verraten mehr als eine.",
      report: "Kennung der Meldung",
    },

    listed: {
      place: {
        how: "Wählen Sie einen Ort. Die Karte zeigt, wie oft jeder Ort der Kampagne von dort gemeldet würde; je kräftiger die Farbe, desto öfter. Einer davon wird in Ihrem Browser nach dem Zufall gezogen.",
        map: "Karte der Kampagne. Pfeiltasten verschieben den Ort um ein Viertel des Wegs zwischen zwei Orten der Kampagne, mit Umschalt um das Vierfache dieses Wegs.",
        half: (half: string, most: string) =>
          `von 100 Meldungen nennen etwa 50 einen Ort innerhalb von ${half}, etwa 90 einen innerhalb von ${most}.`,
        most: (percent: string) => `Der am häufigsten genannte Ort: ${percent} von 100.`,
        sentHow: "Der Ort mit dem dicken Rand. Die anderen sind alle, die hätten gezogen werden können.",
        tooCoarse: (accuracy: string, apart: string) =>
          `Ihr Browser weiß nur auf ${accuracy} genau, wo Sie sind, und die Orte der Kampagne liegen etwa ${apart} auseinander. Eine solche Meldung verdürbe die Karte. Messen Sie noch einmal, oder wählen Sie auf der Karte.`,
      },
      send: {
        leavesList: (places: string) => [
          `die Nummer eines von ${places} Orten, nach dem Zufall gezogen`,
          "eine Zufallszahl, damit sie einmal gezählt wird",
          "der Fingerabdruck der Regel, nach der gezogen wurde, für alle mit dieser Zusage derselbe",
        ],
      },
      receipt: {
        cell: (place: string) => `Ort ${place} wurde gesendet, und sonst nichts darüber, wo Sie sind.`,
        cellAndSlot: (place: string, slot: string) =>
          `Ort ${place} und Zeitabschnitt ${slot} wurden gesendet, und sonst nichts darüber, wo Sie sind.`,
        where: (place: string) => `Er liegt bei ${place}. Er wurde nach dem Zufall gezogen.`,
      },
      numbers: {
        cells: "Orte",
        cellsValue: (places: string, apart: string) => `${places}, etwa ${apart} auseinander`,
      },
    },

    ledger: {
      title: "Was von hier je gesendet wurde",
      where: (host: string) =>
        `Von diesem Browser an ${host}. Die Liste liegt nur in diesem Browser, bis er die Daten dieser Seite löscht: Safari tut das nach einer Woche ohne Besuch von selbst.`,
      none: "Bisher nichts.",
      left: (rest: string, limit: string) => `${rest} von ${limit} je km sind von Ihrem Budget übrig.`,
      operator: (spent: string) => `Dieser Betreiber hat davon ${spent} je km bekommen.`,
      together: (reports: string, guessed: number) =>
        `Alle ${reports} zusammen: Zwischen zwei Orten im Abstand von 200 m wird, wer sich nicht bewegt, höchstens ${guessed} von 100 Mal richtig geraten.`,
      day: "Tag",
      campaign: "Kampagne",
      cell: "Gemeldet",
      cost: "Kosten je km",
      state: "Stand",
      states: { sent: "nicht bestätigt", acknowledged: "gezählt", refused: "abgelehnt" },
      erase: "Diese Liste löschen …",
      eraseTitle: "Die Liste löschen?",
      eraseMeans: [
        "Dieser Browser vergisst, was er gesendet hat und was das gekostet hat.",
        "Die Meldungen selbst bleiben gezählt. Niemand kann sagen, welche Ihre sind, also kann niemand sie zurücknehmen.",
        "Diese Seite könnte derselben Kampagne dann noch einmal melden. Zwei Meldungen verraten mehr als eine: Ihre Kosten summieren sich, und nichts hier zählte das noch mit.",
      ],
      eraseNow: "Löschen",
      keep: "Behalten",
      erased: "Die Liste ist gelöscht.",
      notErased:
        "Die Liste ließ sich nicht löschen. Versuchen Sie es noch einmal, oder löschen Sie die Daten dieser Seite in Ihrem Browser.",
    },

    proof: {
      title: "Was diese Seite nicht beweisen kann",
      text: (host: string) =>
        `Diese Seite kommt von ${host}, dem Betreiber, den sie prüft. Ein unehrlicher Betreiber könnte Ihnen eine andere Seite schicken, die nur aussieht wie diese.`,
      instead:
        "Wenn Sie sich darauf nicht verlassen wollen, melden Sie mit einem Programm, das von anderswo kommt, in Python oder TypeScript, oder sehen Sie sich die Regel selbst an:",
      fingerprint:
        "Fingerabdruck der Regel. In dieser Runde sollten alle mit dieser Zusage denselben sehen; vergleichen Sie ihn mit anderen.",
    },

    numbers: {
      title: "In Zahlen",
      promise: "Zusage",
      promiseValue: (epsilon: string, slack: string) => `ε = ${epsilon} je km, und η = ${slack} für das Runden`,
      meaning:
        "Für zwei beliebige Positionen im Abstand d und jede Meldung: P(Meldung | die eine) ≤ exp(ε·d + η) · P(Meldung | die andere).",
      cells: "Felder",
      cellsValue: (cells: string, side: string) => `${cells}, jedes ${side} breit`,
      round: "Runde",
      expires: "Gültig bis",
    },

    limits: {
      title: "Ihre Grenzen",
      text: "Sie gelten für diesen Browser und diese Seite. Je kleiner die Zahl, desto stärker die Zusage, die Sie verlangen.",
      most: "Eine Meldung darf je km höchstens kosten",
      budget: "Alle Meldungen zusammen dürfen je km höchstens kosten",
      save: "Diese Grenzen nehmen",
      wrong: "Beide müssen Zahlen über 0 sein.",
    },

    trip: {
      lead: "Diese Kampagne fragt, wohin Wege führen. Wenn Sie mitmachen, zieht Ihr Browser zwei verwischte Orte nach dem Zufall, einen für den Anfang und einen für das Ende eines Ihrer Wege, und sendet beide einmal, zusammen. Wo Sie wirklich waren, verlässt Ihr Gerät nie.",
      begin: "Wo der Weg begann",
      end: "Wo der Weg endete",
      distance:
        "Wie weit liegen die Anfänge, und wie weit die Enden, zweier Wege auseinander, die Sie gemacht haben könnten?",
      guess: (apart: string, guessed: number) =>
        `Wer Ihre Meldung sieht und sonst keinen Hinweis hat, welchen von zwei Wegen Sie gemacht haben, deren Anfänge ${apart} und deren Enden ${apart} auseinander liegen, rät in höchstens ${guessed} von 100 Fällen richtig.`,
      notHidden: "Dass beide verwischten Orte von einer Person sind. Darum kostet ein Weg doppelt so viel wie ein Ort.",
      leavesList: (cells: string) => [
        `die Nummern zweier Felder von ${cells}, jede nach dem Zufall gezogen`,
        "eine Zufallszahl, damit der Weg einmal gezählt wird",
        "der Fingerabdruck der Regel, nach der gezogen wurde, für alle mit dieser Zusage derselbe",
      ],
      twice: "Ein Weg kostet das Doppelte der Zusage der Kampagne, einmal für jedes Ende.",
      ready: "Die Regel ist geprüft. Wählen Sie beide Orte, dann senden Sie.",
      cells: (from: string, to: string) =>
        `Die Felder ${from} und ${to} wurden gesendet, und sonst nichts über Ihren Weg.`,
      cellsAndSlot: (from: string, to: string, slot: string) =>
        `Die Felder ${from} und ${to} und Zeitabschnitt ${slot} wurden gesendet, und sonst nichts über Ihren Weg.`,
      where: (from: string, to: string) =>
        `Ihre Mitten liegen bei ${from} und ${to}. Beide wurden nach dem Zufall gezogen.`,
    },

    invitation: {
      one: "Sie nimmt für jede Einladung eine Meldung an.",
      title: "Ihre Einladung",
      kept: "Dieser Browser hat Ihre Einladung. Wenn Sie senden, tauscht er sie zuerst gegen ein Ticket, das der Dienst unterschreibt, ohne es zu sehen, und sendet dann die Meldung mit dem Ticket.",
      needed:
        "Diese Kampagne nimmt für jede Einladung eine Meldung an, und ohne Einladung kann nichts gesendet werden.",
      hides:
        "Der Dienst erkennt, dass Ihre Einladung benutzt wurde, und damit, dass Sie mitmachen, wenn er weiß, für wen sie ist. Das Ticket verrät ihm nicht, welche Meldung Ihre ist. Zeit und Netzadresse könnten es allen verraten, die die Verbindung sehen, auch dem Dienst; er sagt, dass er beides nicht aufbewahrt.",
      code: "Code Ihrer Einladung",
      use: "Benutzen",
      first: "Zuerst braucht es eine Einladung.",
      wrong: "Das ist kein Code einer Einladung: Er hat 20 Buchstaben und Ziffern, etwa k7qf3-m2x4p-abcde-98765.",
      unknown: "Der Dienst kennt diese Einladung nicht. Vergleichen Sie den Code mit dem, den Sie bekommen haben.",
      used: "Diese Einladung wurde schon benutzt: in einem anderen Browser, oder hier, bevor Daten dieser Seite gelöscht wurden. Jede gibt nur ein Ticket.",
      leaves:
        "vor der Meldung Ihre Einladung und mit der Meldung das Ticket, gegen das sie getauscht wurde: Keines von beiden verrät, welches das andere war",
      sent: "Nichts, heißt das, außer dem Ticket und davor Ihrer Einladung; am Ticket kann der Dienst nicht erkennen, welche das war.",
      erase: "Eine benutzte Einladung bleibt benutzt: Eine weitere Meldung bräuchte eine andere.",
    },

    reasons: GERMAN_REASONS,
  },
);

/** The words about places on the map of a rule: squares, or a list of places. */
export function placeWords({ onGrid }: { readonly onGrid: boolean }): typeof say.place {
  return onGrid ? say.place : { ...say.place, ...say.listed.place };
}
