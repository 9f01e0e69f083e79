"""What an experiment is and what it found: a figure, a table, a statement and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from geoveil.errors import InvalidInput
from geoveil.papers.data import DataFolder

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
