"""The mixtures of mechanisms of the paper's Tables 4 to 8, each mechanism used by a tenth of the people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.base import Channel
from geoveil.mechanism.linear_geometric import LinearGeometric
from geoveil.mechanism.planar_geometric import PlanarGeometric
from geoveil.mechanism.randomized_response import RandomizedResponse
from geoveil.optimal.strategy import optimal_strategy
from geoveil.papers.cities import SAN_FRANCISCO, load_city
from geoveil.papers.data import DataFolder
from geoveil.papers.repeated import binomial
from geoveil.space.base import Space
from geoveil.space.grid import Grid
from geoveil.space.line import Line

Alphabet = Literal["linear", "planar"]
Kind = Literal["k-RR", "geometric", "geometric and k-RR", "Shokri's"]

RAPPOR = {
    "high privacy": tuple(level / 10 for level in range(1, 11)),
    "low privacy": tuple(float(level) for level in range(1, 11)),
}
"""Table 4."""

RESPONSE: dict[Alphabet, tuple[float, ...]] = {
    "linear": (3.00, 3.54, 3.96, 4.34, 4.69, 5.06, 5.46, 5.93, 6.60, 8.08),
    "planar": (3.05, 4.19, 4.81, 5.27, 5.67, 6.05, 6.44, 6.87, 7.40, 8.20),
}
"""Table 5."""

GEOMETRIC: dict[Alphabet, tuple[float, ...]] = {
    "linear": (0.020, 0.025, 0.031, 0.039, 0.050, 0.065, 0.088, 0.131, 0.236, 0.869),
    "planar": (0.190, 0.244, 0.310, 0.390, 0.493, 0.632, 0.835, 1.159, 1.762, 3.124),
}
"""Table 6, per unit and per kilometre."""

SHOKRI: dict[Alphabet, tuple[float, ...]] = {
    "linear": (1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0, 24.5, 28.0),
    "planar": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.4, 2.7, 3.0),
}
"""Table 8: bounds on the mean loss, in units and in kilometres."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mechanisms over one space, and the true distribution of the people."""

    space: Space
    truth: FloatArray
    mechanisms: tuple[Channel, ...]
    invertible: bool = True
    """Whether inversion is one of the methods; for strategies the paper leaves it out."""


def mixture(kind: Kind, alphabet: Alphabet, data: DataFolder) -> Mixture:
    """The mixture of a kind, on 100 numbers in a row or on the cells of San Francisco."""
    space, truth = _alphabet(alphabet, data)
    if kind == "Shokri's":
        return Mixture(space, truth, _strategies(space, SHOKRI[alphabet]), invertible=False)
    response, geometric = RESPONSE[alphabet], GEOMETRIC[alphabet]
    made: list[Channel] = []
    if kind != "k-RR":
        chosen = geometric if kind == "geometric" else geometric[5:]
        made += _geometric(space, chosen)
    if kind != "geometric":
        chosen = response if kind == "k-RR" else response[:5]
        made += [RandomizedResponse(space, epsilon=level) for level in chosen]
    return Mixture(space, truth, tuple(made))


def _geometric(space: Space, levels: Sequence[float]) -> list[Channel]:
    if isinstance(space, Line):
        return [LinearGeometric(space, epsilon_per_unit=level) for level in levels]
    assert isinstance(space, Grid)
    return [PlanarGeometric(space, epsilon_per_km=level) for level in levels]


def _strategies(space: Space, limits: Sequence[float]) -> tuple[Channel, ...]:
    """Those of largest entropy for people of whom nothing is known: the paper's uniform profile."""
    profile = np.full(space.size, 1 / space.size)
    return tuple(optimal_strategy(space, profile, mean_loss_km=limit) for limit in limits)


def _alphabet(alphabet: Alphabet, data: DataFolder) -> tuple[Space, FloatArray]:
    """Binomial on 0 … 99, or the check-ins of San Francisco in cells of half a kilometre."""
    if alphabet == "linear":
        return Line(100), binomial(100)
    city = load_city(SAN_FRANCISCO, data)
    return Grid(rows=SAN_FRANCISCO.rows, columns=SAN_FRANCISCO.columns, cell_km=0.5), city.truth
