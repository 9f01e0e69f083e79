"""Promise 15: what the device draws follows the certified law, and a tilt of one percent would show.

A report takes ``WholeLaw.draw``. Ten million of them through HTTP would take days, so the long test draws
with ``sample_at``: from the same whole numbers, by rejection instead of 128 bits.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

import geoveil as gv
from client.world import LYON, Collector, device, document
from contract.statistics import FALSE_ALARM, p_value
from geoveil.arrays import IntArray
from geoveil.client.collector import offered
from geoveil.client.ledger_book import Period
from geoveil.position.whole_law import DRAW_BYTES, WholeLaw
from geoveil.randomness import SYSTEM, Randomness

PLACE = (45.7613, 4.8377)
TEN_MILLION = 10_000_000


def certified() -> WholeLaw:
    return document().law


class Bits(Randomness):
    """Hands out prepared bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def bytes(self, size: int) -> bytes:
        taken, self.content = self.content[:size], self.content[size:]
        assert len(taken) == size
        return taken


def steps() -> IntArray:
    """Of the place that everybody is at."""
    return certified().steps_of(document().area.place_km(*PLACE))


def exact_row() -> list[int]:
    """weight × kernel by whole numbers of any size."""
    law, (east, north) = certified(), steps().tolist()
    return [
        int(weight) * int(law.table[min(math.isqrt((east - a) ** 2 + (north - b) ** 2), last)])
        for weight, (a, b) in zip(law.weights, law.centres.points.tolist(), strict=True)
        for last in [law.table.size - 1]
    ]


@pytest.mark.parametrize("edge", [-1, 0, 1])
def test_draws_change_exactly_where_the_row_says(edge: int) -> None:
    row, running = exact_row(), 0
    for report, entry in enumerate(row[:-1]):
        running += entry
        boundary = -(-(running << 128) // sum(row))
        drawn = certified().draw(steps(), (boundary + edge).to_bytes(16, "big"))
        assert drawn == (report if edge < 0 else report + 1)
    assert certified().draw(steps(), bytes(16)) == 0
    assert certified().draw(steps(), b"\xff" * 16) == LYON.size - 1


def test_a_device_draws_with_the_bits_of_its_key(tmp_path: Path) -> None:
    source = gv.seeded(7)
    for k in range(20):
        key = source.bytes(32)
        it = device(Collector(), tmp_path / f"{k}.db", randomness=Bits(key))
        receipt = it.report(lat=PLACE[0], lng=PLACE[1])
        report, bits = Period("never", 0).bits(key, document().id)
        assert receipt.report == report
        assert receipt.cell == certified().draw(steps(), bits[:DRAW_BYTES])


def law_here() -> np.ndarray:
    row = np.array(exact_row(), dtype=np.float64)
    return row / row.sum()


@pytest.mark.statistical
def test_bits_made_from_keys_follow_the_table() -> None:
    """What a device draws with: 16 bytes of an HMAC under a key of the operating system's."""
    drawn = [
        certified().draw(steps(), Period("round", number).bits(key, document().id)[1][:DRAW_BYTES])
        for key in (SYSTEM.bytes(32) for _ in range(50))
        for number in range(40)
    ]
    counts = np.bincount(drawn, minlength=LYON.size)
    assert p_value(counts, law_here()) > FALSE_ALARM


def counted(draws: int, seed: int) -> np.ndarray:
    counts = np.zeros(LYON.size, dtype=np.int64)
    source = gv.seeded(seed)
    for start in range(0, draws, 500_000):
        lat, lng = (np.full(min(500_000, draws - start), degrees) for degrees in PLACE)
        drawn = document().mechanism.sample_at(lat=lat, lng=lng, randomness=source)
        counts += np.bincount(drawn, minlength=LYON.size)
    return counts


def tilted(counts: np.ndarray, gains: np.ndarray, seed: int) -> np.ndarray:
    """What a sampler would have drawn that moves one percent of the gaining half's mass to it."""
    law = law_here()
    up = law[gains].sum()
    moved = np.random.default_rng(seed).binomial(counts, np.where(gains, 0.0, 0.01 * up / (1 - up)))
    onto = np.random.default_rng(seed + 1).multinomial(moved.sum(), law[gains] / up)
    wrong = counts - moved
    wrong[gains] += onto
    return wrong


def half(seed: int) -> np.ndarray:
    """Outcomes, chosen at random, that hold about half of the mass."""
    law = law_here()
    order = np.random.default_rng(seed).permutation(law.size)
    gains = np.zeros(law.size, dtype=bool)
    gains[order[np.cumsum(law[order]) <= 0.5]] = True
    return gains


@pytest.mark.slow
@pytest.mark.statistical
def test_a_million_draws_follow_the_table_and_a_tilt_is_found() -> None:
    counts = counted(1_000_000, 1)
    assert p_value(counts, law_here()) > FALSE_ALARM
    for seed in range(4):
        gains = half(seed)
        chance = float(law_here()[gains].sum())
        found = int(tilted(counts, gains, seed)[gains].sum())
        assert binomtest(found, 1_000_000, chance).pvalue < 1e-3
        assert binomtest(int(counts[gains].sum()), 1_000_000, chance).pvalue > FALSE_ALARM


@pytest.mark.statistical
def test_devices_draw_from_the_table_with_the_systems_bits() -> None:
    """The device's own step, from fresh bytes of the operating system."""
    (current,) = offered(document().served())
    drawn = [current.law.draw(steps(), SYSTEM.bytes(16)) for _ in range(2000)]
    counts = np.bincount(drawn, minlength=LYON.size)
    assert p_value(counts, law_here()) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.statistical
def test_ten_million_draws_follow_the_table_and_a_tilt_is_found() -> None:
    """False alarms at most 1e-3; a tilt of one percent found in 100 of 100 tries."""
    law = law_here()
    counts = counted(TEN_MILLION, 2)
    assert p_value(counts, law) > 1e-3
    found = [p_value(tilted(counts, half(seed), seed), law) < 1e-3 for seed in range(100)]
    assert all(found)
