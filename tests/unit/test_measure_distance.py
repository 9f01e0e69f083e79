"""Mean distance and expected loss against sums written out by hand."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoveil as gv
from geoveil.channel.composed import AverageChannel, DenseChannel
from geoveil.channel.joint import JointChannel
from geoveil.errors import InvalidInput, Unsupported
from geoveil.measure import expected_loss, mean_distance_km
from geoveil.position.centres import Lattice
from geoveil.space.grid import Grid, Line
from geoveil.space.masked_grid import MaskedGrid
from geoveil.space.space import RadialLoss, Space, distance_km, squared_distance_km2

GRID = Grid(rows=3, columns=4, cell_km=0.5)


def random_channel(space: Space, seed: int) -> DenseChannel:
    return DenseChannel(
        space, np.random.default_rng(seed).dirichlet(np.ones(space.size), space.size)
    )


def kilometres(a: int, b: int) -> float:
    """Between cells of GRID, from rows and columns."""
    return 0.5 * math.dist(divmod(a, 4), divmod(b, 4))


def mean_by_hand(matrix: np.ndarray, prior: np.ndarray, power: int) -> float:
    cells = range(12)
    return sum(prior[a] * matrix[a, b] * kilometres(a, b) ** power for a in cells for b in cells)


@given(st.integers(0, 2**32 - 1))
def test_mean_distance_and_losses_are_their_double_sums(seed: int) -> None:
    channel = random_channel(GRID, seed)
    prior = np.random.default_rng(seed).dirichlet(np.ones(12))
    matrix = channel.matrix()
    assert mean_distance_km(channel, prior) == pytest.approx(mean_by_hand(matrix, prior, 1))
    assert expected_loss(channel, prior, distance_km) == mean_distance_km(channel, prior)
    squared = expected_loss(channel, prior, squared_distance_km2)
    assert squared == pytest.approx(mean_by_hand(matrix, prior, 2))
    table = [[kilometres(a, b) for b in range(12)] for a in range(12)]
    assert expected_loss(channel, prior, table) == pytest.approx(mean_by_hand(matrix, prior, 1))


def test_the_prior_is_uniform_unless_given() -> None:
    channel = random_channel(GRID, 5)
    by_hand = mean_by_hand(channel.matrix(), np.full(12, 1 / 12), 1)
    assert mean_distance_km(channel) == pytest.approx(by_hand)
    assert expected_loss(channel, None, distance_km) == pytest.approx(by_hand)


@pytest.mark.parametrize("occupied", [3, 100])
def test_few_and_many_rows_agree(occupied: int) -> None:
    space = Line(100)
    channel = random_channel(space, 6)
    prior = np.zeros(100)
    prior[-occupied:] = 1 / occupied
    apart = np.abs(np.subtract.outer(np.arange(100), np.arange(100)))
    by_hand = float(prior @ (channel.matrix() * apart).sum(axis=1))
    assert mean_distance_km(channel, prior) == pytest.approx(by_hand)


def test_any_function_of_two_cells_is_a_loss() -> None:
    def wrong(space: Space, a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.asarray(np.asarray(a) != np.asarray(b), dtype=np.float64)

    channel = random_channel(GRID, 7)
    assert expected_loss(channel, None, wrong) == pytest.approx(1 - np.trace(channel.matrix()) / 12)


def test_a_radial_loss_speaks_of_cells_and_of_distances() -> None:
    capped = RadialLoss("capped_km", lambda distance: np.minimum(distance, 1.0))
    assert capped.at([0.25, 3.0]).tolist() == [0.25, 1.0]
    assert capped(GRID, 0, [0, 1, 11]).tolist() == [0.0, 0.5, 1.0]
    assert squared_distance_km2.at(3.0) == 9.0
    assert repr(distance_km) == "distance_km"


def test_reports_that_are_not_cells_have_no_distance_but_may_have_a_loss() -> None:
    binary = DenseChannel(Line(3), [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    with pytest.raises(Unsupported, match="not cells"):
        mean_distance_km(binary)
    prior = [0.5, 0.25, 0.25]
    assert expected_loss(binary, prior, [[0, 4], [4, 0], [0, 8]]) == pytest.approx(2.5)


@pytest.mark.parametrize(
    "loss",
    [
        np.zeros((12, 11)),
        np.full((12, 12), np.nan),
        "distance",
        lambda space, a, b: np.full(np.broadcast_shapes(np.shape(a), np.shape(b)), np.inf),
        lambda space, a, b: 0.0,
    ],
)
def test_a_loss_must_be_finite_and_of_the_right_shape(loss: object) -> None:
    with pytest.raises(InvalidInput, match="loss"):
        expected_loss(random_channel(GRID, 8), None, loss)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda grid: gv.PlanarGeometric(grid, epsilon_per_km=1.0),
        lambda grid: gv.Exponential(grid, epsilon_per_km=1.0),
        lambda grid: gv.Disc(grid, epsilon=1.0),
        lambda grid: gv.elastic(grid, epsilon_per_km=1.0, between="positions"),
    ],
)
def test_a_loss_by_distance_must_be_finite_however_many_cells_there_are(
    make: Callable[[gv.Grid], gv.Channel],
) -> None:
    nearby = gv.RadialLoss("nearby", lambda km: np.where(km < 2.0, km, np.inf))
    with pytest.raises(InvalidInput, match="loss must be finite"):
        expected_loss(make(gv.Grid(rows=9, columns=9, cell_km=1.0)), None, nearby)


def test_between_positions_the_distance_is_from_where_people_stand() -> None:
    """Checked by draws: positions even in a cell, the reported centres, also those of the rim."""
    grid = gv.Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
    mechanism = gv.elastic(grid, epsilon_per_km=2.0, camouflage=0.0)
    assert isinstance(mechanism, gv.PositionalElastic)
    generator, cell, draws = np.random.default_rng(3), 6, 20_000
    places = grid.centres[cell] + generator.uniform(-0.25, 0.25, (draws, 2))
    reports = mechanism.sample_at_km(places, randomness=gv.seeded(5))
    named = mechanism.centres.points_km[reports] + grid.centres[0]
    apart = np.linalg.norm(places - named, axis=1)
    alone = np.eye(grid.size)[cell]
    error = apart.std() / np.sqrt(draws)
    assert abs(gv.mean_distance_km(mechanism, alone) - apart.mean()) < 5 * error + 0.005


CITY = gv.Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)


def positional(epsilon_per_km: float, camouflage: float, space: Space = CITY) -> gv.Channel:
    return gv.elastic(space, epsilon_per_km=epsilon_per_km, camouflage=camouflage)


@pytest.mark.parametrize("camouflage", [0.0, 0.5])
def test_a_report_that_is_moved_is_as_far_from_the_position_as_where_it_is_moved(
    camouflage: float,
) -> None:
    mechanism = positional(4.0, camouflage)
    where = np.minimum(np.arange(mechanism.report_count), CITY.size - 1)
    moved, squared = gv.Remapped(mechanism, where), gv.squared_distance_km2
    twice = gv.Remapped(moved, np.arange(CITY.size)[::-1])
    if camouflage:
        assert gv.mean_distance_km(moved) == gv.mean_distance_km(mechanism)
        assert gv.expected_loss(moved, None, squared) == gv.expected_loss(mechanism, None, squared)
    for channel, named in ((moved, where), (twice, CITY.size - 1 - where)):
        by_hand, line = 0.0, (np.arange(20) + 0.5) / 20 - 0.5
        for inside in np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2):
            law = mechanism.columns_from(inside, np.arange(mechanism.report_count))
            apart = (CITY.centres + 0.5 * inside)[:, None] - CITY.centres[named]
            by_hand += (law * np.hypot(apart[..., 0], apart[..., 1])).sum() / CITY.size / 400
        assert gv.mean_distance_km(channel) == pytest.approx(by_hand, rel=3e-3)


PLACES = gv.Points(lat=[48.85, 48.86, 48.87, 48.855], lng=[2.33, 2.35, 2.34, 2.36])


@pytest.mark.parametrize(
    "space",
    [CITY, PLACES, gv.Grid(rows=9, columns=9, cell_km=0.5)],
    ids=["few cells", "places", "cells"],
)
def test_the_mean_distance_of_channels_put_together_is_that_of_the_parts(space: Space) -> None:
    """Each from where its own law begins: a position, or the centre of a cell."""
    parts = [
        gv.elastic(space, epsilon_per_km=3.0, between=between) for between in ("positions", "cells")
    ]
    means = np.array([gv.mean_distance_km(part) for part in parts])
    shares, turned = np.array([0.25, 0.75]), np.arange(space.size)[::-1]
    moved = np.array([gv.mean_distance_km(gv.Remapped(part, turned)) for part in parts])
    for both, after in (
        (AverageChannel(parts, shares), turned),
        (gv.StackedChannel(parts, shares), np.tile(turned, 2)),
    ):
        assert gv.mean_distance_km(both) == pytest.approx(shares @ means, rel=1e-12)
        remapped = gv.mean_distance_km(gv.Remapped(both, after))
        assert remapped == pytest.approx(shares @ moved, rel=1e-12)
    if space.size < 40:
        second = np.tile(turned, space.size)  # of two reports the last one, moved
        twice = gv.Remapped(JointChannel([parts[0]] * 2), second)
        assert gv.mean_distance_km(twice) == pytest.approx(moved[0], rel=1e-3)


def test_a_mean_distance_where_some_report_cells_of_the_rim() -> None:
    parts = [positional(epsilon, camouflage) for epsilon, camouflage in ((1.0, 0.0), (3.0, 0.5))]
    assert parts[0].report_count > parts[1].report_count == CITY.size
    means = [gv.mean_distance_km(part) for part in parts]
    both = gv.StackedChannel(parts, [0.25, 0.75])
    assert gv.mean_distance_km(both) == pytest.approx(0.25 * means[0] + 0.75 * means[1])


MASKED = MaskedGrid(CITY, np.arange(12).reshape(3, 4) % 5 != 0)


@pytest.mark.parametrize("camouflage", [0.0, 0.5])
@pytest.mark.parametrize("space", [CITY, MASKED, gv.Grid(rows=1, columns=7, cell_km=0.3)])
def test_distances_looked_up_by_offset_are_those_of_every_pair(
    space: Space, camouflage: float
) -> None:
    mechanism = gv.elastic(space, epsilon_per_km=2.0, camouflage=camouflage, between="positions")
    assert isinstance(mechanism, gv.PositionalElastic)
    points, by_pairs = mechanism.centres.points_km, np.zeros((2, space.size))
    reports = np.random.default_rng(5).permutation(mechanism.report_count)
    for inside, share in zip(*mechanism.all_over, strict=True):
        places = points[: space.size] + inside * mechanism.space.cell_km
        for part, rows in mechanism._rows_from(places):
            for sums, named in zip(by_pairs, (points, points[reports]), strict=True):
                apart = np.linalg.norm(places[part, None] - named, axis=-1)
                sums[part] += share * (rows * np.square(apart)).sum(axis=1)
    np.testing.assert_allclose(mechanism.mean_of_distance(np.square), by_pairs[0], rtol=1e-12)
    moved = mechanism.mean_of_distance_to(reports, np.square)
    np.testing.assert_allclose(moved, by_pairs[1], rtol=1e-12)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1000), (1000, 1)])
def test_sums_over_a_long_row_take_no_more_memory_than_over_a_column(
    rows: int, columns: int
) -> None:
    lattice = Lattice(rows, columns, 2, 0, np.argwhere(np.ones((rows, columns))), 1000)
    tables, values = np.arange(1999.0).reshape(1, 2 * rows - 1, 2 * columns - 1), np.arange(1000.0)
    tracemalloc.start()
    sums = lattice.sums(tables, values)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000  # a table of all pairs has eight
    assert sums.tolist() == [np.convolve(tables.ravel(), values, "valid").tolist()]


@pytest.mark.parametrize("epsilon_cells", [1.0, 7.0])
@pytest.mark.parametrize("hexagons", [False, True])
def test_distances_of_people_all_over_their_cells_are_right_to_some_thousandths(
    epsilon_cells: float, hexagons: bool
) -> None:
    """A crowd that is reported where it is: nearly all of the distance is that to the own centre."""
    space: gv.Points | Grid = CITY
    even = (np.arange(48) + 0.5) / 48
    uniform = np.stack(np.meshgrid(even, even), axis=-1).reshape(-1, 2)
    inside = uniform - 0.5
    if hexagons:
        pytest.importorskip("h3")
        ring = [[2.28, 48.83], [2.34, 48.83], [2.34, 48.86], [2.28, 48.86], [2.28, 48.83]]
        space = gv.Hexagons({"type": "Polygon", "coordinates": [ring]}, resolution=8)
        cell = space.size // 2
        inside = space.somewhere_km(np.full(len(uniform), cell), uniform) / space.cell_km
    cell, crowd = space.size // 2, np.full(space.size, 0.01)
    crowd[cell] = 1.0
    mechanism = gv.elastic(
        space, crowd / crowd.sum(), epsilon_per_km=epsilon_cells / space.cell_km, camouflage=1.0
    )
    assert isinstance(mechanism, gv.PositionalElastic)
    points = mechanism.centres.points_km
    places = points[cell] + inside * space.cell_km
    rows = np.concatenate([law for _, law in mechanism._rows_from(places)])
    apart = places[:, None] - points
    by_hand = (rows * np.hypot(apart[..., 0], apart[..., 1])).sum(axis=1).mean()
    assert gv.mean_distance_km(mechanism, np.eye(space.size)[cell]) == pytest.approx(
        by_hand, rel=5e-3
    )
