"""What is asked of an estimate and must be worked out again: the shares of regions.

This runs in a process apart. What is asked and what is answered is small and plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign.rounds import Closing, Round, found_fakes
from geoveil.document.wire import read_kept
from geoveil.errors import GeoveilError
from geoveil.estimate.bars import ErrorBars
from geoveil.estimate.regions import RegionShares
from geoveil.server.conclusion import LEVEL, read_body, round_of
from geoveil.space import MATRIX_LIMIT

FEW_REGIONS = 16
"""Up to so many regions of many cells are solved for one by one; draws of all cells are for more."""
_VERSION_1 = b'"geoveil":1,'
"""In documents whose promise was between cells; their campaigns have ended."""
Send = Callable[[Any], None]


class NotAnswered(GeoveilError):
    """Why a question has no answer, in one sentence."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """An estimate with all that it was made from; one is known by its body, which all else follows from."""

    body: bytes
    documents: Mapping[int, bytes] = field(compare=False)
    """Round number → its document."""
    counts: Mapping[int, IntArray] = field(compare=False)
    """Round number → counts by report, as of the close that the estimate was made at."""
    around: bool = field(default=False, compare=False)
    """Whether people stand around the places that its cells are."""

    def noisy_counts(self, cells: int) -> tuple[IntArray, int]:
        """Reports by cell over all its rounds as they were received, and those beyond the map."""
        on_map = np.zeros(cells, dtype=np.int64)
        outside = 0
        for number in self._used:
            for counts in self._by_report(number):
                on_map += counts[:cells]
                outside += int(counts[cells:].sum())
        return on_map, outside

    def _by_report(self, number: int) -> list[IntArray]:
        """The counts of each level of a round; a round of version 1 had one, of cells."""
        if _VERSION_1 in self.documents[number]:
            return [self.counts[number]]
        return [tally.counts for tally in self.round(number).tallies]

    @property
    def _used(self) -> list[int]:
        """The rounds that the map is made from."""
        return [each["round"] for each in read_body(self.body)["rounds"]]

    def round(self, number: int) -> Round:
        """One of its rounds."""
        if _VERSION_1 in self.documents[number]:
            raise NotAnswered("of campaigns of version 1 only counts and estimates are left")
        documents = read_kept(self.documents[number], around=self.around)
        return round_of(number, documents, self.counts[number])


class RegionAnswer(NamedTuple):
    """Of each region its share, the ends of its interval and what lies in cut cells; what is in none."""

    rows: list[tuple[float, ...]]
    left_out: float
    counted_twice: float


def shares_of(send: Send, evidence: Evidence, members: FloatArray) -> RegionAnswer | str:
    """What is known about regions with these parts of every cell; or a sentence why that cannot be said.

    The error bars of the estimate are made again, with the covariance of its cells; of few regions of many
    cells those of the regions alone, in a tenth of the time.
    """
    few = len(members) <= FEW_REGIONS and members.shape[1] > MATRIX_LIMIT
    try:
        bars = _made(evidence, members) if few else _bars(evidence)
    except NotAnswered as reason:
        return str(reason)
    found = RegionShares([""] * len(members), members, bars.distribution, bars)
    columns = (found.share, *found.interval(LEVEL), found.in_cut_cells)
    rows = [tuple(map(float, each)) for each in zip(*columns, strict=True)]
    return RegionAnswer(rows, found.left_out, found.counted_twice)


@lru_cache(2)
def _bars(evidence: Evidence) -> ErrorBars:
    """The error bars that the estimate was published with."""
    return _made(evidence, None)


def _made(evidence: Evidence, about: FloatArray | None) -> ErrorBars:
    """Error bars of all cells, or about some regions alone."""
    estimate = read_body(evidence.body)
    closing = recalled(estimate, evidence)
    if "interval" not in estimate:
        raise NotAnswered("the estimate has no error bars: there was no time to make them")
    return closing.error_bars(about)[0]


def recalled(estimate: Mapping[str, Any], evidence: Evidence) -> Closing:
    """The close of a round as it was, without estimating again."""
    used, waiting = (
        tuple(evidence.round(number) for number in numbers)
        for numbers in (
            [each["round"] for each in estimate["rounds"]],
            estimate.get("drift", {}).get("waiting", ()),
        )
    )
    shares: FloatArray = np.array(estimate["distribution"])
    fakes = estimate.get("alarm", {}).get("fakes", {})
    possible = fakes.get("possible", fakes.get("found", ()))
    if fakes.get("most", 0) and not possible:
        raise NotAnswered("the estimate was made before regions were known; the next one will say")
    return Closing.recalled(
        used,
        shares,
        steps=estimate["steps"],
        stopped=estimate["stopped"],
        fakes=[found_fakes(each) for each in possible],
        named=tuple(fakes.get("named", ())),
        waiting=waiting,
        dependent=bool(estimate.get("choices", {}).get("dependent")),
    )
