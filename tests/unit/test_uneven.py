"""People who do not stand evenly in their cells: the places of a cell, the choice and the bars."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.composed import AverageChannel, StackedChannel
from geoveil.channel.joint import JointChannel
from geoveil.estimate import (
    Bootstrap,
    CrossValidated,
    Estimate,
    FisherInformation,
    IterativeBayesianUpdate,
    Steps,
    uncertainty,
)
from geoveil.estimate.bars import DrawnErrors, GaussianErrors
from geoveil.estimate.fitted import Observations
from geoveil.estimate.uneven import PlacesOfAll
from geoveil.position.positional import PositionalElastic
from geoveil.verify.alarm import PoisoningAlarm

GRID = gv.Grid(rows=5, columns=6, cell_km=1.0)
CROWD = np.random.default_rng(3).dirichlet(np.full(GRID.size, 0.5))
PEOPLE = 40_000
FEW = 5_000
"""Of whom the map is found in a tenth of the steps."""


def law(epsilon_per_km: float = 2.0, camouflage: float = 0.0) -> PositionalElastic:
    made = gv.elastic(
        GRID, epsilon_per_km=epsilon_per_km, camouflage=camouflage, between="positions"
    )
    assert isinstance(made, PositionalElastic)
    return made


def places_of(mechanism: PositionalElastic) -> PlacesOfAll:
    tally = mechanism.tally(mechanism.sample(np.arange(GRID.size), randomness=gv.seeded(1)))
    found = PlacesOfAll.of(Observations(tally))
    assert found is not None
    return found


def people_at_one_place(seed: int, people: int = PEOPLE) -> tuple[IntArray, FloatArray]:
    """Cells drawn from the crowd; everybody in a cell at one place, anywhere in it."""
    generator = np.random.default_rng(seed)
    cells = generator.choice(GRID.size, people, p=CROWD)
    place = generator.random((GRID.size, 2)) - 0.5
    return cells, place[cells]


def many_at_one_place(seed: int, people: int = PEOPLE) -> tuple[IntArray, FloatArray]:
    """Four in ten people of a cell at one place in it, the others anywhere in it."""
    cells, place = people_at_one_place(seed, people)
    generator = np.random.default_rng(1000 + seed)
    anywhere = generator.random((people, 2)) - 0.5
    return cells, np.where(generator.random((people, 1)) < 0.4, place, anywhere)


def estimated(cells: IntArray, inside: FloatArray, seed: int, **asked: float) -> Estimate:
    mechanism = law(**asked)
    reports = mechanism.sample_at_km(GRID.centres[cells] + inside, randomness=gv.seeded(seed))
    return IterativeBayesianUpdate().fit(mechanism.tally(reports))


def shares(cells: IntArray) -> FloatArray:
    return np.bincount(cells, minlength=GRID.size) / cells.size


@pytest.mark.parametrize("camouflage", [0.0, 0.5])  # with a rim and without
def test_the_places_of_a_cell_make_its_row(camouflage: float) -> None:
    mechanism = law(camouflage=camouflage)
    places = places_of(mechanism)
    np.testing.assert_allclose(places.by_cell(places.share), 1.0)
    np.testing.assert_allclose(places.by_cell(places.spread(CROWD)), CROWD)
    np.testing.assert_allclose(places.operator.matrix().sum(axis=1), 1.0, rtol=1e-9)
    rows = places.operator.matrix() * places.share[:, None]
    np.testing.assert_allclose(places.by_cell(rows.T).T, mechanism.matrix(), rtol=1e-8)
    batch = np.stack([CROWD, CROWD[::-1]])
    np.testing.assert_allclose(
        places.operator.push(places.spread(batch)), mechanism.push(batch), rtol=1e-9
    )


def test_a_place_has_the_law_of_somebody_who_stands_there() -> None:
    mechanism = law()
    places = places_of(mechanism)
    number = 4 * GRID.size + 17 if places.cell.size > 5 * GRID.size else places.cell.size // 2
    at = GRID.centres[places.cell[number]] + places.offset[number] * GRID.cell_km
    drawn = mechanism.sample_at_km(np.tile(at, (60_000, 1)), randomness=gv.seeded(2))
    expected = 60_000 * places.operator.row(number)
    seen = np.bincount(drawn, minlength=mechanism.report_count)
    worst = np.abs(seen - expected) / np.sqrt(expected + 1.0)
    assert worst.max() < 5.0


def test_what_a_position_in_a_cell_changes_of_channels_put_together() -> None:
    """A report comes from one of several; several reports of one person tell their losses together."""
    one, other = law(0.5, 0.5), law(0.7, 0.5)
    losses, shares = [channel.loss_across_cell for channel in (one, other)], [0.5, 0.5]
    of_one = StackedChannel([one, other]), AverageChannel([one, other], shares)
    for channel in of_one:
        assert channel.loss_across_cell == max(losses)
        ends = [channel.columns_from(np.array([at, 0.0]), np.arange(30)) for at in (-0.5, 0.5)]
        assert np.abs(np.log(ends[0] / ends[1])).max() <= max(losses)
    assert JointChannel([one, other]).loss_across_cell == sum(losses)
    assert gv.Remapped(one, np.arange(30)[::-1]).loss_across_cell == losses[0]


def test_uneven_crowds_are_noticed_and_mapped_better_than_as_even_ones() -> None:
    cells, inside = people_at_one_place(seed=11)
    found = estimated(cells, inside, seed=12)
    assert found.stopped.endswith("people not taken to stand evenly in their cells")
    mechanism = law()
    reports = mechanism.sample_at_km(GRID.centres[cells] + inside, randomness=gv.seeded(12))
    as_even = IterativeBayesianUpdate(stop=gv.Steps(100)).fit(mechanism.tally(reports))
    wrong, even = (
        gv.total_variation(estimate.distribution, shares(cells)) for estimate in (found, as_even)
    )
    assert wrong < 0.9 * even


def test_as_many_steps_with_uneven_crowds_are_the_same_estimate() -> None:
    cells, inside = people_at_one_place(11, FEW)
    mechanism = law()
    reports = mechanism.sample_at_km(GRID.centres[cells] + inside, randomness=gv.seeded(12))
    tally = mechanism.tally(reports)
    found = IterativeBayesianUpdate().fit(tally)
    assert found.uneven
    for uneven in (True, False):
        stop = gv.Steps(found.steps, "as before", uneven)
        again = IterativeBayesianUpdate(stop=stop).fit(tally)
        same = np.allclose(again.distribution, found.distribution, atol=1e-12)
        assert (again.uneven, same) == (uneven, uneven)


def test_even_crowds_are_mapped_as_even_ones() -> None:
    """Where there are cells enough for held-out reports to tell."""
    grid, generator = gv.Grid(rows=12, columns=12, cell_km=1.0), np.random.default_rng(22)
    cells = generator.choice(grid.size, PEOPLE, p=generator.dirichlet(np.full(grid.size, 0.5)))
    mechanism = gv.elastic(grid, epsilon_per_km=4.0, camouflage=0.0, between="positions")
    assert isinstance(mechanism, PositionalElastic)
    places = grid.centres[cells] + generator.random((PEOPLE, 2)) - 0.5
    reports = mechanism.sample_at_km(places, randomness=gv.seeded(23))
    found = IterativeBayesianUpdate().fit(mechanism.tally(reports))
    assert "evenly" not in found.stopped


@pytest.mark.parametrize(("epsilon_per_km", "opened"), [(0.7, False), (0.8, True), (1.0, True)])
def test_where_reports_cannot_tell_people_are_not_taken_to_stand_evenly(
    epsilon_per_km: float, opened: bool
) -> None:
    """Where it matters to the map, and to the error bars of so many people."""
    cells, inside = people_at_one_place(seed=11)
    found = estimated(cells, inside, seed=12, epsilon_per_km=epsilon_per_km)
    assert ("evenly" in found.stopped) is opened
    assert ("evenly" in found.errors.method) is opened


def test_cells_that_are_small_for_their_promise_have_no_places() -> None:
    mechanism = law(epsilon_per_km=1.0)
    tally = mechanism.tally(mechanism.sample(np.arange(GRID.size), randomness=gv.seeded(1)))
    assert PlacesOfAll.of(Observations(tally)) is None
    assert "evenly" not in IterativeBayesianUpdate().fit(tally).errors.method
    between_cells = gv.PlanarGeometric(GRID, epsilon_per_km=4.0)
    tally = between_cells.tally(np.arange(GRID.size))
    assert PlacesOfAll.of(Observations(tally)) is None


@pytest.mark.parametrize(("epsilon_per_km", "said"), [(0.4, False), (1.0, True)])
def test_bars_of_several_reports_of_one_person_say_that_they_take_crowds_as_even(
    epsilon_per_km: float, said: bool
) -> None:
    mechanism = law(epsilon_per_km=epsilon_per_km)
    reports = np.arange(2 * GRID.size).reshape(-1, 2) % GRID.size
    joint = gv.JointTally((mechanism, mechanism), reports)
    found = FisherInformation().about(Observations(joint), CROWD)
    assert ("people taken to stand evenly in cells that are wide" in found.method) is said


@pytest.mark.parametrize(
    ("epsilon_per_km", "people", "said"), [(0.9, FEW, False), (0.9, PEOPLE, True), (2.0, 30, True)]
)
def test_a_bootstrap_says_that_it_draws_people_as_spread_evenly(
    epsilon_per_km: float, people: int, said: bool
) -> None:
    """Where cells are wide, or so many people show it."""
    cells, inside = people_at_one_place(seed=11, people=people)
    mechanism = law(epsilon_per_km=epsilon_per_km)
    places = GRID.centres[cells] + inside
    tally = mechanism.tally(mechanism.sample_at_km(places, randomness=gv.seeded(1)))
    update = IterativeBayesianUpdate(stop=Steps(5), uncertainty=Bootstrap(replicates=2))
    method = update.fit(tally).errors.method
    assert ("taken to stand evenly in cells that are wide" in method) is said


def test_a_wide_and_a_narrow_promise_share_their_places() -> None:
    mechanisms = law(), law(epsilon_per_km=0.5)
    tallies = [
        one.tally(one.sample(np.arange(GRID.size), randomness=gv.seeded(1))) for one in mechanisms
    ]
    places = PlacesOfAll.of(Observations(tallies))
    assert places is not None
    assert places.operator.shape[1] == sum(one.report_count for one in mechanisms)
    assert IterativeBayesianUpdate().fit(tallies).distribution.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("matrix_cells", [2_048, pytest.param(0, marks=pytest.mark.slow)])
def test_bars_hold_wherever_people_stand(
    matrix_cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst there is: everybody of a cell at one place in it. Bars that take people as spread evenly hold
    for far fewer cells."""
    held, held_as_even = [], []
    for seed in range(3):
        cells, inside = people_at_one_place(seed=100 + seed)
        with monkeypatch.context() as patch:
            patch.setattr(uncertainty, "MATRIX_CELLS", matrix_cells)
            found = estimated(cells, inside, seed=200 + seed)
            low, high = found.interval(0.95)
            assert "not taken to stand evenly" in found.errors.method
        held.append((low <= shares(cells)) & (shares(cells) <= high))
        if matrix_cells:
            with monkeypatch.context() as patch:
                patch.setattr(
                    uncertainty.PlacesOfAll, "of", lambda observations, across=3, shows=1.0: None
                )
                low, high = estimated(cells, inside, seed=200 + seed).interval(0.95)
            held_as_even.append((low <= shares(cells)) & (shares(cells) <= high))
    assert np.mean(held) >= 0.75
    if matrix_cells:
        assert np.mean(held_as_even) < np.mean(held) - 0.2


def test_bars_of_very_many_people_hold_at_small_cells_too() -> None:
    """Expected counts at ε·cell = 1, everybody of a cell at one place in it: all that is left is what the
    place moves, which does not shrink with more people. Of bars that take people as spread evenly four in
    ten hold."""
    mechanism = law(epsilon_per_km=1.0)
    once = gv.Tally(mechanism, np.ones(mechanism.report_count, int))
    places = PlacesOfAll.of(Observations(once), shows=0.0)
    assert places is not None
    generator, crowds = np.random.default_rng(5), np.zeros((3, places.cell.size))
    for cell, share in enumerate(CROWD):
        crowds[np.arange(3), generator.choice(np.flatnonzero(places.cell == cell), 3)] = share
    held = []
    for law_of_reports in places.operator.push(crowds):
        tally = gv.Tally(mechanism, np.rint(4e5 * law_of_reports).astype(int))
        errors = FisherInformation().about(Observations(tally), CROWD)
        assert "not taken to stand evenly" in errors.method
        held.append(np.abs(errors.centre - CROWD) <= 1.96 * errors.standard_error())
    assert np.mean(held) >= 0.85


def test_the_draws_of_many_cells_agree_with_the_matrix_of_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells, inside = people_at_one_place(31, FEW)
    exact = estimated(cells, inside, seed=32)
    assert isinstance(exact.errors, GaussianErrors)  # made now, by the matrix
    monkeypatch.setattr(uncertainty, "MATRIX_CELLS", 0)
    drawn = estimated(cells, inside, seed=32)
    assert "90 unknowns are more than the 0" in drawn.errors.method
    assert isinstance(drawn.errors, DrawnErrors)
    # without what a poll does not know either, which is the same for both
    spread = np.sqrt(np.square(drawn.errors.draws).mean(axis=0))
    ratio = spread / np.sqrt(exact.errors.covariance.diagonal())
    assert 0.8 < np.median(ratio) < 1.25
    np.testing.assert_allclose(
        drawn.errors.centre, exact.errors.centre, atol=3.0 * float(exact.standard_error.max())
    )


def test_the_search_for_both_is_told_once_and_never_falls() -> None:
    told: list[float] = []
    mechanism = law()
    tally = mechanism.tally(
        mechanism.sample(np.tile(np.arange(GRID.size), 20), randomness=gv.seeded(5))
    )
    IterativeBayesianUpdate(progress=lambda done, of: told.append(done / of)).fit(tally)
    assert told[-1] == 1.0
    assert told == sorted(told)


def test_a_bootstrap_repeats_what_was_estimated() -> None:
    cells, inside = people_at_one_place(11, FEW)
    mechanism = law()
    reports = mechanism.sample_at_km(GRID.centres[cells] + inside, randomness=gv.seeded(12))
    update = IterativeBayesianUpdate(uncertainty=gv.Bootstrap(replicates=2))
    found = update.fit(mechanism.tally(reports))
    assert found.standard_error.shape == (GRID.size,)
    assert np.isfinite(found.standard_error).all()


def test_real_crowds_are_held_and_even_ones_too() -> None:
    """Four people in ten stand at one place of their cell, the others anywhere: 95 % means 95 %."""
    held = []
    for seed in range(3):
        cells, inside = many_at_one_place(seed=50 + seed)
        low, high = estimated(cells, inside, seed=60 + seed).interval(0.95)
        held.append((low <= shares(cells)) & (shares(cells) <= high))
    assert np.mean(held) >= 0.93


def test_what_is_left_out_predicts_which_is_better() -> None:
    cells, inside = people_at_one_place(seed=11)
    mechanism = law()
    tally = mechanism.tally(
        mechanism.sample_at_km(GRID.centres[cells] + inside, randomness=gv.seeded(12))
    )
    places = PlacesOfAll.of(Observations(tally))
    assert places is not None
    first = np.full(GRID.size, 1.0 / GRID.size)
    even = CrossValidated().found(mechanism, tally.counts, first, None)
    free = CrossValidated().found(places.operator, tally.counts, places.spread(first), None)
    assert free.held_out > even.held_out + 3.0
    assert FisherInformation().seed == 0


def test_the_alarm_takes_uneven_crowds_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, inside = many_at_one_place(seed=11)
    mechanism = law(epsilon_per_km=4.0)
    tally = mechanism.tally(
        mechanism.sample_at_km(GRID.centres[cells] + inside, randomness=gv.seeded(12))
    )
    estimate = IterativeBayesianUpdate().fit(tally)
    assert not PoisoningAlarm().check(tally, estimate).raised
    monkeypatch.setattr(PlacesOfAll, "of", lambda observations, across=3, shows=1.0: None)
    assert PoisoningAlarm().check(tally, IterativeBayesianUpdate().fit(tally)).raised


@pytest.mark.parametrize(("people", "opened"), [(30_000, False), (3_000_000, True)])
def test_the_alarm_leaves_open_where_very_many_people_stand(
    people: int, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At ε·cell = 0.5 too: of so many, honest ones raised it, even those who stood evenly."""
    mechanism, unknowns, compared = law(epsilon_per_km=0.5), [], PoisoningAlarm._compared

    def noted(alarm: PoisoningAlarm, crowds: Any) -> Any:
        unknowns.append(crowds[0].model.size)
        return compared(alarm, crowds)

    monkeypatch.setattr(PoisoningAlarm, "_compared", noted)
    tally = gv.Tally(mechanism, np.rint(people * mechanism.push(CROWD)).astype(int))
    estimate = IterativeBayesianUpdate(stop=gv.Steps(5)).fit(tally)
    PoisoningAlarm(replicates=49).check(tally, estimate)
    assert (unknowns[0] > GRID.size) is opened


def test_uneven_crowds_of_listed_cells_are_held_and_no_fakes() -> None:
    """Hexagons are such cells. Taken as spread evenly, six in ten are held, and the alarm is raised."""
    space = gv.Points(xy_km=GRID.centres, cell_km=1.0)
    mechanism = gv.elastic(space, epsilon_per_km=3.0, camouflage=0.0, between="positions")
    assert isinstance(mechanism, PositionalElastic)
    cells, inside = many_at_one_place(1, 20_000)
    places_km = space.centres[cells] + 0.9 * inside
    tally = mechanism.tally(mechanism.sample_at_km(places_km, randomness=gv.seeded(1)))
    found = IterativeBayesianUpdate().fit(tally)
    assert "evenly" not in found.stopped
    low, high = found.interval(0.95)
    assert ((low <= shares(cells)) & (shares(cells) <= high)).mean() >= 0.9
    assert not PoisoningAlarm().check(tally, found).raised
    seven = mechanism.places(3)
    assert seven is not None
    laws = (seven.matrix() * seven.share[:, None]).reshape(7, space.size, -1).sum(axis=0)
    np.testing.assert_allclose(laws, mechanism.matrix(), atol=0.02)
    at_places = gv.Points(xy_km=GRID.centres)
    at = gv.elastic(at_places, epsilon_per_km=3.0, camouflage=0.0, between="positions")
    assert at.places(3) is None


def test_the_alarm_still_names_a_cell_that_fakes_send() -> None:
    cells, inside = many_at_one_place(11, FEW)
    mechanism = law()
    people = mechanism.sample_at_km(GRID.centres[cells] + inside, randomness=gv.seeded(12))
    lonely = int(np.argmin(CROWD))
    tally = mechanism.tally(np.concatenate((people, np.full(FEW // 20, lonely))))
    found = PoisoningAlarm().check(tally, IterativeBayesianUpdate().fit(tally))
    assert found.raised
    assert lonely in found.suspicious


@pytest.mark.parametrize("wide", [0.5, 1.0])
@pytest.mark.parametrize("seeds", [(0, 1, 12), pytest.param(range(8), marks=pytest.mark.slow)])
def test_a_crowd_in_one_cell_raises_no_alarm(wide: float, seeds: Sequence[int]) -> None:
    """Seven in ten people in the middle of a cell, or all over it, at ε·cell = 3, in honest rounds.

    The last of the first three raises it, all over the cell, where the alarm takes only the steps of the map.
    """
    grid = gv.Grid(rows=7, columns=8, cell_km=1.0)
    mechanism = gv.elastic(grid, epsilon_per_km=3.0, camouflage=0.5, between="positions")
    assert isinstance(mechanism, PositionalElastic)
    raised = []
    for seed in seeds:
        generator = np.random.default_rng(seed)
        cells = np.where(generator.random(4000) < 0.7, 7, generator.integers(grid.size, size=4000))
        inside = (generator.random((4000, 2)) - 0.5) * np.where(cells == 7, wide, 1.0)[:, None]
        reports = mechanism.sample_at_km(grid.centres[cells] + inside, randomness=gv.seeded(seed))
        tally = mechanism.tally(reports)
        raised.append(PoisoningAlarm().check(tally, IterativeBayesianUpdate().fit(tally)).raised)
    assert not any(raised)


def test_an_estimate_lets_go_of_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many rounds of a large map they take hundreds of megabytes; a bootstrap makes them again."""
    made, of = [], PlacesOfAll.of

    def noted(*given: Any, **asked: Any) -> PlacesOfAll | None:
        places = of(*given, **asked)
        assert places is not None
        made.append(weakref.ref(places))
        return places

    monkeypatch.setattr(PlacesOfAll, "of", noted)
    mechanism = law()
    cells, inside = people_at_one_place(4)
    places_km = GRID.centres[cells] + inside
    tally = mechanism.tally(mechanism.sample_at_km(places_km, randomness=gv.seeded(4)))
    stop = gv.Steps(30, uneven=True)
    update = IterativeBayesianUpdate(stop=stop, uncertainty=gv.Bootstrap(replicates=20))
    estimate = update.fit(tally)
    gc.collect()
    assert [place() for place in made] == [None]
    centre = estimate.errors.centre
    assert len(made) == 2  # once for all replicates
    carried_on = IterativeBayesianUpdate(stop=gv.Steps(120, uneven=True)).fit(tally)
    assert np.allclose(centre, carried_on.distribution)
