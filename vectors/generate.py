"""Write the vectors that Python, TypeScript and any other device must agree on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import geoveil as gv
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import MechanismDocument, publish

HERE = Path(__file__).resolve().parent
DRAWS = 2500
BOXES = {
    "paris": ({"south": 48.8286, "west": 2.2855, "north": 48.8798, "east": 2.3909}, 0.5, 2.0, 0.5),
    "fiji": ({"south": -18.3, "west": 179.85, "north": -18.1, "east": -179.9}, 2.5, 0.4, 0.0),
    "svalbard": ({"south": 78.1, "west": 15.2, "north": 78.3, "east": 16.4}, 1.0, 1.0, 1.0),
    "lima": ({"south": -12.12, "west": -77.08, "north": -12.04, "east": -77.0}, 0.25, 6.0, 0.9),
}
NUMBERS = (
    0.0, -0.0, 1.0, -2.0, 0.1, 0.1 + 0.2, 1 / 3, 1e-6, 1e-7, 1.5e-9, 123456.789, 1e20, 1e21, 1.5e300, 5e-324,
    2.0**53, 2.0**60, 0.000001234, 9007199254740991, -0.5, 48.8286, 179.85,
)  # fmt: skip


def documents() -> Iterator[tuple[str, MechanismDocument]]:
    """The document of every box: the one on file, or else a new one with weights that differ by cell."""
    for name, (box, cell_km, epsilon, camouflage) in BOXES.items():
        kept = HERE / f"mechanism-{name}.json"
        if kept.exists():  # designs may differ in their last digits from machine to machine
            text = json.loads(kept.read_text(encoding="utf-8"))["document"]
            yield name, MechanismDocument.read(text.encode())
            continue
        grid = gv.Grid.from_box(**box, cell_km=cell_km)
        hills = np.array([_fraction(f"{name}:prior:{cell}") ** 4 for cell in range(grid.size)])
        prior = hills / hills.sum()
        made = gv.elastic(
            grid, prior, epsilon_per_km=epsilon, camouflage=camouflage, between="cells"
        )
        yield name, publish(made, campaign=name, round=1, not_before_s=0, expires_s=4102444800)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _fraction(text: str) -> float:
    return int.from_bytes(_digest(text)[:6], "big") / 2**48


def described(name: str, document: MechanismDocument) -> dict[str, Any]:
    """All that another implementation must find in this document."""
    channel = document.mechanism
    size = channel.space.size
    draws = [channel.draw(i % size, _digest(f"{name}:{i}")[:16]) for i in range(DRAWS)]
    return {
        "name": name,
        "document": document.to_bytes().decode(),
        "served": document.served().decode(),
        "id": document.id,
        "certified_epsilon_per_km": math.ceil(channel.certified_epsilon_per_km * 1e9) / 1e9,
        "sums": [str(total) for total in channel.sums.tolist()],
        "rows": {
            str(cell): [str(entry) for entry in channel.whole_row(cell).tolist()]
            for cell in (0, size // 2, size - 1)
        },
        "draws": draws,
        "edges": {
            "00": [channel.draw(cell, b"\x00" * 16) for cell in range(size)],
            "ff": [channel.draw(cell, b"\xff" * 16) for cell in range(size)],
        },
        "places": [_place(name, channel.space, index) for index in range(200)],
    }


def _place(name: str, grid: gv.Grid, index: int) -> list[Any]:
    """A place in or a little around the grid, on a raster of 1e-5 degrees."""
    lat, lng = grid.centres_latlng()
    centre = index * 7919 % grid.size
    span = (lat.max() - lat.min(), grid.cell_km / 111.0)
    up, along = (_fraction(f"{name}:place:{axis}:{index}") - 0.5 for axis in "yx")
    north = round(float(lat[centre]) + 0.2 * span[0] * up, 5)
    east = round((float(lng[centre]) + 4 * span[1] * along + 180.0) % 360.0 - 180.0, 5)
    inside = bool(grid.inside(lat=north, lng=east))
    return [north, east, int(grid.locate(lat=north, lng=east)) if inside else None]


def refused() -> list[dict[str, Any]]:
    """Documents that must be refused, as edits of the one for Paris."""

    def change(reason: str, **entries: Any) -> dict[str, Any]:
        return {"base": "paris", "reason": reason, "set": entries, "remove": []}

    return [
        {"text": "", "reason": "json"},
        {"text": "[]", "reason": "json"},
        {"text": '{"geoveil":1,"geoveil":1}', "reason": "json"},
        {"text": "[" * 5000, "reason": "json"},
        {"text": '{"geoveil":NaN}', "reason": "json"},
        {"base": "paris", "reason": "fields", "set": {}, "remove": ["expires"]},
        {"base": "paris", "reason": "fields", "set": {}, "remove": ["kernel"]},
        change("fields", matrix=[]),
        change("version", geoveil=2),
        change("version", kind="report"),
        change("campaign", campaign="../other"),
        change("campaign", campaign=7),
        change("round", round=0),
        change("round", round=1.5),
        change("round", round=True),
        change("times", expires=0),
        change("expires", expires=-1),
        change("not_before", not_before="0"),
        change("epsilon_per_km", epsilon_per_km=0),
        change("epsilon_per_km", epsilon_per_km=-2),
        change("epsilon_per_km", epsilon_per_km="2"),
        change("certificate", epsilon_per_km=1.5),
        change("beta", beta_per_km=0.1),
        change("space", **{"space.rows": 100000}),
        change("space", **{"space.rows": 11}),
        change("space", **{"space.cell_km": 500.0}),
        change("space", **{"space.cell_km": 0.0005}),
        change("space", **{"space.box": None}),
        change("space", **{"space.box": [91, 0, 92, 1]}),
        change("space", **{"space.kind": "line"}),
        change("weights", weights=[]),
        change("weights", **{"weights.0": 0}),
        change("weights", **{"weights.0": -5}),
        change("weights", **{"weights.0": 1.5}),
        change("weights", **{"weights.0": True}),
        change("integers", **{"weights.0": 1 << 40}),
        change("kernel", **{"kernel.5": "8"}),
        change("kernel", **{"kernel.5": 0}),
        change("integers", **{"kernel.5": 9}),
        change("integers", **{"kernel.5": 1 << 50}),
        change("certificate", **{"kernel.191": 1 << 36, "beta_per_km": 100}),
        change("certificate", **{"kernel.1": 1 << 17, "beta_per_km": 100}),
        change("id", id="0" * 64),
    ]


def texts() -> dict[str, str]:
    """File name → what it must hold."""
    pairs = [[value, canonical_bytes({"n": value}).decode()[5:-1]] for value in NUMBERS]
    odd = {"ü": '\u20ac\\"\n\u0007', "a\U0001f600": None, "b": [True, [], {}], "\ufb33": 1}
    canonical = {"numbers": pairs, "object": [odd, canonical_bytes(odd).decode()]}
    made = {"canonical.json": canonical, "refused.json": refused()}
    for name, document in documents():
        made[f"mechanism-{name}.json"] = described(name, document)
    return {file: json.dumps(values, separators=(",", ":")) + "\n" for file, values in made.items()}


if __name__ == "__main__":
    for file, text in texts().items():
        (HERE / file).write_text(text, encoding="utf-8")
