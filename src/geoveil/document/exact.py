"""Exact draws from integers: a table of any channel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geoveil.arrays import ByParts, FloatArray, IntArray, frozen
from geoveil.channel.channel import Channel, checked_channel
from geoveil.channel.guarantee import Guarantee
from geoveil.channel.operator import DenseOperator
from geoveil.errors import InvalidInput, TooLarge, Unsupported
from geoveil.randomness import Randomness
from geoveil.space import MATRIX_LIMIT

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
        if checked_channel("channel", channel).told_apart is None:
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

    @property
    def report_steps(self) -> IntArray | None:
        return self.channel.report_steps

    def compared_table(self) -> tuple[FloatArray, float]:
        """Its integers, without any tolerance."""
        return self.integers.astype(np.float64), 0.0

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        numbers = randomness.words(cells.size) >> np.uint64(64 - BITS)
        reports = np.empty(cells.size, dtype=np.int64)
        step = max(1, _CHUNK // self.report_count)
        for start in range(0, cells.size, step):
            part = slice(start, start + step)
            reports[part] = scan(self._cumulative[cells[part]], numbers[part])
        return reports

    def __repr__(self) -> str:
        return f"ExactTable({self.channel!r})"


def scan(cumulative: UnsignedArray, numbers: UnsignedArray) -> IntArray:
    """For each row, how many cumulative sums the drawn number has reached: always the whole row."""
    return (cumulative <= numbers[..., None]).sum(axis=-1)


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
