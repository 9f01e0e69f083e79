"""Bounds of the rounded cone beside its derivatives, from power series: no smaller, and little larger."""

from __future__ import annotations

import numpy as np
import pytest

from geoveil.arrays import FloatArray
from geoveil.position.cone import RoundedCone

SERIES = 5
"""Coefficients of s⁰ … s⁴."""


def times(one: FloatArray, other: FloatArray) -> FloatArray:
    """The product of two power series, coefficients first."""
    product = np.zeros_like(one)
    for power in range(SERIES):
        product[power:] += one[: SERIES - power] * other[power]
    return product


def fourth_derivative(cone: RoundedCone, distance: FloatArray, cosine: FloatArray) -> FloatArray:
    """Of f = e^{−ψ}, so far from the centre, along a line at an angle to the way there."""
    r, c = np.broadcast_arrays(distance, cosine)
    beta, a, nothing = cone.beta_per_km, cone.radius_km, np.zeros(r.shape)
    square = np.array([r * r, 2 * r * c, nothing + 1, nothing, nothing])  # |v + s·u|²
    q = square / a**2
    inside = beta * a / 24 * times(q, np.eye(SERIES)[0][:, None, None] * 15 - times(q, q))
    w = square / np.maximum(r, a / 2) ** 2
    w[0] = 0
    root, power = np.eye(SERIES)[0][:, None, None] + nothing, w
    for share in (1 / 2, -1 / 8, 1 / 16, -5 / 128):
        root, power = root + share * power, times(power, w)
    outside = beta * r * root
    outside[0] = beta * (r - a + 14 / 24 * a)
    psi = np.where(r < a, inside, outside)
    change = -psi
    change[0] = 0
    grown, power = np.eye(SERIES)[0][:, None, None] + nothing, change
    for share in (1, 1 / 2, 1 / 6, 1 / 24):
        grown, power = grown + share * power, times(power, change)
    found: FloatArray = 24 * grown[4] * np.exp(-psi[0])
    return found


@pytest.mark.parametrize(
    ("beta", "radius", "inside", "mean", "outside"),
    [
        (0.3, 1.0, 1.036, 1.036, 1.364),
        (2.0, 0.5, 1.25, 1.037, 1.45),
        (4.0, 0.87, 1.374, 1.11, 1.001),
        (9.0, 1.0, 1.746, 1.236, 1.001),
        (0.8, 3.0, 1.35, 1.103, 1.364),
    ],
)
def test_the_fourth_derivative_is_bounded_from_each_distance_on(
    beta: float, radius: float, inside: float, mean: float, outside: float
) -> None:
    """The last three: how many times the largest one the bound is, at most in and beyond the tip."""
    cone = RoundedCone(beta, radius)
    tip = np.linspace(0, radius, 1280, endpoint=False)
    distance = np.concatenate((tip, np.linspace(radius, 6 * radius, 400)))
    cosine = np.linspace(0, 1, 101)
    exact = np.abs(fourth_derivative(cone, distance[:, None], cosine)).max(axis=1)
    ratio = cone.fourth_at_most(distance) / np.maximum.accumulate(exact[::-1])[::-1]
    assert ratio.min() >= 1 - 1e-12
    assert ratio[:1280].max() <= inside
    assert ratio[:1280].mean() <= mean
    assert ratio[1280:].max() <= outside


@pytest.mark.parametrize(("beta", "radius"), [(0.7, 1.3), (3.0, 0.4)])
def test_the_change_of_bends_is_the_sum_of_its_two_parts(beta: float, radius: float) -> None:
    """That of the cone from the nearest place on, and of the floor up to the farthest."""
    bare, within = RoundedCone(beta, radius, 0.0), 0.3 * radius
    away = np.array([0.0, 0.2, 0.3, 1.0, 1.2999, 1.3001, 2.0, 9.0]) * radius
    low = np.maximum(away - within, 0.0)
    of_cone = np.where(
        low < radius, 5 * beta / radius**2, 2 / 3**0.5 * beta / np.maximum(low, 1e-9) ** 2
    )
    np.testing.assert_allclose(bare.bend_changes(away, within), of_cone, rtol=1e-12)
    floored = RoundedCone(beta, radius, 1e-3)
    share = 1e-3 * np.exp(floored.decay(away + within))
    assert share[0] < 0.25 < share[-1] or beta * radius < 1
    slope = floored.rates(low) * (1 + 1e-3 * np.exp(floored.decay(low)))  # ψ′/r, without the floor
    of_floor = np.minimum(0.25, share) * beta * (3 * slope + beta**2)
    np.testing.assert_allclose(floored.bend_changes(away, within), of_cone + of_floor, rtol=1e-12)


def test_where_the_floor_is_all_there_is_the_bound_stays_finite() -> None:
    """e^ψ is beyond every number there; its part is a quarter all the same."""
    cone = RoundedCone(2.0, 1.0)
    far = np.array([400.0, 1e6])
    expected = 2 / 3**0.5 * 2.0 / far**2 + 0.25 * 2.0 * (3 * 2.0 / far + 4.0)
    np.testing.assert_allclose(cone.bend_changes(far, 0.0), expected, rtol=1e-12)


@pytest.mark.parametrize(("beta", "radius"), [(0.7, 1.3), (3.0, 0.4)])
def test_what_an_expansion_leaves_out_is_its_fourth_derivative_and_a_jump(
    beta: float, radius: float
) -> None:
    cone, within = RoundedCone(beta, radius), 0.5 * radius
    away = np.array([0.0, 0.2, 0.499, 0.501, 0.8, 1.0, 1.2, 1.499, 1.501, 3.0]) * radius
    rest = cone.expansion(0.6 * away, -0.8 * away, within)[10]
    smooth = within**3 / 6 * cone.fourth_at_most(np.maximum(away - within, 0.0))
    across = np.maximum(within - np.abs(away - radius), 0.0)
    jump = 5 * beta / radius**2 * np.exp(-cone.decay(np.array(radius)))
    np.testing.assert_allclose(rest, smooth + across**2 / 2 * jump, rtol=1e-9)


def test_the_third_derivative_jumps_at_the_end_of_the_tip_by_as_much_as_is_said() -> None:
    cone = RoundedCone(1.7, 0.6)
    before, after = (
        cone.expansion(np.array(at), np.array(0.0), 0.0)[6] for at in (0.6 - 1e-9, 0.6 + 1e-9)
    )
    jump = 5 * 1.7 / 0.6**2 * np.exp(-cone.decay(np.array(0.6)))
    assert abs(after - before) == pytest.approx(jump, rel=1e-6)


def test_the_falling_part_of_the_cone_itself() -> None:
    """ψ at the centre, at half the radius of the tip, at its end and beyond."""
    cone = RoundedCone(2.0, 0.5)
    t = np.array([0.0, 0.5, 1.0])
    wanted = 2.0 * 0.5 * (5 * t**2 / 8 - t**6 / 24)  # ∫ β·t(5 − t⁴)/4, times a
    np.testing.assert_allclose(cone.decay(0.5 * t), wanted, rtol=1e-12)
    assert cone.decay(np.array(1.75)) == pytest.approx(wanted[2] + 2.0 * 1.25)
    assert cone.values(np.array(0.0)) == 1 + 2.0**-21
    assert cone.values(np.array(1e3)) == 2.0**-21
