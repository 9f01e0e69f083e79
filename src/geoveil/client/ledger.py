"""A device's ledger: one SQLite file with what every report cost and said, and nothing true.

Each change is one transaction, synced before it is answered, among any number of processes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path

from geoveil.client import ledger_book as tables
from geoveil.client.budget import Limits, Spent
from geoveil.client.ledger_book import MIGRATIONS, Charge, Drawn, Period, Round, State, Totals
from geoveil.client.ledger_files import (
    UNREADABLE,
    first_format,
    keep_private,
    locked,
    make_empty,
    move_durably,
    write_durably,
)
from geoveil.client.refusal import Refused, without_frames
from geoveil.files import file_name
from geoveil.randomness import SYSTEM, Randomness

WAIT_S = 10.0
"""How long to wait for another process that is writing."""
SYNCHRONOUS = "EXTRA"
"""A commit is on the disk, and so is the end of its journal; tests that end no machine need not wait."""
APPLICATION_ID = 0x67_76_6C_64
"""In the header of the file, so that other programs' databases are left alone ("gvld")."""


class Ledger:
    """One person's ledger, over all campaigns; a new one is made on first use only.

    A file of the first format (JSON) is taken over once, in its place: its charges stay, what it knew
    of true cells goes. A small second file, the *anchor*, names the ledger, so that one that vanished
    or was exchanged is noticed and never begun again. An older copy may be put back: it makes the same
    reports again under the same mechanisms. What was sent stands in the file; from where does not.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "ledger.db")
    >>> ledger.spent_per_km, ledger.charges()
    (0.0, [])
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, *, anchor: str | Path | None = None) -> None:
        self.path = Path(file_name(path)).absolute()  # the program may go to another folder
        self.anchor = Path(file_name(anchor or f"{self.path}.anchor")).absolute()
        with self._book():
            keep_private(self.path)

    # -- what it says ----------------------------------------------------------------------------

    @property
    def spent_per_km(self) -> float:
        """ε per km of all charges so far."""
        with self._book() as book:
            return tables.total(book, "").epsilon_per_km

    def totals(self, origin: str, campaign: str = "") -> Totals:
        """What all reports have cost, and those to the campaigns of one origin; the ticket of one of them."""
        with self._book() as book:
            return tables.totals(book, origin, campaign)

    def spent(self, origin: str, now_s: float) -> Spent:
        """What was spent for ever, on this day and in a year around it, and on one operator."""
        with self._book() as book:
            return tables.spent(book, origin, now_s)

    def charges(self) -> list[Charge]:
        """Every charge, in order."""
        with self._book() as book:
            return tables.charges(book, "ORDER BY number")

    def waiting(self, campaign: str) -> list[Charge]:
        """What was sent to a campaign and neither counted nor refused for good, in order."""
        with self._book() as book:
            return tables.charges(
                book, "WHERE campaign = ? AND state = 'sent' ORDER BY number", campaign
            )

    def reported(self, campaign: str, period: Period, mechanism: str = "") -> Charge | None:
        """The report that was made already: ever, on that day, or under that mechanism, of a round."""
        with self._book() as book:
            return tables.reported(book, campaign, period, mechanism)

    # -- reporting -------------------------------------------------------------------------------

    @without_frames
    def open_campaign(
        self, name: str, period: Period, now_s: float, randomness: Randomness = SYSTEM
    ) -> None:
        """A key for a campaign seen for the first time; those of campaigns that have ended are erased."""
        with self._book(write=True) as book:
            tables.forget_ended(book, now_s)
            tables.open_campaign(book, name, period, randomness)

    def certified(self, timeless: str) -> bool:
        """Whether the promise of a document was checked here before, in whatever round: it takes longest."""
        with self._book() as book:
            statement = "SELECT 1 FROM certified WHERE mechanism = ?"
            return book.execute(statement, (timeless,)).fetchone() is not None

    def check(self, current: Round, limits: Limits, now_s: float) -> None:
        """Refuse another space than the first, and a report that the budget does not hold."""
        with self._book() as book:
            tables.check(book, current, limits, now_s)

    @without_frames
    def accept(
        self,
        current: Round,
        period: Period,
        limits: Limits,
        now_s: float,
        randomness: Randomness = SYSTEM,
    ) -> Charge | tuple[str, bytes]:
        """``check``, and the id and the bits for the report: before a location is read.

        The report itself where it was made already. Where a key for it stands there, and none has ended,
        nothing is written, and nothing need be synced.
        """
        with self._book(write=True) as book:
            earlier = tables.reported(book, current.campaign, period, current.mechanism)
            if earlier is not None:
                return earlier
            tables.check(book, current, limits, now_s)
            tables.forget_ended(book, now_s)
            secret = tables.key(book, current.campaign, period, randomness)
            return period.bits(secret, current.mechanism)

    def remember(self, current: Round) -> None:
        """Note a document that was accepted; ``charge`` does so too, and this where no report came of it."""
        with self._book(write=True) as book:
            tables.remember(book, current)

    @without_frames
    def charge(
        self,
        current: Round,
        period: Period,
        limits: Limits,
        now_s: float,
        report: str,
        drawn: Drawn,
        slot: int | None = None,
        ended: Drawn | None = None,
    ) -> tuple[Charge, Totals | None]:
        """Charge a report that was drawn; once this returns, with the sums, it may be sent.

        The charge and what was drawn are one commit, and with it the key moves on: nobody can work out
        from the ledger what the report was drawn from. Where another process was quicker, its report
        is the one, that of today too where the day of ``period`` is over. Of a trip, ``ended`` was drawn too.
        """
        with self._book(write=True) as book:
            promise, day = current.promise, tables.day_of(now_s)
            for number in {period.number, day} if period.again == "day" else {period.number}:
                same = replace(period, number=number)
                earlier = tables.reported(book, current.campaign, same, current.mechanism)
                if earlier is not None:
                    return earlier, None
            tables.check(book, current, limits, now_s)
            paid = (current.campaign, current.number, current.mechanism, report)
            to_cell, to_lat, to_lng = (None, None, None) if ended is None else ended
            charge = Charge(
                *paid,
                promise.epsilon_per_km,
                "sent",
                *drawn,
                day=day,
                slack_nats=promise.slack,
                slot=slot,
                to_cell=to_cell,
                to_lat=to_lat,
                to_lng=to_lng,
            )
            tables.add(book, charge)
            tables.remember(book, current)
            tables.move_on(book, current.campaign, period)
            return charge, tables.totals(book, charge.origin, charge.campaign)

    @without_frames
    def ticket_seed(self, campaign: str, randomness: Randomness = SYSTEM) -> bytes | None:
        """What the ticket for a campaign is made from: kept before anybody is asked to sign.

        Nothing where the report was counted, or never will be: whoever asked then would be known as one of
        those.
        """
        with self._book(write=True) as book:
            earlier = tables.reported(book, campaign, Period("never", 0), "")
            if earlier is not None and earlier.state != "sent":
                return None
            new = (campaign, tables.secret_bytes(randomness))
            book.execute("INSERT INTO ticket VALUES (?, ?, NULL) ON CONFLICT DO NOTHING", new)
            statement = "SELECT seed FROM ticket WHERE campaign = ?"
            return bytes(memoryview(book.execute(statement, (campaign,)).fetchone()[0]))

    def ticket(self, campaign: str) -> bytes | None:
        """The ticket for a campaign that is not spent yet."""
        with self._book() as book:
            return tables.ticket(book, campaign)

    def keep_ticket(self, campaign: str, token: bytes) -> None:
        """Keep a ticket that was signed."""
        with self._book(write=True) as book:
            book.execute("UPDATE ticket SET token = ? WHERE campaign = ?", (token, campaign))

    def mark(self, report: str, state: State, problem: str = "") -> None:
        """What became of a report, whose ticket has done its work; an acknowledged one stays so."""
        with self._book(write=True) as book:
            if state != "sent":
                of_report = "campaign = (SELECT campaign FROM charge WHERE report = ?)"
                book.execute(f"DELETE FROM ticket WHERE {of_report}", (report,))
            book.execute(
                "UPDATE charge SET state = ?, problem = ? WHERE report = ? AND state != 'acknowledged'",
                (state, problem, report),
            )

    def end(self, campaign: str) -> None:
        """Erase the key of a campaign that has ended, and its ticket; that and what was reported stays."""
        with self._book(write=True) as book:
            book.execute("DELETE FROM ticket WHERE campaign = ?", (campaign,))
            tables.erase(book, "name = ?", campaign)

    def forget_ended(self, now_s: float) -> None:
        """Erase the keys of campaigns whose last document has expired."""
        with self._book(write=True) as book:
            tables.forget_ended(book, now_s)

    # -- the file --------------------------------------------------------------------------------

    @contextmanager
    def _book(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction on the file, which is opened anew: it may have been put back from a copy."""
        try:
            with closing(self._opened()) as book:
                # as safe as a journal that is deleted, and a little quicker
                book.execute("PRAGMA journal_mode = TRUNCATE")
                book.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                _migrate(book)
                self._check_anchor(book)
                yield book
                book.execute("COMMIT")
        except sqlite3.Error as failure:
            raise Refused(_reason(failure), type(failure).__name__) from None
        except UNREADABLE:  # a number for a text, text that is none, sums beyond all numbers
            raise Refused("ledger-unreadable") from None
        except OSError as failure:
            raise Refused("ledger-unwritable", type(failure).__name__) from None

    def _opened(self) -> sqlite3.Connection:
        """A connection to the file, which is begun where there is none, or one of the first format.

        Only SQLite opens a database: closing a file lets go of every lock that this process has on it.
        """
        try:
            return _connection(self.path)
        except sqlite3.Error as failure:
            if _code(failure) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB):
                raise
        with self._locked():  # and wait for no other lock: whoever has that may wait for this one
            if not self.path.exists():
                if self.anchor.exists():
                    raise Refused("ledger-lost")
                self._write(SYSTEM.bytes(16).hex(), {}, [])
            elif not _is_database(self.path):  # else another was quicker
                self._take_over()
        return _connection(self.path)

    def _beside(self, ending: str) -> Path:
        """A file beside the ledger's, also where the path is a link to that."""
        file = Path(os.path.realpath(self.path))
        if file.is_symlink():
            raise Refused("ledger-unreadable", "a loop of links")
        if file.is_dir():
            raise Refused("ledger-unreadable", "a folder")
        return file.with_name(file.name + ending)

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self._beside(".lock"), WAIT_S)

    def _take_over(self) -> None:
        try:
            identity, spaces, entries = first_format(self.path.read_bytes())
            charges = [Charge(**entry) for entry in entries]
        except UNREADABLE:
            raise Refused("ledger-unreadable") from None
        self._write(identity, spaces, charges)

    def _write(self, identity: str, spaces: dict[str, str], charges: list[Charge]) -> None:
        """A ledger that stands there whole, or not at all."""
        beside = self._beside(".new")
        make_empty(beside)
        with closing(_connection(beside)) as book:
            book.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            book.execute("BEGIN IMMEDIATE")
            _migrate(book)
            book.execute("INSERT INTO ledger VALUES (?)", (identity,))
            for name, space in spaces.items():
                book.execute("INSERT INTO campaign (name, space) VALUES (?, ?)", (name, space))
            for charge in charges:
                tables.add(book, charge)
            book.execute("COMMIT")
        for former in ("-journal", "-wal", "-shm"):  # SQLite would play them back into this one
            self._beside(former).unlink(missing_ok=True)
        move_durably(beside, self._beside(""))

    def _check_anchor(self, book: sqlite3.Connection) -> None:
        """The anchor names this ledger; a missing one is written."""
        (identity,) = book.execute("SELECT id FROM ledger").fetchone() or ("",)
        if not isinstance(identity, str) or not identity:
            raise Refused("ledger-unreadable")
        try:
            named = self.anchor.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            with self._locked():
                write_durably(self.anchor, f"{identity}\n".encode())
            return
        except OSError as failure:
            raise Refused("ledger-unreadable", f"its anchor: {type(failure).__name__}") from None
        if identity not in named:  # the first format put it among other things
            raise Refused("ledger-exchanged")


def _connection(path: Path) -> sqlite3.Connection:
    book = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", timeout=WAIT_S, isolation_level=None, uri=True
    )
    book.text_factory = bytes.decode  # of what is no text a ``ValueError``
    try:
        book.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        book.execute("PRAGMA secure_delete = ON")  # what is erased is overwritten
    except BaseException:  # it is no database
        book.close()
        raise
    return book


def _is_database(path: Path) -> bool:
    """Whether SQLite takes it for one; asked without any lock."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as book:
            book.execute("PRAGMA schema_version")
    except sqlite3.Error as failure:
        if _code(failure) == sqlite3.SQLITE_CANTOPEN:
            raise Refused("ledger-unreadable", type(failure).__name__) from None
        return _code(failure) != sqlite3.SQLITE_NOTADB
    return True


def _code(failure: sqlite3.Error) -> int:
    return int(getattr(failure, "sqlite_errorcode", 0)) & 0xFF


def _reason(failure: sqlite3.Error) -> str:
    code = _code(failure)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "ledger-busy"
    unreadable = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
    return "ledger-unreadable" if code in unreadable else "ledger-unwritable"


def _migrate(book: sqlite3.Connection) -> None:
    """Bring the tables up to date, where they are ours and not newer than this program."""
    (application,) = book.execute("PRAGMA application_id").fetchone()
    (version,) = book.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise Refused("ledger-unreadable", "another program's database")
    if version > len(MIGRATIONS):
        raise Refused("ledger-unreadable", "written by a newer version")
    for number, statements in enumerate(MIGRATIONS[version:], start=version + 1):
        for statement in statements:
            book.execute(statement)
        book.execute(f"PRAGMA user_version = {number}")
