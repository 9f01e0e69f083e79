"""How a device reaches a collector: its address, and requests of the standard library.

Nothing in them tells devices apart, and everything about them is bounded.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import format_datetime, parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Protocol
from unicodedata import ucd_3_2_0
from urllib.parse import urljoin, urlsplit

from geoveil.client.refusal import Refused
from geoveil.document.wire import NAMED_PATTERN
from geoveil.errors import InvalidInput

_LINK = re.compile(
    rf"(?a)(?P<base>(?:/(?!\.\.?/)[\w.~-]+)*?)/(?:c|api/campaigns)/(?P<campaign>{NAMED_PATTERN})/?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A campaign's collector and id.

    >>> address = Address.of("https://collector.example/c/lyon")
    >>> address.path("/mechanism"), address.name
    ('/api/campaigns/lyon/mechanism', 'https://collector.example/c/lyon')
    """

    secure: bool
    host: str
    port: int
    base: str
    campaign: str
    origin: str
    """Scheme, host and, where it is not the usual one, port."""
    name: str
    """One spelling for one campaign: what the ledger files it under."""

    @classmethod
    def of(cls, url: str, *, insecure: bool = False) -> Address:
        """From ``…/c/ID`` or ``…/api/campaigns/ID``; plain http only to this machine, or ``insecure``."""
        try:
            parts = urlsplit(str(url))
            host, port = _one_spelling(parts.hostname or ""), parts.port
            path = _LINK.fullmatch(parts.path)
            extras = parts.username or parts.password or parts.query or parts.fragment
            if parts.scheme not in ("http", "https") or path is None or extras:
                raise ValueError
        except ValueError:
            raise InvalidInput(
                "url must be a campaign's link, such as https://collector.example/c/lyon"
            ) from None
        secure, (base, campaign) = parts.scheme == "https", path.group("base", "campaign")
        usual = 443 if secure else 80
        origin = f"{parts.scheme}://[{host}]" if ":" in host else f"{parts.scheme}://{host}"
        origin += "" if port in (None, 0, usual) else f":{port}"
        name = f"{origin}{base}/c/{campaign}"
        address = cls(secure, host, port or usual, base, campaign, origin, name)
        if not (secure or insecure or address.local):
            raise Refused("insecure")
        return address

    @property
    def local(self) -> bool:
        """Whether the collector runs on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def path(self, what: str = "") -> str:
        """Where the campaign says what it is, or has its ``/mechanism``, ``/reports`` or ``/tickets``."""
        return f"{self.base}/api/campaigns/{self.campaign}{what}"


_LABELS = re.compile(r"(?a)(?:[a-z0-9_-]+\.)*(?!(?:[0-9]+|0x[0-9a-f]*)\Z)[a-z0-9_-]+")
"""The name of a host; one that ends in a number would be an address, written in one of many ways."""


_TWO_HOSTS = re.compile("[\u00df\u03c2\u200c\u200d\u13a0-\u13ff]")
"""Letters (ß, ς, Cherokee) and joiners that are others or none in the names of 2003, which are made here, and
not in those of today's browsers: a link with one would lead to another host than there."""


def _one_spelling(host: str) -> str:
    """A host as everybody else spells it, or an operator would have many names; ``ValueError`` for none.

    Nor are there zones of an address: of most addresses any number is one, and leads to the same host.

    >>> [_one_spelling(host) for host in ("bücher.example.", "2001:db8:0::1")]
    ['xn--bcher-kva.example', '2001:db8::1']
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna").decode().lower().removesuffix(".")
        newer = any(ucd_3_2_0.category(letter) == "Cn" for letter in host)  # than the names of 2003
        if not _LABELS.fullmatch(name) or newer or _TWO_HOSTS.search(host):
            raise ValueError("not the name of a host") from None
        return name
    if "%" in host:
        raise ValueError("not an address in every zone")
    return str(getattr(address, "ipv4_mapped", None) or address)


HEADERS: Mapping[str, str] = {"User-Agent": "geoveil", "Accept": "application/json"}
"""The same from every device: no version, no language, no cookie."""


class Unreachable(Exception):
    """No whole answer came; whether the request arrived is unknown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its status, its media type, how long to wait, its body, and when it was made."""

    status: int
    media: str
    retry_after_s: float
    body: bytes
    date_s: float | None = None
    """By the collector's clock, in seconds since 1970; ``None`` where it does not say."""


class Transport(Protocol):
    """How requests travel; tests and simulations may bring their own."""

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        """The document at a path; ``tag`` is the ETag of the copy already here."""

    def post(self, path: str, body: bytes, *, limit: int, ticket: str = "") -> Answer:
        """The answer to a JSON body; with a ticket where there is one."""


class Network:
    """HTTP/1.1 to one collector, TLS verified, a new connection a request, ``timeout_s`` for all of it but
    the look for the host's addresses: connecting, shaking hands, redirects and the answer.

    Follows redirects of documents within the collector's own address only, and none of reports. Asks
    for no compression and takes none, and reads no more than it was told to.
    """

    def __init__(self, address: Address, *, timeout_s: float = 10.0) -> None:
        self._origin = address.origin
        self._host, self._port, self._timeout_s = address.host, address.port, timeout_s
        self._context = ssl.create_default_context() if address.secure else None

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        """GET; only ``tag``, which the device computed itself, is ever sent back."""
        headers = {} if tag is None else {"If-None-Match": f'"{tag}"'}
        last_s = time.monotonic() + self._timeout_s
        for _ in range(4):  # three redirects at most
            answer, onward = self._exchange("GET", path, None, headers, limit, last_s)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            path = self._within(path, onward)
        raise Refused("redirect", "too many")

    def post(self, path: str, body: bytes, *, limit: int, ticket: str = "") -> Answer:
        """POST of JSON."""
        headers, last_s = {"Content-Type": "application/json"}, time.monotonic() + self._timeout_s
        if ticket:
            headers["Authorization"] = f'PrivateToken token="{ticket}"'
        return self._exchange("POST", path, body, headers, limit, last_s)[0]

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        limit: int,
        last_s: float,
    ) -> tuple[Answer, str]:
        connection = HTTPConnection(self._host, self._port)
        if self._context is not None:
            connection = HTTPSConnection(self._host, self._port, context=self._context)
        watch: threading.Timer | None = None
        try:
            connection.sock = reached = self._connected(last_s)
            watch = threading.Timer(max(last_s - time.monotonic(), 0.0), _hang_up, [reached])
            watch.daemon = True
            watch.start()
            if isinstance(reached, ssl.SSLSocket):
                reached.do_handshake()
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

    def _connected(self, last_s: float) -> socket.socket:
        """A connection to the host, hands not yet shaken: its addresses, which may be thousands, share the
        time of one request."""
        why = "no address of the host"
        for *kind, _, place in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM):
            plain = socket.socket(*kind)
            try:
                plain.settimeout(max((last_s - time.monotonic()) / 2.0, 1e-3))
                plain.connect(place)
            except OSError as failure:
                why = type(failure).__name__
                plain.close()
                continue
            plain.settimeout(self._timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is None:
                return plain
            return self._context.wrap_socket(
                plain, do_handshake_on_connect=False, server_hostname=self._host
            )
        raise Unreachable(why)

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
        # a secure one would end TLS first, and what another thread sends then would be in the clear
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _answer(response: HTTPResponse, limit: int) -> Answer:
    encoding = response.getheader("Content-Encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise Refused("answer", "encoding")
    room = memoryview(bytearray(limit + 1))  # ``read`` takes a chunk of -1 bytes for all there is
    body = bytes(room[: response.readinto(room)])
    if len(body) > limit:
        raise Refused("answer", "size")
    if response.length:
        raise Unreachable("an answer that was cut off")
    wait_s, header = 0.0, response.getheader("Retry-After", "").strip()
    if header.isascii() and header.isdigit():
        wait_s = float(header[:9])
    else:  # a date, or nothing
        with suppress(ValueError, TypeError, OverflowError):
            wait_s = max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    date_s, date = None, response.getheader("Date", "")
    with suppress(ValueError, TypeError, OverflowError):
        made = parsedate_to_datetime(date)
        if format_datetime(made, usegmt=True) == date:  # the one form in which HTTP writes it
            date_s = made.timestamp()
    return Answer(response.status, response.headers.get_content_type(), wait_s, body, date_s)
