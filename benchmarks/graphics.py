"""``python -m benchmarks.graphics``: steps of Blahut–Arimoto and EM on a graphics card and on the processor.

Each step is timed beside its own transforms alone, beside a copy of the vectors it must at least read and
write, and beside the same step on the processor of the same machine; the two results are compared.
``--library torch|cupy`` chooses the arrays; ``--device cpu`` times the processor alone, with its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.channel.backend import Backend, Torus, backend_of, host_array
from geoveil.channel.kernel import LatticeKernel
from geoveil.channel.operator import Operator
from geoveil.estimate.objective import Objective, Point, em_path
from geoveil.mechanism.elastic import exponential_kernel

_BETA = 1.0
_REPORTS = 10_000_000
_COMPARED = 5
"""Steps after which the two results are compared."""


@dataclass(frozen=True)
class Row:
    """One kind of step at one size; seconds."""

    cells: str
    step: str
    here: str
    seconds: float
    transforms: float | None
    copies: float | None
    processor: float | None
    apart: float | None
    """The largest difference of the two results, relative to the largest value."""


def problems(side: int) -> Iterator[tuple[str, Operator, FloatArray]]:
    """Blahut–Arimoto and EM on a square of cells: a name, an operator and weights of observations."""
    grid = gv.Grid(rows=side, columns=side, cell_km=1.0)
    draws = np.random.default_rng(side)
    crowd = draws.gamma(0.3, size=grid.size)
    crowd /= crowd.sum()
    yield "Blahut–Arimoto", exponential_kernel(grid, _BETA), crowd
    mechanism = gv.Exponential(grid, epsilon_per_km=2 * _BETA)
    law = np.maximum(mechanism._push(crowd), 0.0)
    yield "EM", mechanism, draws.poisson(_REPORTS * law / law.sum()).astype(np.float64)


def timed(operator: Operator, weights: FloatArray, steps: int, warm: int = 2) -> float:
    """Seconds a step, with likelihood and certificate at each, as every ascent has them."""
    path = em_path(Objective(operator, weights), np.full(operator.shape[0], 1 / operator.shape[0]))
    for point in islice(path, warm):
        _looked_at(point)
    begun = perf_counter()
    for point in islice(path, steps):
        _looked_at(point)
    return (perf_counter() - begun) / steps


def _looked_at(point: Point) -> tuple[float, float]:
    return float(point.log_likelihood), float(point.certificate)


def reached(operator: Operator, weights: FloatArray) -> FloatArray:
    """Where an ascent is after some steps."""
    objective = Objective(operator, weights)
    start = np.full(operator.shape[0], 1 / operator.shape[0])
    return host_array(next(islice(em_path(objective, start), _COMPARED, None)).theta)


def transforms_alone(kernel: LatticeKernel, backend: Backend, finish: Callable[[], None]) -> float:
    """Seconds for the four transforms of one step."""
    torus = Torus(backend, kernel._padded)
    values = backend.put(np.random.default_rng(1).random(kernel.box))

    def once() -> None:
        torus.values(torus.transformed(values))
        torus.values(torus.transformed(values))

    return _repeated(once, finish, 10)


def copies_alone(cells: int, backend: Backend, finish: Callable[[], None]) -> float:
    """Seconds to copy what one step must read and write at least: six vectors."""
    values = backend.put(np.zeros(cells))
    return _repeated(lambda: [backend.xp.asarray(values, copy=True) for _ in range(6)], finish, 10)


def _repeated(work: Callable[[], Any], finish: Callable[[], None], times: int) -> float:
    for _ in range(2):
        work()
    finish()
    begun = perf_counter()
    for _ in range(times):
        work()
    finish()
    return (perf_counter() - begun) / times


def card(library: str) -> tuple[Backend, Callable[[], None], str]:
    """The arrays of a library on the first graphics card, how to wait for it, and its name."""
    if library == "torch":
        import torch

        found = backend_of(torch.zeros(1, device="cuda"))
        wait, name = torch.cuda.synchronize, torch.cuda.get_device_name(0)
    else:
        import cupy

        found = backend_of(cupy.zeros(1))
        wait = cupy.cuda.Device().synchronize
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    assert found is not None
    return found, wait, name


def rows(sides: Sequence[int], library: str | None) -> Iterator[Row]:
    """Everything, size by size; without a library on the processor alone."""
    cores = os.cpu_count() or 1
    for side in sides:
        for name, operator, weights in problems(side):
            on_processor = timed(operator, weights, 2 if side > 2048 else 4, warm=1)
            cells = f"{side}²"
            yield Row(cells, name, f"{cores} cores", on_processor, None, None, None, None)
            if library is None:
                continue
            backend, finish, card_name = card(library)
            moved = operator.on(backend)
            seconds = timed(moved, weights, 20)
            kernel = operator if isinstance(operator, LatticeKernel) else vars(operator)["_kernel"]
            host, there = reached(operator, weights), reached(moved, weights)
            yield Row(
                cells,
                name,
                f"{card_name}, {library}",
                seconds,
                transforms_alone(kernel, backend, finish),
                copies_alone(operator.shape[0], backend, finish),
                on_processor,
                float(np.abs(host - there).max() / host.max()),
            )


def table(found: Sequence[Row]) -> str:
    """As a table for the documentation."""
    lines = [
        "| cells | one step of | on | time | transforms | ratio | copies | processor/card | apart |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found:
        lines.append(
            f"| {row.cells} | {row.step} | {row.here} | {1e3 * row.seconds:.2f} ms "
            + (
                f"| {1e3 * row.transforms:.2f} ms | {row.seconds / row.transforms:.2f} "
                f"| {1e3 * (row.copies or 0):.2f} ms | {(row.processor or 0) / row.seconds:.0f} × "
                f"| {row.apart:.1e} |"
                if row.transforms
                else "| | | | | |"
            )
        )
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graphics", description=__doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--library", choices=["torch", "cupy"], default="torch")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", action="store_true", help="for other programs")
    asked = parser.parse_args(given)
    found = list(rows(asked.sides, asked.library if asked.device == "cuda" else None))
    print(json.dumps([asdict(row) for row in found], indent=2) if asked.json else table(found))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"most memory of this process: {most:.2f} GiB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
