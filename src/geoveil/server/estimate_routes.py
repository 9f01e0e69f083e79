"""Estimates and flows: the latest and every earlier one; of all reports or of a slot; and as files."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from geoveil import __version__
from geoveil.document.canonical import canonical_bytes
from geoveil.document.slots import MOST_SLOTS
from geoveil.errors import MissingExtra, number_of
from geoveil.server import openapi as api
from geoveil.server.conclusion import VERSION, read_body
from geoveil.server.handlers import HELD, OPEN_TO_PAGES, OPERATIONS, everybody
from geoveil.server.maps_by_slot import read_maps
from geoveil.server.openapi import Handler
from geoveil.server.problem import JSON, VIEWS, Problem, holds, preferred, tagged
from geoveil.space import Grid, space_from_dict
from geoveil.store import Overloaded
from geoveil.table.district_tables import FlowTable, put_flows
from geoveil.table.reader import Format
from geoveil.table.results import Result, put_by_slot, put_result, result_from_dict
from geoveil.trips.flows import blocks, middles_km

if TYPE_CHECKING:
    from geoveil.server.app import Service

__all__ = ["OPERATIONS"]

Slot = int | Literal["all"] | None
"""Which map: of one slot, of all of them one by one, or the one of all reports together."""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SLOT = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_ASKED_EACH_TIME = "public, no-cache"
"""A round's file too: another campaign may have its id by now."""
FILE_S = 20.0
"""How long somebody waits at most for the files of others."""
REMEMBERED_BYTES = 16 << 20
"""Of files that were made; one that is longer is made each time."""
_ROUND = {"type": "integer", "minimum": 1, "maximum": 999_999_999}
_WHICH = {"oneOf": [{"type": "integer", "minimum": 0, "maximum": MOST_SLOTS - 1}, {"const": "all"}]}
QUERY: dict[str, api.Parameter] = {"round": (_ROUND, "Number of a round.")}
_OF_SLOT: dict[str, api.Parameter] = {
    "slot": (_WHICH, "The map of one slot, or of all of them one by one.")
}


def _in_all_forms(
    path: str,
    meaning: str,
    schema: Mapping[str, Any],
    problems: tuple[str, ...],
    query: Mapping[str, api.Parameter],
) -> Callable[[Handler], Handler]:
    """Enter a handler twice: its form by what the client accepts, and by the ending of the address."""
    contents = {kind: schema if kind == JSON else {} for kind in VIEWS.values()}

    def enter(handler: Handler) -> Handler:
        line = (handler.__doc__ or "").removesuffix(".")
        met = (*problems, "not-acceptable", "malformed-body")
        for ending, how, more in (
            ("", ", by Accept", ()),
            (".{ending}", " as a file", ("not-found",)),
        ):
            everybody(
                f"GET /api/campaigns/{{campaign}}/{path}{ending}",
                {200: (meaning, contents), 304: HELD},
                summary=line + how,
                problems=met + more,
                query=query,
            )(handler)
        return handler

    return enter


def asked_round(request: Request) -> int | None:
    """The round of ``?round=``; ``None`` for the latest."""
    asked = request.query_params.get("round")
    if asked is None:
        return None
    if not _NUMBER.fullmatch(asked):
        raise Problem("malformed-body", "round must be a whole number from 1")
    return int(asked)


def _asked_slot(request: Request) -> Slot:
    """The slot of ``?slot=``; ``None`` for the map of all reports."""
    asked = request.query_params.get("slot")
    if asked is None:
        return None
    if asked == "all":
        return "all"
    if not _SLOT.fullmatch(asked):
        raise Problem("malformed-body", "slot must be a whole number from 0, or all")
    return int(asked)


def asked_ending(request: Request) -> str:
    """The ending of the address, or what the client accepts."""
    ending: str | None = request.path_params.get("ending")
    if ending is None:
        offered = {kind: ending for ending, kind in VIEWS.items()}
        return offered[preferred(request.headers.get("accept", ""), list(offered))]
    if ending not in VIEWS:
        raise Problem("not-found", f"an estimate ends in .{', .'.join(VIEWS)}")
    return ending


@_in_all_forms(
    "estimate",
    "The estimate.",
    api.ESTIMATE_SCHEMA,
    ("unknown-round", "unknown-slot", "no-estimate-yet"),
    QUERY | _OF_SLOT,
)
async def latest(service: Service, request: Request) -> Response:
    """The latest estimate."""
    return await _estimate(service, request, asked_round(request))


@_in_all_forms(
    "rounds/{number}/estimate",
    "The estimate.",
    api.ESTIMATE_SCHEMA,
    ("unknown-round", "unknown-slot", "no-estimate-yet"),
    _OF_SLOT,
)
async def of_round(service: Service, request: Request) -> Response:
    """The estimate of a round."""
    asked = request.path_params["number"]
    if not _NUMBER.fullmatch(asked):
        raise Problem("unknown-round", "rounds are numbered from 1")
    return await _estimate(service, request, int(asked))


async def _estimate(service: Service, request: Request, number: int | None) -> Response:
    campaign, slot = service.campaign_id(request.path_params["campaign"]), _asked_slot(request)
    ending = asked_ending(request)
    record = await service.blocking(service.campaigns.estimate, campaign, number)
    slots = b""
    if slot is not None:
        slots = await service.blocking(service.store.slot_maps, campaign, record.round)
    part = "" if slot is None else f"-slot-{slot}"
    name = f"{campaign}-round-{record.round}{part}.{ending}"
    return await _exported(service, request, name, rendered, record.body, slots, slot)


@_in_all_forms(
    "flows",
    "The flows of a campaign of trips.",
    api.FLOWS_SCHEMA,
    ("unknown-round", "no-estimate-yet", "not-offered"),
    QUERY,
)
async def flows(service: Service, request: Request) -> Response:
    """The flows between districts."""
    number, ending = asked_round(request), asked_ending(request)
    campaign = service.campaign_id(request.path_params["campaign"])
    record = await service.blocking(service.campaigns.estimate, campaign, number)
    name = f"{campaign}-flows-round-{record.round}.{ending}"
    return await _exported(service, request, name, flow_file, record.body)


async def _exported(
    service: Service, request: Request, name: str, render: Callable[..., bytes], *given: Any
) -> Response:
    """A file of a campaign, not made again for who holds it; open to pages where published."""
    ending = name.rpartition(".")[2]
    tag = await service.working(_tag, name, *given)  # megabytes to hash, where others would wait
    try:
        held = holds(request, tag)
        content = b"" if held else await service.files.made(service, tag, render, ending, *given)
    except MissingExtra as error:
        raise Problem("not-acceptable", str(error)) from None
    headers = {"content-disposition": f'inline; filename="{name}"'}
    campaign = service.campaign_id(request.path_params["campaign"])
    if (await service.blocking(service.campaigns.state, campaign))["published"]:
        headers |= OPEN_TO_PAGES
    kind = VIEWS[ending]
    return tagged(request, content, kind, cache=_ASKED_EACH_TIME, tag=tag, headers=headers)


class Files:
    """Files for readers, whoever they are: made one at a time, and the last ones remembered.

    A file of the largest map takes seconds of a processor and hundreds of megabytes to make.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._made: OrderedDict[str, bytes] = OrderedDict()

    async def made(
        self, service: Service, tag: str, render: Callable[..., bytes], *given: Any
    ) -> bytes:
        """The file with this ETag; ``Overloaded`` where others have to wait for theirs too long."""
        if tag not in self._made:
            try:
                async with asyncio.timeout(FILE_S):
                    await self._turn.acquire()
            except TimeoutError:
                raise Overloaded("other files are being made; try again later") from None
            try:
                if tag not in self._made:
                    return self._remember(tag, await service.working(render, *given))
            finally:
                self._turn.release()
        self._made.move_to_end(tag)
        return self._made[tag]

    def _remember(self, tag: str, content: bytes) -> bytes:
        if len(content) <= REMEMBERED_BYTES:
            self._made[tag] = content
            while sum(map(len, self._made.values())) > REMEMBERED_BYTES:
                self._made.popitem(last=False)
        return content


def _tag(name: str, *given: Any) -> str:
    """The ETag of a file, from its name, what it is made of and the program that makes it."""
    made_of = (name, __version__, *given)
    parts = (each if isinstance(each, bytes) else str(each).encode() for each in made_of)
    return hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in parts)).hexdigest()


# --- An estimate as a file, all of it or one slot: JSON as it is kept, other forms made from it


def rendered(ending: str, body: bytes, slots: bytes = b"", slot: Slot = None) -> bytes:
    """The estimate of a body, or of the slots kept beside it, as a file; a problem where it has none."""
    if slot is None and ending == "json":
        return body
    estimate = read_body(body)
    if slot is None:
        return _written(ending, put_result, result_from_dict(estimate))
    text = _checked(estimate, slots)
    kept = read_body(text)
    if slot == "all":
        return text if ending == "json" else _written(ending, put_by_slot, *_together(kept))
    one = _of_slot(estimate, kept["maps"], slot)
    if ending == "json":
        return canonical_bytes(one)
    return _written(ending, put_result, result_from_dict(one))


def _written(ending: str, put: Callable[..., None], *given: Any) -> bytes:
    """What a writer of tables puts into a file of this kind."""
    sink = BytesIO()
    put(sink, Format(ending), *given)
    return sink.getvalue()


def _checked(estimate: Mapping[str, Any], slots: bytes) -> bytes:
    """The text of the maps of slots, where there are any."""
    if "slots" not in estimate:
        if "slots" in estimate.get("unfinished", ()):  # estimates of version 1 had no parts
            raise Problem("no-estimate-yet", "there was no time to make maps of slots")
        raise Problem("unknown-slot", "the campaign has no slots")
    if not slots:
        raise Problem("no-estimate-yet", estimate["slots"]["summary"])
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
        raise Problem("unknown-slot", f"slot ({slot}) must be from 0 to {len(names) - 1}")
    kept = next((each for each in maps if each["slot"] == slot), None)
    if kept is None:
        few = f"has fewer than {number_of(minimum, 'report')} so far"
        raise Problem("no-estimate-yet", f"slot {slot} ({names[slot]}) {few}")
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


# --- Flows as files


def flows_of(body: bytes) -> dict[str, Any]:
    """The flows of an estimate with what stands about them; ``not-offered`` where it has none."""
    estimate = read_body(body)
    if "flows" not in estimate:
        raise Problem("not-offered", "the campaign does not collect trips, so it has no flows")
    names = ("campaign", "round", "closed_at", "epsilon_per_km", "space", "reports", "unfinished")
    about = {name: estimate[name] for name in names}
    return {"geoveil": VERSION, "kind": "flows", **about, **estimate["flows"]}


def table_of(values: Mapping[str, Any]) -> FlowTable:
    """The flows between districts as a table; districts are numbered from the south-west, row by row."""
    grid = space_from_dict(values["space"])
    assert isinstance(grid, Grid)
    number = blocks(grid, values["side"])
    size = int(number.max()) + 1
    middles = middles_km(grid, np.eye(size)[number])
    bars = {
        name: np.array(values[name]).reshape(size, size)
        for name in ("share", "standard_error", "low", "high")
        if name in values
    }
    described = ("campaign", "round", "closed_at", "epsilon_per_km", "space", "unfinished", "side",
                 "stay_share", "stay_in_district_share", "stay_interval", "level", "method")  # fmt: skip
    return FlowTable(
        tuple(map(str, range(size))),
        latlng=np.stack(grid.plane.to_latlng(middles), axis=1),
        description={
            "trips": values["reports"],
            **{name: values[name] for name in described if name in values},
        },
        **bars,
    )


def flow_file(ending: str, body: bytes) -> bytes:
    """The bytes of a file of flows, by its ending."""
    values = flows_of(body)
    if ending == "json":
        return canonical_bytes(values)
    return _written(ending, put_flows, table_of(values))
