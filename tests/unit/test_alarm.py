"""The alarm stays quiet for honest people and finds fakes; the guard takes them out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.campaign.elastic_design import elastic
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.composed import DenseChannel
from geoveil.channel.operator import DenseOperator
from geoveil.errors import InvalidInput, Unsupported
from geoveil.estimate import IterativeBayesianUpdate, Steps
from geoveil.mechanism import RandomizedResponse, Rappor
from geoveil.space.grid import Grid
from geoveil.space.line import Line
from geoveil.verify.alarm import (
    AlarmResult,
    GuardedUpdate,
    PoisoningAlarm,
    WithFakes,
    _by_round,
    _standardised,
    estimated_fakes,
)

GRID = Grid(rows=6, columns=6, cell_km=0.5)
UPDATE = IterativeBayesianUpdate()
QUICK = PoisoningAlarm(replicates=49)


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
        by_hand = (surplus[one] - others.mean(axis=0)) / np.sqrt(others.var(axis=0) + rare)
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
    assert result.raised == (result.p_value <= 0.02) == (result.statistic > result.threshold)
    assert result.statistic == pytest.approx(result.excess.max())
    again = QUICK.check(tally, UPDATE.fit(tally))
    assert again.p_value == result.p_value


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


# -- the guard -------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_likelihood_with_fakes_is_a_matrix_with_more_rows(seed: int) -> None:
    generator = np.random.default_rng(seed)
    honest = DenseOperator(generator.random((3, 5)))
    scale, sources = generator.random(5), np.array([1, 4])
    operator = WithFakes(honest, scale, sources)
    matrix = np.vstack((honest.matrix() * scale, np.eye(5)[sources]))
    theta, values = generator.random((2, 5)), generator.random((2, 5))
    np.testing.assert_allclose(operator.push(theta), theta @ matrix)
    np.testing.assert_allclose(operator.pull(values), values @ matrix.T)
    np.testing.assert_allclose(operator.columns(np.arange(5)), matrix)


def test_the_guard_takes_out_the_fakes(mechanism: Channel) -> None:
    tally = counted(mechanism, 4, 20_000, fakes=400, fake=25)
    guarded = GuardedUpdate(QUICK).inspect(tally)
    assert np.flatnonzero(guarded.fakes).tolist() == [25]
    assert abs(guarded.fakes[25] - 400) < 60
    plain = UPDATE.fit(tally).distribution
    kept = guarded.estimate.distribution
    assert abs(kept[25] - town()[25]) < 0.2 * abs(plain[25] - town()[25])
    assert np.abs(kept - town()).sum() < np.abs(plain - town()).sum()
    assert "took out" in guarded.summary()


def test_the_guard_looks_at_each_round(mechanism: Channel) -> None:
    first = elastic(GRID, None, epsilon_per_km=3.0)
    tallies = [counted(first, 1, 8_000), counted(mechanism, 2, 12_000, fakes=300, fake=25)]
    clean, poisoned = (fakes[25] for fakes in estimated_fakes(tallies, [(0, 25), (1, 25)]))
    assert clean < 100
    assert abs(poisoned - 300) < 100


def test_without_an_alarm_the_guard_is_the_plain_update(mechanism: Channel) -> None:
    tally = counted(mechanism, 5, 5_000)
    guarded = GuardedUpdate(QUICK).inspect(tally)
    assert not guarded.alarms[0].raised
    assert guarded.fakes.sum() == 0
    np.testing.assert_array_equal(guarded.estimate.distribution, UPDATE.fit(tally).distribution)
    assert "nothing" in guarded.summary()


def test_a_guard_that_only_looks_takes_nothing_out(mechanism: Channel) -> None:
    tally = counted(mechanism, 4, 20_000, fakes=400, fake=25)
    looked = GuardedUpdate(QUICK, most=0).inspect(tally)
    assert [alarm.raised for alarm in looked.alarms] == [True]
    assert looked.fakes.sum() == 0
    np.testing.assert_array_equal(looked.estimate.distribution, UPDATE.fit(tally).distribution)


def test_known_suspects_go_before_the_alarm_is_asked(mechanism: Channel) -> None:
    tally = counted(mechanism, 4, 20_000, fakes=400, fake=25)
    found = GuardedUpdate(QUICK).inspect(tally)
    again = GuardedUpdate(QUICK).inspect(tally, suspects=[(mechanism, 25)])
    assert [alarm.raised for alarm in again.alarms] == [False]
    np.testing.assert_array_equal(again.fakes, found.fakes)
    (left,) = again.left
    np.testing.assert_array_equal(left.counts, tally.counts - found.fakes)
    with pytest.raises(InvalidInput, match="suspects"):
        GuardedUpdate(QUICK).inspect(tally, suspects=[(mechanism, GRID.size)])


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_nothing_but_fakes_is_an_alarm_and_an_estimate(mechanism: Channel, kinds: int) -> None:
    """Where all would go, the guard gives up: the alarm stays, and so do the reports."""
    tally = mechanism.tally(np.repeat([25, 3, 10][:kinds], 200))
    guarded = GuardedUpdate(QUICK).inspect(tally)
    assert guarded.alarms[0].raised
    assert guarded.estimate.total >= 1
    known = GuardedUpdate(QUICK).inspect(tally, suspects=[(mechanism, 25)])
    assert known.estimate.total >= 1


def test_every_round_keeps_what_it_must(mechanism: Channel) -> None:
    tally = counted(mechanism, 5, 460, fakes=400, fake=25)
    free, kept = (GuardedUpdate(QUICK, least=least).inspect(tally) for least in (1, 100))
    assert free.estimate.total < 100 <= kept.estimate.total
    assert kept.alarms[-1].raised
    assert "still does not fit" in kept.summary() or "took nothing out" in kept.summary()


def test_suspecting_honest_people_hardly_costs_them(mechanism: Channel) -> None:
    tally = counted(mechanism, 5, 20_000)
    crowd = int(np.argmax(town()))
    plain, suspected = (
        GuardedUpdate(QUICK, most=0).inspect(tally, suspects=suspects)
        for suspects in ([], [(mechanism, crowd)])
    )
    assert suspected.fakes.sum() < 0.25 * tally.counts[crowd]
    lost = plain.estimate.distribution[crowd] - suspected.estimate.distribution[crowd]
    assert lost < 0.5 * town()[crowd]


# -- wrong input -----------------------------------------------------------------------------------


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
            bool(reports), p_value, 3.0, 2.0, numbers, np.zeros(9), np.zeros(9), 0.02, replicates, 1
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
