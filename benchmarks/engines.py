"""Tables of ten million rows to one tally: engines beside the bare script that one would write."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Figure, best_of
from geoveil.arrays import IntArray
from geoveil.engine.engines import LocalEngine, usable_processes
from geoveil.engine.part_reports import tally_file
from geoveil.mechanism import PlanarGeometric
from geoveil.space.grid import Grid
from geoveil.table.locations import Reading

ROWS = 10**7
_GROUP = 1 << 20


@cache
def city_mechanism() -> PlanarGeometric:
    """Planar geometric noise on 1,085 cells of Paris."""
    grid = Grid.from_box(south=48.81, west=2.25, north=48.91, east=2.42, cell_km=0.36)
    return PlanarGeometric(grid, epsilon_per_km=2.0)


def write_rows(path: Path, rows: int, *, seed: int = 1) -> None:
    """Places of people in Paris as Parquet, a row group at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    generator = np.random.default_rng(seed)
    schema = pa.schema([("lat", pa.float64()), ("lng", pa.float64())])
    with parquet.ParquetWriter(path, schema) as table:
        for start in range(0, rows, _GROUP):
            size = min(_GROUP, rows - start)
            lat, lng = generator.normal([48.86, 2.335], [0.015, 0.025], (size, 2)).T
            table.write_table(pa.table({"lat": lat, "lng": lng}), row_group_size=_GROUP)


def bare_group(path: str, group: int) -> IntArray:
    """One row group as one would write it: read two columns, locate, draw, count; nothing is checked."""
    from pyarrow import parquet

    mechanism = city_mechanism()
    table = parquet.ParquetFile(path).read_row_group(group, columns=["lat", "lng"])
    counts = np.zeros(mechanism.report_count, dtype=np.int64)
    for batch in table.to_batches(max_chunksize=1 << 17):
        lat, lng = (batch.column(name).to_numpy() for name in ("lat", "lng"))
        cells, inside = mechanism.space.nearest_cells(lat=lat, lng=lng)
        counts += np.bincount(mechanism.sample(cells[inside]), minlength=counts.size)
    return counts


def bare_tally(path: str, processes: int) -> IntArray:
    """A pool of processes, a row group each, and the sum of their counts."""
    from pyarrow import parquet

    groups = range(parquet.ParquetFile(path).num_row_groups)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        counts: IntArray = np.sum(list(pool.map(partial(bare_group, path), groups)), axis=0)
    return counts


def engines() -> Iterator[Figure]:
    """The local engine on 10⁷ rows of Parquet."""
    processes = usable_processes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        write_rows(path, ROWS)
        mechanism, engine = city_mechanism(), LocalEngine(processes)

        def ours() -> None:
            tally_file(str(path), Reading(), mechanism, engine=engine)

        seconds, beside = best_of(
            ours, lambda: bare_tally(str(path), processes), repeats=3, warm=False
        )
    yield Figure(
        f"10⁷ Parquet rows to a tally, {processes} processes",
        seconds,
        seconds / beside,
        "×",
        1.3,
        "pyarrow and a pool of processes, the same sampler",
        beside,
    )


def bare_partition(batches: Iterable[Any]) -> Iterator[Any]:
    """A partition of Spark as one would write it: locate, draw, count, one row out; nothing is checked."""
    import pyarrow as pa

    mechanism = city_mechanism()
    counts = np.zeros(mechanism.report_count, dtype=np.int64)
    for batch in batches:
        lat, lng = (batch.column(name).to_numpy() for name in ("lat", "lng"))
        cells, inside = mechanism.space.nearest_cells(lat=lat, lng=lng)
        counts += np.bincount(mechanism.sample(cells[inside]), minlength=counts.size)
    yield pa.RecordBatch.from_pydict({"counts": [counts.tolist()]})
