"""``geoveil release``: a table of counts in, a table that may be published out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from geoveil.arrays import IntArray
from geoveil.cli.console import Console, ProgressBar, two_columns
from geoveil.cli.leakage import Published
from geoveil.cli.options import machine_options, one_mark
from geoveil.errors import InvalidInput
from geoveil.plot.maps import picture_kind
from geoveil.plot.release import save_leakage_curve
from geoveil.randomness import SYSTEM, seeded
from geoveil.release import (
    CountRelease,
    CurvePoint,
    GeometricCounting,
    MergedPlaces,
    SimpleCounting,
    leakage_curve,
)
from geoveil.release.counts import checked_counts
from geoveil.table.counts import (
    CountTable,
    PriorTable,
    read_counts,
    read_history,
    read_prior,
    write_counts,
)
from geoveil.table.format import PIPE, Format, format_of
from geoveil.table.writer import binary_sink, check_target

TARGETS = ("multiplier", "distortion", "leakage_bits")
_CURVE = tuple(2.0 ** (step / 2) for step in range(-4, 5))
"""The multipliers of the curve, as multiples of the one of the release."""


@dataclass(frozen=True)
class Request:
    """Everything that was asked for."""

    source: str
    output: str | None
    prior: str | None
    history: str | None
    multiplier: float | None
    distortion: float | None
    leakage_bits: float | None
    merge: tuple[str, ...]
    personal: str | None
    plot: str | None
    seed: int | None
    format: str | None
    delimiter: str

    @property
    def targets(self) -> list[str]:
        """Everything that is written to."""
        return [name for name in (self.output, self.personal, self.plot) if name is not None]

    def check(self) -> None:
        """Refuse what cannot be, before anything is read."""
        if (self.prior is None) == (self.history is None):
            raise click.UsageError("--prior or --history must be given, one of them")
        if sum(getattr(self, name) is not None for name in TARGETS) != 1:
            flags = ", ".join("--" + name.replace("_", "-") for name in TARGETS)
            raise click.UsageError(f"exactly one of {flags} must be given")
        sources = [self.source, self.prior or self.history or ""]
        if sources.count(PIPE) > 1:
            raise click.UsageError("only one of the tables can come from a pipe")
        if self.targets.count(PIPE) > 1:
            raise click.UsageError("only one output can go to a pipe; name a file for the others")
        for number, target in enumerate(self.targets):
            check_target(target, *sources, *self.targets[:number])
        for table in (*sources, self.output, self.personal):
            if table is not None and format_of(table, self.format) is Format.GEOJSON:
                raise InvalidInput(
                    f"table of counts ({table}) must end in .csv, .csv.gz or .parquet"
                )
        if self.plot is not None:
            picture_kind(self.plot)

    def read(self) -> tuple[CountTable, PriorTable]:
        """The counts and the priors, on merged places where these are asked for."""
        kind, mark = self.format, self.delimiter
        table = read_counts(self.source, format=kind, delimiter=mark)
        if self.history is not None:
            known = read_history(self.history, table, format=kind, delimiter=mark)
        else:
            known = read_prior(str(self.prior), table, format=kind, delimiter=mark)
        return _merged(table, known, self.merge) if self.merge else (table, known)


@click.command()
@click.argument("source", metavar="COUNTS")
@click.option(
    "-o", "--output", metavar="OUT",
    help="Where the released counts go; standard output unless given, with --json into its document.",
)  # fmt: skip
@click.option(
    "--prior", metavar="FILE", help="Where people are likely to be, by place or by person."
)
@click.option("--history", metavar="FILE", help="Past counts, or past visits of people, instead.")
@click.option(
    "--multiplier", type=float, help="λ: how much an error of one person weighs, in nats."
)
@click.option(
    "--distortion", type=float, help="Wanted mean error in people, all timestamps together."
)
@click.option("--leakage-bits", type=float, help="Limit on what leaks about the counts, in bits.")
@click.option(
    "--merge", multiple=True, metavar="NAME=A,B", help="Merge places into one; repeatable."
)
@click.option("--personal", metavar="FILE", help="Write what leaks about each person.")
@click.option("--plot", metavar="FILE", help="Draw leakage against distortion (.png, .svg, .pdf).")
@click.option("--seed", type=click.IntRange(min=0),
              help="For simulations only: noise that can be repeated.")  # fmt: skip
@click.option(
    "--format", type=click.Choice(["csv", "parquet"]), help="Format of a pipe; csv unless given."
)
@click.option("--delimiter", default=",", show_default=True, callback=one_mark,
              help="Mark between the fields of CSV; tab for tabulators.")  # fmt: skip
@machine_options
def command(machine: bool, **options: Any) -> None:
    """Release counts of people at places so that the least leaks for their accuracy.

    COUNTS has a row for each place, its name first, then a column for each timestamp; every column
    sums to the number of people. What comes out has the same shape, and every column the same sum.
    Each run is a release: releases of the same counts add up.

    \b
    geoveil release counts.csv --prior prior.csv --multiplier 1 -o released.csv
    geoveil release counts.csv --history past.csv --leakage-bits 2 --plot curve.png
    """
    if options["output"] is None and not machine:
        options["output"] = PIPE
    request = Request(**options)
    request.check()
    console = Console(machine=machine, data_on_stdout=PIPE in request.targets)
    if request.seed is not None:
        console.warn("seeded noise is for simulations: whoever knows the seed can undo it")
    with console.progress("reading") as progress:
        published = _published(request, progress)
    written = {"output": request.output, "personal": request.personal, "plot": request.plot}
    values = {**written, "seed": request.seed, **published.to_dict()}
    shown = two_columns(published.lines(written))
    for caution in published.cautions(request.leakage_bits):
        console.warn(caution)
    _write(request, published)
    console.result(values, lambda screen: screen.print(shown))


def _write(request: Request, published: Published) -> None:
    """The counts last: what fails before is no release."""
    if request.personal is not None:
        published.write_personal(request.personal, request.format)
    if request.plot is not None:
        with binary_sink(request.plot) as sink:
            save_leakage_curve(sink, picture_kind(request.plot), published.curve, published.chosen)
    if request.output is not None:
        write_counts(request.output, published.table, published.released, format=request.format)


def _published(request: Request, progress: ProgressBar) -> Published:
    """Everything in memory, so that nothing is written unless all went well."""
    table, known = request.read()
    counts = _checked(table)
    _check_people(known, int(counts[0].sum()), str(request.prior or request.history))
    release = _designed(request, table, known, counts, progress)
    progress.stage("what leaks about whom")
    release.chain  # noqa: B018 (the personal leakages are found here, under the progress bar)
    curve = _curve(request, known, release, progress)
    given = counts[0] if release.timestamps == 1 else counts
    randomness = SYSTEM if request.seed is None else seeded(request.seed)
    released = np.atleast_2d(release.sample(given, randomness=randomness))
    return Published(table, counts, known.people, release, released, curve)


def _merged(
    table: CountTable, known: PriorTable, merge: tuple[str, ...]
) -> tuple[CountTable, PriorTable]:
    named = dict(_merging(text, table.places) for text in merge)
    taken = [place for group in named.values() for place in group]
    alone = [place for place in table.places if place not in taken]
    if len(set(taken)) != len(taken) or set(alone) & set(named) or len(named) != len(merge):
        raise click.UsageError("--merge must put each place in one group, under a name of its own")
    named |= {place: [place] for place in alone}
    numbers = [tuple(table.places.index(place) for place in group) for group in named.values()]
    merged = MergedPlaces(tuple(numbers))
    prior = PriorTable(merged.prior(known.prior), known.people)
    return table.merged(list(named), merged.groups), prior


def _merging(text: str, places: tuple[str, ...]) -> tuple[str, list[str]]:
    """The name and the places of NAME=A,B."""
    name, _, listed = text.partition("=")
    group = [part.strip() for part in listed.split(",") if part.strip()]
    if not name.strip() or len(group) < 2 or not set(group) <= set(places):
        known = ", ".join(places[:20])
        raise click.UsageError(
            f"--merge ({text}) must be NAME=PLACE,PLACE, with places of: {known}"
        )
    return name.strip(), group


def _checked(table: CountTable) -> IntArray:
    people = round(float(table.counts[0].sum()))
    if people < 1:
        raise InvalidInput("counts must hold at least one person")
    return checked_counts(table.counts, people, len(table.places))


def _check_people(known: PriorTable, people: int, path: str) -> None:
    """Refuse a file by person that does not have each of the people once."""
    names = known.people
    told = len(names) or (known.prior.shape[0] if known.prior.ndim == 2 else people)
    if told != people:
        raise InvalidInput(f"people in {path} ({told}) must be {people}, one per person counted")
    if len(set(names)) != len(names):
        raise InvalidInput(f"people in {path} must have different names; two of them have the same")


def _designed(
    request: Request, table: CountTable, known: PriorTable, counts: IntArray, progress: ProgressBar
) -> CountRelease:
    progress.stage("designing the release")
    return CountRelease(
        people=int(counts[0].sum()),
        prior=known.prior,
        timestamps=len(table.timestamps),
        progress=lambda done, total: progress.update(done / total),
        **{name: getattr(request, name) for name in TARGETS},
    )


def _curve(
    request: Request, known: PriorTable, release: CountRelease, progress: ProgressBar
) -> list[CurvePoint]:
    if request.plot is None:
        return []
    progress.stage("drawing the curve")
    return leakage_curve(
        lambda rate: CountRelease(
            people=release.people,
            prior=known.prior,
            multiplier=rate,
            timestamps=release.timestamps,
        ),
        [release.multiplier * share for share in _CURVE],
        (SimpleCounting, GeometricCounting),
        progress=lambda done, total: progress.update(done / total),
    )
