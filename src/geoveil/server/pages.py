"""The pages that browsers get: built from ``web/``, read once, and sent under a strict policy."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from geoveil.server.problem import Problem, holds, preferred, takes_gzip

FOLDER = Path(__file__).resolve().parent / "page_files"
"""In wheels and source archives; in a clone ``make pages`` builds it."""
ASSETS = "assets/"
"""Files below it bear a hash of what they hold in their name, and never change."""
PARTICIPANT = "c/index.html"
HTML = "text/html"
_FOR_EVER = "public, max-age=31536000, immutable"
_SHORTEST = 512  # bytes; what is shorter is not worth packing
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": HTML}
_OWN = "'self'"
_PERMISSIONS = (
    "geolocation=(self), camera=(), microphone=(), display-capture=(), payment=(), usb=(), serial=(), "
    "midi=(), gyroscope=(), accelerometer=(), magnetometer=()"
)


def are_built() -> bool:
    """Whether there are pages at all; without them links answer JSON."""
    return (FOLDER / PARTICIPANT).is_file()


def policy(*, frames: str = "'none'", images: str = _OWN) -> str:
    """A content security policy: everything from this service, nothing inline; who may frame the page."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_OWN}",
            f"style-src {_OWN}",
            f"img-src {images}",
            f"connect-src {_OWN}",
            f"worker-src {_OWN}",
            "base-uri 'none'",
            "form-action 'none'",
            f"frame-ancestors {frames}",
        ]
    )


_PAGE = {
    "content-security-policy": policy(),
    "permissions-policy": _PERMISSIONS,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class _File:
    media_type: str
    plain: bytes
    tag: str

    @cached_property
    def packed(self) -> bytes | None:
        """By gzip, when it is first asked for; ``None`` where that makes it no shorter."""
        packed = gzip.compress(self.plain, 9, mtime=0) if len(self.plain) >= _SHORTEST else b""
        return packed if packed and len(packed) < len(self.plain) else None


class Pages:
    """Every built file by its path; empty where none were built, and then links answer JSON."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and (path.suffix in _TYPES or ASSETS in path.as_posix())
        }

    def suits(self, request: Request, page: str) -> bool:
        """Whether a page is there, and the client is a browser that would rather see it than JSON."""
        try:
            liked = preferred(request.headers.get("accept", ""), ["application/json", HTML])
        except Problem:  # neither
            return False
        return page in self._files and liked == HTML

    def page(
        self,
        request: Request,
        name: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """A page, asked for anew each time; ``headers`` where it may do other than the others."""
        file = self._files.get(name)
        if file is None:
            raise Problem("not-found")
        packed = file.packed if takes_gzip(request) else None
        tag = f"{file.tag}{'-gzip' if packed else ''}"
        sent = {"cache-control": "no-cache", **_PAGE, **(headers or {})}
        sent |= {"etag": f'"{tag}"', "vary": "Accept, Accept-Encoding"}
        if status != 200:  # or a cache would be told later that it still holds
            sent["cache-control"] = "no-store"
        elif holds(request, tag):
            return Response(status_code=304, headers=sent)
        if packed is not None:
            sent["content-encoding"] = "gzip"
        content = file.plain if packed is None else packed
        return Response(content, status, sent, media_type=file.media_type)

    def asset(self, request: Request, name: str) -> Response:
        """A file whose name says what it holds; a worker runs under the policy it comes with."""
        return self.page(request, ASSETS + name, headers={"cache-control": _FOR_EVER})


def _read(path: Path) -> _File:
    plain = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    tag = hashlib.sha256(plain).hexdigest()[:32]
    return _File(kind or "application/octet-stream", plain, tag)
