"""An estimate as files: JSON as it is kept, GeoJSON, CSV and Parquet made from it; all of it or one slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Literal, NamedTuple

import numpy as np

from geoveil.document.canonical import canonical_bytes
from geoveil.errors import GeoveilError, number_of
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
    estimate = read_body(body)
    if slot is None:
        return written(put_result, kind, result_from_dict(estimate))
    text = _checked(estimate, slots)
    kept = read_body(text)
    if slot == "all":
        return text if kind is None else written(put_by_slot, kind, *_together(kept))
    one = _of_slot(estimate, kept["maps"], slot)
    return (
        canonical_bytes(one) if kind is None else written(put_result, kind, result_from_dict(one))
    )


def written(put: Callable[..., None], *given: Any) -> bytes:
    """What a writer of tables puts into a file."""
    sink = BytesIO()
    put(sink, *given)
    return sink.getvalue()


def _checked(estimate: Mapping[str, Any], slots: bytes) -> bytes:
    """The text of the maps of slots, where there are any."""
    if "slots" not in estimate:
        late = "slots" in estimate.get("unfinished", ())  # estimates of version 1 had no parts
        why = "there was no time to make maps of slots" if late else "the campaign has no slots"
        raise NoSuchMap(why, known=late)
    if not slots:
        raise NoSuchMap(estimate["slots"]["summary"], known=True)
    return read_maps(slots)


_OF_ALL = (
    "geoveil", "kind", "campaign", "round", "closed_at", "epsilon_per_km", "promises_per_km",
    "slack_nats", "space",
)  # fmt: skip


def _of_slot(
    estimate: Mapping[str, Any], maps: Sequence[Mapping[str, Any]], slot: int
) -> dict[str, Any]:
    """The estimate of one slot, with the entries of that of all reports."""
    slots = estimate["slots"]
    names, minimum = slots["names"], slots["minimum_reports"]
    if slot >= len(names):
        raise NoSuchMap(f"slot ({slot}) must be from 0 to {len(names) - 1}", known=False)
    kept = next((each for each in maps if each["slot"] == slot), None)
    if kept is None:
        raise NoSuchMap(
            f"slot {slot} ({names[slot]}) has fewer than {number_of(minimum, 'report')} so far",
            known=True,
        )
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


def _together(kept: Mapping[str, Any]) -> tuple[dict[str, Result], dict[str, Any]]:
    """All maps by the names of their slots, and what is said about them."""
    space = space_from_dict(kept["space"])
    columns = ("distribution", "standard_error", "low", "high")
    found = {
        each["name"]: Result(space, *(_numbers(each[name]) for name in columns if name in each))
        for each in kept["maps"]
    }
    return found, {name: kept[name] for name in ("campaign", "round", "slots", "interval_level")}


def _numbers(values: list[float | None]) -> Any:
    return np.array([np.inf if value is None else value for value in values], dtype=np.float64)
