"""A real collector for the story: ``geoveil serve`` on this machine, on SQLite, while it is needed."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.errors import GeoveilError
from geoveil.space.grid import Grid

_STOP_S = 60.0
"""How long a collector that was told to stop may take before it is killed."""
_POLL_S = 0.05
_ATTEMPTS = 3
"""So many failed estimates of one round end the wait for it; a slow one never does."""
_DIRECTLY = build_opener(ProxyHandler({}))  # a proxy could not reach this machine


class CollectorFailed(GeoveilError):
    """The collector did not start, or did not do what it was asked."""


class LocalCollector:
    """A server process over a fresh database in a temporary folder, and its operator's hand."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="geoveil-demo-")
        self._token = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    @property
    def folder(self) -> Path:
        """Where the database is, and the ledgers of the simulated devices."""
        return Path(self._folder.name)

    def __enter__(self) -> LocalCollector:
        known = {name: text for name, text in os.environ.items() if not name.startswith("GEOVEIL_")}
        database = f"sqlite:///{self.folder / 'collector.db'}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "geoveil", "serve", "--json", "--port=0", "--no-limit-loopback",
             "--tick-s=0.1", "--log-level=error"],
            env={**known, "GEOVEIL_DATABASE": database, "GEOVEIL_OPERATOR_TOKEN": self._token},
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.url = self._announced()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        self._folder.cleanup()

    def _announced(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        text = ""
        for line in self._process.stdout:
            text += line
            if line.rstrip() == "}":
                return str(json.loads(text)["url"])
        self._process.wait()
        raise CollectorFailed("the collector did not start; try geoveil serve to see why")

    # -- what an operator does -----------------------------------------------------------------

    def campaign(self, grid: Grid, *, epsilon_per_km: float, camouflage: float, rounds: int) -> str:
        """Create a campaign that closes its rounds by hand; its link."""
        assert grid.box is not None
        settings = {
            "name": "Demo", "box": list(grid.box), "cell_km": grid.cell_km,
            "epsilon_per_km": epsilon_per_km, "camouflage": camouflage, "rounds": rounds,
            "minimum_reports": 10,
        }  # fmt: skip
        return str(self.call("/api/campaigns", settings)["link"])

    def close_round(self, campaign: str, number: int) -> FloatArray:
        """Close the open round and wait for its estimate, however long: the share of every cell."""
        self.call(f"/api/campaigns/{campaign}/rounds", {})
        path = f"/api/campaigns/{campaign}/rounds/{number}/estimate"
        while True:
            try:
                return np.array(self.call(path)["distribution"])
            except HTTPError as answer:
                if answer.code != 404:
                    raise
            if self._failed_estimates() >= _ATTEMPTS:
                raise CollectorFailed(f"the estimate of round {number} failed {_ATTEMPTS} times")
            self.pause(_POLL_S)

    def _failed_estimates(self) -> int:
        """How often the collector could not make an estimate, by its own count."""
        found = re.search(
            r'^geoveil_estimates_total{.*"failed"} (\d+)', self._text("/metrics"), re.M
        )
        return int(found[1]) if found else 0

    def call(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request as the operator, waited for while the collector lives; the JSON that comes back."""
        values: dict[str, Any] = json.loads(self._text(path, body))
        return values

    def _text(self, path: str, body: dict[str, Any] | None = None) -> str:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        with _DIRECTLY.open(Request(self.url + path, content, headers)) as answer:
            return str(answer.read(), "utf-8")

    def pause(self, seconds: float) -> None:
        """Wait; a slow machine is waited for, a collector that has ended is not."""
        if self._process is not None and self._process.poll() is not None:
            raise CollectorFailed("the collector ended; try geoveil serve to see why")
        time.sleep(seconds)
