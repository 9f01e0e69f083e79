"""Designing the next mechanism: a promise, a dial, and the plain algorithm of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, TypedDict, Unpack, get_args, overload

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, finite, one_blas_thread, one_of, positive, prior_over
from geoveil.campaign.positional_design import (
    CLOSE,
    Designed,
    DesignedPositional,
    positional,
    wide_enough,
)
from geoveil.campaign.weights import equalising_weights, least_leverage, with_floor, with_leverage
from geoveil.channel.backend import backend_named, backend_of, host_array
from geoveil.channel.certificate import certify, promising
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.channel.kernel import Kernel
from geoveil.errors import InvalidInput, TooLarge, Unsupported
from geoveil.estimate.em import Accelerator, Ascent, maximise
from geoveil.estimate.stopping import Progress, Steps, Stop
from geoveil.mechanism.elastic import Elastic, exponential_kernel
from geoveil.mechanism.mechanism import Promise
from geoveil.root import NeverSafe, safe_root
from geoveil.space import MATRIX_LIMIT, MOST_CELLS, AnyGrid, Hexagons, Line, Points, Space
from geoveil.space.space import checked_space

Between = Literal["cells", "positions"]
"""What a promise is between."""


def checked_between(between: Between | None, space: Space) -> Between:
    """What a promise is between: as asked, else positions on a map and cells where there is none."""
    if between is None:
        mapped = isinstance(space, AnyGrid) and space.box is not None
        return "positions" if mapped or isinstance(space, Hexagons) else "cells"
    return one_of("between", between, get_args(Between))


DESIGN_STEPS = Steps(8)
"""Few Blahut–Arimoto steps: run to its limit it empties most cells (docs/privic.md)."""

_RANGE = 2.0**40
"""So many times larger or smaller than the first guess a β may be."""
_FLATTEST_CELL = 1e-9
"""ε times the side of a cell, at least: below, every report is as likely from everywhere."""
_HALVINGS, _BETAS = 8, 10
"""How finely the camouflage is lowered, and β, where a bound on the leverage needs it."""


class DesignedElastic(Elastic, Designed):
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
        kernel: Kernel | None = None,
    ) -> None:
        self._designed_with = kernel
        super().__init__(space, beta_per_km=beta_per_km, weights=weights)
        self.prior = prior
        self.ascent = ascent

    def _exponential_kernel(self) -> Kernel:
        return self._designed_with or super()._exponential_kernel()

    @cached_property
    def certified_epsilon_per_km(self) -> float:
        """The exact ε, rounded up."""
        return certify(self).epsilon_per_km


@one_blas_thread()
def blahut_arimoto(
    space: Space,
    prior: npt.ArrayLike,
    *,
    beta_per_km: float,
    stop: Stop = DESIGN_STEPS,
    floor: float = 0.0,
    accelerate: Accelerator | None = None,
    progress: Progress | None = None,
    device: str | None = None,
) -> DesignedElastic:
    """The plain Blahut–Arimoto mechanism of the paper: least leakage for its mean distance.

    Law: c from ``stop`` updates of uniform weights (``Steps(N)`` are N of them, and the paper's N_BA is
    one more), C[x, y] ∝ c(y)·e^{−β·d(x, y)}. It is maximum likelihood with the roles swapped (PRIVIC §4):
    c over the reports is unknown, and the true cells are observed with weights π. At its optimum
    −f = R + β·D in nats, so that the certificate bounds the distance to the rate–distortion optimum.
    ``accelerate`` is for ``stop=CertifiedWithin(…)``, on the way to that optimum itself. With
    ``device="cuda"``, or a ``prior`` of CuPy or torch, the updates run on that device.
    Guarantee: 2β per km; the certified ε is usually smaller.
    Cost: two FFT products a step on a grid.
    Reference: PRIVIC Alg. 2, its normalisation corrected (docs/privic.md).

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
    >>> mechanism = blahut_arimoto(grid, [1 / 16] * 16, beta_per_km=1.0)
    >>> mechanism.cells_with_weight
    16
    """
    beta = positive("beta_per_km", beta_per_km)
    backend = backend_of(prior) if device is None else backend_named(device)
    population = prior_over(host_array(prior), checked_space(space).size)
    kernel = exponential_kernel(space, beta)
    moved = kernel if backend is None else kernel.on(backend)
    ascent = maximise(moved, population, stop=stop, accelerate=accelerate, progress=progress)
    weights = with_floor(ascent.distribution, floor)
    return DesignedElastic(
        space, population, ascent, beta_per_km=beta, weights=weights, kernel=kernel
    )


class _Options(TypedDict, total=False):
    """What ``elastic`` takes, whether its promise is between cells or positions."""

    epsilon_per_km: float | None
    level: float | None
    radius_km: float | None
    mean_distance_km: float | None
    camouflage: float
    most_leverage: float | None
    stop: Stop


_Prior = npt.ArrayLike | None


@overload
def elastic(
    space: Space, prior: _Prior = ..., *, between: Literal["cells"], **options: Unpack[_Options]
) -> DesignedElastic: ...
@overload
def elastic(
    space: Space, prior: _Prior = ..., *, between: Literal["positions"], **options: Unpack[_Options]
) -> DesignedPositional: ...
@overload  # a grid without coordinates has cells only: there ``between="cells"`` types what comes
def elastic(
    space: AnyGrid | Hexagons,
    prior: _Prior = ...,
    *,
    between: None = ...,
    **options: Unpack[_Options],
) -> DesignedPositional: ...
@overload
def elastic(
    space: Line, prior: _Prior = ..., *, between: None = ..., **options: Unpack[_Options]
) -> DesignedElastic: ...
@overload
def elastic(
    space: Space, prior: _Prior = ..., *, between: Between | None = ..., **options: Unpack[_Options]
) -> DesignedElastic | DesignedPositional: ...
@one_blas_thread()
def elastic(
    space: Space,
    prior: npt.ArrayLike | None = None,
    *,
    epsilon_per_km: float | None = None,
    level: float | None = None,
    radius_km: float | None = None,
    mean_distance_km: float | None = None,
    camouflage: float = 0.5,
    most_leverage: float | None = None,
    stop: Stop = DESIGN_STEPS,
    between: Between | None = None,
) -> DesignedElastic | DesignedPositional:
    """The mechanism at a promise and a camouflage: 0 the sharpest map, 1 Blahut–Arimoto.

    Law: elastic with c = (1 − κ)·c_eq + κ·c_BA, β solved so that the *certified* ε meets the promise
    from below (to 0.1 %). With ``mean_distance_km`` the promise is solved for instead.
    ``most_leverage`` bounds what a fake report may weigh (``DesignedElastic.leverage``): cells that would
    exceed it are reported more often, and only where that is not enough the camouflage is lowered,
    as little as it must be.
    Guarantee: ε per km, certified; the same worst case at every camouflage. It holds between any two
    positions (:class:`PositionalElastic`), unless ``between="cells"``: then it holds between the centres of
    cells, as in the papers. Positions are the default on maps (``Grid.from_box``,
    ``Grid.from_polygon``, ``Hexagons``) and can be asked for among places and on grids without coordinates;
    lines have cells only.
    Cost: some ten designs, each of a few FFT products and, between positions, a certificate over all of
    them (a second at 500 cells); with a bound up to a hundred times that.
    Reference: docs/privic.md, docs/guarantee.md.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
    >>> mechanism = elastic(grid, [1 / 16] * 16, epsilon_per_km=2.0, camouflage=0.5)
    >>> 1.99 < mechanism.certified_epsilon_per_km <= 2.0
    True
    >>> paris = gv.Grid.from_box(south=48.85, west=2.3, north=48.87, east=2.33, cell_km=0.5)
    >>> print(elastic(paris, epsilon_per_km=2.0).guarantee.amount())
    ε = 2 per km and 0.012 for rounding
    >>> print(elastic(paris, epsilon_per_km=2.0, between="cells").guarantee.amount())
    ε = 2 per km
    """
    between = checked_between(between, space)
    camouflage = finite("camouflage", camouflage, least=0, most=1)
    population = prior_over(prior, checked_space(space).size)
    promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)
    if between == "positions":
        if most_leverage is not None:
            raise Unsupported(
                "most_leverage can be kept between cells only; use between='cells' (a weaker promise), "
                "or leave the bound out"
            )
        _check_size(space, promise)
        return positional(space, population, promise, camouflage=camouflage, stop=stop)

    def designed(share: float) -> DesignedElastic:
        return _promising(space, promise, lambda beta: _mixed(space, population, beta, share, stop))

    mechanism = designed(camouflage)
    if most_leverage is None or mechanism.leverage <= positive("most_leverage", most_leverage):
        return mechanism
    sharpest = designed(0.0)
    steepest = sharpest.beta_per_km
    betas = np.linspace(steepest, _least_beta(space, most_leverage, steepest), _BETAS).tolist()

    def bounded(share: float, of: FloatArray = population) -> DesignedElastic:
        def build(beta: float) -> DesignedElastic:
            return _mixed(space, of, beta, share, stop, most_leverage)

        return _promising(space, promise, build, betas)

    # The last two do not depend on the prior: a campaign that could begin can go on.
    fallbacks: tuple[Callable[[], DesignedElastic], ...] = (
        lambda: sharpest,
        lambda: bounded(0.0),
        lambda: bounded(camouflage, prior_over(None, space.size)),
    )
    for make in fallbacks:
        fallback = make()
        if fallback.leverage <= most_leverage:
            # the largest camouflage at which the bound can be kept, or else the fallback
            best = safe_root(
                lambda share, fallback=fallback: bounded(share) if share else fallback,  # type: ignore[misc]
                lambda mechanism: -1.0 if mechanism.leverage <= most_leverage else 1.0,
                [camouflage, 0.0],
                within=(camouflage, 0.0),
                tolerance=0.0,
                step=1.001 * camouflage / 2**_HALVINGS,
                linear=True,
            ).result
            return _described(best, population, best.guarantee.epsilon_per_km)
    raise InvalidInput(
        f"most_leverage ({most_leverage:g}) must be one that can be kept at this promise, such as "
        f"{sharpest.leverage:.3g}, that of the sharpest mechanism"
    )


def _check_size(space: Space, promise: Promise) -> None:
    """Refuse a design between positions that would take hours, or whose numbers mean nothing."""
    if space.size > MOST_CELLS:
        raise TooLarge(
            f"cells ({space.size:,}) must be at most {MOST_CELLS:,} for a promise between positions; "
            "use larger cells, or a promise between cells only, which is weaker "
            "(between='cells', --between cells)"
        )
    if isinstance(space, Points) and space.size > MATRIX_LIMIT:
        raise TooLarge(
            f"places ({space.size:,}) must be at most {MATRIX_LIMIT:,} for a promise between positions"
        )
    if isinstance(space, AnyGrid) and promise.mean_distance_km is None:
        steepness = promise.resolve(lambda _: 0.0) * space.cell_km
        if steepness < _FLATTEST_CELL:
            raise InvalidInput(
                f"epsilon_per_km × cell ({steepness:.4g}) must be at least {_FLATTEST_CELL:g} for a promise "
                "between positions; make the cells larger, or promise less"
            )


def _least_beta(space: Space, most_leverage: float, steepest: float) -> float:
    """The least β from half the steepest on at which some weights keep the bound."""
    try:
        return safe_root(
            lambda beta: least_leverage(exponential_kernel(space, beta), space.size),
            lambda least: math.log(least / most_leverage),
            [steepest / 2, steepest],
            within=(steepest / 2, steepest),
            tolerance=CLOSE,
            step=CLOSE,
        ).at
    except NeverSafe:
        return steepest


def _promising(
    space: Space,
    promise: Promise,
    build: Callable[[float], DesignedElastic],
    betas: Sequence[float] = (),
) -> DesignedElastic:
    """The mechanism that keeps the promise, ``build`` making one for every β.

    The certified ε grows with β, but not where weights are raised much to bound the leverage: ``betas``,
    falling, are then tried for a place to start from.
    """
    if promise.mean_distance_km is not None:
        distance_km = positive("mean_distance_km", promise.mean_distance_km)
        start = 0.5 / distance_km
        within = start * _RANGE, start / _RANGE
        widest = wide_enough(build, distance_km, "β", start, within, math.log(8))
        return _described(widest, widest.prior, widest.certified_epsilon_per_km)
    epsilon = promise.resolve(lambda _: 0.0)
    if space.size == 1:
        mechanism = build(epsilon)
    else:
        mechanism = safe_root(
            build,
            lambda candidate: candidate.closed_form_loss().epsilon_per_km / epsilon - 1,
            betas or [epsilon, epsilon / 2],
            within=(epsilon * _RANGE, epsilon / _RANGE),
            tolerance=CLOSE,
            power=None if betas else 1.0,
        ).result
    return _described(mechanism, mechanism.prior, epsilon)


def _mixed(
    space: Space,
    prior: FloatArray,
    beta: float,
    camouflage: float,
    stop: Stop,
    most_leverage: float = math.inf,
) -> DesignedElastic:
    kernel = exponential_kernel(space, beta)
    ascent = maximise(kernel, prior, stop=stop)
    sharp = equalising_weights(space, beta, kernel=kernel)
    weights = (1 - camouflage) * sharp + camouflage * ascent.distribution
    if most_leverage < math.inf:
        weights = with_leverage(kernel, weights, most_leverage)
    return DesignedElastic(space, prior, ascent, beta_per_km=beta, weights=weights, kernel=kernel)


def _described(
    mechanism: DesignedElastic, prior: FloatArray, epsilon_per_km: float
) -> DesignedElastic:
    """The same mechanism with its promise, measured under a prior."""
    same = promising(mechanism, GeoIndistinguishability(epsilon_per_km))
    same.prior = prior
    for measured in ("leakage_bits", "mean_distance_km"):
        vars(same).pop(measured, None)
    return same
