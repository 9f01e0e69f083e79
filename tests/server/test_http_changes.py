"""What an operator can change about a campaign: its name, whether it runs, and whether it exists."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geoveil.server.conclusion import conclude
from geoveil.server.worker import Jobs
from geoveil.store import CampaignRecord, open_store
from geoveil.store.records import TABLES
from server.conftest import InProcess
from server.live import LYON, Live, new_id
from server.rounds_support import tick
from server.test_http_problems import assert_problem

CAMPAIGN = "/api/campaigns/lyon"
pytestmark = pytest.mark.usefixtures("one_design")


def change(service: InProcess, **changes: Any) -> Any:
    return service.request("PATCH", CAMPAIGN, json=changes, operator=True)


def send(service: InProcess, mechanism: str, number: int = 1) -> Any:
    reports = [{"mechanism": mechanism, "id": new_id(), "cell": n % 5} for n in range(number)]
    return service.post(f"{CAMPAIGN}/reports", json={"reports": reports})


def work(service: InProcess) -> None:
    campaigns = service.service.campaigns
    for each in map(Jobs(campaigns).work, tick(campaigns)):
        Jobs(campaigns).publish(each, conclude(each))


def test_a_campaign_gets_another_name(service: InProcess) -> None:
    answer = change(service, name="Lyon, à pied")
    assert answer.status_code == 200
    assert answer.json()["name"] == answer.json()["settings"]["name"] == "Lyon, à pied"
    listed = service.get("/api/campaigns", operator=True).json()["campaigns"]
    assert [each["name"] for each in listed] == ["Lyon, à pied"]
    assert_problem(change(service, name=""), "invalid-campaign")
    assert service.get(CAMPAIGN).json()["name"] == "Lyon, à pied"


def test_a_campaign_of_a_newer_program_is_listed_and_named_and_can_be_deleted(
    service: InProcess,
) -> None:
    newer = CampaignRecord("oslo", "Oslo", b'{"unheard_of":1}', 1_000)
    assert service.service.store.create_campaign(newer, None)
    listed = service.get("/api/campaigns", operator=True).json()["campaigns"]
    assert [each["id"] for each in listed] == ["lyon", "oslo"]
    for path in ("", "/mechanism"):
        answer = service.get(f"/api/campaigns/oslo{path}")
        assert_problem(answer, "storage-unavailable")
        assert "settings of campaign 'oslo' must be" in answer.json()["detail"]
    assert service.request("DELETE", "/api/campaigns/oslo", operator=True).status_code == 204
    assert service.get(CAMPAIGN).status_code == 200


def test_a_paused_campaign_takes_no_reports_and_goes_on_when_resumed(service: InProcess) -> None:
    mechanism = service.mechanism()["id"]
    assert send(service, mechanism, 60).status_code == 200
    assert change(service, state="paused").json()["state"] == "paused"
    paused = send(service, mechanism)
    assert_problem(paused, "campaign-paused")
    assert int(paused.headers["retry-after"]) > 0
    one = {"mechanism": mechanism, "id": new_id(), "cell": 1}
    assert_problem(service.post(f"{CAMPAIGN}/reports", json=one), "campaign-paused")
    assert_problem(service.get(f"{CAMPAIGN}/mechanism"), "campaign-paused")
    assert service.get(CAMPAIGN).json()["reports_counted"]["all"] == 60
    assert change(service, state="running").json()["state"] == "open"
    assert service.mechanism()["id"] == mechanism
    assert send(service, mechanism).status_code == 200


def test_a_paused_campaign_closes_nothing_by_itself(inside: Callable[..., InProcess]) -> None:
    service = inside()
    service.campaign(round_size=50, minimum_round_hours=0)
    assert send(service, service.mechanism()["id"], 60).status_code == 200
    change(service, state="paused")
    work(service)
    assert service.get(CAMPAIGN).json()["rounds_closed"] == 0
    change(service, state="running")
    work(service)
    assert service.get(f"{CAMPAIGN}/estimate").json()["reports"] == 60


def test_an_ended_campaign_has_its_last_estimate_and_no_more(service: InProcess) -> None:
    mechanism = service.mechanism()["id"]
    send(service, mechanism, 60)
    assert change(service, state="ended").json()["state"] == "ended"
    assert_problem(send(service, mechanism), "campaign-ended")
    assert_problem(service.get(f"{CAMPAIGN}/mechanism"), "campaign-ended")
    work(service)
    state = service.get(CAMPAIGN).json()
    assert (state["state"], state["round"], state["estimate"]["reports"]) == ("ended", 1, 60)
    assert service.get(f"{CAMPAIGN}/estimate").status_code == 200
    for changes in ({"state": "running"}, {"state": "paused"}, {"next_round_now": True}):
        assert_problem(change(service, **changes), "campaign-ended")
    assert change(service, state="ended", name="Over").status_code == 200
    work(service)
    assert service.get(CAMPAIGN).json()["round"] == 1


def test_of_an_ended_campaign_nobody_is_told_to_wait_for_more_reports(service: InProcess) -> None:
    send(service, service.mechanism()["id"], 10)
    small = service.post(f"{CAMPAIGN}/rounds", operator=True)
    assert_problem(small, "round-too-small")
    assert small.json()["detail"].endswith("must have at least 50 to be closed; wait for more")
    change(service, state="ended")
    assert_problem(service.post(f"{CAMPAIGN}/rounds", operator=True), "campaign-ended")
    none = service.get(f"{CAMPAIGN}/rounds/1/estimate")  # and none will come
    assert none.json()["detail"] == "campaign 'lyon' has no estimate of round 1"


def test_the_next_round_opens_now(service: InProcess) -> None:
    first = service.mechanism()
    send(service, first["id"], 10)
    assert change(service, next_round_now=True).json()["round"] == 2
    second = service.mechanism()
    assert (second["round"], second["weights"]) == (2, first["weights"])
    assert second["id"] != first["id"]
    assert send(service, first["id"]).status_code == 200  # late, and counted all the same
    assert send(service, second["id"]).status_code == 200


def test_after_the_last_round_none_is_opened_and_nothing_else_is_changed(
    inside: Callable[..., InProcess],
) -> None:
    service = inside()
    service.campaign(rounds=1)
    send(service, service.mechanism()["id"], 60)
    service.post(f"{CAMPAIGN}/rounds", operator=True)
    work(service)
    finished = change(service, next_round_now=True, name="Lyon again", state="paused")
    assert_problem(finished, "campaign-finished")
    assert finished.json()["detail"].endswith("make another campaign for more")
    state = service.get(CAMPAIGN).json()
    assert (state["state"], state["round"], state["name"]) == ("finished", 1, LYON["name"])
    listed = service.get("/api/campaigns", operator=True).json()["campaigns"]
    assert [each["state"] for each in listed] == ["finished"]


def test_a_campaign_is_not_ended_by_a_change_that_cannot_be(service: InProcess) -> None:
    both = change(service, state="ended", next_round_now=True)
    assert_problem(both, "invalid-campaign")
    assert "must be left out" in both.json()["detail"]
    assert service.get(CAMPAIGN).json()["state"] == "open"
    assert change(service, state="paused").status_code == 200
    assert change(service, state="running", next_round_now=True).json()["round"] == 2


def test_whoever_resumes_a_campaign_that_another_process_just_ended_changes_nothing(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_campaign, once = service.store.change_campaign, iter(["lyon"])

    def ended_before(campaign: str, **changes: Any) -> bool:
        for each in once:
            assert change_campaign(each, state="ended", minimum=50, at_s=1)
        return change_campaign(campaign, **changes)

    monkeypatch.setattr(service.store, "change_campaign", ended_before)
    assert_problem(change(service, state="running", name="Other"), "campaign-ended")
    told = service.get(CAMPAIGN).json()
    assert (told["state"], told["name"]) == ("ended", "Lyon")


def test_the_next_round_opens_also_where_another_process_just_closed_this_one(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_campaign, once = service.store.change_campaign, iter(["lyon"])
    send(service, service.mechanism()["id"], 60)

    def closed_before(campaign: str, **changes: Any) -> bool:
        for each in once:
            assert service.store.close_round(each, 1, minimum=50, at_s=1)
            assert not change_campaign(campaign, **changes)
            assert service.store.campaign(each).name == "Lyon"
        return change_campaign(campaign, **changes)

    monkeypatch.setattr(service.store, "change_campaign", closed_before)
    told = change(service, name="Other", next_round_now=True).json()
    assert (told["round"], told["name"]) == (2, "Other")


def test_a_deleted_campaign_is_gone_with_all_it_held(
    inside: Callable[..., InProcess], tmp_path: Path
) -> None:
    store = open_store(tmp_path / "store.db")
    service = inside(store)
    service.campaign()
    service.campaign(id="paris")
    mechanism = service.mechanism()["id"]
    send(service, mechanism, 60)
    service.post(f"{CAMPAIGN}/rounds", operator=True)
    work(service)
    gone = service.request("DELETE", CAMPAIGN, operator=True)
    assert (gone.status_code, gone.content) == (204, b"")
    for path in ("", "/mechanism", "/estimate", "/rounds/1/estimate"):
        assert_problem(service.get(CAMPAIGN + path), "unknown-campaign")
    assert_problem(send(service, mechanism), "unknown-campaign")
    assert_problem(service.request("DELETE", CAMPAIGN, operator=True), "unknown-campaign")
    with store.snapshot() as snapshot:
        rows = {table: len(list(snapshot(table))) for table in TABLES}
    left = {"campaign": 1, "round": 1, "token": 1}
    assert {table: number for table, number in rows.items() if table != "upkeep"} == {
        table: left.get(table, 0) for table in TABLES if table != "upkeep"
    }
    service.campaign()
    assert service.mechanism()["round"] == 1


def test_what_another_process_changed_is_known_at_the_next_look(
    inside: Callable[..., InProcess], tmp_path: Path
) -> None:
    one = inside(open_store(tmp_path / "store.db"))
    other = inside(open_store(tmp_path / "store.db"))
    one.campaign()
    mechanism = other.mechanism()["id"]
    assert send(other, mechanism).status_code == 200
    one.request("DELETE", CAMPAIGN, operator=True)
    one.campaign(mechanism_hours=24)
    assert_problem(send(other, mechanism), "mechanism-expired")  # never counted under another
    other.service.upkeep.tick()
    assert "unknown-mechanism" in send(other, mechanism).text
    mechanism = other.mechanism()["id"]
    assert send(other, mechanism).status_code == 200
    for state, problem in (("paused", "campaign-paused"), ("ended", "campaign-ended")):
        change(one, state=state)
        other.service.upkeep.tick()
        assert_problem(send(other, mechanism), problem)
    one.request("DELETE", CAMPAIGN, operator=True)
    other.service.upkeep.tick()
    assert_problem(send(other, mechanism), "unknown-campaign")


def test_nobody_waits_for_the_store_where_a_campaign_is_forgotten_while_a_report_is_checked(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = service.mechanism()["id"]
    assert send(service, mechanism).status_code == 200
    campaigns, looked_up, threads = service.service.campaigns, service.store.campaign, set()

    def noted(campaign: str) -> CampaignRecord | None:
        threads.add(threading.get_ident())
        return looked_up(campaign)

    monkeypatch.setattr(service.store, "campaign", noted)
    found = dict(campaigns.published)
    campaigns._forget_all("lyon")
    campaigns.published |= found  # as the report had found it before
    assert send(service, mechanism).status_code == 200
    assert threads
    assert service.run(_thread()) not in threads


async def _thread() -> int:
    return threading.get_ident()


@pytest.mark.parametrize(
    "body", [{"state": "closed"}, {"state": 1}, {"nonsense": 1}, {"next_round_now": "now"}, []]
)
def test_changes_that_are_none(service: InProcess, body: Any) -> None:
    answer = service.request("PATCH", CAMPAIGN, json=body, operator=True)
    assert_problem(answer, "malformed-body")


def test_only_operators_change_and_other_origins_never(service: InProcess) -> None:
    for method in ("PATCH", "DELETE"):
        assert_problem(service.request(method, CAMPAIGN, json={}), "unauthorised")
        answer = service.request(
            method, CAMPAIGN, json={}, headers={"origin": "https://evil.example"}
        )
        assert "access-control-allow-origin" not in answer.headers
    allowed = service.request("OPTIONS", CAMPAIGN).headers["access-control-allow-methods"]
    assert allowed == "GET"
    assert service.get(CAMPAIGN).json()["name"] == LYON["name"]


def test_a_listener_to_a_campaign_that_is_deleted_hears_the_end(shared: Live) -> None:
    shared.campaign()
    before = len(shared.log.read_text())
    with shared.client() as client, client.stream("GET", f"{CAMPAIGN}/events") as events:
        told = events.iter_bytes()
        assert b"event: round" in next(told)
        with shared.operator() as operator:
            assert operator.delete(CAMPAIGN).status_code == 204
        assert b"".join(told).count(b"data:") <= 3  # and the stream ends
    assert '"level": "error"' not in shared.log.read_text()[before:]
