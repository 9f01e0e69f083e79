"""Places that are equally likely: their counts, whichever of them has which, and where counts lie."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import product

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.channel.channel import inverse_distribution
from geoveil.randomness import Randomness

Parts = tuple[int, ...]
"""The counts of equal places that are not zero, falling: a partition of how many people are there."""


class EqualPlaces:
    """The ways to spread up to so many people over places that are alike, whichever has which count.

    Law: whoever exchanges places uniformly at random finds the inner product of the counts A with the moved B
    equal to q with a probability that ``walk`` lists: Σ over B = U ⊎ W, U on the places where A is not zero.
    People at one place more, holding α, add Σ_v (ways of U − v, of q − α·v) to the ways of U.
    Cost: a step for each partition A on the way, over all partitions U and the counts that they hold.
    """

    def __init__(self, people: int, places: int) -> None:
        self.people, self.places = people, places
        self.partitions = sorted(
            _partitions(people, min(people, places)), key=lambda p: (len(p), p)
        )
        self.number = {parts: at for at, parts in enumerate(self.partitions)}
        self.totals = np.array([sum(parts) for parts in self.partitions])
        self.squares = np.array([sum(part * part for part in parts) for parts in self.partitions])
        self.lengths = np.array([len(parts) for parts in self.partitions])
        self._log_repeats = np.array(
            [sum(math.lgamma(n + 1) for n in Counter(parts).values()) for parts in self.partitions]
        )

    def log_ways(self, places: int) -> FloatArray:
        """log of in how many ways each partition lies on so many places; −∞ where it has too many parts."""
        room = places - self.lengths
        ways = gammaln(places + 1) - gammaln(np.maximum(room, 0) + 1) - self._log_repeats
        return np.where(room >= 0, ways, -np.inf)

    @cached_property
    def log_chance(self) -> FloatArray:
        """log P(the counts are such, whichever place has which | how many people are there)."""
        shuffled = gammaln(self.totals + 1) - [
            sum(math.lgamma(part + 1) for part in parts) for parts in self.partitions
        ]
        return shuffled + self.log_ways(self.places) - self.totals * math.log(self.places)

    @cached_property
    def _without(self) -> list[tuple[IntArray, IntArray]]:
        """For v = 1, 2, …: the partitions that have v among their parts, and these without one v."""
        pairs: list[tuple[list[int], list[int]]] = [([], []) for _ in range(self.people)]
        for at, parts in enumerate(self.partitions):
            for value in set(parts):
                place = parts.index(value)
                pairs[value - 1][0].append(at)
                pairs[value - 1][1].append(self.number[parts[:place] + parts[place + 1 :]])
        return [(np.array(rows), np.array(before)) for rows, before in pairs]

    @cached_property
    def _split(self) -> tuple[IntArray, IntArray, IntArray]:
        """All (B, U, W) with B = U ⊎ W."""
        rows: list[tuple[int, int, int]] = []
        for at, parts in enumerate(self.partitions):
            several = Counter(parts)
            for numbers in product(*(range(n + 1) for n in several.values())):
                of = list(zip(several, numbers, strict=True))
                used = tuple(v for v, n in of for _ in range(n))
                rest = tuple(v for v, n in of for _ in range(several[v] - n))
                rows.append((at, self.number[used], self.number[rest]))
        wholes, parts_used, rests = np.array(rows).T
        return wholes, parts_used, rests

    def walk(self, totals: frozenset[int]) -> Iterator[tuple[int, FloatArray]]:
        """(number of A, P) for each A with one of the totals; P (partitions, inner products)."""
        chosen = np.isin(self.totals, sorted(totals))
        first = np.zeros((len(self.partitions), 1))
        first[self.number[()], 0] = 1.0
        yield from self._from((), first, totals, chosen)

    def _from(
        self, parts: Parts, ways: FloatArray, totals: frozenset[int], chosen: BoolArray
    ) -> Iterator[tuple[int, FloatArray]]:
        total = sum(parts)
        if total in totals:
            yield self.number[parts], self._joined(len(parts), ways, chosen)
        if len(parts) == self.places:
            return
        for part in range(1, min(parts[-1] if parts else self.people, self.people - total) + 1):
            wide = ways
            if not parts:  # no inner product is larger below here
                wide = np.pad(ways, ((0, 0), (0, part * self.people)))
            yield from self._from((*parts, part), self._with(part, wide), totals, chosen)

    def _with(self, part: int, ways: FloatArray) -> FloatArray:
        """The ways with one place more, which holds ``part``."""
        following = ways.copy()
        for value, (rows, before) in enumerate(self._without, start=1):
            shift = part * value
            if shift < ways.shape[1] and rows.size:
                following[rows, shift:] += ways[before, : ways.shape[1] - shift]
        return following

    def _joined(self, used: int, ways: FloatArray, chosen: BoolArray) -> FloatArray:
        """With the rest of each B on the places where A is zero, as a share of all ways."""
        fits = chosen[self._split[0]]
        whole, part, rest = (numbers[fits] for numbers in self._split)
        logs = self.log_ways(self.places - used)[rest] - self.log_ways(self.places)[whole]
        size = len(self.partitions)
        shares = csr_array((np.exp(logs), (whole, part)), shape=(size, size))
        joined: FloatArray = shares @ ways
        return joined


def number_of_partitions(people: int, places: int) -> FloatArray:
    """(people + 1,): how many partitions of 0, 1, … people have at most so many parts.

    >>> number_of_partitions(5, 2).tolist()
    [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    """
    ways = np.zeros(people + 1)
    ways[0] = 1.0
    for part in range(1, min(people, places) + 1):  # as many as those of parts up to that
        for total in range(part, people + 1):
            ways[total] += ways[total - part]
    return ways


def _partitions(people: int, most: int) -> Iterator[Parts]:
    """All partitions of 0 … people into at most ``most`` parts."""
    waiting: list[Parts] = [()]
    while waiting:
        parts = waiting.pop()
        yield parts
        if len(parts) < most:
            largest = min(parts[-1] if parts else people, people - sum(parts))
            waiting += [(*parts, part) for part in range(1, largest + 1)]


class Arrangements:
    """In how many ways counts lie on equal places so that their inner product with others is q, exactly.

    The places with counts A > 0 take one of the counts left after another; whole numbers of any size.
    """

    def __init__(self, fixed: Parts, moved: Parts, places: int) -> None:
        self._fixed, self._places = fixed, places
        self._values = tuple(sorted(set(moved)))
        held = Counter(moved)
        self._all = tuple(held[value] for value in self._values)
        self._cached: dict[tuple[int, Parts], dict[int, int]] = {}

    @property
    def ways(self) -> dict[int, int]:
        """q → in how many ways."""
        return self._ways(0, self._all)

    def _ways(self, at: int, parts: Parts) -> dict[int, int]:
        cached = self._cached.get((at, parts))
        if cached is not None:
            return cached
        by_product: dict[int, int] = {}
        if at == len(self._fixed):
            free, ways = self._places - at, 1
            for number in parts:
                ways *= math.comb(free, number)
                free -= min(number, free)
            by_product = {0: ways} if ways else {}
        else:
            for value, after in self._choices(at, parts):
                for inner, ways in self._ways(at + 1, after).items():
                    total = inner + self._fixed[at] * value
                    by_product[total] = by_product.get(total, 0) + ways
        self._cached[at, parts] = by_product
        return by_product

    def _choices(self, at: int, parts: Parts) -> Iterator[tuple[int, Parts]]:
        """What the next place may hold, and what is left then: nothing, or one of the counts."""
        if sum(parts) < self._places - at:
            yield 0, parts
        for number, value in enumerate(self._values):
            if parts[number]:
                yield value, (*parts[:number], parts[number] - 1, *parts[number + 1 :])

    def draw(self, inner: int, randomness: Randomness) -> list[int]:
        """What each place holds, those with A > 0 first: each way with this inner product as likely."""
        parts, held = self._all, []
        for at, fixed in enumerate(self._fixed):
            options = [
                (value, after, self._ways(at + 1, after).get(inner - fixed * value, 0))
                for value, after in self._choices(at, parts)
            ]
            whole = sum(ways for *_, ways in options)
            shares = np.array([ways / whole for *_, ways in options])
            value, parts, _ = options[int(inverse_distribution(shares, randomness.uniform(1))[0])]
            inner -= fixed * value
            held.append(value)
        rest = [0] * (self._places - len(held))
        free = list(range(len(rest)))
        for value, number in zip(self._values, parts, strict=True):
            for uniform in randomness.uniform(number):
                rest[free.pop(min(int(uniform * len(free)), len(free) - 1))] = value
        return held + rest
