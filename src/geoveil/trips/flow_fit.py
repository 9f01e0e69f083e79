"""From trip tallies to flows: a small model through the channel, then the one EM loop on pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy

from geoveil.arrays import FloatArray, IntArray, checked_seed, count, one_blas_thread
from geoveil.channel.channel import RARE, Channel
from geoveil.channel.observed import TINY
from geoveil.channel.operator import DenseOperator, Operator
from geoveil.errors import InvalidInput, TooLarge
from geoveil.estimate import CertifiedWithin, CrossValidated, Progress, Steps, Stop, StoppingRule
from geoveil.estimate.bars import LOST
from geoveil.estimate.em import ActiveSetNewton, maximise
from geoveil.estimate.identifiability import lost_directions
from geoveil.estimate.objective import Objective, em_point
from geoveil.estimate.stopping import ChosenSteps, Meter, check_stop
from geoveil.trips.flows import Flows
from geoveil.trips.pairs import MOST_SPOTS, Classes, PairOperator, Spots, TripTally

_REACHES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""How far near trips go, in the pitch of the spots: the decay e^{−distance/ℓ}."""
_BALANCING = 12
"""Steps that give every part of the model the marginals."""
_FLOOR = 0.01
"""The share of all pairs alike in a start: what starts at zero stays there."""
_EMPTY = 1e-3
"""The share of all spots alike in a marginal."""
_CARRY_ON = 4
"""The flows that replicates are drawn from are carried on to so many times the steps."""
_ROUGHNESS = 1.6
"""How much flows of cities deviate from what noisy reports show of them: the standard deviation of the
logarithm, between blocks of cells; intervals allow for it."""
_ROUGH_SIDE = 3
"""Cells a side of such a block."""
_FIRST = 3
"""Estimates that say how much of it they show."""
_MOST_ENTRIES = 1 << 27
"""Replicates times pairs of cells, at most."""
_APART = (1e-6, 1.2, 1.7, 2.1, 2.5, 3.1, 4.1)
"""Where classes of distances begin, in cells: those who stay, the neighbours, those across a corner …"""
_SINGULAR, _RIDGE, _PASSES = 1e-13, 1e-9, 12
_WEIGHTS_AT_ONCE = 1 << 22
"""Of all classes together; more are made in turns."""
_STARTING, _CHOOSING = 0.2, 0.9
"""The parts of the work: until the start is there, until the steps are chosen."""

PAIR_STEPS = CrossValidated(repeats=1, patience=1.5, beyond=3, maximum=200)
"""The default rule: the held-out likelihood of pairs has one top, soon after a good start."""


@dataclass(frozen=True)
class Start:
    """Where EM on pairs begins: stay, near and product, fitted through the channel."""

    origins: FloatArray
    destinations: FloatArray
    weights: FloatArray
    """The shares of stay, product, and near at each of the reaches."""
    model: FloatArray
    """(spots, spots): the parts added up with their shares, nowhere quite empty."""

    def flows(self, product: float) -> FloatArray:
        """(spots²,): the model, with a share ``product`` of it replaced by independent ends."""
        if not product:
            return np.asarray(self.model.ravel())
        blended = (1 - product) * self.model + product * np.outer(self.origins, self.destinations)
        return np.asarray(blended.ravel())


def _parts(spots: Spots, origins: FloatArray, destinations: FloatArray) -> Iterator[FloatArray]:
    """(spots, spots) each: stay where the marginals are, independent ends, near by each reach."""
    yield np.diag((origins + destinations) / 2)
    yield np.outer(origins, destinations)
    apart = spots.distances_km()
    for reach in _REACHES:
        yield _balanced(np.exp(-apart / (reach * spots.pitch_km)), origins, destinations)


def _balanced(near: FloatArray, origins: FloatArray, destinations: FloatArray) -> FloatArray:
    """Rows and columns scaled until the sums are about the marginals."""
    near += 1e-12  # so that every end is within reach of every other
    columns = np.ones(len(near))
    for _ in range(_BALANCING):
        rows = origins / (near @ columns)
        columns = destinations / (rows @ near)
    near *= rows[:, None]
    near *= columns
    return near / near.sum()


@dataclass(frozen=True)
class Plan:
    """How a fit went, so that it can be done again on other counts: steps, and which start."""

    of_origins: int
    of_destinations: int
    product: float
    steps: int


@one_blas_thread()
def fitted_flows(
    mechanism: Channel,
    tally: TripTally,
    *,
    stop: Stop | None,
    replicates: int,
    seed: int,
    progress: Progress | None,
) -> Flows:
    """The estimate: marginals, the small model, then EM on pairs from the start that predicts best."""
    if not isinstance(tally, TripTally):
        raise InvalidInput(
            f"tally ({type(tally).__name__}) must be a trip tally; make one with trips.tally(*reports)"
        )
    if tally.channel is not mechanism and tally.channel != mechanism:
        raise InvalidInput("tally must come from the mechanism of these trips")
    if not tally.total:
        raise InvalidInput("tally must hold at least one trip; it holds none")
    count("replicates", replicates, least=2)
    checked_seed(seed)
    if stop is not None:
        check_stop(stop)
    meter, spots = Meter(progress), Spots.of(mechanism)
    by_data = CrossValidated(repeats=1)
    begun, of_origins = _marginal(spots, tally.of_origins(), by_data)
    ended, of_destinations = _marginal(spots, tally.of_destinations(), by_data)
    start = _fitted_start(spots, tally, begun, ended)
    meter.at(_STARTING)
    pairs = PairOperator(spots.operator, tally.pairs)
    if stop is None:
        product, rule = _best_start(pairs, tally, start, meter)
    else:
        product, rule = 0.0, stop.settled(pairs, tally.counts, start.flows(0.0), None)
    meter.at(_CHOOSING)
    ascent = maximise(pairs, tally.counts, start=start.flows(product), stop=rule)
    meter.at(1.0)
    plan = Plan(of_origins, of_destinations, product, ascent.steps)
    return Flows(
        space=mechanism.space,
        matrix=spots.between_cells(ascent.distribution),
        total=tally.total,
        steps=ascent.steps,
        stopped=ascent.stopped,
        log_likelihood=ascent.log_likelihood,
        certificate=ascent.certificate,
        model=start.weights,
        find_replicates=partial(_replicates, spots, tally, plan, replicates, seed),
        find_stay_bounds=partial(stay_bounds, spots, tally),
        find_lost=partial(_lost, mechanism),
    )


def _lost(mechanism: Channel) -> FloatArray:
    return lost_directions(mechanism.matrix())


def _marginal(spots: Spots, counts: IntArray, stop: Stop) -> tuple[FloatArray, int]:
    """Where one end of the trips is, nowhere quite empty, and the steps it took."""
    ascent = maximise(spots.operator, counts, stop=stop)
    return (1 - _EMPTY) * ascent.distribution + _EMPTY / spots.size, ascent.steps


def _fitted_start(
    spots: Spots, tally: TripTally, origins: FloatArray, destinations: FloatArray
) -> Start:
    """The shares of the parts that make the pairs most likely, through the channel."""
    pairs, size = PairOperator(spots.operator, tally.pairs), spots.size
    stored = None  # parts stay in memory where they fit, else they are made twice
    if size <= MOST_SPOTS:
        stored = list(_parts(spots, origins, destinations))
    parts = stored or _parts(spots, origins, destinations)
    laws = np.stack([np.maximum(pairs._push(part.ravel()), TINY) for part in parts])
    # Newton's steps need no matrix but this one of seven rows.
    weights = maximise(
        DenseOperator(laws), tally.counts, stop=CertifiedWithin(1e-6), accelerate=ActiveSetNewton()
    ).distribution
    model = np.full((size, size), _FLOOR / size**2)
    for weight, part in zip(weights, stored or _parts(spots, origins, destinations), strict=True):
        if weight > 0:
            model += (1 - _FLOOR) * weight * part
    return Start(origins, destinations, weights, model / model.sum())


def _best_start(
    pairs: Operator, tally: TripTally, start: Start, meter: Meter
) -> tuple[float, StoppingRule]:
    """The better start, the model or the model half blended with independent ends, and its steps."""
    candidates: list[tuple[float, ChosenSteps]] = []
    for product in (0.0, 0.5):
        first = start.flows(product)
        candidates.append((product, PAIR_STEPS.found(pairs, tally.counts, first, None)))
        meter.at(_STARTING + (_CHOOSING - _STARTING) * len(candidates) / 2)
    product, best = max(candidates, key=lambda candidate: candidate[1].held_out)
    return product, best.rule


# --- The same estimate of other counts, for intervals


@one_blas_thread()
def _replicates(
    spots: Spots, tally: TripTally, plan: Plan, replicates: int, seed: int
) -> FloatArray:
    """(replicates, cells, cells): how far estimates lie from the flows that their trips were drawn from.

    These flows are the estimate carried on and then roughened, each time anew: where noise is strong, an
    estimate is smooth because the model that it began from is, and draws from it would not show what it lost.
    They are roughened as far as estimates do not show it: a few first ones say how far that is.
    """
    if replicates * spots.cells**2 > _MOST_ENTRIES:
        raise TooLarge(
            f"replicates ({replicates}) × cells² ({spots.cells**2:,}) must be at most {_MOST_ENTRIES:,}; "
            "use fewer replicates, or larger cells"
        )
    redraw = _Redraw(spots, tally, plan, np.random.default_rng(seed))
    lost = redraw.lost([redraw.once(_ROUGHNESS) for _ in range(_FIRST)])
    errors = np.empty((replicates, spots.cells, spots.cells))
    for error in errors:
        rough, again = redraw.once(_ROUGHNESS * lost)
        error[:] = spots.between_cells(again) - spots.between_cells(rough)
    return errors


class _Redraw:
    """Trips drawn again and again from roughened flows, and the whole estimate of each."""

    def __init__(
        self, spots: Spots, tally: TripTally, plan: Plan, generator: np.random.Generator
    ) -> None:
        self._spots, self._tally, self._plan, self._generator = spots, tally, plan, generator
        self._centre = _estimate_again(spots, tally, replace(plan, steps=_CARRY_ON * plan.steps))
        self._pairs = PairOperator(spots.operator, tally.pairs)
        self._blocks = spots.blocks(_ROUGH_SIDE)

    def once(self, roughness: float) -> tuple[FloatArray, FloatArray]:
        """(spots²,) each: roughened flows, and the estimate of trips drawn from them.

        Each pair of blocks has a factor of its own, whose logarithm has this standard deviation.
        """
        block, spots = self._blocks, self._spots
        factors = np.exp(roughness * self._generator.standard_normal(2 * (int(block.max()) + 1,)))
        rough = self._centre.reshape(spots.size, -1) * factors[block[:, None], block]
        rough = rough.ravel() / rough.sum()
        law = np.maximum(self._pairs.law(rough), 0.0)
        shares = law.ravel() / law.sum()
        counts = self._generator.multinomial(self._tally.total, shares).reshape(law.shape)
        first, second = np.nonzero(counts)
        tally = TripTally(self._tally.channel, first, second, counts[first, second])
        return rough, _estimate_again(spots, tally, self._plan)

    def lost(self, pairs: Sequence[tuple[FloatArray, FloatArray]]) -> float:
        """The part of the roughness between blocks that estimates do not show, from 0 to 1."""
        rough, again = (np.stack([self._summed(pair[which]) for pair in pairs]) for which in (0, 1))
        moved, followed = rough - rough.mean(axis=0), again - again.mean(axis=0)
        # all pairs count by their share
        scale = np.maximum(rough.mean(axis=0), 1 / self._tally.total)
        varied = float((np.square(moved) / scale).sum())
        if varied < _SINGULAR:  # all trips are within one block, or from one to one other
            return 0.0
        return min(1.0, max(0.0, 1.0 - float((moved * followed / scale).sum()) / varied))

    def _summed(self, flows: FloatArray) -> FloatArray:
        """(blocks, blocks)."""
        members = np.eye(int(self._blocks.max()) + 1)[self._blocks]
        return np.asarray(members.T @ flows.reshape(self._spots.size, -1) @ members)


def _estimate_again(spots: Spots, tally: TripTally, plan: Plan) -> FloatArray:
    """The whole estimate of a tally once more, with the steps of a plan."""
    begun, _ = _marginal(spots, tally.of_origins(), Steps(plan.of_origins))
    ended, _ = _marginal(spots, tally.of_destinations(), Steps(plan.of_destinations))
    start = _fitted_start(spots, tally, begun, ended).flows(plan.product)
    objective = Objective(PairOperator(spots.operator, tally.pairs), tally.counts)
    return em_point(objective, start, plan.steps).theta


# --- The share that stays, between sums of reports that no flows make wrong


@one_blas_thread()
def stay_bounds(spots: Spots, tally: TripTally, flows: FloatArray) -> FloatArray:
    """(2, 2): values and standard errors of two sums of the reports, below and above the share that stays.

    Law: with F such that CF = 1 (C of cells), reports weighted by W = F·B·Fᵀ have the mean ⟨B, Θ⟩, Θ the true
    flows, for every B. B is 1 where trips stay, and elsewhere one number for each class of distances: all
    below zero, and ⟨B, Θ⟩ is at most the share; all above, and it is at least. Smooth B are known better.
    Which numbers is decided by where the ends would be if the flows were those estimated.
    Between positions the mean is that of B for people spread evenly in their cells; where they stand
    otherwise it is taken to be as far off as for any two spots of each pair of cells.
    """
    channel, number = tally.channel.matrix(), float(tally.total)
    begun, ended = (_unbiased(channel, flows.sum(axis=axis) @ channel, number) for axis in (1, 0))
    blurred = max(np.abs(channel @ side - np.eye(spots.cells)).max() for side in (begun, ended))
    if blurred > LOST or spots.blind:  # some cells, or places in them, are not told apart
        return np.array([[0.0, 0.0], [1.0, 0.0]])
    observed = np.zeros((channel.shape[1],) * 2)
    observed[tuple(tally.pairs.T)] = tally.counts / number
    expected = channel.T @ flows @ channel
    apart = spots.classes(np.multiply(_APART, spots.cell_km))
    shares = np.bincount(apart.ravel(), flows.ravel()).astype(np.float64)
    means, spreads = _moments(begun, apart, ended, (expected, observed))
    # where all trips are one nothing varies
    ridge = _RIDGE * (1.0 + np.diag(spreads[0]).mean())
    covariance = (spreads[0] + ridge * np.eye(len(shares))) / number
    bounds = np.empty((2, 2))
    for bound, sign in zip(bounds, (-1.0, 1.0), strict=True):
        numbers = _numbers(covariance, shares, sign)
        variance = float((numbers @ spreads @ numbers).max())
        bound[:] = numbers @ means[1], np.sqrt(max(variance, 0.0) / number)
        if spots.size > spots.cells:  # whole cells have CF = 1
            rows = spots.operator.matrix().reshape(-1, spots.cells, channel.shape[1])
            target = numbers[apart]
            weight = begun @ target @ ended.T
            off = np.stack([one @ weight @ other.T - target for one in rows for other in rows])
            bound[0] -= float((flows * (off.max(axis=0) if sign < 0 else off.min(axis=0))).sum())
    return bounds


def _unbiased(channel: FloatArray, law: FloatArray, number: float) -> FloatArray:
    """(reports, cells): F with CF = 1, of the least variance at a law of the reports."""
    scaled = channel / np.maximum(law, RARE / number)
    return np.asarray(
        scaled.T @ np.linalg.pinv(scaled @ channel.T, rcond=_SINGULAR, hermitian=True)
    )


def _moments(
    begun: FloatArray, kinds: Classes, ended: FloatArray, laws: Sequence[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """(laws, k) and (laws, k, k): means and covariances of the k weights F·B·Fᵀ of one trip, B one where
    a pair of cells is of a kind, its reports from a law; some rows of the weights are held at a time."""
    many = int(kinds.max()) + 1
    means, squares = np.zeros((len(laws), many)), np.zeros((len(laws), many, many))
    step = max(1, _WEIGHTS_AT_ONCE // (many * len(ended)))
    for start in range(0, len(begun), step):
        rows = slice(start, start + step)
        weights = np.stack([(begun[rows] @ (kinds == k) @ ended.T).ravel() for k in range(many)])
        for which, law in enumerate(laws):
            weighted = weights * law[rows].ravel()
            means[which] += weighted.sum(axis=1)
            squares[which] += weighted @ weights.T
    return means, squares - means[:, :, None] * means[:, None]


def _numbers(covariance: FloatArray, shares: FloatArray, sign: float) -> FloatArray:
    """One for the trips that stay, then c of one sign for each class, with the end farthest inside.

    Least of |c|·shares + 1.96·σ(c): for a given σ a problem of least squares, c not negative.
    """
    numbers = np.eye(1, len(shares))[0]
    factor = np.linalg.cholesky(covariance[1:, 1:]).T
    for _ in range(_PASSES if len(shares) > 1 else 0):
        error = np.sqrt(max(numbers @ covariance @ numbers, TINY))
        side = sign * covariance[1:, 0] + error / scipy.special.ndtri(0.975) * shares[1:]
        numbers[1:] = sign * scipy.optimize.nnls(factor, -np.linalg.solve(factor.T, side))[0]
    return numbers
