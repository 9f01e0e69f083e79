"""Map and fakes fitted together: how many of some suspicious reports no map of honest people explains.

Between "a crowd" and "fakes" the likelihood is nearly flat, so the most likely number of fakes is no
fact. What is known is a range: the fewest and the most fakes that the reports leave room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from geoveil.arrays import FloatArray, IntArray, indices, part
from geoveil.channel.channel import Tally
from geoveil.channel.operator import DenseOperator, Operator
from geoveil.errors import InvalidInput, TooLarge
from geoveil.estimate.em import ActiveSetNewton, Ascent, maximise
from geoveil.estimate.fitted import Observations
from geoveil.estimate.stopping import CertifiedWithin
from geoveil.estimate.uneven import MAP_SHOWS, PlacesOfAll
from geoveil.root import NeverSafe, safe_root

Suspect = tuple[int, int]
"""A place among the tallies, and a report of it."""

_TOLERANCE = 1e-8
"""A fit is certified to lie at most so many nats per report below the maximum."""
_SETTLED = 1e-4
"""Shares of fakes that change less than this, relative to the honest rest, have settled."""
_MOST_PASSES = 25
_MOST_STEPS, _WARM_STEPS = 500, 3
_BARELY, _NOBODY, _LEAST_HONEST = 1e-12, 1e-6, 1e-9
"""What every unknown gets where a fit starts from the last one, since nothing comes back from zero: less than
Newton's method counts as nothing; or, where next to nobody was honest, so much that somebody may be."""
_DROP_TOLERANCE, _JUMP = 0.02, 1e-4
"""A bound lies where the log-likelihood has dropped by what it should, or this share more; or by more still
where λ, larger by this part, would let it drop by too little: it jumps there."""
_PLAIN, _LEAVING = 6, 8
"""Products of a step without Newton's method, of all unknowns and reports; and the first steps of a fit from
nowhere, in which places that nobody is at have not left yet."""
_RIDGE, _FOLLOWED = 1e-9, 1e-4
"""Added to an information that may be singular; and what is left of one where the map can follow."""
_ACROSS = 2
"""Places a side of a cell where people may stand: more would take Newton's method too long."""
_LEAST_PRICE, _MOST_PRICE, _MOST_GIFT = 1e-4, 1e6, 1 - 1e-4
"""Between these λ and −λ are sought."""


class WithFakes(Operator):
    """An operator with more rows: for each suspicious column, those who only send it.

    The row of a source of fakes has one entry, its scale.
    """

    def __init__(self, honest: Operator, sources: IntArray, scales: FloatArray) -> None:
        self.honest = honest
        self.sources = sources
        self.scales = scales
        self.exact = honest.exact

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.honest.shape
        return rows + self.sources.size, columns

    def _push(self, theta: FloatArray) -> FloatArray:
        cells = self.honest.shape[0]
        law = np.array(self.honest._push(theta[..., :cells]))
        law[..., self.sources] += self.scales * theta[..., cells:]
        return law

    def _pull(self, values: FloatArray) -> FloatArray:
        parts = (self.honest._pull(values), self.scales * values[..., self.sources])
        return np.concatenate(parts, axis=-1)

    def _column(self, column: int) -> FloatArray:
        return self.columns(np.array([column]))[:, 0]

    def columns(self, chosen: IntArray) -> FloatArray:
        fakes = np.where(self.sources[:, None] == chosen, self.scales[:, None], 0.0)
        return np.concatenate((self.honest.columns(chosen), fakes))


@dataclass(frozen=True, eq=False)
class FakesFit:
    """A map of honest people and a number of fakes for every suspect, fitted together."""

    distribution: FloatArray
    """Shares of honest people by cell; by place in the cells where these are wide for their promise."""
    numbers: FloatArray
    """Fakes of each suspect; not whole."""
    log_likelihood: float
    """Nats of all reports, given how many came in each tally."""
    certificate: float
    """At least what that lacks to its maximum for these shares of honest people, in nats."""

    @property
    def total(self) -> float:
        """Fakes of all suspects."""
        return float(self.numbers.sum())


@dataclass(frozen=True, eq=False)
class FakesRange:
    """The fewest and the most fakes that fit the reports, each a one-sided bound, and the likeliest."""

    least: FakesFit
    likeliest: FakesFit
    most: FakesFit

    @property
    def sure(self) -> bool:
        """Whether there are fakes at all: honest people alone do not explain the reports."""
        return self.least.total > 0


def honest_operator(observations: Observations) -> Operator:
    """Rows are the cells, or the places in them where it matters where people stand."""
    places = PlacesOfAll.of(observations, _ACROSS, shows=MAP_SHOWS)
    return observations.operator if places is None else places.operator


class MapAndFakes:
    """The likelihood of some tallies, in each of which some reports may be sent by fakes.

    Law: P_r(y) = (1 − s_r)·(θC_r)_y + e_{r,y}, with s_r = Σ_y e_{r,y} ≥ 0 the share of fakes in tally r and
    e zero but for the suspects; the log-likelihood is Σ n_{r,y}·log P_r(y). With t = e/(1 − s) it is
    concave in (θ, t) but for −n_r·log(1 + Σt), which is convex: a tangent stands for it, and each fit is
    the one loop with a row of its own for every suspect, certified to 1e-8 nats a report. A few of these
    fits, each with the tangent of the last, never lower the likelihood and settle.
    ``price`` λ adds −λ·Σ_r n_r·s_r, which makes the sources' rows weaker (λ > 0) or stronger (λ < 0); the
    fits along λ are those with the least and the most fakes at their likelihood.
    Where a cell is wide for its promise (ε·cell above 0.75, between positions), θ leaves open where in their
    cells people stand: a crowd at an edge of its cell is no fakes.
    Cost: s²·n products for each step of Newton's method, n reports of all tallies and s cells (or places) and
    suspects: in the first fit all, then those that have any people. :class:`~geoveil.errors.TooLarge` where
    all fits together need more than ``most_products``.

    >>> import numpy as np
    >>> import geoveil as gv
    >>> mechanism = gv.LinearGeometric(gv.Line(30), epsilon_per_unit=0.7)
    >>> people = np.repeat([5, 6, 20], 1500)
    >>> honest = mechanism.tally(mechanism.sample(people, randomness=gv.seeded(1)))
    >>> model = MapAndFakes([honest + mechanism.tally(np.full(250, 13))], [(0, 13)])
    >>> fakes = model.range()
    >>> bool(200 < fakes.least.total < fakes.likeliest.total < fakes.most.total < 300)
    True
    """

    def __init__(
        self,
        tallies: Sequence[Tally],
        suspects: Sequence[Suspect],
        *,
        most_products: float = np.inf,
    ) -> None:
        observations = Observations(tallies)
        if len(observations.tallies) != len(tallies):
            raise InvalidInput("tallies must come from mechanisms that all differ; add equal ones")
        self._counts = observations.counts.astype(np.float64)
        self._seen = np.flatnonzero(self._counts)
        people = honest_operator(observations)
        self._rows = people.shape[0]
        sizes = [tally.counts.size for tally in tallies]
        self._round = np.repeat(np.arange(len(sizes)), sizes)
        self._totals = np.array([float(tally.total) for tally in tallies])
        self._honest = DenseOperator(people.columns(self._seen))
        self._starts, self._sizes = np.cumsum([0, *sizes[:-1]]), sizes
        self._null: FakesFit | None = None
        self._products, self._most_products = 0.0, most_products
        # Where the last fit ended, and T_r = Σ_y t_{r,y} there: the next one starts from it.
        self._point: FloatArray | None = None
        self._excess: FloatArray = np.zeros(self._totals.size)
        self.suspects: list[Suspect] = []
        self.suspect(suspects)

    def suspect(self, suspects: Sequence[Suspect]) -> None:
        """Add suspects; those that never sent a report are passed over."""
        for place, report in suspects:
            indices("suspects", report, self._sizes[place])
            new = (place, report) not in self.suspects
            if new and self._counts[self._starts[place] + report] > 0:
                self.suspects.append((place, int(report)))
        sources = np.array([self._starts[p] + y for p, y in self.suspects], dtype=np.int64)
        self._of_round = self._round[sources]
        self._sources = np.searchsorted(self._seen, sources)
        if self._point is not None:
            added = len(self.suspects) - (self._point.size - self._rows)
            self._point = np.concatenate((self._point, np.zeros(added)))

    def numbers_by_tally(self, numbers: FloatArray) -> list[FloatArray]:
        """Numbers of suspects as arrays like the counts of the tallies."""
        by_tally = [np.zeros(size) for size in self._sizes]
        for (place, report), number in zip(self.suspects, numbers, strict=True):
            by_tally[place][report] = number
        return by_tally

    @property
    def honest(self) -> FakesFit:
        """The fit without fakes."""
        if self._null is None:
            ascent = self._maximised(np.zeros(0, dtype=np.int64), np.zeros(0), None)
            law = self._honest._push(ascent.distribution)
            total = float(self._counts[self._seen] @ np.log(law))
            lack = ascent.certificate * float(self._totals.sum())
            self._null = FakesFit(ascent.distribution, np.zeros(0), total, lack)
        return replace(self._null, numbers=np.zeros(len(self.suspects)))

    def fit(self, price: float = 0.0) -> FakesFit:
        """The likeliest map and fakes, at a price for every fake (or a gift, below zero)."""
        reports = float(self._totals.sum())
        share = 1.0 if self._point is None else float(self._point[: self._rows].sum())  # q
        if share <= _NOBODY:  # where all are fakes no price is felt
            share, self._point, self._excess = 1.0, None, np.zeros_like(self._excess)
        excess = self._excess
        for _ in range(_MOST_PASSES):
            honest = 1 / (1 + excess)
            cost = np.maximum(self._totals, 1.0) * honest * (1 + price * honest)  # p_r
            scales = share * reports / cost
            ascent = self._maximised(self._sources, scales[self._of_round], self._point)
            point = ascent.distribution
            share = max(float(point[: self._rows].sum()), _LEAST_HONEST)
            sent = np.bincount(self._of_round, point[self._rows :], self._totals.size)
            before, excess = excess, scales * sent / share
            self._point, self._excess = point, excess
            if np.abs(excess - before).max() <= _SETTLED * (1 + excess.max()):
                break
        fakes = scales[self._of_round] * point[self._rows :] / share  # t
        of_all = self._totals / (1 + excess)
        law = self._honest._push(point[: self._rows] / share)
        law[self._sources] += fakes
        of_seen = self._round[self._seen]
        total = float(self._counts[self._seen] @ np.log(law / (1 + excess[of_seen])))
        numbers, lack = fakes * of_all[self._of_round], ascent.certificate * reports
        return FakesFit(point[: self._rows] / share, numbers, total, lack)

    def standing_out(self) -> FloatArray:
        """How much each report stands out from the likeliest map and fakes: Σ z² over the tallies.

        z is the score of one more suspect, (n/μ − 1) for n reports where μ are expected, by what is left
        of its information n/μ² when the map may follow; only surpluses count. Tallies must have the
        same reports. Suspects, and what the map can follow wherever it goes, are zero.
        """
        fit = self.fit()
        fakes = np.bincount(self._of_round, fit.numbers, self._totals.size)
        honest = (self._totals - fakes)[self._round[self._seen]]  # by column seen
        expected = honest * self._honest._push(fit.distribution)  # μ
        expected[self._sources] += fit.numbers
        expected = np.maximum(expected, np.finfo(float).tiny)
        # (cells with people, seen): what one more person of each adds
        rows = self._honest.matrix()[fit.distribution > 0] * honest
        free = np.ones(self._seen.size, dtype=bool)
        free[self._sources] = False
        counts = self._counts[self._seen]
        weighted = rows[:, free] * (np.sqrt(counts) / expected)[free]
        scale = np.sqrt(np.square(weighted).sum(axis=1, keepdims=True))
        weighted /= np.maximum(scale, np.finfo(float).tiny)
        information = weighted @ weighted.T + _RIDGE * np.eye(len(rows))
        followed = np.square(np.linalg.solve(np.linalg.cholesky(information), weighted)).sum(axis=0)
        surplus = np.zeros(self._seen.size)
        surplus[free] = (counts - expected)[free] / np.sqrt(counts[free])
        rest = np.full(self._seen.size, 1.0)
        rest[free] = 1 - followed
        scores = np.where(rest > _FOLLOWED, surplus / np.sqrt(np.maximum(rest, _FOLLOWED)), 0.0)
        everywhere = np.zeros(self._counts.size)
        everywhere[self._seen] = np.square(np.maximum(scores, 0.0))
        return np.asarray(everywhere.reshape(len(self._sizes), -1).sum(axis=0))

    def _maximised(self, sources: IntArray, scales: FloatArray, start: FloatArray | None) -> Ascent:
        """The fit of map and sources, from a start or from nowhere."""
        near = start
        if start is not None:
            honest = float(start[: self._rows].sum())
            near = start + (_BARELY if honest > _NOBODY else _LEAST_HONEST)
            near /= near.sum()
        ascent = maximise(
            WithFakes(self._honest, sources, scales),
            self._counts[self._seen],
            start=near,
            stop=CertifiedWithin(_TOLERANCE, _MOST_STEPS),
            accelerate=ActiveSetNewton() if start is None else ActiveSetNewton(_WARM_STEPS),
        )
        unknowns, held = self._rows + sources.size, np.count_nonzero(ascent.distribution)
        whole = min(ascent.steps, _LEAVING) if start is None else 0
        products = ascent.steps * (_PLAIN * unknowns + float(held) ** 2) + whole * unknowns**2
        self._products += products * self._seen.size
        if self._products > self._most_products:
            raise TooLarge(
                f"suspects ({len(self.suspects)}) must be fewer to be fitted within "
                f"{self._most_products:.2g} products; name fewer, or give fewer tallies"
            )
        return ascent

    def range(self, level: float = 0.95) -> FakesRange:
        """The bounds of the number of fakes, each one-sided at ``level``.

        A bound is where the log-likelihood, maximised over everything but the number, has dropped by
        κ²/2 from its maximum, κ the quantile of the normal law.
        """
        drop = float(scipy.special.ndtri(part("level", level))) ** 2 / 2
        likeliest = self.fit()

        def above(fit: FakesFit) -> float:
            """How far a fit lies above the likelihood of a bound: what is below is safe to say."""
            return 1 - (likeliest.log_likelihood - fit.log_likelihood) / drop

        def at_gift(gift: float) -> FakesFit:
            return self.fit(-gift)

        near, fewest = _DROP_TOLERANCE, self.honest
        if above(fewest) < 0:
            fewest = safe_root(
                self.fit, above, [0.3], within=(_LEAST_PRICE, _MOST_PRICE), tolerance=near, step=_JUMP,
                end_excess=lambda: -1.0,  # at such a price nothing is fake
            ).result  # fmt: skip
        try:
            span = _LEAST_PRICE, _MOST_GIFT
            most = safe_root(at_gift, above, [0.1], within=span, tolerance=near, step=_JUMP).result
        except NeverSafe:  # honest people need not have sent any of them
            most = at_gift(_MOST_GIFT)
        return FakesRange(fewest, likeliest, most)
