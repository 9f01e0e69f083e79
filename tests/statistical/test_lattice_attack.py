"""The low digits of a noisy place tell nothing (promise 17).

Noise drawn in polar coordinates from few angles or rounded radii leaves a lattice around the true
place: whoever tests two candidates sees which of them the difference fits. The attack finds the truth
almost always where results are not rounded, and no oftener than the promise allows on ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import geoveil as gv

EPSILON = 2.0
APART_KM = 0.05
TRIALS = 40_000
CANDIDATES = np.array([[3.217, -1.804], [3.217 + APART_KM * 0.6, -1.804 + APART_KM * 0.8]])

pytestmark = pytest.mark.statistical


def bound(loss: float) -> float:
    """The best guess between two equally likely places, under a promise."""
    return float(np.exp(loss) / (1 + np.exp(loss)))


def three_sigma(chance: float) -> float:
    return 3 * float(np.sqrt(chance * (1 - chance) / TRIALS))


def fits(
    steps: np.ndarray, *, radius_step: float | None = None, angles: int | None = None
) -> np.ndarray:
    """How far steps (…, 2) are from the polar lattice, in parts of its spacing."""
    off = np.zeros(steps.shape[:-1])
    if radius_step is not None:
        parts = np.hypot(steps[..., 0], steps[..., 1]) / radius_step
        off = off + np.abs(parts - np.rint(parts))
    if angles is not None:
        parts = np.arctan2(steps[..., 1], steps[..., 0]) / (2 * np.pi) * angles
        off = off + np.abs(parts - np.rint(parts))
    return off


def success(noisy: np.ndarray, truth: np.ndarray, off: Callable[[np.ndarray], np.ndarray]) -> float:
    """How often the candidate whose lattice fits better is the true one; equal fits go to the nearer."""
    steps = noisy[:, None, :] - CANDIDATES
    distance = np.hypot(steps[..., 0], steps[..., 1])
    score = np.round(off(steps), 3) + 1e-9 * distance
    return float((score.argmin(axis=1) == truth).mean())


def trial() -> tuple[np.ndarray, np.ndarray]:
    truth = gv.seeded(1).below(2, TRIALS)
    return truth, CANDIDATES[truth]


def careless(
    places: np.ndarray, *, radius_step: float | None = None, angles: int | None = None
) -> np.ndarray:
    """Planar Laplace as browser extensions wrote it: rounded, and given out with all digits."""
    generator = np.random.default_rng(2)
    radius = generator.gamma(2, 1 / EPSILON, len(places))
    angle = generator.uniform(0, 2 * np.pi, len(places))
    if radius_step is not None:
        radius = np.rint(radius / radius_step) * radius_step
    if angles is not None:
        angle = np.rint(angle / (2 * np.pi) * angles) * (2 * np.pi / angles)
    return places + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


@pytest.mark.parametrize("lattice", [{"radius_step": 1e-6}, {"angles": 3600}, {"angles": 2**32}])
def test_the_attack_succeeds_on_rounded_noise(lattice: dict[str, float]) -> None:
    truth, places = trial()
    assert success(careless(places, **lattice), truth, lambda steps: fits(steps, **lattice)) > 0.98


def test_our_own_noise_would_fall_without_its_last_rounding() -> None:
    truth, places = trial()
    radius, angle = gv.ContinuousLaplace(epsilon_per_km=EPSILON)._polar(TRIALS, gv.seeded(3))
    bare = places + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    assert success(bare, truth, lambda steps: fits(steps, angles=2**32)) > 0.98


@pytest.mark.parametrize(
    "lattice", [{"radius_step": 1e-6}, {"angles": 3600}, {"angles": 2**32}, {"radius_step": 1e-4}]
)
def test_the_attack_fails_on_noise_in_the_plane(lattice: dict[str, float]) -> None:
    truth, places = trial()
    noisy = gv.ContinuousLaplace(epsilon_per_km=EPSILON).sample_km(places, randomness=gv.seeded(4))
    found = success(noisy, truth, lambda steps: fits(steps, **lattice))
    allowed = bound(EPSILON * APART_KM)
    assert found <= allowed + three_sigma(allowed)


@pytest.mark.parametrize("angles", [3600, 2**32])
def test_the_attack_fails_on_noisy_latitudes_and_longitudes(angles: int) -> None:
    pyproj = pytest.importorskip("pyproj")
    lat, lng = np.array([48.8542, 48.85455]), np.array([2.3382, 2.3386])
    _, _, metres = pyproj.Geod(ellps="WGS84").inv(lng[0], lat[0], lng[1], lat[1])
    truth = gv.seeded(5).below(2, TRIALS)
    noisy_lat, noisy_lng = gv.ContinuousLaplace(epsilon_per_km=EPSILON).sample_latlng(
        lat=lat[truth], lng=lng[truth], randomness=gv.seeded(6)
    )
    phi, far = np.radians(lat), np.radians(noisy_lat[:, None])
    turn = np.radians(noisy_lng[:, None] - lng)
    east = np.sin(turn) * np.cos(far)
    north = np.cos(phi) * np.sin(far) - np.sin(phi) * np.cos(far) * np.cos(turn)
    off = fits(np.stack([north, east], axis=-1), angles=angles)
    score = np.round(off, 3) + 1e-3 * np.hypot(east, north)
    allowed = bound(EPSILON * metres / 1000)
    assert (score.argmin(axis=1) == truth).mean() <= allowed + three_sigma(allowed)
    nearest = np.hypot(east, north).argmin(axis=1)
    assert (nearest == truth).mean() <= allowed + three_sigma(allowed)


@pytest.mark.parametrize("kind", [gv.PlanarLaplace, gv.PlanarGeometric])
def test_the_best_guess_from_a_cell_is_within_the_promise(kind: type) -> None:
    grid = gv.Grid(rows=9, columns=9, cell_km=0.5)
    mechanism = kind(grid, epsilon_per_km=EPSILON)
    pair = np.array([40, 41])
    truth = gv.seeded(7).below(2, TRIALS)
    reports = mechanism.sample(pair[truth], randomness=gv.seeded(8))
    guess = np.stack([mechanism.row(cell) for cell in pair])[:, reports].argmax(axis=0)
    allowed = bound(EPSILON * 0.5)
    found = (guess == truth).mean()
    assert 0.5 < found <= allowed + three_sigma(allowed)
