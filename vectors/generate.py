"""Write the vectors that Python, TypeScript and any other device must agree on."""

from __future__ import annotations

import hashlib
import json
import math
from base64 import b64decode, b64encode
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.guarantee import BetweenPositions
from geoveil.channel.words import explain_nearby
from geoveil.client.ledger_book import Period, moved_on
from geoveil.client.location import in_words
from geoveil.document.area import Area, packed_integers
from geoveil.document.canonical import canonical_bytes
from geoveil.document.slots import Slots
from geoveil.document.ticket import SEED_BYTES, SigningKey, TicketRequest, expand
from geoveil.document.wire import MechanismDocument, publish, served_levels, tag_of
from geoveil.position.cone import ROUNDING_CELLS, RoundedCone
from geoveil.position.positional import lattice_step
from geoveil.position.whole_law import DRAW_BYTES, WholeLaw, whole_weights
from geoveil.space import Grid, MaskedGrid
from geoveil.space.projection import TangentPlane

HERE = Path(__file__).resolve().parent
DRAWS, FEW = 2000, 60
"""Positions that a report is drawn from; few where a row is long."""
FOREVER_S = 4102444800
BOXES = {
    "paris": ({"south": 48.8286, "west": 2.2855, "north": 48.8798, "east": 2.3909}, 0.5, 2.0, 0.5),
    "fiji": ({"south": -18.3, "west": 179.85, "north": -18.1, "east": -179.9}, 2.5, 0.4, 0.0),
    "svalbard": ({"south": 78.1, "west": 15.2, "north": 78.3, "east": 16.4}, 1.0, 1.0, 1.0),
}
"""Name → box, side of a cell, ε per km, camouflage: without and with a rim."""
_FOOLING = ("paris", "svalbard", "lagoon", "places")
"""Whose worst positions lie between those that a check by samples would look at."""
DAY = Slots(
    "Europe/Paris", "day", ("night", "morning", "afternoon", "evening"), (0, 360, 720, 1080)
)
WEEK = Slots("America/New_York", "week", ("working days", "weekend"), (0, 7200))
ONCE = Slots("UTC", "once", ("before", "after"), (1_700_000_000, 1_700_100_000, 1_700_200_000))
TIMES_S = (0, 1_700_000_000, 1_700_050_000, 1_711_846_800, 1_711_850_400, 1_729_987_200, 1_699_999_999,
           1_730_005_200, 1_730_008_800, 1_700_200_000, 4_000_000_000)  # fmt: skip
"""Clocks go forward in Paris at 1711846800 and back at 1729990800."""
NUMBERS = (
    0.0, -0.0, 1.0, -2.0, 0.1, 0.1 + 0.2, 1 / 3, 1e-6, 1e-7, 1.5e-9, 123456.789, 1e20, 1e21, 1.5e300, 5e-324,
    2.0**53, 2.0**60, 0.000001234, 9007199254740991, -0.5, 48.8286, 179.85,
)  # fmt: skip


@cache
def documents() -> dict[str, MechanismDocument]:
    """The documents on file, or else new ones with weights that differ by cell."""
    return {name: _document(name) for name in (*BOXES, "lagoon", "places", "trips", "delta")}


def _document(name: str) -> MechanismDocument:
    kept = HERE / f"mechanism-{name}.json"
    if kept.exists():  # designs may differ in their last digits from machine to machine
        text = json.loads(kept.read_text(encoding="utf-8"))["document"]
        return MechanismDocument.read(text.encode(), certified=True)
    if name in BOXES:
        return _designed(name, *BOXES[name])
    if name == "places":
        return _places()
    if name == "delta":
        return _delta()
    return (
        _lagoon() if name == "lagoon" else replace(_lagoon(), campaign=name, trips=True, slots=WEEK)
    )


def _designed(
    name: str, box: dict[str, float], cell_km: float, epsilon: float, camouflage: float
) -> MechanismDocument:
    grid = gv.Grid.from_box(**box, cell_km=cell_km)
    hills = np.array([_fraction(f"{name}:prior:{cell}") ** 4 for cell in range(grid.size)])
    made = gv.elastic(
        grid,
        hills / hills.sum(),
        epsilon_per_km=epsilon,
        camouflage=camouflage,
        between="positions",
    )
    assert isinstance(made, gv.PositionalElastic)
    return publish(made, campaign=name, round=1, not_before_s=0, expires_s=FOREVER_S)


def _lagoon() -> MechanismDocument:
    """Two islands: a grid of which a mask leaves some cells, with a rim and with slots."""
    grid = gv.Grid.from_box(south=-17.6, west=-149.7, north=-17.4, east=-149.4, cell_km=2.0)
    row, column = np.divmod(np.arange(grid.size), grid.columns)
    mask = (np.hypot(row - 2, column - 3) < 2.5) | (np.hypot(row - 8, column - 11) < 3.0)
    return replace(
        _by_hand("lagoon", Area.of_squares(MaskedGrid(grid, mask)), epsilon=0.5, rim=1), slots=DAY
    )


def _delta() -> MechanismDocument:
    """More cells than 4,096, whose weights have two bytes each: land with an arm of water through it."""
    grid = gv.Grid.from_box(south=30.9, west=30.6, north=31.46, east=31.3, cell_km=0.9)
    row, column = np.divmod(np.arange(grid.size), grid.columns)
    mask = np.abs(row - 20 - column / 3) > 1
    hills = 1.0 + 0.4 * np.sin(row / 9.0) * np.cos(column / 7.0)
    return _by_hand(
        "delta", Area.of_squares(MaskedGrid(grid, mask)), epsilon=1.0, rim=0, over=hills[mask]
    )


def _places() -> MechanismDocument:
    """Sixty places that lie on no grid."""
    plane = TangentPlane(lat=-1.29, lng=36.82)
    step = lattice_step(1.5, 0.8)
    spread = np.array([[_fraction(f"places:{axis}:{i}") for axis in "xy"] for i in range(60)])
    points = np.rint((spread - 0.5) * 8.0 * step).astype(np.int64)
    return _by_hand("places", Area.of_places(plane, points, 0.8), epsilon=1.5, rim=0)


def _by_hand(
    name: str, area: Area, *, epsilon: float, rim: int, over: FloatArray | float = 0.2
) -> MechanismDocument:
    """Uneven weights, and the ε that is certified for them."""
    step = lattice_step(epsilon, area.cell_km)
    centres = area.centres(step=step, rim=rim)
    uneven = [_fraction(f"{name}:weight:{index}") for index in range(centres.size)]
    weights = over + np.array(uneven) * (0.01 if area.many else 1.0)
    cone = RoundedCone(0.6 * epsilon, ROUNDING_CELLS * area.cell_km)
    law = WholeLaw(centres, whole_weights(weights, short=area.many), cone)
    certified = math.ceil(law.certificate.epsilon_per_km * 1e6) / 1e6
    promise = BetweenPositions(certified, law.slack_at(certified))
    return MechanismDocument(name, 1, 0, area, step, rim, promise, law, 0, FOREVER_S)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _fraction(text: str) -> float:
    return int.from_bytes(_digest(text)[:6], "big") / 2**48


def described(name: str, document: MechanismDocument) -> dict[str, Any]:
    """All that another implementation must find in this document."""
    law = document.law
    steps = _positions(name, document)
    rows = law.rows_at(steps[:3])
    ends = [law.draw(at, byte * 16) for at in steps[:100] for byte in (b"\x00", b"\xff")]
    draws = [law.draw(at, _digest(f"{name}:{i}")[:16]) for i, at in enumerate(steps)]
    return {
        "name": name,
        "document": document.to_bytes().decode(),
        "served": document.served().decode(),
        "id": document.id,
        "certified_epsilon_per_km": math.ceil(law.certificate.epsilon_per_km * 1e9) / 1e9,
        "certified_slack_nats": law.slack,
        "seen_epsilon_per_km": math.floor(law.certificate.seen_per_km * 1e9) / 1e9,
        "rectangle": [*law.centres.low, *law.centres.high],
        "centres": law.centres.points.tolist(),
        "positions": steps.tolist(),
        "draws": draws,
        "ends": ends,
        "rows": [[str(entry) for entry in row] for row in rows.tolist()],
        "sums": [str(total) for total in law.rows_at(steps[:200]).sum(axis=1).tolist()],
        "places": [_place(name, document, index) for index in range(200)],
        "receipts": [_centre(document, report) for report in range(0, law.centres.size, 7)],
        "slots": [] if document.slots is None else _times(document.slots),
    }


def _positions(name: str, document: MechanismDocument) -> IntArray:
    """Positions in steps: in the rectangle, on its edges and corners, and outside."""
    low, high = (np.array(end) for end in (document.law.centres.low, document.law.centres.high))
    made = []
    for index in range(FEW if document.area.many else DRAWS):
        share = np.array([_fraction(f"{name}:position:{axis}:{index}") for axis in "xy"])
        wide = 1.0 if index % 4 else 1.5
        place = low + (high - low) * (0.5 + (share - 0.5) * wide)
        if index % 10 == 0:
            place = np.where(share < 0.5, low, high)
        made.append(np.rint(place))
    return np.array(made, dtype=np.int64)


def _place(name: str, document: MechanismDocument, index: int) -> list[Any]:
    """A place on a raster of 1e-6 degrees, and its steps: such that the last digits do not matter."""
    area, law = document.area, document.law
    low, high = law.centres.rectangle_km
    for attempt in range(100):
        share = [_fraction(f"{name}:place:{axis}:{index}:{attempt}") for axis in "xy"]
        place: FloatArray = low + (high - low) * (1.4 * np.array(share) - 0.2)
        lat, lng = (round(degrees, 6) for degrees in area.latlng(place))
        if index < 5:  # the ends of the world
            lat, lng = [
                (90.0, 0.0),
                (-90.0, 12.0),
                (0.0, -180.0),
                (1.0, 179.999999),
                (-lat, lng - 180),
            ][index]
        exact = np.clip(area.place_km(lat, lng), low, high) / law.centres.pitch_km
        if (np.abs(np.abs(exact - np.floor(exact)) - 0.5) > 1e-3).all():
            return [lat, lng, law.steps_of(area.place_km(lat, lng)).tolist()]
    raise AssertionError("no place that is clear of a half step")


def _centre(document: MechanismDocument, report: int) -> list[Any]:
    lat, lng = document.area.latlng(document.law.centres.points_km[report])
    return [report, round(lat, 9), round(lng, 9)]


def _times(slots: Slots) -> list[list[int | None]]:
    return [[time_s, slots.at(time_s)] for time_s in TIMES_S]


def levels(paris: MechanismDocument) -> dict[str, Any]:
    """An answer with two levels, and answers that must be refused."""
    grid = paris.area.squares
    assert isinstance(grid, Grid)
    weaker = replace(paris, level=1, promise=BetweenPositions(3.0, 0.02))
    body = served_levels((paris, weaker)).decode()
    ids = [paris.id, weaker.id]

    def answer(reason: str, *listed: Any, **entries: Any) -> dict[str, Any]:
        """A number stands for one of the two levels; a pair for a level with entries set."""
        return {"reason": reason, "levels": list(listed), "set": entries}

    later = replace(weaker, round=2).id
    return {
        "body": body,
        "ids": ids,
        "tag": tag_of((paris, weaker)),
        "refused": [
            answer("levels", 0),
            answer("levels", 1, 0),
            answer("levels", 0, 0),
            answer("levels", 0, [1, {"round": 2, "id": later}]),
            answer("levels", *[0] * 9),
            answer("json", 0, "7"),
            answer("id", 0, [1, {"round": 2}]),
            answer("fields", 0, 1, more=1),
            answer("version", 0, 1, geoveil=3),
        ],
    }


def refused() -> list[dict[str, Any]]:
    """Documents that must be refused, as texts or as edits of those above."""
    return [
        *_no_documents(),
        *_wrong_heads(),
        *_wrong_promises(),
        *_wrong_steps(),
        *_wrong_spaces(),
        *_wrong_weights(),
        *_wrong_kernels(),
        *_wrong_additions(),
    ]


def _change(reason: str, base: str = "paris", **entries: Any) -> dict[str, Any]:
    """Entries replaced or added; a name with a point stands for an entry of an entry."""
    return {"base": base, "reason": reason, "set": entries}


def _poked(reason: str, field: str, index: int, value: int, base: str = "paris") -> dict[str, Any]:
    """One of the packed numbers replaced, or two of two bytes."""
    return {"base": base, "reason": reason, "poke": [field, index, value]}


def _cut(reason: str, field: str, characters: int, base: str = "paris") -> dict[str, Any]:
    """The end of a text taken away."""
    return {"base": base, "reason": reason, "cut": [field, characters]}


def _without(field: str) -> dict[str, Any]:
    return {"base": "paris", "reason": "fields", "remove": [field]}


def _entries(name: str) -> Any:
    """A document as JSON."""
    return json.loads(documents()[name].to_bytes())


def _no_documents() -> list[dict[str, Any]]:
    """Texts that are no documents, and documents that lack a field or have one too many."""
    return [
        {"text": "", "reason": "json"},
        {"text": "[]", "reason": "json"},
        {"text": '{"geoveil":2,"geoveil":2}', "reason": "json"},
        {"text": "[" * 5000, "reason": "json"},
        {"text": '{"geoveil":NaN}', "reason": "json"},
        {"spaces": 1 << 18, "text": "{}", "reason": "size"},
        _without("expires"),
        _without("kernel"),
        _without("slack_nats"),
        _change("fields", matrix=[]),
    ]


def _wrong_heads() -> list[dict[str, Any]]:
    """Versions, campaigns, rounds, levels and times that are none."""
    return [
        _change("version", geoveil=1),
        _change("version", geoveil=3),
        _change("version", geoveil=2.5),
        _change("version", geoveil=True),
        _change("version", kind="report"),
        _change("campaign", campaign="../other"),
        _change("campaign", campaign=7),
        _change("round", round=0),
        _change("round", round=1.5),
        _change("round", round=True),
        _change("level", level=-1),
        _change("level", level=8),
        _change("level", level="0"),
        _change("times", expires=0),
        _change("expires", expires=-1),
        _change("not_before", not_before="0"),
    ]


def _wrong_promises() -> list[dict[str, Any]]:
    """Promises that are none, or that the whole numbers do not keep."""
    return [
        _change("epsilon_per_km", epsilon_per_km=0),
        _change("epsilon_per_km", epsilon_per_km=-2),
        _change("epsilon_per_km", epsilon_per_km="2"),
        _change("slack_nats", slack_nats=0),
        _change("slack_nats", slack_nats=0.03),
        _change("certificate", slack_nats=0.0005),
        _change("certificate", epsilon_per_km=1.5),
        _change("certificate", epsilon_per_km=1.999),
        *(_change("certificate", base=name, epsilon_per_km=_sampled(name)) for name in _FOOLING),
        _change("steep", epsilon_per_km=17.0),
        _change("steep", beta_per_km=40.0),
        _change("kernel", beta_per_km=1.0),
        _change("beta_per_km", beta_per_km=None),
    ]


def _wrong_steps() -> list[dict[str, Any]]:
    """Lattices and rims that do not fit the kernel and the weights."""
    return [
        _change("step", step=3),
        _change("step", step=0),
        _change("step", step=1 << 17),
        _change("kernel", step=_entries("paris")["step"] + 2),
        _change("rim", rim=2),
        _change("rim", rim=-1),
        _change("weights", rim=1),
        _change("space", base="places", rim=1),
    ]


def _wrong_spaces() -> list[dict[str, Any]]:
    """Grids, masks and lists of places that are none."""
    mask = _entries("lagoon")["space"]["mask"]
    points = _entries("places")["space"]["points"]
    twice = b64encode(b64decode(points)[:8] + b64decode(points)[:-8]).decode()
    return [
        _change("space", **{"space.rows": 100000}),
        _change("space", **{"space.rows": 11}),
        _change("space", **{"space.cell_km": 500.0}),
        _change("space", **{"space.cell_km": 0.0005}),
        _change("space", **{"space.box": None}),
        _change("space", **{"space.box": [91, 0, 92, 1]}),
        _change("space", **{"space.kind": "line"}),
        _change("weights", **{"space.mask": mask}),
        _change("space", space=7),
        _cut("space", "space.mask", 4, base="lagoon"),
        _change("space", base="lagoon", **{"space.mask": "AAAA" + "A" * (len(mask) - 4)}),
        _change("space", base="lagoon", **{"space.mask": "!" + mask[1:]}),
        _cut("space", "space.points", 4, base="places"),
        _change("space", base="places", **{"space.points": twice}),
        _change("space", base="places", **{"space.origin": [91, 0]}),
        _change("space", base="places", **{"space.cell_km": 0}),
        _change("steep", base="places", **{"space.cell_km": 999.0}),
    ]


def _wrong_weights() -> list[dict[str, Any]]:
    """Weights that are none, are packed for another number of cells, or break the promise."""
    delta = documents()["delta"]
    wide = packed_integers(delta.law.weights)
    return [
        _change("weights", weights=""),
        _change("weights", weights=[1, 2]),
        _cut("weights", "weights", 8),
        _cut("weights", "weights", 1),
        _poked("weights", "weights", 0, 0),
        _poked("weights", "weights", 5, (1 << 32) - 1),
        _poked("weights", "weights", 7, 1, base="delta"),  # the first of two codes is 0
        _poked("weights", "weights", 7, 0xB0000800, base="delta"),  # 2³² and more
        _poked("weights", "weights", 7, 0x0800A800, base="delta"),  # 2³¹: too large a sum
        _cut("weights", "weights", 4, base="delta"),
        _change("weights", base="delta", weights=wide),
        _change("weights", base="delta", weights=_entries("paris")["weights"]),
        _change("certificate", base="delta", epsilon_per_km=0.95 * delta.epsilon_per_km),
        _poked("certificate", "weights", 90, 1 << 28),
        _poked("certificate", "weights", 90, 1 << 29),
    ]


def _wrong_kernels() -> list[dict[str, Any]]:
    """Kernels that are missing, cut or not falling."""
    return [
        _change("kernel", kernel=""),
        _change("kernel", kernel=7),
        _cut("kernel", "kernel", 532),
        _poked("kernel", "kernel", 0, 5),
        _poked("kernel", "kernel", 300, 0),
        _poked("kernel", "kernel", 4000, 1 << 20),
    ]


def _wrong_additions() -> list[dict[str, Any]]:
    """Trips, slots and ids that are not sound."""
    slots = DAY.to_dict()
    return [
        _change("trips", trips=False),
        _change("trips", trips="true"),
        _change("slots", slots=None),
        _change("slots", slots={**slots, "zone": "../etc/passwd"}),
        _change("slots", slots={**slots, "zone": "localtime"}),
        _change("slots", slots={**slots, "zone": "+01"}),
        _change("slots", slots={**slots, "every": "year"}),
        _change("slots", slots={**slots, "names": ["a"]}),
        _change("slots", slots={**slots, "names": ["a", "a", "b", "c"]}),
        _change("slots", slots={**slots, "names": ["a", "", "b", "c"]}),
        _change("slots", slots={**slots, "starts": [0, 720, 360, 1080]}),
        _change("slots", slots={**slots, "starts": [5, 360, 720, 1080]}),
        _change("slots", slots={**slots, "starts": [0, 360, 720, 1440]}),
        _change("slots", slots={**ONCE.to_dict(), "starts": [0, 5]}),
        _change("id", id="0" * 64),
    ]


def _sampled(name: str) -> float:
    """The largest loss per km between neighbouring centres, edges and corners of cells, rounded up.

    Here no two of them farther apart lose more per km. A check that looks at these alone would believe a
    document that promises this, and is fooled.
    """
    law, step = documents()[name].law, documents()[name].step
    (west, south), (east, north) = law.centres.low, law.centres.high
    places = np.meshgrid(
        *(np.arange(*ends, step // 2) for ends in ((west, east + 1), (south, north + 1)))
    )
    rows = law.rows_at(np.stack(places, axis=-1).reshape(-1, 2)).astype(np.float64)
    logs = np.log(rows / rows.sum(axis=1, keepdims=True)).reshape(*places[0].shape, -1)
    away_km = step // 2 * law.centres.pitch_km
    losses = [
        np.abs(one - other).max() / (math.sqrt(diagonal) * away_km)
        for one, other, diagonal in (
            (logs[1:], logs[:-1], 1),
            (logs[:, 1:], logs[:, :-1], 1),
            (logs[1:, 1:], logs[:-1, :-1], 2),
            (logs[1:, :-1], logs[:-1, 1:], 2),
        )
    ]
    worst = float(max(losses))
    assert worst < law.certificate.seen_per_km * (1 - 1e-3)
    return math.ceil(worst * 1e6) / 1e6


def _nearby(promise: BetweenPositions) -> list[list[Any]]:
    """How many reports, what they cost, and what they tell about people who move a little."""
    return [
        [many, (promise * many).amount(), explain_nearby(promise * many, 0.2, 0.1, reports=many)]
        for many in (2, 7, 30)
    ]


def reports() -> dict[str, Any]:
    """The ids and bits of reports under a key that moves on, and each document in words."""
    key, mechanism = _digest("key"), documents()["paris"].id
    keys = []
    for period in (Period("never", 0), Period("day", 20000), Period("round", 7)):
        report, bits = period.bits(key, mechanism)
        ends = [bits[:DRAW_BYTES].hex(), bits[DRAW_BYTES:].hex()]
        keys.append([period.again, period.number, report, *ends])
    later = [[steps, moved_on(key, steps).hex()] for steps in (0, 1, 2, 50)]
    words = {
        name: in_words(document, None if document.slots is None else 0)
        for name, document in documents().items()
    }
    return {
        "key": key.hex(),
        "mechanism": mechanism,
        "reports": keys,
        "later": later,
        "words": words,
        "nearby": _nearby(documents()["paris"].promise),
    }


def tickets() -> dict[str, Any]:
    """Tickets of ours with the key that is there already, beside the vectors of RFC 9474 and 9578."""
    made: dict[str, Any] = json.loads((HERE / "tickets.json").read_text(encoding="utf-8"))
    ours = made["geoveil"]
    key = SigningKey.from_bytes(bytes.fromhex(ours["primes"]))
    ours["ticket_key"] = key.public.spki.hex()
    for ticket in ours["tickets"]:
        campaign = ticket["campaign"]
        if "kept" in ticket:
            seed = expand(bytes.fromhex(ticket["kept"]), key.public.spki, SEED_BYTES)
            ticket["seed"] = seed.hex()
        request = TicketRequest(bytes.fromhex(ticket["seed"]), key.public, campaign)
        signature = key.sign(request.blinded)
        token = request.finish(signature)
        report = key.public.report_id(campaign, token) or b""
        for name, value in (("blinded", request.blinded), ("signature", signature)):
            ticket[name] = value.hex()
        ticket["token"], ticket["report_id"] = token.hex(), report.hex()
    return made


def texts() -> dict[str, str]:
    """File name → what it must hold."""
    pairs = [[value, canonical_bytes({"n": value}).decode()[5:-1]] for value in NUMBERS]
    odd = {"ü": '\u20ac\\"\n\u0007', "a\U0001f600": None, "b": [True, [], {}], "\ufb33": 1}
    canonical = {"numbers": pairs, "object": [odd, canonical_bytes(odd).decode()]}
    made: dict[str, Any] = {"canonical.json": canonical, "refused.json": refused()}
    for name, document in documents().items():
        made[f"mechanism-{name}.json"] = described(name, document)
        if name == "paris":
            made["levels.json"] = levels(document)
    made["reports.json"] = reports()
    made["tickets.json"] = tickets()
    made["slots.json"] = [[slots.to_dict(), _times(slots)] for slots in (DAY, WEEK, ONCE)]
    return {file: json.dumps(values, separators=(",", ":")) + "\n" for file, values in made.items()}


if __name__ == "__main__":
    for file, text in texts().items():
        (HERE / file).write_text(text, encoding="utf-8")
