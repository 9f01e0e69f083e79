/**
 * What the demo hands over in the part of the address that no browser sends: the token, and the simulated truth.
 *
 * Only a page that comes from this very machine takes either; on any other a link could put words into its mouth.
 */

import { keep, kept, token } from "./service.ts";

const HERE = new Set(["localhost", "127.0.0.1", "[::1]"]);
const TRUTH = "geoveil-simulated-truth";

interface Handed {
  readonly campaign: string;
  readonly shares: readonly number[];
}

/** Take what stands behind `#` and wipe it from the address. */
export function takeFromAddress(): void {
  const given = new URLSearchParams(location.hash.replace(/^#[^?]*\??/, ""));
  if (!HERE.has(location.hostname) || !given.size) return;
  const handed = given.get("token");
  if (handed) token.set(handed);
  const truth = given.get("simulated");
  const campaign = given.get("campaign");
  if (truth && campaign) keep(TRUTH, JSON.stringify({ campaign, shares: unpacked(truth) }));
  history.replaceState(null, "", campaign ? `#/${encodeURIComponent(campaign)}` : "#/");
}

/** The truth about a simulated city; undefined for every real one. */
export function simulatedTruth(campaign: string, cells: number): readonly number[] | undefined {
  try {
    const handed = JSON.parse(kept(TRUTH) ?? "null") as Handed | null;
    return handed?.campaign === campaign && handed.shares.length === cells ? handed.shares : undefined;
  } catch {
    return undefined;
  }
}

/** Shares as the demo packs them: base64url of 16-bit numbers, the largest 65,535. */
export function unpacked(text: string): readonly number[] {
  const bytes = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const numbers: number[] = [];
  for (let at = 0; at + 1 < bytes.length; at += 2) numbers.push(bytes.charCodeAt(at) + 256 * bytes.charCodeAt(at + 1));
  const total = numbers.reduce((sum, each) => sum + each, 0);
  return total > 0 ? numbers.map((each) => each / total) : [];
}
