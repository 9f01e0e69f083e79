/** Canonical JSON (RFC 8785): one text for one document, the same bytes in every language. */

export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [name: string]: Json;
}

/** Bytes in memory of their own, as WebCrypto takes them: written so for apps with a compiler before 5.7, too. */
export type Bytes = ReturnType<typeof Uint8Array.from>;

const LARGEST = 2 ** 53;
const DEEPEST = 64; // no document or answer is nested so deeply
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}:]/g; // a text with its escapes, or what opens, ends and names

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Sorted keys, no spaces, numbers as ECMAScript prints them. */
export function canonicalText(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonicalText).join(",")}]`;
  if (isObject(value)) {
    const entries = Object.keys(value)
      .sort()
      .map((name) => `${JSON.stringify(name)}:${canonicalText(value[name] as Json)}`);
    return `{${entries.join(",")}}`;
  }
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError(); // no JSON has such numbers
  return JSON.stringify(value);
}

/** SHA-256 in hexadecimal. */
export async function sha256(text: string): Promise<string> {
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The bytes of hexadecimal text; undefined for any other text. */
export function unhex(text: string): Bytes | undefined {
  if (!/^(?:[0-9a-f]{2})*$/.test(text)) return undefined;
  return Uint8Array.from({ length: text.length / 2 }, (_, at) => Number.parseInt(text.slice(2 * at, 2 * at + 2), 16));
}

export function isNumber(value: unknown): value is number {
  return Number.isFinite(value);
}

export function isWhole(value: unknown, least: number, most = LARGEST): value is number {
  return isNumber(value) && value % 1 === 0 && least <= value && value <= most;
}

/** The value of a JSON text in UTF-8 that names no entry twice; a `SyntaxError` for any other text. */
export function strictJson(bytes: Uint8Array): Json {
  let text: string;
  let value: Json;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(text) as Json;
  } catch {
    throw new SyntaxError(); // without the engine's message, which quotes the text
  }
  refuseTwice(text);
  return value;
}

/** Throw where an object of a valid JSON text names an entry twice, or is nested too deeply to walk through. */
function refuseTwice(text: string): void {
  const open: (Set<string> | null)[] = []; // the names of each object that is open; null for a list
  let named = "";
  for (const [token] of text.matchAll(TOKENS)) {
    if (open.length > DEEPEST) throw new SyntaxError();
    if (token === "{") open.push(new Set());
    else if (token === "[") open.push(null);
    else if (token === "}" || token === "]") open.pop();
    else if (token === ":") {
      const names = open.at(-1);
      const name = JSON.parse(named) as string;
      if (names?.has(name)) throw new SyntaxError();
      names?.add(name);
    } else named = token;
  }
}
