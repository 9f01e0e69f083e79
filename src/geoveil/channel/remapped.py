"""A channel followed by a fixed map of its reports."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from geoveil.arrays import FloatArray, IntArray, frozen, indices, vector
from geoveil.channel.base import Channel
from geoveil.channel.loss import PrivacyLoss
from geoveil.errors import InvalidInput
from geoveil.randomness import Randomness


class Remapped(Channel):
    """Every report y of a channel is replaced by the cell ``map[y]``.

    Law: P(z|x) = Σ_{y: map[y] = z} C[x, y].
    Guarantee: unchanged, as it is post-processing; a collector can do it as well as a device.
    Cost: that of the channel.
    Reference: NOISE §6 (remapping).

    >>> import geoveil as gv
    >>> line = gv.LinearGeometric(gv.Line(4), epsilon_per_unit=1.0)
    >>> Remapped(line, [0, 0, 3, 3]).row(0).round(1).tolist()
    [0.9, 0.0, 0.0, 0.1]
    """

    def __init__(self, channel: Channel, map: npt.ArrayLike) -> None:
        self.channel = channel
        self.made_of = (channel,)
        self.space = channel.space
        self.report_count = channel.space.size
        self.guarantee = channel.guarantee
        self.map: IntArray = frozen(indices("map", map, self.space.size).copy())
        if self.map.shape != (channel.report_count,):
            raise InvalidInput(
                f"map (shape {self.map.shape}) must have {channel.report_count} entries, one per report"
            )
        self._gather = sparse.csr_array(
            (np.ones(self.map.size), (self.map, np.arange(self.map.size))),
            shape=(self.report_count, self.map.size),
        )

    def closed_form_loss(self) -> PrivacyLoss | None:
        """That of the channel, now an upper bound: putting reports together can only hide."""
        loss = self.channel.closed_form_loss()
        if loss is None:
            return None
        return PrivacyLoss(
            loss.epsilon_per_km, loss.epsilon, None, False, f"{loss.how}, before a map"
        )

    def push(self, theta: npt.ArrayLike) -> FloatArray:
        return self._gathered(self.channel.push(theta))

    def pull(self, values: npt.ArrayLike) -> FloatArray:
        return self.channel.pull(vector("values", values, self.report_count)[..., self.map])

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._gathered(self.channel._push(theta))

    def _gathered(self, law: FloatArray) -> FloatArray:
        flat = law.reshape(-1, law.shape[-1])
        gathered: FloatArray = (self._gather @ flat.T).T.reshape(*law.shape[:-1], self.report_count)
        return gathered

    def _pull(self, values: FloatArray) -> FloatArray:
        return self.channel._pull(values[..., self.map])

    def _row(self, cell: int) -> FloatArray:
        row = self.channel._row(cell)
        return np.bincount(self.map, row, minlength=self.report_count).astype(np.float64)

    def _column(self, report: int) -> FloatArray:
        column = np.zeros(self.space.size)
        for y in np.flatnonzero(self.map == report):
            column += self.channel._column(int(y))
        return column

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        return self.map[self.channel._sample(cells, randomness)]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Remapped)
            and self.channel == other.channel
            and np.array_equal(self.map, other.map)
        )

    def __hash__(self) -> int:
        return hash((Remapped, self.channel))

    def __repr__(self) -> str:
        return f"Remapped({self.channel!r}, {np.unique(self.map).size} cells left)"
