"""The people of the story: some with a whole device each, the others with its checks and its sampler."""

from __future__ import annotations

import json
from time import time

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.client import Device, Patience
from geoveil.client.address import Address
from geoveil.client.collector import Collector
from geoveil.client.document import Verified
from geoveil.client.transport import Network, Unreachable
from geoveil.demo.collector import CollectorFailed, LocalCollector
from geoveil.load.fleet import report_texts
from geoveil.randomness import Randomness

DEVICES_A_ROUND = 20
_TOGETHER = 1000
_ANSWER_BYTES = 1 << 20
_REQUEST_S = 600.0
"""For one request: the machine may be slow and the collector runs on it too."""
_BUSY = frozenset({429, 503})


class Participants:
    """Everybody who takes part in one campaign."""

    def __init__(
        self,
        collector: LocalCollector,
        link: str,
        max_epsilon_per_km: float,
        randomness: Randomness,
    ) -> None:
        self._folder = collector.folder
        self._link = link
        self._limit = max_epsilon_per_km
        self._randomness = randomness
        self._address = Address.of(link)
        self._network = Network(self._address, timeout_s=_REQUEST_S)
        self._patience = Patience(attempts=12, total_s=2 * _REQUEST_S, sleep=collector.pause)
        self._collector = Collector(self._address, self._network, self._patience)
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
        cells = np.asarray(grid.locate(lat=lat[alone:], lng=lng[alone:], outside="clamp"))
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
            transport=self._network,
            patience=self._patience,
        )
        return device.report(lat=lat, lng=lng, outside="clamp").cell

    def _send(self, texts: list[bytes]) -> None:
        """Hand reports over together, again while the collector is busy: an id is counted once."""
        body = b'{"reports":[%s]}' % b",".join(texts)
        counted: list[int] = []

        def attempt() -> float | None:
            try:
                answer = self._network.post(self._address.reports_path, body, limit=_ANSWER_BYTES)
            except Unreachable:
                return 0.0
            if answer.status in _BUSY:
                return answer.retry_after_s
            results = json.loads(answer.body).get("results", []) if answer.status == 200 else []
            counted.append(sum(result["status"] == "counted" for result in results))
            return None

        if not self._patience.until(attempt) or counted != [len(texts)]:
            raise CollectorFailed("the collector must count every report of the story")
