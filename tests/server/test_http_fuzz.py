"""Promise 26: no input makes the service fail, and its OpenAPI document is true.

Schemathesis reads the document the server gives out and calls every operation in all its phases:
boundary values, random data (valid and not), missing and wrong headers, other methods, chains of calls.
It runs twice: with any campaign, and with one that exists; the long test in all phases both times, the
short one with random data only where the campaign exists.
"""

from __future__ import annotations

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


def schemathesis(server: Live, folder: Path, examples: int, *options: str) -> int:
    """Run it; how many cases it tried. A failure shows all it said."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--no-color",
        "-H", f"Authorization: Bearer {server.token}", f"--exclude-checks={NO_SCHEMA_SAYS}",
        f"--max-examples={examples}", "--seed=1", "--generation-database=none", *options,
    ]  # fmt: skip
    direct = {**os.environ, "no_proxy": "*"}
    done = subprocess.run(
        command, cwd=folder, env=direct, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d[\d,]*) generated", done.stdout)
    assert found, done.stdout
    return int(found[1].replace(",", ""))


def fuzz(server: Live, folder: Path, examples: int, first: str = "", second: str = "") -> int:
    """With any campaign, then with one that exists, each in the phases named or in all."""
    cases = schemathesis(server, folder, examples, *_only(first))
    (folder / "schemathesis.toml").write_text('[parameters]\n"path.campaign" = "lyon"\n')
    # deleted, it would be none that exists; a name that is taken stays one through all other methods
    fewer = ["--exclude-path-regex=events", "--exclude-method=DELETE"]
    cases += schemathesis(server, folder, examples, *_only(second), *fewer)
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
