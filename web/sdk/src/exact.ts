/** Sums of costs, exact for the numbers as written: three reports of 0.1 cost 0.3. */

/** A decimal number, digits · 10^−places. */
export class Exact {
  private readonly digits: bigint;
  private readonly places: number;

  private constructor(digits: bigint, places: number) {
    this.digits = digits;
    this.places = places;
  }

  /** The number that a double is written as. */
  static of(value: number): Exact {
    const [mantissa, exponent = "0"] = String(value).split("e") as [string, string?];
    const [whole, fraction = ""] = mantissa.split(".") as [string, string?];
    const places = fraction.length - Number(exponent);
    const digits = BigInt(whole + fraction);
    return places < 0 ? new Exact(digits * 10n ** BigInt(-places), 0) : new Exact(digits, places);
  }

  static sum(values: Iterable<number>): Exact {
    let total = Exact.of(0);
    for (const value of values) total = total.plus(Exact.of(value));
    return total;
  }

  plus(other: Exact): Exact {
    const places = Math.max(this.places, other.places);
    return new Exact(this.at(places) + other.at(places), places);
  }

  minus(other: Exact): Exact {
    return this.plus(new Exact(-other.digits, other.places));
  }

  isAbove(other: Exact): boolean {
    return this.minus(other).digits > 0n;
  }

  /** The nearest double. */
  nearest(): number {
    return Number(`${this.digits}e-${this.places}`);
  }

  /** The nearest double that is not written below it; for what is not negative. */
  noLess(): number {
    const near = this.nearest();
    return this.isAbove(Exact.of(near)) ? next(near) : near;
  }

  private at(places: number): bigint {
    return this.digits * 10n ** BigInt(places - this.places);
  }
}

/** The double after one that is not negative. */
function next(value: number): number {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigUint64(0, view.getBigUint64(0) + 1n);
  return view.getFloat64(0);
}

/** What is left of a limit as it is written, and never less than nothing. */
export function leftOf(limit: number, spent: Exact): number {
  return Math.max(0, Exact.of(limit).minus(spent).nearest());
}
