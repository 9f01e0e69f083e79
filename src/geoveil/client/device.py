"""A person’s end of a campaign: everything is checked before a location is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Literal, get_args

from geoveil.arrays import positive
from geoveil.channel.words import NEARBY_KM, rounded_down
from geoveil.client.collector import Address, Collector, Network, Patience, Transport
from geoveil.client.ledger import Charge, Drawn, Ledger, Round
from geoveil.client.refusal import Refused, Unacknowledged
from geoveil.document.canonical import document_id
from geoveil.document.exact import DRAW_BYTES
from geoveil.document.wire import MechanismDocument
from geoveil.errors import InvalidInput, OutsideSpace
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space.grid import Grid
from geoveil.space.outside import Outside
from geoveil.space.projection import either_longitude


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
    """Id of the report: 16 random bytes, in hexadecimal."""
    cell: int
    lat: float
    lng: float
    epsilon_per_km: float
    """What the report was charged."""
    budget_left_per_km: float
    acknowledged: bool


Beyond = Literal["refuse", "clamp"]
"""A location outside the box: nothing is sent, or the nearest cell takes its place."""
Locate = Callable[[], tuple[float, float]]
"""Reads the location: latitude and longitude in degrees."""

_ID_BYTES = 16


class Device:
    """A person's end of a campaign. Everything is checked before a location is read.

    ``report`` fetches the current mechanism, checks it (``REASONS`` lists what can be wrong), reads the
    location, charges the budget, draws the noisy cell with the operating system's randomness and sends
    the cell, the mechanism's id and a random id: nothing else. The same cell under the same mechanism
    gives the same report again, free of charge.

    ``budget_per_km`` limits all that the ledger ever spends, over all campaigns; nothing is given back.
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
        insecure: bool = False,
        patience: Patience | None = None,
        transport: Transport | None = None,
        randomness: Randomness = SYSTEM,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.address = Address.of(url, insecure=insecure)
        self.max_epsilon_per_km = positive("max_epsilon_per_km", max_epsilon_per_km)
        self.budget_per_km = positive("budget_per_km", budget_per_km)
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        network = transport or Network(self.address)
        self._collector = Collector(self.address, network, patience or Patience())
        self._randomness = checked_randomness(randomness)
        self._clock = clock

    def report(
        self,
        *,
        lat: float | None = None,
        lng: float | None = None,
        lon: float | None = None,
        locate: Locate | None = None,
        outside: Beyond = "refuse",
    ) -> Receipt:
        """Send one noisy cell and return what was sent, once the collector has counted it.

        Give ``lat`` and ``lng`` (or ``lon``) in degrees, or ``locate``, which is called only when every
        check has passed. :class:`Refused` with nothing sent when a check fails; with ``sent`` when the
        report was charged and sent and can never count. :class:`Unacknowledged` when it was charged and
        fixed and may still count: ``flush`` sends the same one again.
        """
        longitude = None if lng is None and lon is None else either_longitude(lng, lon)
        where = _locator(lat, longitude, locate)
        if outside not in get_args(Beyond):
            raise InvalidInput(
                f"outside ({outside!r}) must be one of {', '.join(get_args(Beyond))}"
            )
        document, current = self._current()
        self.ledger.accept(current, self.budget_per_km)
        grid = document.mechanism.space
        cell = _cell(grid, where(), outside)
        bits = self._randomness.bytes(_ID_BYTES + DRAW_BYTES)

        def draw() -> Drawn:
            report = document.mechanism.draw(cell, bits[_ID_BYTES:])
            lat, lng = grid.plane.to_latlng(grid.centres[report])
            return report, float(lat), float(lng)

        limit, report = self.budget_per_km, bits[:_ID_BYTES].hex()
        return self._delivered(
            self.ledger.answer(current, cell, report=report, limit_per_km=limit, draw=draw)
        )

    def flush(self) -> list[Receipt]:
        """Send again what was not acknowledged; the receipts of what now is. Never a new draw.

        Ends early where no answer of the collector comes, and goes on past a report that it does not
        count, for now or for good.
        """
        arrived = []
        for charge in self.ledger.charges():
            if charge.campaign == self.address.name and charge.state in ("drawn", "sent"):
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
        document, current = self._current()
        self.ledger.check(current, self.budget_per_km)
        left = rounded_down(self.ledger.left_per_km(self.budget_per_km))
        mechanism, grid = document.mechanism, document.mechanism.space
        middle = int(grid.cell_at(grid.rows // 2, grid.columns // 2))
        mean_km = float(mechanism.row(middle) @ grid.distances_from_km(middle))
        return (
            f"Round {document.round} of the campaign {document.campaign} at {self.address.origin}: one "
            f"of {grid.size} cells of {1000 * grid.cell_km:.0f} m would be sent, drawn at random around "
            "yours, with a random number and the id of the rule it was drawn by; nothing else. From "
            f"the middle of the map it lies {mean_km:.2g} km away on average. "
            f"{mechanism.explain(NEARBY_KM)} This report costs {mechanism.guarantee.amount()}; "
            f"{left} of {rounded_down(self.budget_per_km)} per km are left."
        )

    def history(self) -> list[Charge]:
        """Everything that ever left through this ledger, over all campaigns, in order."""
        return [c for c in self.ledger.charges() if c.state not in ("charged", "drawn")]

    def _current(self) -> tuple[MechanismDocument, Round]:
        """The current mechanism within what this device was told to accept, and as the ledger knows it."""
        limit, now = self.max_epsilon_per_km, self._clock()
        document = self._collector.mechanism(max_epsilon_per_km=limit, now_s=now)
        space, cost = document_id(document.mechanism.space.to_dict()), document.epsilon_per_km
        return document, Round(self.address.name, space, document.round, document.id, cost)

    def _delivered(self, charge: Charge) -> Receipt:
        """Send a drawn report until it is acknowledged; one that already is stays here."""
        if charge.state == "refused":
            raise Refused("problem", charge.problem, sent=True)
        receipt = self._receipt(charge)
        if receipt.acknowledged:
            return receipt
        self.ledger.mark(charge.report, "sent")
        try:
            waits = self._collector.count(charge)
        except Refused as refused:
            with suppress(Refused):  # where the ledger fails now, ``flush`` asks again
                self.ledger.mark(charge.report, "refused", refused.detail)
            raise
        if waits is not None:
            raise Unacknowledged(receipt, *waits) from None
        with suppress(Refused):
            self.ledger.mark(charge.report, "acknowledged")
        return replace(receipt, acknowledged=True)

    def _receipt(self, charge: Charge) -> Receipt:
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
            budget_left_per_km=self.ledger.left_per_km(self.budget_per_km),
            acknowledged=charge.state == "acknowledged",
        )


def _locator(lat: float | None, lng: float | None, locate: Locate | None) -> Locate:
    """What reads the location: the function given, or one that answers ``lat`` and ``lng``."""
    if locate is not None and lat is None and lng is None:
        return locate
    if locate is None and lat is not None and lng is not None:
        return lambda: (lat, lng)
    raise InvalidInput("report must be given lat and lng, or locate, a function that reads them")


def _cell(grid: Grid, location: tuple[float, float], outside: Beyond) -> int:
    """The true cell; whatever is wrong with the location, its value is in no message."""
    try:
        lat, lng = location
        for degrees in (lat, lng):
            if isinstance(degrees, bool) or not isinstance(degrees, Real):
                raise TypeError
        beyond: Outside = "raise" if outside == "refuse" else "clamp"
        return grid.locate(lat=float(lat), lng=float(lng), outside=beyond)
    except OutsideSpace:
        raise Refused("outside") from None
    except (TypeError, ValueError, ArithmeticError):
        raise Refused("location") from None
