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

/** A problem in the reader's words. */
export function inWords(error: unknown): string {
  if (!(error instanceof Refusal)) return say.failed(String(error));
  if (error.problem === "unreachable" || error.status >= 500) return say.unreachable;
  return error.status === 401 ? say.tokenWrong : say.failed(error.message);
}
