"""Connections: who may have one, for how long, and HTTP as it must be on each of them.

Everything here happens before a request reaches a route: places are bounded in all and by network, heads
and readers that are too slow are cut, and what is not HTTP/1 gets one and the same answer.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from geoveil.server.limits import Networks, Shares
from geoveil.server.problem import ARRIVED, Problem

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Scope

_HEAD_BYTES = 65_536
"""Limit on all but the body of a request: its head, what stands between its chunks and after them."""
_PIECE_BYTES = 512
"""So much is parsed at a time: as many requests as this holds may wait for the answer to an earlier one."""
_FRAMING_BYTES = 8
"""How many such bytes may come in addition with each byte of a body: chunks may be short."""
_SLOWEST_BYTES_PER_S = 1_024
"""A reader that is slower than this while bytes wait for it is disconnected."""
LARGE_BYTES = 65_536
"""From here on an answer may have to wait in memory for its reader."""
MOST_UNREAD_BYTES, MOST_UNREAD_BYTES_A_NETWORK = 64 << 20, 16 << 20
"""Limit on answers that are sent whole; as much again may be files that are sent piece by piece."""
_VERSIONS = ("1.0", "1.1")
_OF_UPGRADE = (b"upgrade", b"connection", b"http2-settings")


class Places:
    """The connections that one process has, and those it would rather do without.

    Where all places are taken, the connection that has waited longest without a request gives way to
    a new one; where all have one, that whose request has been longest on its way, and where all have come,
    the oldest whose answer waits for its reader or that has asked on before it: whoever only holds places
    loses them first.
    """

    def __init__(
        self, most: int, most_a_network: int, networks: Networks, refused: Callable[[str], None]
    ) -> None:
        self._most = most
        self._shares = Shares(sys.maxsize, most_a_network)
        self._networks = networks
        self._waiting: OrderedDict[Protocol, None] = OrderedDict()
        self._arriving: OrderedDict[Protocol, None] = OrderedDict()
        self._held: dict[Protocol, bytes | None] = {}
        self.refused = refused

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, connection: Protocol, address: str) -> bool:
        """Take a place; ``False`` where the network has as many as it may, or nobody gives way."""
        network = self._networks.of_peer(address)
        if not self._shares.take(network):
            self.refused("connections of one network")
            return False
        if len(self._held) >= self._most:
            self.refused("connections")
            slow = (it for it in self._held if it.pipeline or it.transport.get_write_buffer_size())
            oldest = next(iter(self._waiting or self._arriving or slow), None)
            if oldest is None:
                self._shares.give_back(network)
                return False
            self.leave(oldest)
            oldest.transport.abort()
        self._held[connection] = network
        self._waiting[connection] = None
        return True

    def waits(self, connection: Protocol, what: Literal["request", "body", "answer"]) -> None:
        """What a connection waits for now."""
        self._waiting.pop(connection, None)
        self._arriving.pop(connection, None)
        if what != "answer" and connection in self._held:
            (self._waiting if what == "request" else self._arriving)[connection] = None

    def check_room(self, scope: Scope, size: int) -> None:
        """Raise ``overloaded`` where an answer is large and too much waits for readers already."""
        if size < LARGE_BYTES:
            return
        network = self._networks.of(scope)
        unread = mine = size
        for connection, owner in self._held.items():
            waiting = connection.transport.get_write_buffer_size()
            unread += waiting
            mine += waiting if owner == network else 0
        if unread <= MOST_UNREAD_BYTES and (network is None or mine <= MOST_UNREAD_BYTES_A_NETWORK):
            return
        self.refused("large answers")
        raise Problem("overloaded", "too many answers are read slowly")

    def leave(self, connection: Protocol) -> None:
        """Give the place back."""
        self.waits(connection, "answer")
        if connection in self._held:
            self._shares.give_back(self._held.pop(connection))


class Protocol(HttpToolsProtocol):
    """One connection. ``head_timeout_s`` and ``places`` are set on a subclass."""

    head_timeout_s = 10.0
    places: Places

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since_s: float | None = self.loop.time()
        self._bare_bytes = 0
        self._in_head = True
        self._unread_bytes = 0
        self._over = False
        self._ahead = bytearray()
        self._answering: RequestResponseCycle | None = None
        self._watch = self.loop.call_later(self.head_timeout_s, self._look)
        if not self.places.enter(self, self.client[0] if self.client else ""):
            self._refuse(Problem("overloaded", "too many connections; try again later").response())

    def connection_lost(self, exc: Exception | None) -> None:
        self.places.leave(self)
        self._watch.cancel()
        if self._answering is not None:  # where more requests wait behind it, nobody else tells it
            self._answering.disconnected = not self._answering.response_complete
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        if self._head_since_s is None and self.cycle.response_complete:
            self._head_since_s = self.loop.time()
        self._unset_keepalive_if_required()
        self._ahead += data
        self._read_on()
        if len(self._ahead) > _HEAD_BYTES:
            self.send_400_response("too much before the answer to an earlier request")

    def _read_on(self) -> None:
        """Read what has come, but no further than to a request that waits for an earlier one's answer."""
        while self._ahead and not self.pipeline and not self._over:
            piece = bytes(self._ahead[:_PIECE_BYTES])
            del self._ahead[:_PIECE_BYTES]
            if self._bare_bytes > _HEAD_BYTES:
                self.send_400_response("the head of the request is too long")
                return
            # given back as far as it is a body, or the end of a head
            self._bare_bytes += len(piece)
            try:
                self._feed(piece)
            except httptools.HttpParserError:
                self.send_400_response("the request is not HTTP as it must be")

    def _feed(self, data: bytes) -> None:
        """Parse what has come; a request that wants another protocol is read as if it had not asked."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            method = self.parser.get_method()
            if method == b"CONNECT":
                raise httptools.HttpParserError("no tunnels") from None
            lines = [b"%b: %b" % pair for pair in self.headers if pair[0] not in _OF_UPGRADE]
            if any(name == b"connection" and b"close" in value for name, value in self.headers):
                lines.append(b"connection: close")
            line = b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self._feed(b"\r\n".join([line, *lines, b"", b""]))
            self._feed(data[upgrade.args[0] :])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what follows a body is no header, and nobody reads it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_head = False
        self._bare_bytes = 0
        hosts = sum(name == b"host" for name, _ in self.headers)
        version = self.parser.get_http_version()
        if version not in _VERSIONS or hosts > 1 or (version == "1.1" and not hosts):
            raise httptools.HttpParserError("HTTP/1 with one host, please")
        self._head_since_s = None
        self.places.waits(self, "body")
        super().on_headers_complete()
        if not self.pipeline:  # else it waits for the answer to an earlier one
            self._answering = self.cycle

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = max(0, self._bare_bytes - (1 + _FRAMING_BYTES) * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._bare_bytes = 0
        self.places.waits(self, "answer")
        super().on_message_complete()
        cast(dict[str, Any], self.scope)[ARRIVED] = True

    def on_response_complete(self) -> None:
        following = self.pipeline[-1][0] if self.pipeline else self._answering
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._answering = following
        self._read_on()
        if self._answering is None or self._answering.response_complete:
            self.places.waits(self, "request")

    def _look(self) -> None:
        """Cut a head that is overdue and a reader that reads nothing; one timer for each connection."""
        since_s, now_s = self._head_since_s, self.loop.time()
        unread_bytes = self._waiting_bytes()
        least_bytes = max(0, self._unread_bytes - _SLOWEST_BYTES_PER_S * self.head_timeout_s)
        if self._unread_bytes and unread_bytes > least_bytes:
            self.places.refused("slow readers")
            self.transport.abort()
            return
        self._unread_bytes = unread_bytes
        wait_s = self.head_timeout_s
        if since_s is not None and not self.transport.is_closing():
            if now_s - since_s >= self.head_timeout_s:
                self.places.refused("slow heads")
                self.transport.close()
            else:
                wait_s -= now_s - since_s
        self._watch = self.loop.call_later(wait_s, self._look)

    def _waiting_bytes(self) -> int:
        """What waits for the reader, here and in the system, which takes more only now and then."""
        waiting: int = self.transport.get_write_buffer_size()
        connection: socket.socket | None = self.transport.get_extra_info("socket")
        if not waiting or connection is None:
            return waiting
        try:
            import fcntl
            import termios

            queued = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
        except (ImportError, OSError):  # the system does not say
            return waiting
        return waiting + int.from_bytes(queued, sys.byteorder)

    def resume_writing(self) -> None:
        """A reader has taken most of what waited, and more may follow: there may soon be as much again."""
        self._unread_bytes = 0
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self.places.refused("malformed requests")
        cycle = self._answering
        unanswered = cycle is not None and not cycle.response_complete
        if cycle is not None and unanswered and (cycle.response_started or not cycle.more_body):
            self._over = True
            self.transport.abort()  # nothing may stand in or for the answer to another request
            return
        self._refuse(Problem("malformed-body", "the request is not HTTP as it must be").response())

    def _refuse(self, response: Response) -> None:
        """An answer before there is a request, and the end of the connection."""
        self._over = True
        reason = {400: b"400 Bad Request", 503: b"503 Service Unavailable"}[response.status_code]
        head = [b"HTTP/1.1 " + reason, b"connection: close"]
        head += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join([*head, b"", bytes(response.body)]))
        self.transport.close()
