"""Each store against the contract."""

from __future__ import annotations

import time
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
        assert store.shared_time_s() is None  # one machine has the file
        yield store
        store.close()


class TestPostgres(StoreContract):
    @pytest.fixture
    def store(self, postgres: Cluster) -> Iterator[Store]:
        store = open_store(postgres.database())
        yield store
        store.close()

    def test_services_share_the_clock_of_the_database(self, store: Store) -> None:
        before_s = time.time()
        shared_s = store.shared_time_s()
        assert shared_s is not None
        assert before_s - 1.0 <= shared_s <= time.time() + 1.0
