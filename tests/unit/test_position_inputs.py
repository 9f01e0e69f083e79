"""A clear answer to unusual maps, promises and places, where the promise is between positions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import geoveil as gv
from geoveil.cli.program import program
from geoveil.errors import GeoveilError, InvalidInput, TooLarge, Unsupported
from geoveil.space.projection import TangentPlane


def grid(rows: int, columns: int, cell_km: float, lat: float = 48.85, lng: float = 2.35) -> gv.Grid:
    """So many cells around a place."""
    plane = TangentPlane(lat=lat, lng=lng)
    half = np.array([columns, rows]) * cell_km / 2 * (1 - 1e-3)
    (south, north), _ = plane.to_latlng(np.array([[0.0, -half[1]], [0.0, half[1]]]))
    _, (west, east) = plane.to_latlng(np.array([[-half[0], 0.0], [half[0], 0.0]]))
    made = gv.Grid.from_box(
        south=float(south), west=float(west), north=float(north), east=float(east), cell_km=cell_km
    )
    assert abs(made.rows - rows) <= 1
    assert abs(made.columns - columns) <= 1
    return made


def worst(mechanism: gv.PositionalElastic, pairs: Any) -> float:
    """The largest loss of the numbers drawn from, between two lists of places in degrees."""
    laws = []
    for lat, lng in pairs:
        xy = mechanism.space.plane.to_plane(lat=lat, lng=lng, folded=True)
        rows = mechanism.law.rows_at(mechanism.law.steps_of(xy - mechanism.space.centres[0]))
        laws.append(np.log(rows) - np.log(rows.sum(axis=1, keepdims=True)))
    return float(np.abs(laws[0] - laws[1]).max())


CASES = {
    "cells of 10 m": (grid(3, 4, 0.01), 100.0, 0.5),
    "cells of 10 m, ε·cell 0.001": (grid(3, 4, 0.01), 0.1, 0.5),
    "cells of 100 km": (grid(3, 4, 100.0), 0.01, 0.0),
    "ε·cell 0.001": (grid(3, 4, 1.0), 1e-3, 0.0),
    "ε·cell 8": (grid(3, 4, 1.0), 8.0, 0.0),
    "ε·cell 8, all camouflage": (grid(3, 4, 1.0), 8.0, 1.0),
    "one cell": (grid(1, 1, 1.0), 1.0, 0.5),
    "one cell and its rim": (grid(1, 1, 1.0), 1.0, 0.0),
    "one row": (grid(1, 9, 1.0), 1.0, 0.5),
    "one column and its rim": (grid(9, 1, 1.0), 1.0, 0.0),
    "across ±180°": (grid(3, 4, 1.0, lat=-17.8, lng=180.0), 1.0, 0.5),
    "beside a pole": (grid(3, 4, 1.0, lat=89.9, lng=30.0), 1.0, 0.0),
}
"""The map, ε per km, the camouflage."""


@pytest.mark.parametrize("name", CASES)
def test_unusual_maps_and_promises_are_kept(name: str) -> None:
    space, epsilon, camouflage = CASES[name]
    mechanism = gv.elastic(space, epsilon_per_km=epsilon, camouflage=camouflage)
    assert isinstance(mechanism, gv.PositionalElastic)
    certificate = gv.certify(mechanism)
    assert certificate.holds
    assert certificate.epsilon_per_km <= epsilon
    assert certificate.slack_nats is not None
    assert certificate.slack_nats <= 0.02
    # corners of cells, poles, ±180°, the far side of the globe: a few steps north of each
    lat, lng = space.plane.to_latlng(space.corners_km().reshape(-1, 2))
    ends = np.array([(-90.0, 0.0), (0.0, 180.0), (0.0, -180.0), (89.0, 12.0),
                     (-space.plane.lat, space.plane.lng + 180.0)])  # fmt: skip
    lat, lng = np.concatenate([lat, ends[:, 0]]), np.concatenate([lng, ends[:, 1]])
    apart = 0.3 * space.cell_km
    north = np.minimum(lat + apart / 111.8, 90.0)
    promise = mechanism.guarantee
    assert promise is not None
    assert worst(mechanism, ((lat, lng), (north, lng))) <= float(promise.loss(apart)) + 1e-9
    reports = mechanism.sample_at(lat=lat, lng=lng, randomness=gv.seeded(1))
    assert ((reports >= 0) & (reports < mechanism.report_count)).all()
    back = gv.obfuscate({"lat": lat, "lng": lng}, mechanism, outside="clamp")
    assert len(back["cell"]) == lat.size


SQUARE = grid(3, 4, 1.0)


@pytest.mark.parametrize(
    ("asked", "kind", "why"),
    [
        ({"epsilon_per_km": 20.0}, InvalidInput, r"× cell \(20\) must be at most 8"),
        ({"epsilon_per_km": 8.01}, InvalidInput, "make the cells smaller"),
        ({"epsilon_per_km": 1e300}, InvalidInput, "make the cells smaller"),
        ({"epsilon_per_km": 1e-300}, InvalidInput, "must be at least 1e-09"),
        ({"level": 1e-20, "radius_km": 1.0}, InvalidInput, "must be at least 1e-09"),
        ({"epsilon_per_km": 0.0}, InvalidInput, "must be above 0"),
        ({"epsilon_per_km": math.nan}, InvalidInput, "must be finite"),
        ({"epsilon_per_km": "2"}, InvalidInput, "must be a number"),
        ({"mean_distance_km": 1e-4}, InvalidInput, r"must be reachable; ε = 8 per km gives 0\.4"),
        ({"mean_distance_km": 100.0}, InvalidInput, "must be reachable"),
        ({"epsilon_per_km": 1.0, "most_leverage": 3.0}, Unsupported, "between cells only"),
        ({"epsilon_per_km": 1.0, "between": "towns"}, InvalidInput, "one of cells, positions"),
    ],
)
def test_what_cannot_be_promised_is_refused(
    asked: dict[str, Any], kind: type[GeoveilError], why: str
) -> None:
    with pytest.raises(kind, match=why):
        gv.elastic(SQUARE, **asked)


def test_a_map_of_more_cells_is_refused_at_once_and_fine_between_cells() -> None:
    large = grid(257, 256, 0.2)
    assert large.size > 65_536
    with pytest.raises(
        TooLarge, match=r"at most 65,536 for a promise between positions; use larger"
    ):
        gv.elastic(large, epsilon_per_km=1.0)
    with pytest.raises(TooLarge, match="65,536"):
        gv.Campaign(large, epsilon_per_km=1.0)
    assert gv.Elastic(large, beta_per_km=0.5).report_count == large.size


@pytest.mark.parametrize(
    ("space", "between"),
    [
        (gv.Line(5), "cells"),
        (gv.Points(xy_km=[[0.0, 0.0], [1.0, 0.0]]), "cells"),
        (gv.Points(lat=[48.85, 48.86], lng=[2.3, 2.31]), "cells"),
        (gv.Grid(rows=3, columns=3, cell_km=1.0), "cells"),
        (SQUARE, "positions"),
    ],
)
def test_positions_are_the_default_on_maps_only(space: gv.Space, between: str) -> None:
    for made in (
        gv.elastic(space, epsilon_per_km=1.0),
        gv.Campaign(space, epsilon_per_km=1.0).mechanism,
    ):
        assert isinstance(made, gv.PositionalElastic) == (between == "positions")
        assert (made.told_apart is None) == (between == "positions")
    assert isinstance(gv.elastic(space, epsilon_per_km=1.0, between="cells"), gv.Elastic)
    published = gv.Campaign.as_published(space, beta_per_km=1.0, design_steps=2, update_steps=2)
    assert isinstance(published.mechanism, gv.Elastic)


@pytest.mark.parametrize(
    ("lat", "lng", "why"),
    [
        (91.0, 0.0, "-90 … 90"),
        (math.nan, 0.0, "finite"),
        (48.85, math.inf, "finite"),
        ("a", "b", "numbers"),
        ([1.0, 2.0], [1.0], "one shape"),
    ],
)
def test_places_that_are_none_are_refused_without_their_values(
    lat: Any, lng: Any, why: str
) -> None:
    mechanism = gv.elastic(SQUARE, epsilon_per_km=1.0)
    assert isinstance(mechanism, gv.PositionalElastic)
    with pytest.raises(InvalidInput, match=why):
        mechanism.sample_at(lat=lat, lng=lng)


def test_the_command_line_answers_in_one_line(tmp_path: Path) -> None:
    table, target = tmp_path / "a.csv", tmp_path / "b.csv"
    table.write_text("lat,lng\n48.85,2.35\n48.86,2.36\n")
    box = ["--box", "48.84,2.34,48.87,2.38"]
    for words, why in (
        (["--epsilon-per-km", "100"], "make the cells smaller"),
        (["--epsilon-per-km", "1e-12"], "at least 1e-09"),
        (["--epsilon-per-km", "1", "--cell-km", "0.01"], "at most 65,536"),
        (["--mean-distance-km", "1e-4"], "reachable"),
    ):
        asked = ["obfuscate", str(table), "-o", str(target), "--mechanism", "elastic", *box, *words]
        result = CliRunner().invoke(program, asked)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert why in result.stderr
        assert not target.exists()
