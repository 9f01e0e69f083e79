"""Making an almost private matrix private: what a solver returns is not, as it stands."""

from __future__ import annotations

import math

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.optimal.constraints import PrivacyConstraints


def majorant(matrix: FloatArray, constraints: PrivacyConstraints) -> FloatArray:
    """The smallest private matrix above the given one: max over x′ of e^{−w(x, x′)}·C[x′, y].

    Its columns satisfy every constraint; its rows may sum to more than one. Cost: m²·n.
    """
    factors = constraints.factors
    raised = np.empty_like(matrix)
    for x in range(len(matrix)):
        np.max(factors[x][:, None] * matrix, axis=0, out=raised[x])
    return raised


def repair(matrix: FloatArray, constraints: PrivacyConstraints, costs: FloatArray) -> FloatArray:
    """A channel that satisfies every constraint exactly, close to a matrix that almost does.

    The majorant M is private but its row sums S(x) differ a little. It is scaled down by
    a = (1 − t)/max S, and what is missing, 1 − a·S(x), goes to one report. These vectors are private
    too once t ≥ (1 − min S/max S)/(e^{w_min} − 1), so their sum is, and every row sums to one.
    ``costs[x, y]`` = π(x)·L(x, y) chooses the report. Cost: m²·n.
    Reference: docs/optimal.md; scaling a sum of private columns needs no smaller ε, unlike scaling rows.
    """
    raised = majorant(np.maximum(matrix, 0.0), constraints)
    sums = raised.sum(axis=1)
    largest = float(sums.max())
    uneven = 1.0 - float(sums.min()) / largest
    smallest = float(constraints.weights[constraints.weights > 0].min(initial=math.inf))
    held_back = min(1.0, (2.0 * uneven + 1e-15) / math.expm1(min(smallest, 1.0)))
    channel = raised * ((1.0 - held_back) / largest)
    missing = 1.0 - channel.sum(axis=1)
    channel[:, int(np.argmin(missing @ costs))] += missing
    return channel
