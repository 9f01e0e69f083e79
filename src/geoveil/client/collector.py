"""A campaign’s collector as a device sees it: documents checked, reports handed over."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from geoveil.arrays import count, positive
from geoveil.client.ledger import Charge
from geoveil.client.refusal import Refused
from geoveil.client.transport import Address, Answer, Transport, Unreachable
from geoveil.document.canonical import strict_json
from geoveil.document.wire import LARGEST_BYTES, MechanismDocument, RefusedDocument
from geoveil.randomness import SYSTEM

CLOCK_SKEW_S = 300.0
"""A device's clock may be this much behind the collector's."""
_ANSWER_BYTES = 1 << 16
_PROBLEMS = "https://geoveil.org/problems/"
_LATER = frozenset({408, 425, 429})
_FINAL = frozenset({"mechanism-expired", "cell-out-of-range", "malformed-body"})
"""Problems of the report itself, at any time and wherever it is sent. Any other may pass: a clock is put
right, a proxy finds the right service."""


def _jitter() -> float:
    return float(SYSTEM.uniform(1)[0])


@dataclass(frozen=True, slots=True)
class Patience:
    """At most ``attempts`` tries within ``total_s``; the k-th pause is random, up to ``first_s``·2ᵏ.

    A collector that names a time to wait is waited for, unless that is beyond ``total_s``.
    """

    attempts: int = 5
    total_s: float = 30.0
    first_s: float = 0.5
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = _jitter

    def __post_init__(self) -> None:
        count("attempts", self.attempts)
        positive("total_s", self.total_s)
        positive("first_s", self.first_s)

    def until(self, attempt: Callable[[], float | None]) -> bool:
        """Try until ``attempt`` returns ``None``; else it says how many seconds to wait at least.

        False when the tries or the time ran out.
        """
        last = self.clock() + self.total_s
        for k in range(self.attempts):
            least_s = attempt()
            if least_s is None:
                return True
            pause = max(least_s, self.first_s * 2**k * self.jitter())
            if k + 1 == self.attempts or self.clock() + pause > last:
                return False
            self.sleep(pause)
        return False


@lru_cache(maxsize=16)
def verified(body: bytes) -> MechanismDocument:
    """The document in these bytes; the certificate is computed once for all devices of a process."""
    try:
        document = MechanismDocument.read(body)
    except RefusedDocument as refused:
        raise Refused("document", refused.reason) from None
    if json.loads(body).get("id") is None:
        raise Refused("document", "id")
    return document


class NoAnswer(Exception):
    """A report was handed over and nobody said for good what became of it; the text says why.

    ``problem`` is the name of the collector's problem, where it answered with one.
    """

    def __init__(self, why: str, problem: str = "") -> None:
        super().__init__(why)
        self.problem = problem


class Collector:
    """One campaign's collector behind a transport."""

    def __init__(self, address: Address, transport: Transport, patience: Patience) -> None:
        self._address = address
        self._transport = transport
        self._patience = patience
        self._latest: MechanismDocument | None = None

    def mechanism(self, *, max_epsilon_per_km: float, now_s: float) -> MechanismDocument:
        """The current document, sound, of this campaign, in its time and within the limit.

        What is here already is not transferred again. The tag is the id that the device computed, never
        one of the collector's choosing, which could mark a device.
        """
        document = self._latest = self._fetched()
        if document.campaign != self._address.campaign:
            raise Refused("campaign")
        if document.epsilon_per_km > max_epsilon_per_km:
            raise Refused("promise")
        if now_s < document.not_before_s - CLOCK_SKEW_S:
            raise Refused("not-yet-valid")
        if now_s >= document.expires_s:
            raise Refused("expired")
        return document

    def _fetched(self) -> MechanismDocument:
        path, tag = self._address.mechanism_path, self._latest.id if self._latest else None
        answer = self._patiently(lambda: self._transport.get(path, tag=tag, limit=LARGEST_BYTES))
        if answer is None:
            raise Refused("unreachable")
        if answer.status == 304 and self._latest is not None:
            return self._latest
        if answer.status == 200:
            return verified(answer.body)
        problem = _problem(answer)
        if problem:
            raise Refused("problem", problem)
        raise Refused("answer", f"status {answer.status}")

    def count(self, charge: Charge) -> None:
        """Hand over a drawn report; returns once it is counted.

        Else ``Refused``, where the report can never count, or ``NoAnswer``, where it may count later.
        """
        report = {"mechanism": charge.mechanism, "id": charge.report, "cell": charge.cell}
        path, body = self._address.reports_path, json.dumps(report, separators=(",", ":")).encode()
        try:
            answer = self._patiently(lambda: self._transport.post(path, body, limit=_ANSWER_BYTES))
        except Refused as refused:  # of the connection, not of the report
            raise NoAnswer(str(refused)) from None
        if answer is None:
            raise NoAnswer("the collector did not answer")
        if answer.status == 200 and _json(answer) == {"id": charge.report, "status": "counted"}:
            return
        problem = _problem(answer) if 400 <= answer.status < 500 else ""
        if problem in _FINAL:
            raise Refused("problem", problem, sent=True)
        if problem:
            raise NoAnswer(f"the collector did not count it now ({problem})", problem)
        raise NoAnswer("the answer was not a collector's")

    def _patiently(self, request: Callable[[], Answer]) -> Answer | None:
        """The first answer that is not a request to wait, or ``None``."""
        answers: list[Answer] = []

        def attempt() -> float | None:
            try:
                answer = request()
            except Unreachable:
                return 0.0
            if answer.status in _LATER or answer.status >= 500:
                return answer.retry_after_s
            answers.append(answer)
            return None

        return answers[0] if self._patience.until(attempt) else None


def _problem(answer: Answer) -> str:
    """The name of the collector's problem; empty where the answer is none."""
    body = _json(answer)
    kind = body.get("type") if isinstance(body, dict) else None
    if answer.media != "application/problem+json" or not isinstance(kind, str):
        return ""
    name = kind.removeprefix(_PROBLEMS)
    plain = name.isascii() and name.replace("-", "").isalpha() and len(name) <= 40
    return name if plain and kind.startswith(_PROBLEMS) else ""


def _json(answer: Answer) -> Any:
    try:
        return strict_json(answer.body)
    except (ValueError, RecursionError):
        return None
