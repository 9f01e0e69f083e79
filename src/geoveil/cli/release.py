"""``geoveil release``: counts that a trusted holder has, with the least leakage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
import numpy as np
from scipy.special import entr

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.words import rounded_up
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar, in_words
from geoveil.errors import InvalidInput, TooLarge, number_of
from geoveil.files import PIPE
from geoveil.measure import mean_distance_km
from geoveil.plot import curves
from geoveil.release import GeometricCounting, MergedPlaces, SimpleCounting
from geoveil.release.comparator import CurvePoint, comparator_leakage
from geoveil.release.counts import MOST_PEOPLE, checked_counts
from geoveil.table import count_table, writer
from geoveil.table.reader import Format, format_of

_SHOWN = 5
_UNLIKELY = 1e-6
"""Counts are all but impossible where no likelier ones have less probability together."""

_TABLES = (Format.CSV, Format.PARQUET)

TARGETS = ("multiplier", "distortion", "leakage_bits")
_CURVE = tuple(2.0 ** (step / 2) for step in range(-4, 5))
"""The multipliers of the curve, as multiples of the one of the release."""


@dataclass(frozen=True)
class Published:
    """A release that was drawn: the table it stands for, what comes out, and the curve behind it."""

    table: count_table.CountTable
    counts: IntArray
    """(timestamps, places): the true ones."""
    named: tuple[str, ...]
    """The names of the people where a file has them."""
    release: gv.CountRelease
    released: IntArray
    curve: Sequence[CurvePoint]

    @property
    def names(self) -> list[str]:
        """The people by name, or by number from 1."""
        return list(self.named) or [str(number + 1) for number in range(self.release.people)]

    @property
    def unchanged_bits(self) -> float:
        """What unchanged counts would tell, in bits."""
        return sum(design.law.entropy_bits for design in self.release.designs)

    @property
    def unknown_bits(self) -> FloatArray:
        """What is unknown about each person before the release, over all timestamps, in bits."""
        priors = [design.law.prior for design in self.release.designs]
        nats = np.sum([entr(prior.rows).sum(axis=1)[prior.kind] for prior in priors], axis=0)
        return np.asarray(nats / np.log(2))

    def cautions(self, wanted_bits: float | None) -> Iterator[str]:
        """What the figures do not say: counts they do not describe, a limit that limits nothing."""
        rows = zip(self.table.timestamps, self.release.designs, self.counts, strict=True)
        unlikely = [when for when, design, row in rows if design.law.surprise(row) < _UNLIKELY]
        if unlikely:
            more = f" and {len(unlikely) - _SHOWN} more" if len(unlikely) > _SHOWN else ""
            yield (
                f"the counts at {', '.join(unlikely[:_SHOWN])}{more} are all but impossible under the "
                "prior: leakage and distortion are averages that do not describe them, only the worst "
                "case does; check the prior"
            )
        if wanted_bits is not None and wanted_bits >= self.unchanged_bits > 0:
            yield (
                f"the limit ({wanted_bits:.4g} bits) is not below the {self.unchanged_bits:.4g} bits that "
                "unchanged counts would tell: the counts are released practically unchanged; lower it"
            )

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        release, table = self.release, self.table
        personal = release.personal_leakage_bits.tolist()
        return {
            "people": release.people,
            "places": list(table.places),
            "timestamps": list(table.timestamps),
            "multiplier": release.multiplier,
            "leakage_bits": release.leakage_bits,
            "least_leakage_bits": release.least_leakage_bits,
            "unchanged_bits": self.unchanged_bits,
            "certificate_nats": release.certificate_nats,
            "distortion": release.distortion,
            "epsilon": release.epsilon,
            "chain_holds": release.chain.holds,
            "personal_leakage_bits": dict(zip(self.names, personal, strict=True)),
            "released": dict(zip(table.timestamps, self.released.tolist(), strict=True)),
            "curve": [asdict(point) for point in self.curve],
        }

    def lines(self, written: Mapping[str, str | None]) -> dict[str, str | None]:
        """For people: what there is to say, by its name."""
        release = self.release
        people = number_of(release.people, "person", "people")
        return {
            "released": _released(people, self.table, written["output"]),
            "leakage": (
                f"{release.leakage_bits:.4g} of the {self.unchanged_bits:.4g} bits that unchanged "
                f"counts would tell; no release this accurate can tell less than "
                f"{release.least_leakage_bits:.4g}"
            ),
            "distortion": f"{release.distortion:.4g} people on average, λ = {release.multiplier:.6g}",
            "about one person": self._exposed(),
            "worst case": (
                "whatever is known before, one person elsewhere changes the probability of a "
                f"release by at most e^{rounded_up(release.epsilon, 3)}"
            ),
            "personal": written["personal"],
            "curve": written["plot"],
        }

    def _exposed(self) -> str:
        """The people who are told most about, beside what is unknown about them."""
        personal, unknown = self.release.personal_leakage_bits, self.unknown_bits
        if np.ptp(personal) < 1e-12:
            return f"{personal[0]:.3g} bits about each, of {unknown[0]:.3g} unknown before"
        order = np.argsort(-personal, kind="stable")[:_SHOWN].tolist()
        most = ", ".join(f"{self.names[m]} {personal[m]:.3g} of {unknown[m]:.3g}" for m in order)
        return f"at most {personal.max():.3g} bits, mean {personal.mean():.3g}; most: {most}"


def _released(people: str, table: count_table.CountTable, output: str | None) -> str:
    """So many people, over what and when, and where the counts of them went."""
    moments = len(table.timestamps)
    at = f" at {moments} timestamps" if moments > 1 else ""
    return f"{people} over {number_of(len(table.places), 'place')}{at}, in {in_words(output)}"


# --- ``--epsilon``: geometric noise on every count, for tables of any size


@dataclass(frozen=True)
class Beside:
    """The release that leaks least at the same worst case, and geometric noise under the same prior.

    Numbers are ``None`` where they are out of reach, and ``problem`` says why.
    """

    least_bits: float | None = None
    least_distortion: float | None = None
    geometric_bits: float | None = None
    geometric_distortion: float | None = None
    problem: str = ""

    def sentence(self) -> str:
        """Both beside each other, in words."""
        if self.least_bits is None or self.least_distortion is None:
            return f"the release that leaks least is out of reach: {self.problem}"
        said = (
            "at the same worst case the release that leaks least (--multiplier) tells "
            f"{self.least_bits:.4g} bits and is {self.least_distortion:.4g} people off on average"
        )
        if self.geometric_bits is None or self.geometric_distortion is None:
            return f"{said}; what this one tells on average is out of reach"
        off = f"{self.geometric_distortion:.4g} off"
        return f"{said}; this one tells {self.geometric_bits:.4g} bits and is {off}"


@dataclass(frozen=True)
class NoisyTable:
    """A table with geometric noise that was drawn, and all there is to say about it."""

    table: count_table.CountTable
    release: gv.GeometricRelease
    released: IntArray
    beside: Beside | None

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        table, release = self.table, self.release
        return {
            "people": dict(zip(table.timestamps, self.released.sum(axis=1).tolist(), strict=True)),
            "places": list(table.places),
            "timestamps": list(table.timestamps),
            "epsilon": release.epsilon,
            "mean_noise": release.mean_noise,
            "beside": None if self.beside is None else vars(self.beside),
            "released": dict(zip(table.timestamps, self.released.tolist(), strict=True)),
        }

    def lines(self, output: str | None) -> dict[str, str | None]:
        """For people."""
        sums = self.released.sum(axis=1)  # people at each timestamp
        few, most = int(sums.min()), int(sums.max())
        people = ("" if few == most else f"{few:,} to ") + number_of(most, "person", "people")
        return {
            "released": _released(people, self.table, output),
            "noise": f"moves each count by {self.release.mean_noise:.3g} people on average, before the "
            "counts are made to sum up again",
            "worst case": self.release.sentence(),
            "not hidden": "how many people there are at each timestamp, and whether somebody is among them",
            "least leakage": None if self.beside is None else self.beside.sentence(),
        }


def _least_leakage(
    release: gv.GeometricRelease, table: count_table.CountTable, prior: FloatArray
) -> Beside:
    """What the least leakage and geometric noise come to under a prior, at the same worst case."""
    sums = table.counts.sum(axis=1)
    if np.ptp(sums) > 0:
        return Beside(problem="it needs the same number of people at every timestamp")
    moments = release.timestamps
    try:
        least = gv.CountRelease(
            people=round(float(sums[0])),
            prior=prior,
            timestamps=moments,
            multiplier=release.epsilon / (2 * math.sqrt(2) * moments),
        )
    except (TooLarge, InvalidInput) as problem:
        return Beside(problem=str(problem))
    try:
        bits = off = 0.0
        for design in least.designs:
            law = design.law
            channel = GeometricCounting(law.vectors, epsilon=release.epsilon / (2 * moments))
            bits += comparator_leakage(channel, law.probabilities).bits
            off += mean_distance_km(channel, law.probabilities)
    except (TooLarge, InvalidInput):
        return Beside(least.leakage_bits, least.distortion)
    return Beside(least.leakage_bits, least.distortion, bits, off)


@dataclass(frozen=True)
class Request:
    """What is released, how, and where it goes."""

    source: str
    output: str | None
    prior: str | None
    history: str | None
    multiplier: float | None
    distortion: float | None
    leakage_bits: float | None
    epsilon: float | None
    merge: tuple[str, ...]
    personal: str | None
    plot: str | None
    seed: int | None
    format: str | None
    delimiter: str

    def check(self) -> None:
        """Refuse what cannot be, before anything is read."""
        self._check_kind()
        sources = [self.source, *(name for name in (self.prior, self.history) if name is not None)]
        targets = [name for name in (self.output, self.personal, self.plot) if name is not None]
        if targets.count(PIPE) > 1:
            raise click.UsageError("only one output can go to a pipe; name a file for the others")
        for number, target in enumerate(targets):
            writer.check_target(target, *sources, *targets[:number])
        for table in (*sources, self.output, self.personal):
            if table is not None and format_of(table, self.format) not in _TABLES:
                raise InvalidInput(
                    f"table of counts ({table}) must end in .csv, .csv.gz or .parquet"
                )
        shared.check_picture(self.plot)

    def _check_kind(self) -> None:
        """Refuse a release that is asked for twice, or not at all."""
        beliefs = sum(name is not None for name in (self.prior, self.history))
        if beliefs > 1 or (beliefs == 0 and self.epsilon is None):
            raise click.UsageError(
                "--prior or --history must be given, one of them; --epsilon needs neither"
            )
        goals = (*TARGETS, "epsilon")
        if sum(getattr(self, name) is not None for name in goals) != 1:
            flags = ", ".join("--" + name.replace("_", "-") for name in goals)
            raise click.UsageError(f"exactly one of {flags} must be given")
        if self.epsilon is not None and (self.personal is not None or self.plot is not None):
            raise click.UsageError("--personal and --plot are not for --epsilon")

    def with_noise(self, randomness: gv.Randomness) -> NoisyTable:
        """The table of ``--epsilon``, in memory; beside the least leakage where there is a prior."""
        assert self.epsilon is not None
        table, believed = self._read()
        release = gv.GeometricRelease(self.epsilon, timestamps=len(table.timestamps))
        rows = table.counts if release.timestamps > 1 else table.counts[0]
        released = np.atleast_2d(release.sample(rows, randomness=randomness))
        beside = None if believed is None else _least_leakage(release, table, believed.prior)
        return NoisyTable(table, release, released, beside)

    def publish(self, randomness: gv.Randomness, progress: ProgressBar) -> Published:
        """Everything in memory, so that nothing is written unless all went well."""
        table, believed = self._read()
        assert believed is not None
        total = float(np.clip(table.counts[0], -2 * MOST_PEOPLE, 2 * MOST_PEOPLE).sum())
        if not 0.5 < total <= MOST_PEOPLE:
            raise InvalidInput(
                f"counts must hold at least one person, and at most {MOST_PEOPLE:,}; --epsilon takes more"
            )
        people = round(total)
        counts = checked_counts(table.counts, people, len(table.places))
        names, path = believed.people, self.prior or self.history
        listed = len(names) or (believed.prior.shape[0] if believed.prior.ndim == 2 else people)
        if listed != people:
            raise InvalidInput(
                f"people in {path} ({listed}) must be {people}, one per person counted"
            )
        if len(set(names)) != len(names):
            raise InvalidInput(
                f"people in {path} must have different names; two of them have the same"
            )
        progress.stage("designing the release")
        moments = len(table.timestamps)
        same: dict[str, Any] = {"people": people, "prior": believed.prior, "timestamps": moments}
        goals = {name: getattr(self, name) for name in TARGETS}
        release = gv.CountRelease(**same, **goals, progress=progress.steps)
        progress.stage("what leaks about whom")
        release.chain  # noqa: B018 (the personal leakages are found here, under the progress bar)
        curve = []
        if self.plot is not None:
            progress.stage("drawing the curve")
            curve = gv.leakage_curve(
                lambda rate: gv.CountRelease(**same, multiplier=rate),
                [release.multiplier * share for share in _CURVE],
                (SimpleCounting, GeometricCounting),
                progress=progress.steps,
            )
        truth = counts[0] if release.timestamps == 1 else counts
        released = np.atleast_2d(release.sample(truth, randomness=randomness))
        return Published(table, counts, names, release, released, curve)

    def write(self, table: count_table.CountTable, released: IntArray) -> None:
        """Write released counts, unless they go into the document of ``--json``."""
        if self.output is not None:
            columns = table.with_counts(released)
            writer.write_by(writer.put_table, self.output, columns, format=self.format)

    def _read(self) -> tuple[count_table.CountTable, count_table.PriorTable | None]:
        """The counts and the priors, on merged places where these are asked for."""
        how: dict[str, Any] = {"format": self.format, "delimiter": self.delimiter}
        table = count_table.read_counts(self.source, **how)
        read_beliefs = count_table.read_history if self.prior is None else count_table.read_prior
        path = self.prior or self.history
        believed = None if path is None else read_beliefs(path, table, **how)
        if not self.merge:
            return table, believed
        named = dict(_merging(text, table.places) for text in self.merge)
        members = [place for group in named.values() for place in group]
        alone = [place for place in table.places if place not in members]
        twice = len(set(members)) != len(members) or len(named) != len(self.merge)
        if twice or set(alone) & set(named):
            raise click.UsageError(
                "--merge must put each place in one group, under a name of its own"
            )
        named |= {place: [place] for place in alone}
        merged = MergedPlaces(
            tuple(tuple(map(table.places.index, group)) for group in named.values())
        )
        table = replace(table, places=tuple(named), counts=merged.prior(table.counts))
        return table, believed and replace(believed, prior=merged.prior(believed.prior))


def _merging(text: str, places: tuple[str, ...]) -> tuple[str, list[str]]:
    """The name and the places of NAME=A,B."""
    name, _, listed = text.partition("=")
    group = [part.strip() for part in listed.split(",") if part.strip()]
    if not name.strip() or len(group) < 2 or not set(group) <= set(places):
        raise click.UsageError(
            f"--merge ({text}) must be NAME=PLACE,PLACE, with places of: {', '.join(places[:20])}"
        )
    return name.strip(), group


@click.command()
@click.argument("source", type=shared.INPUT, metavar="COUNTS")
@shared.output_option("Where the released counts go; standard output unless given, with --json into "
                      "its document.", required=False)  # fmt: skip
@click.option("--prior", type=shared.INPUT, metavar="FILE",
              help="Where people are likely to be, by place or by person.")  # fmt: skip
@click.option("--history", type=shared.INPUT, metavar="FILE",
              help="Past counts, or past visits of people, instead.")  # fmt: skip
@click.option("--multiplier", type=float,
              help="λ: how much an error of one person weighs, in nats.")  # fmt: skip
@click.option("--distortion", type=float,
              help="Wanted mean error in people, all timestamps together.")  # fmt: skip
@click.option("--leakage-bits", type=float, help="Limit on what leaks about the counts, in bits.")
@click.option("--epsilon", type=float,
              help="Geometric noise on each count instead, for tables of any size: one person elsewhere "
                   "changes the probability of a release by at most e^ε.")  # fmt: skip
@click.option("--merge", multiple=True, metavar="NAME=A,B",
              help="Merge places into one; repeatable.")  # fmt: skip
@click.option("--personal", metavar="FILE", help="Write what leaks about each person.")
@shared.plot_option("Draw leakage against distortion")
@shared.seed_option
@shared.format_option("csv", "parquet")
@shared.delimiter_option
@shared.machine_options
def command(machine: bool, **options: Any) -> None:
    """Release counts of people at places so that the least leaks for their accuracy, or with a stated ε.

    COUNTS has a row for each place, its name first, then a column for each timestamp; every column
    sums to the number of people. What comes out has the same shape, and every column the same sum.
    Each run is a release: releases of the same counts add up. With --epsilon the counts get exact
    geometric noise, which needs no prior and takes tables of any size; their columns may differ in sum.

    \b
    geoveil release counts.csv --prior prior.csv --multiplier 1 -o released.csv
    geoveil release counts.csv --history past.csv --leakage-bits 2 --plot curve.png
    geoveil release counts.csv --epsilon 1 -o released.csv
    """
    if options["output"] is None and not machine:
        options["output"] = PIPE
    request = Request(**options)
    request.check()
    written = {"output": request.output, "personal": request.personal, "plot": request.plot}
    console = Console(machine=machine, output=PIPE if PIPE in written.values() else None)
    randomness = console.randomness(request.seed)
    if request.epsilon is not None:
        with console.progress("reading"):
            noisy = request.with_noise(randomness)
        request.write(noisy.table, noisy.released)
        values = {"output": request.output, "seed": request.seed, **noisy.to_dict()}
        console.result(values, noisy.lines(request.output))
        return
    with console.progress("reading") as progress:
        published = request.publish(randomness, progress)
    values = {**written, "seed": request.seed, **published.to_dict()}
    lines = published.lines(written)
    for caution in published.cautions(request.leakage_bits):
        console.warn(caution)
    # The counts last: what fails before is no release.
    if request.personal is not None:
        columns = {
            "person": published.names,
            "leakage_bits": published.release.personal_leakage_bits,
            "unknown_before_bits": published.unknown_bits,
        }
        writer.write_by(writer.put_table, request.personal, columns, format=request.format)
    if request.plot is not None:
        curves.save_leakage_curve(request.plot, published.curve, published.release.multiplier)
    request.write(published.table, published.released)
    console.result(values, lines)
