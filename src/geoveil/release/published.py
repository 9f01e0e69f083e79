"""The stopping rule of the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray
from geoveil.channel.kernel import Kernel
from geoveil.estimate.em import em_path
from geoveil.estimate.likelihood import Likelihood
from geoveil.estimate.objective import Objective
from geoveil.estimate.stopping import Progress, Steps


@dataclass(frozen=True)
class LeakageChange:
    """Until one step lowers the leakage by at most ``threshold`` nats.

    Law: I_k = Σ p(a) q_k(ã|a) log(q_k(ã|a)/c_k(ã)) = −f(c_k) − λ·D_k; the first step with I_{k−1} − I_k ≤ δ
    is the last. ``distances`` is the kernel d·e^{−λd}, from which D_k comes.
    Cost: the path is walked twice, first with one more product a step to find its end.
    Reference: AGG Alg. 1, line 8. It says nothing about the distance to the optimum; the certificate does.
    """

    threshold: float
    multiplier: float
    distances: Kernel
    maximum: int = 100_000

    def settled(
        self,
        likelihood: Likelihood,
        weights: npt.ArrayLike,
        start: FloatArray,
        progress: Progress | None,
    ) -> Steps:
        """The number of steps that Algorithm 1 makes on these data."""
        before = np.inf
        for step, leakage in enumerate(self.leakages_nats(likelihood, weights, start)):
            if before - leakage <= self.threshold or step >= self.maximum:
                return Steps(step, f"the leakage fell by less than {self.threshold:g} nats")
            before = leakage
        raise AssertionError("expectation–maximisation goes on without end")

    def leakages_nats(
        self, likelihood: Likelihood, weights: npt.ArrayLike, start: FloatArray
    ) -> Iterator[float]:
        """I_0, I_1, … in nats."""
        objective = Objective(likelihood, weights)
        for point in em_path(objective, start):
            nearness = self.distances.apply(point.theta)[objective.seen]
            distortion = float(objective.weights @ (nearness / point.law))
            yield -float(point.log_likelihood) - self.multiplier * distortion
