/** A map with its legend, its buttons, what is under the pointer, and the same as a table. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { degrees, distance, number, percent } from "../texts/language.ts";
import type { Backdrop } from "./backdrop.ts";
import { MapCanvas, type Rectangle } from "./canvas.ts";
import { colour, css, unknownColour } from "./colours.ts";
import { fromScale, painter, type Showing, type Values } from "./estimate.ts";
import { areasOf, densest, type Districts, districtInWords } from "./districts.tsx";
import { say as districtWords } from "./district_texts.ts";
import type { Region } from "./region.tsx";
import { say, sizeOf, wordsFor } from "./texts.ts";
import { Tiles } from "./tiles.ts";
import "./map.css";

/** Whether the reader's screen is dark, told when that changes. */
export function useDark(): boolean {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = (): void => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return dark;
}

export interface MapProps {
  readonly name: string;
  readonly values: Values;
  readonly showing: Showing;
  readonly backdrop?: Backdrop | undefined;
  readonly tiles?: string | undefined;
  readonly region?: Region | undefined;
  readonly districts?: Districts | undefined;
  /** Given the map itself once it is there, for pictures. */
  readonly onMap?: (map: MapCanvas) => void;
}

export function MapView(props: MapProps) {
  const { name, values, showing, backdrop, tiles, region, districts } = props;
  const painted = showing === "districts" ? districts : undefined;
  const { selecting: drawing = false, selected } = region ?? {};
  const place = useRef<HTMLCanvasElement>(null);
  const map = useRef<MapCanvas>(undefined);
  const dark = useDark();
  const [cell, setCell] = useState<number>();
  const { cells } = values;
  const words = wordsFor(cells);

  useEffect(() => {
    const [west, south] = cells.corner;
    const fit: Rectangle = [west, south, west + cells.widthKm, south + cells.heightKm];
    const canvas = new MapCanvas(place.current!, cells.plane, fit);
    canvas.onCell = setCell;
    map.current = canvas;
    props.onMap?.(canvas);
    return () => canvas.close();
  }, [cells.plane.lat, cells.plane.lng, cells.rows, cells.columns, cells.cellKm]);
  useEffect(() => map.current!.show(cells, painter(values, showing, dark)), [values, showing, dark]);
  const areas = useMemo(
    () => (painted ? areasOf(painted, cells.plane, dark) : []),
    [painted?.shares, painted?.features, cells.plane, dark],
  );
  useEffect(() => map.current!.showAreas(areas, painted?.marked), [areas, painted?.marked]);
  useEffect(() => map.current!.behind(backdrop), [backdrop, cells.plane.lat, cells.plane.lng]);
  useEffect(() => map.current!.under(tiles ? new Tiles(tiles) : undefined), [tiles, cells.plane.lat]);
  useEffect(() => map.current!.select(selected), [selected]);
  useEffect(() => map.current!.mark(cell), [cell]);
  useEffect(() => {
    map.current!.drawing = drawing;
    map.current!.onArea = (area) => painted?.mark(area);
    map.current!.onRectangle = (rectangle) => region?.choose(rectangle, cells);
  });

  const keys = (event: KeyboardEvent): void => {
    const action = KEYS[event.key];
    if (!action || !map.current) return;
    event.preventDefault();
    action(map.current);
  };
  return (
    <figure class="map">
      <div class={`map-frame ${drawing ? "map-draws" : ""}`}>
        <canvas
          ref={place}
          class="map-canvas"
          tabIndex={0}
          role="img"
          aria-label={words.map(name, number(cells.size, 6))}
          onKeyDown={keys}
        />
        <div class="map-buttons">
          <button type="button" aria-label={say.closer} onClick={() => map.current?.scaleBy(1.5)}>
            +
          </button>
          <button type="button" aria-label={say.farther} onClick={() => map.current?.scaleBy(1 / 1.5)}>
            −
          </button>
          <button type="button" aria-label={say.all} onClick={() => map.current?.home()}>
            ⤢
          </button>
        </div>
      </div>
      <figcaption class="map-caption">
        <Legend
          values={painted?.shares ? { ...values, most: densest(painted.shares) } : values}
          showing={showing}
          dark={dark}
        />
        <p class="map-reading numbers" aria-live="polite">
          {painted ? (
            districtInWords(painted)
          ) : cell === undefined ? (
            <span class="soft">{words.hover}</span>
          ) : (
            <Reading values={values} cell={cell} showing={showing} />
          )}
        </p>
      </figcaption>
    </figure>
  );
}

const KEYS: Readonly<Record<string, (map: MapCanvas) => void>> = {
  ArrowLeft: (map) => map.move(-0.15, 0),
  ArrowRight: (map) => map.move(0.15, 0),
  ArrowUp: (map) => map.move(0, 0.15),
  ArrowDown: (map) => map.move(0, -0.15),
  "+": (map) => map.scaleBy(1.3),
  "=": (map) => map.scaleBy(1.3),
  "-": (map) => map.scaleBy(1 / 1.3),
  "0": (map) => map.home(),
};

function Reading({ values, cell, showing }: { values: Values; cell: number; showing: Showing }) {
  const [lat, lng] = values.cells.centre(cell);
  const words = wordsFor(values.cells);
  const place = <span class="soft"> · {degrees(lat, lng, 3)}</span>;
  if (showing === "doubt") {
    const square = values.known?.[cell];
    const side = square && distance(square.side * values.cells.cellKm);
    return (
      <>
        {square ? (
          <>
            <strong>
              {percent(square.share)} {say.of}
            </strong>
            {` ${words.inSquare(side!)}, ${say.between(percent(square.low), percent(square.high))}`}
          </>
        ) : (
          words.unknown
        )}
        {place}
      </>
    );
  }
  const people = showing !== "counts";
  return (
    <>
      <strong>
        {percent(values.shares[cell]!)} {people ? say.of : say.ofReports}
      </strong>
      {showing === "estimate" && `, ${intervalOf(values, cell)}`}
      {place}
    </>
  );
}

/** The interval of a cell, in words. */
export function intervalOf({ cells, low, high, errors }: Values, cell: number): string {
  if (errors && errors[cell] === null) return wordsFor(cells).nothing;
  if (!low || !high) return say.noInterval;
  return say.between(percent(low[cell]!), percent(high[cell]!));
}

function Legend({ values, showing, dark }: { values: Values; showing: Showing; dark: boolean }) {
  const words = wordsFor(values.cells);
  const cell = sizeOf(values.cells);
  const titles: Partial<Record<Showing, (cell: string) => string>> = {
    counts: words.perCellReports,
    districts: words.perDistrict,
  };
  const unknown = { doubt: words.unknown, districts: districtWords.unknown }[showing as string];
  const parts = [0, 0.25, 0.5, 0.75, 1];
  const scale = Array.from({ length: 33 }, (_, n) => css(colour(n / 32, dark))).join(", ");
  return (
    <div class="legend">
      <p class="small legend-title">{titles[showing]?.(cell) ?? words.perCell(cell)}</p>
      <div class="legend-scale" aria-hidden="true" style={{ background: `linear-gradient(to right, ${scale})` }} />
      <p class="small soft numbers legend-ends">
        {parts.map((part) => (
          <span key={part}>{percent(fromScale(part, values.most))}</span>
        ))}
      </p>
      {unknown && (
        <p class="small legend-unknown">
          <i style={{ background: css(unknownColour(dark)) }} aria-hidden="true" />
          {unknown}
        </p>
      )}
    </div>
  );
}

const PAGE = 50;

/** Every cell with its share and interval, the largest first, some at a time. */
export function CellTable({ values, level }: { values: Values; level: number | undefined }) {
  const [from, setFrom] = useState(0);
  const order = useMemo(
    () => Array.from(values.shares.keys()).sort((a, b) => values.shares[b]! - values.shares[a]!),
    [values],
  );
  const shown = order.slice(from, from + PAGE);
  const words = wordsFor(values.cells);
  return (
    <details class="cell-table">
      <summary>{say.table}</summary>
      <div class="scrolls" tabIndex={0} role="region" aria-label={say.table}>
        <table class="numbers">
          <caption class="small soft">
            {words.rows(number(from + 1, 6), number(from + shown.length, 6), number(order.length, 6))}
          </caption>
          <thead>
            <tr>
              <th scope="col">{words.cell}</th>
              <th scope="col">{words.place}</th>
              <th scope="col">{say.share}</th>
              {level !== undefined && <th scope="col">{say.interval(`${number(100 * level)} %`)}</th>}
            </tr>
          </thead>
          <tbody>
            {shown.map((cell) => {
              const [lat, lng] = values.cells.centre(cell);
              return (
                <tr key={cell}>
                  <th scope="row">{cell}</th>
                  <td>{degrees(lat, lng, 3)}</td>
                  <td>{percent(values.shares[cell]!)}</td>
                  {level !== undefined && <td>{intervalOf(values, cell)}</td>}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <div class="row">
        <button type="button" disabled={!from} onClick={() => setFrom(Math.max(0, from - PAGE))}>
          {words.before}
        </button>
        <button type="button" disabled={from + PAGE >= order.length} onClick={() => setFrom(from + PAGE)}>
          {words.next}
        </button>
      </div>
    </details>
  );
}
