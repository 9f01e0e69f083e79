"""Every operation of the service, in the order of the OpenAPI document."""

from __future__ import annotations

from geoveil.server.operation import Operation
from geoveil.server.routes import campaigns, estimates, events, monitoring, participants

OPERATIONS: tuple[Operation, ...] = (
    *campaigns.OPERATIONS,
    *participants.OPERATIONS,
    *estimates.OPERATIONS,
    *events.OPERATIONS,
    *monitoring.OPERATIONS,
)
"""One row for each method at each address."""
