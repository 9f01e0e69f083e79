/** What the service refuses and says, in the reader's words where there are some. */

import type { ComponentChildren } from "preact";
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

/** A problem in the reader's words, or in those of the service. */
export function inWords(error: unknown): ComponentChildren {
  if (!(error instanceof Refusal)) return say.fault(String(error));
  if (error.problem === "unreachable" || error.status >= 500) return say.unreachable;
  if (error.status === 401) return say.tokenWrong;
  return (
    say.problems[error.problem] ?? (
      <>
        {say.failed} <Theirs>{error.message}</Theirs>
      </>
    )
  );
}
