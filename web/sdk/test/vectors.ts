/** The shared vectors, and documents edited as `refused.json` says. */

import { readFileSync } from "node:fs";
import type { Json, JsonObject } from "../src/canonical.ts";

const FOLDER = new URL("../../../vectors/", import.meta.url);

export const NAMES = ["paris", "fiji", "svalbard", "lagoon", "places", "trips", "delta"] as const;

export interface MechanismVector {
  name: string;
  document: string;
  served: string;
  id: string;
  certified_epsilon_per_km: number;
  certified_slack_nats: number;
  seen_epsilon_per_km: number;
  rectangle: [number, number, number, number];
  centres: [number, number][];
  positions: [number, number][];
  draws: number[];
  ends: number[];
  rows: string[][];
  sums: string[];
  places: [number, number, [number, number]][];
  receipts: [number, number, number][];
  slots: [number, number | null][];
}

export interface Edit {
  base?: string;
  reason: string;
  text?: string;
  spaces?: number;
  set?: JsonObject;
  remove?: string[];
  poke?: [string, number, number];
  cut?: [string, number];
}

export function load<Value>(file: string): Value {
  return JSON.parse(readFileSync(new URL(file, FOLDER), "utf8")) as Value;
}

const read = new Map<string, MechanismVector>();

/** Each is read once: they are long, and nothing changes them. */
export function mechanism(name: string): MechanismVector {
  const vector = read.get(name) ?? load<MechanismVector>(`mechanism-${name}.json`);
  read.set(name, vector);
  return vector;
}

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** The bytes of a document that must be refused. */
export function edited(edit: Edit): Uint8Array {
  if (edit.text !== undefined) return bytes(" ".repeat(edit.spaces ?? 0) + edit.text);
  const values = JSON.parse(mechanism(edit.base!).document) as JsonObject;
  for (const entry of edit.remove ?? []) delete values[entry];
  const set: JsonObject = { ...edit.set };
  if (edit.poke) {
    const [field, index, value] = edit.poke;
    const packed = Buffer.from(values[field] as string, "base64");
    packed.writeUInt32BE(value, 4 * index);
    set[field] = packed.toString("base64");
  }
  if (edit.cut) {
    const [path, characters] = edit.cut;
    const text = path.split(".").reduce<Json>((inner, step) => (inner as JsonObject)[step]!, values) as string;
    set[path] = text.slice(0, -characters);
  }
  for (const [path, value] of Object.entries(set)) {
    const way = path.split(".");
    const last = way.pop()!;
    (way.reduce<Json>((inner, step) => (inner as JsonObject)[step]!, values) as JsonObject)[last] = value;
  }
  return bytes(JSON.stringify(values));
}
