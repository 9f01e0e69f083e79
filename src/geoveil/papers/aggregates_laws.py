"""AGG: what its laws say, Algorithm 1 and its threshold, one person, and how many vectors there may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, xlogy

from geoveil.errors import percent
from geoveil.papers import aggregates_tradeoff as tradeoff
from geoveil.papers import report
from geoveil.papers.aggregates_tradeoff import PRIORS, published
from geoveil.papers.report import Claim, Measured, Setting, Verdict, experiment
from geoveil.plot.curves import COLOURS
from geoveil.release import CountRelease, CountVectors, Prior, number_of_vectors
from geoveil.release.count_release import within_reach

PEOPLE, PLACES = 5, 3
_MODES = {
    "p1": {(1, 2, 2), (2, 1, 2), (2, 2, 1)},
    "p2": {(1, 3, 1)},
    "p3": {(0, 0, 5)},
    "p4": {(5, 0, 0)},
}
"""The most likely count vectors that the paper names."""


def judge_laws(modes: Mapping[str, Set[tuple[int, ...]]], spread: Mapping[str, float]) -> Verdict:
    """§5.2.1: the most likely vectors, and laws the more skewed the more skewed the prior."""
    named = ", ".join(
        " and ".join(" ".join(map(str, mode)) for mode in sorted(modes[name])) for name in _MODES
    )
    skewed = ", ".join(f"{name} {spread[name]:.3f}" for name in _MODES)
    return Verdict.of(
        Claim("most likely are the vectors that the paper names", dict(modes) == _MODES, named),
        Claim("the law is more skewed under p2 than under p1 and most under p3 and p4",
              spread["p1"] < spread["p2"] < min(spread["p3"], spread["p4"]),
              f"largest minus smallest probability: {skewed}"),
        Claim("p3 and p4 give the same degree of skewness", abs(spread["p3"] - spread["p4"]) < 1e-9,
              f"{spread['p3']:.3f} and {spread['p4']:.3f}"),
    )  # fmt: skip


@experiment("Figure 4: the law of the counts under four priors (5 people, 3 places)", judge_laws)
def figure_4(setting: Setting) -> Measured:
    """The more skewed the prior, the more skewed the law of the counts: most likely are 1 2 2 and its
    orders under p1, 1 3 1 under p2, 0 0 5 under p3 and 5 0 0 under p4.
    """
    vectors = CountVectors(PEOPLE, PLACES)
    laws = {name: Prior.parse(prior, PEOPLE).law(vectors) for name, prior in PRIORS.items()}
    likeliest = {n: vectors.vectors[law > law.max() * (1 - 1e-9)] for n, law in laws.items()}
    modes = {name: set(map(tuple, rows.tolist())) for name, rows in likeliest.items()}
    names = [" ".join(map(str, vector)) for vector in vectors.vectors.tolist()]

    def draw(figure: Any) -> None:
        axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
        for part, (name, law) in zip(axes, laws.items(), strict=True):
            part.bar(range(len(law)), law, color=COLOURS[0])
            part.set_title(f"{name} = ({report.listed(PRIORS[name], '.2g')})")
            part.set_xticks(range(len(law)), names, rotation=90, fontsize=6)
        for part in axes[::2]:
            part.set_ylabel("probability")

    figures = (modes, {name: float(law.max() - law.min()) for name, law in laws.items()})
    table = zip(names, *laws.values(), strict=True)
    numbers = {f"most_likely_{name}": float(law.max()) for name, law in laws.items()}
    return Measured(figures, ("counts", *laws), table, draw, numbers, (8.4, 5.6))


def judge_places(rows: Sequence[Sequence[float]]) -> Verdict:
    """§5.2.1, from rows (error per visitor: popular, unpopular; shown if visited: popular, unpopular)."""
    popular, unpopular, often, seldom = np.transpose(rows)
    return Verdict.of(
        Claim("popular places are perturbed less than unpopular ones", (popular < unpopular).all(),
              f"an error of {report.span(popular)} per visitor against {report.span(unpopular)}"),
        Claim("popular places are output with no smaller probability", (often >= seldom - 1e-9).all(),
              f"a visited one is shown in {report.span(often, '.0%')} of releases against "
              f"{report.span(seldom, '.0%')}"),
    )  # fmt: skip


@experiment("§5.2.1: unpopular places are perturbed more", judge_places)
def unpopular_places(setting: Setting) -> Measured:
    """The conditional probabilities of the release show that popular locations are less perturbed while
    unpopular ones are perturbed more, which are so better protected.
    """
    rows: list[list[Any]] = []
    for people in setting.pick((5, 20), (5,)):
        for name in ("p2", "p3"):
            for rate in setting.pick(tradeoff.MULTIPLIERS, tradeoff.QUICK_MULTIPLIERS):
                setting.progress(None, f"{people} people, {name}, λ = {rate:g}")
                rows.append([people, name, rate, *_perturbed(people, PRIORS[name], rate)])
    columns = """people | prior | λ | popular: error per visitor | unpopular: error per visitor |
        popular: shown if visited | unpopular: shown if visited"""
    return Measured(([row[3:] for row in rows],), columns, rows)


def _perturbed(people: int, prior: Sequence[float], multiplier: float) -> list[float]:
    """For the most and the least popular place: E|ã − a|/E a, then P(ã > 0 | a > 0) for both."""
    (design,) = published(people, prior, multiplier).designs
    joint = design.law.probabilities[:, None] * design.channel.matrix()
    errors, shown = [], []
    for place in (int(np.argmax(prior)), int(np.argmin(prior))):
        counts = design.vectors.vectors[:, place]
        error = float((joint * np.abs(counts[:, None] - counts)).sum())
        errors.append(error / (people * prior[place]))
        visited = joint[counts > 0]
        shown.append(float(visited[:, counts > 0].sum() / visited.sum()))
    return [*errors, *shown]


# --- Algorithm 1 as printed, its threshold (Figure 9), and the certified optimum beside it


_LEAST_BITS, _SLIGHT = 1e-3, 0.05
THRESHOLDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def _objective_bits(release: CountRelease) -> float:
    """I(A; Ã) + λ·D, which Algorithm 1 makes small, in bits."""
    return release.leakage_bits + release.multiplier * release.distortion / math.log(2)


def judge_algorithm(converged_bits: float, increase: float) -> Verdict:
    """§4.3 and §5.3: how far I + λD ends above the certified least, and the leakage more at 0.001."""
    return Verdict.of(
        Claim("Algorithm 1 converges to the optimal solution", converged_bits <= _LEAST_BITS,
              f"{converged_bits:.1g} bits above the certified least at most"),
        Claim("at the threshold 0.001 the leakage has only a slight increase", increase <= _SLIGHT,
              f"by {percent(increase, 1)} at most"),
    )  # fmt: skip


@experiment("Algorithm 1 at λ = 1: does it reach the optimum?", judge_algorithm)
def algorithm_1(setting: Setting) -> Measured:
    """The iteration eventually converges to the optimal solution, and stopped at the threshold 0.001 its
    leakage only has a slight increase.
    """
    rows: list[list[Any]] = []
    for people, name in ((5, "p1"), (5, "p3"), (20, "p1"), (20, "p3")):
        prior, threshold = PRIORS[name], setting.pick(1e-10, 1e-6)
        printed = published(people, prior, 1.0)
        converged = published(people, prior, 1.0, threshold)
        best = CountRelease(people=people, prior=prior, multiplier=1.0)
        least = _objective_bits(best)
        rows.append([people, name, printed.leakage_bits, printed.distortion,
                     best.leakage_bits, best.distortion, best.certificate_nats,
                     _objective_bits(converged) - least, _objective_bits(printed) - least])  # fmt: skip
    figures = (max(row[7] for row in rows), max(row[2] / row[4] - 1 for row in rows))
    columns = """people | prior | leakage (bits) | distortion (people) | optimum: leakage (bits) |
        optimum: distortion | optimum: certificate (nats) | converged: above the least (bits) |
        at 0.001: above the least (bits)"""
    numbers = {f"leakage_bits_{row[0]}_{row[1]}": row[2] for row in rows}
    return Measured(figures, columns, rows, numbers=numbers)


def judge_threshold(
    steps: Sequence[int], leakage: Sequence[float], distortion: Sequence[float], note: str = ""
) -> Verdict:
    """Figure 9, by rising thresholds: fewer steps, leakage and distortion nearly the same."""
    bits, people = (max(series) / min(series) - 1 for series in (leakage, distortion))
    falls = all(one >= other for one, other in pairwise(steps)) and 2 * steps[-1] <= steps[0]
    return Verdict.of(
        Claim("the time falls noticeably as the threshold grows", falls,
              f"{steps[0]} to {steps[-1]} steps"),
        Claim("the leakage changes only slightly", bits <= _SLIGHT, f"by {percent(bits, 1)}"),
        Claim("the distortion changes only slightly", people <= _SLIGHT, f"by {percent(people, 1)}"),
        note=note,
    )  # fmt: skip


@experiment(
    "Figure 9: the impact of the threshold (20 people, 3 places, p1, λ = 1)", judge_threshold
)
def figure_9(setting: Setting) -> Measured:
    """With a larger threshold the time to converge falls noticeably, while leakage and distortion
    change only slightly.
    """
    rows: list[list[Any]] = []
    for threshold in [*setting.each(THRESHOLDS, "threshold {:g}"), None]:  # at last our optimum
        seconds = float("inf")
        for _ in range(1 if threshold is None else setting.pick(5, 1)):
            began = perf_counter()
            if threshold is None:
                release = CountRelease(people=20, prior=PRIORS["p1"], multiplier=1.0)
            else:
                release = published(20, PRIORS["p1"], 1.0, threshold)
            seconds = min(seconds, perf_counter() - began)
        rows.append([threshold, release.designs[0].ascent.steps, seconds, release.leakage_bits,
                     release.distortion, release.certificate_nats])  # fmt: skip
    *stopped, ours = rows
    levels, steps, seconds_each, leakage, distortion, _ = zip(*stopped, strict=True)
    middle = stopped[THRESHOLDS.index(tradeoff.THRESHOLD)]
    note = (
        "A threshold does not say how near the optimum is; the certificate does: "
        f"{middle[5]:.2g} nats at 0.001. Ours ends at {ours[5]:.1g} nats in {ours[1]} steps "
        f"({1000 * ours[2]:.0f} ms)."
    )

    def draw(figure: Any) -> None:
        labels = ("time (s)", "leakage (bits)", "distortion (people)")
        measured = zip((seconds_each, leakage, distortion), ours[2:5], strict=True)
        for axes, label, (values, best) in zip(
            figure.subplots(1, 3), labels, measured, strict=True
        ):
            axes.plot(levels, values, marker="o", color=COLOURS[0], label="Algorithm 1")
            axes.axhline(best, color=COLOURS[1], linestyle="--", label="certified optimum")
            axes.set(xlabel="threshold (nats)", ylabel=label, xscale="log")
        figure.axes[0].set_yscale("log")
        figure.axes[1].legend(fontsize=7)

    columns = "threshold (nats) | steps | seconds | leakage (bits) | distortion (people) | certificate (nats)"
    numbers = {"steps_at_0.001": middle[1], "leakage_growth_bits": middle[3] - leakage[0]}
    return Measured((steps, leakage, distortion, note), columns, rows, draw, numbers, (8.4, 3.0))


RATES, QUICK_RATES = np.geomspace(0.02, 2.0, 17).tolist(), np.geomspace(0.05, 1.0, 6).tolist()
STEPS, QUICK_STEPS = 3_000, 1_000
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
    at_place = vectors.vectors / people  # (vectors, places): P(the person is at l | a)
    forward = (law[:, None] * at_place).T / np.asarray(prior)[:, None]  # P(a | the person is at l)
    logs = -multiplier * distances  # (vectors, vectors)
    for _ in range(steps):
        channel = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        by_place, overall = forward @ channel, law @ channel
        gradient = at_place @ np.log(np.maximum(by_place, 1e-300) / np.maximum(overall, 1e-300))
        gradient += multiplier * distances
        logs = np.log(np.maximum(channel, 1e-300)) - gradient
    gap = float(law @ ((channel * gradient).sum(axis=1) - gradient.min(axis=1)))
    ratios = xlogy(by_place, np.where(by_place > 0, by_place / np.maximum(overall, 1e-300), 1.0))
    leakage = float(np.asarray(prior) @ ratios.sum(axis=1))
    distortion = float(law @ (channel * distances).sum(axis=1))
    return PersonalOptimum(multiplier, leakage / math.log(2), distortion, gap / math.log(2))


def judge_definition_3(rows: Sequence[Sequence[float]]) -> Verdict:
    """Theorem 1, from rows (proven least, least reached, mechanism for the counts, counts) in bits."""
    least, reached, person, counts = np.transpose(rows)
    leaks = person > _ROUNDING_BITS
    return Verdict.of(
        Claim("the mechanism for the counts bounds the least leakage about one person from above",
              (least <= person + _ROUNDING_BITS).all(),
              f"the least reached is {report.span(reached[leaks] / person[leaks], '.0%')} of what it tells"),
        Claim("that bound is tighter than the leakage about the counts", (person < counts).all(),
              f"it is {report.span(person / counts, '.0%')} of it"),
        note="The paper leaves L*_user(D) open as exponential; for few vectors it is a convex problem, "
        f"solved here to {max(0.0, float((reached - least).max())):.1g} bits.",
    )  # fmt: skip


@experiment(
    "Definition 3: the release that leaks least about one person (5 people, 3 places)",
    judge_definition_3,
)
def definition_3(setting: Setting) -> Measured:
    """The least leakage about one person is at most what the mechanism for the counts leaks about one,
    which is a tighter bound than what that leaks about the counts (Theorem 1); the least itself is
    not computed.
    """
    names = ("p1", "p2", "p3")
    rows: list[list[Any]] = []
    rates, steps = setting.pick((RATES, STEPS), (QUICK_RATES, QUICK_STEPS))
    for name in setting.each(names, "{}"):
        optima = [personal_optimum(PRIORS[name], PEOPLE, rate, steps) for rate in rates]
        # between two optima by choosing one at random
        points = np.transpose(sorted((best.distortion, best.leakage_bits) for best in optima))
        for rate in setting.pick(tradeoff.MULTIPLIERS, tradeoff.QUICK_MULTIPLIERS):
            release = published(PEOPLE, PRIORS[name], rate)
            distortion = release.distortion
            least = max(0.0, *(best.least_bits_at(distortion) for best in optima))
            rows.append([name, rate, distortion, least, float(np.interp(distortion, *points)),
                         release.most_personal_leakage_bits, release.leakage_bits])  # fmt: skip

    def draw(figure: Any) -> None:
        for axes, name in zip(figure.subplots(1, 3, sharey=True), names, strict=True):
            own = sorted((row[2], *row[4:6]) for row in rows if row[0] == name)
            distortion, reached, person = np.transpose(own)
            axes.plot(distortion, person, color=COLOURS[0], label="mechanism for the counts")
            axes.plot(distortion, reached, "--", color=COLOURS[1], label="least about one person")
            axes.set(title=name, xlabel="distortion (people)", ylim=(0, None))
        figure.axes[0].set_ylabel("about one person (bits)")
        figure.axes[0].legend(fontsize=7)

    columns = """prior | λ | distortion (people) | least about one person, at least (bits) |
        reached (bits) | by the mechanism for the counts (bits) | about the counts (bits)"""
    return Measured(([row[3:] for row in rows],), columns, rows, draw, figure_size=(8.4, 3.4))


LARGEST_PLACES = (
    53, 33, 27, 23, 21, 19, 18, 17, 16, 16, 15, 15, 14, 14, 14, 13, 13, 13,
    13, 12, 12, 12, 12, 12, 12, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11,
)  # fmt: skip
"""L_max of Table 2 for 1 … 35 people."""
SIZES = ((1, 53), (2, 33), (3, 27), (4, 23), (20, 3), (35, 3), (1000, 3), (60, 4), (20, 5))
QUICK_SIZES = ((1, 53), (2, 33), (35, 3), (1000, 3))
_CERTIFIED_NATS = 1e-3


def judge_sizes(certified: Sequence[tuple[int, int]], beyond: Sequence[tuple[int, int]]) -> Verdict:
    """Table 2 and §5.1, from people and vectors of certified releases, and pairs out of reach."""
    most, vectors = max(certified)
    refused = "none is out of reach"
    if beyond:
        first, last = (
            f"{people} × {places} with {number_of_vectors(people, places):,}"
            for people, places in (beyond[0], beyond[-1])
        )
        refused = f"{len(beyond)} of {len(LARGEST_PLACES)} are not, from {first} vectors to {last}"
    return Verdict.of(
        Claim("all pairs of the table are possible inputs", not beyond, refused),
        Claim("at most 35 people can be processed", most <= len(LARGEST_PLACES),
              f"{most} people, {vectors:,} vectors, certified within {_CERTIFIED_NATS:g} nats"),
        note="The table bounds the enumeration; what is multiplied at each step has the square of that.",
    )  # fmt: skip


def _prior(places: int) -> list[float]:
    """One place with two fifths of the people, the others alike."""
    return [0.4, *[(1 - 0.4) / (places - 1)] * (places - 1)]


@experiment("Table 2: how many people and places can be handled", judge_sizes)
def table_2(setting: Setting) -> Measured:
    """The listed pairs of people and places are possible inputs of Algorithm 1, which can process at
    most 35 people; larger inputs are future work.
    """
    rows: list[list[Any]] = []
    for people, places in setting.each(setting.pick(SIZES, QUICK_SIZES), "{} people, {} places"):
        began = perf_counter()
        release = CountRelease(people=people, prior=_prior(places), multiplier=1.0)
        rows.append([
            people, places, number_of_vectors(people, places), release.designs[0].vectors.size,
            release.leakage_bits, release.distortion, release.most_personal_leakage_bits,
            release.certificate_nats, perf_counter() - began,
        ])  # fmt: skip
    certified = [row for row in rows if row[7] <= _CERTIFIED_NATS]
    listed = enumerate(LARGEST_PLACES, start=1)
    beyond = [pair for pair in listed if not within_reach(Prior.parse(_prior(pair[1]), pair[0]))]
    rows += [[*pair, number_of_vectors(*pair), *[None] * 6] for pair in beyond]
    figures = ([(row[0], row[2]) for row in certified], beyond)
    columns = """people | places | count vectors | looked at | leakage (bits) | distortion (people) |
        most about one person (bits) | certificate (nats) | seconds"""
    numbers = {
        "largest_count_vectors": max(row[2] for row in certified),
        "seconds": max(row[8] for row in certified),
        "pairs_beyond_reach": len(beyond),
    }
    return Measured(figures, columns, rows, numbers=numbers)
