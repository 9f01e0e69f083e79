"""docs/service.md and README.md are true: their lines run on a real server, tables list what there is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from geoveil.server.campaign_advice import ADVICE_S
from geoveil.server.dashboard import OPERATIONS, REGIONS_S
from geoveil.server.map_files import FILE_S, TABLE_S
from geoveil.server.problem import PROBLEMS
from geoveil.server.settings_of_campaign import CampaignSettings
from server.live import Live

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def curl() -> None:
    """What an operator calls the service with, by hand; not on every machine."""
    if shutil.which("curl") is None:
        reason = "curl is not installed"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.mark.usefixtures("curl")
def test_the_walk_through_runs_as_printed(live: Live) -> None:
    script = "\n".join(["set -eu", *BLOCKS]).replace("localhost:8000", f"127.0.0.1:{live.port}")
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "no_proxy": "*", "GEOVEIL_OPERATOR_TOKEN": live.token},
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


def test_the_proxy_waits_for_the_longest_answer() -> None:
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    longest_s = max(FILE_S + TABLE_S, ADVICE_S, REGIONS_S)
    [waits] = re.findall(r"proxy_read_timeout (\d+)s;", page)
    assert longest_s < int(waits)
    assert f"may take {longest_s:g} s" in page


@pytest.mark.usefixtures("curl")
def test_the_readme_runs_from_the_operator_to_the_device(shared: Live, tmp_path: Path) -> None:
    """The campaign of the shell is the one that the device reports to; only the server is ours."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shell,) = re.findall(r"^```sh\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (device,) = re.findall(r"^```python\n(import os\n.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    steps = [
        line
        for line in shell.splitlines()
        if not line.startswith(("geoveil", "sleep", "export GEO"))
    ]
    assert len(shell.splitlines()) - len(steps) == 3
    script = "\n".join(["set -eu", *steps, 'exec "$PYTHON" -c "$DEVICE"'])
    done = subprocess.run(
        ["bash", "-c", script.replace("localhost:8000", f"127.0.0.1:{shared.port}")],
        env={
            **os.environ,
            "no_proxy": "*",
            "GEOVEIL_OPERATOR_TOKEN": shared.token,
            "PYTHON": sys.executable,
            "DEVICE": device,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    link, cell = done.stdout.split()
    assert "/c/" in link
    assert int(cell) >= 0
    assert (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_is_listed(name: str) -> None:
    assert f"| `{name}` | {PROBLEMS[name].status} | {PROBLEMS[name].title} |" in PAGE


@pytest.mark.parametrize("path", sorted({each.path for each in OPERATIONS}))
def test_every_address_is_listed(path: str) -> None:
    written = (
        path.replace("{campaign}", "{id}").replace("{number}", "{n}").removesuffix(".{ending}")
    )
    assert written in PAGE


@pytest.mark.parametrize("field", msgspec.structs.fields(CampaignSettings), ids=lambda f: f.name)
def test_every_setting_of_a_campaign_is_listed(field: msgspec.structs.FieldInfo) -> None:
    given = "required" if field.default is msgspec.NODEFAULT else f"`{field.default}`"
    default = "" if field.default is None else given
    hint = get_type_hints(CampaignSettings, include_extras=True)[field.name]
    (meta,) = get_args(hint)[1:]
    assert f"| `{field.name}` | {default} | {meta.description} |" in PAGE


def test_all_events_of_the_log_are_written_alike() -> None:
    """As words with hyphens, in the program and in the table of events."""
    code = "".join(path.read_text() for path in (ROOT / "src" / "geoveil" / "server").glob("*.py"))
    logged = re.findall(r"\blog\.(?:event|fault)\(\"([^\"]*)\"", code)
    (table,) = re.findall(r"^\| event \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    listed = re.findall(r"`([^`]*)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert len(logged) > 5 < len(listed)
    assert [name for name in logged + listed if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name)] == []
