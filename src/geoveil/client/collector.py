"""A campaign’s collector as a device sees it: documents fetched and checked, reports handed over."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from geoveil.arrays import count, positive
from geoveil.client.ledger_book import Charge
from geoveil.client.network import Address, Answer, Transport, Unreachable
from geoveil.client.refusal import Refused
from geoveil.document.canonical import number, strict_json
from geoveil.document.ticket import (
    SEED_BYTES,
    RefusedTicket,
    TicketKey,
    TicketRequest,
    as_text,
    expand,
    from_text,
)
from geoveil.document.wire import LARGEST_ANSWER, MechanismDocument, RefusedDocument, tag_of
from geoveil.errors import Unsupported
from geoveil.randomness import SYSTEM

CLOCK_SKEW_S = 300.0
"""A device's clock may be this much behind the collector's."""
_ANSWER_BYTES = 1 << 16
_PROBLEMS = "https://geoveil.org/problems/"
_LATER = frozenset({408, 425, 429})
_ENDED = "campaign-ended"
_FINAL = frozenset(
    {"mechanism-expired", "cell-out-of-range", "slot-out-of-range", "malformed-body", _ENDED}
)
"""Problems of the report itself or of its campaign, at any time and wherever it is sent. Any other may
pass: a clock is put right, a proxy finds the right service."""


@dataclass(frozen=True, slots=True)
class Patience:
    """At most ``attempts`` tries, begun within ``total_s``; the k-th pause is random, up to 2ᵏ·``first_s``.

    A collector that names a time to wait is waited for, unless that is beyond ``total_s``.
    """

    attempts: int = 5
    total_s: float = 30.0
    first_s: float = 0.5
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = lambda: float(SYSTEM.uniform(1)[0])

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

    def answer(self, request: Callable[[], Answer]) -> Answer | None:
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

        return answers[0] if self.until(attempt) else None


@lru_cache(maxsize=16)
def offered(body: bytes) -> tuple[MechanismDocument, ...]:
    """The levels in these bytes, sound but for their certificates; read once for all devices of a process."""
    try:
        return MechanismDocument.read_levels(body, certified=True)
    except RefusedDocument as refused:
        raise Refused("document", refused.reason) from None


def check_promise(document: MechanismDocument) -> None:
    """Refuse a document whose whole numbers do not keep its promise; a process asks each once."""
    if not document.law.keeps(document.promise):
        raise Refused("document", "certificate")


class Collector:
    """One campaign's collector behind a transport."""

    def __init__(self, address: Address, transport: Transport, patience: Patience) -> None:
        self._address = address
        self._transport = transport
        self._patience = patience
        self._latest: tuple[MechanismDocument, ...] = ()
        self._ahead_s = 0.0  # the collector's clock at its last answer; 0 where it did not say

    def mechanism(
        self,
        *,
        max_epsilon_per_km: float,
        now_s: float,
        promise_per_km: float | None = None,
        trip: bool | None = None,
    ) -> MechanismDocument:
        """The current document of this campaign, in its time and within the limit; of trips twice its ε is.

        ``trip`` says whether a trip is to be reported, or a place; ``None`` where nobody knows yet.

        The promise is the one chosen, or the strongest that is offered; all are asked for, so that asking
        does not show the choice. All is checked but the certificate (:func:`check_promise`). What is here
        already is not transferred again. The tag is made from ids that the device computed, never one of
        the collector's choosing, which could mark a device.
        """
        self._latest = self._fetched(now_s)
        chosen = (level for level in self._latest if promise_per_km in (None, level.epsilon_per_km))
        document = next(chosen, None)
        if document is None:
            offers = ", ".join(number(level.epsilon_per_km) for level in self._latest)
            raise Refused("level", f"it offers {offers} per km")
        if document.campaign != self._address.campaign:
            raise Refused("campaign")
        if trip not in (None, document.trips):
            raise Refused("trips") if document.trips else Refused("places")
        if document.cost.epsilon_per_km > max_epsilon_per_km:
            raise Refused("promise")
        self.slot(document, now_s)
        return document

    def slot(self, document: MechanismDocument, now_s: float) -> int | None:
        """The slot that a location of now is true in; ``None`` where the document, which is of now, has none.

        It is that of the device's clock, never one of the collector's choosing. Where the collector's
        clock, by its last answer, is in another one and more than a moment away, one of them is wrong.
        """
        if now_s < document.not_before_s - CLOCK_SKEW_S:
            raise Refused("not-yet-valid")
        if now_s >= document.expires_s:
            raise Refused("expired")
        slots = document.slots
        if slots is None:
            return None
        try:
            slot, theirs = slots.at(now_s), slots.at(now_s + self._ahead_s)
        except Unsupported:
            raise Refused("zone") from None
        if slot is None:
            raise Refused("slot")
        if slot != theirs and abs(self._ahead_s) > CLOCK_SKEW_S:
            raise Refused("clocks")
        return slot

    def _fetched(self, now_s: float) -> tuple[MechanismDocument, ...]:
        path, tag = self._address.path("/mechanism"), tag_of(self._latest) if self._latest else None
        answer = self._patience.answer(
            lambda: self._transport.get(path, tag=tag, limit=LARGEST_ANSWER)
        )
        if answer is None:
            raise Refused("unreachable")
        self._ahead_s = 0.0 if answer.date_s is None else answer.date_s - now_s
        if answer.status == 304 and self._latest:
            return self._latest
        if answer.status == 200:
            return offered(answer.body)
        problem = _problem(answer)
        if problem:
            raise Refused("ended") if problem == _ENDED else Refused("problem", problem)
        raise Refused("answer", f"status {answer.status}")

    def ticket(self, invitation: str, seed: bytes, *, late: bool) -> bytes:
        """A ticket for an invitation, signed without being seen; the same again for the same seed and key.

        After the last round only ``late``, for a report that was drawn before: no other would come of it.

        Another key gets a request that has nothing of the first one: two from one seed would show, to
        whoever has both keys, which ticket is theirs.
        """
        path, campaign = self._address.path(), self._address.campaign
        state = self._said(lambda: self._transport.get(path, tag=None, limit=LARGEST_ANSWER))
        spki = state.get("ticket_key")
        if spki is None:
            raise Refused("invitation", "not-offered")
        if state.get("state") == "finished" and not late:
            raise Refused("invitation", "campaign-finished")
        try:
            key = TicketKey.from_bytes(from_text(str(spki)))
            request = TicketRequest(expand(seed, key.spki, SEED_BYTES), key, campaign)
        except (RefusedTicket, ValueError):
            raise Refused("ticket", "key") from None
        wish = {"invitation": invitation, "blinded": as_text(request.blinded)}
        path, body = self._address.path("/tickets"), json.dumps(wish).encode()
        signed = self._said(lambda: self._transport.post(path, body, limit=_ANSWER_BYTES))
        try:
            return request.finish(from_text(str(signed.get("signature"))))
        except (RefusedTicket, ValueError):
            raise Refused("ticket", "signature") from None

    def _said(self, request: Callable[[], Answer]) -> dict[str, Any]:
        """The object in an answer to something about tickets."""
        answer = self._patience.answer(request)
        if answer is None:
            raise Refused("unreachable")
        problem, body = _problem(answer), _json(answer)
        if problem:
            raise Refused("ended") if problem == _ENDED else Refused("invitation", problem)
        if answer.status != 200 or not isinstance(body, dict):
            raise Refused("answer", f"status {answer.status}")
        return body

    def count(self, charge: Charge, ticket: bytes | None = None) -> tuple[str, str] | None:
        """Hand over a drawn report; ``None`` once it is counted, ``Refused`` where it can never count.

        Else it may count later: why not now, and the name of the collector's problem, where it gave one.
        """
        report = {"mechanism": charge.mechanism, "id": charge.report, "cell": charge.cell}
        if charge.slot is not None:
            report["slot"] = charge.slot
        if charge.to_cell is not None:
            report["to"] = charge.to_cell
        path = self._address.path("/reports")
        body = json.dumps(report, separators=(",", ":")).encode()
        try:
            post = partial(self._transport.post, path, body, limit=_ANSWER_BYTES)
            if ticket is not None:
                post = partial(post, ticket=as_text(ticket))
            answer = self._patience.answer(post)
        except Refused as refused:  # of the connection, not of the report
            return str(refused).removeprefix("not reported: "), ""
        except Exception as failure:  # of an app's own transport
            return f"the transport failed ({type(failure).__name__})", ""
        if answer is None:
            return "the collector did not answer", ""
        if answer.status == 200 and _json(answer) == {"id": charge.report, "status": "counted"}:
            return None
        problem = _problem(answer) if 400 <= answer.status < 500 else ""
        if problem in _FINAL:
            raise Refused("problem", problem, sent=True)
        if problem:
            return f"the collector did not count it now ({problem})", problem
        return "the answer was not a collector's", ""


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
