"""Promise 26: no input makes the service fail, and its OpenAPI document is true.

Schemathesis reads the document the server gives out and calls every operation in all its phases:
boundary values, random data (valid and not), missing and wrong headers, other methods, chains of calls.
It runs twice: with any campaign, and with one that exists; the long test in all phases both times, the
short one with random data only where the campaign exists.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.live import Live

NO_SCHEMA_SAYS = "positive_data_acceptance"
"""Not asked: settings that each look right may make no campaign together, and 1.0 is no whole number here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with Live(tmp_path_factory.mktemp("fuzz"), log_level="warning") as started:
        started.campaign(minimum_reports=1)
        yield started


RUN = """
import json, sys
from schemathesis.cli import schemathesis
for given in json.loads(sys.argv[1]):
    try:
        schemathesis(given)
    except SystemExit as ended:
        if ended.code:
            raise
"""
"""Both times in one process: to load all of it takes as long as most of its work."""

OURS = {"no_proxy": "*", "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(".hypothesis").resolve())}
"""What it knows of Unicode lies where this process keeps that too: to work it out takes two seconds."""


def schemathesis(folder: Path, *times: list[str]) -> int:
    """Run it so often; how many cases it tried in all. A failure shows all it said."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(times)],
        cwd=folder, env=os.environ | OURS, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"(\d[\d,]*) generated", done.stdout)
    assert len(found) == len(times), done.stdout
    return sum(int(each.replace(",", "")) for each in found)


def fuzz(server: Live, folder: Path, examples: int, first: str = "", second: str = "") -> int:
    """With any campaign, then with one that exists, each in the phases named or in all."""
    options = [
        "run", f"{server.url}/openapi.json", "--no-color", "-H", f"Authorization: Bearer {server.token}",
        f"--exclude-checks={NO_SCHEMA_SAYS}", f"--max-examples={examples}", "--seed=1",
        "--generation-database=none",
    ]  # fmt: skip
    existing = folder / "existing.toml"
    existing.write_text('[parameters]\n"path.campaign" = "lyon"\n')
    # deleted, it would be none that exists; a name that is taken stays one through all other methods
    fewer = ["--exclude-path-regex=events", "--exclude-method=DELETE"]
    cases = schemathesis(
        folder,
        [*options, *_only(first)],
        [f"--config-file={existing}", *options, *_only(second), *fewer],
    )
    log = server.log.read_text()
    assert "internal" not in log
    with server.client() as client:
        counted = client.get("/metrics").text
        assert 'status="500"' not in counted
        assert client.get("/readyz").status_code == 200
    return cases


def _only(phases: str) -> list[str]:
    return [f"--phases={phases}"] if phases else []


def test_the_api_never_fails_and_its_description_is_true(server: Live, tmp_path: Path) -> None:
    assert fuzz(server, tmp_path, 4, "coverage,stateful", "fuzzing") >= 500


@pytest.mark.slow
def test_the_api_never_fails_on_20_000_cases(server: Live, tmp_path: Path) -> None:
    assert fuzz(server, tmp_path, 800) >= 20_000
