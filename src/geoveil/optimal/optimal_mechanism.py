"""The mechanism of least expected loss under a promise (Bordenabe et al.)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csgraph

from geoveil.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    count,
    finite,
    frozen,
    positive,
    prior_over,
)
from geoveil.channel.composed import DenseChannel
from geoveil.channel.guarantee import GeoIndistinguishability, Guarantee, checked_guarantee
from geoveil.document.certify import Certificate, certify
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure.distance import Loss, loss_values
from geoveil.optimal.interior_point import ROUNDING, ColumnProgram, Solved, solve
from geoveil.space.space import Space, distance_km

_SAME = 1 + 1e-12  # two sums of distances that agree to this are one


@dataclass(frozen=True)
class PrivacyConstraints:
    """All constraints of a promise on a space.

    ``weights`` is the largest loss w(x, x′) that the promise allows, closed under chains: what two
    pairs allow together, no pair exceeds. ``direct`` marks the pairs whose constraint does not
    follow from others; all the rest can be left out without changing what is private.
    """

    weights: FloatArray
    direct: BoolArray

    @classmethod
    def of(cls, space: Space, privacy: Guarantee) -> PrivacyConstraints:
        """The constraints of ``privacy`` between the cells of a space."""
        losses = np.array(privacy.loss(space.distances_km()))
        np.fill_diagonal(losses, 0.0)
        others = losses[~np.eye(space.size, dtype=np.bool_)]
        if np.isnan(others).any() or (others <= 0).any():
            raise InvalidInput(
                "privacy must allow a loss above 0 between any two cells; with none at all every "
                "cell must report alike"
            )
        return cls.closed(losses)

    @classmethod
    def closed(cls, losses: FloatArray) -> PrivacyConstraints:
        """From any symmetric matrix of allowed losses; chains of pairs are followed here."""
        pairs, weights = spanner(losses, 1.0)
        direct = np.zeros(losses.shape, dtype=np.bool_)
        direct[pairs[:, 0], pairs[:, 1]] = True
        return cls(frozen(weights), frozen(direct))

    def scaled(self, factor: float) -> PrivacyConstraints:
        """The same constraints with every loss multiplied."""
        return PrivacyConstraints(frozen(self.weights * factor), self.direct)

    @property
    def factors(self) -> FloatArray:
        """e^{−w}: at most 1, and 0 where everything is allowed."""
        return np.exp(-self.weights)

    def sparse(self, stretch: float) -> tuple[IntArray, float]:
        """A spanner: few pairs (both directions) and the stretch t that their chains really have.

        Constraints on these pairs alone, with all losses divided by t, imply all constraints.
        """
        pairs, _ = spanner(np.where(self.direct, self.weights, np.inf), stretch)
        return pairs, _stretch(self.weights, pairs)


def spanner(losses: FloatArray, stretch: float) -> tuple[IntArray, FloatArray]:
    """Greedy t-spanner: pairs taken from short to long unless a chain of at most t times exists.

    Returns the pairs, both directions of each, and the lengths of the shortest chains.
    Cost: m² per pair kept. Reference: Bordenabe et al., CCS 2014, §3.2.

    >>> pairs, lengths = spanner(np.abs(np.subtract.outer([0.0, 1, 3], [0.0, 1, 3])), 1.0)
    >>> pairs.tolist(), float(lengths[0, 2])
    ([[0, 1], [1, 2], [1, 0], [2, 1]], 3.0)
    """
    first, second = np.triu_indices(len(losses), 1)
    order = np.argsort(losses[first, second], kind="stable")
    lengths = np.full(losses.shape, np.inf)
    np.fill_diagonal(lengths, 0.0)
    kept = []
    for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True):
        loss = losses[a, b]
        if np.isinf(loss):
            break
        if lengths[a, b] > stretch * loss * _SAME:
            kept.append((a, b))
            through = (lengths[:, a] + loss)[:, None] + lengths[b]
            np.minimum(lengths, through, out=lengths)
            np.minimum(lengths, through.T, out=lengths)
    one_way = np.array(kept, dtype=np.int64).reshape(-1, 2)
    return np.concatenate([one_way, one_way[:, ::-1]]), lengths


def _stretch(weights: FloatArray, pairs: IntArray) -> float:
    """How much longer than allowed the worst chain of the given pairs is."""
    graph = np.full(weights.shape, np.inf)
    graph[pairs[:, 0], pairs[:, 1]] = weights[pairs[:, 0], pairs[:, 1]]
    chains = csgraph.shortest_path(csgraph.csgraph_from_dense(graph, null_value=np.inf))
    wanted = np.isfinite(weights) & (weights > 0)
    return float((chains[wanted] / weights[wanted]).max(initial=1.0))


# --- Making an almost private matrix private: what a solver returns is not, as it stands


def majorant(matrix: FloatArray, constraints: PrivacyConstraints) -> FloatArray:
    """The smallest private matrix above the given one: max over x′ of e^{−w(x, x′)}·C[x′, y].

    Its columns satisfy every constraint; its rows may sum to more than one. Cost: m²·n.
    """
    factors = constraints.factors
    raised = np.empty_like(matrix)
    for x in range(len(matrix)):
        np.max(factors[x][:, None] * matrix, axis=0, out=raised[x])
    return raised


def repair(matrix: FloatArray, constraints: PrivacyConstraints, costs: FloatArray) -> FloatArray:
    """A channel that satisfies every constraint exactly, close to a matrix that almost does.

    The majorant M is private but its row sums S(x) differ a little. It is scaled down by
    a = (1 − t)/max S, and what is missing, 1 − a·S(x), goes to one report. These vectors are private
    too once t ≥ (1 − min S/max S)/(e^{w_min} − 1), so their sum is, and every row sums to one.
    ``costs[x, y]`` = π(x)·L(x, y) chooses the report. Cost: m²·n.
    Reference: docs/optimal.md; scaling a sum of private columns needs no smaller ε, unlike scaling rows.
    """
    raised = majorant(np.maximum(matrix, 0.0), constraints)
    sums = raised.sum(axis=1)
    largest = float(sums.max())
    uneven = 1.0 - float(sums.min()) / largest
    smallest = float(constraints.weights[constraints.weights > 0].min(initial=math.inf))
    held_back = min(1.0, (2.0 * uneven + 1e-15) / math.expm1(min(smallest, 1.0)))
    channel = raised * ((1.0 - held_back) / largest)
    missing = 1.0 - channel.sum(axis=1)
    channel[:, int(np.argmin(missing @ costs))] += missing
    return channel


# --- The mechanism with the least expected loss among all that keep a promise


CELL_LIMIT = 400
"""Above this the factors of one step no longer fit a small machine's memory."""

MARGIN = 1e-10
"""The program keeps to this fraction less than the promise, so that rounding cannot break it."""

_AT_ONCE = 64  # up to so many cells all constraints that matter are written down from the start
_FIRST_STRETCH = 1.03
_FIRST_GAP = 1e-2
_NEGLIGIBLE = 1e-12  # of the largest cost: less of a loss is rounding
_WITHIN = "within the gap"
_ADDED = 1e-3  # constraints broken by more than this fraction of the worst are added

Progress = Callable[[float, str], None]
"""progress(fraction done in [0, 1], a word about it)"""


@dataclass(frozen=True)
class Optimality:
    """How good a mechanism is, and how that was found.

    The loss of the best mechanism lies between ``lower_bound`` and ``expected_loss``: the former
    follows from multipliers by arithmetic alone, the latter is that of the matrix as returned.
    """

    expected_loss: float
    lower_bound: float
    extra_loss: float
    """What the repair of the solver's matrix cost; part of ``expected_loss``."""
    steps: int
    rounds: int
    pairs: int
    """Pairs of cells whose constraints were written down, of m(m − 1)."""
    stretch: float
    """1, or the stretch t of a spanner: the program was then solved for the loss divided by t."""
    stopped: str
    negligible_loss: float = 0.0
    """Loss and bound that are no farther apart than this count as equal: it is rounding."""

    @property
    def gap(self) -> float:
        """(loss − bound)/loss: the true optimum is at most this fraction below."""
        missing = self.expected_loss - self.lower_bound
        return 0.0 if missing <= self.negligible_loss else missing / self.expected_loss

    def __str__(self) -> str:
        spanner = "" if self.stretch == 1 else f", spanner of stretch {self.stretch:.3g}"
        return (
            f"expected loss {self.expected_loss:.9g}, at most {self.gap:.2g} of it above the "
            f"optimum ({self.stopped}; {self.steps} steps, {self.pairs} pairs{spanner})"
        )


class OptimalMechanism(DenseChannel):
    """A channel of least expected loss for a prior, with the proof of it.

    Guarantee: the promise it was made for; ``certificate`` is the exact loss of the matrix.
    ``optimality`` says how close to the optimum it is.
    """

    def __init__(
        self, space: Space, matrix: FloatArray, privacy: Guarantee, optimality: Optimality
    ) -> None:
        super().__init__(space, matrix, guarantee=privacy)
        self.optimality = optimality
        self.certificate: Certificate = certify(self)

    @property
    def only_claimed(self) -> bool:
        return not self.certificate.holds

    def __repr__(self) -> str:
        return f"OptimalMechanism({self.space!r}, {self.optimality})"


def optimal_mechanism(
    space: Space,
    prior: npt.ArrayLike,
    *,
    epsilon_per_km: float | None = None,
    privacy: Guarantee | None = None,
    loss: Loss | npt.ArrayLike = distance_km,
    gap: float = 1e-8,
    spanner: float | None = None,
    most_steps: int = 500,
    progress: Progress = lambda fraction, detail: None,
) -> OptimalMechanism:
    """The channel from cells to cells with the least expected loss that keeps a promise.

    Law: minimise Σ π(x)·C[x, y]·L(x, y) over all C with C[x, y] ≤ e^{ℓ(d(x, x′))}·C[x′, y].
    Guarantee: ℓ-privacy (ε per km unless ``privacy`` is given), exact in the matrix as returned: it
    is repaired and certified. ``optimality.gap`` bounds what is missing to the optimum; when the
    wanted ``gap`` is not reached, ``optimality.stopped`` says why.
    ``spanner=t`` (above 1) keeps only the constraints of a t-spanner with all losses divided by t:
    still private, and never better than the optimum for ε/t; useful beyond 150 cells.
    Cost: 48 cells in about half a second, 120 in half a minute; up to 400 cells. A prior may hold
    zeros. Units: those of the loss.
    Reference: Bordenabe, Chatzikokolakis & Palamidessi, CCS 2014, eq. (1) and §3.2.

    >>> import geoveil as gv
    >>> best = optimal_mechanism(gv.Line(3), [0.25, 0.5, 0.25], epsilon_per_km=1.0)
    >>> bool(best.certificate.holds), bool(best.optimality.gap < 1e-8)
    (True, True)
    """
    promise = _promise(epsilon_per_km, privacy)
    weights = prior_over(prior, space.size)
    _check_size(space)
    if spanner is not None and finite("spanner", spanner) <= 1:
        raise InvalidInput(f"spanner ({spanner}) must be above 1, such as 1.1")
    promised = PrivacyConstraints.of(space, promise)
    task = _Task(
        weights[:, None] * _losses(space, loss),
        promised,
        promised.scaled(1.0 - _margin(promised)),
        positive("gap", gap),
        count("most_steps", most_steps),
        progress,
    )
    matrix, optimality = task.all_pairs() if spanner is None else task.on_spanner(spanner)
    return OptimalMechanism(space, matrix, promise, optimality)


@dataclass(frozen=True)
class _Task:
    """One program: its costs, the constraints as promised and as kept, and when to stop."""

    costs: FloatArray
    promised: PrivacyConstraints
    kept: PrivacyConstraints
    gap: float
    most_steps: int
    progress: Progress

    def all_pairs(self) -> tuple[FloatArray, Optimality]:
        """Solve, adding the constraints that turn out broken, until the gap is reached."""
        small = len(self.costs) <= _AT_ONCE
        used = self.kept.direct.copy() if small else _marked(self.kept, _FIRST_STRETCH)
        wanted = self.gap / 2 if small else max(self.gap / 2, _FIRST_GAP)
        bound, steps, rounds = -math.inf, 0, 0
        while True:
            found = self._solve(np.argwhere(used), self.kept, wanted, self.most_steps - steps)
            rounds, steps = rounds + 1, steps + found.steps
            bound = max(bound, self._bound(np.argwhere(used), found))
            matrix, reached = self._judged(found, bound, int(used.sum()), 1.0)
            reached = replace(reached, steps=steps, rounds=rounds)
            more = self._broken(found.columns) & ~used
            last = wanted <= self.gap / 2 and not more.any()
            if reached.gap <= self.gap or steps >= self.most_steps:
                return matrix, reached
            if last:
                return matrix, replace(reached, stopped=ROUNDING) if found.converged else reached
            used |= more
            wanted = self.gap / 2

    def on_spanner(self, stretch: float) -> tuple[FloatArray, Optimality]:
        """Solve for the pairs of a spanner: losses divided by its stretch, and whole for the bound."""
        pairs, reached = self.kept.sparse(stretch)
        found = self._solve(pairs, self.kept.scaled(1.0 / reached), self.gap / 2, self.most_steps)
        relaxed = self._solve(pairs, self.kept, self.gap / 2, self.most_steps)
        return self._judged(found, self._bound(pairs, relaxed), len(pairs), reached)

    def _solve(
        self, pairs: IntArray, constraints: PrivacyConstraints, gap: float, steps: int
    ) -> Solved:
        first, second = pairs.T
        program = ColumnProgram(self.costs, pairs, constraints.factors[first, second])
        middle = _middle(constraints)
        return solve(program, middle, gap=gap, most_steps=steps, progress=self._tell(len(pairs)))

    def _bound(self, pairs: IntArray, found: Solved) -> float:
        """What the prices prove about the promise itself, without the margin."""
        first, second = pairs.T
        factors = self.promised.factors[first, second]
        return ColumnProgram(self.costs, pairs, factors).bound(found.pair_price)

    def _judged(
        self, found: Solved, bound: float, pairs: int, stretch: float
    ) -> tuple[FloatArray, Optimality]:
        """The matrix made private, and what is known about it."""
        matrix = repair(found.columns, self.kept, self.costs)
        loss = float(np.vdot(self.costs, matrix))
        extra = loss - float(np.vdot(self.costs, found.columns))
        least = max(bound, 0.0)  # no loss is negative
        negligible = _NEGLIGIBLE * float(self.costs.max())
        stopped = _WITHIN if loss - least <= negligible else found.stopped
        return matrix, Optimality(
            loss, least, extra, found.steps, 1, pairs, stretch, stopped, negligible
        )

    def _broken(self, columns: FloatArray) -> npt.NDArray[np.bool_]:
        """The pairs whose constraint some report breaks by a share of the worst."""
        factors = self.kept.factors
        excess = np.stack(
            [(factors[x][:, None] * columns - columns[x]).max(axis=1) for x in range(len(columns))]
        )
        excess[~self.kept.direct] = 0.0
        worst = float(excess.max(initial=0.0))
        return excess > max(_ADDED * worst, 1e-16)

    def _tell(self, pairs: int) -> Callable[[float, float], None]:
        def tell(loss: float, bound: float) -> None:
            missing = min(1.0, max((loss - bound) / max(loss, 1e-300), self.gap))
            done = math.log(missing) / math.log(self.gap) if self.gap < 1 else 1.0
            self.progress(min(done, 1.0), f"gap {missing:.1e}, {pairs} pairs")

        return tell


def _middle(constraints: PrivacyConstraints) -> FloatArray:
    """A strictly private channel: half exponential mechanism, half uniform."""
    law = np.exp(-constraints.weights / 2)
    return 0.5 * law / law.sum(axis=1, keepdims=True) + 0.5 / len(law)


def _margin(constraints: PrivacyConstraints) -> float:
    """What the certificate rounds up by, as a fraction of the smallest loss, and a little more."""
    smallest = float(constraints.weights[constraints.weights > 0].min(initial=math.inf))
    return min(MARGIN + 1e-13 / smallest, 0.5)


def _marked(constraints: PrivacyConstraints, stretch: float) -> npt.NDArray[np.bool_]:
    pairs, _ = constraints.sparse(stretch)
    marked = np.zeros_like(constraints.direct)
    marked[pairs[:, 0], pairs[:, 1]] = True
    return marked


def _promise(epsilon_per_km: float | None, privacy: Guarantee | None) -> Guarantee:
    checked_guarantee("privacy", privacy)
    if (epsilon_per_km is None) == (privacy is None):
        raise InvalidInput("the promise must be exactly one of epsilon_per_km= and privacy=")
    if privacy is None:
        return GeoIndistinguishability(positive("epsilon_per_km", epsilon_per_km))
    return privacy


def _losses(space: Space, loss: Loss | npt.ArrayLike) -> FloatArray:
    """L(x, y) for every pair of cells, from a function or a matrix; never negative."""
    if callable(loss):
        cells = np.arange(space.size)
        losses = loss_values(loss, space, cells[:, None], cells)
    else:
        losses = np.asarray(loss, dtype=np.float64)
        if losses.shape != (space.size, space.size) or not np.isfinite(losses).all():
            raise InvalidInput(
                f"loss (shape {losses.shape}) must be finite, {space.size} cells × {space.size}"
            )
    if (losses < 0).any():
        raise InvalidInput("loss must not be negative for any pair of cells")
    return losses


def _check_size(space: Space) -> None:
    if space.size > CELL_LIMIT:
        raise TooLarge(
            f"the optimal mechanism ({space.size} cells) must have at most {CELL_LIMIT}; take larger "
            "cells, or remap a fast mechanism with bayesian_remap"
        )
