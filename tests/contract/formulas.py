"""The laws of the mechanisms, written again from the papers without looking at the library."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
from scipy.integrate import quad


def lattice(rows: int, columns: int, cell_km: float) -> np.ndarray:
    """Distances between the cells of a grid, row by row."""
    spots = np.array([(cell_km * i, cell_km * j) for i in range(rows) for j in range(columns)])
    return plane(spots)


def plane(spots: np.ndarray) -> np.ndarray:
    spots = np.asarray(spots, dtype=np.longdouble)
    return np.sqrt(np.square(spots[:, None] - spots[None, :]).sum(axis=-1))


def line(size: int) -> np.ndarray:
    return plane(np.arange(size)[:, None])


def randomized_response(size: int, epsilon: float) -> np.ndarray:
    stay = math.exp(epsilon) / (size - 1 + math.exp(epsilon))
    other = 1 / (size - 1 + math.exp(epsilon))
    return np.array([[stay if x == y else other for y in range(size)] for x in range(size)])


def rappor(size: int, epsilon: float) -> np.ndarray:
    """Bit by bit: letter Σ_j bit_j·2^j, each bit kept with probability e^{ε/2}/(1 + e^{ε/2})."""
    keep = math.exp(epsilon / 2) / (1 + math.exp(epsilon / 2))
    matrix = np.empty((size, 2**size))
    for x, letter in itertools.product(range(size), range(2**size)):
        bits = [letter >> j & 1 for j in range(size)]
        matrix[x, letter] = math.prod(
            keep if bit == (j == x) else 1 - keep for j, bit in enumerate(bits)
        )
    return matrix


def disc(spots: list[tuple[int, int]], square: int, epsilon: float) -> np.ndarray:
    """Cells first, then whatever lattice place is within the radius of one, row by row."""
    reach = math.isqrt(square)
    across = len({x for x, _ in spots}) > 1, len({y for _, y in spots}) > 1
    steps = [
        (a, b)
        for a in range(-reach, reach + 1)
        for b in range(-reach, reach + 1)
        if a * a + b * b <= square and (a == 0 or across[0]) and (b == 0 or across[1])
    ]
    reached = {(x + a, y + b) for x, y in spots for a, b in steps}
    places = spots + sorted(reached - set(spots))
    weights = [
        [math.exp(epsilon) if (u - x, v - y) in steps else 1.0 for u, v in places] for x, y in spots
    ]
    return np.array([[weight / math.fsum(row) for weight in row] for row in weights])


def linear_geometric(size: int, epsilon: float) -> np.ndarray:
    """The two-sided geometric law on all integers, then clamped to the ends."""
    reach = math.ceil(45 / epsilon) + size
    steps = np.arange(-reach, reach + 1)
    law = np.exp(-epsilon * np.abs(steps))
    matrix = np.zeros((size, size))
    for x in range(size):
        np.add.at(matrix[x], np.clip(x + steps, 0, size - 1), law / law.sum())
    return matrix


def planar_geometric(rows: int, columns: int, decay: float) -> np.ndarray:
    """λe^{−εd} on a window of the lattice, every point moved to its nearest cell by search."""
    reach = math.ceil(45 / decay)
    steps = np.arange(-reach - rows - columns, reach + rows + columns + 1)
    law = np.exp(-decay * np.hypot(steps[:, None], steps))
    law /= law.sum()
    matrix = np.zeros((rows, columns, rows, columns))
    for i, j in itertools.product(range(rows), range(columns)):
        nearest_row = np.argmin(np.abs(i + steps[:, None] - np.arange(rows)), axis=1)
        nearest_column = np.argmin(np.abs(j + steps[:, None] - np.arange(columns)), axis=1)
        np.add.at(matrix[i, j], (nearest_row[:, None], nearest_column[None, :]), law)
    return matrix.reshape(rows * columns, -1)


def planar_laplace(rows: int, columns: int, decay: float, positions: int = 1) -> np.ndarray:
    """Rectangles of the plane, the outer ones reaching to infinity, in units of a cell.

    The mean over ``positions`` places of the cell each way, at the nodes of Gauss and Legendre.
    """
    matrix = np.zeros((rows * columns, rows * columns))
    points, weights = (part / 2 for part in np.polynomial.legendre.leggauss(positions))
    places = list(zip(points.tolist(), weights.tolist(), strict=True))
    for x, z in itertools.product(range(rows * columns), repeat=2):
        (i, j), (k, l) = divmod(x, columns), divmod(z, columns)  # noqa: E741
        for (down, u), (over, v) in itertools.product(places, repeat=2):
            south, north = _interval(k - i - down, k == 0, k == rows - 1)
            west, east = _interval(l - j - over, l == 0, l == columns - 1)
            matrix[x, z] += u * v * laplace_rectangle(south, north, west, east, decay)
    return matrix


def _interval(offset: float, first: bool, last: bool) -> tuple[float, float]:
    return (-math.inf if first else offset - 0.5), (math.inf if last else offset + 0.5)


def laplace_rectangle(south: float, north: float, west: float, east: float, decay: float) -> float:
    """∫ of a²/(2π)·e^{−a|u|} over a rectangle, from its four quadrant boxes."""
    box = laplace_box
    return (
        box(north, east, decay)
        - box(south, east, decay)
        - box(north, west, decay)
        + box(south, west, decay)
    )


@cache
def laplace_box(a: float, b: float, decay: float) -> float:
    """∫ over [0, a] × [0, b] (signed), one integral over the angle: the radius has a closed form."""
    if a < 0 or b < 0:
        return math.copysign(1, a) * math.copysign(1, b) * laplace_box(abs(a), abs(b), decay)
    if a == math.inf and b == math.inf:
        return 0.25

    def inner(radius: float) -> float:
        reach = decay * radius
        return 1 - (1 + reach) * math.exp(-reach) if reach < 700 else 1.0

    turn = 0.0 if a == math.inf else math.pi / 2 if b == math.inf else math.atan2(b, a)
    first = (
        quad(lambda t: inner(a / math.cos(t)), 0, turn, epsabs=1e-13, epsrel=1e-12, limit=200)[0]
        if turn
        else 0
    )
    second = (
        quad(
            lambda t: inner(b / math.sin(t)),
            turn,
            math.pi / 2,
            epsabs=1e-13,
            epsrel=1e-12,
            limit=200,
        )[0]
        if turn < math.pi / 2
        else 0
    )
    return (first + second) / (2 * math.pi)


def elastic(distances: np.ndarray, beta: float, weights: np.ndarray | None = None) -> np.ndarray:
    """c(y)e^{−βd(x,y)}/Z(x) with the sum over the report, in logarithms."""
    with np.errstate(divide="ignore"):
        logs = 0.0 if weights is None else np.log(np.asarray(weights, dtype=np.longdouble))
    terms = np.asarray(logs - beta * distances, dtype=np.longdouble)
    largest = terms.max(axis=1, keepdims=True)
    kernel = np.exp(terms - largest)
    return np.asarray(kernel / kernel.sum(axis=1, keepdims=True), dtype=np.float64)


def exponential(distances: np.ndarray, epsilon: float) -> np.ndarray:
    return elastic(distances, epsilon / 2)


def losses(matrix: np.ndarray) -> np.ndarray:
    """max_y log C[x,y]/C[x′,y] by plain enumeration; 0/0 is no evidence, and 1e-300 counts as 0."""
    size = len(matrix)
    found = np.zeros((size, size))
    for x, other in itertools.permutations(range(size), 2):
        seen = (matrix[x] > 1e-300) | (matrix[other] > 1e-300)
        ratio = np.log(np.maximum(matrix[x, seen], 1e-300)) - np.log(
            np.maximum(matrix[other, seen], 1e-300)
        )
        found[x, other] = ratio.max()
    return found


__all__ = [
    "elastic",
    "exponential",
    "laplace_rectangle",
    "lattice",
    "line",
    "linear_geometric",
    "losses",
    "planar_geometric",
    "planar_laplace",
    "plane",
    "randomized_response",
    "rappor",
]
