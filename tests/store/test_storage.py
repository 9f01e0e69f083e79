"""Promise 35: what is kept grows with the rounds, at most 150 bytes a cell and round besides the ids."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import numpy as np
import psycopg
import pytest

from databases import cluster
from geoveil.store import EstimateRecord, RoundRecord, Store, Upload, open_store
from store.devices import a_campaign, mechanism_id

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])
MOST_BYTES = 150
"""A cell and round, besides ids."""


class Collection:
    """A campaign of many rounds: two reports a cell in each, late ones for all rounds before included."""

    def __init__(self, kind: str, folder: Path, cells: int) -> None:
        self.address = str(folder / "store.db") if kind == "sqlite" else cluster().database()
        self.kind, self.cells = kind, cells
        self.store: Store = open_store(self.address)
        self.chance = np.random.default_rng(1)
        self.number = 0
        self.store.create_campaign(a_campaign(), self.opened())

    def opened(self) -> RoundRecord:
        """The next round, with a document of the size of a real one."""
        self.number += 1
        weights = self.chance.integers(1, 1 << 20, size=self.cells).tolist()
        document = json.dumps({"weights": weights}).encode()
        until_s = 4_000_000_000
        mechanism = mechanism_id("paris", self.number)
        return RoundRecord(
            "paris", self.number, mechanism, document, self.cells, 1, until_s, until_s
        )

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            number = self.number
            ids = self.chance.integers(0, 256, size=(2 * self.cells, 16), dtype=np.uint8)
            cells = self.chance.integers(0, self.cells, size=2 * self.cells).tolist()
            late = self.chance.integers(1, number + 1, size=len(ids)).tolist()
            uploads = [
                Upload("paris", late[n] if n % 50 == 0 else number, ids[n].tobytes(), cells[n])
                for n in range(len(ids))
            ]
            self.store.add(uploads)
            assert self.store.close_round("paris", number, minimum=1, at_s=number)
            estimate = EstimateRecord("paris", number, number, 1, self.body())
            assert self.store.publish(estimate, self.opened())

    def body(self) -> bytes:
        """An estimate with its error bars: four numbers a cell, as they are written."""
        shares = self.chance.dirichlet(np.ones(self.cells), size=4).tolist()
        names = ("distribution", "standard_error", "low", "high")
        return json.dumps(dict(zip(names, shares, strict=True))).encode()

    def size(self) -> int:
        """Bytes of everything but the ids."""
        if self.kind == "sqlite":
            with apsw.Connection(self.address) as connection:
                rows = connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name <> 'report'")
                return int(rows.fetchall()[0][0])
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("VACUUM tally")
            rows = connection.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
                " AND relnamespace = current_schema()::regnamespace AND relname <> 'report'"
            )
            return int(rows.fetchall()[0][0])


@KINDS
def test_storage_is_linear_in_rounds(kind: str, tmp_path: Path) -> None:
    collection = Collection(kind, tmp_path, cells=200)
    collection.run(5)
    sizes = [collection.size()]
    for _ in range(2):
        collection.run(20)
        sizes.append(collection.size())
    first, second = np.diff(sizes)
    assert second <= 1.1 * first
    assert second <= MOST_BYTES * 20 * collection.cells
    counts = collection.store.counts("paris")
    assert sum(int(each.sum()) for each in counts.values()) == 45 * 400
    collection.store.close()


@pytest.mark.slow
@KINDS
def test_a_thousand_rounds_of_4096_cells(kind: str, tmp_path: Path) -> None:
    collection = Collection(kind, tmp_path, cells=4096)
    collection.run(1_000)
    assert collection.size() <= MOST_BYTES * 1_000 * 4_096
    collection.store.close()
