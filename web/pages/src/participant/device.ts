/** The page's end of the device in its worker. */

import type { Charge, Fix, Pair, Promised, Reason, Receipt, Standing } from "@geoveil/client";
import type { Calls } from "./device_worker.ts";

export type { Charge, Fix, Receipt, Standing };

/** What the person lets this device do. */
export interface Limits {
  readonly maxEpsilonPerKm: number;
  readonly budgetPerKm: number;
}

/** A promise that the campaign offers, and how far from the middle of the map its reports lie on average. */
export interface Level {
  readonly promise: Promised;
  /** What a report is charged: of a trip, twice the promise. */
  readonly cost: Promised;
  readonly meanKm: number;
}

/** The rule that a report would be drawn by, as far as the page shows it; lengths in km from `origin` in the plane. */
export interface Rule {
  readonly id: string;
  readonly round: number;
  readonly promise: Promised;
  readonly expiresS: number;
  /** Whether a report is a trip, with two places; `cost` is twice the promise then. */
  readonly trips: boolean;
  readonly cost: Promised;
  readonly cellKm: number;
  readonly cells: number;
  readonly rim: number;
  readonly onGrid: boolean;
  readonly east: Float64Array;
  readonly north: Float64Array;
  readonly low: Pair;
  readonly high: Pair;
  /** Where the plane of the map touches the globe, in degrees. */
  readonly plane: Pair;
  readonly origin: Pair;
  /** All promises that people may choose among, the strongest first. */
  readonly levels: readonly Level[];
  /** The slot of time that the device's clock is in, where reports name one. */
  readonly slot: { readonly name: string; readonly of: number; readonly zone: string } | undefined;
}

/** Every check passed; `earlier` where there is a report to this campaign already. */
export interface Offer {
  readonly earlier: Charge | undefined;
}

/** What would be reported from a place: a share for each centre of the rule. */
export interface Cloud {
  readonly shares: Float64Array;
  readonly halfWithinKm: number;
  readonly mostWithinKm: number;
  readonly outside: boolean;
}

export interface Ledger {
  readonly standing: Standing;
  readonly history: Charge[];
}

/** A report that was made, from the ledger or, where that has forgotten it, from the receipt of its sending. */
export type Sent = Omit<Charge, "campaign" | "day">;

/** Why something was not done: a reason of the device, `changed` (the rule, since it was shown), `waiting` (sent, not acknowledged) or `fault`. */
export interface Failure {
  readonly reason: Reason | "changed" | "waiting" | "fault";
  readonly detail: string;
  readonly sent: boolean;
  /** Of `waiting`: what was sent. */
  readonly receipt?: Receipt;
}

export function sentOf(receipt: Receipt): Sent {
  return { ...receipt, state: receipt.acknowledged ? "acknowledged" : "sent", problem: "" };
}

export interface Question {
  readonly ticket: number;
  readonly call: keyof Calls;
  readonly parameters: readonly unknown[];
}

export type Message =
  | { readonly kind: "rule"; readonly rule: Rule }
  | { readonly kind: "answer"; readonly ticket: number; readonly value: unknown }
  | { readonly kind: "failure"; readonly ticket: number; readonly failure: Failure };

/** Calls into the worker; each rejects with a {@link Failure}. */
export class DeviceProxy {
  private readonly worker: Worker;
  private readonly waiting = new Map<number, [(value: never) => void, (failure: Failure) => void]>();
  private tickets = 0;

  constructor(onRule: (rule: Rule) => void) {
    this.worker = new Worker(new URL("./device_worker.ts", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }: MessageEvent<Message>) => {
      if (data.kind === "rule") return onRule(data.rule);
      const [resolve, reject] = this.waiting.get(data.ticket)!;
      this.waiting.delete(data.ticket);
      return data.kind === "answer" ? resolve(data.value as never) : reject(data.failure);
    };
    this.worker.onerror = () => {
      for (const [, reject] of this.waiting.values()) reject({ reason: "fault", detail: "worker", sent: false });
      this.waiting.clear();
    };
  }

  call<Name extends keyof Calls>(
    call: Name,
    ...parameters: Parameters<Calls[Name]>
  ): Promise<Awaited<ReturnType<Calls[Name]>>> {
    const ticket = ++this.tickets;
    return new Promise((resolve, reject) => {
      this.waiting.set(ticket, [resolve, reject]);
      this.worker.postMessage({ ticket, call, parameters } satisfies Question);
    });
  }

  stop(): void {
    this.worker.terminate();
  }
}
