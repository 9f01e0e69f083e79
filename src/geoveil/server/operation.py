"""An operation of the service: one method at one address, described once.

From the same description come the route, the guard in front of it and its page in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

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
