"""Noise in the plane and on its lattice, from uniform random bits."""

from __future__ import annotations

import math

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.base import inverse_distribution
from geoveil.randomness import Randomness

TAIL = 42.0
"""Steps with ε·distance beyond this carry less than 1e-15 of the noise."""

_TABLE_DECAY = 0.3


def lattice_steps(decay: float, size: int, randomness: Randomness) -> tuple[IntArray, IntArray]:
    """Steps (rows, columns) with P ∝ e^{−decay·√(i²+j²)} on the whole lattice."""
    if decay >= _TABLE_DECAY:
        return _steps_by_table(decay, size, randomness)
    return _steps_by_rejection(decay, size, randomness)


def _steps_by_table(decay: float, size: int, randomness: Randomness) -> tuple[IntArray, IntArray]:
    reach = math.ceil(TAIL / decay) + 1
    line = np.arange(-reach, reach + 1)
    law = np.exp(-decay * np.hypot(line[:, None], line[None, :])).ravel()
    found = inverse_distribution(law, randomness.uniform(size))
    return found // line.size - reach, found % line.size - reach


def _steps_by_rejection(
    decay: float, size: int, randomness: Randomness
) -> tuple[IntArray, IntArray]:
    """A point u of density ∝ e^{−a|u|}, rounded to z, kept with probability e^{a(|u| − |z| − 1/√2)}.

    The probability of z is then ∝ ∫ e^{−a|u|}·e^{a|u| − a|z|} du over its unit square: ∝ e^{−a|z|}, exactly.
    """
    steps = np.empty((2, size), dtype=np.int64)
    missing = np.arange(size)
    while missing.size:
        radius, angle = planar_laplace_polar(decay, missing.size, randomness)
        rounded = np.rint(np.stack((radius * np.sin(angle), radius * np.cos(angle))))
        excess = radius - np.hypot(rounded[0], rounded[1]) - math.sqrt(0.5)
        kept = randomness.uniform(missing.size) < np.exp(decay * excess)
        steps[:, missing[kept]] = rounded[:, kept].astype(np.int64)
        missing = missing[~kept]
    return steps[0], steps[1]


def planar_laplace_polar(
    epsilon: float, size: int, randomness: Randomness
) -> tuple[FloatArray, FloatArray]:
    """Radius ~ Gamma(2, 1/ε) and a uniform angle: polar coordinates of planar Laplace noise."""
    radius = -np.log(randomness.uniform(size) * randomness.uniform(size)) / epsilon
    angle = randomness.uniform(size) * (2 * math.pi)
    return radius, angle
