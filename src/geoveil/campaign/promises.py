"""Free will in a campaign: what each promise contributed, and whether the choice depends on the place.

Pooling everybody's reports is right only where people choose without regard to where they are. That is
tested at every close; where it fails, everybody's map is the average of the maps of those who chose alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from geoveil.arrays import FloatArray
from geoveil.channel.channel import Tally
from geoveil.estimate import AverageOfEstimates, Estimate, Estimator
from geoveil.measure.information import mutual_information_bits
from geoveil.verify.agreement import LEAST_REPORTS, Agreement, agreement

FALSE_CLAIM = 0.02
"""How often a campaign whose people choose freely is told the contrary, in its whole life."""


def allowed_at(look: int) -> float:
    """The share of :data:`FALSE_CLAIM` that the n-th look may spend; all looks together spend no more.

    >>> round(sum(allowed_at(look) for look in range(1, 10_000)), 4)
    0.02
    """
    return FALSE_CLAIM / (look * (look + 1))


class Level(NamedTuple):
    """What the people who chose one promise contributed."""

    promise_per_km: float
    reports: int
    bits_per_report: float | None
    """What a report tells about the cell on average, under the estimate and the newest mechanism; ``None``
    where fewer chose it than may be told."""


@dataclass(frozen=True)
class Choices:
    """What each promise contributed to an estimate, and whether the choice has to do with the place."""

    levels: tuple[Level, ...]
    """The strongest promise first."""
    minimum_reports: int
    compared: Agreement | None
    """How well the levels agree about one map; ``None`` where fewer than two had enough reports."""
    dependent: bool
    """Whether the choice was found to depend on the place, now or at an earlier close."""

    @property
    def told(self) -> tuple[Level, ...]:
        """The levels with the minimum of reports."""
        return tuple(each for each in self.levels if each.bits_per_report is not None)

    def summary(self) -> str:
        """In words: the contributions, and what was found about the choice."""
        told = "; ".join(
            f"ε = {each.promise_per_km:g} per km: {each.reports:,} reports, {each.bits_per_report:.2g} "
            "bits each"
            for each in self.told
        )
        untold = len(self.levels) - len(self.told)
        less = f"{untold} of the promises had fewer than {self.minimum_reports} reports" * bool(
            untold
        )
        counted = "; ".join(part for part in (told, less) if part)
        return f"{counted}. {self._verdict()}"

    def _verdict(self) -> str:
        if self.dependent:
            return (
                "Which promise people choose depends on where they are: the map is the average of one "
                "map for each promise, which is right whatever the dependence, with wider intervals."
            )
        if self.compared is None:
            return (
                "Whether the choice depends on the place could not be tested: fewer than two promises "
                f"have {LEAST_REPORTS} reports; the map takes it that it does not."
            )
        return (
            "No sign that the choice depends on the place "
            f"(p = {self.compared.p_value:.2g}): the map is made from all reports together."
        )


def by_promise(rounds: Sequence[Sequence[Tally]]) -> list[list[Tally]]:
    """The tallies of each promise over all rounds, those without reports left out."""
    return [[tally for tally in level if tally.total] for level in zip(*rounds, strict=True)]


def compared_levels(levels: Sequence[Sequence[Tally]], near: FloatArray) -> Agreement | None:
    """How well the levels with enough reports agree about one map."""
    enough = [level for level in levels if sum(t.total for t in level) >= LEAST_REPORTS]
    return agreement(enough, near) if len(enough) > 1 else None


def contributions(
    promises: Sequence[float], levels: Sequence[Sequence[Tally]], estimate: Estimate, minimum: int
) -> tuple[Level, ...]:
    """What each promise contributed to an estimate."""
    found = []
    for promise, level in zip(promises, levels, strict=True):
        reports = sum(tally.total for tally in level)
        bits = None
        if reports >= minimum:
            bits = mutual_information_bits(level[-1].channel, estimate.distribution)
        found.append(Level(promise, reports, bits))
    return tuple(found)


def average_of_levels(levels: Sequence[Sequence[Tally]], estimator: Estimator) -> Estimate:
    """Σ (n_l/n)·θ_l, each θ_l estimated from those who chose alike: right whatever the dependence."""
    return AverageOfEstimates(estimator).fit_groups([level for level in levels if level])
