/** A person's end of a Geoveil campaign: every check, exact draws, one report, a ledger. */

export {
  Device,
  type DeviceOptions,
  type Receipt,
  type ReportOptions,
  type Seen,
  SILENCE_TELLS,
  type Standing,
} from "./device.ts";
export { type Answer, costOf, type Patience, type Transport, Unreachable } from "./collector.ts";
export { MechanismDocument, type Promised, tagOf } from "./document.ts";
export type { Again } from "./keys.ts";
export type { Charge, Drawn } from "./ledger.ts";
export { type Beyond, browserLocation, type Fix, type Locate } from "./location.ts";
export { type Pair, TangentPlane } from "./plane.ts";
export { InvalidInput, type Reason, REASONS, Refused, RefusedDocument, Unacknowledged } from "./refusal.ts";
export { type Slots, slotAt } from "./slots.ts";
export { IndexedDbStorage, type Kept, type LedgerStorage, MemoryStorage } from "./storage.ts";
export { amount, explainDocument, explainPromise, meanDistanceKm, odds, type Odds } from "./words.ts";
