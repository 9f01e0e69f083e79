"""Remapping: move reports to where they say more, which costs no privacy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geoveil.arrays import indices
from geoveil.channel.base import Channel
from geoveil.channel.remapped import Remapped
from geoveil.errors import InvalidInput
from geoveil.measure.adversary import adversary_guesses
from geoveil.measure.distance import Loss
from geoveil.space.loss import distance_km


def nearest_remap(channel: Channel, cells: npt.ArrayLike) -> Remapped:
    """Every report to the nearest of the given cells, for example those on land.

    Law: map[y] = argmin over the given cells of d(y, z), the first in case of a tie.
    Guarantee: that of the channel. Cost: reports × cells once, then that of the channel.
    Reference: NOISE §6.1.
    """
    if channel.report_count != channel.space.size:
        raise InvalidInput("nearest_remap needs a channel whose reports are cells")
    kept = np.unique(indices("cells", cells, channel.space.size))
    if not kept.size:
        raise InvalidInput("cells must not be empty")
    everywhere = np.arange(channel.space.size)
    step = max(1, (1 << 22) // kept.size)
    nearest = [
        np.argmin(channel.space.distance_km(everywhere[i : i + step, None], kept[None, :]), axis=1)
        for i in range(0, everywhere.size, step)
    ]
    return Remapped(channel, kept[np.concatenate(nearest)])


def bayesian_remap(channel: Channel, prior: npt.ArrayLike, *, loss: Loss = distance_km) -> Remapped:
    """Every report to the cell that is best on average for somebody who knows the prior.

    Law: map[y] = argmin_z Σ_x π(x)·C[x, y]·L(x, z); a report the prior rules out keeps the best guess
    without any report.
    Guarantee: that of the channel. Cost: m³ in blocks, up to 4,096 cells.
    Reference: NOISE §6.2; Chatzikokolakis, ElSalamouny & Palamidessi, PETS 2017.

    >>> import geoveil as gv
    >>> line = gv.LinearGeometric(gv.Line(3), epsilon_per_unit=0.1)
    >>> bayesian_remap(line, [0.8, 0.1, 0.1]).map.tolist()
    [0, 0, 0]
    """
    return Remapped(channel, adversary_guesses(channel, prior, loss))
