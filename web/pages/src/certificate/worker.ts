/** Checks a mechanism off the page's own thread: the page is being read meanwhile. */

import { costOf, MechanismDocument, type Promised, RefusedDocument } from "@geoveil/client";

export interface Facts {
  /** Of every promise, the strongest first; all else is of the weakest, which bounds them all. */
  readonly ids: readonly string[];
  readonly round: number;
  readonly expiresS: number;
  readonly cells: number;
  /** Whether these are a list of places, instead of squares. */
  readonly listed: boolean;
  readonly promise: Promised;
  /** Whether a report is a trip; its two places together cost twice the promise. */
  readonly trips: boolean;
  readonly cost: Promised;
}

/** First what the document says, then whether that holds; or why it cannot be read. */
export type Message =
  | { readonly kind: "facts"; readonly facts: Facts }
  | { readonly kind: "verdict"; readonly holds: boolean; readonly seconds: number }
  | { readonly kind: "refused"; readonly reason: string };

const tell = (message: Message): void => postMessage(message);

/** What the service gave as the mechanism of the campaign in the page's address. */
interface Question {
  readonly campaign: string;
  readonly body: Uint8Array;
}

addEventListener("message", (event: MessageEvent<Question>) => {
  void check(event.data).catch((error: unknown) =>
    tell({ kind: "refused", reason: error instanceof RefusedDocument ? error.reason : String(error) }),
  );
});

async function check({ campaign, body }: Question): Promise<void> {
  const levels = await MechanismDocument.readLevels(body);
  const weakest = levels[levels.length - 1]!;
  if (weakest.campaign !== campaign) throw new RefusedDocument("campaign");
  const { round, expiresS, promise, trips, law } = weakest;
  const ids = levels.map((level) => level.id);
  const [cost, cells, listed] = [costOf(weakest), law.centres.east.length, law.centres.lattice === undefined];
  tell({ kind: "facts", facts: { ids, round, expiresS, promise, trips, cost, cells, listed } });
  const began = performance.now();
  let holds = true;
  try {
    for (const level of levels) level.checkPromise();
  } catch (error) {
    if (!(error instanceof RefusedDocument)) throw error;
    holds = false;
  }
  tell({ kind: "verdict", holds, seconds: (performance.now() - began) / 1000 });
}
