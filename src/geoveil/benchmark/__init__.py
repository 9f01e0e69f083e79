"""Benchmarks: each figure beside its yardstick, timed in the same run."""

from collections.abc import Callable, Iterator

from geoveil.benchmark.certificates import certificates
from geoveil.benchmark.collection import collection
from geoveil.benchmark.estimation import estimation
from geoveil.benchmark.locating import locating
from geoveil.benchmark.optimal import optimal
from geoveil.benchmark.products import products
from geoveil.benchmark.release import release
from geoveil.benchmark.sampling import sampling
from geoveil.benchmark.timing import Figure, markdown

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "products": products,
    "sampling": sampling,
    "certificates": certificates,
    "locating": locating,
    "release": release,
    "estimation": estimation,
    "collection": collection,
    "optimal": optimal,
}
"""Every benchmark by the name the command line uses."""

__all__ = ["BENCHMARKS", "Figure", "markdown"]
