"""The mechanism document as a device takes it: verified once, then checked against its own limits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from geoveil.client.address import Address
from geoveil.client.book import Drawn
from geoveil.client.ledger import Round
from geoveil.client.refusal import Refused
from geoveil.report.canonical import document_id
from geoveil.report.wire import MechanismDocument, RefusedDocument

CLOCK_SKEW_S = 300.0
"""A device's clock may be this much behind the collector's."""


@dataclass(frozen=True)
class Verified:
    """A sound document and its id, the hash of what was served."""

    id: str
    document: MechanismDocument

    def check(self, address: Address, *, max_epsilon_per_km: float, now_s: float) -> None:
        """Refuse another campaign's document, a promise above the limit, and one out of its time."""
        document = self.document
        if document.campaign != address.campaign:
            raise Refused("campaign")
        if document.epsilon_per_km > max_epsilon_per_km:
            raise Refused("promise")
        if now_s < document.not_before_s - CLOCK_SKEW_S:
            raise Refused("not-yet-valid")
        if now_s >= document.expires_s:
            raise Refused("expired")

    def round(self, address: Address) -> Round:
        """The document as the ledger knows it."""
        document = self.document
        space = document_id(document.mechanism.space.to_dict())
        return Round(address.name, space, document.round, self.id, document.epsilon_per_km)

    def draw(self, cell: int, random_bytes: bytes) -> Drawn:
        """The report for a true cell and 16 random bytes, with its centre."""
        mechanism = self.document.mechanism
        report = mechanism.draw(cell, random_bytes)
        lat, lng = mechanism.space.plane.to_latlng(mechanism.space.centres[report])
        return Drawn(report, float(lat), float(lng))


@lru_cache(maxsize=16)
def verified(body: bytes) -> Verified:
    """The document in these bytes; the certificate is computed once for all devices of a process."""
    try:
        document = MechanismDocument.read(body)
    except RefusedDocument as refused:
        raise Refused("document", refused.reason) from None
    claimed = json.loads(body).get("id")
    if claimed is None:
        raise Refused("document", "id")
    return Verified(claimed, document)
