/** What an operator can change about a campaign; what cannot be undone is asked for twice. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Backdrop, DISTRICT } from "../map/backdrop.ts";
import { isDistrict } from "../map/districts.tsx";
import type { ShapeFile } from "../map/read_shapes.ts";
import { ShapeFileField } from "../map/shape_file.tsx";
import { inWords, isDenied } from "./problem_words.tsx";
import { address, isOver, service, type State } from "./service.ts";
import { say } from "./texts.ts";

interface Sure {
  readonly question: string;
  readonly act: () => Promise<unknown>;
}

interface ChangesProps {
  readonly state: State;
  readonly onChanged: () => void;
  readonly onDenied: () => void;
  /** What lies behind the map, or its districts, are others now. */
  readonly onDrawn: () => void;
}

export function Changes({ state, onChanged, onDenied, onDrawn }: ChangesProps) {
  const [problem, setProblem] = useState<ComponentChildren>("");
  const [sure, setSure] = useState<Sure>();
  const [name, setName] = useState(state.name);
  const act = (work: () => Promise<unknown>, show: (words: ComponentChildren) => void = setProblem): void => {
    show("");
    setSure(undefined);
    work()
      .then(onChanged)
      .catch((error: unknown) => (isDenied(error) ? onDenied() : show(inWords(error))));
  };
  const change = (changes: object) => (): void => act(() => service.change(state.id, changes));
  const over = isOver(state);
  const remove = async (): Promise<void> => {
    await service.remove(state.id);
    location.hash = "#/";
  };
  const [shapes, setShapes] = useState<Backdrop["features"]>([]); // behind the map, as far as this page knows
  useEffect(() => {
    service.backdrop(state.id).then(
      (backdrop) => setShapes(backdrop?.features ?? []),
      () => undefined,
    );
  }, [state.id]);
  const [refusals, setRefusals] = useState<Record<"streets" | "districts", ComponentChildren>>({
    streets: "",
    districts: "",
  });
  /** Put streets or districts in the place of those that were there; the other stays. */
  const draw = (which: "streets" | "districts", file: ShapeFile | undefined): void => {
    act(
      async () => {
        const others = ((await service.backdrop(state.id))?.features ?? []).filter(
          (feature) => isDistrict(feature) !== (which === "districts"),
        );
        const own = (file?.shapes.features ?? []).map(({ properties, geometry }) => ({
          properties: which === "districts" ? { ...properties, kind: DISTRICT } : notDistrict(properties),
          geometry,
        }));
        const features = [...others, ...own].map((feature) => ({ type: "Feature", ...feature }));
        if (!features.length) await service.forgetBackdrop(state.id);
        else await service.keepBackdrop(state.id, JSON.stringify({ type: "FeatureCollection", features }));
        setShapes(features);
        onDrawn();
      },
      (words) => setRefusals((before) => ({ ...before, [which]: words })),
    );
  };
  return (
    <div class="two changes">
      <section class="card stack">
        <h2>{say.publicMap}</h2>
        <p>{say.publishWhy}</p>
        <button
          type="button"
          class={state.published ? "" : "primary"}
          onClick={change({ published: !state.published })}
        >
          {state.published ? say.unpublish : say.publish}
        </button>
        {state.published && <Embed id={state.id} />}
        {!state.settings.trips && ( // flows are between districts of their own
          <ShapeFileField
            id="new-districts"
            label={say.districts}
            hint={say.districtsWhy}
            contents="areas"
            chosen={undefined}
            refusal={refusals.districts}
            onChosen={(file) => file && draw("districts", file)}
          />
        )}
        <ShapeFileField
          id="new-backdrop"
          label={say.backdrop}
          chosen={undefined}
          refusal={refusals.streets}
          onChosen={(file) => file && draw("streets", file)}
        />
        {shapes.length > 0 && (
          <div class="row">
            {shapes.some(isDistrict) && (
              <button type="button" onClick={() => draw("districts", undefined)}>
                {say.removeDistricts}
              </button>
            )}
            {!shapes.every(isDistrict) && (
              <button type="button" onClick={() => draw("streets", undefined)}>
                {say.removeBackdrop}
              </button>
            )}
          </div>
        )}
      </section>
      <section class="card stack">
        <h2>{say.controls}</h2>
        <div class="row">
          {!over && (
            <>
              <button type="button" onClick={() => act(() => service.closeRound(state.id))}>
                {say.closeRound}
              </button>
              <button type="button" onClick={change({ next_round_now: true })}>
                {say.nextRound}
              </button>
              <button type="button" onClick={change({ state: state.state === "paused" ? "running" : "paused" })}>
                {state.state === "paused" ? say.resume : say.pause}
              </button>
            </>
          )}
        </div>
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            change({ name })();
          }}
        >
          <label for="rename" class="hidden">
            {say.name}
          </label>
          <input
            id="rename"
            value={name}
            maxLength={200}
            required
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <button>{say.rename}</button>
        </form>
        <div class="row">
          {!over && (
            <button
              type="button"
              class="quiet"
              onClick={() =>
                setSure({ question: say.endSure, act: () => service.change(state.id, { state: "ended" }) })
              }
            >
              {say.end}
            </button>
          )}
          <button
            type="button"
            class="quiet"
            onClick={() => setSure({ question: say.removeSure(state.name), act: remove })}
          >
            {say.remove}
          </button>
        </div>
        {sure && <Question {...sure} yes={() => act(sure.act)} no={() => setSure(undefined)} />}
        {problem && (
          <p class="notice notice-warm" role="alert">
            {problem}
          </p>
        )}
      </section>
    </div>
  );
}

/** Has the focus while it is asked, and gives it back. */
function Question({ question, yes, no }: Sure & { readonly yes: () => void; readonly no: () => void }) {
  const dialog = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current!.focus();
    return () => before?.focus();
  }, []);
  return (
    <div class="notice notice-warm stack-tight" role="alertdialog" aria-label={question} ref={dialog} tabIndex={-1}>
      <p>{question}</p>
      <div class="row">
        <button type="button" class="quiet" onClick={yes}>
          {say.yes}
        </button>
        <button type="button" onClick={no}>
          {say.no}
        </button>
      </div>
    </div>
  );
}

/** What a street says of itself; it is no district, whatever it says. */
function notDistrict(properties: Backdrop["features"][number]["properties"]): { kind?: string } {
  return properties.kind === undefined || properties.kind === DISTRICT ? {} : { kind: properties.kind };
}

function Embed({ id }: { id: string }) {
  const page = address(`m/${encodeURIComponent(id)}`);
  return (
    <>
      <p>
        <a href={page}>{page}</a>
      </p>
      <p class="small">{say.embed}:</p>
      <p>
        <code class="digits">{`<iframe src="${page}" title="Geoveil" width="100%" height="640"></iframe>`}</code>
      </p>
    </>
  );
}
