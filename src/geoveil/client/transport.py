"""Where a collector is, and requests to it, bounded in every way."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from time import time
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from geoveil.client.refusal import Refused
from geoveil.document.campaign_ids import NAMED_PATTERN
from geoveil.errors import InvalidInput

_LINK = re.compile(
    rf"(?P<base>(?:/[\w.~-]+)*?)/(?:c|api/campaigns)/(?P<campaign>{NAMED_PATTERN})/?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Address:
    """A campaign's collector and id.

    >>> address = Address.of("https://collector.example/c/lyon")
    >>> address.mechanism_path, address.name
    ('/api/campaigns/lyon/mechanism', 'https://collector.example/c/lyon')
    """

    secure: bool
    host: str
    port: int
    base: str
    campaign: str

    @classmethod
    def of(cls, url: str, *, insecure: bool = False) -> Address:
        """From ``…/c/ID`` or ``…/api/campaigns/ID``; plain http only to this machine, or ``insecure``."""
        try:
            parts = urlsplit(str(url))
            host, port = parts.hostname, parts.port
            path = _LINK.fullmatch(parts.path)
            extras = parts.username or parts.password or parts.query or parts.fragment
            if parts.scheme not in ("http", "https") or not host or path is None or extras:
                raise ValueError
        except ValueError:
            raise InvalidInput(
                "url must be a campaign's link, such as https://collector.example/c/lyon"
            ) from None
        secure = parts.scheme == "https"
        address = cls(secure, host, port or (443 if secure else 80), path["base"], path["campaign"])
        if not (secure or insecure or address.local):
            raise Refused("insecure")
        return address

    @property
    def name(self) -> str:
        """One spelling for one campaign: what the ledger files it under."""
        return f"{self.origin}{self.base}/c/{self.campaign}"

    @property
    def origin(self) -> str:
        """Scheme, host and, where it is not the usual one, port."""
        scheme, usual = ("https", 443) if self.secure else ("http", 80)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}" + ("" if self.port == usual else f":{self.port}")

    @property
    def local(self) -> bool:
        """Whether the collector runs on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def mechanism_path(self) -> str:
        """Where the current mechanism document is."""
        return f"{self.base}/api/campaigns/{self.campaign}/mechanism"

    @property
    def reports_path(self) -> str:
        """Where reports go."""
        return f"{self.base}/api/campaigns/{self.campaign}/reports"


# --- Requests to a collector: the standard library, nothing that tells devices apart, bounded in every way


HEADERS: Mapping[str, str] = {"User-Agent": "geoveil", "Accept": "application/json"}
"""The same from every device: no version, no language, no cookie."""


class Unreachable(Exception):
    """No whole answer came; whether the request arrived is unknown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its status, its media type, how long to wait, and its body."""

    status: int
    media: str
    retry_after_s: float
    body: bytes


class Transport(Protocol):
    """How requests travel; tests and simulations may bring their own."""

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        """The document at a path; ``tag`` is that of the one already here."""

    def post(self, path: str, body: bytes, *, limit: int) -> Answer:
        """The answer to a JSON body."""


class Network:
    """HTTP/1.1 to one collector, TLS verified, a new connection a request, ``timeout_s`` for all of it.

    Follows redirects of documents within the collector's own address only, and none of reports. Asks
    for no compression and takes none, and reads no more than it was told to.
    """

    def __init__(self, address: Address, *, timeout_s: float = 10.0) -> None:
        self._origin = address.origin
        self._timeout_s = timeout_s
        options: dict[str, Any] = {"timeout": timeout_s}
        if address.secure:
            options["context"] = ssl.create_default_context()
        kind = HTTPSConnection if address.secure else HTTPConnection
        self._connection = partial(kind, address.host, address.port, **options)

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        """GET; only ``tag``, which the device computed itself, is ever sent back."""
        headers = {} if tag is None else {"If-None-Match": f'"{tag}"'}
        for _ in range(4):  # three redirects at most
            answer, onward = self._exchange("GET", path, None, headers, limit)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            path = self._within(path, onward)
        raise Refused("redirect", "too many")

    def post(self, path: str, body: bytes, *, limit: int) -> Answer:
        """POST of JSON."""
        return self._exchange("POST", path, body, {"Content-Type": "application/json"}, limit)[0]

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], limit: int
    ) -> tuple[Answer, str]:
        connection = self._connection()
        watch: threading.Timer | None = None
        try:
            connection.connect()
            watch = threading.Timer(self._timeout_s, _hang_up, [connection.sock])
            watch.daemon = True
            watch.start()
            connection.request(method, path, body, {**HEADERS, **headers})
            with connection.getresponse() as response:
                return _answer(response, limit), response.getheader("Location", "")
        except ssl.SSLCertVerificationError:
            raise Refused("insecure", "the collector's certificate is not valid") from None
        except (OSError, HTTPException, ValueError) as failure:
            raise Unreachable(type(failure).__name__) from None
        finally:
            if watch is not None:
                watch.cancel()
            connection.close()

    def _within(self, path: str, onward: str) -> str:
        """The path of a redirect, which must lead to the same scheme, host and port."""
        here = urlsplit(self._origin)
        try:
            target = urlsplit(urljoin(self._origin + path, onward))
            there = (target.scheme, target.hostname, target.port)
        except ValueError:
            raise Refused("redirect") from None
        if there != (here.scheme, here.hostname, here.port) or target.username is not None:
            raise Refused("redirect")
        return target.path + (f"?{target.query}" if target.query else "")


def _hang_up(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _answer(response: HTTPResponse, limit: int) -> Answer:
    encoding = response.getheader("Content-Encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise Refused("answer", "encoding")
    body = response.read(limit + 1)
    if len(body) > limit:
        raise Refused("answer", "size")
    if response.length:
        raise Unreachable("an answer that was cut off")
    wait_s, given = 0.0, response.getheader("Retry-After", "").strip()
    if given.isascii() and given.isdigit():
        wait_s = float(given[:9])
    else:  # a date, or nothing
        with suppress(ValueError, TypeError, OverflowError):
            wait_s = max(0.0, parsedate_to_datetime(given).timestamp() - time())
    return Answer(response.status, response.headers.get_content_type(), wait_s, body)
