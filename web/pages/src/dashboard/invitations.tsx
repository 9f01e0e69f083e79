/** The invitations of a campaign that takes one report for each: how many were made and used, and new ones. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { download } from "./download.ts";
import { TypedNumber } from "./fields.tsx";
import { inWords, isDenied } from "./problem_words.tsx";
import { isOver, service, type State } from "./service.ts";
import { say } from "./texts.ts";

const MOST = 10_000;
const words = say.invitations;

interface InvitationsProps {
  readonly state: State;
  readonly onDenied: () => void;
}

export function Invitations({ state, onDenied }: InvitationsProps) {
  const { id, link } = state;
  const [standing, setStanding] = useState<{ readonly made: number; readonly used: number }>();
  const [count, setCount] = useState(100);
  const [codes, setCodes] = useState<readonly string[]>([]);
  const [problem, setProblem] = useState<ComponentChildren>("");
  const [busy, setBusy] = useState(false);
  const failed = (error: unknown): void => (isDenied(error) ? onDenied() : setProblem(inWords(error)));
  useEffect(() => {
    service.invitations(id).then(setStanding, () => undefined); // the page says itself where the service is away
  }, [id, codes, state.reports_counted.all]); // a ticket is asked for shortly before a report
  const save = (made: readonly string[]): void => download(csv(made, link), `${id}-invitations.csv`);
  const make = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    service
      .invite(id, count)
      .then((made) => {
        setCodes((before) => [...before, ...made]);
        save(made);
      }, failed)
      .finally(() => setBusy(false));
  };
  return (
    <section class="card stack" id="invitations" aria-labelledby="invitations-title">
      <h2 id="invitations-title">{words.title}</h2>
      <p>{words.why}</p>
      {standing && (
        <p id="invitations-standing" role="status">
          {words.standing(standing.made, standing.used)}
        </p>
      )}
      {!isOver(state) && (
        <form class="row" onSubmit={make}>
          <label for="invitations-count">{words.count}</label>
          <TypedNumber id="invitations-count" min={1} max={MOST} step={1} required value={count} onValue={setCount} />
          <button disabled={busy}>{words.make}</button>
        </form>
      )}
      {problem && (
        <p class="notice notice-warm" role="alert">
          {problem}
        </p>
      )}
      {codes.length > 0 && (
        <div class="notice stack-tight">
          <p role="status">{words.once(codes.length)}</p>
          <div class="row">
            <button type="button" onClick={() => save(codes)}>
              {words.again}
            </button>
          </div>
          <pre class="digits scrolls" tabIndex={0} role="group" aria-label={words.title}>
            {codes.join("\n")}
          </pre>
        </div>
      )}
    </section>
  );
}

/** A line for each code, with the link for one person. */
function csv(codes: readonly string[], link: string): Blob {
  const lines = codes.map((code) => `${code},${link}#invitation=${code}`);
  return new Blob([["invitation,link", ...lines, ""].join("\r\n")], { type: "text/csv" });
}
