"""What an operator decides about a campaign: the JSON body that creates one, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from geoveil.campaign.campaign import MINIMUM_REPORTS
from geoveil.campaign.rules import PromiseRule
from geoveil.document.area import WIDEST_GRID
from geoveil.document.canonical import canonical_bytes
from geoveil.document.slots import MOST_SLOTS, Every, Slots
from geoveil.document.wire import ID_PATTERN, MOST_LEVELS
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported
from geoveil.position.positional import STEEPEST_CELL
from geoveil.server.problem import Problem
from geoveil.space import MOST_CELLS, Box, Grid
from geoveil.store import RoundRecord, RoundTimes
from geoveil.table.writer import FORMULAS

NAME_LENGTH = 200
MOST_REPORTS = 1_000_000_000
MOST_COUNTS = 1 << 17
"""Levels × slots × cells: what a round counts, which is kept and read as a whole."""
YEAR_HOURS = 8766.0
MINUTE_HOURS = 1 / 60
MOST_TRIP_CELLS = 512
"""Limit for trips: up to here their ends are estimated on quarters of cells. Intervals of large maps may
not be ready in the time of an estimate, which then says so."""


class InvalidSetting(InvalidInput):
    """A setting that cannot be: ``field`` is its name, for forms that say so beside it."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


@contextmanager
def refusing() -> Iterator[None]:
    """Settings that cannot be are answered ``invalid-campaign``, with their field where it is one."""
    try:
        yield
    except InvalidInput as error:
        field = error.field if isinstance(error, InvalidSetting) else ""
        raise Problem("invalid-campaign", str(error), field=field) from None


def _said(description: str, **schema: Any) -> Meta:
    """What the schema says of a field; :meth:`CampaignSettings.problems` enforces it, in words of its own."""
    return Meta(description=description, extra_json_schema=schema or None)


def _between(low: float, high: float, description: str) -> Meta:
    return _said(description, minimum=low, maximum=high)


class OwnSlots(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Slots with names of their own, one after another; the last of a day or a week ends with it."""

    every: Annotated[Every, _said("A week begins on Monday; once: periods.")]
    names: Annotated[
        tuple[str, ...],
        Meta(extra_json_schema={"minItems": 2, "maxItems": MOST_SLOTS, "uniqueItems": True}),
    ]
    starts: Annotated[
        tuple[int, ...],
        _said(
            "Minutes of the day or the week, from 0 on; for periods seconds since 1970, and the end of the "
            "last."
        ),
    ]


class CampaignSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The settings of a campaign; nothing of them changes once people have been asked to take part.

    Units: degrees, kilometres, hours. Decoding checks types and names, :meth:`problems` all the rest.

    >>> lyon = CampaignSettings(name="Lyon", box=(45.7, 4.8, 45.8, 4.9), cell_km=1.0, epsilon_per_km=2.0)
    >>> lyon.problems()
    >>> lyon.grid
    Grid(12 × 8 cells of 1 km, lat 45.7…45.8, lng 4.8…4.9)
    """

    name: Annotated[
        str,
        _said(
            "What people see, 1 to 200 printable characters.", minLength=1, maxLength=NAME_LENGTH
        ),
    ]
    box: Annotated[
        tuple[float, float, float, float],
        _said("South, west, north, east in degrees; west > east crosses ±180°."),
    ]
    cell_km: Annotated[float, _between(0.01, 100.0, "Side of a cell; at most 65,536 cells in all.")]
    epsilon_per_km: Annotated[
        float | None, _between(0.001, 1000.0, "The promise every mechanism of the campaign keeps.")
    ] = None
    promises_per_km: Annotated[
        tuple[float, ...] | None,
        _said(
            "Several promises instead of one, 2 to 8: everybody chooses.",
            minItems=2,
            maxItems=MOST_LEVELS,
        ),
    ] = None
    camouflage: Annotated[
        float, _between(0.0, 1.0, "0 the sharpest map, 1 the least information about each person.")
    ] = 0.5
    most_leverage: Annotated[
        float | None,
        _between(
            1.0, 1e6, "Of campaigns that have ended; a promise between positions has no such bound."
        ),
    ] = None
    guarded: Annotated[bool, _said("Whether estimates leave out the fakes that are sure.")] = False
    trusted_seed: Annotated[
        bool, _said("Whether later estimates are held to the error bars of the first round.")
    ] = False
    trips: Annotated[
        bool, _said("Whether a report is a trip: two places, each drawn by itself, charged twice.")
    ] = False
    tickets: Annotated[
        bool,
        _said("Whether a report needs a ticket: one for each invitation, and each counts once."),
    ] = False
    round_size: Annotated[
        int | None, _between(1, MOST_REPORTS, "A round closes at this many reports.")
    ] = None
    round_hours: Annotated[
        float | None, _between(MINUTE_HOURS, YEAR_HOURS, "A round closes after this long.")
    ] = None
    minimum_round_hours: Annotated[
        float,
        _between(
            0.0,
            YEAR_HOURS,
            "A round that is full stays open at least this long; by hand it may close.",
        ),
    ] = 1.0
    minimum_reports: Annotated[
        int, _between(1, MOST_REPORTS, "No round with fewer reports is released or used.")
    ] = MINIMUM_REPORTS
    rounds: Annotated[
        int | None,
        _between(1, 100_000, "The campaign ends after so many rounds with the minimum of reports."),
    ] = None
    mechanism_hours: Annotated[
        float, _between(MINUTE_HOURS, YEAR_HOURS, "How long a mechanism may be used.")
    ] = 720.0
    grace_hours: Annotated[
        float, _between(0.0, YEAR_HOURS, "How long after that its reports still count.")
    ] = 24.0
    slots: Annotated[
        Literal["hour", "weekday-hour"] | OwnSlots | None,
        _said("Times that reports name and maps tell apart: when a location was true."),
    ] = None
    zone: Annotated[str | None, _said("Whose hours slots are, such as Europe/Paris.")] = None
    id: Annotated[
        str | None,
        _said("A name for links; made from the name where there is none.", pattern=ID_PATTERN),
    ] = None

    @property
    def grid(self) -> Grid:
        """The cells of the campaign."""
        south, west, north, east = self.box
        return Grid.from_box(south=south, west=west, north=north, east=east, cell_km=self.cell_km)

    @property
    def needs_area(self) -> bool:
        """Whether the box has more cells than a mechanism is made for: city limits must leave fewer."""
        return self.grid.size > MOST_CELLS

    @property
    def mechanism_s(self) -> int:
        """Validity of a document in whole seconds."""
        return round(self.mechanism_hours * 3600)

    @property
    def grace_s(self) -> int:
        """Grace after expiry in whole seconds."""
        return round(self.grace_hours * 3600)

    @property
    def rule(self) -> PromiseRule:
        """How mechanisms are designed and maps estimated; the promise is between any two positions."""
        return PromiseRule.offering(
            self.promises_per_km or (self.epsilon_per_km or 0.0,),
            camouflage=self.camouflage,
            most_leverage=self.most_leverage,
            guarded=self.guarded,
            trusted_seed=self.trusted_seed,
            between="positions",
        )

    @property
    def time_slots(self) -> Slots | None:
        """The slots that documents tell devices about; ``InvalidFile`` where they cannot be."""
        if self.slots is None:
            return None
        zone = self.zone or ""
        if not isinstance(self.slots, OwnSlots):
            return Slots.of_hours(zone, weekdays=self.slots == "weekday-hour")
        own = self.slots
        values = {"zone": zone, "every": own.every, "names": [*own.names], "starts": [*own.starts]}
        return Slots.from_dict(values)

    def ends_with(self, concluded: int) -> bool:
        """Whether the campaign ends with the round that is the n-th with enough reports."""
        return self.rounds is not None and concluded >= self.rounds

    def is_due(self, current: RoundRecord | RoundTimes, now_s: int) -> bool:
        """Whether an open round should end: enough reports, enough time, or its document has expired."""
        young = now_s < current.opened_at_s + round(self.minimum_round_hours * 3600)
        full = self.round_size is not None and current.total >= self.round_size and not young
        over = self.round_hours is not None and (
            now_s >= current.opened_at_s + round(self.round_hours * 3600)
        )
        return full or over or now_s >= current.expires_at_s

    def to_bytes(self) -> bytes:
        """The settings as canonical JSON, as they are kept."""
        return canonical_bytes(msgspec.to_builtins(self))

    def problems(self) -> None:
        """Raise ``InvalidInput`` with one sentence about the first setting that cannot be."""
        name = self.name
        if not 1 <= len(name) <= NAME_LENGTH or not name.isprintable() or not name.strip():
            raise InvalidSetting("name", f"name must have 1 to {NAME_LENGTH} printable characters")
        if self.id is not None and not re.fullmatch(ID_PATTERN, self.id):
            raise InvalidSetting(
                "id",
                "id must be 1 to 63 small letters, digits and hyphens, with no hyphen at either end",
            )
        self._check_promises()
        for field, (low, high) in _bounds().items():
            value = getattr(self, field)
            if value is not None and not (math.isfinite(value) and low <= value <= high):
                raise InvalidSetting(
                    field, f"{field} ({value:.6g}) must lie between {low:.6g} and {high:,.10g}"
                )
        if self.most_leverage is not None:
            raise InvalidSetting(
                "most_leverage",
                f"most_leverage ({self.most_leverage:g}) must be left out: a promise between positions "
                "has no bound on what a fake report weighs",
            )
        if self.round_size is not None and self.round_size < self.minimum_reports:
            raise InvalidSetting(
                "round_size",
                f"round_size ({self.round_size}) must be at least minimum_reports "
                f"({self.minimum_reports}); raise one or lower the other",
            )
        self._check_grid()
        self._check_steepness()
        self._check_slots()
        self.check_counts(min(self.grid.size, MOST_CELLS), "cells")
        if self.trips:
            self._check_trips()

    def _check_trips(self) -> None:
        """A campaign of trips keeps one mechanism: flows of different ones are not pooled."""
        for name in ("promises_per_km", "slots", "guarded", "trusted_seed"):
            if getattr(self, name):
                raise InvalidSetting(
                    name,
                    f"{name} must be left out of a campaign of trips, which keeps one mechanism and one map "
                    "of flows",
                )
        cells = self.grid.size
        if cells > MOST_TRIP_CELLS:
            raise InvalidSetting(
                "cell_km",
                f"the box must have at most {MOST_TRIP_CELLS} cells for trips, not {cells}: flows are "
                "between all pairs of them; use larger cells, or a smaller box",
            )

    def _check_slots(self) -> None:
        if (self.slots is None) != (self.zone is None):
            raise InvalidSetting(
                "zone",
                "slots and zone must be given together, such as hour and Europe/Paris; or neither",
            )
        if self.zone is None:
            return
        try:
            Slots.of_hours(self.zone, weekdays=False).time_zone  # noqa: B018 — raises where it is none
        except Unsupported:
            raise InvalidSetting(
                "zone",
                f"zone ({self.zone}) must be a time zone that the service knows, such as Europe/Paris",
            ) from None
        try:
            slots = self.time_slots
        except InvalidFile as problem:
            raise InvalidSetting("slots", str(problem)) from None
        names = () if slots is None else slots.names
        if any(name.startswith(FORMULAS) for name in names):
            raise InvalidSetting(
                "slots",
                "names of slots must begin with something else than =, +, - and @: they stand in tables, "
                "where spreadsheets would compute them",
            )
        if len(names) < 2:
            raise InvalidSetting(
                "slots", "slots must be at least 2; leave them out where there is one"
            )

    def check_not_over(self, now_s: float) -> None:
        """Raise ``InvalidInput`` where all periods have passed, so that nobody could report."""
        slots = self.time_slots
        if slots is not None and slots.every == "once" and slots.starts[-1] <= now_s:
            raise InvalidSetting(
                "slots",
                "the last period must end in the future; now all are over, and nobody could report",
            )

    def check_counts(self, cells: int, called: str) -> None:
        """Raise ``InvalidInput`` where a round would count more different reports than are kept."""
        slots = self.time_slots
        number = 1 if slots is None else len(slots.names)
        levels = len(self.promises_per_km or (0,))
        if levels * number * cells > MOST_COUNTS:
            slotted = "" if slots is None else f"slots ({number}) × "
            fewer = "promises" if slots is None else "slots"
            smaller = "larger cells" if called == "cells" else f"fewer {called}"
            raise InvalidSetting(
                "promises_per_km" if slots is None else "slots",
                f"{slotted}promises ({levels}) × {called} ({cells:,}) must be at most {MOST_COUNTS:,}; "
                f"choose fewer {fewer} or {smaller}",
            )

    def _check_promises(self) -> None:
        promises = self.promises_per_km
        if (promises is None) == (self.epsilon_per_km is None):
            raise InvalidSetting(
                "epsilon_per_km",
                "epsilon_per_km must be given, or several promises_per_km that people choose among, not both",
            )
        if promises is None:
            return
        low, high = _bounds()["epsilon_per_km"]
        sound = all(math.isfinite(promise) and low <= promise <= high for promise in promises)
        if not sound or not 2 <= len(set(promises)) == len(promises) <= MOST_LEVELS:
            raise InvalidSetting(
                "promises_per_km",
                f"promises_per_km ({', '.join(f'{promise:.6g}' for promise in promises[:9])}) must be 2 to "
                f"{MOST_LEVELS} different numbers between {low:.6g} and {high:.6g}",
            )

    def _check_steepness(self) -> None:
        """What no mechanism between positions is made for, however many cells there are."""
        field = "epsilon_per_km" if self.promises_per_km is None else "promises_per_km"
        promise = max(self.promises_per_km or (self.epsilon_per_km or 0.0,))
        steep = promise * self.cell_km
        if steep > STEEPEST_CELL * (1.0 + 1e-9):
            raise InvalidSetting(
                field,
                f"{field} ({promise:.6g}) × cell_km ({self.cell_km:.6g}) must be at most "
                f"{STEEPEST_CELL:g}; make the cells smaller, or the promise stronger",
            )

    def _check_grid(self) -> None:
        try:
            Box.from_list(self.box)
            cells = self.grid.size
        except GeoveilError as problem:
            raise InvalidSetting("box", str(problem)) from None
        if not 2 <= cells <= WIDEST_GRID:
            raise InvalidSetting(
                "cell_km",
                f"the box must have 2 to {MOST_CELLS:,} cells, or up to {WIDEST_GRID:,} of which city limits "
                f"leave no more, not {cells:,}; change the box or the size of its cells",
            )


@cache
def _bounds() -> dict[str, tuple[float, float]]:
    """The bounds that stand beside the fields."""
    bounds = {}
    for name, hint in get_type_hints(CampaignSettings, include_extras=True).items():
        for meta in get_args(hint)[1:]:
            schema: Any = meta.extra_json_schema or {}
            if "minimum" in schema:
                bounds[name] = (schema["minimum"], schema["maximum"])
    return bounds
