/** The mechanism document: what a collector publishes, and what a device checks before it trusts it. */

import { Area, unpackedIntegers } from "./area.ts";
import {
  canonicalText,
  isNumber,
  isObject,
  isWhole,
  type Json,
  type JsonObject,
  sha256,
  strictJson,
} from "./canonical.ts";
import { ROUNDING_CELLS, RoundedCone } from "./cone.ts";
import { WholeLaw } from "./law.ts";
import { RefusedDocument, require } from "./refusal.ts";
import { readSlots, type Slots } from "./slots.ts";

export const VERSION = 2;
/** No document is longer. */
export const LARGEST_BYTES = 1 << 18;
const MOST_LEVELS = 8;
/** All levels of a campaign in one body. */
export const LARGEST_ANSWER = MOST_LEVELS * LARGEST_BYTES + 1024;
/** What documents and links may call a campaign. */
export const CAMPAIGN = "[a-z0-9][a-z0-9-]{0,79}";

const KIND = "mechanism";
const LATEST_S = 2 ** 40;
const MOST_SLACK = 0.02;
const STEEPEST_CELL = 8;
const FINEST = 1 << 16;
const FIELDS =
  "beta_per_km,campaign,epsilon_per_km,expires,geoveil," +
  "kernel,kind,level,not_before,rim,round,slack_nats,space,step,weights";
const OPTIONAL = ["slots", "trips"];

/** Documents whose certificate was computed by this program, by `timeless`, and whether they keep their promise. */
const VERDICTS = new Map<string, boolean>();
const MOST_VERDICTS = 256;

/** ε per km and η: what is promised between any two positions. */
export interface Promised {
  readonly epsilonPerKm: number;
  readonly slackNats: number;
}

/** One level of one round as everybody receives it; its id is the SHA-256 of its canonical text. */
export class MechanismDocument {
  readonly id: string;
  /** The id of the same document in no round and at no time: what was certified once holds for all. */
  readonly timeless: string;
  readonly campaign: string;
  readonly round: number;
  /** Its number among the promises that the campaign offers, from 0; ε rises with it. */
  readonly level: number;
  readonly area: Area;
  /** How many steps of the lattice of positions make a cell. */
  readonly step: number;
  /** 1 where a ring of cells around the grid can be reported, numbered after the others; or 0. */
  readonly rim: number;
  readonly promise: Promised;
  readonly law: WholeLaw;
  readonly notBeforeS: number;
  readonly expiresS: number;
  readonly slots: Slots | undefined;
  /** Whether a report names two places, where a trip began and where it ended. */
  readonly trips: boolean;

  private constructor(
    id: string,
    timeless: string,
    values: JsonObject,
    area: Area,
    law: WholeLaw,
    slots: Slots | undefined,
  ) {
    this.id = id;
    this.timeless = timeless;
    this.campaign = values["campaign"] as string;
    this.round = values["round"] as number;
    this.level = values["level"] as number;
    this.area = area;
    this.step = values["step"] as number;
    this.rim = values["rim"] as number;
    this.promise = {
      epsilonPerKm: values["epsilon_per_km"] as number,
      slackNats: values["slack_nats"] as number,
    };
    this.law = law;
    this.notBeforeS = values["not_before"] as number;
    this.expiresS = values["expires"] as number;
    this.slots = slots;
    this.trips = Object.hasOwn(values, "trips");
  }

  /** Refuse it unless its whole numbers keep the promise between any two positions; takes longest by far. */
  checkPromise(): void {
    const holds = VERDICTS.get(this.timeless) ?? this.law.keeps(this.promise.epsilonPerKm, this.promise.slackNats);
    if (VERDICTS.size >= MOST_VERDICTS) VERDICTS.clear();
    VERDICTS.set(this.timeless, holds);
    require(holds, "certificate");
  }

  /** The document, checked in every respect but its certificate ({@link checkPromise}). */
  static async read(source: Uint8Array | Json): Promise<MechanismDocument> {
    const parsed = source instanceof Uint8Array ? parse(source, LARGEST_BYTES) : source;
    require(isObject(parsed), "json");
    const { id: claimed, ...values } = parsed;
    const { area, law, slots } = checked(values);
    const content = { ...values, space: area.json };
    const id = await sha256(canonicalText(content));
    require((claimed ?? id) === id, "id");
    const timeless = await sha256(canonicalText({ ...content, round: 0, not_before: 0, expires: 0 }));
    return new MechanismDocument(id, timeless, values, area, law, slots);
  }

  /** All levels that a campaign offers, by number, from the body of one answer. */
  static async readLevels(body: Uint8Array): Promise<MechanismDocument[]> {
    const parsed = parse(body, LARGEST_ANSWER);
    require(isObject(parsed), "json");
    if (parsed["kind"] !== "levels") {
      require(parsed["id"] != null, "id");
      require(body.length <= LARGEST_BYTES, "size");
      return [await MechanismDocument.read(parsed)];
    }
    require(Object.keys(parsed).sort().join() === "geoveil,kind,levels", "fields");
    require(parsed["geoveil"] === VERSION, "version");
    const listed = parsed["levels"];
    const several = Array.isArray(listed) && listed.length >= 2 && listed.length <= MOST_LEVELS;
    require(several, "levels");
    for (const entry of listed) {
      require(isObject(entry), "json");
      require(entry["id"] != null, "id");
      const size = sound("json", () => new TextEncoder().encode(canonicalText(entry)).length);
      require(size <= LARGEST_BYTES, "size");
    }
    const levels: MechanismDocument[] = [];
    for (const entry of listed) levels.push(await MechanismDocument.read(entry));
    checkTogether(levels);
    return levels;
  }
}

/** What tells one answer from another: the id of the only level, or a hash of all ids. */
export async function tagOf(levels: readonly MechanismDocument[]): Promise<string> {
  const [only, ...others] = levels;
  return only && !others.length ? only.id : sha256(levels.map((level) => level.id).join(""));
}

// --- Entries of a document that may come from anybody: each is checked, or refused by name

function parse(body: Uint8Array, most: number): Json {
  require(body.length <= most, "size");
  return sound("json", () => strictJson(body));
}

/** What `make` returns; what it cannot make is refused. */
function sound<Value>(reason: string, make: () => Value): Value {
  try {
    return make();
  } catch (problem) {
    if (problem instanceof RangeError || problem instanceof SyntaxError) {
      throw new RefusedDocument(reason);
    }
    throw problem;
  }
}

function checked(values: JsonObject): { area: Area; law: WholeLaw; slots: Slots | undefined } {
  const stated = values["geoveil"] === VERSION && values["kind"] === KIND;
  require(stated, "version");
  const needed = Object.keys(values).filter((field) => !OPTIONAL.includes(field));
  require(needed.sort().join() === FIELDS, "fields");
  const begins = whole(values, "not_before", 0, LATEST_S);
  require(begins < whole(values, "expires", 0, LATEST_S), "times");
  require(!Object.hasOwn(values, "trips") || values["trips"] === true, "trips");
  const [area, law] = statedLaw(values);
  const { campaign } = values;
  const named = typeof campaign === "string" && new RegExp(`^${CAMPAIGN}$`).test(campaign);
  require(named, "campaign");
  whole(values, "round", 1, 2 ** 31);
  whole(values, "level", 0, MOST_LEVELS - 1);
  const slots = Object.hasOwn(values, "slots") ? sound("slots", () => readSlots(values["slots"])) : undefined;
  return { area, law, slots };
}

/** The law that a document states, and that may or may not keep its promise. */
function statedLaw(values: JsonObject): [Area, WholeLaw] {
  const area = sound("space", () => Area.read(values["space"]));
  const epsilon = aboveZero(values, "epsilon_per_km");
  const beta = aboveZero(values, "beta_per_km");
  const slack = aboveZero(values, "slack_nats");
  require(slack <= MOST_SLACK, "slack_nats");
  const steep = Math.max(epsilon, beta / 2) * area.cellKm;
  require(steep <= STEEPEST_CELL * (1 + 1e-9), "steep");
  const step = whole(values, "step", 2, FINEST);
  require(step % 2 === 0, "step");
  const rim = whole(values, "rim", 0, 1);
  const centres = sound("space", () => area.centres(step, rim));
  const weights = sound("weights", () => area.weights(values["weights"]));
  const together = weights.reduce((sum, weight) => sum + weight, 0);
  const oneEach = weights.length === centres.east.length && weights.every((weight) => weight >= 1);
  require(oneEach && together < 2 ** 31, "weights");
  const kernel = sound("kernel", () => unpackedIntegers(values["kernel"]));
  const cone = new RoundedCone(beta, ROUNDING_CELLS * area.cellKm);
  return [area, sound("kernel", () => new WholeLaw(centres, weights, cone, kernel))];
}

function whole(values: JsonObject, name: string, least: number, most: number): number {
  const value = values[name];
  require(isWhole(value, least, most), name);
  return value;
}

function aboveZero(values: JsonObject, name: string): number {
  const value = values[name];
  require(isNumber(value) && value > 0 && value < 1e9, name);
  return value;
}

/** Refuse levels unless they all belong to one round, in order. */
function checkTogether(levels: readonly MechanismDocument[]): void {
  require(levels.every((level, number) => level.level === number), "levels");
  const shared = ({ campaign, round, slots, trips, notBeforeS, expiresS, area }: MechanismDocument): string =>
    JSON.stringify([campaign, round, slots, trips, notBeforeS, expiresS, canonicalText(area.json)]);
  levels.slice(1).forEach((other, at) => {
    const one = levels[at]!;
    require(shared(one) === shared(other), "levels");
    require(one.promise.epsilonPerKm < other.promise.epsilonPerKm, "levels");
  });
}
