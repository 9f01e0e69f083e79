/** Maps of single times: a slider from one to the next, and all of them side by side. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { type Estimate, largest, painter, type Values } from "./estimate.ts";
import { useDark } from "./map_view.tsx";
import { Stamp } from "./stamp.tsx";
import { say } from "./time_texts.ts";
import "./times.css";

/** The map of one slot as the service releases it. */
export interface SlotMap {
  readonly slot: number;
  readonly name: string;
  readonly reports: number;
  readonly distribution: readonly number[];
  readonly standard_error?: readonly (number | null)[];
  readonly low?: readonly number[];
  readonly high?: readonly number[];
}

export interface SlotMaps {
  readonly maps: readonly SlotMap[];
}

/** What is chosen, and what there is to choose from. */
export interface Times {
  /** Nothing for all times together. */
  readonly slot: number | undefined;
  readonly choose: (slot: number | undefined) => void;
  /** By slot; nothing where there is no map, or none yet. */
  readonly values: ReadonlyMap<number, Values>;
  readonly maps: readonly SlotMap[];
  /** The largest share of any cell at any time, for one scale. */
  readonly most: number;
  readonly state: "ready" | "wait" | "failed";
}

/** The maps of the slots of an estimate, fetched where there are any. */
export function useTimes(
  estimate: Estimate | undefined,
  all: Values | undefined,
  fetchMaps: (round: number) => Promise<SlotMaps>,
): Times {
  const [slot, choose] = useState<number>();
  const [maps, setMaps] = useState<readonly SlotMap[]>([]);
  const [state, setState] = useState<Times["state"]>("wait");
  const some = estimate?.slots?.reports.some((reports) => reports !== null) ?? false;
  useEffect(() => {
    if (!estimate || !some) return setState("ready");
    let current = true;
    setState("wait");
    fetchMaps(estimate.round).then(
      (answer) => {
        if (!current) return;
        setMaps(answer.maps);
        setState("ready");
      },
      () => current && setState("failed"),
    );
    return () => {
      current = false;
    };
  }, [estimate?.round, some]);
  const values = useMemo(() => {
    const cells = all?.cells;
    const bySlot = new Map<number, Values>();
    for (const slotMap of cells ? maps : []) {
      const { distribution: shares, standard_error: errors, low, high } = slotMap;
      bySlot.set(slotMap.slot, { cells: cells!, shares, errors, low, high, most: largest(shares) });
    }
    return bySlot;
  }, [maps, all]);
  const most = useMemo(() => Math.max(all?.most ?? 0, ...[...values.values()].map(({ most }) => most)), [values, all]);
  return { slot, choose, values, maps, most, state };
}

/** The slider, and below it the small maps where they are wanted; nothing for campaigns without slots. */
export function TimeChoice({ estimate: { slots }, times }: { estimate: Estimate; times: Times }) {
  const [side, setSide] = useState(false);
  if (!slots) return null;
  const { slot, choose, values, maps, state } = times;
  const name = slot === undefined ? say.all : slots.names[slot]!;
  const map = maps.find((slotMap) => slotMap.slot === slot);
  const missing = slot !== undefined && !map;
  const none = state === "ready" && missing && say.none(name, slots.minimum_reports);
  return (
    <div class="stack-tight">
      <div class="times">
        <label for="time">{say.time}</label>
        <input
          id="time"
          type="range"
          min={0}
          max={slots.names.length}
          value={slot === undefined ? 0 : slot + 1}
          aria-valuetext={map ? `${name}, ${say.reports(map.reports)}` : name}
          onInput={({ currentTarget }) =>
            choose(currentTarget.valueAsNumber ? currentTarget.valueAsNumber - 1 : undefined)
          }
        />
        <output for="time" id="time-name">
          {name}
        </output>
        <button
          type="button"
          id="side-by-side"
          aria-pressed={side}
          disabled={!values.size}
          onClick={() => setSide(!side)}
        >
          {say.side}
        </button>
        <p class="small soft times-note" role="status">
          {state === "ready" ? none || (map && `${say.reports(map.reports)}.`) : say[state]} {say.zone(slots.zone)}
        </p>
      </div>
      {side && (
        <>
          <ul class="small-maps" id="small-maps">
            {maps.map((slotMap) => (
              <li key={slotMap.slot}>
                <button type="button" aria-pressed={slotMap.slot === slot} onClick={() => choose(slotMap.slot)}>
                  <SmallMap values={{ ...values.get(slotMap.slot)!, most: times.most }} />
                  <span class="small">{slotMap.name}</span>
                </button>
              </li>
            ))}
          </ul>
          <p class="small soft">{say.sideNote}</p>
        </>
      )}
    </div>
  );
}

function SmallMap({ values }: { values: Values }) {
  const dark = useDark();
  const { cells, shares, most } = values;
  return <Stamp cells={cells} paint={painter(values, "estimate", dark)} of={[shares, most, dark]} />;
}

export { say as timeWords };
