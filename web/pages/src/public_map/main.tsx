/** A published map: for everybody, in a page of its own or inside another; it asks for nothing but the map. */

import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { roundedUp } from "../../../sdk/src/words.ts";
import { address, Refusal, service, type State } from "../dashboard/service.ts";
import type { Backdrop } from "../map/backdrop.ts";
import { type Estimate, type Showing, valuesOf } from "../map/estimate.ts";
import { CellTable, MapView } from "../map/map_view.tsx";
import { announce, language, number } from "../texts/language.ts";
import { say } from "./texts.ts";

const AGAIN_MS = 5000;
const NEW_MS = 60_000;
const APART_KM = 0.2;
const CAMPAIGN = decodeURIComponent(location.pathname.replace(/\/$/, "").split("/").pop() ?? "");

interface Seen {
  readonly state: State;
  readonly estimate: Estimate;
}

async function published(): Promise<Seen | string> {
  try {
    const state = await service.state(CAMPAIGN);
    if (!state.published) return say.notPublished;
    return { state, estimate: await service.estimate(CAMPAIGN) };
  } catch (error) {
    if (!(error instanceof Refusal) || error.status === 0 || error.status >= 429) return say.unreachable;
    return error.problem === "no-estimate-yet" ? say.noEstimate : say.notPublished;
  }
}

function PublicMap() {
  const [seen, setSeen] = useState<Seen>();
  const [words, setWords] = useState(say.loading);
  const [backdrop, setBackdrop] = useState<Backdrop>();
  const [tiles, setTiles] = useState<{ tiles: string | null; attribution: string }>();
  const [showing, setShowing] = useState<Showing>("estimate");
  useEffect(() => {
    let again = 0;
    const look = (): void => {
      void published().then((found) => {
        if (typeof found === "string") {
          setWords(found);
          if (found === say.notPublished) setSeen(undefined);
        } else {
          setSeen((before) => (before?.estimate.round === found.estimate.round ? before : found));
          announce(found.state.name);
        }
        again = window.setTimeout(look, typeof found === "string" ? AGAIN_MS : NEW_MS);
      });
    };
    look();
    void service.backdrop(CAMPAIGN).then(setBackdrop, () => undefined);
    void service.tiles().then(setTiles);
    return () => clearTimeout(again);
  }, []);
  const values = useMemo(() => seen && valuesOf(seen.estimate), [seen]);
  if (!seen || !values) {
    return (
      <main class="plain stack">
        <h1 aria-live="polite">{words}</h1>
      </main>
    );
  }
  const { state, estimate } = seen;
  const date = new Date(1000 * estimate.closed_at).toLocaleDateString(language, { dateStyle: "long" });
  const { epsilon_per_km: epsilonPerKm, slack_nats: slackNats } = estimate;
  const times = slackNats === undefined ? undefined : roundedUp(Math.exp(APART_KM * epsilonPerKm + slackNats), 3);
  return (
    <main class="plain stack">
      <div class="row spread">
        <h1>{state.name}</h1>
        <div class="row switch" role="group" aria-label={say.showing}>
          {(["estimate", "doubt"] as const).map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={showing === each}
              disabled={each === "doubt" && !values.known}
              onClick={() => setShowing(each)}
            >
              {say[each]}
            </button>
          ))}
        </div>
      </div>
      <MapView
        name={state.name}
        values={values}
        showing={showing}
        backdrop={backdrop}
        tiles={tiles?.tiles ?? undefined}
      />
      <p>
        {say.reports(number(estimate.reports, 9), date)} {times !== undefined && say.how(number(Number(times)))}
      </p>
      {tiles?.attribution && <p class="small soft">{tiles.attribution}</p>}
      <CellTable values={values} level={estimate.interval?.level} />
      <p class="small soft row">
        <a href={address(`certificate/${encodeURIComponent(CAMPAIGN)}`)} target="_top">
          {say.certificate}
        </a>
        <span>
          {say.data}{" "}
          {(["geojson", "csv"] as const).map((ending) => (
            <a key={ending} href={address(`api/campaigns/${encodeURIComponent(CAMPAIGN)}/estimate.${ending}`)}>
              {` ${ending === "csv" ? "CSV" : "GeoJSON"}`}
            </a>
          ))}
        </span>
        <span>{say.made}</span>
      </p>
    </main>
  );
}

render(<PublicMap />, document.getElementById("page")!);
