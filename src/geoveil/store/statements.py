"""The statements that SQLite and PostgreSQL share, and the counts they add up to."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

import numpy as np

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput
from geoveil.store import records

CAMPAIGN = "SELECT id, name, settings, created_at_s, state, published_at_s FROM campaign"
_OF_CAMPAIGN = "campaign_key = (SELECT key FROM campaign WHERE id = :campaign)"
"""Not the id beside a join: so PostgreSQL goes to the last round, and sorts no thousands of them."""
_TOTAL = """
    CAST(coalesce((SELECT sum(t.count) FROM round_total t WHERE t.round_key = r.key), 0) AS bigint)
"""
ROUND = f"""
    SELECT c.id, r.number, r.mechanism, r.document, r.cells, r.opened_at_s, r.expires_at_s,
           r.accept_until_s, r.closed_at_s, {_TOTAL}, r.levels, r.slots, r.ends, r.around
    FROM round r JOIN campaign c ON c.key = r.campaign_key
"""
NEWEST = f"{ROUND} WHERE r.{_OF_CAMPAIGN} ORDER BY r.number DESC LIMIT 1"
TIMES = f"""
    SELECT c.id, r.number, r.mechanism, r.opened_at_s, r.expires_at_s, r.closed_at_s, {_TOTAL}
    FROM campaign c JOIN round r ON r.campaign_key = c.key
"""
LAST_OF_RUNNING = f"""
    {TIMES} AND r.number = (SELECT max(n.number) FROM round n WHERE n.campaign_key = c.key)
    WHERE c.state = 'running' ORDER BY c.key
"""
IN_ALL = f"""
    SELECT CAST(coalesce(sum(t.count), 0) AS bigint),
        (SELECT count(*) FROM round WHERE {_OF_CAMPAIGN})
    FROM round r JOIN round_total t ON t.round_key = r.key WHERE r.{_OF_CAMPAIGN}
"""
LAST_ROUND = f"""
    SELECT r.key, r.number, r.closed_at_s, {_TOTAL}
    FROM round r WHERE r.campaign_key = :campaign_key ORDER BY r.number DESC LIMIT 1
"""
LEVEL_ROUND = "SELECT round_key FROM level WHERE mechanism = :mechanism"
ROUND_KEY = """
    (SELECT r.key FROM round r JOIN campaign c ON c.key = r.campaign_key
     WHERE c.id = :campaign AND r.number = :number)
"""
_NUMBERS = """
    SELECT r.number FROM round r JOIN campaign c ON c.key = r.campaign_key
    WHERE c.id = :campaign AND r.number <= :number
"""
_CLOSED_BY = "(SELECT k.number FROM round k WHERE k.key = t.closing_key) <= :number"
REPORTED = f"""
    {_NUMBERS} AND EXISTS (SELECT 1 FROM closing_tally t WHERE t.round_key = r.key AND {_CLOSED_BY})
    ORDER BY r.number
"""
_LIVE = """
    SELECT r.number, t.cell, CAST(sum(t.count) AS bigint)
    FROM tally t JOIN round r ON r.key = t.round_key JOIN campaign c ON c.key = r.campaign_key
    WHERE c.id = :campaign GROUP BY r.number, t.cell
"""
_CLOSED_COUNTS = f"""
    SELECT r.cells, t.counts FROM round r JOIN campaign c ON c.key = r.campaign_key
    LEFT JOIN closing_tally t ON t.round_key = r.key AND {_CLOSED_BY}
    WHERE c.id = :campaign AND r.number = :round AND r.number <= :number
"""
_TAKE = """
    DELETE FROM tally WHERE round_key IN (SELECT key FROM round WHERE campaign_key = :campaign_key)
    RETURNING round_key, cell, count
"""
_OPENED_NEXT = """
    (SELECT n.opened_at_s FROM round n JOIN round o ON o.campaign_key = n.campaign_key
     WHERE o.key = closing.round_key AND n.number > o.number ORDER BY n.number LIMIT 1)
"""
CONCLUDED = f"""
    SELECT count(*) FROM closing JOIN round r ON r.key = closing.round_key WHERE r.{_OF_CAMPAIGN}
    AND r.number < :before AND (given_up_at_s IS NULL OR given_up_at_s > {_OPENED_NEXT})
"""
GIVEN_UP = f"""
    SELECT r.number, k.failures FROM closing k JOIN round r ON r.key = k.round_key
    WHERE r.{_OF_CAMPAIGN} AND r.number > :number AND k.given_up_at_s IS NOT NULL
"""
CLOSINGS = """
    SELECT c.id, r.number, k.closed_at_s, k.failures, k.claimed_until_s
    FROM closing k JOIN round r ON r.key = k.round_key JOIN campaign c ON c.key = r.campaign_key
    WHERE k.given_up_at_s IS NULL AND k.estimated = 0 ORDER BY k.closed_at_s, k.round_key
"""
KEEP_CAMPAIGN = """
    INSERT INTO campaign (id, name, settings, created_at_s)
    VALUES (:id, :name, :settings, :created_at_s) ON CONFLICT (id) DO NOTHING RETURNING key
"""
CHANGE_CAMPAIGN = """
    UPDATE campaign SET name = coalesce(:name, name), state = coalesce(:state, state)
    WHERE key = :campaign_key
"""
PUBLISH_MAP = """
    UPDATE campaign SET published_at_s = coalesce(published_at_s, :at_s) WHERE key = :campaign_key
"""
TAKE_MAP_BACK = "UPDATE campaign SET published_at_s = NULL WHERE key = :campaign_key"
CLOSE_OPEN = """
    UPDATE round SET closed_at_s = :at_s WHERE closed_at_s IS NULL AND campaign_key = :campaign_key
"""
_UNFINISHED = "given_up_at_s IS NULL AND estimated = 0"
GIVE_UP = f"""
    UPDATE closing SET given_up_at_s =
        CASE WHEN {_OPENED_NEXT} >= :at_s THEN {_OPENED_NEXT} + 1 ELSE :at_s END
    WHERE round_key = {ROUND_KEY} AND {_UNFINISHED} RETURNING round_key
"""
KEEP_ESTIMATE = """
    INSERT INTO estimate (round_key, made_at_s, reports, body, slots)
    VALUES (:key, :made_at_s, :reports, :body, :slots)
    ON CONFLICT (round_key) DO NOTHING RETURNING round_key
"""
ESTIMATED = """
    SELECT r.number FROM closing k JOIN round r ON r.key = k.round_key
    JOIN campaign c ON c.key = r.campaign_key WHERE c.id = :campaign AND k.estimated = 1
"""
_IS_OVER = """
    ids_dropped < 2 AND accept_until_s < :now_s AND NOT EXISTS (
        SELECT 1 FROM ticket_key t JOIN campaign c ON c.key = t.campaign_key
        WHERE t.campaign_key = round.campaign_key AND c.state <> 'ended'
    )
"""  # tickets are spent for as long as there is a report to spend them on
OVER = f"SELECT campaign_key FROM round WHERE {_IS_OVER} ORDER BY accept_until_s, key"
_IN_CAMPAIGN = f"{_IS_OVER} AND +campaign_key = :campaign_key"
"""With a sign, so that SQLite goes by when they end, and not through the documents of all rounds."""
KEEP_TOKEN = """
    INSERT INTO token (digest, label, created_at_s) VALUES (:digest, :label, :at_s)
    ON CONFLICT (digest) DO NOTHING
"""
KEEP_TICKET_KEY = """
    INSERT INTO ticket_key (campaign_key, primes) VALUES (:campaign_key, :primes)
"""
TICKET_KEY = """
    SELECT t.primes FROM ticket_key t JOIN campaign c ON c.key = t.campaign_key WHERE c.id = :campaign
"""
INVITE = """
    INSERT INTO invitation (campaign_key, digest) VALUES (:campaign_key, :digest)
    ON CONFLICT (campaign_key, digest) DO NOTHING
"""
INVITED = f"SELECT count(*), count(request) FROM invitation WHERE {_OF_CAMPAIGN}"
IS_INVITED = f"SELECT 1 FROM invitation WHERE {_OF_CAMPAIGN} AND digest = :digest"
USE_INVITATION = f"""
    UPDATE invitation SET request = :request
    WHERE {_OF_CAMPAIGN} AND digest = :digest AND (request IS NULL OR request = :request) RETURNING 1
"""
PREPARATION = """
    SELECT c.id, p.number, p.space, p.failures, p.problem, p.claimed_until_s
    FROM preparation p JOIN campaign c ON c.key = p.campaign_key
"""
PREPARE = """
    INSERT INTO preparation (campaign_key, number, space) VALUES (:campaign_key, :number, :space)
    ON CONFLICT (campaign_key) DO UPDATE SET number = excluded.number, space = excluded.space,
        claimed_until_s = 0, failures = 0, problem = ''
"""
_WAITED_FOR = """
    campaign_key = (SELECT key FROM campaign WHERE id = :campaign)
    AND number = :number AND space = :space AND problem = ''
"""
REFUSE = f"UPDATE preparation SET problem = :problem WHERE {_WAITED_FOR} RETURNING number"
PREPARED = f"DELETE FROM preparation WHERE {_WAITED_FOR} RETURNING campaign_key"

# of a job: its table and its row, and whether there is still something to do
_JOBS: Mapping[type, tuple[str, str, str]] = {
    records.ClosingRecord: ("closing", f"round_key = {ROUND_KEY}", _UNFINISHED),
    records.PreparationRecord: (
        "preparation",
        _WAITED_FOR,
        "EXISTS (SELECT 1 FROM campaign c WHERE c.key = campaign_key AND c.state <> 'ended')",
    ),
}
CLAIM = {
    kind: f"""
    UPDATE {table} SET claimed_until_s = :until_s
    WHERE claimed_until_s = :held_until_s AND {row} AND {to_do} RETURNING failures
    """
    for kind, (table, row, to_do) in _JOBS.items()
}
RELEASE = {
    kind: f"UPDATE {table} SET claimed_until_s = 0 WHERE {row} AND claimed_until_s = :held_until_s"
    for kind, (table, row, _) in _JOBS.items()
}
FAIL = {
    kind: f"UPDATE {table} SET failures = failures + 1 WHERE {row} RETURNING failures"
    for kind, (table, row, _) in _JOBS.items()
}
ESTIMATE = f"""
    SELECT c.id, r.number, e.made_at_s, e.reports, e.body
    FROM estimate e JOIN round r ON r.key = e.round_key JOIN campaign c ON c.key = r.campaign_key
    WHERE r.{_OF_CAMPAIGN}
"""
KEEP_TIME = """
    INSERT INTO upkeep (key, seen_at_s) VALUES (1, :at_s)
    ON CONFLICT (key) DO UPDATE SET seen_at_s = excluded.seen_at_s
"""
MARK_COPY = """
    INSERT INTO upkeep (key, seen_at_s, copied_at_s) VALUES (1, :at_s, :at_s)
    ON CONFLICT (key) DO UPDATE SET copied_at_s = excluded.copied_at_s
"""
_OF_ROUNDS = """
    IN (SELECT key FROM round WHERE campaign_key = :campaign_key ORDER BY number DESC LIMIT :size)
"""
DROP_ALL_IDS = """
    UPDATE round SET ids_dropped = 2 WHERE ids_dropped < 2 AND campaign_key = :campaign_key
"""
DELETE_IDS = """
    DELETE FROM report WHERE campaign_key = :campaign_key AND id IN
    (SELECT id FROM report WHERE campaign_key = :campaign_key ORDER BY id LIMIT :size)
    AND EXISTS (SELECT 1 FROM campaign WHERE key = :campaign_key AND id = :campaign AND state = 'ended')
    RETURNING 1
"""
DELETE_ROUNDS = (
    f"DELETE FROM level WHERE round_key {_OF_ROUNDS}",
    f"DELETE FROM tally WHERE round_key {_OF_ROUNDS}",
    f"DELETE FROM round_total WHERE round_key {_OF_ROUNDS}",
    f"DELETE FROM closing_tally WHERE closing_key {_OF_ROUNDS}",
    f"DELETE FROM estimate WHERE round_key {_OF_ROUNDS}",
    f"DELETE FROM closing WHERE round_key {_OF_ROUNDS}",
    f"DELETE FROM round WHERE key {_OF_ROUNDS} RETURNING 1",
)
"""The last rounds of a campaign: no closing before them has counts of theirs."""
DELETE_REST = (
    "DELETE FROM invitation WHERE campaign_key = :campaign_key",
    "DELETE FROM ticket_key WHERE campaign_key = :campaign_key",
    "DELETE FROM preparation WHERE campaign_key = :campaign_key",
    "DELETE FROM campaign WHERE key = :campaign_key",
)
"""All but the ids and the rounds of a campaign."""


class Run(Protocol):
    """Runs one statement inside a transaction; its rows."""

    def __call__(self, statement: str, **values: object) -> list[records.Row]: ...


Pending = dict[int, dict[bytes, tuple[int, int, int]]]
"""Campaign key → id → round key and cell it counts for, and the position of its upload; of several
uploads with one id, the first."""


def pending_of(
    uploads: Sequence[records.Upload],
    look_up: Callable[[list[str], list[int], list[str]], Iterable[records.Row]],
) -> tuple[Pending, list[int]]:
    """Uploads by campaign and id, and the keys of all rounds they name; each cell checked.

    ``look_up`` finds campaigns, numbers and mechanisms as they are now: position, campaign's key, round's
    key, cells and whether the ids are gone. Nothing is remembered: another process may have deleted a
    campaign and made one of the same id, and SQLite gives a key again.
    """
    named = list(dict.fromkeys((one.campaign, one.round, one.mechanism) for one in uploads))
    rounds = {}
    campaigns, numbers, mechanisms = map(list, zip(*named, strict=True))
    for position, *keys in look_up(campaigns, numbers, mechanisms):
        if keys.pop():
            raise over()
        rounds[named[position]] = keys
    pending: Pending = {}
    for position, (campaign, number, id, cell, mechanism) in enumerate(uploads):
        if (campaign, number, mechanism) not in rounds:
            raise InvalidInput(f"round ({number}) must be one of the campaign's")
        campaign_key, round_key, cells = rounds[campaign, number, mechanism]
        if not 0 <= cell < cells:
            raise InvalidInput(f"cell of the report at position {position} must be below {cells}")
        if len(id) != records.ID_BYTES:
            raise InvalidInput(f"id of the report at position {position} must have 16 bytes")
        ids = pending.get(campaign_key)
        if ids is None:
            ids = pending[campaign_key] = {}
        ids.setdefault(id, (round_key, cell, position))
    return pending, [round_key for _, round_key, _ in rounds.values()]


def over() -> InvalidInput:
    """What to say of a report whose round is over for good."""
    return InvalidInput("round must still know its ids; reports for it came to an end")


def names_of(job: records.Job) -> dict[str, object]:
    """What tells one job from another."""
    names: dict[str, object] = {"campaign": job.campaign, "number": job.round}
    return names | ({"space": job.space} if isinstance(job, records.PreparationRecord) else {})


def open_round(run: Run, campaign_key: int, opened: records.RoundRecord) -> None:
    """Keep a round that opens now; whatever the record says of its end or its total is not kept."""
    new = run(
        "INSERT INTO round (campaign_key, number, mechanism, document, cells, opened_at_s,"
        " expires_at_s, accept_until_s, levels, slots, ends, around) VALUES (:campaign_key, :number,"
        " :mechanism, :document, :cells, :opened_at_s, :expires_at_s, :accept_until_s, :levels,"
        " :slots, :ends, :around)"
        " ON CONFLICT (mechanism) DO NOTHING RETURNING key",
        campaign_key=campaign_key,
        **asdict(opened),
    )
    if not new:
        raise InvalidInput("mechanism must not be published twice; make a document of its own")
    for mechanism in opened.levels.split():
        run(
            "INSERT INTO level (mechanism, round_key) VALUES (:mechanism, :key)",
            mechanism=mechanism,
            key=new[0][0],
        )


def open_after(run: Run, campaign: records.Row, after: int, following: records.RoundRecord) -> bool:
    """Open a round where ``after`` is the last one and the campaign goes on."""
    key, state = campaign
    last = run(LAST_ROUND, campaign_key=key)
    if state == "ended" or not last or last[0][1] != after:
        return False
    open_round(run, key, following)
    return True


def forget_some(
    run: Run, campaign_key: int, now_s: int, after: bytes, size: int
) -> tuple[bytes | None, int]:
    """Drop the ids of all rounds that are over among ``size`` ids of their campaign from ``after`` on.

    The id to go on from (none: all done) and how many were dropped.
    """
    values: dict[str, object] = {"campaign_key": campaign_key, "now_s": now_s, "after": after}
    # they take no more reports; one of them, which is enough, keeps other processes from the same work
    first = f"SELECT key FROM round WHERE {_IN_CAMPAIGN} ORDER BY accept_until_s, key LIMIT 1"
    which = f"ids_dropped < 2 AND key = ({first})" if after else _IN_CAMPAIGN
    if not run(f"UPDATE round SET ids_dropped = 1 WHERE {which} RETURNING key", **values):
        return None, 0
    further = run(
        "SELECT id FROM report WHERE campaign_key = :campaign_key AND id > :after"
        " ORDER BY id LIMIT 1 OFFSET :size",
        size=size - 1,
        **values,
    )
    stop: bytes | None = further[0][0] if further else None
    some = (
        "FROM report WHERE campaign_key = :campaign_key AND id > :after"
        f"{' AND id <= :stop' if further else ''} AND round_key IN (SELECT key FROM round"
        " WHERE campaign_key = :campaign_key AND ids_dropped = 1)"
    )
    ((count,),) = run(f"SELECT count(*) {some}", stop=stop, **values)
    run(f"DELETE {some}", stop=stop, **values)
    if stop is None:
        run(f"UPDATE round SET ids_dropped = 2 WHERE {_IN_CAMPAIGN}", **values)
    return stop, int(count)


def take_counts(run: Run, campaign_key: int, closing_key: int) -> None:
    """Move what was counted since the last closing of a campaign into this one."""
    counts: dict[int, Counter[int]] = {}
    for round_key, cell, count in run(_TAKE, campaign_key=campaign_key):
        counts.setdefault(round_key, Counter())[cell] += count
    for round_key, cells in counts.items():
        run(
            "INSERT INTO closing_tally (closing_key, round_key, counts)"
            " VALUES (:closing_key, :round_key, :counts)",
            closing_key=closing_key,
            round_key=round_key,
            counts=packed(cells),
        )


def _closed_counts(
    run: Run, campaign: str, closing: int, rounds: Iterable[int] | None
) -> Iterator[tuple[int, int, list[IntArray]]]:
    """Number, cells and counts of rounds when one closed, each by a statement of its own: a database that
    limits how long one may take limits no campaign."""
    values: dict[str, object] = {"campaign": campaign, "number": closing}
    if rounds is None:
        rounds = (number for (number,) in run(_NUMBERS, **values))
    for number in sorted(rounds):
        rows = run(_CLOSED_COUNTS, round=number, **values)
        if rows:
            yield number, rows[0][0], [unpacked(counts) for _, counts in rows if counts is not None]


def counts_at(
    run: Run, campaign: str, closing: int, rounds: Iterable[int] | None = None
) -> dict[int, IntArray]:
    """Round number → counts by cell when a round closed, of these or all rounds that had opened."""
    counts = {}
    for number, size, tallies in _closed_counts(run, campaign, closing, rounds):
        counts[number] = np.zeros(size, dtype=np.int64)
        for tally in tallies:
            cells, times = tally.T
            counts[number][cells] += times
    return counts


def pairs_at(
    run: Run, campaign: str, closing: int, rounds: Iterable[int] | None = None
) -> dict[int, IntArray]:
    """The same as rows of number and count, for pairs that were reported: most never are."""
    pairs = {}
    for number, _, tallies in _closed_counts(run, campaign, closing, rounds):
        counts: Counter[int] = Counter()
        for tally in tallies:
            counts.update(dict(tally.tolist()))
        if counts:
            pairs[number] = np.array(sorted(counts.items()), dtype=np.int64)
    return pairs


def counts_now(run: Run, campaign: str) -> dict[int, IntArray]:
    """Round number → counts by cell."""
    counts = counts_at(run, campaign, sys.maxsize)
    for number, cell, count in run(_LIVE, campaign=campaign):
        counts[number][cell] += count
    return counts


_NUMBERS_ONLY = str.maketrans(":", ",", '{}" ')


def packed(cells: Mapping[int, int]) -> str:
    """Counts by cell as ``closing_tally.counts`` keeps them.

    >>> packed({7: 2, 3: 1})
    '{"3":1,"7":2}'
    """
    return json.dumps(dict(sorted(cells.items())), separators=(",", ":"))


def unpacked(counts: str) -> IntArray:
    """The counts again, as rows of a cell and its count. It is fast: a close reads many rounds.

    >>> unpacked('{"3":1,"7":2}').tolist(), unpacked('{ "3" : 1, "7" : 2 }').tolist()
    ([[3, 1], [7, 2]], [[3, 1], [7, 2]])
    """
    return np.fromstring(counts.translate(_NUMBERS_ONLY), np.int64, sep=",").reshape(-1, 2)
