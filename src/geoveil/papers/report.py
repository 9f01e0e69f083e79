"""What a reproduction says: claims, verdicts, findings, and the page they stand on."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from geoveil.errors import InvalidInput, require
from geoveil.measure.distance import require_transport
from geoveil.papers.data import DataFolder, MissingData

Number = int | float | str | bool | None
"""What a table or a list of numbers may hold; ``None`` is an empty field."""


class Agreement(Enum):
    """Whether our result says what the paper's statement says."""

    YES = "agrees"
    PARTLY = "agrees in part"
    NO = "does not agree"

    @classmethod
    def of(cls, *conditions: bool) -> Agreement:
        """``YES`` where all conditions hold, ``NO`` where none does, else ``PARTLY``."""
        if all(conditions):
            return cls.YES
        return cls.PARTLY if any(conditions) else cls.NO


class Claim(NamedTuple):
    """One thing a paper says, whether our figures bear it out, and the figures."""

    words: str
    holds: bool
    figures: str


class Verdict(NamedTuple):
    """Whether all of what the paper says holds, and each of its claims with our figures.

    A verdict is a plain function of figures, so that a test can show it every outcome.

    >>> print(Verdict.of(Claim("it falls", True, "3 to 2"), Claim("to zero", False, "2")).conclusion)
    Holds: it falls (3 to 2). Does not hold: to zero (2).
    """

    agreement: Agreement
    conclusion: str

    @classmethod
    def of(cls, *claims: Claim, note: str = "") -> Verdict:
        """``YES`` where all claims hold, ``NO`` where none does, else ``PARTLY``; a note comes last."""
        told = [_told(claims, True, "Holds"), _told(claims, False, "Does not hold"), note]
        agreement = Agreement.of(*(claim.holds for claim in claims))
        return cls(agreement, " ".join(part for part in told if part))


def _told(claims: Sequence[Claim], holds: bool, head: str) -> str:
    """The claims that hold, or those that do not, in one sentence."""
    told = [f"{claim.words} ({claim.figures})" for claim in claims if bool(claim.holds) is holds]
    return f"{head}: {'; '.join(told)}." if told else ""


@dataclass(frozen=True)
class Table:
    """Columns by name (with their unit) and rows of numbers or words."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Number, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
        """A checked table from any sequences; NumPy numbers become plain ones."""
        plain = tuple(tuple(_plain(value) for value in row) for row in rows)
        for number, row in enumerate(plain):
            if len(row) != len(columns):
                raise InvalidInput(
                    f"row {number} ({len(row)} values) must have {len(columns)}, one per column"
                )
        return cls(tuple(columns), plain)


@dataclass(frozen=True)
class Finding:
    """What one experiment found.

    ``agreement`` and ``conclusion`` are the :class:`Verdict`; ``numbers`` are figures by name (units in
    the names) for machines; ``draw`` paints the figure on an empty matplotlib one.
    """

    agreement: Agreement
    conclusion: str
    table: Table
    draw: Callable[[Any], None] | None = None
    numbers: Mapping[str, Number] = field(default_factory=dict)
    figure_size: tuple[float, float] = (7.0, 4.2)
    """Width and height in inches."""


def _silent(fraction: float | None, detail: str) -> None:
    """Progress nobody looks at."""


@dataclass(frozen=True)
class Setting:
    """What an experiment may use: the data, how thorough to be, and whom to tell how far it is."""

    data: DataFolder = field(default_factory=DataFolder)
    quick: bool = False
    """Fewer settings and repetitions: the shape of the result in seconds."""
    seed: int = 1
    progress: Callable[[float | None, str], None] = _silent


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper: its name there, what the paper says of it, and how it is made."""

    name: str
    """Short, for file names: ``figure-4``."""
    title: str
    statement: str
    """The paper's statement in one sentence."""
    run: Callable[[Setting], Finding]
    judge: Callable[..., Verdict] | None = None
    """The verdict as a function of figures, which ``run`` applies to what it measured."""


@dataclass(frozen=True)
class Paper:
    """A paper and the experiments that are made again."""

    name: str
    title: str
    reference: str
    experiments: tuple[Experiment, ...]

    def chosen(self, only: Sequence[str]) -> tuple[Experiment, ...]:
        """The experiments with the given names, all for none; an unknown name lists those that exist."""
        known = {experiment.name: experiment for experiment in self.experiments}
        for name in only:
            if name not in known:
                raise InvalidInput(f"experiment ({name}) must be one of {', '.join(known)}")
        return tuple(known[name] for name in dict.fromkeys(only)) if only else self.experiments


@dataclass(frozen=True)
class Outcome:
    """An experiment with what it found, or the reason it was not run."""

    experiment: Experiment
    finding: Finding | None
    seconds: float
    not_run: str | None = None
    picture: str | None = None
    table: str | None = None

    @property
    def verdict(self) -> str:
        """In a word or two."""
        return self.finding.agreement.value if self.finding else "not run"

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        found = self.finding
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "statement": self.experiment.statement,
            "verdict": self.verdict,
            "conclusion": found.conclusion if found else self.not_run,
            "numbers": dict(found.numbers) if found else {},
            "picture": self.picture,
            "table": self.table,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Report:
    """All outcomes of one paper, and the page that shows them."""

    paper: Paper
    outcomes: tuple[Outcome, ...]
    page: str
    quick: bool

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "paper": self.paper.name,
            "title": self.paper.title,
            "reference": self.paper.reference,
            "quick": self.quick,
            "page": self.page,
            "experiments": [outcome.to_dict() for outcome in self.outcomes],
        }


def _plain(value: Any) -> Number:
    return value.item() if hasattr(value, "item") else value


# --- Findings on paper: a PNG, a CSV table, and one Markdown page for each paper


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which most people can tell apart."""

_SHOWN_ROWS = 24
_STYLE: dict[str, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "font.size": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": 130,
}


@contextmanager
def style() -> Iterator[None]:
    """The one look of all figures."""
    import matplotlib as mpl
    from cycler import cycler

    settings: Any = {**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
    with mpl.rc_context(settings):
        yield


def write_figure(finding: Finding, path: Path) -> None:
    """Paint the finding on an empty figure and save it, without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=finding.figure_size, layout="constrained")
        FigureCanvasAgg(figure)
        if finding.draw is not None:
            finding.draw(figure)
        figure.savefig(path, metadata={"Software": None})


def write_table(table: Table, path: Path) -> None:
    """The table as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(["" if value is None else value for value in row] for row in table.rows)


def write_page(report: Report, folder: Path) -> None:
    """``index.md``: every experiment with the paper's statement, our verdict, figure and table."""
    head = f"# {report.paper.title}\n\n{report.paper.reference}\n"
    kind = "Quick run: fewer settings and repetitions than in the paper.\n" if report.quick else ""
    overview = [
        f"| [{outcome.experiment.title}](#{outcome.experiment.name}) | {outcome.verdict} |"
        for outcome in report.outcomes
    ]
    table = "\n".join(["| experiment | ours |", "|---|---|", *overview])
    parts = [head, kind, table, *(_section(outcome) for outcome in report.outcomes)]
    (folder / "index.md").write_text(
        "\n".join(part for part in parts if part) + "\n", encoding="utf-8"
    )


def _section(outcome: Outcome) -> str:
    experiment, finding = outcome.experiment, outcome.finding
    lines = [f'\n<a id="{experiment.name}"></a>\n\n## {experiment.title}\n']
    lines.append(f"The paper: {experiment.statement}\n")
    if finding is None:
        return "\n".join([*lines, f"Not run: {outcome.not_run}.\n"])
    lines.append(f"Ours **{finding.agreement.value}**: {finding.conclusion}\n")
    if outcome.picture is not None:
        lines.append(f"![{experiment.title}]({Path(outcome.picture).name})\n")
    lines.append(markdown(finding.table))
    if len(finding.table.rows) > _SHOWN_ROWS:
        lines.append(f"\nThe first {_SHOWN_ROWS} of {len(finding.table.rows)} rows; all are in")
    lines.append(f"\n[{experiment.name}.csv]({experiment.name}.csv), {outcome.seconds:.1f} s\n")
    return "\n".join(lines)


def markdown(table: Table) -> str:
    """The first rows as a Markdown table."""
    lines = [_line(table.columns), _line("---" for _ in table.columns)]
    lines += [_line(shown(value) for value in row) for row in table.rows[:_SHOWN_ROWS]]
    return "\n".join(lines)


def shown(value: Number) -> str:
    """A number as people read it: five digits, nothing for ``None``."""
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _line(fields: Any) -> str:
    return "| " + " | ".join(str(field).replace("|", "\\|") for field in fields) + " |"


# --- The papers by name, and running one: experiments in turn, each written as soon as it is done


PAPERS = {
    "privic": "geoveil.papers.privic",
    "noise": "geoveil.papers.noise",
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
    outcomes = tuple(
        _outcome(
            experiment, Setting(source, quick, seed, partial(progress, experiment.name)), folder
        )
        for experiment in chosen
    )
    report = Report(loaded, outcomes, str(folder / "index.md"), quick)
    write_page(report, folder)
    return report


def _outcome(experiment: Experiment, setting: Setting, folder: Path) -> Outcome:
    setting.progress(None, experiment.title)
    began = time.perf_counter()
    try:
        finding = experiment.run(setting)
    except MissingData as missing:
        return Outcome(experiment, None, time.perf_counter() - began, not_run=str(missing))
    seconds = time.perf_counter() - began
    picture, table = folder / f"{experiment.name}.png", folder / f"{experiment.name}.csv"
    write_table(finding.table, table)
    if finding.draw is not None:
        write_figure(finding, picture)
    return Outcome(
        experiment,
        finding,
        seconds,
        picture=str(picture) if finding.draw is not None else None,
        table=str(table),
    )
