"""Table 2 and beyond it: how many people and places can be handled."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.release import CountRelease, Prior, number_of_vectors
from geoveil.release.coarsening import within_reach

LARGEST_PLACES = (
    53, 33, 27, 23, 21, 19, 18, 17, 16, 16, 15, 15, 14, 14, 14, 13, 13, 13,
    13, 12, 12, 12, 12, 12, 12, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11,
)  # fmt: skip
"""L_max of Table 2 for 1 … 35 people."""
SIZES = ((1, 53), (2, 33), (3, 27), (4, 23), (20, 3), (35, 3), (1000, 3), (60, 4), (20, 5))
_QUICK = ((1, 53), (2, 33), (35, 3), (1000, 3))
_SKEWED = 0.4
_CERTIFIED_NATS = 1e-3
COLUMNS = (
    "people",
    "places",
    "count vectors",
    "looked at",
    "leakage (bits)",
    "distortion (people)",
    "most about one person (bits)",
    "certificate (nats)",
    "seconds",
)


def _table_2(setting: Setting) -> Finding:
    sizes = _QUICK if setting.quick else SIZES
    rows: list[list[Any]] = []
    for number, (people, places) in enumerate(sizes):
        setting.progress(number / len(sizes), f"{people} people, {places} places")
        began = perf_counter()
        release = CountRelease(people=people, prior=_prior(places), multiplier=1.0)
        rows.append([
            people, places, number_of_vectors(people, places), release.designs[0].vectors.size,
            release.leakage_bits, release.distortion, release.most_personal_leakage_bits,
            release.certificate_nats, perf_counter() - began,
        ])  # fmt: skip
    listed = enumerate(LARGEST_PLACES, start=1)
    beyond = [pair for pair in listed if not within_reach(Prior.parse(_prior(pair[1]), pair[0]))]
    rows += [[*pair, number_of_vectors(*pair), *[None] * 6] for pair in beyond]
    made = [row for row in rows if row[3] is not None and row[7] <= _CERTIFIED_NATS]
    return Finding(
        *judge_sizes([(row[0], row[2]) for row in made], beyond),
        table=Table.of(COLUMNS, rows),
        numbers={
            "largest_count_vectors": max(row[2] for row in made),
            "seconds": max(row[8] for row in made),
            "pairs_beyond_reach": len(beyond),
        },
    )


def judge_sizes(made: Sequence[tuple[int, int]], beyond: Sequence[tuple[int, int]]) -> Verdict:
    """Table 2 and §5.1, from people and vectors of certified releases, and pairs out of reach."""
    people, vectors = max(made)
    refused = "none is out of reach"
    if beyond:
        first, last = beyond[0], beyond[-1]
        refused = (
            f"{len(beyond)} of {len(LARGEST_PLACES)} are not, from {first[0]} × {first[1]} with "
            f"{number_of_vectors(*first):,} vectors to {last[0]} × {last[1]} with "
            f"{number_of_vectors(*last):,}"
        )
    return Verdict.of(
        Claim("all pairs of the table are possible inputs", not beyond, refused),
        Claim(
            "at most 35 people can be processed",
            people <= len(LARGEST_PLACES),
            f"{people} people, {vectors:,} vectors, certified within {_CERTIFIED_NATS:g} nats",
        ),
        note="The table bounds the enumeration; what is multiplied at each step has the square of that.",
    )


def _prior(places: int) -> list[float]:
    """One place with two fifths of the people, the others alike."""
    return [_SKEWED, *[(1 - _SKEWED) / (places - 1)] * (places - 1)]


TABLE_2 = Experiment(
    "table-2",
    "Table 2: how many people and places can be handled",
    "The listed pairs of people and places are possible inputs of Algorithm 1, which can process at "
    "most 35 people; larger inputs are future work.",
    _table_2,
    judge_sizes,
)
