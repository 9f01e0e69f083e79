"""Free-will privacy, made again: everybody chooses a mechanism, one distribution is estimated."""

from geoveil.papers.free_will.figures import FIGURES
from geoveil.papers.free_will.tables import TABLE_1, TABLE_2
from geoveil.papers.report import Paper

PAPER = Paper(
    name="free-will",
    title="Reconstruction of the distribution of sensitive data under free-will privacy",
    reference="E. ElSalamouny and C. Palamidessi, Suez Canal University, Inria and LIX",
    experiments=(*FIGURES, TABLE_1, TABLE_2),
)

__all__ = ["PAPER"]
