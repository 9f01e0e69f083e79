"""Release channels on large lattices of count vectors, beside the bare FFTs they need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
from scipy import fft

from geoveil.benchmark.timing import Figure, best_of, duration
from geoveil.channel.kernel import fft_workers
from geoveil.randomness import seeded
from geoveil.release import CountRelease, ReleaseDesign, number_of_vectors
from geoveil.release.box import box_sides

SIZES = ((1000, 3), (60, 4), (20, 5))
_SECONDS, _NATS, _GIBIBYTES = 60.0, 1e-3, 4.0


def release() -> Iterator[Figure]:
    """One release channel for each size, its certificate, the memory of it all, and personal leakages."""
    for people, places in SIZES:
        yield from _channel(people, places)
    yield from _memory()
    yield _personal()


def _channel(people: int, places: int) -> Iterator[Figure]:
    began = perf_counter()
    made = CountRelease(people=people, prior=np.full(places, 1 / places), multiplier=1.0)
    certificate = made.certificate_nats
    seconds = perf_counter() - began
    (design,) = made.designs
    what = f"{people} people × {places} places, {number_of_vectors(people, places):,} vectors"
    products = design.ascent.products
    (bare,) = best_of(_bare_transforms(design), repeats=3)
    yardstick = f"{products} × (rfftn + irfftn)"
    yield Figure(
        f"release channel, {what}", seconds, seconds, "s", _SECONDS, yardstick, products * bare
    )
    yield Figure(f"its certificate, {what}", seconds, certificate, "nats", _NATS)


def _bare_transforms(design: ReleaseDesign) -> Callable[[], None]:
    """What one product on the box of the window cannot do without."""
    sides = box_sides(design.vectors.lower, design.vectors.upper)
    padded = tuple(fft.next_fast_len(2 * side - 1, real=True) for side in sides)
    values = np.ones(sides)
    workers = fft_workers(int(np.prod(padded)))

    def work() -> None:
        fft.irfftn(fft.rfftn(values, padded, workers=workers), padded, workers=workers)

    return work


def _memory() -> Iterator[Figure]:
    """The most memory this process has held, where the operating system says it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    yield Figure("memory, peak of the process", 0.0, most * unit / 2**30, "GiB", _GIBIBYTES)


def _personal() -> Figure:
    """Everybody's leakage where everybody has another prior."""
    shares = seeded(1).uniform(60).reshape(20, 3)
    shares /= shares.sum(axis=1, keepdims=True)

    def work() -> None:
        made = CountRelease(people=20, prior=shares, multiplier=1.0)
        made.personal_leakage_bits.max()

    return duration("personal leakage, 20 people × 3 places, design included", work, limit=1.0)
