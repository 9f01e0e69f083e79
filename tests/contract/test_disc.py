"""Discs: local differential privacy that knows the map."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from contract.statistics import assert_follows
from geoveil.errors import InvalidInput, TooLarge, Unsupported
from geoveil.mechanism.disc import _threshold
from geoveil.space.masked_grid import MaskedGrid
from geoveil.table.reports import ReportPlaces, rim_reports

SHORE = np.ones((4, 5), dtype=bool)
SHORE[1:3, 1:4] = SHORE[0, 0] = False
PARIS = gv.Grid.from_box(south=48.83, west=2.29, north=48.88, east=2.39, cell_km=0.5)


def spots(rows: int, columns: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(rows) for j in range(columns)]


class TestDisc(ChannelContract):
    mechanism = gv.Disc

    @staticmethod
    def cases() -> dict[str, Case]:
        def case(rows: int, columns: int, square: int, epsilon: float) -> Case:
            radius = 0.5 * math.sqrt(square)
            return Case(
                lambda: gv.Disc(
                    gv.Grid(rows=rows, columns=columns, cell_km=0.5),
                    epsilon=epsilon,
                    disc_radius_km=radius,
                ),
                lambda: formulas.disc(spots(rows, columns), square, epsilon),
                lambda: formulas.lattice(rows, columns, 0.5),
            )

        return {
            "one cell": case(1, 1, 0, 1.0),
            "a grid": case(3, 4, 2, 1.0),
            "a disc larger than the map": case(2, 3, 25, 0.7),
            "no disc": case(3, 3, 0, 2.0),
            "one row": case(1, 7, 4, 1.3),
            "one column": case(6, 1, 9, 1.3),
            "strong": case(3, 4, 5, 1e-3),
            "weak": case(3, 4, 1, 12.0),
            "city limits": Case(
                lambda: gv.Disc(
                    MaskedGrid(gv.Grid(rows=4, columns=5, cell_km=0.5), SHORE),
                    epsilon=1.0,
                    disc_radius_km=1.0,
                ),
                lambda: formulas.disc([spot for spot in spots(4, 5) if SHORE[spot]], 4, 1.0),
                lambda: formulas.lattice(4, 5, 0.5)[np.ix_(SHORE.ravel(), SHORE.ravel())],
            ),
            "a line": Case(
                lambda: gv.Disc(gv.Line(8), epsilon=1.0, disc_radius_km=2.0),
                lambda: formulas.disc(spots(1, 8), 4, 1.0),
                lambda: formulas.line(8),
            ),
        }


def test_without_a_disc_it_is_randomised_response() -> None:
    grid = gv.Grid(rows=4, columns=5, cell_km=0.5)
    plain = gv.Disc(grid, epsilon=1.5, disc_radius_km=0.4)
    assert plain.disc_radius_km == 0.0
    np.testing.assert_allclose(
        plain.matrix(), gv.RandomizedResponse(grid, epsilon=1.5).matrix(), rtol=1e-12
    )
    assert gv.Disc(grid, epsilon=20.0).disc_radius_km == 0.0


def test_the_radius_is_the_one_that_tells_most() -> None:
    grid = gv.Grid(rows=5, columns=7, cell_km=0.5)
    squares = sorted({a * a + b * b for a in range(9) for b in range(9)})
    for epsilon in (0.3, 1.0, 2.5, 4.0):
        told = {
            square: gv.mutual_information_bits(
                gv.Disc(grid, epsilon=epsilon, disc_radius_km=0.5 * math.sqrt(square))
            )
            for square in squares
            if square <= 64
        }
        chosen = gv.Disc(grid, epsilon=epsilon)
        assert gv.mutual_information_bits(chosen) == pytest.approx(max(told.values()), rel=1e-9)
    radii = [gv.Disc(grid, epsilon=epsilon).disc_radius_km for epsilon in (0.1, 1.0, 3.0, 9.0)]
    assert radii == sorted(radii, reverse=True)


def test_on_a_large_map_the_radius_is_sought_with_larger_cells() -> None:
    small, large = gv.Grid(rows=50, columns=60, cell_km=1.0), gv.Grid(
        rows=200, columns=240, cell_km=0.25
    )  # fmt: skip
    radius, finer = (gv.Disc(grid, epsilon=1.0).disc_radius_km for grid in (small, large))
    assert finer == pytest.approx(radius, rel=0.05)


@given(st.floats(1e-9, 800.0), st.integers(1, 10**6), st.integers(0, 10**6))
@settings(deadline=None, max_examples=80)
def test_the_whole_number_keeps_the_promise(epsilon: float, inside: int, more: int) -> None:
    reports = inside + more
    share = Fraction(_threshold(epsilon, inside, reports), 2**62)
    assert 0 <= share < 1
    ratio = 1 + share * reports / (inside * (1 - share))
    with localcontext() as context:
        context.prec = 60
        power = Decimal(min(epsilon, 700.0)).exp()
        assert Decimal(ratio.numerator) <= power * Decimal(ratio.denominator)
        if 1e-6 < epsilon < 20:  # and wastes nothing of it
            reached = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
            assert float(reached) == pytest.approx(epsilon, rel=1e-4)


def test_the_certificate_is_of_the_whole_numbers() -> None:
    grid = gv.Grid(rows=6, columns=6, cell_km=0.5)
    certificate = gv.certify(gv.Disc(grid, epsilon=1.0))
    assert certificate.holds
    assert certificate.exact
    assert certificate.epsilon is not None
    assert 1.0 - 1e-12 < certificate.epsilon <= 1.0
    assert not gv.certify(
        gv.Disc(grid, epsilon=1.0), claim=gv.LocalDifferentialPrivacy(0.999)
    ).holds
    # numbers of 62 bits cannot give e^800: less is lost than was allowed
    found = gv.certify(gv.Disc(grid, epsilon=800.0)).epsilon
    assert found is not None
    assert 40 < found < 50


@pytest.mark.statistical
def test_draws_follow_the_law_at_a_corner_too() -> None:
    mechanism = gv.Disc(PARIS, epsilon=1.0)
    for cell in (0, PARIS.size // 2):
        reports = mechanism.sample(np.full(40_000, cell), randomness=gv.seeded(5))
        assert_follows(reports, mechanism.row(cell))


def test_products_of_many_cells_are_right_where_they_are_small() -> None:
    grid = gv.Grid(rows=40, columns=40, cell_km=0.5)
    mechanism = gv.Disc(grid, epsilon=30.0, disc_radius_km=2.0)
    theta = np.zeros(grid.size)
    theta[0] = 1.0
    np.testing.assert_allclose(mechanism.push(theta), mechanism.row(0), rtol=1e-9)


def test_distances_are_to_the_places_reported() -> None:
    grid = gv.Grid(rows=3, columns=4, cell_km=0.5)
    mechanism = gv.Disc(grid, epsilon=1.0, disc_radius_km=1.0)
    steps = 0.5 * mechanism.report_steps
    away = np.hypot(*(steps[None, :] - steps[: grid.size, None]).transpose(2, 0, 1))
    wanted = (mechanism.matrix() * away).sum(axis=1)
    np.testing.assert_allclose(mechanism.mean_of_distance(lambda km: km), wanted, rtol=1e-9)
    assert gv.mean_distance_km(mechanism) == pytest.approx(wanted.mean())
    assert mechanism.leverage == pytest.approx(1 / mechanism.row(5)[5])


def test_reports_beside_the_map_are_places() -> None:
    mechanism = gv.Disc(PARIS, epsilon=1.0)
    assert rim_reports(mechanism) == mechanism.report_count - PARIS.size > 0
    places = ReportPlaces(mechanism)
    lat, lng = places.latlng
    cells, inside = places.nearest_cells(lat=lat, lng=lng)
    np.testing.assert_array_equal(cells, np.arange(mechanism.report_count))
    assert inside.all()
    np.testing.assert_array_equal(PARIS.locate(lat=lat[:9], lng=lng[:9]), np.arange(9))
    # in the corner of the rectangle around all reports there is none: the nearest one is meant
    steps, corner = mechanism.report_steps, mechanism.report_steps.min(axis=0)
    at = PARIS.centres[0] + 0.5 * corner
    far_lat, far_lng = PARIS.plane.to_latlng(at[None])
    (nearest,), (within,) = places.nearest_cells(lat=far_lat, lng=far_lng)
    assert not within
    squares = np.square(steps - corner).sum(axis=1)
    assert squares[nearest] == squares.min() > 0


def test_an_estimate_comes_back_from_reports_beside_the_map() -> None:
    mechanism = gv.Disc(PARIS, epsilon=3.0)
    people = np.random.default_rng(1).choice([0, 1, 40, 41, 100], size=20_000)
    estimate = gv.IterativeBayesianUpdate().fit(
        mechanism.tally(mechanism.sample(people, randomness=gv.seeded(2)))
    )
    truth = np.bincount(people, minlength=PARIS.size) / people.size
    assert gv.total_variation(estimate.distribution, truth) < 0.35
    assert gv.earth_movers_distance_km(estimate.distribution, truth, PARIS) < 0.2


def test_what_it_refuses() -> None:
    grid = gv.Grid(rows=3, columns=3, cell_km=0.5)
    for wrong in (-1.0, math.nan, math.inf, "1"):
        with pytest.raises(InvalidInput, match="disc_radius_km"):
            gv.Disc(grid, epsilon=1.0, disc_radius_km=wrong)  # type: ignore[arg-type]
    with pytest.raises(TooLarge, match="disc_radius_km"):
        gv.Disc(grid, epsilon=1.0, disc_radius_km=1e6)
    with pytest.raises(TooLarge, match="around it"):
        gv.Disc(grid, epsilon=1.0, disc_radius_km=4e3)
    with pytest.raises(Unsupported, match="RandomizedResponse"):
        gv.Disc(gv.Points(lat=[48.0, 48.1], lng=[2.0, 2.1]), epsilon=1.0)
    with pytest.raises(InvalidInput, match="epsilon"):
        gv.Disc(grid, epsilon=0.0)
