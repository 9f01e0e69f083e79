"""``--bad-rows drop``: every command says in the same words how many rows it left out."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geoveil.cli.program import program

BOX = ["--box", "48.83,2.29,48.88,2.39", "--epsilon-per-km", "2", "--cell-km", "2"]
HEAD = "id,lat,lng,time,user,to_lat,to_lng\n"
BAD = [
    "7,,,,,,",  # bad in every way, and one row
    "7,x,2.3,2026-05-01T08:30Z,u1,48.85,2.35",
    "7,48.85",
    "7,nan,inf,soon,,,",
    "7,95,2.3,2026-05-01T08:30Z,u1,48.85,2.35",
    "7,48.85,2.35,2026-05-01T08:30Z,u1,48.85,2.35,7",
]
NO_TIME = "7,48.85,2.35,soon,u1,48.85,2.35"
NOBODY = "7,48.85,2.35,2026-05-01T08:30Z,,48.85,2.35"
NO_END = "7,48.85,2.35,2026-05-01T08:30Z,u1,,2.35"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 good rows among nine that are bad, or bad for some; their reports, some of them spoilt."""
    folder = tmp_path_factory.mktemp("rows")
    with contextlib.chdir(folder):
        write()
    return folder


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def write() -> None:
    good = [
        f"{k},{48.84 + k / 2000},{2.3 + k / 1000},2026-05-01T{k % 24:02}:30Z,u{k % 4},48.85,2.35"
        for k in range(40)
    ]
    bad = [*BAD, NO_TIME, NOBODY, NO_END]
    rows = [
        row for k, row in enumerate(good) for row in (row, *bad[k // 4 : k // 4 + (k % 4 == 0)])
    ]
    Path("places.csv").write_text(HEAD + "\n".join(rows) + "\n")
    drop = ["--bad-rows", "drop", "--keep", "time", "--keep", "user", "--save-mechanism", "m.json"]
    assert run("obfuscate", "places.csv", "-o", "noisy.csv", *BOX, *drop).exit_code == 0
    head, *lines = Path("noisy.csv").read_text().splitlines()
    _, lat, lng, *_ = lines[0].split(",")
    middles = [row if row in bad else f"0,{lat},{lng}" + ",,,," for row in rows]
    Path("middles.csv").write_text(HEAD + "\n".join(middles) + "\n")
    spoilt = {5: ",48.85,2.35,2026-05-01T08:30Z,u1,", 6: "x,48.85,2.35,,,", 7: "3,48.85"}
    lines = [spoilt.get(number, line) for number, line in enumerate(lines)]
    Path("spoilt.csv").write_text("\n".join([head, *lines]) + "\n")
    assert run("estimate", "noisy.csv", "-o", "estimate.csv").exit_code == 0


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, arguments)


@pytest.mark.parametrize(
    ("command", "bad"),
    [
        (["obfuscate", "places.csv", "-o", "o.csv", *BOX], "6 of 49"),
        (["obfuscate", "places.csv", "-o", "o.csv", *BOX, "--person", "user"], "7 of 49"),
        (["obfuscate", "places.csv", "-o", "o.csv", *BOX, "--trips"], "7 of 49"),
        (["tally", "places.csv", "-o", "o.json", *BOX], "6 of 49"),
        (
            ["tally", "places.csv", "-o", "o.json", *BOX, "--trips", "--person", "user",
             "--consecutive-hours", "9"],
            "8 of 49",
        ),
        (["simulate", "places.csv", *BOX, "--rounds", "1"], "6 of 49"),
        (["evaluate", "estimate.csv", "--truth", "places.csv"], "6 of 49"),
        (["design", "--prior", "places.csv", "--column", "id", *BOX, "-o", "o.json"], "6 of 49"),
        (["estimate", "spoilt.csv", "-o", "o.csv"], "3 of 43"),
        (["estimate", "spoilt.csv", "-o", "o.csv", "--by", "hour"], "3 of 43"),
        (["estimate", "spoilt.csv", "-o", "o.csv", "--joint", "user"], "3 of 43"),
        (["estimate", "middles.csv", "-o", "o.csv", "--mechanism", "m.json"], "6 of 49"),
    ],
)  # fmt: skip
def test_the_rows_left_out_are_counted_once_and_said(command: list[str], bad: str) -> None:
    result = run(*command, "--bad-rows", "drop")
    assert result.exit_code == 0, result.stderr
    source = next(word for word in command if word in ("places.csv", "spoilt.csv", "middles.csv"))
    assert (
        f"note: {bad} rows of {source} have no usable values and were left out\n" in result.stderr
    )
    assert result.stderr.count("usable values") == 1
    assert run(*command).exit_code == 2
    if command[0] in ("obfuscate", "tally", "evaluate"):
        values = json.loads(run(*command, "--bad-rows", "drop", "--json").stdout)
        assert f"{values['bad_rows_dropped']} of 49" == bad


def test_reports_of_nobody_are_left_out_and_counted_apart() -> None:
    result = run("estimate", "spoilt.csv", "-o", "o.csv", "--joint", "user", "--bad-rows", "drop")
    assert (
        "note: 1 of 40 rows of spoilt.csv has no person in 'user' and was left out" in result.stderr
    )


def test_an_amount_is_named_by_its_row_or_as_one_of_those_not_left_out() -> None:
    rows = ["48.84,2.3,5", "x,2.3,1", "48.85,2.35,many"]
    command = ["--column", "people", *BOX, "-o", "o.json"]
    for some, drop, named in (
        (rows[::2], [], "row 2 does not"),
        (rows, ["--bad-rows", "drop"], "row 2 of those not left out does not"),
    ):
        Path("census.csv").write_text("\n".join(["lat,lng,people", *some]))
        assert named in run("design", "--prior", "census.csv", *command, *drop).stderr


def test_a_cell_of_another_mechanism_is_no_bad_row() -> None:
    text = Path("spoilt.csv").read_text().replace("x,48.85", "99999,48.85")
    Path("another.csv").write_text(text)
    result = run("estimate", "another.csv", "-o", "o.csv", "--bad-rows", "drop")
    assert result.exit_code == 2
    assert "must name a cell in 0 …" in result.stderr
