"""Closing the loop: rounds of reports, the next mechanism, and simulated campaigns."""

from geoveil.campaign.advice import Advice, Choice, advise
from geoveil.campaign.campaign import Campaign
from geoveil.campaign.elastic_design import DesignedElastic, blahut_arimoto, elastic
from geoveil.campaign.rounds import Closing, Round
from geoveil.campaign.rules import PromiseRule, PublishedRule
from geoveil.campaign.simulation import Crowd, RoundResult, Simulation, simulate
from geoveil.campaign.weights import equalising_weights

__all__ = [
    "Advice", "Campaign", "Choice", "Closing", "Crowd", "DesignedElastic", "PromiseRule",
    "PublishedRule", "Round", "RoundResult", "Simulation", "advise", "blahut_arimoto",
    "elastic", "equalising_weights", "simulate",
]  # fmt: skip
