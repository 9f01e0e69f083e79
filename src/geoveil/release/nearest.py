"""Back to valid vectors: the nearest counts that are not negative and have the right sum."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import comb

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.errors import TooLarge
from geoveil.randomness import Randomness
from geoveil.release.counts import CountVectors

BOX_LIMIT = 1 << 24
"""No more noisy vectors than this are listed."""


class Nearest(NamedTuple):
    """The nearest valid vectors of some noisy ones, which may be several at the same distance.

    They are ``base`` with ``sign`` added at any ``rest`` of the places in ``open``.
    """

    base: IntArray
    sign: IntArray
    rest: IntArray
    open: BoolArray


def nearest(noisy: IntArray, people: int) -> Nearest:
    """The nearest valid vectors of noisy ones (…, places) whose counts are not negative.

    What is missing goes to all places alike; what is too much is taken from all alike, but never
    below zero. Moving one unit more or less than the others is what ties are about.
    """
    places = noisy.shape[-1]
    missing = people - noisy.sum(axis=-1)
    level = _levels(noisy, np.maximum(-missing, 0))
    lowered = np.maximum(noisy - level[..., None], 0)
    rest = np.where(missing >= 0, missing % places, lowered.sum(axis=-1) - people)
    more = np.maximum(missing, 0) // places
    base = np.where(missing[..., None] >= 0, noisy + more[..., None], lowered)
    is_open = (missing[..., None] >= 0) | (noisy > level[..., None])
    return Nearest(base, np.where(missing >= 0, 1, -1), rest, is_open)


def _levels(noisy: IntArray, excess: IntArray) -> IntArray:
    """The largest t with Σ min(z_i, t) ≤ excess: how much can be taken from every place alike."""
    ordered = np.sort(noisy, axis=-1)
    before = np.cumsum(ordered, axis=-1) - ordered
    left = noisy.shape[-1] - np.arange(noisy.shape[-1])
    level = (excess[..., None] - before) // left
    # The first place, in order, that is not emptied has its level below its own count.
    first = np.argmax((level < ordered) | (left == 1), axis=-1)
    return np.take_along_axis(level, first[..., None], axis=-1)[..., 0]


def drawn_nearest(noisy: IntArray, people: int, randomness: Randomness) -> IntArray:
    """One nearest valid vector for each noisy one, ties broken at random."""
    found = nearest(noisy, people)
    order = randomness.uniform(noisy.size).reshape(noisy.shape)
    rank = np.argsort(np.argsort(np.where(found.open, order, 2.0), axis=-1), axis=-1)
    return found.base + found.sign[..., None] * (rank < found.rest[..., None])


@lru_cache(maxsize=8)
def nearest_matrix(people: int, places: int) -> csr_array:
    """(noisy vectors, valid vectors): which valid ones stand for each noisy one, ties in equal shares.

    Noisy vectors are those with counts 0 … people each, in row-major order; at most 2²⁴.
    """
    size = (people + 1) ** places
    if size > BOX_LIMIT:
        raise TooLarge(
            f"noisy count vectors ({size:.3g}) must be at most {BOX_LIMIT:,} to be listed; "
            "use fewer people or places"
        )
    sides = (people + 1,) * places
    noisy = np.stack(np.unravel_index(np.arange(size), sides), axis=1).astype(np.int64)
    vectors = CountVectors(people, places)
    found = nearest(noisy, people)
    entries = list(_entries(found, vectors, places))
    rows, columns, shares = (np.concatenate(part) for part in zip(*entries, strict=True))
    return csr_array((shares, (rows, columns)), shape=(size, vectors.size))


def _entries(
    found: Nearest, vectors: CountVectors, places: int
) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """Rows, columns and shares for every set of places that may get the one unit more or less."""
    choices = comb(found.open.sum(axis=1), found.rest)
    for number in range(places):
        for chosen in combinations(range(places), number):
            fits = np.flatnonzero((found.rest == number) & found.open[:, list(chosen)].all(axis=1))
            moved = found.base[fits]
            moved[:, list(chosen)] += found.sign[fits, None]
            yield fits, vectors.index(moved), 1.0 / choices[fits]
