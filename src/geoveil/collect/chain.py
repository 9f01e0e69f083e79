"""Finite Markov chains: classes, period, stationary law, return times."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from geoveil.arrays import BoolArray, FloatArray, IntArray, frozen
from geoveil.errors import InvalidInput


class Chain:
    """A Markov chain over finitely many states.

    ``possible`` says which transitions can happen at all, where their probability may be too small for
    a float; by default those with positive probability.
    Reference: PRIVIC Def. 6.1 and Thm 6.2.

    >>> weather = Chain([[0.9, 0.1], [0.5, 0.5]])
    >>> weather.irreducible, weather.period, weather.stationary.round(4).tolist()
    (True, 1, [0.8333, 0.1667])
    """

    def __init__(self, transitions: npt.ArrayLike, possible: npt.ArrayLike | None = None) -> None:
        matrix = np.array(transitions, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or (matrix < 0).any():
            raise InvalidInput("transitions must be a square matrix of probabilities")
        if np.abs(matrix.sum(axis=1) - 1).max() > 1e-9:
            raise InvalidInput("transitions must have rows that sum to 1")
        self.transitions: FloatArray = frozen(matrix)
        reach = matrix > 0 if possible is None else np.array(possible, dtype=np.bool_)
        self.possible: BoolArray = frozen(reach | (matrix > 0))

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
        wanted = np.zeros(states.size)
        wanted[-1] = 1.0
        law = np.zeros(len(self.transitions))
        law[states] = np.maximum(np.linalg.solve(system, wanted), 0.0)
        return frozen(law / law.sum())

    @property
    def mean_return_times(self) -> FloatArray:
        """Cycles until a state is seen again, 1/ψ (PRIVIC Thm 6.2); infinite for those left for good."""
        with np.errstate(divide="ignore"):
            return 1 / self.stationary

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
