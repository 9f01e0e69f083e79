"""Free-will privacy, made again: everybody chooses a mechanism, one distribution is estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray, uniform
from geoveil.channel.composed import AverageChannel
from geoveil.channel.operator import DenseOperator
from geoveil.estimate import Estimator
from geoveil.estimate.linear import LinearSystem
from geoveil.papers import repeated, report
from geoveil.papers.data import SAN_FRANCISCO, DataFolder, load_city
from geoveil.papers.report import Claim, Experiment, Measured, Setting, Verdict, experiment
from geoveil.plot.curves import Curve

MIXED = "geometric and k-RR"

RAPPOR = {
    "high privacy": tuple(level / 10 for level in range(1, 11)),
    "low privacy": tuple(float(level) for level in range(1, 11)),
}
"""Table 4."""

RESPONSE = {
    "linear": (3.00, 3.54, 3.96, 4.34, 4.69, 5.06, 5.46, 5.93, 6.60, 8.08),
    "planar": (3.05, 4.19, 4.81, 5.27, 5.67, 6.05, 6.44, 6.87, 7.40, 8.20),
}
"""Table 5."""

GEOMETRIC = {
    "linear": (0.020, 0.025, 0.031, 0.039, 0.050, 0.065, 0.088, 0.131, 0.236, 0.869),
    "planar": (0.190, 0.244, 0.310, 0.390, 0.493, 0.632, 0.835, 1.159, 1.762, 3.124),
}
"""Table 6, per unit and per kilometre."""

SHOKRI = {
    "linear": (1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0, 24.5, 28.0),
    "planar": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.4, 2.7, 3.0),
}
"""Table 8: bounds on the mean loss, in units and in kilometres."""

GENERAL = "GIBU"
RESULTS = ("[INV]_R, normalised", "[INV]_R, projected", "[IBU]_R")
INVERTED = ("[INV]_M, normalised", "[INV]_M, projected")
UPDATED = "[IBU]_M"
RAPPOR_RESULTS = ("[RAP]_R, normalised", "[RAP]_R, projected")
RAPPOR_MECHANISMS = ("[RAP]_M, normalised", "[RAP]_M, projected")


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mechanisms over one space, and the true distribution of the people."""

    space: gv.Space
    truth: FloatArray
    mechanisms: tuple[gv.Channel, ...]
    invertible: bool = True
    """Whether inversion is one of the methods; for strategies the paper leaves it out."""


def mixture(kind: str, alphabet: str, data: DataFolder) -> Mixture:
    """The mixture of a kind: on 0 … 99, binomial, or on the cells of San Francisco and its check-ins."""
    space: gv.Space
    if alphabet == "linear":
        space, truth = gv.Line(100), repeated.binomial(100)
    else:
        city = load_city(SAN_FRANCISCO, data, cell_km=0.5)
        space, truth = city.grid, city.truth
    if kind == "Shokri's":  # of largest entropy, for people of whom nothing is known
        profile, limits = uniform(space.size), SHOKRI[alphabet]
        strategies = [gv.optimal_strategy(space, profile, mean_loss_km=limit) for limit in limits]
        return Mixture(space, truth, tuple(strategies), invertible=False)
    # the five weakest of one kind with the five strictest of the other, or all ten of one
    geometric = {"k-RR": (), "geometric": GEOMETRIC[alphabet]}.get(kind, GEOMETRIC[alphabet][5:])
    response = {"geometric": (), "k-RR": RESPONSE[alphabet]}.get(kind, RESPONSE[alphabet][:5])
    mechanisms = [
        *(_geometric(space, level) for level in geometric),
        *(gv.RandomizedResponse(space, epsilon=level) for level in response),
    ]
    return Mixture(space, truth, tuple(mechanisms))


def _geometric(space: gv.Space, level: float) -> gv.Channel:
    if isinstance(space, gv.Line):
        return gv.LinearGeometric(space, epsilon_per_unit=level)
    assert isinstance(space, gv.Grid)
    return gv.PlanarGeometric(space, epsilon_per_km=level)


Estimates = dict[str, FloatArray]
"""method → (repetitions, cells)"""


def methods(
    people: Mixture, tolerance: float, *, separate: bool = True
) -> Callable[[Sequence[IntArray]], Estimates]:
    """All methods for one mixture, as a function of the (repetitions, reports) counts of each mechanism.

    Matrices and factorisations are made once. ``separate`` adds the mean of an estimate for each mechanism.
    """
    number = len(people.mechanisms)
    average = AverageChannel(people.mechanisms, np.full(number, 1 / number))
    matrices = [mechanism.matrix() for mechanism in people.mechanisms]
    parts = [DenseOperator(matrix) for matrix in matrices]
    side_by_side, pooled = DenseOperator(np.hstack(matrices)), DenseOperator(average.matrix())
    channels = (average, *people.mechanisms) if separate else (average,)
    systems = [LinearSystem(channel) for channel in channels] if people.invertible else []

    def estimate(counts: Sequence[IntArray]) -> Estimates:
        total = np.sum(counts, axis=0)
        updates = repeated.maximum_likelihood
        # one estimate from the columns of all mechanisms, or under the average mechanism (eq. 7)
        estimates = {
            GENERAL: updates(side_by_side, np.concatenate(counts, axis=1), tolerance),
            UPDATED: updates(pooled, total, tolerance),
        }
        # an estimate for each mechanism, then their mean (eqs. 4 and 5)
        if separate:
            own = [updates(*pair, tolerance) for pair in zip(parts, counts, strict=True)]
            estimates[RESULTS[-1]] = np.mean(own, axis=0)
        if people.invertible:
            tables = [total, *counts][: len(systems)]
            solved = [
                repeated.repaired(system.solve(table / table.sum(axis=1, keepdims=True)))
                for system, table in zip(systems, tables, strict=True)
            ]
            estimates |= zip(INVERTED, solved[0], strict=True)
            if separate:
                estimates |= zip(RESULTS[:-1], np.mean(solved[1:], axis=0), strict=True)
        return estimates

    return estimate


@dataclass(frozen=True, eq=False)
class Simulated:
    """EMD (sizes, repetitions) by method, in the unit of the space."""

    people: tuple[int, ...]
    errors: dict[str, FloatArray]
    units: str

    def final(self, method: str) -> float:
        """The mean error with the most people."""
        return float(self.errors[method][-1].mean())

    def least(self, methods: Sequence[str]) -> FloatArray:
        """The least mean error of the methods, for each number of people."""
        return np.stack([self.errors[method].mean(axis=1) for method in methods]).min(axis=0)

    def behind(self, methods: Sequence[str]) -> float:
        """The least error of the methods over that of GIBU, averaged over the numbers of people."""
        return float((self.least(methods) / self.errors[GENERAL].mean(axis=1)).mean())


PEOPLE = (1_000, 3_000, 10_000, 30_000, 100_000)


@lru_cache(maxsize=16)
def simulated(kind: str, alphabet: str, setting: Setting) -> Simulated:
    """The errors under a mixture, kept for the other figures that show it.

    Each mechanism is used by an equal share of the people. The paper combines results on the line only.
    """
    people = mixture(kind, alphabet, setting.data)
    distance = partial(gv.earth_movers_distance_km, q=people.truth, space=people.space)
    tolerance, repetitions = setting.pick(1, 10) * repeated.TOLERANCE, setting.pick(20, 3)
    estimate = methods(people, tolerance, separate=alphabet == "linear")
    sizes, errors = setting.pick(PEOPLE, (1_000, 10_000, 100_000)), []
    for size in setting.each(sizes, f"{kind}, {alphabet}, {{:,}} people"):
        draw = repeated.people_of(people.truth, size // len(people.mechanisms))
        counts = [
            repeated.repeated_counts(channel, draw, repetitions, setting.seed + 100 * number + size)
            for number, channel in enumerate(people.mechanisms)
        ]
        errors.append(repeated.errors(estimate(counts), distance))
    return Simulated(sizes, repeated.stacked(errors), "units" if alphabet == "linear" else "km")


# --- Ten RAPPOR mechanisms on twenty values


_EXACT = gv.IterativeBayesianUpdate(stop=gv.CertifiedWithin(1e-8), accelerate=gv.ActiveSetNewton())
RAPPOR_METHODS: dict[str, Estimator] = {
    GENERAL: _EXACT,
    RAPPOR_RESULTS[0]: gv.AverageOfEstimates(gv.RapporEstimator(repair="normalise")),
    RAPPOR_RESULTS[1]: gv.AverageOfEstimates(gv.RapporEstimator(repair="project")),
    RAPPOR_MECHANISMS[0]: gv.RapporEstimator(repair="normalise"),
    RAPPOR_MECHANISMS[1]: gv.RapporEstimator(repair="project"),
}


@lru_cache(maxsize=8)
def simulated_rappor(regime: str, setting: Setting) -> Simulated:
    """The errors of a regime, kept for the other figure that shows it."""
    line, truth = gv.Line(20), repeated.binomial(20)
    distance = partial(gv.earth_movers_distance_km, q=truth, space=line)
    mechanisms = [gv.Rappor(line, epsilon=level) for level in RAPPOR[regime]]
    sizes, repetitions = setting.pick(PEOPLE, (1_000, 10_000)), setting.pick(10, 3)
    errors = []
    for number, size in enumerate(sizes):
        draw = repeated.people_of(truth, size // len(mechanisms))
        runs = []
        for repetition in range(repetitions):
            fraction = (number + repetition / repetitions) / len(sizes)
            setting.progress(fraction, f"{regime}, {size:,} people")
            randomness = gv.seeded(setting.seed * 10_007 + repetition + size)
            tallies = [
                channel.tally(channel.sample(draw(randomness), randomness=randomness))
                for channel in mechanisms
            ]
            runs.append({m: e.fit(tallies).distribution for m, e in RAPPOR_METHODS.items()})
        errors.append(repeated.errors(repeated.stacked(runs), distance))
    return Simulated(sizes, repeated.stacked(errors), "units")


# --- Figures 2 to 14: what the paper says of the methods against each other


Test = Callable[[str, Simulated, Sequence[str]], Claim]
"""A claim about one panel and the methods beside GIBU."""

_SIGNIFICANT = 1.5
_SIMILAR = 1.25


def better(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """GIBU has the least mean error, however many people there are."""
    leads = one.least(methods) > one.errors[GENERAL].mean(axis=1)
    figures = f"at {report.share(leads)} numbers of people; with the most {_finals(one, methods)}"
    return Claim(f"{panel}: GIBU is better", leads.all(), figures)


def significantly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """With the most people the best of the others has at least one and a half times the error."""
    ratio = one.least(methods)[-1] / one.final(GENERAL)
    words = f"{panel}: GIBU is significantly better"
    return Claim(words, ratio >= _SIGNIFICANT, f"{ratio:.1f} times the error")


def slightly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """With the most people the best of the others has less than one and a half times the error."""
    ratio = one.least(methods)[-1] / one.final(GENERAL)
    words = f"{panel}: GIBU is slightly better"
    return Claim(words, 1 < ratio < _SIGNIFICANT, f"{ratio:.2f} times the error")


def clearly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Over all numbers of people the best of the others has at least a quarter more error."""
    holds = one.behind(methods) >= _SIMILAR
    return Claim(f"{panel}: GIBU is clearly better", holds, _on_average(one, methods))


def similar(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Over all numbers of people the best of the others is within a quarter of GIBU."""
    holds = 1 / _SIMILAR < one.behind(methods) < _SIMILAR
    return Claim(f"{panel}: the performances are similar", holds, _on_average(one, methods))


def projection_better(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Projection has significantly less error than normalisation, with the most people."""
    normalised, projected = (one.final(method) for method in INVERTED)
    words = f"{panel}: projection is significantly better than normalisation"
    figures = f"{projected:.3g} against {normalised:.3g} {one.units}"
    return Claim(words, normalised >= _SIGNIFICANT * projected, figures)


def behind_inversion(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """§8.2.1: [IBU]_M is worse than [INV]_M with projection."""
    updated, projected = one.final(UPDATED), one.final(INVERTED[1])
    figures = f"{updated:.3g} against {projected:.3g} {one.units}"
    return Claim(f"{panel}: [IBU]_M is worse than [INV]_M", updated > projected, figures)


def stalls(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """§1.1: with Shokri's mechanisms [IBU]_M may not converge: more people hardly help."""
    (*_, before, last), (*_, fewer, most) = one.least(methods), one.people
    figures = f"{before:.3g} {one.units} with {fewer:,} people, {last:.3g} with {most:,}"
    return Claim(f"{panel}: [IBU]_M does not converge to the truth", last >= 0.8 * before, figures)


def _finals(one: Simulated, methods: Sequence[str]) -> str:
    others = ", ".join(f"{method} {one.final(method):.3g}" for method in methods)
    return f"GIBU {one.final(GENERAL):.3g} {one.units}, {others}"


def _on_average(one: Simulated, methods: Sequence[str]) -> str:
    ratio = f"{one.behind(methods):.2f} times the error on average"
    return f"{ratio}; with the most people {_finals(one, methods)}"


def figure(
    number: int, kind: str, panels: tuple[str, ...],
    methods: tuple[str, ...], statement: str, tests: tuple[Test, ...], note: str = "",
) -> Experiment:  # fmt: skip
    """A figure of the paper: a mixture, its panels, the methods beside GIBU, and what is said of them."""

    def judge(errors: Mapping[str, Simulated]) -> Verdict:
        """Every claim about every panel; under RAPPOR of Fig. 14 each regime has its own."""
        pairs = [(panel, test) for panel in panels for test in tests]
        if similar in tests:
            pairs = list(zip(panels, tests, strict=True))
        claims = [test(panel.capitalize(), errors[panel], methods) for panel, test in pairs]
        return Verdict.of(*claims, note=note)

    def measure(setting: Setting) -> Measured:
        if kind == "RAPPOR":
            errors = {regime: simulated_rappor(regime, setting) for regime in panels}
        else:
            errors = {alphabet: simulated(kind, alphabet, setting) for alphabet in panels}
        shown = (GENERAL, *methods)
        curves = {
            panel: [Curve(m, np.array(one.people, float), one.errors[m].T) for m in shown]
            for panel, one in errors.items()
        }
        labels = [f"earth mover's distance ({one.units})" for one in errors.values()]
        columns = ("panel", "unit", "people", *(f"EMD, {method}" for method in shown))
        rows = [
            [panel, one.units, size, *(one.errors[method][at].mean() for method in shown)]
            for panel, one in errors.items()
            for at, size in enumerate(one.people)
        ]
        draw = report.curves(curves, "people", labels, x_scale="log", y_scale="log")
        numbers = {
            f"{panel}: {method} over GIBU": one.final(method) / one.final(GENERAL)
            for panel, one in errors.items()
            for method in methods
        }
        return Measured((errors,), columns, rows, draw, numbers, (4.8 * len(errors) + 0.6, 3.8))

    others = ", ".join(dict.fromkeys(method.split(",")[0] for method in methods))
    title = f"Fig. {number}: {others} and GIBU, {kind} mechanisms"
    return Experiment(f"figure-{number}", title, " ".join(statement.split()), judge, measure)


_LINE, _BOTH, _REGIMES = ("linear",), ("linear", "planar"), tuple(RAPPOR)
_FAR: tuple[Test, ...] = (better, significantly)
_POOR = """Combining the results of separate estimates is significantly poorer than GIBU, because every
    estimate sees only a small part of the reports."""
_RAPPOR_POOR = "Combining the results of ten RAPPOR estimates is bad in both regimes (Table 2)."
_INVERTED = "GIBU is {} than [INV]_M on both alphabets."
_PROJECTED = """Projection is significantly better than normalisation for [INV]_M, and GIBU slightly
    outperforms [INV]_M with projection."""
_PRETENDS = """GIBU outperforms [IBU]_M, which pretends that the average mechanism made all reports and is
    worse than [INV]_M too."""
_SUPERIOR = "GIBU is superior to [IBU]_M on both alphabets."
_STALLS = (
    "GIBU is superior to [IBU]_M, which may not converge to the truth with many people (§1.1)."
)
_ENTROPY = "Of the many optimal strategies ours have the largest entropy, and their average can be inverted."
_SIMILAR_WORDS = (
    "[RAP]_M and GIBU are similar at high privacy, while GIBU is clearly better at low privacy."
)

FIGURES = (
    figure(2, "RAPPOR", _REGIMES, RAPPOR_RESULTS, _RAPPOR_POOR, _FAR),
    figure(3, "k-RR", _LINE, RESULTS, _POOR, _FAR),
    figure(4, MIXED, _LINE, RESULTS, _POOR, _FAR),
    figure(5, "geometric", _LINE, RESULTS, _POOR, _FAR),
    figure(6, "Shokri's", _LINE, RESULTS[-1:], _POOR, _FAR),
    figure(7, "k-RR", _BOTH, INVERTED, _PROJECTED, (projection_better, better, slightly)),
    figure(8, "geometric", _BOTH, INVERTED, _INVERTED.format("significantly better"), _FAR),
    figure(9, MIXED, _BOTH, INVERTED, _INVERTED.format("better"), (better,)),
    figure(10, "k-RR", _BOTH, (UPDATED,), _PRETENDS, (better, behind_inversion)),
    figure(11, "geometric", _BOTH, (UPDATED,), _SUPERIOR, (better,)),
    figure(12, MIXED, _BOTH, (UPDATED,), _SUPERIOR, (better,)),
    figure(13, "Shokri's", _BOTH, (UPDATED,), _STALLS, (better, stalls), note=_ENTROPY),
    figure(14, "RAPPOR", _REGIMES, RAPPOR_MECHANISMS, _SIMILAR_WORDS, (similar, clearly)),
)


# --- Tables 1 and 2: every method under every mixture, in a word


EXCELLENT, GOOD, BAD = "Excellent", "Good", "Bad"
_EXCELLENT_UP_TO, _GOOD_UP_TO = 1.3, 2.2

COMPARED = {
    "[INV]_R": RESULTS[:2],
    "[IBU]_R": RESULTS[2:],
    "[INV]_M": INVERTED,
    "[IBU]_M": (UPDATED,),
    "[RAP]_R": RAPPOR_RESULTS,
    "[RAP]_M": RAPPOR_MECHANISMS,
}

PUBLISHED_1 = {
    "k-RR": {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": EXCELLENT, "[IBU]_M": GOOD},
    "geometric": {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": BAD, "[IBU]_M": BAD},
    MIXED: {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": BAD, "[IBU]_M": BAD},
    "Shokri's": {"[IBU]_R": BAD, "[IBU]_M": BAD},
}
PUBLISHED_2 = {
    "high privacy": {"[RAP]_R": BAD, "[RAP]_M": EXCELLENT},
    "low privacy": {"[RAP]_R": BAD, "[RAP]_M": GOOD},
}
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


def judge_words(rows: Sequence[Sequence[str | float]]) -> Verdict:
    """Tables 1 and 2: GIBU is excellent, and every other method has the word printed for it."""
    ahead = np.array([float(row[3]) for row in rows]) >= 1
    least = f"it has the least error in {report.share(ahead)} comparisons"
    claims = [Claim("GIBU is excellent", ahead.all(), least)]
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


def _rated(errors: Mapping[tuple[str, str], tuple[Simulated, Mapping[str, str]]]) -> Measured:
    """One row for each mixture, alphabet and method, from the errors and the words of the paper."""
    rows: list[list[str | float]] = []
    for key, (one, published) in errors.items():
        for method, word in published.items():
            if all(name in one.errors for name in COMPARED[method]):
                ratio = min(one.final(name) for name in COMPARED[method]) / one.final(GENERAL)
                rows.append([*key, method, ratio, rating(ratio), word])
    columns = "mixture | alphabet | method | EMD over that of GIBU | ours | the paper"
    numbers = {"same": sum(row[4] == row[5] for row in rows), "words": len(rows)}
    return Measured((rows,), columns, rows, numbers=numbers)


@experiment("Table 1: the methods in a word", judge_words)
def table_1(setting: Setting) -> Measured:
    """GIBU is excellent under every mixture; of the others only [INV]_M under k-RR is excellent and
    [IBU]_M under k-RR good, all else is bad.
    """
    return _rated({
        (kind, alphabet): (simulated(kind, alphabet, setting), published)
        for kind, published in PUBLISHED_1.items()
        for alphabet in _BOTH
    })  # fmt: skip


@experiment("Table 2: the methods under RAPPOR in a word", judge_words)
def table_2(setting: Setting) -> Measured:
    """[RAP]_R is bad; [RAP]_M is excellent at high and good at low privacy; GIBU is excellent."""
    return _rated({
        (f"RAPPOR, {regime}", "linear"): (simulated_rappor(regime, setting), published)
        for regime, published in PUBLISHED_2.items()
    })  # fmt: skip
