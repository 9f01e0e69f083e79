/** Tickets: the vectors of the RFCs and those shared with Python, what a device sends, and collectors that cheat. */

import {
  constants,
  createHash,
  generateKeyPairSync,
  type KeyObject,
  privateDecrypt,
  publicEncrypt,
  verify,
} from "node:crypto";
import { inspect } from "node:util";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { unhex } from "../src/canonical.ts";
import type { Answer, Transport } from "../src/collector.ts";
import { Device, type DeviceOptions, MemoryStorage, Refused, Unacknowledged } from "../src/index.ts";
import { blindDrawn, blindTicket, finishTicket, invitationOf, requestTicket, ticketSeed } from "../src/ticket.ts";
import { FakeCollector, PARIS, problem, type Reply } from "./collector.ts";
import { load } from "./vectors.ts";

interface TicketsVector {
  rfc9578: Record<
    "pkS" | "token_challenge" | "nonce" | "blind" | "salt" | "token_request" | "token_response" | "token",
    string
  >[];
  geoveil: {
    ticket_key: string;
    tickets: { campaign: string; kept?: string; seed: string; blinded: string; signature: string; token: string }[];
  };
}

const { rfc9578, geoveil } = load<TicketsVector>("tickets.json");
const bytes = (hex: string) => unhex(hex)!;
const hex = (data: Uint8Array): string => Buffer.from(data).toString("hex");
const url = (data: Uint8Array): string => Buffer.from(data).toString("base64url");
const CODE = "k7qf3-m2x4p-abcde-98765";

it.each(rfc9578)("makes the tokens of RFC 9578 ($nonce)", async (vector) => {
  const draws = { nonce: bytes(vector.nonce), salt: bytes(vector.salt), blind: BigInt(`0x${vector.blind}`) };
  const waiting = await blindDrawn(draws, bytes(vector.pkS), bytes(vector.token_challenge));
  expect(hex(waiting.blinded)).toBe(vector.token_request.slice(6)); // after its type and a byte of the key's digest
  expect(hex(finishTicket(waiting, bytes(vector.token_response)))).toBe(vector.token);
});

it.each(geoveil.tickets)("makes the ticket of a seed as Python does ($campaign)", async (vector) => {
  const waiting = await blindTicket(bytes(vector.seed), bytes(geoveil.ticket_key), vector.campaign);
  expect(hex(waiting.blinded)).toBe(vector.blinded);
  expect(hex(finishTicket(waiting, bytes(vector.signature)))).toBe(vector.token);
  const beyond = (BigInt(`0x${vector.signature}`) + waiting.modulus).toString(16); // the same, written otherwise
  expect(() => finishTicket(waiting, (unhex(beyond) ?? new Uint8Array()).slice(-256))).toThrow(Refused);
});

it("knows a code however it was typed, and nothing else as one", () => {
  expect(invitationOf(" K7QF3 m2x4p-\u00a0ABCDE–987\u20116_5. ")).toBe("k7qf3m2x4pabcde98765");
  for (const typed of ["", "k7qf3-m2x4p-abcde-9876", `${CODE}2`, CODE.replace("k", "l"), CODE.replace("k", "0")])
    expect(invitationOf(typed)).toBeUndefined();
});

// --- An issuer of its own, whose arithmetic is OpenSSL's

const PREFIX = geoveil.ticket_key.slice(0, -2 * (256 + 5));
const spki = (modulus: Uint8Array) => bytes(`${PREFIX}${hex(modulus)}0203010001`);

class Issuer {
  readonly key: KeyObject;
  readonly modulus: Buffer;

  constructor() {
    this.key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
    this.modulus = Buffer.from(this.key.export({ format: "jwk" }).n!, "base64url");
  }

  sign(blinded: Uint8Array): Buffer {
    return privateDecrypt({ key: this.key, padding: constants.RSA_NO_PADDING }, blinded);
  }

  /** What a signature is one of. */
  signed(signature: Uint8Array): Buffer {
    return publicEncrypt({ key: this.key, padding: constants.RSA_NO_PADDING }, signature);
  }
}

/** SHA-2 of some bytes, one after another. */
function sha(bits: 384 | 512, ...parts: Uint8Array[]): Buffer {
  return createHash(`sha${bits}`).update(Buffer.concat(parts)).digest();
}

// --- A collector with two keys

const numberOf = (data: Uint8Array): bigint => BigInt(`0x${hex(data)}`);
const written = (number: bigint): Uint8Array => bytes(number.toString(16).padStart(512, "0"));

/** The greatest common divisor, and what times the first number leaves it modulo the second. */
function euclid(one: bigint, other: bigint): [bigint, bigint] {
  let [rest, next, factor, following] = [other, one % other, 0n, 1n];
  while (next) {
    const quotient = rest / next;
    [rest, next, factor, following] = [next, rest - quotient * next, following, factor - quotient * following];
  }
  return [rest, factor];
}

const modulo = (number: bigint, modulus: bigint): bigint => ((number % modulus) + modulus) % modulus;

/**
 * Whether a ticket and requests to two keys come of one seed, for whoever has the keys. The ticket gives its nonce and
 * its salt, thus what it would be under either key, thus the factor of each request; and of all numbers only one that
 * was drawn for both leaves both.
 */
async function links(token: Uint8Array, ...asked: [Issuer, Uint8Array][]): Promise<boolean> {
  const encoded = asked[1]![0].signed(token.slice(98));
  const blocks = [3, 4].map((at) => sha(384, encoded.subarray(207, 255), Uint8Array.of(0, 0, 0, at)));
  const mask = Buffer.concat(blocks).subarray(15); // it begins at byte 144
  const salt = Uint8Array.from(encoded.subarray(159, 207), (byte, at) => byte ^ mask[at]!);
  const nonce = Uint8Array.from(token.slice(2, 34));
  const challenge = bytes(`00020005${Buffer.from("paris").toString("hex")}000000`);
  const sides = asked.map(async ([issuer, blinded]): Promise<[bigint, bigint]> => {
    const { encoded, modulus } = await blindDrawn({ nonce, salt, blind: 1n }, spki(issuer.modulus), challenge);
    const quotient = modulo(numberOf(blinded) * euclid(encoded, modulus)[1], modulus);
    return [numberOf(issuer.sign(written(quotient))) - 1n, modulus - 1n];
  });
  const [[left, m], [right, n]] = (await Promise.all(sides)) as [[bigint, bigint], [bigint, bigint]];
  const [common] = euclid(m, n);
  const steps = modulo(((right - left) / common) * euclid(m / common, n / common)[1], n / common);
  return (right - left) % common === 0n && left + m * steps < 1n << 2560n;
}

describe("asked of a collector", () => {
  const [issuer, another] = [new Issuer(), new Issuer()];
  const seed = ticketSeed();
  let collector: FakeCollector;
  beforeAll(async () => {
    collector = await FakeCollector.start();
  });
  afterAll(() => collector.stop());
  beforeEach(() => {
    collector.requests.length = 0;
    collector.next.length = 0;
  });
  const campaign = (key: Uint8Array | null): Reply => ({
    status: 200,
    body: JSON.stringify({ name: "Paris", ticket_key: key && url(key) }),
  });
  const signed = (signature: Uint8Array): Reply => ({
    status: 200,
    body: JSON.stringify({ signature: url(signature) }),
  });
  /** What a device makes of its seed for a key. */
  const seedFor = ({ modulus }: Issuer, from: Uint8Array) =>
    Uint8Array.from(sha(512, from, spki(modulus), Uint8Array.of(0)).subarray(0, 32));
  const blinded = async (from = seed): Promise<Uint8Array> =>
    (await blindTicket(seedFor(issuer, from), spki(issuer.modulus), "paris")).blinded;
  const request = (attempts = 1): Promise<string> =>
    requestTicket({ link: collector.link, invitation: CODE, seed, patience: { attempts, firstS: 0 } });
  const refused = async (...replies: Reply[]): Promise<[string, string]> => {
    collector.next.push(...replies);
    const failure: unknown = await request().catch((why: unknown) => why);
    collector.next.length = 0;
    if (!(failure instanceof Refused)) throw failure;
    expect(failure.sent).toBe(false);
    return [failure.reason, failure.detail];
  };

  it("is a signature that OpenSSL knows, of a message that the collector has not seen", async () => {
    collector.next.push(campaign(spki(issuer.modulus)), signed(issuer.sign(await blinded())));
    const token = Buffer.from(await request(), "base64url");
    const padding = { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 48 };
    const [message, signature] = [token.subarray(0, 98), token.subarray(98)];
    expect(verify("sha384", message, { key: issuer.key, ...padding }, signature)).toBe(true);
    const [asking, sending, ...others] = collector.requests;
    expect(others).toEqual([]);
    expect([asking!.method, asking!.path]).toEqual(["GET", "/api/campaigns/paris"]);
    expect([sending!.method, sending!.path]).toEqual(["POST", "/api/campaigns/paris/tickets"]);
    const wish = JSON.parse(sending!.body) as Record<string, string>;
    expect(wish).toEqual({ invitation: CODE.replaceAll("-", ""), blinded: url(await blinded()) });
    for (const part of [message.subarray(2, 34), signature])
      expect(Buffer.from(wish["blinded"]!, "base64url").includes(part)).toBe(false);
    for (const { headers } of [asking!, sending!])
      expect([headers.cookie, headers.referer, headers.authorization]).toEqual([undefined, undefined, undefined]);
  });

  it("is the same for the same seed, and asks the same: an answer that was lost can be asked for again", async () => {
    collector.next.push(campaign(spki(issuer.modulus)), { status: 503 });
    await expect(request()).rejects.toMatchObject({ reason: "unreachable" });
    const answers = () => [campaign(spki(issuer.modulus)), signed(issuer.sign(first))] as const;
    const first = await blinded();
    collector.next.push(...answers(), ...answers());
    expect(await request()).toBe(await request());
    expect(new Set(collector.reports.map(({ body }) => body)).size).toBe(1);
  });

  it("comes of the seed for its key, as Python makes that", async () => {
    const [vector] = geoveil.tickets.filter(({ kept }) => kept);
    collector.next.push(campaign(bytes(geoveil.ticket_key)), signed(bytes(vector!.signature)));
    const asked = requestTicket({ link: collector.link, invitation: CODE, seed: bytes(vector!.kept!) });
    expect(await asked).toBe(url(bytes(vector!.token)));
    expect(JSON.parse(collector.reports[0]!.body)).toMatchObject({ blinded: url(bytes(vector!.blinded)) });
  });

  it("would tell which requests were its own, if one seed served two keys", async () => {
    const [first, second] = [issuer, another];
    const blind = ({ modulus }: Issuer, from = seed) => blindTicket(from, spki(modulus), "paris");
    const [one, other] = [await blind(first), await blind(second)];
    const token = finishTicket(other, Uint8Array.from(second.sign(other.blinded)));
    expect(await links(token, [first, one.blinded], [second, other.blinded])).toBe(true);
    const elsewhere = await blind(first, ticketSeed());
    expect(await links(token, [first, elsewhere.blinded], [second, other.blinded])).toBe(false);
  });

  it("tells nothing to a collector that spoils an answer and then shows another key", async () => {
    const asked: [Issuer, Buffer][] = [];
    const signer = (key: Issuer, spoils: boolean): Transport => ({
      get: async () => said({ ticket_key: url(spki(key.modulus)) }),
      async post(_, body) {
        const blinded = Buffer.from((JSON.parse(body) as { blinded: string }).blinded, "base64url");
        asked.push([key, blinded]);
        return said({ signature: url(spoils ? key.sign(blinded).reverse() : key.sign(blinded)) });
      },
    });
    const said = (values: object): Answer => {
      const body = new TextEncoder().encode(JSON.stringify(values));
      return { status: 200, media: "application/json", retryAfterS: 0, body };
    };
    const options = { link: collector.link, invitation: CODE, seed };
    const spoiled = requestTicket({ ...options, transport: signer(issuer, true) });
    await expect(spoiled).rejects.toMatchObject({ reason: "ticket", detail: "signature" });
    const token = Buffer.from(await requestTicket({ ...options, transport: signer(another, false) }), "base64url");
    expect(asked.length).toBe(2);
    expect(await links(token, ...asked)).toBe(false);
  });

  it("is waited for as the answer to a report is", async () => {
    const signature = signed(issuer.sign(await blinded()));
    collector.next.push({ status: 429 }, campaign(spki(issuer.modulus)), { status: 503 }, signature);
    expect(await request(2)).toBeTruthy();
    expect(new Set(collector.reports.map(({ body }) => body)).size).toBe(1);
  });

  it("is refused under a key that is not as it must be, before the invitation is told", async () => {
    const { modulus } = issuer;
    const even = Buffer.from(modulus);
    even[255]! &= 254;
    const short = Buffer.from(modulus);
    short[0]! &= 127;
    const whole = spki(modulus);
    const three = Buffer.from(whole);
    three[three.length - 1] = 3; // another exponent
    const plain = Buffer.from(whole);
    plain[20]! ^= 1; // another algorithm
    const keys = [even, short].map(spki).concat(three, plain, whole.slice(0, -1), new Uint8Array());
    keys.push(
      Buffer.concat([whole, Buffer.of(0)]),
      bytes(`${PREFIX}${hex(Buffer.concat([modulus, modulus.subarray(128)]))}0203010001`),
    );
    for (const key of keys) expect(await refused(campaign(key))).toEqual(["ticket", "key"]);
    for (const key of ['"%%"', "17", "[]", `"${url(whole)}="`, '"a"'])
      expect(await refused({ status: 200, body: `{"ticket_key":${key}}` })).toEqual(["ticket", "key"]);
    expect(collector.reports).toEqual([]);
  });

  it("is refused under a modulus of small primes, which would mark what is signed", async () => {
    const small = 3n * 5n * 7n * 11n * 13n * 17n * 19n * 23n * 29n * 31n * 37n * 41n * 43n * 47n;
    const modulus = ((2n ** 2048n / small) | 1n) * small;
    const key = spki(bytes(modulus.toString(16)));
    const seeds = Array.from({ length: 40 }, (_, at) => new Uint8Array(32).fill(at));
    const made = await Promise.allSettled(seeds.map((each) => blindTicket(each, key, "paris")));
    const accepted = made.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    expect(accepted.length).toBeLessThan(10);
    for (const { encoded, blinded } of accepted)
      for (const number of [encoded, BigInt(`0x${hex(blinded)}`)])
        for (const prime of [3n, 5n, 7n, 11n, 13n, 47n]) expect(number % prime).not.toBe(0n);
  });

  it("is refused where the collector signed something else", async () => {
    const right = issuer.sign(await blinded());
    const off = Buffer.from(right);
    off[255]! ^= 1;
    const wrong = [off, issuer.sign(await blinded(ticketSeed())), new Uint8Array(256), right.subarray(1)];
    wrong.push(Buffer.concat([Buffer.of(0), right]), new Uint8Array(), another.sign(Buffer.alloc(256, 7)));
    for (const signature of wrong)
      expect(await refused(campaign(spki(issuer.modulus)), signed(signature))).toEqual(["ticket", "signature"]);
    expect(await refused(campaign(spki(issuer.modulus)), { status: 200, body: "{}" })).toEqual(["ticket", "signature"]);
  });

  it("is refused where the invitation is unknown or used, in the collector's word", async () => {
    const key = campaign(spki(issuer.modulus));
    expect(await refused(key, problem(404, "unknown-invitation"))).toEqual(["invitation", "unknown-invitation"]);
    expect(await refused(key, problem(409, "invitation-used"))).toEqual(["invitation", "invitation-used"]);
    expect(await refused(key, problem(410, "campaign-ended"))).toEqual(["ended", ""]);
    expect(await refused(campaign(null))).toEqual(["invitation", "not-offered"]);
    const typo = requestTicket({ link: collector.link, invitation: "k7qf3", seed });
    await expect(typo).rejects.toMatchObject({ reason: "invitation", detail: "unknown-invitation" });
  });

  it("is not asked for after the last round, but for a report that was drawn before", async () => {
    const state = JSON.stringify({ state: "finished", ticket_key: url(spki(issuer.modulus)) });
    const after = { status: 200, body: state };
    expect(await refused(after)).toEqual(["invitation", "campaign-finished"]);
    expect(collector.reports).toEqual([]); // the invitation is not used up
    collector.next.push(after, signed(issuer.sign(await blinded())));
    expect(await requestTicket({ link: collector.link, invitation: CODE, seed, late: true })).toBeTruthy();
  });

  it("is refused by the device before anything is charged where it is none", async () => {
    const ledger = new MemoryStorage();
    const device = await Device.open(collector.link, { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger });
    for (const ticket of [null, 5, {}, "a b", "a\nb", "☃"] as string[])
      await expect(device.report(PARIS, { ticket })).rejects.toThrow(/ticket must be/);
    expect([collector.requests, await device.history()]).toEqual([[], []]);
  });

  it("believes no answer that is none", async () => {
    const key = campaign(spki(issuer.modulus));
    const onward = { status: 307, headers: { location: `${collector.origin}/elsewhere` } };
    const huge = { status: 200, body: `{"signature":"${"A".repeat(1 << 21)}"}` };
    expect(await refused(onward)).toEqual(["redirect", ""]);
    expect(await refused(key, onward)).toEqual(["redirect", ""]);
    expect(await refused(huge)).toEqual(["answer", "size"]);
    expect(await refused(key, huge)).toEqual(["answer", "size"]);
    expect(await refused({ status: 200, body: "<p>" })).toEqual(["answer", "status 200"]);
    expect(await refused({ status: 500 })).toEqual(["unreachable", ""]);
    expect(collector.requests.map(({ path }) => path)).not.toContain("/elsewhere");
    const signal = AbortSignal.abort("enough");
    const cancelled = requestTicket({ link: collector.link, invitation: CODE, seed, signal });
    await expect(cancelled).rejects.toBe("enough");
    await expect(requestTicket({ link: collector.link, invitation: CODE, seed: seed.slice(1) })).rejects.toThrow(
      /seed/,
    );
  });

  it("is in nothing that is thrown, nor what it was made from", async () => {
    const key = campaign(spki(issuer.modulus));
    collector.next.push(key, signed(issuer.sign(await blinded()).reverse()), key, problem(409, "invitation-used"), key);
    collector.next.push({ status: 503 });
    const thrown: unknown[] = [];
    for (let each = 0; each < 3; each++) thrown.push(await request().catch((why: unknown) => why));
    const link = `${collector.link}#invitation=${CODE}`; // not to be given in the link
    const limits = { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger: new MemoryStorage(), patience: { attempts: 1 } };
    thrown.push(await requestTicket({ link, invitation: CODE, seed }).catch((why: unknown) => why));
    thrown.push(await Device.open(link, limits).catch((why: unknown) => why));
    const device = await Device.open(collector.link, limits);
    collector.next.push({ status: 200, body: collector.document }, { status: 503 });
    thrown.push(await device.report(PARIS, { ticket: "the-ticket" }).catch((why: unknown) => why));
    collector.next.push(problem(410, "mechanism-expired"));
    thrown.push(await device.report(PARIS).catch((why: unknown) => why));
    const names = thrown.map((why) => (why as Error).name);
    const [invalid, refused] = ["InvalidInput", "Refused"];
    expect(names).toEqual([refused, refused, refused, invalid, invalid, "Unacknowledged", refused]);
    const told = inspect(thrown, { depth: Infinity, showHidden: true, maxArrayLength: Infinity });
    for (const secret of [CODE, CODE.replaceAll("-", ""), hex(seed), url(seed), inspect(seed), "the-ticket"])
      expect(told).not.toContain(secret);
  });

  describe("with a report", () => {
    const open = (ledger = new MemoryStorage()): Promise<Device> =>
      Device.open(collector.link, { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger, patience: { attempts: 1 } });
    const headers = (): (string | undefined)[] => collector.requests.map((each) => each.headers.authorization);

    it("is sent with the report and nothing else", async () => {
      const device = await open();
      const receipt = await device.report(PARIS, { ticket: "abc_-9" });
      expect(headers()).toEqual([undefined, 'PrivateToken token="abc_-9"']);
      expect(collector.reports[0]!.body).not.toContain("abc_-9");
      expect(Object.keys(receipt)).not.toContain("ticket");
      expect(JSON.stringify(await device.history())).not.toContain("abc_-9"); // it has done its work
    });

    it("is sent again with what was not confirmed, by another device over the same ledger too", async () => {
      const ledger = new MemoryStorage();
      const document = { status: 200, body: collector.document };
      collector.next.push(document, { status: 503 });
      await expect((await open(ledger)).report(PARIS, { ticket: "once" })).rejects.toThrow(Unacknowledged);
      await (await open(ledger)).flush();
      expect(headers().slice(1)).toEqual(['PrivateToken token="once"', 'PrivateToken token="once"']);
      expect(new Set(collector.reports.map(({ body }) => body)).size).toBe(1);
    });

    it("stays the only one of its report, which would count under another too", async () => {
      const device = await open();
      collector.next.push({ status: 200, body: collector.document }, { status: 503 });
      await expect(device.report(PARIS, { ticket: "once" })).rejects.toThrow(Unacknowledged);
      expect((await device.report(PARIS, { ticket: "other" })).acknowledged).toBe(true);
      expect(headers().slice(1)).toEqual(['PrivateToken token="once"', 'PrivateToken token="once"']);
    });

    it("can follow a report that lacked it", async () => {
      const device = await open();
      collector.next.push({ status: 200, body: collector.document }, problem(401, "ticket-needed"));
      const waits: unknown = await device.report(PARIS).catch((why: unknown) => why);
      expect(waits).toMatchObject({ name: "Unacknowledged", problem: "ticket-needed" });
      expect((await device.report(PARIS, { ticket: "late" })).acknowledged).toBe(true);
      expect(headers()).toEqual([undefined, undefined, 'PrivateToken token="late"']);
      expect((await device.standing()).reports).toBe(1);
      expect(JSON.stringify(await device.history())).not.toContain("late");
    });

    it("stays with a report that it followed, until that is counted", async () => {
      const ledger = new MemoryStorage();
      const [document, lost] = [{ status: 200, body: collector.document }, { status: 503 }];
      collector.next.push(document, lost, lost, lost, lost);
      const device = await open(ledger);
      for (const ticket of [undefined, "late", "other"])
        await expect(device.report(PARIS, { ticket })).rejects.toThrow(Unacknowledged);
      expect(await (await open(ledger)).flush()).toEqual([]);
      expect(await device.flush()).toHaveLength(1);
      expect(headers()).toEqual([undefined, undefined, ...Array<string>(4).fill('PrivateToken token="late"')]);
    });

    it("is erased where its report never counts, or the campaign is known to be over", async () => {
      const document = { status: 200, body: collector.document };
      for (const ends of [false, true]) {
        const ledger = new MemoryStorage();
        const options = { maxEpsilonPerKm: 2, budgetPerKm: 10, ledger, again: "round", patience: { attempts: 1 } };
        const device = await Device.open(collector.link, options as DeviceOptions);
        collector.next.push(document, { status: 503 });
        await expect(device.report(PARIS, { ticket: "once" })).rejects.toThrow(Unacknowledged);
        expect(JSON.stringify(ledger.snapshot())).toContain("once");
        collector.next.push(...(ends ? [] : [document]), problem(410, ends ? "campaign-ended" : "mechanism-expired"));
        await expect(device.report(PARIS)).rejects.toThrow(Refused);
        expect(JSON.stringify(ledger.snapshot())).not.toContain("once");
        expect(await device.history()).toHaveLength(1);
      }
    });
  });
});
