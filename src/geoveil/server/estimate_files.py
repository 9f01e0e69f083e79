"""An estimate as files: JSON as it is kept, GeoJSON, CSV and Parquet made from it; all of it or one slot."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any, Literal, NamedTuple

from geoveil.document.canonical import canonical_bytes
from geoveil.errors import GeoveilError
from geoveil.server.conclusion import read_body
from geoveil.server.maps_by_slot import read_maps
from geoveil.space import space_from_dict
from geoveil.table.reader import Format
from geoveil.table.results import Result, put_by_slot, put_result, result_from_dict

Slot = int | Literal["all"] | None
"""Which map: of one slot, of all of them one by one, or the one of all reports together."""


class NoSuchMap(GeoveilError):
    """The estimate has no map of this slot; ``known`` where the slot exists."""

    def __init__(self, sentence: str, *, known: bool) -> None:
        super().__init__(sentence)
        self.known = known


class View(NamedTuple):
    """A form of an estimate: its media type, and the kind of file; ``None`` for JSON as it is kept."""

    media_type: str
    kind: Format | None


VIEWS: Mapping[str, View] = {
    "json": View("application/json", None),
    "geojson": View("application/geo+json", Format.GEOJSON),
    "csv": View("text/csv", Format.CSV),
    "parquet": View("application/vnd.apache.parquet", Format.PARQUET),
}
"""By their endings."""


def rendered(ending: str, body: bytes, slots: bytes = b"", slot: Slot = None) -> bytes:
    """The estimate of a body, or of the slots kept beside it, as a file; :class:`NoSuchMap`."""
    kind = VIEWS[ending].kind
    if slot is None and kind is None:
        return body
    sink = BytesIO()
    values = read_body(body)
    if slot is None:
        assert kind is not None
        put_result(sink, kind, result_from_dict(values))
        return sink.getvalue()
    text = _checked(values, slots)
    maps = {each["slot"]: each for each in read_body(text)["maps"]}
    if slot == "all":
        if kind is None:
            return text
        put_by_slot(sink, kind, *_together(text, maps))
        return sink.getvalue()
    _check(values, maps, slot)
    one = _of_slot(values, maps[slot])
    if kind is None:
        return canonical_bytes(one)
    put_result(sink, kind, result_from_dict(one))
    return sink.getvalue()


def _checked(estimate: Mapping[str, Any], slots: bytes) -> bytes:
    """The text of the maps of slots, where there are any."""
    if "slots" not in estimate:
        late = "slots" in estimate["unfinished"]
        why = "there was no time to make maps of slots" if late else "the campaign has no slots"
        raise NoSuchMap(why, known=late)
    if not slots:
        raise NoSuchMap(estimate["slots"]["summary"], known=True)
    return read_maps(slots)


def _check(estimate: Mapping[str, Any], maps: Mapping[int, Any], slot: int) -> None:
    names, minimum = estimate["slots"]["names"], estimate["slots"]["minimum_reports"]
    if slot >= len(names):
        raise NoSuchMap(f"slot ({slot}) must be from 0 to {len(names) - 1}", known=False)
    if slot not in maps:
        raise NoSuchMap(
            f"slot {slot} ({names[slot]}) has fewer than {minimum} reports so far", known=True
        )


_OF_ALL = (
    "geoveil", "kind", "campaign", "round", "closed_at", "epsilon_per_km", "promises_per_km",
    "slack_nats", "space",
)  # fmt: skip


def _of_slot(estimate: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """The estimate of one slot, with the entries of that of all reports."""
    slots = estimate["slots"]
    one: dict[str, Any] = {name: estimate[name] for name in _OF_ALL if name in estimate}
    one |= {name: kept[name] for name in ("reports", "distribution", "steps", "stopped")}
    one["slot"] = {
        "number": kept["slot"],
        "name": kept["name"],
        "zone": slots["zone"],
        "every": slots["every"],
    }
    one["unfinished"] = [] if "low" in kept else ["error_bars"]
    if "low" in kept:
        one["standard_error"] = kept["standard_error"]
        interval = {name: kept[name] for name in ("low", "high", "method")}
        one["interval"] = {"level": estimate["interval"]["level"], **interval}
    return one


def _together(
    text: bytes, maps: Mapping[int, Mapping[str, Any]]
) -> tuple[dict[str, Result], dict[str, Any]]:
    """All maps by the names of their slots, and what is said about them."""
    values = read_body(text)
    space = space_from_dict(values["space"])
    found = {
        each["name"]: Result(space, *(_numbers(each[name]) for name in _COLUMNS if name in each))
        for each in maps.values()
    }
    about = {name: values[name] for name in ("campaign", "round", "slots", "interval_level")}
    return found, about


_COLUMNS = ("distribution", "standard_error", "low", "high")


def _numbers(values: list[float | None]) -> Any:
    import numpy as np

    return np.array([np.inf if value is None else value for value in values], dtype=np.float64)
