"""The published rule in the long run: a Markov chain on a mesh of distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import scipy
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from geoveil import arrays
from geoveil.arrays import ArrayLike, BoolArray, FloatArray, IntArray
from geoveil.campaign.rules import PublishedRule
from geoveil.channel.channel import Channel, inverse_distribution
from geoveil.errors import InvalidInput, TooLarge
from geoveil.estimate.objective import Objective, em_point
from geoveil.randomness import Randomness, checked_randomness, seeded
from geoveil.space.space import Space


class Chain:
    """A Markov chain over finitely many states.

    ``possible`` says which transitions can happen at all, where their probability may be too small for
    a float; by default those with positive probability.
    Reference: PRIVIC Def. 6.1 and Thm 6.2.

    >>> weather = Chain([[0.9, 0.1], [0.5, 0.5]])
    >>> weather.irreducible, weather.period, weather.stationary.round(4).tolist()
    (True, 1, [0.8333, 0.1667])
    """

    def __init__(self, transitions: ArrayLike, possible: ArrayLike | None = None) -> None:
        matrix = np.array(transitions, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or (matrix < 0).any():
            raise InvalidInput("transitions must be a square matrix of probabilities")
        if np.abs(matrix.sum(axis=1) - 1).max() > 1e-9:
            raise InvalidInput("transitions must have rows that sum to 1")
        self.transitions: FloatArray = arrays.frozen(matrix)
        reach = matrix > 0 if possible is None else np.array(possible, dtype=np.bool_)
        self.possible: BoolArray = arrays.frozen(reach | (matrix > 0))

    @cached_property
    def _classes(self) -> tuple[int, IntArray]:
        graph = csr_array(self.possible.astype(np.int8))
        number, labels = connected_components(graph, directed=True, connection="strong")
        return int(number), np.asarray(labels, dtype=np.int64)

    @property
    def irreducible(self) -> bool:
        """Whether every state can be reached from every other."""
        return self._classes[0] == 1

    @cached_property
    def closed_classes(self) -> list[IntArray]:
        """Sets of states that, once entered, are never left; every run ends in one of them."""
        number, labels = self._classes
        start, end = np.nonzero(self.possible)
        leaving = np.unique(labels[start[labels[start] != labels[end]]])
        return [np.flatnonzero(labels == one) for one in range(number) if one not in leaving]

    @cached_property
    def recurrent(self) -> IntArray:
        """The states of the one closed class."""
        if len(self.closed_classes) > 1:
            raise InvalidInput(
                f"the chain ({len(self.closed_classes)} closed classes) must have one; where a run "
                "ends depends on its start"
            )
        return self.closed_classes[0]

    @cached_property
    def period(self) -> int:
        """The greatest common divisor of the lengths of all ways back, in the closed class."""
        states = self.recurrent
        within = self.possible[np.ix_(states, states)]
        order, before = breadth_first_order(csr_array(within.astype(np.int8)), 0)
        level = np.zeros(states.size, dtype=np.int64)
        for state in order[1:]:
            level[state] = level[before[state]] + 1
        start, end = np.nonzero(within)
        return math.gcd(*(level[start] + 1 - level[end]).tolist())

    @cached_property
    def stationary(self) -> FloatArray:
        """ψ with ψP = ψ: the law of the state in the long run, zero outside the closed class."""
        states = self.recurrent
        within = self.transitions[np.ix_(states, states)]
        system = np.vstack(((within.T - np.eye(states.size))[:-1], np.ones(states.size)))
        right_side = np.zeros(states.size)
        right_side[-1] = 1.0
        law = np.zeros(len(self.transitions))
        law[states] = np.maximum(np.linalg.solve(system, right_side), 0.0)
        return arrays.frozen(law / law.sum())

    def after(self, steps: int, start: int) -> FloatArray:
        """The law of the state after so many steps."""
        return np.linalg.matrix_power(self.transitions, steps)[start]

    def summary(self) -> str:
        """The chain in words."""
        states = len(self.transitions)
        if len(self.closed_classes) > 1:
            return f"{states} states, {len(self.closed_classes)} closed classes: the start matters for ever."
        reach = (
            "every one reached from every other"
            if self.irreducible
            else f"{self.recurrent.size} of them visited for ever, the others left for good"
        )
        period = "aperiodic" if self.period == 1 else f"of period {self.period}"
        return f"{states} states, {reach}, {period}: one stationary law."


# --- The long run of the published rule: a Markov chain over a mesh of distributions


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
        least = arrays.count("size", self.size, least=2)
        number = math.comb(arrays.count("parts", self.parts, least=least) - 1, self.size - 1)
        if number > _MOST_STATES:
            raise TooLarge(
                f"a mesh of {number} distributions must have at most {_MOST_STATES}; "
                "use fewer cells or parts"
            )

    @cached_property
    def states(self) -> FloatArray:
        """(states, size)."""
        whole = compositions(self.parts - self.size, self.size) + 1
        return arrays.frozen(whole / float(self.parts))

    @cached_property
    def _tree(self) -> scipy.spatial.cKDTree:
        return scipy.spatial.cKDTree(self.states)

    def nearest(self, thetas: FloatArray) -> IntArray:
        """The nearest state of each distribution; between equals the earlier cells get more."""
        tilt = np.linspace(1e-9, 0.0, self.size)
        _, places = self._tree.query(np.round(thetas, 12) + tilt)
        return np.asarray(places, dtype=np.int64)


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
        visited = np.empty(arrays.count("cycles", cycles), dtype=np.int64)
        state, believed = start, self.mesh.states[start]
        for cycle in range(cycles):
            if not on_mesh or state not in mechanisms:
                mechanisms[state] = self.rule.design(self.space, believed)
            source = checked_randomness(randomness)
            cells = inverse_distribution(self.truth, source.uniform(self.people))
            mechanism = mechanisms[state]
            tally = mechanism.tally(mechanism.sample(cells, randomness=source))
            believed = self.rule.estimate([tally], believed).distribution
            state = visited[cycle] = int(self.mesh.nearest(believed[None, :])[0])
            believed = self.mesh.states[state] if on_mesh else believed
        return visited

    def summary(self) -> str:
        """The long run in words."""
        how = "computed" if self.exact else "estimated from samples"
        return (
            f"{self.chain.summary()} Transitions {how}; mean error {self.expected_error:.3f} "
            "(total variation)."
        )


@arrays.one_blas_thread()
def long_run(
    space: Space,
    truth: ArrayLike,
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
    target = arrays.distribution("truth", truth, space.size)
    crowd = arrays.count("people", people)
    exact = math.comb(crowd + space.size - 1, space.size - 1) <= _MOST_OUTCOMES
    every = compositions(crowd, space.size) if exact else None
    generator = seeded(seed).generator
    rows, possible = [], []
    for believed in mesh.states:
        mechanism = rule.design(space, believed)
        law = mechanism.push(target)
        law = law / law.sum()
        if every is not None:
            counts = every  # of the multinomial law
            ways = math.lgamma(crowd + 1) - scipy.special.gammaln(counts + 1).sum(axis=1)
            if (law <= 0).any():
                raise InvalidInput(
                    "every report must be possible in the long run; use fewer design steps"
                )
            chances = np.exp(ways + scipy.special.xlogy(counts, law).sum(axis=1))
        else:
            counts = generator.multinomial(crowd, law, size=arrays.count("samples", samples))
            chances = np.full(samples, 1 / samples)
        # (outcomes, cells): the update from this belief, for every possible set of counts at once
        starts = np.tile(believed, (len(counts), 1))
        updated = em_point(Objective(mechanism, counts), starts, rule.update_steps)
        reached = mesh.nearest(updated.theta)
        row = np.bincount(reached, weights=chances, minlength=len(mesh.states))
        rows.append(row / row.sum())
        possible.append(np.bincount(reached, minlength=row.size) > 0)
    return LongRun(space, target, rule, crowd, mesh, Chain(rows, possible), exact)
