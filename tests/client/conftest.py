"""Tests of the device end with their process, not with their machine: they need not wait for disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoveil.client import ledger


@pytest.fixture(scope="module", autouse=True)
def _certified_once(certified_once: None) -> None:
    """For all devices of these tests: it takes longer than their reports."""


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SYNCHRONOUS", "OFF")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"
