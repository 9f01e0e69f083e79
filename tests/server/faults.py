"""A campaign of faults against a running service: everything at once that a collector may have to bear.

Devices and uploads go on throughout. After every fault both campaigns must take reports again within a
minute; in the end every report that was acknowledged is counted once, and nothing else is.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from databases import cluster
from geoveil.client import Device, Refused, Unacknowledged
from partition import Proxy
from server.live import HANG_S, Live, new_id
from server.uploads import Ledger, post, send_again, stored

WITHIN_S = 60.0
YEARS_S = 10 * 31_557_600
CAMPAIGNS = ("lyon", "oslo")
_HERE = {"lat": 45.75, "lng": 4.84}
_SLOW = b"POST /api/campaigns/lyon/reports HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n{"


class Faults:
    """One service, what is sent to it, and what goes wrong."""

    def __init__(self, kind: str, folder: Path, seed: int = 1) -> None:
        self.kind, self.folder = kind, folder
        self.offset = folder / "offset"
        self.ledgers = {name: Ledger() for name in CAMPAIGNS}
        self.random = random.Random(seed)
        self.longest_s: Counter[str] = Counter()
        """Fault → how long until everybody could report again, at most."""
        self.happened: Counter[str] = Counter()
        self.devices: dict[str, Counter[int]] = {name: Counter() for name in CAMPAIGNS}
        """Campaign → the cells that devices reported."""
        self._over = threading.Event()
        self._number = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Faults]:
        with contextlib.ExitStack() as stack:
            address = self._database(stack)
            self.server = Live(self.folder, address, tick_s=0.2)
            self.server.program = [str(Path(__file__).with_name("skewed.py")), str(self.offset)]
            stack.enter_context(self.server)
            for name in CAMPAIGNS:
                self.server.campaign(
                    id=name, round_size=400, minimum_reports=50, minimum_round_hours=0
                )
            yield self

    def _database(self, stack: contextlib.ExitStack) -> str:
        self.disk: Path | None = None
        self.proxy: Proxy | None = None
        if self.kind == "postgres":
            self.proxy = stack.enter_context(Proxy(cluster().database()))
            return self.proxy.address
        small = self.folder / "small"
        small.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(small)]
        if shutil.which("mount") and not subprocess.run(mount, check=False).returncode:
            stack.callback(subprocess.run, ["umount", "-l", str(small)], check=False)
            self.disk = small
        return f"sqlite:///{small / 'geoveil.db'}"

    # -- what goes wrong -------------------------------------------------------------------------

    def kinds(self) -> dict[str, Callable[[], None]]:
        """The faults that this database can have."""
        faults: dict[str, Callable[[], None]] = {
            "killed": lambda: self._restart(signal.SIGKILL),
            "stopped": lambda: self._restart(signal.SIGTERM),
            "stood still": self._stand_still,
            "clock wrong for 10 s": lambda: self._clock(10),
            "clock wrong for 45 s": lambda: self._clock(45),
            "slow clients": self._slow_clients,
        }
        if self.proxy is not None:
            faults |= {"swallowed": self._swallow, "cut": self.proxy.cut}
        if self.disk is not None:
            faults["disk full"] = self._fill
        return faults

    def _restart(self, number: int) -> None:
        self.server.stop(number)
        self.server.start()

    def _stand_still(self) -> None:
        assert self.server.process is not None
        os.kill(self.server.process.pid, signal.SIGSTOP)
        time.sleep(4)
        os.kill(self.server.process.pid, signal.SIGCONT)

    def _clock(self, seconds: float) -> None:
        self.offset.write_text(str(self.random.choice((YEARS_S, -YEARS_S))))
        time.sleep(seconds)
        self.offset.write_text("0")

    def _slow_clients(self) -> None:
        held = []
        for _ in range(300):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", self.server.port), 5))
                held[-1].sendall(self.random.choice((_SLOW + b" " * 50_000, b"GET ", b"")))
        time.sleep(3)
        for each in held:
            each.close()

    def _swallow(self) -> None:
        assert self.proxy is not None
        self.proxy.hold()
        time.sleep(8)
        self.proxy.go_on()

    def _fill(self) -> None:
        assert self.disk is not None
        ballast = self.disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        time.sleep(5)
        ballast.unlink()

    # -- the run ---------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Uploads throughout, and one fault after another."""
        senders = [threading.Thread(target=self._send, args=(name,)) for name in CAMPAIGNS * 2]
        for each in senders:
            each.start()
        try:
            until_s = time.monotonic() + seconds
            kinds = list(self.kinds().items())
            while time.monotonic() < until_s:
                self.random.shuffle(kinds)
                for name, fault in kinds:
                    fault()
                    self.happened[name] += 1
                    took_s = self._reports_again()
                    self.longest_s[name] = max(self.longest_s[name], took_s)
                    if time.monotonic() >= until_s:
                        break
        finally:
            self._over.set()
            for each in senders:
                each.join(HANG_S)
        for name in CAMPAIGNS:
            self._settle(name)

    def _reports_again(self) -> float:
        """How long until a new device can report in every campaign."""
        began_s = time.monotonic()
        for name in CAMPAIGNS:
            self._number += 1
            device = Device(
                f"{self.server.url}/c/{name}",
                max_epsilon_per_km=1.0,
                budget_per_km=10.0,
                ledger=self.folder / f"device-{self._number}.db",
            )
            while True:
                try:
                    self.devices[name][device.report(**_HERE).cell] += 1
                    break
                except (Refused, Unacknowledged, OSError):
                    if time.monotonic() - began_s > 3 * WITHIN_S:
                        raise
                    time.sleep(0.2)
        return time.monotonic() - began_s

    def _send(self, campaign: str) -> None:
        ledger = self.ledgers[campaign]
        while not self._over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, httpx.HTTPError, KeyError):
                document = self._mechanism(campaign)
                made = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
                with contextlib.closing(made) as connection:
                    for _ in range(20):
                        reports = [(new_id(), self.random.randrange(20)) for _ in range(5)]
                        ledger.note(reports, None)
                        ledger.note(reports, post(connection, campaign, document, reports))
            time.sleep(0.1)

    def _mechanism(self, campaign: str) -> str:
        with self.server.client() as client:
            return str(client.get(f"/api/campaigns/{campaign}/mechanism").json()["id"])

    def _settle(self, campaign: str) -> None:
        """Send what nobody knows of again, and see what the service made of it all."""
        send_again(self.server.port, campaign, self._mechanism(campaign), self.ledgers[campaign])

    def difference(self) -> Counter[int]:
        """By cell: reports counted that nobody was told of, or told of and not counted."""
        self.server.stop()
        differs: Counter[int] = Counter()
        for name in CAMPAIGNS:
            found = stored(self.server.database, name)
            found.subtract(Counter(self.ledgers[name].counted.values()))
            found.subtract(self.devices[name])
            differs.update({cell: abs(count) for cell, count in found.items() if count})
        return differs

    def acknowledged(self) -> int:
        """How many reports were acknowledged."""
        return sum(len(ledger.counted) for ledger in self.ledgers.values())
