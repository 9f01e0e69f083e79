"""Reading a space back from plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geoveil.errors import InvalidFile


def kind_of(values: object) -> str:
    """The kind a document says it is; empty where it says nothing."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    return kind if isinstance(kind, str) else ""


def entries(values: Mapping[str, Any], kind: str, *names: str) -> list[Any]:
    """The values under ``names``; a document of another kind, with gaps or extras, is refused."""
    if kind_of(values) != kind:
        raise InvalidFile(f'the document must describe a space of kind "{kind}"')
    if set(values) != {"kind", *names}:
        listed = ", ".join(("kind", *names))
        raise InvalidFile(f'a document of kind "{kind}" must have exactly the entries {listed}')
    return [values[name] for name in names]
