"""``python -m benchmarks.spark_engine --rows N``: Spark on this machine beside the bare job of one's own."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from threading import Event, Thread

from benchmarks.engines import ROWS, bare_partition, city_mechanism, write_rows
from benchmarks.timing import Figure, best_of, markdown
from geoveil.engine.engines import usable_processes
from geoveil.engine.part_reports import tally_file
from geoveil.table.locations import Reading


class Watched:
    """What Spark does while entered: the most memory of one Python worker, processor time of all it started.

    Memory is looked at ten times a second. Processor time is that of Java, of the workers and of those of
    them that have ended; this process itself does little.
    """

    def __init__(self) -> None:
        self.most_mb = 0.0
        self.processor_s = 0.0
        self._over = Event()

    def __enter__(self) -> Watched:
        self.processor_s = -_processor_s()
        self._watch = Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()
        self.processor_s += _processor_s()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for process in _started():
                with suppress(OSError):  # it has ended meanwhile
                    if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                        pages = int((process / "statm").read_text().split()[1])
                        self.most_mb = max(self.most_mb, pages * resource.getpagesize() / 1e6)


def _started() -> list[Path]:
    """The processes that this one has started, and those that they have."""
    parents: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(process.name)] = int(_fields(process)[1])
    known = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in known} - known:
        known |= more
    return [Path("/proc") / str(each) for each in known - {os.getpid()}]


def _processor_s() -> float:
    """Of all those, and of what they have waited for."""
    ticks = 0
    for process in _started():
        with suppress(OSError):
            ticks += sum(map(int, _fields(process)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _fields(process: Path) -> list[str]:
    """What the system says about a process, behind its name: state, parent, …, processor times."""
    return (process / "stat").read_text().rpartition(")")[2].split()


SOURCES = {
    "bare": "a DataFrame, by a bare job",
    "frame": "a DataFrame",
    "file": "a Parquet file",
}


@dataclass(frozen=True)
class Run:
    """What one job took: of all, of Java and the workers, and the most memory of one worker."""

    elapsed_s: float
    processor_s: float
    worker_mb: float


def installed() -> bool:
    """Whether Spark and Java are there."""
    return find_spec("pyspark") is not None and which("java") is not None


def spark() -> Iterator[Figure]:
    """The Spark engine on this machine, from files and from a DataFrame; left out where it is missing."""
    if installed():
        yield from figures(ROWS, runs(ROWS, 2, list(SOURCES)))


def runs(rows: int, repeats: int, chosen: Sequence[str]) -> dict[str, Run]:
    """The jobs that were chosen, in turns, on a file of so many rows."""
    from geoveil.engine.spark import SparkEngine, spark_session, tally_frame

    mechanism = city_mechanism()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parent.parent))  # for the bare job
    with (
        tempfile.TemporaryDirectory() as folder,
        spark_session(f"local[{usable_processes()},4]") as session,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", FutureWarning)

        def bare(path: str) -> None:
            session.read.parquet(path).mapInArrow(bare_partition, "counts array<bigint>").collect()

        def frame(path: str) -> None:
            counted, summary = tally_frame(session.read.parquet(path), mechanism)
            assert counted.total == summary.rows_read - summary.outside.dropped

        def file(path: str) -> None:
            tally_file(path, Reading(), mechanism, engine=SparkEngine(session))

        works = {"bare": bare, "frame": frame, "file": file}
        paths = [str(Path(folder) / name) for name in ("few.parquet", "all.parquet")]
        for path, size in zip(paths, (min(rows, 10**6), rows), strict=True):
            write_rows(Path(path), size)
        for name in chosen:  # Java becomes fast while it runs
            works[name](paths[0])
        seen: dict[str, list[Run]] = {name: [] for name in chosen}
        for _ in range(repeats):
            for name in chosen:
                with Watched() as watched:
                    (took,) = best_of(partial(works[name], paths[1]), repeats=1, warm=False)
                seen[name].append(Run(took, watched.processor_s, watched.most_mb))
    return {name: _best(runs) for name, runs in seen.items()}


def _best(runs: Sequence[Run]) -> Run:
    """The shortest times and the most memory."""
    elapsed, processor, memory = zip(*map(astuple, runs), strict=True)
    return Run(min(elapsed), min(processor), max(memory))


def figures(rows: int, seen: Mapping[str, Run]) -> Iterator[Figure]:
    """Our runs beside the bare one: elapsed, processor time, memory."""
    bare = seen["bare"]
    beside = "a bare mapInArrow with the same sampler"
    for name, run in seen.items():
        if name == "bare":
            continue
        what = f"Spark, {rows:,} rows of {SOURCES[name]} to a tally, {usable_processes()} cores"
        speed = 100 * bare.elapsed_s / run.elapsed_s
        yield Figure(
            what,
            run.elapsed_s,
            speed,
            "% of its speed",
            70.0,
            beside,
            bare.elapsed_s,
            at_least=True,
        )
        cost = run.processor_s / bare.processor_s
        yield Figure(
            "the same, processor time of Java and the workers",
            run.processor_s, cost, "×", 1 / 0.7, beside, bare.processor_s,
        )  # fmt: skip
        yield Figure(
            "the same, memory of a Python worker",
            run.elapsed_s, run.worker_mb, "MB", 512.0, f"the bare job's: {bare.worker_mb:.0f} MB",
        )  # fmt: skip


def main(given: Sequence[str] | None = None) -> int:
    """Print what was seen, and the figures where the bare job is among it; 1 where a line is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_engine", description=__doc__)
    parser.add_argument("--rows", type=int, default=5 * 10**7)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=list(SOURCES))
    asked = parser.parse_args(given)
    if not installed():
        parser.error("Spark must be installed with Java 17; run make spark")
    seen = runs(asked.rows, asked.repeats, asked.sources)
    for name, run in seen.items():
        print(
            f"{asked.rows:,} rows of {SOURCES[name]}: {run.elapsed_s:.1f} s, {run.processor_s:.1f} s of "
            f"processor time, at most {run.worker_mb:.0f} MB for a Python worker"
        )
    if "bare" not in seen or len(seen) == 1:
        return 0
    found = list(figures(asked.rows, seen))
    print(markdown(found))
    return 0 if all(figure.met for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
