"""The participant page in Chromium: how long a rule is checked, and from the click to the receipt."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from web import node_tools

from benchmarks.timing import Figure
from server.live import LYON, Live

REPEATS = 3
_SOUTH, _WEST = 48.80, 2.25
_DEGREES = {22: (0.0969, 0.1474), 64: (0.2843, 0.4341)}
"""Rows → the height and the width of a box of so many half kilometres each way."""
_LINES_MS = {22: 500.0, 64: 3000.0}
_RECEIPT_MS = 300.0
_DESIGN_S = 300.0


def pages() -> Iterator[Figure]:
    """Left out, with the reason, where the pages cannot be built or there is no browser."""
    reason = node_tools.why_no_browser()
    if reason:
        print(f"pages left out: {reason}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder, Live(Path(folder)) as live:
        campaigns = {rows: _campaign(live, rows) for rows in _DEGREES}
        cells = {rows: _cells(live, name) for rows, name in campaigns.items()}
        given = ("measure.mjs", live.url, str(REPEATS), *campaigns.values())
        done = node_tools.run_node(node_tools.PAGES, *given)
    if done.returncode:
        raise RuntimeError(done.stdout)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    for rows, name in campaigns.items():
        check_ms, receipt_ms = found[name]["check_ms"], found[name]["receipt_ms"]
        what = f"in Chromium, {cells[rows]:,} cells, camouflage 0.5"
        busy_ms = found[name]["worker_ms"]
        yield Figure(
            f"a rule checked in a worker {what}",
            check_ms / 1000,
            check_ms,
            "ms",
            _LINES_MS[rows],
            "processor time of that worker, all of it",
            busy_ms / 1000 if busy_ms else None,
        )
        yield Figure(f"click to receipt {what}", receipt_ms / 1000, receipt_ms, "ms", _RECEIPT_MS)


def _campaign(live: Live, rows: int) -> str:
    high, wide = _DEGREES[rows]
    box = [_SOUTH, _WEST, _SOUTH + high, _WEST + wide]
    settings = {**LYON, "id": f"city-{rows}", "box": box, "cell_km": 0.5, "epsilon_per_km": 2.0}
    with live.operator() as operator:
        made = operator.post("/api/campaigns", json=settings, timeout=_DESIGN_S)
    return str(made.raise_for_status().json()["id"])


def _cells(live: Live, name: str) -> int:
    space: dict[str, Any] = live.mechanism(name)["space"]
    return int(space["rows"] * space["columns"])
