"""One small linear program over rings, solved by HiGHS, with a bound that its multipliers prove."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from scipy import sparse

from geoveil.arrays import FloatArray
from geoveil.errors import SolverFailed

_TOLERANCES = (1e-10, 1e-9, 1e-7)  # tried in turn: the smallest is now and then too small for HiGHS
_SOLVED, _INFEASIBLE = 0, 2  # what HiGHS says


def minimise(
    costs: FloatArray, cone: sparse.csr_array, first: float, tails: FloatArray | None
) -> tuple[FloatArray, float] | None:
    """min costs·m with cone·m ≤ 0, m₀ ≤ first, tails of m ≤ tails, Σm = 1, m ≥ 0, and a proven bound.

    Tails are variables of their own, t_i = t_{i+1} + m_i, so that their limits are bounds.
    """
    size = costs.size
    most = np.where(np.arange(size) == 0, first, np.inf)
    sums, right, extra = sparse.csr_array(np.ones((1, size))), np.ones(1), 0
    if tails is not None:
        steps = sparse.eye_array(size) - sparse.eye_array(size, k=1)
        whole = sparse.hstack([sums, sparse.csr_array((1, size))])
        parts = sparse.hstack([sparse.eye_array(size), -steps])
        sums = sparse.csr_array(sparse.vstack([whole, parts]))
        right, most, extra = np.r_[right, np.zeros(size)], np.r_[most, tails], size
    result = _solved(
        np.r_[costs, np.zeros(extra)],
        sparse.csr_array(sparse.hstack([cone, sparse.csr_array((cone.shape[0], extra))])),
        sums,
        right,
        most,
    )
    if result is None:
        return None
    # for any multipliers ≥ 0 of cone (μ), m₀ (κ) and tails (ν):
    # costs·m ≥ min_i (costs + μ·cone + κ[i = 0] + Σ_{j ≤ i} ν_j) − κ·first − ν·tails
    prices = np.maximum(-result.ineqlin.marginals, 0.0)
    caps = np.maximum(-result.upper.marginals, 0.0)
    reduced = costs + cone.T @ prices
    reduced[0] += caps[0]
    paid = caps[0] * first if caps[0] > 0 else 0.0
    if tails is not None:
        reduced += np.cumsum(caps[size:])
        paid += float(caps[size:] @ tails)
    return np.maximum(result.x[:size], 0.0), float(reduced.min() - paid)


def _solved(
    costs: FloatArray, cone: sparse.csr_array, sums: sparse.csr_array, right: FloatArray,
    most: FloatArray,
) -> Any:  # fmt: skip
    """The answer of HiGHS; ``None`` where there is nothing to choose from."""
    linprog: Any = scipy.optimize.linprog  # whose stubs know no sparse matrices
    for tolerance in _TOLERANCES:
        result = linprog(
            costs, A_ub=cone, b_ub=np.zeros(cone.shape[0]), A_eq=sums, b_eq=right,
            bounds=np.stack([np.zeros(costs.size), most], axis=1), method="highs-ds",
            options={
                "primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance
            },
        )  # fmt: skip
        if result.status == _INFEASIBLE:
            return None
        if result.status == _SOLVED:
            return result
    raise SolverFailed(
        f"HiGHS could not solve the program over rings ({' '.join(result.message.split())}); try a "
        "larger gap, or a promise that allows more loss"
    )
