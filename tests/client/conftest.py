"""Tests of the device end with their process, not with their machine: they need not wait for disks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from geoveil.client import ledger
from geoveil.position.position_certificate import Law

_CERTIFIED: dict[bytes, Any] = {}


@pytest.fixture(scope="module", autouse=True)
def _certified_once() -> Iterator[None]:
    """The same law is certified once for all devices of these tests: it takes longer than their reports."""
    certify, made = Law.certify, _CERTIFIED

    @wraps(certify)
    def remembered(law: Law, *claim: float) -> Any:
        about = [getattr(law.centres, each.name) for each in fields(law.centres)]
        key = pickle.dumps((about, law.weights, law.cone, claim))
        if key not in made:
            made[key] = certify(law, *claim)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Law, "certify", remembered)
        yield


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SYNCHRONOUS", "OFF")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"
