"""What a user asks for becomes a parameter, on the safe side."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from geoveil.campaign import elastic_design
from geoveil.errors import InvalidInput
from geoveil.mechanism.mechanism import Promise, parameter_for_mean_distance
from geoveil.mechanism.noise import most_mean_distance_km

GRID = gv.Grid(rows=4, columns=5, cell_km=0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: gv.PlanarGeometric(GRID, mean_distance_km=d),
        lambda d: gv.PlanarLaplace(GRID, mean_distance_km=d),
        lambda d: gv.Exponential(GRID, mean_distance_km=d),
        lambda d: gv.Elastic(GRID, mean_distance_km=d, weights=np.arange(1, 21)),
        lambda d: gv.RandomizedResponse(GRID, mean_distance_km=d),
    ],
    ids=["planar-geometric", "planar-laplace", "exponential", "elastic", "randomized-response"],
)
def test_a_wanted_mean_distance_is_met_and_not_undercut(make: object) -> None:
    mechanism = make(0.6)
    distance = float(mechanism.mean_of_distance(lambda d: d).mean())
    assert 0.6 * (1 - 1e-12) <= distance <= 0.6 * (1 + 1e-6)
    assert gv.certify(mechanism).holds


def test_a_prior_weighs_the_mean_distance() -> None:
    corner = np.eye(20)[0]
    epsilon = parameter_for_mean_distance(
        lambda value: gv.Exponential(GRID, epsilon_per_km=value), GRID, 0.5, prior=corner
    )
    mechanism = gv.Exponential(GRID, epsilon_per_km=epsilon)
    assert mechanism.mean_of_distance(lambda d: d)[0] == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"epsilon_per_km": 1.0, "mean_distance_km": 1.0},
        {"epsilon_per_km": 1.0, "level": 1.0, "radius_km": 1.0},
        {"level": 1.0},
        {"radius_km": 1.0},
        {"epsilon_per_km": 1.0, "radius_km": 1.0},
    ],
)
def test_a_promise_is_exactly_one_thing(asked: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="exactly one of"):
        Promise(**asked)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf, "1", True])
def test_a_promise_is_a_positive_number(wrong: object) -> None:
    for name in ("epsilon_per_km", "mean_distance_km"):
        with pytest.raises(InvalidInput, match=name):
            gv.Exponential(GRID, **{name: wrong})
    with pytest.raises(InvalidInput, match="level"):
        gv.Exponential(GRID, level=wrong, radius_km=1.0)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({}, "exactly one of epsilon_per_unit=, level= with radius=, or mean_distance="),
        ({"epsilon_per_unit": -1.0}, r"epsilon_per_unit \(-1.0\)"),
        ({"level": 1.0, "radius": 0.0}, r"radius \(0.0\)"),
        ({"mean_distance": -1.0}, r"mean_distance \(-1.0\)"),
        ({"mean_distance": 50.0}, r"mean_distance \(50\) must be reachable"),
    ],
)
def test_a_line_is_asked_for_what_it_takes(asked: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^(a promise must be )?{named}"):
        gv.LinearGeometric(gv.Line(9), **asked)


def test_a_distance_beyond_reach_says_how_far_one_gets() -> None:
    with pytest.raises(InvalidInput, match="must be reachable"):
        gv.Exponential(GRID, mean_distance_km=50.0)
    for asked in ({}, {"epsilon": 1.0, "mean_distance_km": 1.0}):
        with pytest.raises(InvalidInput, match="exactly one of"):
            gv.RandomizedResponse(GRID, **asked)


POINT = np.eye(20)[7]


@pytest.mark.parametrize(
    ("make", "reached"),
    [
        (lambda: gv.PlanarGeometric(GRID, mean_distance_km=1.6), "information gives 1.3"),
        (lambda: gv.PlanarLaplace(GRID, mean_distance_km=1.6), "information gives 1.3"),
        (lambda: gv.RandomizedResponse(GRID, mean_distance_km=1e300), "information gives 1.1"),
        (lambda: gv.LinearGeometric(gv.Line(9), mean_distance=50.0), "information gives 4 units"),
        (lambda: gv.Elastic(GRID, weights=POINT, mean_distance_km=0.1), "noise gives 0.8"),
        (lambda: gv.Elastic(GRID, weights=POINT, mean_distance_km=3.0), "information gives 0.8"),
        (
            lambda: gv.Exponential(gv.Grid(rows=1, columns=1, cell_km=1.0), mean_distance_km=1.0),
            "information gives 0 km",
        ),
    ],
)
def test_what_cannot_be_reached_is_told_in_every_direction(make: object, reached: str) -> None:
    with pytest.raises(InvalidInput, match=rf"must be reachable; even almost no {reached}"):
        make()


@pytest.mark.parametrize("wanted", [1e-300, 1e-9, 0.01, 0.6, 1.0, 1.1])
def test_a_wanted_distance_takes_few_trials(wanted: float) -> None:
    tried = []

    def build(epsilon: float) -> gv.Exponential:
        tried.append(epsilon)
        return gv.Exponential(GRID, epsilon_per_km=epsilon)

    epsilon = parameter_for_mean_distance(build, GRID, wanted)
    reached = gv.Exponential(GRID, epsilon_per_km=epsilon).mean_of_distance(lambda d: d).mean()
    assert 1 <= reached / wanted <= 1 + 1.1e-6
    assert len(tried) <= (15 if wanted > 1e-12 else 40)


def test_a_range_of_parameters_is_kept() -> None:
    tried = []

    def build(epsilon: float) -> gv.Exponential:
        tried.append(epsilon)
        return gv.Exponential(GRID, epsilon_per_km=epsilon)

    for wanted in (1e-6, 1.12):
        with pytest.raises(InvalidInput, match="must be reachable"):
            parameter_for_mean_distance(build, GRID, wanted, least=0.5, most=8.0)
    assert (min(tried), max(tried)) == (0.5, 8.0)


def test_what_cannot_be_reached_is_refused_without_a_search() -> None:
    """One look at the end, not a walk of up to 60 ever dearer steps towards it."""
    tried = []

    def build(epsilon: float) -> gv.Exponential:
        tried.append(epsilon)
        return gv.Exponential(GRID, epsilon_per_km=epsilon)

    with pytest.raises(InvalidInput, match="must be reachable"):
        parameter_for_mean_distance(build, GRID, 50.0)
    assert len(tried) == 2
    with pytest.raises(InvalidInput, match="gives 7 km"):
        parameter_for_mean_distance(build, GRID, 50.0, farthest_km=lambda: 7.0)
    assert len(tried) == 3


@pytest.mark.parametrize("kind", [gv.PlanarLaplace, gv.PlanarGeometric])
def test_the_bound_of_planar_noise_is_a_bound(kind: type) -> None:
    """At least the mean distance at the least decay, and hardly more."""
    grid = gv.Grid(rows=6, columns=9, cell_km=0.5)
    for decay in (0.05, 0.3):
        reached = gv.mean_distance_km(kind(grid, epsilon_per_km=decay / 0.5), np.full(54, 1 / 54))
        assert reached < most_mean_distance_km(grid, decay) < 1.03 * reached


def test_a_designed_mechanism_looks_at_the_end_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    plain = elastic_design._mixed
    monkeypatch.setattr(
        elastic_design, "_mixed", lambda *given: made.append(given) or plain(*given)
    )
    with pytest.raises(InvalidInput, match="must be reachable"):
        gv.elastic(GRID, mean_distance_km=50.0)
    assert len(made) == 2
