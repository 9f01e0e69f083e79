"""The operator of every estimate: unknowns in, probabilities of observations out.

L[x, i] = P(observation i | unknown x) up to a factor of each column, so rows need not sum to one. An
estimate from reports has the cells for unknowns and the reports for observations; the design of a
mechanism (Blahut–Arimoto) has them the other way round. The loop in :mod:`geoveil.estimate.em`
knows nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.base import Channel
from geoveil.channel.dense import DenseChannel
from geoveil.errors import InvalidInput


class Likelihood(ABC):
    """A non-negative linear map L with a row for each unknown and a column for each observation.

    Required: ``unknowns``, ``observations``, ``push``, ``pull``. Overridden where structure allows:
    ``column`` (exact where the products are not) and ``columns``.
    """

    unknowns: int
    observations: int
    exact: bool = False
    """Whether small values of ``push`` are as accurate as large ones: sums, no FFT."""

    @abstractmethod
    def push(self, theta: FloatArray) -> FloatArray:
        """θL: (…, unknowns) → (…, observations)."""

    @abstractmethod
    def pull(self, values: FloatArray) -> FloatArray:
        """L·v: (…, observations) → (…, unknowns)."""

    def column(self, observation: int) -> FloatArray:
        """One column, (unknowns,)."""
        unit = np.zeros(self.observations)
        unit[observation] = 1.0
        return self.pull(unit)

    def columns(self, chosen: IntArray) -> FloatArray:
        """Some columns side by side, (unknowns, chosen)."""
        picked = [self.column(int(observation)) for observation in chosen]
        return np.stack(picked, axis=-1) if picked else np.zeros((self.unknowns, 0))


class DenseLikelihood(Likelihood):
    """L as a matrix (unknowns, observations)."""

    exact = True

    def __init__(self, matrix: FloatArray) -> None:
        given = np.asarray(matrix, dtype=np.float64)
        # By columns is as good as by rows, and products of neither make a copy.
        self.matrix = given if given.flags.f_contiguous else np.ascontiguousarray(given)
        self.unknowns, self.observations = self.matrix.shape

    def push(self, theta: FloatArray) -> FloatArray:
        return theta @ self.matrix

    def pull(self, values: FloatArray) -> FloatArray:
        return values @ self.matrix.T

    def column(self, observation: int) -> FloatArray:
        return self.matrix[:, observation]

    def columns(self, chosen: IntArray) -> FloatArray:
        return self.matrix[:, chosen]


class ChannelLikelihood(Likelihood):
    """The channel that made the reports: unknowns are cells, observations are its reports (IBU §II)."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.unknowns = channel.space.size
        self.observations = channel.report_count
        self.exact = isinstance(channel, DenseChannel)

    def push(self, theta: FloatArray) -> FloatArray:
        return self.channel._push(theta)

    def pull(self, values: FloatArray) -> FloatArray:
        return self.channel._pull(values)

    def column(self, observation: int) -> FloatArray:
        return self.channel._column(observation)

    def columns(self, chosen: IntArray) -> FloatArray:
        if 4 * chosen.size < self.observations:
            return super().columns(chosen)
        matrix = self.channel.matrix()
        everything = np.array_equal(chosen, np.arange(self.observations))
        return matrix if everything else matrix[:, chosen]


class StackedLikelihood(Likelihood):
    """Several likelihoods of the same unknowns side by side.

    People with different mechanisms, or the rounds of one campaign: the generalised iterative
    Bayesian update is the ordinary one on these columns.

    Reference: FREEWILL Alg. 1.
    """

    def __init__(self, parts: Sequence[Likelihood]) -> None:
        if not parts:
            raise InvalidInput("parts must not be empty")
        if len({part.unknowns for part in parts}) > 1:
            raise InvalidInput("parts must have the same unknowns")
        self.parts = tuple(parts)
        self.unknowns = parts[0].unknowns
        self.starts = np.cumsum([0, *(part.observations for part in parts)])
        self.observations = int(self.starts[-1])
        self.exact = all(part.exact for part in parts)

    def push(self, theta: FloatArray) -> FloatArray:
        return np.concatenate([part.push(theta) for part in self.parts], axis=-1)

    def pull(self, values: FloatArray) -> FloatArray:
        total = np.zeros((*values.shape[:-1], self.unknowns))
        for part, own in zip(self.parts, self.split(values), strict=True):
            total += part.pull(own)
        return total

    def column(self, observation: int) -> FloatArray:
        part, own = self.locate(observation)
        return self.parts[part].column(own)

    def columns(self, chosen: IntArray) -> FloatArray:
        result = np.empty((self.unknowns, chosen.size))
        owners = np.searchsorted(self.starts, chosen, side="right") - 1
        for number, part in enumerate(self.parts):
            mine = np.flatnonzero(owners == number)
            result[:, mine] = part.columns(chosen[mine] - self.starts[number])
        return result

    def split(self, values: FloatArray) -> list[FloatArray]:
        """Values by observation, cut into one array for each part."""
        bounds = zip(self.starts[:-1], self.starts[1:], strict=True)
        return [values[..., first:last] for first, last in bounds]

    def locate(self, observation: int) -> tuple[int, int]:
        """The part an observation belongs to, and its number there."""
        part = int(np.searchsorted(self.starts, observation, side="right")) - 1
        return part, observation - int(self.starts[part])
