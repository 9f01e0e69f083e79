"""Operations, and the document that describes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from geoveil import __version__
from geoveil.server.problem import BASE, MEDIA_TYPE, PROBLEMS, ProblemBody

if TYPE_CHECKING:
    from geoveil.server.service import Service


Handler = Callable[["Service", Request], Awaitable[Response]]
JSON = "application/json"


class Audience(Enum):
    """Who calls: decides about the token, other origins, and what is logged."""

    PARTICIPANT = "participant"
    """Open to everybody and to web pages of other origins."""
    PUBLIC = "public"
    """Open to everybody."""
    OPERATOR = "operator"
    """With an operator's token only; the only calls that are logged one by one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: what it means and what it holds, by media type."""

    description: str
    content: Mapping[str, Any] = field(default_factory=dict)
    """Media type → a type that msgspec knows, or a schema as a dictionary."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of the address or of the query."""

    name: str
    place: str
    """``path`` or ``query``."""
    schema: Mapping[str, Any]
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method at one address."""

    method: str
    path: str
    summary: str
    audience: Audience
    answers: Mapping[int, Answer]
    handler: Handler | None
    """``None`` for the upload of reports, which does not pass the router."""
    problems: tuple[str, ...] = ()
    """Names of the problems this operation alone can answer with; those of every operation come on top."""
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    """The type of the body, where it has one."""

    @property
    def name(self) -> str:
        """A name for programs: ``post-api-campaigns-campaign-reports``."""
        words = "".join(letter if letter.isalnum() else " " for letter in self.path)
        return "-".join([self.method.lower(), *words.split()])

    @property
    def every_problem(self) -> tuple[str, ...]:
        """All the problems that a caller may meet."""
        shared = ["too-many-requests", "storage-unavailable"]
        if self.audience is Audience.OPERATOR:
            shared.append("unauthorised")
        if self.body is not None:
            shared += ["malformed-body", "body-too-large", "unsupported-media-type"]
        return (*self.problems, *shared)


CAMPAIGN = Parameter("campaign", "path", {"type": "string"}, "Id of the campaign.")


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
    from geoveil.server.handlers import OPERATIONS

    types = _types(OPERATIONS)
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


def _types(operations: tuple[Operation, ...]) -> list[Any]:
    """Every type that stands somewhere, once."""
    found: list[Any] = [ProblemBody]
    for operation in operations:
        shapes = [
            shape for answer in operation.answers.values() for shape in answer.content.values()
        ]
        for shape in [operation.body, *shapes]:
            found += [each for each in _alternatives(shape) if each not in found]
    return found


def _alternatives(shape: Any) -> tuple[Any, ...]:
    """The types behind ``A | B``; none behind a schema that is written out."""
    if shape is None or isinstance(shape, dict):
        return ()
    return getattr(shape, "__args__", (shape,))


def _schema(shape: Any, written: dict[Any, Any]) -> Any:
    if isinstance(shape, dict):
        return shape
    several = [written[each] for each in _alternatives(shape)]
    return several[0] if len(several) == 1 else {"oneOf": several}


def _page(operation: Operation, written: dict[Any, Any]) -> dict[str, Any]:
    page: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(operation, written),
    }
    if operation.parameters:
        page["parameters"] = [
            {
                "name": each.name,
                "in": each.place,
                "required": each.place == "path",
                "schema": dict(each.schema),
                "description": each.description,
            }
            for each in operation.parameters
        ]
    if operation.body is not None:
        content = {JSON: {"schema": _schema(operation.body, written)}}
        page["requestBody"] = {"required": True, "content": content}
    if operation.audience is Audience.OPERATOR:
        page["security"] = [{"operator": []}]
    return page


def _responses(operation: Operation, written: dict[Any, Any]) -> dict[str, Any]:
    answers = {
        str(status): _answer(answer, written) for status, answer in operation.answers.items()
    }
    by_status: dict[int, list[str]] = {}
    for name in operation.every_problem:
        by_status.setdefault(PROBLEMS[name].status, []).append(name)
    for status, names in sorted(by_status.items()):
        content = {MEDIA_TYPE: {"schema": written[ProblemBody]}}
        listed = ", ".join(f"`{BASE}{name}`" for name in dict.fromkeys(names))
        answers[str(status)] = {"description": f"Problem: {listed}.", "content": content}
    return answers


def _answer(answer: Answer, written: dict[Any, Any]) -> dict[str, Any]:
    page: dict[str, Any] = {"description": answer.description}
    if answer.content:
        page["content"] = {
            kind: {"schema": _schema(shape, written)} for kind, shape in answer.content.items()
        }
    return page
