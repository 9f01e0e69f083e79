"""One kept connection: a request goes out, its answer comes back, nothing else happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from geoveil.errors import GeoveilError

Done = Callable[[int, bytes], None]
"""Called with the status and the body; status 0 where the connection was lost before an answer."""

_HEAD_END = b"\r\n\r\n"
_MOST_HEAD = 1 << 16


class LoadFailed(GeoveilError):
    """The collector could not be reached, or did not speak HTTP."""


class Connection(asyncio.Protocol):
    """HTTP/1.1 with ``Content-Length`` answers, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._done: Done | None = None

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, done: Done) -> None:
        """Send, and call ``done`` once."""
        assert self._transport is not None
        self._done = done
        self._transport.write(request)

    def close(self) -> None:
        """Let go."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._finish(0, b"")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            if len(self._buffer) > _MOST_HEAD:
                self.close()
            return
        head = bytes(self._buffer[:end]).lower()
        body_at = end + len(_HEAD_END)
        length = _length(head)
        if length is None:
            self.close()
        elif len(self._buffer) >= body_at + length:
            body = bytes(self._buffer[body_at : body_at + length])
            self._buffer.clear()
            if b"\r\nconnection: close" in head:
                self.close()
            self._finish(int(head[9:12]), body)

    def _finish(self, status: int, body: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, body)


def _length(head: bytes) -> int | None:
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        return None
    value = head[at + 17 :].split(b"\r\n", 1)[0].strip()
    return int(value) if value.isdigit() else None


def post(host: str, path: str, body: bytes) -> bytes:
    """The bytes of a POST of JSON: the same headers as a device sends."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: geoveil\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
