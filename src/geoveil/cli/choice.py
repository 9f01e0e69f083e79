"""Which mechanism a command line asks for, and what it promises, in words."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from geoveil.channel.channel import Channel
from geoveil.channel.words import NEARBY_KM, if_claimed, spend_in_words
from geoveil.cli.console import PROMISE_NAMES
from geoveil.document.canonical import document_id
from geoveil.document.certify import check_claim
from geoveil.document.saved import AnyMechanism, load_mechanism, mechanism_to_dict
from geoveil.mechanism import MECHANISMS
from geoveil.mechanism.continuous_laplace import ContinuousLaplace
from geoveil.mechanism.elastic import Elastic
from geoveil.space.grid import Grid

ON_MAPS = tuple(name for name in MECHANISMS if name not in ("linear-geometric", "rappor"))
"""The mechanisms whose reports are places on a map."""


@dataclass(frozen=True)
class MechanismChoice:
    """A mechanism by name and promise, or by the document that describes it."""

    name: str
    promise: Mapping[str, float]

    @classmethod
    def parse(cls, name: str, promise: Mapping[str, float | None]) -> MechanismChoice:
        """Check a name (or a path that ends in .json) with the promises that were given."""
        choice = cls(name, {key: value for key, value in promise.items() if value is not None})
        choice._check()
        return choice

    @property
    def is_document(self) -> bool:
        """Whether the name is that of a file."""
        return self.name.endswith(".json")

    @property
    def needs_box(self) -> bool:
        """Whether a grid has to be laid out first."""
        return not self.is_document and MECHANISMS[self.name] is not ContinuousLaplace

    def build(self, grid: Grid | None) -> AnyMechanism:
        """The mechanism, on the grid where it needs one."""
        if self.is_document:
            return load_mechanism(self.name)
        kind = MECHANISMS[self.name]
        made: AnyMechanism = kind(**self.promise) if grid is None else kind(grid, **self.promise)
        if isinstance(made, Elastic) and len(self.promise) > 1:  # a claim beside --beta-per-km
            check_claim(made, made.guarantee)
        return made

    def _check(self) -> None:
        if self.is_document and self.promise:
            raise click.UsageError(f"{_flags(self.promise)}: {self.name} holds its own promise")
        if self.is_document:
            return
        if self.name not in ON_MAPS:
            known = ", ".join(ON_MAPS)
            raise click.UsageError(
                f"mechanism ({self.name}) must be one of {known}, or a .json file"
            )
        taken = inspect.signature(MECHANISMS[self.name]).parameters
        known_flags = _flags(name for name in PROMISE_NAMES if name in taken)
        if not self.promise:
            raise click.UsageError(f"a promise must be given: one of {known_flags}")
        strange = _flags(name for name in self.promise if name not in taken)
        if strange:
            raise click.UsageError(f"{strange} is not for {self.name}, which takes {known_flags}")
        self._check_one_promise()

    def _check_one_promise(self) -> None:
        leading = [name for name in self.promise if name != "radius_km"]
        if ("level" in self.promise) != ("radius_km" in self.promise):
            raise click.UsageError("--level and --radius-km must be given together")
        if len(leading) != 1 and set(leading) != {"beta_per_km", "epsilon_per_km"}:
            raise click.UsageError(f"only one promise must be given, not {_flags(self.promise)}")


def lay_grid(box: Iterable[float], cell_km: float) -> Grid:
    """The grid over a box given as south, west, north, east."""
    south, west, north, east = box
    return Grid.from_box(south=south, west=west, north=north, east=east, cell_km=cell_km)


def describe(mechanism: AnyMechanism) -> dict[str, Any]:
    """The mechanism for machines: its document, the document's name, and its promise in words."""
    document = mechanism_to_dict(mechanism)
    promise = promise_of(mechanism) if mechanism.guarantee else None
    said = {"guarantee": promise, "explanation": mechanism.explain(NEARBY_KM)}
    return {**said, "mechanism_id": document_id(document), "mechanism": document}


def promise_of(mechanism: AnyMechanism) -> str:
    """The promise in one sentence, in the unit of the mechanism's space."""
    if mechanism.guarantee is None:
        return "none"
    return _if_claimed(mechanism, mechanism.guarantee.sentence(_unit(mechanism)))


def promise_in_words(
    mechanism: AnyMechanism, reports_per_person: int | None = None
) -> dict[str, str]:
    """What the mechanism promises, what it means at a walking distance, and what a person spends."""
    spent = spend_in_words(mechanism.guarantee, reports_per_person, unit=_unit(mechanism))
    return {
        "promise": promise_of(mechanism),
        "so": mechanism.explain(NEARBY_KM),
        "spent": _if_claimed(mechanism, spent),
    }


def _unit(mechanism: AnyMechanism) -> str:
    return mechanism.space.unit if isinstance(mechanism, Channel) else "km"


def _if_claimed(mechanism: AnyMechanism, sentence: str) -> str:
    claimed = isinstance(mechanism, Channel) and mechanism.only_claimed
    return if_claimed(sentence, claimed=claimed)


def _flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)
