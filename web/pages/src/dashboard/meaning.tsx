/** What a campaign will mean, asked of the service whenever the form changes: in words, as a table, as a picture. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colour } from "../map/colours.ts";
import { largest, onScale } from "../map/estimate.ts";
import { cellsOf } from "../map/places.ts";
import { useDark } from "../map/map_view.tsx";
import { Stamp } from "../map/stamp.tsx";
import { distance, number } from "../texts/language.ts";
import { say } from "./form_texts.ts";
import { inWords, translated } from "./problem_words.tsx";
import { type Advice, Refusal, service } from "./service.ts";
import { say as shared } from "./texts.ts";

const ASK_MS = 450;
/** Until a service that is away is asked again. */
export const AGAIN_MS = 3000;

export interface Answer {
  readonly advice: Advice | undefined;
  /** Why there is none, where the service refuses. */
  readonly refusal: Refusal | undefined;
  readonly problem: ComponentChildren;
  readonly busy: boolean;
}

/** The answer to the newest question; one at a time is with the service, and a service that is away is asked again. */
export function useAdvice(question: object): Answer {
  const [answer, setAnswer] = useState<Answer>({ advice: undefined, refusal: undefined, problem: "", busy: true });
  const body = JSON.stringify(question);
  const newest = useRef(body);
  const waiting = useRef(0);
  const asking = useRef(false);
  const gone = useRef(false);
  const ask = async (): Promise<void> => {
    if (asking.current) return;
    asking.current = true;
    const now = newest.current;
    let result: Answer = { advice: undefined, refusal: undefined, problem: "", busy: false };
    try {
      result = { ...result, advice: await service.advice(JSON.parse(now) as object) };
    } catch (error) {
      const refusal = error instanceof Refusal && error.status === 422 ? error : undefined;
      const away = error instanceof Refusal && (error.status === 0 || error.status === 503);
      result = { ...result, refusal, problem: inWords(error, away ? shared.byItself : undefined), busy: away };
    }
    asking.current = false;
    if (gone.current) return;
    if (now !== newest.current) return void ask();
    setAnswer(result);
    if (result.busy) waiting.current = window.setTimeout(() => void ask(), AGAIN_MS);
  };
  useEffect(() => {
    newest.current = body;
    setAnswer((before) => ({ ...before, busy: true }));
    clearTimeout(waiting.current);
    waiting.current = window.setTimeout(() => void ask(), ASK_MS);
    return () => clearTimeout(waiting.current);
  }, [body]);
  useEffect(
    () => () => {
      gone.current = true;
    },
    [],
  );
  return answer;
}

export function Meaning({ advice, refusal, problem, busy }: Answer) {
  const beside = refusal?.field; // then it is said there
  return (
    <section class="card stack meaning" aria-busy={busy}>
      <h2>{say.meaning}</h2>
      <div aria-live="polite" class={`stack-tight fades ${busy && advice ? "stale" : ""}`}>
        {problem && <p class="notice notice-warm">{beside ? say.refused : problem}</p>}
        {!advice && !problem && <p class="soft">{busy ? say.meaningWait : say.meaningNone}</p>}
        {advice && (
          <>
            {busy && <p class="soft">{say.meaningWait}</p>}
            {advice.choices.length > 0 && <Choices advice={advice} />}
            <Sentences said={advice.sentences} />
            {advice.example && <Example example={advice.example} />}
          </>
        )}
      </div>
    </section>
  );
}

function Sentences({ said }: { said: readonly string[] }) {
  const words = said.map((sentence) => [sentence, translated(sentence)] as const);
  return (
    <>
      {words.some(([, own]) => own === undefined) && <p class="small soft">{shared.theirs}</p>}
      <ul class="facts">
        {words.map(([sentence, own]) => (
          <li key={sentence} lang={own === undefined ? "en" : undefined}>
            {own ?? sentence}
          </li>
        ))}
      </ul>
    </>
  );
}

function Choices({ advice: { choices } }: { advice: Advice }) {
  return (
    <>
      <div class="scrolls" tabIndex={0} role="region" aria-label={say.choices}>
        <table class="numbers" id="choices">
          <caption class="small soft">{say.choices}</caption>
          <thead>
            <tr>
              <th scope="col">{say.choicePromise}</th>
              <th scope="col">{say.choiceDistance}</th>
              <th scope="col">{say.choiceError}</th>
            </tr>
          </thead>
          <tbody>
            {choices.map((choice) => (
              <tr key={choice.epsilon_per_km}>
                <th scope="row">{number(choice.epsilon_per_km, 6)}</th>
                <td>{distance(choice.mean_distance_km)}</td>
                <td>{choice.expected_error_km === null ? "–" : distance(choice.expected_error_km)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="small">{say.choicesWho}</p>
    </>
  );
}

function Example({ example }: { example: NonNullable<Advice["example"]> }) {
  const dark = useDark();
  const cells = useMemo(() => cellsOf(example.space), [example]);
  const most = largest(example.people);
  const maps = [
    [example.people, say.exampleTruth],
    [example.reports, say.exampleReports],
    [example.map, say.exampleMap],
  ] as const;
  return (
    <figure class="example">
      <div class="thirds">
        {maps.map(([shares, words]) => (
          <div key={words}>
            <Stamp cells={cells} paint={(cell) => colour(onScale(shares[cell]!, most), dark)} of={[shares, dark]} />
            <p class="small">{words}</p>
          </div>
        ))}
      </div>
      <figcaption class="small soft">{say.exampleNote}</figcaption>
    </figure>
  );
}
