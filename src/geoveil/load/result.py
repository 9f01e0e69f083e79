"""What a load run saw: answers by kind, and how long they took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class LoadResult:
    """Requests and reports by what became of them; latencies of all that were answered."""

    seconds: float = 0.0
    requests: int = 0
    counted: int = 0
    """Reports that were acknowledged."""
    refused: int = 0
    """Reports refused for a stated reason, such as an expired mechanism."""
    shed: int = 0
    """Requests asked to come again later (429, 503): nothing of them was counted."""
    unknown: int = 0
    """Requests without an answer: their reports may or may not be counted."""
    statuses: dict[int, int] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list, repr=False)

    @property
    def reports_per_s(self) -> float:
        """Reports acknowledged per second."""
        return self.counted / self.seconds if self.seconds else 0.0

    def latency_s(self, percentile: float) -> float:
        """The latency that ``percentile`` of all answers stayed below; NaN where there were none."""
        if not self.latencies_s:
            return float("nan")
        return float(np.percentile(np.array(self.latencies_s), percentile))

    def add(self, status: int, reports: int, refused: int, latency_s: float) -> None:
        """One answer."""
        self.requests += 1
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.latencies_s.append(latency_s)
        if status == 200:
            self.counted += reports - refused
            self.refused += refused
        elif status in (429, 503):
            self.shed += 1
        else:
            self.refused += reports

    def to_dict(self) -> dict[str, Any]:
        """The result for machines."""
        latencies = {f"p{p}": self.latency_s(p) * 1000 for p in (50, 95, 99)}
        return {
            "seconds": self.seconds,
            "requests": self.requests,
            "counted": self.counted,
            "refused": self.refused,
            "shed": self.shed,
            "unknown": self.unknown,
            "statuses": {str(status): number for status, number in sorted(self.statuses.items())},
            "reports_per_s": self.reports_per_s,
            "latency_ms": latencies if self.latencies_s else None,
        }
