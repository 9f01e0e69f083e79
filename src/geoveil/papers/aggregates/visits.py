"""Figure 8: five people of a real dataset."""

from __future__ import annotations

from functools import partial

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.papers.aggregates.series import COLUMNS, series
from geoveil.papers.aggregates.tradeoff import draw_panels, judge_scm, least_ratio
from geoveil.papers.report import Experiment, Finding, Setting, Table, Verdict
from geoveil.randomness import seeded

DATA = "gowalla-los-angeles"
_PEOPLE, _PLACES, _LEAST_VISITS = 5, 3, 20


def _figure_8(setting: Setting) -> Finding:
    users, places = setting.data.visits(DATA)
    chosen = _drawn_people(users, setting.seed)
    prior, popular = visit_shares(users, places, chosen)
    curve = series(setting, "five people", _PEOPLE, prior.tolist())
    ratio = least_ratio([curve])
    visits = int(np.isin(users, chosen).sum())
    return Finding(
        *judge_visits(ratio, visits),
        table=Table.of(COLUMNS, curve.rows()),
        draw=partial(draw_panels, {"five people, three places": [curve]}),
        numbers={"least_ratio_of_scm": ratio, "visits": visits, "places": len(popular)},
        figure_size=(5.6, 3.8),
    )


def judge_visits(ratio: float, visits: int) -> Verdict:
    """§5.3: less leakage than SCM for five people and three places."""
    return Verdict.of(
        judge_scm(ratio, " for five users of Gowalla"),
        note=(
            f"Five people drawn at random from {DATA} ({visits} visits), places rounded to two digits, "
            "the three most frequent kept; those of the paper are not known, so the curve itself cannot "
            "be compared."
        ),
    )


def _drawn_people(users: IntArray, seed: int) -> IntArray:
    """Five people at random among those with enough visits to tell where they go."""
    people, visits = np.unique(users, return_counts=True)
    active = people[visits >= _LEAST_VISITS]
    order = np.argsort(seeded(seed).uniform(active.size))
    return np.sort(active[order[:_PEOPLE]])


def visit_shares(
    users: IntArray, places: IntArray, chosen: IntArray
) -> tuple[FloatArray, IntArray]:
    """Shares of the three most frequent rounded places in the visits of each person (AGG §5.3).

    One visit is added to each, so that no place is impossible.
    """
    own = np.isin(users, chosen)
    person, place = np.searchsorted(chosen, users[own]), two_digits(places[own])
    codes, frequency = np.unique(place, return_counts=True)
    popular = codes[np.argsort(-frequency, kind="stable")[:_PLACES]]
    visits = np.ones((chosen.size, _PLACES))
    for column, code in enumerate(popular):
        visits[:, column] += np.bincount(person[place == code], minlength=chosen.size)
    return visits / visits.sum(axis=1, keepdims=True), popular


def two_digits(codes: IntArray) -> IntArray:
    """Codes rounded to their two leading digits.

    >>> two_digits(np.array([1234567, 98, 7, 1995])).tolist()
    [1200000, 98, 7, 2000]
    """
    digits = np.floor(np.log10(np.maximum(codes, 1))).astype(np.int64)
    unit = 10 ** np.maximum(digits - 1, 0)
    return (codes + unit // 2) // unit * unit


FIGURE_8 = Experiment(
    "figure-8",
    "Figure 8: leakage and distortion on a real dataset",
    "For five users of Gowalla and three locations the mechanism always leaks less than SCM.",
    _figure_8,
    judge_visits,
)
