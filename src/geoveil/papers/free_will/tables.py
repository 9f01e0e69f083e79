"""Tables 1 and 2: every method under every mixture, in a word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geoveil.papers.free_will import rappor
from geoveil.papers.free_will.populations import (
    GENERAL,
    INVERTED,
    RAPPOR,
    RESULTS,
    UPDATED,
    Alphabet,
    Kind,
    Simulated,
    simulated,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict

EXCELLENT, GOOD, BAD = "Excellent", "Good", "Bad"
_EXCELLENT_UP_TO, _GOOD_UP_TO = 1.3, 2.2

COMPARED = {
    "[INV]_R": RESULTS[:2],
    "[IBU]_R": RESULTS[2:],
    "[INV]_M": INVERTED,
    "[IBU]_M": (UPDATED,),
}

PUBLISHED_1: dict[Kind, dict[str, str]] = {
    "k-RR": {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": EXCELLENT, "[IBU]_M": GOOD},
    "geometric": {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": BAD, "[IBU]_M": BAD},
    "geometric and k-RR": {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": BAD, "[IBU]_M": BAD},
    "Shokri's": {"[IBU]_R": BAD, "[IBU]_M": BAD},
}
PUBLISHED_2 = {
    "high privacy": {"[RAP]_R": BAD, "[RAP]_M": EXCELLENT},
    "low privacy": {"[RAP]_R": BAD, "[RAP]_M": GOOD},
}

_COLUMNS = ("mixture", "alphabet", "method", "EMD over that of GIBU", "ours", "the paper")
_SCALE = (
    f"Ours is {EXCELLENT} up to {_EXCELLENT_UP_TO:g} times the EMD of GIBU with the most people, {GOOD} up "
    f"to {_GOOD_UP_TO:g} times, else {BAD}."
)


def rating(ratio: float) -> str:
    """A word for the error of a method over that of GIBU.

    >>> rating(1.1), rating(2.0), rating(7.0)
    ('Excellent', 'Good', 'Bad')
    """
    return EXCELLENT if ratio <= _EXCELLENT_UP_TO else GOOD if ratio <= _GOOD_UP_TO else BAD


def _table_1(setting: Setting) -> Finding:
    rows = []
    alphabets: tuple[Alphabet, ...] = ("linear", "planar")
    for kind, published in PUBLISHED_1.items():
        for alphabet in alphabets:
            one = simulated(kind, alphabet, setting)
            for method, word in published.items():
                if all(name in one.errors for name in COMPARED[method]):
                    rows.append(_row(kind, alphabet, method, one, COMPARED[method], word))
    return _rated(rows)


def _table_2(setting: Setting) -> Finding:
    rows = []
    compared = {"[RAP]_R": rappor.RESULTS, "[RAP]_M": rappor.MECHANISMS}
    for regime in RAPPOR:
        one = rappor.simulated_rappor(regime, setting)
        for method, word in PUBLISHED_2[regime].items():
            rows.append(_row(f"RAPPOR, {regime}", "linear", method, one, compared[method], word))
    return _rated(rows)


def _row(
    mixture: str, alphabet: str, method: str, one: Simulated, names: Sequence[str], word: str
) -> list[str | float]:
    ratio = min(one.final(name) for name in names) / one.final(GENERAL)
    return [mixture, alphabet, method, ratio, rating(ratio), word]


def judge_words(rows: Sequence[Sequence[str | float]]) -> Verdict:
    """Tables 1 and 2: GIBU is excellent, and every other method has the word printed for it."""
    ratios = np.array([float(row[3]) for row in rows])
    claims = [
        Claim(
            "GIBU is excellent",
            bool((ratios >= 1).all()),
            f"it has the least error in {int((ratios >= 1).sum())} of {len(rows)} comparisons",
        )
    ]
    for method in dict.fromkeys(str(row[2]) for row in rows):
        own = [row for row in rows if row[2] == method]
        other = [
            f"{row[4]}, {row[3]:.2f} times, under {row[0]}, {row[1]}"
            for row in own
            if row[4] != row[5]
        ]
        words = "; ".join([f"{len(own) - len(other)} of {len(own)} words are the same", *other])
        claims.append(Claim(f"the words for {method}", not other, words))
    return Verdict.of(*claims, note=_SCALE)


def _rated(rows: list[list[str | float]]) -> Finding:
    return Finding(
        *judge_words(rows),
        table=Table.of(_COLUMNS, rows),
        numbers={"same": sum(row[4] == row[5] for row in rows), "words": len(rows)},
    )


TABLE_1 = Experiment(
    name="table-1",
    title="Table 1: the methods in a word",
    statement=(
        "GIBU is excellent under every mixture; of the others only [INV]_M under k-RR is excellent and "
        "[IBU]_M under k-RR good, all else is bad."
    ),
    run=_table_1,
    judge=judge_words,
)
TABLE_2 = Experiment(
    name="table-2",
    title="Table 2: the methods under RAPPOR in a word",
    statement="[RAP]_R is bad; [RAP]_M is excellent at high and good at low privacy; GIBU is excellent.",
    run=_table_2,
    judge=judge_words,
)
