"""AGG: what its laws say, Algorithm 1 and its threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.papers.aggregates.tradeoff import MULTIPLIERS, PRIORS, QUICK_MULTIPLIERS, THRESHOLD
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


# --- Algorithm 1 as printed, its threshold (Figure 9), and the certified optimum beside it


SETTINGS = ((5, "p1"), (5, "p3"), (20, "p1"), (20, "p3"))
FINEST, QUICK_FINEST = 1e-10, 1e-6
"""Thresholds (nats) at which Algorithm 1 is taken to have converged."""
_LEAST_BITS, _SLIGHT = 1e-3, 0.05
THRESHOLDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_PEOPLE_OF_THRESHOLD, _REPEATS, _QUICK_REPEATS = 20, 5, 1


def _algorithm_1(setting: Setting) -> Finding:
    rows: list[list[Any]] = []
    for people, name in SETTINGS:
        prior = PRIORS[name]
        printed, converged = (
            CountRelease.as_published(people=people, prior=prior, multiplier=1.0, threshold=at)
            for at in (THRESHOLD, QUICK_FINEST if setting.quick else FINEST)
        )
        best = CountRelease(people=people, prior=prior, multiplier=1.0)
        least = _objective_bits(best)
        rows.append([people, name, printed.leakage_bits, printed.distortion,
                     best.leakage_bits, best.distortion, best.certificate_nats,
                     _objective_bits(converged) - least, _objective_bits(printed) - least])  # fmt: skip
    return Finding(
        *judge_algorithm(max(row[7] for row in rows), max(row[2] / row[4] - 1 for row in rows)),
        table=Table.of(
            ("people", "prior", "leakage (bits)", "distortion (people)", "optimum: leakage (bits)",
             "optimum: distortion", "optimum: certificate (nats)", "converged: above the least (bits)",
             "at 0.001: above the least (bits)"),
            rows,
        ),
        numbers={f"leakage_bits_{row[0]}_{row[1]}": row[2] for row in rows},
    )  # fmt: skip


def _objective_bits(release: CountRelease) -> float:
    """I(A; Ã) + λ·D, which Algorithm 1 makes small, in bits."""
    return release.leakage_bits + release.multiplier * release.distortion / math.log(2)


def judge_algorithm(converged_bits: float, increase: float) -> Verdict:
    """§4.3 and §5.3: how far I + λD ends above the certified least, and the leakage more at 0.001."""
    return Verdict.of(
        Claim(
            "Algorithm 1 converges to the optimal solution",
            converged_bits <= _LEAST_BITS,
            f"{converged_bits:.1g} bits above the certified least at most",
        ),
        Claim(
            "at the threshold 0.001 the leakage has only a slight increase",
            increase <= _SLIGHT,
            f"by {increase:.1%} at most",
        ),
    )


def _figure_9(setting: Setting) -> Finding:
    repeats = _QUICK_REPEATS if setting.quick else _REPEATS
    rows: list[list[Any]] = []
    for number, threshold in enumerate(THRESHOLDS):
        setting.progress(number / len(THRESHOLDS), f"threshold {threshold:g}")
        seconds, release = _timed(threshold, repeats)
        (design,) = release.designs
        rows.append([threshold, design.ascent.steps, seconds, release.leakage_bits,
                     release.distortion, release.certificate_nats])  # fmt: skip
    began = perf_counter()
    best = CountRelease(people=_PEOPLE_OF_THRESHOLD, prior=PRIORS["p1"], multiplier=1.0)
    ours: list[Any] = [None, best.designs[0].ascent.steps, perf_counter() - began, best.leakage_bits,
            best.distortion, best.certificate_nats]  # fmt: skip
    low, middle = rows[0], rows[THRESHOLDS.index(THRESHOLD)]
    change = middle[3] - low[3]
    note = (
        "A threshold does not say how near the optimum is; the certificate does: "
        f"{middle[5]:.2g} nats at 0.001. Ours ends at {ours[5]:.1g} nats in {ours[1]} steps "
        f"({1000 * ours[2]:.0f} ms)."
    )
    return Finding(
        *judge_threshold(
            [row[1] for row in rows], [row[3] for row in rows], [row[4] for row in rows], note
        ),
        table=Table.of(
            ("threshold (nats)", "steps", "seconds", "leakage (bits)", "distortion (people)",
             "certificate (nats)"),
            [*rows, ours],
        ),
        draw=partial(_draw_threshold, rows, ours),
        numbers={"steps_at_0.001": middle[1], "leakage_growth_bits": change},
        figure_size=(8.4, 3.0),
    )  # fmt: skip


def judge_threshold(
    steps: Sequence[int], leakage: Sequence[float], distortion: Sequence[float], note: str = ""
) -> Verdict:
    """Figure 9, by rising thresholds: fewer steps, leakage and distortion nearly the same."""
    bits, people = (max(each) / min(each) - 1 for each in (leakage, distortion))
    falls = all(one >= other for one, other in pairwise(steps)) and 2 * steps[-1] <= steps[0]
    return Verdict.of(
        Claim(
            "the time falls noticeably as the threshold grows",
            falls,
            f"{steps[0]} to {steps[-1]} steps",
        ),
        Claim("the leakage changes only slightly", bits <= _SLIGHT, f"by {bits:.1%}"),
        Claim("the distortion changes only slightly", people <= _SLIGHT, f"by {people:.1%}"),
        note=note,
    )


def _timed(threshold: float, repeats: int) -> tuple[float, CountRelease]:
    """The shortest time of several runs, and the release."""
    best = float("inf")
    for _ in range(repeats):
        began = perf_counter()
        release = CountRelease.as_published(
            people=_PEOPLE_OF_THRESHOLD, prior=PRIORS["p1"], multiplier=1.0, threshold=threshold
        )
        best = min(best, perf_counter() - began)
    return best, release


def _draw_threshold(rows: list[list[Any]], ours: list[Any], figure: Any) -> None:
    sides = ((2, "time (s)"), (3, "leakage (bits)"), (4, "distortion (people)"))
    for axes, (column, label) in zip(figure.subplots(1, 3), sides, strict=True):
        axes.plot([row[0] for row in rows], [row[column] for row in rows], marker="o",
                  color=COLOURS[0], label="Algorithm 1")  # fmt: skip
        axes.axhline(ours[column], color=COLOURS[1], linestyle="--", label="certified optimum")
        axes.set(xlabel="threshold (nats)", ylabel=label, xscale="log")
    figure.axes[0].set_yscale("log")
    figure.axes[1].legend(fontsize=7)


ALGORITHM_1 = Experiment(
    "algorithm-1",
    "Algorithm 1 at λ = 1: does it reach the optimum?",
    "The iteration eventually converges to the optimal solution, and stopped at the threshold 0.001 its "
    "leakage only has a slight increase.",
    _algorithm_1,
    judge_algorithm,
)
FIGURE_9 = Experiment(
    "figure-9",
    "Figure 9: the impact of the threshold (20 people, 3 places, p1, λ = 1)",
    "With a larger threshold the time to converge falls noticeably, while leakage and distortion "
    "change only slightly.",
    _figure_9,
    judge_threshold,
)
