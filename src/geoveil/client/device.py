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
from geoveil.client.book import Charge, State
from geoveil.client.collector import Collector, NoAnswer, Patience, Verified
from geoveil.client.ledger import Ledger
from geoveil.client.refusal import Refused, Unacknowledged
from geoveil.client.transport import Address, Network, Transport
from geoveil.document.exact import DRAW_BYTES
from geoveil.errors import InvalidInput, OutsideSpace
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
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


# --- What a report would send and cost, in plain words


def explanation(
    address: Address, current: Verified, left_per_km: float, budget_per_km: float
) -> str:
    """Four sentences: where to, what, how far off, and what it costs."""
    document = current.document
    mechanism = document.mechanism
    grid = mechanism.space
    cell_m = 1000 * grid.cell_km
    return (
        f"Round {document.round} of the campaign {document.campaign} at {address.origin}: one of "
        f"{grid.size} cells of {cell_m:.0f} m would be sent, drawn at random around yours, with a "
        "random number and the id of the rule it was drawn by; "
        f"nothing else. From the middle of the map it lies {_mean_distance_km(current):.2g} km away "
        f"on average. {mechanism.explain(NEARBY_KM)} This report costs {mechanism.guarantee.amount()}; "
        f"{rounded_down(left_per_km)} of {rounded_down(budget_per_km)} per km are left."
    )


def _mean_distance_km(current: Verified) -> float:
    mechanism = current.document.mechanism
    grid = mechanism.space
    middle = int(grid.cell_at(grid.rows // 2, grid.columns // 2))
    return float(mechanism.row(middle) @ grid.distances_from_km(middle))


# --- The device: it checks, charges, draws and sends, in this order, and remembers what it sent


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
        current = self._checked()
        facts = current.round(self.address)
        self.ledger.accept(facts, self.budget_per_km)
        cell = _cell(current, where(), outside)
        bits = self._randomness.bytes(_ID_BYTES + DRAW_BYTES)
        charge = self.ledger.answer(
            facts,
            cell,
            report=bits[:_ID_BYTES].hex(),
            limit_per_km=self.budget_per_km,
            draw=lambda: current.draw(cell, bits[_ID_BYTES:]),
        )
        return self._delivered(charge)

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
        current = self._checked()
        self.ledger.check(current.round(self.address), self.budget_per_km)
        left = self.ledger.left_per_km(self.budget_per_km)
        return explanation(self.address, current, left, self.budget_per_km)

    def history(self) -> list[Charge]:
        """Everything that ever left through this ledger, over all campaigns, in order."""
        return [c for c in self.ledger.charges() if c.state not in ("charged", "drawn")]

    def _checked(self) -> Verified:
        """The current mechanism, sound and within what this device was told to accept."""
        current = self._collector.mechanism()
        limit, now = self.max_epsilon_per_km, self._clock()
        current.check(self.address, max_epsilon_per_km=limit, now_s=now)
        return current

    def _delivered(self, charge: Charge) -> Receipt:
        """Send a drawn report until it is acknowledged; one that already is stays here."""
        if charge.state == "refused":
            raise Refused("problem", charge.problem, sent=True)
        receipt = self._receipt(charge)
        if not receipt.acknowledged:
            self.ledger.mark(charge.report, "sent")
            self._send(charge, receipt)
        return replace(receipt, acknowledged=True)

    def _send(self, charge: Charge, receipt: Receipt) -> None:
        try:
            self._collector.count(charge)
        except NoAnswer as why:
            raise Unacknowledged(receipt, str(why), why.problem) from None
        except Refused as refused:
            self._note(charge, "refused", refused.detail)
            raise
        self._note(charge, "acknowledged")

    def _note(self, charge: Charge, state: State, problem: str = "") -> None:
        """Keep what the collector said; where the ledger fails now, ``flush`` asks again."""
        with suppress(Refused):
            self.ledger.mark(charge.report, state, problem)

    def _receipt(self, charge: Charge) -> Receipt:
        drawn = charge.drawn
        return Receipt(
            campaign=self.address.campaign,
            round=charge.round,
            mechanism=charge.mechanism,
            report=charge.report,
            cell=drawn.cell,
            lat=drawn.lat,
            lng=drawn.lng,
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


def _cell(current: Verified, location: tuple[float, float], outside: Beyond) -> int:
    """The true cell; whatever is wrong with the location, its value is in no message."""
    grid = current.document.mechanism.space
    try:
        lat, lng = (_degrees(value) for value in location)
        return grid.locate(lat=lat, lng=lng, outside="raise" if outside == "refuse" else "clamp")
    except OutsideSpace:
        raise Refused("outside") from None
    except (TypeError, ValueError, ArithmeticError):
        raise Refused("location") from None


def _degrees(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return float(value)
