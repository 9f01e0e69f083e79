"""Canonical JSON (RFC 8785): one text for one document, the same bytes in every language."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from geoveil.errors import InvalidFile, InvalidInput

_LARGEST = 2**53
"""Beyond, JSON numbers are not whole everywhere."""


def canonical_bytes(values: Mapping[str, Any]) -> bytes:
    """The one JSON text of a document: sorted keys, no spaces, numbers as ECMAScript prints them.

    >>> canonical_bytes({"b": 2.0, "a": [1e-7, 0.00001, "é"]}).decode()
    '{"a":[1e-7,0.00001,"é"],"b":2}'
    """
    return _json(values).encode()


def document_id(values: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical bytes, in hexadecimal."""
    return hashlib.sha256(canonical_bytes(values)).hexdigest()


def strict_json(content: bytes, *, doubles: bool = False) -> Any:
    """The value of a JSON text in UTF-8 that names no entry twice; a ``ValueError`` for any other text.

    With ``doubles`` numbers are what ECMAScript takes them for, however they are written.

    >>> strict_json(b"[1.0, 1e999, 0.5]", doubles=True)
    [1, inf, 0.5]
    """
    numbers: dict[str, Any] = {"parse_int": _double, "parse_float": _double} if doubles else {}
    text = content.decode("utf-8")
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=named_once, **numbers)


def file_json(content: bytes, otherwise: str, *, doubles: bool = False) -> Any:
    """The same for the content of a file; ``InvalidFile`` with the words ``otherwise`` for any other text."""
    try:
        return strict_json(content, doubles=doubles)
    except (ValueError, RecursionError):
        raise InvalidFile(otherwise) from None


def _double(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= _LARGEST else value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these entries; a ``ValueError`` where one is named twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("an entry is named twice")
    return values


def _json(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return _whole([int(value)])
    if isinstance(value, float):
        return number(float(value))
    if isinstance(value, list | tuple):
        whole = set(map(type, value)) == {int}  # thousands of kernel values and weights
        return f"[{_whole(value) if whole else ','.join(map(_json, value))}]"
    if isinstance(value, Mapping):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return f"{{{','.join(f'{_json(key)}:{_json(value[key])}' for key in keys)}}}"
    raise InvalidInput(f"a JSON document must hold plain values, not a {type(value).__name__}")


def _whole(values: Sequence[int]) -> str:
    if min(values) < -_LARGEST or max(values) > _LARGEST:
        raise InvalidInput(f"a JSON document must hold whole numbers within ±{_LARGEST}")
    return ",".join(map(str, values))


def number(value: float) -> str:
    """A float as ECMAScript writes it: the fewest digits that read back the same.

    >>> [number(x) for x in (2.0, -0.0, 0.1 + 0.2, 1e21, 1.5e-9, 123456789012345680000.0)]
    ['2', '0', '0.30000000000000004', '1e+21', '1.5e-9', '123456789012345680000']
    """
    if not math.isfinite(value):
        raise InvalidInput("a JSON document must hold finite numbers only")
    if value == 0:
        return "0"
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    padded = (whole + fraction).rstrip("0")
    digits = padded.lstrip("0")
    point -= len(padded) - len(digits)  # the decimal point comes after so many of the digits
    sign = "-" if value < 0 else ""
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def json_number(value: float | None) -> float | str | None:
    """A number for machines: JSON has no infinity, a word stands for it."""
    if value is None or math.isfinite(value):
        return value
    return "infinite" if value > 0 else "-infinite"
