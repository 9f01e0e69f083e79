"""The interface: its operations, their bodies, and the document that describes both."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from geoveil import __version__
from geoveil.server.conclusion import PARTS
from geoveil.server.maps_by_slot import KIND
from geoveil.server.problem import BASE, JSON, MEDIA_TYPE, PROBLEMS, VIEWS, ProblemBody
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.store import State as Standing

if TYPE_CHECKING:
    from geoveil.server.app import Service


Handler = Callable[["Service", Request], Awaitable[Response]]


class Audience(Enum):
    """Who calls: decides about the token, other origins, and what is logged."""

    PARTICIPANT = "participant"
    """Open to everybody and to web pages of other origins."""
    PUBLIC = "public"
    """Open to everybody."""
    OPERATOR = "operator"
    """With an operator's token only; the only calls that are logged one by one."""


Content = Mapping[str, Any]
"""Media type → a type that msgspec knows, or a schema as a dictionary."""
Parameter = tuple[Mapping[str, Any], str]
"""The schema of a part of the address or of the query, and what it means."""
PATH: Mapping[str, Parameter] = {
    "campaign": ({"type": "string"}, "Id of the campaign."),
    "number": ({"type": "integer", "minimum": 1}, "Number of the round."),
    "file": ({"type": "string"}, "Name of a file of the pages."),
    "ending": ({"enum": list(VIEWS)}, "Format of the file."),
}
"""What may stand in an address."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method at one address."""

    method: str
    path: str
    summary: str
    audience: Audience
    handler: Handler | None
    """``None`` for the upload of reports, which does not pass the router."""
    answers: Mapping[int, tuple[str, Content]]
    """Status → what a successful answer means and what it holds."""
    problems: tuple[str, ...] = ()
    """Names of the problems this operation alone can answer with; see :attr:`every_problem`."""
    query: Mapping[str, Parameter] = field(default_factory=dict)
    body: Any = None
    """The type of the body, where it has one."""
    job: bool = False
    """Whether it may take long or much memory: only some are done at a time."""

    @property
    def every_problem(self) -> list[str]:
        """All the problems that a caller may meet."""
        names = ["unknown-campaign"] if "{campaign}" in self.path else []
        names += [*self.problems, "too-many-requests", "storage-unavailable"]
        if self.audience is Audience.OPERATOR:
            names.append("unauthorised")
        if self.job:
            names.append("overloaded")
        if self.body is not None:
            names += ["malformed-body", "body-too-large", "unsupported-media-type"]
        return names


# --- The bodies: types that decode and encode, and schemas of what is written elsewhere


class Created(msgspec.Struct, frozen=True):
    """A new campaign: its id and the link to share."""

    id: str
    link: str


class Listed(msgspec.Struct, frozen=True):
    """A campaign in the operator's list."""

    id: str
    name: str
    link: str
    created_at: int
    state: Standing | Literal["finished"]
    published: bool


class Campaigns(msgspec.Struct, frozen=True):
    """All campaigns, oldest first."""

    campaigns: list[Listed]


class Closed(msgspec.Struct, frozen=True):
    """A round that takes no further part; its estimate follows."""

    round: int
    status: Annotated[str, Meta(pattern="^closed$")]


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator changes about a campaign; what is left out stays as it is."""

    state: Annotated[
        Standing | None,
        Meta(description="Paused it takes no reports for now; ended none ever again."),
    ] = None
    name: Annotated[str | None, Meta(description="What people see.")] = None
    published: Annotated[
        bool | None,
        Meta(description="Whether everybody may see the map, on a page of its own and on others."),
    ] = None
    next_round_now: Annotated[
        bool, Meta(description="Open the next round now, without waiting for an estimate.")
    ] = False


class Totals(msgspec.Struct, frozen=True):
    """Reports counted: in this round and in all."""

    round: int
    all: int


class Made(msgspec.Struct, frozen=True):
    """The latest estimate."""

    round: int
    reports: int
    made_at: int


class Preparation(msgspec.Struct, frozen=True):
    """A round whose mechanism is being made, or the reason why it cannot be.

    ``needs_area``: its box has more cells than a mechanism is made for, and waits for city limits.
    """

    round: int
    problem: str | None
    needs_area: bool


class State(msgspec.Struct, frozen=True):
    """What everybody may know about a campaign. Times are seconds since 1970."""

    id: str
    name: str
    link: str
    state: str
    published: bool
    settings: CampaignSettings
    preparation: Preparation | None
    round: int
    mechanism: str | None
    ticket_key: str | None
    """Where a report needs a ticket, the key that tickets are signed with (RFC 9578), base64url."""
    around: bool
    """Of a list of places, whether people are taken to stand around each, in a cell, instead of at it."""
    expires: int | None
    reports_counted: Totals
    rounds_closed: int
    estimate: Made | None
    given_up: int | None
    """The newest round whose estimate was given up: every attempt failed, and no later round has one."""
    alarm: dict[str, Any] | None
    manipulation_gain: Any
    drift: Any
    choices: Any


class RoundOf(msgspec.Struct, frozen=True):
    """One round. Times are seconds since 1970."""

    round: int
    mechanism: str
    opened_at: int
    closed_at: int | None
    reports: int
    estimated: bool
    given_up: bool
    """Whether it gets no estimate, since every attempt at it failed."""


class Rounds(msgspec.Struct, frozen=True):
    """All rounds, and how many reports one needs to be released."""

    minimum_reports: int
    rounds: list[RoundOf]


class NoisyCounts(msgspec.Struct, frozen=True):
    """Reports by cell over the rounds of an estimate; those that lie beyond the map in ``outside``."""

    round: int
    rounds: list[int]
    counts: list[int]
    outside: int


class RegionShare(msgspec.Struct, frozen=True):
    """The share of the people in a region, which has of every cell the part that it covers.

    ``cells`` are all that it touches, and ``area_cells`` its area on the map, in cells; ``in_cut_cells`` is
    what of the share is in cells that it cuts, whose people are taken to stand evenly in them.
    """

    name: str
    cells: int
    share: float
    low: float
    high: float
    in_cut_cells: float
    area_cells: float


class Regions(msgspec.Struct, frozen=True):
    """Regions of one estimate, each with the interval of its own; who is in none of them, and in two."""

    round: int
    level: float
    regions: list[RegionShare]
    left_out: float
    counted_twice: float


class Ground(msgspec.Struct, frozen=True):
    """What lies under the maps of the pages: a tile server by its address, or nothing."""

    tiles: str | None
    attribution: str


class Health(msgspec.Struct, frozen=True):
    """Whether the service is well."""

    status: Annotated[str, Meta(pattern="^(ok|ready)$")]


Schema = dict[str, Any]
_TEXT, _LIST, _ANYTHING = {"type": "string"}, {"type": "array"}, {"type": "object"}
_WHOLE, _POSITIVE = {"type": "integer"}, {"type": "number", "exclusiveMinimum": 0}
_COUNT, _SHARES = _WHOLE | {"minimum": 1}, _LIST | {"items": {"type": "number", "minimum": 0}}
_BASE64 = _TEXT | {"contentEncoding": "base64"}


def _schema(title: str, description: str, required: str, **properties: Schema) -> Schema:
    """Of an object that is written elsewhere; ``required`` are names with spaces between."""
    said = {"type": "object", "title": title, "description": description}
    return {**said, "required": required.split(), "properties": properties}


GEOJSON_SCHEMA = _schema("GeoJSON", "RFC 7946: lines and areas, in degrees.", "type", type=_TEXT)
AREA_SCHEMA = {
    **GEOJSON_SCHEMA,
    "title": "DrawnArea",
    "description": "RFC 7946: areas, which are city limits, or points, which are places (2 to 4,096); in "
    "degrees. Points that all have an area_km2 are the middles of cells.",
}
MECHANISM_SCHEMA = _schema(
    "MechanismDocument",
    "The mechanism of a round, the same for everybody; its id is the SHA-256 of the rest.",
    "geoveil kind id campaign round level space step rim epsilon_per_km slack_nats beta_per_km weights "
    "kernel not_before expires",
    geoveil={"const": 2},
    kind={"const": "mechanism"},
    id=_TEXT | {"pattern": "^[0-9a-f]{64}$"},
    campaign=_TEXT,
    round=_COUNT,
    level=_WHOLE | {"minimum": 0},
    space=_ANYTHING,
    step=_WHOLE | {"minimum": 2},
    rim={"enum": [0, 1]},
    epsilon_per_km=_POSITIVE,
    slack_nats=_POSITIVE,
    beta_per_km=_POSITIVE,
    weights=_BASE64,
    kernel=_BASE64,
    not_before=_WHOLE,
    expires=_WHOLE,
    slots={
        "description": "Where reports name a slot: local times at which each begins.",
        "type": "object",
        "required": ["zone", "every", "names", "starts"],
    },
)
LEVELS_SCHEMA = _schema(
    "Levels",
    "The mechanisms of a round, one for each promise, the strongest first.",
    "geoveil kind levels",
    geoveil={"const": 2},
    kind={"const": "levels"},
    levels=_LIST | {"minItems": 2, "items": MECHANISM_SCHEMA},
)
OFFERED_SCHEMA = {"oneOf": [MECHANISM_SCHEMA, LEVELS_SCHEMA]}
ESTIMATE_SCHEMA = _schema(
    "Estimate",
    "The distribution over cells brought back from the reports, as of the close of a round.",
    "geoveil kind campaign round space reports distribution unfinished",
    kind={"const": "estimate"},
    campaign=_TEXT,
    round=_COUNT,
    reports=_COUNT,
    distribution=_SHARES,
    blocks={
        "description": "Errors and intervals of blocks of side × side cells, by rows from the south.",
        "type": "array",
    },
    unfinished={
        "description": "What was left out for want of time.",
        "type": "array",
        "items": {"enum": list(PARTS)},
    },
    rounds_left_out=_COUNT
    | {
        "description": "How many older rounds were left out for want of time; absent where none was."
    },
    alarm={
        "description": "Whether reports look like those of honest people; in `slots`, those of every slot.",
        "type": "object",
    },
    slots={
        "description": "Names and boundaries of slots, and the reports of those with a map of their own.",
        "type": "object",
    },
    slot={"description": "Where this is the map of one slot: which.", "type": "object"},
)
BY_SLOT_SCHEMA = _schema(
    "EstimatesBySlot",
    "The maps of all slots that have one, in their order, as of the close of a round.",
    "geoveil kind campaign round space slots interval_level maps",
    kind={"const": KIND},
    campaign=_TEXT,
    round=_COUNT,
    space=_ANYTHING,
    slots=_ANYTHING,
    interval_level={"type": "number"},
    maps=_LIST | {"items": {"required": ["slot", "name", "reports", "distribution"]}},
)
ESTIMATES_SCHEMA = {"oneOf": [ESTIMATE_SCHEMA, BY_SLOT_SCHEMA]}
FLOWS_SCHEMA = _schema(
    "Flows",
    "Shares of trips between districts, as of the close of a round. Districts are blocks of side × side "
    "cells, numbered by rows from the south-west; pairs follow each other by origin.",
    "geoveil kind campaign round space reports side share",
    kind={"const": "flows"},
    campaign=_TEXT,
    round=_COUNT,
    reports=_COUNT,
    side=_WHOLE | {"minimum": 2},
    columns=_COUNT,
    **dict.fromkeys(("share", "low", "high", "standard_error", "origins", "destinations"), _SHARES),
    stay_share={"type": "number"},
    stay_in_district_share={"type": "number"},
    stay_interval=_SHARES,
    unfinished=_LIST | {"items": {"enum": ["error_bars", "alarm"]}},
    alarm={"description": "Whether trips look like those of honest people.", "type": "object"},
)


# --- The OpenAPI document, built from the operations and the types that decode and encode


_REF = "#/components/schemas/{name}"
_DESCRIPTION = (
    "Collects noisy cells under a certified guarantee. A device fetches the mechanism of a campaign, "
    "draws a noisy cell from its own, and sends that; nothing else about a person arrives here."
)


@lru_cache(1)
def document_bytes() -> bytes:
    """The document as it is served."""
    return msgspec.json.encode(document())


def document() -> dict[str, Any]:
    """The whole document as plain values."""
    from geoveil.server.dashboard import OPERATIONS

    shapes = [ProblemBody]
    for operation in OPERATIONS:
        contents = [content for _, content in operation.answers.values()]
        shapes += [operation.body, *(shape for content in contents for shape in content.values())]
    types = list(dict.fromkeys(kind for shape in shapes for kind in _alternatives(shape)))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    written = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _page(operation, written)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Geoveil", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"operator": {"type": "http", "scheme": "bearer"}},
        },
    }


def _alternatives(shape: Any) -> tuple[Any, ...]:
    """The types behind ``A | B``; none behind a schema that is written out."""
    if shape is None or isinstance(shape, dict):
        return ()
    return getattr(shape, "__args__", (shape,))


def _described(description: str, content: Content, written: dict[Any, Any]) -> dict[str, Any]:
    """An answer or a body: its words, and its schema by media type."""
    schemas = {}
    for kind, shape in content.items():
        several = [written[kind] for kind in _alternatives(shape)]
        one_of = several[0] if len(several) == 1 else {"oneOf": several}
        schemas[kind] = {"schema": shape if isinstance(shape, dict) else one_of}
    return {"description": description, **({"content": schemas} if schemas else {})}


def _page(operation: Operation, written: dict[Any, Any]) -> dict[str, Any]:
    words = re.findall(r"[^\W_]+", operation.path)
    answers = {
        str(status): _described(*answer, written) for status, answer in operation.answers.items()
    }
    by_status: dict[int, list[str]] = {}
    for name in operation.every_problem:
        by_status.setdefault(PROBLEMS[name].status, []).append(f"`{BASE}{name}`")
    for status, names in sorted(by_status.items()):
        problems = f"Problem: {', '.join(dict.fromkeys(names))}."
        answers[str(status)] = _described(problems, {MEDIA_TYPE: ProblemBody}, written)
    page: dict[str, Any] = {
        "operationId": "-".join([operation.method.lower(), *words]),
        "summary": operation.summary,
        "responses": answers,
    }
    in_path = {name: PATH[name] for name in re.findall(r"{(\w+)}", operation.path)}
    parameters = [
        {
            "name": name,
            "in": place,
            "required": place == "path",
            "schema": dict(schema),
            "description": description,
        }
        for place, entries in (("path", in_path), ("query", operation.query))
        for name, (schema, description) in entries.items()
    ]
    if parameters:
        page["parameters"] = parameters
    if operation.body is not None:
        content = _described("", {JSON: operation.body}, written)["content"]
        page["requestBody"] = {"required": True, "content": content}
    if operation.audience is Audience.OPERATOR:
        page["security"] = [{"operator": []}]
    return page
