"""A device where reports need tickets: what it asks, sends and keeps, against a collector that cheats."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from client.crashes import everything_in
from client.world import CUT, PLACE, Collector, Eye, device, problem, refused
from geoveil.client import Device, Refused, Unacknowledged
from geoveil.client.network import Answer
from geoveil.document import ticket
from geoveil.document.ticket import (
    EXPONENT,
    KEY_BYTES,
    SigningKey,
    TicketRequest,
    as_text,
    from_text,
)
from geoveil.errors import InvalidInput
from geoveil.randomness import seeded

CODE = "k7qf3-m2x4p-9rtwz-c5bhn"
VECTORS = json.loads(Path(__file__).parents[2].joinpath("vectors/tickets.json").read_text())
KEY = SigningKey.from_bytes(bytes.fromhex(VECTORS["geoveil"]["primes"]))


@cache
def another_key() -> SigningKey:
    return SigningKey.new(seeded(4))


def said(**values: Any) -> Answer:
    return Answer(200, "application/json", 0.0, json.dumps(values).encode())


@dataclass
class Signer(Collector):
    """A collector in memory whose reports need tickets, and which may change its key."""

    key: SigningKey = KEY
    codes: dict[str, str] = field(default_factory=lambda: {CODE: ""})
    """And what each was used for."""
    blinded: list[bytes] = field(default_factory=list)
    tickets: list[str] = field(default_factory=list)
    spoils: bool = False
    state: str = "open"

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        if path.endswith("/mechanism"):
            return super().get(path, tag=tag, limit=limit)
        return said(ticket_key=as_text(self.key.public.spki), state=self.state)

    def post(self, path: str, body: bytes, *, limit: int, ticket: str = "") -> Answer:
        if path.endswith("/tickets"):
            return self._signed(**json.loads(body))
        self.tickets.append(ticket)
        if self.key.public.report_id("lyon", from_text(ticket)) is None:
            return problem(401, "ticket-needed")
        return super().post(path, body, limit=limit)

    def _signed(self, invitation: str, blinded: str) -> Answer:
        self.blinded.append(from_text(blinded))
        if self.codes.get(invitation) not in ("", blinded):
            return problem(409, "invitation-used")
        self.codes[invitation] = blinded
        signature = self.key.sign(from_text(blinded))
        return said(signature=as_text(signature[::-1] if self.spoils else signature))


@pytest.fixture
def signer() -> Signer:
    return Signer()


def invited(signer: Signer, path: Path, **options: Any) -> Device:
    return device(signer, path, invitation=CODE, **options)


def test_a_device_fetches_its_ticket_and_sends_it(signer: Signer, path: Path) -> None:
    assert invited(signer, path).report(**PLACE).acknowledged
    assert len(signer.blinded) == len(signer.tickets) == 1


def test_what_would_be_sent_names_invitation_and_ticket(signer: Signer, path: Path) -> None:
    words = "the invitation is sent before the report, and with the report the ticket"
    assert words not in device(signer, path).explain()
    assert words in (said := invited(signer, path).explain())
    assert (
        "neither shows which the other was, but when and from which address they come may" in said
    )
    invited(signer, path).accept()
    assert words in device(signer, path).explain()  # the ticket is here, and goes with the report


def test_no_location_is_read_where_the_invitation_gives_no_ticket(
    signer: Signer, path: Path
) -> None:
    signer.codes[CODE] = "another request"
    eye = Eye()
    assert refused(invited(signer, path).report, locate=eye).detail == "invitation-used"
    assert eye.looks == 0
    assert signer.tickets == []


def test_a_report_that_waits_for_a_ticket_says_why_the_invitation_gives_none(
    signer: Signer, path: Path
) -> None:
    with pytest.raises(Unacknowledged, match="ticket-needed"):
        device(signer, path).report(**PLACE)
    signer.codes[CODE] = "another request"
    with pytest.raises(Unacknowledged, match="gives no ticket") as waits:
        invited(signer, path).report(**PLACE)
    assert waits.value.problem == "invitation-used"
    assert invited(signer, path).flush() == []


@pytest.mark.parametrize("code", [7, b"k7qf3", True])
def test_an_invitation_is_text(signer: Signer, path: Path, code: Any) -> None:
    with pytest.raises(InvalidInput, match=r"invitation \(\w+\) must be text"):
        device(signer, path, invitation=code)


@pytest.mark.parametrize("waits", [True, False])
def test_after_the_last_round_an_invitation_is_used_for_a_report_that_waits_only(
    signer: Signer, path: Path, waits: bool
) -> None:
    if waits:
        with pytest.raises(Unacknowledged, match="ticket-needed"):
            device(signer, path).report(**PLACE)
    signer.state = "finished"
    it = invited(signer, path)
    if waits:
        it.accept()
    else:
        assert refused(it.accept).detail == "campaign-finished"
    assert bool(signer.codes[CODE]) is waits


@pytest.mark.parametrize("again", ["day", "round"])
def test_a_ticket_goes_with_no_report_that_may_be_made_again(
    signer: Signer, path: Path, again: Any
) -> None:
    with pytest.raises(InvalidInput, match="one report"):
        invited(signer, path, again=again)
    invited(signer, path).accept()
    with pytest.raises(Unacknowledged):
        device(signer, path, again=again).report(**PLACE)
    assert signer.tickets == [""]


# --- A collector with two keys, or one that sees who asks again


def links(token: bytes, one: tuple[SigningKey, bytes], other: tuple[SigningKey, bytes]) -> bool:
    """Whether a ticket and requests to two keys come of one seed, for whoever has the keys.

    The ticket gives its nonce and its salt, thus what it would be under either key, thus the factor of each
    request; and of all numbers only one that was drawn for both leaves both.
    """
    signature = int.from_bytes(token[-KEY_BYTES:])
    encoded = pow(signature, EXPONENT, other[0].public.modulus).to_bytes(KEY_BYTES)
    mask = ticket._mask(encoded[-49:-1], KEY_BYTES - 49)
    salt = bytes(a ^ b for a, b in zip(encoded[-97:-49], mask[-48:], strict=True))
    sides = []
    for key, blinded in (one, other):
        modulus, (p, q) = key.public.modulus, key.primes
        number = ticket.encode(key.public.to_sign("lyon", token[2:34]), salt, 8 * KEY_BYTES)
        quotient = int.from_bytes(blinded) * pow(number, -1, modulus) % modulus
        sides.append((ticket.sign(quotient, p, q) - 1, modulus - 1))
    (left, m), (right, n) = sides
    common = math.gcd(m, n)
    steps = (right - left) // common * pow(m // common, -1, n // common) % (n // common)
    return (right - left) % common == 0 and left + m * steps < 1 << (8 * 320)


def test_one_seed_for_two_keys_would_link() -> None:
    """The power of the attack."""
    keys = (KEY, another_key())
    asked = [TicketRequest(bytes(32), key.public, "lyon") for key in keys]
    token = asked[1].finish(keys[1].sign(asked[1].blinded))
    one, other = ((key, each.blinded) for key, each in zip(keys, asked, strict=True))
    assert links(token, one, other)
    assert not links(token, (KEY, TicketRequest(b"1" * 32, KEY.public, "lyon").blinded), other)


def test_a_collector_with_two_keys_links_nothing(signer: Signer, path: Path) -> None:
    """It spoils what it signs with one, and shows another when the device asks again."""
    it = invited(signer, path)
    signer.spoils = True
    assert refused(it.accept).detail == "signature"
    signer.spoils, signer.key, signer.codes = False, another_key(), {CODE: ""}
    assert it.report(**PLACE).acknowledged
    first, second = signer.blinded
    assert not links(from_text(signer.tickets[0]), (KEY, first), (another_key(), second))


def test_after_the_report_nobody_asks_again(signer: Signer, path: Path) -> None:
    """Whoever did would be known as one of those whose report was counted."""
    for _ in range(2):
        it = invited(signer, path)
        it.accept()
        assert it.report(**PLACE).acknowledged
    assert len(signer.blinded) == len(signer.tickets) == 1
    assert seeds(it) == []


def seeds(it: Device) -> list[bytes]:
    with it.ledger._book() as book:
        return [seed for (seed,) in book.execute("SELECT seed FROM ticket")]


def test_whoever_is_late_has_the_report_of_who_was_quicker(
    signer: Signer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once with one ledger: the other's report is counted between two steps of this one."""
    late, quick = invited(signer, path), invited(signer, path)
    receipts = []
    accept = late.accept

    def later() -> None:
        receipts.append(quick.report(**PLACE))
        accept()

    monkeypatch.setattr(late, "accept", later)
    assert [late.report(**PLACE)] == receipts
    assert len(signer.blinded) == len(signer.tickets) == 1
    assert seeds(late) == []


def test_a_report_drawn_before_there_was_an_invitation_goes_with_its_ticket(
    signer: Signer, path: Path
) -> None:
    with pytest.raises(Unacknowledged) as waits:
        device(signer, path).report(**PLACE)
    receipt = invited(signer, path).report(**PLACE)
    assert receipt.acknowledged
    assert receipt.report == waits.value.receipt.report
    assert len(signer.blinded) == 1


def test_a_report_that_never_counts_leaves_no_ticket(signer: Signer, path: Path) -> None:
    it = invited(signer, path)
    it.accept()
    (seed,), token = seeds(it), it.ledger.ticket(it.address.name)
    assert token
    signer.faults = [problem(410, "mechanism-expired")]
    assert refused(it.report, **PLACE).sent
    kept = everything_in(path.parent)
    assert seed not in kept
    assert token not in kept
    it.accept()
    assert len(signer.blinded) == 1


def frames_of(error: BaseException) -> str:
    """What stands in the frames of the package that an exception went through."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if f"{Path('geoveil', 'client')}" in trace.tb_frame.f_code.co_filename:
            found += repr(trace.tb_frame.f_locals)
        trace = trace.tb_next
    return found


def test_neither_seed_nor_ticket_nor_code_is_in_what_is_raised(signer: Signer, path: Path) -> None:
    it = invited(signer, path)
    signer.spoils = True
    with pytest.raises(Refused) as caught:
        it.accept()
    raised = [caught.value]
    signer.spoils = False
    it.accept()
    (seed,), token = seeds(it), it.ledger.ticket(it.address.name)
    assert token
    signer.faults = [CUT] * 3
    with pytest.raises(Unacknowledged) as waits:
        it.report(**PLACE)
    signer.faults = [problem(410, "mechanism-expired")]
    raised += [waits.value, refused(it.report, **PLACE)]
    for error in raised:
        told = frames_of(error)
        assert told
        for secret in (repr(seed), repr(token), as_text(token), CODE):
            assert secret not in told
