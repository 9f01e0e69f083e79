"""Manipulation gain: how far a few fake reports can move the map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil import arrays
from geoveil.arrays import ArrayLike, FloatArray, IntArray, uniform
from geoveil.channel.channel import Channel, Tally, checked_channel, inverse_distribution
from geoveil.channel.operator import StackedOperator
from geoveil.errors import InvalidInput, number_of
from geoveil.estimate import Estimator, IterativeBayesianUpdate
from geoveil.estimate.fitted import Observations
from geoveil.estimate.mixture import checked_estimator
from geoveil.randomness import Randomness, checked_randomness
from geoveil.verify.alarm import after_steps, batches

_FAKES = 512
"""So many different fake reports are tried at most: those that the best cell explains worst."""


def expected_counts(law: FloatArray, total: int) -> IntArray:
    """Whole numbers nearest to total·law that sum to the total (largest remainders)."""
    expected = np.maximum(law, 0.0) * (total / float(np.maximum(law, 0.0).sum()))
    counts = np.floor(expected).astype(np.int64)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - expected, kind="stable")[:missing]] += 1
    return counts


class Attack:
    """Honest counts of every round, and the same with fakes among them.

    Where people choose among promises, ``honest_shares`` has the shares of honest people under each of the
    mechanisms, and all fakes are sent ``under`` some of them. ``maps`` are the mechanisms whose reports make
    one map, where the estimate is the average of several. Else honest people and fakes are spread evenly.
    """

    def __init__(
        self,
        mechanisms: Channel | Sequence[Channel],
        prior: ArrayLike,
        share: float,
        reports: int,
        randomness: Randomness | None,
        *,
        honest_shares: FloatArray | None = None,
        under: Sequence[int] | None = None,
        maps: Sequence[Sequence[int]] | None = None,
    ) -> None:
        several: Any = mechanisms if isinstance(mechanisms, Sequence) else [mechanisms]
        self.channels = [checked_channel("mechanisms", channel) for channel in several]
        if not self.channels:
            raise InvalidInput("mechanisms must not be empty; give at least one")
        if len({channel.report_count for channel in self.channels}) != 1:
            raise InvalidInput("mechanisms must all have the same reports; audit them one by one")
        self.size = self.channels[0].space.size
        self.people = arrays.prior_over(prior, self.size)
        rounds = len(self.channels)
        per_round = arrays.count("reports", reports, least=rounds) // rounds
        self.reports = per_round * rounds
        per_round_fakes = round(arrays.part("share", share) * per_round)
        if per_round_fakes == 0:
            raise InvalidInput(f"share ({share}) must make at least one fake report in each round")
        self.share = per_round_fakes / per_round
        attacked = np.zeros(rounds)
        attacked[range(rounds) if under is None else list(under)] = 1.0
        self._fakes = expected_counts(attacked / attacked.sum(), rounds * per_round_fakes)
        shares = uniform(rounds) if honest_shares is None else honest_shares
        everybody = expected_counts(shares, self.reports)
        honest = expected_counts(shares, self.reports - int(self._fakes.sum()))
        self._maps = [range(rounds)] if maps is None else maps
        counts = [
            self._reports(channel, all_reports, rest, randomness)
            for channel, all_reports, rest in zip(self.channels, everybody, honest, strict=True)
        ]
        self._everybody, self._honest = (np.stack(rows) for rows in zip(*counts, strict=True))

    def _reports(
        self, channel: Channel, everybody: int, honest: int, randomness: Randomness | None
    ) -> tuple[IntArray, IntArray]:
        """Counts of all honest reports of a round, and of those that remain beside the fakes."""
        if randomness is None:
            law = channel.push(self.people)
            return expected_counts(law, everybody), expected_counts(law, honest)
        source = checked_randomness(randomness)
        cells = inverse_distribution(self.people, source.uniform(everybody))
        sample = channel.sample(cells, randomness=randomness)
        return channel.tally(sample).counts, channel.tally(sample[:honest]).counts

    def tallies(self, fake: int | None) -> list[Tally]:
        """The tallies of all rounds; ``None`` for honest people only."""
        counts = self._everybody if fake is None else self._poisoned(np.array([fake]))[0]
        return [Tally(channel, row) for channel, row in zip(self.channels, counts, strict=True)]

    def _poisoned(self, fakes: IntArray) -> IntArray:
        """(fakes, rounds, reports): the counts of all rounds with each fake report among them."""
        counts = np.repeat(self._honest[None], fakes.size, axis=0)
        counts[np.arange(fakes.size), :, fakes] += self._fakes
        return counts

    def fakes(self) -> IntArray:
        """The fake reports to try: all, or those that no cell is likely to send."""
        reports = np.arange(self.channels[0].report_count)
        if reports.size <= _FAKES:
            return reports
        return np.sort(np.argsort(self._likely(), kind="stable")[:_FAKES])

    def strangest(self) -> int:
        """The report that no cell is likely to send."""
        return int(self._likely().argmin())

    def _likely(self) -> FloatArray:
        """For every report the probability at the cell that sends it most."""
        last = self.channels[-1]
        return np.array([last._column(y).max() for y in range(last.report_count)])

    def screened(
        self, fakes: IntArray, steps: int, totals: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """(fakes, targets): the gains after plain steps from uniform, fakes in batches."""
        honest = self._after_steps(self._everybody[None], steps)[0]
        operator = Observations(self.tallies(None)).operator
        parts = (fakes[part] for part in batches(fakes.size, operator))
        moved = [totals(self._after_steps(self._poisoned(part), steps) - honest) for part in parts]
        return np.concatenate(moved) / self.share

    def _after_steps(self, counts: IntArray, steps: int) -> FloatArray:
        """(data sets, cells): the map from counts (data sets, rounds, reports) with the same sums."""
        reports = counts[0].sum(axis=1)
        maps = np.zeros((len(counts), self.size))
        for places in self._maps:
            some = [place for place in places if reports[place]]
            if some:
                tallies = [Tally(self.channels[place], counts[0, place]) for place in some]
                rows = counts[:, some].reshape(len(counts), -1).astype(np.float64)
                operator = StackedOperator([tally.operator for tally in tallies])
                theta = after_steps(operator, rows, steps)
                maps += reports[some].sum() / reports.sum() * theta
        return maps


@dataclass(frozen=True, eq=False)
class ManipulationGain:
    """The most that a share of fake reports moves onto a target, over that share.

    One is the gain where nothing is hidden: a fake report is worth as much as a person.
    """

    gain: float
    target: int
    """The cell (or the number of the region) that can be pushed most."""
    fake: int
    """The report to send for it."""
    share: float
    reports: int
    gains: FloatArray
    """For every target the largest gain found: with the estimator itself for the fakes ``tried``, with
    plain steps for all others; NaN where none was tried."""
    tried: IntArray
    under: str = ""
    """The promise that the fakes choose, in words, where there are several."""

    @property
    def moved(self) -> float:
        """How much of the whole map the fakes move onto the target."""
        return self.gain * self.share

    @property
    def median(self) -> float:
        """The gain at the middle one of the targets."""
        return float(np.nanmedian(self.gains))

    def summary(self) -> str:
        """The result in words."""
        return (
            f"{self.share:.2g} of {number_of(self.reports, 'report')}, all fake reports "
            f"{self.fake}{self.under}, move {self.moved:.3g} of the map onto target {self.target}: "
            f"a gain of {self.gain:.1f} at the worst target, {self.median:.1f} at the median one."
        )


@arrays.one_blas_thread()
def manipulation_gain(
    mechanisms: Channel | Sequence[Channel],
    prior: ArrayLike,
    *,
    estimator: Estimator | None = None,
    share: float = 0.01,
    reports: int = 100_000,
    regions: Sequence[ArrayLike] | None = None,
    candidates: int = 8,
    randomness: Randomness | None = None,
) -> ManipulationGain:
    """The gain of the best attack that sends one fake report over and over.

    Law: (θ̂ with fakes − θ̂ without)(target)/share, where honest people follow ``prior`` and their counts
    are the expected ones (sampled where ``randomness`` is given). With several mechanisms the reports
    are spread evenly over rounds, and the fake is sent in all of them. Targets are the cells, or the
    ``regions`` (lists of cells). To first order the estimate is linear in the fakes, so no mixture of
    fake reports beats the best single one.
    Search: every fake report is tried with plain steps, as many as the estimator took without fakes, or,
    where that is none, with the report among them that no cell is likely to send (a linearisation
    would miss empty cells, whose estimates grow by factors); the ``candidates`` best are then given
    to the estimator itself, which may stop elsewhere. Plain steps say nothing about an
    estimator that takes none (matrix inversion) or is accelerated: it is given every fake itself.
    Cost: reports × one fit, in batches, then ``candidates`` fits; without plain steps reports × one
    fit, one by one. At most 512 fake reports are tried. Reference: docs/robustness.md.

    >>> import geoveil as gv
    >>> from geoveil.verify.manipulation import manipulation_gain
    >>> mechanism = gv.RandomizedResponse(gv.Line(5), epsilon=1.0)
    >>> exact = gv.IterativeBayesianUpdate(stop=gv.CertifiedWithin(1e-9))
    >>> result = manipulation_gain(mechanism, [0.2] * 5, estimator=exact)
    >>> round(result.gain, 2), result.target == result.fake  # 4/5 of (e + 4)/(e − 1)
    (3.13, True)
    """
    attack = Attack(mechanisms, prior, share, reports, randomness)
    used = IterativeBayesianUpdate() if estimator is None else checked_estimator(estimator)
    honest = used.fit(attack.tallies(None))
    totals = _totals(regions, attack.size)
    fakes = attack.fakes()
    number = arrays.count("candidates", candidates)
    steps = honest.steps
    if steps == 0:  # people stand as the estimator begins, or it takes none at all
        steps = used.fit(attack.tallies(attack.strangest())).steps
    if steps and not _accelerated(used):
        gains = attack.screened(fakes, steps, totals)
        best = np.argsort(-gains.max(axis=1), kind="stable")[:number]
    else:
        gains = np.empty((fakes.size, totals(honest.distribution).size))
        best = np.arange(fakes.size)
    for row in best:
        poisoned = used.fit(attack.tallies(int(fakes[row])))
        gains[row] = totals(poisoned.distribution - honest.distribution) / attack.share
    row = best[int(np.argmax(gains[best].max(axis=1)))]
    target = int(gains[row].argmax())
    return ManipulationGain(
        float(gains[row, target]), target, int(fakes[row]), attack.share, attack.reports,
        gains.max(axis=0), fakes[best],
    )  # fmt: skip


def _accelerated(estimator: Any) -> bool:
    """Whether an estimator, or the one it hands the tallies to, leaves the path of plain steps."""
    if getattr(estimator, "accelerate", None) is not None:
        return True
    inner = getattr(estimator, "estimator", None)
    return inner is not None and _accelerated(inner)


def _totals(regions: Sequence[ArrayLike] | None, size: int) -> Callable[[FloatArray], FloatArray]:
    """From changes of cells to changes of targets, along the last axis."""
    if regions is None:
        return lambda change: change
    arrays.able("regions", regions, "__len__", "lists of cells, such as [[0, 1], [2]]")
    if len(regions) == 0:
        raise InvalidInput(
            "regions must be at least one list of cells; leave it out for every cell"
        )
    belongs = np.zeros((size, len(regions)))
    for number, cells in enumerate(regions):
        belongs[arrays.indices("regions", cells, size), number] = 1.0
    return lambda change: change @ belongs
