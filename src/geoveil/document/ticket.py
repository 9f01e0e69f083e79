"""Tickets: signed by a collector that does not see them, so that a report counts once for each invitation.

A ticket is a Privacy Pass token of type 2 (RFC 9578): a blind RSA signature of 2048 bits (RFC 9474), PSS with
SHA-384. Whoever signed cannot tell which ticket came from which request: for every pair of them there is
exactly one blinding factor that makes the one into the other.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
from dataclasses import dataclass
from functools import cached_property

from geoveil.errors import InvalidFile
from geoveil.randomness import SYSTEM, Randomness

EXPONENT = 65_537
KEY_BYTES = 256
SEED_BYTES = 32
_TYPE = b"\x00\x02"
_SIGNED_BYTES = 98
"""Of a token: its type, a nonce, the digests of challenge and key; the signature follows."""
TOKEN_BYTES = _SIGNED_BYTES + KEY_BYTES
_SALT_BYTES = _HASH_BYTES = 48
_BEFORE = bytes.fromhex(
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d01"
    "0108300b0609608648016503040202a2030201300382010f003082010a0282010100"
)
_AFTER = bytes.fromhex("0203010001")
"""A public key as RFC 9578 writes it: what stands before its modulus, and its exponent."""
_SIEVE = math.prod(n for n in range(3, 400, 2) if all(n % d for d in range(3, n, 2)))
_WITNESSES = 40
"""Of the test of Miller and Rabin: a number that is no prime passes with a chance below 2⁻⁸⁰."""


class RefusedTicket(InvalidFile):
    """A key or a signature that is not what it must be."""


@dataclass(frozen=True)
class TicketKey:
    """The public key that the tickets of one campaign are signed with."""

    modulus: int

    @classmethod
    def from_bytes(cls, spki: bytes) -> TicketKey:
        """The key in these bytes; no other form of a key is read."""
        modulus = spki[len(_BEFORE) : -len(_AFTER)]
        sound = spki == _BEFORE + modulus + _AFTER and len(modulus) == KEY_BYTES
        if not sound or modulus[0] < 128 or modulus[-1] % 2 == 0:
            raise RefusedTicket("the key must be one of RSA with 2048 bits, as RFC 9578 writes it")
        return cls(int.from_bytes(modulus))

    @cached_property
    def spki(self) -> bytes:
        """The key as bytes."""
        return _BEFORE + self.modulus.to_bytes(KEY_BYTES) + _AFTER

    def can_sign(self, blinded: bytes) -> bool:
        """Whether a request is a number that can be signed."""
        return len(blinded) == KEY_BYTES and 0 < int.from_bytes(blinded) < self.modulus

    def to_sign(self, campaign: str, nonce: bytes) -> bytes:
        """What the ticket of a campaign says; the signature follows it."""
        return _TYPE + nonce + _digest(challenge(campaign)) + _digest(self.spki)

    def report_id(self, campaign: str, token: bytes) -> bytes | None:
        """The 16 bytes that a ticket counts under; ``None`` where it is none of this campaign."""
        said, signature = token[:_SIGNED_BYTES], int.from_bytes(token[_SIGNED_BYTES:])
        if len(token) != TOKEN_BYTES or signature >= self.modulus:
            return None
        if not hmac.compare_digest(said, self.to_sign(campaign, said[2:34])):
            return None
        encoded = pow(signature, EXPONENT, self.modulus).to_bytes(KEY_BYTES)
        return _digest(said)[:16] if _is_encoded(said, encoded) else None


@dataclass(frozen=True, repr=False)
class SigningKey:
    """The private key of a campaign's tickets: two primes."""

    primes: tuple[int, int]

    @classmethod
    def new(cls, randomness: Randomness = SYSTEM) -> SigningKey:
        """A key from the operating system's randomness; takes about a second."""
        return cls((_prime(randomness), _prime(randomness)))

    @classmethod
    def from_bytes(cls, stored: bytes) -> SigningKey:
        """The key as :meth:`to_bytes` wrote it."""
        return cls((int.from_bytes(stored[:128]), int.from_bytes(stored[128:])))

    def to_bytes(self) -> bytes:
        """Both primes, for a database."""
        return b"".join(prime.to_bytes(128) for prime in self.primes)

    @cached_property
    def public(self) -> TicketKey:
        """What everybody may know."""
        return TicketKey(math.prod(self.primes))

    def sign(self, blinded: bytes, randomness: Randomness = SYSTEM) -> bytes:
        """The signature of what stands in a request, which says nothing of the ticket.

        The time that powers take depends on what is raised: so it is multiplied by something random before.
        """
        modulus, number = self.public.modulus, int.from_bytes(blinded)
        if not self.public.can_sign(blinded):
            raise RefusedTicket("a request must be a number below the modulus, in 256 bytes")
        factor = 1 + int.from_bytes(randomness.bytes(KEY_BYTES + 64)) % (modulus - 1)
        signature = sign(number * pow(factor, EXPONENT, modulus) % modulus, *self.primes)
        signature = signature * pow(factor, -1, modulus) % modulus
        if pow(signature, EXPONENT, modulus) != number:  # a wrong one would tell the primes
            raise RefusedTicket("the signature could not be made; ask again")
        return signature.to_bytes(KEY_BYTES)


def sign(number: int, p: int, q: int) -> int:
    """The root of a number modulo the product of two primes, by way of both of them."""
    one, other = (pow(number, pow(EXPONENT, -1, prime - 1), prime) for prime in (p, q))
    return other + q * ((one - other) * pow(q, -1, p) % p)


class TicketRequest:
    """A device's side: what it asks to be signed, and the ticket from the answer.

    All that is random comes from the seed, which is kept before the request is sent: a lost answer is
    asked for again with the same request. A seed is for one key: whoever has two, and a request to each
    from one seed, finds both in the ticket.
    """

    def __init__(self, seed: bytes, key: TicketKey, campaign: str) -> None:
        self._key = key
        modulus = key.modulus
        self._said = key.to_sign(campaign, expand(seed, b"nonce", 32))
        self._encoded = encode(self._said, expand(seed, b"salt", _SALT_BYTES), 8 * KEY_BYTES)
        self._factor = 1 + int.from_bytes(expand(seed, b"blind", 320)) % (modulus - 1)
        if math.gcd(self._factor * self._encoded, modulus) != 1:
            raise RefusedTicket("the key must be the product of two large primes")
        blinded = self._encoded * pow(self._factor, EXPONENT, modulus) % modulus
        self.blinded = blinded.to_bytes(KEY_BYTES)

    def finish(self, signature: bytes) -> bytes:
        """The ticket; refused where the answer is no signature of what was asked."""
        modulus, answer = self._key.modulus, int.from_bytes(signature)
        unblinded = answer * pow(self._factor, -1, modulus) % modulus
        if len(signature) != KEY_BYTES or pow(unblinded, EXPONENT, modulus) != self._encoded:
            raise RefusedTicket("the signature must be one of the request, by the campaign's key")
        return self._said + unblinded.to_bytes(KEY_BYTES)


def challenge(campaign: str) -> bytes:
    """What a ticket is good for: the reports of one campaign (TokenChallenge of RFC 9577)."""
    name = campaign.encode("ascii")
    return _TYPE + len(name).to_bytes(2) + name + b"\x00" + b"\x00\x00"


def expand(seed: bytes, use: bytes, size: int) -> bytes:
    """Bytes for one use of a seed."""
    blocks = (hashlib.sha512(seed + use + bytes([i])).digest() for i in range(-(-size // 64)))
    return b"".join(blocks)[:size]


def as_text(data: bytes) -> str:
    """Bytes as base64url, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """The bytes in base64url; none where it is cut off."""
    return b"" if len(text) % 4 == 1 else base64.urlsafe_b64decode(text + "==")


# --- EMSA-PSS of RFC 8017 with SHA-384 and 48 bytes of salt


def encode(message: bytes, salt: bytes, bits: int) -> int:
    """The number whose root is the signature, below the top bit of a modulus of so many bits."""
    size = bits // 8
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    block = bytes(size - len(salt) - _HASH_BYTES - 2) + b"\x01" + salt
    masked = int.from_bytes(block) ^ int.from_bytes(_mask(digest, len(block)))
    whole = masked.to_bytes(len(block)) + digest + b"\xbc"
    return int.from_bytes(whole) & ((1 << (bits - 1)) - 1)


def _is_encoded(message: bytes, encoded: bytes) -> bool:
    """Whether a number is the message's, whatever its salt."""
    block, digest = encoded[: -_HASH_BYTES - 1], encoded[-_HASH_BYTES - 1 : -1]
    plain = int.from_bytes(block) ^ int.from_bytes(_mask(digest, len(block)))
    salt = plain.to_bytes(len(block))[-_SALT_BYTES:]
    again = encode(message, salt, 8 * len(encoded)).to_bytes(len(encoded))
    return hmac.compare_digest(again, encoded)


def _mask(seed: bytes, size: int) -> bytes:
    blocks = (hashlib.sha384(seed + i.to_bytes(4)).digest() for i in range(-(-size // _HASH_BYTES)))
    return b"".join(blocks)[:size]


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


# --- Primes


def _prime(randomness: Randomness) -> int:
    """A prime of 1,024 bits, the upper two of them set: a product of two has 2,048."""
    while True:
        number = int.from_bytes(randomness.bytes(128)) | 3 << 1022 | 1
        alone = math.gcd(number, _SIEVE) == 1 == math.gcd(number - 1, EXPONENT)
        if alone and all(_may_be_prime(number, randomness) for _ in range(_WITNESSES)):
            return number


def _may_be_prime(number: int, randomness: Randomness) -> bool:
    """One test of Miller and Rabin."""
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    witness = 2 + int.from_bytes(randomness.bytes(192)) % (number - 3)
    power = pow(witness, (number - 1) >> twos, number)
    return power == 1 or any(pow(power, 1 << k, number) == number - 1 for k in range(twos))
