"""Channels whose products go through an FFT: fast, and exact again where it counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, vector
from geoveil.channel.base import Channel
from geoveil.channel.kernel import RelativeError

_BUDGET = 1 << 26


class FastChannel(Channel):
    """A channel with O(m log m) products and exact single rows and columns.

    ``push`` and ``pull`` of vectors without negative entries are right to 1e-9 *relative*: values too
    close to the noise of the FFT are summed again, term by term, while that takes at most 2²⁶ terms
    for all the vectors of one call (always, for one vector of up to 8,192 cells). Past that, small
    values are right to 1e-15 of the largest, and never negative.
    ``_push`` and ``_pull``, for inner loops, leave that out.
    """

    @abstractmethod
    def _push_with_noise(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """θC and a bound on its absolute error."""

    @abstractmethod
    def _pull_with_noise(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Cv and a bound on its absolute error."""

    @abstractmethod
    def _column(self, report: int) -> FloatArray:
        """One exact column."""

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._push_with_noise(theta)[0]

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._pull_with_noise(values)[0]

    def push(self, theta: npt.ArrayLike) -> FloatArray:
        checked = vector("theta", theta, self.space.size)
        return _refined(checked, *self._push_with_noise(checked), self._column)

    def pull(self, values: npt.ArrayLike) -> FloatArray:
        checked = vector("values", values, self.report_count)
        return _refined(checked, *self._pull_with_noise(checked), self._row)


def _refined(
    given: FloatArray, result: FloatArray, noise: FloatArray, line: Callable[[int], FloatArray]
) -> FloatArray:
    """The product with its small values made exact: ``line(i)·given`` for each of them."""
    vectors, values = given.reshape(-1, given.shape[-1]), result.reshape(-1, result.shape[-1])
    sound = (vectors >= 0).all(axis=1, keepdims=True)
    limits = (noise / RelativeError).reshape(-1, noise.shape[-1])
    small = sound & (values < limits)
    if np.count_nonzero(small) * given.shape[-1] <= _BUDGET:
        for index in np.flatnonzero(small.any(axis=0)):
            mine = small[:, index]
            # not a BLAS product: its threads would cost more than so short a sum
            values[mine, index] = (line(int(index)) * vectors[mine]).sum(axis=1)
    return np.where(sound, np.maximum(values, 0.0), values).reshape(result.shape)
