"""``geoveil reproduce`` and the benchmark on check-ins, where those are missing."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from geoveil.cli.program import program

ROOT = Path(__file__).resolve().parent.parent.parent
pytest.importorskip("matplotlib")


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEOVEIL_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("machine", [[], ["--json"]])
def test_where_nothing_can_run_it_says_so_once(no_data: Path, machine: list[str]) -> None:
    arguments = ["reproduce", "privic", "--quick", "--out", str(no_data / "out"), *machine]
    arguments += ["--only", "figure-1", "--only", "table-2"]
    result = CliRunner().invoke(program, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("geoveil: error: nothing could be run: gowalla-")
    assert "GEOVEIL_DATA" in result.stderr
    assert "docs/privic.md" in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_needs_no_data_runs_and_the_rest_is_said_not_to(no_data: Path) -> None:
    chosen = ["--only", "figure-2", "--only", "figure-5"]
    arguments = ["reproduce", "noise", "--quick", "--out", str(no_data / "out"), *chosen]
    result = CliRunner().invoke(program, arguments)
    assert result.exit_code == 0
    assert result.stdout.count("not run: gowalla-los-angeles.csv.gz") == 1


def test_the_benchmark_says_in_one_line_what_it_needs(
    no_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = str(ROOT / "benchmarks" / "robustness.py")
    monkeypatch.setattr(sys, "argv", [script, "elastic"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    said = str(ended.value.code)  # Python writes it to the standard error, and a newline
    assert said.startswith("robustness.py: error: gowalla-paris.csv.gz is not in ")
    assert "\n" not in said
