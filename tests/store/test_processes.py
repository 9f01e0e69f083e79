"""Several server processes on one database: each counts without waiting for the others, none twice.

Two stores opened on one database stand for two processes: they share nothing but the database.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from databases import Cluster
from geoveil.store import ClosingRecord, EstimateRecord, Store, open_store
from geoveil.store import statements as sql
from store.devices import a_campaign, a_round, assert_explained, kept_ids, start, upload

AT_ONCE = 6


@pytest.fixture
def pair(address: str) -> Iterator[tuple[Store, Store]]:
    stores = open_store(address), open_store(address)
    start(stores[0])
    yield stores
    for store in stores:
        store.close()


def together(*acts: Callable[[], bool]) -> list[bool]:
    """All at the same time; what each answered."""
    ready = threading.Barrier(len(acts))
    answers: list[bool] = []
    failures: list[BaseException] = []

    def go(act: Callable[[], bool]) -> None:
        ready.wait()
        try:
            answers.append(act())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=go, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    return answers


def test_the_same_reports_in_other_orders_neither_deadlock_nor_count_twice(pair) -> None:
    uploads = [upload(number) for number in range(400)]
    new: list[int] = []

    def count(store: Store, seed: int) -> bool:
        chance = random.Random(seed)
        for _ in range(5):
            new.append(sum(store.add(chance.sample(uploads, 300))))
        return True

    together(lambda: count(pair[0], 1), lambda: count(pair[1], 2))
    for store in pair:
        assert len(assert_explained(store)) == store.rounds("paris")[0].total == sum(new)


def test_one_of_many_closes_claims_and_publishes(pair) -> None:
    one, other = pair
    one.add([upload(0)])
    stores = [one, other] * (AT_ONCE // 2)
    once = [False] * (AT_ONCE - 1) + [True]
    close = [lambda s=s: s.close_round("paris", 1, minimum=1, at_s=5) for s in stores]
    assert sorted(together(*close)) == once
    closed = ClosingRecord("paris", 1, 5)
    claim = [lambda s=s: s.claim(closed, until_s=70) for s in stores]
    assert sorted(together(*claim)) == once
    made = EstimateRecord("paris", 1, 20, 1, b"{}")
    publish = [lambda s=s: s.publish(made, a_round(number=2)) for s in stores]
    assert sorted(together(*publish)) == once
    replace = [lambda s=s: s.replace_document(a_round(number=3), after=2, at_s=30) for s in stores]
    assert sorted(together(*replace)) == once
    assert [kept.number for kept in other.rounds("paris")] == [1, 2, 3]


def test_an_estimate_that_comes_while_its_campaign_is_deleted_stops_neither(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    one.add([upload(0)])
    assert one.close_round("paris", 1, minimum=1, at_s=5)
    kept: list[bool] = []
    made = EstimateRecord("paris", 1, 20, 1, b"{}")
    late = threading.Thread(target=lambda: kept.append(other.publish(made, a_round(number=2))))

    def interrupted(statements: tuple[str, ...]) -> Iterator[str]:
        for statement in statements:
            if "FROM closing W" in statement:  # estimates are deleted, and one more comes
                late.start()
                late.join(0.3)
            yield statement

    monkeypatch.setattr("geoveil.store.contract.sql.DELETE_ROUNDS", interrupted(sql.DELETE_ROUNDS))
    assert one.delete_campaign("paris")
    late.join()
    assert kept == [False]
    assert other.campaigns() == []


def meanwhile(patch: pytest.MonkeyPatch, store: Store, name: str, act: Callable[[], None]) -> None:
    """Something is done by another process when a call of this one has come to its end, once."""
    call, once = getattr(store, name), iter([act])

    def interrupted(*given: object, **named: object) -> object:
        answer = call(*given, **named)
        for each in once:
            each()
        return answer

    patch.setattr(store, name, interrupted)


def anew(store: Store, old: str, new: str) -> None:
    """Delete a campaign and make another: in SQLite it gets the keys of the first."""
    assert store.delete_campaign(old)
    start(store, new)
    assert store.add([upload(1, campaign=new)]) == [True]


@pytest.mark.parametrize("name", ["paris", "lyon"])
def test_a_campaign_that_two_delete_takes_none_with_it_that_is_made_meanwhile(
    pair: tuple[Store, Store], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    one.add([upload(0)])
    meanwhile(monkeypatch, other, "_write", lambda: anew(one, "paris", name))
    assert other.delete_campaign("paris")
    assert [kept.id for kept in one.campaigns()] == [name]
    assert one.add([upload(1, campaign=name)]) == [False]


def test_ids_of_a_campaign_made_anew_are_not_forgotten_with_those_of_the_deleted_one(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    assert one.delete_campaign("paris")
    assert one.create_campaign(a_campaign(), a_round(until_s=100))
    one.add([upload(0)])
    meanwhile(monkeypatch, other, "_read", lambda: anew(one, "paris", "lyon"))
    assert other.forget_ids(now_s=200) == 0
    assert one.add([upload(1, campaign="lyon"), upload(2, campaign="lyon")]) == [False, True]


def test_ids_of_many_rounds_are_forgotten_in_one_pass_also_after_a_process_that_died(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    monkeypatch.setattr("geoveil.store.contract._AT_A_TIME", 7)
    one.create_campaign(a_campaign("lyon"), a_round("lyon", until_s=100))
    for number in range(2, 12):
        late_s = 100 if number < 11 else 10_000
        assert one.replace_document(
            a_round("lyon", number, until_s=late_s), after=number - 1, at_s=1
        )
    one.add([upload(n, campaign="lyon", round=1 + n % 11) for n in range(110)])
    steps: list[object] = []
    forget_some = sql.forget_some

    def counted(*asked: object) -> object:
        steps.append(asked)
        if len(steps) == 5:
            raise KeyboardInterrupt
        return forget_some(*asked)

    monkeypatch.setattr(sql, "forget_some", counted)
    with pytest.raises(KeyboardInterrupt):
        one.forget_ids(now_s=200)
    assert other.forget_ids(now_s=200) > 100 - 4 * 7 - 1
    assert kept_ids(one) == {upload(n).id for n in range(10, 110, 11)}
    assert len(steps) <= 5 + 1 + 110 / 7
    assert other.forget_ids(now_s=200) == one.forget_ids(now_s=200) == 0


def test_closing_while_both_count_keeps_one_moment(pair) -> None:
    """What the closing kept and what came later is all there was."""

    def count(store: Store, first: int) -> bool:
        return all(all(store.add([upload(n)])) for n in range(first, first + 60))

    one, other = pair
    one.add([upload(1_000)])
    assert all(
        together(
            lambda: count(one, 0),
            lambda: count(other, 100),
            lambda: one.close_round("paris", 1, minimum=1, at_s=5),
        )
    )
    (closing,) = other.closings()
    now = other.counts("paris")[1]
    assert (pair[0].closing_counts("paris", closing.round)[1] <= now).all()
    assert now.sum() == 121
    assert len(assert_explained(one)) == 121


def test_what_a_role_has_set_keeps_no_round_from_closing_while_both_count(
    postgres: Cluster,
) -> None:
    """A transaction that closes must see what others count meanwhile, and wait for it."""
    strict = "%20-cdefault_transaction_isolation%3Dserializable%20-clock_timeout%3D1ms"
    address = postgres.database() + strict
    with closing(open_store(address)) as one, closing(open_store(address)) as other:
        start(one)
        with one.writing() as run:
            assert run("SELECT count(*) FROM report") == [(0,)]
            assert other.add([upload(1)]) == [True]
            assert run("SELECT count(*) FROM report") == [(1,)]
            assert run("SHOW lock_timeout") == [("0",)]


def test_a_process_has_a_shard_of_its_own_and_gives_it_back(postgres: Cluster) -> None:
    address = postgres.database()
    first, second = open_store(address), open_store(address)
    start(first)
    first.add([upload(0)])
    second.add([upload(1)])
    second.close()
    third = open_store(address)
    third.add([upload(2)])
    first.close()
    third.close()
    with psycopg.connect(address) as connection:
        rows = connection.execute("SELECT shard, count FROM round_total ORDER BY shard").fetchall()
    assert len(rows) == 2
    assert sorted(count for _, count in rows) == [1, 2]


def test_a_campaign_made_anew_by_another_process_counts_its_own_reports(pair) -> None:
    one, other = pair
    assert other.add([upload(0)]) == [True]
    one.delete_campaign("paris")
    start(one, "lyon")  # in SQLite, under the keys that were those of the first
    start(one, "paris", cells=1000)
    cells = [upload(number, cells=1000) for number in range(20)]
    assert all(other.add(cells))
    assert one.rounds("paris")[0].total == 20
    assert one.rounds("lyon")[0].total == 0
