"""Takes the pictures of the pages in the documentation anew, from a service of its own: ``make pictures``."""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from web import node_tools  # noqa: E402

FOLDER = ROOT / "docs" / "images" / "pages"
TOKEN = "a-token-for-pictures-only"
CAMPAIGN = {
    "name": "Paris in spring",
    "id": "paris",
    "box": [48.8286, 2.2855, 48.8798, 2.3909],
    "cell_km": 0.5,
    "epsilon_per_km": 1.0,
    "camouflage": 0.5,
    "minimum_reports": 200,
}
REPORTS = 1000


class Service:
    """``geoveil serve`` over a database that is gone afterwards."""

    def __init__(self, folder: Path, port: int) -> None:
        command = [sys.executable, "-m", "geoveil", "serve", "--json", f"--port={port}"]
        database = {"GEOVEIL_DATABASE": f"sqlite:///{folder / 'pictures.db'}"}
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **database, "GEOVEIL_OPERATOR_TOKEN": TOKEN},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        lines: list[str] = []
        while self.process.stdout and not (lines and lines[-1].rstrip() == "}"):
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("the service must start; see what geoveil serve says")
            lines.append(line)
        port = int(json.loads("".join(lines))["url"].rpartition(":")[2])
        self.url = f"http://localhost:{port}"

    def call(self, path: str, body: Any = None) -> Any:
        """The answer to a request of the operator's."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        asked = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    def stop(self) -> None:
        """End it, and wait for the end."""
        self.process.terminate()
        self.process.wait(30)


def free(port: int) -> int:
    """The port where nobody listens on it, else 0 for any."""
    with socket.socket() as probe:
        return 0 if probe.connect_ex(("127.0.0.1", port)) == 0 else port


def main(wanted: str = "") -> None:
    """Start a service with a campaign, and take every picture whose name holds ``wanted``."""
    reason = node_tools.why_no_browser()
    if reason:
        raise SystemExit(f"no pictures: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder), free(8000))
        try:
            service.call("/api/campaigns", CAMPAIGN)
            mechanism = service.call("/api/campaigns/paris/mechanism")
            cells = len(base64.b64decode(mechanism["weights"])) // 4
            reports = [
                {"mechanism": mechanism["id"], "id": secrets.token_hex(16), "cell": each % cells}
                for each in range(REPORTS)
            ]
            service.call("/api/campaigns/paris/reports", {"reports": reports})
            given = ("pictures.mjs", service.url, str(FOLDER), wanted)
            done = node_tools.run_node(node_tools.PAGES, *given, GEOVEIL_OPERATOR=TOKEN)
        finally:
            service.stop()
    sys.stdout.write(done.stdout)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
