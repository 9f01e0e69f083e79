"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from geoveil.table.persons import LimitBy, PersonLimit

Command = TypeVar("Command", bound=Callable[..., Any])


class BoxType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """A box as ``SOUTH,WEST,NORTH,EAST`` in degrees."""

    name = "S,W,N,E"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        try:
            edges = tuple(float(edge) for edge in value.split(","))
        except ValueError:
            edges = ()
        if len(edges) != 4:
            self.fail("must be four numbers: south,west,north,east in degrees", param, ctx)
        return edges


def one_mark(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A delimiter: one character, or the word for the one that is hard to type."""
    mark = "\t" if value in ("tab", "\\t") else value
    if len(mark) != 1 or mark in '"\r\n':
        raise click.BadParameter("must be one character that is no quote", context, parameter)
    return mark


def machine_options(command: Command) -> Command:
    """``--json`` and ``--debug``, which every command has."""
    command = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show where an error comes from."
    )(command)
    return click.option("--json", "machine", is_flag=True, help="Print the result as JSON.")(
        command
    )


def space_options(command: Command) -> Command:
    """``--box`` and ``--cell-km``: the grid that places are put on."""
    for decorate in (
        click.option(
            "--cell-km",
            type=float,
            default=0.5,
            show_default=True,
            help="Side of a cell in kilometres.",
        ),
        click.option(
            "--box", type=BoxType(), help="Edges of the map in degrees; else taken from the data."
        ),
    ):
        command = decorate(command)
    return command


def location_options(command: Command) -> Command:
    """How a table of true locations is read: its columns, its format, and rows that are no places."""
    for decorate in (
        click.option(
            "--format",
            type=click.Choice(["csv", "parquet", "geojson"]),
            help="Format of a pipe; csv unless given.",
        ),
        click.option(
            "--delimiter",
            default=",",
            show_default=True,
            callback=one_mark,
            help="Mark between the fields of CSV; tab for tabulators.",
        ),
        click.option(
            "--bad-rows",
            type=click.Choice(["raise", "drop"]),
            default="raise",
            show_default=True,
            help="Rows without usable coordinates: an error, or left out and counted.",
        ),
        click.option(
            "--lng", "--lon", "lng", help="Column of the longitude; else found by its usual names."
        ),
        click.option("--lat", help="Column of the latitude; else found by its usual names."),
    ):
        command = decorate(command)
    return command


def outside_option(command: Command) -> Command:
    """``--outside``: what becomes of places beyond the edges of the map."""
    return click.option(
        "--outside",
        type=click.Choice(["drop", "clamp", "raise"]),
        default="drop",
        show_default=True,
        help="Places outside the box: left out and counted, to the nearest cell, or an error.",
    )(command)


def person_options(command: Command) -> Command:
    """``--person``, ``--per-person`` and ``--limit-by``: how many reports there are about a person."""
    for decorate in (
        click.option(
            "--limit-by",
            type=click.Choice(["sample", "cap", "memoise"]),
            help="Which: rows at random (sample, unless given), the first rows (cap), or different "
            "cells, each of which always gives the same report (memoise).",
        ),
        click.option(
            "--per-person", type=click.IntRange(min=1), help="At most so many reports a person."
        ),
        click.option("--person", metavar="COLUMN", help="Column that says whom a row is about."),
    ):
        command = decorate(command)
    return command


def person_limit(
    person: str | None, per_person: int | None, limit_by: LimitBy | None
) -> PersonLimit | None:
    """The limit that ``person_options`` ask for; none without a person."""
    if person is None and (per_person is not None or limit_by is not None):
        raise click.UsageError(
            "--per-person and --limit-by must come with --person COLUMN, which says whom a row is about"
        )
    if per_person is None and limit_by in ("sample", "cap"):
        raise click.UsageError(f"--limit-by {limit_by} must come with --per-person N")
    return None if person is None else PersonLimit(person, per_person, limit_by or "sample")


def promise_options(command: Command) -> Command:
    """What is promised: one of these, in the mechanism's own terms."""
    for flag, text in reversed(_PROMISES):
        command = click.option(flag, type=float, help=text)(command)
    return command


_PROMISES = (
    ("--epsilon-per-km", "Promise: loss per kilometre between two places."),
    ("--level", "Promise: loss between places within --radius-km of each other."),
    ("--radius-km", "The radius that --level speaks of."),
    ("--mean-distance-km", "Promise the wanted mean distance between place and report."),
    ("--beta-per-km", "Promise of the elastic mechanism by its β (loss at most 2β per km)."),
    ("--epsilon", "Promise of randomized-response: loss at any distance."),
)

PROMISE_NAMES = tuple(flag.removeprefix("--").replace("-", "_") for flag, _ in _PROMISES)
"""The parameters that ``promise_options`` gives to a command."""
