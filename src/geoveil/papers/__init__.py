"""The five papers made again: their tables and figures, ours beside theirs.

A paper's module holds ``PAPER``, a :class:`~geoveil.papers.report.Paper`; :func:`run` makes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from geoveil.errors import InvalidInput, require
from geoveil.measure.distance import require_transport
from geoveil.papers.data import DataFolder
from geoveil.papers.report import Outcome, Paper, Report, Setting, write_page

PAPERS = {
    "privic": "geoveil.papers.privic",
    "noise": "geoveil.papers.noise_functions",
    "free-will": "geoveil.papers.free_will",
    "ibu": "geoveil.papers.ibu",
    "aggregates": "geoveil.papers.aggregates",
}
"""Each paper's short name and the module that holds it, under the name ``PAPER``."""

_WITH_TRANSPORT = ("privic", "free-will", "ibu")
"""Those that measure in earth mover's distances of maps."""

Progress = Callable[[str, float | None, str], None]
"""progress(experiment, fraction done in [0, 1] or None, a word about it)"""


def load_paper(name: str) -> Paper:
    """The paper of that name; an unknown name lists those that exist."""
    if name not in PAPERS:
        raise InvalidInput(f"paper ({name}) must be one of {', '.join(PAPERS)}")
    paper: Paper = import_module(PAPERS[name]).PAPER
    return paper


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
