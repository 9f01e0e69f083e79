"""Free-will privacy, made again: everybody chooses a mechanism, one distribution is estimated."""

from geoveil.papers.free_will.figures import FIGURES, table_1, table_2
from geoveil.papers.report import Paper

PAPER = Paper(
    name="free-will",
    title="Reconstruction of the distribution of sensitive data under free-will privacy",
    reference="E. ElSalamouny and C. Palamidessi, Suez Canal University, Inria and LIX",
    experiments=(*FIGURES, table_1, table_2),
)

__all__ = ["PAPER"]
