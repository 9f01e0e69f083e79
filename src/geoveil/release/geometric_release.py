"""Counts of many people at many places: exact geometric noise on each, and valid counts again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from geoveil.arrays import ArrayLike, IntArray, count, numbers, positive
from geoveil.channel.words import rounded_up
from geoveil.errors import InvalidInput
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.release.comparator import draw_nearest

_STEPS = 1 << 24
"""The rate of the noise is a whole number of 2⁻²⁴ per person, rounded down."""
_LEAST = 1e-5
_MOST = 200.0
_MOST_PEOPLE = 1 << 40


@dataclass(frozen=True)
class GeometricRelease:
    """Geometric noise on every count, then the nearest counts that sum to the number of people.

    Law: z_i = a_i + noise, P(noise = k) ∝ e^{−|k|·s/2²⁴}, s the largest whole number with
    2·timestamps·s/2²⁴ ≤ ε; then each z_i is taken into 0 … M, and the nearest vector of whole numbers that
    sums to M is released, ties at random. M, the number of people at each timestamp, is published as it is.
    Guarantee: whatever anybody knows, a person who is elsewhere, at all timestamps, makes no release more
    than e^ε times as likely or as unlikely: two counts change by one at each. What follows the noise sees
    the noisy counts and M only. Nothing is promised about whether somebody is counted at all.
    Draws: exact, in whole numbers, so that no rounding of a float can tell.
    Cost: linear in the counts but for sorting those of a timestamp; any number of places and people.
    Reference: Ghosh, Roughgarden & Sundararajan 2012 (the law); Canonne, Kamath & Steinke 2020 (draws).

    >>> import geoveil as gv
    >>> release = gv.GeometricRelease(epsilon=1.0)
    >>> published = release.sample([120, 45, 0, 835])
    >>> int(published.sum()), bool((published >= 0).all())
    (1000, True)
    """

    epsilon: float
    timestamps: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "timestamps", count("timestamps", self.timestamps))
        if not _LEAST <= self.epsilon / self.timestamps <= _MOST:
            raise InvalidInput(
                f"epsilon ({self.epsilon:g}, over {self.timestamps} timestamps) must be {_LEAST:g} … "
                f"{_MOST:g} for each of them"
            )

    @property
    def steps(self) -> int:
        """The rate of the noise in steps of 2⁻²⁴ per person, never above what ε allows."""
        return math.floor(Fraction(self.epsilon) * _STEPS / (2 * self.timestamps))

    @property
    def exact_epsilon(self) -> Fraction:
        """The loss of the law as it is drawn, at most ε."""
        return Fraction(2 * self.timestamps * self.steps, _STEPS)

    @property
    def mean_noise(self) -> float:
        """By how many people the noise moves a count on average, before the counts are made valid again."""
        return 1.0 / math.sinh(self.steps / _STEPS)

    def sentence(self) -> str:
        """The promise in words."""
        at_all = "" if self.timestamps == 1 else f", at all {self.timestamps} timestamps,"
        return (
            f"whatever is known before, one person elsewhere{at_all} changes the probability of a release by "
            f"at most e^{rounded_up(self.epsilon, 3)}"
        )

    def sample(self, counts: ArrayLike, *, randomness: Randomness = SYSTEM) -> IntArray:
        """Counts (places,) or (timestamps, places) that may be published; each call is a release.

        Releases of the same counts add up: two of them promise twice as much loss.
        """
        true = _checked(counts, self.timestamps)
        source = checked_randomness(randomness)
        noise = discrete_laplace(self.steps, _STEPS, true.size, source).reshape(true.shape)
        people = true.sum(axis=-1)
        noisy = np.clip(true + noise, 0, people[..., None])
        return draw_nearest(noisy, people, source)


def _checked(counts: ArrayLike, timestamps: int) -> IntArray:
    """Whole counts, one row for each timestamp; the message never repeats a count."""
    values = numbers("counts", counts, "whole numbers, a row for each timestamp")
    rows = 1 if values.ndim == 1 else values.shape[0] if values.ndim == 2 else 0
    if rows != timestamps or values.shape[-1] == 0:
        raise InvalidInput(
            f"counts (shape {values.shape}) must be one number per place, in {timestamps} rows, one per "
            "timestamp"
        )
    if not np.isfinite(values).all() or (values != np.round(values)).any() or (values < 0).any():
        raise InvalidInput("counts must be whole numbers of at least 0; round them before")
    if (values > _MOST_PEOPLE).any() or (values.sum(axis=-1) > _MOST_PEOPLE).any():
        raise InvalidInput(f"counts must sum to at most {_MOST_PEOPLE:,} people")
    return values.astype(np.int64)


# --- Exact draws: nothing but whole numbers, and bits for every one of them


def discrete_laplace(steps: int, of: int, size: int, randomness: Randomness) -> IntArray:
    """``size`` whole numbers with P(k) ∝ e^{−|k|·steps/of}, exactly.

    A number x ≥ 0 with P(x) ∝ e^{−x/of} is u + of·v, u uniform below ``of`` and kept with probability
    e^{−u/of}, v geometric with e^{−1}. Then x // steps has P(y) ∝ e^{−y·steps/of}, and a sign makes both
    sides, −0 refused.
    Reference: Canonne, Kamath & Steinke 2020, Algorithm 2.
    """
    sample = np.empty(size, dtype=np.int64)
    missing = np.arange(size)
    while missing.size:
        part = randomness.below(of, missing.size)
        accepted = exponential_chance(part, of, randomness)
        whole = _geometric(missing.size, randomness)
        amount = (part + of * whole) // steps
        negative = randomness.below(2, missing.size) == 1
        good = accepted & ~(negative & (amount == 0))
        sample[missing[good]] = np.where(negative, -amount, amount)[good]
        missing = missing[~good]
    return sample


def exponential_chance(parts: IntArray, of: int, randomness: Randomness) -> np.ndarray:
    """Events of probability e^{−parts/of}, 0 ≤ parts ≤ of, exactly.

    The first k at which an event of probability parts/(of·k) does not happen is odd with that probability
    (von Neumann): each is one of parts/of and one of 1/k together.
    """
    odd = np.zeros(parts.size, dtype=np.bool_)
    going, turn = np.arange(parts.size), 1
    while going.size:
        happened = randomness.below(of, going.size) < parts[going]
        happened &= randomness.below(turn, going.size) == 0
        odd[going[~happened]] = turn % 2 == 1
        going, turn = going[happened], turn + 1
    return odd


def _geometric(size: int, randomness: Randomness) -> IntArray:
    """How often an event of probability e^{−1} happens before it does not."""
    times = np.zeros(size, dtype=np.int64)
    going = np.arange(size)
    while going.size:
        again = exponential_chance(np.ones(going.size, dtype=np.int64), 1, randomness)
        going = going[again]
        times[going] += 1
    return times
