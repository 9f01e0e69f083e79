"""The five papers made again: their tables and figures, ours beside theirs.

:data:`PAPERS` lists them with their experiments, and :func:`run` makes one again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from geoveil.errors import InvalidInput, require
from geoveil.measure import require_transport
from geoveil.papers.data import DataFolder
from geoveil.papers.report import Experiment, Outcome, Paper, Report, Setting, write_page

PAPERS = {
    "privic": (
        "PRIVIC: A privacy-preserving method for incremental collection of location data",
        "S. Biswas and C. Palamidessi, arXiv 2206.10525",
        """privic_duality:oracle privic_isolation:figure_1 privic_isolation:figure_2
        privic_isolation:FIGURE_3 privic_duality:figure_4 privic_duality:collapse
        privic_duality:figure_5 privic_duality:markov_chain privic_cycles:figure_6
        privic_cycles:FIGURE_7 privic_cycles:TABLES privic_cycles:figure_10 privic_cycles:SAME_PROMISE""",
    ),
    "noise": (
        "Optimal noise functions for location privacy on continuous regions",
        "E. ElSalamouny and S. Gambs, International Journal of Information Security 17, 2018",
        """noise_functions:figure_2 noise_functions:figure_3 noise_functions:figure_4
        noise_functions:figure_5 noise_functions:open_question""",
    ),
    "free-will": (
        "Reconstruction of the distribution of sensitive data under free-will privacy",
        "E. ElSalamouny and C. Palamidessi, Suez Canal University, Inria and LIX",
        "free_will:FIGURES free_will:table_1 free_will:table_2",
    ),
    "ibu": (
        (
            "Full convergence of the iterative Bayesian update "
            "and applications to mechanisms for privacy protection"
        ),
        "E. ElSalamouny and C. Palamidessi, Inria, LIX and Suez Canal University",
        """ibu_small_spaces:figure_2 ibu_small_spaces:figure_4 ibu_small_spaces:figure_5
        ibu_small_spaces:bound_17 ibu_levels:figure_9 ibu_levels:figure_10 ibu_levels:figure_11
        ibu_levels:figure_12 ibu_small_spaces:figure_13 ibu_small_spaces:figure_14""",
    ),
    "aggregates": (
        "Aggregation-based location privacy: An information theoretic approach",
        "W. Zhang, B. Jiang, M. Li, R. Tandon, Q. Liu and H. Li, Computers & Security 97 (2020)",
        """aggregates_laws:algorithm_1 aggregates_laws:table_2 aggregates_laws:figure_4
        aggregates_tradeoff:figure_5 aggregates_tradeoff:figure_6 aggregates_tradeoff:figure_7
        aggregates_laws:definition_3 aggregates_laws:unpopular_places aggregates_tradeoff:figure_8
        aggregates_laws:figure_9""",
    ),
}
"""Each paper by its short name: title, reference and, in their order on its page, the experiments, one or
several under a name of a module here."""

_WITH_TRANSPORT = ("privic", "free-will", "ibu")
"""Those that measure in earth mover's distances of maps."""

Progress = Callable[[str, float | None, str], None]
"""progress(experiment, fraction done in [0, 1] or None, a word about it)"""


def load_paper(name: str) -> Paper:
    """The paper of that name; an unknown name lists those that exist."""
    if name not in PAPERS:
        raise InvalidInput(f"paper ({name}) must be one of {', '.join(PAPERS)}")
    title, reference, listed = PAPERS[name]
    experiments: list[Experiment] = []
    for entry in listed.split():
        module, _, called = entry.partition(":")
        value = getattr(import_module(f"{__name__}.{module}"), called)
        experiments += [value] if isinstance(value, Experiment) else value
    return Paper(name, title, reference, tuple(experiments))


def run(
    paper: str,
    *,
    data: str | Path | None = None,
    quick: bool = False,
    out: str | Path = "out/papers",
    only: Sequence[str] = (),
    seed: int = 1,
    progress: Progress = lambda name, fraction, detail: None,
) -> Report:
    """Make the tables and figures of a paper again, under ``out/<paper>``.

    Each experiment leaves a picture (PNG) and a table (CSV); ``index.md`` shows them beside the
    paper's statements. An experiment whose data is not there is reported as not run. ``quick``
    takes fewer settings and repetitions. Needs matplotlib.
    """
    require("matplotlib", "plot", "drawing the figures of a paper")
    if paper in _WITH_TRANSPORT:
        require_transport()
    if data is not None and not Path(data).is_dir():
        raise InvalidInput(f"data ({data}) must be a folder")
    loaded = load_paper(paper)
    chosen = loaded.chosen(only)
    folder = Path(out) / loaded.name
    folder.mkdir(parents=True, exist_ok=True)
    source = DataFolder() if data is None else DataFolder(Path(data))
    outcomes = []
    for experiment in chosen:
        setting = Setting(source, quick, seed, partial(progress, experiment.name))
        outcomes.append(Outcome.of(experiment, setting, folder))
    report = Report(loaded, tuple(outcomes), str(folder / "index.md"), quick)
    write_page(report, folder)
    return report
