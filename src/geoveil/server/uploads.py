"""Reports as they are sent, and on their way to the commit: the one path that must be fast."""

from __future__ import annotations

import asyncio
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta
from starlette.types import Receive, Scope

from geoveil.document.slots import MOST_SLOTS
from geoveil.document.ticket import TicketKey, challenge, from_text
from geoveil.errors import InvalidInput
from geoveil.server.problem import Problem, ProblemBody, decode, problem_of
from geoveil.store import RoundRecord, StoreFailed, Upload

if TYPE_CHECKING:
    from geoveil.server.app import Service

_MOST_REPORTS = 1 << 18
"""65,536 cells in a row have a rim of about twice as many."""


def _hexadecimal(digits: int, description: str) -> Meta:
    pattern = f"^[0-9a-f]{{{digits}}}$"
    return Meta(pattern=pattern, min_length=digits, max_length=digits, description=description)


def _cell(description: str) -> Meta:
    return Meta(ge=0, lt=_MOST_REPORTS, description=description)


class Report(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One report: nothing else leaves a device."""

    mechanism: Annotated[
        str, _hexadecimal(64, "Id of the mechanism document that made the report.")
    ]
    id: Annotated[str, _hexadecimal(32, "16 random bytes; the same id is counted once.")]
    cell: Annotated[int, _cell("The noisy cell.")]
    slot: Annotated[int, Meta(ge=0, lt=MOST_SLOTS)] | msgspec.UnsetType = msgspec.UNSET
    """Where the document has slots: which one the location was true in."""
    to: Annotated[int, _cell("The noisy end of a trip.")] | msgspec.UnsetType = msgspec.UNSET
    """Where the document asks for trips."""


class Reports(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Several reports in one request."""

    reports: Annotated[list[Report], Meta(min_length=1, max_length=1000)]


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


Headers = list[tuple[bytes, bytes]]

STORE_S = 4.5
"""How long a request waits for the store before it is answered 503."""
PREFIX, SUFFIX = "/api/campaigns/", "/reports"
_OF_CAMPAIGN = ("unknown-campaign", "campaign-paused", "campaign-ended", "ticket-needed")
"""Problems that all reports of a request have together."""
_HEADER = re.compile(rb'PrivateToken +token="?([A-Za-z0-9_-]{10,600})={0,2}"?', re.IGNORECASE)
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


def _number(published: RoundRecord, report: Report) -> int:
    """The number that a report is counted under, or the problem with its slot or its cells."""
    slots, most = published.slots, published.cells_each - 1
    if slots == 1 and report.slot is not msgspec.UNSET:
        raise Problem("not-offered", "the document of this mechanism has no slots")
    slot = 0 if slots == 1 else report.slot
    if slot is msgspec.UNSET or slot >= slots:
        raise Problem(
            "slot-out-of-range",
            f"slot must be from 0 to {slots - 1}: the one that the location was true in",
        )
    if (report.to is not msgspec.UNSET) != (published.ends == 2):
        asks = "asks for trips: cell and to" if published.ends == 2 else "does not ask for trips"
        raise Problem("not-offered", f"the document of this mechanism {asks}")
    to = report.to or 0
    if max(report.cell, to) > most:
        named = "cell and to" if published.ends == 2 else "cell"
        raise Problem("cell-out-of-range", f"{named} must be from 0 to {most}")
    return published.report_number(report.mechanism, slot, report.cell, to)


# --- Tickets, where a campaign asks for them


def ticket_id(campaign: str, key: TicketKey, scope: Scope | None) -> bytes:
    """What the report of a request counts under: the id of its ticket; ``ticket-needed`` without one."""
    if scope is None:
        raise ticket_needed(campaign, key, "send one report a request, with its ticket")
    sent = [value for name, value in scope["headers"] if name == b"authorization"]
    match = _HEADER.fullmatch(sent[0].strip()) if len(sent) == 1 else None
    id = key.report_id(campaign, from_text(match[1].decode())) if match else None
    if id is None:
        raise ticket_needed(campaign, key, "the ticket is none of this campaign's" if sent else "")
    return id


def ticket_needed(campaign: str, key: TicketKey, detail: str = "") -> Problem:
    """A report without a ticket, as HTTP says it: with padding (RFC 9577, 2.1.2)."""
    asked, signed_by = (
        urlsafe_b64encode(each).decode() for each in (challenge(campaign), key.spki)
    )
    wanted = f'challenge="{asked}", token-key="{signed_by}"'
    header = {"www-authenticate": f"PrivateToken {wanted}"}
    return Problem("ticket-needed", detail, headers=header)


# --- From the request to the commit


class Uploads:
    """Takes reports for all campaigns of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()

    async def answer(self, campaign: str, scope: Scope, receive: Receive) -> tuple[Headers, bytes]:
        """Headers and body of the answer 200, after the commit; problems are raised."""
        service = self._service
        # refuse before anything is read where the service is stopping, full, or asked too often
        if service.closing.is_set():
            raise Problem("overloaded", "the service is stopping; try again later")
        if service.writer.waiting >= service.settings.queue_limit:
            raise Problem("overloaded", "too many reports wait for the disk; try again later")
        client = service.limits.client(scope)
        service.limits.check_request(client)
        body = await service.body(scope, receive)
        if b'"reports"' in body:
            return await self._several(campaign, decode(_BATCH, body).reports, client, scope)
        report: Report = decode(_SINGLE, body)
        try:
            upload = await self._checked(campaign, report, scope)
        except Problem:
            service.metrics.reports["refused"] += 1
            raise
        service.limits.check_reports(client, 1)
        await self._commit([upload])
        return _COUNTED_HEADERS, _COUNTED % report.id.encode()

    async def _several(
        self, campaign: str, reports: Sequence[Report], client: str | None, scope: Scope
    ) -> tuple[Headers, bytes]:
        self._service.limits.check_reports(client, len(reports))
        uploads, results = [], []
        for report in reports:
            try:
                uploads.append(await self._checked(campaign, report))
                results.append(Result(report.id, "counted"))
            except Problem as problem:
                if problem.name in _OF_CAMPAIGN:
                    raise
                results.append(Result(report.id, "refused", problem.body()))
        self._service.metrics.reports["refused"] += len(reports) - len(uploads)
        content = msgspec.json.encode(Results(results))
        self._service.places.check_room(scope, len(content))
        if uploads:
            await self._commit(uploads)
        return [*_HEADERS, (b"content-length", b"%d" % len(content))], content

    async def _checked(self, campaign: str, report: Report, scope: Scope | None = None) -> Upload:
        """The report as the store takes it, or the problem with it; ``scope`` is of one that came alone."""
        campaigns = self._service.campaigns
        published = campaigns.published.get(report.mechanism)
        if published is None:  # not met by this process: asks the store, outside the event loop
            published = await self._service.blocking(campaigns.find, report.mechanism)
        if published is None or published.campaign != campaign:
            raise await self._unknown(campaign)
        if published.levels and report.mechanism == published.mechanism:  # names all of its levels
            raise await self._unknown(campaign)
        campaigns.check_running(campaign)
        number = _number(published, report)
        clock = self._service.clock
        if clock() > published.accept_until_s and clock.certain:  # else its ids are still kept
            raise Problem("mechanism-expired", "reports under this mechanism no longer count")
        id = bytes.fromhex(report.id)
        try:
            key = campaigns.ticket_keys[campaign]
        except KeyError:  # deleted by another process a moment ago: asks the store, as above
            key = await self._service.blocking(campaigns.ticket_key, campaign)
        if key is not None:  # it counts under the id of its ticket, whatever it says itself
            id = ticket_id(campaign, key.public, scope)
        return Upload(campaign, published.number, id, number, published.mechanism)

    async def _unknown(self, campaign: str) -> Problem:
        service = self._service
        try:
            await service.blocking(service.campaigns.settings, service.campaign_id(campaign))
        except Exception as error:
            return problem_of(error)
        return Problem("unknown-mechanism", "this campaign published no mechanism with this id")

    async def _commit(self, uploads: list[Upload]) -> None:
        metrics = self._service.metrics
        began_s = time.perf_counter()
        try:
            async with asyncio.timeout(STORE_S):
                new = await self._service.writer.submit(self._loop, uploads)
        except TimeoutError:  # whether they are kept will show when they are sent again
            raise StoreFailed("the store must answer in time; try again later") from None
        except InvalidInput:  # checked above: it came too late, or its campaign was deleted
            raise Problem("mechanism-expired") from None
        metrics.commit_s.observe(time.perf_counter() - began_s)
        counted = sum(new)
        metrics.reports["counted"] += counted
        metrics.reports["repeated"] += len(new) - counted
