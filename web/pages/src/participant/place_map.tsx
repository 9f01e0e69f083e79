/** The map of a campaign: choose a place by pointer or keyboard, and see which cells might be reported from it. */

import { TangentPlane } from "@geoveil/client";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Backdrop, drawOutlines, type Outline, outlinesOf, THIN } from "../map/backdrop.ts";
import { drawCells, paletteOf } from "../map/cells.ts";
import { type Shape, shapesAround } from "../map/places.ts";
import { fitted, type Place, scaleBarKm, toPlace, toScreen, type View, zoomed } from "../map/view.ts";
import { degrees, distance } from "../texts/language.ts";
import type { Cloud, Rule } from "./device.ts";
import { placeWords, say } from "./texts.ts";

const MARGIN = 10;
const DEEPEST = 32;
const DRAG = 6; // pixels; less is a tap
const STEPS: Record<string, Place> = {
  ArrowUp: [0, 1],
  ArrowDown: [0, -1],
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
};

/** Degrees and kilometres of a rule's map. */
export class Ground {
  private readonly plane: TangentPlane;
  private readonly origin: Place;

  constructor({ plane, origin }: Rule) {
    this.plane = new TangentPlane(plane[0], plane[1]);
    this.origin = origin;
  }

  placeOf(lat: number, lng: number): Place {
    const [east, north] = this.plane.toPlane(lat, lng);
    return [east - this.origin[0], north - this.origin[1]];
  }

  degreesOf([east, north]: Place): readonly [lat: number, lng: number] {
    return this.plane.toLatLng([east + this.origin[0], north + this.origin[1]]);
  }

  /** What the operator drew, in the plane, whose own place on the map is `planeAt`; nothing where it cannot be read. */
  outlines(backdrop: Backdrop | undefined): readonly Outline[] {
    try {
      return outlinesOf(backdrop, this.plane);
    } catch {
      return [];
    }
  }

  get planeAt(): Place {
    return [-this.origin[0], -this.origin[1]];
  }
}

interface PlaceMapProps {
  readonly rule: Rule;
  readonly backdrop: Backdrop | undefined;
  readonly place: Place | undefined;
  readonly cloud: Cloud | undefined;
  /** The cell that was sent. */
  readonly sent: number | undefined;
  readonly choose: ((place: Place) => void) | undefined;
}

export function PlaceMap({ rule, backdrop, place, cloud, sent, choose }: PlaceMapProps) {
  const ground = useMemo(() => new Ground(rule), [rule]);
  const outlines = useMemo(() => ground.outlines(backdrop), [ground, backdrop]);
  const shapes = useMemo(() => (rule.onGrid ? undefined : shapesAround(rule.east, rule.north, rule.cellKm)), [rule]);
  const words = placeWords(rule);
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const whole = useMemo(() => overAll(rule, width), [rule, width]);
  const [moved, setView] = useState<View>();
  const view = moved ?? whole;
  const dark = useDark();
  useLayoutEffect(() => {
    setWidth(frame.current!.clientWidth); // before it is seen, so that no key is lost
    const watch = new ResizeObserver(([entry]) => setWidth(Math.round(entry!.contentRect.width)));
    watch.observe(frame.current!);
    return () => watch.disconnect();
  }, []);
  useEffect(() => setView(undefined), [whole]);
  useEffect(() => {
    if (!place) setView(undefined); // zoomed in, it had the place in its middle
  }, [!place]);
  useEffect(() => {
    if (view && canvas.current) paint(canvas.current, view, { ...rule, shapes }, cloud, outlines, ground);
  }, [view, rule, cloud, outlines, dark]);

  const zoom = (times: number): void => {
    if (!view || !whole) return;
    const next = place && times > 1 ? { ...view, centre: place } : view;
    const deep = Math.min(Math.max((view.pixelsPerKm * times) / whole.pixelsPerKm, 1), DEEPEST);
    setView(deep === 1 ? undefined : zoomed(next, (deep * whole.pixelsPerKm) / view.pixelsPerKm));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = STEPS[event.key];
    if (step && choose && view) {
      event.preventDefault();
      const km = rule.cellKm * (event.shiftKey ? 4 : 0.25);
      const from = place ?? view.centre;
      const to: Place = place ? [from[0] + km * step[0], from[1] + km * step[1]] : from;
      choose(to);
      if (!within(view, to)) setView({ ...view, centre: to });
    } else if ((event.key === "Enter" || event.key === " ") && choose && view) {
      event.preventDefault();
      choose(place ?? view.centre);
    } else if (event.key === "+" || event.key === "-") {
      event.preventDefault();
      zoom(event.key === "+" ? 2 : 0.5);
    }
  };
  const drag = useDrag(view, setView, whole, choose);
  const isWhole = view === whole;
  return (
    <div class="map" ref={frame}>
      <div
        class="map-face"
        role="application"
        tabIndex={0}
        aria-label={words.map}
        style={{ height: `${view?.height ?? 240}px`, touchAction: isWhole ? "pan-y" : "none" }}
        onKeyDown={onKeyDown}
        {...drag}
      >
        {view && <canvas ref={canvas} aria-hidden="true" />}
        {view && <Overlay {...{ view, rule, place, sent, ground, shapes }} />}
        {choose && !place && view && <p class="map-hint">{words.tap}</p>}
      </div>
      <div class="map-tools">
        <button type="button" aria-label={words.zoomIn} onClick={() => zoom(2)}>
          +
        </button>
        <button type="button" aria-label={words.zoomOut} disabled={isWhole} onClick={() => zoom(0.5)}>
          −
        </button>
      </div>
    </div>
  );
}

/** What lies over the cells: the place, the sent cell, scale, north and coordinates. */
function Overlay({
  view,
  rule,
  place,
  sent,
  ground,
  shapes,
}: Omit<PlaceMapProps, "backdrop" | "cloud" | "choose"> & {
  view: View;
  ground: Ground;
  shapes: readonly Shape[] | undefined;
}) {
  const words = say.place;
  const barKm = scaleBarKm(view, Math.min(140, view.width / 3));
  const bar = barKm * view.pixelsPerKm;
  const at = place && toScreen(view, place);
  const cell = sent === undefined ? undefined : toScreen(view, [rule.east[sent]!, rule.north[sent]!]);
  const side = Math.max(rule.cellKm * view.pixelsPerKm, 10);
  const corner = (x: number, y: number): string => degrees(...ground.degreesOf(toPlace(view, x, y)), 3);
  const { width, height } = view;
  return (
    <svg class="map-over" viewBox={`0 0 ${width} ${height}`} width={width} height={height} aria-hidden="true">
      {cell && (
        <g class="map-sent">
          {shapes ? (
            <polygon points={shapes[sent!]!.map((corner) => toScreen(view, corner).join()).join(" ")} />
          ) : (
            <rect x={cell[0] - side / 2} y={cell[1] - side / 2} width={side} height={side} rx={2} />
          )}
          <text
            x={Math.min(Math.max(cell[0], 40), width - 40)}
            y={cell[1] < 50 ? cell[1] + side / 2 + 15 : cell[1] - side / 2 - 6}
            text-anchor="middle"
          >
            {words.sentHere}
          </text>
        </g>
      )}
      {at && (
        <g class="map-place" transform={`translate(${at[0]} ${at[1]})`}>
          <circle r={9} />
          <path d="M-14 0H-4M4 0H14M0-14V-4M0 4V14" />
        </g>
      )}
      <g class="map-note">
        <text x={8} y={height - 26}>
          {distance(barKm)}
        </text>
        <path d={`M8 ${height - 20}v6h${bar}v-6`} />
        <text x={width - 8} y={height - 8} text-anchor="end">
          {corner(width, height)}
        </text>
        <text x={8} y={16}>
          {corner(0, 0)}
        </text>
        <g transform={`translate(${width - 18} 30)`}>
          <path class="map-north" d="M0-14 5 4 0 0-5 4Z" />
          <text y={18} text-anchor="middle">
            {words.north}
          </text>
        </g>
      </g>
    </svg>
  );
}

/** Tap to choose; drag to move a map that is zoomed in. */
function useDrag(
  view: View | undefined,
  setView: (view: View) => void,
  whole: View | undefined,
  choose: PlaceMapProps["choose"],
) {
  const from = useRef<{ x: number; y: number; view: View; moved: boolean } | undefined>(undefined);
  return {
    onPointerDown: (event: PointerEvent & { currentTarget: HTMLElement }): void => {
      if (!view || event.button !== 0) return;
      from.current = { x: event.clientX, y: event.clientY, view, moved: false };
    },
    onPointerMove: (event: PointerEvent & { currentTarget: HTMLElement }): void => {
      const start = from.current;
      if (!start) return;
      const [x, y] = [event.clientX - start.x, event.clientY - start.y];
      if (Math.hypot(x, y) > DRAG) start.moved = true;
      if (!start.moved || start.view === whole) return;
      const { centre, pixelsPerKm } = start.view;
      setView({ ...start.view, centre: [centre[0] - x / pixelsPerKm, centre[1] + y / pixelsPerKm] });
    },
    onPointerUp: (event: PointerEvent & { currentTarget: HTMLElement }): void => {
      const start = from.current;
      from.current = undefined;
      if (!start || start.moved || !view) return;
      const box = event.currentTarget.getBoundingClientRect();
      choose?.(toPlace(view, event.clientX - box.left, event.clientY - box.top));
    },
    onPointerCancel: (): void => {
      from.current = undefined;
    },
  };
}

/** The whole map; nothing where so narrow a page has no room for it. */
function overAll(rule: Rule, width: number): View | undefined {
  const half = rule.cellKm / 2;
  const low: Place = [Math.min(...rule.east) - half, Math.min(...rule.north) - half];
  const high: Place = [Math.max(...rule.east) + half, Math.max(...rule.north) + half];
  const shape = (high[1] - low[1]) / (high[0] - low[0]);
  const height = Math.round(Math.min(Math.max(width * shape, 220), Math.min(1.1 * width, 560)));
  const view = fitted(low, high, width, height, MARGIN);
  return view.pixelsPerKm > 0 ? view : undefined;
}

function within(view: View, place: Place): boolean {
  const [x, y] = toScreen(view, place);
  return x > 0 && y > 0 && x < view.width && y < view.height;
}

function paint(
  canvas: HTMLCanvasElement,
  view: View,
  rule: Rule & { readonly shapes: readonly Shape[] | undefined },
  cloud: Cloud | undefined,
  outlines: readonly Outline[],
  ground: Ground,
): void {
  const sharp = window.devicePixelRatio || 1;
  canvas.width = Math.round(view.width * sharp);
  canvas.height = Math.round(view.height * sharp);
  const context = canvas.getContext("2d");
  if (!context) return; // the words below the map say the same
  context.scale(sharp, sharp);
  const most = cloud ? cloud.shares.reduce((one, other) => Math.max(one, other), 0) : 1;
  const shades = cloud?.shares.map((share) => share / most);
  const palette = paletteOf(canvas);
  const at = toScreen(view, ground.planeAt);
  context.fillStyle = palette.ground;
  context.fillRect(0, 0, view.width, view.height);
  drawOutlines(context, outlines, "areas", at, view.pixelsPerKm);
  drawCells(context, view, rule, shades, (cell) => cell < rule.cells, palette, outlines.length ? THIN : 1);
  drawOutlines(context, outlines, "lines", at, view.pixelsPerKm);
}

/** Whether the page is dark now; the canvas is drawn anew when that changes. */
function useDark(): boolean {
  const [query] = useState(() => matchMedia("(prefers-color-scheme: dark)"));
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const update = (): void => setDark(query.matches);
    query.addEventListener("change", update);
    return () => query.removeEventListener("change", update);
  }, [query]);
  return dark;
}
