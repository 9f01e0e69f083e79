"""How a campaign designs its mechanisms and estimates: at a promise, or as PRIVIC published it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np

from geoveil.arrays import FloatArray, count, finite, positive
from geoveil.campaign.elastic_design import Between, blahut_arimoto, elastic
from geoveil.campaign.rounds import NewestRounds
from geoveil.campaign.steering import averaged
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.guarantee import BetweenPositions, GeoIndistinguishability, Guarantee
from geoveil.document.wire import MOST_LEVELS
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.estimate import Estimate, Estimator, IterativeBayesianUpdate, Steps
from geoveil.position.positional import MOST_SLACK
from geoveil.space.space import Space
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

    ``most_leverage`` bounds what a fake report may weigh under every mechanism (see ``elastic``).
    ``guarded`` estimates with :class:`~geoveil.verify.guard.GuardedUpdate`: of the reports that the alarm
    names in the newest rounds, the fewest fakes that explain them are left out, then and at every later
    close. It costs some hundred estimates at every close.
    ``trusted_seed`` says that the reports of the first round are known to be honest: later estimates are
    held to its error bars (:func:`~geoveil.estimate.held.held_to_seed`).
    Mechanisms after the first are designed for the estimate averaged over neighbouring cells
    (:func:`~geoveil.campaign.steering.averaged`).
    ``between="positions"`` promises between any two positions, which is what a :class:`Campaign` without
    a rule of its own does on a map, and every campaign of the service.
    ``promises_per_km`` are several promises that people choose among, each with a mechanism of its own;
    ``epsilon_per_km`` is then the largest of them, which no report exceeds.
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
        promises = tuple(sorted(positive("promises_per_km", each) for each in promises_per_km))
        if not 1 <= len(promises) <= MOST_LEVELS or len(set(promises)) < len(promises):
            given = ", ".join(f"{each:g}" for each in promises)
            raise InvalidInput(
                f"promises_per_km ({given}) must be 1 to {MOST_LEVELS} numbers, all different"
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
        if not 0.0 <= finite("camouflage", self.camouflage) <= 1.0:
            raise InvalidInput(f"camouflage ({self.camouflage!r}) must lie in [0, 1]")

    @property
    def guarantee(self) -> Guarantee:
        """What every mechanism promises."""
        if self.between == "positions":
            return BetweenPositions(self.epsilon_per_km, MOST_SLACK)
        return GeoIndistinguishability(self.epsilon_per_km)

    @property
    def promises(self) -> tuple[float, ...]:
        """What people may choose among, the strongest first."""
        return self.promises_per_km or (self.epsilon_per_km,)

    @property
    def choices(self) -> tuple[PromiseRule, ...]:
        """The rule of every promise by itself."""
        return tuple(
            replace(self, epsilon_per_km=each, promises_per_km=()) for each in self.promises
        )

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
        return GuardedUpdate(NewestRounds(), self.estimator, least=least)

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
        """One, 2β."""
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


_KINDS: dict[str, type[PromiseRule] | type[PublishedRule]] = {
    "promise": PromiseRule,
    "published": PublishedRule,
}


def rule_from_dict(values: Mapping[str, Any]) -> Rule:
    """The rule that ``to_dict`` described."""
    fields = dict(values)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise InvalidFile(f"the rule of a campaign ({kind!r}) must be one of {', '.join(_KINDS)}")
    return _KINDS[kind](**fields)
