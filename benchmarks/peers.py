"""Other libraries beside ours in the same run, each in processor time of one core.

They live in an environment of their own (``make peers``, ``requirements-peers.lock``), so that nothing of
theirs is among our dependencies. A library that is not there is named on standard error and has no row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks import peer_timings
from benchmarks.timing import Figure, best_of
from geoveil.channel.composed import DenseChannel
from geoveil.measure import mutual_information_bits
from geoveil.mechanism import RandomizedResponse, Rappor
from geoveil.optimal import optimal_mechanism
from geoveil.space.grid import Grid, Line

_PYTHON = Path(__file__).parent.parent / "build" / "peers" / "bin" / "python"
_SAME_LOSS = 1e-6


def peers() -> Iterator[Figure]:
    """k-RR, RAPPOR, mutual information and the optimal mechanism beside whoever has them."""
    if not _PYTHON.exists():
        print("the other libraries are missing: make peers installs them", file=sys.stderr)
        return
    done = subprocess.run(
        [str(_PYTHON), peer_timings.__file__], capture_output=True, text=True, check=True
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    for name, measured in found.items():
        if "missing" in measured:
            print(f"{name} is missing ({measured['missing']})", file=sys.stderr)
    yield from beside(found)


def beside(found: dict[str, dict[str, Any]]) -> Iterator[Figure]:
    """Our time for each work that some library was measured at."""
    cells = np.random.default_rng(1).integers(0, peer_timings.CELLS, peer_timings.PEOPLE)
    line, epsilon = Line(peer_timings.CELLS), peer_timings.EPSILON
    response, bits = RandomizedResponse(line, epsilon=epsilon), Rappor(line, epsilon=epsilon)
    joint = peer_timings.information_joint()
    prior = joint.sum(axis=1)
    channel = DenseChannel(line, joint / prior[:, None])
    works: dict[str, tuple[str, Callable[[], Any]]] = {
        "response_seconds": ("k-RR, k = 100, n = 10⁵", lambda: response.sample(cells)),
        "rappor_seconds": ("RAPPOR, k = 100, n = 10⁵", lambda: bits.sample(cells)),
        "information_seconds": (
            "mutual information, 100 × 100",
            lambda: mutual_information_bits(channel, prior),
        ),
    }
    for key, (name, ours) in works.items():
        for peer, measured in found.items():
            if key in measured:
                (seconds,) = best_of(ours, repeats=3, clock=process_time)
                yield _faster(name, seconds, f"{peer} {measured['version']}", measured[key])
    yield from _optimum(found.get("qif", {}))


def _optimum(measured: dict[str, Any]) -> Iterator[Figure]:
    """The optimal mechanism: time, loss, and whether what comes back keeps its promise."""
    rows, columns = peer_timings.SIDE
    grid, prior = Grid(rows=rows, columns=columns, cell_km=1.0), peer_timings.optimum_prior()
    for epsilon in peer_timings.EPSILONS:
        if f"optimum_seconds_{epsilon:g}" not in measured:
            continue
        start = process_time()
        best = optimal_mechanism(grid, prior, epsilon_per_km=epsilon)
        seconds = process_time() - start
        name = f"optimal mechanism, 48 cells, ε = {epsilon:g} per km"
        peer, theirs = f"qif {measured['version']}", measured[f"optimum_loss_{epsilon:g}"]
        yield _faster(name, seconds, peer, measured[f"optimum_seconds_{epsilon:g}"])
        loss = best.optimality.expected_loss
        yield Figure(
            f"{name}: loss, as a share of the peer's",
            seconds,
            loss / theirs,
            "×",
            1 + _SAME_LOSS,
            f"{peer}, whose matrix has ε·(1 + {measured[f'optimum_epsilon_{epsilon:g}'] / epsilon - 1:.1g})",
        )


def _faster(name: str, seconds: float, peer: str, theirs: float) -> Figure:
    return Figure(name, seconds, theirs / seconds, "× faster", 1.0, peer, theirs, True)
