"""A person's ledger: what every report so far has cost, and what may still be spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from geoveil.arrays import finite, indices, positive
from geoveil.channel.certificate import check_claim
from geoveil.channel.channel import Channel
from geoveil.channel.guarantee import GeoIndistinguishability, SumOfGuarantees, as_written
from geoveil.channel.words import NEARBY_KM, between_places, explain_together, rounded_down
from geoveil.errors import GeoveilError, InvalidInput


class BudgetSpent(GeoveilError):
    """The report would cost more than is left; nothing was sampled.

    ``asked_per_km`` and ``left_per_km`` hold the two sides.
    """

    def __init__(self, asked_per_km: float, left_per_km: float) -> None:
        super().__init__(
            f"a report (ε {asked_per_km:.6g} per km) must fit what is left of the budget "
            f"({left_per_km:.6g} per km); wait, or raise the limit knowingly"
        )
        self.asked_per_km = asked_per_km
        self.left_per_km = left_per_km


@dataclass
class Budget:
    """What one person has spent, over all rounds and campaigns, and the answers already given.

    A report costs its mechanism's ε per km, charged *before* it is drawn; costs add. Asking again about
    the same cell under the same mechanism gives the same answer and costs nothing: no averaging.
    The price of that memory: whoever sees two reports of one person that differ knows that the person
    has moved between them, though not from where to where.

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
        if finite("spent_per_km", self.spent_per_km) < 0:
            raise InvalidInput(f"spent_per_km ({self.spent_per_km:g}) must not be negative")
        self.guarantee = GeoIndistinguishability(self.spent_per_km)

    @property
    def left_per_km(self) -> float:
        """How much may still be spent."""
        return max(0.0, float(as_written(self.limit_per_km) - self.guarantee.exact))

    def charge(self, what: str, epsilon_per_km: float) -> None:
        """Spend, or raise :class:`BudgetSpent` and spend nothing."""
        cost = positive("epsilon_per_km", epsilon_per_km)
        spent = self.guarantee.plus(GeoIndistinguishability(cost))
        if spent.epsilon_per_km > self.limit_per_km * (1 + 1e-12):  # 3 * 0.7 is below 2.1 in floats
            raise BudgetSpent(cost, self.left_per_km)
        self.guarantee, self.spent_per_km = spent, spent.epsilon_per_km
        self.charges.append((what, cost))

    def report(
        self, mechanism: Channel, cell: int, *, draw: Callable[[int], int] | None = None
    ) -> int:
        """The report for a cell: the remembered one, or a new one, charged first."""
        key = (mechanism, int(indices("cell", cell, mechanism.space.size)))
        if key not in self.answers:
            check_claim(mechanism, promise := _promise(mechanism))
            self.charge(repr(mechanism), promise.epsilon_per_km)
            drawn = mechanism.sample(cell) if draw is None else draw(key[1])
            self.answers[key] = int(drawn)
        return self.answers[key]

    def summary(self) -> str:
        """The ledger in words: about people where it knows how they came into every mechanism."""
        number, left = len(self.charges), rounded_down(self.left_per_km)
        said = f"{number} report{'' if number == 1 else 's'} so far, together {self.guarantee.amount()}"
        return f"{said}; {left} of {rounded_down(self.limit_per_km)} left. {self._meaning()}"

    def _meaning(self) -> str:
        channels = [mechanism for mechanism, _ in self.answers]
        if channels and SumOfGuarantees(tuple(map(_promise, channels))).parts == (self.guarantee,):
            return explain_together(channels, NEARBY_KM)
        return between_places(self.guarantee, NEARBY_KM, reports=max(1, len(self.charges)))


def _promise(mechanism: Channel) -> GeoIndistinguishability:
    if isinstance(mechanism.guarantee, GeoIndistinguishability):
        return mechanism.guarantee
    raise InvalidInput(
        "the ledger counts ε per km; the mechanism must promise geo-indistinguishability"
    )
