"""The best mechanisms, by linear programs: private as returned, with the proof of how good they are."""

from geoveil.optimal.mechanism import Optimality, OptimalMechanism, optimal_mechanism

__all__ = ["OptimalMechanism", "Optimality", "optimal_mechanism"]
