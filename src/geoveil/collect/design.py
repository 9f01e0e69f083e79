"""Designing the next mechanism: a promise, a dial, and the plain algorithm of the paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy.typing as npt

from geoveil.arrays import FloatArray, positive
from geoveil.audit.certify import certify
from geoveil.collect.weights import (
    checked_prior,
    equalising_weights,
    exponential_kernel,
    rate_distortion_weights,
    with_floor,
)
from geoveil.errors import InvalidInput
from geoveil.estimate.em import Accelerator, Ascent
from geoveil.estimate.stopping import Steps, Stop
from geoveil.measure.distance import mean_distance_km
from geoveil.measure.information import mutual_information_bits
from geoveil.mechanism.elastic import Elastic
from geoveil.mechanism.promise import Promise
from geoveil.space.base import Space

DESIGN_STEPS = Steps(8)
"""Few Blahut–Arimoto steps: run to its limit it empties most cells (method §4)."""

_CLOSE = 0.999
"""How near the promise the certified ε must come."""
_TRIALS = 60


class DesignedElastic(Elastic):
    """An elastic mechanism designed for a prior, with what the design achieved.

    ``ascent`` is the Blahut–Arimoto run behind the weights: its ``certificate`` bounds, in nats, how far
    R + β·D of *its own* weights still is from the rate–distortion optimum.
    """

    def __init__(
        self,
        space: Space,
        prior: FloatArray,
        ascent: Ascent,
        *,
        beta_per_km: float,
        weights: FloatArray,
        epsilon_per_km: float | None = None,
    ) -> None:
        super().__init__(
            space, beta_per_km=beta_per_km, weights=weights, epsilon_per_km=epsilon_per_km
        )
        self.prior = prior
        self.ascent = ascent

    @cached_property
    def leakage_bits(self) -> float:
        """Mutual information of true cell and report under the prior."""
        return mutual_information_bits(self, self.prior)

    @cached_property
    def mean_distance_km(self) -> float:
        """Mean distance of true cell and report under the prior."""
        return mean_distance_km(self, self.prior)

    @cached_property
    def certified_epsilon_per_km(self) -> float:
        """The exact ε, rounded up."""
        return certify(self).epsilon_per_km

    @property
    def cells_with_weight(self) -> int:
        """How many cells are still reported: c above 1e-6."""
        return int((self.weights > 1e-6).sum())

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
        if self.cells_with_weight >= self.space.size / 2:
            return None
        return (
            f"only {self.cells_with_weight} of {self.space.size} cells are still reported: Blahut–Arimoto "
            "was run so far that the distribution can hardly be recovered; use fewer steps, a floor, or "
            "camouflage below 1"
        )


def blahut_arimoto(
    space: Space,
    prior: npt.ArrayLike,
    *,
    beta_per_km: float,
    stop: Stop = DESIGN_STEPS,
    floor: float = 0.0,
    accelerate: Accelerator | None = None,
) -> DesignedElastic:
    """The plain Blahut–Arimoto mechanism of the paper: least leakage for its mean distance.

    Law: c from ``stop`` updates of uniform weights, C[x, y] ∝ c(y)·e^{−β·d(x, y)}. ``accelerate`` is
    for ``stop=CertifiedWithin(…)``, on the way to the rate–distortion optimum itself.
    Guarantee: 2β per km; the certified ε is usually smaller.
    Cost: two FFT products a step on a grid.
    Reference: PRIVIC Alg. 2 with the normalisation of method §11.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
    >>> mechanism = blahut_arimoto(grid, [1 / 16] * 16, beta_per_km=1.0)
    >>> mechanism.cells_with_weight
    16
    """
    beta = positive("beta_per_km", beta_per_km)
    known = checked_prior(prior, space.size)
    kernel = exponential_kernel(space, beta)
    ascent = rate_distortion_weights(kernel, known, stop, accelerate=accelerate)
    weights = with_floor(ascent.distribution, floor)
    return DesignedElastic(space, known, ascent, beta_per_km=beta, weights=weights)


def elastic(
    space: Space,
    prior: npt.ArrayLike | None = None,
    *,
    epsilon_per_km: float | None = None,
    level: float | None = None,
    radius_km: float | None = None,
    mean_distance_km: float | None = None,
    camouflage: float = 0.5,
    stop: Stop = DESIGN_STEPS,
) -> DesignedElastic:
    """The mechanism at a promise and a camouflage: 0 the sharpest map, 1 Blahut–Arimoto.

    Law: elastic with c = (1 − κ)·c_eq + κ·c_BA, β solved so that the *certified* ε meets the promise
    from below (to 0.1 %). With ``mean_distance_km`` the promise is solved for instead.
    Guarantee: ε per km, certified; the same worst case at every camouflage.
    Cost: some ten designs, each of a few FFT products. Reference: method §4.
    """
    if not 0.0 <= camouflage <= 1.0:
        raise InvalidInput(f"camouflage ({camouflage!r}) must lie in [0, 1]")
    known = checked_prior(prior, space.size)
    promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)

    def build(beta: float) -> DesignedElastic:
        return _mixed(space, known, beta, camouflage, stop)

    if promise.mean_distance_km is not None:
        wanted = positive("mean_distance_km", promise.mean_distance_km)
        made = _solve(build, lambda m: -m.mean_distance_km, -wanted, 0.5 / wanted, 4 / wanted)
        return _claiming(made, made.certified_epsilon_per_km)
    epsilon = promise.resolve(lambda _: 0.0)
    made = _solve(
        build, lambda m: m.closed_form_loss().epsilon_per_km, epsilon, epsilon / 2, epsilon
    )
    return _claiming(made, epsilon)


def _mixed(
    space: Space, prior: FloatArray, beta: float, camouflage: float, stop: Stop
) -> DesignedElastic:
    kernel = exponential_kernel(space, beta)
    ascent = rate_distortion_weights(kernel, prior, stop)
    sharp = equalising_weights(space, beta, kernel=kernel)
    weights = (1 - camouflage) * sharp + camouflage * ascent.distribution
    return DesignedElastic(space, prior, ascent, beta_per_km=beta, weights=weights)


def _claiming(made: DesignedElastic, epsilon_per_km: float) -> DesignedElastic:
    return DesignedElastic(
        made.space,
        made.prior,
        made.ascent,
        beta_per_km=made.beta_per_km,
        weights=made.weights,
        epsilon_per_km=epsilon_per_km,
    )


def _solve(
    build: Callable[[float], DesignedElastic],
    measure: Callable[[DesignedElastic], float],
    target: float,
    low: float,
    high: float,
) -> DesignedElastic:
    """The mechanism with the largest β whose measure, growing with β, is still at most the target.

    False position with the Illinois rule, which keeps a bracket; the safe end is the answer.
    """
    made = build(low)
    while measure(made) > target:
        low, high = low / 2, low
        made = build(low)
    beyond = build(high)
    below, above = measure(made) - target, measure(beyond) - target
    while above <= 0:
        low, made, below = high, beyond, above
        high *= 2
        beyond = build(high)
        above = measure(beyond) - target
    for _ in range(_TRIALS):
        if -below <= (1 - _CLOSE) * abs(target) or high - low < 1e-12 * high:
            return made
        # Aim a little inside, so that the safe end is the one that moves.
        aim = 0.25 * (1 - _CLOSE) * abs(target)
        middle = low + (high - low) * (-below - aim) / (above - below)
        middle = min(max(middle, low + 0.01 * (high - low)), high - 0.01 * (high - low))
        tried = build(middle)
        value = measure(tried) - target
        if value <= 0:
            low, made, below, above = middle, tried, value, above / 2
        else:
            high, above = middle, value
    return made
