"""Many reports at a time from threads, each upload known to be counted, refused or unknown."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from geoveil.store import open_store
from server.live import HANG_S, new_id

Names = tuple[str, str]
OF_SLOTS: Names = ("slot", "cell")
OF_TRIPS: Names = ("cell", "to")
"""What a number stands for, divided by how many cells there are, and what is left."""


@dataclass
class Ledger:
    """What is known of every report ever sent: the cell by id."""

    counted: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, reports: Iterable[tuple[str, int]], status: int | None) -> None:
        """200: acknowledged. Another status: refused, sent again later. ``None``: nobody knows."""
        with self.lock:
            if status is not None:
                self.statuses[status] += 1
            for report, cell in reports:
                if status == 200:
                    self.counted[report] = cell
                    self.unknown.pop(report, None)
                elif report not in self.counted:
                    self.unknown[report] = cell


class Uploader(threading.Thread):
    """A client that sends batches over one connection until told to stop, or nobody answers."""

    def __init__(
        self, port: int, campaign: str, mechanism: str, cells: int, ledger: Ledger,
        stop: Callable[[], bool], batch: int = 1, offset: int = 0, cells_each: int = 0,
        names: Names = OF_SLOTS,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self.port, self.campaign, self.mechanism, self.cells = port, campaign, mechanism, cells
        self.ledger, self.stop, self.batch, self.offset = ledger, stop, batch, offset
        self.cells_each, self.names = cells_each, names

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        place = self.offset
        while not self.stop():
            reports = []
            for _ in range(self.batch):
                place += 1
                reports.append((new_id(), place % self.cells))
            if not self.send(connection, reports):
                break
        connection.close()

    def send(self, connection: http.client.HTTPConnection, reports: list[tuple[str, int]]) -> bool:
        """Whether there was an answer."""
        try:
            status = post(
                connection, self.campaign, self.mechanism, reports, self.cells_each, self.names
            )
        except (OSError, http.client.HTTPException):
            self.ledger.note(reports, None)
            return False
        self.ledger.note(reports, status)
        return True


def post(
    connection: http.client.HTTPConnection,
    campaign: str,
    mechanism: str,
    reports: list[tuple[str, int]],
    cells_each: int = 0,
    names: Names = OF_SLOTS,
) -> int:
    """Send reports, one alone or several together; the status of the answer.

    Where a slot has ``cells_each``, cells of one slot after another are numbered through; so are the ends of
    trips, those of one begin after another.
    """
    bodies: list[dict[str, Any]] = [
        {"mechanism": mechanism, "id": name, "cell": cell} for name, cell in reports
    ]
    if cells_each:
        for body in bodies:
            body |= dict(zip(names, divmod(body["cell"], cells_each), strict=True))
    text = json.dumps(bodies[0] if len(bodies) == 1 else {"reports": bodies})
    headers = {"Content-Type": "application/json"}
    connection.request("POST", f"/api/campaigns/{campaign}/reports", text, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status == 200 and len(reports) > 1:
        assert content.count(b'"counted"') == len(reports), content
    return answer.status


def send_again(
    port: int,
    campaign: str,
    mechanism: str,
    ledger: Ledger,
    cells_each: int = 0,
    names: Names = OF_SLOTS,
) -> None:
    """Send what is unknown once more, until everything is known."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    while ledger.unknown:
        some = list(ledger.unknown.items())[:500]
        ledger.note(some, post(connection, campaign, mechanism, some, cells_each, names))
    connection.close()


def stored(database: str, campaign: str) -> Counter[int]:
    """Counts by cell over all rounds, from the database itself; no server may be running."""
    store = open_store(database, create=False)
    try:
        found: Counter[int] = Counter()
        for counts in store.counts(campaign).values():
            found.update({cell: int(count) for cell, count in enumerate(counts) if count})
        return found
    finally:
        store.close()
