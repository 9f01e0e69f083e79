"""Findings on paper: a PNG, a CSV table, and one Markdown page for each paper."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geoveil.papers.report import Finding, Number, Outcome, Report, Table

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
