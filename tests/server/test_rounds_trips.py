"""Campaigns of trips: pairs counted, flows at the close, one mechanism for all rounds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from flow_files import read_flows
from geoveil.document.wire import MechanismDocument, unpack_levels
from geoveil.errors import InvalidInput
from geoveil.server import trip_conclusion
from geoveil.server.conclusion import Conclusion, NothingToRelease
from geoveil.server.map_files import flow_file, table_of
from geoveil.server.problem import VIEWS
from geoveil.server.region_shares import evidence_of
from geoveil.server.round_documents import served
from geoveil.server.trip_conclusion import conclude_trips, side_of
from geoveil.server.worker import Jobs
from geoveil.store import Upload
from server.rounds_support import City, campaign_settings, raises_problem

ENDS = {12: (1, 10), 48: (9, 38)}
"""Cells of the town → where trips begin and end."""


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals out of a few estimates: enough to see that they are there."""
    monkeypatch.setattr(trip_conclusion, "_REPLICATES", 4)


def nobody(conclusion: Conclusion) -> None:
    """Nobody wants to know before the end."""


def travelling(**changed: Any) -> City:
    return City(
        campaign_settings(**{"trips": True, "cell_km": 2.0, "epsilon_per_km": 4.0, **changed})
    )


def report(city: City, number: int) -> None:
    """Two of three people go from one cell to another, the others stay where they are."""
    record = city.campaigns.mechanism(city.campaign)
    (document,) = unpack_levels(record.document)
    here, there = ENDS[city.settings.grid.size]
    begun = np.full(number, here)
    ended = np.where(np.arange(number) % 3 == 0, here, there)
    seed = gv.seeded(7_000 + record.number)
    first, second = gv.Trips(document.mechanism).sample(begun, ended, randomness=seed)
    numbers = [
        record.report_number(document.id, 0, cell, to)
        for cell, to in zip(first.tolist(), second.tolist(), strict=True)
    ]
    city.count(numbers, record)


def closed(city: City) -> dict[str, Any]:
    city.campaigns.close(city.campaign)
    for work in city.due():
        assert Jobs(city.campaigns).publish(work, conclude_trips(work, nobody))
    city.wait(2)
    return city.estimated()


def test_the_document_asks_for_trips_and_pairs_are_counted() -> None:
    city = travelling()
    record = city.campaigns.mechanism("paris")
    document = MechanismDocument.read(served(record.mechanism, record.document))
    assert document.trips
    assert record.ends == 2
    assert record.cells == document.law.centres.size**2 == record.cells_each**2
    report(city, 30)
    counts = city.store.counts("paris")[1]
    assert counts.sum() == 30
    begun, ended = np.divmod(np.flatnonzero(counts), record.cells_each)
    assert max(begun.max(), ended.max()) < record.cells_each


def test_flows_come_back_with_intervals_and_the_mechanism_stays() -> None:
    city = travelling(cell_km=1.0)
    law = unpack_levels(city.campaigns.mechanism("paris").document)[0].law
    report(city, 600)
    body = closed(city)
    assert body["reports"] == 600
    assert body["unfinished"] == []
    flows = body["flows"]
    table = table_of({**body, **flows})
    assert table.share.sum() == pytest.approx(1.0, abs=1e-4)
    grid = city.settings.grid
    begun, ended = (_district(grid, cell) for cell in ENDS[grid.size])
    assert table.low is not None
    assert table.high is not None
    for origin, destination, truth in ((begun, ended, 2 / 3), (begun, begun, 1 / 3)):
        assert table.low[origin, destination] - 0.03 <= truth
        assert truth <= table.high[origin, destination] + 0.03
    assert table.share[begun, ended] > 5 * table.share[ended, begun]
    assert flows["stay_interval"][0] <= flows["stay_interval"][1]
    assert sum(body["distribution"]) == pytest.approx(1.0)
    alarm = city.campaigns.state("paris")["alarm"]
    assert alarm == body["alarm"]
    assert (alarm["raised"], alarm["pairs"], alarm["false_alarm"]) == (False, [], 0.02)
    following = unpack_levels(city.campaigns.mechanism("paris").document)[0]
    assert (following.round, following.trips) == (2, True)
    assert following.law.weights.tolist() == law.weights.tolist()


def _district(grid: gv.Grid, cell: int) -> int:
    side = side_of(grid)
    row, column = divmod(cell, grid.columns)
    return row // side * -(-grid.columns // side) + column // side


def test_rounds_add_up_and_one_below_the_minimum_is_not_used() -> None:
    city = travelling()
    report(city, 150)
    assert closed(city)["reports"] == 150
    report(city, 30)  # below the minimum of 100
    assert city.next_round() == 3
    city.wait(2)
    report(city, 120)
    body = closed(city)
    assert body["reports"] == 270
    assert [each["round"] for each in body["rounds"]] == [1, 3]


def test_a_round_below_the_minimum_is_never_released() -> None:
    city = travelling()
    report(city, 99)
    with raises_problem("round-too-small"):
        city.campaigns.close("paris")
    report(city, 1)
    city.campaigns.close("paris")
    (work,) = city.due()
    settings = campaign_settings(trips=True, cell_km=2.0, epsilon_per_km=4.0, minimum_reports=200)
    with pytest.raises(NothingToRelease):
        conclude_trips(_with(work, settings=settings), nobody)


def _with(work: Any, **changed: Any) -> Any:
    return replace(work, **changed)


def test_the_same_closing_gives_the_same_bytes_and_flows_are_told_before_their_intervals() -> None:
    city = travelling()
    report(city, 120)
    city.campaigns.close("paris")
    (work,) = city.due()
    told: list[Conclusion] = []
    once, again = conclude_trips(work, told.append), conclude_trips(work, told.append)
    assert once.body == again.body
    assert once.following == again.following
    assert [each.unfinished for each in told[:2]] == [("error_bars", "alarm"), ("alarm",)]
    early = json.loads(told[0].body)
    assert early["unfinished"] == ["error_bars", "alarm"]
    assert "low" not in early["flows"]
    assert early["flows"]["share"] == json.loads(once.body)["flows"]["share"]


def test_flows_are_exported_and_read_back_and_places_are_not_counted(tmp_path: Any) -> None:
    city = travelling()
    report(city, 120)
    closed(city)
    body = city.campaigns.estimate("paris").body
    told = json.loads(flow_file("json", body))
    assert told["kind"] == "flows"
    assert told["alarm"] == json.loads(body)["alarm"]
    for ending in ("geojson", "csv", "parquet"):
        path = tmp_path / f"flows.{ending}"
        path.write_bytes(flow_file(ending, body))
        table = read_flows(str(path))
        assert table.share.ravel().tolist() == pytest.approx(told["share"])
        assert table.low is not None
        assert table.low.ravel().tolist() == pytest.approx(told["low"])
        assert table.description is not None
        assert table.description["trips"] == told["reports"] == 120
    with raises_problem("not-offered", "no counts of places"):
        evidence_of(city.campaigns, "paris")


def test_places_have_no_flows() -> None:
    city = City(campaign_settings())
    city.report(120)
    city.campaigns.close("paris")
    city.work()
    for ending in VIEWS:
        with raises_problem("not-offered", "does not collect trips"):
            flow_file(ending, city.campaigns.estimate("paris").body)


def test_settings_that_do_not_go_with_trips_are_refused() -> None:
    for changed, words in (
        ({"promises_per_km": (1.0, 2.0), "epsilon_per_km": None}, "promises_per_km must be left"),
        ({"guarded": True}, "guarded must be left out"),
        ({"trusted_seed": True}, "trusted_seed must be left out"),
        ({"cell_km": 0.2}, "at most 512 cells for trips"),
    ):
        with pytest.raises(InvalidInput, match=words):
            campaign_settings(trips=True, **changed).problems()


def test_pairs_are_read_as_rows() -> None:
    """What a store keeps of pairs is as long as the pairs that came, not as all that could."""
    city = travelling(minimum_reports=20)
    record = city.campaigns.mechanism("paris")
    numbers = list(range(0, record.cells, 7))
    city.store.add([Upload("paris", 1, number.to_bytes(16, "big"), number) for number in numbers])
    city.campaigns.close("paris")
    rows = city.store.closing_pairs("paris", 1)[1]
    assert rows.tolist() == [[number, 1] for number in numbers]
