"""Figure 4 and §5.2.1: how the prior shapes the law of the counts, and what becomes of popular places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.papers.aggregates.series import (
    MULTIPLIERS,
    PRIORS,
    QUICK_MULTIPLIERS,
    THRESHOLD,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot.curves import COLOURS
from geoveil.release import CountRelease, CountVectors, Prior

_PEOPLE, _PLACES = 5, 3
_MODES = {
    "p1": {(1, 2, 2), (2, 1, 2), (2, 2, 1)},
    "p2": {(1, 3, 1)},
    "p3": {(0, 0, 5)},
    "p4": {(5, 0, 0)},
}
"""The most likely count vectors that the paper names."""


def _figure_4(setting: Setting) -> Finding:
    vectors = CountVectors(_PEOPLE, _PLACES)
    laws = {name: Prior.parse(prior, _PEOPLE).law(vectors) for name, prior in PRIORS.items()}
    modes = {name: _modes(law, vectors) for name, law in laws.items()}
    spread = {name: float(law.max() - law.min()) for name, law in laws.items()}
    rows = [
        [" ".join(map(str, vector)), *(laws[name][number] for name in laws)]
        for number, vector in enumerate(vectors.vectors.tolist())
    ]
    return Finding(
        *judge_laws(modes, spread),
        table=Table.of(("counts", *laws), rows),
        draw=partial(_draw, laws, [row[0] for row in rows]),
        numbers={f"most_likely_{name}": float(law.max()) for name, law in laws.items()},
        figure_size=(8.4, 5.6),
    )


def judge_laws(modes: Mapping[str, Set[tuple[int, ...]]], spread: Mapping[str, float]) -> Verdict:
    """§5.2.1: the most likely vectors, and laws the more skewed the more skewed the prior."""
    named = ", ".join(
        " and ".join(" ".join(map(str, mode)) for mode in sorted(modes[name])) for name in _MODES
    )
    skewed = ", ".join(f"{name} {spread[name]:.3f}" for name in _MODES)
    return Verdict.of(
        Claim("most likely are the vectors that the paper names", dict(modes) == _MODES, named),
        Claim(
            "the law is more skewed under p2 than under p1 and most under p3 and p4",
            spread["p1"] < spread["p2"] < min(spread["p3"], spread["p4"]),
            f"largest minus smallest probability: {skewed}",
        ),
        Claim(
            "p3 and p4 give the same degree of skewness",
            abs(spread["p3"] - spread["p4"]) < 1e-9,
            f"{spread['p3']:.3f} and {spread['p4']:.3f}",
        ),
    )


def _modes(law: FloatArray, vectors: CountVectors) -> set[tuple[int, ...]]:
    best = np.flatnonzero(law > law.max() * (1 - 1e-9))
    return {tuple(vectors.vectors[number].tolist()) for number in best}


def _draw(laws: dict[str, FloatArray], names: list[Any], figure: Any) -> None:
    axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    for each, (name, law) in zip(axes, laws.items(), strict=True):
        each.bar(range(len(law)), law, color=COLOURS[0])
        each.set_title(f"{name} = ({', '.join(f'{share:.2g}' for share in PRIORS[name])})")
        each.set_xticks(range(len(law)), names, rotation=90, fontsize=6)
    for each in axes[::2]:
        each.set_ylabel("probability")


FIGURE_4 = Experiment(
    "figure-4",
    "Figure 4: the law of the counts under four priors (5 people, 3 places)",
    "The more skewed the prior, the more skewed the law of the counts: most likely are 1 2 2 and its "
    "orders under p1, 1 3 1 under p2, 0 0 5 under p3 and 5 0 0 under p4.",
    _figure_4,
    judge_laws,
)


# -- popular and unpopular places -------------------------------------------------------------------

_CROWDS, _QUICK_CROWDS = (5, 20), (5,)


def _places(setting: Setting) -> Finding:
    rows: list[list[Any]] = []
    for people in _QUICK_CROWDS if setting.quick else _CROWDS:
        for name in ("p2", "p3"):
            for rate in QUICK_MULTIPLIERS if setting.quick else MULTIPLIERS:
                setting.progress(None, f"{people} people, {name}, λ = {rate:g}")
                rows.append([people, name, rate, *_perturbed(people, name, rate)])
    return Finding(
        *judge_places([row[3:] for row in rows]),
        table=Table.of(
            ("people", "prior", "λ", "popular: error per visitor", "unpopular: error per visitor",
             "popular: shown if visited", "unpopular: shown if visited"),
            rows,
        ),
    )  # fmt: skip


def _perturbed(people: int, name: str, multiplier: float) -> tuple[float, float, float, float]:
    """For the most and the least popular place: E|ã − a|/E a, and P(ã > 0 | a > 0)."""
    prior = PRIORS[name]
    (design,) = CountRelease.as_published(
        people=people, prior=prior, multiplier=multiplier, threshold=THRESHOLD
    ).designs
    joint = design.law.probabilities[:, None] * design.channel.matrix()
    errors, shown = [], []
    for place in (int(np.argmax(prior)), int(np.argmin(prior))):
        counts = design.vectors.vectors[:, place]
        errors.append(
            float((joint * np.abs(counts[:, None] - counts)).sum()) / (people * prior[place])
        )
        visited = joint[counts > 0]
        shown.append(float(visited[:, counts > 0].sum() / visited.sum()))
    return errors[0], errors[1], shown[0], shown[1]


def judge_places(rows: Sequence[Sequence[float]]) -> Verdict:
    """§5.2.1, from rows (error per visitor: popular, unpopular; shown if visited: popular, unpopular)."""
    popular, unpopular, often, seldom = np.transpose(rows)
    return Verdict.of(
        Claim(
            "popular places are perturbed less than unpopular ones",
            bool((popular < unpopular).all()),
            f"an error of {popular.min():.2f} to {popular.max():.2f} per visitor against "
            f"{unpopular.min():.2f} to {unpopular.max():.2f}",
        ),
        Claim(
            "popular places are output with no smaller probability",
            bool((often >= seldom - 1e-9).all()),
            f"a visited one is shown in {often.min():.0%} to {often.max():.0%} of releases against "
            f"{seldom.min():.0%} to {seldom.max():.0%}",
        ),
    )


UNPOPULAR = Experiment(
    "unpopular-places",
    "§5.2.1: unpopular places are perturbed more",
    "The conditional probabilities of the release show that popular locations are less perturbed while "
    "unpopular ones are perturbed more, which are so better protected.",
    _places,
    judge_places,
)
