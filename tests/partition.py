"""A network that fails: a proxy in front of PostgreSQL that stops, swallows and cuts."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Proxy:
    """Forwards connections to a PostgreSQL on a socket of this machine, as long as it should."""

    def __init__(self, address: str) -> None:
        asked = parse_qs(urlsplit(address).query)
        self._behind = f"{asked['host'][0]}/.s.PGSQL.5432"
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        options = (
            f"&options={asked['options'][0].replace('=', '%3D')}" if "options" in asked else ""
        )
        self.address = f"postgresql://geoveil@127.0.0.1:{port}/postgres?sslmode=disable{options}"
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Everything passes, what was held included."""
        self._goes_on.set()

    def cut(self) -> None:
        """Every connection ends now; new ones are taken."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def close(self) -> None:
        self._listener.close()
        self.go_on()
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self._behind)
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._goes_on.wait()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
