"""Counts of several server processes as those of one service: whichever is asked tells the sums.

The processes share a port, and whoever asks meets any of them. Each keeps its counts in a file of its own
in a folder that they share, when it is asked and once a second, and adds what the others have kept. A
counter that was told never goes back: what a process tells of itself is in its file before, and one that
takes the place of another goes on with the counts of that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from geoveil.files import replaced_file
from geoveil.server.logs import Metrics


@dataclass(frozen=True, slots=True)
class PlaceOfProcess:
    """Which of several processes this is, and where they keep their counts."""

    folder: Path
    number: int

    @property
    def file(self) -> Path:
        return self.folder / f"{self.number}.json"


class SharedMetrics:
    """The counts of this process, and of those beside it where there are any."""

    def __init__(self, own: Metrics, place: PlaceOfProcess | None = None) -> None:
        self._own = own
        self._place = place
        self._writing = Lock()
        if place is not None:
            for before in _read(place.file):
                own.add(before)

    @property
    def alone(self) -> bool:
        """Whether there is one process, so that nothing is read or written to tell its counts."""
        return self._place is None

    def keep(self) -> None:
        """Write down the counts of this process, for the others and for whoever takes its place."""
        if self._place is None:
            return
        full = suppress(OSError)  # where the disk is, the sums of others are late
        with self._writing, full, replaced_file(self._place.file) as file:
            file.write(json.dumps(self._own.values()).encode())

    def text(self) -> str:
        """The counts of all in the text format of Prometheus."""
        told = self._own
        if self._place is not None:
            self.keep()
            told = Metrics()
            told.add(own := self._own.values())
            gauges = dict(own["gauges"])
            for path in sorted(self._place.folder.glob("[0-9]*.json")):
                for other in _read(path) if path != self._place.file else ():
                    told.add(other)
                    for name, value in other["gauges"].items():
                        gauges[name] = gauges.get(name, 0) + value
            told.gauges = {
                name: (text, partial(gauges.__getitem__, name))
                for name, (text, _) in self._own.gauges.items()
            }
        return "\n".join([*told.lines(), ""])


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """What a process has kept; nothing where it has kept nothing yet."""
    with suppress(OSError, ValueError):
        yield json.loads(path.read_bytes())
