"""Simulated devices whose every report can be explained: its cell follows from its id."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from geoveil.arrays import IntArray
from geoveil.store import CampaignRecord, GroupWriter, RoundRecord, Store, Upload
from geoveil.store.statements import unpacked

FOREVER_S = 4_000_000_000


def mechanism_id(campaign: str, number: int) -> str:
    return hashlib.sha256(f"{campaign} {number}".encode()).hexdigest()


def a_round(
    campaign: str = "paris", number: int = 1, *, cells: int = 64, until_s: int = FOREVER_S
) -> RoundRecord:
    mechanism = mechanism_id(campaign, number)
    document = b'{"kind":"mechanism"}'
    return RoundRecord(campaign, number, mechanism, document, cells, 100 * number, until_s, until_s)


def a_campaign(name: str = "paris") -> CampaignRecord:
    return CampaignRecord(name, name.title(), b'{"cell_km":1}', 100)


def start(store: Store, name: str = "paris", *, cells: int = 64) -> None:
    assert store.create_campaign(a_campaign(name), a_round(name, cells=cells))


def device_id(number: int, seed: int = 0) -> bytes:
    return hashlib.sha256(f"{seed} {number}".encode()).digest()[:16]


def cell_of(id: bytes, cells: int) -> int:
    return int.from_bytes(id[8:]) % cells


def upload(number: int, *, campaign: str = "paris", round: int = 1, cells: int = 64) -> Upload:
    """The report of device ``number``."""
    id = device_id(number)
    return Upload(campaign, round, id, cell_of(id, cells))


def kept_ids(store: Store) -> set[bytes]:
    """The ids of all reports a store has counted and not forgotten."""
    with store.snapshot() as snapshot:
        return {row[1] for row in snapshot("report")}  # type: ignore[misc]


def assert_explained(store: Store, campaign: str = "paris") -> set[bytes]:
    """Every count of round 1 is that of the ids kept, and so is the total; the ids."""
    with store.snapshot() as snapshot:
        ids = {row[1] for row in snapshot("report")}
        tally = Counter({row[1]: row[2] for row in snapshot("tally")})
        for _, _, taken in snapshot("closing_tally"):
            tally.update(dict(unpacked(taken).tolist()))  # type: ignore[arg-type]
        totals = [row[1] for row in snapshot("round_total")]
    cells = store.rounds(campaign)[0].cells
    assert tally == Counter(cell_of(id, cells) for id in ids)  # type: ignore[arg-type]
    assert sum(totals) == len(ids)  # type: ignore[arg-type]
    return ids  # type: ignore[return-value]


def totals(store: Store, campaign: str = "paris") -> list[int]:
    return [one.total for one in store.rounds(campaign)]


def counts(store: Store, campaign: str = "paris") -> dict[int, list[int]]:
    return {number: plain(by_cell) for number, by_cell in store.counts(campaign).items()}


def plain(by_cell: IntArray) -> list[int]:
    assert by_cell.dtype == np.int64
    return by_cell.tolist()


class Writer(GroupWriter):
    """A group writer for threads that wait: it stands in for their event loop, and tells them at once."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def hand_in(self, uploads: Sequence[Upload]) -> Future[list[bool]]:
        return self.submit(self, uploads)  # type: ignore[arg-type, return-value]

    def create_future(self) -> Future[list[bool]]:
        return Future()

    def call_soon_threadsafe(self, tell: Callable[..., None], *given: Any) -> None:
        tell(*given)
