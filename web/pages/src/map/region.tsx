/** A region of a map, drawn by the reader, and its share of the people with an interval of its own. */

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { percent } from "../texts/language.ts";
import type { Rectangle } from "./canvas.ts";
import type { AnyCells } from "./places.ts";
import { say, wordsFor } from "./texts.ts";

/** What the service says of regions, in their order. */
export interface RegionShares {
  readonly level: number;
  readonly regions: readonly {
    readonly name: string;
    readonly cells: number;
    /** Its area on the map, in cells. */
    readonly area_cells: number;
    readonly share: number;
    readonly low: number;
    readonly high: number;
  }[];
  /** The share of the people in no region, and in more than one. */
  readonly left_out: number;
  readonly counted_twice: number;
}

export interface Region {
  /** Whether the next drag on the map chooses it. */
  readonly selecting: boolean;
  readonly selected: Rectangle | undefined;
  readonly words: ComponentChildren;
  /** What is to be known about the interval, where there is one. */
  readonly note: string;
  toggle(): void;
  choose(rectangle: Rectangle, cells: AnyCells): void;
}

/** `ask` asks the service about a GeoJSON shape, and `inWords` tells what came instead of an answer. */
export function useRegion(
  ask: (zone: object) => Promise<RegionShares>,
  inWords: (error: unknown) => ComponentChildren,
): Region {
  const [selecting, setSelecting] = useState(false);
  const [selected, setSelected] = useState<Rectangle>();
  const [words, setWords] = useState<ComponentChildren>("");
  const [note, setNote] = useState("");
  const latest = useRef(0);
  const toggle = (): void => {
    latest.current++;
    setSelected(undefined);
    setNote("");
    setSelecting(!(selecting || selected));
    setWords(selecting || selected ? "" : say.selecting);
  };
  const choose = (rectangle: Rectangle, cells: AnyCells): void => {
    const turn = ++latest.current;
    const words = wordsFor(cells);
    setSelected(rectangle);
    setSelecting(false);
    setWords(say.regionWait);
    const [west, south, east, north] = rectangle;
    const corners = [
      [west, south],
      [east, south],
      [east, north],
      [west, north],
      [west, south],
    ] as const;
    const ring = corners.map((corner) => [...cells.plane.toLatLng(corner)].reverse());
    ask({ type: "Polygon", coordinates: [ring] })
      .then(({ level, regions }) => {
        if (turn !== latest.current) return;
        const { share, low, high, cells: inside } = regions[0]!;
        setWords(words.region(percent(share), percent(low), percent(high), percent(level), inside));
        setNote(words.regionNote);
      })
      .catch((error: unknown) => turn === latest.current && setWords(inWords(error)));
  };
  return { selecting, selected, words, note, toggle, choose };
}

export function RegionButton({ region: { selecting, selected, toggle } }: { region: Region }) {
  return (
    <button type="button" aria-pressed={selecting} onClick={toggle}>
      {selecting || selected ? say.clear : say.select}
    </button>
  );
}

export function RegionWords({ region: { words, note } }: { region: Region }) {
  return (
    <p aria-live="polite" class="region">
      {words}
      {note && <span class="small soft"> {note}</span>}
    </p>
  );
}
