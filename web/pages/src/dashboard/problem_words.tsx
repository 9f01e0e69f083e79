/** What the service refuses and says, in the reader's words where there are some. */

import type { ComponentChildren } from "preact";
import { language } from "../texts/language.ts";
import { Refusal } from "./service.ts";
import { say } from "./texts.ts";

/** What the form calls a setting that the service calls by the name of its interface; in English, as it speaks. */
const CALLED: Readonly<Record<string, string>> = {
  cell_km: "the side of a cell",
  epsilon_per_km: "the promise",
  promises_per_km: "the promises",
  minimum_reports: "the reports that a round needs",
  round_size: "the reports at which a round closes",
  round_hours: "the hours after which a round closes",
  slots: "times",
};
const SETTING = new RegExp(`\\b(?:${Object.keys(CALLED).join("|")})\\b`, "g");

/** What the service says against a setting, by the names that stand in the form. */
export function inFormWords(sentence: string): string {
  return sentence.replace(SETTING, (name) => CALLED[name]!);
}

/** What the service says, which is English; whoever reads another language is told so first. */
export function Theirs({ children }: { children: ComponentChildren }) {
  return (
    <>
      {say.theirs && <span class="soft">{say.theirs} </span>}
      <span lang="en">{children}</span>
    </>
  );
}

/** Whether there is no answer from the service for now. */
export function isAway(error: unknown): boolean {
  return error instanceof Refusal && (error.status === 0 || error.status >= 500);
}

/** Whether the service does not know the token. */
export function isDenied(error: unknown): boolean {
  return error instanceof Refusal && error.status === 401;
}

/** A problem in the reader's words, or as the service puts it; `next` is what happens where there is no answer. */
export function inWords(error: unknown, next = say.tryAgain): ComponentChildren {
  if (!(error instanceof Refusal)) return say.fault(String(error));
  if (isAway(error)) return `${say.unreachable} ${next}`;
  if (error.status === 401) return say.tokenWrong;
  return (
    say.problems[error.problem] ?? (
      <>
        {say.failed} <Theirs>{error.message}</Theirs>
      </>
    )
  );
}

// --- What the service says of a campaign that might be made: always these sentences, with numbers of their own

type Part = string | undefined;
/** How a sentence reads, and how it reads in German with its parts, those in brackets. */
type Translation = readonly [RegExp, (...parts: Part[]) => string];

const AS_LIKELY =
  /: any report is at most (\S+) times as likely from one as from the other(?:; of (\S+) such reports from one, at least (\S+) on average would also come from the other)?\.$/;

function asLikely(pair: string): Translation {
  return [
    new RegExp(`^${pair}${AS_LIKELY.source}`),
    (near, factor, of, least) =>
      `${PAIRS[pair]!.replace("%", near!)}: Jede Meldung ist von der einen Person höchstens ${factor}-mal so wahrscheinlich wie von der anderen` +
      (of ? `; von ${of} solchen Meldungen der einen kämen im Mittel mindestens ${least} auch von der anderen.` : "."),
  ];
}

const PAIRS: Readonly<Record<string, string>> = {
  "Whoever stands within (.+) of you could have sent the same report":
    "Wer im Umkreis von % um Sie steht, könnte dieselbe Meldung gesendet haben",
  "Two people (\\S+ k?m) apart": "Zwei Menschen, die % voneinander stehen",
  "Two people whose trips begin (.+) apart and end .+ apart":
    "Zwei Menschen, deren Wege % voneinander beginnen und ebenso weit voneinander enden",
};

const GERMAN: readonly Translation[] = [
  ...Object.keys(PAIRS).map(asLikely),
  [
    /^A report lands (.+) from its person on average\.$/,
    (far) => `Eine Meldung liegt im Mittel ${far} von ihrer Person entfernt.`,
  ],
  [
    /^It tells (\S+) of the (\S+) bits of which (cell a person is in|place a person is at)\.$/,
    (bits, all, where) =>
      `Sie sagt ${bits} der ${all} Bit darüber, ${where!.startsWith("cell") ? "in welcher Zelle" : "an welchem Ort"} jemand ist.`,
  ],
  [
    /^With (\S+) reports? of an example city the map that comes back is about (.+) off, and the map of the reports as they are (.+)\.$/,
    (reports, back, raw) =>
      `Mit ${numberWord(reports!)} einer Beispielstadt liegt die rekonstruierte Karte um etwa ${back} daneben, die Karte der rohen Meldungen um ${raw}.`,
  ],
  [
    /^Worked out on (\S+) cells of (.+) in the place of your (\S+)\.$/,
    (cells, side, all) => `Berechnet auf ${cells} Zellen von ${side} anstelle Ihrer ${all}.`,
  ],
  [
    /^Worked out on the middle of your area of (\S+) cells: (\S+) cells of (.+), and in proportion (\S+) of (\S+) (?:person|people)\.$/,
    (all, cells, side, some, people) =>
      `Berechnet auf der Mitte Ihres Gebiets von ${all} Zellen: ${cells} Zellen von ${side}, und im Verhältnis dazu ${some} von ${people} Menschen.`,
  ],
  [
    /^A trip is charged twice, since it is two reports that are known to be one person's\.$/,
    () => "Ein Weg kostet doppelt: Er besteht aus zwei Meldungen, von denen man weiß, dass sie von einer Person sind.",
  ],
  [
    /^Each end of a trip lands (.+) from where it was on average, and tells (\S+) of the (\S+) bits of which cell that was\.$/,
    (far, bits, all) =>
      `Jedes Ende eines Wegs liegt im Mittel ${far} von seinem Ort entfernt und sagt ${bits} der ${all} Bit darüber, in welcher Zelle er war.`,
  ],
  [
    /^How far off the flows will be is not worked out beforehand: they come with intervals between districts\.$/,
    () =>
      "Wie weit die Ströme danebenliegen werden, wird nicht vorher berechnet: Sie kommen mit Intervallen zwischen Bezirken.",
  ],
  [
    /^A (trip|report) costs ε = (\S+) per km, and the page at the campaign's link sends nothing above (\S+) per km unless the person raises that limit there: nobody else can take part on it\.$/,
    (what, cost, limit) =>
      `${what === "trip" ? "Ein Weg" : "Eine Meldung"} kostet ε = ${cost} je km, und die Seite am Link der Kampagne sendet nichts über ${limit} je km, wenn jemand diese Grenze dort nicht anhebt: Sonst kann dort niemand teilnehmen.`,
  ],
  [
    /^The page at the campaign's link lets nobody choose a promise above (\S+) per km unless the person raises that limit there\.$/,
    (limit) =>
      `Auf der Seite am Link der Kampagne kann niemand ein Versprechen über ${limit} je km wählen, ohne diese Grenze dort anzuheben.`,
  ],
  [
    /^Everybody chooses among (\S+) promises\. Whoever chooses nothing has the strongest, ε = (\S+) per km, and the sentences below are about that one\.$/,
    (promises, strongest) =>
      `Alle wählen unter ${promises} Versprechen. Wer nichts wählt, hat das stärkste, ε = ${strongest} je km; von diesem handeln die folgenden Sätze.`,
  ],
  [
    /^Every report also names one of (\S+) slots of time \((\S+)\)\. The slot is not noisy: it says when, not where, and the promise about places is the same in all of them\.$/,
    (slots, zone) =>
      `Jede Meldung nennt auch eine von ${slots} Zeiten (${zone}). Die Zeit ist nicht verrauscht: Sie sagt wann, nicht wo, und das Versprechen über Orte ist in allen dasselbe.`,
  ],
  [
    /^A slot with (\S+) reports? has a map of its own: (\S+) reports? spread evenly are about (\S+) in each(, too few)?\.$/,
    (least, people, perSlot, few) =>
      `Eine Zeit mit ${numberWord(least!)} hat eine eigene Karte: ${numberWord(people!)}, gleichmäßig verteilt, sind etwa ${perSlot} in jeder${few ? ", zu wenige" : ""}.`,
  ],
];

function numberWord(reports: string): string {
  return `${reports} ${reports === "1" ? "Meldung" : "Meldungen"}`;
}

/** A number as it is written in German. */
function germanNumber(part: Part): Part {
  return part?.replace(/[.,](?=\d)/g, (mark) => (mark === "." ? "," : "."));
}

/** A sentence of the service in German; nothing where it is none of those that there are words for. */
export function inGerman(sentence: string): string | undefined {
  for (const [pattern, words] of GERMAN) {
    const match = pattern.exec(sentence);
    if (match) return words(...match.slice(1).map(germanNumber));
  }
  return undefined;
}

/** A sentence of the service in the reader's language, where there are words for it. */
export function translated(sentence: string): string | undefined {
  return language === "de" ? inGerman(sentence) : sentence;
}
