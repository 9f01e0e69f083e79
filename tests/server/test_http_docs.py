"""docs/service.md is true: its curl lines run against a real server, its tables list what there is."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from geoveil.server.problem import PROBLEMS
from geoveil.server.routes import OPERATIONS
from server.live import Live

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_walk_through_runs_as_printed(live: Live) -> None:
    script = "\n".join(["set -eu", *BLOCKS]).replace("localhost:8000", f"127.0.0.1:{live.port}")
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "GEOVEIL_OPERATOR_TOKEN": live.token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert '"reports_counted":{"round":0,"all":0}' in said
    assert '"kind":"mechanism"' in said
    assert '{"id":"00112233445566778899aabbccddeeff","status":"counted"}' in said
    assert said.count('"status":"counted"') == 3
    assert "problems/round-too-small" in said
    assert "problems/no-estimate-yet" in said
    assert '{"status":"ok"}{"status":"ready"}' in said
    assert 'geoveil_reports_total{outcome="counted"} 3' in said
    assert '"openapi":"3.1.0"' in said


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_is_listed(name: str) -> None:
    assert f"| `{name}` | {PROBLEMS[name].status} | {PROBLEMS[name].title} |" in PAGE


@pytest.mark.parametrize("path", sorted({each.path for each in OPERATIONS}))
def test_every_address_is_listed(path: str) -> None:
    written = (
        path.replace("{campaign}", "{id}").replace("{number}", "{n}").removesuffix(".{ending}")
    )
    assert written in PAGE
