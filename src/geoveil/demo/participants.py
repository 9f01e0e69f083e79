"""The people of the story: some with a whole device each, the others with its checks and its sampler."""

from __future__ import annotations

import json
from pathlib import Path
from time import time

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.client import Device, Patience
from geoveil.client.address import Address
from geoveil.client.collector import Collector
from geoveil.client.document import Verified
from geoveil.client.transport import Network
from geoveil.demo.collector import CollectorFailed
from geoveil.load.fleet import report_texts
from geoveil.randomness import Randomness

DEVICES_A_ROUND = 20
_TOGETHER = 1000
_ANSWER_BYTES = 1 << 20


class Participants:
    """Everybody who takes part in one campaign."""

    def __init__(
        self, folder: Path, link: str, max_epsilon_per_km: float, randomness: Randomness
    ) -> None:
        self._folder = folder
        self._link = link
        self._limit = max_epsilon_per_km
        self._randomness = randomness
        self._address = Address.of(link)
        self._network = Network(self._address)
        self._collector = Collector(self._address, self._network, Patience())
        self.devices = 0

    def mechanism(self) -> Verified:
        """The current document, after the checks of a device."""
        found = self._collector.mechanism()
        found.check(self._address, max_epsilon_per_km=self._limit, now_s=time())
        return found

    def report(self, current: Verified, lat: FloatArray, lng: FloatArray) -> IntArray:
        """Everybody at these places reports once; what they reported."""
        alone = min(DEVICES_A_ROUND, lat.size)
        singly = [self._alone(float(lat[i]), float(lng[i])) for i in range(alone)]
        grid = current.document.mechanism.space
        cells = np.asarray(grid.locate(lat=lat[alone:], lng=lng[alone:]))
        drawn = current.document.mechanism.sample(cells, randomness=self._randomness)
        texts = report_texts(current, drawn)
        for start in range(0, len(texts), _TOGETHER):
            self._send(texts[start : start + _TOGETHER])
        return np.concatenate([np.array(singly, dtype=np.int64), drawn])

    def _alone(self, lat: float, lng: float) -> int:
        self.devices += 1
        device = Device(
            self._link,
            max_epsilon_per_km=self._limit,
            budget_per_km=self._limit,
            ledger=self._folder / f"ledger-{self.devices}.json",
            randomness=self._randomness,
        )
        return device.report(lat=lat, lng=lng, outside="clamp").cell

    def _send(self, texts: list[bytes]) -> None:
        body = b'{"reports":[%s]}' % b",".join(texts)
        answer = self._network.post(self._address.reports_path, body, limit=_ANSWER_BYTES)
        results = json.loads(answer.body).get("results", []) if answer.status == 200 else []
        if sum(result["status"] == "counted" for result in results) != len(texts):
            raise CollectorFailed("the collector must count every report of the story")
