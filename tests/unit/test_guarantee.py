"""Guarantees as values: losses, sums, comparison, and what they say."""

from __future__ import annotations

import functools
import math
import operator
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.channel.guarantee import SumOfGuarantees
from geoveil.channel.words import promise_of_a_report, spend_in_words
from geoveil.errors import InvalidInput, Unsupported
from geoveil.measure import plant_island, report_within
from geoveil.optimal import TablePrivacy

PER_KM = gv.GeoIndistinguishability(2.0)
LOCAL = gv.LocalDifferentialPrivacy(1.0)
NEAR = gv.WithinRadius(1.0, 0.5)
SQUARE = gv.GeneralPrivacy(np.square, "d²")


def step(at_km: float) -> Callable[[FloatArray], FloatArray]:
    """ℓ that is 0 up to a distance and 1 beyond."""
    return lambda distance_km: np.where(distance_km > at_km, 1.0, 0.0)


@pytest.mark.parametrize(
    ("guarantee", "losses"),
    [
        (PER_KM, [0.0, 1.0, 2.0, 6.0]),
        (LOCAL, [0.0, 1.0, 1.0, 1.0]),
        (NEAR, [0.0, 0.5, 0.5, math.inf]),
        (SQUARE, [0.0, 0.25, 1.0, 9.0]),
        (gv.GeneralPrivacy(lambda d: d + 1.0), [0.0, 1.5, 2.0, 4.0]),
        (PER_KM + LOCAL, [0.0, 2.0, 3.0, 7.0]),
        (PER_KM + LOCAL + PER_KM, [0.0, 3.0, 5.0, 13.0]),
        (3 * NEAR, [0.0, 1.5, 1.5, math.inf]),
        (SQUARE * 2, [0.0, 0.5, 2.0, 18.0]),
    ],
)
def test_losses_at_distances(guarantee: gv.Guarantee, losses: list[float]) -> None:
    assert guarantee.loss([0.0, 0.5, 1.0, 3.0]).tolist() == losses
    assert guarantee.level_within(1.0) == losses[2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PER_KM, LOCAL),
        (PER_KM, gv.BetweenPositions(1.0, 0.1)),
        (gv.BetweenPositions(1.0, 0.1), PER_KM),
        (
            gv.WithinRadius(2.0, 0.5),
            NEAR,
        ),  # the sum would promise something from one to two kilometres
        (LOCAL, 1.0),
    ],
)
def test_only_guarantees_of_one_kind_make_one_of_that_kind(
    one: gv.BetweenPositions, other: gv.BetweenPositions
) -> None:
    with pytest.raises(InvalidInput, match="must be of the same kind"):
        one.plus(other)


def test_a_general_promise_of_endless_reports_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"reports \(1000000000000\) must be at most 65536"):
        SQUARE * 10**12


def test_sums_of_one_kind_stay_that_kind() -> None:
    assert PER_KM + PER_KM == 2 * PER_KM == gv.GeoIndistinguishability(4.0)
    assert LOCAL + LOCAL == LOCAL * 2 == gv.LocalDifferentialPrivacy(2.0)
    assert gv.WithinRadius(1.0, 1.0) == NEAR + NEAR
    assert isinstance(NEAR + gv.WithinRadius(2.0, 0.5), SumOfGuarantees)
    assert PER_KM * 1 == PER_KM
    for wrong in (0, -1, 1.5):
        with pytest.raises(InvalidInput):
            PER_KM * wrong
    with pytest.raises(TypeError):
        PER_KM + 1


epsilons = st.floats(0, 1e6) | st.sampled_from([0.1, 0.2, 0.3, 0.7, 1 / 3, 5e-324, 1e300])
promises = st.one_of(
    epsilons.map(gv.GeoIndistinguishability),
    epsilons.map(gv.LocalDifferentialPrivacy),
    st.builds(gv.WithinRadius, st.sampled_from([0.5, 1.0]), epsilons),
    st.sampled_from([SQUARE, gv.GeneralPrivacy(np.sqrt, "√d")]),
)


@given(st.lists(promises, min_size=2, max_size=8), st.randoms(use_true_random=False), st.data())
def test_a_sum_is_the_same_in_whatever_order(
    parts: list[gv.Guarantee], chance: Random, data: st.DataObject
) -> None:
    total = functools.reduce(operator.add, parts)
    cut = data.draw(st.integers(1, len(parts) - 1))
    shuffled = chance.sample(parts, len(parts))
    halves = [functools.reduce(operator.add, half) for half in (shuffled[:cut], shuffled[cut:])]
    other = halves[1] + halves[0]
    assert other == total
    assert hash(other) == hash(total)
    assert str(other) == str(total)
    distances = np.array([0.0, 0.3, 0.7, 2.0, 11.0])
    assert np.array_equal(other.loss(distances), total.loss(distances))
    assert other.implies(total)


@given(promises, promises, st.integers(1, 40))
def test_so_many_reports_are_so_many_sums(
    one: gv.Guarantee, other: gv.Guarantee, reports: int
) -> None:
    assert reports * one == one * reports == functools.reduce(operator.add, [one] * reports)
    assert reports * (one + other) == reports * one + reports * other


@given(st.lists(epsilons, min_size=2, max_size=20))
def test_the_float_of_a_sum_is_no_less_than_the_sum(values: list[float]) -> None:
    total = functools.reduce(operator.add, map(gv.GeoIndistinguishability, values))
    shown = total.epsilon_per_km
    exact = sum(Fraction(repr(value)) for value in values)
    assert Fraction(repr(shown)) >= exact
    assert Fraction(repr(math.nextafter(shown, 0.0))) < exact or shown == 0
    assert total.implies(gv.GeoIndistinguishability(shown))
    assert pickle.loads(pickle.dumps(total)) == total


def test_sums_of_decimals_are_what_they_are_on_paper() -> None:
    tenth = gv.GeoIndistinguishability(0.1)
    assert 3 * tenth == gv.GeoIndistinguishability(0.3)
    assert (3 * tenth).epsilon_per_km == 0.3
    assert functools.reduce(operator.add, [tenth] * 10) == gv.GeoIndistinguishability(1.0)
    assert (10**6 * gv.LocalDifferentialPrivacy(0.7)).epsilon == 700_000.0
    assert 3 * gv.GeoIndistinguishability(1 / 3) != gv.GeoIndistinguishability(1.0)
    near = gv.WithinRadius(2.0, 0.1)
    assert near + NEAR + near == NEAR + 2 * near == SumOfGuarantees((near, NEAR, near))
    assert len((near + PER_KM + LOCAL + NEAR + near).parts) == 4
    with pytest.raises(InvalidInput, match="epsilon_per_km"):
        2 * gv.GeoIndistinguishability(1.7e308)


@pytest.mark.parametrize(
    ("strong", "weak"),
    [
        (gv.GeoIndistinguishability(1.0), PER_KM),
        (gv.LocalDifferentialPrivacy(0.5), LOCAL),
        (gv.LocalDifferentialPrivacy(0.5), NEAR),
        (gv.WithinRadius(2.0, 0.5), NEAR),
        (gv.WithinRadius(1.0, 0.4), NEAR),
        (gv.GeoIndistinguishability(0.5), NEAR),
        (PER_KM, PER_KM + LOCAL),
        (LOCAL, LOCAL + NEAR),
        (gv.LocalDifferentialPrivacy(0.0), gv.GeoIndistinguishability(0.1)),
    ],
)
def test_one_promise_covers_another(strong: gv.Guarantee, weak: gv.Guarantee) -> None:
    assert strong.implies(weak)
    assert strong.implies(strong)
    assert not weak.implies(strong)


def test_promises_between_positions_add_exactly() -> None:
    one = gv.BetweenPositions(0.1, 0.01)
    assert one + one + one == 3 * one == gv.BetweenPositions(0.3, 0.03)
    assert (one + one).epsilon_per_km == 0.2
    assert gv.BetweenPositions.exactly(Fraction(1, 10)) == gv.BetweenPositions(0.1)
    assert one.between_positions
    assert one.loss([0.0, 1.0]).tolist() == [0.0, 0.11]


def test_what_rounding_adds_counts_in_whatever_a_promise_between_positions_covers() -> None:
    rounded = gv.BetweenPositions(2.0, 0.02)
    assert rounded.implies(gv.WithinRadius(1.0, 2.02))
    assert not rounded.implies(gv.WithinRadius(1.0, 2.01))
    assert rounded.implies(PER_KM + gv.LocalDifferentialPrivacy(0.02))
    assert not rounded.implies(PER_KM)
    assert not rounded.implies(gv.GeoIndistinguishability(100.0))
    assert gv.BetweenPositions(0.0, 0.02).implies(gv.LocalDifferentialPrivacy(0.02))
    assert gv.BetweenPositions(2.0).implies(PER_KM)
    assert rounded.implies(rounded)
    assert rounded.implies(gv.BetweenPositions(2.0, 0.03))
    assert not rounded.implies(gv.BetweenPositions(1.0, 0.03))
    assert not rounded.implies(gv.BetweenPositions(3.0, 0.01))
    assert gv.LocalDifferentialPrivacy(0.02).implies(rounded)
    assert not gv.LocalDifferentialPrivacy(0.03).implies(rounded)
    for near_only_or_over_cells in (gv.WithinRadius(1.0, 0.01), gv.GeoIndistinguishability(0.5)):
        assert not near_only_or_over_cells.implies(rounded)


@pytest.mark.parametrize("number", [1, np.float32(0.5), np.int64(1), np.float64(0.5)])
def test_a_promise_is_of_floats_whatever_it_was_given_as(number: float) -> None:
    promise = gv.BetweenPositions(number, number)
    assert type(promise.epsilon_per_km) is type(promise.slack) is float
    assert (
        repr(promise) == f"BetweenPositions(epsilon_per_km={float(number)}, slack={float(number)})"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PER_KM, LOCAL),
        (gv.GeoIndistinguishability(1e-5), LOCAL),  # far enough away, any ε per km is more
        (gv.LocalDifferentialPrivacy(1e-9), PER_KM),  # near enough, any ε is
        (
            gv.LocalDifferentialPrivacy(1e-9) + gv.GeoIndistinguishability(1.0),
            PER_KM,
        ),  # near enough
        (NEAR, gv.WithinRadius(1.0001, 0.5)),
        (SQUARE, PER_KM),
        (gv.GeoIndistinguishability(1.0), gv.GeoIndistinguishability(1.0 - 1e-13)),  # exactly
        (LOCAL, gv.LocalDifferentialPrivacy(1.0 - 1e-13)),
        *(
            (gv.GeneralPrivacy(step(near)), gv.GeneralPrivacy(step(far)))
            for near, far in ((0.9e-3, 1.5e-3), (8e3, 9.9e3))
        ),
    ],
)
def test_some_promises_cover_each_other_nowhere_or_only_in_part(
    one: gv.Guarantee, other: gv.Guarantee
) -> None:
    assert not one.implies(other)


def test_a_promise_per_kilometre_has_two_names() -> None:
    assert gv.PerKilometre is gv.GeoIndistinguishability


def test_promises_in_plain_words() -> None:
    assert PER_KM.explain(0.2).startswith("Two places 200 m apart that the mechanism tells apart: ")
    assert "at most 1.5 times" in PER_KM.explain(0.2)  # 1.4918: rounded up
    assert "of 100 such reports from one, at least 67 " in PER_KM.explain(0.2)
    assert "2.5 km apart" in PER_KM.explain(2.5)
    assert "with certainty" in NEAR.explain(3.0)
    assert "e^200" in PER_KM.explain(100.0)
    assert str(PER_KM + LOCAL).startswith(f"{PER_KM.amount()} plus {LOCAL.amount()}: the losses ")
    for guarantee in (PER_KM, LOCAL, NEAR, SQUARE):
        assert "\n" not in guarantee.sentence()


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, "2", None, True])
def test_a_promise_must_be_a_number(wrong: object) -> None:
    for make in (
        gv.GeoIndistinguishability,
        gv.LocalDifferentialPrivacy,
        lambda e: gv.WithinRadius(1.0, e),
        lambda radius: gv.WithinRadius(radius, 1.0),
    ):
        with pytest.raises(InvalidInput):
            make(wrong)
    with pytest.raises(InvalidInput):
        PER_KM.explain(wrong)


@pytest.mark.parametrize("wrong", [-1.0, math.nan, "2"])
def test_what_rounding_adds_must_be_a_number(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="slack"):
        gv.BetweenPositions(2.0, wrong)  # type: ignore[arg-type]


def test_a_promise_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PER_KM.epsilon_per_km = 1.0  # type: ignore[misc]
    with pytest.raises(Unsupported, match="cannot be changed"):
        RESPONSE.guarantee = PER_KM


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gv.GeneralPrivacy(lambda d: -d), r"ℓ\(0.001 km\) = -0.001\) must not be negative"),
        (lambda: gv.GeneralPrivacy(lambda d: -step(9.0)(d)), r" = -1\) must not be negative"),
        (lambda: gv.GeneralPrivacy(lambda d: np.where(d > 9, np.nan, d)), "one number"),
        (lambda: gv.GeneralPrivacy(lambda d: np.zeros(7)), "one number"),
        (lambda: gv.GeneralPrivacy(3.0), r"function \(3.0\) must"),  # type: ignore[arg-type]
        (lambda: gv.DenseChannel(gv.Line(2), np.eye(2), guarantee="ε = 1"), "must be a guarantee"),  # type: ignore[arg-type]
        (
            lambda: gv.CircularNoise.of_rings([0, 1], [1 / np.pi], privacy=1.0),
            "must be a guarantee",
        ),  # type: ignore[arg-type]
        (lambda: gv.optimal_noise(privacy="ε = 1"), "must be a guarantee"),  # type: ignore[arg-type]
        (lambda: gv.optimal_mechanism(gv.Line(2), [0.5] * 2, privacy=2.0), "must be a guarantee"),  # type: ignore[arg-type]
        (lambda: gv.PerKilometre(1.0).implies("ε = 1"), "must be a guarantee"),  # type: ignore[arg-type]
        (lambda: report_within(RESPONSE, 0, radius_km=math.nan), r"radius_km \(nan\)"),
        (lambda: plant_island(gv.Line(2), [0.5] * 2, cell=0, radius_km=math.nan), "radius_km"),
    ],
)
def test_what_is_no_promise_is_refused(make, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


RESPONSE = gv.RandomizedResponse(gv.Line(2), epsilon=1.0)


def test_a_promise_of_a_channel_speaks_in_the_unit_of_its_space() -> None:
    line = gv.LinearGeometric(gv.Line(4), epsilon_per_unit=1.0)
    dense = gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]])
    for promise in (line.guarantee, dense.guarantee, 3 * line.guarantee):
        assert " per unit" in str(promise)
        assert " km" not in str(promise)
    several = line.guarantee + dense.guarantee + LOCAL
    assert " per unit" in str(several)
    assert " km" not in str(several)
    with pytest.raises(InvalidInput, match="one unit; these count in km and in unit"):
        line.guarantee + gv.PerKilometre(1.0)
    assert " per km" in str(RESPONSE.guarantee + gv.PerKilometre(1.0))  # of no distance: any unit
    assert line.guarantee.explain(2.0).startswith("Two places 2 units apart")
    assert line.guarantee == gv.PerKilometre(1.0)
    assert " per km" in str(
        gv.PlanarGeometric(gv.Grid(rows=2, columns=2, cell_km=1.0), epsilon_per_km=1.0).guarantee
    )
    assert " per unit" in str(pickle.loads(pickle.dumps(line)).guarantee)


def test_designs_are_shown_by_their_public_names() -> None:
    grid = gv.Grid.from_box(south=48.85, west=2.3, north=48.87, east=2.33, cell_km=1.0)
    for between, shown in (("cells", gv.Elastic), ("positions", gv.PositionalElastic)):
        design = gv.elastic(grid, epsilon_per_km=2.0, between=between)  # type: ignore[arg-type]
        assert type(design) is not shown
        assert repr(design).startswith(f"{shown.__name__}(Grid(")
    assert repr(gv.Exponential(grid, epsilon_per_km=1.0)).startswith("Exponential(Grid(")
    assert repr(gv.CircularNoise.of_rings([0.0, 1.0], [1 / np.pi])).startswith(
        "CircularNoise(1 piece,"
    )


@pytest.mark.parametrize(
    "promise",
    [
        gv.GeoIndistinguishability(1.0),
        gv.WithinRadius(radius_km=2.0, epsilon=1.0),
        gv.GeneralPrivacy(np.sqrt, "√d"),
        gv.LocalDifferentialPrivacy(1.0) + gv.GeoIndistinguishability(1.0),
        TablePrivacy(distances_km=(2.0,), losses=(1.0,)),
    ],
    ids=lambda promise: type(promise).__name__,
)
def test_a_promise_on_a_line_is_told_in_steps_of_the_line(promise: gv.Guarantee) -> None:
    blind = gv.DenseChannel(gv.Line(3), np.full((3, 1), 1.0), guarantee=promise)
    told = blind.guarantee
    assert told is not None
    assert "unit" in told.sentence()
    assert str(told) == told.sentence()
    for words in (told.sentence(), (told * 2).sentence(), (told + told).amount()):
        assert "km" not in words
    assert "unit" not in told.sentence("km")
    assert "km" in promise.sentence()
    assert "km" not in told.amount()


def test_costs_of_a_line_are_told_in_its_steps() -> None:
    line = gv.LinearGeometric(gv.Line(7), epsilon_per_unit=1.0)
    assert line.guarantee.amount() == "ε = 1 per unit"
    trip = gv.Trips(line).guarantee
    assert trip is not None
    assert trip.amount() == "ε = 2 per unit"
    assert promise_of_a_report(line.guarantee) == line.short_promise
    assert (
        spend_in_words(trip, 1) == "Every person has spent at most ε = 2 per unit, in one report."
    )
