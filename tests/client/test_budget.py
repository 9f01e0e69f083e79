"""The ledger of one person."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import geoveil as gv
from geoveil.channel.words import NEARBY_KM, between_places, explain_together
from geoveil.client.budget import Limits, Spent
from geoveil.errors import InvalidInput, OutsideSpace, RandomnessFailed

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


def test_the_summary_is_about_people_where_every_mechanism_is_known():
    budget = gv.Budget(limit_per_km=9.0)
    budget.report(MECHANISM, 1)
    assert budget.summary().endswith(explain_together([MECHANISM], NEARBY_KM))
    before = gv.Budget(limit_per_km=9.0, spent_per_km=1.0)
    before.report(MECHANISM, 1)
    together = gv.GeoIndistinguishability(3.0)
    assert before.summary().endswith(between_places(together, NEARBY_KM, reports=1))


def test_a_budget_counts_in_one_unit_and_says_which():
    line = gv.LinearGeometric(gv.Line(7), epsilon_per_unit=1.0)
    budget = gv.Budget(limit_per_km=2.5)
    budget.report(line, 3)
    assert budget.summary().startswith("1 report so far, together ε = 1 per unit; 1.5 of 2.5 left")
    with pytest.raises(InvalidInput, match="counts ε per unit; a mechanism that counts per km"):
        budget.report(MECHANISM, 1)
    assert (budget.spent_per_km, len(budget.charges)) == (1.0, 1)
    budget.report(line, 4)
    with pytest.raises(gv.BudgetSpent, match=r"ε 1 per unit\) .* \(0.5 per unit\)"):
        budget.report(line, 5)
    for started in (gv.Budget(limit_per_km=9.0, spent_per_km=1.0), gv.Budget(limit_per_km=9.0)):
        if not started.spent_per_km:
            started.report(MECHANISM, 1)
        with pytest.raises(InvalidInput, match="counts ε per km; a mechanism that counts per unit"):
            started.report(line, 3)


def test_each_limit_of_a_device_holds_by_itself():
    used = {"lifetime": 6.0, "day": 1.0, "year": 3.0}
    spent = Spent(
        3,
        lifetime=gv.BetweenPositions(used["lifetime"], 0.01),
        day=gv.GeoIndistinguishability(used["day"]),
        year=gv.GeoIndistinguishability(used["year"]),
        operator=gv.BetweenPositions(1.0, 0.01),
        ahead=False,
        cells=False,
    )
    wide = Limits(lifetime_per_km=9.0, day_per_km=9.0, year_per_km=9.0)
    assert wide.broken_by(spent, 3.0, 0.0) is None
    assert Limits(lifetime_per_km=9.0).broken_by(spent, 3.0, 0.0) is None
    for which, cost in used.items():
        exactly = replace(wide, **{f"{which}_per_km": cost + 1.0})
        assert exactly.broken_by(spent, 1.0, 0.0) is None
        assert exactly.broken_by(spent, 1.0 + 1e-9, 0.0) == which
    for limits, most in ((wide, 10.0), (Limits(12.0), 12.0), (Limits(9.0, slack_nats=0.5), 0.5)):
        assert limits.broken_by(spent, 1.0, most - 0.01) is None
        assert limits.broken_by(spent, 1.0, most - 0.01 + 1e-9) == "slack"
    assert (
        wide.left_in_words(spent) == "3 of 9 per km are left (today 8 of 9; within 365 days 6 of 9)"
    )
    assert Limits(9.0).left_in_words(spent) == "3 of 9 per km are left"


def test_the_cells_asked_about_are_not_shown():
    budget = gv.Budget(limit_per_km=5.0)
    budget.report(MECHANISM, 13)
    assert "answers" not in repr(budget)
    assert "guarantee" not in repr(budget)
    assert "13" not in repr(budget)


def test_a_ledger_does_not_drift():
    budget = gv.Budget(limit_per_km=1.0, spent_per_km=0.1)
    mechanism = gv.PlanarGeometric(GRID, epsilon_per_km=0.1)
    for cell in range(9):
        assert budget.left_per_km == (9 - cell) / 10
        budget.report(mechanism, cell)
    assert (budget.spent_per_km, budget.left_per_km) == (1.0, 0.0)
    assert budget.guarantee == 10 * mechanism.guarantee == gv.GeoIndistinguishability(1.0)
    with pytest.raises(gv.BudgetSpent):
        budget.charge("one more", 1e-9)
    assert budget.spent_per_km == 1.0


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


class Boastful(gv.DenseChannel):
    """Somebody's own channel, which promises what its law does not keep."""

    def _promise(self):
        return gv.GeoIndistinguishability(0.1)


@pytest.mark.parametrize(
    "boastful",
    [
        Boastful(GRID, MECHANISM.matrix()),
        gv.Remapped(Boastful(GRID, MECHANISM.matrix()), range(16)),
    ],
    ids=repr,
)
def test_a_promise_that_is_not_kept_is_not_believed(boastful):
    budget = gv.Budget(limit_per_km=3.0)
    with pytest.raises(InvalidInput, match="must not be smaller than the loss"):
        budget.report(boastful, 2)
    assert budget.spent_per_km == 0.0
    assert budget.answers == {}


def test_a_matrix_is_charged_what_it_loses():
    budget = gv.Budget(limit_per_km=3.0)
    budget.report(gv.DenseChannel(GRID, MECHANISM.matrix()), 2)
    assert budget.spent_per_km == pytest.approx(2.0, rel=1e-9)


def test_a_place_outside_costs_nothing():
    budget = gv.Budget(limit_per_km=5.0)
    with pytest.raises(OutsideSpace):
        budget.report(MECHANISM, 99)
    assert budget.spent_per_km == 0.0


def test_what_was_spent_is_not_negative():
    with pytest.raises(InvalidInput, match="spent_per_km"):
        gv.Budget(limit_per_km=5.0, spent_per_km=-1.0)


def test_answers_outlive_the_process_that_gave_them():
    """Salted hashes differ from process to process; mechanisms do not."""
    budget = gv.Budget(limit_per_km=5.0)
    answer = budget.report(MECHANISM, 5)
    kept = pickle.loads(pickle.dumps(budget))
    same = gv.PlanarGeometric(gv.Grid(rows=4, columns=4, cell_km=0.5), epsilon_per_km=2.0)
    assert {kept.report(same, 5) for _ in range(20)} == {answer}
    assert kept.spent_per_km == 2.0


def test_what_a_budget_shows_of_itself_holds_no_answer():
    """Answers are where somebody was said to be; they stand in no log."""
    budget = gv.Budget(limit_per_km=5.0)
    budget.report(MECHANISM, 1)
    assert repr(budget).startswith("Budget(limit_per_km=5.0, spent_per_km=2.0, charges=[(")
    assert "answers" not in repr(budget)
    assert "guarantee" not in repr(budget)


def test_no_report_is_spoken_of_as_one():
    """As what a first one would tell; after two, of both."""
    empty = gv.Budget(limit_per_km=9.0, spent_per_km=1.0)
    told = between_places(gv.GeoIndistinguishability(1.0), NEARBY_KM, reports=1)
    assert empty.summary().endswith(told)
    empty.charge("one", 1.0)
    empty.charge("two", 1.0)
    told = between_places(gv.GeoIndistinguishability(3.0), NEARBY_KM, reports=2)
    assert empty.summary().endswith(told)


def test_threads_share_one_budget_and_one_memory():
    budget, numbers = gv.Budget(limit_per_km=2.0), iter(range(8))

    def slow(cell: int) -> int:
        time.sleep(0.02)
        return next(numbers)

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: budget.report(MECHANISM, 3, draw=slow), range(4)))
    assert answers == [0, 0, 0, 0]
    assert budget.spent_per_km == 2.0
