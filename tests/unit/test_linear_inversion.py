"""Matrix inversion against explicit inverses, and what it says about itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from geoveil.campaign.elastic_design import blahut_arimoto
from geoveil.channel.channel import Tally
from geoveil.channel.composed import DenseChannel
from geoveil.errors import ImpossibleReport, InvalidInput, TooLarge, Unsupported
from geoveil.estimate.bayesian_update import IterativeBayesianUpdate
from geoveil.estimate.em import ActiveSetNewton
from geoveil.estimate.linear import (
    LinearSystem,
    MatrixInversion,
    clip_and_normalise,
    project_onto_simplex,
)
from geoveil.estimate.stopping import CertifiedWithin
from geoveil.mechanism.local import RandomizedResponse, Rappor
from geoveil.mechanism.planar import PlanarGeometric
from geoveil.randomness import seeded
from geoveil.space.grid import Grid, Line

seeds = st.integers(0, 2**32 - 1)
WIDE = np.array([[6, 2, 1, 1], [1, 2, 6, 1], [1, 5, 2, 2]]) / 10


def random_tally(seed: int, cells: int, reports: int) -> Tally:
    generator = np.random.default_rng(seed)
    matrix = generator.dirichlet(np.ones(reports), size=cells)
    return Tally(DenseChannel(Line(cells), matrix), generator.integers(1, 100, reports))


@given(seeds, st.integers(2, 7))
def test_a_square_channel_is_solved_and_repaired(seed: int, cells: int) -> None:
    tally = random_tally(seed, cells, cells)
    solution = tally.counts / tally.total @ np.linalg.inv(tally.channel.matrix())
    tolerance = 1e-12 * float(np.linalg.cond(tally.channel.matrix())) + 1e-12
    projected = MatrixInversion(repair="project").fit(tally)
    normalised = MatrixInversion(repair="normalise").fit(tally)
    assert projected.errors.centre == pytest.approx(solution, abs=tolerance * 10)
    assert projected.distribution == pytest.approx(
        project_onto_simplex(solution), abs=tolerance * 10
    )
    assert normalised.distribution == pytest.approx(
        clip_and_normalise(solution), abs=tolerance * 10
    )
    assert projected.stopped.startswith("solved exactly")


def test_expected_counts_give_the_distribution_back() -> None:
    truth = np.array([0.5, 0.3, 0.2])
    square = DenseChannel(Line(3), np.array([[6, 2, 2], [2, 7, 1], [3, 3, 4]]) / 10)
    wide = DenseChannel(Line(3), WIDE)
    for channel in (square, wide):
        counts = np.rint(1000 * (truth @ channel.matrix())).astype(int)
        assert 1000 * (truth @ channel.matrix()) == pytest.approx(counts)
        estimate = MatrixInversion().fit(Tally(channel, counts))
        assert estimate.distribution == pytest.approx(truth, abs=1e-12)
        assert "a distribution already" in estimate.stopped
        assert estimate.identifiable


@given(seeds, st.integers(2, 5), st.integers(1, 7))
def test_other_channels_are_solved_by_least_squares(seed: int, cells: int, reports: int) -> None:
    if cells == reports:
        return
    tally = random_tally(seed, cells, reports)
    shortest = tally.counts / tally.total @ np.linalg.pinv(tally.channel.matrix())
    system = LinearSystem(tally.channel)
    assert system.solve(tally.counts / tally.total) == pytest.approx(shortest, abs=1e-6)
    assert system.rank == min(cells, reports)
    assert (
        f"least squares: {reports} reports for {cells} cells"
        in MatrixInversion().fit(tally).stopped
    )


def test_cells_a_singular_channel_confuses_are_named_and_have_no_finite_error() -> None:
    matrix = np.array([[0.7, 0.2, 0.1], [0.2, 0.4, 0.4], [0.2, 0.4, 0.4]])
    estimate = MatrixInversion().fit(Tally(DenseChannel(Line(3), matrix), [40, 30, 30]))
    assert "singular; it cannot tell all 3 cells apart" in estimate.stopped
    assert not estimate.identifiable
    assert estimate.identifiable.alike == ((1, 2),)
    assert "seen" not in estimate.identifiable.reason
    assert np.isfinite(estimate.standard_error).tolist() == [True, False, False]
    assert np.isfinite(estimate.region([1, 2]).standard_error)
    assert estimate.distribution[1] == pytest.approx(estimate.distribution[2])


def test_lost_directions_are_the_null_space() -> None:
    generator = np.random.default_rng(5)
    matrix = generator.dirichlet(np.ones(4), size=9)
    system = LinearSystem(DenseChannel(Line(9), matrix))
    lost = system.lost()
    assert lost.shape == (9, 5)
    assert lost.T @ lost == pytest.approx(np.eye(5), abs=1e-12)
    assert lost.T @ matrix == pytest.approx(np.zeros((5, 4)), abs=1e-12)


def test_standard_errors_are_those_of_the_explicit_inverse() -> None:
    tally = Tally(
        DenseChannel(Line(3), np.array([[6, 2, 2], [2, 7, 1], [3, 3, 4]]) / 10), [500, 300, 200]
    )
    estimate = MatrixInversion().fit(tally)
    law = estimate.distribution @ tally.channel.matrix()
    inverse = np.linalg.inv(tally.channel.matrix())
    covariance = inverse.T @ (np.diag(law) - np.outer(law, law)) @ inverse / 1000
    assert estimate.standard_error == pytest.approx(np.sqrt(np.diag(covariance)))
    pair = covariance[:2, :2].sum() ** 0.5
    assert estimate.region([0, 1]).standard_error == pytest.approx(pair)
    assert estimate.region([0, 1, 2]).standard_error == pytest.approx(0, abs=1e-7)
    low, high = estimate.interval(0.95)
    assert (low <= estimate.distribution).all()
    assert (estimate.distribution <= high).all()


@pytest.mark.statistical
def test_errors_of_the_solution_have_the_spread_that_is_claimed() -> None:
    """Σ((v − θ)/se)² over independent tallies; a claim a fifth too small must be rejected."""
    truth = np.array([0.45, 0.35, 0.2])
    channel = DenseChannel(Line(3), WIDE)
    generator = np.random.default_rng(7)
    scores = []
    for counts in generator.multinomial(4000, truth @ WIDE, size=800):
        estimate = MatrixInversion().fit(Tally(channel, counts))
        scores.append((estimate.errors.centre[0] - truth[0]) / estimate.standard_error[0])
    total, low, high = float(np.square(scores).sum()), *chi2.ppf([5e-10, 1 - 5e-10], 800)
    assert low < total < high
    assert not low < total / 0.8**2 < high


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.95, 0.99])
def test_the_interval_of_a_cell_with_nearly_everybody_holds(share: float) -> None:
    """20 people, hardly any noise, 200 runs; below the line has probability 1e-6 at coverage 0.95.

    A variance of p(1 − p)/n alone, near nothing where all were seen in one cell, held 0.62 of them.
    """
    truth = np.array([share, *np.full(4, (1 - share) / 4)])
    mechanism = RandomizedResponse(Line(5), epsilon=9.0)
    generator = np.random.default_rng(6)
    hits = 0
    for counts in generator.multinomial(20, truth @ mechanism.matrix(), size=200):
        low, high = MatrixInversion().fit(Tally(mechanism, counts)).interval(0.95)
        hits += int(low[0] <= share <= high[0])
    assert hits >= binom.ppf(1e-6, 200, 0.95)


def test_one_report_over_and_over_bounds_the_others_by_the_rule_of_three() -> None:
    channel = DenseChannel(Line(5), np.eye(5))
    estimate = MatrixInversion().fit(Tally(channel, [10, 0, 0, 0, 0]))
    low, high = estimate.interval(0.95)
    assert low[0] == pytest.approx(0.7, abs=0.01)
    assert high[1:] == pytest.approx(np.full(4, 0.3), abs=0.01)
    assert estimate.region(range(5)).interval() == (1.0, 1.0)
    alone = MatrixInversion().fit(Tally(DenseChannel(Line(1), [[1.0]]), [3]))
    assert alone.interval() == (1.0, 1.0)


def test_reports_that_are_never_made_tell_nothing_apart() -> None:
    matrix = np.array([[0.7, 0.3, 0.0], [0.7, 0.3, 0.0], [0.2, 0.8, 0.0]])
    found = MatrixInversion().fit(Tally(DenseChannel(Line(3), matrix), [6, 4, 0])).identifiable
    assert not found
    assert (found.rank, found.alike) == (2, ((0, 1),))
    assert found.reason.startswith("not identifiable: the reports cannot tell cells 0 and 1 apart")
    designed = blahut_arimoto(
        Line(6), [0.9, *[0.02] * 5], beta_per_km=1.0, stop=CertifiedWithin(1e-9),
        accelerate=ActiveSetNewton(),
    )  # fmt: skip
    assert (designed.weights == 0).any()
    tally = designed.tally(designed.sample(np.zeros(100, dtype=int), randomness=seeded(1)))
    assert not MatrixInversion().fit(tally).identifiable


def test_identifiability_is_that_of_the_channel_inverted() -> None:
    """An empty tally of a channel that tells nothing comes first, and says nothing."""
    dead = DenseChannel(Line(3), [[0.5, 0.3, 0.2]] * 3)
    alive = Tally(RandomizedResponse(Line(3), epsilon=1.0), [1, 2, 1])
    estimate = MatrixInversion().fit([Tally(dead, [0, 0, 0]), alive])
    assert estimate.identifiable
    assert estimate.identifiable.reason == "identifiable: the reports tell all 3 cells apart"


def test_the_certificate_bounds_what_the_likelihood_lacks() -> None:
    mechanism = RandomizedResponse(Line(6), epsilon=1.0)
    counts = [300, 90, 60, 260, 170, 120]
    exact = IterativeBayesianUpdate(stop=CertifiedWithin(1e-10)).fit(Tally(mechanism, counts))
    inverted = MatrixInversion(repair="normalise").fit(Tally(mechanism, counts))
    lacking = exact.log_likelihood - inverted.log_likelihood
    assert 1e-6 < lacking <= inverted.certificate + 1e-12
    interior = MatrixInversion().fit(Tally(mechanism, [170, 160, 165, 168, 172, 165]))
    assert interior.certificate == pytest.approx(0, abs=1e-12)  # a solution inside is the maximum


def test_an_estimate_that_excludes_a_report_seen_has_no_likelihood() -> None:
    matrix = np.array([[0.5, 0.5, 0.0], [0.4, 0.5, 0.1], [0.1, 0.1, 0.8]])
    estimate = MatrixInversion().fit(Tally(DenseChannel(Line(3), matrix), [600, 399, 1]))
    assert estimate.distribution.tolist() == [1.0, 0.0, 0.0]
    assert estimate.log_likelihood == -np.inf
    assert estimate.certificate == np.inf


def test_tallies_of_one_mechanism_are_joined_and_of_several_refused() -> None:
    line = Line(3)
    first, again = (RandomizedResponse(line, epsilon=1.0) for _ in range(2))
    joined = MatrixInversion().fit([Tally(first, [60, 30, 10]), Tally(again, [40, 50, 10])])
    once = MatrixInversion().fit(Tally(first, [100, 80, 20]))
    assert joined.distribution.tolist() == once.distribution.tolist()
    assert joined.total == 200
    other = RandomizedResponse(line, epsilon=2.0)
    with pytest.raises(InvalidInput, match=r"2 mechanisms.*AverageMechanism.*AverageOfEstimates"):
        MatrixInversion().fit([Tally(first, [60, 30, 10]), Tally(other, [40, 50, 10])])


def test_what_cannot_be_inverted_is_refused() -> None:
    with pytest.raises(InvalidInput, match="project, normalise"):
        MatrixInversion(repair="invert")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="at least one report"):
        MatrixInversion().fit(Tally(RandomizedResponse(Line(3), epsilon=1.0), [0, 0, 0]))
    unused = DenseChannel(Line(2), [[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])
    with pytest.raises(ImpossibleReport):
        MatrixInversion().fit(Tally(unused, [1, 1, 1]))
    rappor = Rappor(Line(4), epsilon=1.0)
    bits = rappor.sample([0, 1, 2, 3, 3, 2], randomness=seeded(1))
    with pytest.raises(Unsupported, match="RapporEstimator"):
        MatrixInversion().fit(rappor.tally(bits))
    large = PlanarGeometric(Grid(rows=65, columns=65, cell_km=0.5), epsilon_per_km=2.0)
    with pytest.raises(TooLarge, match="4096"):
        MatrixInversion().fit(Tally(large, np.ones(65 * 65, dtype=int)))
