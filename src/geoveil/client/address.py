"""Where a campaign lives: the link that people share, taken apart."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from geoveil.client.refusal import Refused
from geoveil.errors import InvalidInput

_LINK = re.compile(
    r"(?P<base>(?:/[\w.~-]+)*?)/(?:c|api/campaigns)/(?P<campaign>[a-z0-9][a-z0-9-]{0,79})/?",
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
        except ValueError:
            raise InvalidInput(_SHAPE) from None
        path = _LINK.fullmatch(parts.path)
        extras = parts.username or parts.password or parts.query or parts.fragment
        if parts.scheme not in ("http", "https") or not host or path is None or extras:
            raise InvalidInput(_SHAPE)
        secure = parts.scheme == "https"
        if not (secure or insecure or _loopback(host)):
            raise Refused("insecure")
        at = port or (443 if secure else 80)
        return cls(secure, host, at, path["base"], path["campaign"])

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
        return _loopback(self.host)

    @property
    def mechanism_path(self) -> str:
        """Where the current mechanism document is."""
        return f"{self.base}/api/campaigns/{self.campaign}/mechanism"

    @property
    def reports_path(self) -> str:
        """Where reports go."""
        return f"{self.base}/api/campaigns/{self.campaign}/reports"


_SHAPE = "url must be a campaign's link, such as https://collector.example/c/lyon"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
