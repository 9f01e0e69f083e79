"""The ledger of one person."""

import pytest

import geoveil as gv
from geoveil.errors import InvalidInput, RandomnessFailed

GRID = gv.Grid(rows=4, columns=4, cell_km=0.5)
MECHANISM = gv.PlanarGeometric(GRID, epsilon_per_km=2.0)


def test_costs_add_until_the_limit():
    budget = gv.Budget(limit_per_km=5.0)
    budget.report(MECHANISM, 1)
    budget.report(MECHANISM, 2)
    with pytest.raises(gv.BudgetSpent) as refusal:
        budget.report(MECHANISM, 3)
    assert (refusal.value.asked_per_km, refusal.value.left_per_km) == (2.0, 1.0)
    assert budget.spent_per_km == 4.0
    assert budget.guarantee == gv.GeoIndistinguishability(4.0)
    assert "2 reports" in budget.summary()


def test_the_same_question_gets_the_same_answer_for_nothing():
    budget = gv.Budget(limit_per_km=2.0)
    answers = {budget.report(MECHANISM, 5) for _ in range(50)}
    assert len(answers) == 1
    assert budget.spent_per_km == 2.0


def test_another_mechanism_is_another_question():
    budget = gv.Budget(limit_per_km=10.0)
    budget.report(MECHANISM, 5)
    budget.report(gv.PlanarGeometric(GRID, epsilon_per_km=1.0), 5)
    assert budget.spent_per_km == 3.0


def test_the_charge_comes_before_the_draw():
    budget = gv.Budget(limit_per_km=3.0)

    def fails(cell):
        raise RandomnessFailed("no bits")

    with pytest.raises(RandomnessFailed):
        budget.report(MECHANISM, 5, draw=fails)
    assert budget.spent_per_km == 2.0


def test_promises_without_distance_are_refused():
    with pytest.raises(InvalidInput, match="per km"):
        gv.Budget(limit_per_km=3.0).report(gv.RandomizedResponse(GRID, epsilon=1.0), 2)
