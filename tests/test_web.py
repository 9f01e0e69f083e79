"""The device in TypeScript: its own tests where Node is there, and what can be checked without."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from web import node_tools

from client.hostile import HOSTILE
from client.world import NOW_S, document
from geoveil.client import REASONS
from server.live import Live
from server.uploads import stored

ANCHORED = {"ledger-lost", "ledger-exchanged"}
"""Of ledgers in files with an anchor beside them, which a browser does not have."""


def test_its_own_tests_pass(tmp_path: Path) -> None:
    try:
        node_tools.prepare()
    except node_tools.Unavailable as reason:
        pytest.skip(f"the tests of web/sdk cannot run: {reason}")
    corpus = tmp_path / "hostile.json"
    corpus.write_text(json.dumps(_hostile()), encoding="utf-8")
    with Live(tmp_path) as server:
        campaign = server.campaign()
        given = {"GEOVEIL_HOSTILE": str(corpus), "GEOVEIL_LINK": f"{server.url}/c/{campaign}"}
        done = node_tools.run("vitest", "run", "--no-color", **given)
        assert done.returncode == 0, done.stdout[-6000:]
        server.stop()
        assert stored(server.database, campaign).total() in (2, 3)  # with a browser, three devices
    passed = re.search(r"Tests +(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) > 90 + len(HOSTILE)


def _hostile() -> dict[str, Any]:
    """The documents that the Python device must refuse, for its twin."""
    cases = [{**vars(case), "body": b64encode(case.body).decode()} for case in HOSTILE]
    return {"now_s": NOW_S, "honest": b64encode(document(5).served()).decode(), "cases": cases}


def test_it_refuses_in_the_words_of_the_python_device() -> None:
    source = (node_tools.SDK / "src" / "refusal.ts").read_text(encoding="utf-8")
    listed = source.partition("REASONS = {")[2].partition("} as const")[0]
    reasons = dict(re.findall(r'^ +"?([a-z-]+)"?: "(.+)",$', listed, re.MULTILINE))
    assert reasons == {name: words for name, words in REASONS.items() if name not in ANCHORED}


def test_nothing_but_tools_is_installed_and_no_address_is_locked() -> None:
    package, lock = (_read(name) for name in ("package.json", "package-lock.json"))
    assert "dependencies" not in package
    locked = {name: entry for name, entry in lock["packages"].items() if name}
    assert locked
    assert all("integrity" in entry and "resolved" not in entry for entry in locked.values())


def _read(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((node_tools.SDK / name).read_text(encoding="utf-8"))
    return values
