/** Devices of a campaign with slots: which one they name, and by whose clock. */

import { afterEach, beforeEach, expect, it } from "vitest";
import { FetchTransport } from "../src/collector.ts";
import { Device, type DeviceOptions, type Fix, MemoryStorage, Refused } from "../src/index.ts";
import { readSlots, slotAt, type Slots } from "../src/slots.ts";
import { FakeCollector, PARIS, problem, served } from "./collector.ts";

const NOW_S = 1_800_000_000; // 08:00 UTC
const HOURS = Array.from({ length: 24 }, (_, hour) => String(hour).padStart(2, "0"));
const SLOTS = { zone: "Europe/Paris", every: "day", names: HOURS, starts: HOURS.map((hour) => 60 * Number(hour)) };
let collector: FakeCollector;

beforeEach(async () => {
  collector = await FakeCollector.start();
});
afterEach(() => collector.stop());

/** What the collector answers to the next request for a document, at a time of its own. */
async function answering(dateS: number, slots = SLOTS): Promise<void> {
  const changes = { slots, not_before: NOW_S - 1e7, expires: NOW_S + 1e7 };
  const headers = { date: new Date(1000 * dateS).toUTCString() };
  collector.next.push({ status: 200, headers, body: await served("paris", changes) });
}

function opened(more: Partial<DeviceOptions> = {}): Promise<Device> {
  const patience = { attempts: 2, totalS: 5, firstS: 0.001 };
  const usual = { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger: new MemoryStorage(), patience, clock: () => NOW_S };
  return Device.open(collector.link, { ...usual, ...more });
}

const never = (): Fix => {
  throw new Error("a location was read");
};

async function reason(asking: Promise<unknown>): Promise<string> {
  const failure: unknown = await asking.catch((problem: unknown) => problem);
  return failure instanceof Refused ? failure.reason : String(failure);
}

it("names the slot of its own clock in the zone of the campaign, and says so", async () => {
  await answering(NOW_S);
  const device = await opened();
  expect(await device.explain()).toContain(
    ", and the slot of now (“09”, one of 24 of every day, Europe/Paris), which says when, not where, and is not " +
      "changed by chance; nothing else.",
  );
  await answering(NOW_S);
  const receipt = await device.report(PARIS);
  expect(receipt.slot).toBe(9);
  const { mechanism, report: id, cell } = receipt;
  expect(JSON.parse(collector.reports[0]!.body)).toEqual({ mechanism, id, cell, slot: 9 });
  expect((await device.history())[0]!.slot).toBe(9);
});

it.each([0, -290])("names the slot in which a location was read, which may take hours (%d)", async (aheadS) => {
  await answering(NOW_S + aheadS);
  let nowS = NOW_S;
  const device = await opened({ clock: () => nowS });
  const later = (): Fix => ((nowS += 7200), PARIS);
  expect((await device.report(later)).slot).toBe(11);
});

it("sends the very same report again, however late", async () => {
  const ledger = new MemoryStorage();
  await answering(NOW_S);
  collector.next.push(problem(503, "overloaded"), problem(503, "overloaded"));
  await (await opened({ ledger })).report(PARIS).catch(() => undefined);
  const [receipt] = await (await opened({ ledger, clock: () => NOW_S + 18_000 })).flush();
  expect(receipt?.slot).toBe(9);
  expect(new Set(collector.reports.map(({ body }) => body)).size).toBe(1);
});

it.each([
  [0, "ok"],
  [-290, "ok"],
  [290, "ok"],
  [-3600, "clocks"],
  [3600, "clocks"],
  [86_400, "ok"],
])("with a clock that is wrong by %d seconds: %s", async (wrongByS, expected) => {
  await answering(NOW_S);
  const device = await opened({ clock: () => NOW_S + wrongByS });
  if (expected === "ok") return expect((await device.report(PARIS)).slot).toBe(wrongByS === -290 ? 8 : 9);
  expect(await reason(device.report(never))).toBe(expected);
  return expect([await device.history(), collector.reports]).toEqual([[], []]);
});

it("is silent outside all periods, and in zones that it does not know", async () => {
  const periods = { zone: "UTC", every: "once", names: ["a", "b"], starts: [NOW_S - 20, NOW_S - 10, NOW_S] };
  await answering(NOW_S, periods);
  expect(await reason((await opened()).report(never))).toBe("slot");
  await answering(NOW_S, { ...SLOTS, zone: "Atlantis/Sea" });
  expect(await reason((await opened()).report(never))).toBe("zone");
});

it("knows no slot where the calendars of other devices end", async () => {
  const hours = SLOTS as Slots;
  const times = [-1, 0, 2.53e11 - 1, 2.53e11];
  expect(times.map((timeS) => slotAt(hours, timeS) === null)).toEqual([true, false, false, true]);
  collector.document = await served("paris", { slots: SLOTS, expires: 2 ** 40 });
  expect(await reason((await opened({ clock: () => 2.53e11 })).report(never))).toBe("slot");
});

it("reads a date in the one form that HTTP has", async () => {
  const dates = new Map<string, number | undefined>([
    ["Fri, 15 Jan 2027 08:00:00 GMT", 1_800_000_000],
    ["Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799],
    ["Sat, 01 Jan 12000 00:00:00 GMT", undefined],
    ["Fri, 15 Jan 2027 08:00:00 +0000", undefined],
    ["Sun, 31 Feb 2027 08:00:00 GMT", undefined],
    ["soon", undefined],
  ]);
  for (const [date, timeS] of dates) {
    collector.next.push({ status: 200, headers: { date } });
    expect((await new FetchTransport().get(collector.link, 1)).dateS, date).toBe(timeS);
  }
});

it("reads names with characters that no Unicode has so far, as a newer service may give them, and none unseen", () => {
  const named = (name: string): Slots => readSlots({ zone: "UTC", every: "day", names: [name], starts: [0] });
  for (const name of ["a\u0378", "a b", "🚲".repeat(40)]) expect(named(name).names).toEqual([name]);
  for (const name of ["", " a", "a\u00a0b", "a\u202eb", "\ud800", "\ue000", "a".repeat(41)])
    expect(() => named(name), name).toThrow(RangeError);
});

it("takes a slot that the collector does not know for refused", async () => {
  await answering(NOW_S);
  collector.next.push(problem(422, "slot-out-of-range"));
  const failure: unknown = await (await opened()).report(PARIS).catch((problem: unknown) => problem);
  expect(failure).toMatchObject({ reason: "problem", detail: "slot-out-of-range", sent: true });
});
