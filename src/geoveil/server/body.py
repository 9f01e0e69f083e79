"""Reading the body of a request: limited in length and time before anything is decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.types import Receive, Scope

from geoveil.server.problem import Problem

_FORGIVEN = 8
"""How many times the limit is still read, and forgotten, so that the client gets to see the answer."""
_CLOSE = {"connection": "close"}
_JSON_TYPES = ("application/json", "application/x-www-form-urlencoded")
"""The second is what ``curl -d`` says of JSON."""


class ClientGone(Exception):
    """The client hung up before its request was complete: there is nobody to answer."""


ARRIVED = "geoveil.arrived"
"""In the scope of a request whose body has arrived as a whole: reading it takes no time."""


async def read_body(scope: Scope, receive: Receive, *, limit_bytes: int, timeout_s: float) -> bytes:
    """The whole body; raises ``body-too-large``, ``malformed-body`` when too slow, or ``ClientGone``."""
    if ARRIVED in scope:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return _checked(message["body"], limit_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            return await _collected(receive, limit_bytes)
    except TimeoutError:
        detail = f"the body did not arrive within {timeout_s:g} s"
        raise Problem("malformed-body", detail, headers=_CLOSE) from None


def _checked(body: bytes, limit_bytes: int) -> bytes:
    if len(body) > limit_bytes:
        raise _too_large(limit_bytes)
    return body


async def _collected(receive: Receive, limit_bytes: int) -> bytes:
    pieces = bytearray()
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        length += len(piece)
        if length <= limit_bytes:
            pieces += piece
        if not message.get("more_body", False) or length > _FORGIVEN * limit_bytes:
            break
    if length > limit_bytes:
        raise _too_large(limit_bytes)
    return bytes(pieces)


def _too_large(limit_bytes: int) -> Problem:
    detail = f"the body must have at most {limit_bytes} bytes; send several requests"
    return Problem("body-too-large", detail, headers=_CLOSE)


def check_media_type(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise ``unsupported-media-type`` unless the body says it is plain JSON, or says nothing.

    Compressed bodies are refused: a few bytes would become very many.
    """
    for name, value in headers:
        if name == b"content-type":
            given = value.split(b";", 1)[0].strip().lower().decode("latin-1")
            if given not in _JSON_TYPES:
                raise Problem(
                    "unsupported-media-type", "send the body as application/json", headers=_CLOSE
                )
        elif name == b"content-encoding" and value.strip().lower() != b"identity":
            raise Problem("unsupported-media-type", "send the body uncompressed", headers=_CLOSE)


def decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """The typed value in a JSON text; ``malformed-body`` says which entry is not as it should be."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Problem("malformed-body", str(error)) from None
    except (ValueError, RecursionError):
        raise Problem("malformed-body", "the body must be JSON in UTF-8") from None
