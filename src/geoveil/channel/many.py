"""What channels that are made of several over one space have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import Channel, PrivacyLoss
from geoveil.channel.guarantee import Guarantee, weakest
from geoveil.errors import InvalidInput
from geoveil.randomness import Randomness
from geoveil.space.space import Space


class ManyChannels(Channel):
    """A channel made of several over one space."""

    channels: tuple[Channel, ...]

    def _join(self, channels: Sequence[Channel]) -> None:
        if not channels:
            raise InvalidInput("channels must not be empty")
        self.channels, self.space = tuple(channels), channels[0].space
        if any(channel.space != self.space for channel in channels):
            raise InvalidInput("channels must share one space")

    def _promise(self) -> Guarantee | None:
        """The weakest of theirs, where it is implied by all: somebody may hold it."""
        return weakest([channel.guarantee for channel in self.channels])

    @property
    def told_apart(self) -> Space | None:
        """The positions themselves where all are about these."""
        between_positions = all(channel.told_apart is None for channel in self.channels)
        return None if between_positions else self.space

    # -- where in a cell somebody stands: what one of them depends on, all together do ----------------

    @property
    def _most_spread(self) -> Channel:
        return max(self.channels, key=lambda channel: len(channel.standing))

    @property
    def positions_across(self) -> int:  # type: ignore[override]
        return max(channel.positions_across for channel in self.channels)

    @property
    def standing(self) -> list[tuple[FloatArray, float]]:
        return self._most_spread.standing

    def somewhere(self, cells: IntArray, uniform: FloatArray) -> FloatArray:
        return self._most_spread.somewhere(cells, uniform)

    # -- one of the channels for each person ------------------------------------------------------------

    def _largest_loss(self, *, exact: bool) -> PrivacyLoss | None:
        """The largest of theirs: what each of them keeps, all that somebody may use keep."""
        losses = [channel.closed_form_loss() for channel in self.channels]
        known = [loss for loss in losses if loss is not None]
        if len(known) < len(losses):
            return None
        slacks = [loss.slack for loss in known if loss.slack is not None]
        if slacks and len(slacks) < len(known):
            return None  # some between positions, some between cells: nothing holds for all
        worst = max(known, key=lambda loss: loss.epsilon_per_km)
        epsilons = [loss.epsilon for loss in known if loss.epsilon is not None]
        epsilon = max(epsilons) if len(epsilons) == len(known) else None
        exact = exact and all(loss.exact for loss in known)
        slack = max(slacks) if slacks else None
        return PrivacyLoss(worst.epsilon_per_km, epsilon, worst.pair, exact, worst.how, slack)

    def _drawn(
        self, shares: FloatArray, cells: IntArray, inside: FloatArray | None, randomness: Randomness
    ) -> tuple[IntArray, IntArray]:
        """Which channel each person uses and what it reports, from positions in the cells if given."""
        chosen = np.searchsorted(np.cumsum(shares)[:-1], randomness.uniform(cells.size))
        reports = np.empty(cells.size, dtype=np.int64)
        for number, channel in enumerate(self.channels):
            mine = np.flatnonzero(chosen == number)
            if inside is None:
                reports[mine] = channel._sample(cells[mine], randomness)
            else:
                reports[mine] = channel._sample_from(cells[mine], inside[mine], randomness)
        return chosen, reports
