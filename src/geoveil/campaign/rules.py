"""How a campaign designs its mechanisms and estimates: at a promise, or as PRIVIC published it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np

from geoveil.arrays import FloatArray, count, finite, positive
from geoveil.campaign.elastic_design import Between, blahut_arimoto, elastic
from geoveil.campaign.rounds import NewestRounds
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.guarantee import BetweenPositions, GeoIndistinguishability, Guarantee
from geoveil.channel.kernel import lattice_beneath
from geoveil.document.wire import MOST_LEVELS
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.estimate import Estimate, Estimator, IterativeBayesianUpdate, Steps
from geoveil.position.positional import MOST_SLACK
from geoveil.space import Space
from geoveil.verify.guard import GuardedUpdate


class Rule(Protocol):
    """How a campaign designs the next mechanism and estimates from its rounds."""

    pools: ClassVar[bool]
    """Whether an estimate is made from all rounds; otherwise from the last one alone."""

    @property
    def guarantee(self) -> Guarantee:
        """What every mechanism promises."""

    @property
    def promises(self) -> tuple[float, ...]:
        """What people may choose among, in ε per km, the strongest promise (the smallest ε) first."""

    @property
    def choices(self) -> Sequence[Rule]:
        """The rule of every promise by itself, in the same order."""
        return (self,)

    def design(self, space: Space, believed: FloatArray) -> Channel:
        """The mechanism of the next round, given what is believed now; of one promise."""

    def steering(self, space: Space, estimated: FloatArray) -> FloatArray:
        """What the next mechanism is designed for after an estimate from reports."""
        return estimated

    def estimate(self, tallies: Sequence[Tally], believed: FloatArray) -> Estimate:
        """The estimate from the tallies of the rounds so far, oldest first."""

    def guard(self, least: int) -> GuardedUpdate | None:
        """What estimates in a guarded campaign; every round keeps at least so many reports."""
        return None

    @property
    def estimator(self) -> Estimator:
        """What estimates from a part of the reports."""

    @property
    def trusted_seed(self) -> bool:
        """Whether the first round is known to be honest: no other takes over, and it bounds all estimates."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """The rule as plain JSON values."""


@dataclass(frozen=True)
class PromiseRule:
    """A certified promise and the dial; the estimate is GIBU over the tallies of every round.

    ``most_leverage`` bounds what a fake report may weigh under every mechanism (see ``elastic``). With
    ``guarded`` a :class:`~geoveil.verify.guard.GuardedUpdate` estimates, at the cost of some hundred
    estimates at every close. ``trusted_seed`` says that the reports of the first round, those that come
    before it closes, are known to be honest: later estimates are held to its error bars
    (:func:`~geoveil.estimate.bounds.held_to_seed`).
    Mechanisms after the first are designed for the estimate averaged over neighbouring cells
    (:func:`averaged`). ``between="positions"`` promises between any two positions, as every campaign of the
    service does. ``promises_per_km`` are several promises that people choose among, each with a mechanism
    of its own; ``epsilon_per_km`` is then the largest of them, which no report exceeds.
    Reference: docs/privic.md, docs/choice-and-time.md.
    """

    pools: ClassVar[bool] = True
    epsilon_per_km: float
    camouflage: float = 0.5
    estimator: Estimator = field(default_factory=IterativeBayesianUpdate)
    most_leverage: float | None = None
    guarded: bool = False
    between: Between = "cells"
    trusted_seed: bool = False
    promises_per_km: tuple[float, ...] = ()

    @classmethod
    def offering(cls, promises_per_km: Iterable[float], **settings: Any) -> PromiseRule:
        """The rule of a campaign that offers several promises, in any order.

        >>> PromiseRule.offering([2, 0.5, 1]).promises
        (0.5, 1.0, 2.0)
        """
        if not isinstance(promises_per_km, Iterable):
            raise InvalidInput(
                f"promises_per_km ({promises_per_km!r}) must be a list, such as [0.5, 1.0, 2.0]; one "
                "promise is epsilon_per_km"
            )
        promises = tuple(sorted(positive("promises_per_km", value) for value in promises_per_km))
        if not 1 <= len(promises) <= MOST_LEVELS or len(set(promises)) < len(promises):
            numbers = ", ".join(f"{promise:g}" for promise in promises)
            raise InvalidInput(
                f"promises_per_km ({numbers}) must be 1 to {MOST_LEVELS} numbers, all different"
            )
        several = promises if len(promises) > 1 else ()
        return cls(promises[-1], promises_per_km=several, **settings)

    def __post_init__(self) -> None:
        positive("epsilon_per_km", self.epsilon_per_km)
        several = tuple(map(float, self.promises_per_km))
        object.__setattr__(self, "promises_per_km", several)
        rising = all(one < other for one, other in pairwise(several))
        if several and not (rising and several[-1] == self.epsilon_per_km and several[0] > 0):
            raise InvalidInput(
                "promises_per_km must rise and end with epsilon_per_km; use PromiseRule.offering"
            )
        dial = finite("camouflage", self.camouflage, least=0, most=1)
        object.__setattr__(self, "camouflage", dial)

    @property
    def guarantee(self) -> Guarantee:
        if self.between == "positions":
            return BetweenPositions(self.epsilon_per_km, MOST_SLACK)
        return GeoIndistinguishability(self.epsilon_per_km)

    @property
    def promises(self) -> tuple[float, ...]:
        return self.promises_per_km or (self.epsilon_per_km,)

    @property
    def choices(self) -> tuple[PromiseRule, ...]:
        alone = replace(self, promises_per_km=())
        return tuple(replace(alone, epsilon_per_km=promise) for promise in self.promises)

    def design(self, space: Space, believed: FloatArray) -> Channel:
        """At the promise and the dial, Blahut–Arimoto started from uniform."""
        return elastic(
            space,
            believed,
            epsilon_per_km=self.epsilon_per_km,
            camouflage=self.camouflage,
            most_leverage=self.most_leverage,
            between=self.between,
        )

    def steering(self, space: Space, estimated: FloatArray) -> FloatArray:
        """The estimate averaged over neighbouring cells, so that fakes cannot strip camouflage."""
        return averaged(space, estimated, epsilon_per_km=self.epsilon_per_km, between=self.between)

    def estimate(self, tallies: Sequence[Tally], believed: FloatArray) -> Estimate:
        """All rounds together, from a uniform start."""
        return self.estimator.fit(tallies)

    def guard(self, least: int) -> GuardedUpdate | None:
        """The same estimator behind the alarm of the newest rounds."""
        if not self.guarded:
            return None
        return GuardedUpdate(NewestRounds(len(self.promises)), self.estimator, least=least)

    def to_dict(self) -> dict[str, Any]:
        """The promise, the dial and, where they are used, the bound and the guard."""
        estimator = self.estimator
        own = not isinstance(estimator, IterativeBayesianUpdate) or estimator.start is not None
        if own or vars(estimator) != vars(IterativeBayesianUpdate()):
            raise InvalidInput(
                "a rule must estimate with IterativeBayesianUpdate() as it comes to be saved; a campaign "
                "with an estimator of its own cannot go on where it stopped"
            )
        values = {
            "kind": "promise",
            "epsilon_per_km": self.epsilon_per_km,
            "camouflage": self.camouflage,
            "most_leverage": self.most_leverage,
            "guarded": self.guarded or None,
            "trusted_seed": self.trusted_seed or None,
            "between": None if self.between == "cells" else self.between,
            "promises_per_km": list(self.promises_per_km) or None,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class PublishedRule(Rule):
    """The paper's: Blahut–Arimoto at β, then EM of fixed length on the last round alone.

    ``design_steps`` is the paper's N_BA and counts channels: the first comes from uniform c, so that
    N_BA of them are N_BA − 1 updates of c, ``design_updates``. Everywhere else a step is an update:
    the same weights are those of ``blahut_arimoto(stop=Steps(N_BA − 1))``. ``update_steps`` is the
    paper's N_IBU, steps of EM from the estimate before.
    Reference: PRIVIC Alg. 1, estimating with the channel that made the reports (docs/privic.md).
    """

    pools: ClassVar[bool] = False
    beta_per_km: float
    design_steps: int
    update_steps: int

    def __post_init__(self) -> None:
        positive("beta_per_km", self.beta_per_km)
        count("design_steps", self.design_steps)
        count("update_steps", self.update_steps)

    @property
    def guarantee(self) -> Guarantee:
        """What every mechanism promises: 2β, whatever the weights."""
        return GeoIndistinguishability(2 * self.beta_per_km)

    @property
    def promises(self) -> tuple[float, ...]:
        return (2 * self.beta_per_km,)

    @property
    def design_updates(self) -> int:
        """How often Blahut–Arimoto updates c: one less than the paper's N_BA."""
        return self.design_steps - 1

    def design(self, space: Space, believed: FloatArray) -> Channel:
        """Blahut–Arimoto from uniform weights, no floor."""
        stop = Steps(self.design_updates)
        return blahut_arimoto(space, believed, beta_per_km=self.beta_per_km, stop=stop)

    @property
    def estimator(self) -> Estimator:
        """The same number of steps, from uniform."""
        return IterativeBayesianUpdate(stop=Steps(self.update_steps))

    def estimate(self, tallies: Sequence[Tally], believed: FloatArray) -> Estimate:
        """The last round, from what was believed before it."""
        start = np.maximum(believed, np.finfo(np.float64).tiny)  # EM never comes back from zero
        update = IterativeBayesianUpdate(stop=Steps(self.update_steps), start=start / start.sum())
        return update.fit(tallies[-1])

    def to_dict(self) -> dict[str, Any]:
        """β and the two numbers of steps."""
        steps = {"design_steps": self.design_steps, "update_steps": self.update_steps}
        return {"kind": "published", "beta_per_km": self.beta_per_km, **steps}


_KINDS: dict[str, Callable[..., Rule]] = {"promise": PromiseRule, "published": PublishedRule}


def rule_from_dict(values: Mapping[str, Any]) -> Rule:
    """The rule that ``to_dict`` described."""
    fields = dict(values)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise InvalidFile(f"the rule of a campaign ({kind!r}) must be one of {', '.join(_KINDS)}")
    return _KINDS[kind](**fields)


# --- What steers the next mechanism: the estimate averaged over neighbouring cells
#
# Camouflage hides a lonely person in the nearest crowd, so whoever can make a lonely place look crowded
# strips it. Fakes that behave like people of that place cannot be told from people; but an average over
# the cells around lets no single place look crowded, whatever the fakes send.


_SHARP = {"cells": 2.0, "positions": 4.0}
"""ε × cell from which the next cells around are enough: people are told apart where they stand."""
_REACH = 2.5
"""Cells are averaged as far as so many times 1/ε, and two cells at least."""


def reach_in_cells(epsilon_per_km: float, cell_km: float, between: Between) -> int:
    """How many cells to each side are averaged: 1 (3 × 3), 2 (5 × 5), 3 (7 × 7) or more for wider noise.

    >>> [reach_in_cells(epsilon, 1.0, "cells") for epsilon in (4, 2, 1, 0.5)]
    [1, 1, 3, 5]
    >>> reach_in_cells(2.0, 1.0, "positions")
    2
    """
    product = epsilon_per_km * cell_km
    return 1 if product >= _SHARP[between] else max(2, math.ceil(_REACH / product))


def averaged(
    space: Space, believed: FloatArray, *, epsilon_per_km: float, between: Between
) -> FloatArray:
    """A distribution averaged over the cells around each cell, scaled to a sum of one.

    On a grid the mean over the rows and columns within :func:`reach_in_cells`, where cells beyond the edge
    count as empty (fewer cells to share with would make a place at the edge look more crowded), as do those
    that a mask leaves out; among places the mean over as many nearest ones.
    Cost: rows² · columns and rows · columns² products on a grid, cells² elsewhere.

    >>> import geoveil as gv
    >>> city = gv.Grid(rows=9, columns=9, cell_km=1.0)
    >>> lonely = np.zeros(81)
    >>> lonely[40] = 1.0
    >>> steering = averaged(city, lonely, epsilon_per_km=1.0, between="cells")
    >>> int((steering > 0).sum()), round(float(steering.max()), 3)
    (49, 0.02)
    """
    if space.size == 1:
        return believed
    reach = partial(reach_in_cells, epsilon_per_km, between=between)
    beneath = lattice_beneath(space)
    if beneath is not None:
        mean = _around(beneath.spread(believed, 0.0), reach(beneath.pitch_km))[beneath.mask]
    else:
        distances = [space.distances_from_km(cell) for cell in range(space.size)]
        spacing = float(np.median([np.partition(row, 1)[1] for row in distances]))
        number = (2 * reach(max(spacing, np.finfo(float).tiny)) + 1) ** 2
        nearest = np.stack([np.argsort(row, kind="stable")[:number] for row in distances])
        mean = believed[nearest].mean(axis=1)
    return np.asarray(mean / mean.sum())


def _around(believed: FloatArray, reach: int) -> FloatArray:
    """(rows, columns) → the same, the means over the cells within reach, those beyond the ends empty."""
    places = (np.arange(size) for size in believed.shape)
    rows, columns = ((np.abs(at[:, None] - at) <= reach) / (2.0 * reach + 1.0) for at in places)
    return np.asarray(rows @ believed @ columns)
