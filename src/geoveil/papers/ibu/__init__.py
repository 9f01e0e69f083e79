"""Full convergence of the iterative Bayesian update, made again: EM against matrix inversion."""

from geoveil.papers.ibu.convergence import BOUND_17, FIGURE_4, FIGURE_5
from geoveil.papers.ibu.levels import FIGURE_9, FIGURE_10, FIGURE_11, FIGURE_12
from geoveil.papers.ibu.small_spaces import FIGURE_2, FIGURE_13, FIGURE_14
from geoveil.papers.report import Paper

PAPER = Paper(
    name="ibu",
    title=(
        "Full convergence of the iterative Bayesian update "
        "and applications to mechanisms for privacy protection"
    ),
    reference="E. ElSalamouny and C. Palamidessi, Inria, LIX and Suez Canal University",
    experiments=(
        FIGURE_2,
        FIGURE_4,
        FIGURE_5,
        BOUND_17,
        FIGURE_9,
        FIGURE_10,
        FIGURE_11,
        FIGURE_12,
        FIGURE_13,
        FIGURE_14,
    ),
)

__all__ = ["PAPER"]
