"""Check-ins of New York, each reported once through a service of its own, for the pictures of real cities."""

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
TOGETHER = 1000


def data() -> Path | None:
    """The check-ins; ``None``, and said so, where they are not there."""
    path = DataFolder().path / FILE
    if path.exists():
        return path
    sys.stdout.write(f"left out: {FILE} is not there\n")
    return None


def check_ins(
    path: Path, box: tuple[float, float, float, float]
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Where and in which local hour people were."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    zone, (south, west, north, east) = ZoneInfo(ZONE), box
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

    def estimated(self, campaign: str, number: int) -> None:
        """Wait for the estimate of a round, with its slots where there are any."""
        for _ in range(600):
            try:
                self.call("GET", f"/api/campaigns/{campaign}/rounds/{number}/estimate")
                return
            except HTTPError:
                time.sleep(0.5)
        raise SystemExit("no pictures: the estimate did not come")


def reported(
    operator: Operator, campaign: str, lat: FloatArray, lng: FloatArray, slot: IntArray | None
) -> None:
    """Everybody reports once, in their slot where there are any."""
    path = f"/api/campaigns/{campaign}"
    answer = operator.call("GET", f"{path}/mechanism")
    document = MechanismDocument.read(json.dumps(answer).encode())
    drawn = document.mechanism.sample_at(lat=lat, lng=lng, randomness=seeded(7))
    texts = list(report_texts(document, drawn))
    if slot is not None:
        texts = [
            b'%s,"slot":%d}' % (text[:-1], each) for text, each in zip(texts, slot, strict=True)
        ]
    for start in range(0, len(texts), TOGETHER):
        body = b'{"reports":[%s]}' % b",".join(texts[start : start + TOGETHER])
        operator.call("POST", f"{path}/reports", body)


def ready() -> None:
    """Build the pages, before a service reads them; ends the program, and says why, where that cannot be."""
    reason = node_tools.why_no_browser()
    if reason:
        raise SystemExit(f"no pictures: {reason}")


def shown(program: str, *given: str) -> int:
    """Let a program take its pictures in a browser."""
    folder, _ = node_tools.node_folder()
    command = [str(folder / "node"), program, *given]
    return subprocess.run(command, cwd=node_tools.PAGES, env=os.environ, check=False).returncode
