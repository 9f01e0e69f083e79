/** A tile server of the operator's choice: what is asked of it, by whom, and what is seen of it. */

import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { deflateSync, crc32 } from "node:zlib";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launch } from "./browser.ts";
import { openTab, operator, Service } from "./server.ts";

const GREEN = [40, 200, 90] as const;
const LYON = [45.75, 4.84] as const; // the middle of the campaign

/** A picture of 256 × 256 pixels of one colour. */
function picture(colour: readonly number[]): Buffer {
  const chunk = (name: string, data: Buffer): Buffer => {
    const body = Buffer.concat([Buffer.from(name, "latin1"), data]);
    const [size, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    size.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([size, body, sum]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(256, 0);
  head.writeUInt32BE(256, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const line = Buffer.concat([Buffer.of(0), Buffer.concat(new Array(256).fill(Buffer.from(colour)) as Buffer[])]);
  const pixels = deflateSync(Buffer.concat(new Array(256).fill(line) as Buffer[]));
  const start = Buffer.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
  return Buffer.concat([start, chunk("IHDR", head), chunk("IDAT", pixels), chunk("IEND", Buffer.alloc(0))]);
}

let tiles: Server;
let open = true; // whether other pages may read its pictures
const asked: IncomingMessage[] = [];
let service: Service;
let browser: Browser;
let lyon = "";

beforeAll(async () => {
  const green = picture(GREEN);
  tiles = createServer((request, answer) => {
    asked.push(request);
    if (open) answer.setHeader("access-control-allow-origin", "*");
    answer.setHeader("content-type", "image/png").end(green);
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => tiles.once("listening", resolve));
  const address = `http://127.0.0.1:${(tiles.address() as AddressInfo).port}/map/{z}/{x}/{y}.png`;
  const settings = { GEOVEIL_TILE_URL: address, GEOVEIL_TILE_ATTRIBUTION: "© the people of the tiles" };
  [service, browser] = await Promise.all([new Service(settings).start(), launch()]);
  lyon = await service.campaign();
  await service.report(lyon, 60);
  await service.estimate(lyon, 1);
  await service.call("PATCH", `/api/campaigns/${lyon}`, { published: true });
}, 180_000);
afterAll(async () => {
  await service?.end();
  tiles?.close();
});

/** The part of the map that is as green as the tiles: around the cells nothing else lies on them. */
function green(page: Page): Promise<number> {
  return page
    .locator("canvas.map-canvas")
    .first()
    .evaluate(
      (canvas: HTMLCanvasElement, [red, green, blue]) => {
        const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) {
          if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) found++;
        }
        return found / (canvas.width * canvas.height);
      },
      [...GREEN],
    );
}

test("its pictures lie behind the cells of every map, and it learns nothing but which are wanted", async () => {
  for (const tab of [await operator(browser, service, lyon), await openTab(browser, `${service.url}/m/${lyon}`)]) {
    asked.length = 0;
    await tab.page.reload();
    await tab.page.locator("canvas.map-canvas").first().waitFor();
    await expect.poll(() => green(tab.page), { timeout: 20_000 }).toBeGreaterThan(0.2);
    await tab.page.getByText("© the people of the tiles").waitFor();
    const wanted = asked.map(({ url }) => /^\/map\/(\d+)\/(\d+)\/(\d+)\.png$/.exec(url!)!.slice(1).map(Number));
    const count = 2 ** wanted[0]![0]!;
    const sine = Math.sin((LYON[0] * Math.PI) / 180);
    const middle = [
      wanted[0]![0],
      Math.floor(((LYON[1] + 180) / 360) * count),
      Math.floor((0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)) * count),
    ];
    expect(wanted).toContainEqual(middle);
    expect(wanted.length).toBeLessThan(60);
    for (const { method, headers } of asked) {
      expect([method, headers.referer, headers.cookie]).toEqual(["GET", undefined, undefined]);
    }
    expect(tab.complaints).toEqual([]);
    await tab.close();
  }
});

test("the map with its pictures can be saved, and stays a map where the tile server does not let pages read them", async () => {
  const saved = async (): Promise<{ share: number; size: number }> => {
    const tab = await operator(browser, service, lyon);
    await tab.page.locator("canvas.map-canvas").first().waitFor();
    await tab.page.waitForLoadState("load");
    if (open) await expect.poll(() => green(tab.page), { timeout: 20_000 }).toBeGreaterThan(0.2);
    else await tab.page.waitForTimeout(1000);
    const share = await green(tab.page);
    const download = tab.page.waitForEvent("download");
    await tab.page.getByRole("button", { name: "PNG picture" }).click();
    const size = (await (await (await download).createReadStream()).toArray()).reduce(
      (sum: number, piece: Buffer) => sum + piece.length,
      0,
    );
    await tab.close();
    return { share, size };
  };
  expect((await saved()).size).toBeGreaterThan(1000);
  open = false;
  const { share, size } = await saved();
  open = true;
  expect(share).toBe(0);
  expect(size).toBeGreaterThan(1000);
});

test("the participant page never asks it", async () => {
  asked.length = 0;
  const tab = await openTab(browser, `${service.url}/c/${lyon}`);
  await tab.page.locator("#certified.notice-good").waitFor();
  await tab.page.waitForTimeout(500);
  expect(asked).toEqual([]);
  expect(tab.asked.filter((each) => !each.split(" ")[1]!.startsWith(service.url))).toEqual([]);
  await tab.close();
});
