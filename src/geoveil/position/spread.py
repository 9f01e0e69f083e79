"""People spread evenly in their cells: the kernel from every centre to some positions in every cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.backend import Array, Backend, Selection, Torus
from geoveil.channel.channel import Places, positions_on_a_side
from geoveil.channel.kernel import fft_workers
from geoveil.channel.operator import DenseOperator, MovedOperator, Operator
from geoveil.errors import InvalidInput
from geoveil.position.centres import Centres
from geoveil.position.cone import RoundedCone
from geoveil.space import Points, Space

_FADED = 40.0
"""ψ from where on f = e^{−ψ} counts as nothing beside the floor of the kernel."""
_NOISE = 1e-15
"""What an FFT product may be off by, in units of the norms of its factors."""
_TOGETHER = 1 << 13
"""Pairs of places that the kernel is computed for at once."""
_LOOKED_UP = 1 << 17
"""Pairs of places that it is looked up for at once."""


class Layer(NamedTuple):
    """Positions at one offset from the centres of their cells, in cells; ``share`` (cells,) of each cell."""

    east: float
    north: float
    share: FloatArray


def layers_of(centres: Centres, across: int) -> list[Layer]:
    """``across``² positions in every cell of a grid, each moved into the rectangle of ``centres``.

    Cells at an edge of the rectangle have several positions moved to the same place; rows and columns
    beyond it have no cells.
    """
    lattice = centres.lattice
    if lattice is None:
        raise InvalidInput("only the cells of a grid can be spread over")
    inside, shares = positions_on_a_side(across)
    axes, sides = [], (lattice.within.columns, lattice.within.rows)
    for cells, low, high in zip(sides, centres.low, centres.high, strict=True):
        middle = np.arange(cells)
        moved = np.clip(middle[:, None] + inside, low / lattice.step, high / lattice.step)
        offsets = np.round(moved - middle[:, None], 9)  # (cells, across)
        lived_in = (middle * lattice.step >= low) & (middle * lattice.step <= high)
        axes.append({at: (offsets == at) @ shares for at in np.unique(offsets[lived_in]).tolist()})
    return [
        Layer(east, north, lattice.within.gather(np.outer(rows, columns)))
        for north, rows in axes[1].items()
        for east, columns in axes[0].items()
    ]


def kernel_between(cone: RoundedCone, places: FloatArray, others: FloatArray) -> FloatArray:
    """The kernel between places (…, 2) that broadcast."""
    away = places - others
    return cone.values(np.hypot(away[..., 0], away[..., 1]))


def kernel_by_rows(
    cone: RoundedCone, places: FloatArray, others: FloatArray
) -> Iterator[tuple[slice, FloatArray]]:
    """(rows, others): the kernel from some of the places to all others, part by part; the same numbers as
    one by one."""
    step = max(1, _TOGETHER // max(len(others), 1))
    for start in range(0, len(places), step):
        part = slice(start, start + step)
        yield part, kernel_between(cone, places[part, None], others)


def means_by_offset(
    centres: Centres,
    cone: RoundedCone,
    weights: IntArray,
    away_km: FloatArray,
    reported: IntArray,
    function: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """(cells,): Σ_y P(y|x)·f(|x − z_y|) from a position x in every cell of a grid, that far from its middle,
    where a report y stands for the place ``reported[y]``.

    The kernel and f are computed once for every offset between two cells. Where every report stands for its
    own place, sums over them are products of matrices; else they are looked up for each pair.
    """
    lattice = centres.lattice
    if lattice is None:
        raise InvalidInput("only the cells of a grid are all alike")
    middle = centres.points_km[: lattice.inner]
    moved = (np.clip(middle + away_km, *centres.rectangle_km) - middle).round(12)
    ways, which = np.unique(moved, axis=0, return_inverse=True)  # one, but for cells at an edge
    near = cone.values(lattice.lengths_km(ways, centres.pitch_km))
    far = function(lattice.lengths_km(away_km[None], centres.pitch_km)[0])
    if np.array_equal(reported, np.arange(centres.size)):
        sums = lattice.sums(np.concatenate((near * far, near)), weights)
        every = sums[: len(ways)] / sums[len(ways) :]
        return np.asarray(every[which.ravel(), np.arange(lattice.inner)])
    number = lattice.cells @ (2 * lattice.columns - 1, 1)
    first = number[: lattice.inner, None] + far.size // 2
    means, step = np.empty(lattice.inner), max(1, _LOOKED_UP // centres.size)
    for start in range(0, lattice.inner, step):
        part = slice(start, start + step)
        offset = first[part] - number
        rows = near.take(offset + which.ravel()[part, None] * far.size)
        losses = far.take(first[part] - number[reported])
        means[part] = (rows * losses) @ weights / (rows @ weights)
    return means


class SpreadKernel(Operator):
    """K[y, (l, x)] = k(|x + o_l − y|): rows are centres, columns the positions of every layer in every cell.

    Above 4,096 cells K = f + τ: the floor τ is added to products by itself, and FFTs need no room for
    f = e^{−ψ} beyond ψ = 40, where it is less than 10⁻¹¹ of the floor.
    Cost: one FFT for each layer and one more, for a product.
    """

    def __init__(self, centres: Centres, cone: RoundedCone, layers: list[Layer]) -> None:
        if centres.lattice is None:
            raise InvalidInput("only the cells of a grid can be spread over")
        self.centres, self.cone, self.layers = centres, cone, layers
        self.lattice = centres.lattice
        self.cell_km = self.lattice.step * centres.pitch_km
        self.cells = self.lattice.inner
        self._sides = self.lattice.rows, self.lattice.columns
        self._shape, self._apart = self.lattice.shape, 0.0
        if self.lattice.many and cone.floor:
            self._shape = self.lattice.shape_for(cone.reach_km(_FADED) / self.cell_km)
            self._apart = cone.floor

    @property
    def shape(self) -> tuple[int, int]:
        return self.centres.size, len(self.layers) * self.cells

    @cached_property
    def _spectra(self) -> npt.NDArray[np.complex128]:
        """(layers, …): of the kernel at the offsets of each layer."""
        return np.stack([scipy.fft.rfft2(self._values(layer)) for layer in self.layers])

    def _values(self, layer: Layer) -> FloatArray:
        """The kernel without what is added by itself."""
        east, north = self.lattice.offsets(layer.east, layer.north, self._shape)
        away = self.cell_km * np.hypot(east, north)
        return np.exp(-self.cone.decay(away)) if self._apart else self.cone.values(away)

    @cached_property
    def fft_noise(self) -> float:  # type: ignore[override]
        return _NOISE * float(np.linalg.norm(self._values(self.layers[0])))

    # Axis by axis, so that rows known to be zero, or not wanted back, are never transformed; and layer by
    # layer, in place, since at a million cells the passes over memory take as long as the transforms.

    def _push(self, theta: FloatArray) -> FloatArray:
        """(…, centres) → (…, layers · cells)."""
        lattice, (height, width) = self.lattice, self._shape
        workers = fft_workers(height * width)
        spectrum = scipy.fft.rfft(lattice.spread(theta), width, axis=-1, workers=workers)
        spectrum = scipy.fft.fft(spectrum, height, axis=-2, overwrite_x=True, workers=workers)
        laws = np.empty((*theta.shape[:-1], len(self.layers), self.cells))
        rows, columns = (slice(lattice.rim, size - lattice.rim) for size in self._sides)
        held = np.empty_like(spectrum)
        for number, own in enumerate(self._spectra):
            np.multiply(spectrum, own, out=held)
            part = scipy.fft.ifft(held, axis=-2, overwrite_x=True, workers=workers)[..., rows, :]
            law = scipy.fft.irfft(part, width, axis=-1, workers=workers)
            laws[..., number, :] = lattice.within.gather(law[..., columns])
        if self._apart:
            laws += self._apart * theta.sum(axis=-1)[..., None, None]
        return laws.reshape(*theta.shape[:-1], -1)

    def _pull(self, values: FloatArray) -> FloatArray:
        """(…, layers · cells) → (…, centres)."""
        lattice, (height, width) = self.lattice, self._shape
        workers = fft_workers(height * width)
        total = np.zeros((*values.shape[:-1], height, width // 2 + 1), dtype=np.complex128)
        layered = values.reshape(*values.shape[:-1], len(self.layers), self.cells)
        for number, own in enumerate(self._spectra):
            inner = lattice.within.spread(layered[..., number, :])
            part = scipy.fft.rfft(inner, width, axis=-1, workers=workers)
            np.conjugate(part, out=part)
            # the conjugate of the transform of the values
            part = scipy.fft.ifft(
                part, height, axis=-2, norm="forward", overwrite_x=True, workers=workers
            )
            part *= own
            total += part
        np.conjugate(total, out=total)
        total = scipy.fft.ifft(total, axis=-2, overwrite_x=True, workers=workers)
        # Values began where the inner cells do, so that the rim before them has come out at the far end.
        rows, columns = (np.arange(size) - lattice.rim for size in self._sides)
        total = total[..., rows, :] if lattice.rim else total[..., : lattice.rows, :]
        product = scipy.fft.irfft(total, width, axis=-1, workers=workers)
        result = lattice.gather(product[..., columns] if lattice.rim else product)
        if self._apart:
            result = result + self._apart * values.sum(axis=-1, keepdims=True)
        return result

    def _on(self, backend: Backend) -> MovedOperator:
        xp, lattice, torus = backend.xp, self.lattice, Torus(backend, self._shape)
        spectra = [torus.held(own) for own in self._spectra]
        turned = [xp.conj(own) for own in spectra]
        there = Selection(lattice.places, lattice.rows * lattice.columns).on(backend)
        inner = lattice.within.rows, lattice.within.columns
        rows, columns = (slice(lattice.rim, size - lattice.rim) for size in self._sides)
        # Values begin where the inner cells do, so that the rim before them comes out at the far end.
        down, right = (
            backend.put_places((np.arange(size) - lattice.rim) % padded)
            for size, padded in zip(self._sides, self._shape, strict=True)
        )
        within = None
        if not lattice.within.plain:  # cells that do not exist
            within = Selection(lattice.within.places, inner[0] * inner[1]).on(backend)

        def push(theta: Array) -> Array:
            box = (*theta.shape[:-1], lattice.rows, lattice.columns)
            spectrum = torus.transformed(xp.reshape(there.put(theta), box))
            laws = [torus.values(spectrum * own)[..., rows, columns] for own in spectra]
            layers = (*theta.shape[:-1], len(spectra), inner[0] * inner[1])
            stacked = xp.reshape(xp.stack(laws, axis=-3), layers)
            if within is not None:
                stacked = within.take(stacked)
            flat = xp.reshape(stacked, (*theta.shape[:-1], self.shape[1]))
            return flat + self._apart * xp.sum(theta, axis=-1, keepdims=True)

        def pull(values: Array) -> Array:
            layered = xp.reshape(values, (*values.shape[:-1], len(spectra), self.cells))
            layered = layered if within is None else within.put(layered)
            layered = xp.reshape(layered, (*values.shape[:-1], len(spectra), *inner))
            total = sum(
                torus.transformed(layered[..., number, :, :]) * own
                for number, own in enumerate(turned)
            )
            whole = xp.take(xp.take(torus.values(total), down, axis=-2), right, axis=-1)
            flat = xp.reshape(whole, (*values.shape[:-1], lattice.rows * lattice.columns))
            return there.take(flat) + self._apart * xp.sum(values, axis=-1, keepdims=True)

        return MovedOperator(self, backend, push, pull)

    def positions_km(self, layer: Layer, cells: IntArray | slice = slice(None)) -> FloatArray:
        """(cells, 2): where the positions of a layer are."""
        return self.centres.points_km[: self.cells][cells] + self.cell_km * np.array(
            (layer.east, layer.north)
        )

    def _row(self, row: int) -> FloatArray:
        centre = self.centres.points_km[row]
        rows = [kernel_between(self.cone, self.positions_km(at), centre) for at in self.layers]
        return np.concatenate(rows)

    def _column(self, column: int) -> FloatArray:
        layer, cell = divmod(column, self.cells)
        at = self.positions_km(self.layers[layer], slice(cell, cell + 1))
        return kernel_between(self.cone, self.centres.points_km, at)

    def columns(self, chosen: IntArray) -> FloatArray:
        layer, cell = np.divmod(chosen, self.cells)
        inside = np.array([(at.east, at.north) for at in self.layers])[layer]
        centres, matrix = self.centres.points_km, np.empty((self.centres.size, chosen.size))
        places = centres[cell] + self.cell_km * inside
        for part, near in kernel_by_rows(self.cone, centres, places):
            matrix[part] = near
        return matrix


class ListedKernel(DenseOperator):
    """The spread kernel of a list of places, a matrix; positions are moved into the rectangle of centres."""

    def __init__(
        self, centres: Centres, cone: RoundedCone, standing: FloatArray, cell_km: float
    ) -> None:
        self.centres, self.cells, self._cell_km = centres, centres.size, cell_km
        self.cone = cone
        share = np.full(centres.size, 1.0 / len(standing))
        self.layers = [Layer(float(east), float(north), share) for east, north in standing]
        places = np.concatenate([self.positions_km(layer) for layer in self.layers])
        super().__init__(kernel_between(cone, centres.points_km[:, None], places))

    def positions_km(self, layer: Layer) -> FloatArray:
        """(cells, 2): where the positions of a layer are."""
        away = self._cell_km * np.array((layer.east, layer.north))
        return np.clip(self.centres.points_km + away, *self.centres.rectangle_km)


def spread_kernel(
    space: Space, centres: Centres, cone: RoundedCone, across: int
) -> SpreadKernel | ListedKernel:
    """People of every cell at ``across``² positions in a square, or where those of places stand."""
    if isinstance(space, Points):
        return ListedKernel(centres, cone, space.standing, space.cell_km)
    return SpreadKernel(centres, cone, layers_of(centres, across))


class PlacesInCells(Places):
    """P(report | place), rows the places in the cells and columns the reports: where in its cell
    somebody stands is left open.

    Cost: that of a product of the mechanism, whose rows are means of these.
    """

    _made_of = ("_spread", "_weights", "_total", "_existing")

    def __init__(
        self, spread: SpreadKernel | ListedKernel, weights: FloatArray, alike: str | None
    ) -> None:
        self._spread, self._weights, self.alike = spread, weights, alike
        places: IntArray = np.flatnonzero(self._shares)  # at an edge, several are moved to one
        everything = places.size == spread.shape[1]
        self._existing = None if everything else Selection(places, spread.shape[1])
        """Which places exist; ``None`` for all."""
        self._total = self._at_existing(spread.push(weights))  # Z

    # Asked for once, and large: made when they are asked for, not kept for every round of a campaign.

    @property
    def _shares(self) -> FloatArray:
        return np.concatenate([layer.share for layer in self._spread.layers])

    @property
    def cell(self) -> IntArray:  # type: ignore[override]
        return self._numbers % self._spread.cells

    @property
    def share(self) -> FloatArray:  # type: ignore[override]
        return self._at_existing(self._shares)

    @property
    def offset(self) -> FloatArray:  # type: ignore[override]
        offsets = np.array([(at.east, at.north) for at in self._spread.layers])
        return offsets[self._numbers // self._spread.cells]

    @property
    def _numbers(self) -> IntArray:
        """(places,): of the columns of the kernel."""
        return np.arange(self._spread.shape[1]) if self._existing is None else self._existing.places

    def _at_existing(self, values: FloatArray) -> FloatArray:
        """(…, columns of the kernel) → (…, places)."""
        return values if self._existing is None else self._existing.take(values)

    @property
    def shape(self) -> tuple[int, int]:
        return self._total.size, self._weights.size

    def _push(self, theta: FloatArray) -> FloatArray:
        scaled = theta / self._total
        everywhere = scaled if self._existing is None else self._existing.put(scaled)
        return self._spread._pull(everywhere) * self._weights

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        return self._spread._pull_noise(theta / self._total) * self._weights

    def _pull(self, values: FloatArray) -> FloatArray:
        laws = self._at_existing(self._spread._push(values * self._weights))
        laws /= self._total
        return laws

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        return self._spread._push_noise(values * self._weights) / self._total

    def _row(self, row: int) -> FloatArray:
        column = row if self._existing is None else int(self._existing.places[row])
        return self._spread._column(column) * self._weights / self._total[row]

    def _column(self, column: int) -> FloatArray:
        near = self._at_existing(self._spread._row(column))
        return near * float(self._weights[column]) / self._total

    def columns(self, chosen: IntArray) -> FloatArray:
        layers = [self._spread.positions_km(layer) for layer in self._spread.layers]
        places, matrix = (
            np.concatenate(layers)[self._numbers],
            np.empty((self.shape[0], chosen.size)),
        )
        centres = self._spread.centres.points_km[chosen]
        for part, near in kernel_by_rows(self._spread.cone, places, centres):
            matrix[part] = near * self._weights[chosen] / self._total[part, None]
        return matrix
