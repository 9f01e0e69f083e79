/** A new campaign: its box on a map or in degrees, and what its promise will mean before it exists. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { rectangleKm } from "../../../sdk/src/area.ts";
import type { Backdrop } from "../map/backdrop.ts";
import { MapCanvas, type Rectangle } from "../map/canvas.ts";
import { type Box, Cells, planeOf, type Space } from "../map/grid.ts";
import { colour } from "../map/colours.ts";
import { largest, onScale } from "../map/estimate.ts";
import { Tiles } from "../map/tiles.ts";
import { useDark } from "../map/map_view.tsx";
import { number } from "../texts/language.ts";
import { inWords } from "./problem_words.ts";
import { type Advice, Refusal, service } from "./service.ts";
import { say } from "./texts.ts";

const FIRST: Box = [48.8286, 2.2855, 48.8798, 2.3909];
const ASK_MS = 450;
const AGAIN_MS = 3000;
const AROUND = 2.2; // how much more than the box the map shows

interface Wish {
  readonly name: string;
  readonly box: Box;
  readonly cellKm: number;
  readonly epsilonPerKm: number;
  readonly camouflage: number;
  readonly people: number;
  readonly minimum: number;
  readonly roundSize: number | undefined;
  readonly rounds: number | undefined;
}

const FIRST_WISH: Wish = {
  name: "",
  box: FIRST,
  cellKm: 0.5,
  epsilonPerKm: 2,
  camouflage: 0.5,
  people: 10_000,
  minimum: 100,
  roundSize: 2000,
  rounds: undefined,
};

export function NewCampaign() {
  const [wish, setWish] = useState(FIRST_WISH);
  const [streets, setStreets] = useState<{ text: string; read: Backdrop }>();
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const change = (changes: Partial<Wish>): void => setWish((before) => ({ ...before, ...changes }));

  const create = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      const made = await service.create({
        name: wish.name,
        box: wish.box,
        cell_km: wish.cellKm,
        epsilon_per_km: wish.epsilonPerKm,
        camouflage: wish.camouflage,
        minimum_reports: wish.minimum,
        round_size: wish.roundSize ?? null,
        rounds: wish.rounds ?? null,
      });
      if (streets) await service.keepBackdrop(made.id, streets.text);
      location.hash = `#/${encodeURIComponent(made.id)}`;
    } catch (error) {
      setProblem(inWords(error));
      setBusy(false);
    }
  };

  const loaded = async (file: File | undefined): Promise<void> => {
    setProblem("");
    if (!file) return setStreets(undefined);
    const text = await file.text();
    try {
      const read = JSON.parse(text) as Backdrop;
      if (!Array.isArray(read.features)) throw new TypeError("FeatureCollection");
      setStreets({ text, read });
    } catch (error) {
      setProblem(say.failed(String(error)));
    }
  };

  return (
    <main class="stack">
      <p>
        <a href="#/">← {say.back}</a>
      </p>
      <h1>{say.make}</h1>
      <form class="two" onSubmit={create}>
        <div class="stack">
          <section class="card stack">
            <p class="field">
              <label for="name">{say.name}</label>
              <input
                id="name"
                required
                maxLength={200}
                placeholder={say.nameExample}
                value={wish.name}
                onInput={(event) => change({ name: event.currentTarget.value })}
              />
            </p>
            <h2>{say.where}</h2>
            <BoxMap box={wish.box} streets={streets?.read} onBox={(box) => change({ box })} />
            <p class="small soft">{say.boxHow}</p>
            <Edges box={wish.box} onBox={(box) => change({ box })} />
            <p class="field">
              <label for="streets">{say.backdrop}</label>
              <input
                id="streets"
                type="file"
                accept=".json,.geojson,application/geo+json"
                onChange={(event) => void loaded(event.currentTarget.files?.[0])}
              />
            </p>
          </section>
        </div>
        <div class="stack">
          <section class="card stack">
            <div class="fields">
              <Field
                id="cell"
                label={say.cell}
                value={wish.cellKm}
                least={0.01}
                step={0.01}
                onValue={(cellKm) => change({ cellKm })}
              />
              <Field
                id="epsilon"
                label={say.promise}
                value={wish.epsilonPerKm}
                least={0.001}
                step={0.1}
                hint={say.promiseWhy}
                onValue={(epsilonPerKm) => change({ epsilonPerKm })}
              />
              <Field
                id="people"
                label={say.people}
                value={wish.people}
                least={1}
                step={1}
                onValue={(people) => change({ people })}
              />
              <Field
                id="minimum"
                label={say.minimum}
                value={wish.minimum}
                least={1}
                step={1}
                onValue={(minimum) => change({ minimum })}
              />
              <Field
                id="size"
                label={say.roundSize}
                value={wish.roundSize}
                least={1}
                step={1}
                optional
                onValue={(roundSize) => change({ roundSize })}
                onNone={() => change({ roundSize: undefined })}
              />
              <Field
                id="rounds"
                label={say.rounds}
                value={wish.rounds}
                least={1}
                step={1}
                optional
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
          </section>
          <Meaning wish={wish} />
          {problem && (
            <p class="notice notice-warm" role="alert">
              {problem}
            </p>
          )}
          <button class="primary" disabled={busy}>
            {say.create}
          </button>
        </div>
      </form>
    </main>
  );
}

interface FieldProps {
  readonly id: string;
  readonly label: string;
  readonly value: number | undefined;
  readonly least: number;
  readonly step: number;
  readonly optional?: boolean;
  readonly hint?: string;
  readonly onValue: (value: number) => void;
  readonly onNone?: () => void;
}

function Field({ id, label, value, least, step, optional, hint, onValue, onNone }: FieldProps) {
  return (
    <p class="field">
      <label for={id}>{label}</label>
      {hint && (
        <span class="small soft" id={`${id}-hint`}>
          {hint}
        </span>
      )}
      <input
        id={id}
        type="number"
        inputMode="decimal"
        aria-describedby={hint && `${id}-hint`}
        min={least}
        step={step < 1 ? "any" : step}
        required={!optional}
        value={value ?? ""}
        onInput={(event) => {
          const given = event.currentTarget.valueAsNumber;
          if (Number.isFinite(given)) onValue(given);
          else onNone?.();
        }}
      />
    </p>
  );
}

function Edges({ box, onBox }: { box: Box; onBox: (box: Box) => void }) {
  const names = [say.south, say.west, say.north, say.east];
  return (
    <div class="edges">
      {names.map((name, at) => (
        <p class="field" key={name}>
          <label for={`edge-${at}`}>{name}</label>
          <input
            id={`edge-${at}`}
            type="number"
            step="any"
            min={at % 2 ? -180 : -90}
            max={at % 2 ? 180 : 90}
            required
            value={box[at]}
            onInput={(event) => {
              const given = event.currentTarget.valueAsNumber;
              if (Number.isFinite(given)) onBox(box.map((edge, n) => (n === at ? given : edge)) as unknown as Box);
            }}
          />
        </p>
      ))}
    </div>
  );
}

/** Whether a box can be drawn at all; the service checks the rest. */
function drawable([south, west, north, east]: Box): boolean {
  return south < north && west < east && east - west < 10 && north - south < 10 && south > -85 && north < 85;
}

function BoxMap({ box, streets, onBox }: { box: Box; streets: Backdrop | undefined; onBox: (box: Box) => void }) {
  const place = useRef<HTMLCanvasElement>(null);
  const map = useRef<MapCanvas>(undefined);
  const [drawing, setDrawing] = useState(true);
  const [around, setAround] = useState(box); // what the map was laid over
  const drawn = useRef(false);

  useEffect(() => {
    if (!drawn.current && drawable(box)) setAround(box); // typed: the map goes there
    drawn.current = false;
  }, [box]);
  useEffect(() => {
    if (streets) setAround((before) => boundsOf(streets) ?? before);
  }, [streets]);
  useEffect(() => {
    const plane = planeOf(around);
    const [west, south, east, north] = rectangleKm(around, plane);
    const [dx, dy] = [((AROUND - 1) / 2) * (east - west), ((AROUND - 1) / 2) * (north - south)];
    const made = new MapCanvas(place.current!, plane, [west - dx, south - dy, east + dx, north + dy]);
    made.onRectangle = (rectangle) => {
      drawn.current = true;
      onBox(boxOf(rectangle, made));
    };
    made.drawing = drawing;
    made.behind(streets);
    map.current = made;
    void service.tiles().then(({ tiles }) => tiles && map.current === made && made.under(new Tiles(tiles)));
    return () => made.close();
  }, [around, streets]);
  useEffect(() => {
    map.current!.drawing = drawing;
  }, [drawing]);
  useEffect(() => {
    if (drawable(box)) map.current!.select(rectangleKm(box, map.current!.plane));
  }, [box, around, streets]);

  return (
    <div class={`map map-box ${drawing ? "map-draws" : ""}`}>
      <canvas ref={place} class="map-canvas" role="img" aria-label={say.boxHow} />
      <div class="row map-tools">
        <button type="button" aria-pressed={drawing} onClick={() => setDrawing(true)}>
          {say.drawBox}
        </button>
        <button type="button" aria-pressed={!drawing} onClick={() => setDrawing(false)}>
          {say.moveMap}
        </button>
        <button type="button" aria-label="+" onClick={() => map.current?.scaleBy(1.5)}>
          +
        </button>
        <button type="button" aria-label="−" onClick={() => map.current?.scaleBy(1 / 1.5)}>
          −
        </button>
      </div>
    </div>
  );
}

/** A rectangle of the plane in degrees, to about a metre. */
function boxOf([west, south, east, north]: Rectangle, { plane }: MapCanvas): Box {
  const middle = [(west + east) / 2, (south + north) / 2] as const;
  const at = (pair: readonly [number, number], axis: 0 | 1): number => Number(plane.toLatLng(pair)[axis].toFixed(5));
  return [at([middle[0], south], 0), at([west, middle[1]], 1), at([middle[0], north], 0), at([east, middle[1]], 1)];
}

/** The box around all lines of a backdrop, where it is one that can be drawn. */
function boundsOf(streets: Backdrop): Box | undefined {
  let [south, west, north, east] = [90, 180, -90, -180];
  const visit = (part: unknown): void => {
    if (!Array.isArray(part)) return;
    if (typeof part[0] === "number" && typeof part[1] === "number") {
      west = Math.min(west, part[0]);
      east = Math.max(east, part[0]);
      south = Math.min(south, part[1]);
      north = Math.max(north, part[1]);
    } else {
      part.forEach(visit);
    }
  };
  for (const feature of streets.features) visit(feature.geometry?.coordinates);
  const box: Box = [south, west, north, east];
  return drawable(box) ? box : undefined;
}

// --- What it will mean

function Meaning({ wish }: { wish: Wish }) {
  const [advice, setAdvice] = useState<Advice>();
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(true);
  const asked = JSON.stringify([wish.box, wish.cellKm, wish.epsilonPerKm, wish.camouflage, wish.people]);
  const wanted = useRef(asked); // the newest question; one at a time is with the service
  const waiting = useRef(0);
  const asking = useRef(false);
  const ask = async (): Promise<void> => {
    if (asking.current) return;
    asking.current = true;
    const question = wanted.current;
    const [box, cellKm, epsilonPerKm, camouflage, people] = JSON.parse(question) as [Box, ...number[]];
    let [found, words, again]: [Advice | undefined, string, boolean] = [undefined, "", false];
    try {
      found = await service.advice({
        box,
        cell_km: cellKm,
        epsilon_per_km: epsilonPerKm,
        camouflage,
        people: Math.round(people!),
      });
    } catch (error) {
      words = inWords(error);
      again = error instanceof Refusal && (error.status === 0 || error.status === 503);
    }
    asking.current = false;
    if (question !== wanted.current) return void ask();
    setAdvice(found);
    setProblem(words);
    setBusy(again);
    if (again) waiting.current = window.setTimeout(() => void ask(), AGAIN_MS);
  };
  useEffect(() => {
    wanted.current = asked;
    setBusy(true);
    clearTimeout(waiting.current);
    waiting.current = window.setTimeout(() => void ask(), ASK_MS);
    return () => clearTimeout(waiting.current);
  }, [asked]);
  return (
    <section class="card stack meaning" aria-busy={busy}>
      <h2>{say.meaning}</h2>
      <div aria-live="polite" class={`stack-tight fades ${busy && advice ? "stale" : ""}`}>
        {problem && <p class="notice notice-warm">{problem}</p>}
        {!advice && !problem && <p class="soft">{busy ? say.meaningWait : say.meaningNone}</p>}
        {advice && (
          <>
            <ul class="facts" lang="en">
              {advice.sentences.map((sentence) => (
                <li key={sentence}>{sentence}</li>
              ))}
            </ul>
            <Example advice={advice} />
          </>
        )}
      </div>
    </section>
  );
}

function Example({ advice: { example } }: { advice: Advice }) {
  const maps = [
    [example.people, say.exampleTruth],
    [example.reports, say.exampleReports],
    [example.map, say.exampleMap],
  ] as const;
  const most = largest(example.people);
  return (
    <figure class="example">
      <div class="thirds">
        {maps.map(([shares, words]) => (
          <div key={words}>
            <Thumbnail space={example.space} shares={shares} most={most} />
            <p class="small">{words}</p>
          </div>
        ))}
      </div>
      <figcaption class="small soft">{say.exampleNote}</figcaption>
    </figure>
  );
}

/** A map as a stamp: a pixel a cell, enlarged by the browser. */
function Thumbnail({ space, shares, most }: { space: Space; shares: readonly number[]; most: number }) {
  const place = useRef<HTMLCanvasElement>(null);
  const dark = useDark();
  const cells = useMemo(() => new Cells(space), [space]);
  useEffect(() => {
    const context = place.current!.getContext("2d")!;
    const image = context.createImageData(cells.columns, cells.rows);
    for (let cell = 0; cell < cells.size; cell++) {
      const [row, column] = cells.placeOf(cell);
      const at = 4 * ((cells.rows - 1 - row) * cells.columns + column);
      image.data.set([...colour(onScale(shares[cell]!, most), dark), 255], at);
    }
    context.putImageData(image, 0, 0);
  }, [cells, shares, most, dark]);
  return <canvas ref={place} class="thumbnail" width={cells.columns} height={cells.rows} aria-hidden="true" />;
}
