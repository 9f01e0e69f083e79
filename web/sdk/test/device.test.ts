/** A device against a collector: what is checked, sent, charged and kept. */

import "fake-indexeddb/auto";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { JsonObject } from "../src/canonical.ts";
import { unhex } from "../src/canonical.ts";
import { Address, FetchTransport, Unreachable } from "../src/collector.ts";
import {
  Device,
  type DeviceOptions,
  type Fix,
  type Receipt,
  IndexedDbStorage,
  InvalidInput,
  type Kept,
  MemoryStorage,
  MechanismDocument,
  Refused,
  Unacknowledged,
} from "../src/index.ts";
import { bitsOf, movedOn } from "../src/keys.ts";
import { WholeLaw } from "../src/law.ts";
import { FakeCollector, PARIS, problem, served } from "./collector.ts";
import { bytes, type Edit, edited, load, mechanism } from "./vectors.ts";

const NOW_S = 1_800_000_000;
let collector: FakeCollector;

beforeEach(async () => {
  collector = await FakeCollector.start();
});
afterEach(() => collector.stop());

function options(more: Partial<DeviceOptions> = {}): DeviceOptions {
  const patience = { attempts: 3, totalS: 5, firstS: 0.001 };
  return { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger: new MemoryStorage(), patience, clock: () => NOW_S, ...more };
}

function opened(more: Partial<DeviceOptions> = {}): Promise<Device> {
  return Device.open(collector.link, options(more));
}

async function refusal(asking: Promise<unknown>): Promise<[string, string, boolean]> {
  const failure: unknown = await asking.then(
    () => undefined,
    (problem: unknown) => problem,
  );
  if (!(failure instanceof Refused)) throw failure ?? new Error("nothing was refused");
  return [failure.reason, failure.detail, failure.sent];
}

const never = (): Fix => {
  throw new Error("a location was read");
};

describe("before and after a report", () => {
  it("offers the document, shown before it is certified, and then the report", async () => {
    const device = await opened();
    const seen: string[] = [];
    const offered = await device.offered((document) => seen.push(document.id));
    if ("cell" in offered) throw new Error("nothing was reported yet");
    expect(seen).toEqual([offered.id]);
    expect(await device.standing()).toEqual({
      reports: 0,
      spent: { epsilonPerKm: 0, slackNats: 0 },
      budgetLeftPerKm: 10,
      operator: { epsilonPerKm: 0, slackNats: 0 },
    });
    const receipt = await device.report(PARIS);
    const asked = collector.requests.length;
    expect(await device.offered()).toMatchObject({ cell: receipt.cell, report: receipt.report, state: "acknowledged" });
    expect(collector.requests.length).toBe(asked);
    const { reports, spent, operator, budgetLeftPerKm } = await device.standing();
    expect([reports, spent, budgetLeftPerKm]).toEqual([1, operator, 8]);
    expect(spent.epsilonPerKm).toBe(2);
  });

  it("certifies a law once, whatever rounds have it", async () => {
    const keeps = vi.spyOn(WholeLaw.prototype, "keeps");
    const ledger = new MemoryStorage();
    const device = await opened({ ledger, again: "round" });
    for (const round of [71, 72]) {
      collector.document = await served("paris", { round, expires: NOW_S + 1000 * round });
      expect((await device.report(PARIS)).round).toBe(round);
    }
    expect(keeps.mock.calls.length).toBeLessThanOrEqual(1); // none where another test has asked
    keeps.mockRestore();
    const { certified } = (await ledger.load())!.book as { certified: Record<string, number> };
    expect(Object.values(certified)).toEqual([NOW_S + 72_000]);
  });

  it("shows a document that it then refuses", async () => {
    const broken = mechanism("paris");
    collector.document = await served("paris", {
      epsilon_per_km: 0.9 * (JSON.parse(broken.document) as { epsilon_per_km: number }).epsilon_per_km,
    });
    const seen: string[] = [];
    const device = await opened();
    expect(await refusal(device.offered((document) => seen.push(document.id)))).toEqual([
      "document",
      "certificate",
      false,
    ]);
    expect(seen).toHaveLength(1);
  });

  it("forgets all that an erased database held, whoever sleeps over it, and a new one works", async () => {
    const opening = vi.spyOn(indexedDB, "open");
    const ledger = new IndexedDbStorage("to-erase");
    const device = await opened({ ledger });
    const first = await device.report(PARIS);
    for (const { value } of opening.mock.results) value.result.onversionchange = null; // asleep, it would not be told
    opening.mockRestore();
    const deleting = vi.spyOn(indexedDB, "deleteDatabase");
    const erased = new IndexedDbStorage("to-erase").erase();
    const blocked = new Promise((_, reject) => (deleting.mock.results[0]!.value.onblocked = reject));
    await Promise.race([erased, blocked]);
    deleting.mockRestore();
    expect(await device.history()).toEqual([]);
    const again = await opened({ ledger });
    const second = await again.report(PARIS);
    expect(second.report).not.toBe(first.report);
    expect((await again.history()).map(({ report }) => report)).toEqual([second.report]);
  });
});

describe("one report", () => {
  it("is sent once: mechanism, id and cell, and nothing else", async () => {
    const device = await opened();
    const receipt = await device.report(PARIS);
    expect(receipt).toMatchObject({
      campaign: "paris",
      round: 1,
      acknowledged: true,
      epsilonPerKm: 2,
      budgetLeftPerKm: 8,
      operatorSpentPerKm: 2,
    });
    expect(receipt.mechanism).toBe(mechanism("paris").id);
    const [sent] = collector.reports;
    const body = JSON.parse(sent!.body) as JsonObject;
    expect(body).toEqual({ mechanism: receipt.mechanism, id: receipt.report, cell: receipt.cell });
    expect(receipt.report).toMatch(/^[0-9a-f]{32}$/);
    expect(collector.requests.map((request) => request.path)).toEqual([
      "/api/campaigns/paris/mechanism",
      "/api/campaigns/paris/reports",
    ]);
    for (const { headers } of collector.requests) {
      expect(Object.keys(headers)).not.toContain("cookie");
      expect(Object.keys(headers)).not.toContain("if-none-match");
      expect(Object.keys(headers)).not.toContain("referer");
    }
    expect(JSON.stringify(collector.requests)).not.toMatch(/48\.85|2\.29/);
  });

  it("is the only one: a second call reads nothing, sends nothing and costs nothing", async () => {
    const device = await opened();
    const receipt = await device.report(PARIS);
    const asked = collector.requests.length;
    collector.document = await served("paris", { round: 2 });
    expect(await device.report(never)).toEqual(receipt);
    expect(await device.report({ lat: 48.83, lng: 2.39 })).toEqual(receipt);
    expect(collector.requests.length).toBe(asked);
    expect((await device.history()).length).toBe(1);
  });

  it("is drawn by the law from the bits of the key", async () => {
    const ledger = new MemoryStorage();
    const device = await opened({ ledger });
    const { book } = ledger.snapshot() as { book: { campaigns: Record<string, { key: string }> } };
    const key = unhex(book.campaigns[collector.link]!.key)!;
    const { area, law, id } = await MechanismDocument.read(bytes(mechanism("paris").document));
    const bits = await bitsOf(key, id, { again: "never", number: 0 });
    const receipt = await device.report(PARIS);
    expect(receipt.report).toBe(bits.report);
    expect(receipt.cell).toBe(law.draw(law.stepsOf(area.placeKm(PARIS.lat, PARIS.lng)), bits.draw));
  });

  it("is asked for in the same way inside, at the edge and far outside", async () => {
    const shapes: unknown[] = [];
    for (const place of [PARIS, { lat: 48.8286, lng: 2.2855 }, { lat: -33.9, lng: 151.2 }, { lat: 90, lng: 0 }]) {
      collector.requests.length = 0;
      await (await opened()).report(place);
      shapes.push(
        collector.requests.map(({ method, path, headers, body }) => {
          const names = Object.keys(headers).sort();
          const entries =
            body && Object.entries(JSON.parse(body) as JsonObject).map(([name, value]) => [name, typeof value]);
          return { method, path, names, entries };
        }),
      );
    }
    for (const shape of shapes) expect(shape).toEqual(shapes[0]);
  });

  it("comes again every round or every day where the person says so, each charged", async () => {
    let nowS = NOW_S;
    const byRound = await opened({ again: "round" });
    const byDay = await opened({ again: "day", clock: () => nowS });
    expect(await byRound.explain()).toMatch(
      /30 such reports cost ε = 60 per km and .* together\. Two people who each stay/,
    );
    const first = await byRound.report(PARIS);
    expect(await byRound.report(never)).toEqual(first);
    collector.document = await served("paris", { round: 2 });
    const second = await byRound.report(PARIS);
    expect([second.round, second.budgetLeftPerKm]).toEqual([2, 6]);
    expect(await byRound.summary()).toContain(" Two people who each stay within 100 m of a place");
    expect(second.report).not.toBe(first.report);
    const today = await byDay.report(PARIS);
    expect(await byDay.report(never)).toEqual(today);
    nowS += 86_400;
    expect((await byDay.report(PARIS)).budgetLeftPerKm).toBe(6);
  });

  it("is the same again from an older copy of the ledger", async () => {
    const ledger = new MemoryStorage();
    await opened({ ledger });
    const copy = new MemoryStorage(ledger.snapshot());
    const receipt = await (await opened({ ledger })).report(PARIS);
    expect(await (await opened({ ledger: copy })).report(PARIS)).toEqual(receipt);
  });
});

describe("what is checked before a location is read", () => {
  it("refuses every hostile document, and sends nothing", async () => {
    const unserved = new Set(["id"]); // without an id, which is the reason given first
    for (const edit of load<Edit[]>("refused.json")) {
      collector.requests.length = 0;
      const text = Buffer.from(edited(edit)).toString();
      collector.document = edit.text === undefined && !unserved.has(edit.reason) ? identified(text) : text;
      const [reason, detail, sent] = await refusal(
        (await opened({ maxEpsilonPerKm: 1e6, budgetPerKm: 1e6 })).report(never),
      );
      expect([reason, sent, collector.reports.length]).toEqual(["document", false, 0]);
      expect(["id", edit.reason]).toContain(detail);
    }
  });

  it("refuses a law that does not keep its promise", async () => {
    collector.document = await served("paris", { epsilon_per_km: 1.99 });
    expect(await refusal((await opened()).report(never))).toEqual(["document", "certificate", false]);
  });

  it.each([
    ["promise", {}, { maxEpsilonPerKm: 1.9 }],
    ["campaign", { campaign: "lyon" }, {}],
    ["not-yet-valid", { not_before: NOW_S + 301 }, {}],
    ["expired", { expires: NOW_S }, {}],
    ["level", {}, { promisePerKm: 1 }],
    ["trips", { trips: true }, {}],
    ["budget", {}, { budgetPerKm: 1.99 }],
    ["budget", {}, { budgetPerDayPerKm: 1 }],
    ["budget", {}, { budgetPerYearPerKm: 1 }],
    ["budget", {}, { slackBudgetNats: 0.0119 }],
    ["clock", {}, { clock: () => Number.NaN }],
    ["clock", {}, { clock: () => `${NOW_S}` as unknown as number }],
  ] as [string, JsonObject, Partial<DeviceOptions>][])("refuses: %s", async (reason, changes, more) => {
    collector.document = await served("paris", changes);
    const asking = opened(more).then((device) => device.report(never));
    expect((await refusal(asking))[0]).toBe(reason);
    expect(collector.reports).toEqual([]);
  });

  it("chooses among the promises that are offered, and asks for all of them", async () => {
    const { body, ids } = load<{ body: string; ids: string[] }>("levels.json");
    collector.document = body;
    expect((await (await opened()).report(PARIS)).mechanism).toBe(ids[0]);
    const other = (await opened({ promisePerKm: 2.5 })).report(never);
    expect(await refusal(other)).toEqual(["level", "it offers 2, 3 per km", false]);
    const weaker = await (await opened({ promisePerKm: 3, maxEpsilonPerKm: 3 })).report(PARIS);
    expect([weaker.mechanism, weaker.epsilonPerKm]).toEqual([ids[1], 3]);
    expect(new Set(collector.requests.filter(({ method }) => method === "GET").map(({ path }) => path)).size).toBe(1);
  });

  it("refuses other cells than those seen first", async () => {
    const device = await opened({ again: "round" });
    await device.report(PARIS);
    collector.document = await served("svalbard", { campaign: "paris", round: 2 });
    expect((await refusal(device.report(never)))[0]).toBe("space");
  });

  it("says what a collector answered instead", async () => {
    const device = await opened();
    for (const [reply, reason, detail] of [
      [problem(404, "unknown-campaign"), "problem", "unknown-campaign"],
      [problem(410, "campaign-ended"), "ended", ""],
      [{ status: 302, headers: { location: "https://elsewhere.example/" } }, "redirect", ""],
      [{ status: 403, body: "<html>" }, "answer", "status 403"],
      [{ status: 200, body: " ".repeat((1 << 21) + 2000) }, "answer", "size"],
    ] as const) {
      collector.next.push(reply);
      expect(await refusal(device.report(never))).toEqual([reason, detail, false]);
    }
    const link = collector.link;
    await collector.stop();
    expect((await refusal(Device.open(link, options()).then((gone) => gone.report(never))))[0]).toBe("unreachable");
  });

  it("takes links of campaigns only, and plain http to this machine only", async () => {
    expect((await refusal(Device.open("http://collector.example/c/lyon", options())))[0]).toBe("insecure");
    for (const url of [
      "nowhere",
      "https://a.example/",
      "https://u:p@a.example/c/lyon",
      "https://a.example/c/lyon?x=1",
      "ftp://a.example/c/lyon",
      "https://[::ffff:192.0.2.1]/c/lyon", // 192.0.2.1, under a second name
    ]) {
      await expect(Device.open(url, options())).rejects.toThrow(InvalidInput);
    }
    for (const host of ["A.example.", "a.example.:443", "a\u3002example"]) {
      const { name, origin } = new Address(`https://${host}/c/lyon`, false); // one spelling, or it were two operators
      expect([name, origin]).toEqual(["https://a.example/c/lyon", "https://a.example"]);
    }
    expect(new Address("https://a.example.:8443/x/c/lyon", false).name).toBe("https://a.example:8443/x/c/lyon");
    await expect(opened({ budgetPerKm: 0 })).rejects.toThrow(InvalidInput);
    await expect(opened({ again: "hour" as "day" })).rejects.toThrow(InvalidInput);
  });
});

describe("a trip", () => {
  const WORK: Fix = { lat: 48.8721345, lng: 2.3412345 };
  const HOME: Fix = { lat: 48.8412345, lng: 2.3012345 };
  const asked = { maxEpsilonPerKm: 4, budgetPerKm: 8 };

  it("is one report of two cells, and costs twice", async () => {
    collector.document = await served("paris", { trips: true });
    const device = await opened(asked);
    expect(await device.summary()).toMatch(/Nothing was reported to any campaign at \S+ so far\.$/);
    const receipt = await device.reportTrip({ origin: HOME, destination: () => WORK });
    const { mechanism, report: id, cell, to } = receipt;
    expect(JSON.parse(collector.reports[0]!.body)).toEqual({ mechanism, id, cell, to: to!.cell });
    expect([receipt.epsilonPerKm, receipt.budgetLeftPerKm]).toEqual([4, 4]);
    expect(await device.reportTrip({ origin: never, destination: never })).toEqual(receipt);
    expect((await device.history())[0]!.to).toEqual(to);
    expect(await device.explain()).toContain(`cell ${cell} to cell ${to!.cell}`);
    expect(await device.summary()).toContain("Some reports are trips: both their ends were charged");
  });

  it("says what it costs and means before it is sent", async () => {
    collector.document = await served("paris", { trips: true });
    const told = await (await opened(asked)).explain();
    expect(told).toContain("Two people whose trips begin 200 m apart and end 200 m apart: any report is at most");
    expect(told).toContain("This report costs ε = 4 per km");
    expect(told).toContain("is why a trip costs twice");
  });

  it("is drawn from both ends, and the same again from an older copy of the ledger", async () => {
    collector.document = await served("paris", { trips: true });
    const ledger = new MemoryStorage();
    await opened({ ledger, ...asked });
    const copies = [1, 2, 3].map(() => new MemoryStorage(ledger.snapshot()));
    const trip = async (at: number, origin: Fix, destination: Fix): Promise<Receipt> =>
      (await opened({ ledger: copies[at]!, ...asked })).reportTrip({ origin, destination });
    const first = await trip(0, HOME, WORK);
    expect(await trip(1, HOME, WORK)).toEqual(first);
    const back = await trip(2, WORK, HOME);
    expect(back.report).toBe(first.report);
    expect([back.cell, back.to!.cell]).not.toEqual([first.cell, first.to!.cell]);
  });

  it("is refused where places are asked for, before anything is read, and above the limit", async () => {
    const both = { origin: never, destination: never };
    expect((await refusal((await opened(asked)).reportTrip(both)))[0]).toBe("places");
    collector.document = await served("paris", { trips: true });
    expect((await refusal((await opened({ maxEpsilonPerKm: 3.9 })).reportTrip(both)))[0]).toBe("promise");
    expect((await refusal((await opened({ ...asked, budgetPerKm: 3.9 })).reportTrip(both)))[0]).toBe("budget");
    const half = (await opened(asked)).reportTrip({ origin: HOME, destination: undefined as unknown as Fix });
    await expect(half).rejects.toThrow(InvalidInput);
    const wrong = await refusal((await opened(asked)).reportTrip({ origin: HOME, destination: { lat: 91, lng: 2 } }));
    expect(wrong[0]).toBe("location");
    expect(collector.reports).toEqual([]);
  });
});

describe("the location", () => {
  it.each([
    [{ lat: Number.NaN, lng: 2 }, "location", ""],
    [{ lat: 91, lng: 2 }, "location", ""],
    [{ lat: "48.85", lng: 2 }, "location", ""],
    [{ ...PARIS, accuracyKm: 0.51 }, "accuracy", "cells of 500 m"],
    [{ ...PARIS, accuracyKm: -1 }, "accuracy", "cells of 500 m"],
    [{ lat: 48.86, lng: 2.35, accuracyKm: 0.02 }, "accuracy", "snapped to a raster; cells of 500 m"],
  ] as [Fix, string, string][])("is refused before anything is charged: %o", async (fix, reason, detail) => {
    const device = await opened();
    expect(await refusal(device.report(fix))).toEqual([reason, detail, false]);
    expect(await refusal(device.report(() => Promise.resolve(fix)))).toEqual([reason, detail, false]);
    expect([await device.history(), collector.reports]).toEqual([[], []]);
    await device.report({ ...PARIS, accuracyKm: 0.5 });
  });

  it("outside is silent only where the person says so, with a warning", async () => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const device = await opened();
    expect((await refusal(device.report({ lat: 50, lng: 2 }, { outside: "refuse" })))[0]).toBe("outside");
    expect(warned.mock.calls.flat().join()).toMatch(/silence tells/);
    warned.mockRestore();
    expect((await device.report({ lat: 50, lng: 2 })).acknowledged).toBe(true);
  });

  it("is in nothing that is thrown, kept or sent", async () => {
    const planted = { lat: 48.851357911, lng: 2.331357911 };
    const ledger = new MemoryStorage();
    const device = await opened({ ledger });
    collector.next.push({ status: 200, body: collector.document }, { status: 503 }, { status: 503 }, { status: 503 });
    const thrown: unknown = await device.report(planted).catch((failure: unknown) => failure);
    expect(thrown).toBeInstanceOf(Unacknowledged);
    const told = [
      String(thrown),
      (thrown as Error).stack,
      JSON.stringify(thrown),
      JSON.stringify(ledger.snapshot()),
      JSON.stringify(collector.requests),
    ];
    expect(told.join()).not.toMatch(/1357911/);
    const kept = ledger.snapshot() as { book: { campaigns: Record<string, { key: string | null }> } };
    expect(Object.values(kept.book.campaigns).map((page) => page.key)).toEqual([null]);
    await expect(device.report({ lat: 1 } as unknown as Fix)).rejects.toThrow(/^report must be given lat and lng/);
  });

  it("what reading it throws is thrown, and nothing is charged", async () => {
    const device = await opened();
    await expect(device.report(never)).rejects.toThrow("a location was read");
    expect(await device.history()).toEqual([]);
  });
});

describe("a location that took long to read", () => {
  it("is not drawn from under a document that has expired meanwhile", async () => {
    let nowS = NOW_S;
    collector.document = await served("paris", { expires: NOW_S + 100 });
    const device = await opened({ clock: () => nowS });
    expect(await refusal(device.report(() => ((nowS += 100), PARIS)))).toEqual(["expired", "", false]);
    expect([await device.history(), collector.reports]).toEqual([[], []]);
    collector.document = await served("paris", { round: 2 });
    expect((await device.report(PARIS)).round).toBe(2);
  });

  it("is reported as of the day on which it was read", async () => {
    let nowS = NOW_S;
    const days = { ledger: new MemoryStorage(), again: "day", budgetPerDayPerKm: 2, clock: () => nowS } as const;
    const device = await opened(days);
    const tomorrow = (): Fix => ((nowS += 86_400), PARIS);
    const first = await device.report(tomorrow);
    expect(await device.report(never)).toEqual(first);
    const other = await opened(days);
    nowS += 86_400;
    const second = await device.report(async () => (tomorrow(), await other.report(PARIS), PARIS));
    expect(await other.report(never)).toEqual(second);
    expect((await device.history()).map(({ day }) => day - Math.floor(NOW_S / 86_400))).toEqual([1, 3]);
  });
});

describe("a report that is cancelled", () => {
  const reason = new Error("the person left");
  afterEach(() => void vi.restoreAllMocks());

  /** The device of a report that is cancelled, what it threw, and what was asked of `fetch` meanwhile. */
  async function cancelled(ledger: MemoryStorage, where: (cancel: () => void) => Fix | Promise<Fix>): Promise<unknown> {
    const controller = new AbortController();
    const begun = vi.spyOn(controller.signal, "addEventListener");
    const ended = vi.spyOn(controller.signal, "removeEventListener");
    const report = (await opened({ ledger })).report(() => where(() => controller.abort(reason)), controller);
    const thrown: unknown = await report.catch((failure: unknown) => failure);
    const [listening, gone] = [begun, ended].map((spy) => new Set(spy.mock.calls.map((call) => call[1])));
    expect([gone, listening!.size > 0]).toEqual([listening, true]); // a signal may outlive many reports
    return thrown;
  }

  it("before it began asks and reads nothing", async () => {
    const fetched = vi.spyOn(globalThis, "fetch");
    const device = await opened();
    await expect(device.report(never, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect([fetched.mock.calls, await device.history()]).toEqual([[], []]);
  });

  it("while the document is fetched ends the request, and reads nothing", async () => {
    const controller = new AbortController();
    for (const newer of ["any", "timeout"] as const)
      vi.spyOn(AbortSignal, newer).mockImplementation(() => {
        throw new TypeError("not a function"); // as in Safari before 17.4, and React Native
      });
    const fetched = vi.spyOn(globalThis, "fetch").mockImplementation((_, request) => {
      queueMicrotask(() => controller.abort(reason));
      return new Promise((_, reject) => {
        request!.signal!.addEventListener("abort", () => reject(new Error("aborted")));
      });
    });
    const device = await opened();
    await expect(device.report(never, controller)).rejects.toBe(reason);
    expect(fetched.mock.calls.map(([, request]) => request!.signal!.aborted)).toEqual([true]);
    expect(await device.history()).toEqual([]);
  });

  it("after the checks reads nothing", async () => {
    const ledger = new MemoryStorage();
    const controller = new AbortController();
    const device = await opened({ ledger });
    vi.spyOn(ledger, "save").mockImplementationOnce(() => (controller.abort(reason), Promise.resolve(true)));
    const where = vi.fn(never);
    await expect(device.report(where, controller)).rejects.toBe(reason);
    expect(where).not.toHaveBeenCalled();
  });

  it("while its location is read charges nothing, however that ends", async () => {
    const ledger = new MemoryStorage();
    let answer!: (fix: Fix) => void;
    const prompt = new Promise<Fix>((resolve) => (answer = resolve));
    expect(await cancelled(ledger, (cancel) => (cancel(), prompt))).toBe(reason);
    answer(PARIS);
    await prompt;
    const device = await opened({ ledger });
    expect([await device.history(), collector.reports]).toEqual([[], []]);
    expect((await device.report(PARIS)).acknowledged).toBe(true);
  });

  it("while a trip begins does not read where it ends", async () => {
    collector.document = await served("paris", { trips: true });
    const controller = new AbortController();
    const device = await opened({ maxEpsilonPerKm: 4 });
    const origin = vi.fn(() => (controller.abort(reason), PARIS));
    const destination = vi.fn(never);
    await expect(device.reportTrip({ origin, destination }, controller)).rejects.toBe(reason);
    await Promise.resolve();
    expect([origin.mock.calls.length, destination.mock.calls.length]).toEqual([1, 0]);
  });

  it("after the charge is kept, and sent the next time as it was drawn", async () => {
    const ledger = new MemoryStorage();
    collector.next.push({ status: 200, body: collector.document }, { status: 503, headers: { "retry-after": "1" } });
    const thrown = await cancelled(ledger, (cancel) => {
      const save = vi.spyOn(ledger, "save").mockImplementationOnce(async (book, version) => {
        save.mockRestore();
        cancel(); // the charge is under way
        return ledger.save(book, version);
      });
      return PARIS;
    });
    expect(thrown).toBeInstanceOf(Unacknowledged);
    expect(String(thrown)).toContain("it was cancelled");
    expect(collector.reports).toEqual([]);
    collector.next.length = 0;
    const device = await opened({ ledger });
    const receipt = await device.report(never);
    expect(receipt).toEqual({ ...(thrown as Unacknowledged).receipt, acknowledged: true });
    expect((await device.history()).length).toBe(1);
  });

  it("while a request is under way comes back at once, before and after the charge", async () => {
    for (const [asked, thrown] of [
      ["get", "the person left"],
      ["post", "it was cancelled"],
    ] as const) {
      const controller = new AbortController();
      const transport = new FetchTransport();
      vi.spyOn(transport, asked).mockImplementation(async () => {
        controller.abort(reason);
        throw new Unreachable();
      });
      const device = await opened({ transport, patience: { attempts: 2, totalS: 1e9, firstS: 1e6 } });
      await expect(device.report(PARIS, controller)).rejects.toThrow(thrown);
      expect((await device.history()).length).toBe(asked === "get" ? 0 : 1);
    }
    expect(collector.reports).toEqual([]);
  }, 10_000);

  it("while it waits for another try comes back at once", async () => {
    const ledger = new MemoryStorage();
    const controller = new AbortController();
    collector.next.push({ status: 200, body: collector.document }, { status: 503, headers: { "retry-after": "4" } });
    const device = await opened({ ledger });
    const { setTimeout: after } = globalThis;
    const pauses = vi.spyOn(globalThis, "setTimeout").mockImplementation(((work: () => void, ms: number) => {
      if (ms !== 4000) return after(work, ms);
      queueMicrotask(() => controller.abort(reason));
      return "a pause without an end";
    }) as unknown as typeof setTimeout);
    const cleared = vi.spyOn(globalThis, "clearTimeout");
    const thrown = await device.report(PARIS, controller).catch((failure: unknown) => failure);
    pauses.mockRestore();
    expect(thrown).toBeInstanceOf(Unacknowledged);
    expect(cleared).toHaveBeenCalledWith("a pause without an end"); // or a program would wait for it
    const [receipt] = await device.flush();
    expect(receipt).toEqual({ ...(thrown as Unacknowledged).receipt, acknowledged: true });
    expect(new Set(collector.reports.map(({ body }) => body)).size).toBe(1);
  }, 5_000);
});

describe("what comes back", () => {
  it("the same report is sent again until it is acknowledged", async () => {
    const device = await opened();
    collector.next.push(
      { status: 200, body: collector.document },
      { status: 500 },
      { status: 429, headers: { "retry-after": "0" } },
    );
    await device.report(PARIS);
    const bodies = collector.reports.map((request) => request.body);
    expect([bodies.length, new Set(bodies).size]).toEqual([3, 1]);
  });

  it("waits for flush where nobody counted it, over a restart", async () => {
    const ledger = new MemoryStorage();
    const device = await opened({ ledger });
    collector.next.push(
      { status: 200, body: collector.document },
      ...Array.from({ length: 3 }, () => ({ status: 503 })),
    );
    const waits: unknown = await device.report(PARIS).catch((failure: unknown) => failure);
    expect(waits).toBeInstanceOf(Unacknowledged);
    const restarted = await opened({ ledger });
    collector.next.push(problem(404, "unknown-mechanism"));
    expect(await restarted.flush()).toEqual([]);
    const [receipt] = await restarted.flush();
    expect(receipt).toEqual({ ...(waits as Unacknowledged).receipt, acknowledged: true });
    expect(new Set(collector.reports.map((request) => request.body)).size).toBe(1);
    expect(await restarted.flush()).toEqual([]);
  });

  it("waits where a transport fails in its own way, since it may have arrived", async () => {
    const transport = new FetchTransport();
    const post = vi.spyOn(transport, "post").mockRejectedValueOnce(new TypeError("its own"));
    const device = await opened({ transport });
    const waits: unknown = await device.report(PARIS).catch((failure: unknown) => failure);
    expect(String(waits)).toContain("the transport failed");
    expect(await device.flush()).toEqual([{ ...(waits as Unacknowledged).receipt, acknowledged: true }]);
    expect(post).toHaveBeenCalledTimes(2);
  });

  it("a final problem is told as sent, now and later", async () => {
    const device = await opened();
    collector.next.push({ status: 200, body: collector.document }, problem(409, "mechanism-expired"));
    expect(await refusal(device.report(PARIS))).toEqual(["problem", "mechanism-expired", true]);
    expect(await refusal(device.report(never))).toEqual(["problem", "mechanism-expired", true]);
    expect((await device.history())[0]).toMatchObject({ state: "refused", problem: "mechanism-expired" });
  });

  it("is read where answers are no streams, as in React Native", async () => {
    const { fetch } = globalThis;
    const plain = vi.spyOn(globalThis, "fetch").mockImplementation(async (...request) => {
      const response = await fetch(...request);
      return Object.defineProperty(response, "body", { value: undefined });
    });
    expect((await (await opened()).report(PARIS)).acknowledged).toBe(true);
    plain.mockRestore();
  });

  it("an answer that is not a collector's is no acknowledgement", async () => {
    for (const body of ['{"status":"counted"}', '{"id":"0","status":"counted"}', "", "[]", " ".repeat(70_000)]) {
      const device = await opened();
      collector.next.push({ status: 200, body: collector.document }, { status: 200, body });
      const thrown: unknown = await device.report(PARIS).catch((failure: unknown) => failure);
      expect(thrown).toBeInstanceOf(Unacknowledged);
      expect(String(thrown)).not.toContain("not reported"); // it may have been
    }
  });
});

describe("the ledger", () => {
  it("holds the budget over all campaigns, exactly", async () => {
    const ledger = new MemoryStorage();
    const limit = { ledger, budgetPerKm: 6 };
    for (const campaign of ["paris", "paris-2", "paris-3"]) {
      collector.document = await served("paris", { campaign });
      await (await Device.open(`${collector.origin}/c/${campaign}`, options(limit))).report(PARIS);
    }
    collector.document = await served("paris", { campaign: "paris-4" });
    const fourth = await Device.open(`${collector.origin}/c/paris-4`, options(limit));
    expect(await refusal(fourth.report(never))).toEqual(["budget", "lifetime", false]);
    expect((await fourth.history()).length).toBe(3);
    expect(await fourth.summary()).toMatch(
      /^3 reports so far, together ε = 6 per km and 0\.0\S+ for rounding; 0 of 6 per km are left\./,
    );
  });

  it("limits of a day open again with the next one", async () => {
    let nowS = NOW_S;
    const device = await opened({ again: "round", budgetPerDayPerKm: 3, clock: () => nowS });
    await device.report(PARIS);
    collector.document = await served("paris", { round: 2 });
    expect(await refusal(device.report(never))).toEqual(["budget", "day", false]);
    nowS += 86_400;
    await device.report(PARIS);
  });

  it.each(["memory", "IndexedDB"])("gives two devices at once one report (%s)", async (kind) => {
    const shared = new MemoryStorage();
    const name = `two-tabs-${Math.floor(performance.now() * 1000)}`;
    const storage = (): MemoryStorage | IndexedDbStorage => (kind === "memory" ? shared : new IndexedDbStorage(name));
    const tabs = await Promise.all([1, 2, 3].map(() => opened({ ledger: storage() })));
    const places = [PARIS, { lat: 48.83, lng: 2.39 }, { lat: 48.87, lng: 2.3 }];
    const receipts = await Promise.all(tabs.map((tab, index) => tab.report(places[index]!)));
    expect(new Set(receipts.map((receipt) => `${receipt.report} ${receipt.cell}`)).size).toBe(1);
    expect(new Set(collector.reports.map((request) => request.body)).size).toBe(1);
    expect((await tabs[0]!.history()).length).toBe(1);
  });

  it("stays over a restart in IndexedDB, which is where it is by default", async () => {
    const { ledger: _, ...plain } = options();
    const receipt = await (await Device.open(collector.link, plain)).report(PARIS);
    expect(await (await Device.open(collector.link, plain)).report(never)).toEqual(receipt);
  });

  it("moves its key on, so that no report can be worked out from it", async () => {
    const ledger = new MemoryStorage();
    const pageOf = (): { key: string; next: number } =>
      (ledger.snapshot() as { book: { campaigns: Record<string, { key: string; next: number }> } }).book.campaigns[
        collector.link
      ]!;
    const device = await opened({ ledger, again: "round" });
    const first = unhex(pageOf().key)!;
    await device.report(PARIS);
    expect(pageOf()).toMatchObject({ next: 2, key: Buffer.from(await movedOn(first, 2)).toString("hex") });
    collector.next.push(problem(410, "campaign-ended"));
    expect((await refusal(device.report(never)))[0]).toBe("ended");
    expect(pageOf().key).toBeNull();
  });

  it("that cannot be read or written charges nothing and sends nothing", async () => {
    for (const book of [7, { format: 2 }, { format: 1, campaigns: {}, charges: [{}], certified: {} }]) {
      const ledger = new MemoryStorage({ book, version: 1 });
      expect((await refusal(opened({ ledger })))[0]).toBe("ledger-unreadable");
    }
    const ledger = new MemoryStorage();
    const device = await opened({ ledger });
    const save = vi.spyOn(ledger, "save").mockRejectedValue(new DOMException("full", "QuotaExceededError"));
    expect(await refusal(device.report(PARIS))).toEqual(["ledger-unwritable", "QuotaExceededError", false]);
    save.mockRestore();
    expect(collector.reports).toEqual([]);
    const closed = {
      load: (): Promise<Kept | undefined> => Promise.reject(new Error("private mode")),
      save: () => Promise.resolve(false),
    };
    expect((await refusal(opened({ ledger: closed })))[0]).toBe("ledger-unreadable");
    vi.stubGlobal("indexedDB", undefined);
    expect((await refusal(opened({ ledger: undefined })))[0]).toBe("ledger-unwritable");
    vi.unstubAllGlobals();
  });

  it("that an app keeps in memory holds nothing that was not saved", async () => {
    let kept: Kept | undefined;
    let full = false;
    const ledger = {
      load: async () => kept,
      async save(book: unknown, version: number) {
        if (full) throw new DOMException("full", "QuotaExceededError");
        kept = { book, version: version + 1 };
        return true;
      },
    };
    const device = await opened({ ledger });
    full = true;
    for (let tries = 0; tries < 2; tries++) expect((await refusal(device.report(PARIS)))[0]).toBe("ledger-unwritable");
    expect([await device.history(), collector.reports]).toEqual([[], []]);
    full = false;
    expect((await device.report(PARIS)).acknowledged).toBe(true);
    const nothing = { ...ledger, load: async () => null as unknown as undefined };
    expect((await refusal(opened({ ledger: nothing })))[0]).toBe("ledger-unreadable");
  });

  it("can be erased where its database is another program's", async () => {
    const others = await new Promise<IDBDatabase>((resolve) => {
      const request = indexedDB.open("others", 1);
      request.onsuccess = () => resolve(request.result);
    });
    others.close();
    const storage = new IndexedDbStorage("others");
    expect(await refusal(opened({ ledger: storage }))).toEqual(["ledger-unreadable", "NotFoundError", false]);
    await storage.erase(); // nothing holds it open
    expect((await (await opened({ ledger: storage })).report(PARIS)).acknowledged).toBe(true);
  });

  it("that is written by others all the time is busy, and nothing is sent", async () => {
    const ledger = new MemoryStorage();
    const device = await opened({ ledger });
    let now = Date.now();
    vi.spyOn(Date, "now").mockImplementation(() => (now += 3000));
    const save = vi.spyOn(ledger, "save").mockResolvedValue(false);
    expect((await refusal(device.report(never)))[0]).toBe("ledger-busy");
    vi.restoreAllMocks();
    expect([save.mock.calls.length > 2, collector.reports]).toEqual([true, []]);
  });

  it("without randomness draws nothing and sends nothing", async () => {
    vi.spyOn(crypto, "getRandomValues").mockImplementation(() => {
      throw new Error("no randomness");
    });
    await expect(opened()).rejects.toThrow("no randomness");
    vi.restoreAllMocks();
    expect(collector.requests).toEqual([]);
  });
});

describe("in words", () => {
  it("explains what would be sent and what it costs, and then that nothing more is", async () => {
    const device = await opened({ budgetPerDayPerKm: 3 });
    const words = load<{ words: Record<string, string> }>("reports.json").words["paris"]!;
    expect(await device.explain()).toBe(
      `Round 1 of the campaign paris at ${collector.origin}: ${words} This report costs ε = 2 per km and 0.012 for rounding; ` +
        `10 of 10 per km are left (today 3 of 3). Nothing was reported to any campaign at ${collector.origin} so far. ` +
        "It is the only report to this campaign, whatever rounds follow.",
    );
    const receipt = await device.report(PARIS);
    expect(await device.explain()).toBe(
      `This device has reported to the campaign paris at ${collector.origin}: it said cell ${receipt.cell}, under the mechanism ` +
        "of round 1. Another call reads no location, sends nothing new and costs nothing; 8 of 10 per km are left (today 1 of 3). " +
        `All campaigns at ${collector.origin} together have cost ε = 2 per km and 0.012 for rounding so far.`,
    );
    expect(collector.reports.length).toBe(1);
  });
});

/** A document's text with an id in it: any, where the right one cannot be computed. */
function identified(text: string): string {
  const values = JSON.parse(text) as JsonObject;
  return JSON.stringify({ id: "0".repeat(64), ...values });
}
