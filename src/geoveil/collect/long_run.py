"""The long run of the published rule: a Markov chain over a mesh of distributions.

One cycle of PRIVIC turns a believed distribution into another at random, and remembers nothing else.
On a tiny space, with beliefs rounded to a mesh, all of it can be written down: the matrix of
transitions, whether every belief can be reached, and the law of the belief after very many cycles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import gammaln, xlogy

from geoveil.arrays import FloatArray, IntArray, count, distribution, frozen, one_blas_thread
from geoveil.channel.base import Channel
from geoveil.channel.tally import Tally
from geoveil.collect.chain import Chain
from geoveil.collect.rule import PublishedRule
from geoveil.errors import InvalidInput, TooLarge
from geoveil.estimate.em import em_path
from geoveil.estimate.likelihood import ChannelLikelihood
from geoveil.estimate.objective import Objective
from geoveil.randomness import Randomness, checked_randomness, seeded
from geoveil.space.base import Space

_MOST_STATES = 3_000
_MOST_OUTCOMES = 200_000


@dataclass(frozen=True, eq=False)
class Mesh:
    """The distributions over ``size`` cells whose shares are whole multiples of 1/``parts``, none zero.

    Reference: PRIVIC §6, the discretised simplex.

    >>> Mesh(3, 4).states.tolist()
    [[0.25, 0.25, 0.5], [0.25, 0.5, 0.25], [0.5, 0.25, 0.25]]
    """

    size: int
    parts: int

    def __post_init__(self) -> None:
        least = count("size", self.size, least=2)
        number = math.comb(count("parts", self.parts, least=least) - 1, self.size - 1)
        if number > _MOST_STATES:
            raise TooLarge(
                f"a mesh of {number} distributions must have at most {_MOST_STATES}; "
                "use fewer cells or parts"
            )

    @cached_property
    def states(self) -> FloatArray:
        """(states, size)."""
        whole = compositions(self.parts - self.size, self.size) + 1
        return frozen(whole / float(self.parts))

    def nearest(self, thetas: FloatArray) -> IntArray:
        """The nearest state of each distribution; between equals the earlier cells get more."""
        tilt = np.linspace(1e-9, 0.0, self.size)
        _, found = self._tree.query(np.round(thetas, 12) + tilt)
        return np.asarray(found, dtype=np.int64)

    @cached_property
    def _tree(self) -> scipy.spatial.cKDTree:
        return scipy.spatial.cKDTree(self.states)


def compositions(total: int, parts: int) -> IntArray:
    """All ways to write ``total`` as a sum of ``parts`` whole numbers from 0 on, one per row.

    >>> compositions(2, 2).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    bars = np.array(list(combinations(range(total + parts - 1), parts - 1)), dtype=np.int64)
    ends = np.pad(bars.reshape(-1, parts - 1), ((0, 0), (1, 1)), constant_values=-1)
    ends[:, -1] = total + parts - 1
    return np.diff(ends, axis=1) - 1


@dataclass(frozen=True, eq=False)
class LongRun:
    """PRIVIC as published, on a tiny space: ``people`` fresh people a cycle, beliefs on a mesh.

    ``chain`` has the transition matrix and all that follows from it; ``exact`` says whether its rows
    sum over all possible counts or over sampled ones.
    """

    space: Space
    truth: FloatArray
    rule: PublishedRule
    people: int
    mesh: Mesh
    chain: Chain
    exact: bool

    @property
    def mean(self) -> FloatArray:
        """The mean belief in the long run; not the truth itself: the rule is biased."""
        return self.chain.stationary @ self.mesh.states

    @property
    def expected_error(self) -> float:
        """The mean total variation between belief and truth in the long run."""
        errors = 0.5 * np.abs(self.mesh.states - self.truth).sum(axis=1)
        return float(self.chain.stationary @ errors)

    def simulate(
        self, cycles: int, *, randomness: Randomness, on_mesh: bool = True, start: int = 0
    ) -> IntArray:
        """The states of a simulated run: people, mechanisms, reports and updates, cycle by cycle.

        With ``on_mesh`` every belief is rounded before the next cycle, as in the chain; without, the
        rule runs as published and beliefs are rounded only to be counted.
        """
        mechanisms: dict[int, Channel] = {}
        visited = np.empty(count("cycles", cycles), dtype=np.int64)
        state, believed = start, self.mesh.states[start]
        for cycle in range(cycles):
            if not on_mesh or state not in mechanisms:
                mechanisms[state] = self.rule.design(self.space, believed)
            tally = self._reports(mechanisms[state], checked_randomness(randomness))
            believed = self.rule.estimate([tally], believed).distribution
            state = visited[cycle] = int(self.mesh.nearest(believed[None, :])[0])
            believed = self.mesh.states[state] if on_mesh else believed
        return visited

    def _reports(self, mechanism: Channel, randomness: Randomness) -> Tally:
        ends = np.cumsum(self.truth)
        cells = np.searchsorted(ends[:-1], randomness.uniform(self.people), side="right")
        return mechanism.tally(mechanism.sample(cells, randomness=randomness))

    def summary(self) -> str:
        """The long run in words."""
        how = "computed" if self.exact else "estimated from samples"
        return (
            f"{self.chain.summary()} Transitions {how}; mean error {self.expected_error:.3f} "
            "(total variation)."
        )


@one_blas_thread()
def long_run(
    space: Space,
    truth: npt.ArrayLike,
    *,
    beta_per_km: float,
    design_steps: int,
    update_steps: int,
    people: int,
    parts: int,
    samples: int = 20_000,
    seed: int = 0,
) -> LongRun:
    """The Markov chain of the published rule, with its stationary law.

    Law: from a belief θ on the mesh, the mechanism is Blahut–Arimoto's for θ, the counts of ``people``
    reports are multinomial with law πC, the update starts at θ, and its result is rounded to the
    mesh. All counts are enumerated where there are at most 200,000 of them; otherwise every row is
    estimated from ``samples`` draws. ``design_steps`` and ``update_steps`` are the paper's N_BA and N_IBU.
    Cost: states × counts × update steps: for spaces of two to four cells.
    Reference: PRIVIC §6.

    >>> import geoveil as gv
    >>> run = long_run(gv.Line(2), [0.7, 0.3], beta_per_km=1.0, design_steps=4, update_steps=8,
    ...                people=40, parts=10)
    >>> run.exact, run.chain.transitions.shape, run.chain.irreducible, run.chain.period
    (True, (9, 9), True, 1)
    >>> bool(abs(run.mean[0] - 0.7) < 0.05)
    True
    """
    mesh = Mesh(space.size, parts)
    rule = PublishedRule(beta_per_km, design_steps, update_steps)
    target = distribution("truth", truth, space.size)
    crowd = count("people", people)
    exact = math.comb(crowd + space.size - 1, space.size - 1) <= _MOST_OUTCOMES
    every = compositions(crowd, space.size) if exact else None
    generator = seeded(seed).generator
    rows = []
    for believed in mesh.states:
        mechanism = rule.design(space, believed)
        law = mechanism.push(target)
        if every is None:
            counts = generator.multinomial(crowd, law / law.sum(), size=count("samples", samples))
            chances = np.full(samples, 1 / samples)
        else:
            counts, chances = every, _multinomial(every, law)
        rows.append(_row(mesh, rule, mechanism, believed, counts, chances))
    matrix, possible = (np.array(each) for each in zip(*rows, strict=True))
    return LongRun(space, target, rule, crowd, mesh, Chain(matrix, possible), exact)


def _row(
    mesh: Mesh,
    rule: PublishedRule,
    mechanism: Channel,
    believed: FloatArray,
    counts: IntArray,
    chances: FloatArray,
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """The chances of going from one belief to every other, and which are possible at all."""
    objective = Objective(ChannelLikelihood(mechanism), counts)
    path = em_path(objective, np.tile(believed, (len(counts), 1)))
    reached = mesh.nearest(next(islice(path, rule.update_steps, None)).theta)
    number = len(mesh.states)
    row = np.bincount(reached, weights=chances, minlength=number)
    return row / row.sum(), np.bincount(reached, minlength=number) > 0


def _multinomial(counts: IntArray, law: FloatArray) -> FloatArray:
    """The probability of each row of counts."""
    if (law <= 0).any():
        raise InvalidInput("every report must be possible in the long run; use fewer design steps")
    total = float(counts[0].sum())
    logs = gammaln(total + 1) - gammaln(counts + 1).sum(axis=1) + xlogy(counts, law).sum(axis=1)
    return np.exp(logs)
