"""The Spark engine, on this machine: the same tallies as the local one, each row once, whatever fails.

One session for all tests. Without Spark and Java they are skipped with the reason, and fail under CI.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import failing_work
import geoveil as gv
from failing_work import AlwaysDies, DiesOnce, OnOneAnother, Opens
from geoveil.campaign.simulation import Crowd, simulate
from geoveil.cli.program import program
from geoveil.engine import spark
from geoveil.engine.engines import LocalEngine, file_parts
from geoveil.engine.file_crowd import FileCrowd
from geoveil.engine.part_reports import PartCounter, obfuscate_file, tally_file
from geoveil.errors import EngineFailed, InvalidFile, InvalidInput, MissingExtra, OutsideSpace
from geoveil.space.outside import OutsideCount
from geoveil.table import delimited, indexed
from geoveil.table.locations import Reading

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
write_csv = pytest.importorskip("pyarrow.csv").write_csv

GRID = gv.Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=2.0)
MECHANISM = gv.PlanarGeometric(GRID, epsilon_per_km=2.0)
ROWS = 6000


def needs(*, java: bool = True) -> None:
    if find_spec("pyspark") is None or (java and which("java") is None):
        reason = "Spark is not installed: install Java 17, then make spark"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    needs()
    folder = str(Path(failing_work.__file__).parent)  # where workers find what these tests send
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", folder)
        # Jobs of a moment: Java and Spark would spend longer on making them fast, and on checking Spark's own
        # classes, than on them; a second worker would import everything once more.
        unchecked = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
        patch.setenv("JDK_JAVA_OPTIONS", f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {unchecked}")
        workers = f"--conf spark.python.daemon.module={failing_work.__name__}"
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{workers} pyspark-shell")
        with spark.spark_session("local[1,4]") as made:
            made.conf.set("spark.sql.shuffle.partitions", "2")
            made.conf.set("spark.sql.codegen.wholeStage", "false")
            yield made


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Places of 200 persons on three days, as Parquet in six row groups and as CSV."""
    generator = np.random.default_rng(5)
    lat, lng = generator.normal([48.85, 2.3], [0.02, 0.04], size=(ROWS, 2)).T
    number = np.arange(ROWS)
    table = pa.table({"lat": lat, "lng": lng, "person": number % 200, "day": number % 3})
    folder = tmp_path_factory.mktemp("spark")
    pq.write_table(table, folder / "people.parquet", row_group_size=1000)
    write_csv(table, folder / "people.csv")
    return folder


@pytest.fixture
def small_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_SECTION_BLOCKS", 1)
    monkeypatch.setattr(indexed, "_SECTION_ROWS", 1)


@pytest.mark.usefixtures("small_sections")
@pytest.mark.parametrize("name", ["people.parquet", "people.csv"])
def test_the_same_seeded_file_gives_the_same_tally(session: Any, people: Path, name: str) -> None:
    source, engine = str(people / name), spark.SparkEngine(session)
    here = tally_file(source, Reading(), MECHANISM, seed=3)
    there = tally_file(source, Reading(), MECHANISM, seed=3, engine=engine)
    np.testing.assert_array_equal(here[0].counts, there[0].counts)
    assert here[1] == there[1]


@pytest.mark.usefixtures("small_sections")
def test_the_same_seed_gives_the_same_file_of_reports(
    session: Any, people: Path, tmp_path: Path
) -> None:
    given = (str(people / "people.parquet"), Reading(), MECHANISM)
    files = [str(tmp_path / name) for name in ("here.parquet", "there.parquet")]
    for target, engine in zip(files, (LocalEngine(2), spark.SparkEngine(session)), strict=True):
        done = obfuscate_file(*given, target, engine, keep=["day"], seed=7)
        assert done.reports == pq.read_table(target).num_rows
    assert Path(files[0]).read_bytes() == Path(files[1]).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"here.parquet", "there.parquet"}
    result = CliRunner().invoke(
        program,
        ["obfuscate", given[0], "-o", str(tmp_path / "plain.parquet"), "--keep", "day", "--seed", "7",
         "--mechanism", "planar-geometric", "--epsilon-per-km", "2", "--box", "48.8,2.2,48.9,2.4",
         "--cell-km", "2"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert (tmp_path / "plain.parquet").read_bytes() == Path(files[0]).read_bytes()


@pytest.mark.usefixtures("small_sections")
def test_rounds_over_a_file_are_the_same_on_both_engines(session: Any, people: Path) -> None:
    results = []
    for engine in (LocalEngine(), spark.SparkEngine(session)):
        habits = Crowd(np.zeros(0, dtype=np.int64), churn=0.1, fake_share=0.05, choices=(0.4, 0.6))
        rows = FileCrowd(
            str(people / "people.parquet"), Reading(), GRID, OutsideCount("drop"), habits, engine
        )
        campaign = gv.Campaign(GRID, promises_per_km=[1.0, 2.0], between="cells", minimum_reports=1)
        results.append(simulate(campaign, rows, rounds=2, seed=4))
        assert rows.outside.places == ROWS
    here, there = results
    np.testing.assert_array_equal(here.truth, there.truth)
    for one, other in zip(here.campaign.rounds, there.campaign.rounds, strict=True):
        for mine, theirs in zip(one.tallies, other.tallies, strict=True):
            np.testing.assert_array_equal(mine.counts, theirs.counts)
    assert 0.85 * ROWS < results[0].rounds[-1].reports / 1.05 < 0.95 * ROWS  # churn and fakes


def test_a_task_that_failed_and_ran_again_is_counted_once(
    session: Any, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed, "_SECTION_ROWS", ROWS // 3)  # every death costs a second
    source, engine = str(people / "people.parquet"), spark.SparkEngine(session)
    work = DiesOnce(MECHANISM, "drop", 3)
    with Reading().open(source) as reader:
        sums = list(engine.sums(work, file_parts(reader, source, Reading())))
    assert len(sums) == 3
    counts = np.sum([each.counts for each in sums], axis=0)
    np.testing.assert_array_equal(
        counts, tally_file(source, Reading(), MECHANISM, seed=3)[0].counts
    )
    assert sum(each.read for each in sums) == ROWS
    ones = np.sum([each.values for each in engine.sums(OnOneAnother(), range(12))], axis=0)
    assert ones.tolist() == [1] * 12


def test_a_lost_worker_is_one_line(session: Any) -> None:
    with pytest.raises(EngineFailed, match=r"lost a worker 4 times .* nothing was written"):
        list(spark.SparkEngine(session).sums(AlwaysDies(), [1]))


def test_a_frame_is_tallied_row_by_row_and_refuses_seeds(session: Any, people: Path) -> None:
    frame = session.read.parquet(str(people / "people.parquet")).repartition(3)
    counted, summary = spark.tally_frame(frame, MECHANISM)
    assert (summary.rows_read, counted.total) == (ROWS, summary.reports)
    assert counted.total == ROWS - summary.outside.dropped
    again, _ = spark.tally_frame(frame, MECHANISM)
    assert (again.counts != counted.counts).any(), "the operating system's randomness"
    with pytest.raises(InvalidInput, match=r"seed \(7\) must be left out for a DataFrame"):
        spark.tally_frame(frame, MECHANISM, seed=7)
    with pytest.raises(InvalidFile, match="no column named 'x'"):
        spark.tally_frame(frame, MECHANISM, lat="x")


def test_folders_of_files_are_frames(session: Any, people: Path, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        quoted = '"at ""Rex"", 48.9, 2.2"'  # as CSV files quote, and not as Spark does by itself
        (tmp_path / name).write_text(f"who,lat,lng\n{quoted},48.85,2.3\nme,48.86,2.31\n")
    frame = spark.dataset_frame(session, str(tmp_path), Reading(format="csv"))
    assert spark.tally_frame(frame, MECHANISM)[0].total == 4
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("lat;lng\n48.85;2.3\n")
    with pytest.raises(InvalidFile, match=r"part its fields by ';', not ','; give --delimiter ';'"):
        spark.dataset_frame(session, str(tmp_path), Reading(format="csv"))
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("sep=;\nlat;lng\n48.85;2.3\n")
    with pytest.raises(InvalidFile, match="its first line says sep=, which Spark takes for"):
        spark.dataset_frame(session, str(tmp_path), Reading(format="csv", delimiter=";"))
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("who,lat,lng\nme,48.86,2.31\n")
    for coded in ("utf-16", "utf-16-le"):
        (tmp_path / "c.csv").write_bytes("lat,lng\n48.85,2.3\n".encode(coded))
        with pytest.raises(InvalidFile, match="must hold CSV text in UTF-8"):
            spark.dataset_frame(session, str(tmp_path / "c.csv"), Reading(format="csv"))
    (tmp_path / "c.csv").write_text("when,where\n1,2\n")
    mixed = spark.dataset_frame(session, str(tmp_path), Reading(format="csv"))
    with pytest.raises(
        EngineFailed,
        match="Spark gave up on the work; nothing was written; all files must have the same",
    ):
        spark.tally_frame(mixed, MECHANISM)
    with pytest.raises(InvalidFile, match=r"gone must be there and hold parquet files"):
        spark.dataset_frame(session, str(tmp_path / "gone"), Reading(format="parquet"))


def test_what_is_wrong_with_a_frame_is_said_without_a_value(session: Any) -> None:
    rows = [(48.85, 2.3), (None, 2.3), (95.25, 2.3)]
    frame = session.createDataFrame(rows, "lat double, lng double").coalesce(1)
    with pytest.raises(InvalidFile, match="row 2 of partition 0 of the DataFrame must have"):
        spark.tally_frame(frame, MECHANISM)
    counted, summary = spark.tally_frame(frame, MECHANISM, bad_rows="drop")
    assert (counted.total, summary.bad_rows_dropped) == (1, 2)
    swapped = frame.where("lat < 90").selectExpr("lat as lng", "lng as lat")
    with pytest.raises(OutsideSpace, match="look swapped") as caught:
        spark.tally_frame(swapped, MECHANISM)
    assert "48.85" not in str(caught.value)


def test_rounds_over_a_partitioned_dataset_and_rows_that_come_late(
    session: Any, people: Path, tmp_path: Path
) -> None:
    everybody = session.read.parquet(str(people / "people.parquet"))
    late = everybody.where("day = 0 and person < 20")
    in_time = everybody.exceptAll(late)
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0, between="cells")
    saved = tmp_path / "campaign.json"
    spark.collect_rounds(in_time, campaign, by="day", save=saved)
    assert [done.number for done in campaign.rounds] == [1, 2, 3]
    before = campaign.rounds[0].total
    received = spark.collect_round(late, campaign, number=1)
    assert received is campaign.rounds[0], "counted under the mechanism of its own round"
    assert 190 <= received.total - before <= 200
    again = gv.Campaign.load(saved)  # a driver that starts again draws for no closed round
    totals = [done.total for done in again.rounds]
    spark.collect_rounds(in_time, again, by="day")
    assert [done.total for done in again.rounds] == totals
    with pytest.raises(InvalidInput, match=r"number \(9\) must be a round that was opened, 1 to 4"):
        spark.collect_round(late, campaign, number=9)


def test_people_are_dealt_into_rounds_with_all_their_rows(session: Any, people: Path) -> None:
    frame = session.read.parquet(str(people / "people.parquet"))
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0, between="cells")
    spark.collect_rounds(frame, campaign, person="person", rounds=2, outside="clamp")
    totals = [done.total for done in campaign.rounds]
    assert sum(totals) == ROWS
    assert all(total % 30 == 0 for total in totals), "30 rows a person, all in one round"
    assert min(totals) > 0
    with pytest.raises(InvalidInput, match="by=, or from person= and rounds="):
        spark.collect_rounds(frame, campaign, rounds=2)


@pytest.mark.usefixtures("small_sections")
def test_a_file_that_workers_cannot_read_is_one_line(
    session: Any, people: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("lat,lng\n" + "48.85,2.3\n" * 400_000 + "x,2.3\n")
    with pytest.raises(InvalidFile, match=r"row 400001 of .*bad\.csv must have numbers"):
        tally_file(
            str(tmp_path / "bad.csv"), Reading(), MECHANISM, engine=spark.SparkEngine(session)
        )
    with pytest.raises(EngineFailed, match=r"cannot read .*gone: No such file"):
        list(spark.SparkEngine(session).sums(Opens(), [str(tmp_path / "gone")]))


def command(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "geoveil", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | changes,
    )


def test_without_java_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is read, be it there or not, and before a mechanism is made."""
    needs(java=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    gone, target = str(tmp_path / "gone.csv"), tmp_path / "t.json"
    words = ["tally", gone, "-o", str(target), "--engine", "spark", "--epsilon-per-km", "2"]
    done = CliRunner().invoke(program, words)
    assert done.exit_code == 2
    assert "Spark must find Java 17 or newer" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not target.exists()


def test_without_spark_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoveil.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"install geoveil\[spark\]"), spark.spark_session():
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tally", "people.csv", "-o", "t.json", "--person", "person"], "--person must go with"),
        (["tally", "-", "-o", "t.json"], "workers cannot read a pipe"),
        (["obfuscate", "people.csv", "-o", "t.csv", "--exact"], "--exact must go with"),
        (["obfuscate", "people.csv", "-o", "-"], "must write a file"),
        (["simulate"], "a simulated city must go with --engine local"),
        (["simulate", "hdfs://a/b"], "must be one file"),
        (["obfuscate", "hdfs://a/b.csv", "-o", "t.csv"], "must be one file"),
        (["tally", ".", "-o", "t.json"], "must end in .csv"),  # or --format says what it holds
    ],
)
def test_what_needs_this_process_is_refused(words: list[str], said: str, people: Path) -> None:
    given = [str(people / word) if word == "people.csv" else word for word in words]
    options = ["--engine", "spark", "--epsilon-per-km", "2", "--box", "48.8,2.2,48.9,2.4"]
    result = CliRunner().invoke(program, [*given, *options])
    assert result.exit_code == 2
    assert said in result.stderr
    local = CliRunner().invoke(program, [*given, "--master", "local[2]", "--epsilon-per-km", "2"])
    assert "--master must come with --engine spark" in local.stderr


@pytest.mark.slow
def test_the_command_line_counts_on_spark(people: Path, tmp_path: Path) -> None:
    needs()
    common = [
        "--mechanism",
        "planar-geometric",
        "--epsilon-per-km",
        "2",
        "--box",
        "48.8,2.2,48.9,2.4",
        "--seed",
        "3",
    ]
    source = str(people / "people.parquet")
    for name, more in (("here", []), ("there", ["--engine", "spark", "--master", "local[2]"])):
        done = command("tally", source, "-o", str(tmp_path / f"{name}.json"), *common, *more)
        assert done.returncode == 0, done.stderr
        said = done.stderr.splitlines()
        assert len(said) == 2, (
            "the warnings of a seed and of places outside, nothing that Java says"
        )
        assert all(line.startswith("geoveil: warning: ") for line in said)
    assert (tmp_path / "here.json").read_bytes() == (tmp_path / "there.json").read_bytes()


def test_answers_travel_between_versions_of_python_only_as_bytes() -> None:
    """Work is sent by reference to a function of this package, never as code."""
    sent = pickle.dumps(PartCounter(MECHANISM, "drop", None))
    assert b"geoveil.engine.part_reports" in sent
