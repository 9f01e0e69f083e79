"""The weights c of an elastic mechanism: Blahut–Arimoto's, those that make Z the same everywhere or flat
between positions, and their mixtures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from geoveil.arrays import BoolArray, FloatArray, finite, one_blas_thread, positive
from geoveil.channel.kernel import Kernel
from geoveil.errors import InvalidInput
from geoveil.mechanism.elastic import exponential_kernel
from geoveil.position.centres import Centres, Lattice
from geoveil.position.cone import RoundedCone
from geoveil.space import MATRIX_LIMIT
from geoveil.space.space import Space

_INSIDE = 1e-9
"""How far inside its bound a leverage is aimed, so that rounding leaves it there."""
LEAST_SHARE = 0.05
"""Of the mean weight, so that every cell stays reportable: it costs below 1 % of ε, and without it the map
could not be recovered."""
_SMALL = 32
"""Below so many cells eigenvalues are found from the matrix."""


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
        scipy.sparse.linalg.LinearOperator(
            (space.size, space.size), matvec=matvec, dtype=np.float64
        )
        for matvec in (used._push, used.apply_near_inverse)
    )
    solution, _ = scipy.sparse.linalg.cg(
        product, np.ones(space.size), rtol=1e-9, maxiter=2000, M=near_inverse
    )
    raised = np.maximum(solution, LEAST_SHARE * np.maximum(solution, 0.0).mean())
    return raised / raised.sum()


def with_floor(weights: FloatArray, floor: float) -> FloatArray:
    """(1 − λ)·c + λ/m: every cell stays reportable."""
    finite("floor", floor, least=0, most=1)
    return (1 - floor) * weights + floor / weights.size


def with_leverage(kernel: Kernel, weights: FloatArray, most: float) -> FloatArray:
    """The weights, raised where a report would weigh for more than ``most`` people.

    Law: the least c ≥ ``weights`` with c(x) ≥ Z(x)/most, scaled back to a sum of one. The cells to
    raise are found in a few passes, each a solution of (most − K)c = Kw on those found so far by
    conjugate gradients. No weights whatsoever keep a bound below the largest eigenvalue of K (Collatz
    and Wielandt); below ``least_leverage`` the weights come back as they are.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=6, columns=6, cell_km=0.5)
    >>> crowd = np.array([0.9] + [0.1 / 35] * 35)
    >>> raised = with_leverage(exponential_kernel(grid, 3.0), crowd, 4.0)
    >>> mechanism = gv.Elastic(grid, beta_per_km=3.0, weights=raised)
    >>> bool(1 / np.diag(mechanism.matrix()).min() <= 4.0)
    True
    """
    size = weights.size
    if least_leverage(kernel, size) > most:
        return weights
    aim, raised, low = most * (1 - _INSIDE), weights, np.zeros(size, dtype=bool)
    while True:
        all_low = low | (kernel._push(raised) > aim * raised * (1 + _INSIDE / 2))
        if (all_low == low).all():
            scaled: FloatArray = raised / raised.sum()
            return scaled
        low = all_low
        others = np.where(low, 0.0, weights)

        def lacking(values: FloatArray, low: BoolArray = low) -> FloatArray:
            inside = np.where(low, values, 0.0)
            return np.where(low, aim * values - kernel._push(inside), values)

        product = scipy.sparse.linalg.LinearOperator((size, size), matvec=lacking, dtype=np.float64)
        right_side = np.where(low, kernel._push(others), 0.0)
        solution, _ = scipy.sparse.linalg.cg(product, right_side, rtol=1e-11, maxiter=2000)
        raised = np.where(low, np.maximum(solution, weights), weights)


def least_leverage(kernel: Kernel, size: int) -> float:
    """A leverage that weights can keep, a hundredth above the least there is: K's top eigenvalue."""
    product = scipy.sparse.linalg.LinearOperator(
        (size, size), matvec=kernel._push, dtype=np.float64
    )
    if size < _SMALL:
        top = np.linalg.eigvalsh(kernel.rows(np.arange(size)))[-1]
    else:
        top = scipy.sparse.linalg.eigsh(
            product, k=1, which="LA", v0=np.ones(size), tol=1e-4, return_eigenvectors=False
        )[0]
    return float(top) * 1.01


# --- Between positions: weights that make Z flat, by least squares or so that the worst position loses least


_SLOPE_WEIGHT = 3.0
"""How much more a slope of Z counts than its height: slopes are what costs ε."""
_STEPS, _STEPS_WITHIN_LIMITS = 300, 20
"""Least squares end here at the latest; the second within city limits of more than 4,096 cells."""
_FEW_PLACES = 1_024
_ENTRIES = 1 << 20
"""Pairs of a position and a place that are looked at together."""
_EDGE = 64
"""Positions on the edge of the rectangle, at most, and four for each place."""
_WAYS = 32
"""Directions in which the loss at a position is looked at."""
_SHARPNESS = 60.0
"""The worst loss is taken as log Σ e^{60·loss}/60, in parts of β, which has a gradient."""
_LEAST_OF_LOSS = 0.4
"""Of the mean weight, where the worst loss is brought down: nearly the same β as with 5 %, a tenth of the
leverage of a fake report, and no larger error."""
_ROUNDS = 100


def flat_weights(
    centres: Centres, cone: RoundedCone, cell_km: float, least: float = LEAST_SHARE
) -> FloatArray:
    """c of at least a part of the mean, about, that brings Z to 1 and ∇Z to 0 by least squares.

    On a grid as :func:`flat_on_grid` does, with ``least`` for the part; among places it is 5 %. There the
    positions are those at every half cell (whole cell, where places are many) of the rectangle that have a
    place within a cell.
    Cost: one product of a matrix of about 12 (or 6) entries for every two places with itself, then some
    hundred with one of an entry for every two.
    """
    lattice = centres.lattice
    if lattice is None:
        return _Around(centres, cone, cell_km, ways=0).flat()
    if lattice.many and len(lattice.cells) == lattice.rows * lattice.columns:
        return _stretched(centres, lattice, cone, least)
    return flat_on_grid(centres, cone, least)


def least_loss_weights(
    centres: Centres, cone: RoundedCone, cell_km: float, start: FloatArray | None = None
) -> FloatArray:
    """c ≥ 40 % of the mean for which the worst of many positions loses least, among places.

    The loss at x is max_y |a_y − g|. Least squares make most positions lose little; but a promise is about
    the worst, such as a corner of the rectangle where no place is and all reports lie on one side. Looked at
    are the positions of :func:`flat_weights`, others at every cell of the rectangle, and its edge at every
    quarter of one; in 32 directions of y. ``start`` are weights of a similar β, if any.
    Cost: at most a hundred times six products with such a matrix.
    """
    around = _Around(centres, cone, cell_km, ways=_WAYS)
    return around.of_least_loss(around.flat() if start is None else start)


class _Around:
    """Positions around places, with k(x − y) and k·a_y/β for each position x (rows) and place y.

    Without ``ways``, in which the loss is looked at, there are the positions near places only.
    """

    def __init__(self, centres: Centres, cone: RoundedCone, cell_km: float, *, ways: int) -> None:
        self._centres, self._cone, self._cell_km = centres, cone, cell_km
        pitch_km = cell_km * (0.5 if centres.size <= _FEW_PLACES else 1.0)
        tree = scipy.spatial.cKDTree(centres.points_km)
        # far from all places no more positions than places, however wide the rectangle
        width, height = np.ptp(centres.rectangle_km, axis=0).tolist()
        apart_km = max(2.0 * pitch_km, math.sqrt(width * height / centres.size))
        along_km = max(0.5 * pitch_km, (width + height) / (2.0 * centres.size + _EDGE))
        fine, coarse = (_mesh(*self._axes(step)) for step in (pitch_km, apart_km))
        near, far = tree.query(fine)[0] <= cell_km, tree.query(coarse)[0] > cell_km
        close = np.concatenate((centres.points_km, fine[near]))
        self._close = len(close)
        beyond = (coarse[far], self._edge(along_km)) if ways else ()
        self._places = np.concatenate((close, *beyond))
        size = len(self._places), centres.size
        self._near, self._east, self._north = (np.empty(size) for _ in range(3))
        self._ways = np.zeros((2, len(self._places), ways))
        step = max(1, _ENTRIES // centres.size)
        for start in range(0, len(self._places), step):
            self._fill(slice(start, start + step))

    def _axes(self, pitch_km: float) -> list[FloatArray]:
        low, high = self._centres.rectangle_km
        return [
            np.linspace(a, b, max(2, math.ceil((b - a) / pitch_km) + 1))
            for a, b in zip(low, high, strict=True)
        ]

    def _edge(self, pitch_km: float) -> FloatArray:
        east, north = self._axes(pitch_km)
        along, up = _mesh(east, north[[0, -1]]), _mesh(east[[0, -1]], north)
        return np.concatenate((along, up))

    def _fill(self, part: slice) -> None:
        away = self._places[part, None] - self._centres.points_km
        slopes = self._cone.slopes(away[..., 0], away[..., 1])
        steep = slopes.rate / self._cone.beta_per_km
        east, north = steep * away[..., 0], steep * away[..., 1]
        self._near[part] = slopes.value
        self._east[part], self._north[part] = slopes.value * east, slopes.value * north
        if not self._ways.shape[-1]:
            return
        # of the centres in every direction, the one whose slope is steepest
        turn = (np.arctan2(north, east) / (2.0 * np.pi) + 0.5) * _WAYS
        way, size = np.minimum(turn.astype(np.int64), _WAYS - 1), np.hypot(east, north)
        row = np.arange(len(way))
        for number in range(_WAYS):
            there = np.where(way == number, size, 0.0)
            steepest = there.argmax(axis=1)
            occupied = there[row, steepest] > 0.0
            for axis, slope in enumerate((east, north)):
                self._ways[axis, part, number] = np.where(occupied, slope[row, steepest], 0.0)

    def flat(self) -> FloatArray:
        """By least squares: Z = 1 and ∇Z = 0 at the positions near places."""
        mean = 2.0 * np.pi / (self._cone.beta_per_km * self._cell_km) ** 2 + 1.0
        near = self._near[: self._close]
        squares = near.T @ near
        for slope in (self._east[: self._close], self._north[: self._close]):
            squares += _SLOPE_WEIGHT**2 * (slope.T @ slope)
        squares /= mean**2
        linear = near.sum(axis=0) / mean

        def loss(weights: FloatArray) -> tuple[float, FloatArray]:
            product = squares @ weights
            value = float(weights @ product - 2.0 * (linear @ weights)) + self._close
            return value, 2.0 * (product - linear)

        return _least(loss, self._centres.size)

    def of_least_loss(self, start: FloatArray) -> FloatArray:
        """From weights on, until the worst position loses no less; over the logarithms of the weights."""
        (ways_east, ways_north), size = self._ways, start.size

        def loss(logarithms: FloatArray) -> tuple[float, FloatArray]:
            weights = np.exp(logarithms)
            total = self._near @ weights
            east, north = self._east @ weights / total, self._north @ weights / total  # g
            off_east, off_north = ways_east - east[:, None], ways_north - north[:, None]
            away = np.sqrt(off_east**2 + off_north**2 + 1e-12)
            worst = float(away.max())
            share = np.exp((away - worst) * _SHARPNESS)
            sum_of_shares = float(share.sum())
            share /= sum_of_shares * away
            by_east = -(share * off_east).sum(axis=1) / total
            by_north = -(share * off_north).sum(axis=1) / total
            gradient = by_east @ self._east + by_north @ self._north
            gradient -= (by_east * east + by_north * north) @ self._near
            # the loss does not depend on the scale of the weights: hold their mean at one
            off = float(weights.mean()) - 1.0
            value = worst + math.log(sum_of_shares) / _SHARPNESS + off * off
            return value, (gradient + 2.0 * off / size) * weights

        first = np.log(np.maximum(start / start.mean(), _LEAST_OF_LOSS))
        weights = np.exp(_minimised(loss, first, math.log(_LEAST_OF_LOSS), {"maxiter": _ROUNDS}))
        return weights / weights.sum()


def _mesh(east: FloatArray, north: FloatArray) -> FloatArray:
    return np.stack(np.meshgrid(east, north), axis=-1).reshape(-1, 2)


def flat_on_grid(centres: Centres, cone: RoundedCone, least: float = LEAST_SHARE) -> FloatArray:
    """c ≥ ``least`` of the mean, about, that brings Z to 1 and ∇Z to 0, by least squares, at half cells.

    Minimises Σ_x (Z − 1)² + (3|∇Z|/β)² over the positions x on a lattice of half cells; under a mask over
    those in cells that exist, since nothing can be done about Z where there are no centres.
    Cost: some hundred steps of twelve FFTs, twenty above 4,096 cells.
    """
    lattice = centres.lattice
    if lattice is None:
        raise InvalidInput("only weights on a grid can be flattened")
    cell_km, shape = lattice.step * centres.pitch_km, lattice.shape
    size = (lattice.rows + 1, lattice.columns + 1)
    # about Σ k, so that weights are about 1
    mean = 2.0 * np.pi / (cone.beta_per_km * cell_km) ** 2 + 1.0
    kernels, insides = [], []
    for east_at in (0.0, -0.5):
        for north_at in (0.0, -0.5):
            east, north = lattice.offsets(east_at, north_at)
            slopes = cone.slopes(east * cell_km, north * cell_km)
            steep = -_SLOPE_WEIGHT * slopes.value * slopes.rate / cone.beta_per_km * cell_km
            east_in, north_in = (
                _within(centres, lattice, axis, at) for axis, at in enumerate((east_at, north_at))
            )
            inside = np.outer(north_in, east_in)
            inside *= _on_cells(lattice, east_at < 0.0, north_at < 0.0)
            kernels.append(np.stack((slopes.value, steep * east, steep * north)) / mean)
            insides.append(inside)
    # of four places in a cell and of Z, ∂Z/∂e and ∂Z/∂n: all at once, since calls take long on a small map
    spectra, inside = scipy.fft.rfft2(np.stack(kernels)), np.stack(insides)[:, None]
    turned, target = spectra.conj(), np.array([1.0, 0.0, 0.0])[:, None, None]

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        spectrum = scipy.fft.rfft2(lattice.spread(weights), shape)
        field = scipy.fft.irfft2(spectrum * spectra, shape)[..., : size[0], : size[1]]
        off = (field - target) * inside
        gradient = (scipy.fft.rfft2(off, shape) * turned).sum(axis=(0, 1))
        return float((off**2).sum()), 2.0 * lattice.gather(scipy.fft.irfft2(gradient, shape))

    return _least(loss, centres.size, least, _STEPS_WITHIN_LIMITS if lattice.many else _STEPS)


def _stretched(centres: Centres, lattice: Lattice, cone: RoundedCone, least: float) -> FloatArray:
    """Flat weights of many cells: those of a smaller rectangle, its middle row and column many times over.

    Far from all edges weights hardly vary, and least squares from even weights would take hundreds of steps
    of all cells to come from the edges to the middle.
    """
    rows, columns, side = lattice.within.rows, lattice.within.columns, math.isqrt(MATRIX_LIMIT)
    height = min(rows, max(side, MATRIX_LIMIT // columns))
    width = min(columns, max(side, MATRIX_LIMIT // rows))
    part = Centres.of_grid(
        height, width, step=lattice.step, pitch_km=centres.pitch_km, rim=lattice.rim
    )
    weights = flat_on_grid(part, cone, least)
    assert part.lattice is not None
    sides = zip((rows, columns), (height, width), strict=True)
    north, east = (
        np.insert(np.arange(size + 2 * lattice.rim), middle, np.full(whole - size, middle))
        for whole, size in sides
        for middle in (lattice.rim + size // 2,)
    )
    stretched = lattice.gather(part.lattice.spread(weights)[np.ix_(north, east)])
    return stretched / stretched.sum()


Loss = Callable[[FloatArray], tuple[float, FloatArray]]
"""The value and the gradient of a loss."""


def _least(loss: Loss, size: int, least: float = LEAST_SHARE, steps: int = _STEPS) -> FloatArray:
    """The weights of the least loss, none below about a part of their mean, with a sum of one."""
    ones = np.ones(size)
    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-10}
    weights = _minimised(loss, ones, least, options)
    return weights / weights.sum()


def _minimised(loss: Loss, start: FloatArray, least: float, options: Any) -> FloatArray:
    """Where a loss is least, from a start on; no entry below ``least``."""
    bounds = [(least, None)] * start.size
    minimize: Any = (
        scipy.optimize.minimize
    )  # it brings SciPy's BLAS, which whoever entered before missed
    with one_blas_thread():
        minimiser: FloatArray = minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).x
    return minimiser


def _on_cells(lattice: Lattice, west: bool, south: bool) -> FloatArray:
    """(rows + 1, columns + 1): 1 at the centres of cells that exist, or half a cell west or south of them."""
    mask = np.zeros((lattice.rows + 1, lattice.columns + 1))
    sides = (lattice.rows, lattice.columns)
    rows, columns = (slice(lattice.rim, size - lattice.rim) for size in sides)
    mask[rows, columns] = lattice.within.spread(np.ones(lattice.inner))
    if south:  # which is half a cell north of the cell before
        mask[1:] = np.maximum(mask[1:], mask[:-1])
    if west:
        mask[:, 1:] = np.maximum(mask[:, 1:], mask[:, :-1])
    return mask


def _within(centres: Centres, lattice: Lattice, axis: int, at: float) -> FloatArray:
    """Which nodes, so far from the centres of one column or row, lie in the rectangle: 1 or 0."""
    size = (lattice.columns, lattice.rows)[axis] + 1
    places = (np.arange(size) - lattice.rim + at) * lattice.step
    return ((places >= centres.low[axis]) & (places <= centres.high[axis])).astype(np.float64)
