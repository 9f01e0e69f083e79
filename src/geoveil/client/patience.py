"""How often and how long to try: exponential back-off with jitter, bounded in tries and in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from geoveil.arrays import count, positive
from geoveil.randomness import SYSTEM


def _jitter() -> float:
    return float(SYSTEM.uniform(1)[0])


@dataclass(frozen=True, slots=True)
class Patience:
    """At most ``attempts`` tries within ``total_s``; the k-th pause is random, up to ``first_s``·2ᵏ.

    A collector that names a time to wait is waited for, unless that is beyond ``total_s``.
    """

    attempts: int = 5
    total_s: float = 30.0
    first_s: float = 0.5
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = _jitter

    def __post_init__(self) -> None:
        count("attempts", self.attempts)
        positive("total_s", self.total_s)
        positive("first_s", self.first_s)

    def until(self, attempt: Callable[[], float | None]) -> bool:
        """Try until ``attempt`` returns ``None``; else it says how many seconds to wait at least.

        False when the tries or the time ran out.
        """
        last = self.clock() + self.total_s
        for k in range(self.attempts):
            least_s = attempt()
            if least_s is None:
                return True
            pause = max(least_s, self.first_s * 2**k * self.jitter())
            if k + 1 == self.attempts or self.clock() + pause > last:
                return False
            self.sleep(pause)
        return False
