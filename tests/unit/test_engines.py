"""Engines: the same work in parts gives the same sum, wherever the parts are worked on."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.engine.engines import LocalEngine, file_parts
from geoveil.engine.part_reports import PartCounter, obfuscate_file, tally_file
from geoveil.errors import EngineFailed, GeoveilError, InvalidFile, OutsideSpace
from geoveil.table import delimited, indexed, reader
from geoveil.table.locations import Reading

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
write_csv = pytest.importorskip("pyarrow.csv").write_csv

GRID = gv.Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=1.0)
MECHANISM = gv.PlanarGeometric(GRID, epsilon_per_km=2.0)
ROWS = 25_000


class Scattered:
    """An engine of a page: parts and work travel as bytes, and answers come in any order."""

    reads_files = True

    def __init__(self) -> None:
        self.parts = 0

    def sums(self, work: Callable[[Any], Any], parts: Iterable[Any]) -> Iterator[Any]:
        sent = [pickle.dumps((work, part)) for part in parts]
        self.parts = len(sent)
        random.Random(1).shuffle(sent)
        for each in sent:
            done, part = pickle.loads(each)
            yield pickle.loads(pickle.dumps(done(part)))


@pytest.fixture(scope="module")
def places() -> dict[str, Any]:
    generator = np.random.default_rng(5)
    lat, lng = generator.normal([48.85, 2.3], [0.02, 0.04], size=(ROWS, 2)).T
    return {"lat": lat, "lng": lng, "note": np.where(lat > 48.85, 'a, "b"\nc', "")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, places: dict[str, Any]) -> Path:
    """The same rows in every format."""
    path = tmp_path_factory.mktemp("engines")
    table = pa.table(places)
    write_csv(table, path / "quoted.csv")
    write_csv(table.select(["lat", "lng"]), path / "plain.csv")
    with gzip.open(path / "packed.csv.gz", "wb", compresslevel=1) as file:
        file.write((path / "plain.csv").read_bytes())
    pq.write_table(table.select(["lat", "lng"]), path / "groups.parquet", row_group_size=7_000)
    return path


@pytest.fixture
def small_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also smaller blocks, a tenth of 4 MiB, so that few rows are several."""
    smaller = partial(reader.blocks_of_rows, size=reader.BLOCK // 10)
    monkeypatch.setattr(reader, "blocks_of_rows", smaller)
    monkeypatch.setattr(delimited, "_SECTION_BLOCKS", 1)
    monkeypatch.setattr(indexed, "_SECTION_ROWS", 1)


def tally(path: Path, engine: Any = None, **options: Any) -> gv.Tally:
    return tally_file(str(path), Reading(**options), MECHANISM, seed=3, engine=engine)[0]


@pytest.mark.usefixtures("small_sections")
@pytest.mark.parametrize(
    ("name", "parts"),
    [("plain.csv", 3), ("quoted.csv", 3), ("packed.csv.gz", 1), ("groups.parquet", 4)],
)
def test_seeded_counts_do_not_depend_on_who_counts(folder: Path, name: str, parts: int) -> None:
    here, elsewhere = tally(folder / name), Scattered()
    there = tally(folder / name, elsewhere)
    np.testing.assert_array_equal(here.counts, there.counts)
    assert elsewhere.parts == parts
    other, _ = tally_file(str(folder / name), Reading(), MECHANISM, seed=4)
    assert (other.counts != here.counts).any()


@pytest.mark.usefixtures("small_sections")
def test_processes_of_this_machine_count_the_same(folder: Path) -> None:
    path = folder / "groups.parquet"
    np.testing.assert_array_equal(tally(path).counts, tally(path, LocalEngine(2)).counts)


@pytest.mark.usefixtures("small_sections")
@pytest.mark.parametrize("name", ["plain.csv", "quoted.csv", "groups.parquet"])
def test_sections_hold_every_row_once(folder: Path, name: str, places: dict[str, Any]) -> None:
    reading, numbers, lat = Reading(), [], []
    with reading.open(str(folder / name)) as reader:
        for part in file_parts(reader, str(folder / name), reading):
            with part.open() as rows:
                for batch in rows:
                    numbers.append(batch.number)
                    lat.append(batch.lat)
    np.testing.assert_array_equal(np.concatenate(lat), places["lat"])
    assert len(set(numbers)) == len(numbers)


def test_without_a_seed_no_two_tallies_are_the_same(folder: Path) -> None:
    one, two = (tally_file(str(folder / "groups.parquet"), Reading(), MECHANISM) for _ in range(2))
    assert (one[0].counts != two[0].counts).any()
    assert one[0].total == two[0].total == one[1].reports


@pytest.mark.usefixtures("small_sections")
@pytest.mark.parametrize("bad", ["north", ""])
def test_a_bad_row_of_any_part_is_named_by_its_number(
    folder: Path, tmp_path: Path, bad: str
) -> None:
    lines = (folder / "plain.csv").read_text().splitlines()
    lines[20_001] = f"{bad},2.3"
    (tmp_path / "bad.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(InvalidFile, match=r"row 20001 of .*bad\.csv must have numbers"):
        tally(tmp_path / "bad.csv", Scattered())
    _, summary = tally_file(
        str(tmp_path / "bad.csv"), Reading(bad_rows="drop"), MECHANISM, engine=Scattered()
    )
    assert (summary.rows_read, summary.bad_rows_dropped) == (ROWS, 1)


@pytest.mark.usefixtures("small_sections")
def test_a_place_outside_is_named_by_its_number(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "plain.csv").read_text().splitlines()
    (tmp_path / "in.csv").write_text("\n".join([lines[0], *["48.85,2.3"] * 40_000, "10,10"]))
    for engine in (
        Scattered(),
        LocalEngine(),
    ):  # each reads its own parts, or is told what came before
        with pytest.raises(OutsideSpace, match="number 40001 does not"):
            tally_file(
                str(tmp_path / "in.csv"), Reading(), MECHANISM, outside="raise", engine=engine
            )
    with pytest.raises(OutsideSpace, match="look swapped: use --lat lat --lng lng"):
        tally(folder / "plain.csv", Scattered(), lat="lng", lng="lat")


@pytest.mark.usefixtures("small_sections")
def test_a_file_cut_short_is_refused(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "groups.parquet").read_bytes()
    path = tmp_path / "broken.parquet"
    path.write_bytes(whole[:20_000] + bytes(100_000) + whole[120_000:])
    with pytest.raises(InvalidFile, match="it is damaged"):
        tally(path, Scattered())


class Dies:
    """Work whose process is ended from outside."""

    def __call__(self, part: Any) -> Any:
        os._exit(9)


def test_a_process_that_dies_is_said_in_one_line() -> None:
    with pytest.raises(EngineFailed, match="ended from outside") as caught:
        list(LocalEngine(2).sums(Dies(), [1, 2, 3]))
    assert isinstance(caught.value, GeoveilError)


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
@pytest.mark.parametrize("everybody", [True, False])
def test_an_interrupt_ends_all_processes_at_once_and_in_silence(
    tmp_path: Path, everybody: bool
) -> None:
    """From a terminal, which sends it to everybody, or to this process alone."""
    script = tmp_path / "work.py"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        (os.killpg if everybody else os.kill)(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60) == (b"interrupted\n", b"")


INTERRUPTED = """
import signal, time
from geoveil.engine.engines import LocalEngine

def work(part):
    if part == 0:
        print("begun", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background
    try:
        list(LocalEngine(2).sums(work, range(4)))
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_a_mechanism_travels_as_its_document() -> None:
    counter = pickle.loads(pickle.dumps(PartCounter(MECHANISM, "clamp", 5)))
    assert counter.nothing().counts.size == MECHANISM.report_count
    assert counter.nothing().outside.rule == "clamp"
    assert b"planar-geometric" in pickle.dumps(PartCounter(MECHANISM, "clamp", 5))


def test_one_process_writes_the_reports_that_several_do(folder: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{number}.csv" for number in range(2)]
    for engine, output in zip((LocalEngine(1), Scattered()), outputs, strict=True):
        given = str(folder / "quoted.csv"), Reading(), MECHANISM, str(output), engine
        done = obfuscate_file(*given, keep=["note"], seed=7)
        assert done.rows_read == ROWS
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
