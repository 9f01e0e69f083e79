"""The guard: estimates without the fakes that no map of honest people explains, and only without those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import scipy

from geoveil.arrays import FloatArray, IntArray, count, indices, one_blas_thread, positive
from geoveil.channel.channel import Channel, Tally
from geoveil.errors import TooLarge, number_of
from geoveil.estimate import Estimate, Estimator, IterativeBayesianUpdate, Steps
from geoveil.estimate.bounds import held, held_between
from geoveil.estimate.fakes import FakesRange, MapAndFakes, Suspect, honest_operator
from geoveil.estimate.fitted import Observations
from geoveil.space.space import Space
from geoveil.verify.alarm import AlarmResult, PoisoningAlarm

LEVEL = 0.99
"""Of each end of the range of fakes: 99 in 100 lie above the fewest, and 99 in 100 below the most."""
MOST_NAMED = 40
"""Reports that are named at one close, at most."""
_MAY_MOVE, _UNSURE = 0.1, 0.05
"""Of the share that is taken out: a cell or block may move so far, sure or not; and the chance that
anything said to be sure of any of them is not."""
_MOST_TALLIES = 8
_FIT_PRODUCTS, _MOST_PRODUCTS = 10_000_000_000, 300_000_000_000
"""Of one of the first steps of a fit, unknowns and suspects squared times reports: a second or two on one
core; and of all, a minute or so."""


class Alarm(Protocol):
    """Whatever tells suspicious reports, in the newest tallies."""

    def check(self, tallies: Iterable[Tally], estimate: Estimate) -> AlarmResult:
        """Whether the reports fit the estimate."""


class Suspicion(NamedTuple):
    """A report of a mechanism that fakes were found to send, and how many of them are fakes."""

    mechanism: Channel
    report: int
    least: int = 0
    most: int = 0


@dataclass(frozen=True, eq=False)
class Guarded:
    """An estimate made with a guard, and what the guard did.

    Arrays go tally by tally, those of equal mechanisms added up.
    """

    estimate: Estimate
    """From what was left."""
    alarms: tuple[AlarmResult, ...]
    """The reports as received, then with the likeliest fakes of those named so far set apart."""
    received: tuple[Tally, ...]
    taken: tuple[IntArray, ...]
    """What was taken out: the fewest fakes that explain the reports."""
    most: tuple[IntArray, ...]
    """The most fakes that the reports leave room for, among those named."""
    named: tuple[int, ...] = ()
    """The reports that may be sent by fakes, in the order in which they were named."""
    why_not: str = ""
    """Why nothing was taken out although reports were named."""

    @property
    def left(self) -> tuple[Tally, ...]:
        """What the estimate is made from."""
        return _without(self.received, self.taken)

    @property
    def left_at_least(self) -> tuple[Tally, ...]:
        """What would be left if all were fake that may be."""
        return _without(self.received, self.most)

    @property
    def left_within_range(self) -> list[tuple[Tally, ...]]:
        """What is left without the fewest fakes, the most, and half-way."""
        half = [(fewest + most) // 2 for fewest, most in zip(self.taken, self.most, strict=True)]
        return [self.left, _without(self.received, half), self.left_at_least]

    @property
    def fakes(self) -> IntArray:
        """How many of each report were taken out, over all rounds."""
        return np.sum(self.taken, axis=0, dtype=np.int64)

    @property
    def fake_range(self) -> tuple[int, int]:
        """The fewest and the most fakes among the reports named, over all rounds."""
        return int(sum(map(np.sum, self.taken))), int(sum(map(np.sum, self.most)))

    @property
    def suspicions(self) -> list[Suspicion]:
        """What is to be remembered where fakes are sure: every report that may be fake."""
        return self.possible if any(counts.any() for counts in self.taken) else []

    @property
    def possible(self) -> list[Suspicion]:
        """Every report that may be fake, sure or not."""
        return [
            Suspicion(tally.channel, int(y), int(least[y]), int(most[y]))
            for tally, least, most in zip(self.received, self.taken, self.most, strict=True)
            for y in np.flatnonzero(most)
        ]

    def summary(self) -> str:
        """What the guard did, in words."""
        verdict, (fewest, most) = self.alarms[0].summary(), self.fake_range
        if not fewest:
            because = f": {self.why_not}" if self.why_not else ""
            return f"{verdict} The guard took nothing out{because}."
        kinds = sum(1 for number in np.sum(self.most, axis=0) if number)
        rest = "still does not fit" if self.alarms[-1].raised else "fits"
        return (
            f"{verdict} Of {kinds} kind{'' if kinds == 1 else 's'} of report at least {fewest} and at "
            f"most {most} are fake, each with {100 * LEVEL:.0f} % confidence; the guard took out "
            f"{fewest}. Without "
            f"the likeliest number of them, what is left {rest} a map of honest people. How many more fakes "
            "look like honest people nobody can tell."
        )


def _without(tallies: Sequence[Tally], fakes: Sequence[IntArray]) -> tuple[Tally, ...]:
    pairs = zip(tallies, fakes, strict=True)
    return tuple(Tally(tally.channel, tally.counts - counts) if counts.any() else tally
                 for tally, counts in pairs)  # fmt: skip


@dataclass(frozen=True)
class GuardedUpdate:
    """The iterative Bayesian update, without the fakes that no map of honest people explains.

    Law: estimate; where the alarm names a report, give it an unknown number of fakes in every round and
    fit map and fakes together (:class:`~geoveil.estimate.fakes.MapAndFakes`); name what stands out from
    both, up to ``most`` reports, and ask the alarm again about what is left. Then take out the *fewest* fakes
    that explain the reports, a one-sided 99 % bound, and estimate from the rest; where several are named, no
    place is moved by that farther than is sure. Where honest people alone explain them, or where more
    stand out than may be named, nothing is taken out. ``most = 0`` only looks.
    Guarantee: fewer reports are taken out than there are fakes, but for one time in a hundred where the named
    are the guilty; without an alarm it is the plain update. Fakes that honest people could have sent
    stay, and so does some of every crowd of fakes beside people: docs/robustness.md measures it.
    Cost: an alarm or two and some fifty fits for up to ``most`` reports, of the newest tallies that a fit can
    take (up to eight; none above two thousand cells, or eight hundred where places in cells are open). Where
    they take more than a minute or so nothing is taken out, which is said.

    >>> import numpy as np
    >>> import geoveil as gv
    >>> from geoveil.verify.guard import GuardedUpdate
    >>> mechanism = gv.LinearGeometric(gv.Line(30), epsilon_per_unit=0.7)
    >>> people = np.repeat([5, 6, 20], 1500)
    >>> honest = mechanism.tally(mechanism.sample(people, randomness=gv.seeded(1)))
    >>> guarded = GuardedUpdate().inspect(honest + mechanism.tally(np.full(250, 13)))
    >>> fewest, most = guarded.fake_range
    >>> np.flatnonzero(guarded.fakes).tolist(), 200 < fewest <= 250 <= most < 300
    ([13], True)
    """

    alarm: Alarm = field(default_factory=PoisoningAlarm)
    estimator: Estimator = field(default_factory=IterativeBayesianUpdate)
    most: int = MOST_NAMED
    passes: int = 2
    """How often the alarm is asked again after what it named was set apart, at most."""
    least: int = 1
    """Reports that every round must keep: where fewer would be left, nothing is taken out."""
    effort: float = 1.0
    """How much of the minute or so that counting the fakes may take."""

    def __post_init__(self) -> None:
        count("most", self.most, least=0)
        count("passes", self.passes)
        count("least", self.least)
        positive("effort", self.effort)

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from what the guard left."""
        return self.inspect(tallies).estimate

    @one_blas_thread()
    def inspect(
        self, tallies: Tally | Iterable[Tally], *, remembered: Iterable[Suspicion] = ()
    ) -> Guarded:
        """The estimate, the alarms on the way to it, and how many reports were taken out.

        ``remembered`` is what earlier closes found. Of mechanisms whose tallies are fitted now the
        fakes are counted again; of older ones they stay out as they were; others are passed over.
        """
        inspection = _Inspection(self, Observations(tallies).tallies, list(remembered))
        try:
            while inspection.named_more():
                pass
            return inspection.result()
        except TooLarge:
            return inspection.given_up()

    def fitted_tallies(self, cells: int, tallies: int, rows: int | None = None) -> int:
        """How many of the newest tallies a fit can take, of people in so many cells or ``rows`` of places."""
        for number in range(min(tallies, _MOST_TALLIES), 0, -1):
            unknowns = (rows or cells) + self.most * number
            if unknowns**2 * cells * number <= _FIT_PRODUCTS:
                return number
        return 0


class _Inspection:
    """One look of a guard at some tallies."""

    def __init__(
        self, guard: GuardedUpdate, received: Sequence[Tally], remembered: list[Suspicion]
    ) -> None:
        self.guard = guard
        self.received = tuple(received)
        places = {tally.channel: place for place, tally in enumerate(received)}
        here = [suspicion for suspicion in remembered if suspicion.mechanism in places]
        rows = honest_operator(Observations(received)).shape[0]
        fitted = guard.fitted_tallies(received[0].space.size, len(received), rows)
        self.first = len(received) - fitted
        """The place of the oldest tally that is fitted."""
        self.least, self.most = (_zeros(received) for _ in range(2))  # of older tallies
        suspects = []
        for mechanism, report, least, most in here:
            place = places[mechanism]
            indices("suspects", report, received[place].counts.size)
            if place >= self.first:
                suspects.append((place - self.first, report))
            else:
                self.least[place][report] = min(least, received[place].counts[report])
                self.most[place][report] = min(most, received[place].counts[report])
        self.remembered_reports = list(dict.fromkeys(suspicion.report for suspicion in here))
        self.named: list[int] = []
        self.too_many = False
        """Whether more reports stand out than may be named."""
        self.model: MapAndFakes | None = None
        if suspects:
            self.model = self._modelled(suspects)
        self.alarms: list[AlarmResult] = []
        self.plain = guard.estimator.fit(self.received)

    def named_more(self) -> bool:
        """Ask the alarm about what is left without the likeliest fakes; whether it named others."""
        apart = self._likeliest_fakes()
        if not all(tally.total for tally in _without(self.received, apart)):  # nothing to ask about
            if self.alarms:
                return False
            apart = _zeros(self.received)
        rest = _without(self.received, apart)
        self.alarms.append(self.guard.alarm.check(rest, self._estimated(apart)))
        again = len(self.alarms) <= self.guard.passes and self.first < len(self.received)
        return again and bool(self.alarms[-1].suspicious.size) and self._name(self.alarms[-1])

    def _name(self, alarm: AlarmResult) -> bool:
        """Name the worst report, then all that stand out from map and fakes, fitted again after a few."""
        before = len(self.named)
        above = [y for y in alarm.suspicious.tolist() if y not in self.named][:1]
        # so many, before map and fakes are fitted again
        while few := above[: min(1 + len(self.named) // 4, self.guard.most - len(self.named))]:
            self._suspect(few)
            above = self._standing_out(alarm.false_alarm)
        self.too_many = bool(above)
        return len(self.named) > before

    def _standing_out(self, false_alarm: float) -> list[int]:
        """The reports that stand out from map and fakes, the worst first.

        Where some are named already the next one need not stand out as far: of all that are named, a share
        ``false_alarm`` is named by chance (Benjamini and Hochberg's line).
        """
        assert self.model is not None
        out = self.model.standing_out()
        already = len({*self.remembered_reports, *self.named})
        chance = min(0.5, false_alarm * (already + 1) / out.size)
        line = _standing_out_from(len(self.received) - self.first, chance)
        worst = np.argsort(-out, kind="stable")
        return [int(y) for y in worst if out[y] > line and y not in self.named]

    def _modelled(self, suspects: list[Suspect]) -> MapAndFakes:
        most_products = int(self.guard.effort * _MOST_PRODUCTS)
        return MapAndFakes(self.received[self.first :], suspects, most_products=most_products)

    def _suspect(self, reports: list[int]) -> None:
        fitted = self.received[self.first :]
        suspects = [(place, y) for y in reports for place in range(len(fitted))]
        if self.model is None:
            self.model = self._modelled(suspects)
        else:
            self.model.suspect(suspects)
        self.named += reports

    def _likeliest_fakes(self) -> list[IntArray]:
        """The likeliest fakes of the fitted tallies, and what was taken out of older ones."""
        apart = [counts.copy() for counts in self.least]
        if self.model is not None and self.model.suspects:
            numbers = self.model.numbers_by_tally(self.model.fit().numbers)
            for place, fakes in enumerate(numbers):
                apart[self.first + place] = self._whole(np.rint(fakes), self.first + place)
        return apart

    def _whole(self, numbers: FloatArray, place: int) -> IntArray:
        return np.minimum(numbers.astype(np.int64), self.received[place].counts)

    def result(self) -> Guarded:
        """The estimate without the fewest fakes."""
        least, most = self.least, self.most
        why_not = self._why_not()
        if self.model is not None and self.model.suspects:
            fakes = self.model.range(LEVEL)
            least, most = self._bounds(fakes)
            if not fakes.sure:
                why_not = "honest people alone explain these reports well enough"
            elif self.too_many:
                why_not = (
                    f"more than {self.guard.most} reports stand out, and those that are left would only "
                    "weigh more"
                )
                least = _zeros(self.received)
            elif self._too_few(least):
                why_not = (
                    f"fewer than {number_of(self.guard.least, 'report')} of a round would be left"
                )
                least = _zeros(self.received)
        return Guarded(
            self._moved_surely(least), tuple(self.alarms), self.received, tuple(least), tuple(most),
            tuple(dict.fromkeys([*self.remembered_reports, *self.named])), why_not,
        )  # fmt: skip

    def _moved_surely(self, fakes: Sequence[IntArray]) -> Estimate:
        """The estimate without the fewest fakes, no place moved farther than is sure.

        Where several reports are named the fakes are spread, and some may be where nothing shows them: they
        would weigh more when the others are taken out. So a cell, or a cell with those around it, moves by
        a tenth of what was taken out; or, if that is more, up to the low end of its own bars or down to the
        high end, both wide enough for all places at once; or up by the largest fall of one,
        which is about as far as the plain estimate was moved.
        """
        estimate = self._estimated(fakes)
        if estimate is self.plain or len({*self.remembered_reports, *self.named}) == 1:
            return estimate
        may = _MAY_MOVE * sum(int(counts.sum()) for counts in fakes) / self.plain.total
        regions = cells_and_blocks(estimate.space)
        members = np.zeros((len(regions), estimate.space.size))
        for number, region in enumerate(regions):
            members[number, region] = 1.0
        before, after = (members @ fit.distribution for fit in (self.plain, estimate))
        low, high = estimate.errors.interval(1 - _UNSURE / len(regions), members)
        least = np.minimum(before - may, high)
        most = np.maximum(before + may, np.maximum(low, (before - np.maximum(after, least)).max()))
        nearest = held_between(estimate.distribution, members, least, most, self.plain.distribution)
        words = "no place moved farther than is sure where others hold fakes"
        return held(estimate, _without(self.received, fakes), nearest, words)

    def given_up(self) -> Guarded:
        """The plain estimate: how many fakes there are is not known in time."""
        if not self.alarms:
            self.alarms.append(self.guard.alarm.check(self.received, self.plain))
        nothing = tuple(_zeros(self.received))
        return Guarded(
            self.plain, tuple(self.alarms), self.received, nothing, nothing,
            why_not="counting the fakes among the reports that stand out takes too long",
        )  # fmt: skip

    def _estimated(self, apart: Sequence[IntArray]) -> Estimate:
        """The estimate without some reports, in as many steps as with them, so that nothing else changes."""
        if not any(counts.any() for counts in apart):
            return self.plain
        estimator = self.guard.estimator
        if isinstance(estimator, IterativeBayesianUpdate) and estimator.accelerate is None:
            words = "as many as with the reports left out"
            steps = Steps(max(1, self.plain.steps), words, uneven=self.plain.uneven)
            estimator = replace(estimator, stop=steps)
        return estimator.fit(_without(self.received, apart))

    def _bounds(self, fakes: FakesRange) -> tuple[list[IntArray], list[IntArray]]:
        """The fewest and the most fakes of every tally, in whole numbers."""
        assert self.model is not None
        least, most = ([counts.copy() for counts in end] for end in (self.least, self.most))
        ends = (self.model.numbers_by_tally(fit.numbers) for fit in (fakes.least, fakes.most))
        for place, (fewest, greatest) in enumerate(zip(*ends, strict=True), start=self.first):
            least[place] = self._whole(np.floor(fewest + 1e-6), place)
            most[place] = self._whole(np.ceil(np.maximum(greatest, fewest) - 1e-6), place)
        return least, most

    def _too_few(self, fakes: Sequence[IntArray]) -> bool:
        least = self.guard.least
        pairs = zip(self.received, _without(self.received, fakes), strict=True)
        return any(rest.total < min(least, received.total) for received, rest in pairs)

    def _why_not(self) -> str:
        """Why reports that the alarm named were not looked into."""
        if not self.alarms[0].suspicious.size:
            return ""
        if self.first == len(self.received):
            cells = self.received[0].space.size
            return f"fitting map and fakes together over {cells:,} cells would take too long"
        return "it only looks" if not self.guard.most else ""


def cells_and_blocks(space: Space) -> list[IntArray]:
    """Every cell, then every cell with those around it: 3 × 3 on a grid."""
    near_km = 1.5 * space.least_distance_km
    cells = range(space.size)
    blocks = [np.flatnonzero(space.distances_from_km(cell) <= near_km) for cell in cells]
    return [*(np.array([cell]) for cell in cells), *blocks]


@cache
def _standing_out_from(rounds: int, chance: float) -> float:
    """What Σ max(z, 0)² over so many rounds exceeds with a small chance, z standard normal."""
    some = np.arange(1, rounds + 1)
    shares = np.exp(
        scipy.special.gammaln(rounds + 1)
        - scipy.special.gammaln(some + 1)
        - scipy.special.gammaln(rounds - some + 1)
    )

    def beyond(value: float) -> float:
        return float(shares @ scipy.special.gammaincc(some / 2, value / 2)) / 2**rounds - chance

    return float(scipy.optimize.brentq(beyond, 0.0, 1e3)) if beyond(0.0) > 0 else 0.0


def _zeros(tallies: Sequence[Tally]) -> list[IntArray]:
    return [np.zeros_like(tally.counts) for tally in tallies]
