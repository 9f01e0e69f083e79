"""What a user asks for becomes a parameter, on the safe side."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import InvalidInput
from geoveil.mechanism.promise import Promise, parameter_for_mean_distance

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


def test_a_distance_beyond_reach_says_how_far_one_gets() -> None:
    with pytest.raises(InvalidInput, match="must be reachable"):
        gv.Exponential(GRID, mean_distance_km=50.0)
    for asked in ({}, {"epsilon": 1.0, "mean_distance_km": 1.0}):
        with pytest.raises(InvalidInput, match="exactly one of"):
            gv.RandomizedResponse(GRID, **asked)
