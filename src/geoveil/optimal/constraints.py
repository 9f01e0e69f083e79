"""The privacy constraints of a finite space, as few of them as will do.

With w(x, x′) = ℓ(d(x, x′)) a column v of a private channel satisfies v(x) ≥ e^{−w(x, x′)}·v(x′) for
every pair. Constraints that follow from a chain of shorter ones need not be written down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csgraph

from geoveil.arrays import BoolArray, FloatArray, IntArray, frozen
from geoveil.channel.guarantee import Guarantee
from geoveil.errors import InvalidInput
from geoveil.space.base import Space

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
