/**
 * A ticket: proof that a report comes from somebody who was invited, which does not tell from whom.
 *
 * It is a token of Privacy Pass (RFC 9578, type 2). The collector signs it blindly, with RSABSSA-SHA384-PSS-Deterministic
 * (RFC 9474), so that it knows that an invitation was used, and later that a report has a ticket, but not which ticket
 * was of which invitation.
 */

import { type Bytes, hex, isObject, type JsonObject, unhex } from "./canonical.ts";
import {
  Address,
  type Answer,
  ENDED,
  FetchTransport,
  jsonOf,
  type Patience,
  patiently,
  problemOf,
  type Transport,
} from "./collector.ts";
import { newKey } from "./keys.ts";
import { InvalidInput, Refused } from "./refusal.ts";

const BYTES = 256; // of the modulus, and of all numbers below it
const EXPONENT_BITS = 16; // it is 65,537
/** What precedes the modulus in a key (RFC 9578 §8.2.2): RSASSA-PSS with SHA-384, MGF1 with SHA-384, 48 bytes of salt. */
const BEFORE = unhex(
  "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108300b" +
    "0609608648016503040202a2030201300382010f003082010a0282010100",
)!;
const AFTER = Uint8Array.of(2, 3, 1, 0, 1);
const TYPE = Uint8Array.of(0, 2);
const CODE = /^[2-9a-hjkmnp-tv-z]{20}$/;
const ANSWER_BYTES = 1 << 20;

/** What a ticket is made of by chance. */
export interface Draws {
  readonly nonce: Bytes;
  readonly salt: Bytes;
  /** Below the modulus, and above 0. */
  readonly blind: bigint;
}

/** A ticket that waits for its signature. */
export interface Blinded {
  /** What the collector signs. */
  readonly blinded: Bytes;
  /** What it never sees before the report: type, nonce, and the digests of the challenge and of the key. */
  readonly message: Bytes;
  readonly modulus: bigint;
  /** What the signature must show. */
  readonly encoded: bigint;
  /** Takes the blinding off. */
  readonly inverse: bigint;
}

export interface TicketOptions {
  /** The campaign's link, as `Device.open` takes it. */
  readonly link: string | URL;
  readonly invitation: string;
  /**
   * Keep it until the report is made: with the same seed an answer that was lost can be asked for again. Under another
   * key the request has nothing of the first one: two alike would show, to whoever has both keys, whose the ticket is.
   */
  readonly seed: Bytes;
  /** After the last round too, for a report that was drawn before: no other would come of the ticket. */
  readonly late?: boolean | undefined;
  readonly insecure?: boolean | undefined;
  readonly patience?: Partial<Patience> | undefined;
  readonly transport?: Transport | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** 32 bytes that a ticket is drawn from. */
export const ticketSeed = newKey;

/** A code as the service knows it, however it was typed; undefined for what is none. */
export function invitationOf(typed: string): string | undefined {
  const code = typed.toLowerCase().replace(/[\W_]/g, "");
  return CODE.test(code) ? code : undefined;
}

/** Exchange an invitation for a ticket, in base64url; `Refused` where the collector does not give one that is in order. */
export async function requestTicket(options: TicketOptions): Promise<string> {
  const { link, invitation, seed, late, insecure, patience, transport = new FetchTransport(), signal } = options;
  const code = invitationOf(invitation);
  if (seed.length !== 32) throw new InvalidInput("seed must be 32 bytes, such as ticketSeed() draws");
  if (!code) throw new Refused("invitation", "unknown-invitation");
  const { campaign, campaignUrl } = new Address(link, insecure);
  const asked = async (request: () => Promise<Answer>): Promise<JsonObject> => {
    const answer = await patiently(request, patience, signal);
    signal?.throwIfAborted();
    if (!answer) throw new Refused("unreachable");
    return objectOf(answer);
  };
  const { ticket_key: key, state } = await asked(() => transport.get(campaignUrl, ANSWER_BYTES, signal));
  if (key === null) throw new Refused("invitation", "not-offered");
  if (state === "finished" && !late) throw new Refused("invitation", "campaign-finished");
  const spki = bytesOf(key) ?? refuse("key");
  const waiting = await blindTicket(await expand(seed, spki, 32), spki, campaign);
  const body = JSON.stringify({ invitation: code, blinded: textOf(waiting.blinded) });
  const { signature } = await asked(() => transport.post(`${campaignUrl}/tickets`, body, ANSWER_BYTES, signal));
  return textOf(finishTicket(waiting, bytesOf(signature) ?? refuse("signature")));
}

/** The ticket of a seed for one key alone, ready to be signed under it; `Refused` where the key is not as it must be. */
export async function blindTicket(seed: Bytes, key: Bytes, campaign: string): Promise<Blinded> {
  const modulus = modulusOf(key);
  const blind = 1n + (numberOf(await expand(seed, "blind", 320)) % (modulus - 1n));
  const draws = { nonce: await expand(seed, "nonce", 32), salt: await expand(seed, "salt", 48), blind };
  const issuer = new TextEncoder().encode(campaign);
  const challenge = join(TYPE, Uint8Array.of(issuer.length >> 8, issuer.length), issuer, new Uint8Array(3));
  return blindDrawn(draws, key, challenge);
}

/** The same for a challenge (RFC 9577 §2.1) and what was drawn: for the vectors of the RFC. */
export async function blindDrawn({ nonce, salt, blind }: Draws, key: Bytes, challenge: Bytes): Promise<Blinded> {
  const modulus = modulusOf(key);
  const message = join(TYPE, nonce, await digest(256, challenge), await digest(256, key));
  const encoded = await encode(message, salt);
  // with a modulus of small primes, such as 2, those that divide what is signed would mark it; large ones nobody finds
  if (!inverseOf(encoded, modulus)) refuse("key");
  const inverse = inverseOf(blind, modulus) ?? refuse("key");
  const blinded = writtenOut((encoded * raised(blind, modulus)) % modulus);
  return { blinded, message, modulus, encoded, inverse };
}

/** The ticket, once the collector has signed it; `Refused` where it did not sign what it was sent. */
export function finishTicket({ message, modulus, encoded, inverse }: Blinded, signature: Bytes): Bytes {
  const signed = numberOf(signature);
  const unblinded = (signed * inverse) % modulus;
  const sound = signature.length === BYTES && signed < modulus;
  if (!sound || raised(unblinded, modulus) !== encoded) refuse("signature");
  return join(message, writtenOut(unblinded));
}

// --- What the collector answers

function objectOf(answer: Answer): JsonObject {
  if (answer.status === 302) throw new Refused("redirect");
  const body = jsonOf(answer);
  if (answer.status === 200 && isObject(body)) return body;
  const problem = problemOf(answer);
  if (problem) throw problem === ENDED ? new Refused("ended") : new Refused("invitation", problem);
  throw new Refused("answer", `status ${answer.status}`);
}

function refuse(part: "key" | "signature"): never {
  throw new Refused("ticket", part);
}

/** Of a key that is written as it must be, with 2048 bits. */
function modulusOf(key: Bytes): bigint {
  const end = BEFORE.length + BYTES;
  const around = join(key.slice(0, BEFORE.length), key.slice(end));
  const modulus = key.slice(BEFORE.length, end);
  const sound = hex(around) === hex(join(BEFORE, AFTER)) && modulus[0]! >= 128;
  return sound ? numberOf(modulus) : refuse("key");
}

// --- The arithmetic: RFC 8017 §9.1.1 (the encoding), RFC 9474 §4.2 and §4.4 (the blinding and its end)

/** EMSA-PSS for 2047 bits with SHA-384 and a salt of its length. */
async function encode(message: Bytes, salt: Bytes): Promise<bigint> {
  const hash = await digest(384, new Uint8Array(8), await digest(384, message), salt);
  const block = join(new Uint8Array(BYTES - 98), Uint8Array.of(1), salt);
  const blocks = [0, 1, 2, 3, 4].map((count) => digest(384, hash, Uint8Array.of(0, 0, 0, count)));
  const mask = join(...(await Promise.all(blocks)));
  const masked = block.map((byte, at) => byte ^ mask[at]!);
  masked[0]! &= 127;
  return numberOf(join(masked, hash, Uint8Array.of(0xbc)));
}

/** The first bytes of SHA-512 of the seed, a use and 0, 1, …. */
async function expand(seed: Bytes, use: string | Bytes, length: number): Promise<Bytes> {
  const label = typeof use === "string" ? new TextEncoder().encode(use) : use;
  const blocks = Array.from({ length: Math.ceil(length / 64) }, (_, count) =>
    digest(512, seed, label, Uint8Array.of(count)),
  );
  return join(...(await Promise.all(blocks))).slice(0, length);
}

/** value^65537. */
function raised(value: bigint, modulus: bigint): bigint {
  let power = value;
  for (let bit = 0; bit < EXPONENT_BITS; bit++) power = (power * power) % modulus;
  return (power * value) % modulus;
}

/** By Euclid's algorithm; undefined where there is none. */
function inverseOf(value: bigint, modulus: bigint): bigint | undefined {
  let [rest, next, factor, following] = [modulus, value, 0n, 1n];
  while (next) {
    const quotient = rest / next;
    [rest, next, factor, following] = [next, rest - quotient * next, following, factor - quotient * following];
  }
  return rest === 1n ? (factor + modulus) % modulus : undefined;
}

async function digest(bits: 256 | 384 | 512, ...parts: Uint8Array[]): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest(`SHA-${bits}`, join(...parts)));
}

function join(...parts: Uint8Array[]): Bytes {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

function numberOf(bytes: Uint8Array): bigint {
  return BigInt(`0x${hex(bytes) || 0}`);
}

function writtenOut(value: bigint): Bytes {
  return unhex(value.toString(16).padStart(2 * BYTES, "0"))!;
}

// --- Base64url (RFC 4648 §5) without padding

function textOf(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}

/** The bytes of such a text; undefined for anything else. */
function bytesOf(text: unknown): Bytes | undefined {
  if (typeof text !== "string" || !/^[\w-]*$/.test(text) || text.length % 4 === 1) return undefined;
  return Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
}
