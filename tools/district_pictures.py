"""Takes the pictures of a city with limits and districts anew, from real check-ins, where they are there.

Part of ``make pictures``; needs the development environment, Node and Chromium. Every check-in in Manhattan
is one person who reports once, through the service itself. Outline and districts are drawn by hand, coarsely.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.real_city import FOLDER, Operator, check_ins, data, ready, reported, shown

from geoveil.demo import LocalCollector
from geoveil.space.outline import read_outlines

CAMPAIGN = "manhattan"
HUDSON = [
    (-74.019, 40.702), (-74.012, 40.728), (-74.010, 40.748), (-73.998, 40.768), (-73.980, 40.793),
    (-73.968, 40.811), (-73.953, 40.831), (-73.943, 40.851),
]  # fmt: skip
"""The western shore from the south to the north, with a corner at every border of districts."""
EAST_RIVER = [
    (-74.007, 40.702), (-73.976, 40.713), (-73.972, 40.731), (-73.962, 40.753), (-73.943, 40.776),
    (-73.930, 40.799), (-73.934, 40.820), (-73.930, 40.842),
]  # fmt: skip
NAMES = (
    "Downtown", "The Village", "Midtown", "Upper East and West Side", "Morningside and East Harlem",
    "Harlem", "Hamilton Heights",
)  # fmt: skip


def feature(name: str, ring: list[tuple[float, float]]) -> dict[str, Any]:
    """An area as GeoJSON has it."""
    geometry = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    return {
        "type": "Feature",
        "properties": {"name": name, "kind": "district"},
        "geometry": geometry,
    }


def districts() -> dict[str, Any]:
    """From one border to the next, from shore to shore."""
    features = [
        feature(name, [HUDSON[n], EAST_RIVER[n], EAST_RIVER[n + 1], HUDSON[n + 1]])
        for n, name in enumerate(NAMES)
    ]
    return {"type": "FeatureCollection", "features": features}


def main(wanted: str = "") -> int:
    """Collect the check-ins of Manhattan, then show dashboard, map and form to a browser."""
    path = data()
    if path is None:
        return 0
    ready()
    limits = feature("Manhattan", [*HUDSON, *reversed(EAST_RIVER)])
    ring = [*HUDSON, *EAST_RIVER]
    box = (
        min(lat for _, lat in ring), min(lng for lng, _ in ring),
        max(lat for _, lat in ring), max(lng for lng, _ in ring),
    )  # fmt: skip
    settings = {
        "name": "Manhattan on foot", "id": CAMPAIGN, "box": box, "cell_km": 0.5, "epsilon_per_km": 2.0,
        "camouflage": 0.25, "minimum_reports": 200,
    }  # fmt: skip
    lat, lng, _ = check_ins(path, box)
    inside = read_outlines(limits)[0].holds(lat=lat, lng=lng)
    with LocalCollector() as collector, tempfile.TemporaryDirectory() as folder:
        operator = Operator(collector)
        operator.call("POST", "/api/campaigns", json.dumps(settings).encode())
        operator.call("PUT", f"/api/campaigns/{CAMPAIGN}/area", json.dumps(limits).encode())
        reported(operator, CAMPAIGN, lat[inside], lng[inside], None)
        operator.call("POST", f"/api/campaigns/{CAMPAIGN}/rounds", b"")
        operator.estimated(CAMPAIGN, 2)
        shapes = json.dumps(districts()).encode()
        operator.call("PUT", f"/api/campaigns/{CAMPAIGN}/backdrop", shapes)
        operator.call("PATCH", f"/api/campaigns/{CAMPAIGN}", b'{"published": true}')
        city = Path(folder) / "manhattan.geojson"
        city.write_text(json.dumps(limits), encoding="utf-8")
        dashboard = f"{collector.url}/#/?token={collector.token}&campaign={CAMPAIGN}"
        return shown("district_pictures.mjs", dashboard, CAMPAIGN, str(city), str(FOLDER), wanted)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
