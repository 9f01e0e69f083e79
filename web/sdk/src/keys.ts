/** Bits and ids of reports: from a key that moves on, and never from a place. */

import { type Bytes, hex } from "./canonical.ts";

/** When a campaign is reported to again: never, once a day (UTC), once in every round. */
export type Again = "never" | "day" | "round";

/** What may be reported about once: a campaign, a day of it or a round of it. */
export interface Period {
  readonly again: Again;
  /** 0, or the day, or the round. */
  readonly number: number;
}

/** The id of a report in hexadecimal, and 16 bytes for its draw; for a trip, 16 more for the draw of its end. */
export interface Bits {
  readonly report: string;
  readonly draw: Uint8Array;
  readonly end: Uint8Array;
}

/** A new key: 32 bytes of the operating system's randomness. */
export function newKey(): Bytes {
  return crypto.getRandomValues(new Uint8Array(32));
}

export async function bitsOf(key: Bytes, mechanism: string, period: Period): Promise<Bits> {
  const bytesFor = async (use: string): Promise<Uint8Array> =>
    (await hmac(key, `geoveil report ${use} ${mechanism} ${period.again} ${period.number}`)).slice(0, 16);
  return { report: hex(await bytesFor("id")), draw: await bytesFor("draw"), end: await bytesFor("end") };
}

/** The key so many numbers later; nobody can go back from it. */
export async function movedOn(key: Bytes, steps: number): Promise<Bytes> {
  let later = key;
  for (let step = 0; step < steps; step++) later = await hmac(later, "geoveil next key");
  return later;
}

async function hmac(key: Bytes, text: string): Promise<Bytes> {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, new TextEncoder().encode(text)));
}
