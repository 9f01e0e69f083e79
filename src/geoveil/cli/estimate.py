"""``geoveil estimate``: from files of noisy reports back to the distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import click
import numpy as np

import geoveil as gv
from geoveil import arrays
from geoveil.channel.joint import JointTally
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar, in_words
from geoveil.cli.estimate_inputs import Inputs
from geoveil.document.saved import mechanism_to_dict
from geoveil.errors import InvalidInput, number_of
from geoveil.estimate import Estimator, Progress, Repair, Stop, Uncertainty, fitted
from geoveil.estimate.bayesian_update import SlotMaps
from geoveil.estimate.regions import RegionShares
from geoveil.plot import maps as maps_of
from geoveil.plot.pictures import report_map
from geoveil.space.outline import Outline, read_outlines
from geoveil.space.space import MATRIX_LIMIT
from geoveil.table import locations, results, writer
from geoveil.table.district_tables import put_zones
from geoveil.table.reader import format_of
from geoveil.table.reports import SlotColumn, rim_reports
from geoveil.verify.alarm import PoisoningAlarm, check_comparable

_RULES: dict[str, tuple[str, type]] = {
    "cross-validated": ("CrossValidated", int),
    "certified": ("CertifiedWithin", float),
    "change": ("LikelihoodChange", float),
    "steps": ("Steps", int),
}
_STOPS = "cross-validated[:FOLDS], certified[:TOLERANCE], change[:TOLERANCE] or steps:NUMBER"
_SHOWN = 5
_HARDLY_KNOWN = (
    "none of these is known not to be empty; several cells together are known better: ask for districts "
    "(--zones), or have reports drawn of larger cells (--cell-km) or with less noise (--epsilon-per-km, "
    "which is per kilometre)"
)
_ESTIMATING = 0.4
"""The part of the work before the error bars, roughly."""


class StopType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """A stopping rule by its name, with a number where it takes one."""

    name = "RULE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Stop:
        name, _, number = str(value).partition(":")
        try:
            kind, numeric = _RULES[name]
            rule: Callable[..., Stop] = getattr(gv, kind)
            return rule(numeric(number)) if number or name == "steps" else rule()
        except InvalidInput as problem:
            self.fail(str(problem), param, ctx)
        except (KeyError, ValueError):
            self.fail(f"must be {_STOPS}", param, ctx)


@dataclass(frozen=True)
class EstimatorChoice:
    """A method with its settings; ``None`` where the method's own default is meant."""

    method: str
    stop: Stop | None
    repair: Repair | None
    uncertainty: str

    def __post_init__(self) -> None:
        if self.method == "inversion" and self.stop is not None:
            raise click.UsageError("--stop is for --method ibu; matrix inversion takes no steps")
        if self.method == "ibu" and self.repair is not None:
            raise click.UsageError("--repair is for --method inversion; ibu needs none")
        if self.method == "inversion" and self.uncertainty in ("fisher", "bootstrap"):
            raise click.UsageError("--uncertainty of matrix inversion is automatic or none")

    def build(self, tallies: Sequence[gv.Tally], progress: Progress) -> Estimator:
        """The estimator for these tallies; people with different mechanisms need the general one."""
        if self.method == "inversion":
            inversion = gv.MatrixInversion(repair=self.repair or "project")
            several = len(fitted.by_mechanism(tallies)) > 1
            return gv.AverageMechanism(inversion) if several else inversion
        accelerate: gv.ActiveSetNewton | gv.Squarem | None = None
        if isinstance(self.stop, gv.CertifiedWithin):  # the maximum is wanted: the fastest way
            small = tallies[0].channel.space.size <= MATRIX_LIMIT
            accelerate = gv.ActiveSetNewton() if small else gv.Squarem()
        bars: dict[str, Uncertainty] = {
            "fisher": gv.FisherInformation(),
            "bootstrap": gv.Bootstrap(),
        }
        return gv.IterativeBayesianUpdate(
            stop=self.stop or gv.CrossValidated(),
            accelerate=accelerate,
            uncertainty=bars.get(self.uncertainty),
            progress=progress,
        )


@click.command()
@shared.inputs_argument
@shared.output_option("File of the estimate; - for a pipe.")
@shared.together(
    click.option("--method", type=click.Choice(["ibu", "inversion"]), default="ibu", show_default=True,
                 help="Maximum likelihood (iterative Bayesian update), or matrix inversion."),
    click.option("--stop", type=StopType(), help="When ibu stops: cross-validated (default), "
                 "certified[:1e-6], change[:1e-8], steps:N."),
    click.option("--repair", type=click.Choice(get_args(Repair)),
                 help="How an inversion becomes a distribution."),
    click.option("--uncertainty", type=click.Choice(["automatic", "fisher", "bootstrap", "none"]),
                 default="automatic", show_default=True,
                 help="How error bars are found; automatic fits the method and the number of cells."),
    name="choice", make=EstimatorChoice,
)  # fmt: skip
@shared.level_option("cell")
@shared.mechanism_file_option
@click.option(
    "--by", metavar="SLOT", help="One map for each slot: hour, weekday-hour, or a column of IN.",
)  # fmt: skip
@click.option(
    "--time", metavar="COLUMN", help="Column of times for --by hour; else found by its name."
)
@click.option(
    "--zone", metavar="ZONE", help="Time zone of the hours, such as Europe/Paris; else as written."
)
@click.option(
    "--minimum-reports", type=click.IntRange(min=1), default=1, show_default=True,
    help="With --by: slots with fewer get no map.",
)  # fmt: skip
@click.option(
    "--joint", metavar="COLUMN",
    help="Reports with the same entry of COLUMN are several of one person about one place.",
)  # fmt: skip
@shared.alarm_option("reports")
@shared.zone_options("Districts in GeoJSON: OUT has a row for each instead of each cell.")
@shared.plot_option("Draw the estimate as a map")
@shared.space_options
@shared.location_options
@shared.machine_options
def command(
    sources: tuple[str, ...], output: str, choice: EstimatorChoice, level: float, mechanism: str | None,
    by: str | None, time: str | None, zone: str | None, minimum_reports: int, joint: str | None,
    alarm: bool, zones: str | None, zone_name: str, plot: str | None, area: shared.Area,
    reading: locations.Reading, machine: bool,
) -> None:  # fmt: skip
    """Estimate how people are distributed from their noisy reports.

    IN are files of reports (CSV, Parquet, GeoJSON) or tallies (.json); several files may come from
    people with different mechanisms on one map. OUT has one row for each cell: share, standard
    error and interval; as GeoJSON the cells are polygons. Reports of continuous-laplace have no cells of
    their own: they are counted in those of the other files, or of --box and --cell-km, and people
    are taken to stand anywhere in their cells.

    \b
    geoveil estimate noisy.parquet -o estimate.geojson --plot map.png
    geoveil estimate monday.json tuesday.json -o estimate.csv --stop certified
    geoveil estimate noisy.csv --by hour --zone Europe/Paris -o hours.csv
    geoveil estimate monday.csv tuesday.csv --joint person -o estimate.csv
    geoveil estimate noisy.csv --zones districts.geojson -o districts.csv
    geoveil estimate noisy.csv --alarm -o estimate.csv
    """
    format_of(output, reading.format, writing=True)
    arrays.part("level", level)
    writer.check_target(output, *sources, mechanism, zones, area.within)
    shared.check_picture(plot, *sources, output)
    console = Console(machine=machine, output=output)
    if joint is not None and (by is not None or choice.method != "ibu"):
        raise click.UsageError("--joint must go with --method ibu and without --by")
    if alarm and (joint is not None or choice.method != "ibu" or choice.stop is not None):
        raise click.UsageError("--alarm must go with --method ibu, and without --stop and --joint")
    districts = None
    if zones is None:
        shared.refuse_given(["zone_name"], "must come with --zones")
    else:  # whose limits are then those of --within
        if choice.uncertainty == "none":
            raise click.UsageError("--zones must go with error bars; leave --uncertainty none out")
        districts = ZoneFile(zones, zone_name, area.within)
        area = shared.Area(area.box, area.cell_km)
    if by is not None:
        slots = SlotColumn(by, time, zone)
        _estimate_slots(
            sources, output, choice, level, mechanism, slots, minimum_reports, plot, area, reading,
            console, districts, alarm,
        )  # fmt: skip
        return
    if time is not None or zone is not None or minimum_reports > 1:
        raise click.UsageError("--time, --zone and --minimum-reports must come with --by")
    with console.progress("counting") as progress:
        inputs = Inputs(sources, mechanism, area, reading, console, progress)
        tallies = inputs.tallies() if joint is None else inputs.by_person(joint)
        part = "cell" if districts is None else "district"
        estimate, result = _estimated(choice, level, tallies, progress, part, alarm)
        progress.stage("writing")
        shares = None
        if districts is None:
            results.write_result(output, result, format=reading.format)
        else:
            shares = districts.shares(estimate)
            about = result.description or {}
            content = districts.outlines, {"": shares}, level, about
            writer.write_by(put_zones, output, *content, format=reading.format)
        if plot is not None:
            maps_of.write_figure(plot, report_map(estimate, result, level))
    of = number_of(estimate.total, *(("report",) if joint is None else ("person", "people")))
    _tell(console, estimate, result, shares, level, {"output": output, "picture": plot, "of": of})


def _tell(
    console: Console, estimate: gv.Estimate, result: results.Result, districts: RegionShares | None,
    level: float, about: dict[str, str | None],
) -> None:  # fmt: skip
    """The outcome, for people or for machines; ``about`` has the files and what was counted."""
    why = estimate.identifiable.reason.removeprefix("identifiable: ")
    untested = why.startswith("not tested")
    if not estimate.identifiable and not untested:
        console.warn(estimate.identifiable.reason)
    description = result.description or {}
    values = {"output": about["output"], "cells": result.space.size, **description}
    parts = number_of(result.space.size, "cell")
    if districts is not None:
        values |= {"zones": len(districts), "zones_summary": districts.summary()}
        parts = f"{number_of(len(districts), 'district')} over {parts}"
    reports, beside, total = description.get("reports_beside_the_map"), "", estimate.total
    if reports is not None:  # some may name no cell, but a place beside the map
        share = f"({100 * reports / max(total, 1):.3g} %) {'names' if reports == 1 else 'name'}"
        beside = f"{reports:,} of {number_of(total, 'report')} {share} no cell of it"
    alarm = console.alarm_of(description)
    most = f"at most {estimate.certificate:.3g} nats per report below the maximum of the likelihood"
    none = "none: the estimate excludes a report that was seen"
    console.result(
        values,
        {
            "estimate": f"{parts} from {about['of']}, in {in_words(about['output'] or '')}",
            "districts": "" if districts is None else districts.summary(),
            "stopped": estimate.stopped,
            "beside the map": beside,
            "certificate": most if math.isfinite(estimate.certificate) else none,
            "error bars": str(description["error_bars"]),
            # where it is not, a warning has said so
            "identifiable": why if estimate.identifiable else "",
            "left out": f"identifiability: {why}" if untested else "",
            "fakes": alarm,
            **_fullest(result, districts, level),
            "picture": about["picture"],
        },
    )


def _fullest(
    result: results.Result, districts: RegionShares | None, level: float
) -> dict[str, str]:
    """The cells, or districts, with most people, each with its interval where there is one."""
    names: Sequence[object] = range(result.space.size)
    if districts is None:
        shares, low, high = result.share, result.low, result.high
    else:
        shares, names, (low, high) = districts.share, districts.names, districts.interval(level)
    words = []
    fullest = np.argsort(-shares, kind="stable")[:_SHOWN].tolist()
    for at in fullest:
        bars = "" if low is None or high is None else f" ({100 * low[at]:.2f}–{100 * high[at]:.2f})"
        words.append(f"{names[at]}: {100 * shares[at]:.2f} %{bars}")
    rows = {f"fullest {'cells' if districts is None else 'districts'}": ", ".join(words)}
    if districts is None and low is not None and not low[fullest].any():
        rows["single cells"] = _HARDLY_KNOWN
    return rows


def _estimate_slots(
    sources: tuple[str, ...], output: str, choice: EstimatorChoice, level: float, mechanism: str | None,
    slots: SlotColumn, minimum: int, plot: str | None, area: shared.Area, reading: locations.Reading,
    console: Console, districts: ZoneFile | None, alarm: bool,
) -> None:  # fmt: skip
    """One map for each slot, or the districts of each, in one file."""
    if choice.method != "ibu":
        raise click.UsageError("--by must go with --method ibu")
    with console.progress("counting") as progress:
        by_slot = Inputs(sources, mechanism, area, reading, console, progress).by_slot(slots)
        totals = {name: sum(tally.total for tally in tallies) for name, tallies in by_slot.items()}
        small = [name for name, total in totals.items() if total < minimum]
        enough = {name: tallies for name, tallies in by_slot.items() if name not in small}
        if not enough:
            raise InvalidInput(
                f"no slot has {number_of(minimum, 'report')}; lower --minimum-reports, or choose larger slots"
            )
        every = [tally for tallies in enough.values() for tally in tallies]
        if alarm:
            check_comparable(every)
        progress.stage("estimating")
        update = choice.build(every, lambda *_: None)
        assert isinstance(update, gv.IterativeBayesianUpdate)
        maps = update.fit_slots(enough)
        progress.stage("error bars")
        tables, bars_at = {}, level if choice.uncertainty != "none" else None
        for number, (name, estimate) in enumerate(maps.items()):
            tables[str(name)] = results.shares_and_bars(estimate, bars_at)
            progress.update((number + 1) / len(maps))
        description: dict[str, Any] = {
            "by": slots.by,
            "zone": slots.zone,
            "slots": {str(name): estimate.total for name, estimate in maps.items()},
            "slots_without_a_map": small,
            "minimum_reports": minimum,
            "started": maps.started,
            "steps": next(iter(maps.values())).steps,
            "interval_level": bars_at,
        }
        if alarm:
            progress.stage("looking for fakes")
            named = {str(name): tallies for name, tallies in enough.items()}
            found = PoisoningAlarm().check_slots(named, maps.pooled)
            description["alarm"] = {**found.to_dict(), "slots": list(found.groups)}
        progress.stage("writing")
        said = ""
        if districts is None:
            rows = tables, description
            writer.write_by(results.put_by_slot, output, *rows, format=reading.format)
        else:
            shares = {str(name): districts.shares(estimate) for name, estimate in maps.items()}
            said = districts.shares(maps.pooled).summary()
            content = districts.outlines, shares, level, description
            writer.write_by(put_zones, output, *content, format=reading.format)
        if plot is not None:
            panels = [maps_of.Panel(name, result.share) for name, result in tables.items()]
            maps_of.save_maps(plot, maps.pooled.space, panels)
    _tell_slots(console, maps, {**description, "output": output}, said, plot)


def _tell_slots(
    console: Console, maps: SlotMaps, about: dict[str, Any], districts: str, plot: str | None
) -> None:
    """The outcome for people or for machines; ``about`` is what the file says, and its name."""
    small, minimum = about["slots_without_a_map"], about["minimum_reports"]
    have = number_of(len(small), "slot has", "slots have")
    few = f"{have} fewer than {number_of(minimum, 'report')} and no map" if small else ""
    reports = number_of(maps.pooled.total, "report")
    console.result(
        {"output": about["output"], "cells": maps.pooled.space.size, **about},
        {
            "maps": f"{number_of(len(maps), 'slot')} from {reports}, in {in_words(about['output'])}",
            "districts": districts and f"over all slots, {districts}",
            "begun at": maps.started,
            "left out": few,
            "fakes": console.alarm_of(about),
            "picture": plot,
        },
    )


@dataclass(frozen=True)
class ZoneFile:
    """A file of districts, what they are called, and the city limits that nobody is outside of."""

    file: str
    name: str
    within: str | None

    @cached_property
    def outlines(self) -> list[Outline]:
        """The districts of the file."""
        return read_outlines(self.file, name=self.name)

    def shares(self, estimate: gv.Estimate) -> RegionShares:
        """What an estimate says about each."""
        return estimate.regions(self.file, name=self.name, within=self.within)


def _estimated(
    choice: EstimatorChoice, level: float, tallies: Sequence[gv.Tally], progress: ProgressBar, part: str,
    alarm: bool,
) -> tuple[gv.Estimate, results.Result]:  # fmt: skip
    """The estimate, and all that a file says of it."""
    if alarm:
        check_comparable(tallies)
    with_bars = choice.uncertainty != "none"
    first, share = 0.0, _ESTIMATING if with_bars else 1.0

    def advance(step: int, of: int) -> None:
        progress.update(first + share * step / of)

    progress.stage("estimating")
    estimate = choice.build(tallies, advance).fit(tallies)
    if with_bars:
        first, share = share, 1.0 - share
        progress.update(first, "error bars")
    made_by = dict.fromkeys(
        channel
        for tally in tallies
        for channel in (
            tally.channel.channels if isinstance(tally, JointTally) else (tally.channel,)
        )
    )
    more: dict[str, Any] = {
        "method": choice.method,
        "mechanisms": [mechanism_to_dict(channel) for channel in made_by],
    }
    several = [tally for tally in tallies if isinstance(tally, JointTally)]
    if several:  # reports stands for people
        more["people_with_several_reports"] = sum(tally.total for tally in several)
    beyond = [None if several else rim_reports(tally.channel) for tally in tallies]
    if any(beyond):
        beside = sum(int(tally.counts[tally.space.size :].sum()) for tally in tallies)
        more["reports_beside_the_map"] = beside
    result = results.estimate_result(estimate, level=level, with_bars=with_bars, part=part, **more)
    if None not in beyond:  # all reports are places: cells of the map, or beside it
        named = np.sum([tally.counts[: tally.space.size] for tally in tallies], axis=0)
        result = replace(result, reports=named)
    if alarm:
        progress.stage("looking for fakes")
        found = PoisoningAlarm().check(tallies, estimate).to_dict()
        result = replace(result, description={**(result.description or {}), "alarm": found})
    return estimate, result
