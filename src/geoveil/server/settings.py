"""Settings of the service, and the operator’s tokens."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from geoveil.errors import InvalidFile, InvalidInput
from geoveil.server.problem import Problem
from geoveil.store import Store, TokenRecord

PREFIX = "GEOVEIL_"
LOG_LEVELS = ("debug", "info", "warning", "error")
SHORTEST_TOKEN, LONGEST_TOKEN = 16, 1024
KNOWN_S = 2.0
"""How long a token that was found in the store is not looked for again."""
_DIGITS = re.compile(r"[0-9a-f]{4,64}", re.ASCII)
ELSEWHERE = frozenset({"GEOVEIL_DATA", "GEOVEIL_CONFIG"})
"""Variables with the same prefix that other parts of the program read."""
_SERVICE = re.compile(
    r"GEOVEIL_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")
_BASE = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_TILES = re.compile(
    r"(?=.*{z})(?=.*{x})(?=.*{y})https?://[a-z0-9.-]+(:[0-9]+)?/[\w{}/.?=&%~+@-]*", re.ASCII
)
_WORDS = {"true": True, "1": True, "yes": True, "on": True}
_WORDS |= {"false": False, "0": False, "no": False, "off": False}


def _setting(default: Any, text: str, *, least: float | None = None, secret: bool = False) -> Any:
    return field(
        default=default, repr=not secret, metadata={"help": text, "least": least, "secret": secret}
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """How one service runs.

    >>> Settings(port=80).port
    80
    >>> Settings(port=-1)
    Traceback (most recent call last):
    geoveil.errors.InvalidInput: port (-1) must be at least 0
    """

    host: str = _setting("127.0.0.1", "Address to listen on; 0.0.0.0 for every network.")
    port: int = _setting(8000, "Port to listen on; 0 takes a free one.", least=0)
    database: str = _setting(
        "sqlite:///geoveil.db",
        "Where campaigns and counts are kept: sqlite:///FILE or postgresql://…",
    )
    base_url: str = _setting(
        "", "Address participants see, for links; http://HOST:PORT unless given."
    )
    operator_token: str = _setting(
        "",
        "Token of the operator; made and printed once at the first start unless given. Give none as a flag "
        "where others use the machine: they can read it there.",
        secret=True,
    )
    processes: int = _setting(1, "Server processes; more than one needs PostgreSQL.", least=1)
    tick_s: float = _setting(
        1.0, "Seconds between looks at rounds that are full, due or expired.", least=0.05
    )
    body_limit_bytes: int = _setting(262_144, "Longest body of a request in bytes.", least=1024)
    body_timeout_s: float = _setting(
        10.0, "Seconds a client has to send the head of a request, and again its body.", least=0.1
    )
    queue_limit: int = _setting(
        20_000, "Reports that may wait for a commit; beyond it uploads are answered 503.", least=1
    )
    requests_per_minute: int = _setting(
        6_000,
        "Requests a minute from one network address, in bursts of as many; 0 for no limit.",
        least=0,
    )
    reports_per_minute: int = _setting(
        60_000,
        "Reports a minute from one network address, in bursts of as many; 0 for no limit.",
        least=0,
    )
    limit_loopback: bool = _setting(
        True, "Whether the limits also hold for this machine; turn off for load tests."
    )
    trusted_proxy: bool = _setting(
        False, "Take the address for the limits from the last X-Forwarded-For; only behind a proxy."
    )
    connections: int = _setting(
        4_000, "Connections at a time; beyond it the one that waits longest gives way.", least=1
    )
    connections_per_network: int = _setting(
        1_000, "Of these from one network address; a trusted proxy may have all.", least=1
    )
    body_memory_bytes: int = _setting(
        33_554_432,
        "Bytes of bodies that are still on their way, beyond the first 4096 of each; a quarter of them from "
        "one address.",
        least=262_144,
    )
    listeners: int = _setting(200, "How many may listen to events at a time.", least=0)
    listeners_per_network: int = _setting(20, "Of these from one network address.", least=0)
    tile_url: str = _setting(
        "",
        "Tile server for the maps of the pages, https://HOST/…{z}…{x}…{y}…; nobody is asked unless given.",
    )
    tile_attribution: str = _setting("", "What the tile server wants said beside the map.")
    log_level: str = _setting("info", f"What is logged: {', '.join(LOG_LEVELS)}.")

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            setting.check(getattr(self, setting.name))
        if not self.host:
            raise InvalidInput(
                "host must name an address; 127.0.0.1 for this machine, 0.0.0.0 for every network"
            )
        if self.log_level not in LOG_LEVELS:
            raise InvalidInput(
                f"log_level ({self.log_level}) must be one of {', '.join(LOG_LEVELS)}"
            )
        if self.port > 65_535:
            raise InvalidInput(f"port ({self.port}) must be at most 65535")
        token = self.operator_token
        sendable = token.isascii() and token.isprintable() and token == token.strip()
        if token and not (sendable and SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN):
            raise InvalidInput(
                f"operator_token must have {SHORTEST_TOKEN} to {LONGEST_TOKEN} printable ASCII characters "
                "and no white space around them"
            )
        if self.base_url and not _BASE.fullmatch(self.base_url):
            raise InvalidInput(
                "base_url must be an address such as https://collector.example, or with a path after it"
            )
        if self.tile_url and not _TILES.fullmatch(self.tile_url):
            raise InvalidInput(
                "tile_url must be an address such as https://tiles.example/{z}/{x}/{y}.png, with all three"
            )
        if self.processes > 1 and not self.database.startswith("postgres"):
            raise InvalidInput(
                f"processes ({self.processes}) must be 1 with SQLite, which has one writer; use PostgreSQL"
            )


_TYPES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: name, type, default and a sentence of help."""

    name: str
    type: type
    default: Any
    help: str
    least: float | None
    secret: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def check(self, value: Any) -> None:
        """Raise unless the value has the type of the setting and is large enough."""
        allowed = (int, float) if self.type is float else (self.type,)
        if type(value) not in allowed:
            raise InvalidInput(f"{self.name} must be {_TYPES[self.type]}")
        if self.least is not None and not value >= self.least:
            raise InvalidInput(f"{self.name} ({value}) must be at least {self.least:g}")

    def parse(self, text: str) -> Any:
        """The value a flag or a variable spells."""
        try:
            return _WORDS[text.strip().lower()] if self.type is bool else self.type(text)
        except (KeyError, ValueError):
            shown = "" if self.secret else f" ({text})"
            raise InvalidInput(f"{self.name}{shown} must be {_TYPES[self.type]}") from None


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(entry.name, get_type_hints(Settings)[entry.name], entry.default, **entry.metadata)
    for entry in fields(Settings)
)
"""Every setting, in the order of the documentation."""

_BY_NAME = {setting.name: setting for setting in SETTINGS}


def load(
    *,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Settings from flags (``None`` where not given), environment and a TOML file, in that order.

    >>> load(flags={"port": 1}, environment={"GEOVEIL_PORT": "2", "GEOVEIL_HOST": "::1"}).host
    '::1'
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidFile(f"file ({file.name}) must be TOML: {error}") from None
        _refuse_unknown(values, f"setting in {file.name}")
    spelt = {
        name.removeprefix(PREFIX).lower(): text
        for name, text in (environment or {}).items()
        if name.startswith(PREFIX) and name not in ELSEWHERE and not _of_service(name, text)
    }
    _refuse_unknown(spelt, "environment variable GEOVEIL_…")
    values |= {name: _BY_NAME[name].parse(text) for name, text in spelt.items()}
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    _refuse_unknown(values, "setting")
    return Settings(**values)


def variables_of_services(environment: Mapping[str, str]) -> list[str]:
    """The variables that Kubernetes sets in every pod for services named ``geoveil`` or ``geoveil-…``.

    They look like settings and are none.

    >>> variables_of_services({"GEOVEIL_PORT": "tcp://10.0.0.1:80", "GEOVEIL_HOST": "::"})
    ['GEOVEIL_PORT']
    """
    return [name for name, text in environment.items() if _of_service(name, text)]


def _of_service(name: str, text: str) -> bool:
    address = (
        name.startswith(PREFIX) and name.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(text)
    )
    return bool(address or _SERVICE.fullmatch(name))


def _refuse_unknown(values: Mapping[str, Any], what: str) -> None:
    unknown = sorted(set(values) - set(_BY_NAME))
    if unknown:
        raise InvalidInput(f"{what} ({unknown[0]}) must be one of {', '.join(_BY_NAME)}")


# --- Operators' tokens: shown once, kept as SHA-256 only


class Tokens:
    """Who may operate."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._admitted: Mapping[bytes, float] = {}

    def prepare(self, own_token: str) -> str | None:
        """Keep the given token; without one, make a first token, returned so that it can be shown once.

        The token must be one that ``Settings`` takes: :meth:`check` never sees any other.
        """
        if not own_token and self._store.has_tokens():
            return None
        token = own_token or secrets.token_urlsafe(24)
        label = "given at start" if own_token else "made at start"
        digest = hashlib.sha256(token.encode()).digest()
        if not self._store.token_known(digest):
            self._store.add_token(digest, label=label, at_s=int(self._clock()))
        return None if own_token else token

    def check(self, authorization: str | None) -> None:
        """Raise the problem ``unauthorised`` unless the header holds the token of an operator.

        Digests are compared, in constant time where they are known already; the store sees a digest
        only, so the time its search takes says nothing about a token.
        """
        scheme, _, rest = (authorization or "").partition(" ")
        token = rest.strip()
        if scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN:
            raise Problem("unauthorised", "this call needs the header Authorization: Bearer TOKEN")
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        now = self._clock()
        for admitted, since in self._admitted.items():
            if hmac.compare_digest(digest, admitted) and 0 <= now - since < KNOWN_S:
                return
        if not self._store.token_known(digest):
            raise Problem("unauthorised", "the token is not one of this service's operators")
        self._admitted = {**self._admitted, digest: now}

    def take_back(self, first: str) -> TokenRecord:
        """End the token whose SHA-256 begins with these hexadecimal digits, in running services too.

        They know it for at most :data:`KNOWN_S` more. Raises where it is not one token.
        """
        begins = first.lower()
        if not _DIGITS.fullmatch(begins):
            raise InvalidInput("a token must be named by 4 to 64 hexadecimal digits of its SHA-256")
        tokens = self._store.tokens()
        records = [token for token in tokens if token.digest.hex().startswith(begins)]
        if len(records) != 1:
            raise InvalidInput(
                "a token must be named by how its SHA-256 begins, and no other's; here "
                f"{len(records) or 'none'} of {len(tokens)} begin so"
            )
        self._store.take_back_token(records[0].digest)
        return records[0]
