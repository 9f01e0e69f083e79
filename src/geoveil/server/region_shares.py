"""What an estimate was made from, and regions of it, worked out in a process apart: small and plain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign.rounds import Closing, Round, read_fakes
from geoveil.document.wire import unpack_levels
from geoveil.errors import GeoveilError
from geoveil.estimate.bars import ErrorBars
from geoveil.estimate.regions import RegionShares, members_of
from geoveil.server import openapi as api
from geoveil.server.campaigns import VERSION_1, Campaigns
from geoveil.server.conclusion import LEVEL, read_body, round_of
from geoveil.server.problem import Problem
from geoveil.space import MATRIX_LIMIT, space_from_dict
from geoveil.space.outline import Outline

FEW_REGIONS = 16
"""Up to so many regions of many cells are solved for one by one; draws of all cells are for more."""


class NotAnswered(GeoveilError):
    """Why a question has no answer, in one sentence."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """An estimate with all that it was made from. Equal bodies are equal evidence: all else follows."""

    body: bytes
    documents: Mapping[int, bytes] = field(compare=False)
    """Round number → its document."""
    counts: Mapping[int, IntArray] = field(compare=False)
    """Round number → counts by report when the round of the estimate closed."""
    around: bool = field(default=False, compare=False)
    """Whether people stand around the places that its cells are."""

    def noisy_counts(self) -> api.NoisyCounts:
        """Reports by cell over the rounds of the map as they were received, and those beyond the map."""
        estimate = read_body(self.body)
        cells, outside = len(estimate["distribution"]), 0
        on_map = np.zeros(cells, dtype=np.int64)
        for number in [used["round"] for used in estimate["rounds"]]:
            levels = [self.counts[number]]  # a round of version 1 had one, of cells
            if VERSION_1 not in self.documents[number]:
                levels = [tally.counts for tally in self.round(number).tallies]
            for counts in levels:
                on_map += counts[:cells]
                outside += int(counts[cells:].sum())
        return api.NoisyCounts(estimate["round"], sorted(self.counts), on_map.tolist(), outside)

    def round(self, number: int) -> Round:
        """One of its rounds."""
        if VERSION_1 in self.documents[number]:
            raise NotAnswered("of campaigns of version 1 only counts and estimates are left")
        documents = unpack_levels(self.documents[number], around=self.around)
        return round_of(number, documents, self.counts[number])


def evidence_of(campaigns: Campaigns, campaign: str, number: int | None = None) -> Evidence:
    """The estimate of a round, or the latest, with its documents and counts; raises as ``estimate`` does."""
    record = campaigns.estimate(campaign, number)
    if campaigns.settings(campaign).trips:
        raise Problem("not-offered", "a campaign of trips has flows, and no counts of places")
    body = read_body(record.body)
    reports = {entry["round"]: entry["reports"] for entry in body["rounds"]}
    used = {*reports, *body.get("drift", {}).get("waiting", ())}  # error bars hold what those say
    counts = campaigns.store.closing_counts(campaign, record.round, used)
    rounds = campaigns.store.rounds(campaign, used)
    if not used <= counts.keys() & {round_.number for round_ in rounds}:
        raise Problem("unknown-campaign", "the campaign was deleted meanwhile")
    old = [round_.number for round_ in rounds if VERSION_1 in round_.document]
    if any(counts[number].sum() != reports[number] for number in old):
        raise Problem(
            "not-offered", "the first programs did not keep what this estimate was made from"
        )
    documents = {round_.number: round_.document for round_ in rounds}
    counts = {number: counts[number] for number in documents}
    return Evidence(record.body, documents, counts, any(round_.around for round_ in rounds))


class RegionAnswer(NamedTuple):
    """A row for each region: share, ends of the interval, share in cut cells; and the share in no region."""

    rows: list[tuple[float, ...]]
    left_out: float
    counted_twice: float


def regions_of(
    send: Callable[[Any], None], evidence: Evidence, outlines: list[Outline]
) -> api.Regions | Problem:
    """What is known about regions, or why that cannot be said.

    It also computes which part of every cell lies in each of them: 100 MiB for a large map.
    """
    estimate = read_body(evidence.body)
    try:
        members = members_of(space_from_dict(estimate["space"]), outlines)
    except GeoveilError as problem:
        return Problem("invalid-geojson", str(problem))
    shares = shares_of(send, evidence, members)
    if isinstance(shares, str):
        return Problem("not-offered", shares)
    rows = []
    for outline, parts, numbers in zip(outlines, members, shares.rows, strict=True):
        share, low, high, cut = numbers
        cells, area_cells = int((parts > 0.0).sum()), float(parts.sum())
        rows.append(api.RegionShare(outline.name, cells, share, low, high, cut, area_cells))
    return api.Regions(estimate["round"], LEVEL, rows, shares.left_out, shares.counted_twice)


def shares_of(
    send: Callable[[Any], None], evidence: Evidence, members: FloatArray
) -> RegionAnswer | str:
    """What is known about regions with these parts of every cell; or a sentence why that cannot be said.

    The error bars of the estimate are made again, with the covariance of its cells; where few regions have
    many cells, only those of the regions, in a tenth of the time.
    """
    few = len(members) <= FEW_REGIONS and members.shape[1] > MATRIX_LIMIT
    try:
        bars = _new_bars(evidence, members) if few else _bars(evidence)
    except NotAnswered as reason:
        return str(reason)
    shares = RegionShares([""] * len(members), members, bars.distribution, bars)
    columns = (shares.share, *shares.interval(LEVEL), shares.in_cut_cells)
    rows = [tuple(map(float, row)) for row in zip(*columns, strict=True)]
    return RegionAnswer(rows, shares.left_out, shares.counted_twice)


@lru_cache(2)
def _bars(evidence: Evidence) -> ErrorBars:
    """The error bars that the estimate was published with."""
    return _new_bars(evidence, None)


def _new_bars(evidence: Evidence, about: FloatArray | None) -> ErrorBars:
    """Error bars of all cells, or about some regions alone."""
    estimate = read_body(evidence.body)
    closing = recalled(estimate, evidence)
    if "interval" not in estimate:
        raise NotAnswered("the estimate has no error bars: there was no time to make them")
    return closing.error_bars(about)[0]


def recalled(estimate: Mapping[str, Any], evidence: Evidence) -> Closing:
    """The close of a round as it was, without estimating again."""
    used = tuple(evidence.round(entry["round"]) for entry in estimate["rounds"])
    waiting = tuple(map(evidence.round, estimate.get("drift", {}).get("waiting", ())))
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
        fakes=list(map(read_fakes, possible)),
        named=tuple(fakes.get("named", ())),
        waiting=waiting,
        dependent=bool(estimate.get("choices", {}).get("dependent")),
    )
