"""The public sampler draws from the table that is certified (promise 15), and a tilt shows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

import geoveil as gv
from contract.statistics import FALSE_ALARM, assert_follows, p_value

PARIS = gv.Grid(rows=11, columns=15, cell_km=0.5)
WEIGHTS = np.random.default_rng(0).random(PARIS.size) ** 2
CHANNELS = {
    "exact table": gv.ExactTable(gv.Elastic(PARIS, beta_per_km=1.0, weights=WEIGHTS)),
    "elastic": gv.Elastic(PARIS, beta_per_km=1.0, weights=WEIGHTS),
    "planar geometric": gv.PlanarGeometric(PARIS, epsilon_per_km=2.0),
    "planar laplace": gv.PlanarLaplace(PARIS, epsilon_per_km=2.0),
    "randomized response": gv.RandomizedResponse(PARIS, epsilon=3.0),
}
CELL = 82


def counted(channel: gv.Channel, draws: int, seed: int) -> np.ndarray:
    counts = np.zeros(channel.report_count, dtype=np.int64)
    source = gv.seeded(seed)
    for _ in range(-(-draws // 400_000)):
        cells = np.full(min(draws, 400_000), CELL)
        counts += np.bincount(
            channel.sample(cells, randomness=source), minlength=channel.report_count
        )
    return counts


def tilted_by_one_percent(channel: gv.Channel, seed: int) -> tuple[gv.Channel, np.ndarray]:
    """Half of the mass gains one percent, the other half loses it; and which half gained."""
    law = channel.row(CELL)
    order = np.random.default_rng(seed).permutation(law.size)
    gains = np.zeros(law.size, dtype=bool)
    gains[order[np.cumsum(law[order]) <= 0.5]] = True
    up = law[gains].sum()
    wrong = np.where(gains, 1.01 * law, law * (1 - 1.01 * up) / (1 - up))
    return gv.DenseChannel(channel.space, np.tile(wrong, (channel.space.size, 1))), gains


@pytest.mark.statistical
@pytest.mark.parametrize("name", CHANNELS)
def test_draws_follow_the_table(name: str) -> None:
    counts = counted(CHANNELS[name], 400_000, 1)
    assert p_value(counts, CHANNELS[name].row(CELL)) > FALSE_ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(4))
def test_a_tilt_of_one_percent_is_found(seed: int) -> None:
    table = CHANNELS["exact table"]
    wrong, gains = tilted_by_one_percent(table, seed)
    chance = float(table.row(CELL)[gains].sum())
    found = int(counted(wrong, 400_000, seed)[gains].sum())
    assert binomtest(found, 400_000, chance).pvalue < 1e-3
    sound = int(counted(table, 400_000, 100 + seed)[gains].sum())
    assert binomtest(sound, 400_000, chance).pvalue > 1e-6


@pytest.mark.statistical
def test_the_operating_system_draws_from_the_same_table() -> None:
    table = CHANNELS["exact table"]
    assert_follows(table.sample(np.full(50_000, CELL)), table.row(CELL))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("name", CHANNELS)
def test_ten_million_draws_follow_the_table_and_a_tilt_is_found(name: str) -> None:
    law = CHANNELS[name].row(CELL)
    assert p_value(counted(CHANNELS[name], 10_000_000, 2), law) > 1e-3
    for seed in range(3):
        wrong, _ = tilted_by_one_percent(CHANNELS[name], seed)
        assert p_value(counted(wrong, 10_000_000, seed), law) < 1e-3
