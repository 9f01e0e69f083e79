"""Aggregation-based location privacy made again: least leakage for counts, certified and at scale."""

from geoveil.papers.aggregates import laws, tradeoff
from geoveil.papers.report import Paper

PAPER = Paper(
    name="aggregates",
    title="Aggregation-based location privacy: An information theoretic approach",
    reference="W. Zhang, B. Jiang, M. Li, R. Tandon, Q. Liu and H. Li, Computers & Security 97 (2020)",
    experiments=(
        laws.algorithm_1,
        laws.table_2,
        laws.figure_4,
        tradeoff.figure_5,
        tradeoff.figure_6,
        tradeoff.figure_7,
        laws.definition_3,
        laws.unpopular_places,
        tradeoff.figure_8,
        laws.figure_9,
    ),
)

__all__ = ["PAPER"]
