"""The multiplier that meets a wanted distortion or a limit on the leakage."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import scipy

from geoveil.errors import InvalidInput

LARGEST, SMALLEST = 64.0, 1e-9
"""Multipliers between which the answer is sought; at the largest the counts come out unchanged."""
_STEP = 2e-4
"""How near the answer is sought, relative."""
_TRIES = 100
_NOTHING_BITS = 1e-9


class Measured(Protocol):
    """What a release is measured by."""

    @property
    def leakage_bits(self) -> float:
        """I(A; Ã), in bits."""

    @property
    def distortion(self) -> float:
        """E d(A, Ã), in people."""


Made = TypeVar("Made", bound=Measured)


class Calibration(Generic[Made]):
    """Builds releases at different multipliers until one meets a target from the safe side.

    Leakage grows and distortion falls with the multiplier, so the answer is found by Brent's method and
    moved to the side that keeps the target. On a straight piece of the curve one multiplier has many
    optimal releases; a target inside it is kept, not met.
    """

    def __init__(self, build: Callable[[float], Made]) -> None:
        self._build = build
        self._made: dict[float, Made] = {}

    def for_leakage(self, limit_bits: float) -> Made:
        """The release with the largest multiplier whose leakage is at most the limit."""
        return self._solve(lambda made: made.leakage_bits - limit_bits, safe_sign=-1)

    def for_distortion(self, wanted: float) -> Made:
        """The release with the smallest multiplier whose distortion is at most the wanted one."""
        made = self._solve(lambda made: wanted - made.distortion, safe_sign=1)
        if made.distortion > wanted:
            raise InvalidInput(
                f"distortion ({wanted:g}) must be larger; to change nothing, publish the counts"
            )
        return made

    def _at(self, logarithm: float) -> Made:
        """The release for a multiplier, by its logarithm, built once."""
        if logarithm not in self._made:
            self._made[logarithm] = self._build(math.exp(logarithm))
        return self._made[logarithm]

    def _solve(self, excess: Callable[[Made], float], *, safe_sign: int) -> Made:
        """Where ``excess``, which grows with the multiplier, is zero or just of the safe sign."""
        low, high = self._bracket(excess)
        if low == high:
            return self._at(low)
        middle = scipy.optimize.brentq(lambda at: excess(self._at(at)), low, high, xtol=_STEP)
        for tries in range(_TRIES):
            made = self._at(middle + safe_sign * tries * _STEP)
            if safe_sign * excess(made) >= 0:
                return made
        return self._at(low if safe_sign < 0 else high)

    def _bracket(self, excess: Callable[[Made], float]) -> tuple[float, float]:
        """Two logarithms with the zero between them; the same one twice at an end of the range."""
        at, step = 0.0, math.log(2)
        while excess(self._at(at)) < 0:
            if at >= math.log(LARGEST):
                return at, at
            at += step
        while excess(self._at(at)) >= 0:
            if at <= math.log(SMALLEST) or self._at(at).leakage_bits <= _NOTHING_BITS:
                return at, at
            at -= step
        return at, at + step
