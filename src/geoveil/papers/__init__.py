"""One module for each paper: its tables and figures made again, ours beside theirs.

A paper's module holds ``PAPER``, a :class:`~geoveil.papers.report.Paper`; ``PAPERS`` finds it by name.
"""

from __future__ import annotations

from geoveil.papers.report import (
    PAPERS,
    Agreement,
    Claim,
    Experiment,
    Finding,
    Paper,
    Report,
    Setting,
    Table,
    Verdict,
    load_paper,
    run,
)

__all__ = [
    "PAPERS",
    "Agreement",
    "Claim",
    "Experiment",
    "Finding",
    "Paper",
    "Report",
    "Setting",
    "Table",
    "Verdict",
    "load_paper",
    "run",
]
