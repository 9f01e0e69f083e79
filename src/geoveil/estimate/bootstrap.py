"""Error bars by simulation: the whole estimate again on data like those that were seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoveil.arrays import BoolArray, FloatArray, count
from geoveil.errors import TooLarge
from geoveil.estimate.bars import LOST, checked_level, combined, held_interval, poll_error
from geoveil.estimate.identifiability import lost_directions
from geoveil.estimate.observations import Observations
from geoveil.estimate.stopping import Progress
from geoveil.estimate.uncertainty import Refit
from geoveil.space.space import MATRIX_LIMIT

_CHUNK_ENTRIES = 1 << 22
_MOST_ENTRIES = 1 << 28
_TOLD = 20  # times that progress is told


@dataclass(frozen=True, eq=False)
class BootstrapErrors:
    """Error bars from estimates of resampled data.

    Interval: whatever the percentile and the basic bootstrap interval hold, one or the other; for
    estimates near zero either alone misses far too often. Standard error: the spread of the replicates
    and how far the estimate itself still moves when it is carried on. Neither is ever less than in a
    poll of as many people without noise. What the reports
    cannot tell apart has an infinite error and the interval [0, 1].
    """

    distribution: FloatArray
    centre: FloatArray
    """The estimate carried on, from which the data were resampled."""
    replicates: FloatArray
    people: int
    lost: FloatArray
    """(cells, k): directions the data say nothing about."""
    method: str

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        spread = self._drawn(combinations).std(axis=0, ddof=1)
        moved = combined(self.centre - self.distribution, combinations)
        poll = poll_error(self.centre, self.people, combinations)
        errors = np.maximum(np.hypot(spread, moved), poll)
        return np.where(self._unknown(combinations), np.inf, errors)

    def interval(
        self, level: float, combinations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        tail = (1 - checked_level(level)) / 2
        low, high = np.quantile(self._drawn(combinations), [tail, 1 - tail], axis=0)
        centre = combined(self.centre, combinations)
        lost = np.where(self._unknown(combinations), np.inf, 0.0)
        lowest, highest = np.minimum(low, 2 * centre - high), np.maximum(high, 2 * centre - low)
        return held_interval(self, level, combinations, lowest - lost, highest + lost)

    def _drawn(self, combinations: FloatArray | None) -> FloatArray:
        return self.replicates if combinations is None else self.replicates @ combinations.T

    def _unknown(self, combinations: FloatArray | None) -> BoolArray:
        """Which cells or combinations hold something of a lost direction."""
        return np.asarray((np.abs(combined(self.lost, combinations)) > LOST).any(axis=-1))


@dataclass(frozen=True)
class Bootstrap:
    """Error bars by parametric bootstrap over the tallies, for any number of cells.

    Law: the estimate is carried on to ``carry_on`` times its steps and at least to 50, which takes
    most of the smoothing out of it; each tally is drawn again from the law of reports of that
    distribution (multinomial, same total), and estimated with as many steps. Where a tally holds only
    what was seen (RAPPOR, several reports of one person), its counts are resampled instead. Up to
    4,096 cells the directions no report shows are found first; their cells have the interval [0, 1].
    Cost: replicates × carry_on times that of the estimate, and one QR factorisation of the channels
    up to 4,096 cells; replicates advance as one batch.
    Guarantee: none on coverage. Early stopping hides some of the bias: see ``benchmarks/coverage.py``.

    >>> Bootstrap(replicates=500).seed
    0
    """

    replicates: int = 200
    carry_on: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        count("replicates", self.replicates, least=2)
        count("carry_on", self.carry_on)
        count("seed", self.seed, least=0)

    def errors(
        self,
        observations: Observations,
        distribution: FloatArray,
        refit: Refit,
        progress: Progress | None,
    ) -> BootstrapErrors:
        cells = distribution.size
        if self.replicates * cells > _MOST_ENTRIES:
            raise TooLarge(
                f"replicates ({self.replicates}) × cells ({cells}) must be at most {_MOST_ENTRIES}; "
                "use fewer replicates"
            )
        centre = refit(observations.counts.astype(np.float64), self.carry_on)
        drawn = self._resampled(observations, centre)
        replicates = np.empty((self.replicates, cells))
        chunk = max(1, min(_CHUNK_ENTRIES // drawn.shape[1], self.replicates // _TOLD))
        for first in range(0, self.replicates, chunk):
            replicates[first : first + chunk] = refit(drawn[first : first + chunk], self.carry_on)
            if progress is not None:
                progress(min(first + chunk, self.replicates), self.replicates)
        words = f"parametric bootstrap, {self.replicates} replicates"
        lost = _lost(observations)
        return BootstrapErrors(distribution, centre, replicates, observations.total, lost, words)

    def _resampled(self, observations: Observations, centre: FloatArray) -> FloatArray:
        """(replicates, observations): new counts of every tally."""
        generator = np.random.default_rng(self.seed)
        drawn = []
        for tally in observations.tallies:
            if not tally.total:
                drawn.append(np.zeros((self.replicates, tally.counts.size), dtype=np.int64))
                continue
            law = tally.counts.astype(np.float64)
            if tally.complete:
                law = np.maximum(tally.operator._push(centre), 0.0)
            shares = law / max(law.sum(), np.finfo(float).tiny)
            drawn.append(generator.multinomial(tally.total, shares, size=self.replicates))
        return np.concatenate(drawn, axis=1).astype(np.float64)


def _lost(observations: Observations) -> FloatArray:
    """(cells, k): the directions that no tally shows; none are looked for above 4,096 cells."""
    cells = observations.space.size
    if cells > MATRIX_LIMIT:
        return np.zeros((cells, 0))
    lost, told = np.eye(cells), []
    for tally in observations.tallies:
        if tally.total and lost.shape[1]:
            told.append(tally.telling_columns())
            lost = lost_directions(np.concatenate(told, axis=1))
    return lost
