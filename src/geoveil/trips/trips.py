"""Trips: two draws of one mechanism in one report, what they promise together, and their tally."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geoveil.arrays import ArrayLike, IntArray, indices
from geoveil.channel.certificate import Certificate, certify
from geoveil.channel.channel import Channel
from geoveil.channel.guarantee import Guarantee
from geoveil.errors import Unsupported
from geoveil.estimate.stopping import Progress, Stop
from geoveil.position.positional import PositionalElastic
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.trips.flow_fit import fitted_flows
from geoveil.trips.flows import Flows
from geoveil.trips.pairs import TripTally, check_both_ends, pairable

TripReports = tuple[IntArray, IntArray]
"""Where trips began and where they ended, as noisy cells."""


class Trips:
    """Origin–destination reports: where a trip began and where it ended, each drawn by itself.

    Law: P(y, z | o, d) = C[o, y]·C[d, z], C the mechanism.
    Guarantee: ε(d(o, o′) + d(d, d′)) between two trips, ε that of the mechanism; ``guarantee`` is twice
    the mechanism's promise, what a trip costs where both ends move as far. A chain of k stops is k − 1
    trips and costs 2(k − 1) times the promise.
    Cost: two draws a trip. Units: cells, or degrees.
    Reference: docs/trips.md; IBU §V, the general local model with two places.

    >>> import geoveil as gv
    >>> trips = Trips(gv.elastic(gv.Grid(rows=3, columns=3, cell_km=1.0), epsilon_per_km=2.0))
    >>> reports = trips.sample([0, 0, 4], [8, 0, 4])
    >>> trips.tally(*reports).total
    3
    >>> print(trips.guarantee.amount())
    ε = 4 per km
    """

    def __init__(self, mechanism: Channel) -> None:
        self.mechanism = pairable(mechanism)

    # -- the promise ---------------------------------------------------------------------------

    @property
    def guarantee(self) -> Guarantee | None:
        """What one trip costs: the mechanism's promise twice; ``None`` where it promises nothing."""
        promise = self.mechanism.guarantee
        return None if promise is None else promise * 2

    def certify(self) -> Certificate:
        """The certificate of the mechanism, which holds for each end of a trip by itself."""
        return certify(self.mechanism)

    def sentence(self) -> str:
        """The promise about two trips, in one plain sentence."""
        promise = self.mechanism.guarantee
        if promise is None:
            return (
                "nothing is promised about trips, since the mechanism promises nothing about places"
            )
        unit = self.mechanism.space.unit
        return (
            f"each end of a trip has the promise of one report ({promise.amount(unit)}); the loss between "
            "two trips is at most that between their origins plus that between their destinations, so a "
            "trip costs twice"
        )

    # -- draws ---------------------------------------------------------------------------------

    def sample(
        self, origins: ArrayLike, destinations: ArrayLike, *, randomness: Randomness = SYSTEM
    ) -> TripReports:
        """One noisy pair for each trip between cells; (reports of origins, of destinations)."""
        size = self.mechanism.space.size
        begun = indices("origins", origins, size)
        ended = indices("destinations", destinations, size)
        check_both_ends(begun.size, ended.size)
        first = self.mechanism.sample(begun, randomness=randomness)
        return first, self.mechanism.sample(ended, randomness=randomness)

    def sample_at(
        self,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        to_lat: npt.ArrayLike,
        to_lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
        to_lon: npt.ArrayLike | None = None,
        randomness: Randomness = SYSTEM,
    ) -> TripReports:
        """One noisy pair for each trip from (lat, lng) to (to_lat, to_lng), positions in degrees.

        ``lon`` and ``to_lon`` are understood as well. For mechanisms between positions. A position outside
        the map is taken to its nearest point.
        """
        if not isinstance(self.mechanism, PositionalElastic):
            raise Unsupported(
                f"{self.mechanism!r} draws from cells; use sample(origins, destinations), or a mechanism "
                "between positions"
            )
        check_both_ends(np.size(lat), np.size(to_lat))
        checked_randomness(randomness)
        first = self.mechanism.sample_at(lat=lat, lng=lng, lon=lon, randomness=randomness)
        ended = self.mechanism.sample_at(lat=to_lat, lng=to_lng, lon=to_lon, randomness=randomness)
        return first, ended

    # -- what comes back -----------------------------------------------------------------------

    def tally(self, origins: ArrayLike, destinations: ArrayLike) -> TripTally:
        """Count pairs of reports, with the mechanism that made them; only pairs seen are kept."""
        return TripTally(self.mechanism, origins, destinations)

    def fit(
        self,
        tally: TripTally,
        *,
        stop: Stop | None = None,
        replicates: int = 40,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Flows:
        """The flows between cells that the reports tell of; see :class:`~geoveil.trips.flows.Flows`.

        ``stop`` is chosen by cross-validation, and so is the start, unless a number of steps is given
        (``gv.Steps(n)``). ``replicates`` and ``seed`` are for the intervals, found when asked for.
        """
        return fitted_flows(
            self.mechanism, tally, stop=stop, replicates=replicates, seed=seed, progress=progress
        )

    def __repr__(self) -> str:
        return f"Trips({self.mechanism!r})"
