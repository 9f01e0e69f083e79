"""Promise 30: what is released can be built again by anybody, and says what it is made of."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import release

ROOT = Path(__file__).resolve().parents[1]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_every_locked_package_has_hashes_and_a_reason() -> None:
    packages = release.locked(LOCK)
    assert len(packages) > 50
    for each in packages:
        assert each["hashes"], each["name"]
        assert each["via"], each["name"]


def test_what_runs_and_what_developers_use_are_told_apart() -> None:
    packages = release.locked(LOCK)
    needed = release.at_run_time(packages)
    assert {"numpy", "scipy", "apsw", "uvicorn", "click"} <= needed
    assert not {"pytest", "mypy", "ruff", "sphinx", "hatchling"} & needed


def test_the_bill_of_materials_is_the_lock() -> None:
    bill = release.bill_of_materials(release.locked(LOCK), "1.0")
    assert bill["bomFormat"] == "CycloneDX"
    pinned = re.findall(r"^([a-z0-9_.-]+)==([^ ]+)", LOCK, re.MULTILINE)
    assert {(each["name"], each["version"]) for each in bill["components"]} == set(pinned)
    assert len({name for name, _ in pinned}) < len(pinned)  # of some, one for each Python
    assert {each["scope"] for each in bill["components"]} == {"required", "excluded"}
    assert all(each["hashes"] for each in bill["components"])


def test_the_source_tree_holds_no_other_way_to_install() -> None:
    setup = (ROOT / "Makefile").read_text(encoding="utf-8")
    # pip for uv; uv, else pip, for the rest and for Spark; uv for what benchmarks compare with
    assert setup.count("--require-hashes") == 6
    for lock in ("requirements.lock", "requirements-spark.lock", "requirements-peers.lock"):
        pinned = (ROOT / lock).read_text(encoding="utf-8")
        assert "--hash=sha256:" in pinned
        assert "://" not in pinned, "no address of a registry"


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        ({"python3": "3, 12"}, "python3"),
        ({"python3": "3, 10", "python3.12": "3, 12", "python3.11": "3, 11"}, "python3.12"),
        ({"python3": "3, 15", "python3.14": "3, 14"}, "python3.14"),  # has all packages ready-made
        ({"python3": "3, 15"}, "python3"),  # which can build them
    ],
)
def test_a_python_is_chosen_that_needs_no_compiler(
    tmp_path: Path, there: dict[str, str], chosen: str
) -> None:
    for name in ("python3", *(f"python3.{minor}" for minor in range(11, 15))):
        lines = f"import sys; sys.version_info = ({there.get(name, '3, 1')}); "
        command = f'#!/bin/sh\nexec "{sys.executable}" -c "{lines}$2"\n'
        (tmp_path / name).write_text(command if name in there else "#!/bin/sh\nexit 127\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", "--file", "Makefile", "--file", "-", "tell"],
        input="tell: ; @echo $(PYTHON)\n",
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == chosen


@pytest.mark.slow
def test_the_wheel_and_the_source_archive_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("releases are built from a clone")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "release.py")],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = dict(reversed(line.split("  ")) for line in done.stdout.splitlines())
    assert {Path(name).suffix for name in lines} == {".whl", ".gz", ".json"}
    for name, digest in lines.items():
        assert hashlib.sha256((ROOT / name).read_bytes()).hexdigest() == digest
    provenance = json.loads((ROOT / "dist" / "provenance.json").read_text())
    assert provenance["lock"] == hashlib.sha256(LOCK.encode()).hexdigest()
