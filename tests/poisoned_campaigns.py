"""What fakes gain against a whole campaign, whose mechanisms they move as well as its map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from geoveil import arrays
from geoveil.arrays import ArrayLike, FloatArray, part
from geoveil.campaign import Campaign
from geoveil.channel.channel import Tally
from geoveil.errors import InvalidInput
from geoveil.verify.manipulation import ManipulationGain, expected_counts


def campaign_manipulation_gain(
    start: Callable[[], Campaign],
    prior: ArrayLike,
    *,
    rounds: int,
    targets: ArrayLike,
    share: float = 0.01,
    reports: int = 100_000,
    onset: int = 1,
) -> ManipulationGain:
    """The gain against a whole campaign that is poisoned in every round from ``onset`` on.

    ``share`` is that of all reports of the campaign, so fakes that begin late are denser. The campaign
    designs each mechanism from an estimate that the fakes before have already moved, so they work
    on the mechanism too. Every target cell is attacked with the report of the same number; honest
    people send the expected counts.
    """
    first = start()
    people = arrays.prior_over(prior, first.distribution.size)
    wanted = arrays.indices("targets", targets, people.size).ravel()
    per_round = arrays.count("reports", reports, least=rounds) // arrays.count("rounds", rounds)
    total, poisoned_rounds = per_round * rounds, rounds - arrays.count("onset", onset) + 1
    fakes_a_round = round(part("share", share) * total / max(1, poisoned_rounds))
    if poisoned_rounds < 1 or not 0 < fakes_a_round < per_round:
        raise InvalidInput(
            f"onset ({onset}) and share ({share}) must put at least one fake and one honest report "
            f"into each of the rounds from {onset} to {rounds}"
        )
    fakes = fakes_a_round * poisoned_rounds

    def believed(campaign: Campaign, target: int | None) -> FloatArray:
        """What a campaign believes in the end, told the expected counts and fakes from ``onset`` on."""
        for number in range(1, rounds + 1):
            sent = 0 if target is None or number < onset else fakes_a_round
            mechanism = campaign.mechanism
            counts = expected_counts(mechanism.push(people), per_round - sent)
            counts[target or 0] += sent
            campaign.receive(Tally(mechanism, counts))
            campaign.close_round(last=number == rounds)
        return campaign.distribution

    honest = believed(first, None)
    gains = np.full(people.size, np.nan)
    for target in wanted.tolist():
        gains[target] = (believed(start(), target) - honest)[target] * total / fakes
    worst = int(np.nanargmax(gains))
    return ManipulationGain(float(gains[worst]), worst, worst, fakes / total, total, gains, wanted)
