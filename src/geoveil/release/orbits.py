"""Count vectors of which each stands for all that exchanges of equal places make of it: orbits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import inverse_distribution
from geoveil.randomness import Randomness
from geoveil.release.counts import CountVectors
from geoveil.release.equal_places import Arrangements, EqualPlaces, number_of_partitions

MOST_WORK = 1 << 30
"""Pairs of orbits times inner products, at most: about a minute of one processor."""
_HELD = 1 << 25
"""Probabilities of inner products that are kept for the next kernel, at most: a quarter of a gibibyte."""
_ENTRIES = 1 << 20


class Orbits:
    """The vectors of counts over classes of equal places, whichever place of a class has which count.

    ``sizes`` are the places of each class. A class of one place is what it is; one of several has a partition
    of its people. Kernels of the Euclidean distance are averaged over all exchanges of places.

    >>> orbits = Orbits(4, (1000,))
    >>> orbits.size, [round(float(n)) for n in np.exp(orbits.log_sizes)][:2]
    (5, [1000, 499500])
    """

    def __init__(self, people: int, sizes: Sequence[int]) -> None:
        self.people, self.sizes = people, tuple(sizes)
        classes = range(len(self.sizes))
        self._several = sorted((c for c in classes if self.sizes[c] > 1), key=lambda c: -sizes[c])
        self._alone = [c for c in classes if self.sizes[c] == 1]
        kinds = {sizes[c]: EqualPlaces(people, sizes[c]) for c in self._several}
        self._equal = [kinds[sizes[c]] for c in self._several]
        parts, rest = np.zeros((1, 0), dtype=np.int64), np.array([people])
        for equal in self._equal:
            # every choice so far with every partition of those left, or fewer
            row, number = np.nonzero(equal.totals <= rest[:, None])
            parts, rest = np.column_stack((parts[row], number)), rest[row] - equal.totals[number]
        if not self._alone:
            parts, rest = parts[rest == 0], rest[rest == 0]
        self.parts = parts
        """(orbits, classes of several places): the number of each class's partition."""
        self.alone = np.zeros((len(parts), 0), dtype=np.int64)
        """(orbits, classes of one place): their counts."""
        if self._alone:
            counts = [CountVectors(int(n), len(self._alone)).vectors if n else
                      np.zeros((1, len(self._alone)), dtype=np.int64) for n in rest]  # fmt: skip
            self.parts = np.repeat(parts, [len(vectors) for vectors in counts], axis=0)
            self.alone = np.concatenate(counts)
        self.size = len(self.parts)
        rows = np.concatenate((self.parts, self.alone), axis=1).tolist()
        self._number = {tuple(row): at for at, row in enumerate(rows)}
        self._held: list[tuple[int, FloatArray]] | None = None

    @staticmethod
    def work(people: int, sizes: Sequence[int]) -> float:
        """Pairs of orbits, and of partitions of one class, times inner products; without listing any."""
        ways = np.zeros(people + 1)
        ways[0] = 1.0
        most = 0.0
        for size in sizes:
            own = np.ones(people + 1) if size == 1 else number_of_partitions(people, size)
            most = max(most, float(own.sum()) if size > 1 else 0.0)
            with np.errstate(over="ignore"):
                ways = np.convolve(ways, own)[: people + 1]
        inner = people * people / 3.0 + 1.0
        several = sorted((size for size in sizes if size > 1), reverse=True)
        others = 1.0
        for size in several[1:]:  # a function of the squared distance for every two partitions
            others *= float(number_of_partitions(people, size).sum())
        held = others**2 * 2.0 * people**2 * (inner if len(several) > 1 else 0.0)
        return float(max(ways[-1], most) ** 2 * inner + held)

    @cached_property
    def log_sizes(self) -> FloatArray:
        """log of how many vectors each orbit has."""
        return self._summed([equal.log_ways(equal.places) for equal in self._equal])

    @cached_property
    def log_chances(self) -> FloatArray:
        """log P(the counts within classes are these | how many people each class has)."""
        return self._summed([equal.log_chance for equal in self._equal])

    def _summed(self, by_class: Sequence[FloatArray]) -> FloatArray:
        """Figures of the partitions of each class of several places, added up for each orbit."""
        figures = (values[self.parts[:, at]] for at, values in enumerate(by_class))
        return sum(figures, np.zeros(self.size))

    @cached_property
    def totals(self) -> IntArray:
        """(orbits, classes): how many people each class has."""
        totals = np.empty((self.size, len(self.sizes)), dtype=np.int64)
        totals[:, self._alone] = self.alone
        for at, (place, equal) in enumerate(zip(self._several, self._equal, strict=True)):
            totals[:, place] = equal.totals[self.parts[:, at]]
        return totals

    def counts(self, orbit: int) -> list[IntArray]:
        """The counts of each class of a vector of an orbit; of several places those that are not zero."""
        counts = [np.zeros(0, dtype=np.int64)] * len(self.sizes)
        for at, place in enumerate(self._alone):
            counts[place] = self.alone[orbit, at : at + 1]
        for at, (place, equal) in enumerate(zip(self._several, self._equal, strict=True)):
            counts[place] = np.array(equal.partitions[self.parts[orbit, at]], dtype=np.int64)
        return counts

    def index(self, counts: Sequence[IntArray]) -> int:
        """The number of the orbit of counts, an array for each class; zeros may be left out."""
        parts = [
            equal.number[tuple(sorted((n for n in counts[c].tolist() if n), reverse=True))]
            for c, equal in zip(self._several, self._equal, strict=True)
        ]
        return self._number[(*parts, *(int(counts[c].sum()) for c in self._alone))]

    # -- means of kernels ------------------------------------------------------------------------

    def means(self, values: FloatArray) -> FloatArray:
        """(kernels, orbits, orbits): means of functions of the squared distance over all exchanges.

        ``values`` (kernels, 2M² + 1) are the functions at 0, 1, 2, …
        """
        means = np.empty((len(values), self.size, self.size))
        far = values.shape[1] - 1
        if not self._equal:
            for at in range(self.size):
                means[:, at] = values[:, self._between(at)]
            return means
        rest, others = self._others(values, 1)
        suffix = np.array([others[tuple(row)] for row in self.parts[:, 1:].tolist()])
        first, own = self.parts[:, 0], self._equal[0]
        for number, chances in self._tables():
            inner = 2 * np.arange(chances.shape[1])
            step = max(1, _ENTRIES // inner.size)
            for at in np.flatnonzero(first == number).tolist():
                base = self._between(at) + own.squares[number] + own.squares[first]
                for start in range(0, self.size, step):
                    part = slice(start, start + step)
                    squares = np.clip(base[part, None] - inner, 0, far)
                    looked_up = rest[:, suffix[at], suffix[part, None], squares]
                    means[:, at, part] = np.einsum("bq,fbq->fb", chances[first[part]], looked_up)
        return means

    def _between(self, orbit: int) -> IntArray:
        """Squared distances over the classes of one place."""
        squares: IntArray = np.square(self.alone - self.alone[orbit]).sum(axis=1)
        return squares

    def _tables(self) -> Iterator[tuple[int, FloatArray]]:
        """Each partition of the first class, and its chances of inner products with all others."""
        if self._held is not None:
            yield from self._held
            return
        own = self._equal[0]
        totals = frozenset(own.totals[np.unique(self.parts[:, 0])].tolist())
        held: list[tuple[int, FloatArray]] = []
        room = _HELD
        for number, chances in own.walk(totals):
            yield number, chances
            room -= chances.size
            held = held if room >= 0 else []
            held.append((number, chances))
        self._held = held if room >= 0 else None

    def _others(self, values: FloatArray, at: int) -> tuple[FloatArray, dict[tuple[int, ...], int]]:
        """(kernels, k, k, squared distances): the same means over the classes from ``at`` on, each a function
        of the squared distance elsewhere; and which k is which partitions."""
        if at == len(self._equal):
            return values[:, None, None, :], {(): 0}
        inner, index = self._others(values, at + 1)
        own, far = self._equal[at], values.shape[1] - 1
        after = [(number, *more) for number in range(len(own.partitions)) for more in index]
        number = np.array([row[0] for row in after])
        suffix = np.array([index[row[1:]] for row in after])
        means = np.zeros((len(values), len(after), len(after), far + 1))
        elsewhere = np.arange(far + 1)
        for one, chances in own.walk(frozenset(range(self.people + 1))):
            for row in np.flatnonzero(number == one):
                base = own.squares[one] + own.squares[number]
                for product in np.flatnonzero(chances.any(axis=0)):
                    squares = np.clip(base[:, None] - 2 * product + elsewhere, 0, far)
                    looked_up = inner[:, suffix[row], suffix[:, None], squares]
                    means[:, row] += chances[number, product][:, None] * looked_up
        return means, {row: place for place, row in enumerate(after)}

    # -- single vectors --------------------------------------------------------------------------

    def log_mean(self, counts: Sequence[IntArray], orbit: int, log_values: FloatArray) -> float:
        """log of the mean of a function of the squared distance from ``counts`` over an orbit.

        The function is given by its logarithms: right where it is next to nothing, too.
        """
        near = _Near(self, counts, orbit)
        return _log_mean(log_values, near.squared, [group for *_, group in near.classes])

    def draw_near(
        self, counts: Sequence[IntArray], orbit: int, log_values: FloatArray, randomness: Randomness
    ) -> list[IntArray]:
        """A vector of an orbit, drawn in proportion to a function of its squared distance from ``counts``.

        Law: the inner products of the classes first, from whole numbers of ways; then one of the ways.
        """
        near = _Near(self, counts, orbit)
        squared, vector = near.squared, near.alone
        for at, (place, order, arrangements) in enumerate(near.classes):
            later = [group for *_, group in near.classes[at + 1 :]]
            inner = list(arrangements.ways)
            logs = np.array([math.log(ways) for ways in arrangements.ways.values()])
            logs += [_log_mean(log_values, squared - 2 * product, later) for product in inner]
            shares = np.exp(logs - logs.max())
            product = inner[int(inverse_distribution(shares, randomness.uniform(1))[0])]
            squared -= 2 * product
            held = np.empty(order.size, dtype=np.int64)
            held[order] = arrangements.draw(product, randomness)
            vector[place] = held
        return vector


class _Near:
    """Counts beside an orbit: what its places of their own have, and in which ways the others may lie.

    ``squared`` is the squared distance less twice the inner products of the classes of several places.
    """

    def __init__(self, orbits: Orbits, counts: Sequence[IntArray], orbit: int) -> None:
        self.alone = [np.zeros(0, dtype=np.int64)] * len(orbits.sizes)
        self.squared = 0
        self.classes: list[tuple[int, IntArray, Arrangements]] = []
        several = dict(zip(orbits._several, orbits._equal, strict=True))
        for place, there in enumerate(orbits.counts(orbit)):
            if place not in several:
                self.alone[place] = there.copy()
                self.squared += int(there[0] - counts[place][0]) ** 2
                continue
            order = np.argsort(-counts[place], kind="stable")
            here = tuple(n for n in counts[place][order].tolist() if n)
            moved = tuple(there.tolist())
            arrangements = Arrangements(here, moved, several[place].places)
            self.classes.append((place, order, arrangements))
            self.squared += sum(n * n for n in (*here, *moved))


def _log_mean(log_values: FloatArray, squared: int, later: Sequence[Arrangements]) -> float:
    """log of the mean of the function over what the classes to come make of a squared distance."""
    if not later:
        return float(log_values[squared])
    ways = later[0].ways
    whole = math.log(sum(ways.values()))
    logs = [
        math.log(n) - whole + _log_mean(log_values, squared - 2 * q, later[1:])
        for q, n in ways.items()
    ]
    return float(logsumexp(logs))
