"""``python -m benchmarks.kernels``: kernels for a promise between positions, on an endless grid.

For each kernel the slope is solved for at which the exact loss per km, over positions in a cell of an
endless grid with equal weights, is ε. Printed is the mean distance of the law between centres, people spread
in their cells, over that of the kernel: docs/decisions/0011-positions.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy import interpolate, optimize

from geoveil.arrays import FloatArray

Radial = tuple[Callable[[FloatArray], FloatArray], Callable[[FloatArray], FloatArray]]
"""φ(r) and φ′(r), r in cells."""
_REACH = 14.0
_SIDE = np.linspace(0.0, 0.5, 9)


def cusp(beta: float) -> Radial:
    """e^{−βr}."""
    return lambda r: beta * r, lambda r: np.full_like(r, beta)


def hyperbola(beta: float, bend: float = 0.4) -> Radial:
    """φ = β(√(r² + s²) − s)."""
    return (
        lambda r: beta * (np.hypot(r, bend) - bend),
        lambda r: beta * r / np.hypot(r, bend),
    )


def disc(beta: float, radius: float = 0.55) -> Radial:
    """e^{−βr} averaged over a disc, by quadrature and a spline."""
    nodes, shares = np.polynomial.legendre.leggauss(48)
    ring = (nodes + 1) / 2 * radius
    angle = (np.arange(192) + 0.5) / 192 * np.pi
    r = np.concatenate(
        (np.linspace(0, 4 * radius, 1200), np.linspace(4 * radius, 30 / beta + 5, 1500)[1:])
    )
    apart = np.sqrt(
        np.maximum(
            r[:, None, None] ** 2
            + ring[:, None] ** 2
            - 2 * r[:, None, None] * ring[:, None] * np.cos(angle),
            0.0,
        )
    )
    lead = np.maximum(r - radius, 0.0)
    mean = (np.exp(-beta * (apart - lead[:, None, None])).mean(axis=2) * shares * ring).sum(
        axis=1
    ) / radius
    spline = interpolate.CubicSpline(r, beta * lead - np.log(mean))
    return spline, spline.derivative()


def rounded(beta: float, radius: float, powers: dict[int, float]) -> Radial:
    """A cone with φ′ = β·Σ c·t^p up to t = r/a = 1, and β beyond."""

    def slope(r: FloatArray) -> FloatArray:
        t = np.minimum(r / radius, 1.0)
        return np.asarray(beta * sum(c * t**p for p, c in powers.items()))

    def decay(r: FloatArray) -> FloatArray:
        t = np.minimum(r / radius, 1.0)
        inside = sum(c * t ** (p + 1) / (p + 1) for p, c in powers.items())
        return beta * (radius * inside + np.maximum(r - radius, 0.0))

    return decay, slope


KERNELS: dict[str, Callable[[float], Radial]] = {
    "cusp": cusp,
    "disc of 0.55 cells": disc,
    "hyperbola, 0.4 cells": hyperbola,
    "t(3 − t²)/2, 0.95 cells": lambda b: rounded(b, 0.95, {1: 1.5, 3: -0.5}),
    "t(5 − t⁴)/4, 0.85 cells": lambda b: rounded(b, 0.85, {1: 1.25, 5: -0.25}),
    "t(15 − 10t² + 3t⁴)/8, 1.1 cells": lambda b: rounded(b, 1.1, {1: 15 / 8, 3: -10 / 8, 5: 3 / 8}),
}


def centres(beta: float) -> FloatArray:
    """Those within reach of a cell."""
    reach = int(np.ceil(_REACH / beta)) + 2
    line = np.arange(-reach, reach + 1.0)
    every = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    return every[np.hypot(*every.T) <= reach]


def loss_and_distance(radial: Radial, beta: float) -> tuple[float, float]:
    """The largest |a_y − g| over an eighth of a cell, and the mean distance over the same places."""
    decay, slope = radial
    everywhere, worst, total, shares = centres(beta), 0.0, 0.0, 0.0
    for number, east in enumerate(_SIDE):
        for north in _SIDE[: number + 1]:
            offset = np.array((east, north)) - everywhere
            r = np.hypot(*offset.T)
            share = np.exp(-decay(r))
            share /= share.sum()
            pull = slope(r)[:, None] * offset / np.maximum(r, 1e-12)[:, None]
            mean = share @ pull
            loss = np.linalg.norm(pull - mean, axis=1)
            if r.min() < 1e-9:  # at a cusp every direction counts
                at = int(r.argmin())
                loss[at] = slope(np.zeros(1))[0] + np.linalg.norm(mean - share[at] * pull[at])
            worst = max(worst, float(loss.max()))
            weight = 0.5 if east == north else 1.0
            total, shares = total + weight * float(share @ r), shares + weight
    return worst, total / shares


def between_centres(epsilon: float) -> float:
    """Mean distance of e^{−εr} on the centres, people spread in their cells."""
    everywhere = centres(epsilon)
    share = np.exp(-epsilon * np.hypot(*everywhere.T))
    share /= share.sum()
    line = (np.arange(9) + 0.5) / 9 - 0.5
    places = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    return float(np.mean([share @ np.hypot(*(everywhere - at).T) for at in places]))


def main() -> int:
    """Print the table."""
    sizes = (0.5, 1.0, 2.0, 4.0)
    print("| kernel |" + "".join(f" ε = {epsilon:g} per cell |" for epsilon in sizes))
    print("|" + "---|" * (len(sizes) + 1))
    for name, make in KERNELS.items():
        row = []
        for epsilon in sizes:

            def excess(beta: float, wanted: float = epsilon) -> float:
                return loss_and_distance(make(beta), beta)[0] - wanted  # noqa: B023

            beta = optimize.brentq(excess, 0.45 * epsilon, 1.0001 * epsilon, xtol=1e-5)
            row.append(between_centres(epsilon) / loss_and_distance(make(beta), beta)[1])
        print(f"| {name} |" + "".join(f" {value:.3f} |" for value in row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
