/** What the service says about rounds that disagree, promises that people chose, and slots of time. */

import type { Choices, Estimate } from "../map/estimate.ts";
import { number, texts } from "../texts/language.ts";
import { Theirs } from "./problem_words.tsx";

const say = texts(
  {
    title: "What people chose",
    promise: "Promise, per km",
    reports: "Reports",
    bits: "A report tells, in bits",
    few: "too few to tell",
  },
  {
    title: "Was die Menschen gewählt haben",
    promise: "Versprechen, je km",
    reports: "Meldungen",
    bits: "Eine Meldung sagt, in Bit",
    few: "zu wenige, um es zu sagen",
  },
);

/** Sentences of the estimate, as lines of a list. */
export function EstimateWords({ estimate: { drift, slots } }: { estimate: Estimate }) {
  return (
    <>
      {drift && (
        <li id="drift">
          <Theirs>{drift.summary}</Theirs>
        </li>
      )}
      {slots && (
        <li>
          <Theirs>{slots.summary}</Theirs>
        </li>
      )}
    </>
  );
}

/** How many chose each promise and what a report under it tells, where enough did; and whether it depends on the place. */
export function Contributions({ choices }: { choices: Choices | null }) {
  if (!choices) return null;
  return (
    <section class={`card stack-tight ${choices.dependent ? "alarmed" : ""}`} id="choices" aria-labelledby="chosen">
      <h2 id="chosen">{say.title}</h2>
      <table class="numbers">
        <thead>
          <tr>
            <th scope="col">{say.promise}</th>
            <th scope="col">{say.reports}</th>
            <th scope="col">{say.bits}</th>
          </tr>
        </thead>
        <tbody>
          {choices.levels.map((level) => (
            <tr key={level.epsilon_per_km}>
              <th scope="row">{number(level.epsilon_per_km, 6)}</th>
              <td>{level.reports === null ? say.few : number(level.reports, 9)}</td>
              <td>{level.bits_per_report === null ? "–" : number(level.bits_per_report, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="small">
        <Theirs>{choices.summary}</Theirs>
      </p>
    </section>
  );
}
