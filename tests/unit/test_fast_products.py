"""Products through the FFT where that is hardest: far cells, tiny weights, many cells."""

from __future__ import annotations

import math
import sys
import tracemalloc

import numpy as np
import pytest

import geoveil as gv
from contract import formulas
from contract.statistics import FALSE_ALARM, assert_follows, p_value
from geoveil.channel.composed import AverageChannel
from geoveil.errors import TooLarge
from geoveil.mechanism.noise import lattice_steps

LONG = gv.Grid(rows=3, columns=400, cell_km=1.0)
DECAY = 1.75


def geometric_total(decay: float) -> float:
    steps = np.arange(-60, 61)
    return math.fsum(np.exp(-decay * np.hypot(steps[:, None], steps)).ravel())


def half_line(a: int, b: int, decay: float) -> float:
    """Steps of exactly ``a`` across and at least ``b`` along, summed from the far end."""
    return math.fsum(math.exp(-decay * math.hypot(a, k)) for k in range(b + 40, b - 1, -1))


def test_planar_geometric_is_right_700_nats_away() -> None:
    mechanism = gv.PlanarGeometric(LONG, epsilon_per_km=DECAY)
    start = 400  # the middle row, its west end
    theta = np.zeros(LONG.size)
    theta[start] = 1.0
    law = mechanism.push(theta)
    along = np.arange(1, 399)
    wanted = np.exp(-DECAY * along) / geometric_total(DECAY)
    assert wanted.min() < 1e-300
    np.testing.assert_allclose(law[start + along], wanted, rtol=1e-9)
    np.testing.assert_allclose(mechanism.row(start)[start + along], wanted, rtol=1e-9)
    far_end = half_line(0, 399, DECAY) / geometric_total(DECAY)
    assert law[start + 399] == pytest.approx(far_end, rel=1e-9)


def test_planar_geometric_pulls_isolated_values_700_nats_away() -> None:
    mechanism = gv.PlanarGeometric(LONG, epsilon_per_km=DECAY)
    values = np.zeros(LONG.size)
    values[400 + 398] = 1.0  # not on the rim
    wanted = np.exp(-DECAY * np.abs(398 - np.arange(400))) / geometric_total(DECAY)
    np.testing.assert_allclose(mechanism.pull(values)[400:800], wanted, rtol=1e-9)


@pytest.mark.parametrize("beta", [1.0, 19.0])
def test_elastic_far_from_its_weights(beta: float) -> None:
    grid = gv.Grid(rows=20, columns=31, cell_km=1.0)
    weights = np.zeros(grid.size)
    weights[[0, 1, 33, 35]] = 0.5, 1e-8, 0.2, 1e-12
    mechanism = gv.Elastic(grid, beta_per_km=beta, weights=weights)
    matrix = formulas.elastic(formulas.lattice(20, 31, 1.0), beta, weights)
    np.testing.assert_allclose(mechanism.matrix(), matrix, rtol=1e-9, atol=1e-300)
    for theta in (np.eye(grid.size)[-1], np.full(grid.size, 1 / grid.size)):
        np.testing.assert_allclose(mechanism.push(theta), theta @ matrix, rtol=1e-9, atol=1e-300)
    for values in (np.eye(grid.size)[35], np.eye(grid.size)[33] + 1e-9):
        np.testing.assert_allclose(mechanism.pull(values), matrix @ values, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("epsilon", [1e-9, 0.3, 40.0])
def test_lines_are_multiplied_without_loading_all_of_signal_processing(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes over a second; both recursions, for vectors in any order of memory."""
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    mechanism = gv.LinearGeometric(gv.Line(7), epsilon_per_unit=epsilon)
    rows = np.stack([mechanism.row(cell) for cell in range(7)])
    theta = np.random.default_rng(1).dirichlet(np.ones(7), size=(3, 2))
    for given in (theta, theta.swapaxes(0, 1), np.asfortranarray(theta), theta[..., ::-1]):
        np.testing.assert_allclose(mechanism.push(given), given @ rows, rtol=1e-13)
        np.testing.assert_allclose(mechanism.pull(given), given @ rows.T, rtol=1e-13)


def test_elastic_with_a_distant_island() -> None:
    grid = gv.Grid(rows=15, columns=40, cell_km=1.0)
    weights = np.full(grid.size, 1e-30)
    weights[0] = weights[-1] = 1.0
    mechanism = gv.Elastic(grid, beta_per_km=4.0, weights=weights)
    matrix = formulas.elastic(formulas.lattice(15, 40, 1.0), 4.0, weights)
    theta = np.random.default_rng(0).dirichlet(np.full(grid.size, 0.02))
    np.testing.assert_allclose(mechanism.push(theta), theta @ matrix, rtol=1e-9, atol=1e-300)
    values = np.random.default_rng(1).random(grid.size) ** 20
    np.testing.assert_allclose(mechanism.pull(values), matrix @ values, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize(
    "make",
    [
        lambda grid: gv.PlanarGeometric(grid, epsilon_per_km=2.0),
        lambda grid: gv.Elastic(grid, beta_per_km=2.0),
    ],
    ids=["planar-geometric", "elastic"],
)
def test_a_quarter_of_a_million_cells_never_make_a_matrix(make: object) -> None:
    grid = gv.Grid(rows=500, columns=500, cell_km=0.5)
    tracemalloc.start()
    mechanism = make(grid)
    theta = np.full(grid.size, 1 / grid.size)
    law = mechanism.push(theta)
    back = mechanism.pull(np.ones(grid.size))
    reports = mechanism.sample(np.arange(0, grid.size, 249), randomness=gv.seeded(1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(back, 1.0, atol=1e-9)
    assert reports.size == 1005
    assert peak < 80 * 8 * grid.size  # eighty vectors, not 250,000
    with pytest.raises(TooLarge, match="at most 4096"):
        mechanism.matrix()


def test_elastic_refuses_what_would_take_for_ever() -> None:
    grid = gv.Grid(rows=300, columns=300, cell_km=1.0)
    lonely = np.zeros(grid.size)
    lonely[0] = 1.0
    with pytest.raises(TooLarge, match="floor"):
        gv.Elastic(grid, beta_per_km=5.0, weights=lonely).push(np.full(grid.size, 1 / grid.size))


def test_rejection_sampling_follows_the_rows() -> None:
    grid = gv.Grid(rows=9, columns=12, cell_km=0.5)
    weights = np.random.default_rng(3).random(grid.size) ** 2
    mechanism = gv.Elastic(grid, beta_per_km=1.0, weights=weights)
    matrix = formulas.elastic(formulas.lattice(9, 12, 0.5), 1.0, weights)
    for cell in (0, 50, 107):
        drawn = mechanism._sample_by_rejection(np.full(20_000, cell), gv.seeded(cell))
        assert_follows(drawn, matrix[cell])


@pytest.mark.parametrize("decay", [0.05, 0.29, 0.31, 3.0])
def test_lattice_steps_follow_their_law(decay: float) -> None:
    down, across = lattice_steps(decay, 60_000, gv.seeded(8))
    reach = math.ceil(45 / decay)
    steps = np.arange(-reach, reach + 1)
    law = np.exp(-decay * np.hypot(steps[:, None], steps)).sum(axis=1)
    for drawn in (down, across):
        assert_follows(np.clip(drawn, -reach, reach) + reach, law / law.sum())
    diagonal = np.exp(-decay * np.hypot(steps[:, None], steps)).ravel()
    turned = np.abs(steps[:, None] - steps).ravel()
    folded = np.bincount(turned, weights=diagonal)
    assert_follows(np.abs(down - across), folded / folded.sum())


@pytest.mark.parametrize("decay", [0.29, 0.31])
def test_lattice_steps_follow_their_law_in_rings(decay: float) -> None:
    down, across = lattice_steps(decay, 2_000_000, gv.seeded(9))
    rings = 100
    reach = math.ceil(45 / decay)
    steps = np.arange(-reach, reach + 1)
    distance = np.hypot(steps[:, None], steps)
    law = np.bincount(
        np.minimum(2 * distance, rings).astype(np.int64).ravel(),
        weights=np.exp(-decay * distance).ravel(),
    )
    ring = np.minimum(2 * np.hypot(down, across), rings).astype(np.int64)
    assert_follows(ring, law / law.sum())
    # the power twin: the centre a twentieth too rare, as without the room for rounding
    counts, wrong = np.bincount(ring, minlength=law.size), law.copy()
    wrong[:4] *= 0.95
    assert p_value(counts, wrong / wrong.sum()) < FALSE_ALARM


def wrapped(channel: gv.Channel) -> dict[str, gv.Channel]:
    return {
        "plain": channel,
        "remapped": gv.Remapped(channel, np.arange(channel.space.size)),
        "stacked": gv.StackedChannel([channel, channel], [0.25, 0.75]),
        "average": AverageChannel([channel, channel], [0.25, 0.75]),
    }


@pytest.mark.parametrize("how", ["plain", "remapped", "stacked", "average"])
@pytest.mark.parametrize(
    "make",
    [
        lambda grid: gv.PlanarGeometric(grid, epsilon_per_km=20.0),
        lambda grid: gv.Elastic(grid, beta_per_km=10.0),
    ],
    ids=["planar-geometric", "elastic"],
)
def test_products_of_what_is_not_negative_are_exact_and_not_negative(
    make: object, how: str
) -> None:
    grid = gv.Grid(rows=24, columns=24, cell_km=0.5)
    channel = wrapped(make(grid))[how]
    units = np.eye(grid.size)[[0, 500]]
    rows = np.stack([channel.row(0), channel.row(500)])
    np.testing.assert_allclose(channel.push(units[0]), rows[0], rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(channel.push(units), rows, rtol=1e-9, atol=1e-300)
    values = np.eye(channel.report_count)[[0, 500]]
    columns = np.stack([channel.likelihood(0), channel.likelihood(500)])
    np.testing.assert_allclose(channel.pull(values[0]), columns[0], rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(channel.pull(values), columns, rtol=1e-9, atol=1e-300)
    assert (channel.push(np.eye(grid.size)) >= 0).all()  # more than can be summed again
    assert channel.push(np.zeros((0, grid.size))).shape == (0, channel.report_count)


def test_a_vector_with_negative_entries_beside_others_is_left_as_it_is() -> None:
    grid = gv.Grid(rows=32, columns=32, cell_km=0.5)
    mechanism = gv.PlanarGeometric(grid, epsilon_per_km=20.0)
    both = mechanism.push(np.stack([np.eye(grid.size)[0], -np.eye(grid.size)[0]]))
    assert (both[0] >= 0).all()
    np.testing.assert_allclose(both[1], -mechanism.row(0), rtol=0, atol=1e-14)
