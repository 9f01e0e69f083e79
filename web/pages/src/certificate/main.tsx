/** The certificate of a campaign's mechanism, recomputed in the reader's own browser. */

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { roundedDown, roundedUp } from "../../../sdk/src/words.ts";
import { address, PATIENCE_MS, Refusal, service, type State } from "../dashboard/service.ts";
import { announce, cost, distance, language, number } from "../texts/language.ts";
import { say } from "./texts.ts";
import type { Facts, Message } from "./worker.ts";

const CAMPAIGN = location.pathname.replace(/\/$/, "").split("/").pop() ?? "";
const APART_KM = [0.05, 0.2, 0.5, 1, 2];
const LARGEST = 1 << 22;
/** Status → why there is no mechanism to check. */
const WHY: Readonly<Record<number, string>> = { 404: say.unknown, 409: say.notNow, 410: say.over };

async function fetchDocuments(): Promise<Uint8Array> {
  const answer = await fetch(address(`api/campaigns/${encodeURIComponent(CAMPAIGN)}/mechanism`), {
    credentials: "omit",
    cache: "no-cache",
    signal: AbortSignal.timeout?.(PATIENCE_MS) ?? null, // older browsers wait as long as they like
  });
  if (!answer.ok) throw new Refusal("", answer.status, "");
  const body = await answer.arrayBuffer();
  if (body.byteLength > LARGEST) throw new Refusal("", 413, "");
  return new Uint8Array(body);
}

function Certificate() {
  const [state, setState] = useState<State>();
  const [facts, setFacts] = useState<Facts>();
  const [words, setWords] = useState(say.loading);
  const [verdict, setVerdict] = useState<{ holds: boolean; seconds: number }>();
  const [published, setPublished] = useState(false);
  useEffect(() => {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = ({ data: message }: MessageEvent<Message>) => {
      if (message.kind === "facts") [setFacts(message.facts), setWords(say.checking)];
      else if (message.kind === "refused") setWords(say.refused(message.reason));
      else [setVerdict(message), setWords(message.holds ? say.holds : say.fails)];
    };
    worker.onerror = () => setWords(say.unreachable);
    service
      .state(CAMPAIGN)
      .then((campaign) => {
        setState(campaign);
        announce(say.title(campaign.name));
        return fetchDocuments();
      })
      .then((body) => {
        setPublished(true);
        worker.postMessage({ campaign: CAMPAIGN, body });
      })
      .catch((error: unknown) => setWords(WHY[error instanceof Refusal ? error.status : 0] ?? say.unreachable));
    return () => worker.terminate();
  }, []);
  if (!state) {
    return (
      <main class="plain stack">
        <h1 aria-live="polite">{words}</h1>
      </main>
    );
  }
  return (
    <main class="plain stack">
      <h1>{say.title(state.name)}</h1>
      <p class={`notice verdict ${verdict ? (verdict.holds ? "notice-good" : "notice-warm") : ""}`} role="status">
        {words} {verdict && <span class="small soft">{say.took(number(verdict.seconds, 2))}</span>}
      </p>
      {facts && <Details facts={facts} around={state.around} />}
      {published && (
        <section class="card stack-tight">
          <h2>{say.cannot}</h2>
          <p>{say.cannotWhy}</p>
          <p>
            <code class="digits">geoveil audit {state.link}</code>
          </p>
          {verdict?.holds && (
            <p>
              <a href={address(`c/${encodeURIComponent(CAMPAIGN)}`)}>{say.back}</a>
            </p>
          )}
        </section>
      )}
    </main>
  );
}

function Details({ facts, around }: { facts: Facts; around: boolean }) {
  const { epsilonPerKm, slackNats } = facts.promise;
  const words = facts.trips ? { ...say, ...say.trip } : say;
  const until = new Date(1000 * facts.expiresS).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" });
  return (
    <>
      <section class="card stack">
        {facts.listed && <p>{say.listed(number(facts.cells, 9), around)}</p>}
        <div class="scrolls" tabIndex={0} role="region" aria-label={words.odds}>
          <table class="numbers">
            <caption class="small soft">{words.odds}</caption>
            <thead>
              <tr>
                <th scope="col">{words.apart}</th>
                <th scope="col">{say.times}</th>
                <th scope="col">{say.common}</th>
              </tr>
            </thead>
            <tbody>
              {APART_KM.map((km) => {
                const { times, inCommon } = oddsAt(facts, km);
                return (
                  <tr key={km}>
                    <th scope="row">{distance(km)}</th>
                    <td>{times}</td>
                    <td>{inCommon}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </section>
      <section class="card">
        <dl class="stack-tight">
          <dt class="soft small">{words.promised}</dt>
          <dd>
            ε = {cost(epsilonPerKm)} / km, η = {number(Number(roundedUp(slackNats, 2)), 2)}
          </dd>
          <dt class="soft small">{say.fingerprint}</dt>
          <dd>
            {facts.ids.map((id) => (
              <div key={id}>
                <code class="digits">{id}</code>
              </div>
            ))}
            <p class="small soft">{facts.ids.length > 1 ? say.fingerprintsWhy : say.fingerprintWhy}</p>
          </dd>
          <dt class="soft small">{say.round}</dt>
          <dd>{number(facts.round, 9)}</dd>
          <dt class="soft small">{say.cells}</dt>
          <dd>{number(facts.cells, 9)}</dd>
          <dt class="soft small">{say.until}</dt>
          <dd>{until}</dd>
        </dl>
      </section>
    </>
  );
}

/** The odds at a distance, rounded so that they stay true. */
function oddsAt(facts: Facts, km: number): { times: string; inCommon: string } {
  const loss = facts.cost.epsilonPerKm * km + facts.cost.slackNats;
  return {
    times: number(Number(roundedUp(Math.exp(loss), 3)), 3),
    inCommon: number(Number(roundedDown(100 * Math.exp(-loss), 2)), 2),
  };
}

render(<Certificate />, document.getElementById("page")!);
