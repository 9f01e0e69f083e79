/** Flows between districts: a map with arrows, the matrix, a table, and the files. */

import { useMemo, useState } from "preact/hooks";
import { degrees, number, percent } from "../texts/language.ts";
import { colour, css } from "./colours.ts";
import { type Estimate, largest, onScale } from "./estimate.ts";
import { say } from "./flow_texts.ts";
import { arrow, districtsOf, type Flow, type Flows, largestFlows, middleKm, sure } from "./flows.ts";
import { Cells, type Space } from "./grid.ts";
import { useDark } from "./map_view.tsx";
import { fitted, toScreen } from "./view.ts";
import "./flow.css";

const WIDTH = 720;
const MOST_LINES = 60;
const MOST_ROWS = 50;
const WIDEST = 12;
const LARGEST_RING = 22;
const ENDINGS = { geojson: "GeoJSON", csv: "CSV", parquet: "GeoParquet", json: "JSON" } as const;

interface FlowViewProps {
  readonly estimate: Estimate;
  readonly flows: Flows;
  /** The address of the flows, without its ending. */
  readonly files: string;
}

export function FlowView({ estimate, flows, files }: FlowViewProps) {
  const cells = useMemo(() => new Cells(estimate.space as Space), [estimate]);
  const [from, setFrom] = useState<number>();
  const nameOf = (district: number): string =>
    say.district(String(district), degrees(...cells.plane.toLatLng(middleKm(flows, cells, district)), 2));
  return (
    <div class="stack flows">
      <h2>{say.title}</h2>
      <p>{say.of(estimate.reports, percent(flows.stay_in_district_share))}</p>
      {!flows.low && <p class="notice notice-warm">{say.unfinished}</p>}
      <label class="row">
        {say.from}{" "}
        <select
          id="flows-from"
          onChange={({ currentTarget: { value } }) => setFrom(value === "" ? undefined : Number(value))}
        >
          <option value="">{say.anywhere}</option>
          {Array.from({ length: districtsOf(flows) }, (_, district) => (
            <option key={district} value={district}>
              {nameOf(district)}
            </option>
          ))}
        </select>
      </label>
      <FlowMap {...{ estimate, flows, cells, from }} />
      <p class="small soft">{say.use}</p>
      <FlowTable {...{ flows, from, nameOf }} />
      <Matrix {...{ flows, nameOf }} />
      <p class="small soft row">
        <span>{say.data}</span>
        {Object.entries(ENDINGS).map(([ending, name]) => (
          <a key={ending} href={`${files}.${ending}?round=${estimate.round}`}>
            {name}
          </a>
        ))}
      </p>
    </div>
  );
}

function FlowMap({
  estimate,
  flows,
  cells,
  from,
}: {
  estimate: Estimate;
  flows: Flows;
  cells: Cells;
  from: number | undefined;
}) {
  const dark = useDark();
  const [west, south] = cells.corner;
  const height = Math.round(Math.min(Math.max((WIDTH * cells.heightKm) / cells.widthKm, 240), 900));
  const view = fitted([west, south], [west + cells.widthKm, south + cells.heightKm], WIDTH, height, 8);
  const most = largest(estimate.distribution);
  const side = cells.cellKm * view.pixelsPerKm;
  const at = (district: number): [number, number] => toScreen(view, middleKm(flows, cells, district));
  const moving = largestFlows(flows, from, Infinity).filter((flow) => flow.from !== flow.to);
  const lines = moving.slice(0, MOST_LINES);
  const widest = lines[0]?.share ?? 1;
  const stays = Array.from(
    { length: districtsOf(flows) },
    (_, district) => flows.share[district * (districtsOf(flows) + 1)]!,
  );
  const longest = largest(stays);
  return (
    <figure>
      <svg class="flow-map" viewBox={`0 0 ${WIDTH} ${height}`} role="img" aria-label={say.map(number(lines.length, 3))}>
        {estimate.distribution.map((share, cell) => {
          const [x, y] = toScreen(view, cells.centreKm(cell));
          const fill = css(colour(0.3 * onScale(share, most), dark));
          return <rect key={cell} x={x - side / 2} y={y - side / 2} width={side} height={side} fill={fill} />;
        })}
        {[...lines].reverse().map((flow) => (
          <path
            key={`${flow.from}-${flow.to}`}
            class={`flow ${sure(flow) === false ? "flow-pale" : ""}`}
            d={arrow(at(flow.from), at(flow.to), Math.max(0.6, (WIDEST * flow.share) / widest))}
          >
            <title>{inWords(flow, flows.level)}</title>
          </path>
        ))}
        {stays.map((share, district) => {
          const [cx, cy] = at(district);
          if (!share || (from !== undefined && from !== district)) return null;
          return (
            <circle key={district} class="flow-stay" cx={cx} cy={cy} r={LARGEST_RING * Math.sqrt(share / longest)}>
              <title>
                {inWords({ from: district, to: district, share, low: undefined, high: undefined }, undefined)}
              </title>
            </circle>
          );
        })}
      </svg>
      <figcaption class="row small">
        <span>
          <i class="flow-key" aria-hidden="true" /> {say.wide(percent(widest))}
        </span>
        {flows.low && (
          <span>
            <i class="flow-key flow-key-pale" aria-hidden="true" /> {say.pale}
          </span>
        )}
        <span>
          <i class="flow-key flow-key-ring" aria-hidden="true" /> {say.ring}
        </span>
      </figcaption>
    </figure>
  );
}

function inWords({ from, to, share, low, high }: Flow, level: number | undefined): string {
  const words = `${from} → ${to}: ${percent(share)}`;
  if (low === undefined || high === undefined || level === undefined) return words;
  return `${words} (${say.between(percent(low), percent(high))})`;
}

interface Named {
  readonly flows: Flows;
  readonly nameOf: (district: number) => string;
}

function FlowTable({ flows, from, nameOf }: Named & { from: number | undefined }) {
  const { level } = flows;
  return (
    <details>
      <summary>{say.table}</summary>
      <div class="scrolls" tabIndex={0} role="region" aria-label={say.table}>
        <table class="numbers" id="flow-table">
          <thead>
            <tr>
              <th scope="col">{say.origin}</th>
              <th scope="col">{say.destination}</th>
              <th scope="col">{say.share}</th>
              {level !== undefined && <th scope="col">{say.interval(`${number(100 * level)} %`)}</th>}
            </tr>
          </thead>
          <tbody>
            {largestFlows(flows, from, MOST_ROWS).map((flow) => (
              <tr key={`${flow.from}-${flow.to}`}>
                <td>{nameOf(flow.from)}</td>
                <td>{nameOf(flow.to)}</td>
                <td>{percent(flow.share)}</td>
                {level !== undefined && <td>{say.between(percent(flow.low!), percent(flow.high!))}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** Every pair as a square, rows by origin. */
function Matrix({ flows, nameOf }: Named) {
  const dark = useDark();
  const districts = districtsOf(flows);
  const most = largest(flows.share);
  return (
    <details>
      <summary>{say.matrix}</summary>
      <p class="small soft">{say.matrixOf(number(districts, 3))}</p>
      <svg
        class="flow-matrix"
        viewBox={`0 0 ${districts} ${districts}`}
        role="img"
        aria-label={say.matrixOf(number(districts, 3))}
      >
        {flows.share.map((share, pair) => (
          <rect
            key={pair}
            x={pair % districts}
            y={Math.floor(pair / districts)}
            width={1}
            height={1}
            fill={css(colour(onScale(share, most), dark))}
          >
            <title>{`${nameOf(Math.floor(pair / districts))} → ${nameOf(pair % districts)}: ${percent(share)}`}</title>
          </rect>
        ))}
      </svg>
    </details>
  );
}
