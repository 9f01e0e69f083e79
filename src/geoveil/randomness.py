"""Where random bits come from: the operating system for people, a seed for simulations.

The two never stand in for each other. Everything that samples takes ``randomness=``, its default is
the operating system's generator, and a seeded source exists only where somebody wrote ``seeded(n)``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, checked_seed, count
from geoveil.errors import InvalidInput, RandomnessFailed

_HALF_STEP = 2.0**-53

_WORDS = ((2**4, np.uint8, np.uint16), (2**12, np.uint16, np.uint32), (2**32, np.uint32, np.uint64))
"""For whole numbers below a bound: the words to draw, and words twice as wide to multiply in."""


class Randomness(ABC):
    """A source of uniform random bits; every other draw is made from them here."""

    @abstractmethod
    def bytes(self, size: int) -> bytes:
        """Exactly ``size`` random bytes, or :class:`RandomnessFailed`."""

    def words(self, size: int, dtype: npt.DTypeLike = np.uint64) -> npt.NDArray[np.unsignedinteger]:
        """``size`` unsigned integers, uniform over the whole range of ``dtype``."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.bytes(size * kind.itemsize), dtype=kind)

    def uniform(self, size: int) -> FloatArray:
        """``size`` numbers in the open interval (0, 1): the midpoints of 2⁵² equal parts.

        Odd multiples of 2⁻⁵³, every one a double: no rounding, so never 1.
        """
        top = self.words(size) >> np.uint64(12)
        return top.astype(np.float64) * 2.0**-52 + _HALF_STEP

    def below(self, bound: int, size: int) -> IntArray:
        """``size`` whole numbers, exactly uniform in ``0 … bound − 1`` (by rejection)."""
        bound = count("bound", bound, most=2**32)
        small, wide = next(pair for limit, *pair in _WORDS if bound <= limit)
        bits = 8 * np.dtype(small).itemsize
        # Multiply and keep the high half; low halves below 2^bits mod bound would make it uneven.
        uneven = (1 << bits) % bound
        product = self.words(size, small).astype(wide) * wide(bound)
        if uneven:
            refused = np.flatnonzero(product.astype(small) < uneven)
            while refused.size:
                product[refused] = self.words(refused.size, small).astype(wide) * wide(bound)
                refused = refused[product[refused].astype(small) < uneven]
        return (product >> wide(bits)).astype(np.int64)

    def chance(self, probability: npt.ArrayLike, size: int) -> npt.NDArray[np.bool_]:
        """``size`` independent events of the given probability (one, or one each), exact to 2⁻⁶¹.

        Eight bits decide all but one draw in 256; the undecided ones are settled with 53 more.
        """
        scaled = np.asarray(probability, dtype=np.float64) * 256.0
        if size and not (scaled.min() >= 0 and scaled.max() <= 256):
            raise InvalidInput("probability must lie in [0, 1]")
        whole = np.minimum(np.floor(scaled), 255).astype(np.uint8)
        top = self.words(size, np.uint8)
        happened = top < whole
        undecided = np.flatnonzero(top == whole)
        if undecided.size:
            rest = np.broadcast_to(scaled - whole, size)[undecided]
            happened[undecided] = self.uniform(undecided.size) < rest
        return happened


class SystemRandomness(Randomness):
    """The operating system's cryptographic generator. If it fails, nothing is returned."""

    def bytes(self, size: int) -> bytes:
        try:
            data = os.urandom(size)
        except (OSError, NotImplementedError) as failure:
            raise RandomnessFailed(
                "the operating system's generator failed; nothing was sampled"
            ) from failure
        if len(data) != size:
            raise RandomnessFailed(
                "the operating system's generator gave too few bytes; nothing was sampled"
            )
        return data

    def __repr__(self) -> str:
        return "SystemRandomness()"


class SeededRandomness(Randomness):
    """A reproducible generator for simulations and tests; never for a real person's report."""

    def __init__(self, seed: int) -> None:
        self.seed = checked_seed(seed)
        self.generator = np.random.Generator(np.random.PCG64(self.seed))

    def bytes(self, size: int) -> bytes:
        return self.generator.bytes(size)

    def __repr__(self) -> str:
        return f"SeededRandomness(seed={self.seed})"


SYSTEM = SystemRandomness()


def seeded(seed: int) -> SeededRandomness:
    """A reproducible source of randomness, for simulations and tests only.

    Its bits are those of ``numpy.random.default_rng(seed)``. Draw the people of a simulation with another
    seed: with the same one, the numbers that put somebody in a cell are those of their noise.

    >>> seeded(7).below(10, 5).tolist() == seeded(7).below(10, 5).tolist()
    True
    """
    return SeededRandomness(seed)


def seeded_for(seed: int, *place: int) -> SeededRandomness:
    """A reproducible source for one place in a larger work: the same whoever does that part of it.

    >>> seeded_for(7, 1, 2).bytes(4) == seeded_for(7, 1, 2).bytes(4) != seeded_for(7, 1, 3).bytes(4)
    True
    """
    entropy = np.random.SeedSequence([checked_seed(seed), *place])
    high, low = entropy.generate_state(2, np.uint64).tolist()
    return SeededRandomness(high << 64 | low)


def checked_randomness(randomness: object) -> Randomness:
    """The source itself, or an error; what everything that samples asks first."""
    if not isinstance(randomness, Randomness):
        raise InvalidInput(
            f"randomness ({randomness!r}) must be a source of random bits; leave it out, or use "
            "gv.seeded(7) in simulations"
        )
    return randomness
