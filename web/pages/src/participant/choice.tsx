/** The promises that a campaign offers, with the consequences beside each; the strongest unless another is chosen. */

import { odds } from "@geoveil/client";
import { cost, distance } from "../texts/language.ts";
import type { Level, Limits } from "./device.ts";
import { say } from "./texts.ts";

const NEARBY_KM = 0.2;
const FARTHER_KM = 1;
const words = say.choice;

interface ChoiceProps {
  readonly levels: readonly Level[];
  /** The ε of the promise that was chosen; nothing for the strongest. */
  readonly chosen: number | undefined;
  readonly limits: Limits;
  readonly open: boolean;
  readonly choose: (epsilonPerKm: number) => void;
}

export function Choice({ levels, chosen, limits, open, choose }: ChoiceProps) {
  if (levels.length < 2) return null;
  const current = chosen ?? levels[0]!.promise.epsilonPerKm;
  return (
    <section class="card stack" aria-labelledby="choice">
      <h2 id="choice">{words.title}</h2>
      <p>{words.how}</p>
      <fieldset class="choices stack-tight" aria-labelledby="choice">
        {levels.map(({ promise, cost: charged, meanKm }, at) => {
          const allowed = charged.epsilonPerKm <= limits.maxEpsilonPerKm;
          return (
            <label class="choice-of row" key={promise.epsilonPerKm}>
              <input
                type="radio"
                name="promise"
                value={promise.epsilonPerKm}
                checked={promise.epsilonPerKm === current}
                disabled={!open || !allowed}
                onChange={() => choose(promise.epsilonPerKm)}
              />
              <span>
                <strong>{words.name(at, levels.length)}</strong>{" "}
                {words.guessed(
                  distance(NEARBY_KM),
                  odds(charged, NEARBY_KM).guessedOf100,
                  distance(FARTHER_KM),
                  odds(charged, FARTHER_KM).guessedOf100,
                )}{" "}
                {words.lies(distance(meanKm))} {words.costs(cost(charged.epsilonPerKm))}
                {!allowed && ` ${words.above}`}
              </span>
            </label>
          );
        })}
      </fieldset>
      <p class="soft">{words.seen}</p>
    </section>
  );
}
