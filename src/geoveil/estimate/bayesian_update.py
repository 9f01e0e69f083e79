"""The iterative Bayesian update: from tallies to an estimate, or to one for each slot, such as an hour."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, able, instance, one_blas_thread, teller, uniform
from geoveil.channel.backend import backend_named, backend_of, host_array
from geoveil.channel.channel import Tally
from geoveil.channel.operator import Operator
from geoveil.errors import InvalidInput, number_of
from geoveil.estimate import bars, fitted, stopping
from geoveil.estimate.em import Accelerator, check_accelerator, maximise
from geoveil.estimate.identifiability import tell_apart
from geoveil.estimate.objective import Objective, Point, em_path, full_support, point_after
from geoveil.estimate.uncertainty import FisherInformation, Uncertainty
from geoveil.estimate.uneven import MAP_SHOWS, PlacesOfAll
from geoveil.space import Points

_LEAST_STEPS = 50
"""A bootstrap goes at least so far: an estimate that stayed at its start would seem certain."""
_NOTICED = 8.0
"""Nats over all reports by which people taken to stand evenly in their cells must predict better: by chance
alone two such fits differ by some nats."""
_STARTS = {
    1.0: "the pooled map of all slots",
    0.5: "half-way between the pooled map and the uniform one",
    0.0: "the uniform map",
}
"""How much of the pooled map the ascents of slots begin with → in words."""
_BY_SLOT = "tallies by slot, such as {8: tally}"
_LEAST = 1e-9
"""This share of every start lies evenly everywhere: what begins at zero stays there."""


class _Unknowns(NamedTuple):
    """The unknowns of an ascent: the cells, or the places in them."""

    operator: Operator
    start: FloatArray
    stop: stopping.Stop
    by_cell: Callable[[FloatArray], FloatArray]
    """(…, unknowns) → (…, cells)."""


def _uneven(stop: stopping.Stop) -> bool:
    """Whether the ascent moves the places in the cells."""
    return isinstance(stop, stopping.Steps) and stop.uneven


class SlotMaps(Mapping[Hashable, fitted.Estimate]):
    """One estimate for each slot that has reports, in the order in which the slots were given."""

    def __init__(
        self,
        maps: Mapping[Hashable, fitted.Estimate],
        pooled: fitted.Estimate,
        started: str,
        empty: Iterable[Hashable],
    ) -> None:
        self._maps = dict(maps)
        self.pooled = pooled
        """The map of all slots together."""
        self.started = started
        """Where the ascents began, in words."""
        self.empty = tuple(empty)
        """The slots without reports, about which nothing is said."""

    def __getitem__(self, slot: Hashable) -> fitted.Estimate:
        if slot in self.empty:
            raise KeyError(f"slot ({slot!r}) must have reports to have a map; it has none")
        return self._maps[slot]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __repr__(self) -> str:
        slots, reports = number_of(len(self), "slot"), number_of(self.pooled.total, "report")
        return f"SlotMaps({slots}, each from {self.started}, {reports})"


@dataclass(frozen=True, eq=False)
class IterativeBayesianUpdate:
    """Maximum likelihood by expectation–maximisation, stopped where new reports are predicted best.

    Law: θ_x ← θ_x Σ_z q_z C[x,z]/(θC)_z from a start with full support; with several tallies the
    columns of all channels stand side by side, each report with its share of all reports. Where a cell is
    wide for its promise (ε·cell above 0.75, between positions), people stand wherever in their cells the
    reports say, unless cross-validation finds that they stand evenly.
    ``stop`` is ``CrossValidated()``, ``Steps(n)``, ``CertifiedWithin(t)`` or ``LikelihoodChange(t)``;
    ``accelerate`` is ``Squarem()`` or ``ActiveSetNewton()`` on the way to the exact maximum;
    ``uncertainty`` is ``FisherInformation()`` (the default) or ``Bootstrap()``. With ``device="cuda"``, or a
    ``start`` of CuPy or torch, the ascent runs on that device; what comes back are arrays of NumPy.
    Cost: a push and a pull of every channel per step, whatever the number of reports.
    Reference: IBU §II and Alg. 1 (IBU), FREEWILL Alg. 1 (GIBU); docs/estimation.md.

    >>> import geoveil as gv
    >>> from geoveil.estimate import CertifiedWithin, IterativeBayesianUpdate
    >>> mechanism = gv.RandomizedResponse(gv.Line(3), epsilon=2.0)
    >>> tally = gv.Tally(mechanism, [600, 250, 150])
    >>> estimate = IterativeBayesianUpdate(stop=CertifiedWithin(1e-9)).fit(tally)
    >>> estimate.distribution.round(3).tolist()
    [0.725, 0.211, 0.064]
    >>> estimate.stopped
    'certified within 1e-09 nats per report of the maximum, after ... steps'
    """

    stop: stopping.Stop = field(default_factory=stopping.CrossValidated)
    start: ArrayLike | None = None
    accelerate: Accelerator | None = None
    uncertainty: Uncertainty | None = None
    progress: stopping.Progress | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        stopping.check_stop(self.stop)
        teller(self.progress)
        check_accelerator(self.accelerate)
        if self.uncertainty is not None:
            able(
                "uncertainty",
                self.uncertainty,
                "errors",
                "gv.FisherInformation() or gv.Bootstrap()",
            )
        if self.accelerate is not None and isinstance(self.stop, stopping.CrossValidated):
            raise InvalidInput(
                "accelerate must go with a rule that seeks the maximum, because cross-validation "
                "counts plain steps; pass stop=CertifiedWithin(1e-9)"
            )

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> fitted.Estimate:
        """The estimate from one tally or from several of the same space."""
        observations = fitted.Observations(tallies)
        unknowns = self._unknowns(observations)
        ascent = maximise(
            unknowns.operator,
            observations.counts,
            start=unknowns.start,
            stop=unknowns.stop,
            accelerate=self.accelerate,
            progress=self.progress if unknowns.stop is self.stop else None,
        )
        stop, distribution = unknowns.stop, unknowns.by_cell(ascent.distribution)
        return fitted.Estimate(
            space=observations.space,
            distribution=distribution,
            total=observations.total,
            steps=ascent.steps,
            stopped=ascent.stopped,
            find_fit=lambda: observations.fit(ascent.log_likelihood, ascent.certificate),
            find_errors=lambda: self._errors(observations, distribution, stop, ascent.steps),
            find_identifiability=lambda: tell_apart(observations.operator, observations.counts),
            find_promises=lambda: fitted.promises_of(observations.tallies),
            uneven=_uneven(stop),
        )

    @one_blas_thread()
    def fit_slots(
        self,
        slots: Mapping[Any, Tally | Iterable[Tally]],
        *,
        pooled: fitted.Estimate | None = None,
        searched: int | None = None,
    ) -> SlotMaps:
        """One map for each slot, such as the hours of a day: ``fit_slots({hour: tally})[8]``.

        The ascent of a slot runs on its own reports: nothing is smoothed between neighbouring slots, since
        hours truly differ. It begins at the pooled map of all slots, at the uniform
        one or half-way, and makes the same number of steps in every slot; held-out reports choose both
        where ``stop`` is ``CrossValidated()``, else it begins at the pooled map. Slots without reports have
        no map and are named in ``empty``. ``pooled`` is the map of all slots, where it is known. With
        ``searched`` the held-out reports are those of so many slots only.
        Cost: fifteen ascents of every slot that is searched and one or two of every slot.

        >>> import geoveil as gv
        >>> mechanism = gv.RandomizedResponse(gv.Line(3), epsilon=1.0)
        >>> hours = {8: gv.Tally(mechanism, [60, 30, 20]), 9: gv.Tally(mechanism, [0, 0, 0])}
        >>> maps = gv.IterativeBayesianUpdate().fit_slots(hours)
        >>> list(maps), maps.empty, int(maps[8].distribution.argmax())
        ([8], (9,), 0)
        """
        full = slots_with_reports(slots)
        if pooled is None:
            pooled = self.fit([tally for tallies in full.values() for tally in tallies])
        instance("pooled", pooled, fitted.Estimate, "the estimate of all slots together")
        share, started, stop = 1.0, _STARTS[1.0], self.stop
        if isinstance(self.stop, stopping.CrossValidated):
            every = max(1, -(-len(full) // (searched or len(full))))
            some = list(full.values())[::every]
            share, steps = self._chosen(self.stop, some, pooled.distribution)
            how = f"chosen by cross-validation for all slots together ({self.stop.folds} folds)"
            started, stop = (
                f"{_STARTS[share]}, chosen by cross-validation",
                stopping.Steps(steps, how),
            )
        update = replace(self, stop=stop, start=_start(pooled.distribution, share))
        maps = {slot: update.fit(tallies) for slot, tallies in full.items()}
        return SlotMaps(maps, pooled, started, [slot for slot in slots if slot not in full])

    def _chosen(
        self, rule: stopping.CrossValidated, slots: list[list[Tally]], pooled: FloatArray
    ) -> tuple[float, int]:
        """The share of the pooled map to begin with and the steps that predict held-out reports best."""
        problems = []
        for number, tallies in enumerate(slots):
            observations = fitted.Observations(tallies)
            held_out = replace(rule, repeats=1, seed=rule.seed + number).parts(observations.counts)
            trained = observations.counts - held_out
            usable = (held_out.sum(axis=-1) > 0) & (trained.sum(axis=-1) > 0)
            if usable.any():
                objective = Objective(self.moved(observations.operator), trained[usable])
                problems.append((objective, objective.others(held_out[usable])))
        if not problems:
            return 1.0, 0
        searches = {
            share: rule.best(_held_out_scores(problems, _start(pooled, share)), 1.0, None)[0]
            for share in _STARTS
        }
        share = max(searches, key=lambda candidate: searches[candidate].best_value)
        scaled = round(searches[share].best * rule.folds / (rule.folds - 1))
        return share, min(rule.maximum, scaled)

    def moved(self, operator: Operator) -> Operator:
        """The operator where the ascent runs."""
        backend = backend_of(self.start) if self.device is None else backend_named(self.device)
        return operator if backend is None else operator.on(backend)

    def _unknowns(self, observations: fitted.Observations) -> _Unknowns:
        """The cells; or the places in them, unless held-out reports are predicted better by the cells.

        Crowds of real cities stand unevenly, and held-out reports can seldom tell near ε·cell = 1. The cells
        of a list, hexagons among them, are the unknowns always; their bars and the alarm are open.
        """
        first = full_support(host_array(self.start), observations.space.size)
        operator = self.moved(observations.operator)
        cells = _Unknowns(operator, first, self.stop, lambda theta: theta)
        if isinstance(observations.space, Points) or not (
            _uneven(self.stop) or isinstance(self.stop, stopping.CrossValidated)
        ):
            return cells
        places = PlacesOfAll.of(observations, shows=MAP_SHOWS)
        if places is None:
            return cells
        anywhere = self.moved(places.operator), places.spread(first)
        if not isinstance(self.stop, stopping.CrossValidated):
            return _Unknowns(*anywhere, self.stop, places.by_cell)
        meter = stopping.Meter(self.progress)
        halves = meter.first(0.5), lambda part, whole: meter.at(0.5 + 0.5 * part / whole)
        starts = (operator, first), anywhere
        even, free = (
            self.stop.found(operator, observations.counts, start, half)
            for (operator, start), half in zip(starts, halves, strict=True)
        )
        meter.at(1.0)
        if even.held_out > free.held_out + _NOTICED:
            return cells._replace(stop=even.rule)
        words = f"{free.rule.words}, people not taken to stand evenly in their cells"
        return _Unknowns(*anywhere, replace(free.rule, words=words, uneven=True), places.by_cell)

    def _errors(
        self, observations: fitted.Observations, theta: FloatArray, stop: stopping.Stop, steps: int
    ) -> bars.ErrorBars:
        method = FisherInformation() if self.uncertainty is None else self.uncertainty

        def refit(counts: FloatArray, carry_on: int) -> FloatArray:
            """The same estimate of other counts: plain steps all at once, accelerated ones one by one."""
            unknowns = again()
            operator, first = unknowns.operator, unknowns.start
            if self.accelerate is None:
                starts = np.broadcast_to(first, (*counts.shape[:-1], first.size))
                last = max(steps * carry_on, _LEAST_STEPS)
                reached = point_after(operator, counts, starts, last)
                return unknowns.by_cell(host_array(reached.theta))
            how: dict[str, Any] = {"stop": self.stop, "accelerate": self.accelerate}
            fits = [
                maximise(operator, row, start=first, **how).distribution
                for row in np.atleast_2d(counts)
            ]
            return np.reshape(fits, (*counts.shape[:-1], theta.size))

        @cache
        def again() -> _Unknowns:
            """Made again where they are asked for: of many rounds they are large."""
            return replace(self, stop=stop)._unknowns(observations)

        return method.errors(observations, theta, refit, self.progress)


def _start(pooled: FloatArray, share: float) -> FloatArray:
    """Where the ascents of slots begin, with a share of the pooled map."""
    even = uniform(pooled.size)
    start = share * ((1 - _LEAST) * pooled + _LEAST * even) + (1 - share) * even
    return np.asarray(start / start.sum())


def _held_out_scores(
    problems: list[tuple[Objective, FloatArray]], start: FloatArray
) -> Iterator[stopping.Scored]:
    """How well what was left out of all slots is predicted after 0, 1, … steps."""
    paths = [
        em_path(objective, np.tile(start, (len(held_out), 1))) for objective, held_out in problems
    ]

    def score(points: tuple[Point, ...]) -> float:
        scored = zip(points, problems, strict=True)
        return sum(point.score(held_out) for point, (_, held_out) in scored)

    for step, points in enumerate(zip(*paths, strict=True)):
        yield step, partial(score, points)


def slots_with_reports(slots: Mapping[Any, Tally | Iterable[Tally]]) -> dict[Any, list[Tally]]:
    """Of the slots that have reports: the tallies that do."""
    full: dict[Any, list[Tally]] = {}
    for slot, tallies in instance("slots", slots, Mapping, _BY_SLOT).items():
        listed = tallies if isinstance(tallies, Iterable) else [tallies]
        counted = [tally for tally in listed if instance("slots", tally, Tally, _BY_SLOT).total]
        if counted:
            full[slot] = counted
    if not full:
        raise InvalidInput("slots must hold at least one report; all are empty")
    return full
