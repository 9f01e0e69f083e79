"""The weights c of an elastic mechanism: Blahut–Arimoto's, equalising ones, and their mixtures."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from geoveil.arrays import BoolArray, FloatArray, positive
from geoveil.channel.kernel import Kernel
from geoveil.channel.operator import Operator
from geoveil.errors import InvalidInput
from geoveil.estimate.em import Accelerator, Ascent, maximise
from geoveil.estimate.stopping import Progress, Stop
from geoveil.mechanism.elastic import exponential_kernel
from geoveil.space.space import Space

_INSIDE = 1e-9
"""How far inside its bound a leverage is aimed, so that rounding leaves it there."""
_LEAST_SHARE = 0.05
"""Of the mean weight: it costs below 1 % of ε, and without it the map could not be recovered."""
_SMALL = 32
"""Below so many cells eigenvalues are found from the matrix."""


def rate_distortion_weights(
    kernel: Operator,
    prior: FloatArray,
    stop: Stop,
    *,
    start: FloatArray | None = None,
    accelerate: Accelerator | None = None,
    progress: Progress | None = None,
) -> Ascent:
    """Blahut–Arimoto from uniform c: maximum likelihood with the roles swapped (PRIVIC §4, "duality").

    The unknown is c over the reports, the observations are the true cells with weights π, and the
    operator e^{−β·d(x, y)} is symmetric. At its optimum −f = R + β·D in nats, so the certificate
    bounds the distance to the rate–distortion optimum.
    """
    return maximise(kernel, prior, start=start, stop=stop, accelerate=accelerate, progress=progress)


def equalising_weights(
    space: Space, beta_per_km: float, *, kernel: Kernel | None = None
) -> FloatArray:
    """Weights that make Z(x) the same everywhere, so that the certified ε is β itself, half of 2β.

    Solves Kc = 1 by conjugate gradients with FFT products (some twenty on a grid), raises cells near
    edges and corners that come out below a twentieth of the mean (negative where noise is wide) to
    that, so that every cell stays reportable, and rescales. Reference: docs/privic.md.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=8, columns=8, cell_km=0.5)
    >>> sharp = gv.Elastic(grid, beta_per_km=2.0, weights=equalising_weights(grid, 2.0))
    >>> round(gv.certify(sharp).epsilon_per_km, 2)
    2.0
    """
    beta = positive("beta_per_km", beta_per_km)
    used = exponential_kernel(space, beta) if kernel is None else kernel
    product, near_inverse = (
        LinearOperator((space.size, space.size), matvec=matvec, dtype=np.float64)
        for matvec in (used.apply, used.apply_near_inverse)
    )
    solution, _ = cg(product, np.ones(space.size), rtol=1e-9, maxiter=2000, M=near_inverse)
    raised = np.maximum(solution, _LEAST_SHARE * np.maximum(solution, 0.0).mean())
    return raised / raised.sum()


def with_floor(weights: FloatArray, floor: float) -> FloatArray:
    """(1 − λ)·c + λ/m: every cell stays reportable."""
    if not 0.0 <= floor <= 1.0:
        raise InvalidInput(f"floor ({floor!r}) must lie in [0, 1]")
    return (1 - floor) * weights + floor / weights.size


def with_leverage(kernel: Kernel, weights: FloatArray, most: float) -> FloatArray:
    """The weights, raised where a report would weigh for more than ``most`` people.

    Law: the least c ≥ ``weights`` with c(x) ≥ Z(x)/most, scaled back to a sum of one. The cells to
    raise are found in a few passes, each a solution of (most − K)c = Kw on those found so far by
    conjugate gradients. No weights whatsoever keep a bound below the largest eigenvalue of K (Collatz
    and Wielandt); where it is not ``least_leverage`` at least, the weights come back as they are.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=6, columns=6, cell_km=0.5)
    >>> crowd = np.array([0.9] + [0.1 / 35] * 35)
    >>> raised = with_leverage(exponential_kernel(grid, 3.0), crowd, 4.0)
    >>> made = gv.Elastic(grid, beta_per_km=3.0, weights=raised)
    >>> bool(1 / np.diag(made.matrix()).min() <= 4.0)
    True
    """
    size = weights.size
    if least_leverage(kernel, size) > most:
        return weights
    aim, raised, low = most * (1 - _INSIDE), weights, np.zeros(size, dtype=bool)
    while True:
        found = low | (kernel.apply(raised) > aim * raised * (1 + _INSIDE / 2))
        if (found == low).all():
            scaled: FloatArray = raised / raised.sum()
            return scaled
        low = found
        kept = np.where(low, 0.0, weights)

        def lacking(values: FloatArray, low: BoolArray = low) -> FloatArray:
            inside = np.where(low, values, 0.0)
            return np.where(low, aim * values - kernel.apply(inside), values)

        product = LinearOperator((size, size), matvec=lacking, dtype=np.float64)
        wanted = np.where(low, kernel.apply(kept), 0.0)
        solution, _ = cg(product, wanted, rtol=1e-11, maxiter=2000)
        raised = np.where(low, np.maximum(solution, weights), weights)


def least_leverage(kernel: Kernel, size: int) -> float:
    """A leverage that weights can keep, a hundredth above the least there is: K's top eigenvalue."""
    product = LinearOperator((size, size), matvec=kernel.apply, dtype=np.float64)
    if size < _SMALL:
        top = np.linalg.eigvalsh(kernel.rows(np.arange(size)))[-1]
    else:
        top = eigsh(
            product, k=1, which="LA", v0=np.ones(size), tol=1e-4, return_eigenvectors=False
        )[0]
    return float(top) * 1.01
