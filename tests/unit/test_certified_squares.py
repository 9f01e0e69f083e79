"""The steps of the certificate between positions: squares, sums over centres, and each of their bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from geoveil.arrays import FloatArray
from geoveil.position import steepest
from geoveil.position.centres import Centres
from geoveil.position.cone import RoundedCone
from geoveil.position.grid_sums import WholeSums
from geoveil.position.position_certificate import Law

ANGLES = np.linspace(0, 2 * np.pi, 721)
ROUND = np.stack((np.cos(ANGLES), np.sin(ANGLES)))
"""(2, …): all directions."""


def some_law(
    rows: int = 5, columns: int = 8, beta: float = 1.3, rim: int = 0, seed: int = 1
) -> Law:
    centres = Centres.of_grid(rows, columns, step=64, pitch_km=1 / 64, rim=rim)
    weights = np.random.default_rng(seed).gamma(0.5, size=centres.size) + 0.05
    return Law(centres, weights, RoundedCone(beta, 0.87))


def listed(law: Law) -> Law:
    """The same, not known to lie on a grid."""
    return Law(replace(law.centres, lattice=None), law.weights, law.cone)


def mean_slopes(law: Law, places: FloatArray) -> FloatArray:
    """(k, 2): g = −∇Z/Z from its definition."""
    offsets = places[:, None] - law.centres.points_km
    distance = np.hypot(offsets[..., 0], offsets[..., 1])
    share = law.weights * law.cone.values(distance)
    slopes = law.cone.rates(distance)[..., None] * offsets
    mean: FloatArray = (share[..., None] * slopes).sum(axis=1) / share.sum(axis=1)[:, None]
    return mean


# -- sizes of vectors and matrices ---------------------------------------------------------------


def matrices(seed: int) -> tuple[FloatArray, ...]:
    """v, and the entries of M."""
    return tuple(np.random.default_rng(seed).normal(size=(5, 40)))


def test_the_norm_of_a_matrix_is_its_largest_eigenvalue() -> None:
    _, _, ee, en, nn = matrices(1)
    whole = np.stack((np.stack((ee, en)), np.stack((en, nn)))).transpose(2, 0, 1)
    wanted = np.abs(np.linalg.eigvalsh(whole)).max(axis=1)
    np.testing.assert_allclose(steepest.norm(ee, en, nn), wanted, rtol=1e-12)


def test_a_vector_in_a_disc_is_no_longer_than_said_and_as_long_along_an_axis() -> None:
    east, north, ee, en, nn = matrices(2)
    for rho in (0.1, 1.0, 3.0):
        h = rho * ROUND[:, :, None]
        lengths = np.hypot(east + ee * h[0] + en * h[1], north + en * h[0] + nn * h[1])
        bound = steepest.longest(east, north, ee, en, nn, rho)
        assert (lengths.max(axis=0) <= bound * (1 + 1e-12)).all()
        assert bound.mean() <= 1.25 * lengths.max(axis=0).mean()
    zero = np.zeros(1)
    assert steepest.longest(zero + 3, zero, zero + 2, zero, zero + 1, 0.5) == pytest.approx(4.0)
    assert steepest.longest(zero, zero + 3, zero + 1, zero, zero - 2, 0.5) == pytest.approx(4.0)
    assert steepest.longest(zero + 3, zero + 4, zero, zero + 2, zero, 0.5) == pytest.approx(
        np.sqrt(25 + 2 * 0.5 * 10 + 1)
    )


def test_a_third_derivative_is_no_larger_than_said_and_as_large_as_its_waves() -> None:
    c, s = ROUND[:, :, None]
    eee, een, enn, nnn = np.random.default_rng(3).normal(size=(4, 60))
    sizes = np.abs(eee * c**3 + 3 * een * c**2 * s + 3 * enn * c * s**2 + nnn * s**3).max(axis=0)
    bound = steepest.norm_of_third(eee, een, enn, nnn)
    assert (sizes <= bound * (1 + 1e-12)).all()
    assert bound.mean() <= 1.15 * sizes.mean()
    for waves in ((1, 0, -1, 0), (0, 1, 0, -1), (1, 0, 1 / 3, 0), (0, 1 / 3, 0, 1)):
        of_one = (np.array([float(each)]) for each in waves)
        assert steepest.norm_of_third(*of_one) == pytest.approx(1.0)


# -- squares -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beta", "radius", "parts"),
    [
        (0.4, 0.87, 1),
        (0.51, 0.87, 2),
        (1.0, 0.87, 2),
        (1.01, 0.87, 4),
        (0.1, 0.3, 4),
        (0.1, 0.75, 1),
    ],
)
def test_squares_are_cut_until_they_are_flat(beta: float, radius: float, parts: int) -> None:
    """β times a side is at most a half, and the half-diagonal of a square at most the radius of the tip."""
    centres = Centres.of_grid(2, 3, step=64, pitch_km=1 / 64)
    law = Law(centres, np.ones(6), RoundedCone(beta, radius))
    assert law._parts == parts
    assert law._half_diagonal_km / parts <= radius


@pytest.mark.parametrize("rim", [0, 1])
def test_the_first_squares_cover_the_rectangle_once(rim: int) -> None:
    law = some_law(3, 4, rim=rim)
    squares, (low, high) = law._first(), law.centres.rectangle_km
    sides = (high - low) / law._extent / squares.parts
    assert law._extent.tolist() == ([4, 3] if rim == 0 else [3, 2])
    assert law._half_diagonal_km == pytest.approx(np.hypot(*law._sides_km) / 2)
    corners = np.rint((law._places_km(squares) - sides / 2 - low) / sides).astype(int)
    counts = (law._extent * squares.parts).tolist()
    assert sorted(map(tuple, corners.tolist())) == [*np.ndindex(*counts)]
    np.testing.assert_allclose(low + (corners + 0.5) * sides, law._places_km(squares))
    quarters = squares.quartered(np.array([0, 5]))
    around = law._places_km(quarters).reshape(2, 4, 2) - law._places_km(squares)[[0, 5], None]
    for offsets in around:
        found = sorted(map(tuple, np.rint(offsets / sides * 4).astype(int).tolist()))
        assert found == [(-1, -1), (-1, 1), (1, -1), (1, 1)]


def test_places_in_a_line_are_covered_by_squares_without_width() -> None:
    centres = Centres.of_places(np.array([(0, 0), (10, 0), (25, 0)]), pitch_km=0.1)
    law = Law(centres, np.ones(3), RoundedCone(0.4, 1.0))
    assert law.side_km == 1.0
    assert law._extent.tolist() == [3, 1]
    assert law._places_km(law._first())[:, 1].tolist() == [0.0] * 3
    certificate = law.certify()
    line = np.stack((np.linspace(0, 2.5, 500), np.zeros(500)), axis=1)
    g = mean_slopes(law, line)
    offsets = line[:, None] - centres.points_km
    rates = law.cone.rates(np.hypot(offsets[..., 0], offsets[..., 1]))[..., None]
    seen = np.linalg.norm(rates * offsets - g[:, None], axis=-1).max()
    assert seen <= certificate.epsilon_per_km <= 1.01 * seen


# -- g -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.4, 1.3, 4.0])
def test_the_mean_slope_is_that_of_the_definition_and_changes_as_said(beta: float) -> None:
    law = some_law(beta=beta, rim=1)
    squares = law._first()
    places, rho = law._places_km(squares), law._half_diagonal_km / squares.parts
    exact, h = mean_slopes(law, places), 1e-5
    along = [
        (mean_slopes(law, places + h * axis) - mean_slopes(law, places - h * axis)) / (2 * h)
        for axis in np.eye(2)
    ]
    for mean in (law._mean(squares, rho, 0.004), listed(law)._mean_of(places, rho)):
        np.testing.assert_allclose(mean.east, exact[:, 0], atol=1e-4 * beta)
        np.testing.assert_allclose(mean.north, exact[:, 1], atol=1e-4 * beta)
        np.testing.assert_allclose(mean.length, np.hypot(*exact.T), atol=1e-4 * beta)
        np.testing.assert_allclose(mean.east_east, along[0][:, 0], atol=1e-3 * beta**2)
        np.testing.assert_allclose(mean.east_north, along[0][:, 1], atol=1e-3 * beta**2)
        np.testing.assert_allclose(mean.east_north, along[1][:, 0], atol=1e-3 * beta**2)
        np.testing.assert_allclose(mean.north_north, along[1][:, 1], atol=1e-3 * beta**2)


@pytest.mark.parametrize("on_grid", [True, False])
def test_heavy_places_far_away_flatten_the_mean_slope(on_grid: bool) -> None:
    """There the kernel has its floor, which adds to Z and not to its slope."""
    weights = np.ones(60)
    weights[50:] = 1e9
    law = Law(Centres.of_grid(1, 60, step=64, pitch_km=1 / 64), weights, RoundedCone(1.5, 0.87))
    law = law if on_grid else listed(law)
    squares = law._first()
    places, rho = law._places_km(squares), law._half_diagonal_km / squares.parts
    mean, exact = law._mean(squares, rho, 0.004), mean_slopes(law, places)
    np.testing.assert_allclose(mean.east, exact[:, 0], atol=1e-3)
    left = places[:, 0] < 20
    assert np.abs(exact[left]).max() < 0.01


def test_a_mean_slope_is_as_long_as_said_somewhere_in_a_square() -> None:
    law = some_law()
    squares = law._first()
    places, rho = law._places_km(squares), law._half_diagonal_km / squares.parts
    mean = law._mean(squares, rho, 0.004)
    bound = steepest.longest(*mean[:5], rho) + mean.rest
    around = places[:, None] + rho * ROUND.T[::30]
    lengths = np.linalg.norm(
        mean_slopes(law, around.reshape(-1, 2)).reshape(*around.shape), axis=-1
    )
    assert (lengths.max(axis=1) <= bound * (1 + 1e-9)).all()
    assert bound.mean() <= 1.09 * lengths.max(axis=1).mean()


@pytest.mark.parametrize(("beta", "times"), [(0.3, 10.3), (1.0, 3.64), (3.0, 1.89)])
def test_the_rest_of_an_expansion_is_little_larger_than_it_must_be(
    beta: float, times: float
) -> None:
    law = some_law(4, 7, beta=beta, rim=1, seed=4)
    squares = law._first()
    places, rho = law._places_km(squares), law._half_diagonal_km / squares.parts
    mean, largest = law._mean(squares, rho, 0.004), np.zeros(len(places))
    for angle in np.arange(0, 2 * np.pi, np.pi / 8):
        step = rho * np.array((np.cos(angle), np.sin(angle)))
        g = mean_slopes(law, places + step)
        east = mean.east + mean.east_east * step[0] + mean.east_north * step[1]
        north = mean.north + mean.east_north * step[0] + mean.north_north * step[1]
        largest = np.maximum(largest, np.hypot(g[:, 0] - east, g[:, 1] - north))
    assert (largest <= mean.rest).all()
    assert mean.rest.mean() <= times * largest.mean()


@pytest.mark.parametrize("rim", [0, 1])
def test_sums_by_fft_are_those_over_the_centres_at_a_place_of_every_cell(rim: int) -> None:
    """On cells of half a kilometre; what rounding may change is that of all eleven sums."""
    centres = Centres.of_grid(4, 5, step=8, pitch_km=1 / 16, rim=rim)
    weights = np.random.default_rng(3).gamma(0.5, size=centres.size) + 0.05
    lattice, cone, rho = centres.lattice, RoundedCone(1.7, 0.435), 0.2
    assert lattice is not None
    whole = WholeSums(lattice, weights, cone, 0.5)
    sums, noise = whole.at(0.25, -0.125, rho)
    assert sums.shape == (11, lattice.rows, lattice.columns)
    for row, column in ((0, 0), (1, 3), (lattice.rows - 1, lattice.columns - 1)):
        place = 0.5 * np.array((column - rim + 0.25, row - rim - 0.125))
        east, north = (place - centres.points_km).T
        exact = cone.expansion(east, north, rho) @ weights
        np.testing.assert_allclose(sums[:, row, column], exact, rtol=1e-9, atol=1e-12)
    east, north = (np.array((3 - rim, 1 - rim)) * 0.5 - centres.points_km).T
    gradient = cone.expansion(east, north, 0.0)[:3] @ weights
    np.testing.assert_allclose(whole.at_centres()[:, 1, 3], gradient, rtol=1e-9, atol=1e-12)
    right, up = lattice.offsets(0.25, -0.125)
    sizes = np.sqrt((cone.expansion(right * 0.5, up * 0.5, rho) ** 2).sum(axis=(1, 2)))
    second, third = rho * np.array((1, 2, 1)), rho**2 / 2 * np.array((1, 3, 3, 1))
    share = np.concatenate(([2 * 1.7, 1, 1], second, third, [1]))
    wanted = 4e-15 * float(np.linalg.norm(weights)) * float(share @ sizes)
    assert noise == pytest.approx(wanted, rel=1e-9, abs=0.0)


# -- where few centres lie ahead -----------------------------------------------------------------


def test_few_centres_lie_ahead_where_a_long_slope_leads_out_soon() -> None:
    law = some_law(20, 20, beta=1.0)

    def ahead(east: float, north: float, g_east: float, g_north: float) -> bool:
        parts = (np.array([float(each)]) for each in (g_east, g_north, 0, 0, 0, 0))
        return bool(law._few_ahead(np.array([(east, north)]), steepest.Mean(*parts))[0])

    assert ahead(17.0, 10.0, 0.5, 0.0)  # two cells to the last centre
    assert ahead(14.1, 10.0, 0.5, 0.0)
    assert not ahead(13.9, 10.0, 0.5, 0.0)  # more than five
    assert not ahead(17.0, 10.0, -0.5, 0.0)  # the other way
    assert ahead(2.0, 10.0, -0.5, 0.0)
    assert ahead(4.9, 10.0, -0.5, 0.0)
    assert not ahead(5.1, 10.0, -0.5, 0.0)
    assert ahead(10.0, 17.0, 0.0, 0.5)
    assert ahead(10.0, 2.0, 0.0, -0.5)
    assert not ahead(10.0, 10.0, 0.0, -0.5)
    assert ahead(17.0, 10.0, 0.101, 0.0)
    assert not ahead(17.0, 10.0, 0.099, 0.0)  # too short to matter
    assert ahead(20.0, 10.0, 0.5, 0.0)  # beyond the last centre already
    assert ahead(15.8, 15.8, 0.3, 0.3)  # 3.2 cells along each, 4.5 along the way
    assert not ahead(15.2, 15.2, 0.3, 0.3)


# -- the work of a certificate -------------------------------------------------------------------


WORK: dict[str, tuple[Law, float, tuple[float, float, tuple[float, float], int]]] = {
    "grid": (some_law(), 0.0, (2.184816609, 2.174617685, (0.53125, 0.53125), 952)),
    "row": (some_law(1, 12, 0.6), 0.0, (1.086415628, 1.084160176, (10.15625, 0.03125), 384)),
    "steep": (some_law(6, 6, 4.0, 1), 0.0, (7.442594714, 7.326201662, (2.6875, 0.3125), 1752)),
    "flat": (some_law(12, 12, 0.05), 0.0, (0.09411047554, 0.09402232324, (0.671875, 10.453125), 852)),
    "list": (
        listed(some_law(4, 5, 0.9)), 0.0, (1.515659562, 1.510929332, (3.276041667, 0.575), 404)
    ),
    "kept": (some_law(9, 9, 2.0), 3.55, (3.549604798, 3.483288004, (1.3125, 6.5625), 1572)),
    "broken": (some_law(9, 9, 2.0), 3.4, (4.0, 3.467656577, (1.375, 6.625), 1296)),
    "kept by all": (some_law(9, 9, 2.0), 4.0, (4.0, 0.0, (0.0, 0.0), 1296)),
    "kept easily": (some_law(9, 9, 0.3, 0, 7), 0.58, (0.5792282286, 0.5166233603, (7.0, 7.0), 337)),
    "long": (
        some_law(3, 40, 6.0, 0, 5), 0.0, (10.70061977, 10.49112932, (26.34375, 2.09375), 30720)
    ),
}  # fmt: skip
"""A law and a claim → ε, the loss seen, where, and how many squares were looked at."""


@pytest.mark.parametrize("name", WORK)
def test_a_certificate_finds_and_takes_what_it_did(name: str) -> None:
    """A wider bound takes more squares, a narrower one fewer: whoever changes one looks here why."""
    law, claim, (epsilon, seen, worst, places) = WORK[name]
    found = law.certify(claim)
    assert found.epsilon_per_km == pytest.approx(epsilon, rel=1e-8)
    assert found.seen_per_km == pytest.approx(seen, rel=1e-8)
    assert np.abs(found.worst_km) == pytest.approx(worst)  # a row is the same on both sides
    assert found.places == places
