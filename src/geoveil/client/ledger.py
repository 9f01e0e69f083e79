"""The ledger of a device: durable, charged before a draw."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from geoveil.client.book import VERSION, Book, Charge, Drawn, Page, State, sealed, unsealed
from geoveil.client.budget import Budget, BudgetSpent
from geoveil.client.refusal import Refused
from geoveil.randomness import SYSTEM, Randomness, checked_randomness

WAIT_S = 10.0
"""How long to wait for another process's lock."""
_POLL_S = 0.01


def replace_durably(path: Path, content: bytes) -> None:
    """The file with this content, readable by its owner only; after a crash the old or the new one."""
    beside = path.with_name(path.name + ".new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if sys.platform != "win32":
            os.fchmod(handle, 0o600)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(beside, path)  # noqa: PTH105  # tests make the n-th of these calls fail
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return  # no such call there; the rename is journalled
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file against every other process and thread."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(handle)
        yield  # closing the handle lets the lock go, and so does the end of the process
    finally:
        os.close(handle)


def _acquire(handle: int) -> None:
    last = time.monotonic() + WAIT_S
    while not _try_lock(handle):
        if time.monotonic() > last:
            raise Refused("ledger-busy")
        time.sleep(_POLL_S)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# --- The ledger: what a person has spent and sent, in a file that no crash, race or restart undoes


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

    # -- looking -------------------------------------------------------------------------------

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

    # -- a round -------------------------------------------------------------------------------

    def check(self, current: Round, limit_per_km: float) -> None:
        """Refuse another space, a round that goes back, and a report that the budget does not hold."""
        with self._book() as book:
            _check(book, current, limit_per_km)

    def accept(self, current: Round, limit_per_km: float) -> None:
        """``check``, and remember the space and the round: before a location is read."""
        with self._book() as book:
            _check(book, current, limit_per_km)
            known = book.pages.get(current.campaign)
            if known is None or known.mechanism != current.mechanism:
                secret = self._randomness.bytes(32).hex()
                page = Page(current.space, current.number, current.mechanism, secret)
                book.turn(current.campaign, page)
                self._save(book, anchored=True)

    # -- a report ------------------------------------------------------------------------------

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
            known = book.remembered(current.campaign, cell)
            if known is not None:
                return known
            self._charge(book, current, report, page.place(cell), limit_per_km)
            drawn = draw()
            charge = book.change(report, state="drawn", **asdict(drawn))
            self._save(book)
            return charge

    def _charge(
        self, book: Book, current: Round, report: str, place: str, limit_per_km: float
    ) -> None:
        cost = current.epsilon_per_km
        try:
            Budget(limit_per_km, book.spent_per_km).charge(report, cost)
        except BudgetSpent:
            raise Refused("budget") from None
        what = (current.campaign, current.number, current.mechanism, report, cost)
        book.add(Charge(*what, place=place))
        self._save(book, anchored=True)

    def mark(self, report: str, state: State, problem: str = "") -> Charge:
        """What became of a report; an acknowledged one stays so."""
        with self._book() as book:
            charge = next(c for c in book.charges if c.report == report)
            if charge.state != "acknowledged" and charge.state != state:
                charge = book.change(report, state=state, problem=problem)
                self._save(book)
            return charge

    # -- files ---------------------------------------------------------------------------------

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
            return self._first()
        if content is None:
            raise Refused("ledger-lost")
        book = _read(lambda: Book.from_bytes(content))
        if anchor is None and book.serial > 0:
            raise Refused("ledger-lost", "anchor")
        noted = -1 if anchor is None else self._noted(book, anchor)
        if noted < book.serial:  # the last write was cut off between the two files
            self._drop_anchor(book)
        return book

    def _first(self) -> Book:
        book = Book(self._randomness.bytes(16).hex())
        self._save(book, anchored=True)
        return book

    def _noted(self, book: Book, content: bytes) -> int:
        anchor: dict[str, Any] = _read(lambda: unsealed(content, "anchor"))
        noted: int = anchor["serial"]
        if anchor["id"] != book.id or not noted <= book.serial <= noted + 1:
            raise Refused("ledger-rolled-back")
        return noted

    def _save(self, book: Book, *, anchored: bool = False) -> None:
        replace_durably(self.path, book.to_bytes())
        if anchored:
            self._drop_anchor(book)

    def _drop_anchor(self, book: Book) -> None:
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
    try:
        Budget(limit_per_km, book.spent_per_km).charge("report", current.epsilon_per_km)
    except BudgetSpent:
        if not _answered(book, current):
            raise Refused("budget") from None


def _answered(book: Book, current: Round) -> bool:
    """Whether some cell has an answer under this mechanism, which costs nothing to give again."""
    asked = (current.campaign, current.mechanism)
    return any((c.campaign, c.mechanism) == asked and c.state != "charged" for c in book.charges)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise Refused("ledger-unreadable", type(failure).__name__) from None


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (ValueError, TypeError, KeyError):
        raise Refused("ledger-unreadable") from None
