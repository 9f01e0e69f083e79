"""Error bars: against closed forms, and against what happens on simulated data."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaincinv
from scipy.stats import binom, norm

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.channel.channel import Channel
from geoveil.channel.kernel import lattice_beneath
from geoveil.errors import InvalidInput, TooLarge, Unsupported
from geoveil.estimate import (
    ActiveSetNewton,
    Bootstrap,
    CertifiedWithin,
    FisherInformation,
    IterativeBayesianUpdate,
    JointTally,
    Steps,
    bars,
    uncertainty,
)
from geoveil.estimate.bars import Nearby
from geoveil.estimate.fitted import Observations
from geoveil.estimate.uncertainty import conjugate_gradients, informations, tangent_inverse
from geoveil.table.results import SavedErrors

LINE = gv.Line(5)
RESPONSE = gv.RandomizedResponse(LINE, epsilon=2.0)
SHARES = np.array([0.35, 0.25, 0.2, 0.15, 0.05])


def exact(**options: Any) -> IterativeBayesianUpdate:
    return IterativeBayesianUpdate(
        stop=CertifiedWithin(1e-11), accelerate=ActiveSetNewton(), **options
    )


def expected_tally(channel: Channel, people: int) -> gv.Tally:
    return gv.Tally(channel, np.rint(SHARES @ channel.matrix() * people))


def inverse_covariance(channel: Channel, people: int) -> FloatArray:
    """Cov(qC⁻¹) for a square channel: multinomial counts through the inverse."""
    law = SHARES @ channel.matrix()
    inverse = np.linalg.inv(channel.matrix())
    return inverse.T @ (np.diag(law) - np.outer(law, law)) @ inverse / people


@pytest.mark.parametrize("uncertainty", [FisherInformation(), Bootstrap(replicates=300)])
def test_interior_errors_are_those_of_the_inverse(uncertainty: Any) -> None:
    """Square channel, interior maximum: the estimate is qC⁻¹ and its covariance is known exactly.

    300 replicates know a standard deviation to 4.1 %; 20 % is nearly five times that.
    """
    people = 400_000
    estimate = exact(uncertainty=uncertainty).fit(expected_tally(RESPONSE, people))
    covariance = inverse_covariance(RESPONSE, people)
    tolerance = 1e-3 if isinstance(uncertainty, FisherInformation) else 0.2
    np.testing.assert_allclose(
        estimate.standard_error, np.sqrt(np.diag(covariance)), rtol=tolerance
    )
    region = np.array([1.0, 0, 0, 1.0, 1.0])
    expected = np.sqrt(region @ covariance @ region)
    assert estimate.region([0, 3, 4]).standard_error == pytest.approx(expected, rel=tolerance)
    low, high = estimate.interval(0.9)
    reach = norm.ppf(0.95) * np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((high - low) / 2, reach, rtol=max(tolerance, 2e-3) * 2)


def test_a_channel_without_noise_has_the_errors_of_a_poll() -> None:
    channel = gv.DenseChannel(LINE, np.eye(5))
    estimate = exact().fit(expected_tally(channel, 10_000))
    np.testing.assert_allclose(
        estimate.standard_error, np.sqrt(SHARES * (1 - SHARES) / 10_000), rtol=1e-6
    )


def information(*tallies: gv.Tally, at: FloatArray = SHARES) -> FloatArray:
    return np.asarray(sum(part.matrix() for part in informations(Observations(tallies), at)))


def test_information_adds_over_tallies() -> None:
    first, second = expected_tally(RESPONSE, 1000), expected_tally(RESPONSE, 3000)
    geometric = gv.Tally(gv.LinearGeometric(LINE, epsilon_per_unit=1.0), [50, 40, 30, 20, 10])
    parts = [information(tally) for tally in (first, second, geometric)]
    whole = information(first, second, geometric)
    np.testing.assert_allclose(whole, sum(parts), rtol=1e-9)


def test_what_was_seen_of_all_reports_carries_the_same_information_on_average() -> None:
    """Joint tallies know only what was seen; for exact counts both forms agree."""
    complete = expected_tally(RESPONSE, 10**8)
    alone = JointTally([RESPONSE], np.repeat(np.arange(5), 100)[:, None])
    assert not alone.complete
    assert complete.complete
    even = gv.Tally(RESPONSE, [100] * 5)
    uniform = np.full(5, 0.2)
    np.testing.assert_allclose(
        information(alone, at=uniform),
        information(even, at=uniform),
        rtol=1e-9,
    )


def test_the_tangent_inverse_is_the_inverse_on_sums_of_zero() -> None:
    generator = np.random.default_rng(0)
    half = generator.normal(size=(4, 4))
    information = half @ half.T
    covariance, lost = tangent_inverse(information)
    basis = np.linalg.svd(np.ones((1, 4)))[2][1:]
    expected = basis.T @ np.linalg.inv(basis @ information @ basis.T) @ basis
    np.testing.assert_allclose(covariance, expected, atol=1e-9)
    assert lost.shape == (4, 0)


def test_cells_alike_are_unknown_and_their_sum_is_known() -> None:
    matrix = RESPONSE.matrix()[[0, 1, 2, 3, 3]]
    matrix[:, 3] += matrix[:, 4]
    channel = gv.DenseChannel(LINE, matrix[:, :4])
    estimate = exact().fit(gv.Tally(channel, [400, 300, 200, 300]))
    assert not estimate.identifiable
    np.testing.assert_array_equal(np.isinf(estimate.standard_error), [0, 0, 0, 1, 1])
    low, high = estimate.interval()
    np.testing.assert_array_equal((low[3:], high[3:]), ([0, 0], [1, 1]))
    together = estimate.region([3, 4])
    assert 0 < together.standard_error < 0.1
    assert together.interval()[1] < 0.7


@pytest.mark.parametrize(
    ("yes", "people"),
    [(0, 10**17), (7, 10**9), (1000, 2_130_660_000), (3 * 10**8, 10**9), (10**16, 4 * 10**16)],
)
def test_no_share_is_known_better_than_in_a_poll_however_large(yes: int, people: int) -> None:
    """Quantiles of the beta law are not always right where answers are very many."""
    shares = np.array([yes / people, 1 - yes / people])
    nothing = np.zeros((2, 2))
    low, high = bars.GaussianErrors(
        "exact", shares, shares, people, covariance=nothing, lost=nothing[:, :0]
    ).interval(0.95)
    down = up = norm.ppf(0.975) * np.sqrt(yes * (1 - yes / people))  # in people
    if yes <= 1000:  # a law of rare events
        down = yes - gammaincinv(yes, 0.025) if yes else 0.0
        up = gammaincinv(yes + 1, 0.975) - yes
    assert 0.999 * down <= (shares[0] - low[0]) * people <= 1.2 * down + 1e-3
    assert 0.999 * up <= (high[0] - shares[0]) * people <= 1.2 * up


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_a_report_never_seen_bounds_a_share_as_clopper_and_pearson_say(level: float) -> None:
    channel = gv.DenseChannel(gv.Line(2), np.eye(2))
    estimate = exact().fit(gv.Tally(channel, [1000, 0]))
    low, high = estimate.interval(level)
    assert low[1] == 0
    poll = 1 - ((1 - level) / 2) ** (1 / 1000)
    assert poll * (1 - 1e-9) <= high[1] <= 1.05 * poll
    assert low[0] == pytest.approx(1 - high[1])


def test_an_estimate_stopped_early_is_corrected_inside_its_interval() -> None:
    """Three steps from uniform are far from the truth; the intervals hold the truth all the same."""
    estimate = IterativeBayesianUpdate(stop=Steps(3)).fit(expected_tally(RESPONSE, 50_000))
    low, high = estimate.interval(0.99)
    assert np.abs(estimate.distribution - SHARES).max() > 0.02
    assert ((low <= SHARES) & (high >= SHARES)).all()
    np.testing.assert_allclose(estimate.errors.centre, SHARES, atol=2e-3)


@cache
def cross_validated() -> list[tuple[gv.Tally, Steps]]:
    """100 runs, each with the number of steps that held-out reports choose."""
    generator, channel = np.random.default_rng(11), gv.LinearGeometric(LINE, epsilon_per_unit=1.0)
    law = SHARES @ channel.matrix()
    counts = generator.multinomial(2_000, law / law.sum(), size=100)
    tallies = [gv.Tally(channel, row) for row in counts]
    return [(tally, Steps(IterativeBayesianUpdate().fit(tally).steps)) for tally in tallies]


def held(uncertainty: Any = None) -> int:
    """How often the 95 % interval of a cell held its share, over all cells and runs."""
    hits = 0
    for tally, stop in cross_validated():
        estimate = IterativeBayesianUpdate(stop=stop, uncertainty=uncertainty).fit(tally)
        low, high = estimate.interval(0.95)
        hits += int(((low <= SHARES) & (high >= SHARES)).sum())
    return hits


@pytest.mark.statistical
def test_intervals_hold_what_they_claim() -> None:
    """Cross-validated estimates, 100 runs: hits of 5 dependent cells, at least as if of 100 trials.

    If the coverage of each cell is 0.95, fewer than 0.78·500 hits have probability below 1e-9
    (binomial with 100 trials of 5 hits each).
    """
    least = 5 * binom.ppf(1e-9, 100, 0.95)
    assert least >= 390
    assert held() >= least


@pytest.mark.statistical
def test_intervals_half_as_wide_would_be_rejected() -> None:
    """The twin: 67 % intervals are half as wide, and hold far too seldom."""

    class HalfWidth(FisherInformation):
        def errors(self, *arguments: Any, **named: Any) -> Any:
            found = super().errors(*arguments, **named)
            return replace(found, covariance=found.covariance / 4)

    assert held(HalfWidth()) < 5 * binom.ppf(1e-9, 100, 0.95)


HALVES = np.array([0.5, 0.5, 0.0, 0.0, 0.0])


def held_by_halves(draw: Any, people: int, runs: int) -> FloatArray:
    """How often the 95 % interval of each cell held its share, people in two cells of five."""
    generator = np.random.default_rng(12)
    hits = np.zeros(5)
    for run in range(runs):
        cells = generator.choice(5, people, p=HALVES)
        low, high = IterativeBayesianUpdate().fit(draw(cells, run)).interval(0.95)
        hits += (low <= HALVES + 1e-12) & (high + 1e-12 >= HALVES)
    return hits


def rappor_tally(cells: Any, seed: int) -> gv.Tally:
    mechanism = gv.Rappor(LINE, epsilon=3.0)
    return mechanism.tally(mechanism.sample(cells, randomness=gv.seeded(10**6 + seed)))


def joint_tally(cells: Any, seed: int) -> gv.Tally:
    channels = [gv.RandomizedResponse(LINE, epsilon=e) for e in (1.5, 1.0)]
    made = [
        channel.sample(cells, randomness=gv.seeded(10**6 + 2 * seed + number))
        for number, channel in enumerate(channels)
    ]
    return JointTally(channels, np.stack(made, axis=1))


@pytest.mark.statistical
@pytest.mark.parametrize("draw", [rappor_tally, joint_tally])
def test_intervals_of_tallies_that_hold_only_what_was_seen_hold_what_they_claim(draw: Any) -> None:
    """20 people, 80 runs. At coverage 0.95, a cell with fewer hits has probability below 1e-6.

    Weights taken from the counts themselves held 0.64 to 0.85 of the runs.
    """
    least = binom.ppf(1e-6, 80, 0.95)
    assert least >= 64
    assert held_by_halves(draw, 20, 80).min() >= least


def test_rappor_has_the_errors_of_its_bit_sums() -> None:
    """One unbiased step ends at the solution of the bit sums, brought to a sum of one."""
    cells = np.repeat([0, 0, 1, 2, 3, 4], 500)
    tally = rappor_tally(cells, 0)
    estimate = IterativeBayesianUpdate(stop=Steps(200)).fit(tally)
    bits = gv.RapporEstimator().fit(tally)
    assert estimate.errors.method.endswith("; RAPPOR by its bit sums")
    np.testing.assert_allclose(estimate.errors.centre, bits.errors.centre, atol=4e-3)
    np.testing.assert_allclose(estimate.standard_error, bits.standard_error, rtol=0.1)
    assert (estimate.standard_error <= bits.standard_error * (1 + 1e-3)).all()


@pytest.mark.parametrize("epsilon", [0.1, 30.0, 200.0])
def test_rappor_of_any_level_has_finite_errors(epsilon: float) -> None:
    """Nearly without noise the errors are those of a poll; bits that always sum to one are no trap."""
    mechanism = gv.Rappor(LINE, epsilon=epsilon)
    reports = mechanism.sample(np.repeat(np.arange(5), 200), randomness=gv.seeded(3))
    estimate = IterativeBayesianUpdate(stop=Steps(300)).fit(mechanism.tally(reports))
    assert np.isfinite(estimate.standard_error).all()
    if epsilon >= 30:
        poll = (0.2 * 0.8 / 1000) ** 0.5
        np.testing.assert_allclose(estimate.standard_error, poll, rtol=1e-3)


def test_all_combinations_carry_the_expected_information() -> None:
    """Two reports of each person: the same as one report of the channel of all pairs."""
    first, second = (gv.RandomizedResponse(LINE, epsilon=e) for e in (1.5, 1.0))
    generator = np.random.default_rng(8)
    reports = np.stack([generator.integers(0, 5, 4000), generator.integers(0, 5, 4000)], axis=1)
    pairs = np.einsum("xy,xz->xyz", first.matrix(), second.matrix()).reshape(5, 25)
    counts = np.bincount(reports @ [5, 1], minlength=25)
    [joint] = informations(Observations(JointTally([first, second], reports)), SHARES)
    [single] = informations(Observations(gv.Tally(gv.DenseChannel(LINE, pairs), counts)), SHARES)
    np.testing.assert_allclose(joint.matrix(), single.matrix(), rtol=1e-9)
    np.testing.assert_allclose(joint.score, single.score, rtol=1e-9, atol=1e-6)
    assert joint.how == "several reports of one person by all their combinations"


def test_impossible_combinations_are_left_out() -> None:
    """Two channels without noise never disagree."""
    channel = gv.DenseChannel(LINE, np.eye(5))
    tally = JointTally([channel, channel], [[0, 0]] * 600 + [[1, 1]] * 400)
    estimate = exact().fit(tally)
    poll = np.sqrt(np.array([240.0, 240.0, 2.4, 2.4, 2.4])) / 1000
    np.testing.assert_allclose(estimate.standard_error, poll, rtol=0.01)


def test_combinations_too_many_to_list_say_so() -> None:
    channel = gv.RandomizedResponse(gv.Line(60), epsilon=4.0)
    reports = np.random.default_rng(2).integers(0, 60, (300, 4))
    estimate = IterativeBayesianUpdate(stop=Steps(5)).fit(JointTally([channel] * 4, reports))
    assert "observed information of the reports seen, too narrow" in estimate.errors.method
    bars = Bootstrap(replicates=3)
    boot = IterativeBayesianUpdate(stop=Steps(5), uncertainty=bars)
    assert np.isfinite(boot.fit(JointTally([channel] * 4, reports)).standard_error).all()


def test_all_cells_together_are_known() -> None:
    estimate = exact().fit(gv.Tally(RESPONSE, [10, 0, 0, 0, 0]))
    assert estimate.region(range(5)).standard_error == 0.0
    assert estimate.region(range(5)).interval() == pytest.approx((1.0, 1.0))


class TestBootstrap:
    tally = expected_tally(RESPONSE, 3_000)

    def test_the_seed_decides(self) -> None:
        def errors(seed: int) -> FloatArray:
            method = Bootstrap(replicates=30, seed=seed)
            return (
                IterativeBayesianUpdate(stop=Steps(20), uncertainty=method)
                .fit(self.tally)
                .standard_error
            )

        np.testing.assert_array_equal(errors(1), errors(1))
        assert (errors(1) != errors(2)).any()

    def test_replicates_are_estimates_of_resampled_tallies(self) -> None:
        method = Bootstrap(replicates=3, carry_on=2, seed=5)
        estimate = IterativeBayesianUpdate(stop=Steps(30), uncertainty=method).fit(self.tally)
        carried = IterativeBayesianUpdate(stop=Steps(60)).fit(self.tally).distribution
        law = carried @ RESPONSE.matrix()
        counts = np.random.default_rng(5).multinomial(3_000, law / law.sum(), size=3)
        refits = [
            IterativeBayesianUpdate(stop=Steps(60)).fit(gv.Tally(RESPONSE, row)).distribution
            for row in counts
        ]
        np.testing.assert_allclose(estimate.errors.replicates, refits, rtol=1e-9)
        np.testing.assert_allclose(estimate.errors.centre, carried, rtol=1e-12)
        assert estimate.errors.method == "parametric bootstrap, 3 replicates"

    def test_tallies_that_hold_only_what_was_seen_are_resampled(self) -> None:
        mechanism = gv.Rappor(gv.Line(4), epsilon=3.0)
        reports = mechanism.sample(np.repeat([0, 0, 1, 2], 500), randomness=gv.seeded(4))
        options = {"stop": Steps(100)}
        tally = mechanism.tally(reports)
        boot = IterativeBayesianUpdate(uncertainty=Bootstrap(replicates=300), **options).fit(tally)
        fisher = IterativeBayesianUpdate(**options).fit(tally)
        np.testing.assert_allclose(boot.standard_error[:3], fisher.standard_error[:3], rtol=0.35)

    @pytest.mark.parametrize("steps", [0, 3])
    def test_an_estimate_that_hardly_left_its_start_is_carried_on_to_fifty_steps(
        self, steps: int
    ) -> None:
        method = Bootstrap(replicates=3)
        estimate = IterativeBayesianUpdate(stop=Steps(steps), uncertainty=method).fit(self.tally)
        carried = IterativeBayesianUpdate(stop=Steps(50)).fit(self.tally).distribution
        np.testing.assert_allclose(estimate.errors.centre, carried, rtol=1e-12)
        assert estimate.errors.replicates.std(axis=0).min() > 1e-3

    def test_no_steps_chosen_by_cross_validation_is_not_certainty(self) -> None:
        channel = gv.PlanarGeometric(gv.Grid(rows=6, columns=6, cell_km=0.5), epsilon_per_km=0.3)
        reports = channel.sample(np.full(30, 7), randomness=gv.seeded(30))
        estimate = IterativeBayesianUpdate(uncertainty=Bootstrap()).fit(channel.tally(reports))
        assert estimate.steps == 0
        low, high = estimate.interval()
        assert (high - low).min() > 0.1
        assert estimate.standard_error.min() > 0.05

    @pytest.mark.parametrize("people", [1, 10, 1000])
    def test_counts_never_seen_are_bounded_as_in_a_poll(self, people: int) -> None:
        """Nearly no noise and one report over and over: what a poll of as many people would say."""
        channel = gv.DenseChannel(LINE, 0.999 * np.eye(5) + 0.0002)
        estimator = IterativeBayesianUpdate(stop=CertifiedWithin(1e-9), uncertainty=Bootstrap())
        estimate = estimator.fit(gv.Tally(channel, [people, 0, 0, 0, 0]))
        low, high = estimate.interval(0.95)
        poll = 1 - 0.025 ** (1 / people)
        assert low[0] == pytest.approx(1 - poll, abs=0.01 * poll)
        np.testing.assert_allclose(high[1:], poll, rtol=0.01)
        assert estimate.standard_error == pytest.approx(np.full(5, 2.4**0.5 / people), rel=1e-6)

    def test_a_region_is_never_known_better_than_in_a_poll(self) -> None:
        """No noise at all: two empty cells are as one, and all cells together are certain."""
        estimate = IterativeBayesianUpdate(uncertainty=Bootstrap(), stop=Steps(30)).fit(
            gv.Tally(gv.DenseChannel(LINE, np.eye(5)), [40, 40, 20, 0, 0])
        )
        assert estimate.region([3, 4]).interval()[1] == pytest.approx(1 - 0.025 ** (1 / 100))
        assert estimate.region([0, 1]).standard_error >= 0.999 * (0.8 * 0.2 / 100) ** 0.5
        assert estimate.region(range(5)).interval() == pytest.approx((1.0, 1.0))
        assert estimate.region(range(5)).standard_error == pytest.approx(0.0, abs=1e-12)

    def test_cells_that_no_report_tells_apart_are_unknown_and_their_sum_is_known(self) -> None:
        channel = gv.DenseChannel(gv.Line(4), [[0.7, 0.3], [0.7, 0.3], [0.2, 0.8], [0.2, 0.8]])
        tally = gv.Tally(channel, [600, 400])
        estimate = IterativeBayesianUpdate(uncertainty=Bootstrap()).fit(tally)
        assert np.isinf(estimate.standard_error).all()
        low, high = estimate.interval()
        np.testing.assert_array_equal((low, high), ([0] * 4, [1] * 4))
        together = estimate.region([0, 1])
        assert 0.01 < together.standard_error < 0.1
        assert 0.6 < together.interval()[0] < together.interval()[1] < 1

    def test_what_one_tally_cannot_tell_apart_another_may(self) -> None:
        first = gv.DenseChannel(gv.Line(3), [[0.7, 0.3], [0.7, 0.3], [0.2, 0.8]])
        second = gv.DenseChannel(gv.Line(3), [[0.7, 0.3], [0.2, 0.8], [0.2, 0.8]])
        tallies = [gv.Tally(first, [60, 40]), gv.Tally(second, [50, 50])]
        estimator = IterativeBayesianUpdate(uncertainty=Bootstrap(replicates=50))
        assert np.isfinite(estimator.fit(tallies).standard_error).all()
        assert np.isinf(estimator.fit(tallies[:1]).standard_error).tolist() == [True, True, False]

    def test_reports_not_seen_tell_cells_apart_as_well(self) -> None:
        estimator = IterativeBayesianUpdate(uncertainty=Bootstrap(replicates=50))
        estimate = estimator.fit(gv.Tally(RESPONSE, [30, 20, 0, 0, 0]))
        assert estimate.identifiable
        assert np.isfinite(estimate.standard_error).all()

    def test_an_empty_tally_changes_nothing(self) -> None:
        rappor = gv.Rappor(LINE, epsilon=1.0)
        empty = rappor.tally(np.zeros((0, 5), dtype=int))
        estimator = IterativeBayesianUpdate(uncertainty=Bootstrap(replicates=50))
        beside = estimator.fit([self.tally, empty])
        np.testing.assert_array_equal(
            beside.standard_error, estimator.fit(self.tally).standard_error
        )
        assert np.isfinite(estimator.fit([empty, self.tally]).interval()).all()

    def test_too_many_replicates_are_refused(self) -> None:
        method = Bootstrap(replicates=10**8)
        with pytest.raises(TooLarge, match="use fewer replicates"):
            IterativeBayesianUpdate(stop=Steps(2), uncertainty=method).fit(self.tally).interval()

    @pytest.mark.parametrize("options", [{"replicates": 1}, {"carry_on": 0}, {"seed": -1}])
    def test_settings_are_checked(self, options: dict[str, int]) -> None:
        with pytest.raises(InvalidInput):
            Bootstrap(**options)


GRID = gv.Grid(rows=4, columns=5, cell_km=0.5)
SMALL = np.array([0.5, 0.3, 0.1, 0.05, 0.0005, 0.005, 0.02, *[0.0] * 12, 0.0245])
"""Shares of 0.05, 0.5 and 2 % in cells 4, 5 and 6, and cells where nobody is."""
MECHANISMS: dict[str, Any] = {
    "randomised response": gv.RandomizedResponse(GRID, epsilon=3.0),
    "planar geometric": gv.PlanarGeometric(GRID, epsilon_per_km=3.0),
    "elastic": gv.Elastic(GRID, beta_per_km=2.0, weights=SMALL + 0.02),
    "RAPPOR": gv.Rappor(GRID, epsilon=4.0),
}


def drawn_tally(mechanism: Any, people: int, generator: np.random.Generator) -> gv.Tally:
    cells = generator.choice(SMALL.size, people, p=SMALL)
    return mechanism.tally(
        mechanism.sample(cells, randomness=gv.seeded(int(generator.integers(2**62))))
    )


def joint_of_small(people: int, generator: np.random.Generator) -> gv.Tally:
    cells = generator.choice(SMALL.size, people, p=SMALL)
    channel = MECHANISMS["randomised response"]
    made = [channel.sample(cells, randomness=gv.seeded(seed)) for seed in (1, 2)]
    return JointTally([channel, channel], np.stack(made, axis=1))


WAYS: dict[str, Any] = {
    "Fisher information": IterativeBayesianUpdate(stop=Steps(60)),
    "bootstrap": IterativeBayesianUpdate(stop=Steps(60), uncertainty=Bootstrap(replicates=20)),
    "inversion": gv.MatrixInversion(),
}


def least_upper_end(people: int) -> float:
    """A cell of which nobody was heard: one-sided at 95 %."""
    return 1 - 0.05 ** (1 / people)


def check_ends(estimate: gv.Estimate, level: float = 0.95) -> None:
    low, high = estimate.interval(level)
    share = estimate.distribution
    assert ((low >= 0) & (low <= share) & (share <= high) & (high <= 1)).all()
    assert high.min() >= least_upper_end(estimate.total)
    assert (high - low).min() >= least_upper_end(estimate.total)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_interval_closes_on_nothing(name: str, way: str) -> None:
    if (name, way) == ("RAPPOR", "inversion"):
        way_of_bits = gv.RapporEstimator()
        estimators = [way_of_bits, gv.AverageOfEstimates(way_of_bits)]
    elif way == "inversion" and name == "randomised response":
        estimators = [WAYS[way], gv.RandomizedResponseEstimator()]
    else:
        estimators = [WAYS[way]]
    generator = np.random.default_rng(3)
    for people in (1, 60, 2_000):
        for _ in range(1 if way == "bootstrap" else 4):
            tally = drawn_tally(MECHANISMS[name], people, generator)
            for estimator in estimators:
                check_ends(estimator.fit(tally))


def test_no_interval_of_several_reports_of_each_person_closes_on_nothing() -> None:
    for estimator in (WAYS["Fisher information"], WAYS["bootstrap"]):
        check_ends(estimator.fit(joint_of_small(500, np.random.default_rng(4))))


def test_a_centre_far_below_zero_reaches_as_far_up_as_one_at_zero() -> None:
    """Forty reports of a cell fewer than noise alone would make: 1.96 standard errors all the same."""
    response = gv.RandomizedResponse(LINE, epsilon=1.0)
    estimate = gv.MatrixInversion().fit(gv.Tally(response, [100, 250, 250, 250, 250]))
    assert estimate.errors.centre[0] < -2 * estimate.standard_error[0]
    high = estimate.interval(0.95)[1]
    assert high[0] == pytest.approx(norm.ppf(0.975) * estimate.standard_error[0])


@pytest.mark.statistical
@pytest.mark.parametrize("name", MECHANISMS)
def test_cells_of_small_share_are_held_as_often_as_claimed(name: str) -> None:
    """60 runs of 2,000 people. At coverage 0.95, fewer hits of a cell have probability below 1e-7.

    With the upper end of a cell at its estimate, where that is zero, half of the runs would miss.
    """
    least = binom.ppf(1e-7, 60, 0.95)
    assert least >= 42
    hits, without = np.zeros(20), np.zeros(20)
    generator = np.random.default_rng(17)
    for _ in range(60):
        estimate = WAYS["Fisher information"].fit(drawn_tally(MECHANISMS[name], 2_000, generator))
        low, high = estimate.interval(0.95)
        hits += (low <= SMALL) & (high >= SMALL)
        without += (low <= SMALL) & (estimate.distribution >= SMALL)
    assert hits.min() >= least
    assert without[:7].min() < least


class TestDraws:
    """Error bars without a matrix, above 2,048 cells; here from the first cell on."""

    @pytest.fixture(autouse=True)
    def _no_matrix(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uncertainty, "MATRIX_CELLS", 0)

    @pytest.mark.parametrize("name", MECHANISMS)
    def test_they_agree_with_the_matrix(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """64 draws know a standard error to 9 %; 45 % is five times that."""
        tally = drawn_tally(MECHANISMS[name], 40_000, np.random.default_rng(5))
        drawn = WAYS["Fisher information"].fit(tally)
        assert "64 draws by conjugate gradients, because 20 cells" in drawn.errors.method
        monkeypatch.setattr(uncertainty, "MATRIX_CELLS", 2_048)
        inverted = WAYS["Fisher information"].fit(tally)
        assert "draws" not in inverted.errors.method
        np.testing.assert_allclose(drawn.standard_error, inverted.standard_error, rtol=0.45)
        reach = 0.2 * inverted.standard_error
        assert (np.abs(drawn.errors.centre - inverted.errors.centre) <= reach).all()
        assert drawn.region([0, 5, 6]).standard_error == pytest.approx(
            inverted.region([0, 5, 6]).standard_error, rel=0.45
        )
        assert drawn.region(range(20)).standard_error == 0
        assert drawn.region(range(20)).interval() == pytest.approx((1, 1))

    @pytest.mark.parametrize("name", MECHANISMS)
    def test_those_of_some_regions_are_solved_without_draws(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tally = drawn_tally(MECHANISMS[name], 40_000, np.random.default_rng(5))
        estimate, observations = WAYS["Fisher information"].fit(tally), Observations(tally)
        regions = np.zeros((3, 20))
        regions[0, [0, 5, 6]], regions[1, :10], regions[1, 10], regions[2] = 1.0, 1.0, 0.5, 1.0
        solved = FisherInformation().about(observations, estimate.distribution, regions)
        assert "solved for each region by conjugate gradients" in solved.method
        assert "draws" not in solved.method
        monkeypatch.setattr(uncertainty, "MATRIX_CELLS", 2_048)
        inverted = FisherInformation().about(observations, estimate.distribution, regions)
        np.testing.assert_allclose(
            solved.standard_error(regions), inverted.standard_error(regions), rtol=0.02, atol=1e-12
        )
        for one, other in zip(
            solved.interval(0.9, regions), inverted.interval(0.9, regions), strict=True
        ):
            np.testing.assert_allclose(one, other, atol=0.003)
        for others in (None, regions[:1]):
            with pytest.raises(Unsupported, match="those of the regions they were made for"):
                solved.standard_error(others)
        with pytest.raises(Unsupported, match="know nothing of cells"):
            solved.of_groups(np.zeros(20, dtype=np.int64))

    @pytest.mark.parametrize("name", MECHANISMS)
    def test_they_hold_what_they_claim_and_never_close_on_nothing(self, name: str) -> None:
        for people in (1, 60, 2_000):
            tally = drawn_tally(MECHANISMS[name], people, np.random.default_rng(6))
            check_ends(WAYS["Fisher information"].fit(tally))

    @pytest.mark.statistical
    def test_they_hold_what_they_claim(self) -> None:
        assert held() >= 5 * binom.ppf(1e-9, 100, 0.95)

    def test_an_estimate_stopped_early_is_corrected_inside_its_interval(self) -> None:
        test_an_estimate_stopped_early_is_corrected_inside_its_interval()

    def test_tallies_of_different_mechanisms_add_up(self) -> None:
        generator = np.random.default_rng(7)
        tallies = [drawn_tally(MECHANISMS[name], 9_000, generator) for name in MECHANISMS]
        together = WAYS["Fisher information"].fit(tallies)
        alone = WAYS["Fisher information"].fit(tallies[0])
        assert together.standard_error[0] < alone.standard_error[0]
        assert together.errors.method.endswith("; RAPPOR by its bit sums")

    def test_what_no_report_tells_apart_is_bounded_by_what_both_can_hold(self) -> None:
        """Cells 0 and 1 give the same reports: each may hold all that both hold together."""
        channel = gv.DenseChannel(gv.Line(3), [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
        estimate = IterativeBayesianUpdate(stop=Steps(50)).fit(gv.Tally(channel, [5_000, 5_000]))
        high = estimate.interval(0.95)[1]
        assert high[:2].min() >= 0.5
        assert estimate.region([0, 1]).interval(0.95)[1] < 0.6

    def test_draws_can_be_repeated(self) -> None:
        tally = drawn_tally(MECHANISMS["planar geometric"], 500, np.random.default_rng(8))
        one, other, third = (
            IterativeBayesianUpdate(stop=Steps(9), uncertainty=FisherInformation(seed)).fit(tally)
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(one.standard_error, other.standard_error)
        assert (one.standard_error != third.standard_error).any()


@pytest.mark.parametrize(("epsilon_per_km", "times"), [(0.5, 3), (1.0, 2), (4.0, 1)])
def test_conjugate_gradients_settle_in_few_steps_on_a_lattice_however_wide_the_noise(
    epsilon_per_km: float, times: int
) -> None:
    """And the answer is that of the matrix. Without the lattice, wide noise takes several times as many."""
    grid = gv.Grid(rows=24, columns=24, cell_km=1.0)
    channel = gv.PlanarGeometric(grid, epsilon_per_km=epsilon_per_km)
    truth = np.exp(-grid.distances_from_km(100) / 3) + 1e-4
    truth /= truth.sum()
    counts = np.random.default_rng(0).multinomial(300_000, channel.push(truth))
    tally = gv.Tally(channel, counts)
    parts = informations(Observations([tally]), truth)
    solvers = [
        uncertainty.InformationSolver(
            parts, tally.space.size, tally.total, beneath, np.random.default_rng(1)
        )
        for beneath in (lattice_beneath(grid), None)
    ]
    system = parts[0].matrix() + np.diag(solvers[0]._ridge)
    sides = solvers[0]._scores(4)
    right = np.linalg.solve(system, sides.T).T
    lack, steps = [], []
    for solver in solvers:
        solved, taken, settled = solver.solve(sides)
        assert settled or taken == 400
        off = solved - right
        lack.append((off @ system * off).sum() / (right @ system * right).sum())
        steps.append(taken)
    assert steps[0] <= 30
    assert lack[0] <= 1e-5
    assert steps[1] >= times * steps[0]


def test_large_spaces_need_no_matrix_and_say_so() -> None:
    """2,116 cells, most of them empty; the progress knows its end."""
    grid = gv.Grid(rows=46, columns=46, cell_km=0.5)
    channel = gv.PlanarGeometric(grid, epsilon_per_km=4.0)
    truth = np.exp(-grid.distances_from_km(1_000) / 2)
    counts = np.random.default_rng(0).multinomial(30_000, channel.push(truth / truth.sum()))
    seen: list[float] = []
    estimator = IterativeBayesianUpdate(
        stop=Steps(30), progress=lambda done, of: seen.append(done / of)
    )
    estimate = estimator.fit(gv.Tally(channel, counts))
    fit = len(seen)
    check_ends(estimate)
    assert seen[fit:] == sorted(seen[fit:])
    assert seen[-1] == 1
    assert len(seen) > fit + 5
    assert "because 2,116 cells are more than the 2,048" in estimate.errors.method
    low, high = estimate.interval(0.95)
    covered = (low <= truth / truth.sum()) & (high >= truth / truth.sum())
    assert covered.mean() > 0.93


# --- Groups of cells


def kinds_of_bars() -> list[bars.ErrorBars]:
    """One of every kind that knows more than single cells, over twelve cells."""
    generator = np.random.default_rng(3)
    shares, centre = generator.dirichlet(np.ones(12)), generator.dirichlet(np.ones(12)) - 0.01
    about = {"method": "test", "distribution": shares, "centre": centre, "people": 500}
    factor = generator.normal(size=(12, 12)) / 100
    lost = np.zeros((12, 1))
    lost[3:5, 0] = 0.5, -0.5
    draws = generator.normal(size=(20, 12)) / 50
    drawn = bars.DrawnErrors(**about, draws=draws - draws.mean(axis=1, keepdims=True))
    replicates = generator.dirichlet(np.ones(12), size=30)
    boot = bars.BootstrapErrors(**about, replicates=replicates, lost=lost)
    gaussian = bars.GaussianErrors(**about, covariance=factor @ factor.T, lost=lost)
    diagonal = bars.DiagonalErrors(
        **about, spread=np.full(12, 0.01), factors=generator.normal(size=(2, 12)) / 200
    )
    averaged = bars.AveragedErrors.of(shares, [drawn, diagonal], np.array([0.7, 0.3]))
    either = bars.EitherErrors.of(shares, [drawn, diagonal], np.array([1, 4]), "; either")
    return [drawn, boot, gaussian, diagonal, averaged, either]


@pytest.mark.parametrize("made", kinds_of_bars(), ids=lambda made: type(made).__name__)
@pytest.mark.parametrize("number", [1, 2, 5, 12])
def test_groups_have_the_bars_of_their_combinations(made: bars.ErrorBars, number: int) -> None:
    groups = np.arange(12) % number if number < 12 else np.arange(12)[::-1]
    members = np.asarray(groups == np.arange(number)[:, None], dtype=np.float64)
    together = made.of_groups(groups)
    assert together.standard_error() == pytest.approx(made.standard_error(members))
    for one, other in zip(together.interval(0.9), made.interval(0.9, members), strict=True):
        assert one == pytest.approx(other, abs=1e-12)


def test_an_average_knows_how_many_are_in_each_group_no_better_than_a_poll_does() -> None:
    # all of a group are in one cell, and no noise hides who they are: what is left is how many came
    parts = [
        bars.DiagonalErrors(
            "test", here, here, people=people, spread=np.full(4, noise), factors=np.zeros((1, 4))
        )
        for here, people, noise in ((np.eye(4)[0], 700, 0.0), (np.eye(4)[3], 300, 1e-3))
    ]
    made = bars.AveragedErrors.of(np.array([0.7, 0.0, 0.0, 0.3]), parts, np.array([0.7, 0.3]))
    noise, poll = 0.09 * 1e-3, 0.7 * 0.3 / 1000
    assert made.standard_error() ** 2 == pytest.approx([noise + poll, noise, noise, noise + poll])
    ends = np.array([[1.0, 0.0, 0.0, 1.0]])
    assert made.standard_error(ends) ** 2 == pytest.approx([2 * noise])


def test_groups_number_every_cell() -> None:
    made = kinds_of_bars()[0]
    for groups in (np.zeros(11, dtype=np.int64), np.full(12, 1), np.array([0, 2] * 6)):
        with pytest.raises(InvalidInput, match="groups must number every cell"):
            made.of_groups(groups)


def test_a_saved_estimate_knows_no_groups() -> None:
    about = {"method": "test", "distribution": SHARES, "centre": SHARES, "people": 5}
    saved = SavedErrors(**about, level=0.9, of_cells=SHARES, ends=(SHARES, SHARES))
    with pytest.raises(Unsupported, match="ask the estimate itself"):
        saved.of_groups(np.zeros(5, dtype=np.int64))


# --- Crowds around cells and regions


SCATTERED = gv.Points(xy_km=np.random.default_rng(5).uniform(0, 4, size=(30, 2)))
CITY = gv.Grid(rows=9, columns=12, cell_km=0.5)
CROWDED = 0.2 + 8 * np.exp(-CITY.distances_from_km(40)) + 4 * np.exp(-CITY.distances_from_km(91))
BLUR = gv.PlanarGeometric(CITY, epsilon_per_km=1.0)


@pytest.mark.parametrize("space", [CITY, gv.Line(25), SCATTERED], ids=["grid", "line", "places"])
def test_a_crowd_has_all_people_of_its_cell_or_region(space: Any) -> None:
    some = np.random.default_rng(8).uniform(size=(4, space.size))
    some[some < 0.8] = 0.0
    nearby = Nearby(space.centres)
    for combinations in (None, sparse.csr_array(some)):
        wanted = np.eye(space.size) if combinations is None else some
        before = wanted
        for width in nearby.widths[:7]:
            crowds = nearby.crowds(width, np.arange(len(wanted)), combinations)
            assert crowds is not None
            weights = crowds.toarray()
            assert (weights >= before - 0.012).all()  # wider but where the last was cut off
            assert (weights >= wanted).all()
            assert weights.max() <= wanted.max()
            before = weights
        assert (before > wanted).any()


def blurred(seed: int, people: int = 2000) -> gv.Estimate:
    law = BLUR.push(CROWDED / CROWDED.sum())
    counts = np.random.default_rng(seed).multinomial(people, law / law.sum())
    return gv.IterativeBayesianUpdate().fit(gv.Tally(BLUR, counts))


@pytest.mark.statistical
def test_crowds_make_intervals_through_wide_noise_narrow_and_no_less_true() -> None:
    """108 cells in 15 runs: a share 0.025 of the truth may lie above a high end."""
    truth = CROWDED / CROWDED.sum()
    above, widths, without = [], [], []
    for seed in range(15):
        errors = blurred(seed).errors
        low, high = errors.interval(0.95)
        plain_low, plain_high = replace(errors, nearby=None).interval(0.95)
        assert (low <= plain_low).all()
        above.append((truth > high).mean())
        widths.append((high - low).mean())
        without.append((plain_high - plain_low).mean())
    assert np.mean(above) < 0.025
    assert np.mean(widths) < 0.5 * np.mean(without)


def test_a_region_of_one_cell_has_the_interval_of_the_cell() -> None:
    estimate = blurred(1)
    low, high = estimate.interval(0.9)
    for cell in (0, 40, 91):
        assert estimate.region([cell]).interval(0.9) == pytest.approx((low[cell], high[cell]))


def test_groups_have_the_crowds_of_their_cells() -> None:
    """Pairs of cells side by side, 54 of them: as the array of combinations says."""
    errors, pairs = blurred(1).errors, np.arange(CITY.size) // 2
    members = np.asarray(pairs == np.arange(54)[:, None], dtype=np.float64)
    found = errors.of_groups(pairs).interval(0.95)
    for one, other in zip(found, errors.interval(0.95, members), strict=True):
        assert one == pytest.approx(other, abs=1e-12)
    plain = replace(errors, nearby=None).of_groups(pairs).interval(0.95)
    assert found[1].mean() < 0.8 * plain[1].mean()


def test_draws_know_crowds_as_the_matrix_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 draws know a standard error to 9 %, and u narrows it further where noise is wide."""
    _, high = blurred(1).interval(0.95)
    monkeypatch.setattr(uncertainty, "MATRIX_CELLS", 50)
    errors = blurred(1).errors
    assert isinstance(errors, bars.DrawnErrors)
    _, drawn = errors.interval(0.95)
    _, plain = replace(errors, nearby=None).interval(0.95)
    assert drawn.mean() == pytest.approx(high.mean(), rel=0.15)
    assert drawn.mean() < 0.9 * plain.mean()


def test_a_crowd_with_something_that_no_report_shows_bounds_nothing() -> None:
    """Cells 3 and 4 are told apart by no report, so no crowd but one that has both alike is known."""
    made = kinds_of_bars()[2]
    assert isinstance(made, bars.GaussianErrors)
    _, high = replace(made, nearby=Nearby(gv.Line(12).centres)).interval(0.95)
    assert high[3] == high[4] == 1.0
    assert high[8] < 1.0


def test_a_difference_lies_between_minus_one_and_one_and_is_known_as_two_polls_are() -> None:
    line, people = gv.Line(4), np.repeat([0, 1, 2], [300, 100, 9_600])
    contrast = np.array([[-1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0]])
    exact = gv.DenseChannel(line, np.eye(4))
    errors = gv.IterativeBayesianUpdate().fit(exact.tally(people)).errors
    low, high = errors.interval(0.95, contrast)
    assert low[0] < -0.02 < high[0] < 0 < low[1] < 0.02 < high[1]
    np.testing.assert_allclose(low[1:2], -high[:1], rtol=1e-6)
    as_a_poll = 2 * 1.96 * np.sqrt((0.04 - 0.02**2) / people.size)
    assert high[0] - low[0] == pytest.approx(as_a_poll, rel=0.1)
    assert -1 <= low[2] < -0.96 < high[2] < -0.95
    noisy = gv.RandomizedResponse(line, epsilon=2.0)
    held = []
    for seed in range(80):
        tally = noisy.tally(noisy.sample(people, randomness=gv.seeded(seed)))
        low, high = gv.IterativeBayesianUpdate().fit(tally).errors.interval(0.95, contrast)
        held.append((low <= [-0.02, 0.02, -0.96]) & (high >= [-0.02, 0.02, -0.96]))
    assert np.mean(held) > 0.9


def test_combinations_that_are_nowhere_zero_have_no_crowds() -> None:
    """All cells, and weights of either sign; the cell beside them keeps its own."""
    errors = blurred(2).errors
    combinations = np.stack([np.ones(CITY.size), CITY.centres[:, 0] - 2.0, np.eye(CITY.size)[40]])
    plain = replace(errors, nearby=None).interval(0.95, combinations)
    found = errors.interval(0.95, combinations)
    assert np.array_equal(np.stack(found)[:, :2], np.stack(plain)[:, :2])
    assert found[1][2] == pytest.approx(errors.interval(0.95)[1][40])
    assert found[1][2] < plain[1][2]


def test_one_cell_has_everybody() -> None:
    alone = gv.Grid(rows=1, columns=1, cell_km=1.0)
    estimate = gv.IterativeBayesianUpdate().fit(
        gv.Tally(gv.PlanarGeometric(alone, epsilon_per_km=1.0), [9])
    )
    assert np.array_equal(np.ravel(estimate.interval(0.95)), [1.0, 1.0])


def test_conjugate_gradients_solve_all_sides_and_say_what_is_lacking() -> None:
    draws = np.random.default_rng(5)
    factor = draws.normal(size=(40, 40))
    matrix, sides = factor @ factor.T + np.diag(np.linspace(40, 80, 40)), draws.normal(size=(3, 40))
    found, lacking, steps, settled = conjugate_gradients(
        lambda x: x @ matrix, sides, lambda rest: rest / matrix.diagonal(), 200
    )
    assert settled
    assert 10 < steps < 60
    np.testing.assert_allclose(found @ matrix + lacking, sides, atol=1e-10)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, sides.T).T, rtol=0.02, atol=1e-4)
    assert not conjugate_gradients(lambda x: x @ matrix, sides, np.asarray, 2)[3]
