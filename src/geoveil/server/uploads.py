"""Bodies of requests, and reports on their way to the commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.types import Receive, Scope

from geoveil.errors import InvalidInput
from geoveil.server.conclusion import SLOW_CLOCKS_S
from geoveil.server.problem import (
    Problem,
    ProblemBody,
    check_media_type,
    decode,
    problem_of,
    read_body,
)
from geoveil.server.service import Service
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.store.contract import RoundRecord, Upload

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


# --- The upload of reports: the one path that must be fast


Headers = list[tuple[bytes, bytes]]

PREFIX, SUFFIX = "/api/campaigns/", "/reports"
_MOST_ROUNDS = 4096
_SINGLE = msgspec.json.Decoder(Report)
_BATCH = msgspec.json.Decoder(Reports)
_COUNTED = b'{"id":"%b","status":"counted"}'
_HEADERS: Headers = [
    (b"content-type", b"application/json"),
    (b"x-content-type-options", b"nosniff"),
    (b"access-control-allow-origin", b"*"),
]
_COUNTED_HEADERS: Headers = [*_HEADERS, (b"content-length", b"%d" % (len(_COUNTED) - 2 + 32))]


def campaign_of_upload(scope: Scope) -> str | None:
    """The campaign where the request is an upload of reports."""
    path: str = scope["path"]
    if scope["method"] != "POST" or not path.endswith(SUFFIX) or not path.startswith(PREFIX):
        return None
    campaign = path[len(PREFIX) : -len(SUFFIX)]
    return campaign if campaign and "/" not in campaign else None


class Uploads:
    """Takes reports for all campaigns of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._rounds: dict[str, RoundRecord] = {}

    async def answer(self, campaign: str, scope: Scope, receive: Receive) -> tuple[Headers, bytes]:
        """Headers and body of the answer 200, after the commit; problems are raised."""
        service, settings = self._service, self._service.settings
        check_media_type(scope["headers"])
        body = await read_body(
            scope,
            receive,
            limit_bytes=settings.body_limit_bytes,
            timeout_s=settings.body_timeout_s,
        )
        self._shed()
        client = service.limits.client(scope)
        service.limits.check_request(client)
        if b'"reports"' in body:
            return await self._several(campaign, decode(_BATCH, body).reports, client)
        return await self._one(campaign, decode(_SINGLE, body), client)

    async def _one(
        self, campaign: str, report: Report, client: str | None
    ) -> tuple[Headers, bytes]:
        try:
            upload = await self._checked(campaign, report)
        except Problem:
            self._service.metrics.reports["refused"] += 1
            raise
        self._service.limits.check_reports(client, 1)
        await self._commit([upload])
        return _COUNTED_HEADERS, _COUNTED % report.id.encode()

    async def _several(
        self, campaign: str, reports: Sequence[Report], client: str | None
    ) -> tuple[Headers, bytes]:
        self._service.limits.check_reports(client, len(reports))
        uploads, results = [], []
        for report in reports:
            try:
                uploads.append(await self._checked(campaign, report))
                results.append(Result(report.id, "counted"))
            except Problem as problem:
                if problem.name == "unknown-campaign":
                    raise
                results.append(Result(report.id, "refused", problem.body()))
        self._service.metrics.reports["refused"] += len(reports) - len(uploads)
        if uploads:
            await self._commit(uploads)
        content = msgspec.json.encode(Results(results))
        return [*_HEADERS, (b"content-length", b"%d" % len(content))], content

    async def _checked(self, campaign: str, report: Report) -> Upload:
        """The report as the store takes it, or the problem with it."""
        found = self._rounds.get(report.mechanism) or await self._find(campaign, report.mechanism)
        if found.campaign != campaign:
            raise await self._unknown(campaign)
        if report.cell >= found.cells:
            raise Problem("cell-out-of-range", f"cell must be from 0 to {found.cells - 1}")
        now_s = self._service.clock()
        if now_s > found.accept_until_s:
            raise Problem("mechanism-expired", "reports under this mechanism no longer count")
        if now_s < found.opened_at_s - SLOW_CLOCKS_S:
            raise Problem(
                "mechanism-not-yet-valid", "the clocks of the service and its store differ"
            )
        return Upload(campaign, found.number, bytes.fromhex(report.id), report.cell)

    async def _find(self, campaign: str, mechanism: str) -> RoundRecord:
        """The round of a mechanism this process has not met; never waits on the event loop."""
        found = await self._service.blocking(self._service.campaigns.find, mechanism)
        if found is None:
            raise await self._unknown(campaign)
        if len(self._rounds) >= _MOST_ROUNDS:
            self._rounds.clear()
        self._rounds[mechanism] = found
        return found

    async def _unknown(self, campaign: str) -> Problem:
        service = self._service
        try:
            await service.blocking(service.campaigns.settings, service.campaign_id(campaign))
        except Exception as error:
            return problem_of(error)
        return Problem("unknown-mechanism", "this campaign published no mechanism with this id")

    def _shed(self) -> None:
        """Refuse before anything is decoded where the queue is full or the service is stopping."""
        service = self._service
        if service.closing.is_set():
            raise Problem("overloaded", "the service is stopping; try again later")
        if service.writer.waiting >= service.settings.queue_limit:
            raise Problem("overloaded", "too many reports wait for the disk; try again later")

    async def _commit(self, uploads: list[Upload]) -> None:
        metrics = self._service.metrics
        began_s = time.perf_counter()
        try:
            new = await self._service.writer.submit_async(self._loop, uploads)
        except InvalidInput:  # checked above, so the time of the round ran out in the queue
            raise Problem("mechanism-expired") from None
        metrics.commit_s.observe(time.perf_counter() - began_s)
        counted = sum(new)
        metrics.reports["counted"] += counted
        metrics.reports["repeated"] += len(new) - counted
