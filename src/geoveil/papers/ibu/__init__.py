"""Full convergence of the iterative Bayesian update, made again: EM against matrix inversion."""

from geoveil.papers.ibu import levels, small_spaces
from geoveil.papers.report import Paper

PAPER = Paper(
    name="ibu",
    title=(
        "Full convergence of the iterative Bayesian update "
        "and applications to mechanisms for privacy protection"
    ),
    reference="E. ElSalamouny and C. Palamidessi, Inria, LIX and Suez Canal University",
    experiments=(
        small_spaces.figure_2,
        small_spaces.figure_4,
        small_spaces.figure_5,
        small_spaces.bound_17,
        levels.figure_9,
        levels.figure_10,
        levels.figure_11,
        levels.figure_12,
        small_spaces.figure_13,
        small_spaces.figure_14,
    ),
)

__all__ = ["PAPER"]
