/** What most campaigns do without: several promises, maps of single times, trips, invitations, rounds by the clock, the guard. */

import { useMemo } from "preact/hooks";
import { number } from "../texts/language.ts";
import { about, Hint, NumberField, Said, Tick } from "./fields.tsx";
import { say } from "./form_texts.ts";
import {
  firstOwn,
  isOwn,
  type Kind,
  MOST_SLOTS,
  NAME_LENGTH,
  type Own,
  type SlotWish,
  wrongStarts,
} from "./slot_wish.ts";
import { MOST_PROMISES, MOST_TRIP_CELLS, type Wish } from "./wish.ts";

interface SettingsProps {
  readonly wish: Wish;
  readonly change: (changes: Partial<Wish>) => void;
  /** What the service says against a setting. */
  readonly refused: (setting: string) => string | undefined;
}

/** Whether anything of this was wished. */
export function wantsMore({ others, slots, trips, tickets, guarded, roundHours }: Wish): boolean {
  return others.length > 0 || slots.kind !== "none" || trips || tickets || guarded || roundHours !== undefined;
}

export function MoreSettings({ wish, change, refused }: SettingsProps) {
  return (
    <div class="stack">
      <p class="small soft">{say.moreWhy}</p>
      <Promises {...{ wish, change, refused }} />
      <Times {...{ wish, change, refused }} />
      <Tick
        id="trips"
        label={say.trips}
        hint={say.tripsWhy(number(MOST_TRIP_CELLS, 6))}
        checked={wish.trips}
        refusal={refused("trips")}
        onChecked={(trips) => change({ trips })}
      />
      <Tick
        id="tickets"
        label={say.tickets}
        hint={say.ticketsWhy}
        checked={wish.tickets}
        refusal={refused("tickets")}
        onChecked={(tickets) => change({ tickets })}
      />
      <Tick
        id="guarded"
        label={say.guard}
        hint={wish.trips ? say.notWithTrips : say.guardWhy}
        checked={wish.guarded && !wish.trips}
        disabled={wish.trips}
        refusal={refused("guarded")}
        onChecked={(guarded) => change({ guarded })}
      />
      <NumberField
        id="hours"
        label={say.roundHours}
        value={wish.roundHours}
        least={0}
        step={0.1}
        optional
        refusal={refused("round_hours")}
        onValue={(roundHours) => change({ roundHours })}
        onNone={() => change({ roundHours: undefined })}
      />
    </div>
  );
}

// --- Several promises

function Promises({ wish: { others, trips, epsilonPerKm }, change, refused }: SettingsProps) {
  const put = (at: number, value: number): void =>
    change({ others: others.map((each, place) => (place === at ? value : each)) });
  const words = refused("promises_per_km");
  return (
    <fieldset class="stack-tight" disabled={trips} aria-describedby="choice-hint">
      <legend>{say.choice}</legend>
      <Hint id="choice">{trips ? say.notWithTrips : say.choiceWhy}</Hint>
      {!trips &&
        others.map((value, at) => (
          <div class="line" key={at}>
            <NumberField
              id={`other-${at}`}
              label={say.other(String(at + 2))}
              value={Number.isFinite(value) ? value : undefined}
              least={0.001}
              step={0.1}
              onValue={(perKm) => put(at, perKm)}
            />
            <button
              type="button"
              aria-label={say.removePromise(String(at + 2))}
              onClick={() => change({ others: others.filter((_, place) => place !== at) })}
            >
              ×
            </button>
          </div>
        ))}
      <Said id="others" words={words} />
      <button
        type="button"
        id="add-promise"
        disabled={trips || others.length + 1 >= MOST_PROMISES}
        onClick={() => change({ others: [...others, strongerThan([epsilonPerKm, ...others])] })}
      >
        {say.addPromise}
      </button>
    </fieldset>
  );
}

/** Half the strongest promise so far. */
function strongerThan(promises: readonly number[]): number {
  return Number((Math.min(...promises) / 2).toPrecision(2));
}

// --- Maps of single times

function Times({ wish: { slots, trips }, change, refused }: SettingsProps) {
  const zones = useMemo(() => Intl.supportedValuesOf?.("timeZone") ?? [], []);
  const put = (changes: Partial<SlotWish>): void => change({ slots: { ...slots, ...changes } });
  const choose = (kind: Kind): void => {
    put({ kind, ...(isOwn(kind) && kind !== slots.kind ? { own: firstOwn(kind, say.ownNames[kind]!) } : {}) });
  };
  const timed = slots.kind !== "none" && !trips;
  const said = refused("slots");
  const wrong = said && wrongStarts(slots);
  return (
    <fieldset class="stack-tight" disabled={trips}>
      <p class="field">
        <label for="slots">{say.times}</label>
        <Hint id="slots">{trips ? say.notWithTrips : say.timesWhy}</Hint>
        <select
          id="slots"
          value={trips ? "none" : slots.kind}
          {...about("slots", true, said)}
          onChange={(event) => choose(event.currentTarget.value as Kind)}
        >
          {(Object.keys(say.timeKinds) as Kind[]).map((kind) => (
            <option key={kind} value={kind}>
              {say.timeKinds[kind]}
            </option>
          ))}
        </select>
        {wrong ? <Said id="slots" words={say.wrongStarts[wrong]} own /> : <Said id="slots" words={said} />}
      </p>
      {timed && (
        <p class="field">
          <label for="zone">{say.zone}</label>
          <Hint id="zone">{say.zoneWhy}</Hint>
          <input
            id="zone"
            list="zones"
            required
            spellcheck={false}
            autocomplete="off"
            value={slots.zone}
            {...about("zone", true, refused("zone"))}
            onInput={(event) => put({ zone: event.currentTarget.value.trim() })}
          />
          <datalist id="zones">
            {zones.map((zone) => (
              <option key={zone} value={zone} />
            ))}
          </datalist>
          <Said id="zone" words={refused("zone")} />
        </p>
      )}
      {timed && isOwn(slots.kind) && <OwnTimes slots={slots} put={put} />}
    </fieldset>
  );
}

function OwnTimes({ slots, put }: { slots: SlotWish; put: (changes: Partial<SlotWish>) => void }) {
  const { own, kind, end } = slots;
  const change = (at: number, changes: Partial<Own>): void =>
    put({ own: own.map((each, place) => (place === at ? { ...each, ...changes } : each)) });
  return (
    <>
      <p class="small soft">{kind === "once" ? say.onceWhy : say.ownWhy}</p>
      {own.map((time, at) => {
        const [id, shown, fixed] = [`own-${at}`, String(at + 1), at === 0 && kind !== "once"];
        return (
          <div class="line" key={at}>
            <p class="field">
              <label for={`${id}-name`}>{say.ownName(shown)}</label>
              <input
                id={`${id}-name`}
                required
                maxLength={NAME_LENGTH}
                value={time.name}
                onInput={(event) => change(at, { name: event.currentTarget.value })}
              />
            </p>
            {kind === "week" && (
              <p class="field">
                <label for={`${id}-day`}>{say.ownDay(shown)}</label>
                <select
                  id={`${id}-day`}
                  value={time.weekday}
                  disabled={fixed}
                  onChange={(event) => change(at, { weekday: Number(event.currentTarget.value) })}
                >
                  {say.weekdays.map((day, weekday) => (
                    <option key={day} value={weekday}>
                      {day}
                    </option>
                  ))}
                </select>
              </p>
            )}
            <p class="field">
              <label for={`${id}-start`}>{say.ownStart(shown)}</label>
              <input
                id={`${id}-start`}
                required
                disabled={fixed}
                type={kind === "once" ? "datetime-local" : "time"}
                value={kind === "once" ? time.date : time.clock}
                onInput={({ currentTarget: { value } }) =>
                  change(at, kind === "once" ? { date: value } : { clock: value })
                }
              />
            </p>
            <button
              type="button"
              aria-label={say.removeTime(shown)}
              disabled={fixed || own.length <= 2}
              onClick={() => put({ own: own.filter((_, place) => place !== at) })}
            >
              ×
            </button>
          </div>
        );
      })}
      {kind === "once" && (
        <p class="field">
          <label for="own-end">{say.ownEnd}</label>
          <input
            id="own-end"
            required
            type="datetime-local"
            value={end}
            onInput={(event) => put({ end: event.currentTarget.value })}
          />
        </p>
      )}
      <button
        type="button"
        id="add-time"
        disabled={own.length >= MOST_SLOTS}
        onClick={() => put({ own: [...own, { ...own.at(-1)!, name: "" }] })}
      >
        {say.addTime}
      </button>
    </>
  );
}
