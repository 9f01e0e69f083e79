"""Writing tables: whole or not at all, and read back as they were."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from geoveil.document.canonical import canonical_bytes
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.files import replaced_file
from geoveil.table import streamed
from geoveil.table.locations import LocationTable, Reading
from geoveil.table.reader import open_table
from geoveil.table.writer import check_target, create_table

BATCHES = [
    pa.record_batch({"cell": [3, 4], "lat": [1.5, 2.5], "lng": [-3.25, 4.0], "who": ["a", "b"]}),
    pa.record_batch({"cell": [5], "lat": [3.5], "lng": [5.0], "who": ['c, "d"\ne']}),
]
DOCUMENT = {"geoveil": 1, "name": "ε", "numbers": [1, 2.5]}


def write(path: Path, batches: list[pa.RecordBatch] = BATCHES, document: Any = DOCUMENT) -> None:
    with create_table(str(path), batches[0].schema, document=document) as table:
        for batch in batches:
            table.write(batch)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.geojson", "a.json"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    rows: list[tuple[Any, ...]] = []
    with open_table(str(tmp_path / name)) as reader:
        for part in LocationTable(reader, Reading(), keep=["cell", "who"]):
            kept = part.others.to_pydict()
            rows += zip(part.lat, part.lng, map(int, kept["cell"]), kept["who"], strict=True)
    expected = [(1.5, -3.25, 3, "a"), (2.5, 4.0, 4, "b"), (3.5, 5.0, 5, 'c, "d"\ne')]
    assert rows == expected
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.geojson"])
def test_the_mechanism_document_travels_with_the_file(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    with open_table(str(tmp_path / name)) as reader:
        assert reader.metadata == DOCUMENT


def test_parquet_metadata_is_where_others_look_for_it(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    stored = pq.read_metadata(tmp_path / "a.parquet").metadata[b"geoveil"]
    assert json.loads(stored) == DOCUMENT


def test_csv_is_plain_where_nothing_needs_quotes(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", BATCHES[:1], None)
    assert (tmp_path / "a.csv").read_text() == "cell,lat,lng,who\n3,1.5,-3.25,a\n4,2.5,4,b\n"


def test_csv_carries_its_document_in_the_first_row_of_a_last_column(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    lines = list(csv.reader(io.StringIO((tmp_path / "a.csv").read_text(), newline="")))
    assert [line[-1] for line in lines] == ["geoveil", canonical_bytes(DOCUMENT).decode(), "", ""]
    with open_table(str(tmp_path / "a.csv")) as reader:
        assert reader.columns == ["cell", "lat", "lng", "who"]


@pytest.mark.parametrize(("rows", "longest"), [(10, 30_000), (2, 50_011)])
def test_a_long_document_goes_down_the_column(tmp_path: Path, rows: int, longest: int) -> None:
    """No field is longer than a spreadsheet takes, as long as there are rows enough."""
    long = {"geoveil": 1, "weights": "7" * 99_996}
    batch = pa.record_batch({"cell": range(rows), "lat": [1.0] * rows, "lng": [2.0] * rows})
    write(tmp_path / "a.csv", [batch, batch], long)
    lines = list(csv.reader(io.StringIO((tmp_path / "a.csv").read_text(), newline="")))
    assert max(len(line[-1]) for line in lines) == longest
    with open_table(str(tmp_path / "a.csv")) as reader:
        assert reader.metadata == long
        assert sum(part.num_rows for part in reader.batches(["cell"])) == 2 * rows


def test_rows_may_be_sorted_without_losing_the_document(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", BATCHES[:1])
    head, *rows = (tmp_path / "a.csv").read_text().splitlines()
    (tmp_path / "a.csv").write_text("\n".join([head, *reversed(rows)]))
    with open_table(str(tmp_path / "a.csv")) as reader:
        assert reader.metadata == DOCUMENT
        assert [
            float(each) for part in reader.batches(["lat"]) for each in part["lat"].to_pylist()
        ] == [2.5, 1.5]


def test_a_broken_document_is_said_and_a_column_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('lat,lng,geoveil\n1,2,"{""geoveil"""\n')
    with pytest.raises(InvalidFile, match="carries a document that is not JSON"):
        open_table(str(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text("lat,lng,geoveil\n1,2,yes\n3,4,no\n")
    with open_table(str(tmp_path / "a.csv")) as reader:
        assert reader.metadata is None
        assert reader.columns == ["lat", "lng", "geoveil"]
    batch = pa.record_batch({"lat": [1.0], "geoveil": ["mine"]})
    with pytest.raises(InvalidInput, match="must leave that name"):
        write(tmp_path / "b.csv", [batch])
    assert not (tmp_path / "b.csv").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes are those of POSIX")
def test_no_document_is_looked_for_in_a_pipe_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens one again waits for somebody who writes into it, for ever."""
    write(tmp_path / "a.geojson", BATCHES[:1], None)
    pipe = tmp_path / "b.geojson"
    os.mkfifo(pipe)
    data = (tmp_path / "a.geojson").read_bytes()
    threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True).start()
    with open_table(str(pipe)) as reader:
        monkeypatch.setattr(streamed, "Source", pytest.fail)
        assert reader.metadata is None
        assert sum(part.num_rows for part in reader.batches(["cell"])) == 2


def test_csv_header_is_quoted_where_it_must_be(tmp_path: Path) -> None:
    batch = pa.record_batch({'a,"b': [1], "lat": [1.0]})
    write(tmp_path / "a.csv", [batch], None)
    assert arrow_csv.read_csv(tmp_path / "a.csv").column_names == ['a,"b', "lat"]


def test_geojson_is_valid_json_even_for_odd_values(tmp_path: Path) -> None:
    import datetime

    batch = pa.record_batch(
        {
            "lat": [1.0, 2.0],
            "lng": [3.0, 4.0],
            "number": [float("nan"), float("inf")],
            "when": [datetime.date(2020, 1, 2), None],
        }
    )
    write(tmp_path / "a.geojson", [batch])
    parsed = json.loads((tmp_path / "a.geojson").read_text(), parse_constant=pytest.fail)
    assert parsed["features"][0]["properties"] == {"number": None, "when": "2020-01-02"}
    assert parsed["features"][1]["geometry"]["coordinates"] == [4.0, 2.0]


def test_an_empty_geojson_is_valid(tmp_path: Path) -> None:
    write(tmp_path / "a.geojson", [BATCHES[0].slice(0, 0)])
    assert json.loads((tmp_path / "a.geojson").read_text())["features"] == []


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.geojson"])
@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, name: str, failure: type[BaseException]
) -> None:
    def fail() -> None:
        with create_table(str(tmp_path / name), BATCHES[0].schema) as table:
            table.write(BATCHES[0])
            raise failure

    with pytest.raises(failure):
        fail()
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    with pytest.raises(AttributeError), create_table(str(path), BATCHES[0].schema) as table:
        table.write(None)
    assert path.read_text() == "old"


def test_the_target_does_not_exist_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with create_table(str(path), BATCHES[0].schema) as table:
        table.write(BATCHES[0])
        assert not path.exists()
    assert path.exists()


def test_the_new_file_has_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write(tmp_path / "a.csv")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "a.csv")}
    assert len(modes) == 1


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for mode in (0o600, 0o640, 0o666):
        path.write_text("old")
        path.chmod(mode)
        with replaced_file(str(path)) as handle:
            (partial,) = tmp_path.glob(".*.partial")
            assert stat.S_IMODE(partial.stat().st_mode) == mode
            handle.write(b"new")
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert path.read_text() == "new"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["x"]]),
        pa.array([{"a": 1}]),
        pa.array([b"\xff"]),
        pa.array([b"x"]),
        pytest.param(
            pa.array(["x"], pa.string_view()),
            marks=pytest.mark.skipif(
                int(pa.__version__.partition(".")[0]) < 21, reason="pyarrow writes it from 21 on"
            ),
        ),
    ],
    ids=lambda column: str(column.type),
)
def test_what_csv_cannot_hold_is_named(tmp_path: Path, column: pa.Array) -> None:
    batch = pa.record_batch({"cell": [1], "lat": [1.0], "lng": [2.0], "tags": column})
    with pytest.raises(InvalidInput, match=r"\(tags\) must hold numbers .* Parquet or GeoJSON"):
        write(tmp_path / "a.csv", [batch])
    assert not list(tmp_path.iterdir())
    for name in ("a.parquet", "a.geojson"):
        write(tmp_path / name, [batch])


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write(tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("cell")


def test_a_device_is_written_to_and_not_replaced() -> None:
    with replaced_file(os.devnull) as handle:
        handle.write(b"x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_missing_folder_is_named_by_the_target(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"none/a\.csv") as caught:
        write(tmp_path / "none" / "a.csv")
    assert "partial" not in str(caught.value)


def test_compressed_output_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        write(tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_the_input_is_never_the_output(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x")
    (tmp_path / "link.csv").symlink_to(path)
    (tmp_path / "hard.csv").hardlink_to(path)
    for other in ("a.csv", "link.csv", "hard.csv", "../" + tmp_path.name + "/a.csv"):
        with pytest.raises(InvalidInput, match="must not be the same file"):
            check_target(str(tmp_path / other), str(path))
    check_target(str(tmp_path / "b.csv"), str(path))
    check_target("-", "-")


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    for wrong, why in ((tmp_path, "it is a folder"), (tmp_path / "none" / "a.csv", "that exists")):
        with pytest.raises(InvalidInput, match=why):
            check_target(str(wrong))
    check_target(os.devnull)
    (tmp_path / "locked").mkdir(mode=0o500)
    if not os.access(tmp_path / "locked", os.W_OK):  # whoever may do everything may do this too
        with pytest.raises(InvalidInput, match="may write"):
            check_target(str(tmp_path / "locked" / "a.csv"))


def test_a_full_disk_names_the_file_that_did_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "reports.csv"
    with pytest.raises(OSError, match="No space left on device") as found, replaced_file(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a write says it
    assert found.value.filename == str(path)
    assert not list(tmp_path.iterdir())


def test_geojson_is_json_whatever_is_kept(tmp_path: Path) -> None:
    kept = {"tags": [[1.5, float("nan")]], "about": [{"at": float("inf")}], "who": [b"u1"]}
    batch = pa.record_batch({"cell": [1], "lat": [1.0], "lng": [2.0], **kept})
    write(tmp_path / "a.geojson", [batch])
    text = (tmp_path / "a.geojson").read_text()
    (row,) = json.loads(text, parse_constant=pytest.fail)["features"]
    assert row["properties"] == {"cell": 1, "tags": [1.5, None], "about": {"at": None}, "who": "u1"}
