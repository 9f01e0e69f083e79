/** The service itself, from Node and from a page of another origin; the tests in Python start it. */

import { describe, expect, it } from "vitest";
import { Device, MemoryStorage } from "../src/index.ts";
import { requestTicket, ticketSeed } from "../src/ticket.ts";
import { executablePath, tabOf } from "./browser.ts";
import { inBrowser, launch } from "./bundle.ts";
import { FakeCollector } from "./collector.ts";

const link = process.env["GEOVEIL_LINK"] ?? "";
const places = process.env["GEOVEIL_PLACES"] ?? "";
/** A campaign with tickets, and two invitations to it. */
const [invited = "", ...invitations] = (process.env["GEOVEIL_INVITED"] ?? "").split(" ");
const HERE = { lat: 45.75, lng: 4.84 };

describe.skipIf(!link)(link ? "the service" : "the service (started by tests/test_web.py)", () => {
  it("counts the reports of two devices, each once", async () => {
    const reports = new Set<string>();
    for (const ledger of [new MemoryStorage(), new MemoryStorage()]) {
      const device = await Device.open(link, { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger });
      expect(await device.explain()).toMatch(/^Round 1 of the campaign /);
      const receipt = await device.report(HERE);
      expect(receipt.acknowledged).toBe(true);
      expect(await device.report({ lat: 45.7, lng: 4.8 })).toEqual(receipt);
      reports.add(receipt.report);
    }
    expect(reports.size).toBe(2);
  });

  it("counts the report of one of a list of places", async () => {
    const device = await Device.open(places, { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger: new MemoryStorage() });
    expect(await device.explain()).toContain("One of 5 places about ");
    const receipt = await device.report(HERE);
    expect(receipt).toMatchObject({ round: 2, acknowledged: true });
    expect(receipt.cell).toBeLessThan(5);
  });

  it("counts one report for each ticket, and gives one for each invitation", async () => {
    const [invitation] = invitations as [string];
    const open = () =>
      Device.open(invited, {
        maxEpsilonPerKm: 2,
        budgetPerKm: 10,
        ledger: new MemoryStorage(),
        patience: { attempts: 1 },
      });
    await expect((await open()).report(HERE)).rejects.toMatchObject({ problem: "ticket-needed" });
    const seed = ticketSeed();
    const ticket = await requestTicket({ link: invited, invitation, seed });
    expect(await requestTicket({ link: invited, invitation, seed })).toBe(ticket);
    const again = requestTicket({ link: invited, invitation, seed: ticketSeed() });
    await expect(again).rejects.toMatchObject({ reason: "invitation", detail: "invitation-used" });
    const unknown = requestTicket({ link: invited, invitation: "2".repeat(20), seed });
    await expect(unknown).rejects.toMatchObject({ reason: "invitation", detail: "unknown-invitation" });
    const needless = requestTicket({ link, invitation, seed });
    await expect(needless).rejects.toMatchObject({ reason: "invitation", detail: "not-offered" });
    for (const device of [await open(), await open()])
      // of the second nobody says that it did not count
      expect((await device.report(HERE, { ticket })).acknowledged).toBe(true);
    const forged = ticket.slice(0, -2) + (ticket.endsWith("AA") ? "BB" : "AA");
    const refused = (await open()).report(HERE, { ticket: forged });
    await expect(refused).rejects.toMatchObject({ problem: "ticket-needed" });
  });

  it.skipIf(!executablePath)("counts the reports of a page of another origin, with a ticket too", async () => {
    const other = await FakeCollector.start();
    other.serve(await inBrowser());
    const page = await tabOf(await launch(), other.origin);
    try {
      const receipt = await page.evaluate(([to, from]) => window.geoveil.report(to, from), [link, HERE] as const);
      expect(receipt).toMatchObject({ round: 1, acknowledged: true });
      const ticket = await requestTicket({ link: invited, invitation: invitations[1]!, seed: ticketSeed() });
      const all = [invited, HERE, ticket] as const;
      expect(await page.evaluate((given) => window.geoveil.report(...given), all)).toMatchObject({
        acknowledged: true,
      });
    } finally {
      await page.close();
      await other.stop();
    }
  });
});
