"""Group commit: together on the disk, each with its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from geoveil.errors import InvalidInput
from geoveil.store import Overloaded, StoreFailed, Upload
from store.devices import Writer, start, totals, upload
from store.memory import MemoryStore

PATIENCE_S = 300


class GatedStore(MemoryStore):
    """Commits when it is let, and remembers what each commit held."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.may_commit = threading.Semaphore(0)
        self.commits: list[int] = []
        self.failures: list[Exception] = []

    def add(self, uploads: Sequence[Upload]) -> list[bool]:
        self.begun.release()
        assert self.may_commit.acquire(timeout=PATIENCE_S)
        self.commits.append(len(uploads))
        if self.failures:
            raise self.failures.pop()
        return super().add(uploads)


@pytest.fixture
def store() -> GatedStore:
    store = GatedStore()
    start(store)
    return store


def open_gate(store: GatedStore, times: int = 1_000) -> None:
    store.may_commit.release(times)


def test_what_queued_during_a_commit_goes_into_the_next(store: GatedStore) -> None:
    with Writer(store) as writer:
        first = writer.hand_in([upload(0)])
        assert store.begun.acquire(timeout=PATIENCE_S)
        others = [writer.hand_in([upload(n), upload(0)]) for n in range(1, 6)]
        assert writer.waiting == 10
        open_gate(store)
        assert first.result(PATIENCE_S) == [True]
        assert [other.result(PATIENCE_S) for other in others] == [[True, False]] * 5
    assert store.commits == [1, 10]


def test_nobody_is_told_before_the_commit(store: GatedStore) -> None:
    with Writer(store) as writer:
        future = writer.hand_in([upload(0)])
        assert store.begun.acquire(timeout=PATIENCE_S)
        assert not future.done()
        open_gate(store)
        assert future.result(PATIENCE_S) == [True]


def test_a_commit_is_bounded(store: GatedStore) -> None:
    with Writer(store, most_a_commit=4) as writer:
        futures = [writer.hand_in([upload(0)])]
        assert store.begun.acquire(timeout=PATIENCE_S)
        futures += [writer.hand_in([upload(2 * n), upload(2 * n + 1)]) for n in range(1, 6)]
        futures.append(writer.hand_in([upload(n) for n in range(100, 109)]))
        open_gate(store)
        assert all(future.result(PATIENCE_S) for future in futures)
    assert store.commits == [1, 4, 4, 2, 9]  # what was handed in together stays together


def test_a_full_queue_refuses_instead_of_growing(store: GatedStore) -> None:
    with Writer(store, most_waiting=3) as writer:
        first = writer.hand_in([upload(0)])
        assert store.begun.acquire(timeout=PATIENCE_S)
        second = writer.hand_in([upload(1), upload(2)])
        with pytest.raises(Overloaded, match="too many"):
            writer.hand_in([upload(3), upload(4)])
        third = writer.hand_in([upload(5)])
        open_gate(store)
        assert [f.result(PATIENCE_S) for f in (first, second, third)] == [
            [True],
            [True, True],
            [True],
        ]
    assert totals(store) == [4]


def test_an_idle_writer_takes_more_than_may_wait(store: GatedStore) -> None:
    with Writer(store, most_waiting=3) as writer:
        first = writer.hand_in([upload(n) for n in range(5)])
        assert store.begun.acquire(timeout=PATIENCE_S)
        second = writer.hand_in([upload(n) for n in range(5, 10)])
        with pytest.raises(Overloaded, match="too many"):
            writer.hand_in([upload(10)])
        open_gate(store)
        assert [first.result(PATIENCE_S), second.result(PATIENCE_S)] == [[True] * 5] * 2
    assert totals(store) == [10]


def test_closing_drains_and_then_refuses(store: GatedStore) -> None:
    writer = Writer(store)
    futures = [writer.hand_in([upload(n)]) for n in range(50)]
    open_gate(store)
    writer.close()
    assert all(future.result(0) == [True] for future in futures)
    with pytest.raises(Overloaded, match="stopping"):
        writer.hand_in([upload(99)])
    writer.close()


@pytest.mark.parametrize("failure", [StoreFailed("disk full"), RuntimeError("paris")])
def test_a_failed_commit_fails_its_own_and_the_next_tries_again(
    store: GatedStore, failure: Exception
) -> None:
    store.failures = [failure]
    with Writer(store) as writer:
        first = writer.hand_in([upload(0)])
        assert store.begun.acquire(timeout=PATIENCE_S)
        second = writer.hand_in([upload(1)])
        open_gate(store)
        with pytest.raises(StoreFailed) as told:
            first.result(PATIENCE_S)
        assert "paris" not in str(told.value)
        assert second.result(PATIENCE_S) == [True]
    assert totals(store) == [1]


def test_a_wrong_report_fails_alone(store: GatedStore) -> None:
    open_gate(store)
    with Writer(store) as writer:
        store.may_commit.acquire(timeout=PATIENCE_S)
        futures = [writer.hand_in([upload(n)]) for n in range(3)]
        wrong = writer.hand_in([upload(9)._replace(cell=64)])
        futures += [writer.hand_in([upload(n)]) for n in range(3, 6)]
        assert [future.result(PATIENCE_S) for future in futures] == [[True]] * 6
        with pytest.raises(InvalidInput):
            wrong.result(PATIENCE_S)
    assert totals(store) == [6]


def test_a_faulty_submission_among_many_costs_few_commits(store: GatedStore) -> None:
    with Writer(store) as writer:
        first = writer.hand_in([upload(0)])
        assert store.begun.acquire(timeout=PATIENCE_S)
        futures = [writer.hand_in([upload(n)]) for n in range(1, 64)]
        wrong = writer.hand_in([upload(64)._replace(cell=64)])
        open_gate(store)
        assert [future.result(PATIENCE_S) for future in (first, *futures)] == [[True]] * 64
        with pytest.raises(InvalidInput):
            wrong.result(PATIENCE_S)
    assert totals(store) == [64]
    assert store.commits == [1, 64, 32, 32, 16, 16, 8, 8, 4, 4, 2, 2, 1, 1]


def test_a_cancelled_future_disturbs_nobody(store: GatedStore) -> None:
    with Writer(store) as writer:
        writer.hand_in([upload(0)])
        assert store.begun.acquire(timeout=PATIENCE_S)
        gone, stays = writer.hand_in([upload(1)]), writer.hand_in([upload(2)])
        assert gone.cancel()
        open_gate(store)
        assert stays.result(PATIENCE_S) == [True]
    assert totals(store) == [3]


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts how often it was woken from outside."""

    woken = 0

    def call_soon_threadsafe(self, *args, **kwargs):
        self.woken += 1
        return super().call_soon_threadsafe(*args, **kwargs)


def test_coroutines_are_woken_once_a_commit(store: GatedStore) -> None:
    loop = CountingLoop()
    with Writer(store) as writer:

        async def talk() -> list[list[bool]]:
            first = writer.submit(loop, [upload(0)])
            assert store.begun.acquire(timeout=PATIENCE_S)
            others = [writer.submit(loop, [upload(n)]) for n in range(1, 101)]
            others[0].cancel()
            open_gate(store)
            return await asyncio.gather(first, *others[1:])

        assert loop.run_until_complete(talk()) == [[True]] * 100
        assert loop.woken == 2
    loop.close()
    assert totals(store) == [101]


def test_coroutines_learn_of_failure(store: GatedStore) -> None:
    store.failures = [StoreFailed("disk full")]
    open_gate(store)
    with Writer(store) as writer:

        async def talk() -> None:
            await writer.submit(asyncio.get_running_loop(), [upload(0)])

        with pytest.raises(StoreFailed):
            asyncio.run(talk())


def test_a_loop_that_is_gone_does_not_stop_the_writer(store: GatedStore) -> None:
    loop = asyncio.new_event_loop()
    with Writer(store) as writer:
        writer.submit(loop, [upload(0)])
        loop.close()
        open_gate(store)
        assert writer.hand_in([upload(1)]).result(PATIENCE_S) == [True]
    assert totals(store) == [2]
