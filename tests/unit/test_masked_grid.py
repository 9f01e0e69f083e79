"""Cities with limits: cells outside do not exist, and all that a grid has works on those that do."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.channel.kernel import PartialKernel, kernel_on, steepness
from geoveil.document.wire import MechanismDocument, publish
from geoveil.errors import InvalidFile, InvalidInput, OutsideSpace
from geoveil.plot.maps import Panel, save_maps
from geoveil.space import MaskedGrid, space_from_dict
from geoveil.space.outline import read_outlines

OUTER = [[2.25, 48.82], [2.42, 48.82], [2.40, 48.87], [2.34, 48.90], [2.25, 48.88], [2.25, 48.82]]
HOLE = [[2.29, 48.84], [2.35, 48.84], [2.35, 48.865], [2.29, 48.865], [2.29, 48.84]]
LIMITS: dict[str, Any] = {"type": "Polygon", "coordinates": [OUTER, HOLE]}
CITY = gv.Grid.from_polygon(LIMITS, cell_km=1.2)


def two_islands() -> MaskedGrid:
    mask = np.zeros((6, 9), dtype=bool)
    mask[:2, :3] = mask[3:, 6:] = True
    return MaskedGrid(
        gv.Grid.from_box(south=48.80, west=2.20, north=48.853, east=2.322, cell_km=1.0), mask
    )


def test_cells_outside_do_not_exist() -> None:
    assert CITY.size < CITY.grid.size
    lat, lng = CITY.centres_latlng()
    assert np.array_equal(CITY.locate(lat=lat, lng=lng), np.arange(CITY.size))
    sea = CITY.nearest_cells(lat=[48.853, 48.853], lng=[2.32, 2.26])
    assert sea[1].tolist() == [False, True]
    with pytest.raises(OutsideSpace, match="must lie in the space"):
        CITY.locate(lat=48.853, lng=2.32)
    nearest = CITY.locate(lat=48.853, lng=2.32, outside="clamp")
    away = CITY.centres - CITY.plane.to_plane(lat=48.853, lng=2.32)
    assert nearest == np.hypot(*away.T).argmin()
    far = CITY.nearest_cells(lat=[-33.0, 89.0], lng=[151.0, 2.0])
    assert not far[1].any()


def test_limits_of_many_parts_take_little_more_memory_than_those_of_one() -> None:
    grid, limits = gv.Grid.from_polygon(LIMITS, cell_km=0.4).grid, read_outlines(LIMITS)
    peaks = []
    for outlines in (limits, limits * 20):
        tracemalloc.start()
        covered = MaskedGrid.covered(grid, outlines)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert 0 < covered.size < grid.size
    assert peaks[1] < 3 * peaks[0]


def test_every_corner_of_the_limits_is_inside_to_a_hundredth_of_a_cell() -> None:
    lng, lat = np.array(OUTER[:-1]).T
    cells, inside = CITY.nearest_cells(lat=lat, lng=lng)
    away = CITY.centres[cells] - CITY.plane.to_plane(lat=lat, lng=lng)
    assert np.abs(away).max() < 1.02 * CITY.cell_km
    assert inside.sum() >= 4


def test_distances_are_those_of_the_grid() -> None:
    matrix = CITY.distances_km()
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(matrix[3], CITY.distances_from_km(3))
    away = CITY.centres[:, None] - CITY.centres
    assert matrix == pytest.approx(np.hypot(away[..., 0], away[..., 1]), abs=1e-9)


def test_a_document_and_a_pickle_bring_it_back() -> None:
    for space in (CITY, two_islands()):
        assert space_from_dict(json.loads(json.dumps(space.to_dict()))) == space
        assert pickle.loads(pickle.dumps(space)) == space
    assert space_from_dict(CITY.grid.to_dict()) == CITY.grid != CITY
    for mask in ("", "AAAA", 3, CITY.to_dict()["mask"][:-4]):
        with pytest.raises(InvalidFile, match="mask"):
            space_from_dict({**CITY.to_dict(), "mask": mask})


def test_geojson_has_the_cells_that_exist(tmp_path: Path) -> None:
    features = CITY.to_geojson({"share": np.arange(CITY.size)})["features"]
    assert [each["properties"]["cell"] for each in features] == list(range(CITY.size))
    corner = np.array(features[7]["geometry"]["coordinates"][0])[:-1].mean(axis=0)
    lat, lng = CITY.centres_latlng()
    assert corner == pytest.approx((lng[7], lat[7]), abs=1e-5)
    save_maps(str(tmp_path / "map.png"), CITY, [Panel("a city", np.arange(CITY.size) / 100)])
    assert (tmp_path / "map.png").stat().st_size > 5_000


def test_one_cell_and_islands() -> None:
    with pytest.raises(InvalidInput, match="at least two cells of 40 km in the box, not 1"):
        gv.Grid.from_polygon(LIMITS, cell_km=40.0)
    islands = two_islands()
    assert islands.parts == 2
    assert repr(islands).startswith("MaskedGrid(15 of 6 × 9 cells of 1 km")
    assert repr(islands).endswith(", in 2 parts)")
    with pytest.raises(InvalidInput, match="mask must be 54"):
        MaskedGrid(islands.grid, [True, False])


def test_the_steepest_slope_is_the_same_as_by_all_pairs() -> None:
    values = np.random.default_rng(1).normal(size=CITY.size)
    found, distances = steepness(values, CITY), CITY.distances_km() + np.eye(CITY.size)
    slopes = np.abs(values[:, None] - values) / distances
    assert found.slope_per_km == pytest.approx(slopes.max())
    assert slopes[found.pair] == pytest.approx(slopes.max())


def test_products_are_masked_and_not_matrices() -> None:
    kernel = kernel_on(CITY, lambda distance: np.exp(-distance))
    assert isinstance(kernel, PartialKernel)
    values = np.random.default_rng(2).normal(size=CITY.size)
    assert kernel._push(values) == pytest.approx(values @ np.exp(-CITY.distances_km()), abs=1e-12)


@pytest.mark.parametrize("space", [CITY, two_islands()], ids=["city", "islands"])
@pytest.mark.parametrize("camouflage", [0.0, 0.5, 1.0])
def test_no_two_positions_lose_more_than_promised(space: MaskedGrid, camouflage: float) -> None:
    mechanism = gv.elastic(space, epsilon_per_km=1.0, camouflage=camouflage)
    assert mechanism.rim == 0
    assert 0.99 < mechanism.certificate.epsilon_per_km <= 1.0
    # shores are not starved: a fake there would count as ten times as many people
    assert camouflage == 1.0 or mechanism.leverage < 20.0
    generator = np.random.default_rng(3)
    low, high = mechanism.centres.rectangle_km
    one = generator.uniform(low - 1.0, high + 1.0, size=(3000, 2))  # the sea and outside as well
    inside, pitch_km = np.clip(one, low, high), mechanism.centres.pitch_km
    drawn_from_km = mechanism.law.steps_of(one) * pitch_km
    assert np.abs(drawn_from_km - inside).max() <= 0.5001 * pitch_km  # in the sea from where it is
    other = one + generator.normal(scale=0.3, size=one.shape)
    rows = [mechanism.law.rows_at(mechanism.law.steps_of(each)) for each in (one, other)]
    logs = [np.log(row / row.sum(axis=1, keepdims=True)) for row in rows]
    loss = np.abs(logs[0] - logs[1]).max(axis=1)
    distance = np.hypot(*(one - other).T)
    assert (loss <= distance + mechanism.slack).all()
    assert (loss > 0.5 * distance).any()


def test_a_document_of_a_city_is_read_and_drawn_from() -> None:
    mechanism = gv.elastic(CITY, epsilon_per_km=1.0)
    document = publish(mechanism, campaign="paris", round=1, not_before_s=0, expires_s=10)
    read = MechanismDocument.read(document.served())
    assert read.mechanism == mechanism
    assert read.mechanism.space == CITY
    assert read.area.inside(48.853, 2.26)
    assert not read.area.inside(48.853, 2.32)


def test_a_campaign_estimates_nobody_in_the_sea() -> None:
    generator = np.random.default_rng(4)
    truth = generator.dirichlet(np.full(CITY.size, 0.3))
    campaign = gv.Campaign(CITY, epsilon_per_km=2.0, camouflage=0.5)
    for number in range(2):
        people = generator.choice(CITY.size, size=8000, p=truth)
        mechanism = campaign.mechanism
        campaign.receive(mechanism.tally(mechanism.sample(people, randomness=gv.seeded(number))))
        campaign.close_round(last=number == 1)
    estimate = campaign.estimate
    assert estimate is not None
    assert estimate.space == CITY
    # people stand evenly here, which an estimate at ε·cell = 2.4 does not take for granted
    assert gv.total_variation(estimate.distribution, truth) < 0.2
    low, high = estimate.interval(0.95)
    assert ((low <= truth) & (truth <= high)).mean() > 0.85


def test_error_bars_beyond_a_matrix_are_those_of_the_matrix(monkeypatch: Any) -> None:
    mechanism = gv.elastic(CITY, epsilon_per_km=1.0)
    people = np.repeat(np.arange(CITY.size), 300)
    tally = mechanism.tally(mechanism.sample(people, randomness=gv.seeded(5)))
    exact = gv.IterativeBayesianUpdate().fit(tally).standard_error
    monkeypatch.setattr("geoveil.estimate.uncertainty.MATRIX_CELLS", 10)
    drawn = gv.IterativeBayesianUpdate().fit(tally)
    assert "draws by conjugate gradients" in drawn.errors.method
    assert "before it settled" not in drawn.errors.method
    assert np.median(drawn.standard_error / exact) == pytest.approx(1.0, abs=0.15)


def test_mechanisms_that_need_a_whole_grid_say_so() -> None:
    with pytest.raises(InvalidInput, match="must be on a whole grid"):
        gv.PlanarGeometric(CITY, epsilon_per_km=1.0)
    assert gv.certify(gv.Exponential(CITY, epsilon_per_km=1.0)).holds
    cells = gv.elastic(CITY, epsilon_per_km=1.0, between="cells")
    assert "wherever they stand in their cells" in cells.explain(0.2)


@pytest.mark.parametrize("grid", [None, (2, 3), gv.Line(6), gv.Grid])
def test_only_a_grid_can_be_masked(grid: Any) -> None:
    with pytest.raises(InvalidInput, match=r"grid .* must be a Grid"):
        MaskedGrid(grid, [True] * 6)


@pytest.mark.parametrize("name", [None, 7, ["name"]])
def test_areas_are_named_by_a_property(name: Any) -> None:
    area = {"type": "Polygon", "coordinates": [OUTER]}
    with pytest.raises(InvalidInput, match=r"name .* must be the name of a property"):
        read_outlines(area, name=name)
