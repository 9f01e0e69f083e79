"""AGG: one person, unpopular places, and how large the lattice may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, xlogy

from geoveil.papers.aggregates.tradeoff import (
    CASES,
    MULTIPLIERS,
    PRIORS,
    QUICK_MULTIPLIERS,
    THRESHOLD,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot.curves import COLOURS
from geoveil.release import CountRelease, CountVectors, Prior, number_of_vectors
from geoveil.release.coarsening import within_reach

COLUMNS = (
    "case",
    "λ",
    "distortion (people)",
    "most about one person (bits)",
    "person",
    "about the counts (bits)",
)


def _figure_7(setting: Setting) -> Finding:
    multipliers = QUICK_MULTIPLIERS if setting.quick else MULTIPLIERS
    rows: list[list[Any]] = []
    for number, (name, prior) in enumerate(CASES.items()):
        setting.progress(number / len(CASES), name)
        for rate in multipliers:
            release = CountRelease.as_published(
                people=len(prior), prior=prior, multiplier=rate, threshold=THRESHOLD
            )
            chain = release.chain
            person = int(release.personal_leakage_bits.argmax()) + 1
            rows.append([name, rate, release.distortion, chain.personal_bits, person,
                         chain.aggregate_bits])  # fmt: skip
    share = max(row[3] / row[5] for row in rows if row[5] > 1e-6)
    return Finding(
        *judge_people(share, len(rows)),
        table=Table.of(COLUMNS, rows),
        draw=partial(_draw, rows),
        numbers={"largest_personal_share": share},
        figure_size=(8.4, 3.6),
    )


def judge_people(share: float, releases: int) -> Verdict:
    """§5.2.2: from the largest leakage about one person as a share of that about the counts."""
    return Verdict.of(
        Claim(
            "the largest leakage about one person is always less than that about the counts",
            share < 1,
            f"at most {share:.0%} of it in {releases} releases",
        )
    )


def _draw(rows: list[list[Any]], figure: Any) -> None:
    cases = list(CASES)
    for axes, names in zip(figure.subplots(1, 2, sharey=True), (cases[:3], cases[3:]), strict=True):
        for number, name in enumerate(names):
            own = [row for row in rows if row[0] == name]
            for column, line, what in ((5, "-", "the counts"), (3, "--", "one person")):
                axes.plot([row[2] for row in own], [row[column] for row in own], linestyle=line,
                          color=COLOURS[number], label=f"{name}, {what}")  # fmt: skip
        axes.set(xlabel="distortion (people)", ylabel="leakage (bits)", ylim=(0, None))
        axes.legend(fontsize=7)


FIGURE_7 = Experiment(
    "figure-7",
    "Figure 7: leakage about the most exposed person and about the counts",
    "The largest leakage about one person is always less than the leakage about the counts (Theorem 1).",
    _figure_7,
    judge_people,
)


# -- Definition 3: a convex problem, small enough to solve ------------------------------------------

_PEOPLE = 5
_RATES = tuple(np.geomspace(0.02, 2.0, 17).tolist())
_QUICK_RATES = tuple(np.geomspace(0.05, 1.0, 6).tolist())
_STEPS, _QUICK_STEPS = 3_000, 1_000
_ROUNDING_BITS = 1e-9


class PersonalOptimum(NamedTuple):
    """The release that leaks least about one person at a multiplier: bits, people, and a proven gap."""

    multiplier: float
    leakage_bits: float
    distortion: float
    gap_bits: float

    def least_bits_at(self, distortion: float) -> float:
        """No release with this distortion leaks less about the person (Lagrange)."""
        saved = self.multiplier * (self.distortion - distortion) / math.log(2)
        return self.leakage_bits - self.gap_bits + saved


def personal_optimum(
    prior: Sequence[float], people: int, multiplier: float, steps: int
) -> PersonalOptimum:
    """min I(A_m; Ã) + λ·D over all channels, for people with one prior (so that all are alike).

    I(A_m; Ã) is convex in q and no steeper than Σ p(a)·KL(q′ ‖ q), so q ← q·e^{−gradient} goes down to the
    minimum, and Σ p(a)·(Σ q·gradient − min gradient) bounds what is left.
    Reference: AGG Def. 3.
    """
    vectors = CountVectors(people, len(prior))
    law, distances = Prior.parse(prior, people).law(vectors), vectors.distances_km()
    given = vectors.vectors / people  # P(the person is at l | a)
    forward = (law[:, None] * given).T / np.asarray(prior)[:, None]  # P(a | the person is at l)
    logs = -multiplier * distances
    for _ in range(steps):
        channel = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        told, seen = forward @ channel, law @ channel
        gradient = given @ np.log(np.maximum(told, 1e-300) / np.maximum(seen, 1e-300))
        gradient += multiplier * distances
        logs = np.log(np.maximum(channel, 1e-300)) - gradient
    gap = float(law @ ((channel * gradient).sum(axis=1) - gradient.min(axis=1)))
    ratios = xlogy(told, np.where(told > 0, told / np.maximum(seen, 1e-300), 1.0))
    leakage = float(np.asarray(prior) @ ratios.sum(axis=1))
    distortion = float(law @ (channel * distances).sum(axis=1))
    return PersonalOptimum(multiplier, leakage / math.log(2), distortion, gap / math.log(2))


def _definition_3(setting: Setting) -> Finding:
    rates, steps = (_QUICK_RATES, _QUICK_STEPS) if setting.quick else (_RATES, _STEPS)
    rows: list[list[Any]] = []
    for number, name in enumerate(("p1", "p2", "p3")):
        setting.progress(number / 3, name)
        found = [personal_optimum(PRIORS[name], _PEOPLE, rate, steps) for rate in rates]
        for rate in QUICK_MULTIPLIERS if setting.quick else MULTIPLIERS:
            release = CountRelease.as_published(
                people=_PEOPLE, prior=PRIORS[name], multiplier=rate, threshold=THRESHOLD
            )
            distortion = release.distortion
            least = max(0.0, *(each.least_bits_at(distortion) for each in found))
            rows.append([name, rate, distortion, least, _reached(found, distortion),
                         release.most_personal_leakage_bits, release.leakage_bits])  # fmt: skip
    return Finding(
        *judge_definition_3([row[3:] for row in rows]),
        table=Table.of(
            ("prior", "λ", "distortion (people)", "least about one person, at least (bits)",
             "reached (bits)", "by the mechanism for the counts (bits)", "about the counts (bits)"),
            rows,
        ),
        draw=partial(_draw_least, rows),
        figure_size=(8.4, 3.4),
    )  # fmt: skip


def _reached(found: Sequence[PersonalOptimum], distortion: float) -> float:
    """What the optima reach at a distortion; between two of them by choosing one at random."""
    points = sorted((each.distortion, each.leakage_bits) for each in found)
    return float(np.interp(distortion, *np.transpose(points)))


def judge_definition_3(rows: Sequence[Sequence[float]]) -> Verdict:
    """Theorem 1, from rows (proven least, least reached, mechanism for the counts, counts) in bits."""
    least, reached, person, counts = np.transpose(rows)
    seen = person > _ROUNDING_BITS
    share = (reached / np.where(seen, person, 1.0))[seen]
    return Verdict.of(
        Claim(
            "the mechanism for the counts bounds the least leakage about one person from above",
            bool((least <= person + _ROUNDING_BITS).all()),
            f"the least reached is {share.min():.0%} to {share.max():.0%} of what it tells",
        ),
        Claim(
            "that bound is tighter than the leakage about the counts",
            bool((person < counts).all()),
            f"it is {(person / counts).min():.0%} to {(person / counts).max():.0%} of it",
        ),
        note=(
            "The paper leaves L*_user(D) open as exponential; for few vectors it is a convex problem, "
            f"solved here to {max(0.0, float((reached - least).max())):.1g} bits."
        ),
    )


def _draw_least(rows: list[list[Any]], figure: Any) -> None:
    for axes, name in zip(figure.subplots(1, 3, sharey=True), ("p1", "p2", "p3"), strict=True):
        own = sorted((row[2], *row[4:6]) for row in rows if row[0] == name)
        distortion, reached, person = np.transpose(own)
        axes.plot(distortion, person, color=COLOURS[0], label="mechanism for the counts")
        axes.plot(distortion, reached, "--", color=COLOURS[1], label="least about one person")
        axes.set(title=name, xlabel="distortion (people)", ylim=(0, None))
    figure.axes[0].set_ylabel("about one person (bits)")
    figure.axes[0].legend(fontsize=7)


DEFINITION_3 = Experiment(
    "definition-3",
    "Definition 3: the release that leaks least about one person (5 people, 3 places)",
    "The least leakage about one person is at most what the mechanism for the counts leaks about one, "
    "which is a tighter bound than what that leaks about the counts (Theorem 1); the least itself is "
    "not computed.",
    _definition_3,
    judge_definition_3,
)


# --- Table 2 and beyond it: how many people and places can be handled


LARGEST_PLACES = (
    53, 33, 27, 23, 21, 19, 18, 17, 16, 16, 15, 15, 14, 14, 14, 13, 13, 13,
    13, 12, 12, 12, 12, 12, 12, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11,
)  # fmt: skip
"""L_max of Table 2 for 1 … 35 people."""
SIZES = ((1, 53), (2, 33), (3, 27), (4, 23), (20, 3), (35, 3), (1000, 3), (60, 4), (20, 5))
_QUICK = ((1, 53), (2, 33), (35, 3), (1000, 3))
_SKEWED = 0.4
_CERTIFIED_NATS = 1e-3
PAIR_COLUMNS = (
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
        table=Table.of(PAIR_COLUMNS, rows),
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
