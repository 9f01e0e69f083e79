"""Exact draws from integers: tables of any channel, and the elastic law on the wire."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from geoveil.arrays import ByParts, FloatArray, IntArray, frozen, positive
from geoveil.channel.certificate import check_claim, promising
from geoveil.channel.channel import Channel, PrivacyLoss, people_by_cell
from geoveil.channel.guarantee import GeoIndistinguishability, Guarantee
from geoveil.channel.kernel import LatticeKernel
from geoveil.channel.operator import DenseOperator
from geoveil.errors import InvalidInput, SolverFailed, TooLarge, Unsupported
from geoveil.mechanism import Elastic, Mechanism
from geoveil.randomness import Randomness
from geoveil.space import MATRIX_LIMIT, Grid, Space
from geoveil.space.steepness import Steepness, steepness

BITS = 62
BLEND = 2.0**-20
_CHUNK = 1 << 22

UnsignedArray = npt.NDArray[np.uint64]


class ExactTable(ByParts, DenseOperator, Channel):
    """A finite channel as it really runs: integer rows that each sum to 2⁶².

    Law: P(y|x) = integers[x, y] / 2⁶², exactly; nothing is rounded when a report is drawn. The rows
    are those of the given channel blended with 2⁻²⁰ of a uniform report, so that every integer is
    large and rounding stays strictly inside the claim: mixing in a constant row only lowers ratios.
    Guarantee: the channel's claim; ``certify`` recomputes it from the integers.
    Cost: one scan over the row per report, of the same length whatever the true cell; memory m × n.
    Reference: docs/decisions/0004-exact-tables.md.

    >>> import geoveil as gv
    >>> table = ExactTable(gv.RandomizedResponse(gv.Line(3), epsilon=1.0))
    >>> table.integers.sum(axis=1).tolist() == [2**62] * 3
    True
    """

    _parts = ("space", "integers")

    def __init__(self, channel: Channel) -> None:
        if channel.told_apart is None:
            raise Unsupported(
                "a table of cells cannot keep a promise between positions; sample_at draws in whole "
                "numbers already"
            )
        if channel.report_count > MATRIX_LIMIT or channel.space.size > MATRIX_LIMIT:
            raise TooLarge(
                f"an exact table ({channel.space.size} × {channel.report_count}) must have at most "
                f"{MATRIX_LIMIT} cells and reports"
            )
        self.channel = channel
        self.space = channel.space
        self.report_count = channel.report_count
        self.integers: UnsignedArray = frozen(integer_rows(channel.matrix()))
        DenseOperator.__init__(self, frozen(self.integers * 2.0**-BITS))
        self._cumulative = np.cumsum(self.integers, axis=1)

    def _promise(self) -> Guarantee | None:
        return self.channel.guarantee

    def compared_table(self) -> tuple[FloatArray, float]:
        """Its integers, without any tolerance."""
        return self.integers.astype(np.float64), 0.0

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        drawn = randomness.words(cells.size) >> np.uint64(64 - BITS)
        reports = np.empty(cells.size, dtype=np.int64)
        step = max(1, _CHUNK // self.report_count)
        for start in range(0, cells.size, step):
            part = slice(start, start + step)
            reports[part] = scan(self._cumulative[cells[part]], drawn[part])
        return reports

    def __repr__(self) -> str:
        return f"ExactTable({self.channel!r})"


def scan(cumulative: UnsignedArray, drawn: UnsignedArray) -> IntArray:
    """For each row, how many cumulative sums the drawn number has reached: always the whole row."""
    return (cumulative <= drawn[..., None]).sum(axis=-1)


def integer_rows(matrix: FloatArray) -> UnsignedArray:
    """Rows of integers with sum 2⁶², blended with a uniform row; what rounding leaves goes to the largest."""
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise InvalidInput("matrix must hold probabilities: finite and not negative")
    blended = (1 - BLEND) * matrix / matrix.sum(axis=1, keepdims=True) + BLEND / matrix.shape[1]
    integers = np.floor(blended * 2.0**BITS).astype(np.uint64)
    # may wrap: rows can be a little above as well
    missing = np.uint64(2**BITS) - integers.sum(axis=1)
    integers[np.arange(len(integers)), integers.argmax(axis=1)] += missing
    return integers


# --- The elastic mechanism as devices run it: whole numbers, exact draws, a certificate from both


KERNEL_TOP = 1 << 36
"""The kernel at distance 0, as devices round it."""
KERNEL_FLOOR = 1 << 16
"""No kernel value is smaller: far reports share a flat tail, and rounding stays below 1 in 2¹⁶."""
WEIGHTS_TOTAL = 1 << 27
"""The weights sum to at most this, so that every Σ kernel × weight fits 63 bits."""
DRAW_BYTES = 16
"""Random bytes that one report takes."""

_ROUNDING = 1e-12
_LOGARITHM = 4e-14


class IntegerElastic(Mechanism):
    """The elastic law with a kernel and weights of whole numbers: an exact rational table.

    Law: C[x, y] = k(x, y)·c(y)/S(x), S(x) = Σ_z k(x, z)·c(z), with k by offset of rows and columns. A
    report takes 128 random bits u and is the cell that t = ⌊u·S(x)/2¹²⁸⌋ falls into when the k·c of the
    row stand one after another: the probabilities are whole multiples of 2⁻¹²⁸, each within 2⁻⁸¹
    relative of the law.
    Guarantee: ε per km by the steepness of log k plus that of log S, rounded up; with ``epsilon_per_km=``
    what is stated, refused where the integers do not keep it.
    Cost: m steps a report whatever the cell; products O(m log m); the certificate O(m²) at most.
    Units: ε per km. Reference: PRIVIC §4; docs/decisions/0007-whole-numbers-on-the-wire.md.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
    >>> exact = IntegerElastic.of(gv.elastic(grid, epsilon_per_km=2.0, between="cells"))
    >>> exact.certified_epsilon_per_km <= 2.0, exact.draw(5, bytes(16))
    (True, 0)
    """

    name: ClassVar[str] = "integer-elastic"
    reference = "Biswas & Palamidessi, PRIVIC, §4"
    space: Grid
    guarantee: GeoIndistinguishability

    def __init__(
        self,
        space: Space,
        *,
        kernel: npt.ArrayLike,
        weights: npt.ArrayLike,
        epsilon_per_km: float | None = None,
    ) -> None:
        if not isinstance(space, Grid) or space.size > MATRIX_LIMIT:
            raise InvalidInput(f"space must be a grid of at most {MATRIX_LIMIT} cells")
        self.space = space
        self.report_count = space.size
        self.kernel = frozen(_whole("kernel", kernel, space.size, KERNEL_FLOOR, KERNEL_TOP))
        self.weights = frozen(_whole("weights", weights, space.size, 1, WEIGHTS_TOTAL))
        if int(self.weights.sum()) > WEIGHTS_TOTAL:
            raise InvalidInput(f"weights must sum to at most {WEIGHTS_TOTAL}")
        stated = self.certified_epsilon_per_km
        if epsilon_per_km is not None:
            stated = positive("epsilon_per_km", epsilon_per_km)
        self.guarantee = GeoIndistinguishability(stated)
        if self.certified_epsilon_per_km > stated:
            check_claim(self, self.guarantee)

    @classmethod
    def of(cls, mechanism: Elastic, *, epsilon_per_km: float | None = None) -> IntegerElastic:
        """The mechanism in whole numbers, with β lowered until the certified ε meets the promise."""
        if not isinstance(mechanism.space, Grid):
            raise InvalidInput("only a mechanism on a grid can be published in whole numbers")
        grid, promise = mechanism.space, mechanism.guarantee.epsilon_per_km
        if epsilon_per_km is not None:
            promise = positive("epsilon_per_km", epsilon_per_km)
        weights = 1 + np.floor(mechanism.weights * (WEIGHTS_TOTAL - grid.size)).astype(np.int64)
        beta = mechanism.beta_per_km
        for _ in range(60):
            real = KERNEL_TOP * np.exp(-beta * grid.distances_from_km(0))
            kernel = np.maximum(KERNEL_FLOOR, np.rint(real)).astype(np.int64)
            trial = cls(grid, kernel=kernel, weights=weights)
            # a little below, since another machine's logarithms may end in another digit
            if trial.certified_epsilon_per_km <= promise * (1 - _ROUNDING):
                return promising(trial, GeoIndistinguishability(promise))
            beta *= promise / trial.certified_epsilon_per_km * (1 - 1e-9)
        raise SolverFailed(
            f"whole numbers must meet a promise of {promise:.6g} per km; use larger cells"
        )

    def parameters(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel.tolist(),
            "weights": self.weights.tolist(),
            "epsilon_per_km": self.guarantee.epsilon_per_km,
        }

    # -- the whole numbers ---------------------------------------------------------------------

    @cached_property
    def _windows(self) -> IntArray:
        """k by cell and report, rows and columns apart: views into the table of all signed offsets."""
        table = self.kernel.reshape(self.space.shape)
        signed = table[np.ix_(*(np.abs(np.arange(1 - n, n)) for n in self.space.shape))]
        return np.lib.stride_tricks.sliding_window_view(signed, self.space.shape)[::-1, ::-1]

    def kernel_row(self, cell: int) -> IntArray:
        """k(cell, y) for every report y."""
        row, column = divmod(cell, self.space.columns)
        return self._windows[row, column].ravel()

    def whole_row(self, cell: int) -> UnsignedArray:
        """kernel × weight for every report: the row before it is divided by its sum."""
        return (self.kernel_row(cell) * self.weights).view(np.uint64)

    @cached_property
    def sums(self) -> UnsignedArray:
        """S(x) of every cell, exact."""
        weights = self.weights.reshape(self.space.shape)
        sums: IntArray = np.einsum("xyab,ab->xy", self._windows, weights)
        return frozen(sums.ravel().view(np.uint64))

    def draw(self, cell: int, random_bytes: bytes) -> int:
        """The report for 16 random bytes (big-endian): a scan of the whole row, whatever the cell."""
        if len(random_bytes) != DRAW_BYTES:
            raise InvalidInput(f"a draw must take exactly {DRAW_BYTES} random bytes")
        cumulative = np.cumsum(self.whole_row(cell))
        target = int.from_bytes(random_bytes, "big") * int(cumulative[-1]) >> 8 * DRAW_BYTES
        return int(scan(cumulative, np.array(target, dtype=np.uint64)))

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        words = randomness.words(2 * cells.size).reshape(2, -1)
        reports = np.empty(cells.size, dtype=np.int64)
        for cell, people in people_by_cell(cells):
            cumulative = np.cumsum(self.whole_row(cell))
            target = _scaled(words[0, people], words[1, people], cumulative[-1])
            reports[people] = np.searchsorted(cumulative, target, side="right")
        return reports

    # -- the certificate -----------------------------------------------------------------------

    @cached_property
    def _slopes(self) -> tuple[Steepness, Steepness]:
        """Of log k over offsets and of log S over cells.

        Two signed offsets lie at least as far apart as their absolute values, so one quadrant of k is enough.
        """
        sums = steepness(np.log(self.sums.astype(np.float64)), self.space)
        return steepness(np.log(self.kernel.astype(np.float64)), self.space), sums

    @property
    def beta_per_km(self) -> float:
        """How fast the kernel falls at most, rounded up: twice this is private whatever the weights."""
        return self._up(self._slopes[0].slope_per_km)

    @property
    def certified_epsilon_per_km(self) -> float:
        """A bound on the ε of the exact table, from its integers, rounded up."""
        kernel, sums = self._slopes
        return self._up(kernel.slope_per_km + min(sums.slope_per_km, kernel.slope_per_km))

    def _up(self, slope_per_km: float) -> float:
        if self.space.size == 1:
            return 0.0
        return slope_per_km * (1 + _ROUNDING) + _LOGARITHM / self.space.cell_km

    def closed_form_loss(self) -> PrivacyLoss:
        """The certificate, as every channel gives it."""
        how, pair = "the steepness of its integers", self._slopes[1].pair
        return PrivacyLoss(self.certified_epsilon_per_km, None, pair, False, how)

    # -- products ------------------------------------------------------------------------------

    @cached_property
    def _lattice(self) -> LatticeKernel:
        table = self.kernel.reshape(self.space.shape).astype(np.float64)
        return LatticeKernel(table / KERNEL_TOP)

    @cached_property
    def _scaled_weights(self) -> FloatArray:
        return self.weights.astype(np.float64) * KERNEL_TOP

    @cached_property
    def _inverse(self) -> FloatArray:
        return np.reciprocal(self.sums.astype(np.float64))

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._lattice.apply(theta * self._inverse) * self._scaled_weights

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        return self._lattice._push_noise(theta * self._inverse) * self._scaled_weights

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._lattice.apply(values * self._scaled_weights) * self._inverse

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        return self._lattice._pull_noise(values * self._scaled_weights) * self._inverse

    def _row(self, row: int) -> FloatArray:
        whole = self.whole_row(row)
        return whole.astype(np.float64) / float(whole.sum())

    def matrix(self) -> FloatArray:
        size = self.space.size
        whole = (self._windows.reshape(size, size) * self.weights).view(np.uint64)
        table: FloatArray = whole / self.sums.astype(np.float64)[:, None]
        return table

    def _column(self, column: int) -> FloatArray:
        return self.kernel_row(column) * float(self.weights[column]) * self._inverse


def _whole(name: str, values: npt.ArrayLike, size: int, least: int, most: int) -> IntArray:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0)  # rows of different lengths
    if array.dtype.kind not in "iu" or array.shape != (size,):
        raise InvalidInput(f"{name} must be {size} whole numbers, one per cell")
    if (array < least).any() or (array > most).any():
        raise InvalidInput(f"{name} must lie in {least} … {most}")
    return array.astype(np.int64)


def _scaled(high: UnsignedArray, low: UnsignedArray, total: np.uint64) -> UnsignedArray:
    """⌊(high·2⁶⁴ + low)·total/2¹²⁸⌋, exactly."""
    top, rest = _product(high, total)
    carried = rest + _product(low, total)[0]
    return top + (carried < rest)


def _product(a: UnsignedArray, b: np.uint64) -> tuple[UnsignedArray, UnsignedArray]:
    """High and low 64 bits of a·b, by halves of 32 bits."""
    half, mask = np.uint64(32), np.uint64(2**32 - 1)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    low = a0 * b0
    middle = a1 * b0 + (low >> half)  # below 2⁶⁴: (2³² − 1)² + 2³² − 1
    other = a0 * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (other >> half), (other << half) | (low & mask)
