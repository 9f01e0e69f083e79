"""What a client accepts, and whether it has the answer already."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from geoveil.server.problem import Problem


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The offered media type that the header ``Accept`` likes best; the first on a tie.

    >>> preferred("text/csv;q=0.9, application/*;q=0.5", ["application/json", "text/csv"])
    'text/csv'
    >>> preferred("", ["application/json", "text/csv"])
    'application/json'
    """
    wishes = [_wish(part) for part in accept.split(",") if part.strip()]
    if not wishes:
        return offered[0]
    best = max(offered, key=lambda kind: _quality(kind, wishes))
    if _quality(best, wishes) <= 0:
        raise Problem("not-acceptable", f"this address offers {', '.join(offered)}")
    return best


def _wish(part: str) -> tuple[str, float]:
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return kind, min(1.0, max(0.0, float(quality)))
    except ValueError:
        return kind, 0.0


def _quality(kind: str, wishes: Sequence[tuple[str, float]]) -> float:
    """By the most specific range that names the type."""
    for pattern in (kind, kind.partition("/")[0] + "/*", "*/*"):
        found = [quality for wished, quality in wishes if wished == pattern]
        if found:
            return max(found)
    return 0.0


def tagged(
    request: Request,
    content: bytes,
    media_type: str,
    *,
    cache: str,
    tag: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The content with a strong ETag, or 304 where the client holds it already."""
    mark = f'"{tag or hashlib.sha256(content).hexdigest()}"'
    known = request.headers.get("if-none-match", "")
    sent = {"etag": mark, "cache-control": cache, "vary": "Accept", **(headers or {})}
    held = [each.strip().removeprefix("W/") for each in known.split(",")]
    if mark in held or known.strip() == "*":
        return Response(status_code=304, headers=sent)
    return Response(content, 200, sent, media_type=media_type)
