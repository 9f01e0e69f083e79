/** What a report can reveal: a slider from two streets to two districts, and what the promise means there. */

import { odds, type Promised } from "@geoveil/client";
import { useState } from "preact/hooks";
import { distance, number } from "../texts/language.ts";
import { say } from "./texts.ts";

const STEPS = 60;
const NEAREST_KM = 0.1;
const FARTHEST_KM = 5;
const FIRST = 20;
const SAYS_LITTLE = Math.log(2);
const A_HINT = Math.log(10);
const words = say.reveals;

/** A distance with two digits, even steps apart by factors. */
export function apartKm(step: number): number {
  return Number((NEAREST_KM * (FARTHEST_KM / NEAREST_KM) ** (step / STEPS)).toPrecision(2));
}

/** The promise of a trip is what both of its ends cost together. */
export function Reveals({ promise, trips, checked }: { promise: Promised; trips: boolean; checked: boolean }) {
  const [step, setStep] = useState(FIRST);
  const apart = distance(apartKm(step));
  const { level, times, guessedOf100 } = odds(promise, apartKm(step));
  const verdict = level <= SAYS_LITTLE ? words.alike : level <= A_HINT ? words.between : words.apart;
  return (
    <section class="card stack" aria-labelledby="reveals">
      <h2 id="reveals">{words.title}</h2>
      <div class="slider">
        <div class="row spread">
          <label for="apart">{trips ? say.trip.distance : words.distance}</label>
          <output class="digits distance" for="apart">
            {apart}
          </output>
        </div>
        <input
          id="apart"
          type="range"
          min={0}
          max={STEPS}
          value={step}
          aria-valuetext={words.valueText(apart, guessedOf100)}
          onInput={({ currentTarget }) => setStep(currentTarget.valueAsNumber)}
        />
        <div class="row spread small soft" aria-hidden="true">
          <span>{words.streets}</span>
          <span>{words.districts}</span>
        </div>
      </div>
      <div class="odds">
        <Dots guessed={guessedOf100} />
        <div class="stack-tight">
          <p class="lead" id="guess">
            {(trips ? say.trip.guess : words.guess)(apart, guessedOf100)}
          </p>
          <p>
            {words.coin} {times < Infinity ? words.factor(number(times)) : words.manyTimes} {verdict}
          </p>
          <ul class="legend small" aria-hidden="true">
            <li>
              <span class="dot dot-luck" /> {words.byLuck}
            </li>
            <li>
              <span class="dot dot-report" /> {words.byReport}
            </li>
          </ul>
        </div>
      </div>
      <p class="soft">{words.always}</p>
      <p class={checked ? "notice notice-good" : "notice"} id="certified" role="status">
        {checked ? words.checked : words.unchecked}
      </p>
      <h3>{words.notHidden}</h3>
      <ul class="list">
        {words.notHiddenList.map((line) => (
          <li>{line}</li>
        ))}
        {trips && <li>{say.trip.notHidden}</li>}
      </ul>
    </section>
  );
}

/** A hundred guesses: half of them right by luck, some more, at most, by the report. */
function Dots({ guessed }: { guessed: number }) {
  const dots = Array.from({ length: 100 }, (_, at) => {
    const kind = at < 50 ? "luck" : at < guessed ? "report" : "wrong";
    return <circle class={`dot-${kind}`} cx={5 + 10 * (at % 10)} cy={95 - 10 * Math.floor(at / 10)} r={3.6} />;
  });
  return (
    <svg class="dots" viewBox="0 0 100 100" role="img" aria-label={words.dots(guessed)}>
      {dots}
    </svg>
  );
}
