"""The certificate between positions: derivatives, bounds that hold everywhere, documents made to fool it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoveil.campaign.positional_design import flat_weights
from geoveil.errors import InvalidInput
from geoveil.position.centres import Centres
from geoveil.position.cone import RoundedCone
from geoveil.position.position_certificate import Law

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


@given(cones, st.floats(0.0, 30.0), st.floats(0.0, 0.3), st.data())
def test_majorants_bound_the_change_of_the_derivatives(
    cone: RoundedCone, distance: float, within: float, data: st.DataObject
) -> None:
    """‖∇²φ‖ and ‖∇³φ‖ between any two places in the disc, by differences of ∇φ and ∇²φ."""
    second, third = cone.majorants(np.asarray(distance), within)
    places = []
    for _ in range(2):
        far, angle = data.draw(st.floats(0.0, within)), data.draw(st.floats(0.0, 2 * np.pi))
        places.append((distance + far * np.cos(angle), far * np.sin(angle)))
    apart = np.hypot(places[0][0] - places[1][0], places[0][1] - places[1][1])
    slopes = [cone.slopes(np.asarray(east), np.asarray(north)) for east, north in places]
    first = [np.array(at) * float(own.rate) for at, own in zip(places, slopes, strict=True)]
    assert np.linalg.norm(first[0] - first[1]) <= second * apart * (1 + 1e-9) + 1e-12
    hessians = [
        float(own.rate) * np.eye(2) + float(own.bend) * np.outer(at, at)
        for at, own in zip(places, slopes, strict=True)
    ]
    change = np.linalg.norm(hessians[0] - hessians[1], 2)
    assert change <= third * apart * (1 + 1e-9) + 1e-9 * second


# -- the bound ---------------------------------------------------------------------------------


def worst_found(law: Law, seed: int, places: int = 4000) -> float:
    """The largest |a_y − g| at random places and, from the best of them, by climbing."""
    generator = np.random.default_rng(seed)
    low, high = law.centres.rectangle_km
    centres, weights = law.centres.points_km, law.weights

    def losses(at: np.ndarray) -> np.ndarray:
        offsets = at[:, None] - centres
        distance = np.hypot(offsets[..., 0], offsets[..., 1])
        share = weights * law.cone.values(distance)
        share /= share.sum(axis=1, keepdims=True)
        slopes = law.cone.rates(distance)[..., None] * offsets
        mean = (share[..., None] * slopes).sum(axis=1)
        return np.linalg.norm(slopes - mean[:, None], axis=-1).max(axis=1)

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
    law = Law(centres, flat_weights(centres, cone), cone)
    line = np.arange(0.0, 8.5, 0.5)
    places = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    sampled = law._directly(places, 1e-9)[0].max()
    assert law.certify().epsilon_per_km >= worst_found(law, 1) > 1.02 * sampled


def test_one_place_tells_nothing_and_weights_must_be_there() -> None:
    one = Centres.of_grid(1, 1, step=2, pitch_km=0.5)
    assert Law(one, np.ones(1), RoundedCone(1.0, 0.5)).certify().epsilon_per_km == 0.0
    with pytest.raises(InvalidInput, match="positive"):
        grid_law(2, 2, 1.0, np.array([1.0, 0.0, 1.0, 1.0])).certify()
    with pytest.raises(InvalidInput, match="leave a cell"):
        Centres.of_grid(2, 2, step=2, pitch_km=0.5, mask=np.zeros(4, dtype=bool))


def test_products_by_fft_and_place_by_place_agree() -> None:
    """The same squares by both ways: seen alike, and both bounds above it."""
    generator = np.random.default_rng(4)
    law = grid_law(9, 11, 1.3, generator.gamma(0.5, size=200) + 0.05, 1)
    squares = law._first()
    seen, bound = law._evaluate(squares)
    rho = float(np.hypot(*law._sides_km)) / 2 / squares.parts
    directly, direct_bound = law._directly(law._place(squares), rho)
    assert (seen <= directly * (1 + 1e-9)).all()
    assert (bound >= directly * (1 - 1e-9)).all()
    assert (direct_bound >= directly).all()
    assert seen.max() >= 0.99 * directly.max()
