"""Estimates and shares of cells as tables."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np

from geoveil import arrays
from geoveil.arrays import FloatArray, IntArray, frozen, prior_over
from geoveil.channel.guarantee import BetweenPositions
from geoveil.channel.words import promise_of_a_report
from geoveil.document.canonical import json_number
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported
from geoveil.estimate.bars import Ends, ErrorBars
from geoveil.estimate.fitted import Estimate, Fit
from geoveil.estimate.identifiability import Identifiability
from geoveil.files import file_name
from geoveil.space import Points, Space, space_from_dict
from geoveil.table import locations, streamed, writer
from geoveil.table.columns import marked_row, numbers
from geoveil.table.reader import Format, TableReader, open_table

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
"""Of the description that a file of results carries; a reader refuses any other."""

_INTERVAL = ("low", "high")
_Value = TypeVar("_Value")
_SINGLE_CELLS = (
    "a saved estimate holds error bars of single cells, which do not add up; ask the estimate itself for "
    "regions"
)


@dataclass(frozen=True)
class Result:
    """Shares by cell as a file holds them; what a file does not hold is ``None``.

    ``reports`` counts how often each cell was reported; ``description`` is what the file says about
    itself (certificate, steps, mechanisms …).
    """

    space: Space
    share: FloatArray
    standard_error: FloatArray | None = None
    low: FloatArray | None = None
    high: FloatArray | None = None
    reports: IntArray | None = None
    description: Mapping[str, Any] | None = None

    @property
    def reported_share(self) -> FloatArray | None:
        """Of the reports that name a cell, the share that names each; ``None`` where there are none."""
        if self.reports is None or not self.reports.any():
            return None
        return self.reports / self.reports.sum()

    def columns(self) -> dict[str, Any]:
        """The columns of the file, in order; coordinates only where the space has a map."""
        columns: dict[str, Any] = {"cell": np.arange(self.space.size)}
        columns |= _centres(self.space)
        columns["share"] = self.share
        for name in ("standard_error", *_INTERVAL, "reports"):
            if getattr(self, name) is not None:
                columns[name] = getattr(self, name)
        return columns


def estimate_result(
    estimate: Estimate,
    *,
    level: float = 0.95,
    with_bars: bool = True,
    part: str = "cell",
    **more: Any,
) -> Result:
    """An estimate as a file holds it, with all that it says of itself; ``more`` goes into the description.

    ``part`` is what the file has a row for, a cell or a district.
    What an estimate that was recalled no longer knows (its likelihood, what could be told apart) is null.
    """
    identifiable = _if_any(lambda: estimate.identifiable)
    description = {
        "reports": estimate.total,
        "steps": estimate.steps,
        "stopped": estimate.stopped,
        "certificate_nats_per_report": json_number(_if_any(lambda: estimate.certificate)),
        "log_likelihood_nats_per_report": json_number(_if_any(lambda: estimate.log_likelihood)),
        "identifiable": None if identifiable is None else bool(identifiable),
        "identifiability": None if identifiable is None else identifiable.reason,
        "interval_level": level if with_bars else None,
        "error_bars": "none: they were not asked for",
        "promises": list(estimate.promises),
        **more,
    }
    if with_bars:
        description["error_bars"] = (
            f"{estimate.errors.method}; each interval is for one {part} by itself, around the unbiased "
            "share, which may lie beside the share shown, and never narrower than in a poll without noise"
        )
    shares = shares_and_bars(estimate, level if with_bars else None)
    return replace(shares, description=description)


def shares_and_bars(estimate: Estimate, level: float | None) -> Result:
    """The shares of an estimate, with error bars at a level unless it is ``None``."""
    if level is None:
        return Result(estimate.space, estimate.distribution)
    low, high = estimate.interval(level)
    return Result(estimate.space, estimate.distribution, estimate.standard_error, low, high)


def _if_any(ask: Callable[[], _Value]) -> _Value | None:
    try:
        return ask()
    except GeoveilError:
        return None


def save_estimate(estimate: Estimate, path: str | Path, *, level: float = 0.95) -> None:
    """Write an estimate by the ending of its name; ``load_estimate`` reads it back."""
    write_result(file_name(path), estimate_result(estimate, level=level))


def load_estimate(path: str | Path) -> Estimate:
    """The estimate in a file that ``estimate.save``, ``geoveil estimate`` or the service wrote.

    It holds what the file does: shares, and for every cell its standard error and its interval at one level;
    regions need the estimate itself.
    """
    result = read_result(file_name(path))
    about = result.description or {}
    total = about.get("reports")
    if type(total) is not int or total < 1:
        raise InvalidFile(
            f"{path} must say how many reports its estimate is from; it is a table of shares"
        )
    steps = about.get("steps")
    return Estimate(
        space=result.space,
        distribution=result.share,
        total=total,
        steps=steps if type(steps) is int else 0,
        stopped=str(about.get("stopped", "not said in the file")),
        find_fit=lambda: Fit(
            _number(about.get("log_likelihood_nats_per_report")),
            _number(about.get("certificate_nats_per_report")),
        ),
        find_errors=lambda: _saved_errors(result, total),
        find_identifiability=lambda: _saved_identifiability(result),
        find_promises=lambda: _saved_promises(about),
    )


def _saved_promises(about: Mapping[str, Any]) -> tuple[str, ...]:
    """As an estimate says them, or by the numbers that the service writes, which are between positions."""
    words = about.get("promises")
    if isinstance(words, list):
        return tuple(map(str, words))
    epsilons = about.get("promises_per_km") or [about.get("epsilon_per_km")]
    try:
        slack = _number(about.get("slack_nats"))
        promises = [BetweenPositions(epsilon, slack) for epsilon in epsilons]
    except (InvalidInput, TypeError):
        return ()
    return tuple(promise_of_a_report(promise) for promise in promises)


def _number(stored: Any) -> float:
    """A number of a description; not a number where the file does not say."""
    try:
        return float(str(stored).replace("infinite", "inf")) if stored is not None else math.nan
    except ValueError:
        return math.nan


@dataclass(frozen=True, eq=False)
class SavedErrors(ErrorBars):
    """Error bars of cells as a file holds them: one level, and nothing about several cells together."""

    level: float
    of_cells: FloatArray
    """The standard error of each."""
    ends: Ends
    """Of the intervals."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        self._check_cells(combinations)
        return self.of_cells

    def interval(self, level: float, combinations: FloatArray | None = None) -> Ends:
        self._check_cells(combinations)
        if arrays.part("level", level) != self.level:
            raise Unsupported(
                f"the intervals of a saved estimate are those at level {self.level:g}; save it at level "
                f"{level:g} for others"
            )
        return self.ends

    def _summed(self, groups: Any, sums: Any) -> dict[str, Any]:
        raise Unsupported(_SINGLE_CELLS)

    def _check_cells(self, combinations: FloatArray | None) -> None:
        if combinations is not None:
            raise Unsupported(_SINGLE_CELLS)


def _saved_errors(result: Result, total: int) -> SavedErrors:
    about = result.description or {}
    level = _number(about.get("interval_level"))
    errors, low, high = result.standard_error, result.low, result.high
    if errors is None or low is None or high is None or not 0 < level < 1:
        raise Unsupported("the file of this estimate holds no error bars")
    method = str(about.get("error_bars", "not said in the file"))
    return SavedErrors(method, result.share, result.share, total, level, errors, (low, high))


def _saved_identifiability(result: Result) -> Identifiability:
    about, size = result.description or {}, result.space.size
    identifiable = about.get("identifiable") is True
    reason = str(about.get("identifiability") or "not tested: the file does not say")
    nowhere = frozen(np.zeros(size, dtype=np.bool_))
    return Identifiability(size if identifiable else 0, size, nowhere, (), reason)


def write_result(path: str, result: Result, *, format: str | None = None) -> None:
    """Write a result by the ending of its name: cells as GeoJSON polygons, or a CSV or Parquet table.

    Every file names its space and carries the description, so that ``read_result`` gives both back.
    """
    writer.write_by(put_result, path, result, format=format)


def put_result(sink: IO[bytes], kind: Format, result: Result) -> None:
    """Write the bytes of a file of results."""
    document = {"estimate": VERSION, "space": result.space.to_dict(), **(result.description or {})}
    columns = result.columns()
    shaped = kind is Format.GEOJSON or (kind is Format.PARQUET and "lat" in columns)
    writer.put_table(sink, kind, columns, document, _shapes(result.space) if shaped else None)


def put_by_slot(
    sink: IO[bytes], kind: Format, maps: Mapping[str, Result], description: Mapping[str, Any]
) -> None:
    """Write the bytes of a file with one row for each cell of each slot."""
    space = next(iter(maps.values())).space
    document = {"estimate_by_slot": VERSION, "space": space.to_dict(), **description}
    tables = {slot: result.columns() for slot, result in maps.items()}
    rows: dict[str, Any] = {"slot": [slot for slot, table in tables.items() for _ in table["cell"]]}
    for name in next(iter(tables.values())):
        rows[name] = np.concatenate([table[name] for table in tables.values()])
    shapes = _shapes(space) * len(maps) if kind is Format.GEOJSON else None
    writer.put_table(sink, kind, rows, document, shapes)


def _shapes(space: Any) -> list[dict[str, Any]]:
    """The geometry of every cell."""
    if not _centres(space):
        raise Unsupported(f"{space!r} has no map; write the estimate as .csv or .parquet")
    return [feature["geometry"] for feature in space.to_geojson()["features"]]


def read_result(path: str, *, format: str | None = None, delimiter: str = ",") -> Result:
    """Read a file that ``write_result`` or the service wrote, or any table of cells with a share each."""
    try:
        with open_table(path, format=format, delimiter=delimiter) as reader:
            return read_cells(reader)
    except streamed.PlainDocument as found:
        return result_of(found, path)


def read_cells(reader: TableReader, column: str | None = None) -> Result:
    """The result of an open table whose rows are cells.

    The space is the one that the file names. Where it names none, the columns lat and lng are places
    (whoever is elsewhere belongs to the nearest of them). Shares, or the amounts of another ``column``
    such as counts of people, are divided by their sum.
    """
    amounts = amount_column(reader, column)
    others = _OTHERS if column is None else _OTHERS[:3]
    names = [name for name in dict.fromkeys((*others, amounts)) if name in reader.columns]
    table = read_numbers(reader, names, amounts)
    table["share"] = table.pop(amounts)
    rows = table["share"].size
    if not rows:
        raise InvalidFile(f"{reader.name} must have one row for each cell; it has none")
    cells = table.pop("cell", np.arange(float(rows)))  # without numbers as it stands
    order = np.argsort(cells, kind="stable")
    if not np.array_equal(cells[order], np.arange(rows)):
        raise InvalidFile(
            f"{reader.name} must have every cell 0 … {rows - 1} once in its column 'cell'"
        )
    table = {name: values[order] for name, values in table.items()}
    try:  # the document after the rows: in a pipe it may stand behind them
        return _built(table, reader.metadata, f"column {amounts!r}")
    except GeoveilError as problem:
        raise InvalidFile(f"{reader.name}: {problem}") from None


def read_numbers(reader: TableReader, names: Sequence[str], amounts: str) -> dict[str, FloatArray]:
    """Whole columns of an open table, as numbers; that of ``amounts``, which is one of them, is checked."""
    batches = list(reader.batches(names))
    rows = sum(batch.num_rows for batch in batches)
    locations.tell_bad_rows(reader.name, reader.refused, rows + reader.refused)
    columns = {name: [batch.column(name) for batch in batches] for name in names}
    read = {name: _joined(column) for name, column in columns.items() if name != amounts}
    checked = checked_amounts(columns[amounts], amounts, reader.name, reader.refused)
    return {**read, amounts: checked}


def _joined(column: Sequence[pa.Array]) -> FloatArray:
    return np.concatenate([np.empty(0), *map(numbers, column)])


OF_ESTIMATES = {
    "estimate": "",
    "estimate_by_slot": "maps of several slots: estimate without --by",
    "zones": "shares of districts: estimate without --zones",
    "flows": "flows of trips",
}
"""What the documents of estimates begin with → what such a file holds that is no share of each cell."""


def refuse_others(reader: TableReader) -> None:
    """Refuse a file that says what it holds, where that is not the share of each cell.

    How many reports name a cell is not how many people are there, and other estimates have other rows.
    """
    carried = reader.metadata
    if carried is not None and "estimate" not in carried:
        held = next((OF_ESTIMATES[name] for name in OF_ESTIMATES if name in carried), None)
        raise InvalidFile(
            f"{reader.name} must hold shares of cells; it holds {held or 'reports: estimate them first'}"
        )


def amount_column(reader: TableReader, column: str | None) -> str:
    """The column that says how many people are where: the one given, or ``share``."""
    refuse_others(reader)
    if column is None and "share" not in reader.columns:
        raise InvalidFile(
            f"{reader.name} must have a column share, as geoveil estimate writes it; "
            f"{locations.list_columns(reader.columns)}"
        )
    return locations.check_column(reader.columns, column or "share", reader.name)


def checked_amounts(
    written: Sequence[pa.Array], column: str, path: str, left_out: int
) -> FloatArray:
    """Numbers of at least 0, the first other one named by its row; a warning where some may have marks.

    Of the rows of the table so many were ``left_out``: rows are numbered without them.
    """
    values = _joined(written)
    of_those = " of those not left out" if left_out else ""
    wrong = np.flatnonzero(~((values >= 0) & np.isfinite(values)))
    if wrong.size:
        raise InvalidFile(
            f"column {column!r} of {path} must hold numbers of at least 0; row {wrong[0] + 1}{of_those} does "
            "not: write them with a decimal point, and without marks for thousands"
        )
    if (row := marked_row(written)) is not None:
        logging.getLogger("geoveil.notes").warning(
            f"points of column {column!r} of {path}, as in row {row + 1}{of_those}, look like marks for "
            "thousands and are read as decimal ones; write numbers without such marks"
        )
    return values


def result_of(document: streamed.PlainDocument, path: str) -> Result:
    """The estimate of a JSON file that is no FeatureCollection: as the service keeps it."""
    if document.values.get("kind") != "estimate":
        raise document
    try:
        return result_from_dict(document.values)
    except GeoveilError as problem:
        raise InvalidFile(f"{path}: {problem}") from None


def result_from_dict(values: Mapping[str, Any]) -> Result:
    """The estimate that the service released as JSON: arrays by cell, and the rest about them."""
    try:
        interval = values.get("interval", {})
        table = {
            name: values[key] for name, key in _OF_DOCUMENT.items() if interval or name == "share"
        }
        table |= {name: interval[name] for name in _INTERVAL if interval}
        arrays = {name: np.array(listed, dtype=np.float64) for name, listed in table.items()}
        about = {name: values[name] for name in values if name not in _BY_CELL}
        if interval:  # an estimate without bars says so
            about["interval_level"] = interval["level"]
            about["interval"] = {name: interval[name] for name in interval if name not in _INTERVAL}
    except (KeyError, TypeError, ValueError):
        raise InvalidFile(
            "an estimate of the service must have all its entries; it has not"
        ) from None
    return _built(arrays, {"estimate": VERSION, **about})


_OF_DOCUMENT = {"share": "distribution", "standard_error": "standard_error"}
_BY_CELL = (*_OF_DOCUMENT.values(), "blocks", "geoveil")
_OTHERS = ("cell", "lat", "lng", "standard_error", *_INTERVAL, "reports")


def _built(
    table: dict[str, FloatArray], described: Mapping[str, Any] | None, name: str = "distribution"
) -> Result:
    about = dict(described or {})
    if about and about.pop("estimate", None) != VERSION:
        raise InvalidFile(f'the description of an estimate must say "estimate": {VERSION}')
    if "space" in about:
        space = space_from_dict(about.pop("space"))
    elif "lat" in table and "lng" in table:
        space = Points(lat=table["lat"], lng=table["lng"])
    else:
        raise InvalidFile("it must have the columns lat and lng, or describe its space")
    names = ("standard_error", *_INTERVAL)
    parts: dict[str, Any] = {name: table[name] for name in names if name in table}
    if "standard_error" in parts:  # JSON has no infinity: null stands for it
        parts["standard_error"] = np.nan_to_num(parts["standard_error"], nan=np.inf, posinf=np.inf)
    share, reports = prior_over(table["share"], space.size, name=name), table.get("reports")
    if reports is not None:
        if not ((reports >= 0) & (reports == np.floor(reports))).all():
            raise InvalidFile("its column 'reports' must hold whole numbers")
        parts["reports"] = reports.astype(np.int64)
    return Result(space, share, description=about, **parts)


def _centres(space: Any) -> dict[str, FloatArray]:
    """Latitudes and longitudes to a centimetre; nothing where the space has no map."""
    try:
        lat, lng = space.centres_latlng()
    except (AttributeError, Unsupported):
        return {}
    return {"lat": np.round(lat, 7), "lng": np.round(lng, 7)}
