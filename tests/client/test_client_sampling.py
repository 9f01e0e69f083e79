"""Promise 15: what the device draws follows the certified table, and a tilt of one percent would show.

A report takes ``IntegerElastic.draw``. Ten million of them through HTTP would take days, so the long
test draws with ``sample``, which is shown here to be the same function of the same random bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

import geoveil as gv
from client.world import LYON, Collector, device, document
from contract.statistics import FALSE_ALARM, p_value
from geoveil.client.collector import verified
from geoveil.client.ledger_book import Period
from geoveil.randomness import SYSTEM, Randomness

MECHANISM = document().mechanism
CELL = 45
LAT, LNG = LYON.centres_latlng()
TEN_MILLION = 10_000_000


class Bits(Randomness):
    """Hands out prepared bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def bytes(self, size: int) -> bytes:
        taken, self.content = self.content[:size], self.content[size:]
        assert len(taken) == size
        return taken


def test_bulk_draws_are_single_draws_bit_for_bit() -> None:
    draws = 3000
    cells = np.arange(draws) % LYON.size
    words = gv.seeded(1).words(2 * draws).copy()
    words[:4], words[draws : draws + 4] = (0, 2**64 - 1, 2**63, 0), (0, 2**64 - 1, 0, 2**64 - 1)
    bulk = MECHANISM.sample(cells, randomness=Bits(words.tobytes()))
    single = [
        MECHANISM.draw(int(cell), int(high).to_bytes(8, "big") + int(low).to_bytes(8, "big"))
        for cell, high, low in zip(cells, words[:draws], words[draws:], strict=True)
    ]
    assert bulk.tolist() == single


def test_a_device_draws_with_the_bits_of_its_key(tmp_path: Path) -> None:
    source = gv.seeded(7)
    for k in range(20):
        key = source.bytes(32)
        it = device(Collector(), tmp_path / f"{k}.db", randomness=Bits(key))
        receipt = it.report(lat=float(LAT[CELL]), lng=float(LNG[CELL]))
        report, bits = Period("never", 0).bits(key, document().id)
        assert receipt.report == report
        assert receipt.cell == MECHANISM.draw(CELL, bits)


@pytest.mark.statistical
def test_bits_made_from_keys_follow_the_table() -> None:
    """What a device draws with: 16 bytes of an HMAC under a key of the operating system's."""
    drawn = [
        MECHANISM.draw(CELL, Period("round", number).bits(key, document().id)[1])
        for key in (SYSTEM.bytes(32) for _ in range(50))
        for number in range(100)
    ]
    counts = np.bincount(drawn, minlength=LYON.size)
    assert p_value(counts, MECHANISM.row(CELL)) > FALSE_ALARM


def counted(draws: int, seed: int) -> np.ndarray:
    counts = np.zeros(LYON.size, dtype=np.int64)
    source = gv.seeded(seed)
    for start in range(0, draws, 500_000):
        cells = np.full(min(500_000, draws - start), CELL)
        counts += np.bincount(MECHANISM.sample(cells, randomness=source), minlength=LYON.size)
    return counts


def tilted(counts: np.ndarray, gains: np.ndarray, seed: int) -> np.ndarray:
    """What a sampler would have drawn that moves one percent of the gaining half's mass to it."""
    law = MECHANISM.row(CELL)
    up = law[gains].sum()
    moved = np.random.default_rng(seed).binomial(counts, np.where(gains, 0.0, 0.01 * up / (1 - up)))
    onto = np.random.default_rng(seed + 1).multinomial(moved.sum(), law[gains] / up)
    wrong = counts - moved
    wrong[gains] += onto
    return wrong


def half(seed: int) -> np.ndarray:
    """Outcomes, chosen at random, that hold about half of the mass."""
    law = MECHANISM.row(CELL)
    order = np.random.default_rng(seed).permutation(law.size)
    gains = np.zeros(law.size, dtype=bool)
    gains[order[np.cumsum(law[order]) <= 0.5]] = True
    return gains


@pytest.mark.statistical
def test_a_million_draws_follow_the_table_and_a_tilt_is_found() -> None:
    counts = counted(1_000_000, 1)
    assert p_value(counts, MECHANISM.row(CELL)) > FALSE_ALARM
    for seed in range(4):
        gains = half(seed)
        chance = float(MECHANISM.row(CELL)[gains].sum())
        found = int(tilted(counts, gains, seed)[gains].sum())
        assert binomtest(found, 1_000_000, chance).pvalue < 1e-3
        assert binomtest(int(counts[gains].sum()), 1_000_000, chance).pvalue > FALSE_ALARM


@pytest.mark.statistical
def test_devices_draw_from_the_table_with_the_systems_bits() -> None:
    """The device's own step, from fresh bytes of the operating system."""
    current = verified(document().served())
    drawn = [current.mechanism.draw(CELL, SYSTEM.bytes(16)) for _ in range(5000)]
    counts = np.bincount(drawn, minlength=LYON.size)
    assert p_value(counts, MECHANISM.row(CELL)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.statistical
def test_ten_million_draws_follow_the_table_and_a_tilt_is_found() -> None:
    """False alarms at most 1e-3; a tilt of one percent found in 100 of 100 tries."""
    law = MECHANISM.row(CELL)
    counts = counted(TEN_MILLION, 2)
    assert p_value(counts, law) > 1e-3
    found = [p_value(tilted(counts, half(seed), seed), law) < 1e-3 for seed in range(100)]
    assert all(found)
