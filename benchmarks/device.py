"""The device: a whole report without the network, with a long ledger beside one that is new."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from benchmarks.timing import Figure, best_of
from geoveil.campaign.elastic_design import elastic
from geoveil.client import Device, Ledger
from geoveil.client.collector import check_promise, offered
from geoveil.client.ledger_book import Charge, add
from geoveil.client.network import Answer
from geoveil.document.wire import publish
from geoveil.position.positional import PositionalElastic
from geoveil.space.grid import Grid

ENTRIES = 10_000
_GRID = Grid.from_box(south=45.71, west=4.77, north=45.79, east=4.93, cell_km=0.5)
_REPEATS = 9


def device() -> Iterator[Figure]:
    """From ``report`` to the receipt, without the network and the certificate (once per mechanism)."""
    with tempfile.TemporaryDirectory() as folder:
        long, new = Ledger(Path(folder) / "long.db"), Ledger(Path(folder) / "new.db")
        fill(long, ENTRIES)
        with_history, without = best_of(reports(long), reports(new), repeats=_REPEATS, warm=True)
    yield Figure(
        f"a report without the network, {_GRID.size} cells, {ENTRIES:,} entries in the ledger",
        with_history,
        1000 * with_history,
        "ms",
        10.0,
        "a new ledger",
        without,
    )
    yield Figure(
        f"what {ENTRIES:,} entries add", with_history, with_history / without, "×", 1.5,
        "a new ledger", without,
    )  # fmt: skip


def fill(ledger: Ledger, entries: int) -> None:
    """A ledger with so many reports of years, to several operators."""
    today = int(time.time() // 86_400)
    with ledger._book(write=True) as book:
        for k in range(entries):
            campaign = f"https://operator-{k % 20}.example/c/city-{k % 300}"
            add(
                book,
                Charge(campaign, 1 + k, f"{k:064x}", f"{k:032x}", 0.1, "acknowledged", 7, 45.0, 4.0,
                       day=today - (entries - k) // 5),
            )  # fmt: skip


def reports(ledger: Ledger) -> Callable[[], None]:
    """One more report at each call, to a campaign of its own whose certificate is known already."""
    devices = [_device(ledger, f"city-{k}") for k in range(_REPEATS + 1)]

    def work() -> None:
        devices.pop().report(lat=45.76, lng=4.84)

    return work


class _Collector:
    """Answers at once."""

    def __init__(self, served: bytes) -> None:
        self._served = served

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        return Answer(200, "application/json", 0.0, self._served)

    def post(self, path: str, body: bytes, *, limit: int, ticket: str = "") -> Answer:
        answer = json.dumps({"id": json.loads(body)["id"], "status": "counted"})
        return Answer(200, "application/json", 0.0, answer.encode())


@cache
def _mechanism() -> PositionalElastic:
    made = elastic(_GRID, epsilon_per_km=2.0, between="positions")
    assert isinstance(made, PositionalElastic)
    return made


def _device(ledger: Ledger, campaign: str) -> Device:
    now_s = int(time.time())
    served = publish(
        _mechanism(), campaign=campaign, round=1,
        not_before_s=now_s - 60, expires_s=now_s + 3600,
    ).served()  # fmt: skip
    check_promise(offered(served)[0])
    return Device(
        f"https://collector.example/c/{campaign}",
        max_epsilon_per_km=2.0,
        budget_per_km=1e6,
        budget_per_year_per_km=1e6,
        ledger=ledger,
        transport=_Collector(served),
    )
