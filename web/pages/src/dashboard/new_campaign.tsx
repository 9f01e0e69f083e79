/** A new campaign: where it is, what it promises, and what that will mean before it exists. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { boundsOf, type ShapeFile } from "../map/read_shapes.ts";
import { isPlaces } from "../map/places.ts";
import { ShapeFileField } from "../map/shape_file.tsx";
import type { Box } from "../map/grid.ts";
import { number } from "../texts/language.ts";
import { BoxMap, drawable, Edges } from "./box_map.tsx";
import { about, NumberField, Said } from "./fields.tsx";
import { say } from "./form_texts.ts";
import { AGAIN_MS, Meaning, useAdvice } from "./meaning.tsx";
import { MoreSettings, wantsMore } from "./more.tsx";
import { inFormWords, inWords, isAway, isDenied, Theirs } from "./problem_words.tsx";
import { type AreaLeft, Refusal, service } from "./service.ts";
import { say as shared } from "./texts.ts";
import { CONTROLS, draft, FIRST_WISH, forgetDraft, keepDraft, questionOf, settingsOf, type Wish } from "./wish.ts";

const ASK_MS = 250;
/** Settings whose fields stand in the part that is closed at first. */
const INSIDE_MORE = new Set(["promises_per_km", "slots", "zone", "guarded", "trips", "tickets", "round_hours"]);

export function NewCampaign({ onDenied }: { onDenied: () => void }) {
  const [wish, setWish] = useState(draft);
  const [begun, setBegun] = useState(() => draft() !== FIRST_WISH);
  const [streets, setStreets] = useState<ShapeFile>();
  const [limits, setLimits] = useState<ShapeFile>();
  const [refusal, setRefusal] = useState<Refusal>();
  const [problem, setProblem] = useState<ComponentChildren>("");
  const [busy, setBusy] = useState(false);
  const [open, setOpen] = useState(() => wantsMore(wish));
  const [hadFiles] = useState(() => Object.values(wish.files).some(Boolean));
  const area = useAreaLeft(wish, limits);
  const answer = useAdvice(questionOf(wish, area.left?.space));
  const change = (changes: Partial<Wish>): void => {
    setRefusal(undefined);
    setProblem("");
    setWish((before) => ({ ...before, ...changes }));
  };
  useEffect(() => {
    if (wish === FIRST_WISH) forgetDraft();
    else keepDraft(wish);
  }, [wish]);
  useEffect(() => {
    const field = answer.refusal?.field;
    if (field && INSIDE_MORE.has(field)) setOpen(true);
  }, [answer.refusal]);

  const said = refusal ?? (answer.busy ? undefined : answer.refusal);
  const refused = (setting: string): string | undefined =>
    said?.field === setting ? inFormWords(said.message) : undefined;

  const create = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setRefusal(undefined);
    setProblem("");
    let id = "";
    try {
      id = (await service.create(settingsOf(wish))).id;
      if (limits) await service.keepArea(id, limits.text);
      if (streets) await service.keepBackdrop(id, streets.text);
      forgetDraft();
      location.hash = `#/${encodeURIComponent(id)}`;
    } catch (error) {
      if (isDenied(error)) return onDenied(); // the draft is kept
      const remains = id !== "" && !(await service.remove(id).then(() => true, () => false)); // prettier-ignore
      const unsure = id === "" && error instanceof Refusal && error.status === 0;
      setProblem(
        <>
          {inWords(error, unsure ? say.maybeMade(wish.name) : undefined)} {remains && say.halfMade(wish.name)}
        </>,
      );
      const field = error instanceof Refusal ? error.field : "";
      if (field in CONTROLS) {
        setRefusal(error as Refusal);
        setProblem(say.refused);
        if (INSIDE_MORE.has(field)) setOpen(true);
        setTimeout(() => document.getElementById(CONTROLS[field]!)?.focus());
      }
      setBusy(false);
    }
  };

  const lost = [!limits && wish.files.limits, !streets && wish.files.streets].filter(Boolean).join(", ");
  const chooseStreets = (file: ShapeFile | undefined): void => {
    setStreets(file);
    change({ files: { ...wish.files, streets: file?.name } });
  };
  const chooseLimits = (file: ShapeFile | undefined): void => {
    setLimits(file);
    change({ files: { ...wish.files, limits: file?.name } });
    const bounds = file && boundsOf(file.shapes);
    if (bounds && drawable(bounds)) change({ box: bounds.map((edge) => Number(edge.toFixed(5))) as unknown as Box });
  };
  const anew = (): void => {
    setBegun(false);
    setOpen(false);
    chooseLimits(undefined);
    setStreets(undefined);
    change(FIRST_WISH);
    setWish(FIRST_WISH);
  };
  const noMask = refused("mask");
  const cells = area.left?.cells ?? answer.advice?.cells;
  const byPoints = area.left !== undefined && isPlaces(area.left.space);
  return (
    <main class="stack">
      <p>
        <a href="#/">← {shared.back}</a>
      </p>
      <h1>{shared.make}</h1>
      {begun && (
        <p class="row small">
          <span class="soft">{say.draftKept}</span>
          <button type="button" onClick={anew}>
            {say.anew}
          </button>
        </p>
      )}
      {lost && <p class="notice notice-warm">{say.filesLost(lost)}</p>}
      <form class="two" key={String(begun)} onSubmit={create}>
        <div class="stack stays">
          <section class="card stack">
            <p class="field">
              <label for="name">{shared.name}</label>
              <input
                id="name"
                required
                maxLength={200}
                placeholder={say.nameExample}
                value={wish.name}
                {...about("name", false, refused("name"))}
                onInput={(event) => change({ name: event.currentTarget.value })}
              />
              <Said id="name" words={refused("name")} />
            </p>
            <h2>{say.where}</h2>
            <BoxMap
              box={wish.box}
              streets={streets?.shapes}
              limits={limits?.shapes}
              space={area.left?.space}
              onBox={(box) => change({ box })}
            />
            <p class="small soft">{say.boxHow}</p>
            <Edges box={wish.box} refusal={refused("box")} onBox={(box) => change({ box })} />
            <details class="more" open={hadFiles}>
              <summary>{say.files}</summary>
              <div class="stack">
                <ShapeFileField
                  id="limits"
                  label={say.limits}
                  hint={say.limitsWhy}
                  contents="areas or points"
                  chosen={limits}
                  refusal={area.problem || (noMask && <Theirs>{noMask}</Theirs>)}
                  onChosen={chooseLimits}
                />
                <p role="status" class="small" id="left">
                  {area.busy && say.limitsWait}
                  {area.left && leftInWords(area.left)}
                  {area.left && area.left.parts > 1 && ` ${say.limitsParts(number(area.left.parts, 9))}`}
                </p>
                <ShapeFileField
                  id="streets"
                  label={shared.backdrop}
                  hint={say.streetsWhy}
                  chosen={streets}
                  onChosen={chooseStreets}
                />
              </div>
            </details>
          </section>
        </div>
        <div class="stack">
          <section class="card stack">
            <div class="fields">
              <NumberField
                id="cell"
                label={say.cell}
                value={wish.cellKm}
                least={0.01}
                step={0.01}
                hint={byPoints ? say.cellUnused : cells === undefined ? undefined : say.cells(cells)}
                refusal={refused("cell_km")}
                onValue={(cellKm) => change({ cellKm })}
              />
              <NumberField
                id="epsilon"
                label={say.promise}
                value={wish.epsilonPerKm}
                least={0.001}
                step={0.1}
                hint={say.promiseWhy}
                refusal={refused("epsilon_per_km")}
                onValue={(epsilonPerKm) => change({ epsilonPerKm })}
              />
              <NumberField
                id="people"
                label={say.people}
                value={wish.people}
                least={1}
                step={1}
                refusal={refused("people")}
                onValue={(people) => change({ people })}
              />
              <NumberField
                id="minimum"
                label={say.minimum}
                value={wish.minimum}
                least={1}
                step={1}
                refusal={refused("minimum_reports")}
                onValue={(minimum) => change({ minimum })}
              />
              <NumberField
                id="size"
                label={say.roundSize}
                value={wish.roundSize}
                least={1}
                step={1}
                optional
                refusal={refused("round_size")}
                onValue={(roundSize) => change({ roundSize })}
                onNone={() => change({ roundSize: undefined })}
              />
              <NumberField
                id="rounds"
                label={say.rounds}
                value={wish.rounds}
                least={1}
                step={1}
                optional
                refusal={refused("rounds")}
                onValue={(rounds) => change({ rounds })}
                onNone={() => change({ rounds: undefined })}
              />
            </div>
            <p class="field">
              <label for="dial">
                {say.dial}: {number(wish.camouflage)}
              </label>
              <input
                id="dial"
                type="range"
                min="0"
                max="1"
                step="0.05"
                value={wish.camouflage}
                onInput={(event) => change({ camouflage: Number(event.currentTarget.value) })}
              />
              <span class="small soft row spread">
                <span>{say.dialEnds[0]}</span>
                <span>{say.dialEnds[1]}</span>
              </span>
            </p>
            <details class="more" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
              <summary>{say.more}</summary>
              <MoreSettings {...{ wish, change, refused }} />
            </details>
          </section>
          <Meaning {...answer} />
          {problem && (
            <p class="notice notice-warm" role="alert">
              {problem}
            </p>
          )}
          <button class="primary" disabled={busy}>
            {busy ? say.creating : say.create}
          </button>
        </div>
      </form>
    </main>
  );
}

/** What a file leaves of the box: so many cells of it, or places in their place. */
function leftInWords({ cells, of, space }: AreaLeft): string {
  if (!isPlaces(space)) return say.limitsLeft(number(cells, 9), number(of, 9));
  return (space.cell_km === undefined ? say.placesLeft : say.cellsLeft)(number(cells, 9));
}

interface Area {
  readonly left: AreaLeft | undefined;
  readonly problem: ComponentChildren;
  readonly busy: boolean;
}

const NOTHING: Area = { left: undefined, problem: "", busy: false };

/** What city limits leave of the box, or which places there are, asked of the service whenever either changes. */
function useAreaLeft({ box, cellKm }: Wish, limits: ShapeFile | undefined): Area {
  const [area, setArea] = useState<Area>(NOTHING);
  const latest = useRef(0);
  useEffect(() => {
    const turn = ++latest.current;
    setArea({ ...NOTHING, busy: limits !== undefined });
    if (!limits) return;
    let waiting = 0;
    const put = (next: Area): void => {
      if (turn === latest.current) setArea(next);
    };
    const ask = (): void => {
      service.areaLeft({ box, cell_km: cellKm, area: JSON.parse(limits.text) as unknown }).then(
        (left) => put({ ...NOTHING, left }),
        (error: unknown) => {
          const elsewhere = error instanceof Refusal && error.field !== ""; // said there
          put({ ...NOTHING, problem: elsewhere ? "" : inWords(error, shared.byItself) });
          if (isAway(error) && turn === latest.current) waiting = window.setTimeout(ask, AGAIN_MS);
        },
      );
    };
    waiting = window.setTimeout(ask, ASK_MS);
    return () => clearTimeout(waiting);
  }, [String(box), cellKm, limits]);
  return area;
}
