"""``python -m benchmarks``: each figure beside its yardstick, timed in the same run.

``python -m benchmarks load LINK`` loads a collector instead, and says what it answered (``--help``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from benchmarks.areas import areas
from benchmarks.core import certificates, locating, products, sampling
from benchmarks.dashboard import dashboard
from benchmarks.design import campaign, optimal, release
from benchmarks.device import device
from benchmarks.engines import engines, spark
from benchmarks.estimation import estimation
from benchmarks.local_privacy import local_privacy
from benchmarks.maps import maps
from benchmarks.pages import pages
from benchmarks.peers import peers
from benchmarks.positions import positions
from benchmarks.timing import Figure, markdown

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "products": products,
    "sampling": sampling,
    "certificates": certificates,
    "locating": locating,
    "device": device,
    "engines": engines,
    "spark": spark,
    "release": release,
    "estimation": estimation,
    "campaign": campaign,
    "optimal": optimal,
    "positions": positions,
    "peers": peers,
    "maps": maps,
    "areas": areas,
    "local-privacy": local_privacy,
    "pages": pages,
    "dashboard": dashboard,
}


def main(given: Sequence[str] | None = None) -> int:
    """Measure what was asked for, or everything; 1 where a line is missed."""
    arguments = sys.argv[1:] if given is None else given
    if arguments[:1] == ["load"]:
        from benchmarks.load import main as load

        return load(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true", help="for other programs")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"NAME ({unknown[0]}) must be one of {', '.join(BENCHMARKS)}")
    figures: list[Figure] = []
    for name in dict.fromkeys(asked.names or BENCHMARKS):
        print(f"measuring {name} ...", file=sys.stderr)
        figures += BENCHMARKS[name]()
    values = [{**asdict(figure), "met": figure.met} for figure in figures]
    print(json.dumps({"figures": values}, indent=2) if asked.json else markdown(figures))
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
