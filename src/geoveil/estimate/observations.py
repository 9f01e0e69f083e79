"""What was observed: tallies side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.operator import Operator, StackedOperator
from geoveil.errors import ImpossibleReport, InvalidInput
from geoveil.estimate.objective import uniform
from geoveil.space.space import Space

_SUSPECT = 1e-12


class Observations:
    """Tallies of one space as one operator and one vector of counts.

    ``fit`` of every estimator starts here, so that wrong input is refused once and in one voice:
    no tallies, tallies of different spaces, no report at all, reports that no cell can have made.
    """

    space: Space
    tallies: tuple[Tally, ...]
    """As given, those of equal channels added up."""
    operator: Operator
    counts: IntArray
    """The counts of all tallies, one after the other."""

    def __init__(self, tallies: Tally | Iterable[Tally]) -> None:
        given = checked_tallies(tallies)
        for number, tally in enumerate(given):
            _check_possible(number, tally)
        self.tallies = joined(given)
        self.space = self.tallies[0].space
        parts = [tally.operator for tally in self.tallies]
        self.operator = parts[0] if len(parts) == 1 else StackedOperator(parts)
        self.counts = np.concatenate([tally.counts for tally in self.tallies])
        self.total = int(self.counts.sum())

    def split(self, values: FloatArray) -> list[FloatArray]:
        """Values by observation, cut into one array for each tally."""
        ends = np.cumsum([tally.counts.size for tally in self.tallies])[:-1]
        return np.split(values, ends, axis=-1)


def checked_tallies(tallies: Tally | Iterable[Tally]) -> tuple[Tally, ...]:
    """One tally or several of one space, with at least one report among them, or an error."""
    given: Sequence[Any] = [tallies] if isinstance(tallies, Tally) else _listed(tallies)
    if not given:
        raise InvalidInput("tallies must not be empty; pass at least one tally")
    for number, tally in enumerate(given):
        if not isinstance(tally, Tally):
            raise InvalidInput(
                f"tally {number} ({type(tally).__name__}) must be a tally; "
                "make one with mechanism.tally(reports)"
            )
        if tally.space != given[0].space:
            raise InvalidInput(f"tally {number} must be about the same space as tally 0")
    if not any(tally.total for tally in given):
        raise InvalidInput("tallies must hold at least one report; all counts are zero")
    return tuple(given)


def _check_possible(number: int, tally: Tally) -> None:
    """Refuse a report that was counted and that no cell can have made."""
    operator = tally.operator
    law = operator._push(uniform(operator.shape[0]))
    doubtful = (tally.counts > 0) & (law <= _SUSPECT * law.max(initial=0.0))
    for report in np.flatnonzero(doubtful):
        if not (operator._column(int(report)) > 0).any():
            raise ImpossibleReport(
                f"tally {number} must hold reports its channel can make; report {report} was "
                f"counted {tally.counts[report]} times and has probability zero at every cell"
            )


def joined(tallies: Sequence[Tally]) -> tuple[Tally, ...]:
    """One tally for each channel, in the order in which they come first."""
    if len(tallies) == 1:
        return tuple(tallies)  # a channel is hashed by all its parameters
    sums: dict[Channel, Tally] = {}
    for tally in tallies:
        known = sums.get(tally.channel)
        sums[tally.channel] = tally if known is None else known + tally
    return tuple(sums.values())


def _listed(tallies: Any) -> list[Any]:
    try:
        return list(tallies)
    except TypeError:
        raise InvalidInput(
            f"tallies ({type(tallies).__name__}) must be a tally or a list of tallies; "
            "make one with mechanism.tally(reports)"
        ) from None
