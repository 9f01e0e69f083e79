"""Why a device does not report: stable words for programs, one sentence each for people.

Nothing that is raised may tell where somebody is: messages hold no location, and tracebacks no frames in
which a location, or a key that would give it away, has stood; nor a ticket, or what shows whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from geoveil.errors import GeoveilError

if TYPE_CHECKING:
    from geoveil.client.device import Receipt

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

REASONS: Mapping[str, str] = {
    "insecure": "the collector must be reached over https; plain http is for this machine only",
    "unreachable": "the collector did not answer; try again later",
    "redirect": "the collector sent the device to another address",
    "answer": "the collector did not answer as a collector does",
    "document": "the mechanism document is not sound",
    "trips": "the campaign asks for trips, with both ends; use report_trip",
    "places": "the campaign asks for places, not for trips; use report",
    "level": "the campaign does not offer the promise that was chosen",
    "campaign": "the mechanism document belongs to another campaign",
    "promise": "the promise allows more than the limit that was set for this device",
    "not-yet-valid": "the mechanism is not valid yet, or this device's clock is behind",
    "expired": "the mechanism has expired, or this device's clock is ahead",
    "ended": "the campaign has ended",
    "clock": "this device's clock does not tell a time; set it",
    "zone": "the campaign's slots are those of a time zone that this device does not know",
    "slot": "the campaign asks about certain times only, and now is none of them",
    "clocks": "this device's clock and the collector's are in different slots; set the clock",
    "space": "the cells are not those that the campaign had when this device first saw it",
    "budget": "the report would cost more than is left of the budget",
    "location": "the location must be a latitude from -90 to 90 and a longitude, in degrees",
    "accuracy": "the fix must be no coarser than a cell of the campaign; measure again",
    "outside": "the location lies outside the campaign's box, where this device was told to be silent",
    "invitation": "the invitation gives no ticket",
    "ticket": "the collector's key or signature is not in order",
    "problem": "the collector refused",
    "ledger-unreadable": "the ledger cannot be read, and nothing is charged without it; put a copy back",
    "ledger-lost": "the ledger is missing although its anchor is there; put it back",
    "ledger-exchanged": "the ledger is another one than its anchor names; put the right one back",
    "ledger-unwritable": "the ledger cannot be written, so nothing is charged; make room, or choose a place",
    "ledger-busy": "another process holds the ledger; try again",
}
"""Reason → what was wrong, for a person."""
_SENT = "sent and charged, and the collector did not count it"


class Refused(GeoveilError):
    """The device did not report, or (``sent``) the collector will never count what it was sent.

    ``reason`` is a key of :data:`REASONS`. ``detail`` says more where there is more to say: the word of
    :class:`~geoveil.document.wire.RefusedDocument`, or the name of the collector's problem. ``sent`` tells
    whether the noisy cell has left the device, and its charge is spent. No location is in the message.

    >>> str(Refused("document", "certificate"))
    'not reported: the mechanism document is not sound (certificate)'
    >>> str(Refused("problem", "mechanism-expired", sent=True))
    'sent and charged, and the collector did not count it (mechanism-expired)'
    """

    def __init__(self, reason: str, detail: str = "", *, sent: bool = False) -> None:
        more = f" ({detail})" if detail else ""
        super().__init__((_SENT if sent else f"not reported: {REASONS[reason]}") + more)
        self.reason = reason
        self.detail = detail
        self.sent = sent


class Unacknowledged(GeoveilError):
    """The report may have left, and nobody said for good whether it counts; it waits for ``Device.flush``.

    ``receipt`` says what was sent. ``problem`` is the name of the collector's problem, where it answered
    with one that may pass; empty where no answer of a collector came.
    """

    def __init__(self, receipt: Receipt, why: str, problem: str = "") -> None:
        super().__init__(f"the report is not acknowledged yet: {why}; call flush() later")
        self.receipt = receipt
        self.problem = problem


def without_frames(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, whose failures lose the frames, the cause and the context they came with.

    Tracebacks keep the frames they went through, and frames keep what stood in them: for functions in
    which a location, a key or a ticket stands.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **keywords)
        except BaseException as caught:  # the end of the program among them
            caught.__cause__ = caught.__context__ = None
            failure = caught.with_traceback(None)
        del arguments, keywords
        raise failure

    return call
