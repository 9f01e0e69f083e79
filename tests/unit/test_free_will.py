"""Campaigns in which people choose a promise: pooled, tested, told, saved; and what cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign import Campaign, Crowd, PromiseRule
from geoveil.campaign.one_map import Choices, allowed_at
from geoveil.errors import InvalidInput
from geoveil.estimate.mixture import AverageOfEstimates
from geoveil.verify.guard import Guarded, GuardedUpdate
from geoveil.verify.manipulation import expected_counts

TOWN = gv.Grid(rows=7, columns=7, cell_km=0.5)
PROMISES = (1.0, 2.0, 4.0)


def town(seed: int = 3) -> FloatArray:
    return np.random.default_rng(seed).dirichlet(np.full(TOWN.size, 0.3))


def elsewhere(theta: FloatArray) -> FloatArray:
    """The same town with its east and west exchanged."""
    return theta.reshape(TOWN.shape)[:, ::-1].ravel()


def closed(
    people: dict[float, FloatArray], number: int, seed: int, rounds: int = 1, **options: object
) -> Campaign:
    """A campaign whose people choose a promise, so many of each in every round."""
    campaign = gv.Campaign(TOWN, promises_per_km=PROMISES, between="cells", **options)  # type: ignore[arg-type]
    generator = np.random.default_rng(seed)
    for _ in range(rounds):
        for promise, mechanism in campaign.mechanisms.items():
            law = mechanism.push(people[promise])
            campaign.receive(gv.Tally(mechanism, generator.multinomial(number, law / law.sum())))
        campaign.close_round()
    return campaign


def everybody_alike(theta: FloatArray) -> dict[float, FloatArray]:
    return dict.fromkeys(PROMISES, theta)


def choices(campaign: Campaign) -> Choices:
    found = campaign.closing.choices
    assert found is not None
    return found


def test_every_promise_has_a_mechanism_that_keeps_it() -> None:
    campaign = gv.Campaign(TOWN, promises_per_km=[4, 1, 2], camouflage=0.5)
    assert list(campaign.mechanisms) == [1.0, 2.0, 4.0]
    for promise, mechanism in campaign.mechanisms.items():
        assert 0.98 * promise <= gv.certify(mechanism).epsilon_per_km <= promise
    with pytest.raises(InvalidInput, match=r"take campaign.mechanisms\[promise\]"):
        _ = campaign.mechanism


def test_one_of_several_promises_is_a_plain_campaign() -> None:
    campaign = gv.Campaign(TOWN, promises_per_km=[2.0])
    plain = gv.Campaign(TOWN, epsilon_per_km=2.0)
    assert campaign.rule.to_dict() == plain.rule.to_dict()
    assert campaign.mechanism == campaign.mechanisms[2.0]


def test_the_estimate_pools_all_promises_of_all_rounds() -> None:
    campaign = closed(everybody_alike(town()), 800, 1, rounds=2)
    tallies = [tally for done in campaign.rounds for tally in done.tallies]
    pooled = gv.IterativeBayesianUpdate().fit(tallies)
    np.testing.assert_array_equal(campaign.estimate.distribution, pooled.distribution)
    found = choices(campaign)
    assert not found.dependent
    assert "The choice was not found to depend on the place" in found.summary()
    assert "a difference is claimed below 0.0033 at this look" in found.summary()
    assert [level.reports for level in found.levels] == [1600] * 3
    bits = [level.bits_per_report for level in found.levels]
    assert bits == sorted(bits, key=lambda each: each or 0.0)  # a weaker promise tells more
    assert "ε = 1 per km: 1,600 reports" in found.summary()


def test_a_choice_that_depends_on_the_place_is_found_told_and_dealt_with() -> None:
    theta = town()
    people = {1.0: elsewhere(theta), 2.0: theta, 4.0: theta}
    campaign = closed(people, 3000, 2)
    found = choices(campaign)
    assert found.dependent
    assert "average of one map for each promise" in found.summary()
    levels = [[tally] for tally in campaign.rounds[0].tallies]
    right = AverageOfEstimates(gv.IterativeBayesianUpdate()).fit_groups(levels)
    np.testing.assert_array_equal(campaign.estimate.distribution, right.distribution)
    truth = (elsewhere(theta) + 2 * theta) / 3
    pooled = gv.IterativeBayesianUpdate().fit(campaign.rounds[0].tallies)
    errors = [
        gv.earth_movers_distance_km(each.distribution, truth, TOWN) for each in (right, pooled)
    ]
    assert errors[0] < 0.7 * errors[1]
    low, high = campaign.closing.error_bars()[0].interval(0.95)
    assert ((low <= truth) & (truth <= high)).mean() > 0.85
    assert campaign.closing.alarm.p_value > 0.001  # honest people of one promise, not fakes


def with_fakes(**options: bool) -> tuple[Campaign, int]:
    """A campaign with 400 fakes at a quiet cell, under the promise that fewer people chose; and the cell."""
    campaign = gv.Campaign(TOWN, promises_per_km=PROMISES[::2], between="cells", **options)  # type: ignore[arg-type]
    theta, generator = town(), np.random.default_rng(9)
    quiet = int(theta.argmin())
    pairs = zip((2_000, 6_000), campaign.mechanisms.items(), strict=True)
    for number, (promise, mechanism) in pairs:
        law = mechanism.push(theta)
        counts = generator.multinomial(number, law / law.sum())
        counts[quiet] += 400 * (promise == 1.0)
        campaign.receive(gv.Tally(mechanism, counts))
    campaign.close_round()
    return campaign, quiet


def test_fakes_under_a_promise_that_few_chose_raise_the_alarm() -> None:
    """The promises disagree because of them: each is looked at beside honest people of its own map."""
    campaign, quiet = with_fakes()
    found = choices(campaign)
    assert found.dependent
    assert "or somebody sends fakes under one" in found.summary()
    assert campaign.closing.alarm.suspicious.tolist()[:1] == [quiet]
    assert campaign.closing.alarm.rounds == 2  # both promises of the one round


@pytest.mark.parametrize("depends", [False, True])
def test_fakes_choose_the_promise_under_which_they_weigh_most(depends: bool) -> None:
    """The gain that is told is the move of fakes that are all sent under that promise, among honest people
    who chose as they did; spread over all promises they move less."""
    campaign = gv.Campaign(TOWN, promises_per_km=PROMISES[::2], between="cells")
    theta = town()
    chose, places = (0.75, 0.25), (elsewhere(theta) if depends else theta, theta)
    mechanisms = list(campaign.mechanisms.values())
    laws = [one.push(at) for one, at in zip(mechanisms, places, strict=True)]
    for mechanism, law, share in zip(mechanisms, laws, chose, strict=True):
        campaign.receive(gv.Tally(mechanism, expected_counts(law, round(8_000 * share))))
    campaign.close_round()
    assert choices(campaign).dependent == depends
    gain = campaign.closing.manipulation_gain()[0]
    people, stop = campaign.estimate.distribution, gv.Steps(campaign.estimate.steps)
    update = gv.IterativeBayesianUpdate(stop=stop)

    def moved(*fakes: int) -> float:
        maps = []
        for sent in (fakes, (0, 0)):
            left = 100_000 - sum(sent)
            tallies = []
            for mechanism, share, number in zip(mechanisms, chose, sent, strict=True):
                counts = expected_counts(mechanism.push(people), round(left * share))
                counts[gain.fake] += number
                tallies.append(gv.Tally(mechanism, counts))
            fit = AverageOfEstimates(update).fit if depends else update.fit
            maps.append(fit(tallies).distribution[gain.target])
        return float(maps[0] - maps[1])

    under = 0 if "under ε = 1 per km" in gain.summary() else 1
    assert gain.moved == pytest.approx(moved(*np.roll([1_000, 0], under)), rel=0.01)
    assert gain.moved > max(moved(500, 500), moved(*np.roll([0, 1_000], under)))


def test_what_was_found_about_the_choice_stays_found() -> None:
    theta = town()
    campaign = closed({1.0: elsewhere(theta), 2.0: theta, 4.0: theta}, 3000, 2)
    for mechanism in campaign.mechanisms.values():
        campaign.receive(mechanism.tally(np.zeros(100, dtype=np.int64)))
    campaign.close_round()
    assert choices(campaign).dependent
    assert Campaign.from_dict(campaign.to_dict()).closing.depends


def test_claims_share_one_error_rate() -> None:
    assert sum(allowed_at(look) for look in range(1, 1000)) < 0.02
    claimed = [
        choices(closed(everybody_alike(town(seed)), 400, seed)).dependent for seed in range(6)
    ]
    assert not any(claimed)


def test_a_promise_that_three_people_chose_is_used_and_not_told() -> None:
    campaign = gv.Campaign(TOWN, promises_per_km=PROMISES, between="cells", minimum_reports=50)
    for promise, number in zip(PROMISES, (3, 400, 400), strict=True):
        mechanism = campaign.mechanisms[promise]
        law = mechanism.push(town())
        counts = np.random.default_rng(5).multinomial(number, law / law.sum())
        campaign.receive(gv.Tally(mechanism, counts))
    campaign.close_round()
    found = choices(campaign)
    assert campaign.estimate.total == 803  # nothing lost
    assert [level.bits_per_report is None for level in found.levels] == [True, False, False]
    assert "1 of the promises had fewer than 50 reports" in found.summary()
    assert "ε = 1 per km" not in found.summary()


def test_one_promise_alone_cannot_be_tested_and_is_said_so() -> None:
    campaign = gv.Campaign(TOWN, promises_per_km=PROMISES, between="cells")
    mechanism = campaign.mechanisms[2.0]
    campaign.receive(mechanism.tally(np.repeat([3, 20], 100)))
    campaign.close_round()
    assert choices(campaign).compared is None
    assert "could not be tested" in choices(campaign).summary()


def test_a_campaign_goes_on_where_it_stopped() -> None:
    campaign = closed(everybody_alike(town()), 300, 4, rounds=2)
    resumed = Campaign.from_dict(campaign.to_dict())
    assert resumed.to_dict() == campaign.to_dict()
    assert resumed.closing.choices == campaign.closing.choices
    assert resumed.closing.standing == campaign.closing.standing
    for each in (campaign, resumed):
        for mechanism in each.mechanisms.values():
            each.receive(mechanism.tally(np.arange(40)))
        each.close_round()
    assert resumed.to_dict() == campaign.to_dict()


def test_a_guarded_campaign_takes_fakes_out_of_the_promise_they_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what they explain is no sign that people choose by where they are; both promises by themselves take
    half as long as all together may, so that a close is not given up for want of time."""
    efforts, inspect = [], GuardedUpdate.inspect

    def inspected(guard: GuardedUpdate, *tallies: Any, **known: Any) -> Guarded:
        efforts.append(guard.effort)
        return inspect(guard, *tallies, **known)

    monkeypatch.setattr(GuardedUpdate, "inspect", inspected)
    campaign, quiet = with_fakes(guarded=True)
    assert efforts == [0.25, 0.25, 1.0]
    assert not choices(campaign).dependent
    worst, *others = sorted(campaign.closing.fakes, key=lambda found: -found.least)
    assert (worst.report, worst.level) == (quiet, 0)
    assert 300 < worst.least <= 400 <= worst.most
    assert sum(found.least for found in others) < 5


def people_of(theta: FloatArray, number: int) -> IntArray:
    return np.random.default_rng(8).choice(TOWN.size, size=number, p=theta)


def test_simulated_people_choose_as_they_are_told() -> None:
    campaign = gv.Campaign(TOWN, promises_per_km=PROMISES, between="cells")
    crowd = Crowd(people_of(town(), 3000), choices=(0.7, 0.3, 0.0))
    result = gv.simulate(campaign, crowd, rounds=1, seed=2)
    reports = [tally.total for tally in result.campaign.rounds[0].tallies]
    assert sum(reports) == 3000
    assert abs(reports[0] - 2100) < 150
    assert reports[2] == 0
    with pytest.raises(InvalidInput, match="one share for each of 3 promises"):
        gv.simulate(
            gv.Campaign(TOWN, promises_per_km=PROMISES, between="cells"),
            Crowd(crowd.people, choices=(0.5, 0.5)), rounds=1, seed=1,
        )  # fmt: skip


@pytest.mark.parametrize(
    "promises", [[], [1.0, 1.0], [0.0, 1.0], [-1.0, 2.0], [float("nan")], list(range(1, 10))]
)
def test_promises_that_cannot_be(promises: list[float]) -> None:
    with pytest.raises(InvalidInput, match="promises_per_km"):
        gv.Campaign(TOWN, promises_per_km=promises)


def test_a_campaign_has_one_promise_or_several() -> None:
    for given in ({}, {"epsilon_per_km": 1.0, "promises_per_km": [1.0, 2.0]}):
        with pytest.raises(InvalidInput, match="must have a promise by exactly one of"):
            gv.Campaign(TOWN, **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must rise and end with"):
        PromiseRule(2.0, promises_per_km=(3.0, 1.0))
