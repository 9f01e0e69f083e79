"""The estimator contract for the iterative Bayesian update, however it stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import geoveil as gv
from contract.estimators import EstimatorContract
from geoveil.channel.channel import Channel
from geoveil.errors import InvalidInput
from geoveil.estimate import (
    ActiveSetNewton,
    Bootstrap,
    CertifiedWithin,
    IterativeBayesianUpdate,
    JointTally,
    Squarem,
    Steps,
)


class TestCrossValidatedUpdate(EstimatorContract):
    exact_recovery = 1e-3

    def make(self) -> Any:
        return IterativeBayesianUpdate()


class TestAcceleratedUpdate(EstimatorContract):
    exact_recovery = 1e-4

    def make(self) -> Any:
        return IterativeBayesianUpdate(stop=CertifiedWithin(1e-10), accelerate=Squarem())


class TestExactMaximum(EstimatorContract):
    def make(self) -> Any:
        return IterativeBayesianUpdate(stop=CertifiedWithin(1e-12), accelerate=ActiveSetNewton())


class TestBootstrappedUpdate(EstimatorContract):
    exact_recovery = 2e-2

    def make(self) -> Any:
        return IterativeBayesianUpdate(stop=Steps(60), uncertainty=Bootstrap(replicates=60))


class TestRapporVectors(EstimatorContract):
    """RAPPOR through the vectors it was seen to make."""

    relabels = False

    def make(self) -> Any:
        return IterativeBayesianUpdate()

    def make_channel(self, space: gv.Space) -> Channel:
        return gv.Rappor(space, epsilon=4.0)


class TestSeveralReportsOfEachPerson(EstimatorContract):
    """Two reports of everybody, each under a mechanism of its own."""

    relabels = splits = False

    def make(self) -> Any:
        return IterativeBayesianUpdate(stop=CertifiedWithin(1e-8), accelerate=ActiveSetNewton())

    def make_tally(self, *, people: int = 20_000, seed: int = 3) -> gv.Tally:
        line = gv.Line(self.cells)
        channels = [gv.RandomizedResponse(line, epsilon=2.0), self.make_channel(line)]
        cells = np.random.default_rng(seed).choice(self.cells, size=people, p=self.truth())
        reports = [c.sample(cells, randomness=gv.seeded(seed + n)) for n, c in enumerate(channels)]
        return JointTally(channels, np.stack(reports, axis=1))


def test_joint_tallies_add() -> None:
    """Two crowds counted apart and added are one crowd, whichever combinations each of them saw."""
    line = gv.Line(4)
    channels = [gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 2.0)]
    reports = np.random.default_rng(1).integers(0, 4, (60, 2))
    whole = JointTally(channels, reports)
    parts = JointTally(channels, reports[:7]) + JointTally(channels, reports[7:])
    assert isinstance(parts, JointTally)
    assert parts.channel == whole.channel
    np.testing.assert_array_equal(parts.counts, whole.counts)
    together = parts + JointTally(channels, reports)
    assert together.total == 120
    fit = IterativeBayesianUpdate(stop=Steps(20)).fit
    np.testing.assert_allclose(fit(together).distribution, fit(whole).distribution, atol=1e-12)
    with pytest.raises(InvalidInput, match="same channels, in one order"):
        whole + JointTally(channels[::-1], reports)
    single = channels[0].tally([1, 2])
    for one, other in ((whole, single), (single, whole)):
        with pytest.raises(InvalidInput, match="must be of one kind"):
            one + other
