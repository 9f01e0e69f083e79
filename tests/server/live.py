"""Real servers for tests: ``geoveil serve`` as a process of its own on a free loopback port."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec

from geoveil.server.campaigns import Campaigns
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.store import open_store

TOKEN = "a-token-for-tests-only"
HANG_S = 180
"""Nothing here may take so long; figures are printed, not asserted."""
LYON: dict[str, Any] = {
    "name": "Lyon",
    "id": "lyon",
    "box": [45.72, 4.80, 45.78, 4.88],
    "cell_km": 1.0,
    "epsilon_per_km": 1.0,
    "camouflage": 0.5,
    "minimum_reports": 50,
}


def new_id() -> str:
    """The id of a report."""
    return secrets.token_hex(16)


def cells_of(mechanism: dict[str, Any]) -> int:
    """How many different reports a document as JSON has."""
    return len(base64.b64decode(mechanism["weights"])) // 4


class Live:
    """A server that can be started, stopped and killed, again and again, over one database."""

    def __init__(self, folder: Path, database: str | None = None, **settings: Any) -> None:
        self.folder = folder
        self.database = database or f"sqlite:///{folder / 'geoveil.db'}"
        self.settings = {"requests_per_minute": 0, "reports_per_minute": 0, **settings}
        self.log = folder / "server.log"
        self.port = 0
        self.token = TOKEN
        self.program = ["-m", "geoveil"]
        self.printed = ""
        self.process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Live:
        """Start and wait until it listens; the port stays the same over restarts."""
        flags = [
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
            for name, value in self.settings.items()
        ]
        command = [
            sys.executable,
            *self.program,
            "serve",
            "--json",
            f"--port={self.port}",
            *flags,
        ]
        environment = {name: text for name, text in os.environ.items() if "GEOVEIL_" not in name}
        environment |= {"GEOVEIL_DATABASE": self.database, "GEOVEIL_OPERATOR_TOKEN": self.token}
        with self.log.open("a") as errors:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.folder,
            )
        self.printed = self._announcement()
        self.port = int(json.loads(self.printed)["url"].rpartition(":")[2])
        return self

    def _announcement(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.rstrip() == "}":
                return "".join(lines)
        self.process.stdout.close()
        self.process.wait(HANG_S)
        self.process = None
        raise AssertionError(f"the server did not start:\n{self.log.read_text()}")

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Send a signal and wait for the end; how long that took."""
        assert self.process is not None
        began = time.perf_counter()
        self.process.send_signal(number)
        self.process.wait(HANG_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.code, self.process = self.process.returncode, None
        return time.perf_counter() - began

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def __enter__(self) -> Live:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()

    def client(self, **options: Any) -> httpx.Client:
        """One that reads no certificates, which takes longer than most answers: there is no TLS here."""
        options |= {"trust_env": False, "verify": False}
        return httpx.Client(base_url=self.url, timeout=HANG_S, **options)

    def operator(self) -> httpx.Client:
        return self.client(headers={"Authorization": f"Bearer {self.token}"})

    def campaign(self, **changes: Any) -> str:
        """Make a campaign; its id."""
        with self.operator() as operator:
            answer = operator.post("/api/campaigns", json=LYON | changes)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def kept_campaign(self, **changes: Any) -> str:
        """Put a campaign into the store as another process of the service would; its id.

        The same one is designed once in this process, and in the server it would take a second each time.
        """
        with closing(open_store(self.database)) as store:
            return Campaigns(store).create(msgspec.convert(LYON | changes, CampaignSettings)).id

    def mechanism(self, campaign: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.get(f"/api/campaigns/{campaign}/mechanism").json())
