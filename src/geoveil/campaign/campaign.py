"""A campaign: rounds of reports, and the rule that makes the next mechanism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from geoveil.arrays import (
    FloatArray,
    count,
    distribution,
    finite,
    frozen,
    one_blas_thread,
    positive,
    prior_over,
)
from geoveil.campaign.design import blahut_arimoto, elastic
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.guarantee import GeoIndistinguishability, Guarantee
from geoveil.document.canonical import canonical_bytes, strict_json
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.estimate import Estimate, Estimator, IterativeBayesianUpdate, Steps
from geoveil.files import replaced_file
from geoveil.space import space_from_dict
from geoveil.space.space import Space
from geoveil.verify.alarm import PoisoningAlarm
from geoveil.verify.guard import GuardedUpdate

_ALARM = PoisoningAlarm(replicates=99)


class Rule(Protocol):
    """How a campaign designs the next mechanism and estimates from its rounds."""

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
    ``guarded`` estimates with :class:`~geoveil.verify.guard.GuardedUpdate`: where the alarm is raised over
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
                "a rule must estimate with IterativeBayesianUpdate() as it comes to be saved; a campaign "
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
        raise InvalidFile(f"the rule of a campaign ({kind!r}) must be one of {', '.join(_KINDS)}")
    return _KINDS[kind](**fields)


# --- PRIVIC: rounds of collection, each with the mechanism that the last estimate suggested


_VERSION = 1


@dataclass
class Round:
    """One round: the mechanism it published, what came back under it, what was learnt at its close."""

    number: int
    mechanism: Channel
    tally: Tally
    distribution: FloatArray | None = None
    """The estimate made when the round was closed; ``None`` while it is open."""

    @property
    def closed(self) -> bool:
        """Whether the round was closed; reports under its mechanism still count for later estimates."""
        return self.distribution is not None


class Campaign:
    """Rounds of: publish a mechanism, receive tallies, close, estimate from all rounds, design the next.

    A campaign states one promise (``epsilon_per_km``, certified for every mechanism it publishes) and
    turns one dial (``camouflage``). A report belongs to the mechanism that made it, whenever it arrives.
    A round with fewer than ``minimum_reports`` does not close: nothing is released or fed back, and
    its reports count on.
    Against fakes: ``most_leverage`` bounds what a report may weigh, at the cost of camouflage;
    ``guarded=True`` leaves out what the poisoning alarm finds fake (:class:`PromiseRule`).
    A person who reports in every one of N rounds spends N times the promise (see ``Budget``).
    Reference: PRIVIC Alg. 1, with the corrections of docs/privic.md.

    >>> import numpy as np
    >>> import geoveil as gv
    >>> city = gv.Grid(rows=5, columns=5, cell_km=0.5)
    >>> campaign = Campaign(city, epsilon_per_km=2.0, camouflage=0.5)
    >>> people = np.repeat([6, 7, 18], 400)
    >>> for number in range(2):
    ...     mechanism = campaign.mechanism
    ...     reports = mechanism.sample(people, randomness=gv.seeded(number))
    ...     _ = campaign.receive(mechanism.tally(reports))
    ...     _ = campaign.close_round()
    >>> len(campaign.rounds), bool(campaign.estimate.distribution[[6, 7, 18]].sum() > 0.5)
    (2, True)
    """

    def __init__(
        self,
        space: Space,
        *,
        epsilon_per_km: float | None = None,
        camouflage: float | None = None,
        most_leverage: float | None = None,
        guarded: bool | None = None,
        prior: Any = None,
        minimum_reports: int = 0,
        rule: Rule | None = None,
    ) -> None:
        if (rule is None) == (epsilon_per_km is None):
            raise InvalidInput("a campaign must have a promise, epsilon_per_km=, or a rule=")
        if rule is not None and not (camouflage is most_leverage is guarded is None):
            raise InvalidInput(
                "camouflage, most_leverage and guarded must go with epsilon_per_km; a rule= has its own"
            )
        self.space = space
        self.rule = (
            PromiseRule(
                positive("epsilon_per_km", epsilon_per_km),
                0.5 if camouflage is None else camouflage,
                most_leverage=most_leverage,
                guarded=bool(guarded),
            )
            if rule is None
            else rule
        )
        self.minimum_reports = count("minimum_reports", minimum_reports, least=0)
        size = space.size
        self.prior = frozen(prior_over(prior, size))
        self._rounds: list[Round] = []
        self._estimate: Estimate | None = None
        self._estimated_from: tuple[Tally, ...] = ()
        self._open_round(self.prior)

    @classmethod
    def as_published(
        cls, space: Space, *, beta_per_km: float, design_steps: int, update_steps: int
    ) -> Campaign:
        """The paper's own rule, for reproduction: no promise beyond 2β, no floor, the last round only.

        ``design_steps`` and ``update_steps`` are the paper's N_BA and N_IBU; N_BA channels are N_BA − 1
        updates of the weights (:class:`PublishedRule`).
        """
        return cls(space, rule=PublishedRule(beta_per_km, design_steps, update_steps))

    # -- the loop ------------------------------------------------------------------------------

    @property
    def mechanism(self) -> Channel:
        """What people use now."""
        return self._rounds[-1].mechanism

    @property
    def rounds(self) -> list[Round]:
        """The closed rounds, oldest first."""
        return [done for done in self._rounds if done.closed]

    @property
    def current(self) -> Round:
        """The open round."""
        return self._rounds[-1]

    @property
    def distribution(self) -> FloatArray:
        """What is believed now: the last estimate, or the prior before the first."""
        return self._before(len(self._rounds) - 1)

    @property
    def estimate(self) -> Estimate:
        """The estimate of the last closed round, with its error bars and certificate."""
        closed = self.rounds
        if not closed:
            raise InvalidInput("a campaign must close a round before it has an estimate")
        if self._estimate is None:  # after a resume: the same tallies give the same estimate
            self._estimate = self._estimated(len(closed) - 1)
        return self._estimate

    def receive(self, tally: Tally) -> Round:
        """Count reports under the mechanism that made them, in the open round or late in an old one."""
        for known in reversed(self._rounds):
            if known.mechanism == tally.channel:
                known.tally = known.tally + Tally(known.mechanism, tally.counts)
                return known
        raise InvalidInput("the tally must come from a mechanism that this campaign has published")

    @one_blas_thread()
    def close_round(self) -> Round | None:
        """Estimate, and publish the next mechanism; ``None`` while the round has too few reports."""
        closing = self.current
        if closing.tally.total < max(1, self.minimum_reports):
            return None
        self._estimated_from = tuple(done.tally for done in self._rounds)
        self._estimate = self._estimated(len(self._rounds) - 1)
        closing.distribution = self._estimate.distribution
        self._open_round(self._estimate.distribution)
        return closing

    def _estimated(self, number: int) -> Estimate:
        """The estimate at the close of round ``number`` (from 0), from the counts as they were then."""
        return self.rule.estimate(
            self._estimated_from, self._before(number), least=self.minimum_reports
        )

    def _before(self, number: int) -> FloatArray:
        """What was believed before round ``number`` (from 0) closed."""
        last = self._rounds[number - 1].distribution if number else None
        return self.prior if last is None else last

    def _open_round(self, believed: FloatArray) -> None:
        mechanism = self.rule.design(self.space, believed)
        empty = Tally(mechanism, np.zeros(mechanism.report_count, dtype=np.int64))
        self._rounds.append(Round(len(self._rounds) + 1, mechanism, empty))

    # -- save and resume -----------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly where it stopped, as plain JSON values."""
        return {
            "geoveil_collection": _VERSION,
            "space": self.space.to_dict(),
            "rule": self.rule.to_dict(),
            "prior": self.prior.tolist(),
            "minimum_reports": self.minimum_reports,
            "rounds": [_round_to_dict(known) for known in self._rounds],
            "estimated_from": [tally.counts.tolist() for tally in self._estimated_from],
        }

    @classmethod
    def from_dict(cls, values: Any) -> Campaign:
        """The campaign that ``to_dict`` described."""
        if not isinstance(values, dict) or values.get("geoveil_collection") != _VERSION:
            raise InvalidFile(f'a saved campaign must say "geoveil_collection": {_VERSION}')
        try:
            resumed = cls.__new__(cls)
            resumed.space = space_from_dict(values["space"])
            resumed.rule = rule_from_dict(values["rule"])
            size = resumed.space.size
            resumed.prior = frozen(_as_saved("prior", values["prior"], size))
            resumed.minimum_reports = count("minimum_reports", values["minimum_reports"], least=0)
            resumed._rounds = _rounds_from(values["rounds"], size, resumed.rule.guarantee)
            now = [known.tally.counts for known in resumed.rounds]  # all that older files have
            resumed._estimated_from = tuple(
                Tally(known.mechanism, counts)
                for known, counts in zip(
                    resumed.rounds, values.get("estimated_from", now), strict=True
                )
            )
            resumed._estimate = None
        except (KeyError, TypeError, ValueError, InvalidInput) as problem:
            raise InvalidFile(f"the saved campaign is incomplete or malformed: {problem}") from None
        return resumed

    def save(self, path: str | Path) -> None:
        """Write the campaign to a file; written beside it first, so that a crash leaves the old one."""
        data = canonical_bytes(self.to_dict()) + b"\n"
        with replaced_file(path) as handle:
            handle.write(data)

    @classmethod
    def load(cls, path: str | Path) -> Campaign:
        """Resume from a saved file."""
        try:
            values = strict_json(Path(path).read_bytes())
        except (ValueError, RecursionError):
            raise InvalidFile(
                f"{path} must be a saved campaign: JSON in UTF-8 that names no entry twice"
            ) from None
        return cls.from_dict(values)

    def __repr__(self) -> str:
        total = sum(known.tally.total for known in self._rounds)
        return f"Campaign({self.space!r}, {len(self.rounds)} rounds closed, {total} reports)"


def _as_saved(name: str, values: Any, size: int) -> FloatArray:
    """A distribution to the last digit: checked, and not scaled again."""
    distribution(name, values, size)
    return np.array(values, dtype=np.float64)


def _round_to_dict(known: Round) -> dict[str, Any]:
    return {
        "mechanism": mechanism_to_dict(known.mechanism),
        "counts": known.tally.counts.tolist(),
        "distribution": None if known.distribution is None else known.distribution.tolist(),
    }


def _rounds_from(saved: Sequence[dict[str, Any]], size: int, promise: Guarantee) -> list[Round]:
    rounds = []
    for number, values in enumerate(saved, start=1):
        mechanism = mechanism_from_dict(values["mechanism"])
        if not isinstance(mechanism, Channel):
            raise InvalidFile("a round must have a mechanism over cells")
        if mechanism.guarantee is None or not mechanism.guarantee.implies(promise):
            raise InvalidFile(
                f"the mechanism of round {number} ({mechanism.guarantee}) must keep the promise of the "
                f"campaign ({promise})"
            )
        tally = Tally(mechanism, values["counts"])
        believed = values["distribution"]
        if believed is not None:
            believed = frozen(_as_saved("distribution", believed, size))
        rounds.append(Round(number, mechanism, tally, believed))
    if [known.closed for known in rounds] != [True] * (len(rounds) - 1) + [False]:
        raise InvalidFile("a saved campaign must have one open round, its last")
    return rounds
