"""``python -m benchmarks``: each figure beside its yardstick, timed in the same run.

With ``--page FILE`` every set is written into its own part of that page as soon as it is measured, and the
other parts stay. ``python -m benchmarks load LINK`` loads a collector instead, and says what it answered
(``--help``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.accuracy import accuracy
from benchmarks.areas import areas
from benchmarks.core import certificates, locating, products, sampling
from benchmarks.dashboard import dashboard
from benchmarks.design import campaign, optimal, release
from benchmarks.device import device
from benchmarks.engines import engines
from benchmarks.estimation import estimation
from benchmarks.growth import growth
from benchmarks.local_privacy import local_privacy
from benchmarks.maps import maps
from benchmarks.page import circumstances, load_now, put
from benchmarks.pages import pages
from benchmarks.peers import peers
from benchmarks.positions import positions
from benchmarks.spark_engine import spark
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

TEXTS: dict[str, Callable[[Path | None], str]] = {"growth": growth, "accuracy": accuracy}
"""What is no list of figures: a part of the page, and its picture in a folder where one is given."""


def main(given: Sequence[str] | None = None) -> int:
    """Measure what was asked for, or everything; 1 where a line is missed."""
    arguments = sys.argv[1:] if given is None else given
    if arguments[:1] == ["load"]:
        from benchmarks.load import main as load

        return load(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*TEXTS, *BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="for other programs")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write every set into this page")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in names]
    if unknown:
        parser.error(f"NAME ({unknown[0]}) must be one of {', '.join(names)}")
    figures: list[Figure] = []
    for name in dict.fromkeys(asked.names or names):
        print(f"measuring {name} ...", file=sys.stderr)
        busy = load_now()
        if name in TEXTS:
            text = TEXTS[name](asked.page and asked.page.parent / "images")
            print(text, file=sys.stderr if asked.json else sys.stdout)
        else:
            found = list(BENCHMARKS[name]())
            text = markdown(found) if found else ""
            figures += found
        if asked.page and text:
            put(asked.page, name, f"{circumstances(busy)}\n\n{text}", names)
    values = [{**asdict(figure), "met": figure.met} for figure in figures]
    if asked.json:
        print(json.dumps({"figures": values}, indent=2))
    elif figures:
        print(markdown(figures))
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
