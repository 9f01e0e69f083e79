"""Files of maps and flows: made one at a time, remembered, and lent to their readers piece by piece."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from geoveil import __version__
from geoveil.document.canonical import canonical_bytes
from geoveil.errors import MissingExtra, number_of
from geoveil.server.apart import Calculator, in_turn
from geoveil.server.conclusion import VERSION, read_body
from geoveil.server.connections import MOST_UNREAD_BYTES, MOST_UNREAD_BYTES_A_NETWORK
from geoveil.server.maps_by_slot import read_maps
from geoveil.server.problem import Problem
from geoveil.server.recent import Recent
from geoveil.space import Grid, space_from_dict
from geoveil.table.district_tables import FlowTable, put_flows
from geoveil.table.reader import Format
from geoveil.table.results import Result, put_by_slot, put_result, result_from_dict
from geoveil.trips.flows import blocks, middles_km

if TYPE_CHECKING:
    from starlette.types import Scope

    from geoveil.server.app import Service

Slot = int | Literal["all"] | None
"""Which map: of one slot, of all of them one by one, or the one of all reports together."""
FILE_S = 20.0
"""How long somebody waits at most for the files of others."""
TABLE_S = 120.0
"""How long a table may take; the processor may have other work."""
APART_BYTES = 1 << 20
"""A table made of more is made in a process of its own, whose memory is free again when it ends."""
REMEMBERED_BYTES = 16 << 20
"""Limit on all files that are remembered, packed; a longer one is made each time."""
_PIECE_BYTES = 16_384
_GZIP, _EFFORT = 31, 1
"""How zlib packs: with the head of gzip, in a tenth of the time that it takes to make the file."""
_ON_ITS_WAY_BYTES = 131_072
"""At most so much of a file is on its way to one reader."""


class MadeOf(NamedTuple):
    """What a file is made of: megabytes, which nobody holds while they wait for others."""

    name: str
    round: int
    arguments: tuple[Any, ...]


Read = Callable[[int | None], MadeOf]
"""What the file of a round, or of the latest one, is made of."""
Render = Callable[..., bytes]
Packed = tuple[bytes, int]
"""A file, packed, and how long it is unpacked."""


def head_of(read: Read, number: int | None) -> tuple[str, int, str]:
    """Name, round and ETag of a file."""
    source = read(number)
    return source.name, source.round, _tag(source.name, *source.arguments)


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is remembered and lent to its readers: packed, the largest map is a fifth as long."""

    tag: str
    """ETag of what it was really made of: somebody may have made the campaign anew meanwhile."""
    packed: bytes
    size: int
    """Length in bytes, unpacked."""

    async def pieces(self, *, packed: bool) -> AsyncIterator[bytes]:
        """The file piece by piece, packed as it is or unpacked on the way."""
        unpacking = None if packed else zlib.decompressobj(_GZIP)
        for start in range(0, len(self.packed), _PIECE_BYTES):
            piece = self.packed[start : start + _PIECE_BYTES]
            yield piece if unpacking is None else unpacking.decompress(piece)
            await asyncio.sleep(0)  # or a quick reader would keep all others waiting


def _new_file(render: Render, read: Read, number: int, apart: Calculator) -> _File:
    source = read(number)
    ending, tag = source.name.rpartition(".")[2], _tag(source.name, *source.arguments)
    size = sum(len(argument) for argument in source.arguments if isinstance(argument, bytes))
    if ending == "json" or size <= APART_BYTES:
        return _File(tag, *_pack(render, ending, source.arguments))
    outcome = apart.answer(TABLE_S, _pack_apart, render, ending, source.arguments)
    if isinstance(outcome, Problem):
        raise outcome
    return _File(tag, *outcome)


def _pack(render: Render, ending: str, arguments: tuple[Any, ...]) -> Packed:
    content = render(ending, *arguments)
    return zlib.compress(content, _EFFORT, _GZIP), len(content)


def _pack_apart(
    send: Callable[[Any], None], render: Render, ending: str, arguments: tuple[Any, ...]
) -> Packed | Problem:
    try:
        return _pack(render, ending, arguments)
    except Problem as problem:
        return problem
    except MissingExtra as error:
        return Problem("not-acceptable", str(error))


class Files:
    """Files for readers, whoever they are: made one at a time, and the last ones remembered.

    A table of the largest map takes seconds of a processor and hundreds of megabytes to make, in a process
    ``apart``; JSON, which is kept as it is, waits for no table.
    """

    def __init__(self) -> None:
        self.apart = Calculator(lasting=False)
        self._tables = asyncio.Lock()
        self._texts = asyncio.Lock()
        self._files = Recent[_File](REMEMBERED_BYTES)
        self._readers: Counter[tuple[bytes | None, str, int]] = Counter()
        """By network, ETag and length of what they read: a file is in memory once for all of them."""

    async def file(
        self,
        service: Service,
        scope: Scope,
        tag: str,
        render: Render,
        read: Read,
        number: int,
        *,
        text: bool,
    ) -> _File:
        """The file with this ETag; ``Overloaded`` where others have to wait for theirs too long."""
        file = self._files.get(tag)
        if file is None:
            with service.waiting(scope):
                async with in_turn(self._texts if text else self._tables, FILE_S):
                    file = self._files.get(tag)
                    if file is None:
                        file = await service.working(_new_file, render, read, number, self.apart)
                        self._files.keep(file.tag, file, len(file.packed))
        return file

    def lend(self, network: bytes | None, tag: str, size: int) -> bool:
        """Count one more reader of a file; ``False`` where too much is being read, in all or by a network."""
        mine = {loan: readers for loan, readers in self._readers.items() if loan[0] == network}
        if not _fits(self._readers, tag, size, MOST_UNREAD_BYTES) or not (
            network is None or not mine or _fits(mine, tag, size, MOST_UNREAD_BYTES_A_NETWORK)
        ):
            return False
        self._readers[network, tag, size] += 1
        return True

    def give_back(self, network: bytes | None, tag: str, size: int) -> None:
        """A reader has read a file, or reads no longer."""
        self._readers[network, tag, size] -= 1
        self._readers += Counter()  # without those that nobody reads


def _fits(
    readers: Mapping[tuple[bytes | None, str, int], int], tag: str, size: int, most_bytes: int
) -> bool:
    """Whether one more may read a file: all different files, and what is on its way to each reader."""
    files = {tag: size} | {named: length for _, named, length in readers}
    on_its_way = (sum(readers.values()) + 1) * _ON_ITS_WAY_BYTES
    return sum(files.values()) + on_its_way <= most_bytes


def _tag(name: str, *arguments: Any) -> str:
    """The ETag of a file, from its name, what it is made of and the program that makes it."""
    made_of = (name, __version__, *arguments)
    parts = (part if isinstance(part, bytes) else str(part).encode() for part in made_of)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


# --- An estimate as a file, all of it or one slot: JSON as it is kept, other forms made from it


def rendered(ending: str, body: bytes, slots: bytes = b"", slot: Slot = None) -> bytes:
    """The estimate of a body, or of the slots kept beside it, as a file; a problem where it has none."""
    if slot is None and ending == "json":
        return body
    estimate = read_body(body)
    if slot is None:
        return _written(ending, put_result, result_from_dict(estimate))
    text = _checked(estimate, slots)
    by_slot = read_body(text)
    if slot == "all":
        return text if ending == "json" else _written(ending, put_by_slot, *_together(by_slot))
    one = _of_slot(estimate, by_slot["maps"], slot)
    if ending == "json":
        return canonical_bytes(one)
    return _written(ending, put_result, result_from_dict(one))


def _written(ending: str, put: Callable[..., None], *arguments: Any) -> bytes:
    """What a writer of tables puts into a file of this kind."""
    sink = BytesIO()
    put(sink, Format(ending), *arguments)
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
    """The estimate of one slot, with the same entries as the estimate of all reports."""
    slots = estimate["slots"]
    names, minimum = slots["names"], slots["minimum_reports"]
    if slot >= len(names):
        raise Problem("unknown-slot", f"slot ({slot}) must be from 0 to {len(names) - 1}")
    entry = next((entry for entry in maps if entry["slot"] == slot), None)
    if entry is None:
        few = f"has fewer than {number_of(minimum, 'report')} so far"
        raise Problem("no-estimate-yet", f"slot {slot} ({names[slot]}) {few}")
    one: dict[str, Any] = {name: estimate[name] for name in _OF_ALL if name in estimate}
    one |= {name: entry[name] for name in ("reports", "distribution", "steps", "stopped")}
    one["slot"] = {
        "number": entry["slot"],
        "name": entry["name"],
        "zone": slots["zone"],
        "every": slots["every"],
    }
    if checked := estimate.get("alarm", {}).get("slots"):
        one["alarm"] = {"raised": slot in checked["slots"], "summary": checked["summary"]}
    one["unfinished"] = [] if "low" in entry else ["error_bars"]
    if "low" in entry:
        one["standard_error"] = entry["standard_error"]
        interval = {name: entry[name] for name in ("low", "high", "method")}
        one["interval"] = {"level": estimate["interval"]["level"], **interval}
    return one


def _together(by_slot: Mapping[str, Any]) -> tuple[dict[str, Result], dict[str, Any]]:
    """All maps by the names of their slots, and what is said about them."""
    space = space_from_dict(by_slot["space"])
    columns = ("distribution", "standard_error", "low", "high")
    results = {
        entry["name"]: Result(space, *(_numbers(entry[name]) for name in columns if name in entry))
        for entry in by_slot["maps"]
    }
    return results, {key: by_slot[key] for key in ("campaign", "round", "slots", "interval_level")}


def _numbers(values: list[float | None]) -> Any:
    return np.array([np.inf if value is None else value for value in values], dtype=np.float64)


# --- Flows as files


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
    """The flows of an estimate as a file, by its ending; ``not-offered`` where it has none."""
    estimate = read_body(body)
    if "flows" not in estimate:
        raise Problem("not-offered", "the campaign does not collect trips, so it has no flows")
    names = ("campaign", "round", "closed_at", "epsilon_per_km", "space", "reports", "unfinished")
    about = {name: estimate[name] for name in (*names, "alarm") if name in estimate}
    values = {"geoveil": VERSION, "kind": "flows", **about, **estimate["flows"]}
    if ending == "json":
        return canonical_bytes(values)
    return _written(ending, put_flows, table_of(values))
