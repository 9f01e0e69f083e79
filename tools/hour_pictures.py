"""Takes the picture of a map by the hour anew, from real check-ins, where their file is there.

Part of ``make pictures``; needs the development environment, Node and Chromium. Every check-in is one person
who reports once, through the service itself, in the hour of New York in which it was made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.real_city import FOLDER, ZONE, Operator, check_ins, data, ready, reported, shown

from geoveil.demo import LocalCollector

BOX = (40.70, -74.03, 40.82, -73.91)
SETTINGS = {
    "name": "New York by the hour", "id": "hours", "box": BOX, "cell_km": 1.0,
    "epsilon_per_km": 1.0, "camouflage": 0.25, "slots": "hour", "zone": ZONE, "minimum_reports": 200,
}  # fmt: skip


def main() -> int:
    """Collect the check-ins, then show the published map to a browser."""
    path = data()
    if path is None:
        return 0
    ready()
    with LocalCollector() as collector:
        operator = Operator(collector)
        operator.call("POST", "/api/campaigns", json.dumps(SETTINGS).encode())
        reported(operator, "hours", *check_ins(path, BOX))
        operator.call("POST", "/api/campaigns/hours/rounds", b"")
        operator.estimated("hours", 1)
        operator.call("PATCH", "/api/campaigns/hours", b'{"published": true}')
        return shown("hour_pictures.mjs", f"{collector.url}/m/hours", str(FOLDER))


if __name__ == "__main__":
    sys.exit(main())
