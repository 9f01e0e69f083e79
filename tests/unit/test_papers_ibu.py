"""The IBU paper made again: its machinery against the library, and facts that could fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.operator import Operator
from geoveil.estimate.linear import MatrixInversion
from geoveil.papers import ibu_levels as levels
from geoveil.papers import load_paper, repeated, run
from geoveil.papers.data import DataFolder
from geoveil.papers.repeated import (
    all_methods,
    binomial,
    exact_maximum,
    maximum_likelihood,
    people_of,
    repeated_counts,
    uniform_between,
)
from geoveil.papers.report import Agreement, Experiment, Setting

QUICK = Setting(quick=True)


def experiment(name: str) -> Experiment:
    return load_paper("ibu").chosen([name])[0]


@pytest.fixture
def with_data(shared_data: Callable[[str], Path]) -> Setting:
    path = shared_data("gowalla-san-francisco.csv.gz")
    return Setting(data=DataFolder(path.parent), quick=True)


@pytest.fixture(scope="module")
def counted() -> tuple[gv.LinearGeometric, np.ndarray]:
    mechanism = gv.LinearGeometric(gv.Line(12), epsilon_per_unit=0.5)
    return mechanism, repeated_counts(mechanism, people_of(binomial(12), 2000), 4, seed=3)


def test_repetitions_stop_as_each_would_alone(counted: tuple[gv.Channel, np.ndarray]) -> None:
    """All together give what the library gives one by one, by the same rule."""
    mechanism, counts = counted
    together = maximum_likelihood(mechanism, counts, 1e-7)
    alone = gv.IterativeBayesianUpdate(stop=gv.LikelihoodChange(1e-7))
    for row, estimate in zip(counts, together, strict=True):
        np.testing.assert_allclose(
            estimate, alone.fit(gv.Tally(mechanism, row)).distribution, atol=1e-12
        )


def test_the_maximum_is_certified(counted: tuple[gv.Channel, np.ndarray]) -> None:
    mechanism, counts = counted
    matrix = mechanism.matrix()
    for row, theta in zip(counts, exact_maximum(mechanism, counts), strict=True):
        gradient = matrix @ (row / row.sum() / (theta @ matrix))
        assert np.log(gradient.max()) < 2e-9
    early = maximum_likelihood(mechanism, counts, 1e-3)[0]
    assert np.log((matrix @ (counts[0] / counts[0].sum() / (early @ matrix))).max()) > 1e-6


def test_inversions_are_those_of_the_library(counted: tuple[gv.Channel, np.ndarray]) -> None:
    mechanism, counts = counted
    found = all_methods(mechanism, counts)
    for name, repair in (("INV-N", "normalise"), ("INV-P", "project")):
        expected = MatrixInversion(repair=repair).fit(gv.Tally(mechanism, counts[1]))  # type: ignore[arg-type]
        np.testing.assert_allclose(found[name][1], expected.distribution, atol=1e-12)


def test_people_follow_the_distribution() -> None:
    """A chi-square statistic at 9 degrees of freedom; beyond 64 with probability 2e-10."""
    theta = binomial(10)
    seen = np.bincount(people_of(theta, 100_000)(gv.seeded(5)), minlength=10)
    assert float(((seen - 1e5 * theta) ** 2 / (1e5 * theta)).sum()) < 64
    wrong = uniform_between(10, 1, 8)
    other = np.bincount(people_of(wrong, 100_000)(gv.seeded(5)), minlength=10)
    assert float(((other - 1e5 * theta) ** 2 / (1e5 * theta)).sum()) > 64


def test_on_a_line_em_is_far_ahead() -> None:
    finding = experiment("figure-2").run(QUICK)
    for original in ("binomial", "uniform"):
        errors = [
            finding.numbers[f"emd_{method}_{original}"] for method in ("EM", "INV-P", "INV-N")
        ]
        em, projected, normalised = (float(str(each)) for each in errors)
        assert 5 * em < projected < normalised
    assert finding.agreement is Agreement.YES


def test_at_high_privacy_em_beats_inversion_in_san_francisco(
    with_data: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "QUICK_PER_KM", (0.2, 1.0))
    strict = experiment("figure-10").run(with_data).numbers
    em, projected = (float(str(strict[f"{method}_emd_strictest_km"])) for method in ("EM", "INV-P"))
    assert projected > 3 * em


def test_the_maximum_leaves_cells_empty(with_data: Setting) -> None:
    finding = experiment("figure-9").run(with_data)
    assert int(str(finding.numbers["empty_cells_em"])) > 20
    assert float(str(finding.numbers["emd_em_km"])) < 0.5 * float(
        str(finding.numbers["emd_projected_km"])
    )


def test_under_rappor_the_methods_are_close_and_everything_is_recovered() -> None:
    close = experiment("figure-14").run(QUICK)
    assert 0.7 < float(str(close.numbers["most_INV-P_binomial"])) < 1.4
    recovered = experiment("figure-13").run(QUICK)
    assert recovered.agreement is Agreement.YES


@pytest.mark.slow
def test_without_data_the_city_is_left_out_and_the_rest_is_drawn(tmp_path: Path) -> None:
    report = run(
        "ibu", data=tmp_path, quick=True, out=tmp_path / "out", only=["figure-2", "figure-9"]
    )
    assert [outcome.verdict for outcome in report.outcomes] == ["agrees", "not run"]
    assert (tmp_path / "out" / "ibu" / "figure-2.png").stat().st_size > 10_000
    assert "gowalla-san-francisco" in str(report.outcomes[1].not_run)


def test_every_figure_of_the_paper_is_there() -> None:
    paper = load_paper("ibu")
    figures = [f"figure-{number}" for number in (2, 4, 5, 9, 10, 11, 12, 13, 14)]
    assert [each.name for each in paper.experiments] == [*figures[:3], "bound-17", *figures[3:]]


def test_many_maxima_and_one_at_a_corner() -> None:
    """§III: both likelihoods as the paper has them, but for the slope at the corner."""
    assert experiment("figure-4").run(QUICK).agreement is Agreement.YES
    corner = experiment("figure-5").run(QUICK)
    assert corner.agreement is Agreement.PARTLY
    assert "derivatives there are −0.5" in corner.conclusion.split("Does not hold")[1]


def test_bound_17_holds_and_a_tighter_one_would_not() -> None:
    """P(D > δ) is 1 for one report at small δ; without the factor (1 + k)³ the bound breaks."""
    finding = experiment("bound-17").run(QUICK)
    assert finding.agreement is Agreement.YES
    rows = [[float(str(value)) for value in row] for row in finding.table.rows]
    assert any(tail > bound / (1 + k) ** 3 for k, _, tail, bound in rows)
    assert rows[0][2] == pytest.approx(1.0)


def test_one_stop_under_every_mechanism(
    with_data: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures 12 and 13 stop by Alg. 1 at the δ of all others; the maximum itself is only shown."""
    stops: set[float] = set()

    def told(
        likelihood: Operator, counts: IntArray, tolerance: float = repeated.TOLERANCE
    ) -> FloatArray:
        stops.add(tolerance)
        return maximum_likelihood(likelihood, counts, 1e-4)

    monkeypatch.setattr(repeated, "maximum_likelihood", told)
    monkeypatch.setattr(levels, "QUICK_LOCAL", (10.0,))
    for name in ("figure-12", "figure-13"):
        experiment(name).run(with_data)
    assert stops == {repeated.TOLERANCE}
