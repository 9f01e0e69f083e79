"""Tickets: the vectors of the RFCs, blindness by arithmetic, and everything that is no ticket."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from geoveil.client import Patience
from geoveil.client.collector import Collector
from geoveil.client.network import Address, Answer
from geoveil.document import ticket
from geoveil.document.ticket import (
    EXPONENT,
    KEY_BYTES,
    RefusedTicket,
    SigningKey,
    TicketKey,
    TicketRequest,
    as_text,
    from_text,
)
from geoveil.randomness import seeded

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "vectors" / "tickets.json").read_text()
)
KEY = SigningKey.from_bytes(bytes.fromhex(VECTORS["geoveil"]["primes"]))
SEED = bytes(range(32))
MODULUS = KEY.public.modulus


def number(text: str) -> int:
    return int(text, 16)


@cache
def another_key() -> SigningKey:
    """Of a seed that comes upon two primes early."""
    return SigningKey.new(seeded(11))


@cache
def a_ticket() -> bytes:
    request = TicketRequest(SEED, KEY.public, "lyon")
    return request.finish(KEY.sign(request.blinded))


# --- The vectors of others


def test_blind_signatures_are_those_of_rfc_9474() -> None:
    """Appendix A.3, with 4,096 bits."""
    vector = VECTORS["rfc9474"]
    modulus, inverse = number(vector["n"]), number(vector["inv"])
    message, salt = bytes.fromhex(vector["msg"]), bytes.fromhex(vector["salt"])
    encoded = ticket.encode(message, salt, 4096)
    blinded = encoded * pow(pow(inverse, -1, modulus), EXPONENT, modulus) % modulus
    assert blinded == number(vector["blinded_msg"])
    signed = ticket.sign(blinded, number(vector["p"]), number(vector["q"]))
    assert signed == number(vector["blind_sig"])
    assert signed * inverse % modulus == number(vector["sig"])
    assert pow(number(vector["sig"]), EXPONENT, modulus) == encoded


@pytest.mark.parametrize("vector", VECTORS["rfc9578"], ids=["with-context", "without"])
def test_tokens_are_those_of_rfc_9578(vector: dict[str, str], monkeypatch) -> None:
    """The whole exchange of token type 2, with the vector's challenge, nonce, salt and factor."""
    key = TicketKey.from_bytes(bytes.fromhex(vector["pkS"]))
    monkeypatch.setattr(ticket, "challenge", lambda _: bytes.fromhex(vector["token_challenge"]))
    factor = (number(vector["blind"]) - 1).to_bytes(320)
    drawn = {b"nonce": bytes.fromhex(vector["nonce"]), b"salt": bytes.fromhex(vector["salt"])}
    monkeypatch.setattr(ticket, "expand", lambda _, use, size: drawn.get(use, factor))
    request = TicketRequest(SEED, key, "issuer.example")
    asked = bytes.fromhex(vector["token_request"])
    assert asked == b"\x00\x02" + ticket._digest(key.spki)[-1:] + request.blinded
    token = request.finish(bytes.fromhex(vector["token_response"]))
    assert token.hex() == vector["token"]
    assert key.report_id("issuer.example", token) is not None


@pytest.mark.parametrize("vector", VECTORS["geoveil"]["tickets"], ids=lambda v: v["campaign"][:8])
def test_our_vectors_are_what_this_program_makes(vector: dict[str, str]) -> None:
    assert KEY.public.spki.hex() == VECTORS["geoveil"]["ticket_key"]
    request = TicketRequest(bytes.fromhex(vector["seed"]), KEY.public, vector["campaign"])
    assert request.blinded.hex() == vector["blinded"]
    assert KEY.sign(request.blinded).hex() == vector["signature"]
    token = request.finish(bytes.fromhex(vector["signature"]))
    assert token.hex() == vector["token"]
    report = KEY.public.report_id(vector["campaign"], token)
    assert report is not None
    assert report.hex() == vector["report_id"]


def test_a_device_asks_with_a_seed_for_the_key_alone() -> None:
    (vector,) = (each for each in VECTORS["geoveil"]["tickets"] if "kept" in each)

    class Signer:
        """A collector that knows this one request."""

        def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
            return said(ticket_key=as_text(KEY.public.spki))

        def post(self, path: str, body: bytes, *, limit: int, ticket: str = "") -> Answer:
            assert from_text(json.loads(body)["blinded"]).hex() == vector["blinded"]
            return said(signature=as_text(bytes.fromhex(vector["signature"])))

    def said(**values: str) -> Answer:
        return Answer(200, "application/json", 0.0, json.dumps(values).encode())

    address = Address.of(f"https://collector.example/c/{vector['campaign']}")
    collector = Collector(address, Signer(), Patience())
    token = collector.ticket("", bytes.fromhex(vector["kept"]), late=False)
    assert token.hex() == vector["token"]


# --- What the signer learns


def test_every_request_may_be_that_of_every_ticket() -> None:
    """For each pair there is exactly one factor: what was signed says nothing of the ticket."""
    requests = [TicketRequest(bytes([i]) * 32, KEY.public, "lyon") for i in range(6)]
    signed = [int.from_bytes(KEY.sign(request.blinded)) for request in requests]
    tickets = [request.finish(KEY.sign(request.blinded)) for request in requests]
    for request, answer in zip(requests, signed, strict=True):
        for token in tickets:
            signature = int.from_bytes(token[-KEY_BYTES:])
            factor = answer * pow(signature, -1, MODULUS) % MODULUS
            encoded = pow(signature, EXPONENT, MODULUS)
            blinded = encoded * pow(factor, EXPONENT, MODULUS) % MODULUS
            assert blinded == int.from_bytes(request.blinded)


def test_nothing_in_a_request_is_the_same_for_another_seed() -> None:
    one, same, other = (
        TicketRequest(seed, KEY.public, "lyon").blinded for seed in (SEED, SEED, SEED[::-1])
    )
    assert one == same != other


def test_the_signature_is_the_same_whatever_hides_the_time_it_takes() -> None:
    blinded = TicketRequest(SEED, KEY.public, "lyon").blinded
    assert len({KEY.sign(blinded, seeded(seed)) for seed in range(5)}) == 1


# --- What is no ticket


@pytest.mark.parametrize("byte", [0, 1, 2, 33, 34, 65, 66, 97, 98, 353])
def test_a_ticket_with_another_bit_is_none(byte: int) -> None:
    changed = bytearray(a_ticket())
    changed[byte] ^= 1
    assert KEY.public.report_id("lyon", bytes(changed)) is None


def test_a_ticket_is_good_for_one_campaign_and_one_key() -> None:
    other = SigningKey.from_bytes(another_key().to_bytes()).public
    assert KEY.public.report_id("lyon", a_ticket()) is not None
    assert KEY.public.report_id("paris", a_ticket()) is None
    assert other.report_id("lyon", a_ticket()) is None


@pytest.mark.parametrize(
    "token",
    [
        b"",
        a_ticket()[:-1],
        a_ticket() + b"\x00",
        a_ticket()[:98] + MODULUS.to_bytes(KEY_BYTES),
        a_ticket()[:98] + bytes(KEY_BYTES),
        a_ticket()[:98] + (1).to_bytes(KEY_BYTES),
        a_ticket()[:98] + b"\xff" * KEY_BYTES,
    ],
)
def test_nothing_else_is_a_ticket(token: bytes) -> None:
    assert KEY.public.report_id("lyon", token) is None


def test_another_signature_of_the_same_ticket_is_the_same_ticket() -> None:
    """Whoever asks twice with another salt has one report."""
    said = a_ticket()[:98]
    encoded = ticket.encode(said, 48 * b"s", 2048)
    again = said + ticket.sign(encoded, *KEY.primes).to_bytes(KEY_BYTES)
    assert again != a_ticket()
    first = KEY.public.report_id("lyon", a_ticket())
    assert KEY.public.report_id("lyon", again) == first is not None


def test_products_of_signatures_are_no_ticket() -> None:
    """Powers are multiplicative, tickets are not."""
    one, two = (int.from_bytes(t[98:]) for t in (a_ticket(), a_ticket()))
    forged = a_ticket()[:98] + (one * two % MODULUS).to_bytes(KEY_BYTES)
    assert KEY.public.report_id("lyon", forged) is None


SPKI = KEY.public.spki


@pytest.mark.parametrize(
    "spki",
    [
        b"",
        SPKI[:-1],
        SPKI + b"\x00",
        SPKI[:-5] + bytes.fromhex("0203010003"),
        SPKI.replace(b"\x09\x60\x86", b"\x09\x60\x87", 1),
        SPKI[:-261] + b"\x7f" + SPKI[-260:],
        SPKI[:-6] + bytes([SPKI[-6] ^ 1]) + SPKI[-5:],
        SPKI[:81] + SPKI[209:],
    ],
)
def test_no_other_key_is_taken(spki: bytes) -> None:
    with pytest.raises(RefusedTicket, match="2048 bits"):
        TicketKey.from_bytes(spki)


@pytest.mark.parametrize("size", [0, 255, 257])
def test_a_device_refuses_an_answer_that_is_no_signature(size: int) -> None:
    request = TicketRequest(SEED, KEY.public, "lyon")
    good = KEY.sign(request.blinded)
    wrong = [bytes(size), good[::-1], MODULUS.to_bytes(KEY_BYTES)]
    wrong.append(((int.from_bytes(good) + 1) % MODULUS).to_bytes(KEY_BYTES))
    for signature in wrong:
        with pytest.raises(RefusedTicket, match="signature"):
            request.finish(signature)


@pytest.mark.parametrize("blinded", [b"", bytes(256), bytes(255) + b"1" * 2, b"\xff" * 256])
def test_what_cannot_be_signed_is_refused(blinded: bytes) -> None:
    with pytest.raises(RefusedTicket, match="below the modulus"):
        KEY.sign(blinded)


def test_a_key_with_small_factors_is_refused_where_it_would_mark_a_ticket() -> None:
    """What divides the modulus and the ticket divides the request too."""
    small = TicketKey((MODULUS // 15015 | 1) * 15015)
    for number in range(20):
        seed = bytes([number]) * 32
        said = small.to_sign("lyon", ticket.expand(seed, b"nonce", 32))
        encoded = ticket.encode(said, ticket.expand(seed, b"salt", 48), 2048)
        factor = 1 + int.from_bytes(ticket.expand(seed, b"blind", 320)) % (small.modulus - 1)
        if math.gcd(encoded * factor, small.modulus) > 1:
            with pytest.raises(RefusedTicket, match="two large primes"):
                TicketRequest(seed, small, "lyon")
        else:
            assert len(TicketRequest(seed, small, "lyon").blinded) == KEY_BYTES


def test_the_least_and_the_largest_number_that_is_signed() -> None:
    for number in (1, MODULUS - 1):
        blinded = number.to_bytes(KEY_BYTES)
        assert pow(int.from_bytes(KEY.sign(blinded)), EXPONENT, MODULUS) == number


def test_a_fault_while_signing_tells_nothing(monkeypatch) -> None:
    """One wrong half of a signature would tell a prime."""
    monkeypatch.setattr(ticket, "sign", lambda number, p, q: number)
    with pytest.raises(RefusedTicket, match="ask again"):
        KEY.sign(TicketRequest(SEED, KEY.public, "lyon").blinded)


# --- Keys


def test_a_new_key_is_two_primes_of_its_own() -> None:
    keys = [SigningKey.new(), another_key()]
    for key in keys:
        p, q = key.primes
        assert p.bit_length() == q.bit_length() == 1024
        assert key.public.modulus.bit_length() == 2048
        for prime in (p, q):
            assert all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11))
        assert SigningKey.from_bytes(key.to_bytes()) == key
        assert str(p) not in repr(key)
    assert keys[0] != keys[1]


CARMICHAEL = 6_000_003_067 * 12_000_006_133 * 18_000_009_199
"""Every power of the weaker test is 1 here, but of multiples of three large primes."""


@pytest.mark.parametrize("composite", [561, 3215031751, (2**61 - 1) * (2**31 - 1), CARMICHAEL])
def test_numbers_that_deceive_weaker_tests_are_no_primes(composite: int) -> None:
    assert not all(ticket._may_be_prime(composite, seeded(seed)) for seed in range(40))


@pytest.mark.parametrize("prime", [7, 97, 2**31 - 1, 2**61 - 1, 2**127 - 1, 2**521 - 1])
def test_primes_pass(prime: int) -> None:
    assert all(ticket._may_be_prime(prime, seeded(seed)) for seed in range(20))


@pytest.mark.parametrize("data", [b"", b"a", b"ab", bytes(range(256))])
def test_text_and_back(data: bytes) -> None:
    assert from_text(as_text(data)) == data
    assert "=" not in as_text(data)
    assert from_text("A" * (4 * len(data) + 1)) == b""  # cut off


def test_the_smallest_first_byte_of_a_modulus() -> None:
    spki = SPKI[:-261] + b"\x80" + SPKI[-260:]
    assert TicketKey.from_bytes(spki).modulus.bit_length() == 2048
