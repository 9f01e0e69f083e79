"""The Spark engine: parts of files on many machines, any DataFrame, and the rounds of a campaign over one.

Every partition gives one small answer, which names the parts it is about, and the answers are added
on the driver. Spark may run a task again after a failure: the answer of the attempt that failed is never
seen, so that nothing is counted twice, and what it had drawn tells nobody anything. For the same reason no
function here gives back a DataFrame of reports: each look at it would draw again, and charge everybody
again. Estimation needs tallies alone and happens on the driver. Only DataFrames and ``mapInArrow`` are
used, so that Spark Connect (``sc://…``) will do.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from geoveil import errors
from geoveil.campaign.campaign import Campaign
from geoveil.campaign.rounds import Round
from geoveil.channel.channel import Channel, Tally
from geoveil.engine import spark_worker as worker
from geoveil.engine.part_reports import PartCounter
from geoveil.errors import EngineFailed, InvalidFile, InvalidInput, Unsupported, number_of, require
from geoveil.space.outside import Outside
from geoveil.table.delimited import check_delimiter
from geoveil.table.locations import BadRows, Reading, coordinate_columns
from geoveil.table.obfuscation import TableSummary
from geoveil.table.reader import BATCH_ROWS, Format, format_of

_PARTITIONS_PER_CORE = 4
_ATTEMPTS = 4  # of a task, before Spark gives up


def require_spark(master: str | None) -> None:
    """Say before the work what is not there: Spark, or the Java that it runs on."""
    require("pyspark", "spark", "the Spark engine")
    if not _connects(master) and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise EngineFailed(
            "Spark must find Java 17 or newer; install it or set JAVA_HOME, or leave out --engine spark"
        )


def _connects(master: str | None) -> bool:
    """Whether Spark is a server elsewhere (Spark Connect)."""
    return master is not None and master.startswith("sc://")


@contextmanager
def spark_session(master: str | None = None, *, quiet: bool = True) -> Iterator[Any]:
    """A session of Spark: on this machine unless ``master`` is given (``spark://…``, ``sc://…``, ``yarn``).

    ``quiet`` keeps what Java says about itself off standard error.
    """
    require_spark(master)
    connect = _connects(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python is this one
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("geoveil")
    if connect:
        builder = builder.remote(master)
    else:
        builder = builder.master(master or f"local[*,{_ATTEMPTS}]").config(
            map={
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.log.level": "OFF" if quiet else "WARN",
                "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
                **({} if master else {"spark.driver.host": "127.0.0.1"}),
            }
        )
    try:
        with _silence() if quiet else nullcontext(), _pandas_accepted():
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as failure:
        raise EngineFailed(
            f"Spark ({master or 'on this machine'}) did not start; is the address right, does it answer, "
            "and is its Java 17 or newer? --debug shows what it said"
        ) from failure
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _pandas_accepted() -> Iterator[None]:
    """Spark warns of a pandas newer than it knows; nothing here goes through pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning)
        yield


@contextmanager
def _silence() -> Iterator[None]:
    """Standard error goes nowhere, for programs that are started meanwhile too."""
    sys.stderr.flush()
    standard_error, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)


class SparkEngine:
    """Parts of files worked on by Spark; every worker reads its own under the name the file has here."""

    reads_files = True

    def __init__(self, session: Any) -> None:
        self.session = session

    def sums(self, work: Callable[[Any], Any], parts: Iterable[Any]) -> Iterator[Any]:
        """One sum for each partition; a partition works on parts that lie side by side."""
        sent = [pickle.dumps(part) for part in parts]
        if not sent:
            return
        partitions = min(len(sent), _PARTITIONS_PER_CORE * self._cores())
        frame = self.session.range(0, len(sent), 1, partitions)
        answers = partial(worker.part_answers, pickle.dumps(work), sent)
        yield from _collected(frame, answers, expected=range(len(sent)))

    def _cores(self) -> int:
        try:
            return int(self.session.sparkContext.defaultParallelism)
        except Exception:  # Spark Connect keeps it to itself, and says so with an error of its own
            return 64


def _collected(
    frame: Any, answers: Callable[..., Any], expected: Iterable[int] | None = None
) -> Iterator[Any]:
    """The results of the partitions of a frame, which is run once; an error of the work is raised as is."""
    from pyspark.errors import PySparkException

    try:
        with _pandas_accepted():
            rows = frame.mapInArrow(answers, worker.ANSWER).collect()
    except (PySparkException, RuntimeError, OSError) as failure:
        raise EngineFailed(_advice(failure)) from failure
    except Exception as failure:
        if not type(failure).__module__.startswith(("py4j", "grpc")):
            raise
        raise EngineFailed(_advice(failure)) from failure
    for row in rows:
        if row.problem is not None:
            raise getattr(errors, row.problem)(row.why)
    parts = sorted(part for row in rows for part in row.parts)
    if len(set(parts)) < len(parts) or (expected is not None and parts != sorted(expected)):
        raise EngineFailed(
            "every part must be answered exactly once; Spark answered some twice or not at all; nothing was "
            "written; run again"
        )
    for row in rows:
        yield pickle.loads(row.answer)


def _advice(failure: BaseException) -> str:
    """What to do about a job that failed; what Spark itself says may repeat a value and is not shown."""
    said = str(failure)
    if "No module named" in said and "geoveil" in said:
        return "every worker must have geoveil installed; install it there; nothing was written"
    if "exited unexpectedly" in said or "ExecutorLostFailure" in said or "crashed" in said:
        return (
            f"Spark lost a worker {_ATTEMPTS} times (is there enough memory for each?) and gave up; nothing "
            "was written; run again, with more memory for a worker if it was short"
        )
    if "MALFORMED_RECORD" in said or "CSV header does not conform" in said:
        return (
            "Spark gave up on the work; nothing was written; all files must have the same columns, and every "
            "row as many fields; correct them, or give them one by one, with --bad-rows drop for such rows"
        )
    return (
        "Spark gave up on the work; nothing was written; are all workers reachable, with the same version "
        "of geoveil? --debug shows what it said"
    )


def dataset_frame(session: Any, source: str, reading: Reading) -> Any:
    """A folder of files or an address (``hdfs://…``, ``s3a://…``) as a DataFrame; nothing is read yet."""
    from pyspark.errors import PySparkException

    kind = format_of(source.rstrip("/"), reading.format, folder=True)
    if kind is Format.GEOJSON:
        raise InvalidInput(
            f"a folder ({source}) must hold Parquet or CSV; give GeoJSON as one file"
        )
    try:
        if kind is Format.PARQUET:
            return session.read.parquet(source)
        rows = session.read.options(
            header=True, sep=reading.delimiter, escape='"', enforceSchema=False
        )
        frame = rows.option("mode", "FAILFAST").csv(source)
    except PySparkException as failure:
        raise InvalidFile(
            f"{source} must be there and hold {kind.value} files that have the same columns; Spark cannot "
            "read it; --debug shows what it said"
        ) from failure
    if any(strange in name for name in frame.columns for strange in "\0\ufffd"):
        raise InvalidFile(f"{source} must hold CSV text in UTF-8; save its files again as that")
    if frame.columns and frame.columns[0].strip('"').lower().startswith("sep="):
        raise InvalidFile(
            f"{source} must begin with the names of its columns; its first line says sep=, which Spark takes "
            "for them; take that line out of the files and give --delimiter, or give them one by one"
        )
    check_delimiter(frame.columns or [""], reading.delimiter, source)
    return frame


def tally_frame(
    frame: Any,
    mechanism: Channel,
    *,
    lat: str | None = None,
    lng: str | None = None,
    outside: Outside = "drop",
    bad_rows: BadRows = "raise",
    seed: int | None = None,
) -> tuple[Tally, TableSummary]:
    """One noisy report for each row of a Spark DataFrame, counted where the rows are.

    The frame is run once. Its rows have no numbers that would be the same the next time, so that a ``seed``
    is refused: files can be tallied with one.
    Guarantee: that of the mechanism, for each report; reports about one person add up.
    Cost: memory for a batch or two in every worker; one tally from every partition to the driver.
    """
    if seed is not None:
        raise InvalidInput(
            f"seed ({seed}) must be left out for a DataFrame, whose rows have no numbers; give a file"
        )
    if not isinstance(mechanism, Channel):
        raise Unsupported(f"{mechanism!r} reports points, not cells; use planar-laplace to count")
    columns = coordinate_columns(frame.columns, lat, lng, "the DataFrame", option="{}=")
    work = PartCounter(mechanism, outside, None)
    narrow = frame.select(*(f"`{name}`" for name in columns))
    total = work.nothing()
    for counted in _collected(
        narrow, partial(worker.frame_answer, pickle.dumps(work), columns, bad_rows)
    ):
        total.add(counted)
    locations = worker.frame_locations(
        worker.ArrowReader("the DataFrame", columns, ()), columns, bad_rows
    )
    locations.count_elsewhere(total.read, total.bad)
    locations.check(total.outside)
    summary = TableSummary(total.read, int(total.counts.sum()), total.bad, total.outside, None)
    return Tally(mechanism, total.counts), summary


def collect_round(
    frame: Any, campaign: Campaign, *, number: int | None = None, **options: Any
) -> Round:
    """Let every row of a DataFrame report once in a round of a campaign, open or long closed.

    Without a ``number`` that is the open round. Rows that come late are reported under the mechanism of
    their own round, and count in the estimates from the next close on. ``options`` are those of
    :func:`tally_frame`.
    """
    rounds = {round_.number: round_ for round_ in [*campaign.rounds, campaign.current]}
    number = campaign.current.number if number is None else number
    if number not in rounds:
        raise InvalidInput(
            f"number ({number}) must be a round that was opened, 1 to {campaign.current.number}"
        )
    if len(rounds[number].mechanisms) > 1:
        raise Unsupported(
            "a campaign of several promises must be told who chose which; tally the rows of each promise "
            "with tally_frame and let the campaign receive them"
        )
    counted, _ = tally_frame(frame, rounds[number].mechanisms[0], **options)
    return campaign.receive(counted)


def collect_rounds(
    frame: Any,
    campaign: Campaign,
    *,
    by: str | None = None,
    person: str | None = None,
    rounds: int | None = None,
    save: str | Path | None = None,
    **options: Any,
) -> Campaign:
    """Run a campaign over a DataFrame, one round after another, everybody in one round.

    Either ``by`` names the column that says the round (its different values in order, as the partition
    column of a dataset), or ``rounds`` and ``person``, the column that says whom a row is about: people are
    dealt into that many rounds by a hash of who they are, with all rows about them. Rounds that the
    campaign has closed are passed over. With ``save`` it is written to that file after every close: a
    driver that starts again goes on from there (``Campaign.load``), and no closed round is drawn again.
    """
    from pyspark.sql import functions

    if (by is None) == (person is None) or (person is None) != (rounds is None):
        raise InvalidInput(
            "rounds must come from a column, by=, or from person= and rounds=, one of the two"
        )
    for name in (by, person):
        if name is not None and name not in frame.columns:
            raise InvalidInput(f"column ({name}) must be one of {', '.join(frame.columns)}")
    chosen = functions.col(f"`{by or person}`")
    if by is None:
        chosen = functions.pmod(functions.xxhash64(chosen), functions.lit(rounds))
        values: list[Any] = list(range(rounds or 0))
    else:
        values = [row[0] for row in frame.select(chosen).distinct().collect()]
        if None in values:
            raise InvalidInput(
                f"column ({by}) must say the round of every row; leave out those without"
            )
        values.sort()
    for value in values[len(campaign.rounds) :]:
        collect_round(frame.where(chosen == functions.lit(value)), campaign, **options)
        if campaign.close_round() is None:
            raise InvalidInput(
                f"round {campaign.current.number} must have at least "
                f"{number_of(campaign.minimum_reports, 'report')} to close; it has "
                f"{campaign.current.total}; deal people into fewer rounds"
            )
        if save is not None:
            campaign.save(save)
    return campaign
