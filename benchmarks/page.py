"""The page of figures: each set under its own heading, with when and where it was measured.

A set that is measured again replaces its own part of the page and leaves the others, so that a long run can
be made in pieces and goes on where it was broken off.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import scipy

BEGIN = "## Figures\n"


def put(page: Path, name: str, text: str, order: Sequence[str]) -> None:
    """Write one set into the page, in the order of the sets; what is above the figures stays.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> old = "# Speed\\n\\n## Figures\\n\\nAll.\\n\\n### `b`\\n\\nold\\n\\n### `c`\\n\\nkept\\n"
    >>> with TemporaryDirectory() as folder:
    ...     page = Path(folder) / "page.md"
    ...     _ = page.write_text(old)
    ...     put(page, "b", "new", ["a", "b", "c"])
    ...     put(page, "a", "first", ["a", "b", "c"])
    ...     page.read_text().split("\\n\\n")[2:]
    ['All.', '### `a`', 'first', '### `b`', 'new', '### `c`', 'kept\\n']
    """
    above, found, figures = page.read_text(encoding="utf-8").partition(BEGIN)
    if not found:
        raise ValueError(f"page ({page}) must have the heading {BEGIN.strip()!r}")
    first, *parts = figures.split("\n### ")
    sets = dict(part.split("\n", 1) for part in parts)
    sets[f"`{name}`"] = f"\n{text}\n"
    places = {f"`{each}`": place for place, each in enumerate(order)}
    kept = sorted(sets, key=lambda heading: places.get(heading, len(places)))
    written = "\n\n".join(f"### {heading}\n\n{sets[heading].strip()}" for heading in kept)
    page.write_text(f"{above}{BEGIN}\n{first.strip()}\n\n{written}\n", encoding="utf-8")


def circumstances(load: float | None = None) -> str:
    """When and where a set is measured: the date, the processor, how busy it was at the start."""
    now = datetime.now(UTC)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    busy = "" if load is None else f" with a load of {load:.1f} when it began"
    python = ".".join(map(str, sys.version_info[:2]))
    return (
        f"{now.day} {now:%B %Y}, {cores} cores of an {platform.machine()} machine{busy}, Python {python}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}."
    )


def load_now() -> float | None:
    """How many processes wanted a core in the last minute, where the system says it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
