"""Aggregation-based location privacy made again: least leakage for counts, certified and at scale."""

from geoveil.papers.aggregates.laws import ALGORITHM_1, FIGURE_4, FIGURE_9, UNPOPULAR
from geoveil.papers.aggregates.sizes import DEFINITION_3, FIGURE_7, TABLE_2
from geoveil.papers.aggregates.tradeoff import FIGURE_5, FIGURE_6, FIGURE_8
from geoveil.papers.report import Paper

PAPER = Paper(
    name="aggregates",
    title="Aggregation-based location privacy: An information theoretic approach",
    reference="W. Zhang, B. Jiang, M. Li, R. Tandon, Q. Liu and H. Li, Computers & Security 97 (2020)",
    experiments=(
        ALGORITHM_1,
        TABLE_2,
        FIGURE_4,
        FIGURE_5,
        FIGURE_6,
        FIGURE_7,
        DEFINITION_3,
        UNPOPULAR,
        FIGURE_8,
        FIGURE_9,
    ),
)

__all__ = ["PAPER"]
