"""The library's campaign and the service, given the same reports, say the same to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.campaign import PromiseRule, rounds
from geoveil.document.wire import MechanismDocument
from geoveil.errors import InvalidInput
from geoveil.server.settings_of_campaign import CampaignSettings
from server.rounds_support import City, campaign_settings, raises_problem


def library_campaign(city: City) -> gv.Campaign:
    settings = city.settings
    rule = PromiseRule(
        settings.epsilon_per_km,
        settings.camouflage,
        most_leverage=settings.most_leverage,
        guarded=settings.guarded,
        trusted_seed=settings.trusted_seed,
        between="positions",
    )
    return gv.Campaign(settings.grid, rule=rule, minimum_reports=settings.minimum_reports)


def mechanism_of(city: City) -> gv.PositionalElastic:
    return MechanismDocument.read(city.campaigns.mechanism("paris").document).mechanism


def assert_same(body: dict[str, Any], campaign: gv.Campaign) -> None:
    """The body of the service's estimate, and the library's closing."""
    closing = campaign.closing
    assert body["distribution"] == closing.estimate.distribution.tolist()
    assert body["steps"] == closing.estimate.steps
    assert [row["reports"] for row in body["rounds"]] == [r.tally.total for r in closing.rounds]
    alarm = body["alarm"]
    for name in ("raised", "p_value", "statistic", "threshold", "replicates"):
        assert alarm[name] == getattr(closing.alarm, name)
    assert alarm["suspicious"] == closing.alarm.suspicious.tolist()
    assert alarm["overall_p_value"] == closing.alarm.overall_p_value
    assert alarm["fakes"]["found"] == [list(found) for found in closing.fakes]
    assert (alarm["fakes"]["least"], alarm["fakes"]["most"]) == closing.inspected.fake_range
    assert alarm["fakes"]["named"] == list(closing.inspected.named)
    assert alarm["summary"] == (closing.guard or closing.alarm).summary()
    bars, rounds = closing.error_bars()
    low, high = bars.interval(0.95)
    assert (body["interval"]["low"], body["interval"]["high"]) == (low.tolist(), high.tolist())
    assert body["interval"]["rounds"] == [done.number for done in rounds]
    gain, _ = closing.manipulation_gain()
    assert body["manipulation_gain"]["summary"] == gain.summary()
    assert body["manipulation_gain"]["gain"] == gain.gain


@pytest.mark.parametrize(
    ("changed", "resumed"),
    [
        ({}, False),
        ({"trusted_seed": True}, True),
        *(
            pytest.param(changed, resumed, marks=pytest.mark.slow)
            for changed, resumed in [
                ({}, True),
                ({"trusted_seed": True}, False),
                ({"guarded": True}, False),
                ({"guarded": True}, True),
            ]
        ),
    ],
)
def test_library_and_service_agree_bit_for_bit(
    changed: dict[str, Any], resumed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_ALARM_REPLICATES", (49, 49))  # of both, and most of the time
    city = City(campaign_settings(camouflage=0.7, **changed))
    campaign = library_campaign(city)
    raised = []
    # a third round remembers what a second one remembered: asked of one that is resumed
    for people, fakes in ((2000, 120), (900, 0), (600, 0))[: 3 if resumed else 2]:
        assert mechanism_of(city) == campaign.mechanism
        record = city.campaigns.mechanism("paris")
        cells = city.report(people)
        fake = [int(np.bincount(cells, minlength=48).argmin())] * fakes
        city.count(fake, record)
        campaign.receive(campaign.mechanism.tally(cells + fake))
        city.campaigns.close("paris")
        city.work()
        campaign.close_round()
        if resumed:
            campaign = gv.Campaign.from_dict(campaign.to_dict())
        assert_same(city.estimated(), campaign)
        raised.append(campaign.closing.alarm.raised)
    assert raised[0]
    assert mechanism_of(city) == campaign.mechanism
    assert bool(campaign.rounds[-1].fakes) is bool(changed.get("guarded"))


def test_both_have_the_same_defaults() -> None:
    settings = campaign_settings()
    campaign = gv.Campaign(settings.grid, epsilon_per_km=2.0)
    rule = campaign.rule
    assert isinstance(rule, PromiseRule)
    assert (settings.rule.camouflage, settings.rule.guarded) == (rule.camouflage, rule.guarded)
    assert (rule.camouflage, rule.guarded, rule.most_leverage) == (0.5, False, None)
    default = CampaignSettings(
        name="x", box=(45.7, 4.8, 45.8, 4.9), cell_km=1.0, epsilon_per_km=2.0
    )
    assert campaign.minimum_reports == default.minimum_reports == 100


def test_the_last_round_of_both_is_followed_by_no_mechanism() -> None:
    city = City(campaign_settings(rounds=1))
    campaign = library_campaign(city)
    campaign.receive(campaign.mechanism.tally(city.report(300)))
    city.campaigns.close("paris")
    city.work()
    campaign.close_round(last=True)
    assert_same(city.estimated(), campaign)
    assert campaign.current.number == 1
    with raises_problem("campaign-finished"):
        city.campaigns.mechanism("paris")
    with pytest.raises(InvalidInput, match="has ended"):
        campaign.close_round()
    again = gv.Campaign.from_dict(campaign.to_dict())
    assert again.estimate.distribution.tolist() == campaign.estimate.distribution.tolist()
