"""What a release tells about each single person."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import rel_entr

from geoveil.arrays import FloatArray
from geoveil.release.design import ReleaseDesign


def personal_leakage_bits(design: ReleaseDesign) -> FloatArray:
    """I(A_m; Ã) in bits for every person m: what the release tells about where that person is.

    Law: r_l(ã) = Σ_a P(ã|a)·P(a | m is at l), and I = Σ_l θ_l·KL(r_l ‖ Σ_k θ_k r_k).
    Cost: one product for each place and kind of person; people with the same prior share theirs.
    Reference: AGG Def. 1 and §5.2.2.
    """
    prior = design.law.prior
    by_kind = np.zeros(prior.rows.shape[0])
    for kind, laws in prior.laws_given_place(design.vectors):
        possible = prior.rows[kind] > 0
        by_kind[kind] = _mixture_information_bits(
            design.pushed(laws[possible]), prior.rows[kind][possible]
        )
    return by_kind[prior.kind]


def _mixture_information_bits(laws: FloatArray, weights: FloatArray) -> float:
    """I between the index of a mixture and what is drawn from it, in bits."""
    laws = laws / laws.sum(axis=1, keepdims=True)
    divergences = rel_entr(laws, weights @ laws).sum(axis=1)
    return max(0.0, float(weights @ divergences)) / math.log(2)


@dataclass(frozen=True)
class LeakageChain:
    """Theorem 1 of AGG in numbers: personal ≤ aggregate ≤ the sum over the timestamps, in bits.

    ``personal_bits`` is the largest leakage about one person, ``aggregate_bits`` I(A; Ã) of the whole
    release, ``upper_bits`` Σ_t I(A(t); Ã(t)). Without correlation in time the last two are equal
    (AGG Cor. 1). ``least_bits`` is a proven lower bound on what any release with the same distortion
    tells about the counts.
    """

    personal_bits: float
    aggregate_bits: float
    upper_bits: float
    least_bits: float

    @property
    def holds(self) -> bool:
        """Whether the numbers are in the order of the theorem, up to rounding."""
        slack = 1e-9 * (1.0 + self.upper_bits)
        ordered = self.personal_bits <= self.aggregate_bits + slack
        return ordered and self.least_bits <= self.aggregate_bits <= self.upper_bits + slack
