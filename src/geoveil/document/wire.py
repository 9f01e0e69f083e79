"""The mechanism document: what a collector publishes, and what a device checks before it trusts it."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

from geoveil.arrays import IntArray
from geoveil.channel.channel import Channel
from geoveil.channel.guarantee import BetweenPositions
from geoveil.document import canonical
from geoveil.document.area import (
    Area,
    packed_integers,
    packed_weights,
    unpacked_integers,
    unpacked_weights,
)
from geoveil.document.slots import LATEST_S, Slots
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported
from geoveil.position.cone import ROUNDING_CELLS, RoundedCone
from geoveil.position.position_certificate import MOST_WORK
from geoveil.position.positional import FINEST, MOST_SLACK, STEEPEST_CELL, PositionalElastic
from geoveil.position.whole_law import WholeLaw
from geoveil.randomness import SYSTEM

VERSION = 2
KIND = "mechanism"
LEVELS = "levels"
"""The kind of all levels of a round together."""
LARGEST_BYTES = 1 << 18
"""No document is longer; one of 4,095 cells has about 66,000 bytes, one of 65,536 about 220,000."""
MOST_LEVELS = 8
LARGEST_ANSWER = MOST_LEVELS * LARGEST_BYTES + 1024
"""All levels of a campaign in one body."""

NAMED_PATTERN = "[a-z0-9][a-z0-9-]{0,79}"
"""Ids of campaigns that documents and links may name."""
ID_PATTERN = "^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
"""Those that a service gives: small letters, digits and hyphens, as in the name of a host."""
_FIELDS = {
    "geoveil", "kind", "campaign", "round", "level", "space", "step", "rim", "epsilon_per_km",
    "slack_nats", "beta_per_km", "weights", "kernel", "not_before", "expires",
}  # fmt: skip
_OPTIONAL = {"slots", "trips"}
_Made = TypeVar("_Made")


class RefusedDocument(InvalidFile):
    """A mechanism document that is not sound; ``reason`` is a stable word for programs."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(f"the mechanism document was refused: {sentence}")
        self.reason = reason


@dataclass(frozen=True, eq=False)
class MechanismDocument:
    """One level of one round as everybody receives it; its id is the SHA-256 of its canonical bytes.

    Whatever ``read`` returns is sound: sizes, whole numbers, the kernel of its β, and ε and η that hold
    between any two positions, as certified from the whole numbers.

    >>> import geoveil as gv
    >>> grid = gv.Grid.from_box(south=48.8, west=2.3, north=48.83, east=2.35, cell_km=0.5)
    >>> mechanism = gv.elastic(grid, epsilon_per_km=2.0, between="positions")
    >>> document = publish(mechanism, campaign="paris", round=1, not_before_s=0, expires_s=10)
    >>> MechanismDocument.read(document.served()).id == document.id
    True
    """

    campaign: str
    round: int
    level: int
    """Its number among the promises that the campaign offers, from 0; ε rises with it."""
    area: Area
    step: int
    """How many steps of the lattice of positions make a cell."""
    rim: int
    """1 where a ring of cells around the grid can be reported, numbered after the others; or 0."""
    promise: BetweenPositions
    law: WholeLaw
    not_before_s: int
    expires_s: int
    slots: Slots | None = None
    trips: bool = False
    """Whether a report names two places, where a trip began and where it ended."""

    @cached_property
    def id(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return canonical.document_id(self.to_dict())

    @cached_property
    def timeless_id(self) -> str:
        """The id of the same document in no round and at no time: what was certified once holds for all."""
        return replace(self, round=0, not_before_s=0, expires_s=0).id

    @cached_property
    def space_id(self) -> str:
        """The same of its cells alone, which all rounds of a campaign share."""
        return canonical.document_id(self.area.to_dict())

    @cached_property
    def cost(self) -> BetweenPositions:
        """What one report is charged: a trip, with two ends, twice the promise."""
        return self.promise * 2 if self.trips else self.promise

    @property
    def epsilon_per_km(self) -> float:
        """The promise."""
        return self.promise.epsilon_per_km

    @cached_property
    def mechanism(self) -> PositionalElastic:
        """The law as a channel, for whoever counts reports; it promises what the document says."""
        return self.channel(self.promise)

    def channel(self, promise: BetweenPositions | None) -> PositionalElastic:
        """The law as a channel, with a promise that was checked, or without: its loss is computed then."""
        return PositionalElastic.of_law(
            self.area.space(self.step), self.law, step=self.step, rim=self.rim, promise=promise
        )

    def to_dict(self) -> dict[str, Any]:
        """The document as plain JSON values, without its id."""
        optional: dict[str, Any] = {}
        if self.slots is not None:
            optional["slots"] = self.slots.to_dict()
        if self.trips:
            optional["trips"] = True
        return {
            "geoveil": VERSION,
            "kind": KIND,
            "campaign": self.campaign,
            "round": self.round,
            "level": self.level,
            "space": self.area.to_dict(),
            "step": self.step,
            "rim": self.rim,
            "epsilon_per_km": self.promise.epsilon_per_km,
            "slack_nats": self.promise.slack,
            "beta_per_km": self.law.cone.beta_per_km,
            "weights": (packed_weights if self.area.many else packed_integers)(self.law.weights),
            "kernel": packed_integers(self.law.table),
            "not_before": self.not_before_s,
            "expires": self.expires_s,
            **optional,
        }

    def to_bytes(self) -> bytes:
        """The canonical bytes, which the id is the hash of."""
        return canonical.canonical_bytes(self.to_dict())

    def served(self) -> bytes:
        """The canonical bytes with the id among them: what a collector answers."""
        return canonical.canonical_bytes({"id": self.id, **self.to_dict()})

    def check_promise(self) -> None:
        """:class:`RefusedDocument` unless the whole numbers keep the promise between any two positions."""
        keeps = self.law.keeps(self.promise)
        _require(keeps, "certificate", "its integers do not keep the promise it states")

    @classmethod
    def read(
        cls, source: bytes | Mapping[str, Any], *, certified: bool = False
    ) -> MechanismDocument:
        """The document, checked in every respect, or :class:`RefusedDocument` with the reason.

        ``certified`` leaves the certificate out, which takes longest: for a document that was checked
        before, or where :meth:`check_promise` is to come.
        """
        parsed = _parsed(source, LARGEST_BYTES) if isinstance(source, bytes) else source
        _require(isinstance(parsed, Mapping), "json", "it is not a JSON object")
        document = _document(dict(parsed))
        if not certified:
            document.check_promise()
        return document

    @classmethod
    def read_levels(cls, body: bytes, *, certified: bool = False) -> tuple[MechanismDocument, ...]:
        """All levels that a campaign offers, by number, from the body of one answer."""
        parsed = _parsed(body, LARGEST_ANSWER)
        _require(isinstance(parsed, Mapping), "json", "it is not a JSON object")
        if parsed.get("kind") == LEVELS:
            return cls.of_levels(parsed, certified=certified)
        _require(parsed.get("id") is not None, "id", "it does not carry its id")
        _require(len(body) <= LARGEST_BYTES, "size", f"it has more than {LARGEST_BYTES} bytes")
        return (cls.read(parsed, certified=certified),)

    @classmethod
    def of_levels(
        cls, parsed: Mapping[str, Any], *, certified: bool = False
    ) -> tuple[MechanismDocument, ...]:
        """All levels, by number, where they come together."""
        _require(set(parsed) == {"geoveil", "kind", "levels"}, "fields", "entries are unknown")
        stated = (type(parsed["geoveil"]), parsed["geoveil"])
        _require(stated == (int, VERSION), "version", f'it does not say "geoveil": {VERSION}')
        listed = parsed["levels"]
        several = isinstance(listed, list) and 2 <= len(listed) <= MOST_LEVELS
        _require(several, "levels", f"it does not hold 2 to {MOST_LEVELS} levels")
        for level in listed:
            _require(isinstance(level, Mapping), "json", "a level is not a JSON object")
            _require(level.get("id") is not None, "id", "a level does not carry its id")
            try:
                small = len(canonical.canonical_bytes(level)) <= LARGEST_BYTES
            except (ValueError, RecursionError):
                raise RefusedDocument("json", "a level has no canonical JSON") from None
            _require(small, "size", f"a level has more than {LARGEST_BYTES} bytes")
        levels = tuple(cls.read(level, certified=certified) for level in listed)
        _check_together(levels)
        return levels


def pack_levels(documents: Sequence[MechanismDocument]) -> bytes:
    """The documents of a round as a collector keeps them: its only level without id, or all in one body."""
    return documents[0].to_bytes() if len(documents) == 1 else served_levels(documents)


def unpack_levels(content: bytes, *, around: bool = False) -> tuple[MechanismDocument, ...]:
    """The documents that :func:`pack_levels` wrote; they were certified then.

    ``around`` says that people stand around the places of a list, which no document does.
    """
    if f'"kind":"{LEVELS}"'.encode() in content:
        documents = MechanismDocument.read_levels(content, certified=True)
    else:
        documents = (MechanismDocument.read(content, certified=True),)
    if not around:
        return documents
    return tuple(replace(level, area=replace(level.area, around=True)) for level in documents)


def served_levels(documents: Sequence[MechanismDocument]) -> bytes:
    """What a collector answers: its only level as it is, or all of them in one body."""
    if len(documents) == 1:
        return documents[0].served()
    levels = [{"id": document.id, **document.to_dict()} for document in documents]
    return canonical.canonical_bytes({"geoveil": VERSION, "kind": LEVELS, "levels": levels})


def tag_of(documents: Sequence[MechanismDocument]) -> str:
    """What tells one answer from another: the id of the only level, or a hash of all ids."""
    if len(documents) == 1:
        return documents[0].id
    return hashlib.sha256("".join(document.id for document in documents).encode()).hexdigest()


def publish(
    mechanism: Channel,
    *,
    campaign: str,
    round: int,
    not_before_s: int,
    expires_s: int,
    level: int = 0,
    slots: Slots | None = None,
    trips: bool = False,
) -> MechanismDocument:
    """A designed mechanism as a document, such as a ``Campaign``'s current one.

    Only a law of positions can be published: one between cells tells people apart who stand on either
    side of an edge. With ``trips`` a report names two places, each drawn by this law.
    """
    if not isinstance(mechanism, PositionalElastic):
        raise Unsupported(
            f"{type(mechanism).__name__} cannot be published: the promise of a document is between "
            "positions; design with between='positions'"
        )
    promise = mechanism.guarantee
    assert isinstance(promise, BetweenPositions)
    if mechanism.law.work > MOST_WORK:
        steep = promise.epsilon_per_km * mechanism.space.cell_km
        raise InvalidInput(
            f"cells ({mechanism.space.size:,}) must be fewer at ε × cell = {steep:.2g}: devices check a "
            "document before they use it, which would take them minutes; use larger cells or a smaller area"
        )
    document = MechanismDocument(
        campaign,
        round,
        level,
        Area.of_space(mechanism.space, mechanism.centres),
        mechanism.step,
        mechanism.rim,
        promise,
        mechanism.law,
        int(not_before_s),
        int(expires_s),
        slots,
        trips=trips,
    )
    checked = MechanismDocument.read(document.to_bytes(), certified=True)
    document.check_promise()
    return replace(checked, area=document.area, law=mechanism.law)


# --- Entries of a document that may come from anybody: each is checked, or refused by name


def _require(sound: bool, reason: str, sentence: str) -> None:
    if not sound:
        raise RefusedDocument(reason, sentence)


def _sound(reason: str, make: Callable[[], _Made]) -> _Made:
    """What ``make`` returns; what it cannot make is refused with its own sentence."""
    try:
        return make()
    except RefusedDocument:
        raise
    except (GeoveilError, TypeError, ValueError, ArithmeticError) as problem:
        raise RefusedDocument(reason, f"its {reason} is not sound: {problem}") from None


def _document(values: dict[str, Any]) -> MechanismDocument:
    """All that can be said of a document but whether its law keeps its promise."""
    claimed_id = values.pop("id", None)
    stated = (type(values.get("geoveil")), values.get("geoveil"), values.get("kind"))
    says = f'it does not say "geoveil": {VERSION}, "kind": "{KIND}"'
    if stated == (int, 1, KIND):
        says = "documents of version 1 promised between cells only, and no longer count"
    _require(stated == (int, VERSION, KIND), "version", says)
    _require(
        _FIELDS <= set(values) <= _FIELDS | _OPTIONAL, "fields", "entries are missing or unknown"
    )
    begins = _whole("not_before", values["not_before"], 0, LATEST_S)
    expires = _whole("expires", values["expires"], 0, LATEST_S)
    _require(begins < expires, "times", "it expires before it begins")
    _require(values.get("trips", True) is True, "trips", "trips is something else than true")
    slots, campaign = values.get("slots"), values["campaign"]
    area, law, promise = stated_law(values)
    named = isinstance(campaign, str) and re.fullmatch(NAMED_PATTERN, campaign) is not None
    _require(named, "campaign", "its campaign is not a name of a–z, 0–9 and hyphens")
    document = MechanismDocument(
        campaign=campaign,
        round=_whole("round", values["round"], 1, 1 << 31),
        level=_whole("level", values["level"], 0, MOST_LEVELS - 1),
        area=area,
        step=values["step"],
        rim=values["rim"],
        promise=promise,
        law=law,
        not_before_s=begins,
        expires_s=expires,
        slots=None if "slots" not in values else _sound("slots", lambda: Slots.from_dict(slots)),
        trips="trips" in values,
    )
    own = claimed_id is None or claimed_id == document.id
    _require(own, "id", "its id is not the SHA-256 of its canonical bytes")
    return document


def stated_law(values: Mapping[str, Any]) -> tuple[Area, WholeLaw, BetweenPositions]:
    """The law that a document states, and the promise that it may or may not keep."""
    area = _sound("space", lambda: Area.from_dict(values["space"]))
    epsilon = _number("epsilon_per_km", values["epsilon_per_km"])
    beta = _number("beta_per_km", values["beta_per_km"])
    slack = _number("slack_nats", values["slack_nats"])
    _require(slack <= MOST_SLACK, "slack_nats", f"its slack is above {MOST_SLACK} nats")
    steep = max(epsilon, beta / 2.0) * area.cell_km
    most = STEEPEST_CELL * (1.0 + 1e-9)
    _require(steep <= most, "steep", f"ε times the side of a cell is above {STEEPEST_CELL:g}")
    step = _whole("step", values["step"], 2, FINEST)
    _require(step % 2 == 0, "step", "step is not an even number")
    rim = _whole("rim", values["rim"], 0, 1)
    centres = _sound("space", lambda: area.centres(step=step, rim=rim))
    text = values["weights"]
    weights = _sound(
        "weights",
        lambda: unpacked_weights(text) if area.many else unpacked_integers("weights", text),
    )
    plain = WholeLaw(
        centres, _sound("weights", lambda: _one_each(weights, centres.size)),
        RoundedCone(beta, ROUNDING_CELLS * area.cell_km),
    )  # fmt: skip
    kernel = _sound("kernel", lambda: unpacked_integers("kernel", values["kernel"]))
    law = _sound("kernel", lambda: replace(plain, stated=kernel))
    return area, law, BetweenPositions(epsilon, slack)


def _one_each(weights: IntArray, size: int) -> IntArray:
    if weights.size != size or (weights < 1).any() or int(weights.sum()) >= 1 << 31:
        raise InvalidInput(
            f"weights must be {size} whole numbers from 1 that sum to less than 2^31"
        )
    return weights


def _check_together(levels: Sequence[MechanismDocument]) -> None:
    """Refuse levels that are not those of one round, one after another."""
    numbers = [level.level for level in levels]
    _require(numbers == list(range(len(levels))), "levels", "its levels are not numbered from 0")
    for one, other in pairwise(levels):
        same = all(
            getattr(one, name) == getattr(other, name)
            for name in ("campaign", "round", "slots", "trips", "not_before_s", "expires_s")
        )
        same = same and one.area.to_dict() == other.area.to_dict()
        _require(same, "levels", "its levels differ in more than the promise")
        rises = one.epsilon_per_km < other.epsilon_per_km
        _require(rises, "levels", "the ε of its levels does not rise")


def _parsed(content: bytes, most: int) -> Any:
    _require(len(content) <= most, "size", f"it has more than {most} bytes")
    try:
        return canonical.strict_json(content, doubles=True)
    except (ValueError, RecursionError):
        raise RefusedDocument("json", "it is not JSON in UTF-8, or names an entry twice") from None


def _whole(name: str, value: Any, least: int, most: int) -> int:
    whole = type(value) is int and least <= value <= most
    _require(whole, name, f"{name} is not a whole number from {least} to {most}")
    return value


def _number(name: str, value: Any) -> float:
    number = type(value) in (int, float) and 0 < value < 1e9
    _require(number, name, f"{name} is not a number above 0")
    return float(value)


def new_id(name: str) -> str:
    """An id for a campaign: its name as far as links can hold it, and six random characters.

    >>> new_id("Zürich — Tram!")[:12]
    'zurich-tram-'
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub("[^a-z0-9]+", "-", plain)[:40].strip("-") or "campaign"
    random = base64.b32encode(SYSTEM.bytes(5)).decode().lower()
    return f"{slug}-{random[:6]}"


def report_texts(document: MechanismDocument, cells: IntArray) -> list[bytes]:
    """Reports as JSON texts: ``cells`` that were drawn under ``document``, each with a random id."""
    head = b'{"mechanism":"%s","id":"' % document.id.encode()
    ids = SYSTEM.bytes(16 * cells.size).hex().encode()
    return [
        b'%s%s","cell":%d}' % (head, ids[32 * i : 32 * i + 32], cell)
        for i, cell in enumerate(cells.tolist())
    ]
