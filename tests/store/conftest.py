"""What the tests of stores share: the PostgreSQL of this process, and an address of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from databases import cluster, postgres

__all__ = ["address", "postgres"]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return cluster().database()
