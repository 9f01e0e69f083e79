/** What runs inside Chromium: the page of `chromium.test.ts` loads this file, bundled with the package. */

import { Device, type Fix, MechanismDocument, type Receipt } from "../src/index.ts";
import type { MechanismVector } from "./vectors.ts";

export interface InBrowser {
  /** How many draws, places and sums of a vector agree, and its certificate. */
  agree(
    vector: MechanismVector,
  ): Promise<{ id: string; draws: number; places: number; sums: number; epsilonPerKm: number }>;
  report(link: string, fix: Fix, ticket?: string): Promise<Receipt>;
}

const page: InBrowser = {
  async agree(vector) {
    const { id, law, area, promise } = await MechanismDocument.read(new TextEncoder().encode(vector.document));
    let [draws, places, sums] = [0, 0, 0];
    for (const [index, place] of vector.positions.entries()) {
      const named = new TextEncoder().encode(`${vector.name}:${index}`);
      const bits = new Uint8Array(await crypto.subtle.digest("SHA-256", named)).subarray(0, 16);
      draws += law.draw(place, bits) === vector.draws[index] ? 1 : 0;
    }
    for (const [lat, lng, steps] of vector.places) {
      places += law.stepsOf(area.placeKm(lat, lng)).join() === steps.join() ? 1 : 0;
    }
    vector.sums.forEach((sum, index) => {
      sums += law.row(vector.positions[index]!).reduce((one, other) => one + other) === BigInt(sum) ? 1 : 0;
    });
    return { id, draws, places, sums, epsilonPerKm: law.positions().certify(promise.epsilonPerKm).epsilonPerKm };
  },
  async report(link, fix, ticket) {
    return (await Device.open(link, { maxEpsilonPerKm: 2, budgetPerKm: 10 })).report(fix, { ticket });
  },
};

/** In a page it is called by the test, in a worker by messages. */
if (typeof window === "undefined") {
  onmessage = ({ data: [link, fix] }: MessageEvent<[string, Fix]>) => void page.report(link, fix).then(postMessage);
} else {
  Object.assign(window, { geoveil: page });
}
