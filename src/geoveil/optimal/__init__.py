"""Optimal noise and optimal mechanisms: the least loss under a promise, with the proof of it.

Circular noise on the plane (:class:`CircularNoise`, :func:`optimal_noise`), mechanisms on finite spaces
(:func:`optimal_mechanism`, :func:`optimal_strategy`), and what can be said of a distinguishability
function ℓ and a region (:func:`applicable_theorems`).
"""

from geoveil.optimal.circular import CircularNoise
from geoveil.optimal.optimal_mechanism import OptimalMechanism, optimal_mechanism
from geoveil.optimal.radial import OptimalNoise, optimal_noise
from geoveil.optimal.regularity import (
    Region,
    TablePrivacy,
    applicable_theorems,
    regularity,
    superadditive_from_km,
)
from geoveil.optimal.strategy import OptimalStrategy, optimal_strategy

__all__ = [
    "CircularNoise", "OptimalMechanism", "OptimalNoise", "OptimalStrategy", "Region", "TablePrivacy",
    "applicable_theorems", "optimal_mechanism", "optimal_noise", "optimal_strategy", "regularity",
    "superadditive_from_km",
]  # fmt: skip
