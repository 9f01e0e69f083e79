"""Takes the picture of a map by the hour anew, from real check-ins, where their file is there.

Part of ``make pictures``; needs the development environment, Node and Chromium. Every check-in is one person
who reports once, through the service itself, in the hour of New York in which it was made.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from zoneinfo import ZoneInfo

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from web import node_tools  # noqa: E402

from geoveil.arrays import FloatArray, IntArray  # noqa: E402
from geoveil.demo import LocalCollector  # noqa: E402
from geoveil.document.wire import MechanismDocument, report_texts  # noqa: E402
from geoveil.papers.data import DataFolder  # noqa: E402
from geoveil.randomness import seeded  # noqa: E402

FOLDER = ROOT / "docs" / "images" / "pages"
FILE = "foursquare-nyc.csv.gz"
ZONE = "America/New_York"
BOX = (40.70, -74.03, 40.82, -73.91)
SETTINGS = {
    "name": "New York by the hour", "id": "hours", "box": BOX, "cell_km": 1.0,
    "epsilon_per_km": 1.0, "camouflage": 0.25, "slots": "hour", "zone": ZONE, "minimum_reports": 200,
}  # fmt: skip
TOGETHER = 1000


def check_ins(path: Path) -> tuple[FloatArray, FloatArray, IntArray]:
    """Where and in which local hour people were."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    zone, (south, west, north, east) = ZoneInfo(ZONE), BOX
    found = [
        (lat, lng, datetime.fromisoformat(row["time"]).astimezone(zone).hour)
        for row in rows
        if south <= (lat := float(row["lat"])) <= north
        and west <= (lng := float(row["lon"])) <= east
    ]
    table = np.array(found)
    return table[:, 0], table[:, 1], table[:, 2].astype(np.int64)


class Operator:
    """Calls the collector with its token."""

    def __init__(self, collector: LocalCollector) -> None:
        self.url, self.token = collector.url, collector.token

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        asked = Request(self.url + path, body, headers, method=method)
        with urlopen(asked, timeout=120) as answer:
            return json.loads(answer.read() or b"null")

    def estimated(self, campaign: str) -> None:
        """Wait for the estimate of the first round."""
        for _ in range(600):
            try:
                self.call("GET", f"/api/campaigns/{campaign}/rounds/1/estimate?slot=all")
                return
            except HTTPError:
                time.sleep(0.5)
        raise SystemExit("no pictures: the estimate did not come")


def reported(operator: Operator, lat: FloatArray, lng: FloatArray, hour: IntArray) -> None:
    """Everybody reports once, in their hour."""
    document = MechanismDocument.read(
        json.dumps(operator.call("GET", "/api/campaigns/hours/mechanism")).encode()
    )
    drawn = document.mechanism.sample_at(lat=lat, lng=lng, randomness=seeded(7))
    texts = [
        b'%s,"slot":%d}' % (text[:-1], slot)
        for text, slot in zip(report_texts(document, drawn), hour.tolist(), strict=True)
    ]
    for start in range(0, len(texts), TOGETHER):
        body = b'{"reports":[%s]}' % b",".join(texts[start : start + TOGETHER])
        operator.call("POST", "/api/campaigns/hours/reports", body)


def main() -> int:
    """Collect the check-ins, then show the published map to a browser."""
    path = DataFolder().path / FILE
    if not path.exists():
        sys.stdout.write(f"no picture by the hour: {FILE} is not there\n")
        return 0
    try:
        node_tools.build_pages()
        node_tools.prepare(node_tools.PAGES)
    except node_tools.Unavailable as reason:
        raise SystemExit(f"no pictures: {reason}") from None
    with LocalCollector() as collector:
        operator = Operator(collector)
        operator.call("POST", "/api/campaigns", json.dumps(SETTINGS).encode())
        reported(operator, *check_ins(path))
        operator.call("POST", "/api/campaigns/hours/rounds", b"")
        operator.estimated("hours")
        operator.call("PATCH", "/api/campaigns/hours", b'{"published": true}')
        folder, _ = node_tools.node_folder()
        command = [
            str(folder / "node"),
            "hour_pictures.mjs",
            f"{collector.url}/m/hours",
            str(FOLDER),
        ]
        return subprocess.run(command, cwd=node_tools.PAGES, env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
