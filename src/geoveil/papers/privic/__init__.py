"""PRIVIC made again: its tables and figures, and ours beside them at the same promise."""

from geoveil.papers.privic.duality import COLLAPSE, FIGURE_4, ORACLE
from geoveil.papers.privic.estimates import (
    FIGURE_6,
    FIGURE_7A,
    FIGURE_7C,
    FIGURE_10,
    PROMISE_PARIS,
    PROMISE_SAN_FRANCISCO,
)
from geoveil.papers.privic.isolation import FIGURE_1, FIGURE_2, FIGURE_3A, FIGURE_3B
from geoveil.papers.privic.long_term import CHAIN, FIGURE_5
from geoveil.papers.privic.published_tables import TABLE_2, TABLE_3
from geoveil.papers.report import Paper

PAPER = Paper(
    name="privic",
    title="PRIVIC: A privacy-preserving method for incremental collection of location data",
    reference="S. Biswas and C. Palamidessi, arXiv 2206.10525",
    experiments=(
        ORACLE,
        FIGURE_1,
        FIGURE_2,
        FIGURE_3A,
        FIGURE_3B,
        FIGURE_4,
        COLLAPSE,
        FIGURE_5,
        CHAIN,
        FIGURE_6,
        FIGURE_7A,
        FIGURE_7C,
        TABLE_2,
        TABLE_3,
        FIGURE_10,
        PROMISE_PARIS,
        PROMISE_SAN_FRANCISCO,
    ),
)

__all__ = ["PAPER"]
