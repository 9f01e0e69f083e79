"""Invitations and tickets: who may send one report, without anybody learning which."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from geoveil.document.ticket import SigningKey, as_text, from_text
from geoveil.randomness import SYSTEM
from geoveil.server.handlers import OPERATIONS, answer, operators, participants
from geoveil.server.problem import Problem, decode

if TYPE_CHECKING:
    from geoveil.server.app import Service

__all__ = ["OPERATIONS"]

_LETTERS = "23456789abcdefghjkmnpqrstvwxyz"
_LENGTH, _GROUP = 20, 5
"""Of a code: 98 bits, in groups that can be read from a letter."""
_MOST = 10_000


class Invite(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How many invitations to make."""

    count: Annotated[int, Meta(ge=1, le=_MOST)]


class Invited(msgspec.Struct, frozen=True):
    """New invitations: told once, only their digests are kept."""

    invitations: list[str]


class Invitations(msgspec.Struct, frozen=True):
    """How many invitations were made, and how many used."""

    made: int
    used: int


class TicketWish(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An invitation, and what is to be signed for it: nobody can tell the ticket from it."""

    invitation: Annotated[str, Meta(max_length=100)]
    blinded: Annotated[
        str, Meta(pattern="^[A-Za-z0-9_-]{342}$", description="256 bytes, base64url.")
    ]


class Signed(msgspec.Struct, frozen=True):
    """The signature, from which the device makes its ticket."""

    signature: str


_INVITE = msgspec.json.Decoder(Invite)
_WISH = msgspec.json.Decoder(TicketWish)


def new_codes(count: int) -> list[str]:
    """So many new codes."""
    drawn = SYSTEM.below(len(_LETTERS), count * _LENGTH).reshape(count, _LENGTH // _GROUP, _GROUP)
    return ["-".join("".join(_LETTERS[i] for i in group) for group in code) for code in drawn]


def digest_of(code: str) -> bytes:
    """What is kept of a code, however it is written."""
    plain = "".join(letter for letter in code.lower() if letter.isalnum())
    return hashlib.sha256(plain.encode()).digest()


async def _key(service: Service, request: Request) -> tuple[str, SigningKey]:
    """The campaign in the address, and what signs its tickets."""
    campaign = service.campaign_id(request.path_params["campaign"])
    key = await service.working(service.campaigns.ticket_key, campaign)
    if key is None:
        raise Problem("not-offered", "reports to this campaign need no tickets")
    return campaign, key


@operators(
    "POST /api/campaigns/{campaign}/invitations",
    {201: ("One code for each person; the codes are told only now.", Invited)},
    problems=("not-offered", "campaign-paused", "campaign-ended", "campaign-finished"),
    body=Invite,
    job=True,
)
async def invite(service: Service, request: Request) -> Response:
    """Make invitations, each good for one report."""
    campaign, _ = await _key(service, request)
    wanted = decode(_INVITE, await service.body(request.scope, request.receive))
    await service.blocking(service.campaigns.check_unfinished, campaign)
    codes = new_codes(wanted.count)
    digests = [digest_of(code) for code in codes]
    if not await service.working(service.store.invite, campaign, digests):
        raise Problem("campaign-ended", "the campaign was ended or deleted meanwhile")
    return answer(Invited(codes), 201)


@operators(
    "GET /api/campaigns/{campaign}/invitations",
    {200: ("Never which.", Invitations)},
    problems=("not-offered",),
)
async def invitations(service: Service, request: Request) -> Response:
    """How many invitations were made and used."""
    campaign, _ = await _key(service, request)
    return answer(Invitations(*await service.blocking(service.store.invitations, campaign)))


@participants(
    "POST /api/campaigns/{campaign}/tickets",
    {200: ("The same again where the same is asked.", Signed)},
    problems=(
        "not-offered", "unknown-invitation", "invitation-used",
        "campaign-paused", "campaign-ended", "campaign-finished",
    ),
    body=TicketWish,
)  # fmt: skip
async def ticket(service: Service, request: Request) -> Response:
    """Sign a ticket without seeing it, one for each invitation."""
    campaign, key = await _key(service, request)
    wish = decode(_WISH, await service.body(request.scope, request.receive))
    await service.blocking(service.campaigns.check_unfinished, campaign, late=True)
    blinded = from_text(wish.blinded)
    if not key.public.can_sign(blinded):
        raise Problem("malformed-body", "blinded must be a number below the modulus of the key")
    used = await service.blocking(
        service.store.use_invitation,
        campaign,
        digest_of(wish.invitation),
        hashlib.sha256(blinded).digest(),
    )
    if not used:
        raise Problem("unknown-invitation" if used is None else "invitation-used")
    return answer(Signed(as_text(await service.working(key.sign, blinded))))
