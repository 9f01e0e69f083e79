"""The mechanism of least expected loss under a promise (Bordenabe et al.)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csgraph

from geoveil import arrays
from geoveil.arrays import ArrayLike, BoolArray, FloatArray, IntArray, frozen, positive
from geoveil.channel.certificate import Certificate, certify
from geoveil.channel.composed import DenseChannel
from geoveil.channel.guarantee import GeoIndistinguishability, Guarantee, checked_guarantee
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure import Loss, loss_matrix, loss_values
from geoveil.optimal.interior_point import ROUNDING, ColumnProgram, Progress, Solved, solve
from geoveil.space.space import Space, checked_space, distance_km

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

    @property
    def smallest(self) -> float:
        """The least loss allowed between two cells; ∞ for a single one."""
        return float(self.weights[self.weights > 0].min(initial=math.inf))

    def sparse(self, stretch: float) -> tuple[IntArray, float]:
        """A spanner: few pairs (both directions) and the stretch t that their chains really have.

        Constraints on these pairs alone, with all losses divided by t, imply all constraints.
        """
        pairs, _ = spanner(np.where(self.direct, self.weights, np.inf), stretch)
        graph = np.full(self.weights.shape, np.inf)
        graph[pairs[:, 0], pairs[:, 1]] = self.weights[pairs[:, 0], pairs[:, 1]]
        chains = csgraph.shortest_path(csgraph.csgraph_from_dense(graph, null_value=np.inf))
        limited = np.isfinite(self.weights) & (self.weights > 0)
        return pairs, float((chains[limited] / self.weights[limited]).max(initial=1.0))


def spanner(losses: FloatArray, stretch: float) -> tuple[IntArray, FloatArray]:
    """Greedy t-spanner: pairs taken from short to long unless a chain of at most t times exists.

    Returns the pairs, both directions of each, and the lengths of the shortest chains.
    Cost: m² per pair of the spanner. Reference: Bordenabe et al., CCS 2014, §3.2.

    >>> pairs, lengths = spanner(np.abs(np.subtract.outer([0.0, 1, 3], [0.0, 1, 3])), 1.0)
    >>> pairs.tolist(), float(lengths[0, 2])
    ([[0, 1], [1, 2], [1, 0], [2, 1]], 3.0)
    """
    first, second = np.triu_indices(len(losses), 1)
    order = np.argsort(losses[first, second], kind="stable")
    lengths = np.full(losses.shape, np.inf)
    np.fill_diagonal(lengths, 0.0)
    edges = []
    for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True):
        loss = losses[a, b]
        if np.isinf(loss):
            break
        if lengths[a, b] > stretch * loss * _SAME:
            edges.append((a, b))
            through = (lengths[:, a] + loss)[:, None] + lengths[b]
            np.minimum(lengths, through, out=lengths)
            np.minimum(lengths, through.T, out=lengths)
    one_way = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return np.concatenate([one_way, one_way[:, ::-1]]), lengths


# --- Making an almost private matrix private: what a solver returns is not, as it stands


def majorant(matrix: FloatArray, constraints: PrivacyConstraints) -> FloatArray:
    """The smallest private matrix above the given one: max over x′ of e^{−w(x, x′)}·C[x′, y].

    Its columns satisfy every constraint; its rows may sum to more than one. Cost: m²·n.
    """
    return np.stack([(row[:, None] * matrix).max(axis=0) for row in constraints.factors])


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
    least = min(constraints.smallest, 1.0)
    held_back = min(1.0, (2.0 * uneven + 1e-15) / math.expm1(least))
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
_BROKEN = 1e-16  # a constraint broken by more than this is added


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
        super().__init__(space, matrix)
        self.optimality = optimality
        self.certificate: Certificate = certify(self, claim=privacy)
        self._fixed = privacy if self.certificate.holds else None

    def __repr__(self) -> str:
        return f"OptimalMechanism({self.space!r}, {self.optimality})"


def optimal_mechanism(
    space: Space,
    prior: ArrayLike,
    *,
    epsilon_per_km: float | None = None,
    privacy: Guarantee | None = None,
    loss: Loss | ArrayLike = distance_km,
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
    still private, and never worse than the optimum for ε/t; useful beyond 150 cells.
    Cost: 48 cells in about half a second, 120 in half a minute; up to 400 cells. A prior may hold
    zeros. Units: those of the loss.
    Reference: Bordenabe, Chatzikokolakis & Palamidessi, CCS 2014, eq. (1) and §3.2.

    >>> import geoveil as gv
    >>> best = optimal_mechanism(gv.Line(3), [0.25, 0.5, 0.25], epsilon_per_km=1.0)
    >>> bool(best.certificate.holds), bool(best.optimality.gap < 1e-8)
    (True, True)
    """
    checked_guarantee("privacy", privacy)
    if (epsilon_per_km is None) == (privacy is None):
        raise InvalidInput("the promise must be exactly one of epsilon_per_km= and privacy=")
    promise = privacy or GeoIndistinguishability(positive("epsilon_per_km", epsilon_per_km))
    weights = arrays.prior_over(prior, checked_space(space).size)
    if space.size > CELL_LIMIT:
        raise TooLarge(
            f"the optimal mechanism ({space.size} cells) must have at most {CELL_LIMIT}; take larger "
            "cells, or remap a fast mechanism with bayesian_remap"
        )
    if spanner is not None and arrays.finite("spanner", spanner) <= 1:
        raise InvalidInput(f"spanner ({spanner}) must be above 1, such as 1.1")
    promised = PrivacyConstraints.of(space, promise)
    # what the certificate rounds up by, as a fraction of the smallest loss, and a little more
    margin = min(MARGIN + 1e-13 / promised.smallest, 0.5)
    task = _Task(
        weights[:, None] * _losses(space, loss),
        promised,
        promised.scaled(1.0 - margin),
        positive("gap", gap),
        arrays.count("most_steps", most_steps),
        arrays.teller(progress),
    )
    matrix, optimality = task.all_pairs() if spanner is None else task.on_spanner(float(spanner))
    return OptimalMechanism(space, matrix, promise, optimality)


@dataclass(frozen=True)
class _Task:
    """One program: its costs (m, m), the constraints as promised and a little tighter, and when to stop."""

    costs: FloatArray
    promised: PrivacyConstraints
    tight: PrivacyConstraints
    gap: float
    most_steps: int
    progress: Progress

    def all_pairs(self) -> tuple[FloatArray, Optimality]:
        """Solve, adding the constraints that turn out broken, until the gap is reached."""
        used, inner_gap = self.tight.direct.copy(), self.gap / 2
        if len(self.costs) > _AT_ONCE:
            pairs, _ = self.tight.sparse(_FIRST_STRETCH)
            used, inner_gap = np.zeros_like(used), max(inner_gap, _FIRST_GAP)
            used[pairs[:, 0], pairs[:, 1]] = True
        bound, steps, rounds = -math.inf, 0, 0
        while True:
            pairs = np.argwhere(used)
            solved = self._solve(pairs, self.tight, inner_gap, self.most_steps - steps)
            rounds, steps = rounds + 1, steps + solved.steps
            bound = max(bound, self._bound(pairs, solved))
            matrix, reached = self._judged(solved, bound, len(pairs), 1.0)
            reached = replace(reached, steps=steps, rounds=rounds)
            if reached.gap <= self.gap or steps >= self.most_steps:
                return matrix, reached
            more = self._broken(solved.columns) & ~used
            if inner_gap <= self.gap / 2 and not more.any():
                return matrix, replace(reached, stopped=ROUNDING) if solved.converged else reached
            used |= more
            inner_gap = self.gap / 2

    def on_spanner(self, stretch: float) -> tuple[FloatArray, Optimality]:
        """Solve for the pairs of a spanner: losses divided by its stretch, and whole for the bound."""
        pairs, reached = self.tight.sparse(stretch)
        solved = self._solve(pairs, self.tight.scaled(1.0 / reached), self.gap / 2, self.most_steps)
        relaxed = self._solve(pairs, self.tight, self.gap / 2, self.most_steps)
        return self._judged(solved, self._bound(pairs, relaxed), len(pairs), reached)

    def _solve(
        self, pairs: IntArray, constraints: PrivacyConstraints, gap: float, steps: int
    ) -> Solved:
        def tell(loss: float, bound: float) -> None:
            missing = min(1.0, max((loss - bound) / max(loss, 1e-300), self.gap))
            fraction = math.log(missing) / math.log(self.gap) if self.gap < 1 else 1.0
            self.progress(min(fraction, 1.0), f"gap {missing:.1e}, {len(pairs)} pairs")

        first, second = pairs.T
        program = ColumnProgram(self.costs, pairs, constraints.factors[first, second])
        # a strictly private start: half exponential mechanism, half uniform
        law = np.exp(-constraints.weights / 2)
        middle = 0.5 * law / law.sum(axis=1, keepdims=True) + 0.5 / len(law)
        return solve(program, middle, gap=gap, most_steps=steps, progress=tell)

    def _bound(self, pairs: IntArray, solved: Solved) -> float:
        """What the prices prove about the promise itself, without the margin."""
        first, second = pairs.T
        factors = self.promised.factors[first, second]
        return ColumnProgram(self.costs, pairs, factors).bound(solved.pair_price)

    def _judged(
        self, solved: Solved, bound: float, pairs: int, stretch: float
    ) -> tuple[FloatArray, Optimality]:
        """The matrix made private, and what is known about it."""
        matrix = repair(solved.columns, self.tight, self.costs)
        loss = float(np.vdot(self.costs, matrix))
        extra = loss - float(np.vdot(self.costs, solved.columns))
        least = max(bound, 0.0)  # no loss is negative
        negligible = _NEGLIGIBLE * float(self.costs.max())
        stopped = "within the gap" if loss - least <= negligible else solved.stopped
        return matrix, Optimality(
            loss, least, extra, solved.steps, 1, pairs, stretch, stopped, negligible
        )

    def _broken(self, columns: FloatArray) -> BoolArray:
        """(m, m): the pairs whose constraint some report breaks."""
        rows = zip(self.tight.factors, columns, strict=True)
        excess = np.stack([(row[:, None] * columns - own).max(axis=1) for row, own in rows])
        excess[~self.tight.direct] = 0.0
        return np.asarray(excess > _BROKEN)


def _losses(space: Space, loss: Loss | ArrayLike) -> FloatArray:
    """L(x, y) for every pair of cells, from a function or a matrix; never negative."""
    if callable(loss):
        cells = np.arange(space.size)
        losses = loss_values(loss, space, cells[:, None], cells)
    else:
        losses = loss_matrix(loss, space.size, space.size)
    if (losses < 0).any():
        raise InvalidInput("loss must not be negative for any pair of cells")
    return losses
