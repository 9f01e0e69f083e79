"""``python -m benchmarks.country``: an estimate of millions of cells on the processor, by the public call.

Time of a step and the most memory, beside the vectors and the one transform that it cannot do without.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np
from scipy import fft

import geoveil as gv
from benchmarks.core import kernel_transforms
from benchmarks.timing import best_of

_REPORTS = 10**8


@dataclass(frozen=True)
class Country:
    """What an estimate of a square of cells takes; processor seconds of all threads, and elapsed."""

    side: int
    steps: int
    before_gib: float
    """What the process held when it had the tally."""
    most_gib: float
    step_s: float
    step_elapsed_s: float
    transforms_s: float
    """The transforms of one step alone."""
    told: int
    """How often the progress was told."""

    @property
    def vector_gib(self) -> float:
        """One number for each cell."""
        return self.side**2 * 8 / 2**30

    @property
    def transform_gib(self) -> float:
        """The spectrum of one padded product."""
        padded = fft.next_fast_len(2 * self.side - 1, real=True)
        return padded * (padded // 2 + 1) * 16 / 2**30

    @property
    def vectors(self) -> float:
        """Vectors held by the estimate above the tally, one transform aside."""
        return (self.most_gib - self.before_gib - self.transform_gib) / self.vector_gib


def most_gib() -> float:
    """The most memory that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def country(side: int, steps: int) -> Country:
    """EM between cells with planar geometric noise; a step is timed from one word of progress to the next."""
    grid = gv.Grid(rows=side, columns=side, cell_km=0.25)
    mechanism = gv.PlanarGeometric(grid, epsilon_per_km=4.0)
    counts = np.random.default_rng(side).poisson(_REPORTS / grid.size, grid.size)
    tally = gv.Tally(mechanism, counts)
    before = most_gib()
    told: list[tuple[float, float]] = []
    update = gv.IterativeBayesianUpdate(
        stop=gv.Steps(steps),
        progress=lambda done, of: told.append((process_time(), perf_counter())),
    )
    estimate = update.fit(tally)
    most = most_gib()
    spent, elapsed = ((last - first) / steps for first, last in zip(told[0], told[-1], strict=True))
    assert abs(float(np.sum(estimate.distribution)) - 1) < 1e-9
    (transforms,) = best_of(kernel_transforms(side, 2), repeats=1, warm=False, clock=process_time)
    return Country(side, steps, before, most, spent, elapsed, transforms, len(told))


def main(given: Sequence[str] | None = None) -> int:
    """Measure one size (memory at its peak is one of a process), and say it as a row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.country", description=__doc__)
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=3)
    asked = parser.parse_args(given)
    seen = country(asked.side, asked.steps)
    print("| cells | steps | processor time a step | its FFTs alone | elapsed | tally and mechanism "
          "| most memory | of it vectors of the estimate |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    print(f"| {seen.side}² | {seen.steps} | {seen.step_s:.2f} s | {seen.transforms_s:.2f} s "
          f"| {seen.step_elapsed_s:.2f} s | {seen.before_gib:.2f} GiB | {seen.most_gib:.2f} GiB "
          f"| {seen.vectors:.1f} |")  # fmt: skip
    return 0 if seen.told else 1


if __name__ == "__main__":
    sys.exit(main())
