"""What a campaign will mean before it is made, and which cells city limits would leave."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from geoveil.campaign.outlook import MOST_CELLS, coarsened, middle_of, outlook
from geoveil.document.wire import MechanismDocument
from geoveil.server import campaign_advice, shapes
from geoveil.server.campaign_advice import Advice, Question, advise, beyond_the_page
from geoveil.server.settings_of_campaign import InvalidSetting
from geoveil.space import Grid, MaskedGrid, space_from_dict
from server.conftest import InProcess
from server.live import LYON
from server.test_http_dashboard import CITY, NO_REGIONS, ask
from server.test_http_problems import assert_problem

QUESTION: dict[str, Any] = {name: LYON[name] for name in ("box", "cell_km", "epsilon_per_km")}


def test_advice_says_what_a_campaign_will_mean(service: InProcess) -> None:
    answer = ask(service, "POST", "/api/advice", json={**QUESTION, "people": 20_000})
    assert answer.status_code == 200
    said = answer.json()
    assert said["cells"] == 49
    assert 1.0 < said["mean_distance_km"] < 4.0
    assert 0.0 < said["leakage_bits"] < np.log2(49)
    assert 0.0 < said["expected_error_km"] < said["reported_error_km"]
    assert any("at most 1.24 times as likely" in each for each in said["sentences"])
    for name in ("people", "reports", "map"):
        assert sum(said["example"][name]) == pytest.approx(1.0)
        assert len(said["example"][name]) == 49


@pytest.mark.slow
def test_more_people_make_a_better_map_and_a_smaller_epsilon_a_farther_report(
    service: InProcess,
) -> None:
    def of(**changes: Any) -> Any:
        return ask(service, "POST", "/api/advice", json=QUESTION | changes).json()

    few, many, strong = of(people=1000), of(people=1_000_000), of(epsilon_per_km=0.5)
    assert many["expected_error_km"] < few["expected_error_km"]
    assert strong["mean_distance_km"] > few["mean_distance_km"]
    assert strong["leakage_bits"] < few["leakage_bits"]


IMPOSSIBLE: list[Any] = [
    {"cell_km": 0.01},
    {"cell_km": -1.0},
    {"box": [1, 2, 1, 2]},
    {"box": [95, 0, 96, 1]},
    {"epsilon_per_km": 0.0},
    {"epsilon_per_km": 1000.0},
    {"camouflage": 2.0},
]


def test_advice_about_what_cannot_be_is_refused(service: InProcess) -> None:
    for changes in IMPOSSIBLE:
        answer = ask(service, "POST", "/api/advice", json=QUESTION | changes)
        assert_problem(answer, "invalid-campaign")


@pytest.mark.slow
def test_advice_is_bounded_in_time_and_asked_again_at_leisure(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign_advice, "ADVICE_S", 0.01)
    assert_problem(ask(service, "POST", "/api/advice", json=QUESTION), "overloaded")
    monkeypatch.undo()
    assert ask(service, "POST", "/api/advice", json=QUESTION).status_code == 200


# --- What it is about: promises to choose among, slots, trips, city limits


def advised(**changes: Any) -> dict[str, Any]:
    """As the process of the service answers, without the service."""
    asked = msgspec.convert({**QUESTION, "people": 1200} | changes, Question)
    asked.problems()
    said = advise(lambda _: None, asked)
    assert isinstance(said, Advice)
    told: dict[str, Any] = msgspec.to_builtins(said)
    msgspec.convert(told, Advice)
    return told


def test_of_several_promises_it_is_about_the_strongest() -> None:
    said = advised(epsilon_per_km=None, promises_per_km=[2.0, 1.0])
    strong, weak = said["choices"]
    assert (strong["epsilon_per_km"], weak["epsilon_per_km"]) == (1.0, 2.0)
    assert strong["mean_distance_km"] == said["mean_distance_km"] > weak["mean_distance_km"]
    assert strong["leakage_bits"] < weak["leakage_bits"]
    assert "Whoever chooses nothing has the strongest, ε = 1 per km" in said["sentences"][0]
    alone = advised()
    assert alone["choices"] == []
    assert alone["sentences"] == said["sentences"][1:]


def test_a_slot_is_said_to_be_told_and_too_few_people_are_said_to_be() -> None:
    hours = {"slots": "hour", "zone": "Europe/Paris", "minimum_reports": 50}
    said = advised(**hours)["sentences"]
    assert "one of 24 slots of time (Europe/Paris). The slot is not noisy" in said[-2]
    assert said[-1].endswith("1,200 reports spread evenly are about 50 in each.")
    few = advised(**hours | {"minimum_reports": 51})["sentences"]
    assert few[-1].endswith("about 50 in each, too few.")


def test_of_trips_it_says_that_they_cost_twice_and_nothing_of_an_error() -> None:
    said = advised(trips=True)
    assert "trips begin 200 m apart and end 200 m apart" in said["sentences"][0]
    odds = re.search(r"at most ([0-9.]+) times as likely", said["sentences"][0])
    assert odds is not None
    assert np.exp(2 * 0.2 * LYON["epsilon_per_km"]) <= float(odds[1]) < 1.57
    assert said["sentences"][1].startswith("A trip is charged twice")
    assert said["example"] is said["expected_error_km"] is said["reported_error_km"] is None
    assert not any("off, and the map" in each for each in said["sentences"])


def test_what_the_page_does_not_send_is_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """At ε = 2 per km, which the form begins with, a trip costs twice what the page allows."""
    page = Path(__file__).parents[2] / "web" / "pages" / "src" / "participant" / "campaign.ts"
    limit = campaign_advice.PAGE_LIMIT_PER_KM
    assert f"maxEpsilonPerKm: {limit:g}," in page.read_text(encoding="utf-8")
    for promises, trips in (([2.0], True), ([4.0], False), ([4.0, 8.0], False)):
        (said,) = beyond_the_page(promises, trips=trips)
        assert "costs ε = 4 per km, and the page at the campaign's link" in said
    (some,) = beyond_the_page([1.0, 4.0], trips=False)
    assert "lets nobody choose a promise above 2 per km unless" in some
    assert beyond_the_page([1.0, 2.0], trips=False) == beyond_the_page([1.0], trips=True) == []
    assert not any("link" in each for each in advised(trips=True)["sentences"])
    monkeypatch.setattr("geoveil.server.campaign_advice.PAGE_LIMIT_PER_KM", 1.5)
    assert any("A trip costs ε = 2 per km" in each for each in advised(trips=True)["sentences"])


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("box", {"box": [1, 2, 1, 2]}),
    ("cell_km", {"cell_km": 0.015}),
    ("epsilon_per_km", {"epsilon_per_km": 17.0, "cell_km": 0.5}),
    ("cell_km", {"trips": True, "cell_km": 0.25}),
    ("cell_km", {"cell_km": -1.0}),
    ("camouflage", {"camouflage": 2.0}),
    ("epsilon_per_km", {"epsilon_per_km": None}),
    ("promises_per_km", {"epsilon_per_km": None, "promises_per_km": [1.0, 1.0]}),
    ("promises_per_km", {"epsilon_per_km": None, "promises_per_km": [1.0, 2.0], "trips": True}),
    ("slots", {"trips": True, "slots": "hour", "zone": "Europe/Paris"}),
    ("guarded", {"trips": True, "guarded": True}),
    ("zone", {"slots": "hour"}),
    ("zone", {"slots": "hour", "zone": "Europe/Atlantis"}),
    ("slots", {"slots": "weekday-hour", "zone": "Europe/Paris", "cell_km": 0.2}),
    ("slots", {"zone": "UTC", "slots": {"every": "day", "names": ["a", "a"], "starts": [0, 1]}}),
    (
        "slots",
        {"zone": "UTC", "slots": {"every": "once", "names": ["a", "b"], "starts": [0, 1, 2]}},
    ),
    ("round_size", {"round_size": 10}),
    ("round_hours", {"round_hours": 0.0}),
]


def test_a_refusal_names_the_setting_it_is_about(service: InProcess) -> None:
    for field, changes in REFUSED:
        answer = ask(service, "POST", "/api/advice", json=QUESTION | changes)
        assert_problem(answer, "invalid-campaign")
        assert answer.json()["field"] == field, changes
        made = ask(service, "POST", "/api/campaigns", json={**QUESTION, "name": "x"} | changes)
        assert made.json() == answer.json()
    # a campaign of so many cells waits for city limits; without them there is nothing to say about it
    answer = ask(service, "POST", "/api/advice", json=QUESTION | {"cell_km": 0.02})
    assert answer.json()["field"] == "cell_km"
    assert "or city limits that leave no more" in answer.json()["detail"]
    answer = ask(service, "POST", "/api/advice", json=QUESTION | {"mask": "AAAA"})
    assert answer.json()["field"] == "mask"
    answer = ask(service, "POST", "/api/advice", json=QUESTION | {"people": 0})
    assert answer.json()["field"] == "people"
    assert answer.json()["detail"] == "people (0) must lie between 1 and 100,000,000"


def test_a_name_that_cannot_be_is_named_too(service: InProcess) -> None:
    answer = ask(service, "POST", "/api/campaigns", json={**QUESTION, "name": " "})
    assert answer.json()["field"] == "name"


def test_what_city_limits_leave_is_what_they_will_leave(service: InProcess) -> None:
    given = {"box": LYON["box"], "cell_km": LYON["cell_km"], "area": CITY}
    answer = ask(service, "POST", "/api/advice/area", json=given)
    assert answer.status_code == 200
    left = answer.json()
    city = space_from_dict(left["space"])
    assert isinstance(city, MaskedGrid)
    assert (left["cells"], left["of"], left["parts"]) == (city.size, city.grid.size, 1)
    assert ask(service, "PUT", "/api/campaigns/lyon/area", json=CITY).status_code == 204
    document = MechanismDocument.read(service.get("/api/campaigns/lyon/mechanism").content)
    assert document.mechanism.space == city
    said = advised(mask=left["space"]["mask"])
    assert said["cells"] == city.size == len(said["example"]["map"])
    assert said["example"]["space"] == left["space"]


def test_limits_that_cannot_be_are_refused_in_words(service: InProcess) -> None:
    def asked(area: Any, **changes: Any) -> Any:
        given = {"box": LYON["box"], "cell_km": LYON["cell_km"], "area": area}
        return ask(service, "POST", "/api/advice/area", json=given | changes)

    for zones in NO_REGIONS:
        assert_problem(asked(zones), "invalid-geojson")
    assert_problem(asked(CITY, cell_km=0.001), "invalid-campaign")
    elsewhere = json.loads(json.dumps(CITY).replace("45.", "46."))
    answer = asked(elsewhere)
    assert_problem(answer, "invalid-campaign")
    detail = answer.json()["detail"]
    assert "must leave at least two cells of 1 km in the box, not 0" in detail
    assert "longitude first" in detail
    long = CITY | {"name": "x" * (shapes.BACKDROP_BYTES + campaign_advice._AROUND_BYTES)}
    assert_problem(asked(long), "body-too-large")


def test_a_city_is_looked_at_in_larger_cells_of_its_own() -> None:
    grid = Grid(rows=40, columns=40, cell_km=0.5, box=None)
    assert coarsened(grid) is grid  # an abstract one has no box to lay other cells over
    box = Grid.from_box(south=45.7, west=4.8, north=45.9, east=5.0, cell_km=0.5)
    mask = np.zeros(box.shape, dtype=bool)
    mask[:, :12] = True
    city = MaskedGrid(box, mask)
    coarse = coarsened(city)
    assert isinstance(coarse, MaskedGrid)
    assert 100 < coarse.size <= MOST_CELLS < city.size
    whole = coarse.mask.reshape(coarse.grid.shape)
    assert whole[:, 0].all()
    assert not whole[:, -1].any()


def test_a_mask_of_another_box_is_refused() -> None:
    asked = Question(box=(45.7, 4.8, 45.8, 4.9), cell_km=1.0, epsilon_per_km=1.0, mask="AAAA")
    with pytest.raises(InvalidSetting, match="one bit for each cell"):
        asked.space  # noqa: B018


# --- Areas of many cells


COUNTRY = (48.0, 2.0, 50.2, 5.2)  # 58,794 cells of a kilometre


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 5.0])
def test_a_country_is_answered_on_larger_cells_or_on_its_middle(epsilon: float) -> None:
    grid = Grid.from_box(
        **dict(zip(("south", "west", "north", "east"), COUNTRY, strict=True)), cell_km=1.0
    )
    seen = outlook(grid, epsilon_per_km=epsilon, camouflage=0.5, people=1_000_000)
    assert (seen.cells, seen.part) == (58_794, epsilon >= 1.0)
    assert seen.grid.size <= MOST_CELLS
    assert epsilon * seen.grid.cell_km <= max(5.0, epsilon)
    said = " ".join(seen.sentences())
    assert f"With {seen.played:,} reports" in said
    assert ("in proportion" in said) == seen.part
    if seen.part:
        share = seen.grid.size * seen.grid.cell_km**2 / grid.size
        assert seen.played == pytest.approx(1_000_000 * share, rel=0.05)
        assert 48.0 < seen.grid.box.south < seen.grid.box.north < 50.2  # type: ignore[union-attr]


def test_the_middle_of_a_city_has_cells_of_the_city() -> None:
    grid = Grid.from_box(south=48.0, west=2.0, north=48.5, east=2.7, cell_km=1.0)
    ring = np.hypot(*grid.centres.T)
    city = MaskedGrid(grid, (ring > 8) & (ring < 20))  # a lake in its middle
    part = middle_of(city)
    assert isinstance(part, MaskedGrid)
    assert 2 <= part.size <= MOST_CELLS
    lat, lng = part.plane.to_latlng(part.centres)
    assert city.inside(lat=lat, lng=lng).all()
    few = MaskedGrid(grid, ring < 5)
    assert middle_of(few) is few


def test_a_thin_area_keeps_its_length() -> None:
    coast = Grid.from_box(south=48.0, west=2.0, north=48.03, east=6.0, cell_km=0.5)
    part = middle_of(coast)
    assert isinstance(part, Grid)
    assert (part.rows, part.size <= MOST_CELLS) == (coast.rows, True)
