"""The JSON of requests and answers as types: decoding, the OpenAPI document and the tests use them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from geoveil.server.problem import ProblemBody
from geoveil.server.settings_of_campaign import CampaignSettings

MOST_REPORTS = 1000
MOST_CELLS = 4096


def _hexadecimal(digits: int, description: str) -> Meta:
    pattern = f"^[0-9a-f]{{{digits}}}$"
    return Meta(pattern=pattern, min_length=digits, max_length=digits, description=description)


class Report(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One report: nothing else leaves a device."""

    mechanism: Annotated[
        str, _hexadecimal(64, "Id of the mechanism document that made the report.")
    ]
    id: Annotated[str, _hexadecimal(32, "16 random bytes; the same id is counted once.")]
    cell: Annotated[int, Meta(ge=0, lt=MOST_CELLS, description="The noisy cell.")]


class Reports(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Several reports in one request."""

    reports: Annotated[list[Report], Meta(min_length=1, max_length=MOST_REPORTS)]


class Counted(msgspec.Struct, frozen=True):
    """The report is stored; so it is when the same id comes again."""

    id: str
    status: Annotated[str, Meta(pattern="^counted$")]


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one report of several."""

    id: str
    status: Annotated[str, Meta(pattern="^(counted|refused)$")]
    problem: ProblemBody | msgspec.UnsetType = msgspec.UNSET


class Results(msgspec.Struct, frozen=True):
    """What became of each report, in the order they were sent."""

    results: list[Result]


class Created(msgspec.Struct, frozen=True):
    """A new campaign: its id and the link to share."""

    id: str
    link: str


class Listed(msgspec.Struct, frozen=True):
    """A campaign in the operator's list."""

    id: str
    name: str
    link: str
    created_at: int


class Campaigns(msgspec.Struct, frozen=True):
    """All campaigns, oldest first."""

    campaigns: list[Listed]


class Closed(msgspec.Struct, frozen=True):
    """A round that takes no further part; its estimate follows."""

    round: int
    status: Annotated[str, Meta(pattern="^closed$")]


class Totals(msgspec.Struct, frozen=True):
    """Reports counted: in this round and in all."""

    round: int
    all: int


class Made(msgspec.Struct, frozen=True):
    """The latest estimate."""

    round: int
    reports: int
    made_at: int


class State(msgspec.Struct, frozen=True):
    """What everybody may know about a campaign. Times are seconds since 1970."""

    id: str
    name: str
    link: str
    state: str
    settings: CampaignSettings
    round: int
    mechanism: str
    expires: int
    reports_counted: Totals
    rounds_closed: int
    estimate: Made | None
    alarm: dict[str, Any] | None
    manipulation_gain: Any


class Health(msgspec.Struct, frozen=True):
    """Whether the service is well."""

    status: Annotated[str, Meta(pattern="^(ok|ready)$")]
