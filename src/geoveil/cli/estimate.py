"""``geoveil estimate``: from files of noisy reports back to the distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

import click
import numpy as np
from rich.console import Console as RichConsole

from geoveil.arrays import IntArray
from geoveil.channel.channel import Tally
from geoveil.cli.console import (
    Console,
    ProgressBar,
    json_number,
    location_options,
    machine_options,
    space_options,
    two_columns,
)
from geoveil.cli.observed import Inputs
from geoveil.document.saved import mechanism_to_dict
from geoveil.errors import InvalidInput
from geoveil.estimate import (
    ActiveSetNewton,
    Bootstrap,
    CertifiedWithin,
    CrossValidated,
    FisherInformation,
    IterativeBayesianUpdate,
    LikelihoodChange,
    Squarem,
    Steps,
)
from geoveil.estimate.bars import checked_level
from geoveil.estimate.estimate import Estimate
from geoveil.estimate.linear import MatrixInversion, Repair
from geoveil.estimate.mixture import AverageMechanism, Estimator, by_mechanism
from geoveil.estimate.stopping import Progress, Stop
from geoveil.estimate.uncertainty import Uncertainty
from geoveil.plot.maps import Panel, picture_kind, save_maps
from geoveil.space.space import MATRIX_LIMIT
from geoveil.table.reader import PIPE, format_of
from geoveil.table.results import Result, write_result
from geoveil.table.writer import binary_sink, check_target

METHODS = ("ibu", "inversion")
UNCERTAINTIES = ("automatic", "fisher", "bootstrap", "none")
REPAIRS = get_args(Repair)

_STOPS = "cross-validated[:FOLDS], certified[:TOLERANCE], change[:TOLERANCE] or steps:NUMBER"


class StopType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """A stopping rule by its name, with a number where it takes one."""

    name = "RULE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Stop:
        name, _, number = str(value).partition(":")
        if name not in _RULES:
            self.fail(f"must be {_STOPS}", param, ctx)
        try:
            return _RULES[name](number)
        except InvalidInput as problem:
            self.fail(str(problem), param, ctx)
        except ValueError:
            self.fail(f"must be {_STOPS}", param, ctx)


_RULES: dict[str, Callable[[str], Stop]] = {
    "cross-validated": lambda folds: CrossValidated(int(folds)) if folds else CrossValidated(),
    "certified": lambda number: CertifiedWithin(float(number)) if number else CertifiedWithin(),
    "change": lambda number: LikelihoodChange(float(number)) if number else LikelihoodChange(),
    "steps": lambda number: Steps(int(number)),
}


@dataclass(frozen=True)
class EstimatorChoice:
    """A method with its settings; ``None`` where the method's own default is meant."""

    method: str
    stop: Stop | None
    repair: Repair | None
    uncertainty: str

    def check(self) -> None:
        """Refuse settings that the method does not have."""
        if self.method == "inversion" and self.stop is not None:
            raise click.UsageError("--stop is for --method ibu; matrix inversion takes no steps")
        if self.method == "ibu" and self.repair is not None:
            raise click.UsageError("--repair is for --method inversion; ibu needs none")
        if self.method == "inversion" and self.uncertainty in ("fisher", "bootstrap"):
            raise click.UsageError("--uncertainty of matrix inversion is automatic or none")

    def build(self, tallies: Sequence[Tally], progress: Progress) -> Estimator:
        """The estimator for these tallies; people with different mechanisms need the general one."""
        if self.method == "inversion":
            inversion = MatrixInversion(repair=self.repair or "project")
            several = len(by_mechanism(tallies)) > 1
            return AverageMechanism(inversion) if several else inversion
        bars: dict[str, Uncertainty] = {"fisher": FisherInformation(), "bootstrap": Bootstrap()}
        return IterativeBayesianUpdate(
            stop=self.stop or CrossValidated(),
            accelerate=self._accelerator(tallies[0].channel.space.size),
            uncertainty=bars.get(self.uncertainty),
            progress=progress,
        )

    def _accelerator(self, cells: int) -> ActiveSetNewton | Squarem | None:
        """On the way to the maximum itself the fastest; elsewhere plain steps are meant."""
        if not isinstance(self.stop, CertifiedWithin):
            return None
        return ActiveSetNewton() if cells <= MATRIX_LIMIT else Squarem()


# --- ``geoveil estimate``: from files of noisy reports back to the distribution of people


_SHOWN_CELLS = 5
_ESTIMATING = 0.4
"""The part of the work before the error bars, roughly."""


@dataclass(frozen=True)
class Request:
    """Everything that was asked for."""

    inputs: Inputs
    choice: EstimatorChoice
    output: str
    level: float
    plot: str | None

    def check(self) -> None:
        """Refuse what cannot be, before anything is read."""
        format_of(self.output, self.inputs.format)
        checked_level(self.level)
        self.choice.check()
        check_target(self.output, *self.inputs.sources)
        if self.plot is not None:
            picture_kind(self.plot)
            check_target(self.plot, *self.inputs.sources, self.output)


@click.command()
@click.argument("sources", metavar="IN...", nargs=-1, required=True)
@click.option(
    "-o", "--output", required=True, metavar="OUT", help="File of the estimate; - for a pipe."
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="ibu",
    show_default=True,
    help="Maximum likelihood (iterative Bayesian update), or matrix inversion.",
)
@click.option(
    "--stop",
    type=StopType(),
    help="When ibu stops: cross-validated (default), certified[:1e-6], change[:1e-8], steps:N.",
)
@click.option(
    "--repair", type=click.Choice(REPAIRS), help="How an inversion becomes a distribution."
)
@click.option(
    "--uncertainty",
    type=click.Choice(UNCERTAINTIES),
    default="automatic",
    show_default=True,
    help="How error bars are found; automatic fits the method and the number of cells.",
)
@click.option(
    "--level", type=float, default=0.95, show_default=True, help="Of the interval of each cell."
)
@click.option(
    "--mechanism",
    metavar="FILE",
    help="Document of the mechanism that made the reports, where IN does not carry it.",
)
@click.option("--plot", metavar="FILE", help="Draw the estimate as a map (.png, .svg, .pdf).")
@space_options
@location_options
@machine_options
def command(sources: tuple[str, ...], machine: bool, **options: Any) -> None:
    """Estimate how people are distributed from their noisy reports.

    IN are files of reports (CSV, Parquet, GeoJSON) or tallies (.json); several files may come from
    people with different mechanisms on one map. OUT has one row for each cell: share, standard
    error and interval; as GeoJSON the cells are polygons. Reports of continuous-laplace have no cells of
    their own: they are counted in those of the other files, or of --box and --cell-km, and people
    are taken to stand anywhere in their cells.

    \b
    geoveil estimate noisy.parquet -o estimate.geojson --plot map.png
    geoveil estimate monday.json tuesday.json -o estimate.csv --stop certified
    """
    request = _request(sources, options)
    request.check()
    console = Console(machine=machine, data_on_stdout=request.output == PIPE)
    with console.progress("counting") as progress:
        tallies = request.inputs.tallies(progress)
        estimate, result = _estimated(request, tallies, progress)
        write_result(request.output, result, format=request.inputs.format)
        if request.plot is not None:
            _draw(request.plot, result)
    if not estimate.identifiable and not _untested(estimate):
        console.warn(estimate.identifiable.reason)
    values = {"output": request.output, "cells": result.space.size, **(result.description or {})}
    console.result(values, lambda screen: _show(screen, request, estimate, result))


def _request(sources: tuple[str, ...], options: dict[str, Any]) -> Request:
    inputs = {each.name: options.pop(each.name) for each in fields(Inputs) if each.name in options}
    choice = {each.name: options.pop(each.name) for each in fields(EstimatorChoice)}
    return Request(Inputs(sources=sources, **inputs), EstimatorChoice(**choice), **options)


def _estimated(
    request: Request, tallies: Sequence[Tally], progress: ProgressBar
) -> tuple[Estimate, Result]:
    with_bars = request.choice.uncertainty != "none"
    first, share = 0.0, _ESTIMATING if with_bars else 1.0

    def advance(done: int, of: int) -> None:
        progress.update(first + share * done / of)

    progress.stage("estimating")
    estimate = request.choice.build(tallies, advance).fit(tallies)
    bars: dict[str, Any] = {}
    if with_bars:
        first, share = share, 1.0 - share
        progress.update(first, "error bars")
        low, high = estimate.interval(request.level)
        bars = {"standard_error": estimate.standard_error, "low": low, "high": high}
    progress.stage("writing")
    description = _description(request, estimate, tallies, with_bars=with_bars)
    reports = reported_cells(tallies)
    return estimate, Result(
        estimate.space, estimate.distribution, reports=reports, description=description, **bars
    )


def _description(
    request: Request, estimate: Estimate, tallies: Sequence[Tally], *, with_bars: bool
) -> dict[str, Any]:
    """How the estimate was found, for machines."""
    return {
        "method": request.choice.method,
        "reports": estimate.total,
        "steps": estimate.steps,
        "stopped": estimate.stopped,
        "certificate_nats_per_report": json_number(estimate.certificate),
        "log_likelihood_nats_per_report": json_number(estimate.log_likelihood),
        "identifiable": bool(estimate.identifiable),
        "identifiability": estimate.identifiable.reason,
        "interval_level": request.level if with_bars else None,
        "error_bars": _bars_words(estimate) if with_bars else "none: they were not asked for",
        "mechanisms": [mechanism_to_dict(tally.channel) for tally in tallies],
    }


def _bars_words(estimate: Estimate) -> str:
    """How the bars were found, and what an interval is drawn around."""
    return (
        f"{estimate.errors.method}; each interval is for one cell by itself, around the unbiased share, "
        "which may lie beside the share shown, and never narrower than in a poll without noise"
    )


def _untested(estimate: Estimate) -> bool:
    """Whether there are too many cells to say if the reports tell them apart."""
    return estimate.identifiable.reason.startswith("not tested")


def reported_cells(tallies: Sequence[Tally]) -> IntArray | None:
    """How often each cell was reported; ``None`` where some reports are not cells."""
    if any(tally.channel.report_count != tally.channel.space.size for tally in tallies):
        return None
    return np.sum([tally.counts for tally in tallies], axis=0, dtype=np.int64)


def _draw(path: str, result: Result) -> None:
    panels = [Panel("estimate", result.share)]
    if result.reports is not None:
        panels.insert(
            0, Panel("noisy reports, as they came", result.reports / result.reports.sum())
        )
    with binary_sink(path) as sink:
        save_maps(sink, picture_kind(path), result.space, panels)


def _show(screen: RichConsole, request: Request, estimate: Estimate, result: Result) -> None:
    where = "standard output" if request.output == PIPE else request.output
    missing = estimate.certificate
    lines = {
        "estimate": f"{result.space.size:,} cells from {estimate.total:,} reports, in {where}",
        "stopped": estimate.stopped,
        "certificate": f"at most {missing:.3g} nats per report below the maximum of the likelihood",
        "error bars": str((result.description or {})["error_bars"]),
        # where it is not, a warning has said so
        "identifiable": estimate.identifiable.reason if estimate.identifiable else "",
        "left out": f"identifiability: {estimate.identifiable.reason}"
        if _untested(estimate)
        else "",
        "fullest cells": ", ".join(_cell_words(result, cell) for cell in _fullest(result)),
        "picture": request.plot or "",
    }
    if not math.isfinite(missing):
        lines["certificate"] = "none: the estimate excludes a report that was seen"
    screen.print(two_columns({name: text for name, text in lines.items() if text}))


def _fullest(result: Result) -> list[int]:
    order = np.argsort(-result.share, kind="stable")[:_SHOWN_CELLS]
    return [int(cell) for cell in order]


def _cell_words(result: Result, cell: int) -> str:
    words = f"{cell}: {100 * result.share[cell]:.2f} %"
    if result.low is None or result.high is None:
        return words
    return f"{words} ({100 * result.low[cell]:.2f}–{100 * result.high[cell]:.2f})"
