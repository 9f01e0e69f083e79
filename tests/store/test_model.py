"""Every count can be explained: random operations on a store and on the model, compared throughout.

Every simulated device has a cell of its own, so a count may only be 0 or 1: a report counted twice
shows as a 2, one counted elsewhere as a 1 that nobody sent.

A failure: any answer, count, record, closing or estimate that differs from the model's; any count above
1. Not a failure: nothing here is nondeterministic, one seed gives one run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from databases import cluster
from geoveil.errors import InvalidInput
from geoveil.store import (
    ClosingRecord,
    EstimateRecord,
    PreparationRecord,
    Store,
    Upload,
    copy_store,
)
from store.devices import a_campaign, a_round, counts, device_id, plain
from store.memory import MemoryStore, open_any

CELLS = 256
CAMPAIGNS = ("paris", "rome")


class Comparison:
    """One run: the same operation on both, then everything compared."""

    def __init__(self, address: Callable[[], str], seed: int) -> None:
        self.address = address
        self.where = address()
        self.store: Store = open_any(self.where)
        self.model = MemoryStore()
        self.random = random.Random(seed)
        self.now_s = 1_000
        self.sent: list[Upload] = []
        self.devices = 0

    def run(self, steps: int) -> None:
        operations = [
            *[self.add] * 8,
            *[self.repeat] * 3,
            *[self.close_round, self.claim, self.publish] * 2,
            self.create,
            *[self.prepare] * 2,
            self.replace_document,
            self.change,
            self.delete,
            self.forget,
            self.reopen,
            self.move,
        ]
        for _ in range(steps):
            self.now_s += self.random.randrange(200)
            operation = self.random.choice(operations)
            operation()
            self.compare()
        self.store.close()

    def both(self, act: Callable[[Store], object]) -> None:
        assert outcome(act, self.store) == outcome(act, self.model)

    def campaign(self) -> str:
        return self.random.choice(CAMPAIGNS)

    def until_s(self) -> int:
        return self.now_s + self.random.choice((500, 5_000))

    # -- operations ------------------------------------------------------------------------------

    def create(self) -> None:
        name, until_s = self.campaign(), self.until_s()
        first = a_round(name, cells=CELLS, until_s=until_s)
        if self.random.random() < 0.4:  # of many cells: its first round is prepared
            self.both(lambda store: store.create_campaign(a_campaign(name), None))
        self.both(lambda store: store.create_campaign(a_campaign(name), first))

    def prepare(self) -> None:
        """A round is wanted, taken, given back, fails, cannot be or opens; or another is wanted by then."""
        name, at_s = self.campaign(), self.now_s
        last = max((one.number for one in self.model.rounds(name)), default=0)
        number = last + self.random.choice((0, 1, 1, 50))
        space = self.random.choice((b"", b"{}", b"[]"))
        drawn = PreparationRecord(name, max(1, number), space)
        if self.random.random() < 0.3:
            self.both(lambda store: store.prepare(drawn))
        wanted = self.random.choice((drawn, self.model.preparation(name) or drawn))
        held_s = self.random.choice((0, 300))
        self.both(
            lambda s: s.claim(wanted, until_s=at_s + 300, held_until_s=held_s and at_s + held_s)
        )
        later = self.random.choice(("release", "fail", "refuse", "open", "open", "open"))
        opened = a_round(name, wanted.round, cells=CELLS, until_s=self.until_s())
        acts: dict[str, Callable[[Store], object]] = {
            "release": lambda store: store.release(wanted, held_until_s=at_s + 300),
            "fail": lambda store: store.failed(wanted),
            "refuse": lambda store: store.refuse_preparation(wanted, "it cannot be"),
            "open": lambda store: store.finish_preparation(wanted, opened, at_s=at_s),
        }
        self.both(acts[later])

    def add(self) -> None:
        rounds = [one for name in CAMPAIGNS for one in self.model.rounds(name)]
        if rounds and self.devices < CELLS - 20:
            uploads = [self.device(self.random.choice(rounds)) for _ in range(self.few())]
            self.send(uploads + self.random.choices(uploads, k=self.random.randrange(3)))

    def device(self, one) -> Upload:
        self.devices += 1
        return Upload(one.campaign, one.number, device_id(self.devices), self.devices)

    def repeat(self) -> None:
        """Ids sent before, also under another round and cell."""
        if self.sent:
            again = self.random.choices(self.sent, k=self.few())
            other = [one._replace(round=self.number(one.campaign), cell=0) for one in again]
            self.send(again + other)

    def few(self) -> int:
        return self.random.randrange(1, 6)

    def send(self, uploads: list[Upload]) -> None:
        self.both(lambda store: store.add(uploads))
        self.sent += uploads

    def close_round(self) -> None:
        name, minimum, at_s = self.campaign(), self.random.randrange(4), self.now_s
        number = self.number(name)
        self.both(lambda s: s.close_round(name, number, minimum=minimum, at_s=at_s))

    def claim(self) -> None:
        name, at_s = self.campaign(), self.now_s
        closed = ClosingRecord(name, self.number(name), at_s)
        self.both(lambda store: store.claim(closed, until_s=at_s + 300))
        held, later = at_s + self.random.choice([0, 300]), at_s + 10
        if self.random.random() < 0.3:
            self.both(lambda s: s.claim(closed, until_s=later + 300, held_until_s=held))
        if self.random.random() < 0.3:
            self.both(lambda store: store.release(closed, held_until_s=held))

    def publish(self) -> None:
        closings = self.model.closings()
        if closings:
            closed = self.random.choice(closings)
            made = EstimateRecord(closed.campaign, closed.round, self.now_s, 5, b"{}")
            last = self.random.random() < 0.1
            following = None if last else self.following(closed.campaign)
            if self.random.random() < 0.3:
                self.both(lambda store: store.failed(closed))
            if following is not None and self.random.random() < 0.2:
                self.both(lambda store: store.give_up(closed.round, following))
            self.both(lambda store: store.publish(made, following))
            self.both(lambda store: store.publish(made, following))

    def replace_document(self) -> None:
        name, at_s = self.campaign(), self.now_s
        if self.model.rounds(name):
            following = self.following(name)
            after = self.number(name) - self.random.choice((0, 0, 1))
            still = self.random.random() < 0.3
            where = {"after": after, "at_s": at_s, "still_open": still}
            self.both(lambda store: store.replace_document(following, **where))

    def change(self) -> None:
        name, state = self.campaign(), self.random.choice(("running", "paused", "ended", None))
        title = self.random.choice((None, "Other"))
        following = None
        if state != "ended" and self.model.rounds(name) and self.random.random() < 0.2:
            following = self.following(name)
        changes = {
            "at_s": self.now_s,
            "name": title,
            "state": state,
            "published": self.random.choice((None, None, True, False)),
            "minimum": 2 if state == "ended" else None,
            "following": following,
            "still_open": self.random.random() < 0.3,
        }
        self.both(lambda store: store.change_campaign(name, **changes))

    def delete(self) -> None:
        name = self.campaign()
        kept = self.model.campaign(name)  # most that ended: they change no more
        if self.random.random() < (0.2 if kept is None or kept.state != "ended" else 0.8):
            self.both(lambda store: store.delete_campaign(name))

    def number(self, name: str) -> int:
        """Of the last round."""
        return max((one.number for one in self.model.rounds(name)), default=1)

    def following(self, name: str):
        number = self.number(name) + self.random.choice((1, 1, 1, 50))
        return a_round(name, number, cells=CELLS, until_s=self.until_s())

    def forget(self) -> None:
        now_s = self.now_s
        self.both(lambda store: store.forget_ids(now_s=now_s))

    def reopen(self) -> None:
        self.store.close()
        self.store = open_any(self.where)

    def move(self) -> None:
        """Everything goes into another database, and the run continues there."""
        self.where = self.address()
        target = open_any(self.where)
        copy_store(self.store, target)
        self.store.close()
        self.store = target

    # -- comparison ------------------------------------------------------------------------------

    def compare(self) -> None:
        self.both(lambda store: store.campaigns())
        self.both(lambda store: [(one, one.claimed_until_s) for one in store.preparations()])
        self.both(everything_waiting)
        for name in CAMPAIGNS:
            self.both(lambda store, name=name: store.rounds(name))
            self.both(lambda store, name=name: store.rounds(name, [3, 2]))
            self.both(lambda store, name=name: store.round_times(name))
            self.both(lambda store, name=name: store.progress(name))
            self.both(lambda store, name=name: store.preparation(name))
            self.both(lambda store, name=name: store.estimate(name))
            self.both(lambda store, name=name: store.rounds_concluded(name))
            self.both(lambda store, name=name: store.rounds_concluded(name, before=2))
            self.both(lambda store, name=name: store.given_up(name))
            self.both(lambda store, name=name: counts(store, name))
        assert_ones(self.store)


def outcome(act: Callable[[Store], object], store: Store) -> object:
    """What came of it; a refusal is an outcome too."""
    try:
        return act(store)
    except InvalidInput:
        return InvalidInput


def everything_waiting(store: Store) -> list[object]:
    return [
        (
            one,
            one.claimed_until_s,
            {n: plain(c) for n, c in store.closing_counts(one.campaign, one.round).items()},
            store.reported_rounds(one.campaign, one.round),
            {n: plain(c) for n, c in store.closing_counts(one.campaign, one.round, [2]).items()},
        )
        for one in store.closings()
    ]


def assert_ones(store: Store) -> None:
    """A device's own cell has been reported at most once, over all rounds and campaigns."""
    for name in CAMPAIGNS:
        rounds = zip(*counts(store, name).values(), strict=True)
        assert all(sum(cell) <= 1 for cell in list(rounds)[1:])


def addresses(kind: str, folder: Path) -> Callable[[], str]:
    numbers = iter(range(1_000_000))
    if kind == "sqlite":
        return lambda: f"sqlite:///{folder}/{next(numbers)}.db"
    return lambda: "memory:" if kind == "memory" else cluster().database()


@pytest.mark.parametrize(
    ("kind", "seed"),
    [("sqlite", 0), ("sqlite", 1), ("sqlite", 2), ("postgres", 0), ("postgres", 1)],
)
def test_a_store_does_what_the_model_does(kind: str, seed: int, tmp_path: Path) -> None:
    Comparison(addresses(kind, tmp_path), seed).run(60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_store_does_what_the_model_does_for_long(kind: str, seed: int, tmp_path: Path) -> None:
    Comparison(addresses(kind, tmp_path), seed).run(400)


def test_the_comparison_finds_a_report_counted_twice(tmp_path: Path) -> None:
    class Doubling(MemoryStore):
        def _count(self, upload: Upload) -> bool:
            self._campaigns[upload.campaign].ids.pop(upload.id, None)
            return super()._count(upload)

    comparison = Comparison(lambda: "memory:", seed=0)
    comparison.store = Doubling()
    comparison.reopen = comparison.move = lambda: None  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        comparison.run(200)
