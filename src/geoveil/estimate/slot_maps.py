"""Maps of slots, such as the hours of a day: one for each, which learn from each other where that helps.

The map of a slot is an ascent on the reports of that slot alone. Where it begins is what it owes to the
others: at the pooled map of all slots, half-way, or nowhere in particular; held-out reports decide, once
for all slots, and with it the number of steps. Smoothing between neighbouring slots is not done: hours
truly differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from geoveil.arrays import FloatArray, one_blas_thread, uniform
from geoveil.channel.channel import Tally
from geoveil.errors import InvalidInput
from geoveil.estimate.fitted import Estimate, Observations
from geoveil.estimate.objective import Objective, em_path
from geoveil.estimate.stopping import CrossValidated, Search, Steps

if TYPE_CHECKING:
    from geoveil.estimate.bayesian_update import IterativeBayesianUpdate

_STARTS = {
    1.0: "the pooled map of all slots",
    0.5: "half-way between the pooled map and the uniform one",
    0.0: "the uniform map",
}
"""How much of the pooled map the ascents begin with → in words."""
_LEAST = 1e-9
"""Of every start lies evenly everywhere: what begins at zero stays there."""


class SlotMaps(Mapping[Hashable, Estimate]):
    """One estimate for each slot that has reports, in the order in which the slots were given."""

    def __init__(
        self,
        maps: Mapping[Hashable, Estimate],
        pooled: Estimate,
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

    def __getitem__(self, slot: Hashable) -> Estimate:
        if slot in self.empty:
            raise KeyError(f"slot ({slot!r}) must have reports to have a map; it has none")
        return self._maps[slot]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __repr__(self) -> str:
        return f"SlotMaps({len(self)} slots, each from {self.started}, {self.pooled.total} reports)"


@one_blas_thread()
def fit_slots(
    update: IterativeBayesianUpdate,
    slots: Mapping[Any, Tally | Iterable[Tally]],
    pooled: Estimate | None = None,
    searched: int | None = None,
) -> SlotMaps:
    """One map a slot; see :meth:`IterativeBayesianUpdate.fit_slots`."""
    given = {
        slot: [tallies] if isinstance(tallies, Tally) else list(tallies)
        for slot, tallies in slots.items()
    }
    full = {slot: [tally for tally in tallies if tally.total] for slot, tallies in given.items()}
    empty = [slot for slot, tallies in full.items() if not tallies]
    full = {slot: tallies for slot, tallies in full.items() if tallies}
    if not full:
        raise InvalidInput("slots must hold at least one report; all are empty")
    if pooled is None:
        pooled = update.fit([tally for tallies in full.values() for tally in tallies])
    if isinstance(update.stop, CrossValidated):
        every = max(1, -(-len(full) // (searched or len(full))))
        some = list(full.values())[::every]
        share, steps = _chosen(update, update.stop, some, pooled.distribution)
        how = f"chosen by cross-validation for all slots together ({update.stop.folds} folds)"
        stop = replace(update, stop=Steps(steps, how), start=_start(pooled.distribution, share))
        started = f"{_STARTS[share]}, chosen by cross-validation"
    else:
        stop = replace(update, start=_start(pooled.distribution, 1.0))
        started = _STARTS[1.0]
    maps = {slot: stop.fit(tallies) for slot, tallies in full.items()}
    return SlotMaps(maps, pooled, started, empty)


def _start(pooled: FloatArray, share: float) -> FloatArray:
    even = uniform(pooled.size)
    start = share * ((1 - _LEAST) * pooled + _LEAST * even) + (1 - share) * even
    return np.asarray(start / start.sum())


def _chosen(
    update: IterativeBayesianUpdate,
    rule: CrossValidated,
    slots: list[list[Tally]],
    pooled: FloatArray,
) -> tuple[float, int]:
    """The share of the pooled map to begin with and the steps that predict held-out reports best."""
    problems = []
    for number, tallies in enumerate(slots):
        observations = Observations(tallies)
        held_out = replace(rule, repeats=1, seed=rule.seed + number).parts(observations.counts)
        trained = observations.counts - held_out
        usable = (held_out.sum(axis=-1) > 0) & (trained.sum(axis=-1) > 0)
        if usable.any():
            objective = Objective(update.moved(observations.operator), trained[usable])
            problems.append((objective, objective.others(held_out[usable])))
    if not problems:
        return 1.0, 0
    found = {share: _best(rule, problems, _start(pooled, share)) for share in _STARTS}
    share = max(found, key=lambda each: found[each][1])
    best = found[share][0]
    return share, min(rule.maximum, round(best * rule.folds / (rule.folds - 1)))


def _best(
    rule: CrossValidated, problems: list[tuple[Objective, FloatArray]], start: FloatArray
) -> tuple[int, float]:
    """The number of steps with the largest held-out log-likelihood over all slots, and that."""
    search = Search()
    paths = [
        em_path(objective, np.tile(start, (len(held_out), 1))) for objective, held_out in problems
    ]
    for step, points in enumerate(zip(*paths, strict=True)):
        if step < search.due and step < rule.maximum:
            continue
        scored = zip(points, problems, strict=True)
        search.add(step, sum(point.score(held_out) for point, (_, held_out) in scored))
        if rule.is_over(search, step) or step >= rule.maximum:
            return search.best, search.best_value
    raise AssertionError("the paths have no end")
