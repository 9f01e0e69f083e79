"""What the dashboard asks: rounds, noisy counts, regions, the backdrop, and a published map."""

from __future__ import annotations

import errno
import json
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from geoveil.campaign import Campaign
from geoveil.campaign.rounds import Closing
from geoveil.document.wire import MechanismDocument
from geoveil.randomness import seeded
from geoveil.server import dashboard, region_shares, shapes
from geoveil.server.apart import CalculationFailed, Calculator
from geoveil.server.dashboard import OPERATIONS
from geoveil.server.openapi import Audience
from geoveil.server.region_shares import evidence_of, shares_of
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.space import MaskedGrid, space_from_dict
from geoveil.store import CampaignRecord, EstimateRecord, Overloaded, RoundRecord, Upload
from server.conftest import InProcess
from server.live import LYON
from server.test_http_problems import assert_problem
from server.test_http_routes import CAMPAIGN, closed, estimate, send

__all__ = ["closed"]

FIELD = {"type": "Polygon", "coordinates": [[[4.8, 45.7], [4.9, 45.7], [4.9, 45.8], [4.8, 45.7]]]}


def ask(service: InProcess, method: str, path: str, **given: Any) -> Any:
    return service.request(method, path, operator=True, **given)


def box(south: float, west: float, north: float, east: float, name: str = "box") -> dict[str, Any]:
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    geometry = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "properties": {"name": name}, "geometry": geometry}


def test_strangers_may_do_nothing_of_an_operator(service: InProcess) -> None:
    operators = [each for each in OPERATIONS if each.audience is Audience.OPERATOR]
    assert len(operators) >= 11
    for operation in operators:
        path = operation.path.replace("{campaign}", "lyon")
        for token in (None, "Bearer not-one-of-the-tokens", "Basic YTpi", "bearer"):
            headers = {} if token is None else {"authorization": token}
            answer = service.request(operation.method, path, headers=headers, json={})
            assert_problem(answer, "unauthorised")
            assert answer.headers.get("access-control-allow-origin") is None
    assert service.get(CAMPAIGN).json()["name"] == "Lyon"


def test_operators_have_few_large_things_done_at_a_time(service: InProcess) -> None:
    mine = [each for each in OPERATIONS if each.audience is Audience.OPERATOR]
    with ExitStack() as taken:
        for _ in range(4):
            taken.enter_context(service.service.job())
        for operation in mine:
            path = operation.path.replace("{campaign}", "nobody")
            answer = ask(service, operation.method, path, json={})
            refused = answer.headers.get("retry-after") == "1"
            assert refused == operation.job == ("overloaded" in operation.every_problem)
            if refused:
                assert_problem(answer, "overloaded")
    assert sum(operation.job for operation in mine) >= 10
    assert service.service.metrics.refused["overloaded"] >= 10
    assert ask(service, "DELETE", CAMPAIGN).status_code == 204


def _broken(send: Callable[[Any], None]) -> str:
    raise ZeroDivisionError


def _fine(send: Callable[[Any], None]) -> str:
    return "fine"


@pytest.mark.slow
def test_a_calculation_that_fails_says_where_and_the_next_is_answered() -> None:
    calculator = Calculator()
    with pytest.raises(CalculationFailed) as caught:
        calculator.answer(60.0, _broken)
    assert caught.value.trace.kind == "ZeroDivisionError"
    assert calculator.answer(60.0, _fine) == "fine"
    calculator.end()
    with pytest.raises(Overloaded):
        calculator.answer(60.0, _fine)


def _without_disk(send: Callable[[Any], None]) -> str:
    raise OSError(errno.ENOSPC, "no room")


def test_a_calculation_that_the_system_fails_says_so_at_once(closed: InProcess) -> None:
    with pytest.raises(CalculationFailed) as caught:
        closed.service.calculator.answer(60.0, _without_disk)
    assert caught.value.trace.kind == "OSError"


def test_questions_that_wait_for_their_turn_keep_no_request_waiting(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()

    def no(*asked: Any) -> str:
        begun.set()
        over.wait(60.0)
        return "no"

    with ThreadPoolExecutor(2) as threads, ThreadPoolExecutor(3) as operators:
        monkeypatch.setattr(service.service, "_threads", threads)
        monkeypatch.setattr(service.service.calculator, "answer", no)
        question = {name: value for name, value in LYON.items() if name not in ("name", "id")}
        asked = partial(ask, service, "POST", "/api/advice", json=question)
        answers = [operators.submit(asked) for _ in range(3)]
        assert begun.wait(60.0)
        time.sleep(0.3)
        status = service.get(CAMPAIGN).status_code
        over.set()
        assert {answer.result(60.0).json()["detail"] for answer in answers} == {"no"}
    assert status == 200


def _warning(send: Callable[[Any], None]) -> str:
    warnings.warn("a division by zero", RuntimeWarning, stacklevel=1)
    return "fine"


def test_a_calculation_warns_nobody_in_the_log_and_its_process_may_end_with_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    calculator = Calculator(lasting=False)
    assert calculator.answer(60.0, _warning) == "fine"
    assert calculator.pid is None
    calculator.end()
    assert capfd.readouterr().err == ""


# --- Rounds and noisy counts


def test_rounds_tell_when_and_how_many(closed: InProcess) -> None:
    send(closed, 20)
    said = ask(closed, "GET", f"{CAMPAIGN}/rounds").json()
    assert said["minimum_reports"] == 50
    first, second = said["rounds"]
    assert (first["round"], first["reports"], first["estimated"]) == (1, 600, True)
    assert (second["round"], second["reports"], second["estimated"]) == (2, 20, False)
    assert first["closed_at"] >= first["opened_at"]
    assert second["closed_at"] is None
    assert not first["given_up"]
    send(closed, 40)
    closed.service.campaigns.close("lyon")
    [closing] = closed.store.closings()
    closed.store.failed(closing)
    assert closed.service.worker.jobs.give_up(closing)
    said = ask(closed, "GET", f"{CAMPAIGN}/rounds").json()
    assert [each["given_up"] for each in said["rounds"]] == [False, True, False]
    state = closed.service.campaigns.state("lyon")
    assert (state["estimate"]["round"], state["given_up"]) == (1, 2)
    none = closed.get(f"{CAMPAIGN}/rounds/2/estimate")
    assert_problem(none, "no-estimate-yet")
    assert none.json()["detail"].endswith("given up after 1 attempt that failed")


def test_noisy_counts_are_those_of_the_rounds_of_the_estimate(closed: InProcess) -> None:
    said = ask(closed, "GET", f"{CAMPAIGN}/counts").json()
    assert (said["round"], said["rounds"], len(said["counts"])) == (1, [1], 49)
    assert sum(said["counts"]) + said["outside"] == 600
    send(closed, 20)  # too few to be released, and not told
    assert ask(closed, "GET", f"{CAMPAIGN}/counts").json() == said
    assert ask(closed, "GET", f"{CAMPAIGN}/counts?round=1").json() == said
    assert_problem(ask(closed, "GET", f"{CAMPAIGN}/counts?round=7"), "unknown-round")
    assert_problem(ask(closed, "GET", f"{CAMPAIGN}/counts?round=x"), "malformed-body")


def test_documents_are_read_again_while_others_are_answered(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    read = region_shares.unpack_levels

    def noted(*given: Any, **named: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read(*given, **named)

    monkeypatch.setattr(region_shares, "unpack_levels", noted)
    assert ask(closed, "GET", f"{CAMPAIGN}/counts").status_code == 200
    assert threads
    assert all(name.startswith("geoveil-store") for name in threads), threads


def of_version_1(service: InProcess, told: int | None) -> dict[str, Any]:
    """The campaign ``old`` of 60 reports as the first program kept it: a promise between cells, and an
    estimate, from so many reports, that names no parts; or none."""
    opened = RoundRecord("old", 1, "c" * 64, b'{"campaign":"old","geoveil":1,"kind":"mechanism"}',
                         2, 0, 3_000_000_000, 3_000_000_000)  # fmt: skip
    made = {"geoveil": 1, "campaign": "old", "round": 1, "rounds": [{"round": 1, "reports": told}]}
    made |= {"distribution": [1.0], "space": CampaignSettings(**LYON).grid.to_dict()}
    settings = CampaignSettings(**LYON | {"id": "old"}).to_bytes()
    store = service.store
    store.create_campaign(CampaignRecord("old", "Old", settings, 0), opened)
    store.add([Upload("old", 1, number.to_bytes(16, "big"), 0) for number in range(60)])
    if told is not None:
        store.close_round("old", 1, minimum=1, at_s=1)
        store.publish(EstimateRecord("old", 1, 2, told, json.dumps(made).encode()), None)
    store.change_campaign("old", state="ended", at_s=1)
    return made


def test_of_a_campaign_of_version_1_counts_and_estimates_are_left(service: InProcess) -> None:
    made, at = of_version_1(service, 60), "/api/campaigns/old"
    assert service.get(f"{at}/estimate").json() == made
    assert_problem(service.get(f"{at}/estimate?slot=0"), "unknown-slot")
    counts = ask(service, "GET", f"{at}/counts").json()
    assert counts["counts"][0] == sum(counts["counts"]) == 60
    assert counts["outside"] == 0
    region = ask(service, "POST", f"{at}/estimate/regions", json=FIELD)
    assert_problem(region, "not-offered")
    assert "of version 1 only counts and estimates are left" in region.text


def test_counts_that_the_first_program_did_not_keep_are_not_made_up(service: InProcess) -> None:
    of_version_1(service, 55)  # five came later, and nothing says which
    counts = ask(service, "GET", "/api/campaigns/old/counts")
    assert_problem(counts, "not-offered")
    assert "did not keep what this estimate was made from" in counts.text


def test_an_open_round_of_version_1_is_never_closed(service: InProcess) -> None:
    of_version_1(service, None)
    assert_problem(ask(service, "POST", "/api/campaigns/old/rounds"), "campaign-ended")
    ended = ask(service, "PATCH", "/api/campaigns/old", json={"state": "ended"})
    assert ended.status_code == 200
    assert service.store.closings() == []  # no estimate could be made of it


def test_no_counts_below_the_minimum(service: InProcess) -> None:
    send(service, 49)
    for path in ("counts", "estimate", "counts?round=1"):
        assert_problem(ask(service, "GET", f"{CAMPAIGN}/{path}"), "no-estimate-yet")


# --- Regions


def test_the_region_of_one_cell_has_the_interval_that_was_published(closed: InProcess) -> None:
    made = closed.get(f"{CAMPAIGN}/estimate").json()
    evidence = evidence_of(closed.service.campaigns, "lyon")
    found = shares_of(lambda _: None, evidence, np.eye(49))
    assert not isinstance(found, str)
    share, low, high, _ = np.array(found.rows).T
    assert np.allclose(share, made["distribution"])
    assert np.allclose(low, made["interval"]["low"], atol=1e-9)
    assert np.allclose(high, made["interval"]["high"], atol=1e-9)


def test_blocks_have_intervals_of_their_own(closed: InProcess) -> None:
    made = closed.get(f"{CAMPAIGN}/estimate").json()
    blocks = {each["side"]: each for each in made["blocks"]}
    assert [len(blocks[side]["low"]) for side in (2, 4, 8)] == [16, 4, 1]
    assert blocks[8]["low"] == blocks[8]["high"] == [1.0]  # all cells
    corner = np.array([0, 1, 7, 8])  # two rows of two in a map seven wide
    evidence = evidence_of(closed.service.campaigns, "lyon")
    found = shares_of(lambda _: None, evidence, np.isin(np.arange(49), corner)[None] * 1.0)
    assert not isinstance(found, str)
    _, low, high, _ = found.rows[0]
    assert (blocks[2]["low"][0], blocks[2]["high"][0]) == pytest.approx((low, high), rel=1e-5)
    cells = max(made["interval"]["high"][cell] - made["interval"]["low"][cell] for cell in corner)
    assert high - low < 4 * cells


def test_a_region_has_an_interval_of_its_own(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        region_shares, "members_of", None
    )  # in a process apart: 100 MiB of large maps
    made = closed.get(f"{CAMPAIGN}/estimate").json()
    south, west, north, east = LYON["box"]
    middle = (west + east) / 2
    # cells reach beyond the box
    south, west, north, east = south - 0.02, west - 0.02, north + 0.02, east + 0.02
    zones = {
        "type": "FeatureCollection",
        "features": [
            box(south, west, north, middle, "west"), box(south, west, north, east, "all"),
            box(south + 60 - 90, west, north - 90, east, "elsewhere"),
        ],
    }  # fmt: skip
    answer = ask(closed, "POST", f"{CAMPAIGN}/estimate/regions", json=zones)
    assert answer.status_code == 200, answer.text
    said = answer.json()
    half, whole, none = said["regions"]
    assert (said["round"], said["level"]) == (1, 0.95)
    assert (half["name"], whole["name"], none["name"]) == ("west", "all", "elsewhere")
    assert (whole["cells"], whole["share"], whole["high"]) == (49, pytest.approx(1.0), 1.0)
    assert (none["cells"], none["share"]) == (0, 0.0)
    assert half["cells"] == 28  # the middle cuts through a column of seven
    assert 0.0 < half["in_cut_cells"] < half["share"]
    assert said["left_out"] == 0.0
    assert said["counted_twice"] == pytest.approx(half["share"])
    assert half["low"] < half["share"] < half["high"]
    added = sum(np.subtract(made["interval"]["high"], made["interval"]["low"]))
    assert half["high"] - half["low"] < added / 4  # cells' intervals do not add up


def test_the_bars_of_a_guarded_close_are_recalled_with_its_fakes() -> None:
    settings = CampaignSettings(**LYON | {"cell_km": 1.5}, guarded=True)  # 25 cells
    campaign = Campaign(settings.grid, rule=settings.rule, minimum_reports=50)
    people = np.repeat([6, 12, 16], 1500)
    reports = campaign.mechanism.sample(people, randomness=seeded(3))
    fakes = np.full(400, 24)
    campaign.receive(campaign.mechanism.tally(np.concatenate([reports, fakes])))
    campaign.close_round(last=True)
    then = campaign.closing
    assert then.possible_fakes
    again = Closing.recalled(
        then.rounds, then.estimate.distribution, steps=then.estimate.steps,
        stopped=then.estimate.stopped, fakes=then.possible_fakes, named=then.inspected.named,
    )  # fmt: skip
    for ours, theirs in zip(
        again.error_bars()[0].interval(0.95), then.error_bars()[0].interval(0.95), strict=True
    ):
        assert np.allclose(ours, theirs)


NO_REGIONS: list[Any] = [
    {},
    [],
    {"type": "FeatureCollection"},
    {"type": "Polygon"},
    {"type": "Feature"},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, "1"], [1, 0], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 91], [1, 0], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [True, 1], [1, 0], [0, 0]]]},
    {"type": "LineString", "coordinates": [[0, 0], [1, 1]]},
    {"type": "Point", "coordinates": [0, 0]},
    {"type": "Feature", "geometry": FIELD, "properties": {"name": "a\nb"}},
    {"type": "Feature", "geometry": FIELD, "properties": {"name": 7}},
    {"type": ["Polygon"], "coordinates": []},
    {"type": "GeometryCollection", "geometries": [FIELD] * 201},
    {"type": "GeometryCollection", "geometries": [FIELD, {"type": "Point", "coordinates": [0, 0]}]},
    {
        "type": "FeatureCollection",  # an answer without the first would be taken for its
        "features": [
            {"type": "Feature", "geometry": shape, "properties": {}} for shape in (None, FIELD)
        ],
    },
    {
        "type": "Polygon",
        "coordinates": [[[4.8, 45.7], [4.9, 45.8], [4.9, 45.7], [4.8, 45.8], [4.8, 45.7]]],
    },
]


def test_regions_that_are_none_are_refused(closed: InProcess) -> None:
    for zones in NO_REGIONS:
        answer = ask(closed, "POST", f"{CAMPAIGN}/estimate/regions", json=zones)
        assert_problem(answer, "invalid-geojson")


def test_regions_before_an_estimate(service: InProcess) -> None:
    answer = ask(service, "POST", f"{CAMPAIGN}/estimate/regions", json=FIELD)
    assert_problem(answer, "no-estimate-yet")


def test_whoever_may_see_the_map_may_ask_about_a_region(closed: InProcess) -> None:
    path = f"{CAMPAIGN}/map/region"
    assert_problem(closed.post(path, json=FIELD), "not-offered")
    ask(closed, "PATCH", CAMPAIGN, json={"published": True})
    theirs = ask(closed, "POST", f"{CAMPAIGN}/estimate/regions", json=FIELD).json()
    said = closed.post(path, json=FIELD)  # in a process that has begun: a reader waits 20 s at most
    assert said.status_code == 200, said.text
    assert said.json() == theirs
    for zones in ({"type": "GeometryCollection", "geometries": [FIELD, FIELD]}, *NO_REGIONS):
        assert_problem(closed.post(path, json=zones), "invalid-geojson")
    ask(closed, "PATCH", CAMPAIGN, json={"published": False})
    assert_problem(closed.post(path, json=FIELD), "not-offered")


@pytest.mark.slow
def test_readers_ask_one_at_a_time_and_keep_no_operator_waiting(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{CAMPAIGN}/map/region"
    ask(closed, "PATCH", CAMPAIGN, json={"published": True})

    async def while_another_asks() -> Any:
        async with closed.service.reader_asks:
            return await closed.client.post(path, json=FIELD)

    busy = closed.run(while_another_asks())
    assert_problem(busy, "overloaded")
    assert ask(closed, "POST", f"{CAMPAIGN}/estimate/regions", json=FIELD).status_code == 200
    monkeypatch.setattr(dashboard, "READER_S", 0.0)
    assert_problem(closed.post(path, json=FIELD), "overloaded")
    assert not closed.service.reader_asks.locked()


@pytest.mark.parametrize("read", ["closing_counts", "rounds"])
def test_what_is_asked_of_a_campaign_that_goes_meanwhile_is_no_fault(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    reading = getattr(closed.store, read)

    def deleted_before(*asked: Any) -> Any:
        closed.store.delete_campaign("lyon")
        return reading(*asked)

    monkeypatch.setattr(closed.store, read, deleted_before)
    assert_problem(ask(closed, "GET", f"{CAMPAIGN}/counts"), "unknown-campaign")


def test_no_region_of_a_map_that_is_not_there(service: InProcess) -> None:
    ask(service, "PATCH", CAMPAIGN, json={"published": True})
    assert_problem(service.post(f"{CAMPAIGN}/map/region", json=FIELD), "no-estimate-yet")
    assert_problem(service.post("/api/campaigns/nice/map/region", json=FIELD), "unknown-campaign")


# --- City limits


CITY = {
    "type": "Polygon",
    "coordinates": [[[4.80, 45.70], [4.87, 45.70], [4.87, 45.76], [4.80, 45.76], [4.80, 45.70]]],
}


def test_city_limits_leave_the_cells_of_the_city(service: InProcess) -> None:
    address = f"{CAMPAIGN}/area"
    before = MechanismDocument.read(service.get(f"{CAMPAIGN}/mechanism").content)
    assert_problem(service.request("PUT", address, json=CITY), "unauthorised")
    assert ask(service, "PUT", address, json=CITY).status_code == 204
    document = MechanismDocument.read(service.get(f"{CAMPAIGN}/mechanism").content)
    city = document.mechanism.space
    assert isinstance(city, MaskedGrid)
    assert 2 <= city.size < before.area.size == city.grid.size
    assert document.round == before.round + 1
    late = {"mechanism": before.id, "id": "ab" * 16, "cell": before.area.size - 1}
    assert service.post(f"{CAMPAIGN}/reports", json=late).status_code == 200  # and in no map
    reports = document.mechanism.sample(np.zeros(60, dtype=np.int64), randomness=seeded(1))
    for number, cell in enumerate(reports.tolist()):
        report = {"mechanism": document.id, "id": f"{number:032x}", "cell": cell}
        assert service.post(f"{CAMPAIGN}/reports", json=report).status_code == 200
    assert_problem(ask(service, "PUT", address, json=CITY), "area-fixed")
    estimate(service)
    made = service.get(f"{CAMPAIGN}/estimate").json()
    assert made["reports"] == 60
    assert space_from_dict(made["space"]) == city
    assert len(made["distribution"]) == city.size
    assert len(made["blocks"][0]["low"]) == 16
    features = service.get(f"{CAMPAIGN}/estimate.geojson").json()["features"]
    assert len(features) == city.size
    zones = ask(service, "POST", f"{CAMPAIGN}/estimate/regions", json=CITY).json()
    assert zones["regions"][0]["cells"] == city.size


def test_limits_that_cannot_be(service: InProcess) -> None:
    address = f"{CAMPAIGN}/area"
    for zones in NO_REGIONS:
        assert_problem(ask(service, "PUT", address, json=zones), "invalid-geojson")
    small = {
        "type": "Polygon",
        "coordinates": [[[4.8, 45.7], [4.801, 45.7], [4.8, 45.701], [4.8, 45.7]]],
    }
    assert_problem(ask(service, "PUT", address, json=small), "invalid-campaign")
    assert_problem(ask(service, "PUT", "/api/campaigns/nobody/area", json=CITY), "unknown-campaign")


# --- The backdrop


STREETS = {
    "type": "FeatureCollection",
    "name": "<script>alert(1)</script>",
    "features": [
        {
            "type": "Feature",
            "properties": {"kind": "water", "name": "=cmd|' /C calc'!A0", "onload": "alert(1)"},
            "geometry": {**FIELD, "bbox": ["<img src=x onerror=alert(1)>"]},
        },
        {
            "type": "Feature",
            "properties": {"kind": "<svg/onload=alert(1)>"},
            "geometry": {
                "type": "LineString",
                "coordinates": [[4.81234567, 45.7, 170], [4.9, 45.8]],
            },
        },
        {"type": "Feature", "properties": None, "geometry": None},
        {"type": "Point", "coordinates": [4.8, 45.7]},
    ],
}


def test_a_backdrop_is_kept_without_a_word_that_is_not_ours(service: InProcess) -> None:
    assert service.get(f"{CAMPAIGN}/backdrop").status_code == 204
    kept = ask(service, "PUT", f"{CAMPAIGN}/backdrop", json=STREETS)
    assert (kept.status_code, kept.content) == (204, b"")
    answer = service.get(f"{CAMPAIGN}/backdrop")
    assert answer.headers["content-type"] == "application/geo+json"
    water, street = answer.json()["features"]
    assert water == {"type": "Feature", "properties": {"kind": "water"}, "geometry": FIELD}
    assert street["properties"] == {}
    assert street["geometry"]["coordinates"] == [[4.812346, 45.7], [4.9, 45.8]]
    assert not any(word in answer.text for word in ("script", "alert", "calc", "onerror"))
    held = service.get(f"{CAMPAIGN}/backdrop", headers={"if-none-match": answer.headers["etag"]})
    assert held.status_code == 304
    assert held.headers["cache-control"] == answer.headers["cache-control"] == "public, no-cache"
    assert ask(service, "DELETE", f"{CAMPAIGN}/backdrop").status_code == 204
    assert service.get(f"{CAMPAIGN}/backdrop").status_code == 204


def test_districts_are_kept_by_name_and_told_to_readers_of_the_map(closed: InProcess) -> None:
    path = f"{CAMPAIGN}/map/districts"
    south, west, north, east = LYON["box"]
    middle = (west + east) / 2
    halves = [box(south, west, north, middle, "West <b>"), box(south, middle, north, east, "East")]
    for each in halves:
        each["properties"] |= {"kind": "district", "more": "script"}
    assert_problem(closed.get(path), "not-offered")
    ask(closed, "PATCH", CAMPAIGN, json={"published": True})
    assert_problem(closed.get(path), "not-offered")
    kept = {"type": "FeatureCollection", "features": [STREETS["features"][1], *halves]}
    assert ask(closed, "PUT", f"{CAMPAIGN}/backdrop", json=kept).status_code == 204
    given = closed.get(f"{CAMPAIGN}/backdrop").json()["features"]
    assert [each["properties"] for each in given] == [
        {},
        {"kind": "district", "name": "West <b>"},
        {"kind": "district", "name": "East"},
    ]
    said = closed.get(path).json()
    zones = {"type": "FeatureCollection", "features": halves}
    assert said == ask(closed, "POST", f"{CAMPAIGN}/estimate/regions", json=zones).json()
    assert [each["name"] for each in said["regions"]] == ["West <b>", "East"]
    assert sum(each["area_cells"] for each in said["regions"]) == pytest.approx(49, rel=0.2)
    assert closed.get(path).json() == said  # remembered
    ask(closed, "PUT", f"{CAMPAIGN}/backdrop", json={**kept, "features": halves[:1]})
    assert len(closed.get(path).json()["regions"]) == 1
    ask(closed, "PATCH", CAMPAIGN, json={"published": False})
    assert_problem(closed.get(path), "not-offered")


def test_districts_of_a_deleted_campaign_are_not_those_of_the_next(closed: InProcess) -> None:
    south, west, north, east = LYON["box"]
    half = box(south, west, north, (west + east) / 2, "West")
    half["properties"] |= {"kind": "district"}

    def told() -> Any:
        ask(closed, "PATCH", CAMPAIGN, json={"published": True})
        ask(closed, "PUT", f"{CAMPAIGN}/backdrop", json=half)
        return closed.get(f"{CAMPAIGN}/map/districts").json()["regions"]

    before = told()
    assert ask(closed, "DELETE", CAMPAIGN).status_code == 204
    closed.campaign()
    send(closed, 500)
    estimate(closed)
    regions = {"type": "FeatureCollection", "features": [half]}
    after = told()
    assert (
        after == ask(closed, "POST", f"{CAMPAIGN}/estimate/regions", json=regions).json()["regions"]
    )
    assert after != before


def test_districts_that_are_none_are_refused(service: InProcess) -> None:
    line = {"type": "LineString", "coordinates": [[4.8, 45.7], [4.9, 45.8]]}
    for geometry, name in ((line, "a"), (FIELD, "a\nb"), (FIELD, "a" * 201), (FIELD, 7)):
        shape = {
            "type": "Feature",
            "properties": {"kind": "district", "name": name},
            "geometry": geometry,
        }
        answer = ask(service, "PUT", f"{CAMPAIGN}/backdrop", json=shape)
        assert_problem(answer, "invalid-geojson")
    many = [box(45.7, 4.8, 45.8, 4.9, str(n)) for n in range(201)]
    for each in many:
        each["properties"]["kind"] = "district"
    body = {"type": "FeatureCollection", "features": many}
    assert_problem(ask(service, "PUT", f"{CAMPAIGN}/backdrop", json=body), "invalid-geojson")


def test_no_backdrop_is_kept_of_a_campaign_that_another_process_has_deleted(
    service: InProcess,
) -> None:
    assert service.get(CAMPAIGN).status_code == 200  # from here on it is known
    assert service.store.delete_campaign("lyon")
    for method, given in (("PUT", {"json": STREETS}), ("DELETE", {})):
        assert_problem(ask(service, method, f"{CAMPAIGN}/backdrop", **given), "unknown-campaign")


def test_a_backdrop_may_be_long_and_not_too_long(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '{"type":"LineString","coordinates":[[4.8,45.7]%s]}'
    text = line % (",[4.812345678901234,45.723456789012345]" * 30_000)
    assert 1_000_000 < len(text) < shapes.BACKDROP_BYTES
    headers = {"content-type": "application/geo+json"}
    answer = ask(service, "PUT", f"{CAMPAIGN}/backdrop", content=text, headers=headers)
    assert answer.status_code == 204
    too_long = text + " " * shapes.BACKDROP_BYTES
    answer = ask(service, "PUT", f"{CAMPAIGN}/backdrop", content=too_long, headers=headers)
    assert_problem(answer, "body-too-large")
    assert shapes._MOST_POSITIONS == 400_000  # which would take seconds here
    monkeypatch.setattr(shapes, "_MOST_POSITIONS", 40_000)
    monkeypatch.setattr(shapes, "_shape", None)  # of too many none is looked at
    content = line % (",[0,0]" * 40_000)
    answer = ask(service, "PUT", f"{CAMPAIGN}/backdrop", content=content, headers=headers)
    assert_problem(answer, "invalid-geojson")


def test_every_line_of_a_backdrop_keeps_its_own_positions() -> None:
    lines = [[[4.8, 45.7, 9.0], [4.81234567, 45.7]], [[1, 2], [3, 4], [5, 6]]]
    several = {"type": "MultiLineString", "coordinates": lines}
    none = {"type": "MultiLineString", "coordinates": []}
    kept = shapes.read_shapes(
        json.dumps({"type": "GeometryCollection", "geometries": [several, none]}).encode()
    )
    assert kept[0].coordinates == [[[4.8, 45.7], [4.812346, 45.7]], [[1, 2], [3, 4], [5, 6]]]
    assert kept[1].coordinates == []


HOSTILE: list[tuple[bytes, str]] = [
    (b"", "malformed-body"),
    (b"{", "malformed-body"),
    (b'{"type": NaN}', "malformed-body"),
    (b"[" * 200_000, "malformed-body"),
    (b'{"a":' * 100_000, "malformed-body"),
    (b"\xff\xfe", "malformed-body"),
    (b"null", "invalid-geojson"),
    (b"7", "invalid-geojson"),
    (b'{"type":"LineString","coordinates":[[1e400,0],[0,0]]}', "malformed-body"),
    (b'{"type":"LineString","coordinates":[[1e300,0],[0,0]]}', "invalid-geojson"),
    (b'{"type":"LineString","coordinates":[[null,0],[0,0]]}', "invalid-geojson"),
    (b'{"type":"LineString","coordinates":' + b"[" * 400 + b"]" * 400 + b"}", "invalid-geojson"),
    (b'{"type":"GeometryCollection","geometries":' * 200 + b"[]" + b"}" * 200, "invalid-geojson"),
    (b'{"type":"FeatureCollection","features":{}}', "invalid-geojson"),
    (b'{"type":"__proto__","coordinates":[]}', "invalid-geojson"),
]


def test_hostile_backdrops_are_refused(service: InProcess) -> None:
    for text, problem in HOSTILE:
        assert_problem(ask(service, "PUT", f"{CAMPAIGN}/backdrop", content=text), problem)
    assert service.get(f"{CAMPAIGN}/backdrop").status_code == 204


# --- A published map


def test_a_published_estimate_may_be_read_by_pages_of_other_origins(closed: InProcess) -> None:
    def opened(path: str) -> str | None:
        answer = closed.get(f"{CAMPAIGN}/{path}", headers={"origin": "https://other.example"})
        assert answer.status_code == 200
        return answer.headers.get("access-control-allow-origin")

    paths = ("estimate", "estimate.geojson", "estimate.csv", "rounds/1/estimate")
    assert [opened(path) for path in paths] == [None] * 4
    answer = ask(closed, "PATCH", CAMPAIGN, json={"published": True})
    assert answer.json()["published"] is True
    assert [opened(path) for path in paths] == ["*"] * 4
    assert closed.get(CAMPAIGN).json()["published"] is True
    listed = ask(closed, "GET", "/api/campaigns").json()["campaigns"]
    assert [(each["state"], each["published"]) for each in listed] == [("running", True)]
    assert ask(closed, "PATCH", CAMPAIGN, json={"name": "Other"}).json()["published"] is True
    assert ask(closed, "PATCH", CAMPAIGN, json={"published": False}).json()["published"] is False
    assert [opened(path) for path in paths] == [None] * 4


def test_publishing_releases_nothing_below_the_minimum(service: InProcess) -> None:
    ask(service, "PATCH", CAMPAIGN, json={"published": True})
    send(service, 49)
    assert_problem(service.get(f"{CAMPAIGN}/estimate"), "no-estimate-yet")
    assert_problem(ask(service, "POST", f"{CAMPAIGN}/rounds"), "round-too-small")
    send(service, 1)
    estimate(service)
    assert service.get(f"{CAMPAIGN}/estimate").json()["reports"] == 50


def test_events_tell_that_a_map_was_published(closed: InProcess) -> None:
    from geoveil.server.handlers import _news

    told: dict[str, bytes] = {}
    before = closed.service.campaigns.state("lyon")
    _news(before, told)
    ask(closed, "PATCH", CAMPAIGN, json={"published": True})
    news = _news(closed.service.campaigns.state("lyon"), told)
    assert news.startswith(b"event: round\n")
    assert msgspec.json.decode(news.partition(b"data: ")[2].strip())["published"] is True


def test_a_look_that_was_under_way_does_not_hide_a_change(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaigns = service.service.campaigns
    rounds = campaigns.store.rounds
    changed = False

    def slow(campaign: str) -> Any:  # while this look reads, somebody pauses the campaign
        nonlocal changed
        if not changed:
            changed = True
            campaigns.change("lyon", state="paused")
        return rounds(campaign)

    campaigns.forget("lyon")
    monkeypatch.setattr(campaigns.store, "rounds", slow)
    campaigns.state("lyon")
    assert campaigns.state("lyon")["state"] == "paused"
