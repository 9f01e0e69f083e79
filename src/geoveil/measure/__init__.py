"""What a mechanism costs and hides, and how far an estimate is from the truth."""

from geoveil.measure.distance import (
    Loss,
    adversary_error_km,
    adversary_guesses,
    adversary_loss,
    bayes_error,
    earth_movers_distance_km,
    expected_loss,
    mean_distance_km,
)
from geoveil.measure.information import (
    entropy_bits,
    kl_divergence_bits,
    kl_divergence_nats,
    mutual_information_bits,
    total_variation,
)

__all__ = [
    "Loss",
    "adversary_error_km",
    "adversary_guesses",
    "adversary_loss",
    "bayes_error",
    "earth_movers_distance_km",
    "entropy_bits",
    "expected_loss",
    "kl_divergence_bits",
    "kl_divergence_nats",
    "mean_distance_km",
    "mutual_information_bits",
    "total_variation",
]
