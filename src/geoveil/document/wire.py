"""The mechanism document: what a collector publishes, and what a device checks before it trusts it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from geoveil.arrays import IntArray
from geoveil.channel.certificate import promising
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.document import campaign_ids, canonical
from geoveil.document.exact import IntegerElastic
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.mechanism.elastic import Elastic
from geoveil.randomness import SYSTEM
from geoveil.space import MATRIX_LIMIT, Grid

VERSION = 1
KIND = "mechanism"
LARGEST_BYTES = 1 << 19
"""No document is longer; one of 4,096 cells has about 90,000 bytes."""

_LATEST_S = 1 << 40
_FIELDS = {
    "geoveil", "kind", "campaign", "round", "space", "epsilon_per_km", "beta_per_km", "weights",
    "kernel", "not_before", "expires",
}  # fmt: skip


class RefusedDocument(InvalidFile):
    """A mechanism document that is not sound; ``reason`` is a stable word for programs."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(f"the mechanism document was refused: {sentence}")
        self.reason = reason


@dataclass(frozen=True)
class MechanismDocument:
    """One round's mechanism as everybody receives it; its id is the SHA-256 of its canonical bytes.

    Whatever ``read`` returns is sound: sizes, whole numbers, and a certified ε within the claim.

    >>> import geoveil as gv
    >>> grid = gv.Grid.from_box(south=48.8, west=2.3, north=48.83, east=2.35, cell_km=0.5)
    >>> document = publish(
    ...     gv.elastic(grid, epsilon_per_km=2.0, between="cells"),
    ...     campaign="paris", round=1, not_before_s=0, expires_s=10
    ... )
    >>> MechanismDocument.read(document.served()).id == document.id
    True
    """

    campaign: str
    round: int
    mechanism: IntegerElastic
    beta_per_km: float
    """How fast the kernel falls at most, as stated."""
    not_before_s: int
    expires_s: int

    @cached_property
    def id(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return canonical.document_id(self.to_dict())

    @property
    def epsilon_per_km(self) -> float:
        """The promise."""
        return self.mechanism.guarantee.epsilon_per_km

    def to_dict(self) -> dict[str, Any]:
        """The document as plain JSON values, without its id."""
        return {
            "geoveil": VERSION,
            "kind": KIND,
            "campaign": self.campaign,
            "round": self.round,
            "space": self.mechanism.space.to_dict(),
            "beta_per_km": self.beta_per_km,
            **self.mechanism.parameters(),
            "not_before": self.not_before_s,
            "expires": self.expires_s,
        }

    def to_bytes(self) -> bytes:
        """The canonical bytes, which the id is the hash of."""
        return canonical.canonical_bytes(self.to_dict())

    def served(self) -> bytes:
        """The canonical bytes with the id among them: what a collector answers."""
        return canonical.canonical_bytes({"id": self.id, **self.to_dict()})

    @classmethod
    def read(cls, given: bytes | Mapping[str, Any]) -> MechanismDocument:
        """The document, checked in every respect, or :class:`RefusedDocument` with the reason."""
        parsed = _parsed(given) if isinstance(given, bytes) else given
        _require(isinstance(parsed, Mapping), "json", "it is not a JSON object")
        values = dict(parsed)
        claimed_id = values.pop("id", None)
        stated = (type(values.get("geoveil")), values.get("geoveil"), values.get("kind"))
        says = f'it does not say "geoveil": {VERSION}, "kind": "{KIND}"'
        _require(stated == (int, VERSION, KIND), "version", says)
        _require(set(values) == _FIELDS, "fields", "entries are missing or unknown")
        campaign = _campaign(values["campaign"])
        number = _whole("round", values["round"], 1, 1 << 31)
        law, promise = stated_law(values)
        beta = _number("beta_per_km", values["beta_per_km"])
        begins = _whole("not_before", values["not_before"], 0, _LATEST_S)
        expires = _whole("expires", values["expires"], 0, _LATEST_S)
        _require(begins < expires, "times", "it expires before it begins")
        steep_enough = beta >= law.beta_per_km * (1 - 1e-9)
        _require(steep_enough, "beta", "its kernel falls faster than the β it states")
        keeps = law.certified_epsilon_per_km <= promise.epsilon_per_km
        _require(keeps, "certificate", "its integers do not keep the promise it states")
        document = cls(campaign, number, promising(law, promise), beta, begins, expires)
        own = claimed_id is None or claimed_id == document.id
        _require(own, "id", "its id is not the SHA-256 of its canonical bytes")
        return document


def publish(
    mechanism: Elastic | IntegerElastic,
    *,
    campaign: str,
    round: int,
    not_before_s: int,
    expires_s: int,
    epsilon_per_km: float | None = None,
) -> MechanismDocument:
    """A designed mechanism as a document: whole numbers whose certified ε meets the promise.

    The promise is that of the mechanism, such as a ``Campaign``'s current one, unless stated; one in
    whole numbers already is published as it is.
    """
    if mechanism.space.size == 1:
        raise InvalidInput(
            "a mechanism of a single cell cannot be published: its reports tell nothing; "
            "choose smaller cells or a larger box"
        )
    exact = mechanism
    if not isinstance(exact, IntegerElastic):
        exact = IntegerElastic.of(exact, epsilon_per_km=epsilon_per_km)
    document = MechanismDocument(
        campaign, round, exact, exact.beta_per_km, int(not_before_s), int(expires_s)
    )
    return MechanismDocument.read(document.to_bytes())


# --- Entries of a document that may come from anybody: each is checked, or refused by name


def _require(sound: bool, reason: str, sentence: str) -> None:
    if not sound:
        raise RefusedDocument(reason, sentence)


def _parsed(given: bytes) -> Any:
    _require(len(given) <= LARGEST_BYTES, "size", f"it has more than {LARGEST_BYTES} bytes")
    try:
        return canonical.strict_json(given)
    except (ValueError, RecursionError):
        raise RefusedDocument("json", "it is not JSON in UTF-8, or names an entry twice") from None


def _campaign(value: Any) -> str:
    named = isinstance(value, str) and re.fullmatch(campaign_ids.NAMED_PATTERN, value) is not None
    _require(named, "campaign", "its campaign is not a name of a–z, 0–9 and hyphens")
    return value


def _whole(name: str, value: Any, least: int, most: int) -> int:
    whole = type(value) is int and least <= value <= most
    _require(whole, name, f"{name} is not a whole number from {least} to {most}")
    return value


def _number(name: str, value: Any) -> float:
    _require(
        type(value) in (int, float) and 0 < value < 1e9, name, f"{name} is not a number above 0"
    )
    return float(value)


def stated_law(values: Mapping[str, Any]) -> tuple[IntegerElastic, GeoIndistinguishability]:
    """The law that a document states, and the promise that it may or may not keep."""
    try:
        space = _space(values["space"])
        promise = GeoIndistinguishability(_number("epsilon_per_km", values["epsilon_per_km"]))
        kernel = _integers("kernel", values["kernel"], space.size)
        weights = _integers("weights", values["weights"], space.size)
        return IntegerElastic(space, kernel=kernel, weights=weights), promise
    except RefusedDocument:
        raise
    except (InvalidInput, OverflowError) as problem:
        raise RefusedDocument("integers", str(problem)) from None


def _space(value: Any) -> Grid:
    on_a_map = isinstance(value, Mapping) and value.get("box") is not None
    _require(on_a_map, "space", "its space is not a grid over a box")
    rows, columns = (_whole("space", value.get(n), 1, MATRIX_LIMIT) for n in ("rows", "columns"))
    few = rows * columns <= MATRIX_LIMIT
    _require(few, "space", f"its space has more than {MATRIX_LIMIT} cells")
    try:
        return Grid.from_dict(value)
    except (InvalidInput, TypeError, ValueError, ArithmeticError) as problem:
        raise RefusedDocument("space", f"its space is not sound: {problem}") from None


def _integers(name: str, values: Any, size: int) -> list[int]:
    one_each = isinstance(values, list) and len(values) == size
    _require(one_each, name, f"{name} does not hold one whole number per cell")
    whole = all(type(value) is int and 0 < value < 1 << 62 for value in values)
    _require(whole, name, f"{name} holds something else than whole numbers above 0")
    return values


def report_texts(document: MechanismDocument, cells: IntArray) -> list[bytes]:
    """Reports as JSON texts: ``cells`` that were drawn under ``document``, each with a random id."""
    head = b'{"mechanism":"%s","id":"' % document.id.encode()
    ids = SYSTEM.bytes(16 * cells.size).hex().encode()
    return [
        b'%s%s","cell":%d}' % (head, ids[32 * i : 32 * i + 32], cell)
        for i, cell in enumerate(cells.tolist())
    ]
