"""Slots: times of a day or a week, or periods, that a campaign tells apart; each report names one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from geoveil.errors import InvalidFile, Unsupported

Every = Literal["day", "week", "once"]
"""Slots that come again every day, every week (which begins on Monday), or never."""
MOST_SLOTS = 168
"""The hours of a week."""
NAME_LENGTH = 40
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MINUTES = {"day": 1440, "week": 10_080}
LATEST_S = 1 << 40
"""No clock that tells a time shows a later one, in seconds since 1970."""
_END_S = 253_000_000_000
"""In the year 9987: calendars end soon after, each on a day of its own, and devices must not differ."""
_ZONE = re.compile(r"[A-Z][A-Za-z0-9_+-]{0,29}(/[A-Za-z0-9_+-]{1,30}){0,2}")
"""Names of the database begin with a capital; a machine's own time, such as ``localtime``, does not."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"})
"""Characters that no name has but the space: controls, formats, halves, private ones and separators. What
Unicode has assigned since this Python was made is none: older and newer devices read the same."""
_FIELDS = ("zone", "every", "names", "starts")


@dataclass(frozen=True)
class Slots:
    """Slots one after another: each begins at its start and ends where the next one begins.

    Starts are minutes of local wall-clock time in the day or the week, from 0; the last slot ends with it.
    With ``every="once"`` they are seconds since 1970, one more than there are slots, and outside of them
    there is none. An hour that clocks skip belongs to nobody, one that they repeat to the same slot twice.

    >>> night = Slots("Europe/Paris", "day", ("night", "day"), (0, 360))
    >>> night.at(1_700_000_000), night.at(1_700_020_000)
    (1, 0)
    """

    zone: str
    """A name of the IANA time zone database."""
    every: Every
    names: tuple[str, ...]
    starts: tuple[int, ...]

    @classmethod
    def of_hours(cls, zone: str, *, weekdays: bool) -> Slots:
        """The 24 hours of a day, or those of each day of the week.

        >>> Slots.of_hours("Europe/Paris", weekdays=True).names[-1]
        'Sunday 23'
        """
        names = [f"{hour:02}" for hour in range(24)]
        if weekdays:
            names = [f"{day} {hour}" for day in DAYS for hour in names]
        starts = range(0, 60 * len(names), 60)
        return cls(zone, "week" if weekdays else "day", tuple(names), tuple(starts))

    def in_words(self, slot: int) -> str:
        """One of them, and how many there are."""
        every = {"day": "of every day", "week": "of every week", "once": "in all"}[self.every]
        return f"“{self.names[slot]}”, one of {len(self.names)} {every}, {self.zone}"

    def at(self, time_s: float) -> int | None:
        """The number of the slot at a time in seconds since 1970; ``None`` outside all periods and years."""
        once = self.every == "once"
        first, end = (self.starts[0], self.starts[-1]) if once else (0, _END_S)
        if not first <= time_s < end:
            return None
        if once:
            return sum(start <= time_s for start in self.starts) - 1
        local = datetime.fromtimestamp(time_s, self.time_zone)
        minute = 60 * local.hour + local.minute
        if self.every == "week":
            minute += 1440 * local.weekday()
        return sum(start <= minute for start in self.starts) - 1

    @property
    def time_zone(self) -> ZoneInfo:
        """The zone, where this machine knows it."""
        try:
            if not _ZONE.fullmatch(self.zone):
                raise ValueError
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise Unsupported(
                f"zone ({self.zone}) must be a time zone that this machine knows; install tzdata"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "zone": self.zone,
            "every": self.every,
            "names": list(self.names),
            "starts": list(self.starts),
        }

    @classmethod
    def from_dict(cls, values: Any) -> Slots:
        """The slots that ``to_dict`` described; ``InvalidFile`` for anything else."""
        if not isinstance(values, Mapping) or set(values) != set(_FIELDS):
            raise InvalidFile("slots must have zone, every, names and starts")
        zone, every, names, starts = (values[field] for field in _FIELDS)
        if not isinstance(zone, str) or not _ZONE.fullmatch(zone):
            raise InvalidFile("the zone of slots must be a name such as Europe/Paris")
        if every not in get_args(Every):
            raise InvalidFile(f"slots must come every {', '.join(get_args(Every))}")
        if not isinstance(names, list) or not 1 <= len(names) <= MOST_SLOTS:
            raise InvalidFile(f"slots must have 1 to {MOST_SLOTS} names")
        if not all(map(_is_name, names)) or len(set(names)) < len(names):
            raise InvalidFile(f"names of slots must be different, of 1 to {NAME_LENGTH} characters")
        _check_starts(starts, every, len(names))
        return cls(zone, every, tuple(names), tuple(starts))


def _is_name(name: Any) -> bool:
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH:
        return False
    visible = all(sign == " " or unicodedata.category(sign) not in _UNSEEN for sign in name)
    return visible and name == name.strip()


def _check_starts(starts: Any, every: Every, slots: int) -> None:
    whole = isinstance(starts, list) and all(type(start) is int for start in starts)
    if not whole or sorted(set(starts)) != starts:
        raise InvalidFile("starts of slots must be whole numbers, each above the one before")
    needed = slots + (every == "once")
    if len(starts) != needed:
        raise InvalidFile(f"{slots} slots that come every {every} must have {needed} starts")
    if every == "once":
        if starts[0] < 0 or starts[-1] > LATEST_S:
            raise InvalidFile("periods must lie between 1970 and the year 36812")
    elif starts[0] != 0 or starts[-1] >= _MINUTES[every]:
        raise InvalidFile("starts of slots must begin with the day or the week and lie inside it")
