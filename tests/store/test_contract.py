"""Each store against the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from databases import Cluster
from geoveil.store import Store, open_store
from store.contract import StoreContract
from store.memory import MemoryStore


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlite(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = open_store(tmp_path / "store.db")
        yield store
        store.close()


class TestPostgres(StoreContract):
    @pytest.fixture
    def store(self, postgres: Cluster) -> Iterator[Store]:
        store = open_store(postgres.database())
        yield store
        store.close()
