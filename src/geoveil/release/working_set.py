"""Acceleration for problems too large for a matrix whose maximum sits on few of the unknowns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy.special import entr

from geoveil.arrays import FloatArray, IntArray
from geoveil.estimate.acceleration import Squarem
from geoveil.estimate.em import maximise
from geoveil.estimate.likelihood import DenseLikelihood
from geoveil.estimate.newton import ActiveSetNewton
from geoveil.estimate.objective import Objective, Point
from geoveil.estimate.stopping import CertifiedWithin

_NEGLIGIBLE = 1e-6
_ENTRY = 1e-9
_TRIAL, _WORTH = 3, 0.1
_ROUNDING = 1e-14
_FINER = 0.03
"""How much nearer the maximum of a part is sought than the whole is known to be."""


@dataclass(frozen=True)
class WorkingSetNewton:
    """:class:`Squarem`, then exact maxima on a few unknowns at a time once few of them matter.

    Law: now and then, where few unknowns carry the mass (e to the entropy of θ at most ``largest``), solve
    the problem restricted to these with :class:`ActiveSetNewton`; then, with the gradient over all
    unknowns, let those with the largest g > 1 enter, and solve again. Three such rounds are a trial: if
    they bring the certificate to a tenth the method stays with them, each round one step, else they are
    forgotten and the extrapolated steps go on, twice as many as before.
    Cost: three products per Squarem step; a matrix of (working unknowns × observations) and one product
    per round. ``rows`` gives rows of L, exact, over all observations.
    Reference: the exchange method for mixtures (Böhning, Annals of the Institute of Statistical
    Mathematics 47, 1995), with Newton steps inside.
    """

    rows: Callable[[IntArray], FloatArray]
    warm_steps: int = 8
    largest: int = 256
    entering: int = 64

    def path(self, objective: Objective, start: FloatArray) -> Iterator[Point]:
        """The start, the extrapolated steps, then the point after each round."""
        steps, wait = Squarem().path(objective, start), self.warm_steps + 1
        found: Point | None = None
        while found is None:
            for point in islice(steps, wait):
                yield point
            wait *= 2
            if np.exp(entr(point.theta).sum()) <= self.largest:
                found = self._tried(objective, point)
        while found is not None:
            yield found
            found = self._better(objective, found)

    def _tried(self, objective: Objective, point: Point) -> Point | None:
        """The point after a few rounds; ``None`` where they are not worth it."""
        found = point
        for _ in range(_TRIAL):
            found = self._round(objective, found)
            if found.certificate <= _WORTH * point.certificate:
                return found if found.log_likelihood >= point.log_likelihood else None
        return None

    def _better(self, objective: Objective, point: Point) -> Point | None:
        """The point after one more round; ``None`` where it is neither higher nor nearer."""
        found = self._round(objective, point)
        higher = found.log_likelihood > point.log_likelihood
        as_high = found.log_likelihood >= point.log_likelihood - _ROUNDING
        nearer = found.certificate < point.certificate
        return found if higher or (as_high and nearer) else None

    def _round(self, objective: Objective, point: Point) -> Point:
        working = self._working(point)
        start = np.maximum(point.theta[working], _ENTRY)
        ascent = maximise(
            DenseLikelihood(self.rows(working)[:, objective.seen]),
            objective.weights,
            start=start / start.sum(),
            stop=CertifiedWithin(max(_FINER * float(point.certificate), 1e-10), maximum=200),
            accelerate=ActiveSetNewton(warm_steps=3),
        )
        theta = np.zeros(point.theta.size)
        theta[working] = ascent.distribution
        return objective.at(theta)

    def _working(self, point: Point) -> IntArray:
        """The unknowns with the most mass, and those that want to enter most."""
        heavy = np.argsort(-point.theta, kind="stable")[: self.largest]
        heavy = heavy[point.theta[heavy] > _NEGLIGIBLE * point.theta.max()]
        eager = np.argsort(-point.gradient, kind="stable")[: self.entering]
        return np.union1d(heavy, eager[point.gradient[eager] > 1.0])
