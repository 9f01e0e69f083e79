"""What operators ask before they make a campaign: what it will mean, and which cells city limits leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from geoveil.campaign.outlook import outlook
from geoveil.document.slots import Slots
from geoveil.errors import GeoveilError, number_of
from geoveil.position.positional import Placed
from geoveil.server.estimate_routes import OPERATIONS
from geoveil.server.handlers import answer, operators
from geoveil.server.problem import Problem, decode
from geoveil.server.settings_of_campaign import CampaignSettings, InvalidSetting, refusing
from geoveil.server.shapes import BACKDROP_BYTES, checked_area, read_area, space_of, space_within
from geoveil.space import MOST_CELLS, MaskedGrid, Points

if TYPE_CHECKING:
    from geoveil.server.app import Service

__all__ = ["OPERATIONS"]

Send = Callable[[Any], None]
ADVICE_S = 60.0
"""How long an operator waits at most, turns of others included."""
ADVICE_BYTES = 512 << 10
"""Longest question: 4,096 places have up to 200 kB."""
_AROUND_BYTES = 1024
"""What an area question has beside its GeoJSON."""


_MOST_PEOPLE = 100_000_000
PAGE_LIMIT_PER_KM = 2.0
"""What a report on the page for participants may cost where nobody has changed their limits."""


class Question(CampaignSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A campaign that might be made: its settings, for how many people, and which of its cells there are."""

    name: str = "a campaign"
    people: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": _MOST_PEOPLE})] = 10_000
    mask: Annotated[
        str | None, Meta(description="The cells inside city limits, as POST /api/advice/area says.")
    ] = None
    places: Annotated[
        dict[str, Any] | None,
        Meta(description="The places, as POST /api/advice/area says: its space."),
    ] = None

    def problems(self) -> None:
        """Raise as the settings of a campaign do, and where there are no people or too many."""
        super().problems()
        if not 1 <= self.people <= _MOST_PEOPLE:
            raise InvalidSetting(
                "people", f"people ({self.people}) must lie between 1 and {_MOST_PEOPLE:,}"
            )

    @property
    def space(self) -> Placed:
        """The cells of the campaign; ``InvalidInput`` where mask or places are none of its box."""
        try:
            if self.places is not None:
                return space_of(self, Points.from_dict(self.places))
            if self.mask is not None:
                return checked_area(
                    MaskedGrid.from_dict({**self.grid.to_dict(), "mask": self.mask})
                )
            if not self.needs_area:
                return self.grid
            raise InvalidSetting(
                "cell_km",
                f"the box ({self.grid.size:,} cells) must have at most {MOST_CELLS:,}, or city limits that "
                "leave no more",
            )
        except InvalidSetting:
            raise
        except GeoveilError as problem:
            raise InvalidSetting("mask", str(problem)) from None


class Choice(msgspec.Struct, frozen=True):
    """What one of several promises will mean, were all to choose it."""

    epsilon_per_km: float
    mean_distance_km: float
    leakage_bits: float
    expected_error_km: float | None
    reported_error_km: float | None


class Advice(msgspec.Struct, frozen=True):
    """What it will mean, worked out on an example city: distances and errors in kilometres.

    Of several promises it is about the strongest, and ``choices`` has the numbers of each. Of trips the
    numbers are those of each end, and there is no error and no example.
    """

    cells: int
    people: int
    mean_distance_km: float
    leakage_bits: float
    expected_error_km: float | None
    reported_error_km: float | None
    choices: list[Choice]
    sentences: list[str]
    example: dict[str, Any] | None


class AreaQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """City limits over the box of a campaign that might be made, or places in it."""

    box: tuple[float, float, float, float]
    cell_km: float
    area: Annotated[
        msgspec.Raw, Meta(description="GeoJSON: Polygons and MultiPolygons, or points.")
    ]


class AreaLeft(msgspec.Struct, frozen=True):
    """What city limits leave of a box: so many of its cells, in so many parts that do not touch.

    Of places how many there are, in one part.
    """

    cells: int
    of: int
    parts: int
    space: dict[str, Any]


_outlook = lru_cache(64)(outlook)
_QUESTION = msgspec.json.Decoder(Question)
_AREA = msgspec.json.Decoder(AreaQuestion)


@operators(
    "POST /api/advice",
    {200: ("In numbers, in words and on an example city.", Advice)},
    problems=("invalid-campaign",),
    body=Question,
    job=True,
)
async def advice(service: Service, request: Request) -> Response:
    """What a campaign will mean, before it is made."""
    body = await service.body(request.scope, request.receive, limit_bytes=ADVICE_BYTES)
    question = decode(_QUESTION, body)
    with refusing():
        question.problems()
        question.check_not_over(service.campaigns.clock())
        question.space  # noqa: B018 — raises where the mask is none
    outcome = await service.calculated(ADVICE_S, advise, question)
    if isinstance(outcome, str):
        raise Problem("invalid-campaign", outcome)
    return answer(outcome)


@operators(
    "POST /api/advice/area",
    {200: ("How many, and which.", AreaLeft)},
    problems=("invalid-geojson", "invalid-campaign"),
    body=AreaQuestion,
    job=True,
)
async def area(service: Service, request: Request) -> Response:
    """Which cells of a box city limits leave, or which places there are, before a campaign is made.

    What ``PUT …/area`` would leave; up to 4 MiB of GeoJSON.
    """
    limit_bytes = BACKDROP_BYTES + _AROUND_BYTES
    body = await service.body(request.scope, request.receive, limit_bytes=limit_bytes)
    question: AreaQuestion = decode(_AREA, body)
    settings = CampaignSettings(
        name="area", box=question.box, cell_km=question.cell_km, epsilon_per_km=1.0
    )
    with refusing():
        settings.problems()
        shapes = await service.working(read_area, bytes(question.area))
        area = await service.working(space_within, settings, shapes)
    of, parts = (settings.grid.size, area.parts) if isinstance(area, MaskedGrid) else (area.size, 1)
    return answer(AreaLeft(area.size, of, parts, area.to_dict()))


# --- In a process apart: what is asked and what is answered is small and plain


def advise(send: Send, question: Question) -> Advice | str:
    """What the campaign of a question will mean, or a sentence why that cannot be said.

    Where people choose, the numbers and sentences are about the strongest promise, which is that of
    whoever chooses nothing, and ``choices`` has the numbers of all.
    """
    try:
        promises = sorted(question.promises_per_km or (question.epsilon_per_km or 0.0,))
        same = {"camouflage": question.camouflage, "people": question.people}
        outlooks = [_outlook(question.space, epsilon_per_km=one, **same) for one in promises]
    except GeoveilError as problem:
        return str(problem)
    first, slots = outlooks[0], question.time_slots
    said = first.sentences_of_trips() if question.trips else first.sentences()
    if len(promises) > 1:
        said = [
            (
                f"Everybody chooses among {len(promises)} promises. Whoever chooses nothing has the "
                f"strongest, ε = {promises[0]:g} per km, and the sentences below are about that one."
            ),
            *said,
        ]
    said += beyond_the_page(promises, trips=question.trips)
    if slots is not None:
        said += slots_in_words(slots, question.people, question.minimum_reports)
    choices = [
        Choice(promise, of.mean_distance_km, of.leakage_bits, of.error_km, of.reported_error_km)
        for promise, of in zip(promises, outlooks, strict=True)
        if len(promises) > 1
    ]
    of_all = (first.cells, first.people, first.mean_distance_km, first.leakage_bits)
    if question.trips:  # errors and picture are those of a map of people
        return Advice(*of_all, None, None, choices, said, None)
    example = {
        "space": first.grid.to_dict(),
        "people": first.city.tolist(),
        "reports": first.reported.tolist(),
        "map": first.brought_back.tolist(),
    }
    return Advice(*of_all, first.error_km, first.reported_error_km, choices, said, example)


def beyond_the_page(promises: Sequence[float], *, trips: bool) -> list[str]:
    """That people have to raise a limit first, where a report costs more than the page lets it.

    >>> beyond_the_page([1.0], trips=True), len(beyond_the_page([1.5], trips=True))
    ([], 1)
    """
    costs = [promise * (2 if trips else 1) for promise in promises]
    limit = f"{PAGE_LIMIT_PER_KM:g} per km unless the person raises that limit there"
    if min(costs) > PAGE_LIMIT_PER_KM:
        return [
            (
                f"A {'trip' if trips else 'report'} costs ε = {min(costs):g} per km, and the page at the "
                f"campaign's link sends nothing above {limit}: nobody else can take part on it."
            )
        ]
    if max(costs) > PAGE_LIMIT_PER_KM:
        return [f"The page at the campaign's link lets nobody choose a promise above {limit}."]
    return []


def slots_in_words(slots: Slots, people: int, minimum_reports: int) -> list[str]:
    """What naming a slot gives away, and whether so many people are enough for a map of each.

    >>> slots_in_words(Slots.of_hours("Europe/Paris", weekdays=False), 1200, 100)[1]
    'A slot with 100 reports has a map of its own: 1,200 reports spread evenly are about 50 in each, too few.'
    """
    number = len(slots.names)
    enough = "" if people / number >= minimum_reports else ", too few"
    return [
        (
            f"Every report also names one of {number} slots of time ({slots.zone}). The slot is not noisy: "
            "it says when, not where, and the promise about places is the same in all of them."
        ),
        (
            f"A slot with {number_of(minimum_reports, 'report')} has a map of its own: "
            f"{number_of(people, 'report')} spread evenly are about {people / number:,.0f} in each{enough}."
        ),
    ]
