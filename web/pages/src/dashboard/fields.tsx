/** Fields of forms: a number, a tick, and what is said against them beside them. */

import type { ComponentChildren, InputHTMLAttributes } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Theirs } from "./problem_words.tsx";

interface SaidProps {
  readonly id: string;
  readonly words: string | undefined;
  /** Whether the words are the form's, instead of the service's. */
  readonly own?: boolean;
}

/** What is said against a setting, beside the field of it. */
export function Said({ id, words, own }: SaidProps) {
  if (!words) return null;
  return (
    <span class="refusal" id={`${id}-said`} role="alert">
      {own ? words : <Theirs>{words}</Theirs>}
    </span>
  );
}

/** What a control says of itself to a screen reader: its hint, and what is wrong. */
export function about(id: string, hint: unknown, refusal: string | undefined) {
  const described = [hint && `${id}-hint`, refusal && `${id}-said`].filter(Boolean).join(" ");
  return { "aria-describedby": described || undefined, "aria-invalid": refusal ? true : undefined } as const;
}

export function Hint({ id, children }: { id: string; children: ComponentChildren }) {
  if (!children) return null;
  return (
    <span class="small soft" id={`${id}-hint`}>
      {children}
    </span>
  );
}

interface TypedProps extends Omit<InputHTMLAttributes, "value" | "type" | "list" | "role" | "onInput" | "ref"> {
  readonly value: number | undefined;
  readonly onValue: (value: number) => void;
  readonly onNone?: (() => void) | undefined;
}

/**
 * Takes a number and leaves alone what is being typed, which is none yet or reads as a shorter one: "", "0." and
 * "0.0" on the way to 0.05. Only a number that comes from elsewhere is put into it.
 */
export function TypedNumber({ value, onValue, onNone, ...more }: TypedProps) {
  const field = useRef<HTMLInputElement>(null);
  const typed = useRef<number>(undefined);
  useLayoutEffect(() => {
    if (value !== typed.current) field.current!.value = value === undefined ? "" : String(value);
    typed.current = value;
  }, [value]);
  return (
    <input
      {...more}
      ref={field}
      type="number"
      onInput={(event) => {
        const number = event.currentTarget.valueAsNumber;
        if (!Number.isFinite(number) && !onNone) return;
        typed.current = Number.isFinite(number) ? number : undefined;
        if (typed.current === undefined) onNone!();
        else onValue(typed.current);
      }}
    />
  );
}

export interface NumberProps {
  readonly id: string;
  readonly label: string;
  readonly value: number | undefined;
  readonly least: number;
  readonly step: number;
  readonly optional?: boolean;
  readonly hint?: string | undefined;
  readonly refusal?: string | undefined;
  readonly onValue: (value: number) => void;
  readonly onNone?: () => void;
}

export function NumberField({ id, label, value, least, step, optional, hint, refusal, onValue, onNone }: NumberProps) {
  return (
    <p class="field">
      <label for={id}>{label}</label>
      <Hint id={id}>{hint}</Hint>
      <TypedNumber
        id={id}
        inputMode="decimal"
        {...about(id, hint, refusal)}
        min={least}
        step={step < 1 ? "any" : step}
        required={!optional}
        {...{ value, onValue, onNone }}
      />
      <Said id={id} words={refusal} />
    </p>
  );
}

export interface TickProps {
  readonly id: string;
  readonly label: string;
  readonly hint: string;
  readonly checked: boolean;
  readonly disabled?: boolean;
  readonly refusal?: string | undefined;
  readonly onChecked: (checked: boolean) => void;
}

export function Tick({ id, label, hint, checked, disabled = false, refusal, onChecked }: TickProps) {
  return (
    <div class="check">
      <input
        id={id}
        type="checkbox"
        checked={checked}
        disabled={disabled}
        {...about(id, hint, refusal)}
        onChange={(event) => onChecked(event.currentTarget.checked)}
      />
      <span class="field">
        <label for={id}>{label}</label>
        <Hint id={id}>{hint}</Hint>
        <Said id={id} words={refusal} />
      </span>
    </div>
  );
}
