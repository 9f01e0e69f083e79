/** The box of a new campaign: drawn on a map or typed, with the cells that city limits leave of it. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { rectangleKm, widthOf } from "../../../sdk/src/area.ts";
import { type Backdrop, bordersOf } from "../map/backdrop.ts";
import { MapCanvas, type Rectangle } from "../map/canvas.ts";
import type { Colour } from "../map/colours.ts";
import { type Box, Cells, planeOf } from "../map/grid.ts";
import { type AnyCells, type AnySpace, isPlaces, Places } from "../map/places.ts";
import { useDark } from "../map/map_view.tsx";
import { arePoints, boundsOf } from "../map/read_shapes.ts";
import { Tiles } from "../map/tiles.ts";
import { about, Said, TypedNumber } from "./fields.tsx";
import { say } from "./form_texts.ts";
import { service } from "./service.ts";

const AROUND = 2.2; // how much more than the box the map shows
/** A cell that exists, on a light and on a dark page. */
const INSIDE: Readonly<Record<"light" | "dark", Colour>> = { light: [150, 184, 219], dark: [44, 84, 124] };

/** Whether a box can be drawn at all; the service checks the rest. */
export function drawable([south, west, north, east]: Box): boolean {
  const wide = widthOf([south, west, north, east]);
  return south < north && north - south < 10 && wide > 0 && wide < 10 && south > -85 && north < 85;
}

interface EdgesProps {
  readonly box: Box;
  readonly refusal: string | undefined;
  readonly onBox: (box: Box) => void;
}

export function Edges({ box, refusal, onBox }: EdgesProps) {
  const names = [say.south, say.west, say.north, say.east];
  return (
    <>
      <div class="edges">
        {names.map((name, at) => (
          <p class="field" key={name}>
            <label for={`edge-${at}`}>{name}</label>
            <TypedNumber
              id={`edge-${at}`}
              step="any"
              min={at % 2 ? -180 : -90}
              max={at % 2 ? 180 : 90}
              required
              value={box[at]}
              {...about("edge-0", undefined, refusal)}
              onValue={(value) => onBox(box.map((edge, n) => (n === at ? value : edge)) as unknown as Box)}
            />
          </p>
        ))}
      </div>
      <Said id="edge-0" words={refusal} />
    </>
  );
}

interface BoxMapProps {
  readonly box: Box;
  readonly streets: Backdrop | undefined;
  readonly limits: Backdrop | undefined;
  /** The cells that the limits leave, or the places, where that is known. */
  readonly space: AnySpace | undefined;
  readonly onBox: (box: Box) => void;
}

export function BoxMap({ box, streets, limits, space, onBox }: BoxMapProps) {
  const place = useRef<HTMLCanvasElement>(null);
  const map = useRef<MapCanvas>(undefined);
  const dark = useDark();
  const [drawing, setDrawing] = useState(true);
  const [around, setAround] = useState(box); // what the map was laid over
  const byHand = useRef(false);
  const behind = useMemo(
    () => ({
      features: [...(streets?.features ?? []), ...(limits && !arePoints(limits) ? bordersOf(limits).features : [])],
    }),
    [streets, limits],
  );

  useEffect(() => {
    if (!byHand.current && drawable(box)) setAround(box); // typed, or read from a file: the map goes there
    byHand.current = false;
  }, [box]);
  useEffect(() => {
    const bounds = streets && boundsOf(streets);
    if (bounds && drawable(bounds)) setAround(bounds);
  }, [streets]);
  useEffect(() => {
    if (space && !isPlaces(space)) setAround(space.box); // cells lie in the plane of their own box
  }, [space]);
  useEffect(() => {
    const plane = planeOf(around);
    const [west, south, east, north] = rectangleKm(around, plane);
    const [dx, dy] = [((AROUND - 1) / 2) * (east - west), ((AROUND - 1) / 2) * (north - south)];
    const canvas = new MapCanvas(place.current!, plane, [west - dx, south - dy, east + dx, north + dy]);
    canvas.onRectangle = (rectangle) => {
      byHand.current = true;
      onBox(boxOf(rectangle, canvas));
    };
    canvas.drawing = drawing;
    map.current = canvas;
    void service.tiles().then(({ tiles }) => tiles && map.current === canvas && canvas.under(new Tiles(tiles)));
    return () => canvas.close();
  }, [around]);
  useEffect(() => map.current!.behind(behind), [behind, around]);
  useEffect(() => {
    const shown = space && shownOver(space, around, map.current!.plane);
    if (shown) map.current!.show(shown, () => INSIDE[dark ? "dark" : "light"]);
    else map.current!.showNothing();
  }, [space, around, dark]);
  useEffect(() => {
    map.current!.drawing = drawing;
  }, [drawing]);
  useEffect(() => {
    map.current!.select(drawable(box) ? rectangleKm(box, map.current!.plane) : undefined);
  }, [box, around]);

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
        <button type="button" aria-label={say.zoomIn} onClick={() => map.current?.scaleBy(1.5)}>
          +
        </button>
        <button type="button" aria-label={say.zoomOut} onClick={() => map.current?.scaleBy(1 / 1.5)}>
          −
        </button>
      </div>
      {!drawable(box) && (
        <p class="small" role="status" id="box-not-drawn">
          {say.boxNotDrawn}
        </p>
      )}
    </div>
  );
}

/** Cells as a map over a box shows them; undefined where they are not of that box. */
function shownOver(space: AnySpace, around: Box, plane: MapCanvas["plane"]): AnyCells | undefined {
  if (isPlaces(space)) return new Places(space, plane);
  return String(space.box) === String(around) ? new Cells(space) : undefined;
}

/** A rectangle of the plane in degrees, to about a metre. */
function boxOf([west, south, east, north]: Rectangle, { plane }: MapCanvas): Box {
  const middle = [(west + east) / 2, (south + north) / 2] as const;
  const at = (pair: readonly [number, number], axis: 0 | 1): number => Number(plane.toLatLng(pair)[axis].toFixed(5));
  return [at([middle[0], south], 0), at([west, middle[1]], 1), at([middle[0], north], 0), at([east, middle[1]], 1)];
}
