"""Of one row, one report, one slot or one campaign the command line speaks in the singular."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import geoveil as gv
from geoveil.cli.program import program

BOX = ["--box", "48.83,2.28,48.86,2.34", "--cell-km", "1"]
SEVERAL = re.compile(
    r"(?<![\d.,])1 (of 1 |different )?"
    r"(reports|rows|cells|people|rounds|slots|districts|trips|places|steps|pairs)\b"
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


def test_one_of_each_in_python() -> None:
    grid = gv.Grid(rows=1, columns=2, cell_km=1.0)
    campaign = gv.Campaign(grid, epsilon_per_km=1.0, minimum_reports=1)
    tally = campaign.mechanism.tally([0])
    campaign.receive(tally)
    campaign.close_round()
    trips = gv.Trips(gv.elastic(grid, epsilon_per_km=1.0, between="cells"))
    pair = trips.tally([0], [1])
    flows = trips.fit(pair)
    slots = gv.IterativeBayesianUpdate().fit_slots({8: tally})
    shown = map(repr, (campaign, tally, campaign.estimate, pair, flows, slots))
    assert not [each for each in shown if SEVERAL.search(each)]
    assert repr(flows.between([0, 0])) == "DistrictFlows(1 district, 1 trip)"
