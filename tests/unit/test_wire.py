"""Mechanism documents on the wire: canonical text, claims kept, and what may not change unnoticed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import geoveil as gv
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import LARGEST_BYTES, MechanismDocument, RefusedDocument, publish
from geoveil.errors import InvalidFile, InvalidInput

PARIS = gv.Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=0.5)
VECTORS = json.loads(
    (Path(__file__).resolve().parents[2] / "vectors" / "canonical.json").read_text("utf-8")
)


def paris(epsilon_per_km: float = 2.0) -> MechanismDocument:
    collection = gv.Campaign(PARIS, epsilon_per_km=epsilon_per_km, camouflage=0.5, between="cells")
    assert isinstance(collection.mechanism, gv.Elastic)
    return publish(collection.mechanism, campaign="paris", round=1, not_before_s=5, expires_s=99)


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


def test_a_collections_mechanism_is_published_at_its_promise() -> None:
    document = paris()
    assert document.epsilon_per_km == 2.0
    assert 1.98 <= document.mechanism.certified_epsilon_per_km <= 2.0
    assert document.mechanism.space == PARIS
    assert (document.not_before_s, document.expires_s) == (5, 99)


def test_reading_gives_the_same_document_and_id() -> None:
    document = paris()
    again = MechanismDocument.read(document.served())
    assert again.id == document.id
    assert again.to_bytes() == document.to_bytes()
    assert again.mechanism == document.mechanism
    assert MechanismDocument.read(json.loads(document.served())).id == document.id


def test_the_id_follows_every_entry() -> None:
    document = paris()
    values = document.to_dict()
    changed = {**values, "expires": values["expires"] + 1}
    assert MechanismDocument.read(changed).id != document.id
    with pytest.raises(RefusedDocument, match="SHA-256"):
        MechanismDocument.read({**changed, "id": document.id})


def test_what_a_collector_publishes_is_a_mechanism_file(tmp_path: Path) -> None:
    path = tmp_path / "published.json"
    path.write_bytes(paris().served())
    assert gv.load_mechanism(path) == paris().mechanism
    path.write_bytes(paris().served().replace(b'"epsilon_per_km":2', b'"epsilon_per_km":1'))
    with pytest.raises(InvalidFile, match="do not keep the promise"):
        gv.load_mechanism(path)


def test_a_promise_that_the_integers_break_is_refused() -> None:
    values = paris().to_dict()
    with pytest.raises(RefusedDocument, match="do not keep the promise") as refusal:
        MechanismDocument.read({**values, "epsilon_per_km": 1.99})
    assert refusal.value.reason == "certificate"


def test_an_endless_text_is_refused_unread() -> None:
    with pytest.raises(RefusedDocument) as refusal:
        MechanismDocument.read(b" " * (LARGEST_BYTES + 1))
    assert refusal.value.reason == "size"


def test_the_largest_grid_fits_the_limit() -> None:
    grid = gv.Grid.from_box(south=48.5, west=2.0, north=48.93, east=2.662, cell_km=0.77)
    assert 3500 < grid.size <= 4096
    made = publish(
        gv.elastic(grid, epsilon_per_km=0.5, between="cells"),
        campaign="a",
        round=1,
        not_before_s=0,
        expires_s=1,
    )
    assert len(made.served()) < LARGEST_BYTES / 2


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
    for version in (True, 1.0):
        with pytest.raises(RefusedDocument) as refusal:
            MechanismDocument.read({**paris().to_dict(), "geoveil": version})
        assert refusal.value.reason == "version"


def test_a_single_cell_is_not_published() -> None:
    one = gv.Grid.from_box(south=48.8, west=2.3, north=48.802, east=2.302, cell_km=0.5)
    with pytest.raises(InvalidInput, match="single cell cannot be published"):
        publish(
            gv.Elastic(one, beta_per_km=1.0), campaign="a", round=1, not_before_s=0, expires_s=1
        )
