"""Closing the loop: rounds of reports, the next mechanism, and simulated campaigns."""

from geoveil.campaign.advice import Advice, advise
from geoveil.campaign.campaign import Campaign
from geoveil.campaign.elastic_design import DesignedElastic, blahut_arimoto, elastic
from geoveil.campaign.rounds import Closing, Round
from geoveil.campaign.rules import PromiseRule
from geoveil.campaign.simulation import Crowd, Simulation, simulate

__all__ = [
    "Advice", "Campaign", "Closing", "Crowd", "DesignedElastic", "PromiseRule", "Round", "Simulation",
    "advise", "blahut_arimoto", "elastic", "simulate",
]  # fmt: skip
