"""Times in tables: what their columns are called, and what an entry says."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime
from typing import Any

TIME_NAMES = ("time", "timestamp", "datetime", "date_time", "when")


def time_of(value: Any) -> datetime | None:
    """The time that an entry says; ``None`` where it says none, as a day without an hour.

    >>> time_of("2026-05-01T08:30Z").hour, time_of("2026-05-01"), time_of("soon")
    (8, None, None)
    """
    if isinstance(value, datetime):
        return value
    text = (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()
    with suppress(ValueError):
        date.fromisoformat(text)
        return None
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    return None
