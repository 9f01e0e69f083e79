/**
 * A published map: for everybody, in a page of its own or inside another; it asks for nothing but the map, and
 * for the share of a region that the reader chooses.
 */

import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { roundedUp } from "../../../sdk/src/words.ts";
import {
  address,
  failedForGood,
  hasMechanism,
  Refusal,
  service,
  type State,
  staysWithoutMap,
} from "../dashboard/service.ts";
import type { Backdrop } from "../map/backdrop.ts";
import { type Estimate, type Showing, valuesOf } from "../map/estimate.ts";
import { DistrictTable, useDistricts } from "../map/districts.tsx";
import { say as districtWords } from "../map/district_texts.ts";
import { FlowView } from "../map/flow_view.tsx";
import type { Flows } from "../map/flows.ts";
import { CellTable, MapView } from "../map/map_view.tsx";
import { RegionButton, type RegionShares, RegionWords, useRegion } from "../map/region.tsx";
import { TimeChoice, useTimes } from "../map/times.tsx";
import { announce, language, number } from "../texts/language.ts";
import { say } from "./texts.ts";

const SHOWINGS = ["estimate", "doubt", "districts"] as const;
const AGAIN_MS = 5000;
const [TURNS, TURN_MS] = [8, 1500];
const NEW_MS = 60_000;
const APART_KM = 0.2;
const CAMPAIGN = location.pathname.replace(/\/$/, "").split("/").pop() ?? "";

interface PublishedMap {
  readonly state: State;
  readonly estimate: Estimate;
}

async function fetchMap(): Promise<PublishedMap | string> {
  try {
    const state = await service.state(CAMPAIGN);
    if (!state.published) return say.notPublished;
    if (!state.estimate) return withoutMap(state);
    return { state, estimate: await service.estimate(CAMPAIGN) };
  } catch (error) {
    if (!(error instanceof Refusal) || error.status === 0 || error.status >= 429) return say.unreachable;
    return say.notPublished;
  }
}

/** Why there is no map, and whether one comes. */
function withoutMap(state: State): string {
  if (failedForGood(state)) return say.mapFailed;
  if (staysWithoutMap(state)) return say.noMap;
  return state.given_up === null ? say.noEstimate : say.failedSoFar;
}

/** That the map is older than it should be: the estimate of a later round failed. */
function Failed({ state }: { readonly state: State }) {
  if (state.given_up === null) return null;
  return <p class="notice notice-warm">{failedForGood(state) ? say.laterFailed : say.laterFailedSoFar}</p>;
}

/** What the service says of regions; it works out one question at a time, so where it is busy it is asked again. */
async function patiently(ask: () => Promise<RegionShares>): Promise<RegionShares> {
  for (let turn = 1; ; turn++) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Refusal && error.problem === "overloaded") || turn === TURNS) throw error;
      await new Promise((resolve) => setTimeout(resolve, TURN_MS));
    }
  }
}

function PublicMap() {
  const [map, setMap] = useState<PublishedMap>();
  const [words, setWords] = useState(say.loading);
  const [backdrop, setBackdrop] = useState<Backdrop>();
  const [tiles, setTiles] = useState<{ tiles: string | null; attribution: string }>();
  useEffect(() => {
    let again = 0;
    let hasBackdrop = false; // what lies behind the map
    const look = (): void => {
      if (!hasBackdrop) {
        service.backdrop(CAMPAIGN).then(
          (shapes) => {
            hasBackdrop = true;
            setBackdrop(shapes);
          },
          () => undefined, // asked for again with the map
        );
      }
      void fetchMap().then((answer) => {
        if (typeof answer === "string") {
          setWords(answer);
          if (answer === say.notPublished) setMap(undefined);
        } else {
          const { state, estimate: newest } = answer; // a map that is the same is not drawn anew
          setMap((before) => ({ state, estimate: before?.estimate.round === newest.round ? before.estimate : newest }));
          announce(answer.state.name);
        }
        again = window.setTimeout(look, typeof answer === "string" ? AGAIN_MS : NEW_MS);
      });
    };
    look();
    void service.tiles().then(setTiles);
    return () => clearTimeout(again);
  }, []);
  if (!map) {
    return (
      <main class="plain stack">
        <h1 aria-live="polite">{words}</h1>
      </main>
    );
  }
  const { flows } = map.estimate;
  if (flows) return <TripMap {...map} flows={flows} />;
  return <PeopleMap key={map.estimate.round} {...map} backdrop={backdrop} tiles={tiles} />;
}

function TripMap({ state, estimate, flows }: PublishedMap & { readonly flows: Flows }) {
  return (
    <main class="plain stack">
      <h1>{state.name}</h1>
      <Failed state={state} />
      <FlowView {...{ estimate, flows }} files={address(`api/campaigns/${encodeURIComponent(CAMPAIGN)}/flows`)} />
      <p class="small soft row">
        <CertificateLink state={state} />
        <span>{say.made}</span>
      </p>
    </main>
  );
}

function CertificateLink({ state }: { readonly state: State }) {
  if (!hasMechanism(state)) return null;
  return (
    <a href={address(`certificate/${encodeURIComponent(CAMPAIGN)}`)} target="_top">
      {say.certificate}
    </a>
  );
}

interface Behind {
  readonly backdrop: Backdrop | undefined;
  readonly tiles: { readonly tiles: string | null; readonly attribution: string } | undefined;
}

function PeopleMap({ state, estimate, backdrop, tiles }: PublishedMap & Behind) {
  const [showing, setShowing] = useState<Showing>("estimate");
  const all = useMemo(() => valuesOf(estimate), [estimate]);
  const times = useTimes(estimate, all, (round) => service.slots(CAMPAIGN, round));
  const slot = times.slot === undefined ? undefined : times.values.get(times.slot);
  const region = useRegion(
    (zone) => patiently(() => service.regionOfMap(CAMPAIGN, zone)),
    (error) => (error instanceof Refusal && error.problem === "not-offered" ? say.noInterval : say.regionFailed),
  );
  const districts = useDistricts(
    backdrop,
    showing === "districts",
    () => patiently(() => service.districtsOfMap(CAMPAIGN)),
    (error) => (error instanceof Refusal && error.problem === "not-offered" ? say.noInterval : say.regionFailed),
  );
  const values = useMemo(() => ({ ...(slot ?? all), most: times.most }), [slot, all, times.most]);
  const reports = times.maps.find((slotMap) => slotMap.slot === times.slot)?.reports ?? estimate.reports;
  const of = slot ? `?slot=${times.slot}` : "";
  const date = new Date(1000 * estimate.closed_at).toLocaleDateString(language, { dateStyle: "long" });
  const { epsilon_per_km: epsilonPerKm, slack_nats: slackNats } = estimate;
  const factor = slackNats === undefined ? undefined : roundedUp(Math.exp(APART_KM * epsilonPerKm + slackNats), 3);
  return (
    <main class="plain stack">
      <h1>{state.name}</h1>
      <Failed state={state} />
      <div class="row spread">
        <div class="row switch" role="group" aria-label={say.showing}>
          {SHOWINGS.filter((option) => option !== "districts" || districts.features.length).map((option) => (
            <button
              key={option}
              type="button"
              aria-pressed={showing === option}
              disabled={(option === "doubt" && !all.known) || (option !== "estimate" && slot !== undefined)}
              onClick={() => setShowing(option)}
            >
              {option === "districts" ? districtWords.table : say[option]}
            </button>
          ))}
        </div>
        {!slot && <RegionButton region={region} />}
      </div>
      <TimeChoice estimate={estimate} times={times} />
      <MapView
        name={state.name}
        values={values}
        showing={slot ? "estimate" : showing}
        backdrop={backdrop}
        tiles={tiles?.tiles ?? undefined}
        region={slot ? undefined : region}
        districts={districts}
      />
      {!slot && <RegionWords region={region} />}
      {!slot && showing === "districts" && <DistrictTable districts={districts} />}
      <p>
        {say.reports(reports, date)} {factor !== undefined && say.how(number(Number(factor)))}
      </p>
      {tiles?.attribution && <p class="small soft">{tiles.attribution}</p>}
      <CellTable values={values} level={estimate.interval?.level} />
      <p class="small soft row">
        <CertificateLink state={state} />
        <span>{say.data}</span>
        {(["geojson", "csv"] as const).map((ending) => (
          <a key={ending} href={address(`api/campaigns/${encodeURIComponent(CAMPAIGN)}/estimate.${ending}${of}`)}>
            {ending === "csv" ? "CSV" : "GeoJSON"}
          </a>
        ))}
        <span>{say.made}</span>
      </p>
    </main>
  );
}

render(<PublicMap />, document.getElementById("page")!);
