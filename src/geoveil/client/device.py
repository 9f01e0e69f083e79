"""A person’s end of a campaign: one report, and everything is checked before a location is read."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from geoveil.arrays import able, instance, one_of, positive
from geoveil.channel.guarantee import BetweenPositions
from geoveil.channel.words import NEARBY_KM, between_places, explain_nearby
from geoveil.client.budget import Limits, Spent, left_of, spent_in_words
from geoveil.client.collector import Collector, Patience, check_promise
from geoveil.client.ledger import Ledger
from geoveil.client.ledger_book import Again, Charge, Period, Round, Totals, checked_time, day_of
from geoveil.client.location import Beyond, Locate, Whereabouts, end_of_trip, in_words, whereabouts
from geoveil.client.network import Address, Network, Transport
from geoveil.client.refusal import REASONS, Refused, Unacknowledged, without_frames
from geoveil.document.wire import MechanismDocument
from geoveil.errors import InvalidInput, RandomnessFailed
from geoveil.position.whole_law import DRAW_BYTES
from geoveil.randomness import SYSTEM, Randomness, checked_randomness

SILENCE_TELLS = (
    'with outside="refuse" nothing is sent from outside the campaign\'s box, and that silence tells '
    "whoever watches that the person is not inside; by default a report is drawn there too"
)
MANY = 30
"""So many reports are spoken of before the first where a person lets the device report again."""
AROUND_KM = 0.1
"""How far from one place somebody moves who is spoken of as staying around it."""
_AGAIN = {
    "never": "It is the only report to this campaign, whatever rounds follow.",
    "day": "Every day with a report is charged anew.",
    "round": "Every round with a report is charged anew.",
}
_OF_INVITATIONS = (
    " Beside that the invitation is sent before the report, and with the report the ticket that it was "
    "exchanged for: neither shows which the other was, but when and from which address they come may."
)
_BETWEEN_CELLS = (
    " Some reports were made under an earlier version, whose promise was between cells only: for those "
    "the sentence is about the cells that people stood in."
)
_OF_TRIPS = (
    " Some reports are trips: both their ends were charged, and for those the sentence is about people "
    "whose trips begin and end so far apart."
)
_AHEAD = (
    " Some reports bear a later date than this device's clock shows: it was wrong then, or is now. "
    "The lifetime limit counts them all; the others those near today."
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """One report that left the device; apart from what it cost here, nothing else did.

    ``lat`` and ``lng`` are the centre of the *sent* cell, for a map.
    """

    campaign: str
    round: int
    mechanism: str
    """Id of the mechanism document: the same for everybody, so it can be compared."""
    report: str
    """Id of the report: 16 bytes that look random, in hexadecimal."""
    cell: int
    lat: float
    lng: float
    epsilon_per_km: float
    """What the report was charged."""
    slack_nats: float | None
    """η, which is charged beside it; ``None`` under an earlier version, whose promise was between cells."""
    budget_left_per_km: float
    operator_spent_per_km: float
    """What the reports to all campaigns of this origin have cost so far."""
    acknowledged: bool
    slot: int | None = None
    """The slot that was sent: when the location was true, as coarse as the document says; or ``None``."""
    to_cell: int | None = None
    """Of a trip: the other *sent* cell, where it ended; ``to_lat`` and ``to_lng`` are its centre."""
    to_lat: float | None = None
    to_lng: float | None = None


class Device:
    """A person's end of a campaign: one report to it, unless told otherwise.

    ``report`` fetches the current mechanism, checks it (``REASONS`` lists what can be wrong), reads the
    location, draws the noisy cell, charges the budget and sends the cell, the mechanism's id and an
    id of its own, and the slot where the campaign has slots: nothing else.
    A second call returns the first receipt: it reads no location, sends nothing new and costs nothing,
    whatever rounds were opened since. ``again="day"`` or ``"round"`` allows one report a day (UTC) or
    a round, each charged.

    ``invitation`` is the code, or stands in the link, where a campaign asks for one: a ticket is fetched
    with it before the location is read (:meth:`accept`), and the report counts once for it.

    ``promise_per_km`` chooses among the promises that a campaign offers; by default the strongest, with
    the smallest ε. ``budget_per_km`` limits all that the ledger ever spends, over all campaigns; nothing is
    given back.
    ``budget_per_day_per_km`` and ``budget_per_year_per_km`` (365 days) go by the device's own clock.
    ``slack_budget_nats`` limits what η of all reports adds up to: 10 nats, or as many as ``budget_per_km``.
    ``insecure`` allows plain http to other machines. ``patience``, ``transport``, ``randomness`` and
    ``clock`` are for tests and simulations. Reference: docs/client.md.
    """

    def __init__(
        self,
        url: str,
        *,
        max_epsilon_per_km: float,
        budget_per_km: float,
        ledger: str | Path | Ledger,
        promise_per_km: float | None = None,
        invitation: str | None = None,
        again: Again = "never",
        budget_per_day_per_km: float | None = None,
        budget_per_year_per_km: float | None = None,
        slack_budget_nats: float | None = None,
        insecure: bool = False,
        patience: Patience | None = None,
        transport: Transport | None = None,
        randomness: Randomness = SYSTEM,
        clock: Callable[[], float] = time.time,
    ) -> None:
        link, _, code = str(url).partition("#invitation=")
        self.address = Address.of(link, insecure=insecure)
        given = "" if invitation is None else invitation
        self._invitation = instance("invitation", given, str, "text: the code") or code
        self.max_epsilon_per_km = positive("max_epsilon_per_km", max_epsilon_per_km)
        chosen = {
            "budget_per_day_per_km": budget_per_day_per_km,
            "budget_per_year_per_km": budget_per_year_per_km,
            "slack_budget_nats": slack_budget_nats,
        }
        self.limits = Limits(
            positive("budget_per_km", budget_per_km),
            *(None if limit is None else positive(name, limit) for name, limit in chosen.items()),
        )
        self.promise_per_km = promise_per_km
        if promise_per_km is not None:
            self.promise_per_km = positive("promise_per_km", promise_per_km)
        self.again = one_of("again", again, get_args(Again))
        if self._invitation and again != "never":
            raise InvalidInput(
                f"again ({again}) must be left out where there is an invitation: it is good for one report"
            )
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        network = transport or Network(self.address)
        self._collector = Collector(self.address, network, patience or Patience())
        self._randomness = checked_randomness(randomness)
        able("clock", clock, "__call__", "a function that tells the time in seconds since 1970")
        self._clock = clock
        with suppress(Refused, RandomnessFailed):  # what fails here says so when it is needed
            now_s = self._now_s()
            self.ledger.open_campaign(
                self.address.name, self._period(now_s), now_s, self._randomness
            )

    @without_frames
    def accept(self) -> None:
        """Fetch the ticket for the invitation, and keep it for the report.

        The collector learns that the invitation is used, and signs without seeing what. Whoever watches the
        network can tell by time and address which report came with it: the longer before the report this is
        called, the less. Does nothing where a ticket is here already, where the report was counted, or
        without an invitation.
        """
        name = self.address.name
        if self._invitation and self.ledger.ticket(name) is None:
            seed = self.ledger.ticket_seed(name, self._randomness)
            if seed is not None:
                late = bool(self.ledger.waiting(name))
                token = self._collector.ticket(self._invitation, seed, late=late)
                self.ledger.keep_ticket(name, token)

    def report(
        self,
        *,
        lat: float | None = None,
        lng: float | None = None,
        lon: float | None = None,
        locate: Locate | None = None,
        accuracy_km: float | None = None,
        outside: Beyond = "clamp",
    ) -> Receipt:
        """Send one noisy cell and return what was sent, once the collector has counted it.

        Give ``lat`` and ``lng`` (or ``lon``) in degrees, or ``locate``, which is called only when every
        check has passed, and may return the accuracy of the fix in km as a third number. A fix coarser
        than a cell is refused. Whoever is outside is reported too, from beyond the rectangle around the
        cells as from the nearest place in it.
        :class:`Refused` with nothing sent when a check fails; with ``sent`` when the report was charged and
        sent and can never count. :class:`Unacknowledged` when it was charged and fixed and may still count:
        ``flush`` sends the same one again.
        """
        where = whereabouts(lat, lng, lon, locate, accuracy_km)
        lat = lng = lon = locate = None  # a traceback would keep them
        return self._report((where,), outside)

    def report_trip(
        self,
        *,
        origin: tuple[float, ...] | Locate,
        destination: tuple[float, ...] | Locate,
        outside: Beyond = "clamp",
    ) -> Receipt:
        """Send one noisy trip: a cell drawn around its origin and one around its destination.

        Each end is (lat, lng) in degrees, with the accuracy in km as a third number where it is known, or
        a function that reads it when every check has passed. A trip is one report and is charged
        **twice** the promise of the campaign. A chain of stops is reported trip by trip, one a period; see
        docs/trips.md for what chains cost. Raises as :meth:`report`.
        """
        ends = end_of_trip("origin", origin), end_of_trip("destination", destination)
        origin = destination = ()  # a traceback would keep them
        return self._report(ends, outside)

    def flush(self) -> list[Receipt]:
        """Send again what was not acknowledged; the receipts of what now is. Never a new draw.

        Ends early where no answer of the collector comes, and goes on past a report that it does not
        count, for now or for good.
        """
        arrived = []
        for charge in self.ledger.waiting(self.address.name):
            try:
                arrived.append(self._delivered(charge))
            except Refused:
                continue
            except Unacknowledged as waits:
                if not waits.problem:
                    break
        return arrived

    def explain(self) -> str:
        """In plain words what a report would send and cost; reads no location and charges nothing."""
        now_s = self._now_s()
        earlier = self.ledger.reported(self.address.name, self._period(now_s))
        spent = self.ledger.spent(self.address.origin, now_s)
        if earlier is not None:
            return self._nothing_more(earlier, spent)
        document, current = self._current(now_s)
        earlier = self.ledger.reported(current.campaign, self._period(now_s, document), document.id)
        if earlier is not None:
            return self._nothing_more(earlier, spent)
        self.ledger.check(current, self.limits, now_s)
        cost, many = current.promise, ""
        asked = self._invitation or self.ledger.ticket(self.address.name)
        invited = _OF_INVITATIONS if asked and self.again == "never" else ""
        if self.again != "never":
            # what many reports tell together about somebody who moves a little
            together = explain_nearby(cost * MANY, NEARBY_KM, AROUND_KM, reports=MANY)
            many = f" {MANY} such reports cost {(cost * MANY).amount()} together. {together}"
        return (
            f"Round {document.round} of the campaign {document.campaign} at {self.address.origin}: "
            f"{in_words(document, self._collector.slot(document, now_s))}{invited} "
            f"This report costs {cost.amount()}; "
            f"{self.limits.left_in_words(spent)}. {self._operator(spent, cost)} "
            f"{_AGAIN[self.again]}{many}{_AHEAD if spent.ahead else ''}"
        )

    def summary(self) -> str:
        """The ledger in words: what all reports have cost together, and those to this operator."""
        spent = self.ledger.spent(self.address.origin, self._now_s())
        together = spent_in_words(spent.reports, spent.lifetime)
        limits = self.limits.left_in_words(spent)
        meaning = ""
        if spent.reports:
            meaning = f" {between_places(spent.lifetime, NEARBY_KM, reports=spent.reports)}"
        if spent.reports > 1:  # the same about people who move a little between their reports
            more = explain_nearby(spent.lifetime, NEARBY_KM, AROUND_KM, reports=spent.reports)
            meaning += f" {more}"
        return (
            f"{together}; {limits}. {self._operator(spent)}{meaning}"
            f"{_BETWEEN_CELLS if spent.cells else ''}{_OF_TRIPS if spent.trips else ''}"
            f"{_AHEAD if spent.ahead else ''}"
        )

    def history(self) -> list[Charge]:
        """Everything that ever left through this ledger, over all campaigns, in order."""
        return [charge for charge in self.ledger.charges() if charge.state != "charged"]

    # -- one report ------------------------------------------------------------------------------

    def _report(self, ends: tuple[Whereabouts | str, ...], outside: Beyond) -> Receipt:
        """Report from one place or from both ends of a trip; a text says what is wrong with one."""
        places = tuple(end for end in ends if isinstance(end, Whereabouts))
        try:
            for end in ends:
                if isinstance(end, str):
                    raise InvalidInput(end)
            if one_of("outside", outside, get_args(Beyond)) == "refuse":
                warnings.warn(SILENCE_TELLS, stacklevel=3)
            return self._delivered(*self._reported(places, outside))
        finally:
            for end in places:
                end.forget()

    def _reported(
        self, ends: tuple[Whereabouts, ...], outside: Beyond
    ) -> tuple[Charge, Totals | None]:
        """The report that was made already, or a new one, drawn and charged: of a place, or both ends."""
        now_s = self._now_s()
        earlier = self.ledger.reported(self.address.name, self._period(now_s))
        if earlier is not None:
            return earlier, None
        document, current = self._current(now_s, trip=len(ends) > 1)
        period = self._period(now_s, document)
        self.accept()
        accepted = self.ledger.accept(current, period, self.limits, now_s, self._randomness)
        if isinstance(accepted, Charge):
            return accepted, None
        report, bits = accepted
        del accepted
        try:
            draws = [
                where.draw(document, bits[start : start + DRAW_BYTES], outside)
                for where, start in zip(ends, (0, DRAW_BYTES), strict=False)
            ]
        except BaseException:
            with suppress(Refused):  # the next try need not check the promise again
                self.ledger.remember(current)
            raise
        finally:
            del bits  # beside what is sent, now or later, they would tell from where
        try:
            now_s = self._now_s()  # when the location was read: that may take hours
            slot = self._collector.slot(document, now_s)
            return self.ledger.charge(
                current, period, self.limits, now_s, report, draws[0], slot, *draws[1:]
            )
        finally:
            del draws  # what was not charged is in no traceback either

    def _period(self, now_s: float, document: MechanismDocument | None = None) -> Period:
        number = document.round if self.again == "round" and document else 0
        return Period(self.again, day_of(now_s) if self.again == "day" else number)

    def _current(
        self, now_s: float, *, trip: bool | None = None
    ) -> tuple[MechanismDocument, Round]:
        """The current mechanism within what this device was told to accept, and as the ledger knows it."""
        name, limit = self.address.name, self.max_epsilon_per_km
        try:
            document = self._collector.mechanism(
                max_epsilon_per_km=limit, now_s=now_s, promise_per_km=self.promise_per_km, trip=trip
            )
        except Refused as refused:
            if refused.reason == "ended":
                self.ledger.end(name)
            elif refused.reason == "expired":
                self.ledger.forget_ended(now_s)
            raise
        current = Round(
            campaign=name,
            space=document.space_id,
            number=document.round,
            mechanism=document.id,
            promise=document.cost,
            expires_s=document.expires_s,
            timeless=document.timeless_id,
        )
        if not self.ledger.certified(document.timeless_id):
            check_promise(document)
        return document, current

    def _now_s(self) -> float:
        return checked_time(self._clock())

    @without_frames
    def _delivered(self, charge: Charge, totals: Totals | None = None) -> Receipt:
        """Send a drawn report until it is acknowledged; one that already is stays here."""
        if charge.state == "refused":
            raise Refused("problem", charge.problem, sent=True)
        useless = ""
        if totals is None:
            if charge.state != "acknowledged":
                try:  # it may have been drawn before there was an invitation
                    self.accept()
                except Refused as refused:
                    useless = refused.detail if refused.reason == "invitation" else ""
            totals = self.ledger.totals(self.address.origin, charge.campaign)
        *spent, ticket = totals
        receipt = self._receipt(charge, *spent)
        if receipt.acknowledged:
            return receipt
        try:
            waits = self._collector.count(charge, ticket if self.again == "never" else None)
        except Refused as refused:
            with suppress(Refused):  # where the ledger fails now, ``flush`` asks again
                self.ledger.mark(charge.report, "refused", refused.detail)
                if refused.detail == "campaign-ended":
                    self.ledger.end(charge.campaign)
            raise
        if waits is not None:
            if useless and waits[1] == "ticket-needed":
                waits = f"{REASONS['invitation']} ({useless})", useless
            raise Unacknowledged(receipt, *waits) from None
        with suppress(Refused):
            self.ledger.mark(charge.report, "acknowledged")
        return replace(receipt, acknowledged=True)

    def _receipt(
        self, charge: Charge, lifetime: BetweenPositions, operator: BetweenPositions
    ) -> Receipt:
        cell, lat, lng = charge.drawn
        return Receipt(
            campaign=self.address.campaign,
            round=charge.round,
            mechanism=charge.mechanism,
            report=charge.report,
            cell=cell,
            lat=lat,
            lng=lng,
            epsilon_per_km=charge.epsilon_per_km,
            slack_nats=charge.slack_nats,
            budget_left_per_km=left_of(self.limits.lifetime_per_km, lifetime.exact),
            operator_spent_per_km=operator.epsilon_per_km,
            acknowledged=charge.state == "acknowledged",
            slot=charge.slot,
            to_cell=charge.to_cell,
            to_lat=charge.to_lat,
            to_lng=charge.to_lng,
        )

    # -- in words --------------------------------------------------------------------------------

    def _nothing_more(self, earlier: Charge, spent: Spent) -> str:
        when = {"never": "", "day": " today", "round": " in this round"}[self.again]
        return (
            f"This device has reported to the campaign {self.address.campaign} at "
            f"{self.address.origin}{when}: it said {earlier.said}, under the mechanism of "
            f"round {earlier.round}. Another call reads no location, sends nothing new and costs "
            f"nothing; {self.limits.left_in_words(spent)}. {self._operator(spent)}"
            f"{_AHEAD if spent.ahead else ''}"
        )

    def _operator(self, spent: Spent, cost: BetweenPositions | None = None) -> str:
        """What all campaigns of this origin have cost so far, and with one more report."""
        origin, sofar = self.address.origin, spent.operator
        if sofar.exact == 0:
            return f"Nothing was reported to any campaign at {origin} so far."
        more = "" if cost is None else f", and {sofar.plus(cost).amount()} with this report"
        return f"All campaigns at {origin} together have cost {sofar.amount()} so far{more}."
