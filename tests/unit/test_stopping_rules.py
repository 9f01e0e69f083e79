"""When the ascent ends, and what it says then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from geoveil.errors import InvalidInput
from geoveil.estimate import (
    CertifiedWithin,
    CrossValidated,
    DenseOperator,
    LikelihoodChange,
    Squarem,
    Steps,
    maximise,
)

BLUR = DenseOperator(np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]]))
COUNTS = [50, 20, 30]


def test_a_fixed_number_of_steps() -> None:
    ascent = maximise(BLUR, COUNTS, stop=Steps(7))
    assert ascent.steps == 7
    assert ascent.stopped == "after 7 steps, as asked"


def test_no_step_at_all_is_the_start() -> None:
    ascent = maximise(BLUR, COUNTS, stop=Steps(0))
    np.testing.assert_array_equal(ascent.distribution, np.full(3, 1 / 3))


def test_certified_within_a_tolerance() -> None:
    ascent = maximise(BLUR, COUNTS, stop=CertifiedWithin(1e-5))
    assert ascent.certificate <= 1e-5 < ascent.trace.certificate[-2]
    assert ascent.stopped.startswith("certified within 1e-05 nats per report of the maximum")


def test_the_rule_of_the_papers() -> None:
    ascent = maximise(BLUR, COUNTS, stop=LikelihoodChange(1e-6))
    changes = np.abs(np.diff(ascent.trace.log_likelihood))
    assert changes[-1] < 1e-6
    assert (changes[:-1] >= 1e-6).all()
    assert "changed by less than 1e-06" in ascent.stopped


def test_a_small_change_does_not_mean_that_the_maximum_is_near() -> None:
    """Two cells alike but for a hair: the likelihood hardly moves, and much of it is missing."""
    alike = DenseOperator(np.array([[0.501, 0.499], [0.499, 0.501]]))
    ascent = maximise(alike, [70, 30], stop=LikelihoodChange(1e-5))
    assert ascent.steps < 5
    assert ascent.certificate > 100 * 1e-5 / 2


@pytest.mark.parametrize("rule", [CertifiedWithin(1e-300, 12), LikelihoodChange(1e-300, 12)])
def test_every_rule_has_a_limit_and_says_what_is_missing(rule: Any) -> None:
    ascent = maximise(BLUR, COUNTS, stop=rule)
    assert ascent.steps == 12
    assert ascent.stopped.startswith("at the limit of 12 steps")
    assert f"{ascent.certificate:.2g} nats per report below its maximum" in ascent.stopped


def test_the_default_is_a_certificate() -> None:
    assert maximise(BLUR, COUNTS).certificate <= 1e-6


@pytest.mark.parametrize(
    "make",
    [
        lambda: Steps(-1),
        lambda: Steps(1.5),
        lambda: CertifiedWithin(0),
        lambda: CertifiedWithin(1e-6, -1),
        lambda: LikelihoodChange(float("nan")),
        lambda: LikelihoodChange(1e-6, True),
        lambda: CrossValidated(folds=1),
        lambda: CrossValidated(repeats=0),
        lambda: CrossValidated(maximum=0),
        lambda: CrossValidated(patience=0.5),
        lambda: CrossValidated(least_gain=-1),
        lambda: CrossValidated(seed=-1),
        lambda: Squarem(floor=1.0),
    ],
)
def test_rules_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(InvalidInput):
        make()
