"""Campaigns over places and over hexagons: the same ones in every round, maps with bars and alarms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.document.wire import MechanismDocument, unpack_levels
from geoveil.errors import InvalidInput
from geoveil.estimate.regions import members_of
from geoveil.server import conclusion, round_documents
from geoveil.server.campaigns import Campaigns
from geoveil.server.conclusion import conclude
from geoveil.server.region_shares import evidence_of, shares_of
from geoveil.server.round_documents import prepare
from geoveil.server.shapes import read_area, space_of
from geoveil.server.worker import Jobs
from geoveil.space import Points, space_from_dict
from geoveil.space.outline import read_outlines
from geoveil.store import Store, open_store
from server.rounds_support import BOX, City, campaign_settings, raises_problem, tick

SOUTH, WEST, NORTH, EAST = BOX


def some_places(number: int = 24, seed: int = 3) -> Points:
    source = np.random.default_rng(seed)
    lat, lng = source.uniform((SOUTH, WEST), (NORTH, EAST), size=(number, 2)).T
    return Points(lat=lat, lng=lng)


def some_cells() -> Points:
    """Middles of hexagons, 1 km² each, with people anywhere in them."""
    pitch = np.sqrt(2 / np.sqrt(3))
    east, north = np.meshgrid(np.arange(6) * pitch, np.arange(5) * pitch * np.sqrt(3) / 2)
    east[1::2] += pitch / 2
    lat, lng = (
        SOUTH + 0.004 + north / 111.2,
        WEST + 0.006 + east / (111.3 * np.cos(np.radians(48.85))),
    )
    return Points(lat=lat.ravel(), lng=lng.ravel(), cell_km=1.0)


def people_at(city: City, space: Points, number: int, seed: int) -> np.ndarray:
    """Reports of people who stand where the space says; the shares they were drawn from."""
    record = city.campaigns.mechanism("paris")
    source = np.random.default_rng(seed)
    truth = np.random.default_rng(9).dirichlet(np.full(space.size, 0.5))
    cells = source.choice(space.size, size=number, p=truth)
    away = space.somewhere_km(cells, source.random((number, 2)))
    lat, lng = space.plane.to_latlng(space.centres[cells] + away)
    mechanism = unpack_levels(record.document)[0].mechanism
    city.count(mechanism.sample_at(lat=lat, lng=lng, randomness=gv.seeded(seed)).tolist(), record)
    return truth


@pytest.mark.parametrize("make", [some_places, some_cells], ids=["places", "cells"])
def test_two_rounds_over_places(make: Callable[[], Points], tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'geoveil.db'}"
    space, store = make(), open_store(address)
    city = City(campaign_settings(epsilon_per_km=1.5), store)
    city.campaigns.draw("paris", space)
    areas = []
    for number in (2, 3):
        truth = people_at(city, space, 3000, number)
        record = city.campaigns.mechanism("paris")
        areas.append(unpack_levels(record.document)[0].area.to_dict())
        assert (record.number, record.around) == (number, int(space.around))
        city.campaigns.close("paris")
        (work,) = city.due()
        assert not work.large
        assert Jobs(city.campaigns).publish(work, conclude(work))
        store.close()  # as after a kill: nothing is known but what the store has
        store = city.store = open_store(address)
        city.campaigns = Campaigns(store, clock=city.clock)
    following = unpack_levels(city.campaigns.mechanism("paris").document)[0]
    assert following.area.to_dict() == areas[0] == areas[1]
    assert following.step == unpack_levels(store.rounds("paris")[1].document)[0].step
    body = city.estimated()
    assert (body["reports"], [each["round"] for each in body["rounds"]]) == (6000, [2, 3])
    assert body["blocks"] == []
    assert not body["alarm"]["raised"]
    assert body["manipulation_gain"]["gain"] > 0
    low, high = np.array(body["interval"]["low"]), np.array(body["interval"]["high"])
    assert ((low <= truth + 1e-12) & (truth <= high + 1e-12)).mean() > 0.8
    kept = space_from_dict(body["space"])
    assert isinstance(kept, Points)
    assert (kept.around, kept.size) == (space.around, space.size)
    apart = np.hypot(*(kept.centres - space.centres).T)
    assert apart.max() < 0.05
    assert json.loads(store.estimate("paris", 3).body) == body  # type: ignore[union-attr]


def test_people_around_a_place_are_not_taken_to_be_at_it() -> None:
    space = some_cells()
    bodies = []
    for around in (True, False):
        city = City(campaign_settings(epsilon_per_km=3.0))
        lat, lng = space.centres_latlng()
        city.campaigns.draw("paris", space if around else Points(lat=lat, lng=lng))
        truth = people_at(city, space, 12_000, 5)
        city.campaigns.close("paris")
        city.work()
        bodies.append(city.estimated())
    spread, at = bodies
    assert spread["space"]["cell_km"] == pytest.approx(1.0)
    assert "cell_km" not in at["space"]
    assert not spread["alarm"]["raised"]
    far, held = [], []
    for body in bodies:
        low, high = np.array(body["interval"]["low"]), np.array(body["interval"]["high"])
        held.append(float(((low <= truth) & (truth <= high)).mean()))
        far.append(float(np.abs(np.array(body["distribution"]) - truth).sum()))
    assert far[0] < 0.7 * far[1]
    assert held[0] > 0.8 > 0.7 > held[1]


def test_several_promises_and_slots_share_one_lattice() -> None:
    settings = campaign_settings(
        epsilon_per_km=None, promises_per_km=(0.4, 3.0), slots="hour", zone="Europe/Paris",
        minimum_reports=40,
    )  # fmt: skip
    city = City(settings)
    space = some_places(9)
    city.campaigns.draw("paris", space)
    record = city.campaigns.mechanism("paris")
    levels = MechanismDocument.read_levels(record.document)
    assert len({json.dumps(each.area.to_dict()) for each in levels}) == 1
    assert len({each.step for each in levels}) == 1
    assert record.cells == 2 * 24 * 9
    source = np.random.default_rng(1)
    for level, document in enumerate(levels):
        drawn = document.mechanism.sample(source.integers(0, 9, 200), randomness=gv.seeded(level))
        city.count([record.report_number(document.id, 8, cell) for cell in drawn.tolist()], record)
    city.campaigns.close("paris")
    city.work()
    body = city.estimated()
    assert body["slots"]["reports"][8] == 400
    assert len(unpack_levels(city.campaigns.mechanism("paris").document)) == 2


def test_a_map_of_places_is_remembered_with_its_evidence() -> None:
    space = some_cells()
    city = City()
    city.campaigns.draw("paris", space)
    truth = people_at(city, space, 4000, 4)
    city.campaigns.close("paris")
    city.work()
    evidence = evidence_of(city.campaigns, "paris")
    assert evidence.around
    ring = [[WEST, SOUTH], [2.335, SOUTH], [2.335, NORTH], [WEST, NORTH], [WEST, SOUTH]]
    half = {"type": "Polygon", "coordinates": [ring]}
    members = members_of(space_from_dict(city.estimated()["space"]), read_outlines(half))
    assert ((members > 0.05) & (members < 0.95)).any()  # cells that the edge cuts
    answer = shares_of(lambda _: None, evidence, members)
    assert not isinstance(answer, str)
    _, low, high, cut = answer.rows[0]
    assert low <= float(members[0] @ truth) <= high
    assert cut > 0


def test_many_places_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_documents, "AT_ONCE_PLACES", 8)
    city = City()
    space = some_cells()
    city.campaigns.draw("paris", space)
    assert city.campaigns.state("paris")["state"] == "preparing"
    (wanted,) = Jobs(city.campaigns).preparations()
    work = Jobs(city.campaigns).work(wanted)
    assert Jobs(city.campaigns).publish(work, prepare(work))
    record = city.campaigns.mechanism("paris")
    assert (record.number, record.around) == (2, 1)
    assert unpack_levels(record.document)[0].area.size == space.size
    people_at(city, space, 200, 2)
    city.campaigns.close("paris")
    (closing,) = city.due()
    assert not closing.large
    monkeypatch.setattr(conclusion, "AT_ONCE_PLACES", 8)
    assert closing.large


def test_an_expired_round_over_cells_is_renewed_with_them() -> None:
    city = City()
    city.campaigns.draw("paris", some_cells())
    city.wait(31 * 24 * 3600)
    tick(city.campaigns)
    record = city.campaigns.mechanism("paris")
    assert (record.number, record.around) == (3, 1)


def test_places_are_drawn_before_the_first_report_only() -> None:
    city = City()
    city.report(3)
    with raises_problem("area-fixed"):
        city.campaigns.draw("paris", some_places())


# --- What cannot be drawn


def points(*positions: Any, **said: Any) -> bytes:
    features = [
        {"type": "Feature", "properties": said, "geometry": {"type": "Point", "coordinates": each}}
        for each in positions
    ]
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


HERE, THERE = [2.33, 48.85], [2.36, 48.86]
RING = [[2.3, 48.84], [2.4, 48.84], [2.35, 48.9], [2.3, 48.84]]
POLYGON = {"type": "Polygon", "coordinates": [RING]}


def test_points_are_read_in_their_order() -> None:
    several = {"type": "MultiPoint", "coordinates": [HERE, [*THERE, 35.0]]}
    for body in (points(HERE, THERE, name="a person's name"), json.dumps(several).encode()):
        space = read_area(body)
        assert isinstance(space, Points)
        lat, lng = space.centres_latlng()
        assert np.stack([lng, lat], axis=1).tolist() == [HERE, THERE]
        assert "name" not in json.dumps(space.to_dict())
    cells = read_area(points(HERE, THERE, area_km2=0.81))
    assert isinstance(cells, Points)
    assert cells.cell_km == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (points(HERE), "at least 2"),
        (points(), "it must hold lines or areas"),
        (points(HERE, HERE), "must differ; those at positions 0 and 1"),
        (points(*([HERE, THERE] * 2049)), "at most 4,096"),
        (points(HERE, [181.0, 48.0]), "within ±180"),
        (points(HERE, [2.3, -91.0]), "within ±180"),
        (points(HERE, [2.3]), "a longitude and a latitude"),
        (points(HERE, ["2.3", 48.0]), "a longitude and a latitude"),
        (points(HERE, None), "a longitude and a latitude"),
        (points(HERE, [[2.3, 48.8]]), "a longitude and a latitude"),
        (points(HERE, THERE, area_km2=-1), "area_km2 must be a number"),
        (points(HERE, THERE, area_km2="1"), "area_km2 must be a number"),
        (points(HERE, THERE, area_km2=True), "area_km2 must be a number"),
        (json.dumps({"type": "GeometryCollection", "geometries": [
            POLYGON, {"type": "Point", "coordinates": HERE}]}).encode(), "points only, or areas only"),
        (json.dumps({"type": "GeometryCollection", "geometries": [
            {"type": "LineString", "coordinates": [HERE, THERE]},
            {"type": "Point", "coordinates": HERE}]}).encode(), "points only, or areas only"),
        (json.dumps({"type": "FeatureCollection", "features": [
            {"type": "Feature", "geometry": None, "properties": {}},
            {"type": "Feature", "geometry": {"type": "MultiPoint", "coordinates": [HERE, THERE]}}]}).encode(),
         "all with a shape"),
        (json.dumps({"type": "MultiPoint", "coordinates": []}).encode(), "at least 2"),
        (json.dumps({"type": "GeometryCollection", "geometries": [POLYGON] * 201}).encode(),
         "at most 200 areas; merge some into a MultiPolygon"),
    ],
)  # fmt: skip
def test_points_that_cannot_be_read(body: bytes, words: str) -> None:
    with raises_problem("invalid-geojson", words):
        read_area(body)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_no_number_is_no_degree(text: str) -> None:
    body = points(HERE, THERE).replace(b"2.36", text.encode())
    with raises_problem("malformed-body"):
        read_area(body)


def test_areas_of_cells_must_be_alike() -> None:
    body = json.loads(points(HERE, THERE, area_km2=1.0))
    body["features"][1]["properties"]["area_km2"] = 2.5
    with raises_problem("invalid-geojson", "must be alike"):
        read_area(json.dumps(body).encode())
    del body["features"][1]["properties"]["area_km2"]
    with raises_problem("invalid-geojson", "for every point, or for none"):
        read_area(json.dumps(body).encode())


def test_places_that_a_campaign_cannot_have() -> None:
    settings = campaign_settings()
    two = Points(lat=[48.85, 48.86], lng=[2.33, 2.36])
    assert space_of(settings, two) is two
    beyond = Points(lat=[48.85, 48.86], lng=[2.33, 2.40])
    with pytest.raises(InvalidInput, match="in the box of the campaign; that at position 1"):
        space_of(settings, beyond)
    near = Points(lat=[48.85, 48.850005, 48.87], lng=[2.30, 2.30, 2.33])
    with pytest.raises(InvalidInput, match="at least a metre apart; those at positions 0 and 1"):
        space_of(settings, near)
    with pytest.raises(InvalidInput, match="trips must be between all cells of a box"):
        space_of(campaign_settings(trips=True), two)
    many = campaign_settings(slots="weekday-hour", zone="Europe/Paris")
    with pytest.raises(InvalidInput, match=r"× places \(900\).*fewer places"):
        space_of(many, some_places(900))
    wide = Points(lat=[SOUTH, NORTH], lng=[WEST, EAST])
    with pytest.raises(InvalidInput, match="places must be closer together"):
        City(campaign_settings(epsilon_per_km=9.0, cell_km=0.8)).campaigns.draw("paris", wide)


def test_a_box_across_180_degrees_holds_places_on_both_sides() -> None:
    fiji = campaign_settings(box=(-17.1, 179.9, -16.9, -179.9), epsilon_per_km=0.5)
    both = read_area(points([179.95, -17.0], [-179.95, -17.02], [180.0, -16.95], [-180.0, -17.05]))
    assert space_of(fiji, both) is both
    assert isinstance(both, Points)
    assert np.ptp(both.centres[:, 0]) < 12
    astray = read_area(points([179.95, -17.0], [179.85, -17.0]))
    with pytest.raises(InvalidInput, match="that at position 1 does not"):
        space_of(fiji, astray)


def test_the_memory_of_a_store_holds_how_people_stand(tmp_path: Path) -> None:
    def kept(store: Store) -> list[int]:
        return [each.around for each in store.rounds("paris")]

    one = City(store=open_store(f"sqlite:///{tmp_path / 'one.db'}"))
    one.campaigns.draw("paris", some_cells())
    two = open_store(f"sqlite:///{tmp_path / 'two.db'}")
    with one.store.snapshot() as snapshot:
        two.fill(snapshot)
    assert kept(one.store) == kept(two) == [0, 1]
