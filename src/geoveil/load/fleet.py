"""Simulated devices: the checks and the exact sampler of real ones, without a ledger each."""

from __future__ import annotations

from collections.abc import Iterator
from time import time

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.client.address import Address
from geoveil.client.collector import Collector
from geoveil.client.document import Verified
from geoveil.client.patience import Patience
from geoveil.client.transport import Network
from geoveil.randomness import SYSTEM
from geoveil.space.grid import Grid

_MADE_AT_ONCE = 4096
_HOT_SPOTS = 6


class Fleet:
    """Devices of people who do not exist: each reports once, from a place of its own.

    The current mechanism is fetched, verified and checked by the code of :class:`geoveil.client.Device`; the
    reports are drawn from the same whole numbers. Only the ledger is left out: nobody is simulated twice.
    """

    def __init__(self, address: Address, *, max_epsilon_per_km: float, seed: int = 0) -> None:
        self._address = address
        self._limit = max_epsilon_per_km
        self._collector = Collector(address, Network(address), Patience())
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._crowd: FloatArray | None = None
        self.verified = self.refresh()

    def refresh(self) -> Verified:
        """Fetch the mechanism again; refused where a device would refuse it."""
        found = self._collector.mechanism()
        found.check(self._address, max_epsilon_per_km=self._limit, now_s=time())
        if self._crowd is None:
            self._crowd = crowd_on(found.document.mechanism.space, self._generator)
        self.verified = found
        return found

    def reports(self) -> Iterator[bytes]:
        """Reports as JSON texts, without end, always under the mechanism fetched last."""
        while True:
            made_with = self.verified
            for text in self._made(made_with):
                yield text
                if self.verified is not made_with:
                    break

    def _made(self, verified: Verified) -> list[bytes]:
        cells = verified.document.mechanism.space.size
        places = self._generator.choice(cells, size=_MADE_AT_ONCE, p=self._crowd)
        return report_texts(verified, verified.document.mechanism.sample(places))


def report_texts(verified: Verified, reported: IntArray) -> list[bytes]:
    """Drawn cells as the JSON texts of reports, each with a random id."""
    head = b'{"mechanism":"%s","id":"' % verified.id.encode()
    ids = SYSTEM.bytes(16 * reported.size).hex().encode()
    return [
        b'%s%s","cell":%d}' % (head, ids[32 * i : 32 * i + 32], cell)
        for i, cell in enumerate(reported.tolist())
    ]


def crowd_on(grid: Grid, generator: np.random.Generator) -> FloatArray:
    """A made-up distribution: a few hot spots over a thin spread."""
    centres = grid.centres
    low, high = centres.min(axis=0), centres.max(axis=0)
    density = np.full(grid.size, 0.02)
    for _ in range(_HOT_SPOTS):
        middle = generator.uniform(low, high)
        width = generator.uniform(1.0, 3.0) * grid.cell_km
        density += np.exp(-np.square(centres - middle).sum(axis=1) / (2 * width**2))
    shares: FloatArray = density / density.sum()
    return shares
