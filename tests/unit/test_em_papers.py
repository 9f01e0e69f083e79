"""What the paper on full convergence says of maximum likelihood, example by example (IBU §III, §VI)."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import ImpossibleReport, InvalidInput
from geoveil.estimate import (
    ActiveSetNewton,
    CertifiedWithin,
    DenseOperator,
    IterativeBayesianUpdate,
    JointTally,
    LikelihoodChange,
    Steps,
    maximise,
)

MANY_MAXIMA = np.array([[1 / 2, 1 / 3, 1 / 6], [1 / 3, 1 / 3, 1 / 3], [1 / 6, 1 / 3, 1 / 2]])
THREE_RESPONSES = np.array([[2, 1, 1], [1, 2, 1], [1, 1, 2]]) / 4


def exact(tallies: object) -> gv.Tally:
    return IterativeBayesianUpdate(stop=CertifiedWithin(1e-12), accelerate=ActiveSetNewton()).fit(
        tallies
    )


class TestManyMaxima:
    """§III-A: with mechanism (7) and one report of each kind, every θ with θ₁ = θ₃ is a maximum."""

    channel = gv.DenseChannel(gv.Line(3), MANY_MAXIMA)

    @pytest.mark.parametrize("middle", [0.0, 0.2, 0.5, 1.0])
    def test_all_have_the_same_likelihood_and_a_certificate_of_zero(self, middle: float) -> None:
        theta = np.array([(1 - middle) / 2, middle, (1 - middle) / 2])
        theta = 0.999999999 * theta + 1e-9 / 3  # full support
        ascent = maximise(
            DenseOperator(MANY_MAXIMA), [1, 1, 1], start=theta, stop=CertifiedWithin(1e-8)
        )
        assert ascent.steps == 0
        assert ascent.log_likelihood == pytest.approx(np.log(1 / 3))

    @pytest.mark.parametrize("middle", [0.1, 0.6])
    def test_the_update_stays_at_its_start_and_not_at_the_truth(self, middle: float) -> None:
        """§III-B: even when the reports follow their law exactly."""
        start = np.array([(1 - middle) / 2, middle, (1 - middle) / 2])
        estimate = IterativeBayesianUpdate(stop=LikelihoodChange(1e-12), start=start).fit(
            gv.Tally(self.channel, [1000, 1000, 1000])
        )
        np.testing.assert_allclose(estimate.distribution, start, rtol=1e-12)

    def test_the_estimate_says_so(self) -> None:
        estimate = exact(gv.Tally(self.channel, [1000, 1000, 1000]))
        assert not estimate.identifiable
        assert estimate.identifiable.rank == 2
        assert estimate.identifiable.undetermined.all()
        assert np.isinf(estimate.standard_error).all()
        low, high = estimate.interval()
        np.testing.assert_array_equal([low, high], [[0, 0, 0], [1, 1, 1]])

    def test_what_is_determined_keeps_a_finite_error(self) -> None:
        """θ₁ − θ₃ is known, so cells 1 and 2 with weights 2 and 1 … here: the mean position is."""
        estimate = exact(gv.Tally(self.channel, [1000, 1000, 1000]))
        position = np.array([[0.0, 0.5, 1.0]])
        assert np.isfinite(estimate.errors.standard_error(position)).all()


class TestMaximumOnTheBoundary:
    """§III-C and D: the maximum of 3-RR may lie on the boundary, stationary or not.

    For the reports 1, 2, 2, 3 printed there, (0, 1, 0) is the maximum, but its partial derivatives
    are 0: the reports follow its law exactly. The −0.5 of the paper belongs to 1, 2, 2, 2, 3.
    """

    channel = gv.DenseChannel(gv.Line(3), THREE_RESPONSES)
    printed = gv.Tally(channel, [1, 2, 1])
    meant = gv.Tally(channel, [1, 3, 1])

    def test_newton_finds_it(self) -> None:
        np.testing.assert_allclose(exact(self.printed).distribution, [0, 1, 0], atol=1e-5)
        np.testing.assert_allclose(exact(self.meant).distribution, [0, 1, 0], atol=1e-11)

    def test_the_update_approaches_it_from_inside(self) -> None:
        for tally in (self.printed, self.meant):
            estimate = IterativeBayesianUpdate(stop=CertifiedWithin(1e-4)).fit(tally)
            np.testing.assert_allclose(estimate.distribution, [0, 1, 0], atol=3e-2)
            assert (estimate.distribution > 0).all()

    def test_it_is_unique(self) -> None:
        assert exact(self.printed).identifiable
        assert exact(self.meant).identifiable

    def test_only_the_second_is_not_stationary(self) -> None:
        law = np.array([0, 1, 0]) @ THREE_RESPONSES
        for tally, slope in ((self.printed, 0.0), (self.meant, -0.5)):
            gradient = THREE_RESPONSES @ (tally.counts / law)
            np.testing.assert_allclose(gradient - gradient[1], [slope, 0, slope], atol=1e-12)


class TestOnePerson:
    """Theorem 6: the reports of one person put all mass on the cells that explain them best."""

    def test_all_mass_on_the_best_explanation(self) -> None:
        line = gv.Line(5)
        channels = [gv.LinearGeometric(line, epsilon_per_unit=e) for e in (0.5, 1.0, 1.0)]
        reports = [3, 2, 2]
        estimate = exact(JointTally(channels, [reports]))
        columns = [c.matrix()[:, z] for c, z in zip(channels, reports, strict=True)]
        best = int(np.argmax(np.prod(columns, axis=0)))
        np.testing.assert_allclose(estimate.distribution, np.eye(5)[best], atol=1e-10)
        assert estimate.total == 1

    def test_many_reports_do_not_underflow(self) -> None:
        line = gv.Line(4)
        channel = gv.RandomizedResponse(line, epsilon=0.1)
        reports = [0] * 300 + [1] * 400 + [2] * 300
        estimate = exact(JointTally([channel] * 1000, [reports]))
        np.testing.assert_allclose(estimate.distribution, [0, 1, 0, 0], atol=1e-10)


class TestSeveralReportsOfEachPerson:
    """§V: the column of a person is the product of the columns of the reports."""

    line = gv.Line(3)
    channels = (
        gv.RandomizedResponse(line, epsilon=1.0),
        gv.LinearGeometric(line, epsilon_per_unit=0.7),
    )
    reports = np.array([[0, 0], [0, 1], [2, 2], [0, 0], [1, 2], [2, 2], [2, 1]])

    def test_the_update_is_that_of_algorithm_1(self) -> None:
        first, second = (channel.matrix() for channel in self.channels)
        theta = np.full(3, 1 / 3)
        for _ in range(6):
            parts = [theta * first[:, a] * second[:, b] for a, b in self.reports]
            theta = np.mean([part / part.sum() for part in parts], axis=0)
        estimate = IterativeBayesianUpdate(stop=Steps(6)).fit(
            JointTally(self.channels, self.reports)
        )
        np.testing.assert_allclose(estimate.distribution, theta, rtol=1e-12)
        assert estimate.total == 7

    def test_a_joint_tally_goes_beside_a_tally_of_single_reports(self) -> None:
        joint = JointTally(self.channels, self.reports)
        single = self.channels[0].tally([0, 1, 1])
        estimate = exact([joint, single])
        assert estimate.total == 10
        columns = np.concatenate(
            [
                np.stack(
                    [
                        self.channels[0].matrix()[:, a] * self.channels[1].matrix()[:, b]
                        for a, b in self.reports
                    ],
                    axis=1,
                ),
                self.channels[0].matrix()[:, [0, 1, 1]],
            ],
            axis=1,
        )
        gradient = columns @ (1 / (10 * (estimate.distribution @ columns)))
        assert np.log(gradient.max()) <= 1e-9

    def test_reports_must_fit_the_channels(self) -> None:
        with pytest.raises(InvalidInput, match="shape"):
            JointTally(self.channels, [0, 1, 2])
        with pytest.raises(InvalidInput, match="reports of channel 1"):
            JointTally(self.channels, [[0, 3]])
        with pytest.raises(InvalidInput, match="one space"):
            JointTally([self.channels[0], gv.RandomizedResponse(gv.Line(4), epsilon=1)], [[0, 0]])
        with pytest.raises(InvalidInput, match="at least one mechanism"):
            JointTally([], [[0]])

    def test_reports_that_exclude_each_other_are_refused(self) -> None:
        halves = gv.DenseChannel(gv.Line(2), [[1.0, 0.0], [0.0, 1.0]])
        with pytest.raises(ImpossibleReport, match=r"combination \[0, 1\]"):
            JointTally([halves, halves], [[0, 0], [0, 1]])

    def test_the_promises_add(self) -> None:
        joint = JointTally([self.channels[0]] * 3, [[0, 0, 0]])
        assert joint.channel.guarantee == gv.LocalDifferentialPrivacy(3.0)
        mixed = gv.DenseChannel(self.line, np.eye(3))
        assert JointTally([self.channels[0], mixed], [[0, 0]]).channel.guarantee is None
