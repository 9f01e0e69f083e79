"""Two rules for a collection: ours, and the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from geoveil.arrays import FloatArray, count, finite, positive
from geoveil.audit.alarm import PoisoningAlarm
from geoveil.audit.guard import GuardedUpdate
from geoveil.channel.base import Channel
from geoveil.channel.guarantee import GeoIndistinguishability, Guarantee
from geoveil.channel.tally import Tally
from geoveil.collect.design import blahut_arimoto, elastic
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.estimate import Estimate, Estimator, IterativeBayesianUpdate, Steps
from geoveil.space.base import Space

_ALARM = PoisoningAlarm(replicates=99)


class Rule(Protocol):
    """How a collection designs the next mechanism and estimates from its rounds."""

    @property
    def guarantee(self) -> Guarantee:
        """What every mechanism promises."""

    def design(self, space: Space, believed: FloatArray) -> Channel:
        """The mechanism of the next round, given what is believed now."""

    def estimate(
        self, tallies: Sequence[Tally], believed: FloatArray, *, least: int = 1
    ) -> Estimate:
        """The estimate from the tallies of all rounds so far, oldest first.

        ``least`` is how many reports every round must keep, whatever is left out.
        """

    def to_dict(self) -> dict[str, Any]:
        """The rule as plain JSON values."""


@dataclass(frozen=True)
class PromiseRule:
    """A certified promise and the dial; the estimate is GIBU over the tallies of every round.

    ``most_leverage`` bounds what a fake report may weigh under every mechanism (see ``elastic``).
    ``guarded`` estimates with :class:`~geoveil.audit.guard.GuardedUpdate`: where the alarm is raised over
    all rounds, what it finds fake is left out, so that fakes steer neither the map nor the next
    mechanism. It costs some hundred estimates at every close.
    Reference: docs/privic.md.
    """

    epsilon_per_km: float
    camouflage: float = 0.5
    estimator: Estimator = field(default_factory=IterativeBayesianUpdate)
    most_leverage: float | None = None
    guarded: bool = False

    def __post_init__(self) -> None:
        positive("epsilon_per_km", self.epsilon_per_km)
        if not 0.0 <= finite("camouflage", self.camouflage) <= 1.0:
            raise InvalidInput(f"camouflage ({self.camouflage!r}) must lie in [0, 1]")

    @property
    def guarantee(self) -> Guarantee:
        """What every mechanism promises."""
        return GeoIndistinguishability(self.epsilon_per_km)

    def design(self, space: Space, believed: FloatArray) -> Channel:
        """At the promise and the dial, Blahut–Arimoto started from uniform."""
        return elastic(
            space,
            believed,
            epsilon_per_km=self.epsilon_per_km,
            camouflage=self.camouflage,
            most_leverage=self.most_leverage,
        )

    def estimate(
        self, tallies: Sequence[Tally], believed: FloatArray, *, least: int = 1
    ) -> Estimate:
        """All rounds together, from a uniform start."""
        guard = GuardedUpdate(_ALARM, self.estimator, least=max(1, least))
        update = guard if self.guarded else self.estimator
        return update.fit([tally for tally in tallies if tally.total])

    def to_dict(self) -> dict[str, Any]:
        """The promise, the dial and, where they are used, the bound and the guard."""
        if not _is_plain(self.estimator):
            raise InvalidInput(
                "a rule must estimate with IterativeBayesianUpdate() as it comes to be saved; a collection "
                "with an estimator of its own cannot go on where it stopped"
            )
        values = {
            "kind": "promise",
            "epsilon_per_km": self.epsilon_per_km,
            "camouflage": self.camouflage,
            "most_leverage": self.most_leverage,
            "guarded": self.guarded or None,
        }
        return {name: value for name, value in values.items() if value is not None}


def _is_plain(estimator: Estimator) -> bool:
    own = isinstance(estimator, IterativeBayesianUpdate) and estimator.start is None
    return own and vars(estimator) == vars(IterativeBayesianUpdate())


@dataclass(frozen=True)
class PublishedRule:
    """The paper's: Blahut–Arimoto at β, then EM of fixed length on the last round alone.

    ``design_steps`` is the paper's N_BA and counts channels: the first comes from uniform c, so that
    N_BA of them are N_BA − 1 updates of c, ``design_updates``. Everywhere else a step is an update:
    the same weights are those of ``blahut_arimoto(stop=Steps(N_BA − 1))``. ``update_steps`` is the
    paper's N_IBU, steps of EM from the estimate before.
    Reference: PRIVIC Alg. 1, estimating with the channel that made the reports (docs/privic.md).
    """

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
    def design_updates(self) -> int:
        """How often Blahut–Arimoto updates c: one less than the paper's N_BA."""
        return self.design_steps - 1

    def design(self, space: Space, believed: FloatArray) -> Channel:
        """Blahut–Arimoto from uniform weights, no floor."""
        stop = Steps(self.design_updates)
        return blahut_arimoto(space, believed, beta_per_km=self.beta_per_km, stop=stop)

    def estimate(
        self, tallies: Sequence[Tally], believed: FloatArray, *, least: int = 1
    ) -> Estimate:
        """The last round, from what was believed before it; nothing is left out."""
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
        raise InvalidFile(f"the rule of a collection ({kind!r}) must be one of {', '.join(_KINDS)}")
    return _KINDS[kind](**fields)
