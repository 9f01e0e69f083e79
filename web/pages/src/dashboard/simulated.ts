/**
 * What the demo hands over in the part of the address that no browser sends: the token, and the simulated truth.
 *
 * Only a page that comes from this very machine takes either; on any other a link could put words into its mouth.
 */

import { keep, recall, token } from "./service.ts";

const HERE = new Set(["localhost", "127.0.0.1", "[::1]"]);
const TRUTH = "geoveil-simulated-truth";

interface SimulatedTruth {
  readonly campaign: string;
  readonly packed: string;
}

/** Take what stands behind `#` and wipe it from the address. */
export function takeFromAddress(): void {
  const parameters = new URLSearchParams(location.hash.replace(/^#[^?]*\??/, ""));
  if (!HERE.has(location.hostname) || !parameters.size) return;
  const operatorToken = parameters.get("token");
  if (operatorToken) token.set(operatorToken);
  const truth = parameters.get("simulated");
  const campaign = parameters.get("campaign");
  if (truth && campaign) keep(TRUTH, JSON.stringify({ campaign, packed: truth }));
  history.replaceState(null, "", campaign ? `#/${encodeURIComponent(campaign)}` : "#/");
}

/** The truth about a simulated city; undefined for every real one. */
export function simulatedTruth(campaign: string, cells: number): readonly number[] | undefined {
  try {
    const truth = JSON.parse(recall(TRUTH) ?? "null") as SimulatedTruth | null;
    const shares = truth?.campaign === campaign ? unpacked(truth.packed) : [];
    return shares.length === cells ? shares : undefined;
  } catch {
    return undefined;
  }
}

/** Shares as the demo packs them: base64url of 16-bit numbers, the largest 65,535. */
export function unpacked(text: string): readonly number[] {
  const bytes = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const numbers: number[] = [];
  for (let at = 0; at + 1 < bytes.length; at += 2) numbers.push(bytes.charCodeAt(at) + 256 * bytes.charCodeAt(at + 1));
  const total = numbers.reduce((sum, number) => sum + number, 0);
  return total > 0 ? numbers.map((number) => number / total) : [];
}
