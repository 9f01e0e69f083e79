"""Rate limits that keep no addresses: token buckets under a keyed hash that nobody can turn round.

The key is random, lives in memory only and changes every day; so do the buckets. What is left after a
restart, in a core dump of yesterday's key or in a log is nothing.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from geoveil.server.problem import Problem
from geoveil.store import Overloaded

_DAY_S = 86_400.0
_MOST_BUCKETS = 50_000


class Limiter:
    """Token buckets by client: ``per_minute`` tokens a minute, at most as many saved up; 0 is no limit.

    >>> now = [0.0]
    >>> limiter = Limiter(2, clock=lambda: now[0])
    >>> [limiter.admits("198.51.100.7") for _ in range(3)]
    [True, True, False]
    >>> now[0] = 30.0
    >>> limiter.admits("198.51.100.7")
    True
    """

    def __init__(
        self,
        per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        most_buckets: int = _MOST_BUCKETS,
    ) -> None:
        self._capacity = float(per_minute)
        self._per_s = per_minute / 60
        self._clock = clock
        self._most = most_buckets
        self._buckets: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        self._renew(clock())

    def _renew(self, now_s: float) -> None:
        self._key = secrets.token_bytes(32)
        self._key_until_s = now_s + _DAY_S
        self._buckets.clear()

    def admits(self, client: str, tokens: float = 1.0) -> bool:
        """Take tokens from the client's bucket; ``False``, and nothing taken, where it holds too few.

        A request for more than a full bucket is admitted by a full one, or it never would be.
        """
        if not self._capacity:
            return True
        now_s = self._clock()
        if now_s >= self._key_until_s:
            self._renew(now_s)
        name = _name(client, self._key)
        level, since_s = self._buckets.pop(name, (self._capacity, now_s))
        level = min(self._capacity, level + (now_s - since_s) * self._per_s)
        admitted = level >= min(tokens, self._capacity)
        self._buckets[name] = (max(0.0, level - tokens) if admitted else level, now_s)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return admitted

    def __len__(self) -> int:
        return len(self._buckets)


_IPV4_IN_IPV6 = (bytes(10) + b"\xff\xff", bytes.fromhex("0064ff9b") + bytes(8))
"""IPv4 clients as a socket that listens on ``::`` sees them, and behind a translator (RFC 6052)."""


_SITE_BYTES = 8
"""Of a name: those in which all networks of a site agree."""


def _name(client: str, key: bytes) -> bytes:
    """Keyed hashes of the site and of the network: a /48 and a /64 of IPv6, an address of IPv4 both times."""
    address = _address(client)
    network = client.encode("utf-8", "replace") if address is None else address[:8]
    parts = network[:6], network
    return b"".join(blake2b(part, key=key, digest_size=_SITE_BYTES).digest() for part in parts)


def _address(text: str) -> bytes | None:
    """4 bytes of IPv4 or 16 of IPv6, without brackets, port and zone; ``None`` where it is no address."""
    host, bracket, _ = text.removeprefix("[").partition("]")
    if not bracket and text.count(":") == 1:
        host = text.partition(":")[0]
    try:
        if ":" not in host:
            return socket.inet_pton(socket.AF_INET, host)
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except (OSError, ValueError):
        return None
    return packed[12:] if packed[:12] in _IPV4_IN_IPV6 else packed


def is_loopback(client: str) -> bool:
    """Whether the client is this machine itself.

    >>> [is_loopback(client) for client in ("127.0.0.1", "::1", "::ffff:7f00:1", "198.51.100.7", "")]
    [True, True, True, False, False]
    """
    address = _address(client) or b""
    return (len(address) == 4 and address[0] == 127) or address == bytes(15) + b"\x01"


class Networks:
    """Whose a request is, as a keyed hash of the network it comes from; no address is kept.

    The key is random and lives as long as the process: names stand beside what is open, not longer.
    """

    def __init__(self, *, loopback: bool, trusted_proxy: bool) -> None:
        self._key = secrets.token_bytes(32)
        self._loopback = loopback
        self._trusted_proxy = trusted_proxy

    def address(self, scope: Mapping[str, Any]) -> str | None:
        """The address that limits go by, for this request only; ``None`` where none hold."""
        peer = scope.get("client")
        address = str(peer[0]) if isinstance(peer, (tuple, list)) and peer else ""
        if self._trusted_proxy:
            # the address that the nearest proxy saw is the last one it appended
            headers = scope.get("headers") or ()
            values = [value for name, value in headers if name == b"x-forwarded-for"]
            last = values[-1].decode("latin-1").rpartition(",")[2].strip() if values else ""
            return last if _address(last) is not None else address
        return None if not self._loopback and is_loopback(address) else address

    def of(self, scope: Mapping[str, Any]) -> bytes | None:
        """The network of a request; ``None`` where no limit by network holds."""
        address = self.address(scope)
        return None if address is None else _name(address, self._key)

    def of_peer(self, address: str) -> bytes | None:
        """The network of a connection; ``None`` where a proxy stands for everybody."""
        exempt = self._trusted_proxy or (not self._loopback and is_loopback(address))
        return None if exempt else _name(address, self._key)


class Shares:
    """So much of something in all, so much for one network, and a quarter for all networks of one site.

    >>> shares = Shares(8, 1)
    >>> [shares.take(name) for name in (b"one-site/1", b"one-site/1", b"one-site/2", b"one-site/3")]
    [True, False, True, False]
    >>> shares.take(b"another-site")
    True
    """

    def __init__(self, most: int, most_a_network: int) -> None:
        self._most = most
        self._most_a_network = most_a_network
        self._most_a_site = max(most_a_network, most // 4)
        self.taken = 0
        self._taken_by: Counter[bytes] = Counter()

    def take(self, network: bytes | None, amount: int = 1) -> bool:
        """Take some; ``False``, and nothing taken, where that is more than there is."""
        bounds = self._bounds(network)
        if self.taken + amount > self._most or any(
            self._taken_by[name] + amount > most for name, most in bounds.items()
        ):
            return False
        for name in bounds:
            self._taken_by[name] += amount
        self.taken += amount
        return True

    def _bounds(self, network: bytes | None) -> dict[bytes, int]:
        """How much may be taken under each name of a network."""
        if network is None:
            return {}
        return {network[:_SITE_BYTES]: self._most_a_site, network: self._most_a_network}

    @contextmanager
    def held(self, network: bytes | None, why_not: str) -> Iterator[None]:
        """Take one for a while; ``Overloaded`` where there is none."""
        if not self.take(network):
            raise Overloaded(why_not)
        try:
            yield
        finally:
            self.give_back(network)

    def give_back(self, network: bytes | None, amount: int = 1) -> None:
        """Give back what was taken."""
        self.taken -= amount
        for name in self._bounds(network):
            self._taken_by[name] -= amount
            if self._taken_by[name] <= 0:
                del self._taken_by[name]


class Limits:
    """What one network address may do: so many requests and so many reports a minute."""

    def __init__(
        self,
        *,
        requests_per_minute: int,
        reports_per_minute: int,
        loopback: bool,
        trusted_proxy: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = Limiter(requests_per_minute, clock=clock)
        self._reports = Limiter(reports_per_minute, clock=clock)
        self.networks = Networks(loopback=loopback, trusted_proxy=trusted_proxy)
        self._off = not requests_per_minute and not reports_per_minute

    def client(self, scope: Mapping[str, Any]) -> str | None:
        """The address the limits go by, for this request only; ``None`` where none hold."""
        return None if self._off else self.networks.address(scope)

    def check_request(self, client: str | None) -> None:
        """Raise the problem ``too-many-requests`` where the client asks too often."""
        if client is not None and not self._requests.admits(client):
            raise Problem("too-many-requests")

    def check_reports(self, client: str | None, reports: int) -> None:
        """The same for the reports a client sends."""
        if client is not None and not self._reports.admits(client, reports):
            raise Problem("too-many-requests", "too many reports from this network")
