/** A place for a file with shapes: chosen with the keyboard, by hand, or dropped. */

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { say } from "./file_texts.ts";
import { type Contents, readShapes, type ShapeFile, UnusableFile } from "./read_shapes.ts";

export interface ShapeFileProps {
  readonly id: string;
  readonly label: string;
  readonly hint?: string;
  /** What the file may hold. */
  readonly contents?: Contents;
  readonly chosen: ShapeFile | undefined;
  /** What the service says against it. */
  readonly refusal?: ComponentChildren;
  readonly onChosen: (file: ShapeFile | undefined) => void;
}

export function ShapeFileField({ id, label, hint, contents = "shapes", chosen, refusal, onChosen }: ShapeFileProps) {
  const input = useRef<HTMLInputElement>(null);
  const latest = useRef(0);
  const [over, setOver] = useState(false);
  const [problem, setProblem] = useState("");
  const take = async (file: File | undefined): Promise<void> => {
    if (!file) return;
    const turn = ++latest.current;
    setProblem("");
    try {
      const shapes = await readShapes(file, contents);
      if (turn === latest.current) onChosen(shapes);
    } catch (error) {
      if (turn !== latest.current) return;
      onChosen(undefined);
      setProblem(error instanceof UnusableFile ? error.message : say.noGeoJson);
    }
  };
  const remove = (): void => {
    latest.current++;
    setProblem("");
    onChosen(undefined);
    if (input.current) input.current.value = "";
    input.current?.focus();
  };
  const wrong = problem || refusal;
  const described = [hint && `${id}-hint`, wrong && `${id}-said`].filter(Boolean).join(" ");
  return (
    <div
      class={`field drop ${over ? "drop-over" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void take(event.dataTransfer?.files[0]);
      }}
    >
      <label for={id}>{label}</label>
      {hint && (
        <span class="small soft" id={`${id}-hint`}>
          {hint}
        </span>
      )}
      <input
        id={id}
        ref={input}
        type="file"
        accept=".json,.geojson,application/geo+json"
        title={say.drop}
        aria-describedby={described || undefined}
        aria-invalid={wrong ? true : undefined}
        onChange={(event) => void take(event.currentTarget.files?.[0])}
      />
      {chosen && (
        <span class="row small">
          <span>{say.chosen(chosen.name)}</span>
          <button type="button" onClick={remove} aria-label={`${say.remove}: ${chosen.name}`}>
            {say.remove}
          </button>
        </span>
      )}
      {wrong && (
        <span class="refusal" id={`${id}-said`} role="alert">
          {wrong}
        </span>
      )}
    </div>
  );
}
