"""Grids: shape, cells, distances and locating, against brute force and real check-ins."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from geoveil.errors import InvalidFile, InvalidInput, OutsideSpace, TooLarge, Unsupported
from geoveil.space import Grid, Line, Points, Space, space_from_dict
from geoveil.space.masked_grid import MaskedGrid
from geoveil.space.space import MATRIX_LIMIT

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("GEOVEIL_DATA", ROOT.parent / "shared" / "data"))
PARIS_BOX = {"south": 48.8286, "west": 2.2855, "north": 48.8798, "east": 2.3909}
PARIS = Grid.from_box(**PARIS_BOX, cell_km=0.5)
GRIDS = {
    "paris": PARIS,
    "wide": Grid.from_box(south=-0.2, west=9.0, north=0.3, east=13.0, cell_km=7.0),
    "tall": Grid.from_box(south=60.0, west=24.9, north=62.5, east=25.0, cell_km=3.0),
    "arctic": Grid.from_box(south=78.0, west=-5.0, north=81.5, east=25.0, cell_km=21.0),
    "fiji": Grid.from_box(south=-18.3, west=177.0, north=-16.0, east=-178.4, cell_km=11.0),
    "pole": Grid.from_box(south=89.5, west=0.0, north=89.93, east=80.0, cell_km=2.0),
    "sydney": Grid.from_box(south=-34.1, west=150.6, north=-33.5, east=151.4, cell_km=1.7),
}
grids = pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS.keys())


def random_places(grid: Grid, size: int, beyond: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Uniform in the box, or in a box larger by ``beyond`` of its extent on every side."""
    assert grid.box is not None
    generator = np.random.default_rng(17)
    south, west, north, _ = grid.box
    share = generator.uniform(-beyond, 1 + beyond, (2, size))
    lat = np.clip(south + share[0] * (north - south), -90, 90)
    return lat, west + share[1] * grid.box.width


# -- shape --------------------------------------------------------------------------------------


def test_paris_as_in_the_interface_page() -> None:
    assert PARIS.shape == (12, 16)
    assert PARIS.size == 192
    assert repr(PARIS) == "Grid(12 × 16 cells of 0.5 km, lat 48.8286…48.8798, lng 2.2855…2.3909)"
    assert repr(Grid(rows=11, columns=15, cell_km=1.0)) == "Grid(11 × 15 cells of 1 km)"


def test_cells_are_counted_as_the_extent_on_the_ground_says() -> None:
    pyproj = pytest.importorskip("pyproj")
    geod = pyproj.Geod(ellps="WGS84")
    for name in ("paris", "wide", "tall", "sydney", "fiji"):
        grid = GRIDS[name]
        assert grid.box is not None
        south, west, north, _ = grid.box
        middle = west + grid.box.width / 2
        height = geod.inv(middle, south, middle, north)[2] / 1000
        edge = south if abs(south) < abs(north) else north
        width = 2 * geod.inv(middle, edge, middle + grid.box.width / 2, edge)[2] / 1000
        # parallels curve, so the bounding rectangle is a little higher than the middle
        assert 0 <= grid.rows - height / grid.cell_km < 1.1
        assert 0 <= grid.columns - width / grid.cell_km < 1.1


def test_a_box_of_whole_cells_gains_none() -> None:
    west, south, east, north = PARIS.box.rectangle_km  # type: ignore[union-attr]
    for rows in (1, 3, 7, 100):
        grid = Grid.from_box(**PARIS_BOX, cell_km=(north - south) / rows)
        assert grid.rows == rows
    assert Grid.from_box(**PARIS_BOX, cell_km=(east - west) / 20.009).columns == 20
    assert Grid.from_box(**PARIS_BOX, cell_km=(east - west) / 20.011).columns == 21
    assert Grid.from_box(**PARIS_BOX, cell_km=(north - south) / 20.009).rows == 20
    assert Grid.from_box(**PARIS_BOX, cell_km=(north - south) / 20.011).rows == 21
    assert Grid.from_box(**PARIS_BOX, cell_km=100.0).shape == (1, 1)


@grids
def test_row_0_is_south_and_column_0_is_west(grid: Grid) -> None:
    lat, lng = (part.reshape(grid.shape) for part in grid.centres_latlng())
    middle = grid.columns // 2
    assert (np.diff(lat[:, middle]) > 0).all()
    unrolled = np.rad2deg(np.unwrap(np.deg2rad(lng), axis=1))
    assert (np.diff(unrolled, axis=1) > 0).all()
    rows, columns = grid.row_column(np.arange(grid.size))
    assert (grid.cell_at(rows, columns) == np.arange(grid.size)).all()
    assert (rows == np.repeat(np.arange(grid.rows), grid.columns)).all()
    assert (columns == np.tile(np.arange(grid.columns), grid.rows)).all()


@grids
def test_centres_are_a_centred_square_lattice(grid: Grid) -> None:
    assert grid.box is not None
    centres = grid.centres.reshape(*grid.shape, 2)
    np.testing.assert_allclose(np.diff(centres[..., 0], axis=1), grid.cell_km, rtol=1e-9)
    np.testing.assert_allclose(np.diff(centres[..., 1], axis=0), grid.cell_km, rtol=1e-9)
    west, south, east, north = grid.box.rectangle_km
    middle = [(west + east) / 2, (south + north) / 2]
    np.testing.assert_allclose(grid.centres.mean(axis=0), middle, atol=1e-9)
    with pytest.raises(ValueError, match="read-only"):
        grid.centres[0, 0] = 1.0


# -- locating -----------------------------------------------------------------------------------


@grids
def test_every_place_of_the_box_lies_in_its_cell(grid: Grid) -> None:
    lat, lng = random_places(grid, 20_000)
    cells = grid.locate(lat=lat, lng=lng, outside="raise")
    offset = np.abs(grid.plane.to_plane(lat=lat, lng=lng) - grid.centres[cells])
    assert offset.max() <= grid.cell_km * 0.51  # half a side, and the overhang of 1 %
    assert grid.inside(lat=lat, lng=lng).all()
    assert len(np.unique(cells)) > 0.5 * grid.size


@grids
def test_the_edges_of_the_box_are_inside(grid: Grid) -> None:
    assert grid.box is not None
    south, west, north, east = grid.box
    lng = west + np.linspace(0, grid.box.width, 101)
    for lat in (south, north):
        assert grid.inside(lat=np.full(101, lat), lng=lng).all()
    assert grid.inside(lat=[south, south, north, north], lng=[west, east, west, east]).all()


@grids
def test_centres_lie_in_their_own_cells(grid: Grid) -> None:
    lat, lng = grid.centres_latlng()
    assert (grid.locate(lat=lat, lng=lng, outside="raise") == np.arange(grid.size)).all()
    assert (grid.locate_km(grid.centres) == np.arange(grid.size)).all()


@grids
def test_clamping_is_the_nearest_cell(grid: Grid) -> None:
    lat, lng = random_places(grid, 1500, beyond=0.8)
    cells = grid.locate(lat=lat, lng=lng, outside="clamp")
    xy = grid.plane.to_plane(lat=lat, lng=lng)
    everything = np.hypot(*np.moveaxis(xy[:, None, :] - grid.centres, -1, 0))
    chosen = everything[np.arange(len(cells)), cells]
    assert (chosen <= everything.min(axis=1) + 1e-9).all()
    inside = grid.inside(lat=lat, lng=lng)
    assert 0 < inside.sum() < inside.size


def test_outside_places_are_clamped_dropped_or_refused() -> None:
    lat, lng = np.array([48.85, 40.0, 48.86]), np.array([2.33, 2.33, 7.0])
    clamped = PARIS.locate(lat=lat, lng=lng, outside="clamp")
    rows, columns = PARIS.row_column(clamped)
    assert rows[1] == 0
    assert columns[2] == PARIS.columns - 1
    assert PARIS.inside(lat=lat, lng=lng).tolist() == [True, False, False]
    assert PARIS.locate(lat=lat, lng=lng, outside="drop").tolist() == [clamped[0]]
    for refusing in ({}, {"outside": "raise"}):  # what happens by default
        with pytest.raises(OutsideSpace, match="2 of 3 do not, the first at position 1"):
            PARIS.locate(lat=lat, lng=lng, **refusing)  # type: ignore[call-overload]
    cells, inside = PARIS.nearest_cells(lat=lat, lng=lng)
    assert (cells.tolist(), inside.tolist()) == (clamped.tolist(), [True, False, False])
    with pytest.raises(InvalidInput, match="must be one of clamp, drop, raise"):
        PARIS.locate(lat=lat, lng=lng, outside="ignore")  # type: ignore[call-overload]


def test_the_antipode_and_the_far_side_do_not_fall_into_the_city() -> None:
    lat, lng = -PARIS.plane.lat, PARIS.plane.lng + 180
    generator = np.random.default_rng(2)
    near = generator.uniform(-0.05, 0.05, (2, 1000))
    assert not PARIS.inside(lat=lat + near[0], lng=lng + near[1]).any()
    rows, columns = PARIS.row_column(
        PARIS.locate(lat=lat + near[0], lng=lng + near[1], outside="clamp")
    )
    rim = (rows == 0) | (rows == PARIS.rows - 1) | (columns == 0) | (columns == PARIS.columns - 1)
    assert rim.all()


def test_nobody_on_the_far_side_can_be_told_from_anybody_else_there() -> None:
    madrid = Grid.from_box(south=40.3, west=-3.8, north=40.5, east=-3.6, cell_km=0.5)
    generator = np.random.default_rng(3)
    lat = np.r_[-40.7800975, -40.7800950, -40.4 + generator.normal(0, 0.5, 1000), -90.0, 0.0]
    lng = np.r_[176.3, 176.3, 176.3 + generator.normal(0, 0.5, 1000), 0.0, 176.3]
    assert np.unique(madrid.locate(lat=lat, lng=lng, outside="clamp")).size == 1
    assert not madrid.inside(lat=lat, lng=lng).any()


def test_one_place_is_one_int() -> None:
    expected = PARIS.locate(lat=[48.85], lng=[2.33])[0]
    for lat, lng in ((48.85, 2.33), (np.float64(48.85), np.array(2.33))):
        for outside in ("clamp", "drop", "raise"):
            cell = PARIS.locate(lat=lat, lng=lng, outside=outside)
            assert type(cell) is int
            assert cell == expected
    for outside in ("drop", "raise"):
        with pytest.raises(OutsideSpace):
            PARIS.locate(lat=40.0, lng=2.33, outside=outside)
    assert PARIS.inside(lat=48.85, lng=2.33)


class Series:
    """What a column of a table looks like from here."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array(self.values)


def test_lists_series_shapes_and_kinds_of_numbers() -> None:
    lat, lng = [48.85, 48.86], [2.33, 2.34]
    expected = PARIS.locate(lat=np.array(lat), lng=np.array(lng))
    assert expected.dtype == np.int64
    assert (PARIS.locate(lat=lat, lng=lng) == expected).all()
    assert (PARIS.locate(lat=tuple(lat), lng=Series(lng)) == expected).all()  # type: ignore[call-overload]
    assert PARIS.locate(lat=np.full((2, 3), 48.85), lng=np.full((2, 3), 2.33)).shape == (2, 3)
    whole = np.array([2, 3], dtype=np.int8)
    assert PARIS.locate(lat=[48, 49], lng=whole, outside="clamp").shape == (2,)
    assert PARIS.locate(lat=[], lng=[]).shape == (0,)
    assert (PARIS.locate(lat=lat, lng=np.array(lng) - 720) == expected).all()


def test_kilometres_work_without_a_map() -> None:
    grid = Grid(rows=2, columns=3, cell_km=2.0)
    assert grid.centres.tolist() == [[-2, -1], [0, -1], [2, -1], [-2, 1], [0, 1], [2, 1]]
    assert grid.locate_km([-2.9, -1.9]) == 0
    far = grid.locate_km([[1e300, -1e300], [-9.0, 0.5]], outside="clamp")
    assert far.tolist() == [2, 3]  # type: ignore[union-attr]
    # 1 % of a cell of 2 km beyond the edge at 3 km
    assert grid.inside_km([[3.019, 0.0], [3.021, 0.0], [0.0, -2.019], [0, -2.021]]).tolist() == [
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(OutsideSpace, match="1 of 1"):
        grid.locate_km([4.0, 0.0])
    for call in (grid.locate, grid.inside):
        with pytest.raises(Unsupported, match="an abstract grid has no coordinates"):
            call(lat=48.0, lng=2.0)
    for call in (grid.centres_latlng, grid.to_geojson):
        with pytest.raises(Unsupported, match="an abstract grid has no coordinates"):
            call()


def test_messages_give_positions_and_no_places() -> None:
    for lat in ([48.98123, np.nan], [48.98123, 98123.0], [[48.98123]], ["48.98123"]):
        for outside in ("clamp", "raise"):
            with pytest.raises(InvalidInput) as caught:
                PARIS.locate(lat=lat, lng=[2.98123, 2.0], outside=outside)
            assert "98123" not in str(caught.value)


# -- distances ----------------------------------------------------------------------------------


@grids
def test_distances_are_those_of_the_centres(grid: Grid) -> None:
    cells = np.random.default_rng(4).integers(0, grid.size, (2, 300))
    between = grid.centres[cells[0]] - grid.centres[cells[1]]
    np.testing.assert_allclose(grid.distance_km(*cells), np.hypot(*between.T), atol=1e-9)
    one = int(cells[0, 0])
    assert (grid.distances_from_km(one) == grid.distance_km(one, np.arange(grid.size))).all()
    if grid.size <= MATRIX_LIMIT:
        matrix = grid.distances_km()
        assert (matrix[cells[0], cells[1]] == grid.distance_km(*cells)).all()
        assert (matrix == matrix.T).all()
        assert matrix.shape == (grid.size, grid.size)


def test_distances_of_centres_hold_on_the_ground() -> None:
    pyproj = pytest.importorskip("pyproj")
    for name in ("paris", "sydney", "fiji"):
        grid = GRIDS[name]
        lat, lng = grid.centres_latlng()
        a, b = np.random.default_rng(6).integers(0, grid.size, (2, 500))
        true = np.array(pyproj.Geod(ellps="WGS84").inv(lng[a], lat[a], lng[b], lat[b])[2]) / 1000
        assert (grid.distance_km(a, b) <= true + 1e-9).all()
        assert (grid.distance_km(a, b) >= 0.999 * true - 1e-9).all()


def test_equal_offsets_have_equal_distances() -> None:
    grid = Grid(rows=9, columns=14, cell_km=0.1)
    matrix = grid.distances_km()
    rows, columns = np.divmod(np.arange(grid.size), 14)
    offsets = np.abs(rows[:, None] - rows) * 100 + np.abs(columns[:, None] - columns)
    for offset in np.unique(offsets):
        assert np.ptp(matrix[offsets == offset]) == 0.0
    assert len(np.unique(grid._norm(grid.centres[:, None] - grid.centres))) > len(np.unique(matrix))


def test_large_matrices_are_refused() -> None:
    with pytest.raises(
        TooLarge, match="at most 4096 cells a side; distances_from_km gives one row"
    ):
        Grid(rows=65, columns=64, cell_km=1.0).distances_km()


@pytest.mark.parametrize(
    "space",
    [PARIS, MaskedGrid(PARIS, np.arange(192) % 2 == 0), Line(5), Points(xy_km=[[0, 0], [1, 1]])],
    ids=lambda space: type(space).__name__,
)
def test_distances_from_cells_that_do_not_exist_are_refused(space: Space) -> None:
    for wrong in (-1, space.size):
        with pytest.raises(OutsideSpace, match="must lie in 0 …"):
            space.distances_from_km(wrong)
    with pytest.raises(
        InvalidInput, match=r"a \(shape \(2,\)\) and b \(shape \(3,\)\) must have one"
    ):
        space.distance_km([0, 1], [0, 1, 1])


def test_cells_outside_are_refused() -> None:
    for wrong in (-1, 192, [0, 500]):
        with pytest.raises(OutsideSpace):
            PARIS.distance_km(0, wrong)
        with pytest.raises(OutsideSpace):
            PARIS.row_column(wrong)
    with pytest.raises(OutsideSpace, match="row"):
        PARIS.cell_at(12, 0)
    with pytest.raises(OutsideSpace, match="column"):
        PARIS.cell_at(0, 16)
    with pytest.raises(InvalidInput, match=r"row .* and column .* must have one shape"):
        PARIS.cell_at([0, 1], [2, 3, 4])
    assert PARIS.cell_at([[0], [1]], [2, 3]).tolist() == [[2, 3], [18, 19]]


# -- making one ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"cell_km": 0.0}, InvalidInput, r"cell_km \(0.0\) must be above 0"),
        ({"cell_km": -1.0}, InvalidInput, "above 0"),
        ({"cell_km": np.nan}, InvalidInput, "finite"),
        ({"cell_km": "0.5"}, InvalidInput, "must be a number"),
        ({"cell_km": 10**400}, InvalidInput, "finite"),
        ({"cell_km": 1e-12}, InvalidInput, "1e-9"),
        ({"cell_km": 0.0001}, TooLarge, "at most 100,000,000 cells; choose larger cells"),
        ({"cell_km": 900.0}, InvalidInput, "the grid .* must reach at most 500 km"),
        ({"north": 48.8286}, InvalidInput, "a height and a width"),
        ({"east": 2.2855}, InvalidInput, "a height and a width"),
        ({"south": 49.0}, InvalidInput, "swap them"),
        ({"south": 89.0, "north": 89.949, "cell_km": 40.0}, InvalidInput, "over a pole"),
        ({"south": -89.949, "north": -89.0, "cell_km": 40.0}, InvalidInput, "over a pole"),
    ],
)
def test_bad_boxes_get_one_clear_line(change: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        Grid.from_box(**{**PARIS_BOX, "cell_km": 0.5, **change})
    assert "\n" not in str(caught.value)


def test_bad_abstract_grids_are_refused() -> None:
    for rows in (0, -1, 2.0, True, None):
        with pytest.raises(InvalidInput, match="rows"):
            Grid(rows=rows, columns=2, cell_km=1.0)  # type: ignore[arg-type]
    for rows in (10**5, 10**400):
        with pytest.raises(TooLarge, match="cells"):
            Grid(rows=rows, columns=10**4, cell_km=1.0)
    with pytest.raises(InvalidInput, match="those that cover the box"):
        Grid(rows=13, columns=16, cell_km=0.5, box=PARIS.box)


def test_a_large_grid_is_cheap_until_it_is_used() -> None:
    grid = Grid.from_box(south=48.2, west=1.6, north=49.6, east=3.4, cell_km=0.02)
    assert grid.size > 5e7
    assert "centres" not in vars(grid)
    assert grid.locate(lat=48.9, lng=2.5) < grid.size
    assert "centres" not in vars(grid)


def test_around_data() -> None:
    lat, lng = random_places(GRIDS["fiji"], 500)
    grid = Grid.around(lat=lat, lng=lng, cell_km=11.0)
    assert grid.inside(lat=lat, lng=lng).all()
    assert list(grid.box) == [lat.min(), lng.min(), lat.max(), lng.max() - 360]  # type: ignore[arg-type]
    wider = Grid.around(lat=lat, lng=lng, cell_km=11.0, margin_cells=3)
    assert 6 <= wider.rows - grid.rows <= 7
    assert 6 <= wider.columns - grid.columns <= 7
    one = Grid.around(lat=48.85, lng=2.33, cell_km=0.5)
    assert one.shape == (1, 1)
    assert one.locate(lat=48.85, lng=2.33, outside="raise") == 0
    assert Grid.around(lat=[48.8, 48.9], lng=[2.33, 2.33], cell_km=0.5).columns == 1
    with pytest.raises(InvalidInput, match="at least one place"):
        Grid.around(lat=[], lng=[], cell_km=1.0)
    for margin in (-1, 1.5, 10**400):
        with pytest.raises(InvalidInput):
            Grid.around(lat=48.85, lng=2.33, cell_km=0.5, margin_cells=margin)  # type: ignore[arg-type]


# -- documents ----------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [*GRIDS.values(), Grid(rows=3, columns=5, cell_km=0.25)], ids=repr)
def test_a_grid_survives_json_and_pickle(grid: Grid) -> None:
    again = space_from_dict(json.loads(json.dumps(grid.to_dict(), allow_nan=False)))
    for other in (again, pickle.loads(pickle.dumps(grid))):
        assert other == grid
        assert hash(other) == hash(grid)
        assert (other.centres == grid.centres).all()
    assert grid != Grid(rows=grid.rows, columns=grid.columns, cell_km=grid.cell_km * 1.01)
    assert grid != "grid"


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "line"},
        {"kind": None},
        {"rows": 13},
        {"rows": 12.0},
        {"rows": True},
        {"columns": -16},
        {"cell_km": float("nan")},
        {"cell_km": "0.5"},
        {"box": [48.8286, 2.2855, 48.8798]},
        {"box": [48.8798, 2.2855, 48.8286, 2.3909]},
        {"box": "paris"},
        {"more": 1},
    ],
)
def test_a_wrong_document_is_refused(change: dict) -> None:
    with pytest.raises(InvalidInput):
        space_from_dict({**PARIS.to_dict(), **change})


def test_what_is_no_document_is_refused() -> None:
    for values in ({}, None, [], "grid", {"kind": "sphere"}, {"kind": ["grid"]}):
        with pytest.raises(InvalidFile, match="must be one of grid, line, points"):
            space_from_dict(values)  # type: ignore[arg-type]
    for values in ({"kind": "grid"}, {"kind": "line", "size": 3}):
        with pytest.raises(InvalidFile):
            Grid.from_dict(values)


# -- real check-ins -----------------------------------------------------------------------------


def test_real_check_ins_all_find_a_cell() -> None:
    file = DATA / "gowalla-paris.csv.gz"
    if not file.exists():
        pytest.skip("the check-ins of Paris are not here; set GEOVEIL_DATA to their folder")
    with gzip.open(file, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", skiprows=1)
    cells = PARIS.locate(lat=table[:, 0], lng=table[:, 1], outside="raise")
    counts = np.bincount(cells, minlength=PARIS.size)
    assert counts.sum() == len(table) == 10_991
    assert counts.shape == (192,)
    assert Grid.around(lat=table[:, 0], lng=table[:, 1], cell_km=0.5).shape == (12, 16)
