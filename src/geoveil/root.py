"""One way to solve for a parameter: bracketed, with few evaluations, and always on the safe side."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import scipy

from geoveil.errors import InvalidInput

Result = TypeVar("Result")

_AIM = 0.25
"""Where in the tolerance the search aims, counted from zero: what misses it by a little is safe."""
_LOOKS = 4
"""For so many evaluations at most a law of the excess is believed."""


@dataclass(frozen=True)
class Trial(Generic[Result]):
    """What was built at a parameter, and by how much it exceeds its limit: safe where that is ≤ 0."""

    at: float
    result: Result
    excess: float


class NeverSafe(InvalidInput):
    """No parameter of the range is safe; ``excess`` is the one at its safe end."""

    def __init__(self, at: float, excess: float) -> None:
        super().__init__(
            f"the range of a parameter must hold a safe one; even at {at:g} the limit is exceeded "
            f"by {excess:g}"
        )
        self.at, self.excess = at, excess


def safe_root(
    build: Callable[[float], Result],
    excess: Callable[[Result], float],
    start: Sequence[float],
    *,
    within: tuple[float, float],
    tolerance: float,
    step: float = 1e-12,
    stride: float = math.log(2),
    growth: float = 2.0,
    linear: bool = False,
    power: float | None = None,
    end_excess: Callable[[], float] | None = None,
) -> Trial[Result]:
    """The trial nearest to where ``excess(build(x))`` crosses zero among those where it is at most zero.

    ``start`` says where to begin, ``within`` where x may lie; both in order from the unsafe side to the safe
    one. The answer is one that was evaluated, so its excess is never above zero. It is at least
    −``tolerance``; or an x that is ``step`` farther is unsafe (a jump); or the whole range is safe, and
    its unsafe end is the answer. Where nothing is safe, :class:`NeverSafe` is raised after one look at
    the safe end; ``end_excess()`` is asked instead where building there takes long.
    The excess should be relative: values beyond ±1 count as ±1, and NaN as unsafe. Lengths (``step`` and
    ``stride``) are those of log x, or of x itself where ``linear``. Where the excess is known to be about
    (x/x₀)^``power`` − 1, with x₀ unknown, that is believed for a few looks, each mended by the last two.
    Cost: strides from ``stride`` on, each ``growth`` times the last, until there is a bracket; then Brent's
    method.

    >>> root = safe_root(lambda x: x, lambda x: x * x - 2, [1.0], within=(9.0, 0.1), tolerance=1e-6)
    >>> 0 <= 2 - root.at**2 <= 1e-6
    True
    """
    search = _Search(build, excess, tolerance, linear)
    if power is not None:
        start = search.aim(start, within, power)
    at, unsafe = search.begin(start, within[1], end_excess)
    stride = math.copysign(stride, within[1] - within[0])  # towards the safe end
    while not search.value(at) <= 0:
        if at == within[1]:
            raise NeverSafe(at, search.value(at))
        unsafe, at = at, search.moved(at, stride, within)
        stride *= growth
    while unsafe is None and search.value(at) < -tolerance and at != within[0]:
        at = search.moved(at, -stride, within)
        stride *= growth
        unsafe = None if search.value(at) <= 0 else at
    if unsafe is not None:
        search.close_in(unsafe, step)
    assert search.safe is not None
    return search.safe


class _Search(Generic[Result]):
    """The values so far, each evaluated once, and the latest safe trial: the nearest to the crossing."""

    def __init__(
        self,
        build: Callable[[float], Result],
        excess: Callable[[Result], float],
        tolerance: float,
        linear: bool,
    ) -> None:
        self._build, self._excess, self._tolerance = build, excess, tolerance
        self._linear = linear
        self._values: dict[float, float] = {}
        self.safe: Trial[Result] | None = None

    def value(self, at: float) -> float:
        if at not in self._values:
            result = self._build(at)
            self._values[at] = self._excess(result)
            if self._values[at] <= 0:
                self.safe = Trial(at, result, self._values[at])
        return self._values[at]

    def aim(
        self, start: Sequence[float], within: tuple[float, float], power: float
    ) -> Sequence[float]:
        """``start`` after a few steps of the secant method: the latest places on both sides, if known."""
        at, before = start[0], None
        sides: dict[bool, float] = {}  # by whether they are safe
        for _ in range(_LOOKS):
            value = self.value(at)
            sides[value <= 0] = at
            if -self._tolerance <= value <= 0 or not -1 < value < math.inf:
                break
            here = math.log(at), math.log1p(value)
            if before is not None:
                slope = (here[1] - before[1]) / (here[0] - before[0])
                power = min(max(slope, power / 2), 2 * power)
            before, target = here, math.log1p(-_AIM * self._tolerance)
            at = self.moved(at, (target - here[1]) / power, within)
            if at in self._values:
                break
        unsafe = [sides[False]] if False in sides else []
        return [*unsafe, *([sides[True]] if True in sides else start[1:])]

    def begin(
        self, start: Sequence[float], safe_end: float, end_excess: Callable[[], float] | None
    ) -> tuple[float, float | None]:
        """The first safe place of ``start``, or its last one, and the unsafe place before that."""
        unsafe = None
        for at in start:
            if self.value(at) <= 0:
                return at, unsafe
            unsafe = at
        excess = self.value(safe_end) if end_excess is None else end_excess()
        if not excess <= 0:
            raise NeverSafe(safe_end, excess)
        return start[-1], unsafe

    def moved(self, at: float, by: float, within: tuple[float, float]) -> float:
        beyond = at + by if self._linear else at * math.exp(max(-700.0, min(by, 700.0)))
        return min(max(beyond, min(within)), max(within))

    def close_in(self, unsafe: float, step: float) -> None:
        """Brent's method between the safe trial (0) and an unsafe place (1), down to ``step``."""
        assert self.safe is not None
        safe = self.safe.at
        length = abs(unsafe - safe if self._linear else math.log(unsafe / safe))
        if self.safe.excess >= -self._tolerance or length <= step:
            return

        def aimed(part: float) -> float:
            if part in (0.0, 1.0):
                at = unsafe if part else safe
            elif self._linear:
                at = safe + part * (unsafe - safe)
            else:
                at = safe * (unsafe / safe) ** part
            value = self.value(at)
            if -self._tolerance <= value <= 0:
                return 0.0  # here Brent's method ends
            return max(-1.0, min(1.0, value + _AIM * self._tolerance))  # so NaN becomes 1

        # It keeps a bracket: when it ends, the latest safe trial lies within a step of an unsafe one.
        precision = 4 * sys.float_info.epsilon
        scipy.optimize.brentq(aimed, 0.0, 1.0, xtol=step / length, rtol=precision, disp=False)
