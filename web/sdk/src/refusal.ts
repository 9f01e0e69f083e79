/**
 * Why a device does not report: stable words for programs, one sentence each for people.
 *
 * Nothing that is thrown may tell where somebody is: messages hold no location, and no error carries another
 * one as its cause.
 */

import type { Receipt } from "./device.ts";

/** Reason → what was wrong, for a person. The words are those of the Python device, names of methods apart. */
export const REASONS = {
  insecure: "the collector must be reached over https; plain http is for this machine only",
  unreachable: "the collector did not answer; try again later",
  redirect: "the collector sent the device to another address",
  answer: "the collector did not answer as a collector does",
  document: "the mechanism document is not sound",
  trips: "the campaign asks for trips, with both ends; use reportTrip",
  places: "the campaign asks for places, not for trips; use report",
  level: "the campaign does not offer the promise that was chosen",
  campaign: "the mechanism document belongs to another campaign",
  promise: "the promise allows more than the limit that was set for this device",
  "not-yet-valid": "the mechanism is not valid yet, or this device's clock is behind",
  expired: "the mechanism has expired, or this device's clock is ahead",
  ended: "the campaign has ended",
  clock: "this device's clock does not tell a time; set it",
  zone: "the campaign's slots are those of a time zone that this device does not know",
  slot: "the campaign asks about certain times only, and now is none of them",
  clocks: "this device's clock and the collector's are in different slots; set the clock",
  space: "the cells are not those that the campaign had when this device first saw it",
  budget: "the report would cost more than is left of the budget",
  location: "the location must be a latitude from -90 to 90 and a longitude, in degrees",
  accuracy: "the fix must be no coarser than a cell of the campaign; measure again",
  outside: "the location lies outside the campaign's box, where this device was told to be silent",
  invitation: "the invitation gives no ticket",
  ticket: "the collector's key or signature is not in order",
  problem: "the collector refused",
  "ledger-unreadable": "the ledger cannot be read, and nothing is charged without it; put a copy back",
  "ledger-unwritable": "the ledger cannot be written, so nothing is charged; make room, or choose a place",
  "ledger-busy": "another process holds the ledger; try again",
} as const;

export type Reason = keyof typeof REASONS;

const SENT = "sent and charged, and the collector did not count it";

/**
 * The device did not report, or (`sent`) the collector will never count what it was sent.
 *
 * `detail` says more where there is more to say: the reason of a {@link RefusedDocument}, a limit, or the
 * name of the collector's problem. `sent` tells whether the noisy cell has left the device and ε is spent.
 */
export class Refused extends Error {
  override readonly name = "Refused";
  readonly reason: Reason;
  readonly detail: string;
  readonly sent: boolean;

  constructor(reason: Reason, detail = "", sent = false) {
    super((sent ? SENT : `not reported: ${REASONS[reason]}`) + (detail ? ` (${detail})` : ""));
    this.reason = reason;
    this.detail = detail;
    this.sent = sent;
  }
}

/** The report may have left, and nobody said for good whether it counts; it waits for `flush`. */
export class Unacknowledged extends Error {
  override readonly name = "Unacknowledged";
  readonly receipt: Receipt;
  /** The name of the collector's problem, where it answered with one that may pass; else empty. */
  readonly problem: string;

  constructor(receipt: Receipt, why: string, problem = "") {
    super(`the report is not acknowledged yet: ${why}; call flush() later`);
    this.receipt = receipt;
    this.problem = problem;
  }
}

/** A mechanism document that is not sound; `reason` is a stable word, and the same as in Python, which says more. */
export class RefusedDocument extends Error {
  override readonly name = "RefusedDocument";
  readonly reason: string;

  constructor(reason: string) {
    super(`the mechanism document was refused: ${reason}`);
    this.reason = reason;
  }
}

/** What a program gave cannot be used. */
export class InvalidInput extends Error {
  override readonly name = "InvalidInput";
}

/** Throw unless a part of a document is sound. */
export function require(sound: boolean, reason: string): asserts sound {
  if (!sound) throw new RefusedDocument(reason);
}
