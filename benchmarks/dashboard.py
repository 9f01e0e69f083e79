"""The dashboard in Chromium: how soon the map is there, and what a frame costs while it is moved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from web import node_tools

from benchmarks.timing import Figure

_PAINTED, _MOVED = 32, 256
"""Cells a side: of a usual campaign, and of the largest map."""
_PAINT_MS, _FRAME_MS = 1000.0, 50.0
_TIMES = 3


def dashboard() -> Iterator[Figure]:
    """With the service's answers played; left out, with the reason, where there is no browser."""
    reason = node_tools.why_no_browser()
    if reason:
        print(f"dashboard left out: {reason}", file=sys.stderr)
        return
    few, many = best(_PAINTED), best(_MOVED)
    yield Figure(
        f"first paint of the map, {_PAINTED**2:,} cells", few["paint_ms"] / 1000, few["paint_ms"], "ms",
        _PAINT_MS, f"the same with {_MOVED**2:,} cells", many["paint_ms"] / 1000,
    )  # fmt: skip
    yield Figure(
        f"script in the longest of {many['frames']} frames while panning, {_MOVED**2:,} cells",
        many["frame_ms"] / 1000, many["frame_ms"], "ms",
        _FRAME_MS, f"the same with {_PAINTED**2:,} cells", few["frame_ms"] / 1000,
    )  # fmt: skip


def best(side: int) -> dict[str, Any]:
    """The soonest paint and the shortest of the longest frames, of three times each."""
    times = [measured(side) for _ in range(_TIMES)]
    return {name: min(each[name] for each in times) for name in times[0]}


def measured(side: int) -> dict[str, Any]:
    """What the browser says about a map of so many cells a side."""
    folder, _ = node_tools.node_folder()
    command = [
        str(folder / "node"),
        "dashboard_measure.mjs",
        str(node_tools.BUILT),
        str(side),
    ]
    done = subprocess.run(
        command, cwd=node_tools.PAGES, capture_output=True, text=True, check=True, timeout=300
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
