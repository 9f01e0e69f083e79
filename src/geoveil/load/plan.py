"""What a load run does: how many devices, at which pace, and where it must end."""

from __future__ import annotations

from dataclasses import dataclass

from geoveil.arrays import count, positive
from geoveil.errors import InvalidInput

LARGEST_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """A closed loop (each connection sends when it was answered) or an open one at a fixed rate.

    A run ends after ``seconds`` or ``requests``, whichever comes first: it is bounded in both.
    """

    seconds: float = 10.0
    requests: int = 1_000_000
    connections: int = 32
    batch: int = 1
    """Reports in one request."""
    rate_per_s: float | None = None
    """Requests begun per second, whether answered or not; ``None``: as many as are answered."""
    seed: int = 0
    """Where the simulated people are; never what they report, which the operating system draws."""

    def __post_init__(self) -> None:
        positive("seconds", self.seconds)
        count("requests", self.requests)
        count("connections", self.connections)
        if count("batch", self.batch) > LARGEST_BATCH:
            raise InvalidInput(f"batch ({self.batch}) must be at most {LARGEST_BATCH}")
        if self.rate_per_s is not None:
            positive("rate_per_s", self.rate_per_s)
        count("seed", self.seed, least=0)
