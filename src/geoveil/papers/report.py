"""What a reproduction says: claims, verdicts, experiments, and the page they stand on.

How an experiment is declared, in every paper::

    @experiment("Figure 4: its title", judge_four)
    def figure_4(setting: Setting) -> Measured:
        '''What the paper says of it, in a sentence.'''
        errors = [measure(level) for level in setting.each(setting.pick(LEVELS, QUICK), "ε = {:g}")]
        return Measured((LEVELS, errors), "ε | error (km)", zip(LEVELS, errors), draw=...)

``judge_four`` is a plain function of the figures (here levels and errors) that returns a :class:`Verdict`;
the docstring is printed beside it as the statement of the paper.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from geoveil.errors import InvalidInput
from geoveil.papers.data import DataFolder, MissingData
from geoveil.plot.curves import COLOURS, Curve, draw_curves
from geoveil.plot.maps import picture

T = TypeVar("T")
Number = int | float | str | bool | None
"""What a table or a list of numbers may hold; ``None`` is an empty field."""


class Agreement(Enum):
    """Whether our result says what the paper's statement says."""

    YES = "agrees"
    PARTLY = "agrees in part"
    NO = "does not agree"


class Claim(NamedTuple):
    """One thing a paper says, whether our figures bear it out, and the figures."""

    words: str
    holds: bool | np.bool_
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
        sentences = []
        for outcome, head in ((True, "Holds"), (False, "Does not hold")):
            parts = [f"{words} ({figures})" for words, holds, figures in claims if holds == outcome]
            sentences += [f"{head}: {'; '.join(parts)}."] if parts else []
        holding = [holds for _, holds, _ in claims]
        some = Agreement.PARTLY if any(holding) else Agreement.NO
        conclusion = " ".join(filter(None, [*sentences, note]))
        return cls(Agreement.YES if all(holding) else some, conclusion)


def span(values: npt.ArrayLike, style: str = ".2f") -> str:
    """The least and the largest of some figures, in words.

    >>> span([0.25, 1.0, 0.5], ".0%")
    '25% to 100%'
    """
    figures = np.asarray(values)
    return f"{figures.min():{style}} to {figures.max():{style}}"


def listed(values: Iterable[float], style: str = ".2f") -> str:
    """Figures one after the other.

    >>> listed([1, 0.5])
    '1.00, 0.50'
    """
    return ", ".join(f"{value:{style}}" for value in values)


def share(which: npt.NDArray[np.bool_]) -> str:
    """How many of some cases.

    >>> share(np.array([True, False, True]))
    '2 of 3'
    """
    return f"{int(which.sum())} of {which.size}"


@dataclass(frozen=True)
class Table:
    """Columns by name (with their unit) and rows of numbers or words."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Number, ...], ...]

    @classmethod
    def of(cls, columns: str | Sequence[str], rows: Iterable[Iterable[Any]]) -> Table:
        """A checked table; columns may be one text, ``"people | leakage (bits)"``, in lines.

        NumPy numbers become plain ones.
        """
        text = " ".join(columns.split()).split(" | ") if isinstance(columns, str) else columns
        names = tuple(text)
        plain = tuple(
            tuple(value.item() if hasattr(value, "item") else value for value in row)
            for row in rows
        )
        for number, row in enumerate(plain):
            if len(row) != len(names):
                raise InvalidInput(
                    f"row {number} ({len(row)} values) must have {len(names)}, one per column"
                )
        return cls(names, plain)


Draw = Callable[[Any], None]
"""Paints a figure on an empty matplotlib one."""


class Measured(NamedTuple):
    """What one experiment measured: the figures for its judge, and how they are shown."""

    figures: tuple[Any, ...]
    """The arguments of the judge."""
    columns: str | Sequence[str]
    rows: Iterable[Iterable[Any]]
    draw: Draw | None = None
    numbers: Mapping[str, Number] = {}
    """Figures by name (units in the names), for machines."""
    figure_size: tuple[float, float] = (7.0, 4.2)
    """Width and height in inches."""


@dataclass(frozen=True)
class Finding:
    """What one experiment found: its :class:`Verdict`, and what it measured as it is shown."""

    agreement: Agreement
    conclusion: str
    table: Table
    draw: Draw | None
    numbers: Mapping[str, Number]
    figure_size: tuple[float, float]


@dataclass(frozen=True)
class Setting:
    """What an experiment may use: the data, how thorough to be, and whom to tell how far it is.

    Two settings are equal whomever they tell, so that a simulation serves every figure that shows it.
    """

    data: DataFolder = field(default_factory=DataFolder)
    quick: bool = False
    """Fewer settings and repetitions: the shape of the result in seconds."""
    seed: int = 1
    progress: Callable[[float | None, str], None] = field(
        default=lambda fraction, detail: None, compare=False
    )

    def pick(self, full: T, quick: T) -> T:
        """A size of the experiment: as in the paper, or for a quick run."""
        return quick if self.quick else full

    def each(self, items: Sequence[T], words: str) -> Iterator[T]:
        """The items in turn, telling how far it is; ``words`` is a format for the item or its parts."""
        for number, item in enumerate(items):
            parts = item if isinstance(item, tuple) else (item,)
            self.progress(number / len(items), words.format(*parts))
            yield item


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper: its name there, what the paper says of it, and how it is made."""

    name: str
    """Short, for file names: ``figure-4``."""
    title: str
    statement: str
    """The paper's statement in one sentence."""
    judge: Callable[..., Verdict]
    """The verdict as a function of the figures."""
    measure: Callable[[Setting], Measured]

    def run(self, setting: Setting) -> Finding:
        """Measure, and judge what was measured: no experiment decides for itself."""
        figures, columns, rows, draw, numbers, size = self.measure(setting)
        return Finding(*self.judge(*figures), Table.of(columns, rows), draw, numbers, size)


def experiment(
    title: str, judge: Callable[..., Verdict]
) -> Callable[[Callable[[Setting], Measured]], Experiment]:
    """Declare a function to be an experiment: its docstring is the statement, its name the name."""

    def declare(measure: Callable[[Setting], Measured]) -> Experiment:
        statement = " ".join((measure.__doc__ or "").split())
        return Experiment(measure.__name__.replace("_", "-"), title, statement, judge, measure)

    return declare


@dataclass(frozen=True)
class Paper:
    """A paper and the experiments that are made again."""

    name: str
    title: str
    reference: str
    experiments: tuple[Experiment, ...]

    def chosen(self, only: Sequence[str]) -> tuple[Experiment, ...]:
        """The experiments with the given names, all for none; an unknown name lists those that exist."""
        by_name = {experiment.name: experiment for experiment in self.experiments}
        for name in only:
            if name not in by_name:
                raise InvalidInput(f"experiment ({name}) must be one of {', '.join(by_name)}")
        return tuple(by_name[name] for name in dict.fromkeys(only)) if only else self.experiments


@dataclass(frozen=True)
class Outcome:
    """An experiment with what it found, or the reason it was not run."""

    experiment: Experiment
    finding: Finding | None
    seconds: float
    not_run: str | None = None
    picture: str | None = None
    table: str | None = None

    @classmethod
    def of(cls, experiment: Experiment, setting: Setting, folder: Path) -> Outcome:
        """Run it, and leave its table and its picture in a folder."""
        setting.progress(None, experiment.title)
        began = time.perf_counter()
        try:
            finding = experiment.run(setting)
        except MissingData as missing:
            return cls(experiment, None, time.perf_counter() - began, not_run=str(missing))
        seconds = time.perf_counter() - began
        table, picture = folder / f"{experiment.name}.csv", folder / f"{experiment.name}.png"
        write_table(finding.table, table)
        if finding.draw is not None:
            write_figure(finding, picture)
        image = None if finding.draw is None else str(picture)
        return cls(experiment, finding, seconds, picture=image, table=str(table))

    @property
    def verdict(self) -> str:
        """In a word or two."""
        return self.finding.agreement.value if self.finding else "not run"

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "statement": self.experiment.statement,
            "verdict": self.verdict,
            "conclusion": self.finding.conclusion if self.finding else self.not_run,
            "numbers": dict(self.finding.numbers) if self.finding else {},
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


# --- Findings on paper: a PNG, a CSV table, and one Markdown page for each paper


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


def style() -> AbstractContextManager[None]:
    """The one look of all figures."""
    import matplotlib as mpl
    from cycler import cycler

    settings: Any = {**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
    return mpl.rc_context(settings)


def curves(
    panels: Mapping[str, Sequence[Curve]],
    x_label: str,
    y_label: str | Sequence[str],
    *,
    titled: bool = True,
    sharey: bool = False,
    **scales: Literal["linear", "log"],
) -> Draw:
    """Draws curves side by side, one panel for each title; panels may have a ``y_label`` each.

    ``scales`` are ``x_scale`` and ``y_scale``, linear unless given.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(panels), squeeze=False, sharey=sharey)[0]
        labels = [y_label] * len(panels) if isinstance(y_label, str) else y_label
        for part, label, (name, curves) in zip(axes, labels, panels.items(), strict=True):
            title = name if titled else ""
            draw_curves(part, curves, x_label=x_label, y_label=label, title=title, **scales)

    return draw


def write_figure(finding: Finding, path: Path) -> None:
    """Paint the finding on an empty figure and save it, without a window."""
    with style(), picture(str(path), *finding.figure_size) as figure:
        if finding.draw is not None:
            finding.draw(figure)


def write_table(table: Table, path: Path) -> None:
    """The table as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(["" if value is None else value for value in row] for row in table.rows)


def write_page(report: Report, folder: Path) -> None:
    """``index.md``: every experiment with the paper's statement, our verdict, figure and table."""
    kind = "Quick run: fewer settings and repetitions than in the paper.\n" if report.quick else ""
    overview = ["| experiment | ours |", "|---|---|"]
    for outcome in report.outcomes:
        link = f"[{outcome.experiment.title}](#{outcome.experiment.name})"
        overview.append(f"| {link} | {outcome.verdict} |")
    head = f"# {report.paper.title}\n\n{report.paper.reference}\n"
    parts = [head, kind, *overview, *map(_section, report.outcomes)]
    text = "\n".join(part for part in parts if part) + "\n"
    (folder / "index.md").write_text(text, encoding="utf-8")


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
    rows = [table.columns, ["---"] * len(table.columns)]
    rows += [[shown(value) for value in row] for row in table.rows[:_SHOWN_ROWS]]
    escaped = [[str(field).replace("|", "\\|") for field in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


def shown(value: Number) -> str:
    """A number as people read it: five digits, nothing for ``None``."""
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)
