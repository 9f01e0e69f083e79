"""Mechanism documents on the wire: canonical text, claims kept, and what may not change unnoticed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import geoveil as gv
from geoveil.channel.guarantee import BetweenPositions
from geoveil.document import wire
from geoveil.document.area import Area
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import (
    LARGEST_BYTES,
    MOST_LEVELS,
    MechanismDocument,
    RefusedDocument,
    publish,
    served_levels,
)
from geoveil.errors import InvalidFile, InvalidInput, Unsupported
from geoveil.position.positional import lattice_step
from geoveil.space import MATRIX_LIMIT

PARIS = gv.Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=0.5)
VECTOR_FILES = Path(__file__).resolve().parents[2] / "vectors"
VECTORS = json.loads((VECTOR_FILES / "canonical.json").read_text("utf-8"))


@cache
def paris(epsilon_per_km: float = 2.0) -> MechanismDocument:
    campaign = gv.Campaign(
        PARIS, epsilon_per_km=epsilon_per_km, camouflage=0.5, between="positions"
    )
    assert isinstance(campaign.mechanism, gv.PositionalElastic)
    return publish(campaign.mechanism, campaign="paris", round=1, not_before_s=5, expires_s=99)


@pytest.mark.parametrize(("value", "text"), VECTORS["numbers"])
def test_numbers_are_written_as_ecmascript_does(value: float, text: str) -> None:
    assert canonical_bytes({"n": value}).decode() == f'{{"n":{text}}}'
    assert float(text) == value


def test_objects_are_written_in_order_and_unescaped() -> None:
    value, text = VECTORS["object"]
    assert canonical_bytes(value).decode() == text
    assert canonical_bytes(json.loads(text)).decode() == text


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), np.int64(3), {1, 2}, b"x", 2**53 + 2]
)
def test_what_is_not_plain_json_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="JSON document must"):
        canonical_bytes({"a": [value]})


def test_a_campaigns_mechanism_is_published_at_its_promise() -> None:
    document = paris()
    assert document.epsilon_per_km == 2.0
    assert 1.98 <= document.law.certificate.epsilon_per_km <= 2.0
    assert document.promise.slack <= 0.02
    assert document.mechanism.space == PARIS
    assert document.mechanism.guarantee == document.promise
    assert (document.not_before_s, document.expires_s) == (5, 99)


@pytest.mark.parametrize(
    ("number", "taken"), [(2, True), (MOST_LEVELS, True), (MOST_LEVELS + 1, False)]
)
def test_a_round_has_two_to_eight_levels(number: int, taken: bool) -> None:
    one = paris()
    levels = [
        replace(one, level=n, promise=BetweenPositions(2.0 + n / 1000, one.promise.slack))
        for n in range(number)
    ]
    body = served_levels(levels)
    if taken:
        read = MechanismDocument.read_levels(body, certified=True)
        assert [each.id for each in read] == [each.id for each in levels]
    else:
        with pytest.raises(RefusedDocument, match="2 to 8 levels"):
            MechanismDocument.read_levels(body, certified=True)


@pytest.mark.parametrize(
    ("number", "taken"), [(1, False), (2, True), (MATRIX_LIMIT, True), (MATRIX_LIMIT + 1, False)]
)
def test_a_list_has_two_to_4096_different_places(number: int, taken: bool) -> None:
    points = np.stack((np.arange(number), np.zeros(number, dtype=np.int64)), axis=1)
    if taken:
        assert Area.of_places(PARIS.plane, points, 0.5).size == number
        points = np.concatenate((points[:-1], points[:1]))
    with pytest.raises(InvalidInput, match="centres must be 2 to 4096 different places"):
        Area.of_places(PARIS.plane, points, 0.5)


@pytest.mark.parametrize(
    ("weights", "taken"),
    [([1, 2**31 - 2], True), ([1, 2**31 - 1], False), ([0, 5], False), ([1, 1, 1], False)],
)
def test_weights_are_one_for_each_place_from_1_and_below_2_to_the_31(
    weights: list[int], taken: bool
) -> None:
    given = np.array(weights, dtype=np.int64)
    if taken:
        assert wire._one_each(given, 2).tolist() == weights
    else:
        with pytest.raises(InvalidInput, match="must be 2 whole numbers from 1"):
            wire._one_each(given, 2)


def test_reading_gives_the_same_document_and_id() -> None:
    document = paris()
    again = MechanismDocument.read(document.served())
    assert again.id == document.id
    assert again.to_bytes() == document.to_bytes()
    assert again.mechanism == document.mechanism
    assert MechanismDocument.read(json.loads(document.served()), certified=True).id == document.id


def test_a_number_is_the_same_however_it_is_written() -> None:
    """As to a browser, to which 1.0 is 1."""
    text = paris().served().decode()
    assert '"round":1,' in text
    assert '"rim":0,' in text
    changed = text.replace('"round":1', '"round":1.0').replace('"rim":0', '"rim":-0e0')
    again = MechanismDocument.read(changed.encode(), certified=True)
    assert (again.id, again.to_bytes()) == (paris().id, paris().to_bytes())


def test_the_id_follows_every_entry() -> None:
    document = paris()
    values = document.to_dict()
    changed = {**values, "expires": values["expires"] + 1}
    assert MechanismDocument.read(changed, certified=True).id != document.id
    with pytest.raises(RefusedDocument, match="SHA-256"):
        MechanismDocument.read({**changed, "id": document.id})


def test_what_a_collector_publishes_is_a_mechanism_file(tmp_path: Path) -> None:
    path = tmp_path / "published.json"
    path.write_bytes(paris().served())
    assert gv.load_mechanism(path) == paris().mechanism
    values = {**paris().to_dict(), "epsilon_per_km": 1.0}
    path.write_bytes(canonical_bytes(values))
    with pytest.raises(InvalidFile, match="do not keep the promise"):
        gv.load_mechanism(path)


def test_a_promise_that_the_integers_break_is_refused() -> None:
    values = paris().to_dict()
    for change in ({"epsilon_per_km": 1.99}, {"slack_nats": values["slack_nats"] - 0.002}):
        with pytest.raises(RefusedDocument, match="do not keep the promise") as refusal:
            MechanismDocument.read({**values, **change})
        assert refusal.value.reason == "certificate"
        read = MechanismDocument.read({**values, **change}, certified=True)
        with pytest.raises(RefusedDocument):
            read.check_promise()


def test_nothing_between_cells_can_be_published() -> None:
    for mechanism in (
        gv.elastic(PARIS, epsilon_per_km=2.0, between="cells"),
        gv.PlanarGeometric(PARIS, epsilon_per_km=2.0),
    ):
        with pytest.raises(Unsupported, match="promise of a document is between positions"):
            publish(mechanism, campaign="a", round=1, not_before_s=0, expires_s=1)  # type: ignore[arg-type]


def test_a_document_of_version_1_says_that_it_is_over() -> None:
    old = {"geoveil": 1, "kind": "mechanism", "kernel": [1], "weights": [1]}
    with pytest.raises(RefusedDocument, match="version 1 promised between cells only") as refusal:
        MechanismDocument.read(old)
    assert refusal.value.reason == "version"


def test_an_endless_text_is_refused_unread() -> None:
    with pytest.raises(RefusedDocument) as refusal:
        MechanismDocument.read(b" " * (LARGEST_BYTES + 1))
    assert refusal.value.reason == "size"


@pytest.mark.parametrize("rim", [0, 1])
@pytest.mark.parametrize(("epsilon", "beta"), [(0.001, 0.0005), (0.5, 0.26), (10.0, 5.1)])
def test_the_largest_grid_fits_the_limit(epsilon: float, beta: float, rim: int) -> None:
    grid = gv.Grid.from_box(south=48.5, west=2.0, north=48.93, east=2.662, cell_km=0.77)
    assert 3500 < grid.size <= 4096
    step = lattice_step(epsilon, grid.cell_km)
    size = (grid.rows + 2 * rim) * (grid.columns + 2 * rim)
    weights = np.full(size, 2**30 // size)
    made = gv.PositionalElastic(grid, beta_per_km=beta, weights=weights, step=step, rim=rim)
    promise = BetweenPositions(epsilon, made.law.slack_at(epsilon))
    area = Area.of_squares(grid)
    document = MechanismDocument("a", 1, 0, area, step, rim, promise, made.law, 0, 1)
    again = MechanismDocument.read(document.to_bytes(), certified=True)
    assert len(again.served()) < LARGEST_BYTES / 2


@pytest.mark.parametrize("given", [[1, 2], "{}", None, 3, b"[]"])
def test_what_is_no_object_is_refused(given: object) -> None:
    with pytest.raises(RefusedDocument) as refusal:
        MechanismDocument.read(given)  # type: ignore[arg-type]
    assert refusal.value.reason == "json"


def test_only_utf_8_and_a_whole_version_are_read() -> None:
    text = paris().served().decode()
    with pytest.raises(RefusedDocument) as refusal:
        MechanismDocument.read(text.encode("utf-16"))
    assert refusal.value.reason == "json"
    for version in (True, 2.0, 3):
        with pytest.raises(RefusedDocument) as refusal:
            MechanismDocument.read({**paris().to_dict(), "geoveil": version})
        assert refusal.value.reason == "version"


def test_a_single_cell_is_not_published() -> None:
    one = gv.Grid.from_box(south=48.8, west=2.3, north=48.802, east=2.302, cell_km=0.5)
    assert one.size == 1
    mechanism = gv.elastic(one, epsilon_per_km=1.0, between="positions")
    assert isinstance(mechanism, gv.PositionalElastic)
    with pytest.raises(InvalidInput, match="must have 2 to 65536 cells, not 1"):
        publish(mechanism, campaign="a", round=1, not_before_s=0, expires_s=1)


def test_a_mask_leaves_cells_that_can_be_drawn_certified_and_estimated() -> None:
    vector = json.loads((VECTOR_FILES / "mechanism-lagoon.json").read_text("utf-8"))
    document = MechanismDocument.read(vector["document"].encode())
    assert document.area.size < document.area.squares.grid.size  # type: ignore[union-attr]
    assert 0 <= document.law.draw(np.array([0, 0]), bytes(16)) < document.law.centres.size
    mechanism = document.mechanism
    assert mechanism.space.size == document.area.size
    place = document.area.latlng(document.law.centres.points_km[3])
    assert mechanism.space.locate(lat=place[0], lng=place[1]) == 3


def test_a_list_of_places_can_be_estimated() -> None:
    vector = json.loads((VECTOR_FILES / "mechanism-places.json").read_text("utf-8"))
    document = MechanismDocument.read(vector["document"].encode())
    mechanism = document.mechanism
    assert mechanism.space.size == document.area.size
    assert mechanism.space.centres == pytest.approx(document.law.centres.points_km, abs=1e-12)
    assert mechanism.centres.points.tolist() == document.law.centres.points.tolist()


def test_an_answer_holds_as_many_levels_as_there_may_be_each_as_large_as_it_may_be() -> None:
    frame = canonical_bytes({"geoveil": wire.VERSION, "kind": wire.LEVELS, "levels": []})
    needed = len(frame) + wire.MOST_LEVELS * (wire.LARGEST_BYTES + len(","))
    assert needed <= wire.LARGEST_ANSWER < needed + 1024


def test_reports_as_texts_have_ids_of_their_own() -> None:
    document, cells = paris(), np.array([3, 0, 164, 3])
    reports = [json.loads(text) for text in wire.report_texts(document, cells)]
    assert [report["cell"] for report in reports] == [3, 0, 164, 3]
    assert {report["mechanism"] for report in reports} == {document.id}
    ids = {report["id"] for report in reports}
    assert len(ids) == 4
    assert {len(bytes.fromhex(each)) for each in ids} == {16}
    assert all(set(report) == {"mechanism", "id", "cell"} for report in reports)


@pytest.mark.parametrize("number", [1, 2])
def test_what_a_collector_keeps_is_read_again(number: int) -> None:
    one = paris()
    documents = [
        replace(one, level=n, promise=BetweenPositions(2.0 + n / 1000, one.promise.slack))
        for n in range(number)
    ]
    kept = wire.pack_levels(documents)
    assert [each.id for each in wire.unpack_levels(kept)] == [each.id for each in documents]
    assert (b'"id"' in kept) == (number > 1)


def test_a_promise_just_as_steep_as_may_be_is_taken() -> None:
    values = paris().to_dict()
    side_km = values["space"]["cell_km"]
    for factor, taken in ((1.0, True), (1.0 + 1e-6, False)):
        steep = {**values, "epsilon_per_km": factor * wire.STEEPEST_CELL / side_km}
        if taken:
            _, _, promise = wire.stated_law(steep)
            assert promise.epsilon_per_km * side_km == pytest.approx(wire.STEEPEST_CELL)
            continue
        with pytest.raises(RefusedDocument, match="times the side of a cell is above"):
            wire.stated_law(steep)
