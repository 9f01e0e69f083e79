"""Table 2 and beyond it: how many people and places can be handled."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.release import CountRelease, number_of_vectors

SIZES = ((20, 3), (35, 3), (1000, 3), (60, 4), (20, 5))
_QUICK = ((20, 3), (35, 3), (1000, 3))
_SKEWED = 0.4
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
    largest = max(rows, key=lambda row: row[2])
    return Finding(
        agreement=Agreement.NO,
        conclusion=(
            f"{largest[0]} people over {largest[1]} places, {largest[2]:,} count vectors, take "
            f"{largest[8]:.1f} s with a certificate of {largest[7]:.1g} nats: products are FFTs, without "
            "a matrix. Table 2 bounds the enumeration only; with N × N products the paper stops at 231."
        ),
        table=Table.of(COLUMNS, rows),
        numbers={"largest_count_vectors": largest[2], "seconds": largest[8]},
    )


def _prior(places: int) -> list[float]:
    """One place with two fifths of the people, the others alike."""
    return [_SKEWED, *[(1 - _SKEWED) / (places - 1)] * (places - 1)]


TABLE_2 = Experiment(
    "table-2",
    "Table 2: how many people and places can be handled",
    "Algorithm 1 can process at most 35 people; larger inputs are future work.",
    _table_2,
)
