"""The certificate between positions: derivatives, bounds that hold everywhere, documents made to fool it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from geoveil.campaign import weights as weights_module
from geoveil.campaign.weights import flat_on_grid, flat_weights
from geoveil.errors import InvalidInput
from geoveil.position import centres as centres_module
from geoveil.position import grid_sums, position_certificate
from geoveil.position.centres import Centres
from geoveil.position.cone import RoundedCone
from geoveil.position.position_certificate import Law
from geoveil.position.steepest import Mean, Steepest
from geoveil.space import MaskedGrid

cones = st.builds(RoundedCone, st.floats(0.05, 8.0), st.floats(0.2, 2.0))


def phi(cone: RoundedCone, east: float, north: float) -> float:
    return float(-np.log(cone.values(np.asarray(np.hypot(east, north)))))


# -- the kernel --------------------------------------------------------------------------------


@given(cones, st.floats(0.0, 30.0), st.floats(0.0, 2 * np.pi))
def test_slopes_are_the_derivatives_of_the_kernel(
    cone: RoundedCone, distance: float, angle: float
) -> None:
    east, north, h = distance * np.cos(angle), distance * np.sin(angle), 1e-4
    value, rate, bend = cone.slopes(np.asarray(east), np.asarray(north))
    assert value == pytest.approx(np.exp(-phi(cone, east, north)))
    first = (phi(cone, east + h, north) - phi(cone, east - h, north)) / (2 * h)
    assert rate * east == pytest.approx(first, abs=1e-5 * max(1, cone.beta_per_km**2))
    mixed = sum(
        sign * phi(cone, east + a * h, north + b * h)
        for a, b, sign in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
    ) / (4 * h * h)
    scale = (cone.beta_per_km / cone.radius_km + cone.beta_per_km**2) * (1 + 1 / cone.radius_km)
    assert bend * east * north == pytest.approx(mixed, abs=1e-3 * scale + 1e-6)
    assert cone.rates(np.asarray(distance)) == pytest.approx(float(rate))
    assert rate * distance <= cone.beta_per_km * (1 + 1e-12)


def near(data: st.DataObject, distance: float, within: float) -> np.ndarray:
    far, angle = data.draw(st.floats(0.0, within)), data.draw(st.floats(0.0, 2 * np.pi))
    return np.array((distance + far * np.cos(angle), far * np.sin(angle)))


@given(cones, st.floats(0.0, 30.0), st.floats(0.0, 0.3), st.data())
def test_the_change_of_bends_is_bounded(
    cone: RoundedCone, distance: float, within: float, data: st.DataObject
) -> None:
    """‖∇³φ‖ between any two places in the disc, by differences of ∇²φ."""
    third = cone.bend_changes(np.asarray(distance), within)
    places = [near(data, distance, within) for _ in range(2)]
    slopes = [cone.slopes(np.asarray(east), np.asarray(north)) for east, north in places]
    hessians = [
        float(own.rate) * np.eye(2) + float(own.bend) * np.outer(at, at)
        for at, own in zip(places, slopes, strict=True)
    ]
    change = np.linalg.norm(hessians[0] - hessians[1], 2)
    apart = float(np.linalg.norm(places[0] - places[1]))
    assert change <= third * apart * (1 + 1e-9) + 1e-9 * float(cone.rates(np.zeros(())))


@given(cones, st.floats(0.0, 4.0), st.floats(0.0, 2 * np.pi))
def test_an_expansion_holds_the_derivatives_of_the_falling_part(
    cone: RoundedCone, in_radii: float, angle: float
) -> None:
    """Each from the one before, by differences; ∇³f jumps at r = a."""
    distance, h = in_radii * cone.radius_km, 1e-5 * cone.radius_km
    at = distance * np.array((np.cos(angle), np.sin(angle)))
    if abs(distance - cone.radius_km) < 2 * h:
        return
    terms = cone.expansion(np.asarray(at[0]), np.asarray(at[1]), 0.0)
    assert terms[0] == pytest.approx(float(cone.values(np.asarray(distance))) - cone.floor)
    steep = cone.beta_per_km + 2 / cone.radius_km
    for axis, pairs in enumerate((((0, 1), (1, 3), (2, 4), (3, 6), (4, 7), (5, 8)),
                                  ((0, 2), (1, 4), (2, 5), (3, 7), (4, 8), (5, 9)))):  # fmt: skip
        step = h * np.eye(2)[axis]
        high, low = (
            cone.expansion(*(np.asarray(value) for value in at + sign * step), 0.0)
            for sign in (1, -1)
        )
        for of, derivative in pairs:
            order = 1 + (of > 0) + (of > 2)
            slope = (high[of] - low[of]) / (2 * h)
            assert terms[derivative] == pytest.approx(slope, abs=1e-4 * steep**order)


@settings(max_examples=120)
@given(cones, st.floats(0.0, 6.0), st.floats(0.001, 1.0), st.data())
def test_no_slope_is_farther_from_its_expansion_than_said(
    cone: RoundedCone, in_radii: float, within: float, data: st.DataObject
) -> None:
    """∇f within ρ, up to the radius of the tip, across the place where ∇³f jumps too."""
    rho, distance = within * cone.radius_km, in_radii * cone.radius_km
    at = near(data, distance, rho)
    terms = cone.expansion(np.asarray(distance), np.asarray(0.0), rho)
    there = cone.expansion(np.asarray(at[0]), np.asarray(at[1]), 0.0)[1:3]
    e, n = at[0] - distance, at[1]
    expanded = np.array(
        [
            slope + own @ (e, n) + turned @ (e * e / 2, e * n, n * n / 2)
            for slope, own, turned in (
                (terms[1], terms[3:5], terms[6:9]),
                (terms[2], terms[4:6], terms[7:10]),
            )
        ]
    )
    assert np.linalg.norm(there - expanded) <= terms[10] * (1 + 1e-9) + 1e-13 * cone.beta_per_km


# -- the bound ---------------------------------------------------------------------------------


def expanded(numbers: np.ndarray, rest: float, rho: float) -> Mean:
    """What is said of g where n, A and B are these nine numbers and |r| ≤ ``rest``."""
    law = SimpleNamespace(cone=SimpleNamespace(beta_per_km=1.0))
    shares = np.concatenate(([1.0], -numbers, [rest]))[:, None]
    return Law._expanded(law, shares, rho, np.zeros(1))


def test_g_in_a_square_is_within_what_is_said_of_it_and_may_be_as_far() -> None:
    """N/D of any n, A, B and rests, at any h: no farther from n + J·h than said; aligned, as far."""
    generator = np.random.default_rng(5)
    angle = generator.uniform(0.0, 2.0 * np.pi, 400)
    for _ in range(60):
        rho, rest = generator.uniform(0.02, 0.25), generator.choice([0.0, 0.05])
        numbers = generator.normal(size=9) * generator.choice([0.1, 1.0, 3.0], 9)
        said = expanded(numbers, rest, rho)
        n, (aee, aen, ann), (eee, een, enn, nnn) = numbers[:2], numbers[2:5], numbers[5:]
        h = rho * np.stack((np.cos(angle), np.sin(angle)))
        east, north = h
        along = n @ h
        linear = np.stack((aee * east + aen * north, aen * east + ann * north))
        square = np.stack((eee * east**2 + 2 * een * east * north + enn * north**2,
                           een * east**2 + 2 * enn * east * north + nnn * north**2))  # fmt: skip
        turn = generator.uniform(0.0, 2.0 * np.pi, 400)
        off = rest * np.stack((np.cos(turn), np.sin(turn)))
        slope = n[:, None] + linear + square / 2.0 + off
        height = 1.0 - along - (h * linear).sum(axis=0) / 2.0 - (h * square).sum(axis=0) / 6.0
        height -= rho * rest * generator.uniform(-1.0, 1.0, 400)
        jacobian = linear + n[:, None] * along
        apart = np.hypot(*(slope / height - n[:, None] - jacobian))
        # Z falls at most so much, whatever its expansion says
        sound = height >= np.exp(-rho)
        assert (apart[sound] <= said.rest).all()
    for rest, way in ((0.0, 0.0), (0.1, 0.0), (0.1, 0.7), (0.0, 2.3)):
        n, a, b, rho = 0.4, 0.7, 0.9, 0.2
        e, o = np.cos(way), np.sin(way)
        numbers = np.array([n * e, n * o, a * e * e, a * e * o, a * o * o,
                            b * e**3, b * e * e * o, b * e * o * o, b * o**3])  # fmt: skip
        said = expanded(numbers, rest, rho)
        slope = n + a * rho + b * rho**2 / 2.0 + rest
        height = 1.0 - n * rho - a * rho**2 / 2.0 - b * rho**3 / 6.0 - rho * rest
        farthest = slope / height - n - (a + n * n) * rho
        # what is said adds up sizes; here all point the same way
        assert said.rest[0] == pytest.approx(farthest, rel=1e-6)


def slopes_and_means(law: Law, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(k, n, 2), (k, 2): a_y and g at places, from their definitions."""
    offsets = at[:, None] - law.centres.points_km
    distance = np.hypot(offsets[..., 0], offsets[..., 1])
    share = law.weights * law.cone.values(distance)
    share /= share.sum(axis=1, keepdims=True)
    slopes = law.cone.rates(distance)[..., None] * offsets
    return slopes, np.einsum("kn,kna->ka", share, slopes)


def losses_at(law: Law, at: np.ndarray) -> np.ndarray:
    slopes, means = slopes_and_means(law, at)
    away = slopes - means[:, None]
    return np.sqrt((away[..., 0] ** 2 + away[..., 1] ** 2).max(axis=1))


def worst_found(law: Law, seed: int, places: int = 1500) -> float:
    """The largest |a_y − g| at random places and, from the best of them, by climbing."""
    generator = np.random.default_rng(seed)
    low, high = law.centres.rectangle_km
    centres, losses = law.centres.points_km, partial(losses_at, law)
    at = low + generator.random((places, 2)) * (high - low)
    corners = np.array([(x, y) for x in (low[0], high[0]) for y in (low[1], high[1])])
    at = np.concatenate((at, corners, np.clip(centres, low, high)))
    found = np.concatenate([losses(part) for part in np.array_split(at, 20)])
    best = at[np.argsort(found)[-20:]]
    reach = float(np.max(high - low)) / 20
    for _ in range(12):
        near = best[:, None] + generator.normal(size=(len(best), 20, 2)) * reach
        near = np.clip(near.reshape(-1, 2), low, high)
        tried = np.concatenate((best, near))
        value = losses(tried)
        best, reach = tried[np.argsort(value)[-20:]], reach / 2
    return float(losses(best).max())


def grid_law(
    rows: int,
    columns: int,
    beta: float,
    weights: np.ndarray,
    rim: int = 0,
    mask: np.ndarray | None = None,
) -> Law:
    centres = Centres.of_grid(rows, columns, step=64, pitch_km=1 / 64, rim=rim, mask=mask)
    return Law(centres, weights[: centres.size].astype(float), RoundedCone(beta, 0.87))


def hostile(kind: str, rows: int, columns: int, generator: np.random.Generator) -> np.ndarray:
    """Weights that hide the worst place between the places where somebody would look."""
    size = (rows + 2) * (columns + 2)
    if kind == "one cell heavy":
        weights = np.ones(size)
        weights[int(generator.integers(rows * columns))] = 1e9
        return weights
    if kind == "checkerboard":
        return np.where((np.arange(size) // columns + np.arange(size) % columns) % 2, 1e6, 1.0)
    if kind == "steps":
        return np.repeat(10.0 ** generator.integers(0, 8, size // 3 + 1), 3)[:size]
    return generator.gamma(0.2, size=size) + 1e-6


@pytest.mark.parametrize("kind", ["random", "one cell heavy", "checkerboard", "steps"])
@pytest.mark.parametrize("beta", [0.05, 0.7, 2.0])
def test_no_place_loses_more_than_certified_and_little_less(kind: str, beta: float) -> None:
    generator = np.random.default_rng(int(beta * 100))
    for shape, rim in (((5, 6), 0), ((4, 7), 1), ((1, 8), 0), ((2, 2), 0)):
        law = grid_law(*shape, beta, hostile(kind, *shape, generator), rim)
        certificate = law.certify()
        found = worst_found(law, 1)
        assert certificate.seen_per_km <= certificate.epsilon_per_km <= 2 * beta * (1 + 1e-12)
        assert found <= certificate.epsilon_per_km * (1 + 1e-9)
        assert certificate.epsilon_per_km <= 1.03 * max(found, certificate.seen_per_km)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 7), st.floats(0.02, 4.0))
def test_random_documents(seed: int, rows: int, columns: int, beta: float) -> None:
    generator = np.random.default_rng(seed)
    law = grid_law(rows, columns, beta, generator.gamma(0.3, size=81) + 1e-4, int(seed % 2))
    certificate, found = law.certify(), worst_found(law, seed % 1000, 400)
    assert found <= certificate.epsilon_per_km * (1 + 1e-9)
    assert certificate.epsilon_per_km <= 1.03 * max(found, certificate.seen_per_km) + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000))
def test_a_thousand_random_and_hostile_documents(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, columns = (int(side) for side in generator.integers(1, 13, 2))
    kind = ("random", "one cell heavy", "checkerboard", "steps")[seed % 4]
    beta = float(np.exp(generator.uniform(np.log(0.02), np.log(6.0))))
    weights = hostile(kind, rows, columns, generator)
    law = grid_law(rows, columns, beta, weights, int(generator.integers(2)))
    certificate, found = law.certify(), worst_found(law, seed)
    assert found <= certificate.epsilon_per_km * (1 + 1e-9)
    assert certificate.epsilon_per_km <= 1.03 * max(found, certificate.seen_per_km) + 1e-12


def test_masks_and_lists_of_places_are_bounded_too() -> None:
    generator = np.random.default_rng(3)
    islands = np.zeros((6, 9), dtype=bool)
    islands[:3, :3] = islands[4:, 6:] = True
    masked = grid_law(6, 9, 0.9, generator.gamma(0.5, size=200) + 0.01, 0, islands)
    points = generator.integers(0, 64 * 6, (40, 2))
    places = Centres.of_places(points, pitch_km=1 / 64)
    listed = Law(places, generator.gamma(0.5, size=40) + 0.01, RoundedCone(0.9, 0.87))
    for law in (masked, listed):
        certificate, found = law.certify(), worst_found(law, 2)
        assert found <= certificate.epsilon_per_km * (1 + 1e-9)
        assert certificate.epsilon_per_km <= 1.03 * max(found, certificate.seen_per_km)


def test_a_law_that_a_few_samples_would_pass_is_not_passed() -> None:
    """Weights that make Z flat at every half cell, where a sampled check looks, and only there."""
    centres = Centres.of_grid(9, 9, step=64, pitch_km=1 / 64, rim=1)
    cone = RoundedCone(4.0, 0.87)
    law = Law(centres, flat_on_grid(centres, cone), cone)
    line = np.arange(0.0, 8.5, 0.5)
    places = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    sampled = losses_at(law, places).max()
    assert law.certify().epsilon_per_km >= worst_found(law, 1) > 1.02 * sampled


@pytest.mark.parametrize("beta", [0.3, 1.0, 5.0])
def test_the_fourth_derivative_is_bounded_along_a_line_from_the_centre(beta: float) -> None:
    """There, beyond the tip, it is β⁴f; and the bound falls with the distance."""
    cone = RoundedCone(beta, 0.5)
    away = np.linspace(0.5, 20.0, 200)
    bound = cone.fourth_at_most(away)
    assert (bound >= beta**4 * np.exp(-cone.decay(away))).all()
    assert bound[-1] <= (1 + 3 / beta) * beta**4 * np.exp(-cone.decay(away))[-1]
    assert (np.diff(bound) < 0).all()


@pytest.mark.parametrize("radius", [0.25, 4.0])
def test_inside_the_tip_the_fourth_derivative_is_bounded_piece_by_piece(radius: float) -> None:
    cone = RoundedCone(1.0, radius)
    pieces = len(cone._fourth) - 1
    middles = (np.arange(pieces) + 0.5) / pieces * radius
    np.testing.assert_array_equal(cone.fourth_at_most(middles), cone._fourth[:-1])


@pytest.mark.parametrize(
    ("rim", "mask", "plain"), [(0, None, True), (1, None, False), (0, [1, 0, 1, 1, 1, 1], False)]
)
def test_values_of_places_are_laid_out_on_their_lattice(
    rim: int, mask: list[int] | None, plain: bool
) -> None:
    inside = None if mask is None else np.array(mask, dtype=bool)
    centres = Centres.of_grid(2, 3, step=2, pitch_km=0.5, rim=rim, mask=inside)
    lattice = centres.lattice
    assert lattice is not None
    assert lattice.plain is plain
    values = np.arange(1.0, 2 * centres.size + 1).reshape(2, -1)
    spread = lattice.spread(values)
    assert spread.shape == (2, 2 + 2 * rim, 3 + 2 * rim)
    assert spread.sum() == values.sum()
    for place, (east, north) in enumerate(centres.points // 2 + rim):
        assert spread[:, north, east].tolist() == values[:, place].tolist()
    np.testing.assert_array_equal(lattice.gather(spread), values)
    east, north = lattice.offsets(0.25, -0.5)
    for found, size, at in ((east, lattice.columns, 0.25), (north, lattice.rows, -0.5)):
        assert {*range(1 - size, size + 1)} <= {*(found - at).ravel().tolist()}


@pytest.mark.parametrize("rim", [0, 1])
def test_positions_are_moved_into_the_rectangle_of_the_cells_that_exist(rim: int) -> None:
    """Without a rim the cells whole, with one their centres; in steps from the centre of cell 0."""
    mask = np.zeros((5, 7), dtype=bool)
    mask[1, 3] = mask[3, 2] = True
    centres = Centres.of_grid(5, 7, step=4, pitch_km=0.25, rim=rim, mask=mask)
    half = 0 if rim else 2
    assert centres.low == (2 * 4 - half, 1 * 4 - half)
    assert centres.high == (3 * 4 + half, 3 * 4 + half)
    assert centres.points[:2].tolist() == [[12, 4], [8, 12]]
    np.testing.assert_allclose(centres.rectangle_km, np.array((centres.low, centres.high)) * 0.25)
    assert centres.moved_inside(np.array([(-99, 99), (9, 5)])).tolist() == [
        [centres.low[0], centres.high[1]],
        [9, 5],
    ]
    lattice = centres.lattice
    assert lattice is not None
    assert (lattice.rows, lattice.columns) == (5 + 2 * rim, 7 + 2 * rim)
    within = lattice.within
    assert (within.rows, within.columns, within.inner, within.rim) == (5, 7, 2, 0)
    assert not within.plain
    assert within.places.tolist() == [1 * 7 + 3, 3 * 7 + 2]
    spread = within.spread(np.array([[5.0, 6.0]]))
    assert spread.shape == (1, 5, 7)
    assert (spread[0, 1, 3], spread[0, 3, 2], spread.sum()) == (5.0, 6.0, 11.0)
    assert within.gather(spread).tolist() == [[5.0, 6.0]]
    several = within.spread(np.array([[5.0, 6.0], [7.0, 8.0]]))
    assert (several[1, 1, 3], several[1, 3, 2], several.sum()) == (7.0, 8.0, 26.0)


def test_a_grid_that_is_whole_needs_no_numbers_of_its_cells() -> None:
    lattice = Centres.of_grid(2, 3, step=2, pitch_km=0.5, rim=1).lattice
    assert lattice is not None
    within = lattice.within
    assert within.plain
    values = np.arange(6.0)
    assert within.spread(values).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert within.gather(within.spread(values)).tolist() == values.tolist()
    several = np.stack((values, values + 6))
    assert within.spread(several).tolist()[1] == [[6, 7, 8], [9, 10, 11]]


def test_a_mask_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="mask must leave a cell"):
        Centres.of_grid(2, 2, step=2, pitch_km=0.5, mask=np.zeros(4, dtype=bool))


def test_one_place_tells_nothing_and_weights_must_be_there() -> None:
    one = Centres.of_grid(1, 1, step=2, pitch_km=0.5)
    assert Law(one, np.ones(1), RoundedCone(1.0, 0.5)).certify().epsilon_per_km == 0.0
    with pytest.raises(InvalidInput, match="positive"):
        grid_law(2, 2, 1.0, np.array([1.0, 0.0, 1.0, 1.0])).certify()
    with pytest.raises(InvalidInput, match="leave a cell"):
        Centres.of_grid(2, 2, step=2, pitch_km=0.5, mask=np.zeros(4, dtype=bool))


@pytest.mark.parametrize("beta", [0.3, 1.3, 5.0])
def test_g_is_no_farther_from_its_expansion_than_said(beta: float) -> None:
    """In every square, by the centres within reach and by all of them."""
    generator = np.random.default_rng(4)
    law = grid_law(9, 31, beta, generator.gamma(0.5, size=500) + 0.05, 1)
    every = law._first()
    squares = every.only(generator.choice(len(every.node), size=200))
    places, rho = law._places_km(squares), law._half_diagonal_km / squares.parts
    listed = Law(replace(law.centres, lattice=None), law.weights, law.cone)
    for mean in (law._mean(squares, rho, 0.004), listed._mean_of(places, rho)):
        for _ in range(4):
            step = generator.uniform(-1, 1, places.shape) * law._sides_km / 2 / squares.parts
            true = slopes_and_means(law, places + step)[1]
            east = mean.east + mean.east_east * step[:, 0] + mean.east_north * step[:, 1]
            north = mean.north + mean.east_north * step[:, 0] + mean.north_north * step[:, 1]
            off = np.hypot(true[:, 0] - east, true[:, 1] - north)
            assert (off <= mean.rest * (1 + 1e-9)).all()
            assert off.max() > mean.rest.max() / 100


def test_heavy_centres_out_of_reach_are_counted() -> None:
    """All the weight lies forty cells away, where the kernel has its floor."""
    weights = np.ones(60)
    weights[50:] = 1e9
    law = grid_law(1, 60, 1.5, weights)
    certificate, found = law.certify(), worst_found(law, 1)
    assert found <= certificate.epsilon_per_km <= 1.03 * found


def test_a_claim_is_confirmed_or_refuted() -> None:
    law = grid_law(7, 9, 0.8, np.random.default_rng(2).gamma(0.5, size=63) + 0.05)
    certified = law.certify()
    loose = 1.2 * certified.epsilon_per_km
    confirmed = law.certify(loose)
    assert certified.seen_per_km <= confirmed.epsilon_per_km <= loose
    assert confirmed.places < certified.places
    assert law.certify(certified.epsilon_per_km).epsilon_per_km <= certified.epsilon_per_km
    assert law.certify(0.9 * certified.epsilon_per_km).epsilon_per_km >= certified.seen_per_km


def test_a_claim_that_would_take_hours_to_check_is_not_believed() -> None:
    """Two places far apart with small cells: a document of few bytes, and more squares than memory holds."""
    cone = RoundedCone(3.0, 0.00087)
    for far, believed in ((200, True), (400_000, False)):
        centres = Centres.of_places(np.array([(0, 0), (far, far)]), pitch_km=0.0005)
        certificate = Law(centres, np.ones(2), cone).certify(6.0)
        assert (certificate.epsilon_per_km <= 6.0) == believed


def test_more_squares_than_are_looked_at_begin_at_four_million() -> None:
    centres = Centres.of_places(np.array([(0, 0), (2300, 2200)]), pitch_km=1.0)
    certificate = Law(centres, np.ones(2), RoundedCone(0.4, 1.0)).certify(9.0)
    assert (certificate.epsilon_per_km, certificate.places) == (np.inf, 0)


def test_squares_are_counted_with_the_parts_they_are_cut_into() -> None:
    """2,000 × 2,000 squares would be looked at; each is cut into 16 at first, because β is large."""
    centres = Centres.of_places(np.array([(0, 0), (2000, 2000)]), pitch_km=1.0)
    certificate = Law(centres, np.ones(2), RoundedCone(2.0, 1.0)).certify(9.0)
    assert certificate.epsilon_per_km == np.inf
    assert certificate.places == 0


def test_places_of_a_list_count_with_every_square() -> None:
    centres = Centres.of_places(np.array([(0, 0), (90, 30), (60, 0)]), pitch_km=1.0)
    law = Law(centres, np.ones(3), RoundedCone(0.4, 1.0))
    assert law.work == 90 * 30 * 3


@pytest.mark.parametrize("beta", [5e-324, 1e-160, 1e-9])
def test_a_law_that_hardly_falls_is_certified_too(beta: float) -> None:
    """Windows would reach farther than whole numbers of 64 bits count, and are as wide as the grid."""
    law = grid_law(2, 3, beta, np.arange(1.0, 7.0))
    assert 0.0 <= law.certify(2.0 * beta).epsilon_per_km <= 2.0 * beta
    assert law.work == 6 * 15


@pytest.mark.parametrize("lattice", [True, False])
@pytest.mark.parametrize("kind", ["random", "checkerboard"])
def test_squares_are_expanded_a_few_at_a_time_with_the_same_certificate(
    kind: str, lattice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document of 64,770 cells with four million squares to begin with took two gigabytes at once."""
    law = grid_law(5, 7, 2.0, hostile(kind, 5, 7, np.random.default_rng(2)))
    if not lattice:
        law = Law(replace(law.centres, lattice=None), law.weights, law.cone)
    claims = (0.0, law.certify().epsilon_per_km, 4.0, 1.0)
    whole, expanded, mean = [law.certify(claim) for claim in claims], [], Law._mean
    monkeypatch.setattr(position_certificate, "_AT_ONCE", 40)

    def counted(law: Law, squares: Any, rho: float, tolerance: float) -> Any:
        expanded.append(len(squares.node))
        return mean(law, squares, rho, tolerance)

    monkeypatch.setattr(Law, "_mean", counted)
    few = [law.certify(claim) for claim in claims]
    assert max(expanded) <= 40
    for found, before in zip(few, whole, strict=True):
        assert found.places == before.places > 40
        assert found.epsilon_per_km == pytest.approx(before.epsilon_per_km, rel=1e-12)
        assert found.seen_per_km == pytest.approx(before.seen_per_km, rel=1e-12)


def test_what_lies_beyond_the_window_is_bounded_wherever_in_its_cell_one_stands() -> None:
    centres = Centres.of_grid(30, 36, step=2, pitch_km=0.5)
    weights = np.random.default_rng(3).uniform(0.5, 2.0, centres.size)
    law = Law(centres, weights, RoundedCone(1.0, 0.87))
    assert centres.lattice is not None
    near = grid_sums.WindowSums(centres.lattice, weights, law.cone, law.side_km, reach_km=3.0)
    for row, column in ((0, 0), (15, 18), (29, 35), (4, 30)):
        cells = np.abs(centres.points_km - (column, row)).max(axis=1)
        outside = cells > near.cells
        for shift in ((0.0, 0.0), (-0.5, 0.5), (0.5, 0.5), (-0.5, -0.5)):
            east, north = (centres.points_km - (column, row) - shift)[outside].T
            exact = weights[outside] @ np.exp(-law.cone.decay(np.hypot(east, north)))
            assert 0 < exact <= near.beyond[row, column] <= weights.sum()


def test_the_last_cell_of_a_row_lies_beyond_a_window_that_ends_before_it() -> None:
    centres = Centres.of_grid(1, 6, step=2, pitch_km=0.5)
    assert centres.lattice is not None
    near = grid_sums.WindowSums(centres.lattice, np.ones(6), RoundedCone(1.0, 0.87), 1.0, 3.4)
    assert near.cells == 4
    assert np.exp(-5.0) < near.beyond[0, 0] < 1.0
    assert near.beyond[0, 1] == 0.0


def test_sums_of_weights_in_a_box_are_those_of_its_cells() -> None:
    weights = np.random.default_rng(4).uniform(size=(5, 7))
    below = np.pad(weights.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    boxes = grid_sums._boxes(below, 2)
    for row, column in np.ndindex(5, 7):
        part = weights[max(row - 2, 0) : row + 3, max(column - 2, 0) : column + 3]
        assert boxes[row, column] == pytest.approx(part.sum())


# -- many centres ------------------------------------------------------------------------------

LAYOUTS = {
    "a grid": lambda generator: np.stack(np.divmod(np.arange(400.0), 20), axis=1),
    "a line": lambda generator: np.stack((np.arange(400.0), np.zeros(400)), axis=1),
    "scattered": lambda generator: generator.uniform(0, 30, (400, 2)),
    "two towns": lambda generator: np.concatenate(
        (generator.uniform(0, 5, (200, 2)), generator.uniform(900, 905, (200, 2)))
    ),
}


def over_all(
    centres: np.ndarray, cone: RoundedCone, at: np.ndarray, mean: Mean, rho: float
) -> tuple[np.ndarray, np.ndarray]:
    """The steepest of all centres, one place after another."""
    one_tile = Steepest(centres, cone)
    one_tile._centres = centres[None]
    found = [
        one_tile._over_tile(place[None], np.zeros(1, dtype=np.int64), mean.only(np.array([n])), rho)
        for n, place in enumerate(at)
    ]
    squares, most = (np.concatenate(each) for each in zip(*found, strict=True))
    return np.sqrt(squares), most * (1 + 1e-12) + mean.rest


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("beta", [0.1, 1.0, 4.0])
def test_leaving_centres_out_by_tiles_changes_nothing(layout: str, beta: float) -> None:
    generator = np.random.default_rng(5)
    centres, cone = LAYOUTS[layout](generator), RoundedCone(beta, 0.87)
    at = generator.uniform(-3, 33, (60, 2))
    parts = generator.normal(size=(6, 60)) * beta / 2
    mean, rho = Mean(*parts[:5], np.abs(parts[5])), 0.2
    seen, most = Steepest(centres, cone).at(at, mean, rho)
    all_seen, all_most = over_all(centres, cone, at, mean, rho)
    assert np.array_equal(seen, all_seen)
    assert np.array_equal(most, all_most)
    enough = float(np.median(all_most))
    some_seen, some_most = Steepest(centres, cone).at(at, mean, rho, enough)
    assert (some_seen <= all_seen).all()
    assert (some_most >= all_most).all()
    assert (some_most <= np.maximum(all_most, enough)).all()
    assert np.array_equal(some_most[all_most > enough], all_most[all_most > enough])


@pytest.mark.parametrize(
    ("kind", "beta", "rim"),
    [
        pytest.param(kind, *level, marks=() if row == column else pytest.mark.slow)
        for row, kind in enumerate(("random", "one cell heavy", "steps"))
        for column, level in enumerate(((0.2, 0), (0.7, 1), (2.0, 0)))
    ],
)
def test_sums_by_fft_bound_as_those_one_by_one_do(
    kind: str, beta: float, rim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above 4,096 cells the first squares are bounded all at once; here from the first cell on."""
    generator = np.random.default_rng(6)
    mask = None if rim else generator.random(9 * 31) < 0.7
    law = grid_law(9, 31, beta, hostile(kind, 9, 31, generator), rim, mask)
    before = law.certify()
    monkeypatch.setattr(centres_module, "MATRIX_LIMIT", 1)
    after = law.certify()
    assert after.epsilon_per_km == pytest.approx(before.epsilon_per_km, rel=1e-4)
    assert after.seen_per_km == pytest.approx(before.seen_per_km, rel=1e-4)
    assert worst_found(law, 3, 500) <= after.epsilon_per_km
    assert law.estimate_per_km() <= after.epsilon_per_km
    inside = np.clip(law.centres.points_km, *law.centres.rectangle_km)
    at_centres = losses_at(law, inside[(inside == law.centres.points_km).all(axis=1)])
    assert law.estimate_per_km() >= at_centres.max() * (1 - 1e-6)  # the steepest first
    squares = law._first()
    rho = law._half_diagonal_km / squares.parts
    mean, places = law._mean(squares, rho, 0.004), law._places_km(squares)
    exact = slopes_and_means(law, places)[1]
    assert (np.hypot(mean.east - exact[:, 0], mean.north - exact[:, 1]) <= mean.rest).all()
    listed = Law(replace(law.centres, lattice=None), law.weights, law.cone)
    assert (mean.rest >= listed._mean_of(places, rho).rest * (1 - 1e-6)).all()


@pytest.mark.parametrize(
    "camouflage",
    [pytest.param(0.0, marks=pytest.mark.slow), 0.5, pytest.param(1.0, marks=pytest.mark.slow)],
)
def test_a_design_by_estimates_keeps_its_promise_as_closely(
    camouflage: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above 4,096 cells β is sought by an estimate; here from the first cell on.

    Certificates are what takes long there: two, or three where the worst place moves.
    """
    monkeypatch.setattr(centres_module, "MATRIX_LIMIT", 1)
    made_so_far, certify = [], position_certificate.Law.certify

    def counted(law: Law, claim_per_km: float = 0.0) -> Any:
        if not claim_per_km:
            made_so_far.append(law)
        return certify(law, claim_per_km)

    monkeypatch.setattr(position_certificate.Law, "certify", counted)
    grid = gv.Grid(rows=12, columns=14, cell_km=0.5)
    lake = np.ones(grid.size, dtype=bool)
    lake[60:66] = False
    prior = np.random.default_rng(1).dirichlet(np.full(lake.sum(), 0.3))
    made = gv.elastic(
        MaskedGrid(grid, lake),
        prior,
        epsilon_per_km=2.0,
        camouflage=camouflage,
        between="positions",
    )
    assert 2.0 * (1 - 1e-3) <= made.certified_epsilon_per_km <= 2.0
    assert len(made_so_far) <= 3
    assert made.law.keeps(made.guarantee)
    worst = made.certificate.worst_km
    seen = made.law.around_worst_per_km([worst], 0.25)
    assert 0.99 * made.certificate.seen_per_km <= seen <= made.certified_epsilon_per_km


def test_many_cells_leave_devices_room_to_check_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flat weights would allow β = 0.99 ε, with a certificate of many times the cost."""

    def designed(columns: int) -> Any:
        grid = gv.Grid(rows=8, columns=columns, cell_km=1.0)
        return gv.elastic(grid, epsilon_per_km=0.5, camouflage=0.0, between="positions")

    assert designed(10).beta_per_km > 0.49
    for module in (centres_module, weights_module):
        monkeypatch.setattr(module, "MATRIX_LIMIT", 80)
    many = designed(11)
    assert many.beta_per_km == pytest.approx(0.955 * 0.5, rel=1e-6)
    assert many.certified_epsilon_per_km <= 0.5
    assert many.law.keeps(many.guarantee)


def test_a_claim_over_a_grid_that_takes_minutes_to_check_is_not_believed() -> None:
    """300 × 300 cells at β·cell = 0.02: each place has all centres in its window."""
    law = grid_law(300, 300, 0.02, np.ones(90_000))
    assert law.work > position_certificate.MOST_WORK
    certificate = law.certify(0.04)
    assert (certificate.epsilon_per_km, certificate.places) == (np.inf, 0)


@pytest.mark.parametrize(
    ("rows", "columns", "rim"),
    [(30, 33, 0), (30, 33, 1), (7, 70, 0), pytest.param(7, 70, 1, marks=pytest.mark.slow)],
)
def test_flat_weights_of_many_cells_are_those_of_fewer_stretched(
    rows: int, columns: int, rim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above 4,096 cells of a rectangle; here above 400. Least squares of all cells are the yardstick."""
    cone = RoundedCone(1.0, 0.87)
    centres = Centres.of_grid(rows, columns, step=2, pitch_km=0.5, rim=rim)
    direct = flat_weights(centres, cone, 1.0)
    steep = Law(centres, direct, cone).estimate_per_km()
    for module in (centres_module, weights_module):
        monkeypatch.setattr(module, "MATRIX_LIMIT", 400)
    cut = Centres.of_grid(rows, columns, step=2, pitch_km=0.5, rim=rim)
    stretched = flat_weights(cut, cone, 1.0)
    assert stretched == pytest.approx(direct, rel=0.03)
    assert Law(cut, stretched, cone).estimate_per_km() == pytest.approx(steep, rel=1e-3)
    if rim:  # what twenty steps from even weights come to
        few = Law(cut, flat_on_grid(cut, cone), cone).estimate_per_km()
        assert few > 1.01 * steep
