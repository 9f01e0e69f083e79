"""What stands in a ledger: its tables, and every question asked of them.

Whatever a report takes is looked up by an index or kept as a sum, so that its cost does not grow with
the ledger.
"""

from __future__ import annotations

import hmac
import math
import sqlite3
from dataclasses import dataclass, fields
from fractions import Fraction
from numbers import Real
from operator import index
from typing import Any, Literal, get_args, get_type_hints

from geoveil.channel.guarantee import BetweenPositions, GeoIndistinguishability, as_written
from geoveil.client.budget import Limits, Spent
from geoveil.client.refusal import Refused
from geoveil.document.slots import LATEST_S
from geoveil.errors import GeoveilError, RandomnessFailed
from geoveil.randomness import Randomness

MOST_STEPS = 4096
"""A key is moved on by no more than this; a report farther ahead begins with a new one."""
SECRET_BYTES = 32
"""Of a key, and of what a ticket is made from."""
DAY_S = 86_400
YEAR_DAYS = 365

State = Literal["charged", "sent", "acknowledged", "refused"]
"""``charged``: paid for, and nothing drawn (ledgers of earlier versions have such); ``sent``: drawn,
and may have left; then what the collector said."""
Again = Literal["never", "day", "round"]
"""When a campaign is reported to again: never, once a day (UTC), once in every round."""
Drawn = tuple[int, float, float]
"""A report's cell, and the latitude and longitude of its centre in degrees; of a trip, of one end."""
Totals = tuple[BetweenPositions, BetweenPositions, bytes | None]
"""What all reports have cost, and those to the campaigns of one origin; the ticket of one of them."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE ledger (
            id TEXT NOT NULL  -- 16 random bytes, in hexadecimal; the anchor names it
        )""",
        """CREATE TABLE campaign (
            name TEXT PRIMARY KEY,       -- its link
            space TEXT,         -- SHA-256 of its cells as first accepted
            expires_s INTEGER,  -- the last end of its documents, in seconds since 1970 (UTC)
            again TEXT,         -- what the key's numbers count: never, day or round
            next INTEGER,       -- the least number that the key makes reports for
            key BLOB            -- 32 bytes; nothing once it is erased
        ) WITHOUT ROWID""",
        f"""CREATE TABLE charge (
            number INTEGER PRIMARY KEY,    -- in order
            campaign TEXT NOT NULL,        -- its link
            round INTEGER NOT NULL CHECK (round > 0),
            mechanism TEXT NOT NULL,       -- SHA-256 of its document
            report TEXT NOT NULL UNIQUE,   -- the id that was sent, 16 bytes in hexadecimal
            epsilon_per_km REAL NOT NULL CHECK (epsilon_per_km > 0),
            state TEXT NOT NULL CHECK (state IN {get_args(State)}),
            cell INTEGER,                  -- what was sent
            lat REAL,                      -- its centre, in degrees
            lng REAL,
            problem TEXT NOT NULL,         -- why the collector refused, where it did
            day INTEGER                    -- days since 1970 (UTC) by this device's clock, where known
        )""",
        "CREATE INDEX charge_by_mechanism ON charge (campaign, mechanism)",
        "CREATE INDEX charge_by_day ON charge (campaign, day)",
        "CREATE INDEX charge_waiting ON charge (campaign) WHERE state = 'sent'",
        """CREATE TABLE origin_total (
            origin TEXT PRIMARY KEY,   -- scheme, host and port of an operator; '' for all together
            reports INTEGER NOT NULL,
            epsilon_per_km TEXT NOT NULL  -- the exact sum, as a fraction
        ) WITHOUT ROWID""",
        """CREATE TABLE day_total (
            day INTEGER PRIMARY KEY,      -- days since 1970 (UTC)
            epsilon_per_km TEXT NOT NULL  -- the exact sum, as a fraction
        )""",
    ),
    (
        # nothing of reports under documents of version 1, which promised between cells
        "ALTER TABLE charge ADD COLUMN slack_nats REAL",
        "CREATE INDEX charge_between_cells ON charge (number) WHERE slack_nats IS NULL",
        "ALTER TABLE origin_total ADD COLUMN slack_nats TEXT NOT NULL DEFAULT '0'",
        """CREATE TABLE certified (
            mechanism TEXT PRIMARY KEY,  -- SHA-256 of a document whose promise was checked here, of no round
            expires_s INTEGER NOT NULL   -- the last end of those of any round
        ) WITHOUT ROWID""",
    ),
    (
        # the slot that was sent; nothing where the document has none
        "ALTER TABLE charge ADD COLUMN slot INTEGER",
    ),
    (
        # the noisy end of a trip, beside its noisy begin; nothing where a place was reported
        "ALTER TABLE charge ADD COLUMN to_cell INTEGER",
        "ALTER TABLE charge ADD COLUMN to_lat REAL",
        "ALTER TABLE charge ADD COLUMN to_lng REAL",
        "CREATE INDEX charge_of_trips ON charge (number) WHERE to_cell IS NOT NULL",
    ),
    (
        """CREATE TABLE ticket (
            campaign TEXT PRIMARY KEY,  -- its link
            seed BLOB NOT NULL,         -- 32 bytes that the ticket is made from
            token BLOB                  -- the ticket; nothing until it is signed; gone once it is spent
        ) WITHOUT ROWID""",
    ),
)
"""What each version of the schema adds to the one before; the file says which it has."""


@dataclass(frozen=True, slots=True)
class Charge:
    """One report in the ledger: what it cost, and what was sent."""

    campaign: str
    round: int
    mechanism: str
    report: str
    epsilon_per_km: float
    state: State = "sent"
    cell: int | None = None
    """What was drawn; ``lat`` and ``lng`` are its centre."""
    lat: float | None = None
    lng: float | None = None
    problem: str = ""
    """Why the collector refused, where it did."""
    day: int | None = None
    """Days since 1970 (UTC) by the device's clock; ``None`` where an earlier version did not note it."""
    slack_nats: float | None = None
    """η; ``None`` where the promise was between cells, under a document of version 1."""
    slot: int | None = None
    """The slot that was sent; ``None`` where the document has none."""
    to_cell: int | None = None
    """Of a trip: where it ended, as it was drawn; ``to_lat`` and ``to_lng`` are its centre."""
    to_lat: float | None = None
    to_lng: float | None = None

    def __post_init__(self) -> None:
        present = {value is not None for value in (self.cell, self.lat, self.lng)}
        ended = {value is not None for value in (self.to_cell, self.to_lat, self.to_lng)}
        if present != {self.state != "charged"} or len(ended) > 1:
            raise ValueError("not a ledger that this program wrote")

    @property
    def drawn(self) -> Drawn:
        """What was drawn; ``ValueError`` where nothing was."""
        if self.cell is None or self.lat is None or self.lng is None:
            raise ValueError("nothing was drawn for this charge")
        return self.cell, self.lat, self.lng

    @property
    def said(self) -> str:
        """What was sent, in a few words."""
        to = "" if self.to_cell is None else f" to cell {self.to_cell}"
        return f"cell {self.drawn[0]}{to}"

    @property
    def origin(self) -> str:
        """Scheme, host and port of whoever it was sent to."""
        return "/".join(self.campaign.split("/")[:3])


@dataclass(frozen=True, slots=True)
class Round:
    """A mechanism document as the ledger knows it."""

    campaign: str
    """The campaign's link."""
    space: str
    """SHA-256 of the space."""
    number: int
    mechanism: str
    promise: BetweenPositions
    expires_s: int
    timeless: str
    """SHA-256 of the document but for its round and times: the same where another round has the same law."""


@dataclass(frozen=True, slots=True)
class Period:
    """What may be reported about once: a campaign, a day of it or a round of it."""

    again: Again
    number: int
    """0, or the day, or the round."""

    def bits(self, key: bytes, mechanism: str) -> tuple[str, bytes]:
        """The id of its report in hexadecimal, and 16 bytes for each of two draws: never of the place.

        The second draw is for the end of a trip.
        """
        context = f"{mechanism} {self.again} {self.number}".encode()
        report, draw, end = (
            hmac.digest(key, b"geoveil report %s %s" % (use, context), "sha256")[:16]
            for use in (b"id", b"draw", b"end")
        )
        return report.hex(), draw + end


def moved_on(key: bytes, steps: int) -> bytes:
    """The key so many numbers later; nobody can go back from it."""
    for _ in range(steps):
        key = hmac.digest(key, b"geoveil next key", "sha256")
    return key


# --- Questions and changes, each inside a transaction of whoever asks


_NAMES = ", ".join(field.name for field in fields(Charge))
_KINDS = [str if kind is State else kind for kind in get_type_hints(Charge).values()]


def charges(book: sqlite3.Connection, which: str, *values: Any) -> list[Charge]:
    """The charges that a clause selects."""
    rows = book.execute(f"SELECT {_NAMES} FROM charge {which}", values).fetchall()
    if not all(all(map(isinstance, row, _KINDS)) for row in rows):
        raise ValueError("not a ledger that this program wrote")
    return [Charge(*row) for row in rows]


def reported(
    book: sqlite3.Connection, campaign: str, period: Period, mechanism: str
) -> Charge | None:
    """The report of a period that was made already; of a round by its mechanism, whatever its number."""
    which, value = {
        "never": ("? = ''", ""),
        "day": ("day = ?", period.number),
        "round": ("mechanism = ?", mechanism),
    }[period.again]
    condition = f"WHERE campaign = ? AND {which} AND state != 'charged' ORDER BY number LIMIT 1"
    return next(iter(charges(book, condition, campaign, value)), None)


def add(book: sqlite3.Connection, charge: Charge) -> None:
    """One more charge, and what it adds to every sum."""
    values = [getattr(charge, field.name) for field in fields(Charge)]
    marks = ", ".join("?" * len(values))
    book.execute(f"INSERT INTO charge ({_NAMES}) VALUES ({marks})", values)
    cost, slack = (as_written(value) for value in (charge.epsilon_per_km, charge.slack_nats or 0.0))
    for origin in ("", charge.origin):
        reports, epsilon, nats = _paid(book, origin)
        sums = (origin, reports + 1, str(epsilon + cost), str(nats + slack))
        book.execute("REPLACE INTO origin_total VALUES (?, ?, ?, ?)", sums)
    if charge.day is not None:
        together = _on_days(book, charge.day, charge.day) + cost
        book.execute("REPLACE INTO day_total VALUES (?, ?)", (charge.day, str(together)))


def _exact(text: str) -> Fraction:
    if (number := Fraction(text)) < 0:
        raise ValueError("not a ledger that this program wrote")
    return number


def _paid(book: sqlite3.Connection, origin: str) -> tuple[int, Fraction, Fraction]:
    """The reports to one operator, or to all (``""``), and what they have cost: ε per km and η."""
    statement = "SELECT reports, epsilon_per_km, slack_nats FROM origin_total WHERE origin = ?"
    reports, epsilon, slack = book.execute(statement, (origin,)).fetchone() or (0, "0", "0")
    return index(reports), _exact(epsilon), _exact(slack)


def _on_days(book: sqlite3.Connection, first: int, last: int) -> Fraction:
    """ε per km of all reports on some days; many cost the same, and fractions are slow to add."""
    rows = "day_total WHERE day BETWEEN ? AND ? GROUP BY epsilon_per_km"
    alike = book.execute(f"SELECT epsilon_per_km, count(*) FROM {rows}", (first, last))
    return sum((_exact(text) * days for text, days in alike), Fraction())


def total(book: sqlite3.Connection, origin: str) -> BetweenPositions:
    """What all reports to one operator have cost, or those to all (``""``)."""
    return BetweenPositions.exactly(*_paid(book, origin)[1:])


def totals(book: sqlite3.Connection, origin: str, campaign: str) -> Totals:
    """What was spent, and the ticket that is not."""
    return total(book, ""), total(book, origin), ticket(book, campaign)


def ticket(book: sqlite3.Connection, campaign: str) -> bytes | None:
    """The ticket for a campaign that is not spent yet."""
    row = book.execute("SELECT token FROM ticket WHERE campaign = ?", (campaign,)).fetchone()
    return None if row is None or row[0] is None else bytes(memoryview(row[0]))


def checked_time(now_s: float) -> float:
    """A time that a clock may tell, in seconds since 1970."""
    if not (isinstance(now_s, Real) and 0 <= now_s <= LATEST_S):
        raise Refused("clock")
    return float(now_s)


def day_of(now_s: float) -> int:
    """The day (UTC) of a time."""
    return int(checked_time(now_s) // DAY_S)


def spent(book: sqlite3.Connection, origin: str, now_s: float) -> Spent:
    """What was spent for ever, on this day and in a year around it, and on one operator."""
    today = day_of(now_s)
    reports, *paid = _paid(book, "")
    ahead = book.execute("SELECT 1 FROM day_total WHERE day > ? LIMIT 1", (today,)).fetchone()
    cells = book.execute("SELECT 1 FROM charge WHERE slack_nats IS NULL LIMIT 1").fetchone()
    trips = book.execute("SELECT 1 FROM charge WHERE to_cell IS NOT NULL LIMIT 1").fetchone()
    lifetime = BetweenPositions.exactly(*paid)
    day_sum, year_sum = (
        GeoIndistinguishability.exactly(_on_days(book, today - days, today + days))
        for days in (0, YEAR_DAYS - 1)
    )
    return Spent(
        reports=reports,
        lifetime=lifetime,
        day=day_sum,
        year=year_sum,
        operator=total(book, origin) if origin else lifetime,
        ahead=ahead is not None,
        cells=cells is not None,
        trips=trips is not None,
    )


def check(book: sqlite3.Connection, current: Round, limits: Limits, now_s: float) -> None:
    """Refuse another space than the first, and a report that the budget does not hold."""
    row = book.execute("SELECT space FROM campaign WHERE name = ?", (current.campaign,)).fetchone()
    if row is not None and row[0] not in (None, current.space):
        raise Refused("space")
    cost = current.promise
    broken = limits.broken_by(spent(book, "", now_s), cost.epsilon_per_km, cost.slack)
    if broken is not None:
        raise Refused("budget", broken)


# --- Keys: they make the reports of one number and of all later ones, and only move forward


def secret_bytes(randomness: Randomness) -> bytes:
    """32 random bytes; what an app's own source does instead is no fault of the ledger."""
    try:
        data: Any = randomness.bytes(SECRET_BYTES)
    except GeoveilError:
        raise
    except Exception as failure:
        why = type(failure).__name__
        raise RandomnessFailed(
            f"the source of randomness failed ({why}); nothing was drawn"
        ) from None
    if not isinstance(data, bytes) or len(data) != SECRET_BYTES:
        raise RandomnessFailed("the source of randomness must give 32 bytes; nothing was drawn")
    return data


def open_campaign(
    book: sqlite3.Connection, name: str, period: Period, randomness: Randomness
) -> None:
    """A key for a campaign that the ledger does not know yet: the earlier, the more copies have it."""
    row = book.execute("SELECT 1 FROM campaign WHERE name = ?", (name,)).fetchone()
    if row is None:
        values = (name, period.again, period.number, secret_bytes(randomness))
        book.execute("INSERT INTO campaign (name, again, next, key) VALUES (?, ?, ?, ?)", values)


def key(book: sqlite3.Connection, campaign: str, period: Period, randomness: Randomness) -> bytes:
    """The key of a report to come; a new one where there is none that reaches it."""
    open_campaign(book, campaign, period, randomness)
    statement = "SELECT again, next, key FROM campaign WHERE name = ?"
    again, least, secret = book.execute(statement, (campaign,)).fetchone()
    if secret is None or again != period.again or not 0 <= period.number - least <= MOST_STEPS:
        least, secret = period.number, secret_bytes(randomness)
        changed = (period.again, least, secret, campaign)
        book.execute("UPDATE campaign SET again = ?, next = ?, key = ? WHERE name = ?", changed)
    return moved_on(secret, period.number - least)


def remember(book: sqlite3.Connection, current: Round) -> None:
    """The space of a campaign, when its documents end, and that the promise of this one was checked."""
    book.execute(
        "UPDATE campaign SET space = ?, expires_s = max(coalesce(expires_s, 0), ?) WHERE name = ?",
        (current.space, current.expires_s, current.campaign),
    )
    book.execute(
        "INSERT INTO certified VALUES (?, ?) "
        "ON CONFLICT (mechanism) DO UPDATE SET expires_s = max(expires_s, excluded.expires_s)",
        (current.timeless, current.expires_s),
    )


def move_on(book: sqlite3.Connection, campaign: str, period: Period) -> None:
    """From now on the key makes later reports only; none where there are none."""
    if period.again == "never":
        erase(book, "name = ?", campaign)
        return
    statement = "SELECT next, key FROM campaign WHERE name = ? AND again = ? AND key IS NOT NULL"
    row = book.execute(statement, (campaign, period.again)).fetchone()
    if row is not None and 0 <= period.number - row[0] <= MOST_STEPS:
        later = moved_on(row[1], period.number + 1 - row[0])
        book.execute(
            "UPDATE campaign SET next = ?, key = ? WHERE name = ?",
            (period.number + 1, later, campaign),
        )


def forget_ended(book: sqlite3.Connection, now_s: float) -> None:
    """Erase the keys of campaigns whose last document has expired, and which documents were checked."""
    second = math.floor(checked_time(now_s))
    erase(book, "expires_s <= ?", second)
    book.execute("DELETE FROM certified WHERE expires_s <= ?", (second,))


def erase(book: sqlite3.Connection, which: str, value: Any) -> None:
    """Erase the keys of some campaigns; that they were reported to, and what it cost, stays."""
    book.execute(
        f"UPDATE campaign SET again = NULL, next = NULL, key = NULL "
        f"WHERE key IS NOT NULL AND {which}",
        (value,),
    )
