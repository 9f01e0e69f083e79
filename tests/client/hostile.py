"""Mechanism documents that no device may act on, each with the reason it must be refused for.

A case is the bytes that a collector serves; unless it is about the id, the id is that of the bytes, so
that nothing but the planted fault is wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import geoveil as gv
from client.world import LYON, NOW_S, document
from geoveil.arrays import IntArray
from geoveil.channel.guarantee import BetweenPositions
from geoveil.document.area import packed_integers, unpacked_integers
from geoveil.document.canonical import document_id
from geoveil.position.cone import ROUNDING_CELLS, RoundedCone
from geoveil.position.whole_law import WholeLaw, whole_weights

Values = dict[str, Any]
OVER = {"zone": "UTC", "every": "once", "names": ["first", "second"], "starts": [0, 10, 20]}
SLOTS = {"zone": "UTC", "every": "day", "names": ["night", "day"], "starts": [0, 360]}


@dataclass(frozen=True)
class Hostile:
    name: str
    made: bytes | Callable[[], bytes]
    reason: str
    detail: str = ""
    seen: bool = False
    """Whether the device knows round 5 of the honest campaign already."""

    @property
    def body(self) -> bytes:
        """Made when it is asked for: collecting the tests designs no mechanism."""
        return self.made() if callable(self.made) else self.made


def encoded(values: Values, *, identified: bool = True) -> bytes:
    """The document with an id that fits, where one can be computed."""
    try:
        extra = {"id": document_id(values)} if identified else {}
    except ValueError:
        extra = {}
    return json.dumps({**extra, **values}).encode()


def honest() -> Values:
    return document(5).to_dict()


def changed(**changes: Any) -> bytes:
    return encoded({**honest(), **changes})


def put(path: str, make: Callable[[Any], Any]) -> bytes:
    """The honest document with one value, at ``a.b``, made another one."""
    values: Any = json.loads(document(5).to_bytes())
    *outer, last = (int(step) if step.isdigit() else step for step in path.split("."))
    inner = values
    for step in outer:
        inner = inner[step]
    inner[last] = make(inner[last])
    return encoded(values)


def without(name: str) -> bytes:
    return encoded({k: v for k, v in honest().items() if k != name})


def packed(field: str, make: Callable[[IntArray], IntArray]) -> bytes:
    """The honest document with its weights or its kernel made others."""
    numbers = unpacked_integers(field, honest()[field])
    return changed(**{field: packed_integers(make(numbers.copy()))})


def poked(field: str, index: int, value: int) -> bytes:
    def make(numbers: IntArray) -> IntArray:
        numbers[index] = value
        return numbers

    return packed(field, make)


def lawful(
    *,
    beta_per_km: float = 1.2,
    weights: Callable[[IntArray], IntArray] = lambda cells: 0 * cells + 1,
) -> bytes:
    """A document in order in every respect, whose law may or may not keep the promise of 2 per km."""
    sound = document(5)
    chosen = weights(np.arange(LYON.size)).astype(np.float64)
    cone = RoundedCone(beta_per_km, sound.law.cone.radius_km)
    law = WholeLaw(sound.law.centres, whole_weights(chosen), cone)
    made = replace(sound, law=law, promise=BetweenPositions(2.0, 0.02))
    return encoded(json.loads(made.to_bytes()))


def listed(points: IntArray, *, cell_km: float, step: int, entries: int) -> bytes:
    """A document of places, in steps of the lattice, with so much of the kernel of β = 1 per km."""
    middles = (np.arange(entries) + 0.5) * cell_km / step
    kernel = RoundedCone(1.0, ROUNDING_CELLS * cell_km).values(middles) * 2.0**31
    space = {"kind": "centres", "origin": [45.76, 4.84], "cell_km": cell_km}
    return changed(
        space={**space, "points": packed_integers(points.ravel(), signed=True)},
        step=step,
        rim=0,
        beta_per_km=1.0,
        slack_nats=0.02,
        weights=packed_integers(np.ones(len(points), dtype=np.int64)),
        kernel=packed_integers(np.rint(kernel).astype(np.int64)),
    )


def replaced(old: str, new: str) -> bytes:
    text = document(5).served().decode()
    assert old in text
    return text.replace(old, new, 1).encode()


def levels(first: str) -> bytes:
    """An answer with two levels, the second of which is honest."""
    return f'{{"geoveil":2,"kind":"levels","levels":[{first},{document(5).served().decode()}]}}'.encode()


WIDER = gv.Grid.from_box(south=45.74, west=4.81, north=45.79, east=4.87, cell_km=0.5)
MOVED = gv.Grid.from_box(south=45.75, west=4.81, north=45.79, east=4.87, cell_km=0.5)
FINER = gv.Grid.from_box(south=45.74, west=4.81, north=45.78, east=4.87, cell_km=0.4)

_DEPTH = 900 if sys.version_info < (3, 12) else 1500
"""Of lists that Python reads as JSON and does not write any more."""

HOSTILE = [
    # -- not a document
    Hostile("empty", b"", "document", "json"),
    Hostile("not JSON", b"<html>Log in to the network</html>", "document", "json"),
    Hostile("not UTF-8", b'{"geoveil": "\xff\xfe"}', "document", "json"),
    Hostile("a list", b"[1, 2, 3]", "document", "json"),
    Hostile("null", b"null", "document", "json"),
    Hostile("cut off", lambda: document(5).served()[:-20], "document", "json"),
    Hostile("two documents", lambda: document(5).served() * 2, "document", "json"),
    Hostile("oversize", lambda: b" " * (1 << 18) + document(5).served(), "document", "size"),
    Hostile("nested bomb of lists", b"[" * 200_000, "document", "json"),
    Hostile("nested bomb of objects", b'{"a":' * 80_000, "document", "json"),
    Hostile(
        "a number of 100,000 digits",
        lambda: replaced('"round":5', '"round":' + "9" * 100_000),
        "document",
        "round",
    ),
    Hostile("a level of infinity", lambda: levels('{"id":"0","a":1e999}'), "document", "json"),
    Hostile(
        "a level of depth",
        lambda: levels(f'{{"id":"0","a":{"[" * _DEPTH}{"]" * _DEPTH}}}'),
        "document",
        "json",
    ),
    Hostile(
        "an entry twice", lambda: replaced('"round":5', '"round":5,"round":6'), "document", "json"
    ),
    Hostile("ε twice", lambda: replaced('"kind"', '"epsilon_per_km":9,"kind"'), "document", "json"),
    Hostile("NaN for ε", lambda: changed(epsilon_per_km=float("nan")), "document", "json"),
    Hostile("infinite β", lambda: changed(beta_per_km=float("inf")), "document", "json"),
    # -- the wrong shape
    Hostile("a version to come", lambda: changed(geoveil=3), "document", "version"),
    Hostile("version 1", lambda: changed(geoveil=1), "document", "version"),
    Hostile("version as text", lambda: changed(geoveil="2"), "document", "version"),
    Hostile("another kind", lambda: changed(kind="estimate"), "document", "version"),
    Hostile("an extra field", lambda: changed(distances=[[0.0]]), "document", "fields"),
    Hostile("a matrix", lambda: changed(matrix=[[1, 0], [0, 1]]), "document", "fields"),
    Hostile("no weights", lambda: without("weights"), "document", "fields"),
    Hostile("no kernel", lambda: without("kernel"), "document", "fields"),
    Hostile("no expiry", lambda: without("expires"), "document", "fields"),
    Hostile("no ε", lambda: without("epsilon_per_km"), "document", "fields"),
    Hostile("no id", lambda: encoded(honest(), identified=False), "document", "id"),
    Hostile("an id of zeros", lambda: encoded({"id": "0" * 64, **honest()}), "document", "id"),
    Hostile(
        "the id of another", lambda: encoded({"id": document(6).id, **honest()}), "document", "id"
    ),
    Hostile("id as a number", lambda: encoded({"id": 7, **honest()}), "document", "id"),
    Hostile("id null", lambda: encoded({"id": None, **honest()}), "document", "id"),
    Hostile("round 0", lambda: changed(round=0), "document", "round"),
    Hostile("round −1", lambda: changed(round=-1), "document", "round"),
    Hostile("round as a float", lambda: changed(round=5.5), "document", "round"),
    Hostile("round true", lambda: changed(round=True), "document", "round"),
    Hostile("round beyond 2³¹", lambda: changed(round=1 << 40), "document", "round"),
    Hostile("campaign a path", lambda: changed(campaign="../lyon"), "document", "campaign"),
    Hostile("campaign a number", lambda: changed(campaign=7), "document", "campaign"),
    Hostile("ends before it begins", lambda: changed(expires=0, not_before=9), "document", "times"),
    Hostile("expiry as text", lambda: changed(expires="2999-01-01"), "document", "expires"),
    Hostile("begins at −1", lambda: changed(not_before=-1), "document", "not_before"),
    # -- the space
    Hostile("space a word", lambda: changed(space="everywhere"), "document", "space"),
    Hostile("space without a box", lambda: put("space.box", lambda _: None), "document", "space"),
    Hostile(
        "mask null",
        lambda: changed(space={**honest()["space"], "mask": None}),
        "document",
        "space",
    ),
    Hostile(
        "box of three edges", lambda: put("space.box", lambda box: box[:3]), "document", "space"
    ),
    Hostile(
        "box upside down",
        lambda: put("space.box", lambda b: [b[2], b[1], b[0], b[3]]),
        "document",
        "space",
    ),
    Hostile("box of text", lambda: put("space.box", lambda _: list("SWNE")), "document", "space"),
    Hostile(
        "box over a pole", lambda: put("space.box", lambda _: [89, 0, 90, 9]), "document", "space"
    ),
    Hostile("rows × 10⁹", lambda: put("space.rows", lambda _: 10**9), "document", "space"),
    Hostile("rows true", lambda: put("space.rows", lambda _: True), "document", "space"),
    Hostile("cells ×1000", lambda: put("space.cell_km", lambda km: 1000 * km), "document", "space"),
    Hostile("cells ÷1000", lambda: put("space.cell_km", lambda km: km / 1000), "document", "space"),
    Hostile("cells of −0.5 km", lambda: put("space.cell_km", lambda km: -km), "document", "space"),
    Hostile("cells as text", lambda: put("space.cell_km", lambda _: "0.5"), "document", "space"),
    # -- the integers
    Hostile("a weight too few", lambda: packed("weights", lambda w: w[:-1]), "document", "weights"),
    Hostile(
        "a weight too many",
        lambda: packed("weights", lambda w: np.append(w, 1)),
        "document",
        "weights",
    ),
    Hostile("a weight of zero", lambda: poked("weights", 3, 0), "document", "weights"),
    Hostile("half a weight", lambda: put("weights", lambda w: w[:-4]), "document", "weights"),
    Hostile(
        "weights as a list",
        lambda: put("weights", lambda _: [1] * LYON.size),
        "document",
        "weights",
    ),
    Hostile("weights an object", lambda: put("weights", lambda _: {"0": 1}), "document", "weights"),
    Hostile("weights null", lambda: put("weights", lambda _: None), "document", "weights"),
    Hostile(
        "weights not in base 64",
        lambda: put("weights", lambda w: "*" + w[1:]),
        "document",
        "weights",
    ),
    Hostile(
        "weights with a line break",
        lambda: put("weights", lambda w: w + "\n"),
        "document",
        "weights",
    ),
    Hostile(
        "weights that overflow", lambda: poked("weights", 3, (1 << 32) - 1), "document", "weights"
    ),
    Hostile(
        "a kernel too short", lambda: packed("kernel", lambda k: k[:-300]), "document", "kernel"
    ),
    Hostile(
        "an endless kernel",
        lambda: packed("kernel", lambda k: np.resize(k, 1 << 15)),
        "document",
        "kernel",
    ),
    Hostile("kernel as a number", lambda: put("kernel", lambda _: 7), "document", "kernel"),
    Hostile(
        "kernel of other numbers", lambda: packed("kernel", lambda k: k[::-1]), "document", "kernel"
    ),
    Hostile("a kernel of zero", lambda: poked("kernel", 7, 0), "document", "kernel"),
    Hostile("a kernel off by two", lambda: packed("kernel", lambda k: k + 2), "document", "kernel"),
    Hostile("kernel with a spike", lambda: poked("kernel", 900, 1 << 31), "document", "kernel"),
    Hostile(
        "a kernel shorter than places of which the square of the distance needs 65 bits",
        lambda: listed(
            np.array([(-(2**31), 0), (2**31 - 1, 92_682)]), cell_km=0.01, step=1 << 16, entries=150
        ),
        "document",
        "kernel",
    ),
    Hostile("step odd", lambda: changed(step=honest()["step"] + 1), "document", "step"),
    Hostile("another step", lambda: changed(step=honest()["step"] + 2), "document", "kernel"),
    Hostile("a rim without weights", lambda: changed(rim=1), "document", "weights"),
    Hostile("two rims", lambda: changed(rim=2), "document", "rim"),
    Hostile("level 9", lambda: changed(level=9), "document", "level"),
    Hostile("slots of a year", lambda: changed(slots={"every": "year"}), "document", "slots"),
    Hostile("trips perhaps", lambda: changed(trips="perhaps"), "document", "trips"),
    # -- the promise
    Hostile("ε zero", lambda: changed(epsilon_per_km=0), "document", "epsilon_per_km"),
    Hostile("ε negative", lambda: changed(epsilon_per_km=-2.0), "document", "epsilon_per_km"),
    Hostile("ε true", lambda: changed(epsilon_per_km=True), "document", "epsilon_per_km"),
    Hostile("ε as text", lambda: changed(epsilon_per_km="2"), "document", "epsilon_per_km"),
    Hostile("ε of 10³⁰⁰", lambda: changed(epsilon_per_km=1e300), "document", "epsilon_per_km"),
    Hostile("ε of a cell above 8", lambda: changed(epsilon_per_km=17.0), "document", "steep"),
    Hostile("η of 1", lambda: changed(slack_nats=1.0), "document", "slack_nats"),
    Hostile("no η", lambda: changed(slack_nats=0), "document", "slack_nats"),
    Hostile("η understated", lambda: changed(slack_nats=0.001), "document", "certificate"),
    Hostile("β zero", lambda: changed(beta_per_km=0), "document", "beta_per_km"),
    Hostile("β understated", lambda: changed(beta_per_km=0.01), "document", "kernel"),
    Hostile("β of a cliff", lambda: changed(beta_per_km=40.0), "document", "steep"),
    Hostile("ε too small for it", lambda: changed(epsilon_per_km=0.5), "document", "certificate"),
    Hostile(
        "ε a hair too small",
        lambda: changed(epsilon_per_km=document(5).law.certificate.epsilon_per_km * (1 - 1e-9)),
        "document",
        "certificate",
    ),
    Hostile(
        "the true cell every time", lambda: lawful(beta_per_km=30.0), "document", "certificate"
    ),
    Hostile("steep kernel", lambda: lawful(beta_per_km=4.0), "document", "certificate"),
    Hostile(
        "one heavy cell",
        lambda: lawful(weights=lambda c: 1 + 10**6 * (c == 40)),
        "document",
        "certificate",
    ),
    Hostile(
        "a cliff of weights",
        lambda: lawful(weights=lambda c: 1 + 10**5 * (c > 40)),
        "document",
        "certificate",
    ),
    Hostile(
        "weights that mark rows",
        lambda: lawful(beta_per_km=1.6, weights=lambda c: 1 + 999 * (c // LYON.columns % 2)),
        "document",
        "certificate",
    ),
    Hostile(
        "places that would take hours to check",
        lambda: listed(
            np.stack(np.divmod(np.arange(400), 20), axis=-1) * 4000,
            cell_km=0.2,
            step=50,
            entries=5700,
        ),
        "document",
        "certificate",
    ),
    Hostile("promise above the limit", lambda: changed(epsilon_per_km=2.0001), "promise"),
    Hostile("promise of 15", lambda: changed(epsilon_per_km=15.0), "promise"),
    Hostile("trips", lambda: changed(trips=True), "trips"),
    Hostile("slots of nowhere", lambda: changed(slots={**SLOTS, "zone": "Atlantis/Sea"}), "zone"),
    Hostile("periods that are over", lambda: changed(slots=OVER), "slot"),
    # -- sound, and not for this device or not now
    Hostile("another campaign", lambda: document(5, campaign="paris").served(), "campaign"),
    Hostile("expired", lambda: document(5, expires_s=NOW_S).served(), "expired"),
    Hostile("long expired", lambda: document(5, not_before_s=1, expires_s=2).served(), "expired"),
    Hostile(
        "not valid yet",
        lambda: document(5, not_before_s=NOW_S + 301, expires_s=NOW_S + 999).served(),
        "not-yet-valid",
    ),
    Hostile("larger box", lambda: document(6, grid=WIDER).served(), "space", seen=True),
    Hostile("box moved", lambda: document(6, grid=MOVED).served(), "space", seen=True),
    Hostile("finer cells", lambda: document(6, grid=FINER).served(), "space", seen=True),
]
