"""``python -m benchmarks.scale``: what a million reports cost, in processor seconds of one core.

Processor time, so that a busy machine changes little; the parts of docs/scale.md are multiplied from it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import geoveil as gv
from benchmarks.engines import city_mechanism, write_rows
from benchmarks.timing import best_of, city_prior
from geoveil.engine.part_reports import tally_file
from geoveil.store import CampaignRecord, RoundRecord, Upload, open_store
from geoveil.table.locations import Reading

_ROWS = 200_000


def processor_seconds(work: Callable[[], Any], repeats: int = 2) -> float:
    """The least processor time of this process in a few runs."""
    return best_of(work, repeats=repeats, warm=False, clock=process_time)[0]


def tables(folder: Path) -> Iterator[tuple[str, str]]:
    """A million rows to a tally, by format and mechanism."""
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    path, text = folder / "people.parquet", folder / "people.csv"
    write_rows(path, _ROWS)
    arrow_csv.write_csv(parquet.read_table(path), text)
    planar = city_mechanism()
    for name, source in (
        ("Parquet to a tally, planar geometric", path),
        ("CSV to a tally, planar geometric", text),
    ):

        def work(source: Path = source) -> None:
            tally_file(str(source), Reading(), planar)

        seconds = processor_seconds(work) * 10**6 / _ROWS
        yield f"10⁶ rows of {name} ({planar.space.size:,} cells)", f"{seconds:.2f} s"
    yield "a row of Parquet with two coordinates", f"{path.stat().st_size / _ROWS:.1f} bytes"


def ids(folder: Path, reports: int = 50_000) -> Iterator[tuple[str, str]]:
    """Ids of reports in a store, a thousand a commit: time and room."""
    store = open_store(f"sqlite:///{folder / 'ids.db'}")
    first = RoundRecord("paris", 1, 64 * "a", b"{}", 100, 0, 2_000, 3_000)
    store.create_campaign(CampaignRecord("paris", "Paris", settings=b"{}", created_at_s=0), first)

    def add() -> None:
        for _ in range(reports // 1000):
            store.add([Upload("paris", 1, os.urandom(16), cell=k % 100) for k in range(1000)])

    seconds = processor_seconds(add, 1)
    store.close()
    size = sum(file.stat().st_size for file in folder.glob("ids.db*"))
    yield "10⁶ reports into the store, a thousand a commit", f"{seconds * 10**6 / reports:.2g} s"
    yield "the id of a report in the store", f"{size / reports:.0f} bytes"


def tallies() -> Iterator[tuple[str, str]]:
    """Adding tallies, and estimating from them."""
    for side in (100, 500):
        grid = gv.Grid(rows=side, columns=side, cell_km=0.5)
        mechanism = gv.PlanarGeometric(grid, epsilon_per_km=2.0)
        law = mechanism.push(city_prior(grid))
        law = np.maximum(law, 0.0)
        tally = gv.Tally(mechanism, np.random.default_rng(1).multinomial(10**8, law / law.sum()))
        adding = processor_seconds(lambda t=tally: t + t, 5)  # type: ignore[misc]
        yield f"two tallies of {grid.size:,} cells added", f"{1000 * adding:.2g} ms"
        update = gv.IterativeBayesianUpdate(stop=gv.Steps(100))
        seconds = processor_seconds(lambda t=tally, u=update: u.fit(t), 1)  # type: ignore[misc]
        yield f"100 EM steps on {grid.size:,} cells, 10⁸ reports", f"{seconds:.2g} s"


def main() -> int:
    """Print the figures as a table."""
    print("| work | one core |")
    print("|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, value in chain(tables(Path(folder)), ids(Path(folder))):
            print(f"| {name} | {value} |", flush=True)
    for name, value in tallies():
        print(f"| {name} | {value} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
