"""What a ledger holds, and how it is read back: strictly, or not at all."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args

from geoveil.document.canonical import strict_json

VERSION = 1

_Kind = TypeVar("_Kind", "Page", "Charge")

State = Literal["charged", "drawn", "sent", "acknowledged", "refused"]
"""``charged``: paid for, and nothing drawn (a crash leaves it so, and the charge spent);
``drawn``: fixed, not sent yet; ``sent``: may have left, no answer yet; then what the collector said."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A report's cell and its centre in degrees."""

    cell: int
    lat: float
    lng: float


@dataclass(frozen=True, slots=True)
class Charge:
    """One report in the ledger: what it cost, and what was sent."""

    campaign: str
    round: int
    mechanism: str
    report: str
    epsilon_per_km: float
    state: State = "charged"
    cell: int | None = None
    """What was drawn; ``lat`` and ``lng`` are its centre."""
    lat: float | None = None
    lng: float | None = None
    problem: str = ""
    """Why the collector refused, where it did."""
    place: str = field(default="", repr=False)
    """Keyed hash of the true cell while its mechanism is the campaign's last; then empty."""

    def __post_init__(self) -> None:
        _require(_text(self.campaign, r"https?://\S+"), _text(self.mechanism, "[0-9a-f]{64}"))
        _require(_text(self.report, "[0-9a-f]{32}"), _text(self.place, "([0-9a-f]{64})?"))
        _require(_whole(self.round, 1), self.state in get_args(State), _text(self.problem, ".*"))
        _require(_number(self.epsilon_per_km), self.epsilon_per_km > 0)
        if self.state == "charged":
            _require(self.cell is None, self.lat is None, self.lng is None)
        else:
            _require(_whole(self.cell, 0), _number(self.lat), _number(self.lng))

    @property
    def drawn(self) -> Drawn:
        """What was drawn; ``ValueError`` where nothing was."""
        if self.cell is None or self.lat is None or self.lng is None:
            raise ValueError("nothing was drawn for this charge")
        return Drawn(self.cell, self.lat, self.lng)


@dataclass(frozen=True, slots=True)
class Page:
    """What a device knows of a campaign: its cells as first seen, and its last round."""

    space: str
    """SHA-256 of the space."""
    round: int
    mechanism: str
    secret: str = field(repr=False)
    """Key of ``Charge.place``; a new one for every mechanism."""

    def __post_init__(self) -> None:
        for value in (self.space, self.mechanism, self.secret):
            _require(_text(value, "[0-9a-f]{64}"))
        _require(_whole(self.round, 1))

    def place(self, cell: int) -> str:
        """The true cell under the key of this mechanism."""
        return hmac.new(bytes.fromhex(self.secret), cell.to_bytes(8, "big"), "sha256").hexdigest()


@dataclass(slots=True)
class Book:
    """The whole ledger. ``serial`` counts what must never be undone: charges and new rounds."""

    id: str
    serial: int = 0
    pages: dict[str, Page] = field(default_factory=dict)
    charges: list[Charge] = field(default_factory=list)

    @property
    def spent_per_km(self) -> float:
        """All that was ever charged; the sum is exact before it is rounded once."""
        return math.fsum(charge.epsilon_per_km for charge in self.charges)

    def remembered(self, campaign: str, cell: int) -> Charge | None:
        """The report already made from a true cell under the campaign's last mechanism."""
        page = self.pages[campaign]
        place = page.place(cell)
        found = (c for c in self.charges if c.mechanism == page.mechanism and c.place == place)
        return next((c for c in found if c.campaign == campaign and c.state != "charged"), None)

    def turn(self, campaign: str, page: Page) -> None:
        """A new page for a campaign; which cells its earlier reports came from is forgotten."""
        self.pages[campaign] = page
        self.charges = [
            replace(charge, place="") if charge.campaign == campaign else charge
            for charge in self.charges
        ]
        self.serial += 1

    def add(self, charge: Charge) -> None:
        """One more charge."""
        self.charges.append(charge)
        self.serial += 1

    def change(self, report: str, **changes: Any) -> Charge:
        """Another state for a report."""
        place = next(k for k, charge in enumerate(self.charges) if charge.report == report)
        self.charges[place] = replace(self.charges[place], **changes)
        return self.charges[place]

    def to_bytes(self) -> bytes:
        """The book as JSON with its own checksum."""
        return sealed(
            {
                "geoveil": VERSION,
                "kind": "ledger",
                "id": self.id,
                "serial": self.serial,
                "pages": {name: asdict(page) for name, page in self.pages.items()},
                "charges": [asdict(charge) for charge in self.charges],
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Book:
        """The book, or ``ValueError`` for anything that this program did not write."""
        values = unsealed(content, "ledger", "pages", "charges")
        pages, charges = values["pages"], values["charges"]
        _require(isinstance(pages, dict), isinstance(charges, list))
        book = cls(
            id=values["id"],
            serial=values["serial"],
            pages={name: _made(Page, page) for name, page in pages.items()},
            charges=[_made(Charge, charge) for charge in charges],
        )
        _require(len({charge.report for charge in book.charges}) == len(book.charges))
        _require(book.serial >= len(book.charges) + len(book.pages))
        return book


def sealed(values: Mapping[str, Any]) -> bytes:
    """JSON with the SHA-256 of all else in it: a torn, changed or half-edited file does not pass."""
    return _json({**values, "check": _check(values)})


def unsealed(content: bytes, kind: str, *names: str) -> dict[str, Any]:
    """What :func:`sealed` wrote, or ``ValueError``."""
    try:
        values = strict_json(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _require(isinstance(values, dict))
    check = values.pop("check", None)
    _require(set(values) == {"geoveil", "kind", "id", "serial", *names})
    _require(values["geoveil"] == VERSION, values["kind"] == kind, check == _check(values))
    _require(_text(values["id"], "[0-9a-f]{32}"), _whole(values["serial"], 0))
    return values


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def _check(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(_json(values)).hexdigest()


def _made(kind: Callable[..., _Kind], values: Any) -> _Kind:
    names = {part.name for part in fields(kind)}  # type: ignore[arg-type]
    _require(isinstance(values, dict))
    _require(set(values) == names)
    return kind(**values)


def _require(*conditions: bool) -> None:
    if not all(conditions):
        raise ValueError("not a ledger that this program wrote")


def _text(value: object, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _whole(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
