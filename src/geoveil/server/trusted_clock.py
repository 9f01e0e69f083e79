"""The time, as far as it can be trusted: a clock that is put wrong for a moment moves nothing.

Whoever can move a machine's clock, a broken time server included, could otherwise close every round, date
documents years ahead and have ids forgotten that are still needed, within a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import Any

JUMP_S = 5.0
"""A difference beyond this between two clocks that began together is no correction but a jump."""
SETTLE_S = 30.0
"""How long a clock that jumped must go on evenly before its time is taken."""
SLOW_S = 1.0
"""An answer about the time that took longer tells nothing."""
CERTAIN_S = 86_400.0
"""How long a clock must have gone on evenly before anything is done that cannot be taken back."""


uptime_s: Callable[[], float] = time.monotonic
"""A clock that nobody can set, and that goes on while the machine sleeps, where there is one."""
if hasattr(time, "CLOCK_BOOTTIME"):
    uptime_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class TrustedClock:
    """The machine's time, checked at every look against a clock that nobody can set.

    Small corrections are followed. After a jump the time goes on as before; once the clock has gone on
    evenly for ``SETTLE_S`` seconds its time is taken, for it may as well have been put right.
    ``seen_s`` is when a service last looked at the same store: a start within a day after that is no
    jump. ``shared`` is the clock of a database that services on several machines have in common: all go by
    that, as of the last :meth:`compare`, or each would replace the rounds of the others as expired or not yet
    begun. ``tell`` is told ``clock-jumped``, ``clock-back`` and ``clock-taken``, and ``clock-apart`` where
    the machine's own clock is another than the shared one.

    >>> wall, uptime = [1000.0], [5.0]
    >>> clock = TrustedClock(wall=lambda: wall[0], uptime=lambda: uptime[0])
    >>> wall[0], uptime[0] = 300_000_000.0, 6.0
    >>> clock(), clock.in_doubt
    (1001.0, True)
    >>> wall[0], uptime[0] = 1015.0, 20.0
    >>> clock(), clock.in_doubt
    (1015.0, False)
    """

    def __init__(
        self,
        *,
        seen_s: float | None = None,
        wall: Callable[[], float] = time.time,
        uptime: Callable[[], float] = uptime_s,
        shared: Callable[[], float | None] = lambda: None,
        tell: Callable[..., None] = lambda name, **facts: None,
    ) -> None:
        self._wall, self._uptime, self._shared, self._tell = wall, uptime, shared, tell
        self._lock = RLock()
        self.apart_s = self._logged_apart_s = 0.0
        """How far the machine's clock is ahead of the shared one: at the last look, and as last logged."""
        self.compare()
        now_s = uptime()
        self._ahead_s = wall() - self.apart_s - now_s
        """How far the trusted time is ahead of the uptime."""
        self._jumped: tuple[float, float] | None = None
        """How far the clock is ahead since it jumped, and the uptime then."""
        self._even_since_s = now_s - CERTAIN_S
        if seen_s is not None and not -JUMP_S <= now_s + self._ahead_s - seen_s <= CERTAIN_S:
            self._jump(now_s, self._ahead_s)
            self._even_since_s = now_s

    def __call__(self) -> float:
        """The time now, in seconds since 1970."""
        with self._lock:
            now_s = self._uptime()
            ahead_s = self._wall() - self.apart_s - now_s
            if self._jumped is not None:
                self._settle(now_s, ahead_s, *self._jumped)
            elif abs(ahead_s - self._ahead_s) <= JUMP_S:
                self._ahead_s = ahead_s
            else:
                self._jump(now_s, ahead_s)
            return now_s + self._ahead_s

    def compare(self) -> None:
        """Look at the clock that others share, where there is one; until the next look ours goes on."""
        asked_s = self._uptime()
        theirs_s = self._shared()
        took_s = self._uptime() - asked_s
        if theirs_s is None or took_s > SLOW_S:
            return
        with self._lock:
            self.apart_s = self._wall() - (theirs_s + took_s / 2)
            if abs(self.apart_s - self._logged_apart_s) > JUMP_S:
                self._logged_apart_s = self.apart_s
                self._say("clock-apart", by_s=round(self.apart_s))

    @property
    def in_doubt(self) -> bool:
        """Whether the clock has just jumped: nothing is closed, opened or forgotten."""
        with self._lock:
            self()
            return self._jumped is not None

    @property
    def certain(self) -> bool:
        """Whether the clock has gone on evenly for a day, stops of the service included."""
        with self._lock:
            self()
            return self._jumped is None and self._uptime() - self._even_since_s >= CERTAIN_S

    def _settle(self, now_s: float, ahead_s: float, jumped_s: float, since_s: float) -> None:
        """Take the time of a clock that jumped, where it has gone on evenly for long enough."""
        if abs(ahead_s - jumped_s) > JUMP_S:
            if abs(ahead_s - self._ahead_s) <= JUMP_S:
                self._jumped, self._ahead_s = None, ahead_s
                self._say("clock-back")
            else:
                self._jump(now_s, ahead_s)
        elif now_s - since_s >= SETTLE_S:
            self._jumped, self._ahead_s, self._even_since_s = None, ahead_s, now_s
            self._say("clock-taken")

    def _jump(self, now_s: float, ahead_s: float) -> None:
        self._jumped = (ahead_s, now_s)
        self._say("clock-jumped", by_s=round(ahead_s - self._ahead_s))

    def _say(self, name: str, **facts: Any) -> None:
        self._tell(name, level="warning", **facts)
