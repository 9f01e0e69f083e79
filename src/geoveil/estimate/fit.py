"""How well a distribution explains the reports, however it was found."""

from __future__ import annotations

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.estimate.estimate import Fit
from geoveil.estimate.objective import Objective
from geoveil.estimate.observations import Observations

_IMPOSSIBLE = 1e-300  # the objective puts this in the place of probability zero


def fit_of(observations: Observations, distribution: FloatArray) -> Fit:
    """Log-likelihood and certificate, nats per report; infinite where a report seen is excluded.

    Linear estimators do not maximise the likelihood; the certificate says how much they may lack.
    """
    point = Objective(observations.likelihood, observations.counts).at(distribution)
    if point.law.min() <= _IMPOSSIBLE:
        return Fit(-np.inf, np.inf)
    return Fit(float(point.log_likelihood), float(point.certificate))
