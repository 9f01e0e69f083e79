"""People who move are noticed, fakes cannot buy a map, and campaigns that stand still are left alone."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign import Campaign
from geoveil.campaign.one_map import CONFIRMING, NO_ROUNDS, Standing, settled
from geoveil.channel.channel import Channel, Information, Tally
from geoveil.errors import InvalidInput
from geoveil.verify.agreement import agreement, blocks_of

TOWN = gv.Grid(rows=8, columns=8, cell_km=0.5)
MECHANISM = gv.elastic(TOWN, epsilon_per_km=2.0, between="cells")


def district(row: int, column: int) -> FloatArray:
    """People around a cell."""
    centre = row * TOWN.columns + column
    weights = np.exp(-2.0 * TOWN.distances_from_km(centre)) + 0.001
    return np.asarray(weights / weights.sum())


HERE, THERE = district(2, 2), district(5, 6)


def said(people: FloatArray, seed: int, number: int = 2000, by: Channel = MECHANISM) -> Tally:
    law = by.push(people)
    return Tally(by, np.random.default_rng(seed).multinomial(number, law / law.sum()))


def fitted_here(numbers: object) -> FloatArray:
    return HERE


def standing_after(*people: FloatArray, take_over: bool = True) -> Standing:
    tallies = {n: [said(each, n)] for n, each in enumerate(people, start=1)}

    def fitted(numbers: object) -> FloatArray:
        return gv.IterativeBayesianUpdate(stop=gv.Steps(60)).fit(
            [tallies[number][0] for number in numbers]  # type: ignore[attr-defined]
        ).distribution  # fmt: skip

    return settled(NO_ROUNDS, tallies, fitted, take_over=take_over)


def test_rounds_that_stand_still_all_agree() -> None:
    standing = standing_after(*[HERE] * 6)
    assert standing.agreeing == (1, 2, 3, 4, 5, 6)
    assert not standing.drifting
    assert standing.looks == 5
    assert standing.summary().startswith("No round was found to differ from those before it")


@pytest.mark.parametrize(("looks", "level"), [(1, "0.01"), (2, "0.0033"), (9, "0.00022")])
def test_a_difference_not_claimed_is_said_with_the_level_of_its_look(
    looks: int, level: str
) -> None:
    """Of p = 0.004 at the second look nobody says that all rounds agree."""
    rounds = tuple(range(1, looks + 2))
    words = Standing(agreeing=rounds, looks=looks, p_value=0.004).summary()
    assert "agree" not in words
    assert f"The newest has p = 0.004; a difference is claimed below {level} at this look" in words


def test_a_round_that_disagrees_waits() -> None:
    standing = standing_after(HERE, HERE, HERE, THERE)
    assert (standing.agreeing, standing.waiting) == ((1, 2, 3), (4,))
    assert standing.summary() == (
        "The map is made from rounds 1 to 3, not found to differ by more than chance. Round 4 says "
        "otherwise: people may have moved, or somebody sends fakes. Intervals hold both; 2 more rounds like "
        "it would take over."
    )


def test_no_round_agrees_with_none() -> None:
    alone = standing_after(HERE)
    assert alone.summary() == "There was no other round to compare the newest with."
    few = {1: [said(HERE, 1, 20)], 2: [said(HERE, 2, 20)]}
    words = settled(NO_ROUNDS, few, fitted_here).summary()
    assert words.startswith("The newest round was not compared with those before it")


def test_the_words_fit_one_round_and_a_trusted_one() -> None:
    standing = standing_after(HERE, THERE)
    assert standing.summary(take_over=False) == (
        "The map is made from round 1. Round 2 says otherwise: people may have moved, or somebody "
        "sends fakes. Intervals hold both."
    )
    assert standing_after(HERE, THERE, HERE).summary() == (
        "The map is made from rounds 1 and 3, not found to differ by more than chance. Round 2 disagrees "
        "with these and is not used."
    )


def test_it_takes_over_when_later_rounds_agree() -> None:
    moved = [HERE, HERE] + [THERE] * (1 + CONFIRMING)
    assert standing_after(*moved[:-1]).waiting == (3, 4)
    standing = standing_after(*moved)
    assert (standing.agreeing, standing.aside) == ((3, 4, 5), (1, 2))
    assert "Rounds 1 and 2 disagree with these and are not used." in standing.summary()
    assert standing_after(*moved, take_over=False).agreeing == (1, 2)


def test_a_burst_takes_over_nothing() -> None:
    standing = standing_after(HERE, HERE, THERE, HERE, HERE)
    assert (standing.agreeing, standing.waiting, standing.aside) == ((1, 2, 4, 5), (), (3,))
    twice = standing_after(HERE, THERE, district(6, 1), HERE)
    assert twice.agreeing == (1, 4)
    assert twice.aside == (2, 3)


def test_two_rounds_that_wait_are_spoken_of_as_two() -> None:
    said_so = standing_after(HERE, HERE, HERE, THERE, THERE).summary()
    assert said_so.startswith(
        "The map is made from rounds 1 to 3, not found to differ by more than chance."
    )
    assert "Rounds 4 and 5 say" in said_so
    assert said_so.endswith("Intervals hold both; 1 more round like them would take over.")


def test_a_standing_is_the_same_whether_made_at_once_or_close_by_close() -> None:
    people = [HERE, HERE, THERE, THERE, THERE, THERE]
    standing = NO_ROUNDS
    for upto in range(1, len(people) + 1):
        tallies = {n: [said(each, n)] for n, each in enumerate(people[:upto], start=1)}
        standing = Standing.from_dict(settled(standing, tallies, fitted_here).to_dict())
    assert standing.agreeing == (3, 4, 5, 6)
    assert standing.looks == 5


@pytest.mark.parametrize(
    ("people", "late", "trusted", "agreeing"),
    [
        (THERE, 6000, False, (2, 3)),
        (HERE, 6000, False, (1, 2, 3)),
        (THERE, 150, False, (1, 2, 3)),
        (THERE, 6000, True, (1, 2)),
    ],
    ids=["others", "the same", "few", "in a trusted round"],
)
def test_reports_that_come_late_are_compared_again(
    people: FloatArray, late: int, trusted: bool, agreeing: tuple[int, ...]
) -> None:
    campaign = Campaign(TOWN, epsilon_per_km=2.0, between="cells", trusted_seed=trusted)
    first = campaign.mechanism
    for seed in range(3):
        if seed == 2:
            campaign.receive(said(people, 7, late, first))
            campaign = Campaign.from_dict(campaign.to_dict())
        campaign.receive(said(HERE, seed, 2000, campaign.mechanism))
        campaign.close_round()
    standing = campaign.closing.standing
    assert standing.agreeing == agreeing
    # of what came late, as many as were looked at
    looked_at = late if people is HERE else 0
    assert sum(standing.reports) == 2000 * len(agreeing) + looked_at


def test_a_burst_of_late_reports_takes_over_nothing() -> None:
    """Rounds that were flooded at one time confirm neither each other nor a round that waits."""
    tallies = {n: [said(HERE, n)] for n in range(1, 5)}
    standing = settled(NO_ROUNDS, tallies, fitted_here)
    flooded = {n: [tallies[n][0] + said(THERE, 50 + n, 1000)] for n in (2, 3, 4)}
    after = settled(standing, tallies | flooded, fitted_here)
    assert (after.agreeing, after.waiting, after.aside) == ((1,), (2,), (3, 4))
    after = settled(after, tallies | flooded | {5: [said(HERE, 5)]}, fitted_here)
    assert (after.agreeing, after.aside) == ((1, 5), (2, 3, 4))


def test_groups_of_one_map_agree_and_others_do_not() -> None:
    strict, sharp = (gv.elastic(TOWN, epsilon_per_km=e, between="cells") for e in (1.0, 4.0))
    alike, apart = [], []
    for seed in range(40):
        groups = [[said(HERE, seed, 1000, strict)], [said(HERE, 100 + seed, 600, sharp)]]
        alike.append(agreement(groups, HERE).p_value)
        mixed = 0.7 * HERE + 0.3 * THERE
        groups = [[said(HERE, seed, 1000, strict)], [said(mixed, 200 + seed, 600, sharp)]]
        apart.append(agreement(groups, HERE).p_value)
    assert sum(p < 0.05 for p in alike) <= 6  # of 40; more than 6 once in 100 where 5 % is true
    assert sum(p < 0.01 for p in apart) >= 32


def test_the_comparison_does_not_depend_on_a_good_map() -> None:
    """Counts are linear in the true map, so a wrong one at hand makes no groups differ."""
    wrong = np.full(TOWN.size, 1 / TOWN.size)
    found = [agreement([[said(HERE, s)], [said(HERE, 50 + s)]], wrong).p_value for s in range(20)]
    assert sum(p < 0.05 for p in found) <= 4


@pytest.mark.parametrize("seed", [28, 79, 157])
def test_it_does_not_depend_on_the_group_that_the_map_was_fitted_to(seed: int) -> None:
    """Nobody moved. Where chance made the reports of a quiet cell few, the map of these alone has a variance
    that is too small: one pair in sixteen then differed at 1 %, and these far beyond."""
    line, people = gv.Line(25), np.append(0.9, np.full(24, 0.1 / 24))
    mechanism = gv.LinearGeometric(line, epsilon_per_unit=3.0)
    law = mechanism.push(people)
    counts = np.random.default_rng(seed).multinomial(1500, law / law.sum(), size=2)
    groups = [[Tally(mechanism, each)] for each in counts]
    update = gv.IterativeBayesianUpdate(stop=gv.Steps(60))
    first, second = (agreement(groups, update.fit(each).distribution) for each in groups)
    assert first.p_value > 0.04
    assert first.p_value == pytest.approx(second.p_value, rel=0.02)


def test_crowds_at_the_edge_of_their_cells_have_not_moved() -> None:
    """At ε·cell = 4 each mechanism takes such a crowd for another one, and nobody has moved."""
    city = gv.Grid.from_box(south=48.80, west=2.28, north=48.85, east=2.36, cell_km=1.0)
    generator = np.random.default_rng(1)
    known = generator.dirichlet(np.full(city.size, 0.3))
    opening, designed = (gv.elastic(city, prior, epsilon_per_km=4.0) for prior in (None, known))

    def at_places(by: Channel, people: FloatArray, which: IntArray) -> list[Tally]:
        places = by.places(3)
        assert places is not None
        crowds = np.zeros(places.shape[0])
        crowds[
            np.argsort(places.cell, kind="stable").reshape(-1, 9)[np.arange(city.size), which]
        ] = people
        law = places.push(crowds)
        return [Tally(by, generator.multinomial(20_000, law / law.sum()))]

    alike, apart = [], []
    for _ in range(15):
        here, there = generator.dirichlet(np.full(city.size, 0.3), size=2)
        which = generator.integers(9, size=city.size)
        before, after = (at_places(by, here, which) for by in (opening, designed))
        alike.append(agreement([before, after], here).p_value)
        after = at_places(designed, 0.7 * here + 0.3 * there, which)
        apart.append(agreement([before, after], here).p_value)
    assert sum(p < 0.05 for p in alike) <= 3
    assert sum(p < 0.01 for p in apart) >= 12


@pytest.mark.parametrize("space", [gv.Line(1), gv.Grid(rows=1, columns=1, cell_km=1.0)])
def test_a_campaign_of_one_cell_closes_every_round(space: gv.Space) -> None:
    campaign = gv.Campaign(space, promises_per_km=[0.5, 2.0])
    for _ in range(2):
        for mechanism in campaign.mechanisms.values():
            campaign.receive(Tally(mechanism, [150]))
        campaign.close_round()
    assert campaign.closing.standing.agreeing == (1, 2)
    assert campaign.estimate.distribution.tolist() == [1.0]


def test_large_spaces_are_compared_without_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [[said(HERE, 1)], [said(0.9 * HERE + 0.1 * THERE, 2)]]
    by_matrix = agreement(groups, HERE)
    monkeypatch.setattr("geoveil.verify.agreement._MATRIX_CELLS", 10)
    monkeypatch.setattr("geoveil.verify.agreement._BLOCKS_ABOVE", 64)
    by_gradients = agreement(groups, HERE)
    assert by_gradients.freedom == by_matrix.freedom
    assert by_gradients.statistic == pytest.approx(by_matrix.statistic, rel=0.1)


def without_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of more than 4,096 cells, for any."""
    monkeypatch.setattr("geoveil.verify.agreement._MATRIX_CELLS", 10)
    monkeypatch.setattr("geoveil.verify.agreement.MATRIX_LIMIT", 10)


def test_blocks_without_edges_tell_groups_of_one_map_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_edges(monkeypatch)
    strict, sharp = (gv.elastic(TOWN, epsilon_per_km=e, between="cells") for e in (1.0, 4.0))
    mixed, alike, apart = 0.6 * HERE + 0.4 * THERE, [], []
    for seed in range(40):
        groups = [[said(HERE, seed, 1000, strict)], [said(HERE, 100 + seed, 600, sharp)]]
        alike.append(agreement(groups, HERE).p_value)
        groups = [[said(HERE, seed, 1000, strict)], [said(mixed, 200 + seed, 600, sharp)]]
        apart.append(agreement(groups, HERE).p_value)
    assert sum(p < 0.05 for p in alike) <= 6  # of 40; more than 6 once in 100 where 5 % is true
    assert sum(p < 0.01 for p in apart) >= 32


def test_blocks_without_edges_take_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = gv.Grid(rows=30, columns=30, cell_km=1.0)
    mechanism = gv.elastic(grid, epsilon_per_km=1.0, between="cells")
    people = np.full(grid.size, 1 / grid.size)
    groups = [[said(people, seed, 200_000, mechanism)] for seed in (1, 2)]
    times, spent = Information.times, 0

    def counted(part: Information, changes: FloatArray) -> FloatArray:
        nonlocal spent
        spent += 1
        return times(part, changes)

    monkeypatch.setattr(Information, "times", counted)
    monkeypatch.setattr("geoveil.verify.agreement._MATRIX_CELLS", 10)
    agreement(groups, people)
    with_edges, spent = spent, 0
    without_edges(monkeypatch)
    agreement(groups, people)
    assert 0 < spent < with_edges / 2


def test_blocks_hold_about_as_many_people_each() -> None:
    blocks = blocks_of(TOWN, HERE, 16)
    shares = np.bincount(blocks, weights=HERE)
    assert 12 <= shares.size <= 16  # a single cell is not cut
    assert shares.max() < 0.4
    assert blocks_of(gv.Line(3), np.full(3, 1 / 3), 64).max() == 2


def test_too_few_reports_are_not_compared() -> None:
    with pytest.raises(InvalidInput, match="at least 40 reports each"):
        agreement([[said(HERE, 1)], [said(HERE, 2, 39)]], HERE)
    few = settled(NO_ROUNDS, {1: [said(HERE, 1)], 2: [said(THERE, 2, 30)]}, fitted_here)
    assert few.agreeing == (1, 2)


def moving_campaign(seed: int, *people: FloatArray, **options: bool) -> Campaign:
    campaign = gv.Campaign(TOWN, epsilon_per_km=2.0, between="cells", **options)
    for number, each in enumerate(people):
        campaign.receive(said(each, 1000 * seed + number, 1500, campaign.mechanism))
        campaign.close_round(last=number + 1 == len(people))
    return campaign


def test_intervals_hold_both_while_a_round_waits() -> None:
    """Three rounds at one place and one at another: a map of the first, and intervals that say so."""
    held = []
    busiest = int(THERE.argmax())
    for seed in range(3):
        campaign = moving_campaign(seed, HERE, HERE, HERE, THERE)
        assert campaign.closing.standing.waiting == (4,)
        bars, _ = campaign.closing.error_bars()
        low, high = bars.interval(0.95)
        held.append(low[busiest] <= THERE[busiest] <= high[busiest])
        assert low[busiest] < 0.02 < high[busiest]
        assert campaign.distribution[busiest] < 0.02  # the map did not move
        assert "newer rounds that disagree" in bars.method
    assert sum(held) >= 2


def test_a_campaign_follows_people_who_stay_where_they_went() -> None:
    campaign = moving_campaign(1, HERE, HERE, THERE, THERE, THERE)
    assert campaign.closing.standing.agreeing == (3, 4, 5)
    assert gv.total_variation(campaign.distribution, THERE) < 0.25
    assert [done.number for done in campaign.closing.rounds] == [3, 4, 5]
    resumed = Campaign.from_dict(campaign.to_dict())
    assert resumed.closing.standing == campaign.closing.standing
    np.testing.assert_array_equal(resumed.estimate.distribution, campaign.distribution)


def test_guarded_campaigns_do_not_take_fakes_for_a_move() -> None:
    campaign = gv.Campaign(TOWN, epsilon_per_km=4.0, between="cells", guarded=True)
    quiet = int(HERE.argmin())
    for number in range(3):
        tally = said(HERE, number, 3000, campaign.mechanism)
        if number == 1:
            tally = tally + campaign.mechanism.tally(np.full(400, quiet))
        campaign.receive(tally)
        campaign.close_round()
    standing = campaign.closing.standing
    assert (standing.agreeing, standing.looks) == ((1, 2, 3), 2)
    assert standing.reports == (3000, 3400, 3000)  # fakes that were there did not come late
    assert campaign.closing.inspected.fake_range[0] > 100
