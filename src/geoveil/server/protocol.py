"""HTTP on a connection: uvicorn's protocol, patient only so long, with problems in the one shape.

uvicorn waits for ever for the head of a request, takes heads of any length, and answers what is no HTTP
with plain text. Nothing here looks at the content of a request.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from geoveil.server.body import ARRIVED
from geoveil.server.problem import Problem

_HEAD_BYTES = 65_536


class Protocol(HttpToolsProtocol):
    """One connection. ``head_timeout_s`` is set on a subclass by :func:`protocol_with`."""

    head_timeout_s = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since_s: float | None = self.loop.time()
        self._head_bytes = 0
        self._watch = self.loop.call_later(self.head_timeout_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_since_s is None and self.cycle.response_complete:
            self._head_since_s = self.loop.time()
            self._head_bytes = 0
        if self._head_since_s is not None:
            if self._head_bytes > _HEAD_BYTES:
                self.send_400_response("the head of the request is too long")
                return
            self._head_bytes += len(data)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._head_since_s = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        cast(dict[str, Any], self.scope)[ARRIVED] = True

    def _look(self) -> None:
        """Hang up on a head that is overdue; one timer for each connection, not for each request."""
        if self.transport.is_closing():
            return
        since_s, now_s = self._head_since_s, self.loop.time()
        if since_s is not None and now_s - since_s >= self.head_timeout_s:
            self.transport.close()
            return
        wait_s = self.head_timeout_s if since_s is None else self.head_timeout_s - (now_s - since_s)
        self._watch = self.loop.call_later(wait_s, self._look)

    def send_400_response(self, msg: str) -> None:
        problem = Problem("malformed-body", "the request is not HTTP as it must be")
        response = problem.response()
        head = [b"HTTP/1.1 400 Bad Request", b"connection: close"]
        head += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join([*head, b"", bytes(response.body)]))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Other protocols are not spoken; the request is answered as if nobody had asked."""


def protocol_with(head_timeout_s: float) -> type[Any]:
    """The protocol with its patience."""
    return type("PatientProtocol", (Protocol,), {"head_timeout_s": head_timeout_s})
