"""Laplace noise on real coordinates, against geodesics of pyproj and laws integrated apart."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import gamma

import geoveil as gv
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict
from geoveil.errors import InvalidInput, RandomnessFailed
from geoveil.mechanism.noise import SAFE_RADIUS_KM, destination

DRAWS = 60_000
EARTH_KM = 6335.439
PLACES = {
    "equator": (0.0, 20.0),
    "paris": (48.8542, 2.3382),
    "svalbard": (80.0, 15.0),
    "fiji": (-16.8, 179.9999),
    "beside the pole": (89.95, -60.0),
    "south": (-89.9, 0.0),
}
places = pytest.mark.parametrize(("lat", "lng"), PLACES.values(), ids=PLACES.keys())


def kolmogorov(values: np.ndarray, law: Callable[[np.ndarray], np.ndarray]) -> float:
    """The largest distance between the distribution of the values and the law."""
    ordered = np.sort(values)
    reached = law(ordered)
    steps = np.arange(1, values.size + 1) / values.size
    return float(max((steps - reached).max(), (reached - steps + 1 / values.size).max()))


def limit(size: int) -> float:
    """What that distance exceeds with probability 1e-9 at most (Dvoretzky–Kiefer–Wolfowitz)."""
    return float(np.sqrt(np.log(2e9) / (2 * size)))


def sphere(
    lat: float, lng: float, far_lat: np.ndarray, far_lng: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distance (km) and bearing (turns) on the sphere, from vectors."""

    def vector(phi: np.ndarray, lam: np.ndarray) -> np.ndarray:
        return np.stack(
            [np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1
        )

    here = vector(np.radians(lat), np.radians(lng))
    there = vector(np.radians(far_lat), np.radians(far_lng))
    east = np.array([-np.sin(np.radians(lng)), np.cos(np.radians(lng)), 0.0])
    north = np.cross(here, east)
    chord = np.linalg.norm(there - here, axis=-1)
    turn = np.arctan2(there @ east, there @ north) / (2 * np.pi)
    return 2 * EARTH_KM * np.arcsin(np.clip(chord / 2, 0, 1)), turn % 1.0


def sphere_law(epsilon: float) -> Callable[[np.ndarray], np.ndarray]:
    """P(radius ≤ r) for a density e^{−εr} per area of the sphere, integrated numerically."""
    grid = np.linspace(0, np.pi * EARTH_KM, 2_000_001)
    density = np.sin(grid / EARTH_KM) * np.exp(-epsilon * grid)
    total = np.concatenate(([0], np.cumsum((density[1:] + density[:-1]) / 2)))
    return lambda radius: np.interp(radius, grid, total / total[-1])


def drawn(lat: float, lng: float, epsilon: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    noise = gv.ContinuousLaplace(epsilon_per_km=epsilon)
    return noise.sample_latlng(
        lat=np.full(DRAWS, lat), lng=np.full(DRAWS, lng), randomness=gv.seeded(seed)
    )


@pytest.mark.statistical
class TestContinuousLaplace:
    mechanism = gv.ContinuousLaplace

    @places
    def test_radius_and_direction(self, lat: float, lng: float) -> None:
        radius, turn = sphere(lat, lng, *drawn(lat, lng, 0.5))
        law = gamma(2, scale=2.0).cdf
        assert kolmogorov(radius, law) < limit(DRAWS)
        assert kolmogorov(turn, lambda t: t) < limit(DRAWS)
        # the power twins: noise a tenth too wide, directions that prefer north a little
        assert kolmogorov(1.1 * radius, law) > limit(DRAWS)
        assert kolmogorov(turn + 0.02 * np.sin(2 * np.pi * turn), lambda t: t) > limit(DRAWS)

    @places
    def test_radius_and_direction_do_not_depend_on_each_other(self, lat: float, lng: float) -> None:
        radius, turn = sphere(lat, lng, *drawn(lat, lng, 0.5, seed=2))
        far = radius > np.median(radius)
        for quarter in range(4):
            there = np.floor(4 * turn) == quarter
            assert abs((far & there).mean() - 0.125) < 6 * np.sqrt(0.125 * 0.875 / DRAWS)

    @places
    def test_noise_on_the_ground_is_as_wide_as_asked_and_one_percent_more_at_most(
        self, lat: float, lng: float
    ) -> None:
        pyproj = pytest.importorskip("pyproj")
        far_lat, far_lng = drawn(lat, lng, 0.5)
        here = np.full(DRAWS, lng), np.full(DRAWS, lat)
        _, _, metres = pyproj.Geod(ellps="WGS84").inv(*here, far_lng, far_lat)
        radius, _ = sphere(lat, lng, far_lat, far_lng)
        assert (metres / 1000 >= radius * (1 - 1e-9) - 1e-6).all()
        assert (metres / 1000 <= radius * 1.0102 + 1e-6).all()

    @places
    def test_results_lie_on_one_lattice_for_all(self, lat: float, lng: float) -> None:
        for degrees in drawn(lat, lng, 0.5):
            assert (np.rint(degrees * 1e6) / 1e6 == degrees).all()
        far_lat, far_lng = drawn(lat, lng, 0.5)
        assert (np.abs(far_lat) <= 90).all()
        assert ((far_lng >= -180) & (far_lng < 180)).all()

    def test_wide_noise_follows_the_sphere_and_not_the_plane(self) -> None:
        radius, turn = sphere(30.0, 10.0, *drawn(30.0, 10.0, 0.001))
        assert kolmogorov(radius, sphere_law(0.001)) < limit(DRAWS)
        assert kolmogorov(radius, gamma(2, scale=1000.0).cdf) > limit(DRAWS)
        assert kolmogorov(turn, lambda t: t) < limit(DRAWS)

    def test_noise_in_the_plane(self) -> None:
        noise = gv.ContinuousLaplace(epsilon_per_km=0.5)
        start = np.tile([1000.0, -500.0], (DRAWS // 2, 2, 1))
        noisy = noise.sample_km(start, randomness=gv.seeded(3))
        assert noisy.shape == start.shape
        east, north = (noisy - start).reshape(-1, 2).T
        assert kolmogorov(np.hypot(east, north), gamma(2, scale=2.0).cdf) < limit(DRAWS)
        assert kolmogorov(np.arctan2(north, east) / (2 * np.pi) % 1.0, lambda t: t) < limit(DRAWS)
        assert (np.rint(noisy * 1e4) / 1e4 == noisy).all()


@pytest.mark.statistical
@pytest.mark.parametrize("lat", [0.0, 48.0, 80.0])
@pytest.mark.parametrize("azimuth", [0.0, 90.0])
def test_the_ratio_of_densities_stays_within_the_promise(lat: float, azimuth: float) -> None:
    pyproj = pytest.importorskip("pyproj")
    epsilon, metres = 2.0, 500.0
    other_lng, other_lat, _ = pyproj.Geod(ellps="WGS84").fwd(10.0, lat, azimuth, metres)
    counts = []
    for seed, (here_lat, here_lng) in enumerate([(lat, 10.0), (other_lat, other_lng)]):
        far = drawn(here_lat, here_lng, epsilon, seed)
        # events: rings around the first place, where the ratio is largest
        radius, _ = sphere(lat, 10.0, *far)
        counts.append(np.histogram(radius, bins=[0, 0.15, 0.3, 0.5, 1, 2, 9])[0])
    first, second = (np.maximum(c, 1) for c in counts)
    deviation = np.sqrt(1 / first + 1 / second)
    assert (np.abs(np.log(first / second)) <= epsilon * metres / 1000 + 6 * deviation).all()
    assert np.abs(np.log(first / second)).max() > 0.7 * epsilon * metres / 1000


def test_shapes_scalars_and_longitudes_of_any_turn() -> None:
    noise = gv.ContinuousLaplace(epsilon_per_km=2.0)
    lat, lng = noise.sample_latlng(lat=48.85, lng=2.35, randomness=gv.seeded(1))
    assert np.shape(lat) == np.shape(lng) == ()
    again = noise.sample_latlng(lat=48.85, lng=2.35 + 720, randomness=gv.seeded(1))
    np.testing.assert_allclose(again, (lat, lng), atol=2e-6)
    both = noise.sample_latlng(lat=[[1.0, 2.0]], lng=[[3.0, 1e30]], randomness=gv.seeded(1))
    assert both[0].shape == (1, 2)
    assert (np.abs(both[1]) <= 180).all()
    assert noise.sample_latlng(lat=[], lng=[])[0].size == 0


@pytest.mark.parametrize("radius_km", [0.1, 5.0, 300.0])
def test_nobody_ends_up_closer_on_the_ground_than_drawn(radius_km: float) -> None:
    pyproj = pytest.importorskip("pyproj")
    lat, turn = (
        part.ravel() for part in np.meshgrid(np.linspace(-89, 89, 90), np.linspace(0, 6.2, 24))
    )
    arc = np.full(lat.size, radius_km / SAFE_RADIUS_KM)
    far_lat, far_lng = destination(lat, np.full(lat.size, 30.0), arc, turn)
    _, _, metres = pyproj.Geod(ellps="WGS84").inv(np.full(lat.size, 30.0), lat, far_lng, far_lat)
    assert (metres / 1000 >= radius_km * (1 - 1e-9)).all()
    assert metres.min() / 1000 < radius_km * 1.0005  # along a meridian at the equator it is tight


def test_longitudes_keep_all_digits_and_their_range() -> None:
    turned = np.full(200, 360.0 * 2**40)  # so far round that a degree has lost its last digits
    _, lng = gv.ContinuousLaplace(epsilon_per_km=2.0).sample_latlng(
        lat=np.zeros(200), lng=turned, randomness=gv.seeded(1)
    )
    assert np.unique(lng).size > 190
    edge = np.full(200, 179.9999999)
    _, lng = gv.ContinuousLaplace(epsilon_per_km=1e5).sample_latlng(
        lat=np.zeros(200), lng=edge, randomness=gv.seeded(1)
    )
    assert set(lng.tolist()) <= {-180.0, 179.999999, -179.999999}
    assert -180.0 in lng


def test_promises_and_documents() -> None:
    assert gv.ContinuousLaplace(mean_distance_km=0.5).epsilon_per_km == 4.0
    assert gv.ContinuousLaplace(level=1.0, radius_km=0.5).guarantee == gv.GeoIndistinguishability(
        2.0
    )
    again = mechanism_from_dict(mechanism_to_dict(gv.ContinuousLaplace(epsilon_per_km=1 / 3)))
    assert again.epsilon_per_km == 1 / 3
    assert again == gv.ContinuousLaplace(epsilon_per_km=1 / 3)
    assert hash(again) == hash(gv.ContinuousLaplace(epsilon_per_km=1 / 3))
    assert again != gv.ContinuousLaplace(epsilon_per_km=0.5)
    for asked in (
        {},
        {"epsilon_per_km": 1e-4},
        {"epsilon_per_km": 1.0, "level": 1.0, "radius_km": 1.0},
    ):
        with pytest.raises(InvalidInput):
            gv.ContinuousLaplace(**asked)


@pytest.mark.parametrize("lat", [[91.0], [np.nan], [1.0, 2.0], "x", [None], [True]])
def test_places_that_are_none_are_refused_without_being_named(lat: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        gv.ContinuousLaplace(epsilon_per_km=1.0).sample_latlng(lat=lat, lng=[12.345])
    assert "12.345" not in str(refused.value)
    assert "91" not in str(refused.value)


def test_no_noise_without_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(size: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr(os, "urandom", fail)
    noise = gv.ContinuousLaplace(epsilon_per_km=1.0)
    with pytest.raises(RandomnessFailed):
        noise.sample_latlng(lat=1.0, lng=1.0)
    with pytest.raises(RandomnessFailed):
        noise.sample_km([0.0, 0.0])
