"""Entropy, divergence and leakage. Bits or nats, always by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import entr, rel_entr

from geoveil.arrays import ArrayLike, FloatArray, distribution, one_blas_thread, prior_over
from geoveil.channel.channel import Channel

FEW_ROWS = 64
"""Up to so many rows are taken one by one even where the channel has a formula for all of them."""


def entropy_bits(p: ArrayLike) -> float:
    """The entropy −Σ p log₂ p of a distribution, in bits; 0·log 0 is 0.

    >>> entropy_bits([0.5, 0.25, 0.25])
    1.5
    """
    return float(entr(distribution("p", p, _length(p))).sum()) / math.log(2)


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """The total variation ½ Σ|p − q|: the largest difference in the probability of any event.

    >>> total_variation([1.0, 0.0], [0.25, 0.75])
    0.75
    """
    first, second = _pair(p, q)
    return min(1.0, 0.5 * float(np.abs(first - second).sum()))


def kl_divergence_nats(p: ArrayLike, q: ArrayLike) -> float:
    """The Kullback–Leibler divergence Σ p ln(p/q) of p from q, in nats.

    Infinite where q is zero and p is not.

    >>> kl_divergence_nats([0.5, 0.5], [1.0, 0.0])
    inf
    """
    first, second = _pair(p, q)
    return max(0.0, float(rel_entr(first, second).sum()))


def kl_divergence_bits(p: ArrayLike, q: ArrayLike) -> float:
    """The Kullback–Leibler divergence Σ p log₂(p/q) of p from q, in bits.

    >>> kl_divergence_bits([1.0, 0.0], [0.25, 0.75])
    2.0
    """
    return kl_divergence_nats(p, q) / math.log(2)


@one_blas_thread()
def mutual_information_bits(channel: Channel, prior: ArrayLike | None = None) -> float:
    """What one report tells about the cell: I(X; Y) = H(Y) − Σ π(x) H(Y | x), in bits.

    The prior is uniform when none is given. The result is an average over people and reports; the
    guarantee of a channel, which bounds the worst case, is another matter.

    Cost: one product and the entropies of the rows, one at a time unless the channel has a formula
    for them; never an m×m array. Accurate to about 1e-15·log m.

    Reference: PRIVIC §3 (rate of a rate–distortion problem).

    >>> from geoveil.channel.composed import DenseChannel
    >>> from geoveil.space.line import Line
    >>> mutual_information_bits(DenseChannel(Line(2), [[1.0, 0.0], [0.0, 1.0]]), [0.5, 0.5])
    1.0
    """
    weights = prior_over(prior, channel.space.size)
    support = np.flatnonzero(weights)
    of_report = float(entr(np.maximum(channel._push(weights), 0.0)).sum())
    if support.size > FEW_ROWS:
        of_rows = channel.row_entropies_nats()[support]
    else:
        of_rows = np.array([float(entr(channel._row(cell)).sum()) for cell in support.tolist()])
    return max(0.0, of_report - float(weights[support] @ of_rows)) / math.log(2)


def _pair(p: Any, q: Any) -> tuple[FloatArray, FloatArray]:
    first = distribution("p", p, _length(p))
    return first, distribution("q", q, first.size)


def _length(p: Any) -> int:
    shape = np.shape(p)
    return int(shape[-1]) if shape else 0
