"""What stands for cells is in their order; small products run on one thread of BLAS, which is put back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (its BLAS is there before threads are set)
from threadpoolctl import threadpool_info, threadpool_limits

import geoveil as gv
from geoveil.arrays import one_blas_thread
from geoveil.campaign.rules import PromiseRule
from geoveil.errors import InvalidInput
from geoveil.release import GroupedRelease, MergedPlaces
from geoveil.space import MaskedGrid
from geoveil.verify.guard import GuardedUpdate

CITY = gv.Grid.from_box(south=48.8, west=2.2, north=48.85, east=2.25, cell_km=2.0)
MECHANISM = gv.PlanarGeometric(CITY, epsilon_per_km=1.0)
PEOPLE = {"who": ["a"], "lat": [48.82], "lng": [2.22]}


def release(multiplier: float) -> gv.CountRelease:
    return gv.CountRelease(people=2, prior=[0.5, 0.5], multiplier=multiplier)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gv.GeoIndistinguishability(-0.5), r"epsilon_per_km \(-0.5\) must be at least 0"),
        (lambda: gv.Disc(gv.Line(3), epsilon=1.0, disc_radius_km=-1), "must be at least 0"),
        (lambda: PromiseRule(2.0, camouflage=1.5), r"camouflage \(1.5\) must lie in \[0, 1\]"),
        (
            lambda: gv.elastic(gv.Line(3), epsilon_per_km=1.0, camouflage=-0.1),
            r"must lie in \[0, 1\]",
        ),
        (
            lambda: gv.advise(gv.Line(3), [1.0] * 3, epsilon_per_km=1.0, people=2**70),
            r"people \(of 71 bits\) must be at most 9007199254740992",
        ),
        (
            lambda: gv.CountRelease(people=10**5000, prior=[0.5, 0.5], multiplier=1.0),
            r"people \(of 16610 bits\) must be at most",
        ),
        (
            lambda: gv.CountRelease(people=3, prior=[0.5] * 2, multiplier=1.0, timestamps=2**53),
            "timestamps .* must be at most 1048576",
        ),
        (
            lambda: gv.manipulation_gain(MECHANISM, [1.0] * CITY.size, reports=10**400),
            "reports .* must be at most",
        ),
        (lambda: gv.GeoIndistinguishability(-(10**5000)), "epsilon_per_km .* must be finite"),
    ],
)
def test_numbers_beyond_their_bounds_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_seed_may_have_as_many_bits_as_somebody_likes() -> None:
    assert gv.seeded(2**128).bytes(8) != gv.seeded(2**129).bytes(8)
    assert gv.CrossValidated(seed=2**128).seed == 2**128


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: gv.manipulation_gain(MECHANISM, [1.0] * CITY.size, regions=[]),
            "regions must be at least",
        ),
        (lambda: gv.leakage_curve(release, 1.0), r"multipliers \(1.0\) must be a list"),
        (lambda: gv.leakage_curve(release, iter([1.0])), "multipliers .* must be a list"),
        (
            lambda: gv.leakage_curve(release, comparators=None),
            r"comparators \(None\) must be a list",
        ),
        (
            lambda: gv.obfuscate(PEOPLE, MECHANISM, person="who", per_person=1, randomness=7),
            r"randomness \(7\) must be a source",
        ),
    ],
)
def test_what_is_no_list_and_no_source_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_exact_fractions_are_numbers_too() -> None:
    half = gv.elastic(CITY, epsilon_per_km=1.0, camouflage=0.5)
    exact = gv.elastic(CITY, epsilon_per_km=1.0, camouflage=Fraction(1, 2))
    assert np.array_equal(half.matrix(), exact.matrix())
    assert (
        type(gv.Campaign(CITY, epsilon_per_km=1.0, camouflage=Fraction(1, 2)).rule.camouflage)
        is float
    )
    estimate = gv.IterativeBayesianUpdate().fit(MECHANISM.tally([0, 0, 1]))
    low, high = estimate.interval(Fraction(19, 20))
    assert np.array_equal([low, high], estimate.interval(0.95))
    settings: Any = {"epsilon_per_km": 1.0, "spanner": Decimal("1.5")}
    assert gv.optimal_mechanism(gv.Line(3), [1.0] * 3, **settings).matrix().shape == (3, 3)


def threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_entries_nest() -> None:
    with threadpool_limits(limits=2, user_api="blas"):
        with one_blas_thread(), one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_whoever_is_last_to_leave_puts_back_what_there_was() -> None:
    """Threads that estimate side by side enter and leave in any order."""
    with threadpool_limits(limits=2, user_api="blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {2}


class _Watching(gv.DenseChannel):
    """A matrix that remembers with how many threads it was multiplied."""

    seen: set[int]

    def _push(self, theta: np.ndarray) -> np.ndarray:
        self.seen |= threads()
        return super()._push(theta)


@pytest.mark.parametrize(
    "work",
    [
        lambda channel: gv.IterativeBayesianUpdate().fit(channel.tally([0, 1, 2, 2])).interval(),
        lambda channel: gv.manipulation_gain(channel, [0.2, 0.3, 0.5], reports=1000, candidates=1),
        lambda channel: gv.audit(channel, draws=1000),
        lambda channel: GuardedUpdate().inspect([channel.tally([0, 1, 2, 2])]),
        lambda channel: gv.mutual_information_bits(channel, [0.2, 0.3, 0.5]),
        lambda channel: gv.adversary_error_km(channel, [0.2, 0.3, 0.5]),
    ],
)
def test_a_library_user_gets_one_thread(work) -> None:
    line = gv.Line(3)
    channel = _Watching(line, gv.RandomizedResponse(line, epsilon=1.0).matrix())
    channel.seen = set()
    with threadpool_limits(limits=2, user_api="blas"):
        work(channel)
        assert threads() == {2}
    assert channel.seen <= {1}


_FIRST = """
import sys
import geoveil as gv
from geoveil.campaign import weights
from threadpoolctl import threadpool_info

least, seen = weights._minimised, set()

def watched(loss, *others):
    def watching(x):
        seen.update(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        return loss(x)
    return least(watching, *others)

weights._minimised = watched
assert "scipy.linalg" not in sys.modules
gv.elastic(gv.Grid.from_box(south=45.7, west=4.7, north=45.8, east=4.9, cell_km=2.0), epsilon_per_km=1.0)
print(sorted(seen))
"""


def test_the_first_design_of_a_program_gets_one_thread_too() -> None:
    """SciPy brings a BLAS of its own, which is loaded in the midst of it."""
    threads = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", _FIRST]
    done = subprocess.run(command, env=threads, capture_output=True, text=True, check=True)
    assert done.stdout == "[1]\n"


def test_a_series_whose_labels_are_no_positions_is_refused_wherever_cells_are_meant() -> None:
    pandas = pytest.importorskip("pandas")
    grid = gv.Grid(rows=1, columns=3, cell_km=1.0)
    channel = gv.Exponential(grid, epsilon_per_km=1.0)
    places = gv.Points(lat=[48.85, 48.86, 48.87], lng=[2.3, 2.3, 2.3])
    people = pandas.Series([2, 3, 5])
    release = gv.CountRelease(people=10, prior=people / 10, multiplier=1.0)
    takers: list[Callable[[Any], Any]] = [
        lambda given: channel.push(given / 10),
        lambda given: gv.Tally(channel, given).counts,
        lambda given: gv.blahut_arimoto(grid, given, beta_per_km=1.0).prior,
        lambda given: gv.total_variation(given / 10, [0.2, 0.3, 0.5]),
        lambda given: gv.total_variation([0.2, 0.3, 0.5], given / 10),
        lambda given: release.sample(given, randomness=gv.seeded(1)),
        lambda given: gv.CountRelease(people=10, prior=given / 10, multiplier=1.0).leakage_bits,
        lambda given: GroupedRelease(people=10, prior=given / 10, multiplier=1.0, groups=5).epsilon,
        lambda given: gv.Remapped(channel, given % 3).map,
        MergedPlaces(((0,), (1, 2))).counts,
        MergedPlaces(((0,), (1, 2))).prior,
        lambda given: MaskedGrid(grid, given > 2).cells,
        lambda given: places.to_geojson({"people": given})["features"],
    ]
    for take in takers:
        assert np.array_equal(take(people), take(people.to_numpy()))
        for other in (people.sort_values(ascending=False), people.set_axis(["a", "b", "c"])):
            with pytest.raises(InvalidInput, match=r"the index 0, 1, 2, ….*\.to_numpy"):
                take(other)


@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_whose_labels_are_no_positions_is_refused(turned: bool) -> None:
    pandas = pytest.importorskip("pandas")
    values = gv.Exponential(gv.Line(3), epsilon_per_km=1.0).matrix()
    frame = pandas.DataFrame(values)
    assert np.array_equal(gv.DenseChannel(gv.Line(3), frame).matrix(), values)
    sorted_frame = frame.sort_index(axis=1 if turned else 0, ascending=False)
    with pytest.raises(InvalidInput, match="0, 1, 2, … and such columns"):
        gv.DenseChannel(gv.Line(3), sorted_frame)


def test_an_estimate_in_place_of_its_distribution_is_told_apart() -> None:
    tally = gv.RandomizedResponse(gv.Line(3), epsilon=1.0).tally([0, 1])
    estimate = gv.IterativeBayesianUpdate(stop=gv.Steps(1)).fit(tally)
    for take in (
        lambda: gv.elastic(gv.Line(3), estimate, epsilon_per_km=1.0),
        lambda: gv.total_variation(estimate, [1, 0, 0]),
        lambda: gv.IterativeBayesianUpdate(start=estimate).fit(tally),
    ):
        with pytest.raises(InvalidInput, match=r"numbers; use the \.distribution of the Estimate"):
            take()


def test_amounts_without_a_finite_sum_are_refused_without_a_warning() -> None:
    with pytest.raises(InvalidInput, match=r"prior \(sum inf\)"):
        gv.mean_distance_km(gv.RandomizedResponse(gv.Line(3), epsilon=1.0), np.full(3, 1e308))
