"""PRIVIC made again: its tables and figures, and ours beside them at the same promise."""

from geoveil.papers.privic import cycles, duality, isolation
from geoveil.papers.report import Paper

PAPER = Paper(
    name="privic",
    title="PRIVIC: A privacy-preserving method for incremental collection of location data",
    reference="S. Biswas and C. Palamidessi, arXiv 2206.10525",
    experiments=(
        duality.oracle,
        isolation.figure_1,
        isolation.figure_2,
        *isolation.FIGURE_3,
        duality.figure_4,
        duality.collapse,
        duality.figure_5,
        duality.markov_chain,
        cycles.figure_6,
        *cycles.FIGURE_7,
        *cycles.TABLES,
        cycles.figure_10,
        *cycles.SAME_PROMISE,
    ),
)

__all__ = ["PAPER"]
