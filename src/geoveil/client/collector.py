"""The collector as a device sees it: a document to fetch, a report to hand over, both with patience."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from geoveil.client.address import Address
from geoveil.client.book import Charge
from geoveil.client.document import Verified, verified
from geoveil.client.patience import Patience
from geoveil.client.refusal import Refused
from geoveil.client.transport import Answer, Transport, Unreachable
from geoveil.report.wire import LARGEST_BYTES

_ANSWER_BYTES = 1 << 16
_PROBLEMS = "https://geoveil.org/problems/"
_LATER = frozenset({408, 425, 429})
_FINAL = frozenset({"mechanism-expired", "cell-out-of-range", "malformed-body"})
"""Problems of the report itself, at any time and wherever it is sent. Any other may pass: a clock is put
right, a proxy finds the right service."""


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
        self._latest: Verified | None = None

    def mechanism(self) -> Verified:
        """The current document; what is here already is not transferred again.

        The tag is the id that the device computed, never one of the collector's choosing, which could
        mark a device.
        """
        tag = self._latest.id if self._latest else None
        answer = self._patiently(
            lambda: self._transport.get(self._address.mechanism_path, tag=tag, limit=LARGEST_BYTES)
        )
        if answer is None:
            raise Refused("unreachable")
        if answer.status == 304 and self._latest is not None:
            return self._latest
        if answer.status != 200:
            raise _refusal(answer)
        self._latest = verified(answer.body)
        return self._latest

    def count(self, charge: Charge) -> None:
        """Hand over a drawn report; returns once it is counted.

        Else ``Refused``, where the report can never count, or ``NoAnswer``, where it may count later.
        """
        report = {"mechanism": charge.mechanism, "id": charge.report, "cell": charge.cell}
        body = json.dumps(report, separators=(",", ":")).encode()
        try:
            answer = self._patiently(
                lambda: self._transport.post(self._address.reports_path, body, limit=_ANSWER_BYTES)
            )
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


def _refusal(answer: Answer) -> Refused:
    problem = _problem(answer)
    return Refused("problem", problem) if problem else Refused("answer", f"status {answer.status}")


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
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
