"""Operators' tokens: listed without being shown, and taken back under a service that runs."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from geoveil.cli.program import program
from geoveil.errors import InvalidInput
from geoveil.server.problem import Problem
from geoveil.server.settings import KNOWN_S, Tokens
from geoveil.store import open_store
from server.live import TOKEN, Live
from store.memory import MemoryStore

OTHER = "another-token-for-tests"


def tokens(*arguments: Any) -> Result:
    return CliRunner().invoke(program, ["tokens", *map(str, arguments)])


def sha(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def status(service: Live, token: str) -> int:
    with service.client(headers={"authorization": f"Bearer {token}"}) as client:
        return client.get("/api/campaigns").status_code


def test_a_token_is_taken_back_under_a_running_service(tmp_path: Path) -> None:
    with Live(tmp_path) as service:
        store = open_store(service.database)
        Tokens(store).prepare(OTHER)
        store.close()
        assert (status(service, TOKEN), status(service, OTHER)) == (200, 200)
        listed = tokens(service.database)
        assert listed.exit_code == 0, listed.output
        assert sha(TOKEN)[:8] in listed.stdout
        assert sha(OTHER)[:8] in listed.stdout
        assert "given at start, 20" in listed.stdout
        taken = tokens(service.database, "--take-back", sha(OTHER)[:8], "--json")
        since = time.monotonic()
        values = json.loads(taken.stdout)
        assert values["taken_back"]["sha256"] == sha(OTHER)[:8]
        assert [each["sha256"] for each in values["tokens"]] == [sha(TOKEN)[:8]]
        while status(service, OTHER) == 200:
            assert time.monotonic() - since < KNOWN_S + 10.0
            time.sleep(0.1)
        assert (status(service, TOKEN), status(service, OTHER)) == (200, 401)
        last = tokens(service.database, "--take-back", sha(TOKEN).upper())
        assert "nobody can operate; a start that is given no token makes one" in last.stderr
        for result in (listed, taken, last):
            assert TOKEN not in result.output
            assert OTHER not in result.output
    service.token = ""
    with service:  # as at the first start
        made = json.loads(service.printed)["operator_token"]
        assert status(service, made) == 200
        assert status(service, TOKEN) == 401


def test_a_known_token_is_looked_for_again_after_seconds() -> None:
    store, now = MemoryStore(), [1000.0]
    running = Tokens(store, clock=lambda: now[0])
    running.prepare(TOKEN)
    running.check(f"Bearer {TOKEN}")
    assert Tokens(store).take_back(sha(TOKEN)[:4]).digest.hex() == sha(TOKEN)
    running.check(f"Bearer {TOKEN}")
    for moved_s in (KNOWN_S, -1.0):  # a clock that was put back keeps nothing alive
        now[0] = 1000.0 + moved_s
        with pytest.raises(Problem):
            running.check(f"Bearer {TOKEN}")


def test_what_names_no_token_takes_none_back(tmp_path: Path) -> None:
    store = MemoryStore()
    for digest in (b"\x12\x34" + bytes(30), b"\x12\x34" + bytes(29) + b"\1"):
        store.add_token(digest, label="given at start", at_s=0)
    for first in ("", "123", "1234", "1235", "12%4", "0" * 65, OTHER):
        with pytest.raises(InvalidInput) as refused:
            Tokens(store).take_back(first)
        assert len(first) < 5 or first not in str(refused.value)  # it may be a token
    assert len(store.tokens()) == 2
    missing = tokens(tmp_path / "none.db")
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "none.db").exists()
