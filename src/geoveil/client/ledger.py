"""A device's ledger: what every report cost and said, in a file that no crash, race or restart undoes."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from geoveil.client.budget import Budget, BudgetSpent
from geoveil.client.refusal import Refused
from geoveil.document.canonical import strict_json
from geoveil.randomness import SYSTEM, Randomness, checked_randomness

VERSION = 1
WAIT_S = 10.0
"""How long to wait for another process's lock."""
UNREADABLE = (ValueError, TypeError, KeyError, RecursionError)
"""What reading anything that this program did not write may raise."""

State = Literal["charged", "drawn", "sent", "acknowledged", "refused"]
"""``charged``: paid for, and nothing drawn (a crash leaves it so, and the charge spent);
``drawn``: fixed, not sent yet; ``sent``: may have left, no answer yet; then what the collector said."""
Drawn = tuple[int, float, float]
"""A report's cell, and the latitude and longitude of its centre in degrees."""


# --- What a ledger holds, and how it is read back: strictly, or not at all


_TEXTS = {
    "id": "[0-9a-f]{32}",
    "campaign": r"https?://\S+",
    "space": "[0-9a-f]{64}",
    "mechanism": "[0-9a-f]{64}",
    "secret": "[0-9a-f]{64}",
    "report": "[0-9a-f]{32}",
    "place": "([0-9a-f]{64})?",
    "problem": ".*",
}
"""What each text of a ledger looks like."""


def _require(*conditions: bool) -> None:
    if not all(conditions):
        raise ValueError("not a ledger that this program wrote")


def _require_texts(**texts: object) -> None:
    for name, text in texts.items():
        _require(isinstance(text, str) and re.fullmatch(_TEXTS[name], text) is not None)


def _whole(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Charge:
    """One report in the ledger: what it cost, and what was sent."""

    campaign: str
    round: int
    mechanism: str
    report: str
    epsilon_per_km: float
    state: State = "charged"
    cell: int | None = None
    """What was drawn; ``lat`` and ``lng`` are its centre."""
    lat: float | None = None
    lng: float | None = None
    problem: str = ""
    """Why the collector refused, where it did."""
    place: str = field(default="", repr=False)
    """Keyed hash of the true cell while its mechanism is the campaign's last; then empty."""

    def __post_init__(self) -> None:
        _require_texts(campaign=self.campaign, mechanism=self.mechanism, report=self.report)
        _require_texts(problem=self.problem, place=self.place)
        _require(_whole(self.round, 1), self.state in get_args(State))
        _require(_number(self.epsilon_per_km), self.epsilon_per_km > 0)
        if self.state == "charged":
            _require(self.cell is None, self.lat is None, self.lng is None)
        else:
            _require(_whole(self.cell, 0), _number(self.lat), _number(self.lng))

    @property
    def drawn(self) -> Drawn:
        """What was drawn; ``ValueError`` where nothing was."""
        if self.cell is None or self.lat is None or self.lng is None:
            raise ValueError("nothing was drawn for this charge")
        return self.cell, self.lat, self.lng


@dataclass(frozen=True, slots=True)
class Page:
    """What a device knows of a campaign: its cells as first seen, and its last round."""

    space: str
    """SHA-256 of the space."""
    round: int
    mechanism: str
    secret: str = field(repr=False)
    """Key of ``Charge.place``; a new one for every mechanism."""

    def __post_init__(self) -> None:
        _require_texts(space=self.space, mechanism=self.mechanism, secret=self.secret)
        _require(_whole(self.round, 1))

    def place(self, cell: int) -> str:
        """The true cell under the key of this mechanism."""
        return hmac.new(bytes.fromhex(self.secret), cell.to_bytes(8, "big"), "sha256").hexdigest()


@dataclass(slots=True)
class Book:
    """The whole ledger. ``serial`` counts what must never be undone: charges and new rounds."""

    id: str
    serial: int = 0
    pages: dict[str, Page] = field(default_factory=dict)
    charges: list[Charge] = field(default_factory=list)

    @property
    def spent_per_km(self) -> float:
        """All that was ever charged; the sum is exact before it is rounded once."""
        return math.fsum(charge.epsilon_per_km for charge in self.charges)

    def answers(self, campaign: str, mechanism: str) -> Iterator[Charge]:
        """The reports that were drawn under a mechanism."""
        asked = (campaign, mechanism)
        drawn = (charge for charge in self.charges if charge.state != "charged")
        return (charge for charge in drawn if (charge.campaign, charge.mechanism) == asked)

    def turn(self, campaign: str, page: Page) -> None:
        """A new page for a campaign; which cells its earlier reports came from is forgotten."""
        self.pages[campaign] = page
        self.charges = [
            replace(charge, place="") if charge.campaign == campaign else charge
            for charge in self.charges
        ]
        self.serial += 1

    def add(self, charge: Charge) -> None:
        """One more charge."""
        self.charges.append(charge)
        self.serial += 1

    def change(self, report: str, **changes: Any) -> Charge:
        """Another state for a report."""
        position = next(k for k, charge in enumerate(self.charges) if charge.report == report)
        self.charges[position] = replace(self.charges[position], **changes)
        return self.charges[position]

    def to_bytes(self) -> bytes:
        """The book as JSON with its own checksum."""
        return sealed({"geoveil": VERSION, "kind": "ledger", **asdict(self)})

    @classmethod
    def from_bytes(cls, content: bytes) -> Book:
        """The book; :data:`UNREADABLE` errors for anything that this program did not write."""
        values = unsealed(content, "ledger", "pages", "charges")
        pages, charges = values["pages"], values["charges"]
        _require(isinstance(pages, dict), isinstance(charges, list))
        _require(all(len(charge) == len(fields(Charge)) for charge in charges))
        book = cls(
            id=values["id"],
            serial=values["serial"],
            pages={name: Page(**page) for name, page in pages.items()},
            charges=[Charge(**charge) for charge in charges],
        )
        _require(len({charge.report for charge in book.charges}) == len(book.charges))
        _require(book.serial >= len(book.charges) + len(book.pages))
        return book


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def sealed(values: Mapping[str, Any]) -> bytes:
    """JSON with the SHA-256 of all else in it: a torn, changed or half-edited file does not pass."""
    return _json({**values, "check": hashlib.sha256(_json(values)).hexdigest()})


def unsealed(content: bytes, kind: str, *names: str) -> dict[str, Any]:
    """What :func:`sealed` wrote; ``ValueError``, or ``RecursionError``, for anything else."""
    values = strict_json(content)
    _require(isinstance(values, dict))
    check = values.pop("check", None)
    _require(set(values) == {"geoveil", "kind", "id", "serial", *names})
    _require(check == hashlib.sha256(_json(values)).hexdigest())
    _require(values["geoveil"] == VERSION, values["kind"] == kind, _whole(values["serial"], 0))
    _require_texts(id=values["id"])
    return values


# --- Files: replaced durably, under a lock


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    handle = os.open(path, flags, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def replace_durably(path: Path, content: bytes) -> None:
    """The file with this content, readable by its owner only; after a crash the old or the new one."""
    beside = path.with_name(path.name + ".new")
    with _opened(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as handle:
        if sys.platform != "win32":
            os.fchmod(handle, 0o600)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    os.replace(beside, path)  # noqa: PTH105  # tests make the n-th of these calls fail
    if sys.platform != "win32":  # no such call there; the rename is journalled
        with _opened(path.parent, os.O_RDONLY) as handle:
            os.fsync(handle)


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file against every other process and thread."""
    last = time.monotonic() + WAIT_S
    with _opened(path, os.O_RDWR | os.O_CREAT) as handle:
        while True:
            try:
                _lock(handle)
                break
            except (BlockingIOError, PermissionError):  # the second is what Windows says
                if time.monotonic() > last:
                    raise Refused("ledger-busy") from None
                time.sleep(0.01)
        yield  # closing the handle lets the lock go, and so does the end of the process


# --- The ledger: what a person has spent and sent


@dataclass(frozen=True, slots=True)
class Round:
    """A mechanism document as the ledger knows it."""

    campaign: str
    """The campaign's link."""
    space: str
    """SHA-256 of the space."""
    number: int
    mechanism: str
    epsilon_per_km: float


class Ledger:
    """One person's ledger, over all campaigns; a new one is made on first use only.

    Every change is a transaction under a lock: read, change, written beside, synced, renamed. A second
    small file, the *anchor*, counts charges and rounds, so that a ledger that vanished or was put back from
    a copy is noticed: whatever cannot be trusted is refused, never begun again. The file tells what
    was sent, and (until a campaign's next round) lets its finder work out the true cells behind it.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "ledger.json")
    >>> ledger.spent_per_km, ledger.charges()
    (0.0, [])
    >>> folder.cleanup()
    """

    def __init__(
        self, path: str | Path, *, anchor: str | Path | None = None, randomness: Randomness = SYSTEM
    ) -> None:
        self.path = Path(path)
        self.anchor = Path(anchor) if anchor else self.path.with_name(self.path.name + ".anchor")
        self._randomness = checked_randomness(randomness)
        with self._book():
            pass

    @property
    def spent_per_km(self) -> float:
        """ε per km of all charges so far."""
        with self._book() as book:
            return book.spent_per_km

    def left_per_km(self, limit_per_km: float) -> float:
        """How much of a limit may still be spent."""
        return Budget(limit_per_km, self.spent_per_km).left_per_km

    def charges(self) -> list[Charge]:
        """Every charge, in order."""
        with self._book() as book:
            return list(book.charges)

    def check(self, current: Round, limit_per_km: float) -> None:
        """Refuse another space, a round that goes back, and a report that the budget does not hold."""
        with self._book() as book:
            _check(book, current, limit_per_km)

    def accept(self, current: Round, limit_per_km: float) -> None:
        """``check``, and remember the space and the round: before a location is read."""
        with self._book() as book:
            _check(book, current, limit_per_km)
            page = book.pages.get(current.campaign)
            if page is None or page.mechanism != current.mechanism:
                secret = self._randomness.bytes(32).hex()
                page = Page(current.space, current.number, current.mechanism, secret)
                book.turn(current.campaign, page)
                self._save(book, anchored=True)

    def answer(
        self,
        current: Round,
        cell: int,
        *,
        report: str,
        limit_per_km: float,
        draw: Callable[[], Drawn],
    ) -> Charge:
        """The report for a true cell: the one already made, or a new one that is charged, then drawn.

        The charge is durable before ``draw`` is called, and what was drawn before this returns. When
        anything fails in between, the charge stays.
        """
        with self._book() as book:
            page = book.pages.get(current.campaign)
            if page is None or page.mechanism != current.mechanism:
                raise Refused("round-back")
            place, cost = page.place(cell), current.epsilon_per_km
            for earlier in book.answers(current.campaign, current.mechanism):
                if earlier.place == place:
                    return earlier
            if not _affordable(book, cost, limit_per_km):
                raise Refused("budget")
            paid = (current.campaign, current.number, current.mechanism, report, cost)
            book.add(Charge(*paid, place=place))
            self._save(book, anchored=True)
            reported, lat, lng = draw()
            charge = book.change(report, state="drawn", cell=reported, lat=lat, lng=lng)
            self._save(book)
            return charge

    def mark(self, report: str, state: State, problem: str = "") -> Charge:
        """What became of a report; an acknowledged one stays so."""
        with self._book() as book:
            charge = next(c for c in book.charges if c.report == report)
            if charge.state not in ("acknowledged", state):
                charge = book.change(report, state=state, problem=problem)
                self._save(book)
            return charge

    @contextmanager
    def _book(self) -> Iterator[Book]:
        """The book, under the lock."""
        try:
            with locked(self.path.with_name(self.path.name + ".lock")):
                yield self._load()
        except OSError as failure:
            raise Refused("ledger-unwritable", type(failure).__name__) from None

    def _load(self) -> Book:
        content, anchor = _content(self.path), _content(self.anchor)
        if content is None and anchor is None:
            book = Book(self._randomness.bytes(16).hex())
            self._save(book, anchored=True)
            return book
        if content is None:
            raise Refused("ledger-lost")
        try:
            book = Book.from_bytes(content)
            noted = unsealed(anchor, "anchor") if anchor is not None else None
        except UNREADABLE:
            raise Refused("ledger-unreadable") from None
        if noted is None and book.serial > 0:
            raise Refused("ledger-lost", "anchor")
        serial: int = noted["serial"] if noted else -1
        if noted and (noted["id"] != book.id or not serial <= book.serial <= serial + 1):
            raise Refused("ledger-rolled-back")
        if serial < book.serial:  # the last write was cut off between the two files
            self._save_anchor(book)
        return book

    def _save(self, book: Book, *, anchored: bool = False) -> None:
        replace_durably(self.path, book.to_bytes())
        if anchored:
            self._save_anchor(book)

    def _save_anchor(self, book: Book) -> None:
        noted = {"geoveil": VERSION, "kind": "anchor", "id": book.id, "serial": book.serial}
        replace_durably(self.anchor, sealed(noted))


def _check(book: Book, current: Round, limit_per_km: float) -> None:
    page = book.pages.get(current.campaign)
    if page is not None:
        if page.space != current.space:
            raise Refused("space")
        if current.number < page.round:
            raise Refused("round-back")
        if current.number == page.round and current.mechanism != page.mechanism:
            raise Refused("round-changed")
    if _affordable(book, current.epsilon_per_km, limit_per_km):
        return
    # a cell that has an answer under this mechanism is answered again, free of charge
    if not any(book.answers(current.campaign, current.mechanism)):
        raise Refused("budget")


def _affordable(book: Book, cost_per_km: float, limit_per_km: float) -> bool:
    try:
        Budget(limit_per_km, book.spent_per_km).charge("report", cost_per_km)
    except BudgetSpent:
        return False
    return True


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise Refused("ledger-unreadable", type(failure).__name__) from None
