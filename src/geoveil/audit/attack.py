"""An attack on a collection: honest counts, and the same with fake reports among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, count, finite, prior_over
from geoveil.channel.base import Channel, inverse_distribution
from geoveil.channel.tally import Tally
from geoveil.errors import InvalidInput
from geoveil.estimate.em import em_path
from geoveil.estimate.objective import Objective, uniform
from geoveil.estimate.observations import Observations
from geoveil.randomness import Randomness, checked_randomness

_CHUNK_ENTRIES = 1 << 22
_FAKES = 512
"""So many different fake reports are tried at most: those that the best cell explains worst."""


def expected_counts(law: FloatArray, total: int) -> IntArray:
    """Whole numbers nearest to total·law that sum to the total (largest remainders)."""
    wanted = np.maximum(law, 0.0) * (total / float(np.maximum(law, 0.0).sum()))
    counts = np.floor(wanted).astype(np.int64)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - wanted, kind="stable")[:missing]] += 1
    return counts


class Attack:
    """Honest counts of every round, and the same with fakes among them."""

    def __init__(
        self,
        mechanisms: Channel | Sequence[Channel],
        prior: npt.ArrayLike,
        share: float,
        reports: int,
        randomness: Randomness | None,
    ) -> None:
        self.channels = [mechanisms] if isinstance(mechanisms, Channel) else list(mechanisms)
        if len({channel.report_count for channel in self.channels}) != 1:
            raise InvalidInput("mechanisms must all have the same reports; audit them one by one")
        self.size = self.channels[0].space.size
        self.people = prior_over(prior, self.size)
        rounds = len(self.channels)
        self.per_round = count("reports", reports, least=rounds) // rounds
        self.reports = self.per_round * rounds
        self.fakes_per_round = round(checked_share(share) * self.per_round)
        if self.fakes_per_round == 0:
            raise InvalidInput(f"share ({share}) must make at least one fake report in each round")
        self.share = self.fakes_per_round / self.per_round
        self._honest = [self._reports(channel, randomness) for channel in self.channels]

    def _reports(
        self, channel: Channel, randomness: Randomness | None
    ) -> tuple[IntArray, IntArray]:
        """Counts of all honest reports of a round, and of those left when fakes take their place."""
        left = self.per_round - self.fakes_per_round
        if randomness is None:
            law = channel.push(self.people)
            return expected_counts(law, self.per_round), expected_counts(law, left)
        source = checked_randomness(randomness)
        cells = inverse_distribution(self.people, source.uniform(self.per_round))
        drawn = channel.sample(cells, randomness=randomness)
        return channel.tally(drawn).counts, channel.tally(drawn[:left]).counts

    def tallies(self, fake: int | None) -> list[Tally]:
        """The tallies of all rounds; ``None`` for honest people only."""
        made = []
        for channel, (everybody, left) in zip(self.channels, self._honest, strict=True):
            counts = (everybody if fake is None else left).copy()
            if fake is not None:
                counts[fake] += self.fakes_per_round
            made.append(Tally(channel, counts))
        return made

    def fakes(self) -> IntArray:
        """The fake reports to try: all, or those that no cell is likely to send."""
        reports = np.arange(self.channels[0].report_count)
        if reports.size <= _FAKES:
            return reports
        likely = np.array([self.channels[-1]._column(int(y)).max() for y in reports])
        return np.sort(np.argsort(likely, kind="stable")[:_FAKES])

    def screened(
        self, fakes: IntArray, steps: int, totals: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """(fakes, targets): the gains after plain steps from uniform, fakes in batches."""
        observations = Observations(self.tallies(None))
        likelihood = observations.likelihood

        def fitted(counts: FloatArray) -> FloatArray:
            starts = np.tile(uniform(self.size), (len(counts), 1))
            return next(islice(em_path(Objective(likelihood, counts), starts), steps, None)).theta

        honest = fitted(observations.counts[None, :].astype(np.float64))[0]
        chunk = max(1, _CHUNK_ENTRIES // max(self.size, observations.counts.size))
        parts = [fakes[first : first + chunk] for first in range(0, fakes.size, chunk)]
        found = [totals(fitted(self._poisoned(part)) - honest) for part in parts]
        return np.concatenate(found) / self.share

    def _poisoned(self, fakes: IntArray) -> FloatArray:
        """Counts of all rounds, one row for each fake report."""
        rows = np.arange(fakes.size)
        made = []
        for _, left in self._honest:
            counts = np.tile(left.astype(np.float64), (fakes.size, 1))
            counts[rows, fakes] += self.fakes_per_round
            made.append(counts)
        return np.concatenate(made, axis=1)


def checked_share(share: float) -> float:
    """The share of fakes as a number between 0 and 1."""
    if not 0.0 < finite("share", share) < 1.0:
        raise InvalidInput(f"share ({share!r}) must lie between 0 and 1")
    return float(share)
