"""The alarm stays quiet for honest people and finds fakes, in one cell or spread over many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.campaign.elastic_design import elastic
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.composed import DenseChannel
from geoveil.errors import InvalidInput, Unsupported
from geoveil.estimate import IterativeBayesianUpdate, Steps
from geoveil.estimate.fitted import Observations
from geoveil.mechanism import RandomizedResponse, Rappor
from geoveil.randomness import seeded
from geoveil.space.grid import Grid, Line
from geoveil.trips.trips import Trips
from geoveil.verify.alarm import (
    AlarmResult,
    PoisoningAlarm,
    _by_round,
    _Crowd,
    _Scores,
    _standardised,
    _steps,
)

GRID = Grid(rows=6, columns=6, cell_km=0.5)
UPDATE = IterativeBayesianUpdate()
QUICK = PoisoningAlarm(replicates=49)


@pytest.mark.parametrize("groups", [[], None, "ab", [1, 2], [(1, 2, 3)]])
def test_groups_are_pairs_and_at_least_one(groups: Any) -> None:
    with pytest.raises(InvalidInput, match="groups must be pairs of tallies and their estimate"):
        QUICK.check_groups(groups)


def test_no_replicates_tell_the_rarest_of_false_alarms() -> None:
    with pytest.raises(InvalidInput, match=r"replicates .* must be at least"):
        PoisoningAlarm(false_alarm=5e-324)


def town() -> np.ndarray:
    """Two crowds and quiet streets."""
    weights = sum(np.exp(-GRID.distances_from_km(cell) / 0.5) for cell in (8, 27)) + 0.01
    return weights / weights.sum()


@pytest.fixture(scope="module")
def mechanism() -> Channel:
    return elastic(GRID, town(), epsilon_per_km=3.0)


def counted(mechanism: Channel, seed: int, reports: int, fakes: int = 0, fake: int = 0) -> Tally:
    law = mechanism.push(town())
    counts = np.random.default_rng(seed).multinomial(reports - fakes, law / law.sum())
    counts[fake] += fakes
    return Tally(mechanism, counts)


# -- the statistic ---------------------------------------------------------------------------------


@given(st.integers(3, 8), st.integers(0, 2**32 - 1))
def test_every_data_set_is_judged_by_the_others(sets: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    expected = generator.gamma(3.0, 5.0, size=(sets, 2, 4))
    seen = generator.poisson(expected).astype(float)
    found = _standardised(seen, expected)
    surplus = 2 * np.sqrt(seen + 0.375) - 2 * np.sqrt(expected + 0.375)
    for one in range(sets):
        others = np.delete(surplus, one, axis=0)
        rare = 1 / (1 + expected[1:].mean(axis=0))
        spread = np.sqrt(others.var(axis=0) + rare)
        by_hand = (surplus[one] - others.mean(axis=0)) / spread
        np.testing.assert_allclose(found[one], by_hand, atol=1e-6)


def test_rounds_are_looked_at_together_and_one_by_one() -> None:
    values = np.arange(12.0).reshape(2, 6)
    assert _by_round(values, 1).shape == (2, 1, 6)
    together = _by_round(values, 2)
    assert together.shape == (2, 3, 3)
    np.testing.assert_array_equal(together[:, 0], values[:, :3] + values[:, 3:])
    np.testing.assert_array_equal(together[:, 2], values[:, 3:])


def test_the_p_value_is_a_rank(mechanism: Channel) -> None:
    tally = counted(mechanism, 3, 4_000)
    result = QUICK.check(tally, UPDATE.fit(tally))
    assert result.p_value * 50 == pytest.approx(round(result.p_value * 50))
    named = bool(result.suspicious.size)
    assert named == (result.p_value <= 0.02) == (result.statistic > result.threshold)
    assert result.raised == (named or result.overall_p_value <= 0.02)
    assert result.statistic == pytest.approx(result.excess.max())
    again = QUICK.check(tally, UPDATE.fit(tally))
    assert again.p_value == result.p_value


def test_what_is_clearly_chance_is_not_simulated_further(mechanism: Channel) -> None:
    """Where something looks odd all replicates are drawn, and the first of them stay the same."""
    tally = counted(mechanism, 3, 4_000)
    estimate = UPDATE.fit(tally)
    first, all_of_them = QUICK.check(tally, estimate), PoisoningAlarm().check(tally, estimate)
    assert min(first.p_value, first.overall_p_value) > 0.2
    assert first.replicates == all_of_them.replicates == 49
    poisoned = counted(mechanism, 3, 4_000, fakes=200, fake=5)
    odd = PoisoningAlarm().check(poisoned, UPDATE.fit(poisoned))
    assert (odd.raised, odd.replicates) == (True, 199)
    assert "of 199 simulated campaigns" in odd.summary()
    assert "of 49 simulated campaigns" in all_of_them.summary()


# -- power and false alarms ------------------------------------------------------------------------


@pytest.mark.statistical
def test_honest_people_raise_few_alarms(mechanism: Channel) -> None:
    """25 checks at 2 %: ten alarms or more have a probability of 3e-11 (binomial)."""
    raised = 0
    for seed in range(25):
        tally = counted(mechanism, seed, 5_000)
        raised += QUICK.check(tally, UPDATE.fit(tally)).raised
    assert raised < 10


@pytest.mark.statistical
def test_fakes_are_found_and_named(mechanism: Channel) -> None:
    """The power twin: 4 % fakes on quiet streets. At a power of 95 %, 12 of 25 misses: 1e-10."""
    hits = 0
    for seed in range(25):
        fake = (4, 10, 11, 24, 25)[seed % 5]
        tally = counted(mechanism, seed, 5_000, fakes=200, fake=fake)
        result = QUICK.check(tally, UPDATE.fit(tally))
        hits += result.raised and result.suspicious[0] == fake
    assert hits > 13


def test_fakes_spread_over_many_cells_are_an_alarm_as_a_whole(mechanism: Channel) -> None:
    """Every other cell, half a per cent of the reports each: no map of honest people is a chessboard."""
    board = np.flatnonzero(np.indices((6, 6)).sum(axis=0).ravel() % 2 == 0)
    fakes = np.bincount(np.repeat(board, 60), minlength=36)
    first = elastic(GRID, None, epsilon_per_km=3.0)
    found = []
    for seed in range(4):
        honest = [counted(first, seed, 10_000), counted(mechanism, seed + 50, 10_000)]
        spread = [tally + Tally(tally.channel, fakes) for tally in honest]
        found.append(QUICK.check(spread, UPDATE.fit(spread)).overall_p_value <= 0.02)
        assert QUICK.check(honest, UPDATE.fit(honest)).overall_p_value > 0.02
    assert sum(found) >= 3


def test_an_alarm_of_the_whole_names_nobody() -> None:
    none = np.zeros(0, dtype=np.int64)
    found = AlarmResult(
        True, 0.3, 2.0, 3.0, none, np.zeros(9), np.zeros(9), 0.01, 0.02, 99, 1
    )  # fmt: skip
    assert "no single report stands out" in found.summary()
    assert "none looks as odd or odder, p = 0.01" in found.summary()
    assert "Nobody is named" in found.summary()


def test_people_who_are_there_are_no_fakes(mechanism: Channel) -> None:
    """The same 400 newcomers, once through the mechanism and once around it."""
    honest = counted(mechanism, 1, 10_000)
    generator = np.random.default_rng(2)
    through = Tally(mechanism, generator.multinomial(400, mechanism.row(33)))
    around = Tally(mechanism, np.where(np.arange(36) == 33, 400, 0))
    quiet, loud = (
        QUICK.check(tally, UPDATE.fit(tally)) for tally in (honest + through, honest + around)
    )
    assert not quiet.raised
    assert quiet.suspicious.size == 0
    assert loud.raised
    assert loud.suspicious[0] == 33
    assert "No alarm" in quiet.summary()
    assert "report 33" in loud.summary()


def test_people_who_are_all_in_one_cell_are_no_fakes() -> None:
    """Rounds that look odd beside honest people of the estimated map, who are a little everywhere, and not
    beside people who are in that one cell. Where the map has more cells that matter nothing changes."""
    mechanism = RandomizedResponse(Line(20), epsilon=3.0)
    for seed in (0, 21, 33):
        counts = np.random.default_rng(seed).multinomial(1_000, mechanism.row(3))
        estimate = UPDATE.fit(tally := Tally(mechanism, counts))
        there = _Crowd.of(Observations(tally), estimate)
        odd, found = QUICK._compared([there]), QUICK.check(tally, estimate)
        assert odd.raised
        assert not found.raised
        assert found.suspicious.size == 0
        assert "No alarm" in found.summary()


def test_an_alarm_needs_both_honest_crowds() -> None:
    def found(p_value: float, overall: float, replicates: int = 199) -> AlarmResult:
        named = np.arange(2 if p_value <= 0.02 else 0)
        both = bool(named.size) or overall <= 0.02
        return AlarmResult(
            both, p_value, 3.0, 2.0, named, np.zeros(9), np.zeros(9), overall, 0.02, replicates, 1
        )

    named, overall, clear = found(0.01, 0.5), found(0.5, 0.01), found(0.6, 0.7, 49)
    assert named.unless(clear) is clear
    assert overall.unless(clear) is clear
    for one, other in ((named, overall), (overall, named)):
        mild = one.unless(other)
        assert (mild.raised, mild.p_value, mild.overall_p_value) == (False, 0.5, 0.5)
    again = named.unless(found(0.02, 0.3))
    assert (again.raised, again.p_value, again.overall_p_value) == (True, 0.02, 0.5)
    assert again.suspicious.tolist() == [0, 1]
    assert overall.unless(found(0.9, 0.015)).raised


def test_fakes_in_one_round_of_several(mechanism: Channel) -> None:
    first = elastic(GRID, None, epsilon_per_km=3.0)
    tallies = [
        counted(first, 1, 5_000),
        counted(mechanism, 2, 5_000),
        counted(mechanism, 3, 5_000, fakes=150, fake=24),
    ]
    result = QUICK.check(tallies, UPDATE.fit(tallies))
    assert result.raised
    assert result.suspicious[0] == 24
    honest = [*tallies[:2], counted(mechanism, 3, 5_000)]
    assert not QUICK.check(honest, UPDATE.fit(honest)).raised


# -- slots and trips -------------------------------------------------------------------------------


def test_fakes_in_one_slot_are_found_though_they_are_few_among_all(mechanism: Channel) -> None:
    """Hours of different people, one of them with fakes; one error rate for all hours and both tests."""
    hours = {f"{hour}:00": counted(mechanism, 70 + hour, 2_000) for hour in range(8)}
    away = mechanism.push(town()[::-1])
    hours["8:00"] = Tally(mechanism, np.random.default_rng(1).multinomial(2_000, away / away.sum()))
    pooled = UPDATE.fit(list(hours.values()))
    quiet = PoisoningAlarm().check_slots(hours, pooled)
    assert (quiet.raised, quiet.groups, quiet.false_alarm) == (False, (), 0.01)
    assert np.isfinite(quiet.threshold)
    hours["3:00"] += Tally(mechanism, np.bincount([24] * 90, minlength=36))
    together = sum(list(hours.values())[1:], start=hours["0:00"])
    pooled = UPDATE.fit(together)
    assert not QUICK.check(together, pooled).raised
    found = PoisoningAlarm().check_slots(hours, pooled)
    assert (found.raised, found.groups, found.suspicious.tolist()) == (True, ("3:00",), [24])
    assert found.summary().startswith("Alarm in 3:00: report 24 comes more often")
    nobody = Tally(mechanism, np.zeros(36, np.int64))
    later = PoisoningAlarm().check_slots({"9:00": nobody} | hours, pooled)
    assert (later.groups, later.p_value) == (found.groups, found.p_value)
    with pytest.raises(InvalidInput, match="slots must hold at least one report"):
        QUICK.check_slots({"9:00": [nobody]}, pooled)
    with pytest.raises(InvalidInput, match="at least 99"):
        QUICK.check_slots(hours, pooled)


def test_a_slot_that_is_odd_as_a_whole_is_named_too() -> None:
    """Scores of one group among others, of which none stands out by a single report."""
    generator = np.random.default_rng(5)
    groups = [_Scores.of(generator.normal(size=(200, 1, 50))) for _ in range(3)]
    groups[1].squares[0] += 60
    found = PoisoningAlarm(false_alarm=0.01)._judged(groups, np.zeros(50), 3)
    assert (found.raised, found.groups, found.suspicious.size) == (True, (1,), 0)
    alike = PoisoningAlarm()._judged([groups[1]._replace(squares=np.ones(200))], np.zeros(50), 1)
    assert alike.overall_p_value == 1.0


def test_trips_that_nobody_made() -> None:
    """A pair that honest trips could not be: at 1 % of the trips the ends by themselves look honest."""
    city = Grid(rows=7, columns=7, cell_km=1.0)
    trips = Trips(elastic(city, epsilon_per_km=1.5, between="cells"))
    generator = np.random.default_rng(2)
    begun = generator.choice(city.size, 2_000, p=generator.dirichlet(np.ones(city.size)))
    ended = np.where(generator.random(2_000) < 0.5, begun, generator.permutation(begun))
    honest = trips.tally(*trips.sample(begun, ended, randomness=seeded(1)))
    quiet = PoisoningAlarm().check_trips(honest)
    assert (quiet.raised, len(quiet.pairs)) == (False, 0)
    assert (
        "No pair of reports comes more often than any flows explain (p at most 1)"
        in quiet.summary()
    )
    found = PoisoningAlarm().check_trips(honest + trips.tally(np.full(20, 1), np.full(20, 45)))
    assert (found.raised, found.ends.raised, found.pairs.tolist()) == (True, False, [[1, 45]])
    assert "explain (p at most " in found.summary()
    assert "come reports of 1 → 45. " in found.summary()
    assert "The ends of the trips by themselves look honest" in found.summary()
    anywhere = trips.tally(np.full(300, 1), np.arange(300) % city.size)  # no pair, but an end
    ends = PoisoningAlarm().check_trips(honest + anywhere).ends
    assert (ends.raised, ends.groups) == (True, ("origins",))
    assert ends.summary().startswith("Alarm in origins: report 1 comes")


# -- wrong input -----------------------------------------------------------------------------------


def test_a_part_of_the_reports_of_a_large_map_takes_fewer_steps(
    mechanism: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tallies = [counted(mechanism, seed, 4_000) for seed in range(16)]
    estimate = IterativeBayesianUpdate(stop=Steps(80)).fit(tallies)
    newest, every = Observations(tallies[-1]), Observations(tallies)
    assert _steps(estimate, newest) == 80
    monkeypatch.setattr("geoveil.verify.alarm.MATRIX_LIMIT", GRID.size - 1)
    assert _steps(estimate, newest) == 10  # an eighth: 16^0.75
    assert _steps(estimate, every) == 80


def test_fewer_steps_raise_no_more_alarms_and_find_fakes(
    mechanism: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoveil.verify.alarm.MATRIX_LIMIT", GRID.size - 1)
    honest, poisoned = [], []
    for seed in range(25):
        before = [counted(mechanism, 100 * seed + number, 3_000) for number in range(1, 15)]
        for found, fakes in ((honest, 0), (poisoned, 150)):
            newest = counted(mechanism, seed, 3_000, fakes, fake=17)
            # a mechanism is one tally: the newest round alone is checked
            estimate = IterativeBayesianUpdate(stop=Steps(200)).fit([*before, newest])
            found.append(QUICK.check(newest, estimate).raised)
    assert sum(honest) <= 5  # seldom more where each of its two tests errs at 2 %
    assert sum(poisoned) >= 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"false_alarm": 0.0}, "false_alarm"),
        ({"replicates": 48}, "at least 49"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_parameters(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        PoisoningAlarm(**arguments)


def test_what_cannot_be_checked() -> None:
    rappor = Rappor(Line(3), epsilon=2.0)
    tally = rappor.tally(rappor.sample([0, 1, 2, 2]))
    estimate = IterativeBayesianUpdate(stop=Steps(3)).fit(tally)
    with pytest.raises(Unsupported, match="all reports"):
        QUICK.check(tally, estimate)
    uneven = [
        Tally(DenseChannel(Line(2), np.eye(2)), [3, 4]),
        Tally(DenseChannel(Line(2), np.full((2, 3), 1 / 3)), [1, 2, 3]),
    ]
    with pytest.raises(Unsupported, match="one by one"):
        QUICK.check(uneven, IterativeBayesianUpdate(stop=Steps(3)).fit(uneven))
    with pytest.raises(Unsupported, match="one by one"):
        QUICK.check_slots({8: uneven[0], 9: uneven[1]}, estimate)
    other = IterativeBayesianUpdate(stop=Steps(3)).fit(uneven[0])
    with pytest.raises(InvalidInput, match="same space"):
        QUICK.check(Tally(DenseChannel(Line(3), np.eye(3)), [1, 2, 3]), other)


@pytest.mark.parametrize(
    ("p_value", "replicates", "said"),
    [
        (1.0, 199, "of 199 simulated campaigns of honest people all look as odd or odder, p = 1"),
        (0.685, 199, "of 199 simulated campaigns of honest people 136 look as odd or odder, p = 0.685"),
        (0.01, 199, "of 199 simulated campaigns of honest people 1 looks as odd or odder, p = 0.01"),
        (1 / 200, 199, "of 199 simulated campaigns of honest people none looks as odd or odder, p = 0.005"),
        (1 / 50, 49, "of 49 simulated campaigns of honest people none looks as odd or odder, p = 0.02"),
    ],
)  # fmt: skip
def test_the_chance_is_said_as_it_was_counted(p_value: float, replicates: int, said: str) -> None:
    for reports in ([], [13], [13, 14], list(range(8))):
        numbers = np.array(reports, dtype=np.int64)
        found = AlarmResult(
            bool(reports),
            p_value,
            3.0,
            2.0,
            numbers,
            np.zeros(9),
            np.zeros(9),
            1.0,
            0.02,
            replicates,
            1,
        )
        assert said in found.summary()
        assert "in 1 " not in found.summary()
    assert "reports 0, 1, 2, 3, 4 and 3 more come more often" in found.summary()


def test_the_p_value_is_that_share_of_the_campaigns() -> None:
    mechanism = RandomizedResponse(Line(4), epsilon=1.0)
    found = QUICK.check(tally := Tally(mechanism, [70, 60, 40, 30]), UPDATE.fit(tally))
    share = found.p_value * 50
    assert share == pytest.approx(round(share))
    assert 2 < share < 50
    assert f"people {round(share) - 1} look as odd" in found.summary()


def test_a_map_stopped_early_is_not_blamed_on_people(mechanism: Channel) -> None:
    """Honest reports lie far from it: what is printed is about that map, and of no other."""
    honest = counted(mechanism, 3, 50_000)
    stopped = IterativeBayesianUpdate(stop=Steps(2)).fit(honest)
    found = QUICK.check(honest, stopped)
    assert found.raised
    assert "than the estimated map explains" in found.summary()
    assert not QUICK.check(honest, UPDATE.fit(honest)).raised
