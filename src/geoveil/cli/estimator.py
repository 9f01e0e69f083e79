"""Which estimator a command line asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import click

from geoveil.channel.tally import Tally
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
from geoveil.estimate.linear import MatrixInversion
from geoveil.estimate.mixture import AverageMechanism, Estimator, by_mechanism
from geoveil.estimate.simplex import Repair
from geoveil.estimate.stopping import Progress, Stop
from geoveil.estimate.uncertainty import Uncertainty
from geoveil.space.base import MATRIX_LIMIT

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
