"""Steps over rounds that are alike: the same map as with all rounds at every step, for less."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.channel.channel import Tally
from geoveil.channel.guarantee import BetweenPositions
from geoveil.channel.operator import Operator, StackedOperator
from geoveil.estimate import CrossValidated, IterativeBayesianUpdate, Steps
from geoveil.estimate import objective as objectives
from geoveil.estimate.em import maximise
from geoveil.estimate.fitted import Observations
from geoveil.estimate.objective import (
    Objective,
    em_path,
    em_point,
    point_after,
    pooled,
    shared_path,
)
from geoveil.position.positional import PositionalElastic
from geoveil.position.whole_law import WholeLaw

GRID = gv.Grid(rows=12, columns=12, cell_km=1.0)
CROWD = np.random.default_rng(3).dirichlet(np.full(GRID.size, 0.3))
ROUNDS = 8
STEPS = 80


def law(weights: FloatArray, beta_per_km: float = 0.8, grid: gv.Grid = GRID) -> PositionalElastic:
    """A law between positions with these weights; what it promises is not looked at here."""
    whole = np.rint(1e5 * weights / weights.max()).astype(np.int64)
    shape = PositionalElastic(grid, beta_per_km=beta_per_km, weights=whole, step=250)
    made = WholeLaw(shape.centres, whole, shape.cone)
    promise = BetweenPositions(1.0, 0.01)
    return PositionalElastic.of_law(grid, made, step=250, rim=0, promise=promise)


def rounds_of(apart: float) -> list[Tally]:
    """Rounds whose weights are so far apart, with slopes of their own."""
    generator = np.random.default_rng(5)
    tallies = []
    for slope in np.linspace(0.8, 0.8 - 0.1 * apart, ROUNDS):
        weights = np.exp(apart * generator.standard_normal(GRID.size))
        channel = law(weights, float(slope))
        said = np.maximum(channel.push(CROWD), 0.0)
        tallies.append(Tally(channel, generator.multinomial(2_000, said / said.sum())))
    return tallies


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were more cells, and all of one promise."""
    monkeypatch.setattr(objectives, "QUICK_ENTRIES", 0)
    monkeypatch.setattr(PositionalElastic, "alike", "one promise")


def observed(apart: float) -> tuple[Observations, FloatArray, FloatArray]:
    """Rounds, their counts, and the start of an ascent."""
    observations = Observations(rounds_of(apart))
    return observations, observations.counts.astype(float), np.full(GRID.size, 1 / GRID.size)


def far(first: FloatArray, second: FloatArray) -> float:
    return float(np.abs(first - second).sum() / 2)


@pytest.mark.parametrize(("apart", "most"), [(0.02, 1e-5), (0.5, 1e-3)])
def test_the_map_is_that_of_all_rounds_at_every_step(
    alike: None, apart: float, most: float
) -> None:
    observations, counts, start = observed(apart)
    objective = Objective(observations.operator, counts)
    plain = [point.theta for point in islice(em_path(objective, start), STEPS + 1)]
    few = pooled(observations.operator, counts)
    upto = takewhile(lambda each: each[0] <= STEPS, shared_path(objective, few, start, STEPS))
    shared = dict(upto)
    assert STEPS in shared
    assert len(shared) < STEPS / 2
    assert max(far(point.theta, plain[step]) for step, point in shared.items()) < most
    assert far(plain[-1], plain[STEPS // 2]) > 10 * most  # there was a way to go


def test_a_newest_round_of_one_report_leads_nowhere_else(alike: None) -> None:
    """Steps between are those of the round with the most reports: under that of one report they go astray."""
    weights = np.exp(2.0 * np.random.default_rng(6).standard_normal(GRID.size))
    one_report = Tally(law(weights), np.eye(1, GRID.size, dtype=np.int64)[0])
    observations = Observations([*rounds_of(0.1), one_report])
    counts, start = observations.counts.astype(float), np.full(GRID.size, 1 / GRID.size)
    plain = em_point(Objective(observations.operator, counts), start, STEPS)
    shared = point_after(observations.operator, counts, start, STEPS)
    assert 0.0 < far(shared.theta, plain.theta) < 3e-5


def test_points_that_come_out_are_those_of_all_rounds(alike: None) -> None:
    observations, counts, start = observed(0.5)
    objective = Objective(observations.operator, counts)
    few = pooled(observations.operator, counts)
    for _, point in islice(shared_path(objective, few, start), 25):
        again = objective.at(point.theta)
        assert np.array_equal(again.law, point.law)
        assert np.array_equal(again.gradient, point.gradient)


def test_a_fixed_number_of_steps_is_made_for_less(alike: None) -> None:
    observations, counts, start = observed(0.1)
    shared = maximise(observations.operator, counts, start=start, stop=Steps(STEPS))
    assert shared.steps == STEPS
    assert shared.stopped == f"after {STEPS} steps, as asked, rounds that are alike sharing steps"
    few = maximise(observations.operator, counts, start=start, stop=Steps(10))
    assert few.stopped == "after 10 steps, as asked"  # none of them was shared
    objective = Objective(observations.operator, counts)
    plain = next(islice(em_path(objective, start), STEPS, None))
    assert shared.log_likelihood == pytest.approx(float(plain.log_likelihood), abs=1e-6)
    assert shared.certificate == pytest.approx(float(plain.certificate), rel=1e-2)
    assert len(shared.trace.certificate) < STEPS / 2


def test_rounds_that_are_not_alike_after_all_are_all_looked_at(alike: None) -> None:
    """Called alike, they move the factor at every step, and every step is one of all rounds."""
    generator = np.random.default_rng(1)
    slopes = (0.3, 3.0, 0.3, 3.0)
    weights = [generator.uniform(0.2, 1.0, GRID.size) for _ in slopes]
    laws = [law(each, slope) for each, slope in zip(weights, slopes, strict=True)]
    tallies = [Tally(each, np.rint(1e5 * each.push(CROWD)).astype(int)) for each in laws]
    observations = Observations(tallies)
    counts, start = observations.counts.astype(float), np.full(GRID.size, 1 / GRID.size)
    few = pooled(observations.operator, counts)
    assert few is not None
    objective = Objective(observations.operator, counts)
    steps = [step for step, _ in islice(shared_path(objective, few, start), 25)]
    assert steps == list(range(25))


def test_cross_validation_chooses_as_with_every_step(
    alike: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    observations, counts, start = observed(0.3)
    rule = CrossValidated(folds=3, repeats=1)
    shared = rule.found(observations.operator, counts, start, None)
    monkeypatch.setattr(PositionalElastic, "alike", None)
    plain = rule.found(observations.operator, counts, start, None)
    assert shared.rule.number == pytest.approx(plain.rule.number, rel=0.2)
    assert shared.held_out == pytest.approx(plain.held_out, abs=0.5)


def test_few_rounds_and_small_maps_take_every_step() -> None:
    observations, counts, _ = observed(0.1)
    assert pooled(observations.operator, counts) is None  # 144 cells, eight rounds
    assert pooled(observations.tallies[0].channel, counts[: GRID.size]) is None
    estimate = IterativeBayesianUpdate(CrossValidated(repeats=1)).fit(observations.tallies[:1])
    assert "sharing steps" not in estimate.stopped


def shared(parts: Sequence[Operator]) -> bool:
    operator = StackedOperator(parts)
    return pooled(operator, np.ones(operator.shape[1])) is not None


def test_rounds_of_one_promise_are_alike_and_share_steps_unless_these_are_quick() -> None:
    generator = np.random.default_rng(2)
    slopes = np.linspace(0.8, 0.7, 12)
    laws = [law(generator.uniform(0.5, 1.0, GRID.size), float(slope)) for slope in slopes]
    assert {each.alike for each in laws} == {"1 per km between positions"}
    places = [place for each in laws if (place := each.places(2))]
    assert {place.alike for place in places} == {laws[0].alike}
    assert not shared(laws)  # 144 × 12 · 144 < 2¹⁸
    assert shared([*laws, laws[0]])
    assert shared(places[:4])  # 4 · 144 × 4 · 144
    assert not shared(places[:3])


def test_what_is_made_after_some_steps_is_what_every_step_leads_to(alike: None) -> None:
    observations, counts, start = observed(0.1)
    both = np.stack([counts, counts[::-1]])
    starts = np.tile(start, (2, 1))
    shared = point_after(observations.operator, both, starts, STEPS)
    plain = em_point(Objective(observations.operator, both), starts, STEPS)
    assert far(shared.theta[0], plain.theta[0]) < 1e-4
    assert far(shared.theta[1], plain.theta[1]) < 1e-4
