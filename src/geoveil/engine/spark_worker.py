"""What runs on the workers of Spark: one answer for each partition, and nothing else leaves it.

Apart from the driver's side, so that a worker loads no more than it needs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from geoveil.engine.part_reports import Counted, PartCounter
from geoveil.errors import GeoveilError
from geoveil.table.locations import BadRows, LocationTable, Reading
from geoveil.table.reader import BATCH_ROWS, TableReader

if TYPE_CHECKING:
    import pyarrow as pa

ANSWER = "parts array<bigint>, answer binary, problem string, why string"
"""The row that a partition gives: the parts it is about, their sum or what is wrong with them."""


def part_answers(
    work: bytes, sent: Sequence[bytes], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What runs on a worker: the sum of the parts whose numbers come in."""

    def answered() -> tuple[list[int], Any]:
        run = pickle.loads(work)
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        total = None
        for number in numbers:
            answer = run(pickle.loads(sent[number]))
            if total is None:
                total = answer
            else:
                total.add(answer)
        return numbers, total

    yield _answer(answered)


def _answer(answered: Callable[[], tuple[list[int], Any]]) -> pa.RecordBatch:
    """The one row that leaves a partition: its answer, or what is wrong with its rows."""
    import pyarrow as pa

    problem = why = answer = None
    numbers: list[int] = []
    try:
        numbers, total = answered()
        answer = pickle.dumps(total)
    except GeoveilError as error:
        problem, why = type(error).__name__, str(error)
    except OSError as error:
        problem = "EngineFailed"
        why = (
            f"a worker cannot read {error.filename}: {error.strerror}; every worker must have the file under "
            "the same name; nothing was written"
        )
    names = ["parts", "answer", "problem", "why"]
    kinds = [pa.list_(pa.int64()), pa.binary(), pa.string(), pa.string()]
    values = [[numbers], [answer], [problem], [why]]
    columns = [pa.array(value, kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


class ArrowReader(TableReader):
    """Record batches that come from somewhere, as a table."""

    def __init__(self, name: str, columns: Sequence[str], rows: Iterable[pa.RecordBatch]) -> None:
        self.name = name
        self.columns = list(columns)
        self._incoming = rows

    def batches(
        self, coordinates: Sequence[str], others: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The rows in order, as they come or, where they come by the few, in batches of some size."""
        import pyarrow as pa

        columns = list(dict.fromkeys([*coordinates, *others]))
        waiting: list[pa.RecordBatch] = []
        for batch in self._incoming:
            waiting.append(batch.select(columns))
            if sum(rows.num_rows for rows in waiting) >= BATCH_ROWS:
                yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
                waiting = []
        if waiting:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def frame_locations(
    reader: ArrowReader, columns: tuple[str, str], bad_rows: BadRows
) -> LocationTable:
    """The places of a DataFrame, or of one of its partitions."""
    return LocationTable(reader, Reading(*columns, bad_rows))


def frame_answer(
    work: bytes, columns: tuple[str, str], bad_rows: BadRows, rows: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What runs on a worker: the tally of the rows of one partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = -1 if context is None else context.partitionId()

    def answered() -> tuple[list[int], Counted]:
        reader = ArrowReader(f"partition {number} of the DataFrame", columns, rows)
        counter: PartCounter = pickle.loads(work)
        return [number], counter.over(frame_locations(reader, columns, bad_rows))

    yield _answer(answered)
