/** Lengths of vectors, and how far a matrix or a tensor in the plane may stretch one. */

export function length(east: number, north: number): number {
  return Math.sqrt(east * east + north * north);
}

/** |v + M·h| over |h| ≤ ρ, at most, for a symmetric 2 × 2 matrix M. */
export function longest(east: number, north: number, ee: number, en: number, nn: number, rho: number): number {
  const pulled = length(ee * east + en * north, en * east + nn * north);
  const change = rho * norm(ee, en, nn);
  return Math.sqrt(east * east + north * north + 2 * rho * pulled + change * change);
}

/** The largest eigenvalue, in size, of a symmetric 2 × 2 matrix. */
export function norm(ee: number, en: number, nn: number): number {
  return Math.abs(ee + nn) / 2 + length((ee - nn) / 2, en);
}

/** |T·hhh| over |h| = 1, at most: the waves of one and of three turns that it is the sum of. */
export function normOfThird(eee: number, een: number, enn: number, nnn: number): number {
  return (length(eee - 3 * enn, 3 * een - nnn) + 3 * length(eee + enn, een + nnn)) / 4;
}
