"""Of one row, one report, one slot or one campaign the command line speaks in the singular."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from geoveil.cli.program import program

BOX = ["--box", "48.83,2.28,48.86,2.34", "--cell-km", "1"]
SEVERAL = re.compile(
    r"(?<![\d.,])1 (of 1 )?(reports|rows|cells|people|rounds|slots|districts|trips|places|steps|pairs)\b"
)


@pytest.fixture
def one(tmp_path: Path) -> Path:
    (tmp_path / "one.csv").write_text("lat,lng,time,to_lat,to_lng\n48.84,2.3,8,48.85,2.31\n")
    return tmp_path


def said(*arguments: Any) -> str:
    done = CliRunner().invoke(program, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    assert not SEVERAL.search(done.output), done.output
    return done.output


def test_one_row_becomes_one_report_and_one_map(one: Path) -> None:
    promise = ["--epsilon-per-km", 2, *BOX, "--seed", 1]
    noisy = said("obfuscate", one / "one.csv", *promise, "--keep", "time", "-o", one / "noisy.csv")
    assert "1 from 1 row, in" in noisy
    assert "1 report from 1 row" in said("tally", one / "one.csv", *promise, "-o", one / "t.json")
    assert "from 1 report, in" in said("estimate", one / "t.json", "-o", one / "map.csv")
    options = ["--by", "time", "--minimum-reports", 1, "-o", one / "slots.csv"]
    assert "1 slot from 1 report" in said("estimate", one / "noisy.csv", *options)


def test_one_trip(one: Path) -> None:
    ends = ["--trips", "--epsilon-per-km", 2, *BOX, "--seed", 1]
    assert "1 trip from 1 row" in said("tally", one / "one.csv", *ends, "-o", one / "t.json")
    assert "from 1 trip, in" in said("flows", one / "t.json", "-o", one / "flows.csv")
