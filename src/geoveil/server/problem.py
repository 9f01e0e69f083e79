"""Errors as they leave the service: ``application/problem+json`` (RFC 9457), one shape, stable types.

Every producer of errors goes through here: routes raise :class:`Problem` or an error of
``geoveil.errors``, and :func:`problem_of` turns whatever was raised into one answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from geoveil.errors import GeoveilError
from geoveil.store.contract import Overloaded, StoreFailed

MEDIA_TYPE = "application/problem+json"
BASE = "https://geoveil.org/problems/"


@dataclass(frozen=True, slots=True)
class Kind:
    """A stable type of problem: its status, its title, and after how long to try again."""

    status: int
    title: str
    retry_after_s: int | None = None


PROBLEMS: Mapping[str, Kind] = {
    "malformed-body": Kind(400, "The request cannot be read as what it should be"),
    "unauthorised": Kind(401, "An operator's token is needed"),
    "not-found": Kind(404, "There is nothing at this address"),
    "unknown-campaign": Kind(404, "There is no such campaign"),
    "unknown-round": Kind(404, "The campaign has no such round"),
    "unknown-mechanism": Kind(404, "The campaign published no such mechanism"),
    "no-estimate-yet": Kind(404, "There is no estimate yet"),
    "method-not-allowed": Kind(405, "This address has no such method"),
    "not-acceptable": Kind(406, "None of the accepted formats is offered"),
    "campaign-exists": Kind(409, "A campaign with this id exists"),
    "round-too-small": Kind(409, "The round has too few reports to close"),
    "mechanism-not-yet-valid": Kind(409, "The mechanism is not valid yet"),
    "mechanism-expired": Kind(410, "The mechanism has expired; fetch the current one"),
    "body-too-large": Kind(413, "The body is too long"),
    "unsupported-media-type": Kind(415, "The body must be plain JSON"),
    "cell-out-of-range": Kind(422, "The mechanism has no such cell"),
    "invalid-campaign": Kind(422, "The campaign cannot be made from these settings"),
    "too-many-requests": Kind(429, "Too many requests from this network", retry_after_s=5),
    "internal": Kind(500, "A fault of the service"),
    "overloaded": Kind(503, "The service has more work than it can take", retry_after_s=1),
    "storage-unavailable": Kind(
        503, "The storage does not answer; nothing was kept", retry_after_s=2
    ),
}
"""Name of the problem → what it is."""


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON of an error."""

    type: str
    title: str
    status: int
    detail: str


class Problem(GeoveilError):
    """An answer that is an error: its name in :data:`PROBLEMS` and a sentence for this case.

    >>> Problem("unknown-campaign", "campaign (x) does not exist").body().status
    404
    """

    def __init__(
        self, name: str, detail: str = "", *, headers: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.kind = PROBLEMS[name]
        self.detail = detail or self.kind.title
        self.headers = dict(headers or {})
        super().__init__(self.detail)

    def body(self) -> ProblemBody:
        """What is sent, and what stands in the results of a batch."""
        return ProblemBody(BASE + self.name, self.kind.title, self.kind.status, self.detail)

    def response(self) -> Response:
        """The whole answer."""
        headers = {"cache-control": "no-store", **self.headers}
        if self.kind.retry_after_s is not None:
            headers.setdefault("retry-after", str(self.kind.retry_after_s))
        if self.kind.status == 401:
            headers["www-authenticate"] = 'Bearer realm="geoveil"'
        content = msgspec.json.encode(self.body())
        return Response(content, self.kind.status, headers, media_type=MEDIA_TYPE)


def problem_of(error: BaseException) -> Problem:
    """The problem behind anything that was raised; ``internal`` for what nobody foresaw."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreFailed):
        return Problem("storage-unavailable")
    if isinstance(error, Overloaded):
        return Problem("overloaded", str(error))
    if isinstance(error, HTTPException):
        return _of_router(error)
    name = next((name for kind, name in _named().items() if isinstance(error, kind)), None)
    return Problem("internal") if name is None else Problem(name, str(error))


def _of_router(error: HTTPException) -> Problem:
    name = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "malformed-body")
    return Problem(name, headers=error.headers)


def _named() -> Mapping[type[Any], str]:
    from geoveil.server.campaigns import (
        CampaignExists,
        NoEstimateYet,
        RoundTooSmall,
        UnknownCampaign,
        UnknownRound,
    )

    return {
        UnknownCampaign: "unknown-campaign",
        UnknownRound: "unknown-round",
        NoEstimateYet: "no-estimate-yet",
        RoundTooSmall: "round-too-small",
        CampaignExists: "campaign-exists",
    }
