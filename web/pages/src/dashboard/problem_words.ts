import { Refusal } from "./service.ts";
import { say } from "./texts.ts";

/** A problem in the reader's words. */
export function inWords(error: unknown): string {
  if (!(error instanceof Refusal)) return say.failed(String(error));
  if (error.problem === "unreachable" || error.status >= 500) return say.unreachable;
  return error.status === 401 ? say.tokenWrong : say.failed(error.message);
}
