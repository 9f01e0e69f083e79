"""NOISE made again: its figures, and an answer to the question it leaves open."""

from geoveil.papers.noise.los_angeles import FIGURE_4, FIGURE_5
from geoveil.papers.noise.radials import FIGURE_2, FIGURE_3, OPEN_QUESTION
from geoveil.papers.report import Paper

PAPER = Paper(
    name="noise",
    title="Optimal noise functions for location privacy on continuous regions",
    reference="E. ElSalamouny and S. Gambs, International Journal of Information Security 17, 2018",
    experiments=(FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, OPEN_QUESTION),
)

__all__ = ["PAPER"]
