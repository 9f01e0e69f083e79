/** One campaign: live counts, its map, what stands behind it, its rounds, and what can be changed. */

import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { MapCanvas } from "../map/canvas.ts";
import { type Estimate, largest, LOOKED_FOR, type Showing, unknown, valuesOf } from "../map/estimate.ts";
import { DistrictTable, useDistricts } from "../map/districts.tsx";
import { say as districtWords } from "../map/district_texts.ts";
import { FlowView } from "../map/flow_view.tsx";
import { CellTable, MapView } from "../map/map_view.tsx";
import { RegionButton, RegionWords, useRegion } from "../map/region.tsx";
import { TimeChoice, timeWords, useTimes } from "../map/times.tsx";
import { announce, number } from "../texts/language.ts";
import { Changes } from "./changes.tsx";
import { download } from "./download.ts";
import { Invitations } from "./invitations.tsx";
import { inWords, isAway, isDenied, Theirs } from "./problem_words.tsx";
import { wordsFor } from "../map/texts.ts";
import {
  address,
  failedForGood,
  hasMechanism,
  isOver,
  listen,
  Refusal,
  type Rounds,
  service,
  type State,
  staysWithoutMap,
} from "./service.ts";
import { simulatedTruth } from "./simulated.ts";
import { say } from "./texts.ts";
import { Timeline } from "./timeline.tsx";
import { Contributions, EstimateWords } from "./service_words.tsx";

const SHOWINGS = ["estimate", "doubt", "counts", "districts"] as const;
const AGAIN_MS = 3000;
const SETTLED_MS = 1500;

export function CampaignView({ id, onDenied }: { id: string; onDenied: () => void }) {
  const [state, setState] = useState<State>();
  const [rounds, setRounds] = useState<Rounds>();
  const [live, setLive] = useState(true);
  const [problem, setProblem] = useState<ComponentChildren>("");
  const again = useRef(0);
  const asking = useRef({ now: false, more: false });
  const stop = useRef((): void => undefined);

  // One look at a time, and one more where something happened meanwhile: an older answer never follows a newer one.
  const look = useCallback((): void => {
    if (asking.current.now) {
      asking.current.more = true;
      return;
    }
    clearTimeout(again.current);
    asking.current = { now: true, more: false };
    Promise.all([service.state(id), service.rounds(id)])
      .then(([newState, newRounds]) => {
        setState(newState);
        setRounds(newRounds);
        setProblem("");
      })
      .catch((error: unknown) => {
        if (isDenied(error)) return onDenied();
        setProblem(inWords(error, say.byItself));
        if (!(error instanceof Refusal) || error.problem !== "unknown-campaign") {
          again.current = window.setTimeout(look, AGAIN_MS);
        } else {
          setState(undefined); // it was deleted elsewhere: its figures stand for nothing any more
          stop.current();
        }
      })
      .finally(() => {
        const { more } = asking.current;
        asking.current = { now: false, more: false };
        if (more) look();
      });
  }, [id]);
  useEffect(() => {
    look();
    let settled = 0;
    stop.current = listen(id, (connected) => {
      setLive(connected);
      look();
      clearTimeout(settled); // another process of the service may be a second behind
      settled = window.setTimeout(look, SETTLED_MS);
    });
    return () => {
      stop.current();
      clearTimeout(settled);
      clearTimeout(again.current);
    };
  }, [id]);

  useEffect(() => {
    if (state) announce(`${state.name} · ${say.title}`);
  }, [state?.name]);

  const [chosen, setChosen] = useState<number>();
  const [redraws, setRedraws] = useState(0); // how often shapes behind the map were changed here
  const shown = chosen ?? state?.estimate?.round;
  return (
    <main class="stack">
      <p>
        <a href="#/">← {say.back}</a>
      </p>
      {!state && <h1>{id}</h1>}
      {problem && (
        <p class="notice notice-warm" role="alert">
          {problem}
        </p>
      )}
      {state && (
        <>
          <Head state={state} live={live && !problem} />
          {state.preparation ? (
            <p class="card lead" role="status">
              {state.preparation.problem ? (
                <>
                  {say.notPrepared} <Theirs>{state.preparation.problem}.</Theirs>
                </>
              ) : state.preparation.needs_area ? (
                say.needsArea(`/api/campaigns/${id}/area`)
              ) : (
                say.preparing
              )}
            </p>
          ) : shown === undefined ? (
            <p class="card lead">{withoutMap(state)}</p>
          ) : (
            <RoundMap key={`${shown} ${redraws}`} state={state} round={shown} />
          )}
          <div class="two">
            {rounds && rounds.rounds.length > 0 && (
              <Timeline
                {...{ rounds, shown }}
                latest={state.estimate?.round}
                over={isOver(state)}
                onRound={setChosen}
              />
            )}
            <Alarms state={state} />
            <Contributions choices={state.choices} />
          </div>
          {state.settings.tickets && <Invitations {...{ state, onDenied }} />}
          <Changes {...{ state, onDenied }} onChanged={look} onDrawn={() => setRedraws(redraws + 1)} />
        </>
      )}
    </main>
  );
}

/** Why there is no map, and whether one comes. */
function withoutMap(state: State): string {
  if (failedForGood(state)) return say.mapFailed;
  return staysWithoutMap(state) ? say.noMap : say.noEstimate(state.settings.minimum_reports);
}

function Head({ state, live }: { state: State; live: boolean }) {
  const [copied, setCopied] = useState(false);
  return (
    <section class="stack">
      <div class="row spread">
        <h1>{state.name}</h1>
        <span class="row">
          <span class={`badge badge-${state.state}`}>{say.states[state.state] ?? state.state}</span>
          {state.published && <span class="badge">{say.published}</span>}
          {state.state !== "ended" && (
            <span class={`badge ${live ? "badge-live" : "badge-paused"}`} role="status">
              {live ? say.live : say.notLive}
            </span>
          )}
        </span>
      </div>
      <dl class="figures numbers">
        <div>
          <dd>{number(state.reports_counted.round, 9)}</dd>
          <dt>
            {say.counted} {say.thisRound(number(state.round, 9))}
          </dt>
        </div>
        <div>
          <dd>{number(state.reports_counted.all, 9)}</dd>
          <dt>
            {say.counted} {say.all}
          </dt>
        </div>
        <div>
          <dd>{number(state.rounds_closed, 9)}</dd>
          <dt>{say.roundsClosed(state.rounds_closed)}</dt>
        </div>
        <div class="wide">
          <dt>{say.link}</dt>
          <dd class="link row">
            <a href={address(`c/${state.id}`)}>{state.link}</a>
            {navigator.clipboard && ( // which a page over plain HTTP does not have
              <button
                type="button"
                onClick={() => void navigator.clipboard.writeText(state.link).then(() => setCopied(true))}
              >
                {copied ? say.copied : say.copy}
              </button>
            )}
          </dd>
        </div>
      </dl>
    </section>
  );
}

// --- The map

/** What the service answers, once; as long as it is away it is asked again. */
function useAnswer<Answer>(ask: () => Promise<Answer>): { answer: Answer | undefined; problem: ComponentChildren } {
  const [answer, setAnswer] = useState<Answer>();
  const [problem, setProblem] = useState<ComponentChildren>("");
  useEffect(() => {
    let again = 0;
    let gone = false;
    const look = (): void => {
      ask().then(
        (value) => {
          setAnswer(() => value);
          setProblem("");
        },
        (error: unknown) => {
          setProblem(inWords(error, say.byItself));
          if (isAway(error) && !gone) again = window.setTimeout(look, AGAIN_MS);
        },
      );
    };
    look();
    return () => {
      gone = true;
      clearTimeout(again);
    };
  }, []);
  return { answer, problem };
}

interface MapData {
  readonly estimate: Estimate;
  readonly counts: { readonly counts: readonly number[]; readonly outside: number };
}

/** What a round has shown: a map of people, or of trips between districts. Another round is shown by another. */
function RoundMap({ state, round }: { state: State; round: number }) {
  return state.settings.trips ? <TripMap {...{ state, round }} /> : <Map {...{ state, round }} />;
}

function TripMap({ state, round }: { state: State; round: number }) {
  const { answer: estimate, problem } = useAnswer(() => service.estimate(state.id, round));
  if (problem) return <p class="notice notice-warm">{problem}</p>;
  if (!estimate?.flows) return <div class="card map-wait" aria-busy="true" />;
  const files = address(`api/campaigns/${encodeURIComponent(state.id)}/flows`);
  return (
    <section class="card stack" aria-label={say.mapOf}>
      <FlowView {...{ estimate, files }} flows={estimate.flows} />
    </section>
  );
}

function Map({ state, round }: { state: State; round: number }) {
  const { answer: data, problem } = useAnswer<MapData>(async () => {
    const [estimate, counts] = await Promise.all([service.estimate(state.id, round), service.counts(state.id, round)]);
    return { estimate, counts };
  });
  const { answer: backdrop } = useAnswer(() => service.backdrop(state.id));
  const [tiles, setTiles] = useState<{ tiles: string | null; attribution: string }>();
  const [showing, setShowing] = useState<Showing>("estimate");
  const map = useRef<MapCanvas>(undefined);
  useEffect(() => {
    void service.tiles().then(setTiles);
  }, []);

  const estimated = useMemo(() => data && valuesOf(data.estimate), [data]);
  const counted = useMemo(() => {
    if (!data || !estimated) return undefined;
    const total = Math.max(
      1,
      data.counts.counts.reduce((sum, count) => sum + count, 0),
    );
    const shares = data.counts.counts.map((count) => count / total);
    return {
      ...estimated,
      shares,
      known: undefined,
      errors: undefined,
      low: undefined,
      high: undefined,
      most: largest(shares),
    };
  }, [data, estimated]);
  const truth = useMemo(() => {
    const shares = estimated && simulatedTruth(state.id, estimated.cells.size);
    return (
      shares && { ...estimated, shares, errors: undefined, low: undefined, high: undefined, most: largest(shares) }
    );
  }, [estimated]);
  const region = useRegion((zones) => service.regions(state.id, round, zones), inWords);
  const districts = useDistricts(
    backdrop,
    showing === "districts",
    (zones) => service.regions(state.id, round, zones),
    inWords,
  );
  const times = useTimes(data?.estimate, estimated, (of) => service.slots(state.id, of));
  const slot = times.slot === undefined ? undefined : times.values.get(times.slot);

  if (problem) return <p class="notice notice-warm">{problem}</p>;
  if (!data || !estimated || !counted) return <div class="card map-wait" aria-busy="true" />;
  const shows = slot ? "estimate" : showing; // the rest is there for all times together
  const values = slot ?? (shows === "counts" ? counted : estimated);
  const beside = slot ? undefined : truth;
  const one = times.maps.length && shows !== "counts" ? times.most : values.most;
  const most = beside ? Math.max(one, beside.most) : one;
  const shared = { name: state.name, backdrop, tiles: tiles?.tiles ?? undefined };
  return (
    <section class="card stack" aria-label={say.mapOf}>
      <div class="row spread">
        <div class="row switch" role="group" aria-label={say.showing}>
          {SHOWINGS.filter((option) => option !== "districts" || districts.features.length).map((option) => (
            <button
              key={option}
              type="button"
              aria-pressed={shows === option}
              disabled={(option === "doubt" && !estimated.known) || (option !== "estimate" && slot !== undefined)}
              title={option !== "estimate" && slot ? timeWords.only : undefined}
              onClick={() => setShowing(option)}
            >
              {option === "districts" ? districtWords.districts : say[option]}
            </button>
          ))}
        </div>
        {!slot && <RegionButton region={region} />}
      </div>
      <TimeChoice estimate={data.estimate} times={times} />
      {shows === "counts" && <p class="small soft">{say.countsNote}</p>}
      {shows === "doubt" && <p class="small soft">{wordsFor(estimated.cells).doubtNote}</p>}
      {shows === "districts" && <p class="small soft">{wordsFor(estimated.cells).districtNote}</p>}
      <div class={beside ? "two" : ""}>
        <div>
          {beside && <h3>{say.beside}</h3>}
          <MapView
            {...shared}
            values={{ ...values, most }}
            showing={shows}
            region={slot ? undefined : region}
            districts={districts}
            onMap={(canvas) => (map.current = canvas)}
          />
        </div>
        {beside && (
          <div>
            <h3>{say.truth}</h3>
            <MapView {...shared} values={{ ...beside, most }} showing="truth" />
            <p class="notice small">{say.truthNote}</p>
          </div>
        )}
      </div>
      {!slot && <RegionWords region={region} />}
      {shows === "districts" && <DistrictTable districts={districts} />}
      {shows === "counts" && data.counts.outside > 0 && <p class="small soft">{say.outside(data.counts.outside)}</p>}
      {tiles?.attribution && <p class="small soft">{tiles.attribution}</p>}
      <CellTable values={values} level={shows === "counts" ? undefined : data.estimate.interval?.level} />
      <Behind {...{ state }} estimate={data.estimate} words={wordsFor(estimated.cells)} />
      <Exports state={state} round={round} map={map} slot={slot ? times.slot : undefined} />
    </section>
  );
}

interface BehindProps {
  readonly state: State;
  readonly estimate: Estimate;
  readonly words: ReturnType<typeof wordsFor>;
}

function Behind({ state, estimate, words }: BehindProps) {
  const lost = unknown(estimate);
  const apart = lost
    ? words.notToldApart(lost)
    : estimate.distribution.length > LOOKED_FOR
      ? words.notLooked
      : words.toldApart;
  return (
    <details open>
      <summary>{say.words}</summary>
      <ul class="facts">
        <li>{say.madeFrom(estimate.reports, estimate.rounds.length)}</li>
        <li>{say.certificate(number(estimate.certificate_nats_per_report, 2))}</li>
        <li>
          {say.stopped} <Theirs>{estimate.stopped}.</Theirs>
        </li>
        <li>{estimate.standard_error ? apart : say.noBars}</li>
        {estimate.interval && (
          <li>
            <Theirs>{estimate.interval.method}.</Theirs>
          </li>
        )}
        <EstimateWords estimate={estimate} />
        {hasMechanism(state) && (
          <li>
            <a href={address(`certificate/${encodeURIComponent(estimate.campaign)}`)}>{say.mechanism}</a>.{" "}
            {say.mechanismWhy}
          </li>
        )}
      </ul>
    </details>
  );
}

interface ExportsProps {
  readonly state: State;
  readonly round: number;
  readonly slot: number | undefined;
  readonly map: { current: MapCanvas | undefined };
}

function Exports({ state, round, map, slot }: ExportsProps) {
  const [query, part] = slot === undefined ? ["", ""] : [`?slot=${slot}`, `-slot-${slot}`];
  const file = (ending: string): string =>
    address(`api/campaigns/${encodeURIComponent(state.id)}/rounds/${round}/estimate.${ending}${query}`);
  const picture = async (): Promise<void> => {
    const png = await map.current?.picturePng();
    if (png) download(png, `${state.id}-round-${round}${part}.png`);
  };
  return (
    <div class="row">
      <strong>{say.exports}</strong>
      {(["geojson", "csv", "parquet"] as const).map((ending) => (
        <a class="button" key={ending} href={file(ending)} download={`${state.id}-round-${round}${part}.${ending}`}>
          {{ geojson: "GeoJSON", csv: "CSV", parquet: "GeoParquet" }[ending]}
        </a>
      ))}
      <button type="button" onClick={() => void picture()}>
        {say.png}
      </button>
    </div>
  );
}

function Alarms({ state: { alarm } }: { state: State }) {
  if (!alarm) return null;
  const raised = alarm.raised || alarm.slots?.raised;
  return (
    <section class={`card stack-tight ${raised ? "alarmed" : ""}`} id="alarms">
      <h2>{say.alarms}</h2>
      <p class={raised ? "notice notice-warm" : "notice notice-good"}>
        {raised ? <strong>{say.alarmRaised}</strong> : say.noAlarm}
      </p>
      <p class="small">
        <Theirs>{alarm.summary}</Theirs>
      </p>
      {alarm.slots && (
        <p class="small">
          {say.alarmBySlot} <Theirs>{alarm.slots.summary}</Theirs>
        </p>
      )}
    </section>
  );
}
