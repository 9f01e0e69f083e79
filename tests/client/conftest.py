"""Tests of the device end with their process, not with their machine: they need not wait for disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from client.crashes import Machine, on


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, Machine())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.json"
