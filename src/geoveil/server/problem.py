"""Problems in one shape, bodies that are checked, and formats by what is asked for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from geoveil.errors import GeoveilError
from geoveil.store import Overloaded, StoreFailed

_NO_SUCH_WORD = re.compile(r"^Invalid enum value .* - at `\$\.(\w+)`$", re.DOTALL)
_NO_SUCH_ENTRY = re.compile(r"^Object contains unknown field `[^`]*`$")
"""What msgspec says of a word in an entry of the body, and of such an entry."""
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
    "ticket-needed": Kind(401, "A report to this campaign needs a ticket of its own"),
    "not-found": Kind(404, "There is nothing at this address"),
    "unknown-campaign": Kind(404, "There is no such campaign"),
    "unknown-invitation": Kind(404, "There is no such invitation"),
    "unknown-round": Kind(404, "The campaign has no such round"),
    "unknown-slot": Kind(404, "The campaign has no such slot"),
    "unknown-mechanism": Kind(404, "The campaign published no such mechanism"),
    "no-estimate-yet": Kind(404, "There is no estimate yet"),
    "method-not-allowed": Kind(405, "This address has no such method"),
    "not-acceptable": Kind(406, "None of the accepted formats is offered"),
    "campaign-exists": Kind(409, "A campaign with this id exists"),
    "campaign-paused": Kind(409, "The campaign is paused", retry_after_s=60),
    "campaign-preparing": Kind(409, "The mechanism is being made", retry_after_s=10),
    "invitation-used": Kind(409, "The invitation was used"),
    "area-fixed": Kind(409, "The campaign has reports, and keeps its area"),
    "round-too-small": Kind(409, "The round has too few reports to close"),
    "campaign-ended": Kind(410, "The campaign has ended"),
    "campaign-finished": Kind(410, "The campaign has had its last round"),
    "mechanism-expired": Kind(410, "The mechanism has expired; fetch the current one"),
    "body-too-large": Kind(413, "The body is too long"),
    "unsupported-media-type": Kind(415, "The body must be plain JSON"),
    "not-offered": Kind(422, "The campaign does not offer this"),
    "cell-out-of-range": Kind(422, "The mechanism has no such cell"),
    "slot-out-of-range": Kind(422, "The mechanism has no such slot"),
    "invalid-geojson": Kind(422, "The GeoJSON cannot be used"),
    "invalid-campaign": Kind(422, "The campaign cannot be made from these settings"),
    "too-many-requests": Kind(429, "Too many requests from this network", retry_after_s=5),
    "internal": Kind(500, "A fault of the service"),
    "overloaded": Kind(503, "The service has more work than it can take", retry_after_s=1),
    "storage-unavailable": Kind(
        503, "The storage does not answer; nothing is acknowledged", retry_after_s=2
    ),
}
"""Name of the problem → what it is."""


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON of an error."""

    type: str
    title: str
    status: int
    detail: str
    field: str = ""
    """Of ``invalid-campaign``: the setting that it is about, where it is about one."""


class Problem(GeoveilError):
    """An answer that is an error: its name in :data:`PROBLEMS` and a sentence for this case.

    >>> Problem("unknown-campaign", "campaign (x) does not exist").body().status
    404
    """

    def __init__(
        self,
        name: str,
        detail: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        field: str = "",
    ) -> None:
        self.name = name
        self.kind = PROBLEMS[name]
        self.detail = detail or self.kind.title
        self.headers = dict(headers or {})
        self.field = field
        super().__init__(self.detail)

    def body(self) -> ProblemBody:
        """The body of the answer; in a batch, the result of one report."""
        kind = self.kind
        return ProblemBody(BASE + self.name, kind.title, kind.status, self.detail, self.field)

    def response(self) -> Response:
        """The whole answer."""
        headers = {"cache-control": "no-store", **self.headers}
        if self.kind.retry_after_s is not None:
            headers.setdefault("retry-after", str(self.kind.retry_after_s))
        if self.kind.status == 401:
            headers.setdefault("www-authenticate", 'Bearer realm="geoveil"')
        content = msgspec.json.encode(self.body())
        return Response(content, self.kind.status, headers, media_type=MEDIA_TYPE)


class NewerSettings(GeoveilError):
    """What a newer program wrote of one campaign; it waits until that program is back."""

    def __init__(self, campaign: str) -> None:
        super().__init__(
            f"settings of campaign {campaign!r} must be those of this program; start the newer one again"
        )


def problem_of(error: BaseException) -> Problem:
    """The problem behind anything that was raised; ``internal`` for what nobody foresaw."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreFailed):
        return Problem("storage-unavailable")
    if isinstance(error, NewerSettings):
        return Problem("storage-unavailable", str(error))
    if isinstance(error, Overloaded):
        return Problem("overloaded", str(error))
    if isinstance(error, HTTPException):
        names = {404: "not-found", 405: "method-not-allowed"}
        return Problem(names.get(error.status_code, "malformed-body"), headers=error.headers)
    return Problem("internal")


# --- Reading the body of a request: limited in length and time before anything is decoded


_FORGIVEN = 8
"""How many times the limit is still read, and forgotten, so that the client gets to see the answer."""
CLOSE = {"connection": "close"}
JSON, GEOJSON = "application/json", "application/geo+json"
_JSON_TYPES = (JSON, GEOJSON, "application/x-www-form-urlencoded")
"""The last is what ``curl -d`` says of JSON."""


class ClientGone(Exception):
    """The client hung up before its request was complete: there is nobody to answer."""


ARRIVED = "geoveil.arrived"
"""In the scope of a request whose body has arrived as a whole: reading it takes no time."""


async def read_body(receive: Receive, limit_bytes: int, room: Callable[[int], None]) -> bytes:
    """The whole body; raises ``body-too-large``, or ``ClientGone``. ``room`` is asked for every piece."""
    pieces, length, more = bytearray(), 0, True
    while more and length <= _FORGIVEN * limit_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        length += len(piece)
        if length <= limit_bytes:
            room(len(piece))
            pieces += piece
        more = message.get("more_body", False)
    if length > limit_bytes:
        detail = f"the body must have at most {limit_bytes} bytes; send several requests"
        raise Problem("body-too-large", detail, headers=CLOSE)
    return bytes(pieces)


def check_media_type(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise ``unsupported-media-type`` unless the body says it is plain JSON, or says nothing.

    Compressed bodies are refused: a few bytes would become very many.
    """
    for name, value in headers:
        if name == b"content-type":
            kind = value.split(b";", 1)[0].strip().lower().decode("latin-1")
            if kind not in _JSON_TYPES:
                raise Problem(
                    "unsupported-media-type", "send the body as application/json", headers=CLOSE
                )
        elif name == b"content-encoding" and value.strip().lower() != b"identity":
            raise Problem("unsupported-media-type", "send the body uncompressed", headers=CLOSE)


def decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """The typed value in a JSON text; ``malformed-body`` says which entry is not as it should be."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Problem("malformed-body", f"{error}{_known(decoder.type, str(error))}") from None
    except (ValueError, RecursionError):
        raise Problem("malformed-body", "the body must be JSON in UTF-8") from None


def _known(kind: Any, said: str) -> str:
    """What is said behind the fault of a word, or of an entry, that the type does not have: which it has."""
    names: Iterable[str] = ()
    if word := _NO_SUCH_WORD.search(said):
        names = _words(get_type_hints(kind).get(word[1]))
    elif _NO_SUCH_ENTRY.search(said):
        names = kind.__struct_encode_fields__
    return f"; it must be one of {', '.join(names)}" if names else ""


def _words(kind: Any) -> list[str]:
    """The words that a type allows."""
    if get_origin(kind) is Literal:
        return [word for word in get_args(kind) if isinstance(word, str)]
    return [word for part in get_args(kind) for word in _words(part)]


# --- What a client accepts, and whether it has the answer already


VIEWS: Mapping[str, str] = {
    "json": JSON,
    "geojson": GEOJSON,
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
}
"""The forms of an estimate: endings and media types. JSON is as it is kept, the others are tables."""


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The offered media type that the header ``Accept`` likes best; the first on a tie.

    >>> preferred("text/csv;q=0.9, application/*;q=0.5", ["application/json", "text/csv"])
    'text/csv'
    >>> preferred("", ["application/json", "text/csv"])
    'application/json'
    """
    wishes = _qualities(accept)
    if not wishes:
        return offered[0]

    def quality_of(kind: str) -> float:
        """By the most specific range that names the type."""
        ranges = (kind, kind.partition("/")[0] + "/*", "*/*")
        return next((wishes[name] for name in ranges if name in wishes), 0.0)

    best = max(offered, key=quality_of)
    if quality_of(best) <= 0:
        raise Problem("not-acceptable", f"this address offers {', '.join(offered)}")
    return best


def _qualities(header: str) -> dict[str, float]:
    """What a header wishes for, each with its quality from 0 to 1; the best of what is named twice."""
    wishes: dict[str, float] = {}
    for part in header.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        try:
            wish = min(1.0, max(0.0, float(quality)))
        except ValueError:
            wish = 0.0
        if name:
            wishes[name] = max(wish, wishes.get(name, 0.0))
    return wishes


def holds(request: Request, tag: str) -> bool:
    """Whether the client names this ETag among those it holds."""
    tags = request.headers.get("if-none-match", "").split(",")
    return f'"{tag}"' in [other.strip().removeprefix("W/") for other in tags]


def holds_any(request: Request) -> bool:
    """Whether the client holds what there is, whatever it is: where there is something."""
    return request.headers.get("if-none-match", "").strip() == "*"


def takes_gzip(request: Request) -> bool:
    """Whether the client unpacks answers."""
    return _qualities(request.headers.get("accept-encoding", "")).get("gzip", 0.0) > 0.0


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
    tag = tag or hashlib.sha256(content).hexdigest()
    sent = {"etag": f'"{tag}"', "cache-control": cache, "vary": "Accept", **(headers or {})}
    if holds(request, tag) or holds_any(request):
        return Response(status_code=304, headers=sent)
    return Response(content, 200, sent, media_type=media_type)
