"""Which mechanism a command line asks for, and what it promises, in words."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import geoveil as gv
from geoveil.channel.words import NEARBY_KM, explain, explain_trip, rounded_up, spend_in_words
from geoveil.cli.options import INPUT, Decorator, between_option, together
from geoveil.document.canonical import document_id
from geoveil.document.saved import AnyMechanism, mechanism_to_dict
from geoveil.mechanism import MECHANISMS
from geoveil.position.positional import Placed
from geoveil.space import MapSpace
from geoveil.space.points import at_places
from geoveil.table.reader import is_pipe

if TYPE_CHECKING:
    from geoveil.campaign.elastic_design import Between

ELASTIC = gv.Elastic.name
"""The mechanism whose promise may be between positions or between cells."""
ON_MAPS = tuple(name for name in MECHANISMS if name not in ("linear-geometric", "rappor"))
"""The mechanisms whose reports are places on a map."""
_NEXT_TO_NOTHING = 0.1
"""Nats between the farthest places of a map."""

PROMISES = {
    "epsilon_per_km": "Promise: loss per kilometre between two places.",
    "level": "Promise: loss between places within --radius-km of each other.",
    "radius_km": "The radius that --level speaks of.",
    "mean_distance_km": "Promise the wanted mean distance between place and report.",
    "beta_per_km": "Promise of the elastic mechanism by its β (loss at most 2β per km).",
    "epsilon": "Promise of randomized-response and disc: loss at any distance.",
}
"""What can be promised, in the mechanism's own terms."""


def mechanism_options(names: Iterable[str]) -> Decorator:
    """``--mechanism``, one of ``names``, and its promise; the command gets both as ``choice``."""
    return together(
        click.option(
            "--mechanism", type=INPUT, default=ELASTIC, show_default=True, metavar="NAME",
            help=f"One of {', '.join(names)}; or the file of a mechanism document, - for a pipe.",
        ),
        *(click.option(_flag(name), type=float, help=text) for name, text in PROMISES.items()),
        between_option,
        name="choice",
        make=lambda mechanism, between, **promise: MechanismChoice.parse(mechanism, promise, between),
    )  # fmt: skip


@dataclass(frozen=True)
class MechanismChoice:
    """A mechanism by name and promise, or by the document that describes it."""

    name: str
    promise: Mapping[str, float]
    between: Between | None = None

    @classmethod
    def parse(
        cls, name: str, promise: Mapping[str, float | None], between: Between | None = None
    ) -> MechanismChoice:
        """Check a name, or that of a file, with the promises that were given."""
        chosen = {key: value for key, value in promise.items() if value is not None}
        choice = cls(name, chosen, between)
        if between is not None and name != ELASTIC:
            raise click.UsageError(
                f"--between is for --mechanism {ELASTIC}; {name} has one kind of promise"
            )
        if not choice.is_document:
            choice._check()
        elif chosen:
            raise click.UsageError(
                f"{_flags(chosen)} must be left out with --mechanism {name}: documents have their own promise"
            )
        return choice

    @property
    def is_document(self) -> bool:
        """Whether the name is that of a file."""
        return self.name not in MECHANISMS and (
            self.name.endswith(".json") or is_pipe(self.name) or Path(self.name).exists()
        )

    @property
    def needs_box(self) -> bool:
        """Whether a grid has to be laid out first."""
        return not self.is_document and MECHANISMS[self.name] is not gv.ContinuousLaplace

    def build(self, grid: Placed | None) -> AnyMechanism:
        """The mechanism, on the grid where it needs one."""
        if self.is_document:
            return gv.load_mechanism(self.name)
        # β is a number of the elastic mechanism between cells
        between_cells = self.between == "cells" or "beta_per_km" in self.promise
        if self.name == ELASTIC and grid is not None and not between_cells:
            arguments: dict[str, Any] = {**self.promise}
            return gv.elastic(grid, **arguments, between="positions")
        kind = MECHANISMS[self.name]
        built: AnyMechanism = kind(**self.promise) if grid is None else kind(grid, **self.promise)
        return built

    def _check(self) -> None:
        if self.between == "positions" and "beta_per_km" in self.promise:
            raise click.UsageError(
                "--beta-per-km is for --between cells; promise --epsilon-per-km instead"
            )
        if self.name not in ON_MAPS:
            raise click.UsageError(
                f"mechanism ({self.name}) must be one of {', '.join(ON_MAPS)}, or the file of one"
            )
        accepted = inspect.signature(MECHANISMS[self.name]).parameters
        usable = _flags(name for name in PROMISES if name in accepted)
        if not self.promise:
            raise click.UsageError(f"a promise must be given: one of {usable}")
        strange = _flags(name for name in self.promise if name not in accepted)
        if strange:
            raise click.UsageError(f"{strange} is not for {self.name}, which takes {usable}")
        if ("level" in self.promise) != ("radius_km" in self.promise):
            raise click.UsageError("--level and --radius-km must be given together")
        leading = [name for name in self.promise if name != "radius_km"]
        if len(leading) != 1 and set(leading) != {"beta_per_km", "epsilon_per_km"}:
            raise click.UsageError(f"only one promise must be given, not {_flags(self.promise)}")


def describe(mechanism: AnyMechanism, who: str = "", *, trips: bool = False) -> dict[str, Any]:
    """The mechanism for machines: its document, the document's name, and its promise in words."""
    document = mechanism_to_dict(mechanism)
    said = promise_in_words(mechanism, who=who, trips=trips)
    promise = said["promise"] if mechanism.guarantee else None
    words = {"guarantee": promise, "explanation": said["so"]}
    return {**words, "mechanism_id": document_id(document), "mechanism": document}


def promise_in_words(
    mechanism: AnyMechanism, reports_per_person: int | None = None, *, who: str = "", trips: bool = False
) -> dict[str, str]:  # fmt: skip
    """What the mechanism promises, what it means at a walking distance, and what a person spends.

    ``who`` says whom alone it is about, where some were left out. A trip has two ends, drawn by themselves,
    and costs twice.
    """
    cost = guarantee = mechanism.guarantee
    unit = mechanism.space.unit if isinstance(mechanism, gv.Channel) else "km"
    apart = mechanism.told_apart if isinstance(mechanism, gv.Channel) else None
    if trips:
        assert isinstance(mechanism, gv.Channel)
        pairs = gv.Trips(mechanism)
        cost, so = pairs.guarantee, explain_trip(guarantee, apart, NEARBY_KM, who=who)
        promise = "none" if cost is None else pairs.sentence()
    else:
        so = explain(guarantee, apart, NEARBY_KM, who=who)
        promise = "none" if guarantee is None else guarantee.sentence(unit)
    return {
        "promise": promise,
        "so": so,
        "noise": _all_noise(mechanism),
        "spent": spend_in_words(
            cost, reports_per_person, unit=unit, what="trip" if trips else "report"
        ),
    }


def _all_noise(mechanism: AnyMechanism) -> str:
    """That reports say next to nothing, as where ε was meant per metre; empty where they say more."""
    guarantee = mechanism.guarantee
    if guarantee is None or not isinstance(mechanism, gv.Channel) or mechanism.space.size == 1:
        return ""
    across_km = float(np.linalg.norm(np.ptp(mechanism.space.centres, axis=0)))
    loss = guarantee.level_within(across_km)
    if loss >= _NEXT_TO_NOTHING or not isinstance(mechanism.space, MapSpace):
        return ""
    return (
        "so much that next to nothing comes back: wherever on the map two people are, no report is more than "
        f"{rounded_up(math.exp(loss), 3)} times as likely from one as from the other; ε is per kilometre"
    )


def distance_in_words(mechanism: gv.Channel, distance_km: float) -> str:
    """How far a report is from its person, on average, and where people are taken to stand."""
    space = mechanism.space
    far, bare = f"{distance_km:.4g} {space.unit}", at_places(space)
    if not isinstance(mechanism, gv.PositionalElastic):
        return f"{far} between the {'place' if bare else 'cell'} of a person and the report"
    if bare:
        return f"{far} from a person to the reported place, people standing at the places"
    return (
        f"{far} from the position of a person to the middle of the reported cell, people standing "
        "anywhere in their cells"
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _flags(names: Iterable[str]) -> str:
    return ", ".join(map(_flag, names))
