"""Circular noise as drawn: its radius in the plane and on the globe, its direction, its randomness."""

from __future__ import annotations

import os

import numpy as np
import pytest

import geoveil as gv
from contract.test_continuous_laplace import EARTH_KM, kolmogorov, limit, sphere
from geoveil.errors import RandomnessFailed
from geoveil.optimal import CircularNoise, optimal_noise
from geoveil.randomness import SystemRandomness

DRAWS = 40_000

STEPS = optimal_noise(privacy=gv.WithinRadius(radius_km=1.0, epsilon=1.0), gap=1e-2)
WIDE = CircularNoise.of_rings(
    [0.0, 500.0, 9000.0], [8e-8, (1 - 8e-8 * np.pi * 25e4) / (np.pi * (81e6 - 25e4))]
)


def drawn(noise, lat, lng, seed=1):
    return sphere(
        lat, lng,
        *noise.sample_latlng(
            lat=np.full(DRAWS, lat), lng=np.full(DRAWS, lng), randomness=gv.seeded(seed)
        ),
    )  # fmt: skip


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("lat", "lng"), [(0.0, 20.0), (48.85, 2.34), (-16.8, 179.9999), (89.9, 5.0)]
)
def test_radius_and_direction_on_the_globe(lat, lng):
    radius, turn = drawn(STEPS, lat, lng)
    assert kolmogorov(radius, STEPS.probability_within) < limit(DRAWS)
    assert kolmogorov(turn, lambda t: t) < limit(DRAWS)
    # power twins: a tenth too wide, and Laplace noise of the same promise
    assert kolmogorov(1.1 * radius, STEPS.probability_within) > limit(DRAWS)
    laplace = CircularNoise.of_function(lambda r: np.exp(-r) / (2 * np.pi))
    assert kolmogorov(radius, laplace.probability_within) > limit(DRAWS)


@pytest.mark.statistical
def test_wide_noise_has_its_density_per_area_of_the_sphere():
    radius, _ = drawn(WIDE, 30.0, 10.0)
    grid = np.linspace(0, 9000, 300_001)
    density = np.sin(grid / EARTH_KM) * WIDE.density_per_km2(grid)
    law = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert kolmogorov(radius, lambda r: np.interp(r, grid, law / law[-1])) < limit(DRAWS)
    assert kolmogorov(radius, WIDE.probability_within) > limit(DRAWS)


@pytest.mark.statistical
def test_noise_in_the_plane_by_either_source():
    start = np.tile([10.0, -4.0], (DRAWS, 1))
    for randomness in (gv.seeded(3), SystemRandomness()):
        east, north = (STEPS.sample_km(start, randomness=randomness) - start).T
        assert kolmogorov(np.hypot(east, north), STEPS.probability_within) < limit(DRAWS)
        turn = np.arctan2(north, east) / (2 * np.pi) + 0.5
        assert kolmogorov(turn, lambda t: t) < limit(DRAWS)


def test_seeds_repeat_and_the_default_does_not():
    start = np.zeros((20, 2))
    first, again = (STEPS.sample_km(start, randomness=gv.seeded(5)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (STEPS.sample_km(start) != STEPS.sample_km(start)).any()
    assert (np.rint(first * 1e4) / 1e4 == first).all()


def test_nothing_is_drawn_when_the_system_fails(monkeypatch):
    def broken(size: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr(os, "urandom", broken)
    with pytest.raises(RandomnessFailed):
        STEPS.sample_latlng(lat=48.85, lng=2.35)
