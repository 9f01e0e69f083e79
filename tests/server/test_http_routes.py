"""What each address answers when all is well."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urljoin

import pytest

from geoveil.document.wire import MechanismDocument
from geoveil.server import estimate_routes
from geoveil.server.conclusion import conclude
from geoveil.server.dashboard import OPERATIONS
from geoveil.server.problem import Problem
from geoveil.server.settings import Tokens
from geoveil.server.worker import Jobs
from server.conftest import InProcess
from server.live import LYON, cells_of, new_id
from server.rounds_support import tick
from store.memory import MemoryStore

CAMPAIGN = "/api/campaigns/lyon"
pytestmark = pytest.mark.usefixtures("one_design")


def send(service: InProcess, number: int, campaign: str = "lyon") -> None:
    """Reports from all over the grid."""
    mechanism = service.mechanism(campaign)
    cells = cells_of(mechanism)
    reports = [
        {"mechanism": mechanism["id"], "id": new_id(), "cell": index % cells}
        for index in range(number)
    ]
    for start in range(0, number, 1000):
        answer = service.post(
            f"/api/campaigns/{campaign}/reports", json={"reports": reports[start : start + 1000]}
        )
        assert all(result["status"] == "counted" for result in answer.json()["results"])


def estimate(service: InProcess, campaign: str = "lyon") -> None:
    """Close the round and make its estimate, as the worker would."""
    assert service.post(f"/api/campaigns/{campaign}/rounds", operator=True).status_code == 202
    campaigns = service.service.campaigns
    for work in map(Jobs(campaigns).work, tick(campaigns)):
        assert Jobs(campaigns).publish(work, conclude(work))


@cache
def _with_an_estimate() -> MemoryStore:
    """Made once: the estimate takes a second."""
    service = InProcess(store := MemoryStore())
    service.campaign()
    send(service, 600)
    estimate(service)
    service.close()
    return store


@pytest.fixture
def closed(inside: Callable[..., InProcess]) -> InProcess:
    """A campaign with one estimate, now in its second round."""
    return inside(_with_an_estimate().copy())


def test_a_campaign_is_made_listed_and_shown(service: InProcess) -> None:
    made = service.post(
        "/api/campaigns", json={**LYON, "id": None, "name": "Île de Ré"}, operator=True
    )
    assert made.status_code == 201
    campaign = made.json()["id"]
    assert campaign.startswith("ile-de-re-")
    assert made.json() == {"id": campaign, "link": f"http://test/c/{campaign}"}
    before = "https://city.example/maps"  # a prefix that a proxy takes off before it asks
    at = f"{before}/api/campaigns/{campaign}"
    assert urljoin(f"{before}/api/campaigns", made.headers["location"]) == at
    listed = service.get("/api/campaigns", operator=True).json()["campaigns"]
    assert [each["id"] for each in listed] == ["lyon", campaign]
    state = service.get(f"/api/campaigns/{campaign}").json()
    assert (state["round"], state["reports_counted"]) == (1, {"round": 0, "all": 0})
    assert state["link"] == made.json()["link"]
    moved = service.get(f"/c/{campaign}")
    assert (moved.status_code, urljoin(f"{before}/c/{campaign}", moved.headers["location"])) == (
        307,
        at,
    )


def test_the_mechanism_is_the_same_bytes_for_everybody_under_its_id(service: InProcess) -> None:
    first = service.get(f"{CAMPAIGN}/mechanism")
    document = MechanismDocument.read(first.content)
    assert first.headers["etag"] == f'"{document.id}"'
    assert document.id == hashlib.sha256(document.to_bytes()).hexdigest()
    assert "max-age" in first.headers["cache-control"]
    other = service.get(
        f"{CAMPAIGN}/mechanism", headers={"user-agent": "other", "cookie": "who=me"}
    )
    assert other.content == first.content
    assert "set-cookie" not in other.headers
    assert service.request("HEAD", f"{CAMPAIGN}/mechanism").headers["etag"] == first.headers["etag"]


@pytest.mark.parametrize("held", ["{}", "W/{}", '"x", {}', "*"])
def test_what_a_client_holds_is_not_sent_again(service: InProcess, held: str) -> None:
    tag = service.get(f"{CAMPAIGN}/mechanism").headers["etag"]
    headers = {"if-none-match": held.format(tag)}
    again = service.get(f"{CAMPAIGN}/mechanism", headers=headers)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == tag
    assert (
        service.get(f"{CAMPAIGN}/mechanism", headers={"if-none-match": '"other"'}).status_code
        == 200
    )


def test_one_report_and_several(service: InProcess) -> None:
    mechanism = service.mechanism()["id"]
    one = {"mechanism": mechanism, "id": new_id(), "cell": 3}
    answer = service.post(f"{CAMPAIGN}/reports", json=one)
    assert answer.json() == {"id": one["id"], "status": "counted"}
    assert answer.headers["content-type"] == "application/json"
    several = [{"mechanism": mechanism, "id": new_id(), "cell": cell} for cell in (1, 1, 5)]
    results = service.post(f"{CAMPAIGN}/reports", json={"reports": [*several, one]}).json()[
        "results"
    ]
    assert results == [{"id": each["id"], "status": "counted"} for each in [*several, one]]
    counts = service.store.counts("lyon")[1]
    assert {cell: int(counts[cell]) for cell in (1, 3, 5)} == {1: 2, 3: 1, 5: 1}
    assert counts.sum() == 4


def test_the_first_of_two_equal_ids_counts(service: InProcess) -> None:
    report = {"mechanism": service.mechanism()["id"], "id": new_id(), "cell": 1}
    assert service.post(f"{CAMPAIGN}/reports", json=report).status_code == 200
    assert service.post(f"{CAMPAIGN}/reports", json=report | {"cell": 2}).status_code == 200
    counts = service.store.counts("lyon")[1]
    assert (counts[1], counts.sum()) == (1, 1)


def test_an_estimate_in_every_format_by_ending_and_by_accept(closed: InProcess) -> None:
    kinds = {
        "json": "application/json",
        "geojson": "application/geo+json",
        "csv": "text/csv",
        "parquet": "application/vnd.apache.parquet",
    }
    for ending, kind in kinds.items():
        by_ending = closed.get(f"{CAMPAIGN}/estimate.{ending}")
        by_accept = closed.get(f"{CAMPAIGN}/estimate", headers={"accept": kind})
        by_round = closed.get(f"{CAMPAIGN}/rounds/1/estimate.{ending}")
        assert by_ending.headers["content-type"].split(";")[0] == kind
        assert by_ending.content == by_accept.content == by_round.content
        assert by_round.headers["etag"] == by_ending.headers["etag"]
        assert by_round.headers["cache-control"] == "public, no-cache"
        assert by_ending.headers["cache-control"] == "public, no-cache"
    body = closed.get(f"{CAMPAIGN}/estimate").json()
    assert sum(body["distribution"]) == pytest.approx(1)
    cells = len(body["distribution"])
    assert len(closed.get(f"{CAMPAIGN}/estimate.geojson").json()["features"]) == cells
    assert closed.get(f"{CAMPAIGN}/estimate.csv").text.count("\n") == cells + 1


def test_every_rounds_estimate_stays_addressable(closed: InProcess) -> None:
    first = closed.get(f"{CAMPAIGN}/estimate").content
    send(closed, 600)
    estimate(closed)
    assert closed.get(f"{CAMPAIGN}/estimate").json()["round"] == 2
    assert closed.get(f"{CAMPAIGN}/estimate?round=1").content == first
    assert closed.get(f"{CAMPAIGN}/rounds/1/estimate").content == first
    held = closed.get(f"{CAMPAIGN}/rounds/1/estimate").headers["etag"]
    again = closed.get(f"{CAMPAIGN}/rounds/1/estimate", headers={"if-none-match": held})
    assert again.status_code == 304


def test_a_held_file_is_not_made_again_and_never_outlives_its_campaign(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{CAMPAIGN}/rounds/1/estimate"
    held = {
        each: closed.get(f"{path}.{each}").headers["etag"] for each in ("json", "csv", "geojson")
    }
    assert len(set(held.values())) == 3
    with monkeypatch.context() as patched:
        patched.setattr(estimate_routes, "rendered", lambda *_: pytest.fail("made again"))
        for ending, tag in held.items():
            again = closed.get(f"{path}.{ending}", headers={"if-none-match": f'"other", W/{tag}'})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
            assert again.headers["cache-control"] == "public, no-cache"
    anything = closed.get(f"{path}?slot=3", headers={"if-none-match": "*"})
    assert anything.status_code == 404
    assert closed.request("DELETE", CAMPAIGN, operator=True).status_code == 204
    asked = {"if-none-match": held["csv"]}
    assert closed.get(f"{path}.csv", headers=asked).status_code == 404
    assert closed.post("/api/campaigns", json=LYON, operator=True).status_code == 201
    send(closed, 700)
    estimate(closed)
    made_anew = closed.get(f"{path}.csv", headers=asked)
    assert made_anew.status_code == 200
    assert made_anew.headers["etag"] != held["csv"]


def test_web_pages_elsewhere_may_report_and_not_operate(service: InProcess) -> None:
    headers = {"origin": "https://app.example", "access-control-request-method": "POST"}
    for path in (CAMPAIGN, f"{CAMPAIGN}/mechanism", f"{CAMPAIGN}/reports"):
        asked = service.request("OPTIONS", path, headers=headers)
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-origin"] == "*"
        ticket = "authorization, " if path.endswith("/reports") else ""
        assert asked.headers["access-control-allow-headers"] == f"{ticket}content-type"
        assert "access-control-allow-credentials" not in asked.headers
    for path in ("/api/campaigns", f"{CAMPAIGN}/rounds", "/metrics"):
        asked = service.request("OPTIONS", path, headers=headers)
        assert asked.status_code == 405
        assert "access-control-allow-origin" not in asked.headers
    listed = service.get("/api/campaigns", operator=True, headers=headers)
    assert "access-control-allow-origin" not in listed.headers
    report = service.post(f"{CAMPAIGN}/reports", json={}, headers=headers)
    for answer in (report, service.get(f"{CAMPAIGN}/mechanism", headers=headers)):
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-expose-headers"] == "date, etag, retry-after"


def test_answers_carry_the_headers_that_keep_browsers_safe(service: InProcess) -> None:
    for path in ("/healthz", CAMPAIGN, f"{CAMPAIGN}/mechanism", "/nothing", "/openapi.json"):
        headers = service.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"


def test_health_readiness_and_metrics(service: InProcess) -> None:
    assert service.get("/healthz").json() == {"status": "ok"}
    assert service.get("/readyz").json() == {"status": "ready"}
    send(service, 3)
    text = service.get("/metrics").text
    assert 'geoveil_reports_total{outcome="counted"} 3' in text
    assert 'geoveil_requests_total{route="/healthz",status="200"} 1' in text
    assert "geoveil_commit_seconds_count 1" in text
    assert "lyon" not in text
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2


def test_openapi_lists_every_operation(service: InProcess) -> None:
    document = service.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    listed = {(method.upper(), path) for path, page in document["paths"].items() for method in page}
    assert listed == {(each.method, each.path) for each in OPERATIONS}
    names = [page[method]["operationId"] for page in document["paths"].values() for method in page]
    assert len(set(names)) == len(names)


def test_the_interface_page_is_all_there() -> None:
    wanted = {
        ("POST", "/api/campaigns"), ("GET", "/api/campaigns/{campaign}/mechanism"),
        ("POST", "/api/campaigns/{campaign}/reports"), ("POST", "/api/campaigns/{campaign}/rounds"),
        ("GET", "/api/campaigns/{campaign}/estimate"), ("GET", "/api/campaigns/{campaign}/events"),
        ("GET", "/api/campaigns/{campaign}"), ("GET", "/healthz"), ("GET", "/readyz"),
        ("GET", "/metrics"), ("GET", "/openapi.json"), ("GET", "/c/{campaign}"),
    }  # fmt: skip
    assert wanted <= {(each.method, each.path) for each in OPERATIONS}


async def _first_events(service: InProcess, path: str, number: int) -> list[tuple[str, Any]]:
    """The first events of a stream, read straight from the application."""
    found: list[tuple[str, Any]] = []
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send_message(message: dict[str, Any]) -> None:
        for block in message.get("body", b"").decode().split("\n\n"):
            if block.startswith("event:"):
                name, data = (line.split(": ", 1)[1] for line in block.splitlines())
                found.append((name, json.loads(data)))
        if len(found) >= number:
            left.set()

    scope = {
        "type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [],
        "client": ("198.51.100.7", 1), "asgi": {"spec_version": "2.3"},
    }  # fmt: skip
    await service.application(scope, receive, send_message)
    return found


def test_events_tell_totals_rounds_and_alarms(service: InProcess) -> None:
    send(service, 7)
    stream = asyncio.run_coroutine_threadsafe(
        _first_events(service, f"{CAMPAIGN}/events", 4), service.loop
    )
    while not stream.done():
        send(service, 1)
    found = dict(stream.result())
    assert set(found) == {"round", "counts", "alarm"}
    assert found["counts"]["reports_counted"]["all"] > 7
    assert set(found["counts"]["reports_counted"]) == {"round", "all"}
    assert service.service.listening.taken == 0


def test_the_head_of_a_stream_ends(service: InProcess) -> None:
    answer = service.request("HEAD", f"{CAMPAIGN}/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_listeners_are_bounded(inside: Callable[..., InProcess]) -> None:
    service = inside(listeners=0)
    service.campaign()
    assert service.get(f"{CAMPAIGN}/events").status_code == 503


def test_streams_end_when_the_service_stops(service: InProcess) -> None:
    stream = asyncio.run_coroutine_threadsafe(
        _first_events(service, f"{CAMPAIGN}/events", 1000), service.loop
    )
    while not service.service.listening:
        service.get("/healthz")
    service.loop.call_soon_threadsafe(service.service.closing.set)
    assert stream.result(60)


def test_the_first_token_is_made_once_and_kept_as_a_hash() -> None:
    store = MemoryStore()
    made = Tokens(store).prepare("")
    assert made is not None
    assert Tokens(store).prepare("") is None
    assert made not in repr(vars(store))
    Tokens(store).check(f"Bearer {made}")
    Tokens(store).prepare("another-token-given")
    Tokens(store).check("bearer another-token-given")
    for wrong in (made[:-1], made + "x", made.upper(), ""):
        with pytest.raises(Problem):
            Tokens(store).check(f"Bearer {wrong}")
