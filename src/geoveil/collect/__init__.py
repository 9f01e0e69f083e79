"""Closing the loop: rounds of collection, the next mechanism, and simulated campaigns."""

from geoveil.collect.advice import Advice, Choice, advise
from geoveil.collect.collection import Collection, PromiseRule, PublishedRule, Round
from geoveil.collect.design import DesignedElastic, blahut_arimoto, elastic
from geoveil.collect.simulation import Crowd, RoundResult, Simulation, simulate
from geoveil.collect.weights import equalising_weights

__all__ = [
    "Advice",
    "Choice",
    "Collection",
    "Crowd",
    "DesignedElastic",
    "PromiseRule",
    "PublishedRule",
    "Round",
    "RoundResult",
    "Simulation",
    "advise",
    "blahut_arimoto",
    "elastic",
    "equalising_weights",
    "simulate",
]
