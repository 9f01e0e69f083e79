"""The elastic family: Blahut–Arimoto's mechanisms and all that share their form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from geoveil.arrays import ArrayLike, FloatArray, IntArray, frozen, positive, uniform, vector
from geoveil.channel.backend import Backend, Selection
from geoveil.channel.certificate import check_claim
from geoveil.channel.channel import PrivacyLoss
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.channel.kernel import Kernel, kernel_on, steepness
from geoveil.channel.operator import MovedOperator, RelativeError
from geoveil.errors import InvalidInput, TooLarge
from geoveil.mechanism.mechanism import Mechanism, Promise
from geoveil.mechanism.noise import lattice_steps
from geoveil.randomness import Randomness
from geoveil.root import safe_root
from geoveil.space import Grid, Space
from geoveil.space.space import checked_space

_REMOTE = 12.0
"""Rows whose log Z lies this far below the largest go without the FFT, term by term."""
_REMOTE_TERMS = 1 << 28
_CACHED_TERMS = 1 << 23
_ROW_SAMPLING = 1 << 27


def exponential_kernel(space: Space, beta_per_km: float) -> Kernel:
    """e^{−β·d} on the space."""
    return kernel_on(space, lambda distance: np.exp(-beta_per_km * distance))


class Elastic(Mechanism):
    """Report y with probability ∝ c(y)·e^{−β·d(x, y)}: crowded reports attract, far ones fade.

    Law: C[x, y] = c(y)e^{−βd(x,y)}/Z(x), Z(x) = Σ_z c(z)e^{−βd(x,z)}.
    Guarantee: 2β per km for any weights c ≥ 0 by the triangle inequality alone; ``certify`` gives the
    exact ``β + max |log Z(x) − log Z(x′)|/d(x, x′)``, often well below. With ``epsilon_per_km=`` and no β,
    the largest β is found whose *certified* ε meets the promise. Beside a β, ``epsilon_per_km=`` is
    checked, and refused where it is smaller than the certified one.
    Cost: O(m log m) per product on a grid or line. Units: β and ε per km.
    Reference: PRIVIC §4 (the normalisation of PRIVIC Alg. 2 corrected: docs/privic.md).

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
    >>> mechanism = gv.Elastic(grid, beta_per_km=1.0)
    >>> mechanism.guarantee
    GeoIndistinguishability(epsilon_per_km=2.0)
    """

    name = "elastic"
    reference = "Biswas & Palamidessi, PRIVIC, §4"
    guarantee: GeoIndistinguishability

    def __init__(
        self,
        space: Space,
        *,
        beta_per_km: float | None = None,
        weights: ArrayLike | None = None,
        epsilon_per_km: float | None = None,
        level: float | None = None,
        radius_km: float | None = None,
        mean_distance_km: float | None = None,
    ) -> None:
        self.space = checked_space(space)
        self.report_count = space.size
        self.weights = frozen(_normalised(weights, space.size))
        if beta_per_km is not None and not (level is radius_km is mean_distance_km is None):
            raise InvalidInput(
                "beta_per_km must stand alone or beside an epsilon_per_km that it keeps; "
                "leave out level, radius_km and mean_distance_km, or let them find β"
            )
        solved = beta_per_km is None
        if solved:
            promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)
            beta_per_km = promise.solve(
                lambda beta: Elastic(space, beta_per_km=beta, weights=self.weights), space
            )
            if mean_distance_km is None:  # what was found is ε, as promised
                epsilon_per_km = beta_per_km
                beta_per_km = beta_for_promise(space, self.weights, epsilon_per_km)
        self.beta_per_km = positive("beta_per_km", beta_per_km)
        stated = 2 * self.beta_per_km if epsilon_per_km is None else epsilon_per_km
        self._kernel = self._exponential_kernel()
        self.log_normaliser = frozen(self._log_normaliser())
        self.guarantee = GeoIndistinguishability(positive("epsilon_per_km", stated))
        if not solved and stated < 2 * self.beta_per_km:
            check_claim(self, self.guarantee)

    def _exponential_kernel(self) -> Kernel:
        """e^{−β·d}; a design that has it already hands it over here."""
        return exponential_kernel(self.space, self.beta_per_km)

    def parameters(self) -> dict[str, Any]:
        return {
            "beta_per_km": self.beta_per_km,
            "epsilon_per_km": self.guarantee.epsilon_per_km,
            "weights": self.weights.tolist(),
        }

    # -- normalisation -------------------------------------------------------------------------

    def _log_normaliser(self) -> FloatArray:
        """log Z of every cell: by the kernel where that is accurate, term by term elsewhere."""
        sums = self._kernel.apply_exactly(self.weights, budget=_REMOTE_TERMS)
        if np.isnan(sums).any():
            raise _vanishing(int(np.isnan(sums).sum()))
        result = np.log(sums, out=np.full(sums.size, -np.inf), where=sums > 0)
        tiny, support = np.flatnonzero(sums < 1e-290), np.flatnonzero(self.weights)
        step = max(1, _CACHED_TERMS // support.size)
        for start in range(0, tiny.size, step):
            part = tiny[start : start + step, None]
            terms = -self.beta_per_km * self.space.distance_km(part, support)
            result[part[:, 0]] = scipy.special.logsumexp(self._log_weights[support] + terms, axis=1)
        return result

    def closed_form_loss(self) -> PrivacyLoss:
        """The certified ε, found once."""
        return self._loss

    @cached_property
    def _loss(self) -> PrivacyLoss:
        """``β + max |log Z(x) − log Z(x′)|/d(x, x′)``, rounded up: exact where every cell has weight.

        Where some cells have none it is an upper bound; it is never above 2β.
        """
        steep = steepness(self.log_normaliser, self.space)
        # log Z is right to 1e-10, and a slope divides two such errors by a distance.
        slack = 4 * RelativeError / self.space.least_distance_km
        slope = self.beta_per_km + steep.slope_per_km * (1 + 1e-12) + slack
        loss = min(slope, 2 * self.beta_per_km) if self.space.size > 1 else 0.0
        exact = steep.exact and bool((self.weights > 0).all())
        return PrivacyLoss(loss, None, steep.pair, exact, "the closed form of the elastic family")

    @cached_property
    def _log_weights(self) -> FloatArray:
        return np.log(self.weights, out=np.full(self.weights.size, -np.inf), where=self.weights > 0)

    @cached_property
    def _remote(self) -> IntArray:
        """Cells far from all weight: dividing by their tiny Z would drown the rest in FFT noise."""
        remote = np.flatnonzero(self.log_normaliser < self.log_normaliser.max() - _REMOTE)
        if remote.size * self.space.size > _REMOTE_TERMS:
            raise _vanishing(remote.size)
        return remote

    @cached_property
    def _inverse(self) -> FloatArray:
        """1/Z, zero at the remote cells."""
        exponent = -self.log_normaliser
        exponent[self._remote] = -np.inf
        return np.exp(exponent)

    @cached_property
    def _remote_rows(self) -> FloatArray:
        return np.array([self._row(int(x)) for x in self._remote]).reshape(-1, self.space.size)

    @cached_property
    def _far(self) -> Selection:
        return Selection(self._remote, self.space.size)

    def _remote_blocks(self) -> Iterator[tuple[Selection, FloatArray]]:
        """Remote cells and their rows: all at once where they fit, else cell by cell."""
        if self._remote.size * self.space.size <= _CACHED_TERMS:
            yield self._far, self._remote_rows
            return
        for cell in self._remote:
            yield Selection(np.array([cell]), self.space.size), self._row(int(cell))[None]

    # -- products ------------------------------------------------------------------------------

    _made_of = ("_kernel", "_inverse", "weights", "_far", "_remote_rows")

    def _push(self, theta: FloatArray) -> FloatArray:
        result = self._kernel._push(theta * self._inverse) * self.weights
        for far, rows in self._remote_blocks():
            result += far.take(theta) @ rows
        return result

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        return self._kernel._push_noise(theta * self._inverse) * self.weights

    def _pull(self, values: FloatArray) -> FloatArray:
        result = self._kernel._push(values * self.weights) * self._inverse
        if self._remote.size:  # where the inverse is zero
            remote = [values @ rows.T for _, rows in self._remote_blocks()]
            result += self._far.put(self._at.joined(remote))
        return result

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        return self._kernel._pull_noise(values * self.weights) * self._inverse

    def _on(self, backend: Backend) -> MovedOperator:
        if self._remote.size * self.space.size > _CACHED_TERMS:
            raise TooLarge(
                f"weights that vanish around {self._remote.size} cells must cover a smaller grid to be "
                "multiplied on another device; use arrays of NumPy"
            )
        return super()._on(backend)

    def _row(self, row: int) -> FloatArray:
        exponent = self._log_weights - self.beta_per_km * self.space.distances_from_km(row)
        return np.exp(exponent - self.log_normaliser[row])

    def matrix(self) -> FloatArray:
        self.space.check_matrix("the matrix of the channel")
        matrix = self._kernel.rows(np.arange(self.space.size))
        matrix *= self._inverse[:, None]
        matrix *= self.weights
        for far, rows in self._remote_blocks():
            matrix[far.places] = rows
        return matrix

    def _column(self, column: int) -> FloatArray:
        exponent = -self.beta_per_km * self.space.distances_from_km(column) - self.log_normaliser
        return np.exp(self._log_weights[column] + exponent)

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        weighted = kernel_on(self.space, lambda d: np.exp(-self.beta_per_km * d) * function(d))
        means = weighted._push(self.weights) * self._inverse
        for cell in self._remote:
            means[cell] = self._row(int(cell)) @ function(self.space.distances_from_km(int(cell)))
        return means

    def row_entropies_nats(self) -> FloatArray:
        # −log C[x, y] = log Z(x) + β·d(x, y) − log c(y), averaged over y; reports without weight never occur.
        logs = np.where(self.weights > 0, self._log_weights, 0.0)
        mean_distance = self.mean_of_distance(lambda distance: distance)
        return self.log_normaliser + self.beta_per_km * mean_distance - self._pull(logs)

    # -- what a collector should know ------------------------------------------------------------

    @cached_property
    def leverage(self) -> float:
        """The leverage of any channel (``Channel.leverage``), here from the weights alone."""
        stays = np.exp(-self.log_normaliser) * self.weights
        return float(1 / stays.min()) if stays.min() > 0 else math.inf

    @property
    def cells_with_weight(self) -> int:
        """How many cells are still reported: c above 1e-6 (on large spaces a thousandth of its mean)."""
        return int((self.weights > min(1e-6, 1e-3 / self.space.size)).sum())

    @cached_property
    def rank(self) -> int:
        """The rank of the channel; below the number of cells, the truth cannot be recovered.

        C = Z⁻¹·K·c with K positive definite, so the rank is the number of cells with any weight;
        weights below 1e-15 of the largest count as none.
        """
        return int((self.weights > 1e-15 * self.weights.max()).sum())

    @property
    def warning(self) -> str | None:
        """What a user should know before collecting with this mechanism, in words."""
        if self.rank == self.space.size and self.cells_with_weight >= self.space.size / 2:
            return None
        return (
            f"only {self.cells_with_weight} of {self.space.size} cells are still reported: the weights were "
            "emptied so far that the distribution can hardly be recovered; use fewer steps of "
            "Blahut–Arimoto, a floor, or camouflage below 1"
        )

    # -- sampling ------------------------------------------------------------------------------

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        distinct = np.unique(cells).size
        if not isinstance(self.space, Grid) or distinct * self.space.size <= _ROW_SAMPLING:
            return super()._sample(cells, randomness)
        return self._sample_by_rejection(cells, randomness)

    def _sample_by_rejection(self, cells: IntArray, randomness: Randomness) -> IntArray:
        """Steps with P ∝ e^{−βd}, accepted with probability c(y)/max c inside the grid, never outside."""
        assert isinstance(self.space, Grid)
        rows, columns = self.space.shape
        chance = self.weights / self.weights.max()
        reports = np.empty(cells.size, dtype=np.int64)
        missing = np.arange(cells.size)
        for _ in range(200):
            down, across = lattice_steps(
                self.beta_per_km * self.space.cell_km, missing.size, randomness
            )
            row, column = cells[missing] // columns + down, cells[missing] % columns + across
            inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            landed = np.where(inside, row * columns + column, 0)
            accepted = randomness.chance(np.where(inside, chance[landed], 0.0), missing.size)
            reports[missing[accepted]] = landed[accepted]
            missing = missing[~accepted]
            if not missing.size:
                return reports
        reports[missing] = super()._sample(cells[missing], randomness)
        return reports


class Exponential(Elastic):
    """The exponential mechanism: report z with probability ∝ e^{−(ε/2)·d(x, z)} over the space.

    Law: the elastic one with equal weights and β = ε/2.
    Guarantee: ε-geo-indistinguishability (the certified ε is usually smaller).
    Cost: O(m log m) per product. Units: ε per km.
    Reference: McSherry & Talwar 2007; FREEWILL §8.

    >>> import geoveil as gv
    >>> gv.Exponential(gv.Line(5), epsilon_per_km=1.0).row(0).argmax().item()
    0
    """

    name = "exponential"
    reference = "McSherry & Talwar, FOCS 2007"

    def __init__(
        self,
        space: Space,
        *,
        epsilon_per_km: float | None = None,
        level: float | None = None,
        radius_km: float | None = None,
        mean_distance_km: float | None = None,
    ) -> None:
        promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)
        epsilon = promise.solve(lambda value: Exponential(space, epsilon_per_km=value), space)
        super().__init__(space, beta_per_km=epsilon / 2)

    def parameters(self) -> dict[str, Any]:
        return {"epsilon_per_km": 2 * self.beta_per_km}


def beta_for_promise(space: Space, weights: FloatArray, epsilon_per_km: float) -> float:
    """The largest β, to 1e-6, whose certified ε is at most the promise.

    The certified ε lies in [β, 2β] and grows with β, so the answer lies in [ε/2, ε].
    """
    nearest = safe_root(
        lambda beta: Elastic(space, beta_per_km=beta, weights=weights),
        lambda mechanism: mechanism.closed_form_loss().epsilon_per_km / epsilon_per_km - 1,
        [epsilon_per_km, epsilon_per_km / 2 * (1 - 1e-9)],
        within=(epsilon_per_km, epsilon_per_km / 4),
        tolerance=1e-6,
        step=1e-6,
    )
    return nearest.at


def _vanishing(cells: int) -> TooLarge:
    return TooLarge(
        f"weights that vanish around {cells} cells must cover a smaller grid; "
        "mix them with a floor, or with equalising weights (camouflage below 1)"
    )


def _normalised(weights: ArrayLike | None, size: int) -> FloatArray:
    if weights is None:
        return uniform(size)
    array = vector("weights", weights, size)
    if array.ndim != 1 or (array < 0).any() or not array.any():
        raise InvalidInput("weights must be one number per cell, none negative, not all 0")
    if array.max() <= 1 and abs(array.sum() - 1) < 1e-12:
        return array.copy()
    scaled: FloatArray = array / array.max()
    return scaled / scaled.sum()
