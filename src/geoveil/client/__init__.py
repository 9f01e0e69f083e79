"""The device's side of a campaign: checks, budget, exact draws, reports that are sent once."""

from geoveil.client.collector import Patience
from geoveil.client.device import Device, Receipt
from geoveil.client.ledger import Ledger
from geoveil.client.ledger_book import Charge
from geoveil.client.refusal import REASONS, Refused, Unacknowledged

__all__ = [
    "REASONS", "Charge", "Device", "Ledger", "Patience", "Receipt", "Refused", "Unacknowledged",
]  # fmt: skip
