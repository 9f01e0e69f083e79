"""What ``fit`` refuses, and how it says so; what it accepts and makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import ImpossibleReport, InvalidInput, TooLarge
from geoveil.estimate import (
    ActiveSetNewton,
    Bootstrap,
    CertifiedWithin,
    CrossValidated,
    IterativeBayesianUpdate,
    LikelihoodChange,
    Squarem,
    Steps,
)
from geoveil.estimate.fitted import Observations
from geoveil.estimate.stopping import Stop

LINE = gv.Line(4)
RESPONSE = gv.RandomizedResponse(LINE, epsilon=1.5)
GEOMETRIC = gv.LinearGeometric(LINE, epsilon_per_unit=1.0)


def exact() -> IterativeBayesianUpdate:
    return IterativeBayesianUpdate(stop=CertifiedWithin(1e-10), accelerate=ActiveSetNewton())


def test_the_tally_at_fault_is_named() -> None:
    halves = gv.DenseChannel(LINE, np.tile([0.5, 0.5, 0.0], (4, 1)))
    good = gv.Tally(RESPONSE, [1, 1, 1, 1])
    with pytest.raises(ImpossibleReport, match=r"tally 1 .* report 2 was counted 7 times"):
        exact().fit([good, gv.Tally(halves, [3, 3, 7])])


def test_an_unlikely_report_is_not_an_impossible_one() -> None:
    matrix = np.tile([0.5, 0.5 - 1e-14, 1e-14], (4, 1))
    estimate = exact().fit(gv.Tally(gv.DenseChannel(LINE, matrix), [3, 3, 7]))
    assert estimate.total == 13


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stop": 10}, r"stop \(10\) must be a rule, such as gv.Steps\(10\)"),
        ({"stop": Steps}, "must be a rule"),
        ({"stop": Steps(3), "accelerate": "squarem"}, r"must be gv.Squarem\(\) or"),
        ({"uncertainty": "bootstrap"}, r"or gv.Bootstrap\(\)"),
        ({"uncertainty": Bootstrap}, "uncertainty"),
    ],
)
def test_names_numbers_and_classes_are_refused_before_any_work(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        IterativeBayesianUpdate(**given)


def test_a_number_is_no_rule_for_a_design_or_for_flows() -> None:
    with pytest.raises(InvalidInput, match="must be a rule"):
        gv.blahut_arimoto(LINE, None, beta_per_km=1.0, stop=8)  # type: ignore[arg-type]
    trips = gv.Trips(RESPONSE)
    with pytest.raises(InvalidInput, match="must be a rule"):
        trips.fit(trips.tally([0], [1]), stop=8)  # type: ignore[arg-type]


@pytest.mark.parametrize("counts", [[1, 2, 3], [1.5, 1, 1, 1], [-1, 1, 1, 1], [np.nan, 1, 1, 1]])
def test_counts_that_are_no_counts_never_become_a_tally(counts: list[float]) -> None:
    with pytest.raises(InvalidInput, match="counts"):
        gv.Tally(RESPONSE, counts)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ([0.25, 0.25, 0.5, 0.0], "positive everywhere"),
        ([0.25, np.nan, 0.25, 0.25], "finite"),
        ([0.5, 0.5], "4 entries"),
        ([0.5, 0.5, 0.5, 0.5], "sum to 1"),
    ],
)
def test_a_wrong_start_is_refused(start: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"start.*{said}"):
        IterativeBayesianUpdate(start=start).fit(gv.Tally(RESPONSE, [1, 2, 3, 4]))


def test_cross_validation_counts_plain_steps() -> None:
    with pytest.raises(InvalidInput, match="accelerate must go with a rule that seeks the maximum"):
        IterativeBayesianUpdate(accelerate=Squarem())


def test_newton_is_refused_where_no_matrix_fits() -> None:
    line = gv.Line(4097)
    tally = gv.LinearGeometric(line, epsilon_per_unit=1.0).tally([0, 1, 2])
    with pytest.raises(TooLarge, match=r"cells \(4097\) must be at most 4096 .*Squarem"):
        exact().fit(tally)
    plain = IterativeBayesianUpdate(stop=Steps(2), accelerate=Squarem()).fit(tally)
    assert plain.steps == 2


def test_a_round_without_reports_changes_nothing() -> None:
    tally, empty = gv.Tally(RESPONSE, [9, 5, 3, 3]), gv.Tally(GEOMETRIC, [0, 0, 0, 0])
    alone, beside = exact().fit(tally), exact().fit([empty, tally])
    np.testing.assert_allclose(beside.distribution, alone.distribution, atol=1e-9)
    np.testing.assert_allclose(beside.standard_error, alone.standard_error, rtol=1e-6)


def test_equal_channels_are_added_up() -> None:
    again = gv.RandomizedResponse(LINE, epsilon=1.5)
    tallies = [
        gv.Tally(RESPONSE, [1, 2, 3, 4]),
        gv.Tally(GEOMETRIC, [1, 1, 1, 1]),
        gv.Tally(again, [10, 20, 30, 40]),
    ]
    observations = Observations(tallies)
    assert [tally.total for tally in observations.tallies] == [110, 4]
    assert observations.total == 114
    assert [part.tolist() for part in observations.split(observations.counts)] == [
        [11, 22, 33, 44],
        [1, 1, 1, 1],
    ]


def test_any_iterable_of_tallies_will_do() -> None:
    made = (gv.Tally(RESPONSE, [9, 5, 3, 3]) for _ in range(2))
    assert exact().fit(made).total == 40


def test_people_with_different_mechanisms_are_estimated_together() -> None:
    """The maximum satisfies the equations of all reports at once (FREEWILL Alg. 1, fixed point)."""
    first, second = gv.Tally(RESPONSE, [90, 50, 30, 30]), gv.Tally(GEOMETRIC, [400, 100, 50, 250])
    estimate = exact().fit([first, second])
    gradient = sum(
        channel.matrix() @ (tally.counts / (1000 * (estimate.distribution @ channel.matrix())))
        for channel, tally in ((RESPONSE, first), (GEOMETRIC, second))
    )
    np.testing.assert_allclose(gradient[estimate.distribution > 1e-9], 1, atol=1e-5)
    assert gradient.max() <= 1 + 1e-9


def test_the_number_of_people_costs_nothing() -> None:
    """Only the counts matter, so a hundred million reports are as quick as a few."""
    few = gv.Tally(RESPONSE, [40, 30, 20, 10])
    many = gv.Tally(RESPONSE, np.array([40, 30, 20, 10]) * 1_000_000)
    stop = Steps(50)
    one, other = (IterativeBayesianUpdate(stop=stop).fit(tally) for tally in (few, many))
    np.testing.assert_allclose(one.distribution, other.distribution, rtol=1e-12)
    assert IterativeBayesianUpdate().fit(many).total == 100_000_000


def test_an_estimate_describes_itself() -> None:
    estimate = IterativeBayesianUpdate(stop=Steps(3)).fit(gv.Tally(RESPONSE, [1, 2, 3, 4]))
    assert repr(estimate).startswith("Estimate(10 reports, 4 cells, after 3 steps, as asked")
    assert "2 cells" in repr(estimate.region([0, 3]))


@pytest.mark.parametrize(
    "stop",
    [CrossValidated(), Steps(7), CertifiedWithin(1e-4), LikelihoodChange(1e-6)],
    ids=lambda stop: type(stop).__name__,
)
def test_progress_never_falls_and_reaches_the_end_once(stop: Stop) -> None:
    seen: list[float] = []
    estimator = IterativeBayesianUpdate(
        stop=stop,
        progress=lambda done, of: seen.append(done / of),
        uncertainty=Bootstrap(replicates=5),
    )
    estimate = estimator.fit(gv.Tally(RESPONSE, [90, 50, 30, 30]))
    fit = list(seen)
    assert len(fit) > 3
    assert fit == sorted(set(fit))
    assert 0 <= fit[0] < fit[-1] == 1
    assert estimate.standard_error.shape == (4,)
    assert seen[len(fit) :] == [0.2, 0.4, 0.6, 0.8, 1.0]
