"""What reports have cost a person, what may still be spent, and both in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from threading import RLock
from typing import Literal

from geoveil.arrays import finite, indices, positive
from geoveil.channel.certificate import check_claim
from geoveil.channel.channel import Channel
from geoveil.channel.guarantee import (
    BetweenPositions,
    GeoIndistinguishability,
    SumOfGuarantees,
    as_written,
)
from geoveil.channel.words import NEARBY_KM, between_places, explain_together, rounded_down
from geoveil.errors import GeoveilError, InvalidInput

_SPENDING = RLock()
"""One charge at a time, with its answer: two threads would each find the budget unspent. Not one lock for
each budget, since budgets are pickled."""


class BudgetSpent(GeoveilError):
    """The report would cost more than is left; nothing was sampled.

    ``asked_per_km`` and ``left_per_km`` hold the two sides.
    """

    def __init__(self, asked_per_km: float, left_per_km: float, *, unit: str = "km") -> None:
        super().__init__(
            f"a report (ε {asked_per_km:.6g} per {unit}) must fit what is left of the budget "
            f"({left_per_km:.6g} per {unit}); wait, or raise the limit knowingly"
        )
        self.asked_per_km = asked_per_km
        self.left_per_km = left_per_km


def left_of(limit_per_km: float, spent: Fraction) -> float:
    """How much of a limit, read as the decimal it is written as, is left; at least 0."""
    return max(0.0, float(as_written(limit_per_km) - spent))


def spent_in_words(reports: int, spent: GeoIndistinguishability) -> str:
    """How many reports, and what they cost together."""
    return (
        f"{reports} report{'' if reports == 1 else 's'} so far, together {spent.amount(spent.unit)}"
    )


def left_in_words(limit_per_km: float, spent: GeoIndistinguishability) -> str:
    """How much of a limit is left, and of how much."""
    rest = rounded_down(left_of(limit_per_km, spent.exact))
    return f"{rest} of {rounded_down(limit_per_km)}"


@dataclass
class Budget:
    """What one person has spent, over all rounds and campaigns, and the answers already given.

    A report costs its mechanism's ε per km, charged *before* it is drawn; costs add. Asking again about
    the same cell under the same mechanism gives the same answer and costs nothing: no averaging.
    The price of that memory: whoever sees two reports of one person that differ knows that the person
    has moved between them, though not from where to where.
    A budget counts in kilometres, or in the unit of the first mechanism that draws on it, such as a step
    of a line; no other unit can be added to it.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
    >>> budget = Budget(limit_per_km=5.0)
    >>> mechanism = gv.PlanarGeometric(grid, epsilon_per_km=2.0)
    >>> budget.report(mechanism, 3) == budget.report(mechanism, 3)
    True
    >>> budget.spent_per_km, budget.left_per_km
    (2.0, 3.0)
    """

    limit_per_km: float
    spent_per_km: float = 0.0
    charges: list[tuple[str, float]] = field(default_factory=list)
    """Every charge: what for, and ε per km."""
    answers: dict[tuple[Channel, int], int] = field(default_factory=dict, repr=False)
    guarantee: GeoIndistinguishability = field(init=False, repr=False)
    """What all reports so far promise together about one place; ``spent_per_km`` is its ε."""

    def __post_init__(self) -> None:
        self.limit_per_km = positive("limit_per_km", self.limit_per_km)
        finite("spent_per_km", self.spent_per_km, least=0)
        self.guarantee = GeoIndistinguishability(self.spent_per_km)

    @property
    def left_per_km(self) -> float:
        """How much may still be spent."""
        return left_of(self.limit_per_km, self.guarantee.exact)

    def charge(self, what: str, epsilon_per_km: float) -> None:
        """Spend, or raise :class:`BudgetSpent` and spend nothing."""
        cost = positive("epsilon_per_km", epsilon_per_km)
        with _SPENDING:
            spent = self.guarantee.plus(GeoIndistinguishability(cost))
            if spent.exact > as_written(self.limit_per_km):
                raise BudgetSpent(cost, self.left_per_km, unit=self.guarantee.unit)
            self.guarantee, self.spent_per_km = spent, spent.epsilon_per_km
            self.charges.append((what, cost))

    def report(
        self, mechanism: Channel, cell: int, *, draw: Callable[[int], int] | None = None
    ) -> int:
        """The report for a cell: the remembered one, or a new one, charged first."""
        key = (mechanism, int(indices("cell", cell, mechanism.space.size)))
        with _SPENDING:
            if key not in self.answers:
                check_claim(mechanism, promise := _promise(mechanism))
                if promise.unit != self.guarantee.unit:
                    if self.charges or self.guarantee.exact:
                        raise InvalidInput(
                            f"the ledger counts ε per {self.guarantee.unit}; a mechanism that counts per "
                            f"{promise.unit} must have a budget of its own"
                        )
                    self.guarantee = self.guarantee.counted_in(promise.unit)
                self.charge(repr(mechanism), promise.epsilon_per_km)
                report = mechanism.sample(cell) if draw is None else draw(key[1])
                self.answers[key] = int(report)
            return self.answers[key]

    def summary(self) -> str:
        """The ledger in words: about people where it knows how they came into every mechanism."""
        spent = spent_in_words(len(self.charges), self.guarantee)
        rest = left_in_words(self.limit_per_km, self.guarantee)
        if self.guarantee.exact == 0:
            return f"{spent}; {rest} left."
        meaning = between_places(self.guarantee, NEARBY_KM, reports=max(1, len(self.charges)))
        channels = [mechanism for mechanism, _ in self.answers]
        if channels and SumOfGuarantees(tuple(map(_promise, channels))).parts == (self.guarantee,):
            meaning = explain_together(channels, NEARBY_KM)
        return f"{spent}; {rest} left. {meaning}"


def _promise(mechanism: Channel) -> GeoIndistinguishability:
    if mechanism.told_apart is None:
        raise InvalidInput(
            "the ledger draws from cells; a mechanism between positions must draw from the position itself "
            "(sample_at)"
        )
    if isinstance(mechanism.guarantee, GeoIndistinguishability):
        return mechanism.guarantee
    raise InvalidInput(
        "the ledger counts ε per km; the mechanism must promise geo-indistinguishability"
    )


# --- Of a device: limits for ever, for a day and for a year, and what one operator has had


@dataclass(frozen=True, slots=True)
class Spent:
    """What the reports in a ledger have cost, each sum exact."""

    reports: int
    lifetime: BetweenPositions
    day: GeoIndistinguishability
    """Of the reports dated today."""
    year: GeoIndistinguishability
    """Of the reports dated less than 365 days from today, before or after it."""
    operator: BetweenPositions
    """Of the reports to all campaigns of one origin."""
    ahead: bool
    """Whether a report bears a date after today: then the clock was wrong, or is."""
    cells: bool
    """Whether some were made under documents of version 1, whose promise was between cells."""
    trips: bool = False
    """Whether some are trips, with two ends."""


Limit = Literal["lifetime", "day", "year", "slack"]
MOST_SLACK_NATS = 10.0
"""Least default limit on the sum of η: at least 500 reports, as none has more than 0.02."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What all reports in a ledger may cost together: for ever, and optionally in a day and a year.

    The limits on the lifetime and on η are hard. The others go by the device's own clock: they hold
    against servers.
    """

    lifetime_per_km: float
    day_per_km: float | None = None
    year_per_km: float | None = None
    slack_nats: float | None = None
    """Limit on the sum of η; ``None``: 10 nats, or the number of the lifetime limit where that is larger, so
    that no report with an ε of 0.02 per km or more meets this limit first."""

    def broken_by(self, spent: Spent, epsilon_per_km: float, slack_nats: float) -> Limit | None:
        """Which limit one more report would break; ``None`` where none."""
        cost = as_written(epsilon_per_km)
        for which, limit, sofar in self._limits_with_spent(spent):
            if sofar.exact + cost > as_written(limit):
                return which
        most = self.slack_nats or max(MOST_SLACK_NATS, self.lifetime_per_km)
        slack = as_written(spent.lifetime.slack) + as_written(slack_nats)
        return "slack" if slack > as_written(most) else None

    def left_in_words(self, spent: Spent) -> str:
        """How much is left of each limit, as the end of a sentence."""
        others = self._limits_with_spent(spent)[1:]
        words = {"day": "today", "year": "within 365 days"}
        clauses = [f"{words[name]} {left_in_words(limit, sofar)}" for name, limit, sofar in others]
        lifetime = f"{left_in_words(self.lifetime_per_km, spent.lifetime)} per km are left"
        return f"{lifetime} ({'; '.join(clauses)})" if clauses else lifetime

    def _limits_with_spent(
        self, spent: Spent
    ) -> list[tuple[Limit, float, GeoIndistinguishability]]:
        every: tuple[tuple[Limit, float | None, GeoIndistinguishability], ...] = (
            ("lifetime", self.lifetime_per_km, spent.lifetime),
            ("day", self.day_per_km, spent.day),
            ("year", self.year_per_km, spent.year),
        )
        return [(which, limit, sofar) for which, limit, sofar in every if limit is not None]
