"""Operators' tokens: shown once, kept as SHA-256 only."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

from geoveil.server.problem import Problem
from geoveil.server.settings import LONGEST_TOKEN
from geoveil.store.contract import Store

_BYTES = 24


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    """Who may operate."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._known: tuple[bytes, ...] = ()

    def prepare(self, given: str) -> str | None:
        """Keep the given token; without one, make a first token, returned so that it can be shown once.

        The token must be one that ``Settings`` takes: :meth:`check` never sees any other.
        """
        if given:
            self._keep(given, "given at start")
            return None
        if self._store.has_tokens():
            return None
        made = secrets.token_urlsafe(_BYTES)
        self._keep(made, "made at first start")
        return made

    def _keep(self, token: str, label: str) -> None:
        if not self._store.token_known(digest_of(token)):
            self._store.add_token(digest_of(token), label=label, at_s=int(self._clock()))

    def check(self, authorization: str | None) -> None:
        """Raise the problem ``unauthorised`` unless the header holds the token of an operator.

        Digests are compared, in constant time where they are known already; the store sees a digest
        only, so the time its search takes says nothing about a token.
        """
        scheme, _, given = (authorization or "").partition(" ")
        token = given.strip()
        if scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN:
            raise Problem("unauthorised", "this call needs the header Authorization: Bearer TOKEN")
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        if any(hmac.compare_digest(digest, known) for known in self._known):
            return
        if not self._store.token_known(digest):
            raise Problem("unauthorised", "the token is not one of this service's operators")
        self._known = (*self._known, digest)
