"""An acknowledged report survives a killed process, and none counts twice when it is sent again.

Each upload is acknowledged, or its fate is unknown. A failure: an acknowledged id that is not kept, or
a count that the kept ids do not explain. Not a failure: an unknown id that is kept.
"""

from __future__ import annotations

import os
import random

import pytest

from geoveil.store import open_store
from store.child import begin
from store.devices import assert_explained, device_id, start

AGAIN = 20
"""How far the next process goes back: over acknowledged reports and over those of unknown fate."""


def kill_after(address: str, first: int, acknowledged: int) -> set[int]:
    """Run a process until it has been told of so many reports, kill it, and return all it was told of."""
    process, told = begin(address, first)
    with told, os.fdopen(told.fileno(), closefd=False) as lines:
        numbers = {int(lines.readline()) for _ in range(acknowledged)}
        process.kill()
        numbers |= {int(line) for line in lines if line.endswith("\n")}
    process.join()
    return numbers


def survive(address: str, kills: int, each: int, seed: int = 5) -> int:
    """Kill processes one after the other; how many reports were acknowledged and found again."""
    store = open_store(address)
    start(store)
    store.close()
    chance = random.Random(seed)
    told: set[int] = set()
    for _ in range(kills):
        first = max(0, max(told, default=0) - AGAIN)
        told |= kill_after(address, first, chance.randrange(each // 2, each + each // 2))
        store = open_store(address)
        kept = assert_explained(store)
        assert {device_id(number) for number in told} <= kept
        store.close()
    return len(told)


def test_no_acknowledged_report_is_lost_or_doubled(address: str) -> None:
    assert survive(address, kills=5, each=100) > 200


@pytest.mark.slow
def test_200_kills_and_100_000_acknowledged_reports(address: str) -> None:
    assert survive(address, kills=200, each=600) >= 100_000
