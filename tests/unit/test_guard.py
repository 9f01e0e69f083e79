"""The guard takes out what no map of honest people explains, and says how many fakes there may be."""

from __future__ import annotations

import numpy as np
import pytest

from geoveil.campaign.elastic_design import elastic
from geoveil.campaign.rounds import Closing, Round
from geoveil.channel.channel import Channel, Tally
from geoveil.errors import InvalidInput
from geoveil.estimate import IterativeBayesianUpdate, Steps
from geoveil.estimate import fakes as fakes_module
from geoveil.randomness import seeded
from geoveil.space.grid import Grid
from geoveil.verify import guard as guard_module
from geoveil.verify.alarm import PoisoningAlarm
from geoveil.verify.guard import Guarded, GuardedUpdate, Suspicion, cells_and_blocks

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


@pytest.fixture(scope="module")
def opening() -> Channel:
    return elastic(GRID, None, epsilon_per_km=3.0)


@pytest.fixture(scope="module")
def one_kind(mechanism: Channel) -> tuple[Tally, Guarded]:
    """Fakes of one kind in one round, and what the guard finds."""
    tally = counted(mechanism, 4, 20_000, at25=400)
    return tally, GuardedUpdate(QUICK).inspect(tally)


@pytest.fixture(scope="module")
def four_kinds(mechanism: Channel, opening: Channel) -> tuple[list[Tally], Guarded]:
    """Fakes of four kinds in two rounds, and what the guard finds."""
    sent = {"at4": 500, "at11": 500, "at25": 500, "at30": 500}
    tallies = [counted(opening, 1, 20_000, **sent), counted(mechanism, 2, 20_000, **sent)]
    return tallies, GuardedUpdate(QUICK).inspect(tallies)


def counted(mechanism: Channel, seed: int, reports: int, **fakes: int) -> Tally:
    """Honest reports, and fakes among them: ``at25=400``."""
    law = mechanism.push(town())
    sent = {int(name[2:]): number for name, number in fakes.items()}
    counts = np.random.default_rng(seed).multinomial(reports - sum(sent.values()), law / law.sum())
    for fake, number in sent.items():
        counts[fake] += number
    return Tally(mechanism, counts)


def test_the_guard_takes_out_the_sure_fakes(one_kind: tuple[Tally, Guarded]) -> None:
    tally, guarded = one_kind
    assert guarded.named == (25,)
    fewest, most = guarded.fake_range
    assert 200 < fewest <= 400 <= most < 500
    assert guarded.fakes[25] == guarded.fakes.sum() == fewest
    plain, kept = UPDATE.fit(tally).distribution, guarded.estimate.distribution
    assert abs(kept[25] - town()[25]) < 0.7 * abs(plain[25] - town()[25])
    assert np.abs(kept - town()).sum() < np.abs(plain - town()).sum()
    (left,), (at_least,) = guarded.left, guarded.left_at_least
    assert (tally.total - left.total, tally.total - at_least.total) == (fewest, most)
    said = guarded.summary()
    assert f"at least {fewest} and at most {most} are fake" in said
    assert f"took out {fewest}" in said
    assert "fits a map of honest people" in said


def test_a_crowd_that_is_baited_keeps_its_people(mechanism: Channel, opening: Channel) -> None:
    """Fakes sent to the largest crowd, to be found there: fewer are taken out than were sent."""
    crowd = int(np.argmax(town()))
    tallies = [
        counted(each, number, 20_000, **{f"at{crowd}": 1_500})
        for number, each in enumerate((opening, mechanism))
    ]
    guarded = GuardedUpdate(QUICK).inspect(tallies)
    fewest, most = guarded.fake_range
    assert fewest <= 3_450
    assert most >= 2_500


def test_several_kinds_are_named_and_fitted_together(
    four_kinds: tuple[list[Tally], Guarded],
) -> None:
    _, guarded = four_kinds
    assert set(guarded.named) == {4, 11, 25, 30}
    fewest, most = guarded.fake_range
    assert 3_000 < fewest <= 4_000 <= most < 5_000
    assert [taken.sum() > 600 for taken in guarded.taken] == [True, True]


def test_the_next_report_need_not_stand_out_as_far_as_the_first(
    mechanism: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all that are named a share of 2 % is named by chance, however many there are."""
    first, eighth = (guard_module._standing_out_from(1, 0.02 * k / GRID.size) for k in (1, 8))
    between = (first + eighth) / 2
    assert eighth + 3 < first
    tally = counted(mechanism, 4, 20_000, at25=400)

    def named_with(others: list[int]) -> tuple[int, ...]:
        out = np.zeros(GRID.size)
        out[others], out[17] = 100.0, between
        monkeypatch.setattr(guard_module.MapAndFakes, "standing_out", lambda self: out)
        return GuardedUpdate(QUICK, passes=1).inspect(tally).named

    assert named_with([]) == (25,)
    assert set(named_with([4, 11, 30, 2, 33, 9])) == {25, 4, 11, 30, 2, 33, 9, 17}


def test_where_more_stand_out_than_may_be_named_nothing_is_taken(
    four_kinds: tuple[list[Tally], Guarded],
) -> None:
    """Those that are left would weigh more without the others."""
    tallies, _ = four_kinds
    guarded = GuardedUpdate(QUICK, most=2).inspect(tallies)
    assert len(guarded.named) == 2
    fewest, most = guarded.fake_range
    assert fewest == 0
    assert most > 1_500
    assert "took nothing out: more than 2 reports stand out" in guarded.summary()
    plain = UPDATE.fit(tallies).distribution
    np.testing.assert_array_equal(guarded.estimate.distribution, plain)


def test_no_place_moves_farther_than_is_sure(
    four_kinds: tuple[list[Tally], Guarded],
) -> None:
    """Fakes may be where nobody named any: taking others out must not make these weigh more."""
    tallies, guarded = four_kinds
    plain, found = UPDATE.fit(tallies), guarded.estimate
    free = IterativeBayesianUpdate(stop=Steps(plain.steps)).fit(guarded.left)
    regions = np.zeros((72, 36))
    for number, region in enumerate(cells_and_blocks(GRID)):
        regions[number, region] = 1.0
    assert sorted({int(size) for size in regions.sum(axis=1)}) == [1, 4, 6, 9]
    before, after, freely = (regions @ each.distribution for each in (plain, found, free))
    low, high = free.errors.interval(1 - 0.05 / 72, regions)  # wide enough for all places at once
    may = 0.1 * guarded.fake_range[0] / 40_000
    least = np.minimum(before - may, high)
    most = np.maximum(before + may, np.maximum(low, (before - np.maximum(freely, least)).max()))
    assert (freely > most + 1e-6).any()  # or it would show nothing
    assert (freely < least - 1e-6).any()
    assert (after <= most + 1e-9).all()
    assert (after >= least - 1e-9).all()
    assert "no place moved farther than is sure" in found.stopped
    assert np.abs(found.distribution - town()).sum() < np.abs(plain.distribution - town()).sum()


def test_bars_hold_what_all_reports_say_where_several_are_named(
    mechanism: Channel, opening: Channel, four_kinds: tuple[list[Tally], Guarded]
) -> None:
    """What is sure of several is sure of their sum; any one of them may be honest people's."""
    one = [counted(opening, 1, 20_000, at25=500), counted(mechanism, 2, 20_000, at25=500)]
    for kinds, (tallies, guarded) in (
        (1, (one, GuardedUpdate(QUICK).inspect(one))),
        (4, four_kinds),
    ):
        assert len(guarded.named) == kinds
        rounds = tuple(Round(n, (tally,)) for n, tally in enumerate(tallies, start=1))
        low, high = Closing(rounds, guarded.estimate, guarded).error_bars()[0].interval(0.95)
        plain = Closing(rounds, UPDATE.fit(tallies)).error_bars()[0].interval(0.95)
        held = (low <= plain[0] + 1e-12) & (plain[1] <= high + 1e-12)
        unsure = [cell for cell in range(GRID.size) if kinds > 1 or cell != 25]
        assert held[unsure].all()
        assert held[25] == (kinds > 1)
        assert low[25] <= town()[25] <= high[25]


@pytest.mark.parametrize("as_even", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_uneven_crowd_is_no_fakes_where_cells_are_wide(
    as_even: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fakes are sure at one cell, and everybody else stands at one place in their cell."""
    if as_even:  # people taken as standing evenly
        monkeypatch.setattr(fakes_module, "honest_operator", lambda given: given.operator)
    wide = Grid(rows=4, columns=4, cell_km=1.0)
    generator = np.random.default_rng(3)
    crowd = generator.dirichlet(np.full(wide.size, 0.5))
    cells = generator.choice(wide.size, 40_000, p=crowd)
    at_km = wide.centres[cells] + generator.random((wide.size, 2))[cells] - 0.5
    quiet, tallies = int(np.argmin(crowd)), []
    for seed, prior in enumerate((None, crowd)):
        mechanism = elastic(wide, prior, epsilon_per_km=2.0, between="positions")
        reports = mechanism.sample_at_km(at_km, randomness=seeded(seed))
        tallies.append(mechanism.tally(np.append(reports, np.full(1_000, quiet))))
    guarded = GuardedUpdate(QUICK).inspect(tallies)
    fewest, most = guarded.fake_range
    if as_even:
        assert fewest > 2_200
        return
    assert guarded.named[0] == quiet
    assert 1_000 < fewest <= 2_000 <= most
    assert guarded.estimate.uneven


def test_fakes_of_one_round_stay_fakes_of_that_round(mechanism: Channel, opening: Channel) -> None:
    tallies = [counted(opening, 1, 8_000), counted(mechanism, 2, 12_000, at25=300)]
    guarded = GuardedUpdate(QUICK).inspect(tallies)
    clean, poisoned = (int(taken[25]) for taken in guarded.taken)
    assert clean < 40
    assert 150 < poisoned <= 310


def test_without_an_alarm_the_guard_is_the_plain_update(mechanism: Channel) -> None:
    tally = counted(mechanism, 5, 5_000)
    guarded = GuardedUpdate(QUICK).inspect(tally)
    assert not guarded.alarms[0].raised
    assert (guarded.fake_range, guarded.named, guarded.suspicions) == ((0, 0), (), [])
    np.testing.assert_array_equal(guarded.estimate.distribution, UPDATE.fit(tally).distribution)
    assert guarded.summary().endswith("The guard took nothing out.")


def test_where_honest_people_explain_it_nothing_is_taken_and_that_is_said(
    mechanism: Channel,
) -> None:
    """A false alarm: a report that happens to stand out, and no more than honest people explain."""

    class Mistaken(PoisoningAlarm):
        def check(self, tallies, estimate):  # type: ignore[no-untyped-def]
            from dataclasses import replace

            found = super().check(tallies, estimate)
            worst = int(np.argmin(found.excess))
            excess = np.where(np.arange(36) == worst, 99.0, -99.0)
            return replace(
                found, raised=True, suspicious=np.array([worst]), excess=excess, threshold=98.0,
            )  # fmt: skip

    tally = counted(mechanism, 5, 20_000)
    guarded = GuardedUpdate(Mistaken(replicates=49)).inspect(tally)
    assert len(guarded.named) >= 1
    assert guarded.fakes.sum() == 0
    assert "took nothing out: honest people alone explain these reports" in guarded.summary()
    np.testing.assert_array_equal(guarded.estimate.distribution, UPDATE.fit(tally).distribution)
    assert guarded.suspicions == []


def test_a_guard_that_only_looks_takes_nothing_out(mechanism: Channel) -> None:
    tally = counted(mechanism, 4, 20_000, at25=400)
    looked = GuardedUpdate(QUICK, most=0).inspect(tally)
    assert [alarm.raised for alarm in looked.alarms] == [True]
    assert looked.fake_range == (0, 0)
    assert "it only looks" in looked.summary()
    np.testing.assert_array_equal(looked.estimate.distribution, UPDATE.fit(tally).distribution)


def test_too_many_cells_are_said_to_be_so(
    mechanism: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "_FIT_PRODUCTS", 1_000)
    guarded = GuardedUpdate(QUICK).inspect(counted(mechanism, 4, 20_000, at25=400))
    assert guarded.alarms[0].raised
    assert guarded.fake_range == (0, 0)
    assert "over 36 cells would take too long" in guarded.summary()


@pytest.mark.parametrize("remembered", [False, True])
def test_fits_that_take_too_long_are_given_up_and_that_is_said(
    mechanism: Channel, monkeypatch: pytest.MonkeyPatch, remembered: bool
) -> None:
    if remembered:
        monkeypatch.setattr(guard_module, "_MOST_PRODUCTS", 1_000)
    tally = counted(mechanism, 4, 20_000, at25=400)
    known = [Suspicion(mechanism, 25, 300, 400)] if remembered else []
    guard = GuardedUpdate(QUICK, effort=1.0 if remembered else 1e-9)  # a part of the time, or all
    guarded = guard.inspect(tally, remembered=known)
    assert guarded.alarms[0].raised
    assert (guarded.fake_range, guarded.named, guarded.possible) == ((0, 0), (), [])
    assert "took nothing out: counting the fakes" in guarded.summary()
    np.testing.assert_array_equal(guarded.estimate.distribution, UPDATE.fit(tally).distribution)


def test_a_fit_takes_as_many_rounds_as_it_can() -> None:
    takes = GuardedUpdate().fitted_tallies
    assert [takes(165, 4), takes(384, 4), takes(165, 200)] == [4, 4, 8]
    assert takes(384, 4, 4 * 384) == 4  # four places in every cell
    assert takes(2_000, 4) in (1, 2)
    assert takes(4_096, 4) == 0


def test_known_fakes_stay_out_and_are_counted_again(
    mechanism: Channel, one_kind: tuple[Tally, Guarded]
) -> None:
    tally, found = one_kind
    again = GuardedUpdate(QUICK).inspect(tally, remembered=[Suspicion(mechanism, 25)])
    assert [alarm.raised for alarm in again.alarms] == [False]
    assert abs(again.fakes.sum() - found.fakes.sum()) <= 2
    assert [each[1:] for each in again.suspicions] == [(25, *again.fake_range)]
    with pytest.raises(InvalidInput, match="suspects"):
        GuardedUpdate(QUICK).inspect(tally, remembered=[Suspicion(mechanism, GRID.size)])


def test_fakes_of_rounds_too_old_to_fit_stay_out_as_they_were(
    mechanism: Channel, opening: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "_MOST_TALLIES", 1)
    old = counted(opening, 1, 8_000, at25=200)
    new = counted(mechanism, 2, 8_000)
    guarded = GuardedUpdate(QUICK).inspect(
        [old, new], remembered=[Suspicion(opening, 25, 170, 230), Suspicion(opening, 3, 1, 10**6)]
    )
    assert guarded.taken[0][25] == 170
    assert guarded.most[0][25] == 230
    assert guarded.most[0][3] == old.counts[3]
    assert {each.report for each in guarded.suspicions} == {25, 3}
    assert guarded.estimate.total == 16_000 - 171


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_nothing_but_fakes_is_an_alarm_and_an_estimate(mechanism: Channel, kinds: int) -> None:
    tally = mechanism.tally(np.repeat([25, 3, 10][:kinds], 200))
    guarded = GuardedUpdate(QUICK).inspect(tally)
    assert guarded.alarms[0].raised
    assert guarded.estimate.total >= 1
    known = GuardedUpdate(QUICK).inspect(tally, remembered=[Suspicion(mechanism, 25)])
    assert known.estimate.total >= 1


def test_every_round_keeps_what_it_must(mechanism: Channel) -> None:
    tally = counted(mechanism, 5, 460, at25=400)
    free, kept = (GuardedUpdate(QUICK, least=least).inspect(tally) for least in (1, 100))
    assert free.estimate.total < 100 <= kept.estimate.total
    assert kept.fakes.sum() == 0
    assert "fewer than 100 reports of a round would be left" in kept.summary()
    assert kept.most[0][25] > 300


def test_suspecting_honest_people_hardly_costs_them(mechanism: Channel) -> None:
    tally = counted(mechanism, 5, 20_000)
    crowd = int(np.argmax(town()))
    suspected = GuardedUpdate(QUICK).inspect(tally, remembered=[Suspicion(mechanism, crowd)])
    assert suspected.fakes.sum() < 0.02 * tally.counts[crowd]
