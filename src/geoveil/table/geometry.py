"""Columns of geometry, which are true places, and whether their numbers are degrees."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from geoveil.errors import InvalidFile

if TYPE_CHECKING:
    import pyarrow as pa

_EXTENSION = b"ARROW:extension:name"
_DEGREES = re.compile(
    r"\b(EPSG:+4326|(OGC:([\d.]*:)?)?CRS:?84)$|^GEOG[A-Z]*\[\"WGS[ _]?(19)?84[\" ]"
)
_PLAIN_NAMES = ("WGS 84", "WGS 84 (CRS84)")
_PRECISE = re.compile(r"\d[.,]\d\d")


def geometry_columns(schema: pa.Schema) -> list[str]:
    """The columns that hold geometry, by the metadata of GeoParquet or by an Arrow extension."""
    described = _described(schema.metadata)
    return [each.name for each in schema if each.name in described or _is_extension(each)]


def geo_metadata(stored: bytes | None) -> dict[str, Any]:
    """What GeoParquet says about its columns; empty where it says nothing that can be read."""
    try:
        geo = json.loads(stored or b"{}")
    except ValueError:
        return {}
    return geo if isinstance(geo, dict) else {}


def check_degrees(crs: Any, name: str) -> None:
    """Refuse coordinates that are not degrees of WGS84; no reference system means that they are.

    ``crs`` is PROJJSON, the ``crs`` member of GeoJSON, or text.

    >>> check_degrees({"id": {"authority": "EPSG", "code": 4326}}, "places.parquet")
    """
    if crs is None:
        return
    named = _crs_name(crs)
    if _DEGREES.search(named) or (named in _PLAIN_NAMES and crs["type"] == "GeographicCRS"):
        return
    shown = "one of its own" if not named or _PRECISE.search(named) else named[:60]
    raise InvalidFile(
        f"{name} must hold longitude and latitude in degrees (WGS84); its coordinate reference "
        f"system is {shown}; convert it to EPSG:4326"
    )


def _crs_name(crs: Any) -> str:
    """``AUTHORITY:CODE`` where there is one, else the name; empty where there is neither."""
    if isinstance(crs, str):
        return crs
    try:
        if "id" in crs:
            return f"{crs['id']['authority']}:{crs['id']['code']}"
        return str(crs["name"] if "name" in crs else crs["properties"]["name"])
    except (KeyError, TypeError):
        return ""


def _described(metadata: Any) -> set[str]:
    columns = geo_metadata((metadata or {}).get(b"geo")).get("columns")
    return set(columns) if isinstance(columns, dict) else set()


def _is_extension(field: pa.Field) -> bool:
    named = str(getattr(field.type, "extension_name", ""))
    stored = (field.metadata or {}).get(_EXTENSION, b"")
    return named.startswith("geoarrow.") or stored.startswith(b"geoarrow.")
