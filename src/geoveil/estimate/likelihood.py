"""The operator of every estimate, and the log-likelihood it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, vector
from geoveil.channel.channel import Channel
from geoveil.channel.composed import DenseChannel
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


# --- The function that is maximised, and all that is known about it at one point


_NOISE = 1e-9
"""A law this far below the largest may be rounding noise of an FFT; its column is then taken exactly."""

_TINY = 1e-300
_EXACT_ENTRIES = 1 << 25
_SMALL_UNKNOWNS = 512
"""Up to so many unknowns a product with a matrix beats any structure."""


class Point:
    """A distribution and what the objective says there; leading axes are independent problems.

    ``law`` is (θL)_i for the observations that were seen; ``gradient`` is g = L·(w/(θL)), and θ∘g the
    next step of expectation–maximisation. A loop makes one every few microseconds: plain attributes.
    """

    __slots__ = ("_certificate", "_log_likelihood", "gradient", "law", "theta", "weights")

    def __init__(
        self, theta: FloatArray, law: FloatArray, gradient: FloatArray, weights: FloatArray
    ) -> None:
        self.theta = theta
        self.law = law
        self.gradient = gradient
        self.weights = weights
        self._log_likelihood: FloatArray | None = None
        self._certificate: FloatArray | None = None

    @property
    def log_likelihood(self) -> FloatArray:
        """f(θ), nats per observation; computed at first use."""
        if self._log_likelihood is None:
            logs = np.log(self.law)
            if logs.ndim == 1:
                self._log_likelihood = np.asarray(self.weights @ logs)
            else:
                self._log_likelihood = np.einsum("...i,...i->...", self.weights, logs)
        return self._log_likelihood

    @property
    def certificate(self) -> FloatArray:
        """log max g ≥ f* − f(θ), nats per observation; computed at first use."""
        if self._certificate is None:
            steepest = np.maximum.reduce(self.gradient, axis=-1)
            self._certificate = np.asarray(np.log(np.maximum(steepest, 1.0)))
        return self._certificate


class SeenColumns:
    """The columns of a likelihood for the observations that were seen, products only.

    Cost: one product of the likelihood each; a small one is turned into a matrix first. Columns whose
    law lies at the noise of the products are fetched once and summed exactly from then on.
    """

    def __init__(self, likelihood: Likelihood, seen: IntArray) -> None:
        entries = likelihood.unknowns * seen.size
        small = likelihood.exact or likelihood.unknowns <= _SMALL_UNKNOWNS
        if small and entries <= _EXACT_ENTRIES:
            likelihood = DenseLikelihood(likelihood.columns(seen))
            seen = np.arange(likelihood.observations)
        self.likelihood = likelihood
        self.seen = seen
        self._all = seen.size == likelihood.observations
        self._exact: IntArray = np.zeros(0, dtype=np.int64)
        self._columns: FloatArray = np.zeros((likelihood.unknowns, 0))

    def push(self, theta: FloatArray) -> FloatArray:
        """(θL)_i > 0 for the observations seen."""
        law = self.likelihood.push(theta)
        if not self._all:
            law = law.take(self.seen, axis=-1)
        if not self.likelihood.exact:
            floor = _NOISE * law.max(axis=-1, keepdims=True)
            if (law < floor).any():
                law = self._refined(theta, law, floor)
        return np.maximum(law, _TINY)

    def pull(self, values: FloatArray) -> FloatArray:
        """Σ_i L[x, i]·v_i over the observations seen, never negative for v ≥ 0."""
        apart = values[..., self._exact] if self._exact.size else None
        if apart is not None:
            values = values.copy()
            values[..., self._exact] = 0.0
        if not self._all:
            spread = np.zeros((*values.shape[:-1], self.likelihood.observations))
            spread.T[self.seen] = values.T
            values = spread
        result = self.likelihood.pull(values)
        if apart is not None:
            result = result + apart @ self._columns.T
        return np.maximum(result, 0.0)

    def matrix(self) -> FloatArray:
        """(unknowns, seen), as an array."""
        if self._all and isinstance(self.likelihood, DenseLikelihood):
            return self.likelihood.matrix
        return self.likelihood.columns(self.seen)

    def _refined(self, theta: FloatArray, law: FloatArray, floor: FloatArray) -> FloatArray:
        """The law with exact sums where the fast product may be noise."""
        low = np.flatnonzero((law < floor).reshape(-1, law.shape[-1]).any(axis=0))
        new = np.setdiff1d(low, self._exact)
        if (self._exact.size + new.size) * self.likelihood.unknowns > _EXACT_ENTRIES:
            return np.maximum(law, _NOISE * floor)
        if new.size:
            fetched = self.likelihood.columns(self.seen[new])
            self._columns = np.concatenate((self._columns, fetched), axis=1)
            self._exact = np.concatenate((self._exact, new))
        law = law.copy()
        law[..., self._exact] = theta @ self._columns
        return law


class Objective:
    """f for given weights; counts the products it spends.

    ``weights`` are counts or probabilities, (…, observations); each vector is scaled to sum to one,
    and observations of weight zero are left out altogether. Leading axes are independent problems
    that share the likelihood: folds, bootstrap replicates.

    >>> import numpy as np
    >>> from geoveil.estimate.likelihood import DenseLikelihood
    >>> objective = Objective(DenseLikelihood(np.eye(2)), [3, 1])
    >>> point = objective.at(np.array([0.5, 0.5]))
    >>> point.theta * point.gradient
    array([0.75, 0.25])
    """

    def __init__(self, likelihood: Likelihood, weights: npt.ArrayLike) -> None:
        given = checked_weights(weights, likelihood.observations)
        seen = np.flatnonzero(given.reshape(-1, given.shape[-1]).any(axis=0))
        self.seen = seen
        """Which observations have weight; ``Point.law`` follows their order."""
        self.columns = SeenColumns(likelihood, seen)
        self.weights: FloatArray = given[..., seen] / given.sum(axis=-1, keepdims=True)
        self.unknowns = likelihood.unknowns
        self.products = 0

    def at(self, theta: FloatArray) -> Point:
        """Everything about one distribution (or one for each problem): a push and a pull."""
        self.products += 2
        law = self.columns.push(theta)
        gradient = self.columns.pull(self.weights / law)
        return Point(theta, law, gradient, self.weights)

    def dense(self) -> Objective:
        """The same objective on a matrix of the columns seen, for methods that need one."""
        return Objective(DenseLikelihood(self.columns.matrix()), self.weights)


def checked_weights(weights: npt.ArrayLike, observations: int) -> FloatArray:
    """Weights as an array, each vector non-negative and not all zero."""
    given = vector("weights", weights, observations)
    if (given < 0).any():
        raise InvalidInput("weights must not be negative")
    if not (given.sum(axis=-1) > 0).all():
        raise InvalidInput("weights must not all be zero; nothing was observed")
    return given


def uniform(unknowns: int) -> FloatArray:
    """The distribution that prefers nothing, the default start."""
    return np.full(unknowns, 1.0 / unknowns)
