/** The participant page against the service itself: what it says, what it sends, and what it never sends. */

import type { Browser } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { canonicalText, type JsonObject, sha256 } from "../../sdk/src/canonical.ts";
import { beyond, campaign, executablePath, launch, operator, PHONE, SERVICE, Visit } from "./browser.ts";
import { choosePlace, open, sendAndWait } from "./participant.ts";

const INSIDE = { latitude: 45.7534567, longitude: 4.8412345, accuracy: 20 };
const EDGE = { latitude: 45.7200012, longitude: 4.8000034, accuracy: 20 };
const OUTSIDE = { latitude: 46.9123456, longitude: 7.4512345, accuracy: 20 };
const KEYS = ["mechanism", "id", "cell"];

describe.skipIf(!SERVICE || !executablePath)("the participant page", () => {
  let browser: Browser;
  let id: string; // for tests that leave it as it is: every visitor has a ledger of their own
  beforeAll(async () => {
    browser = await launch();
    id = await campaign();
  });

  it("explains, reports, shows a receipt, and a second visit reads and sends nothing", async () => {
    const id = await campaign({ name: "Île de Ré & Lyon" });
    const visit = await Visit.begin(browser, { geolocation: INSIDE, permissions: ["geolocation"] });
    const { page } = visit;
    await open(visit, id);
    expect(await page.title()).toBe("Île de Ré & Lyon");
    expect(await page.locator("#guess").innerText()).toMatch(/guesses right at most \d\d times in 100/);
    expect(await page.locator("body").innerText()).not.toMatch(/[α-ωΑ-Ω]/); // only for whoever asks
    await page.locator("#numbers summary").click();
    expect(await page.locator("#numbers").innerText()).toMatch(/ε = 1 per km/);
    await page.locator("#measure").click();
    await page.locator("#from-here p").first().waitFor();
    expect(visit.asked.filter((line) => line.startsWith("POST"))).toEqual([]);
    const [closer, farther] = await page.locator(".map-tools button").all();
    await closer!.click(); // the place is in the middle now
    expect(await farther!.isDisabled()).toBe(false);
    await sendAndWait(page);
    expect(await farther!.isDisabled()).toBe(true); // and with it the middle is forgotten
    expect(await page.locator("#receipt").innerText()).toBe("Sent and counted");
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("receipt");
    const [body, ...others] = visit.bodies;
    expect(others).toEqual([]);
    const sent = JSON.parse(body!) as Record<string, unknown>;
    expect(Object.keys(sent)).toEqual(KEYS);
    expect(await page.locator("#fingerprint").innerText()).toBe(sent["mechanism"]);
    expect(await page.locator(".receipt").innerText()).toContain(
      `Square ${String(sent["cell"])} was sent, and nothing else about where you are.`, // an id and a rule were
    );
    expect(await page.locator("tbody tr").innerText()).toMatch(/counted/);
    expect(await page.locator("#ledger + p").innerText()).toMatch(/in this browser only, until .* after a week/);
    expect(await page.locator("#budget").innerText()).toMatch(/^9 of 10 per km are left.* had 1 per km of it/);
    expect(visit.complaints).toEqual([]);

    const second = await Visit.of(visit.context);
    await second.page.goto(`${SERVICE}/c/${id}`);
    await second.page.locator("#receipt").waitFor();
    expect(await second.page.locator("#send-now").count()).toBe(0);
    expect(second.asked).toEqual([`GET /c/${id}`, `GET /api/campaigns/${id}`]);
    await page.emulateMedia({ media: "print" });
    expect(await page.getByRole("button").count()).toBe(0); // nothing that can only be pressed
    await visit.end();
  });

  it("asks the same inside, at the edge and outside, never tells a coordinate, and sets no cookie", async () => {
    const seen: string[][] = [];
    for (const geolocation of [INSIDE, EDGE, OUTSIDE]) {
      const visit = await Visit.begin(browser, { geolocation, permissions: ["geolocation"] });
      await open(visit, id);
      await visit.page.locator("#measure").click();
      await visit.page.locator("#from-here p").first().waitFor();
      await sendAndWait(visit.page);
      seen.push(visit.asked);
      for (const request of visit.requests) {
        expect(new URL(request.url()).origin).toBe(SERVICE);
        const all = `${request.url()} ${request.postData() ?? ""} ${JSON.stringify(await request.allHeaders())}`;
        for (const degrees of [geolocation.latitude, geolocation.longitude]) {
          expect(all).not.toContain(String(degrees).slice(0, 6));
        }
        expect(Object.keys(await request.allHeaders())).not.toContain("cookie");
      }
      expect(Object.keys(JSON.parse(visit.bodies[0]!) as object)).toEqual(KEYS);
      expect(visit.bodies[0]!.length).toBeLessThan(140);
      expect(await visit.context.cookies()).toEqual([]);
      const kept = await visit.page.evaluate(async () => {
        const database = await new Promise<IDBDatabase>((resolve) => {
          const request = indexedDB.open("geoveil");
          request.onsuccess = () => resolve(request.result);
        });
        const all = database.transaction("ledger").objectStore("ledger").getAll();
        await new Promise((resolve) => (all.onsuccess = resolve));
        return JSON.stringify([all.result, { ...localStorage }, { ...sessionStorage }]);
      });
      expect(kept).not.toContain(String(geolocation.latitude).slice(0, 7));
      await visit.end();
    }
    expect(seen[1]).toEqual(seen[0]);
    expect(seen[2]).toEqual(seen[0]);
    expect(seen[0]).toEqual([
      `GET /c/${id}`,
      `GET /api/campaigns/${id}`,
      `GET /api/campaigns/${id}/mechanism`,
      `GET /api/campaigns/${id}/backdrop`,
      `GET /api/campaigns/${id}/mechanism`,
      `POST /api/campaigns/${id}/reports`,
    ]);
  });

  it("runs nothing that a name says, and believes no answer that is none", async () => {
    const name = `"><img src=x onerror="window.harmed=1"></title><script>window.harmed=1</script><svg/onload=harmed=1>`;
    const id = await campaign({ name });
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await open(visit, id);
    expect(await page.locator("h1").innerText()).toBe(name);
    expect(await page.title()).toBe(name);
    expect(await page.evaluate(() => "harmed" in window)).toBe(false);
    expect(await page.locator("img, script:not([src]), h1 *").count()).toBe(0);
    expect(visit.complaints).toEqual([]);
    const hostile = `\u202edneS\u2028 ${"a".repeat(500)}Z${"\u0301".repeat(90)}`;
    const answer = {
      name: `Z${"\u0301".repeat(45)}${"\u0301\u200d".repeat(45)}${hostile}`,
      state: "open",
      reports_counted: { all: -7 },
    };
    await page.route(`**/api/campaigns/${id}`, (route) => route.fulfill({ json: answer }));
    await page.setViewportSize({ width: 320, height: 600 });
    await page.reload();
    await page.locator("h1").waitFor();
    const shown = `Z${"\u0301".repeat(3)}dneS ${"a".repeat(191)}`;
    expect([await page.locator("h1").innerText(), await page.title()]).toEqual([shown, shown]);
    expect(await page.locator("header").innerText()).toMatch(/named by its operator · 0 reports counted/);
    expect(await beyond(page)).toBeLessThanOrEqual(0);
    await page.unroute(`**/api/campaigns/${id}`);
    for (const body of ['{"name":{"__html":"x"},"state":"open"}', "<b>", '{"name":"x","state":[]}', "null"]) {
      await page.route(`**/api/campaigns/${id}`, (route) => route.fulfill({ body, contentType: "text/html" }));
      await page.reload();
      await page.locator("h1").waitFor();
      expect(await page.locator("h1").innerText()).toMatch(/does not answer/);
      await page.unroute(`**/api/campaigns/${id}`);
    }
    await visit.end();
  });

  it("draws what the operator put behind the cells, and the map without it where that cannot be read", async () => {
    const id = await campaign();
    const water = [
      [4.79, 45.71],
      [4.84, 45.71],
      [4.84, 45.79],
      [4.79, 45.79],
      [4.79, 45.71],
    ];
    await operator("PUT", `/api/campaigns/${id}/backdrop`, {
      type: "Feature",
      properties: { kind: "water" },
      geometry: { type: "Polygon", coordinates: [water] },
    });
    const visit = await Visit.begin(browser);
    const blue = async (changed?: string): Promise<number> => {
      const answer = { body: changed ?? "", contentType: "application/geo+json" };
      if (changed) await visit.page.route("**/backdrop", (route) => route.fulfill(answer));
      await open(visit, id);
      await visit.page.waitForLoadState("networkidle");
      const seen = await visit.page.locator(".map-face canvas").evaluate((canvas: HTMLCanvasElement) => {
        const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) if (data[at + 2]! > data[at]! + 15) found++;
        return found / (canvas.width * canvas.height);
      });
      await choosePlace(visit.page);
      expect(visit.complaints).toEqual([]);
      await visit.page.unrouteAll();
      return seen;
    };
    expect(await blue()).toBeGreaterThan(0.3);
    for (const text of ["<b>", '{"features":[{"geometry":null}]}']) {
      expect(await blue(text), text).toBe(0);
    }
    await visit.end();
  });

  it("refuses a rule that does not keep its promise, in words, and sends nothing", async () => {
    const answer = await (await fetch(`${SERVICE}/api/campaigns/${id}/mechanism`)).json();
    const visit = await Visit.begin(browser);
    const hostile = { ...(answer as object), epsilon_per_km: 0.5 };
    await visit.page.route("**/mechanism", (route) => route.fulfill({ json: hostile }));
    await visit.page.goto(`${SERVICE}/c/${id}`);
    await visit.page.locator('[data-reason="document"]').waitFor();
    expect(visit.bodies).toEqual([]);
    expect(await visit.page.locator("#send-now").count()).toBe(0);
    await visit.end();
  });

  it("is never in a frame, and its policy stops inline scripts and other origins", async () => {
    const visit = await Visit.begin(browser);
    await visit.page.goto(`${SERVICE}/c/${id}`);
    const stopped = await visit.page.evaluate(
      async (other) => {
        const inline = document.createElement("script");
        inline.textContent = "window.harmed = 1";
        document.head.append(inline);
        const fetched = await fetch(other).then(
          () => true,
          () => false,
        );
        const frame = document.createElement("iframe");
        frame.src = location.href;
        document.body.append(frame);
        return { harmed: "harmed" in window, fetched };
      },
      SERVICE.replace("127.0.0.1", "localhost") + "/healthz",
    );
    expect(stopped).toEqual({ harmed: false, fetched: false });
    const framing = await Visit.begin(browser);
    await framing.page.route("**/host", (route) =>
      route.fulfill({ contentType: "text/html", body: `<iframe src="${SERVICE}/c/${id}"></iframe>` }),
    );
    await framing.page.goto(`${SERVICE}/host`);
    await expect.poll(() => framing.complaints.join()).toMatch(/frame-ancestors/);
    await framing.end();
    const named = `${SERVICE.replace("127.0.0.1", "localhost")}/c/${id}`;
    await visit.page.goto(named.replace("localhost", "localhost."));
    await visit.page.waitForURL(named); // or the same host had two lists of reports
    await visit.end();
  });

  it("makes one report from two tabs at once", async () => {
    const one = await Visit.begin(browser);
    const other = await Visit.of(one.context);
    for (const visit of [one, other]) {
      await open(visit, id);
      await choosePlace(visit.page);
    }
    await Promise.all([sendAndWait(one.page), sendAndWait(other.page)]);
    const bodies = new Set([...one.bodies, ...other.bodies]);
    expect(bodies.size).toBe(1);
    const cells = await Promise.all([one, other].map(({ page }) => page.locator(".receipt .lead").innerText()));
    expect(cells[0]).toBe(cells[1]);
    await one.end();
  });

  it("refuses without a ledger, as in some private windows", async () => {
    const visit = await Visit.begin(browser);
    await visit.page.addInitScript(() => {
      Object.defineProperty(window, "indexedDB", { value: undefined });
    });
    await visit.page.route("**/assets/device_worker-*.js", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({
        response: answer,
        body: `delete self.indexedDB;\nObject.defineProperty(self, "indexedDB", { value: undefined });\n${await answer.text()}`,
      });
    });
    await visit.page.goto(`${SERVICE}/c/${id}`);
    await visit.page.locator('[data-reason="ledger-unwritable"]').waitFor();
    expect(visit.asked).toEqual([`GET /c/${id}`, `GET /api/campaigns/${id}`]);
    await visit.end();
  });

  it("keeps a report that found no network, and sends the same one later", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await open(visit, id);
    await choosePlace(page);
    let lost = 0;
    await page.route(
      "**/reports",
      (route) => (
        lost++,
        route.fulfill({
          status: 409,
          contentType: "application/problem+json",
          body: '{"type":"https://geoveil.org/problems/campaign-paused"}',
        })
      ),
    );
    await page.locator("#send-now").click();
    await page.locator("#send-again").waitFor();
    expect(await page.locator("#receipt").innerText()).toBe("Sent, not confirmed yet");
    expect(lost).toBe(1);
    await page.unroute("**/reports");
    await page.locator("#send-again").click();
    await page.locator(".receipt-good").waitFor();
    expect(new Set(visit.bodies).size).toBe(1);
    expect(visit.bodies.length).toBe(2);
    await visit.end();
  });

  it("deletes the ledger after saying what that means, and can then report again", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await open(visit, id);
    await choosePlace(page);
    await sendAndWait(page);
    await page.locator("#erase").click();
    expect(await page.locator("[aria-labelledby=erase-title]").innerText()).toMatch(/their costs add up/);
    await page.locator("#erase-now").click();
    await page.locator("#measure").waitFor();
    expect(await page.locator("tbody tr").count()).toBe(0);
    await choosePlace(page);
    await sendAndWait(page);
    expect(new Set(visit.bodies.map((body) => (JSON.parse(body) as { id: string }).id)).size).toBe(2);
    await visit.end();
  });

  it.each([
    ["this tab", true],
    ["another tab", false],
  ] as const)(
    "says what became of a report where %s deletes the list meanwhile (counted: %s)",
    async (where, counted) => {
      const visit = await Visit.begin(browser);
      const { page } = visit;
      const earlier = await campaign();
      await open(visit, earlier); // so that there is a list to delete
      await choosePlace(page);
      await sendAndWait(page);
      await open(visit, id);
      await choosePlace(page);
      let go = (): void => undefined;
      const deleted = new Promise<void>((resolve) => (go = resolve));
      await page.route("**/reports", async (route) => {
        await deleted;
        return counted ? route.continue() : route.fulfill({ status: 404, body: "" });
      });
      await page.locator("#send-now").click();
      await expect.poll(() => visit.bodies.length).toBe(2);
      expect(await page.locator("#limits button").isDisabled()).toBe(true); // it would end what is on its way
      const other = where === "this tab" ? page : (await Visit.of(visit.context)).page;
      if (other !== page) await other.goto(`${SERVICE}/c/${earlier}`);
      await other.locator("#erase").click();
      await other.locator("#erase-now").click();
      await other.getByText("The list is deleted.").waitFor();
      await expect.poll(() => other.evaluate(() => document.activeElement?.id)).toBe("erasure");
      go();
      await page.locator(".receipt", { hasText: "This report is not in the list of this browser" }).waitFor();
      const said = await page.locator(".receipt").innerText();
      expect(said).toContain(`Square ${(JSON.parse(visit.bodies[1]!) as { cell: number }).cell} was sent`);
      expect(said).toContain(counted ? "Sent and counted" : "It may have been counted, or not.");
      expect(said).not.toMatch(/one report to this campaign|can be sent again/);
      expect(await page.locator("#send-again, #send-now, tbody tr").count()).toBe(0);
      await visit.end();
    },
  );

  it("refuses a fix that is too coarse, or a promise beyond the person's limit, with the reason", async () => {
    const coarse = { ...INSIDE, accuracy: 3000 };
    const visit = await Visit.begin(browser, { geolocation: coarse, permissions: ["geolocation"] });
    await open(visit, id);
    await visit.page.locator("#measure").click();
    await visit.page.locator("#from-here .notice-warm").waitFor();
    await visit.page.locator("#send-now").click();
    await visit.page.locator('[data-reason="accuracy"]').waitFor();
    expect(visit.bodies).toEqual([]);
    await visit.page.locator("#limits summary").click();
    await visit.page.locator("#most").fill("0,5");
    await visit.page.locator("#limits button").click();
    await visit.page.locator('[data-reason="promise"]').waitFor();
    expect(visit.bodies).toEqual([]);
    await visit.end();
  });

  it("says that a campaign is unknown, paused or ended", async () => {
    const visit = await Visit.begin(browser);
    await visit.page.goto(`${SERVICE}/c/no-such-campaign`);
    await visit.page.locator("h1").waitFor();
    expect(await visit.page.locator("h1").innerText()).toBe("There is no campaign at this address.");
    for (const [state, words] of [
      ["paused", /is paused/],
      ["ended", /has ended/],
    ] as const) {
      const id = await campaign();
      await operator("PATCH", `/api/campaigns/${id}`, { state });
      await visit.page.goto(`${SERVICE}/c/${id}`);
      await visit.page.locator("header .notice").waitFor();
      expect(await visit.page.locator("header .notice").innerText()).toMatch(words);
      await visit.page.locator("#ledger").waitFor();
      expect(await visit.page.locator("#send-now").count()).toBe(0);
      expect(await visit.page.locator("#again, [data-reason]").count()).toBe(state === "paused" ? 2 : 0);
      expect((await visit.page.getByText(/take part|Skip to sending|geoveil audit/).count()) > 0).toBe(
        state === "paused",
      );
    }
    expect(visit.bodies).toEqual([]);
    await visit.end();
  });

  it("offers no second try when the campaign ends while the page is open", async () => {
    const id = await campaign();
    const visit = await Visit.begin(browser);
    await open(visit, id);
    await choosePlace(visit.page);
    await operator("PATCH", `/api/campaigns/${id}`, { state: "ended" });
    await visit.page.locator("#send-now").click();
    await visit.page.locator('[data-reason="ended"]').waitFor();
    expect(await visit.page.locator("#send-now, #again").count()).toBe(0);
    expect(visit.bodies).toEqual([]);
    await visit.end();
  });

  /** The rule of a campaign with changes, under an id that fits. */
  async function changedRule(id: string, changes: JsonObject): Promise<JsonObject> {
    const answer = await fetch(`${SERVICE}/api/campaigns/${id}/mechanism`);
    const { id: _, ...rule } = { ...((await answer.json()) as JsonObject), ...changes };
    return { ...rule, id: await sha256(canonicalText(rule)) };
  }

  it("tells nothing of a rule that does not keep its promise", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    const json = await changedRule(id, { epsilon_per_km: 0.5 });
    await page.route("**/mechanism", (route) => route.fulfill({ json }));
    await page.goto(`${SERVICE}/c/${id}`);
    await page.locator('[data-reason="document"]', { hasText: "(certificate)" }).waitFor();
    expect(await page.locator("#certified, #guess, #send-now, #fingerprint").count()).toBe(0);
    await visit.end();
  });

  it("says that the numbers were checked where only the budget is too small", async () => {
    const visit = await Visit.begin(browser);
    await visit.page.addInitScript(() => {
      localStorage.setItem("geoveil-limits", '{"maxEpsilonPerKm":2,"budgetPerKm":0.5}');
      delete (AbortSignal as { timeout?: unknown }).timeout; // as in Safari before 16
    });
    await visit.page.goto(`${SERVICE}/c/${id}`);
    await visit.page.locator('[data-reason="budget"]').waitFor();
    expect(await visit.page.locator("#certified.notice-good").count()).toBe(1);
    await visit.end();
  });

  it("sends nothing under a rule that says other things than the page did", async () => {
    const slots = { zone: "UTC", every: "day", names: ["a", "b"], starts: [0, 720] };
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await open(visit, id);
    await choosePlace(page);
    for (const changes of [{ slots }, { slack_nats: 0.019 }, { trips: true, slots }] as JsonObject[]) {
      const first = await changedRule(id, changes);
      const weaker = await changedRule(id, { ...changes, level: 1, epsilon_per_km: 1.2 });
      const json = changes["trips"] ? { geoveil: 2, kind: "levels", levels: [first, weaker] } : first;
      await page.route("**/mechanism", (route) => route.fulfill({ json }));
      await page.locator("#send-now").click();
      await page.locator('[data-reason="changed"]').waitFor();
      expect(await page.locator("#send-now").isDisabled()).toBe(true);
      expect(await page.locator("#budget").innerText()).toMatch(/^10 of 10 per km are left/);
      await page.locator("#again").click();
      if (changes["trips"]) await page.locator("#end-measure").waitFor();
      else await expect.poll(() => page.locator("#send-now").isEnabled()).toBe(true); // for whoever read it
      expect(await page.locator("#slot").count()).toBe("slots" in changes ? 1 : 0);
      expect(visit.bodies).toEqual([]);
    }
    const [stronger, weaker] = await page.locator(".choice-of").allInnerTexts(); // of both ends together
    expect(stronger).toMatch(/1 km apart, at most 89 times.* It costs 2 per km/s);
    expect(weaker).toMatch(/It costs 2\.4 per km.* Your limits/s);
    await page.route("**/reports", (route) => {
      const { id } = route.request().postDataJSON() as { id: string };
      return route.fulfill({ json: { id, status: "counted" } });
    });
    await page.locator(".map-face").nth(1).press("Enter");
    await sendAndWait(page);
    const sent = JSON.parse(visit.bodies[0]!) as Record<string, unknown>;
    expect(Object.keys(sent)).toEqual([...KEYS, "slot", "to"]);
    expect(await page.locator(".receipt").innerText()).toContain(` and slot ${String(sent["slot"])} of time were sent`);
    await visit.end();
  });

  it("shows the fingerprint that was sent, and asks for what the rule asks, whatever the service said before", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    const state = (await (await fetch(`${SERVICE}/api/campaigns/${id}`)).json()) as { settings: object };
    const trips = { ...state, settings: { ...state.settings, trips: true } };
    await page.route(`**/api/campaigns/${id}`, (route) => route.fulfill({ json: trips }));
    await open(visit, id);
    expect(await page.locator("header .lead").innerText()).toMatch(/maps where people are/);
    await choosePlace(page);
    const json = await changedRule(id, { not_before: 7 }); // the same, with another fingerprint
    await page.route("**/mechanism", (route) => route.fulfill({ json }));
    await page.route("**/reports", (route) => {
      const { id } = route.request().postDataJSON() as { id: string };
      return route.fulfill({ json: { id, status: "counted" } });
    });
    await sendAndWait(page);
    expect((JSON.parse(visit.bodies[0]!) as { mechanism: string }).mechanism).toBe(json["id"]);
    expect(await page.locator("#fingerprint").innerText()).toBe(json["id"]);
    await visit.end();
  });

  it("speaks German to whoever reads German, on a phone", async () => {
    const visit = await Visit.begin(browser, { ...PHONE, locale: "de-AT" });
    const { page } = visit;
    const limits = JSON.stringify({ maxEpsilonPerKm: 1.5, budgetPerKm: 10000.5 });
    await page.addInitScript((kept) => localStorage.setItem("geoveil-limits", kept), limits);
    await open(visit, id);
    expect(await page.evaluate(() => document.documentElement.lang)).toBe("de");
    expect(await page.locator("#most").inputValue()).toBe("1,5");
    expect(await page.locator("#budget-limit").inputValue()).toBe("10000,5");
    await page.locator("#lat").evaluate((input) => {
      const clipboardData = new DataTransfer(); // as maps hand it out
      clipboardData.setData("text", "45.7512, -4.8387\n");
      input.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
    });
    expect(await page.locator("#lat").inputValue()).toBe("45.7512");
    expect(await page.locator("#lng").inputValue()).toBe("-4.8387");
    expect(await page.locator("#guess").innerText()).toMatch(/rät höchstens \d\d von 100 Mal richtig/);
    expect(await beyond(page)).toBeLessThanOrEqual(0);
    await page.locator(".map-face").tap();
    await page.locator("#from-here p").first().waitFor();
    await sendAndWait(page);
    expect(await page.locator("#receipt").innerText()).toBe("Gesendet und gezählt");
    expect(await beyond(page)).toBeLessThanOrEqual(0);
    await visit.end();
  });

  it("says that a list was not deleted where it was not", async () => {
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await page.route("**/assets/device_worker-*.js", async (route) => {
      const answer = await route.fetch();
      const broken = `IDBFactory.prototype.deleteDatabase = () => { throw new Error(); };\n${await answer.text()}`;
      await route.fulfill({ response: answer, body: broken });
    });
    await open(visit, id);
    await choosePlace(page);
    await sendAndWait(page);
    await page.locator("#erase").click();
    await page.locator("#erase-now").click();
    await page.getByText("The list could not be deleted.").waitFor();
    expect(await page.locator("tbody tr").count()).toBe(1);
    await visit.end();
  });

  it("still shows what was sent when a campaign ends, and sends nothing again", async () => {
    const id = await campaign();
    const visit = await Visit.begin(browser);
    const { page } = visit;
    await open(visit, id);
    await choosePlace(page);
    await page.route("**/reports", (route) => route.abort());
    await page.locator("#send-now").click();
    await page.locator("#send-again").waitFor();
    await operator("PATCH", `/api/campaigns/${id}`, { state: "ended" });
    await page.reload();
    await page.locator(".receipt", { hasText: "It may have been counted, or not." }).waitFor();
    expect(await page.locator("#send-again").count()).toBe(0);
    await visit.end();
  });
});
