"""A campaign’s collector as a device sees it: its address, documents checked, reports handed over."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from geoveil.arrays import count, positive
from geoveil.channel.guarantee import BetweenPositions
from geoveil.client.ledger_book import Charge
from geoveil.client.refusal import Refused
from geoveil.document.canonical import strict_json
from geoveil.document.wire import (
    LARGEST_ANSWER,
    NAMED_PATTERN,
    MechanismDocument,
    RefusedDocument,
    tag_of,
)
from geoveil.errors import InvalidInput, Unsupported
from geoveil.randomness import SYSTEM

_LINK = re.compile(
    rf"(?a)(?P<base>(?:/(?!\.\.?/)[\w.~-]+)*?)/(?:c|api/campaigns)/(?P<campaign>{NAMED_PATTERN})/?"
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
            host, port = _one_spelling(parts.hostname or ""), parts.port
            path = _LINK.fullmatch(parts.path)
            extras = parts.username or parts.password or parts.query or parts.fragment
            if parts.scheme not in ("http", "https") or path is None or extras:
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


_LABELS = re.compile(r"(?a)(?:[a-z0-9_-]+\.)*(?!(?:[0-9]+|0x[0-9a-f]*)\Z)[a-z0-9_-]+")
"""The name of a host; one that ends in a number would be an address, written in one of many ways."""


_TWO_HOSTS = frozenset("\u00df\u03c2\u200c\u200d")
"""Letters (ß, ς) and joiners that are others or none in the names of 2003, which are made here, and not in
those of today's browsers: a link with one would lead to another host than there."""


def _one_spelling(host: str) -> str:
    """A host as everybody else spells it, or an operator would have many names; ``ValueError`` for none.

    >>> [_one_spelling(host) for host in ("bücher.example.", "2001:db8:0::1")]
    ['xn--bcher-kva.example', '2001:db8::1']
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna").decode().lower().removesuffix(".")
        if not _LABELS.fullmatch(name) or _TWO_HOSTS & set(host):
            raise ValueError("not the name of a host") from None
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


# --- Requests to a collector: the standard library, nothing that tells devices apart, bounded in every way


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
        """The document at a path; ``tag`` is that of the one already here."""

    def post(self, path: str, body: bytes, *, limit: int) -> Answer:
        """The answer to a JSON body."""


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

    def post(self, path: str, body: bytes, *, limit: int) -> Answer:
        """POST of JSON."""
        headers, last_s = {"Content-Type": "application/json"}, time.monotonic() + self._timeout_s
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
            wait_s = max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    date_s: float | None = None
    with suppress(ValueError, TypeError, OverflowError):
        date_s = parsedate_to_datetime(response.getheader("Date", "")).timestamp()
    return Answer(response.status, response.headers.get_content_type(), wait_s, body, date_s)


# --- The collector: a document to fetch, a report to hand over, both with patience


CLOCK_SKEW_S = 300.0
"""A device's clock may be this much behind the collector's."""
_ANSWER_BYTES = 1 << 16
_PROBLEMS = "https://geoveil.org/problems/"
_LATER = frozenset({408, 425, 429})
_ENDED = "campaign-ended"
_FINAL = frozenset(
    {"mechanism-expired", "cell-out-of-range", "slot-out-of-range", "malformed-body", _ENDED}
)
"""Problems of the report itself or of its campaign, at any time and wherever it is sent. Any other may
pass: a clock is put right, a proxy finds the right service."""


@dataclass(frozen=True, slots=True)
class Patience:
    """At most ``attempts`` tries within ``total_s``; the k-th pause is random, up to ``first_s``·2ᵏ.

    A collector that names a time to wait is waited for, unless that is beyond ``total_s``.
    """

    attempts: int = 5
    total_s: float = 30.0
    first_s: float = 0.5
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = lambda: float(SYSTEM.uniform(1)[0])

    def __post_init__(self) -> None:
        count("attempts", self.attempts)
        positive("total_s", self.total_s)
        positive("first_s", self.first_s)

    def until(self, attempt: Callable[[], float | None]) -> bool:
        """Try until ``attempt`` returns ``None``; else it says how many seconds to wait at least.

        False when the tries or the time ran out.
        """
        last = self.clock() + self.total_s
        for k in range(self.attempts):
            least_s = attempt()
            if least_s is None:
                return True
            pause = max(least_s, self.first_s * 2**k * self.jitter())
            if k + 1 == self.attempts or self.clock() + pause > last:
                return False
            self.sleep(pause)
        return False

    def answer(self, request: Callable[[], Answer]) -> Answer | None:
        """The first answer that is not a request to wait, or ``None``."""
        answers: list[Answer] = []

        def attempt() -> float | None:
            try:
                answer = request()
            except Unreachable:
                return 0.0
            if answer.status in _LATER or answer.status >= 500:
                return answer.retry_after_s
            answers.append(answer)
            return None

        return answers[0] if self.until(attempt) else None


@lru_cache(maxsize=16)
def offered(body: bytes) -> tuple[MechanismDocument, ...]:
    """The levels in these bytes, sound but for their certificates; read once for all devices of a process."""
    try:
        return MechanismDocument.read_levels(body, certified=True)
    except RefusedDocument as refused:
        raise Refused("document", refused.reason) from None


def check_promise(document: MechanismDocument) -> None:
    """Refuse a document whose whole numbers do not keep its promise; a process asks each once."""
    try:
        document.check_promise()
    except RefusedDocument as refused:
        raise Refused("document", refused.reason) from None


class Collector:
    """One campaign's collector behind a transport."""

    def __init__(self, address: Address, transport: Transport, patience: Patience) -> None:
        self._address = address
        self._transport = transport
        self._patience = patience
        self._latest: tuple[MechanismDocument, ...] = ()
        self._date_s: float | None = None

    def mechanism(
        self,
        *,
        max_epsilon_per_km: float,
        now_s: float,
        promise_per_km: float | None = None,
        trip: bool | None = None,
    ) -> MechanismDocument:
        """The current document of this campaign, in its time and within the limit; of trips twice its ε is.

        ``trip`` says whether a trip is to be reported, or a place; ``None`` where nobody knows yet.

        The promise is the one chosen, or the strongest that is offered; all are asked for, so that asking
        does not show the choice. All is checked but the certificate (:func:`check_promise`). What is here
        already is not transferred again. The tag is made from ids that the device computed, never one of
        the collector's choosing, which could mark a device.
        """
        self._latest = self._fetched()
        wanted = (each for each in self._latest if promise_per_km in (None, each.epsilon_per_km))
        document = next(wanted, None)
        if document is None:
            raise Refused("level")
        if document.campaign != self._address.campaign:
            raise Refused("campaign")
        if trip not in (None, document.trips):
            raise Refused("trips") if document.trips else Refused("places")
        if cost_of(document).epsilon_per_km > max_epsilon_per_km:
            raise Refused("promise")
        if now_s < document.not_before_s - CLOCK_SKEW_S:
            raise Refused("not-yet-valid")
        if now_s >= document.expires_s:
            raise Refused("expired")
        self.slot(document, now_s)
        return document

    def slot(self, document: MechanismDocument, now_s: float) -> int | None:
        """The slot that a location of now is true in; ``None`` where the document has none.

        It is that of the device's clock, never one of the collector's choosing. Where the collector's
        clock, as of its last answer, was in another one and more than a moment away, one of them is wrong.
        """
        slots = document.slots
        if slots is None:
            return None
        try:
            slot = slots.at(now_s)
            theirs_s = now_s if self._date_s is None else self._date_s
            theirs = slots.at(theirs_s)
        except Unsupported:
            raise Refused("zone") from None
        if slot is None:
            raise Refused("slot")
        if slot != theirs and abs(now_s - theirs_s) > CLOCK_SKEW_S:
            raise Refused("clocks")
        return slot

    def _fetched(self) -> tuple[MechanismDocument, ...]:
        path, tag = self._address.mechanism_path, tag_of(self._latest) if self._latest else None
        answer = self._patience.answer(
            lambda: self._transport.get(path, tag=tag, limit=LARGEST_ANSWER)
        )
        if answer is None:
            raise Refused("unreachable")
        self._date_s = answer.date_s
        if answer.status == 304 and self._latest:
            return self._latest
        if answer.status == 200:
            return offered(answer.body)
        problem = _problem(answer)
        if problem:
            raise Refused("ended") if problem == _ENDED else Refused("problem", problem)
        raise Refused("answer", f"status {answer.status}")

    def count(self, charge: Charge) -> tuple[str, str] | None:
        """Hand over a drawn report; ``None`` once it is counted, ``Refused`` where it can never count.

        Else it may count later: why not now, and the name of the collector's problem, where it gave one.
        """
        report = {"mechanism": charge.mechanism, "id": charge.report, "cell": charge.cell}
        if charge.slot is not None:
            report["slot"] = charge.slot
        if charge.to_cell is not None:
            report["to"] = charge.to_cell
        path, body = self._address.reports_path, json.dumps(report, separators=(",", ":")).encode()
        try:
            post = self._transport.post
            answer = self._patience.answer(lambda: post(path, body, limit=_ANSWER_BYTES))
        except Refused as refused:  # of the connection, not of the report
            return str(refused), ""
        if answer is None:
            return "the collector did not answer", ""
        if answer.status == 200 and _json(answer) == {"id": charge.report, "status": "counted"}:
            return None
        problem = _problem(answer) if 400 <= answer.status < 500 else ""
        if problem in _FINAL:
            raise Refused("problem", problem, sent=True)
        if problem:
            return f"the collector did not count it now ({problem})", problem
        return "the answer was not a collector's", ""


def cost_of(document: MechanismDocument) -> BetweenPositions:
    """What one report under a document is charged: a trip, with two ends, twice."""
    return document.promise * 2 if document.trips else document.promise


def _problem(answer: Answer) -> str:
    """The name of the collector's problem; empty where the answer is none."""
    body = _json(answer)
    kind = body.get("type") if isinstance(body, dict) else None
    if answer.media != "application/problem+json" or not isinstance(kind, str):
        return ""
    name = kind.removeprefix(_PROBLEMS)
    plain = name.isascii() and name.replace("-", "").isalpha() and len(name) <= 40
    return name if plain and kind.startswith(_PROBLEMS) else ""


def _json(answer: Answer) -> Any:
    try:
        return strict_json(answer.body)
    except (ValueError, RecursionError):
        return None
