"""Planar geometric and planar Laplace: every rectangle, and the same law at every latitude."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from geoveil.errors import InvalidInput

SHAPES = [(4, 4), (3, 5), (5, 3), (1, 6), (6, 1), (2, 2), (2, 5), (4, 2), (1, 1), (1, 2)]


def geometric_case(rows: int, columns: int, cell_km: float, epsilon: float) -> Case:
    return Case(
        lambda: gv.PlanarGeometric(
            gv.Grid(rows=rows, columns=columns, cell_km=cell_km), epsilon_per_km=epsilon
        ),
        lambda: formulas.planar_geometric(rows, columns, epsilon * cell_km),
        lambda: formulas.lattice(rows, columns, cell_km),
        # the window of the formula leaves out 1e-18 of the noise, which is not nothing far away
        absolute=1e-17,
    )


class TestPlanarGeometric(ChannelContract):
    mechanism = gv.PlanarGeometric

    @staticmethod
    def cases() -> dict[str, Case]:
        shapes = {f"{r}x{c}": geometric_case(r, c, 0.5, 2.0) for r, c in SHAPES}
        return {
            **shapes,
            "large cells": geometric_case(3, 4, 2.0, 1.5),
            "little noise": geometric_case(3, 4, 1.0, 30.0),
            "much noise": geometric_case(4, 7, 0.25, 1.2),
        }


def laplace_case(rows: int, columns: int, cell_km: float, epsilon: float) -> Case:
    return Case(
        lambda: gv.PlanarLaplace(
            gv.Grid(rows=rows, columns=columns, cell_km=cell_km), epsilon_per_km=epsilon
        ),
        lambda: formulas.planar_laplace(rows, columns, epsilon * cell_km),
        lambda: formulas.lattice(rows, columns, cell_km),
        relative=0.0,
        absolute=1e-10,
    )


class TestPlanarLaplace(ChannelContract):
    mechanism = gv.PlanarLaplace

    @staticmethod
    def cases() -> dict[str, Case]:
        shapes = {f"{r}x{c}": laplace_case(r, c, 0.5, 2.0) for r, c in SHAPES}
        return {
            **shapes,
            "large cells": laplace_case(3, 4, 2.0, 1.5),
            "much noise": laplace_case(4, 3, 0.25, 0.8),
            "anywhere in the cells": Case(
                lambda: gv.PlanarLaplace(
                    gv.Grid(rows=2, columns=3, cell_km=0.5), epsilon_per_km=2.0, spread=True
                ),
                lambda: formulas.planar_laplace(2, 3, 1.0, positions=16),
                lambda: formulas.lattice(2, 3, 0.5),
                relative=0.0,
                absolute=1e-9,
            ),
        }

    def test_the_claim_covers_the_formula(
        self, channel: gv.Channel, formula: np.ndarray, case: Case
    ) -> None:
        # the formula is a difference of numbers near 1: its small entries say nothing
        super().test_the_claim_covers_the_formula(
            channel, np.where(formula < 1e-6, 0.0, formula), case
        )

    def test_the_certificate_is_the_enumerated_loss(
        self, channel: gv.Channel, formula: np.ndarray, case: Case
    ) -> None:
        assert gv.certify(channel).holds
        assert gv.certify(channel).epsilon_per_km <= channel.guarantee.epsilon_per_km * (1 + 1e-9)


@pytest.mark.parametrize(
    ("a", "b", "decay"), [(0, 0, 0.3), (0, 0, 3.0), (0, 1, 3.0), (1, 1, 0.3), (3, 2, 3.0)]
)
def test_cell_integrals_of_laplace_by_cubature(a: int, b: int, decay: float) -> None:
    mechanism = gv.PlanarLaplace(gv.Grid(rows=9, columns=9, cell_km=1.0), epsilon_per_km=decay)
    density = lambda y, x: decay**2 / (2 * np.pi) * np.exp(-decay * np.hypot(x, y))  # noqa: E731
    pieces = [(a - 0.5, a + 0.5)] if a else [(-0.5, 0.0), (0.0, 0.5)]
    sides = [(b - 0.5, b + 0.5)] if b else [(-0.5, 0.0), (0.0, 0.5)]
    wanted = sum(
        dblquad(density, *piece, *side, epsabs=1e-11, epsrel=1e-10)[0]
        for piece in pieces
        for side in sides
    )
    centre = 4 * 9 + 4
    assert mechanism.row(centre)[(4 + a) * 9 + 4 + b] == pytest.approx(wanted, abs=1e-10)


BOXES = {
    lat: {
        "south": lat,
        "west": 10.0,
        "north": lat + 0.014,
        "east": 10.0 + 0.0226 / np.cos(np.radians(lat)),
    }
    for lat in (0, 48, 80)
}


@pytest.mark.parametrize("kind", [gv.PlanarGeometric, gv.PlanarLaplace, gv.Exponential])
@pytest.mark.parametrize("lat", [0, 48, 80])
def test_epsilon_per_km_means_the_same_at_every_latitude(kind: type, lat: int) -> None:
    grid = gv.Grid.from_box(**BOXES[lat], cell_km=0.5)
    flat = gv.Grid(rows=grid.rows, columns=grid.columns, cell_km=0.5)
    assert grid.size >= 15
    on_map, abstract = kind(grid, epsilon_per_km=2.0), kind(flat, epsilon_per_km=2.0)
    np.testing.assert_allclose(on_map.matrix(), abstract.matrix(), rtol=1e-12)
    assert on_map.guarantee == abstract.guarantee


@pytest.mark.parametrize("lat", [0, 48, 80])
def test_the_loss_is_epsilon_for_every_kilometre_on_the_ground(lat: int) -> None:
    pyproj = pytest.importorskip("pyproj")
    grid = gv.Grid.from_box(**BOXES[lat], cell_km=0.5)
    mechanism = gv.PlanarGeometric(grid, epsilon_per_km=2.0)
    where_lat, where_lng = grid.centres_latlng()
    inside = grid.columns + 1
    for neighbour in (inside + 1, inside + grid.columns):
        _, _, metres = pyproj.Geod(ellps="WGS84").inv(
            where_lng[inside], where_lat[inside], where_lng[neighbour], where_lat[neighbour]
        )
        column = mechanism.likelihood(inside)
        assert np.log(column[inside] / column[neighbour]) == pytest.approx(
            2.0 * metres / 1000, rel=1e-5
        )


@pytest.mark.parametrize("kind", [gv.PlanarGeometric, gv.PlanarLaplace])
def test_epsilon_times_cell_is_all_that_counts(kind: type) -> None:
    small = kind(gv.Grid(rows=4, columns=6, cell_km=0.25), epsilon_per_km=4.0)
    large = kind(gv.Grid(rows=4, columns=6, cell_km=2.0), epsilon_per_km=0.5)
    np.testing.assert_allclose(small.matrix(), large.matrix(), rtol=1e-12)


@pytest.mark.parametrize("kind", [gv.PlanarGeometric, gv.PlanarLaplace])
@pytest.mark.parametrize("asked", [{"level": 1.0, "radius_km": 0.5}, {"epsilon_per_km": 2.0}])
def test_promises_by_level_and_by_epsilon_agree(kind: type, asked: dict[str, float]) -> None:
    mechanism = kind(gv.Grid(rows=3, columns=4, cell_km=0.5), **asked)
    assert mechanism.guarantee == gv.GeoIndistinguishability(2.0)


@pytest.mark.parametrize("kind", [gv.PlanarGeometric, gv.PlanarLaplace])
def test_planar_noise_needs_a_grid_and_a_sound_decay(kind: type) -> None:
    for space in (gv.Line(5), gv.Points(xy_km=[(0, 0), (1, 1)])):
        with pytest.raises(InvalidInput, match="must be on a whole grid"):
            kind(space, epsilon_per_km=1.0)
    for epsilon in (1e-4, 1e4, 0.0, -1.0, float("nan")):
        with pytest.raises(InvalidInput):
            kind(gv.Grid(rows=3, columns=3, cell_km=1.0), epsilon_per_km=epsilon)
