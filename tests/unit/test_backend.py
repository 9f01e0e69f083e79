"""Products, EM and Blahut–Arimoto on arrays of another library: here the strict one of the standard."""

from __future__ import annotations

import itertools
import pickle
import sys

import array_api_strict as strict
import numpy as np
import pytest

import geoveil as gv
from geoveil.channel import operator
from geoveil.channel.backend import backend_named, backend_of, host_array
from geoveil.channel.kernel import PartialKernel
from geoveil.channel.operator import DenseOperator, StackedOperator
from geoveil.errors import InvalidInput, MissingExtra, TooLarge, Unsupported
from geoveil.estimate.em import Squarem
from geoveil.mechanism import elastic
from geoveil.mechanism.elastic import exponential_kernel
from geoveil.position.centres import Centres
from geoveil.position.cone import RoundedCone
from geoveil.position.spread import SpreadKernel, layers_of
from geoveil.space import MaskedGrid
from geoveil.space.space import Space

GRID = gv.Grid(rows=24, columns=31, cell_km=0.5)  # above the size where matrices are used
MAP = gv.Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=0.5)
PLACES = gv.Points(lat=[48.83, 48.84, 48.85, 48.86], lng=[2.29, 2.33, 2.31, 2.38])


def crowd(size: int, seed: int = 3) -> np.ndarray:
    values = np.random.default_rng(seed).gamma(0.5, size=size)
    return values / values.sum()


def lonely() -> gv.Elastic:
    """All weight in one corner, so that most cells are far from any."""
    return gv.Elastic(GRID, beta_per_km=6.0, weights=np.eye(1, GRID.size)[0] + 1e-30)


def positional(space: Space) -> gv.PositionalElastic:
    """As a design makes one, which would take longer than all products."""
    weights = 1 + np.rint(1e7 * crowd(space.size)).astype(np.int64)
    return gv.PositionalElastic(space, beta_per_km=0.7, weights=weights, step=126)


def stacked() -> StackedOperator:
    both = gv.PlanarGeometric(GRID, epsilon_per_km=1.0), gv.RandomizedResponse(GRID, epsilon=1.0)
    return StackedOperator(both, [0.25, 0.75])


def many() -> SpreadKernel:
    """More cells than 4,096, and a kernel that falls faster than they reach."""
    centres = Centres.of_grid(66, 70, step=10, pitch_km=0.1, rim=1)
    return SpreadKernel(centres, RoundedCone(3.0, 0.87), layers_of(centres, 2))


OPERATORS = {
    "exponential": lambda: gv.Exponential(GRID, epsilon_per_km=2.0),
    "elastic": lambda: gv.Elastic(GRID, beta_per_km=1.0, weights=crowd(GRID.size)),
    "remote": lonely,
    "geometric": lambda: gv.PlanarGeometric(GRID, epsilon_per_km=1.0),
    "wide": lambda: gv.PlanarGeometric(GRID, epsilon_per_km=0.1),
    "laplace": lambda: gv.PlanarLaplace(GRID, epsilon_per_km=1.0),
    "row": lambda: gv.PlanarGeometric(
        gv.Grid(rows=1, columns=700, cell_km=1.0), epsilon_per_km=1.0
    ),
    "line": lambda: gv.LinearGeometric(gv.Line(80), epsilon_per_unit=0.5),
    "k-RR": lambda: gv.RandomizedResponse(GRID, epsilon=2.0),
    "positions": lambda: positional(MAP),
    "places": lambda: positional(MAP).places(2),
    "mask": lambda: PartialKernel(exponential_kernel(GRID, 1.0), np.arange(0, GRID.size, 3)),
    "city": lambda: positional(MaskedGrid(MAP, np.arange(MAP.size) % 7 != 3)),
    "listed": lambda: gv.elastic(PLACES, epsilon_per_km=1.0),
    "many": many,
    "matrix": lambda: DenseOperator(np.random.default_rng(1).random((5, 7))),
    "stacked": stacked,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_products_of_other_arrays_are_those_of_numpy(name):
    made = OPERATORS[name]()
    rows, columns = made.shape
    draws = np.random.default_rng(7)
    products = ((rows, made.push), (columns, made.pull))
    for problems, (size, product) in itertools.product(((), (3,)), products):
        given = draws.gamma(0.5, size=(*problems, size))
        found = product(strict.asarray(given))
        assert type(found) is type(strict.asarray(given))
        there, here = host_array(found), product(given)
        assert np.abs(there - here).max() <= 1e-9 * here.max()
        assert (np.abs(there - here) <= 1e-9 * here + 1e-15 * here.max()).all()


def test_small_values_are_exact_there_too():
    steep = gv.Exponential(GRID, epsilon_per_km=8.0)
    corner = np.zeros(GRID.size)
    corner[0] = 1.0
    here, there = steep.push(corner), host_array(steep.push(strict.asarray(corner)))
    assert here.min() < 1e-30
    assert np.allclose(there, here, rtol=1e-9, atol=0.0)


def test_an_ascent_goes_the_same_way_there():
    mechanism = gv.PlanarGeometric(GRID, epsilon_per_km=1.0)
    tally = mechanism.tally(
        mechanism.sample(np.arange(GRID.size).repeat(3), randomness=gv.seeded(5))
    )
    even = np.full(GRID.size, 1 / GRID.size)
    for stop in (gv.CrossValidated(repeats=1, maximum=40), gv.Steps(12)):
        here = gv.IterativeBayesianUpdate(stop=stop).fit(tally)
        there = gv.IterativeBayesianUpdate(stop=stop, start=strict.asarray(even)).fit(tally)
        assert there.steps == here.steps
        assert there.stopped == here.stopped
        assert isinstance(there.distribution, np.ndarray)
        assert (
            np.abs(there.distribution - here.distribution).max() <= 1e-9 * here.distribution.max()
        )
        assert abs(there.certificate - here.certificate) <= 1e-9
    fast = {"stop": gv.CertifiedWithin(0.05), "accelerate": Squarem()}
    here = gv.IterativeBayesianUpdate(**fast).fit(tally)
    there = gv.IterativeBayesianUpdate(start=strict.asarray(even), **fast).fit(tally)
    assert there.certificate <= 0.05
    assert np.abs(there.distribution - here.distribution).max() <= 1e-6


def test_reports_that_are_nearly_impossible_are_summed_exactly_there():
    mechanism = gv.Exponential(GRID, epsilon_per_km=12.0)
    counts = np.zeros(GRID.size)
    counts[[0, 1, GRID.size - 1]] = 40, 5, 1
    start = np.full(GRID.size, 1e-14)
    start[0] = 1 - start[1:].sum()
    stop = gv.Steps(3)
    tally = gv.Tally(mechanism, counts.astype(int))
    here = gv.IterativeBayesianUpdate(stop=stop, start=start).fit(tally)
    there = gv.IterativeBayesianUpdate(stop=stop, start=strict.asarray(start)).fit(tally)
    assert np.allclose(there.distribution, here.distribution, rtol=1e-9, atol=1e-18)


def test_slots_and_positions_are_fitted_there():
    mechanism = positional(MAP)
    people = np.random.default_rng(2).choice(MAP.size, 4000, p=crowd(MAP.size))
    tally = mechanism.tally(mechanism.sample(people, randomness=gv.seeded(1)))
    even = np.full(MAP.size, 1 / MAP.size)
    here = gv.IterativeBayesianUpdate().fit(tally)
    there = gv.IterativeBayesianUpdate(start=strict.asarray(even)).fit(tally)
    assert there.stopped == here.stopped
    assert np.abs(there.distribution - here.distribution).max() <= 1e-9 * here.distribution.max()
    slots = {8: tally, 9: tally}
    maps = gv.IterativeBayesianUpdate(stop=gv.Steps(4)).fit_slots(slots)
    moved = gv.IterativeBayesianUpdate(stop=gv.Steps(4), start=strict.asarray(even)).fit_slots(
        slots
    )
    assert np.abs(moved[8].distribution - maps[8].distribution).max() <= 1e-9


def test_blahut_arimoto_runs_where_the_prior_is():
    prior = crowd(GRID.size)
    told = []
    here = gv.blahut_arimoto(GRID, prior, beta_per_km=1.0)
    there = gv.blahut_arimoto(
        GRID,
        strict.asarray(prior),
        beta_per_km=1.0,
        progress=lambda done, of: told.append(done / of),
    )
    assert np.abs(there.weights - here.weights).max() <= 1e-9 * here.weights.max()
    assert np.isclose(there.ascent.certificate, here.ascent.certificate, rtol=1e-9)
    assert told[-1] == 1.0


def test_what_was_moved_is_not_pickled():
    mechanism = gv.Exponential(GRID, epsilon_per_km=2.0)
    mechanism.push(strict.asarray(crowd(GRID.size)))
    copy = pickle.loads(pickle.dumps(mechanism))
    assert not hasattr(copy, "_moved")
    assert np.array_equal(copy.push(crowd(GRID.size)), mechanism.push(crowd(GRID.size)))


def test_wrong_arrays_get_one_clear_line(monkeypatch):
    mechanism = gv.Exponential(GRID, epsilon_per_km=2.0)
    with pytest.raises(InvalidInput, match=r"theta \(shape \(3,\)\) must have 744 entries"):
        mechanism.push(strict.ones(3))
    with pytest.raises(InvalidInput, match="values must hold finite numbers only"):
        mechanism.pull(strict.full(GRID.size, strict.nan))
    monkeypatch.setattr(elastic, "_CACHED_TERMS", 1000)
    with pytest.raises(TooLarge, match="use arrays of NumPy"):
        lonely().push(strict.ones(GRID.size))
    monkeypatch.setattr(operator, "EXACT_ENTRIES", 1000)
    remapped = gv.Remapped(mechanism, np.zeros(GRID.size, dtype=int))
    with pytest.raises(Unsupported, match="must be smaller to be multiplied on another device"):
        remapped.push(strict.ones(GRID.size))


def test_no_card_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    mechanism = gv.Exponential(GRID, epsilon_per_km=2.0)
    with pytest.raises(
        Unsupported, match=r"device \('cuda'\) must be a graphics card .* leave device out"
    ):
        gv.IterativeBayesianUpdate(device="cuda").fit(gv.Tally(mechanism, [1] * GRID.size))
    with pytest.raises(Unsupported, match="graphics card"):
        gv.blahut_arimoto(GRID, crowd(GRID.size), beta_per_km=1.0, device="cuda:3")
    for wrong in ("gpu", "cuda:x", "", 0):
        with pytest.raises((InvalidInput, Unsupported), match="must be"):
            backend_named(wrong)


def test_other_arrays_need_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(MissingExtra, match=r"array-api-compat; install geoveil\[gpu\]"):
        backend_of(strict.ones(3))
    for plain in (np.ones(3), [1.0], 3.0, None, "text"):
        assert backend_of(plain) is None
