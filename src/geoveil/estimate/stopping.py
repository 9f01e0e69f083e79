"""When to stop: small frozen rules, each with a limit on the steps and a reason in words.

The rule of the papers, a small change of the likelihood, says nothing about the distance to the
maximum; the certificate does. Neither is best for an estimate that people look at, because the exact
maximum fits the noise: that is what :class:`~geoveil.estimate.cross_validation.CrossValidated` is for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy.typing as npt

from geoveil.arrays import FloatArray, count, positive
from geoveil.channel.operator import Operator

Progress = Callable[[int, int], None]
"""Called with how much of the work is done and how much there is; the ratio never falls."""

_PARTS = 1000


class Meter:
    """Tells a progress in thousandths of the whole: it never falls, and reaches the end once."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = -1

    def at(self, fraction: float) -> None:
        """So much is done, in [0, 1]; what is less than before is not told."""
        done = int(_PARTS * min(1.0, fraction))
        if self._progress is not None and done > self._done:
            self._done = done
            self._progress(done, _PARTS)

    def first(self, share: float) -> Progress:
        """A progress of its own for the first ``share`` of the work."""
        return lambda done, of: self.at(share * done / of)


@dataclass
class Trace:
    """Log-likelihood and certificate at the start and after every step, nats per observation."""

    log_likelihood: list[float] = field(default_factory=list)
    certificate: list[float] = field(default_factory=list)

    def add(self, log_likelihood: float, certificate: float) -> None:
        """One more point of the ascent."""
        self.log_likelihood.append(log_likelihood)
        self.certificate.append(certificate)

    @property
    def steps(self) -> int:
        """How many steps were made; the start is not one."""
        return len(self.certificate) - 1


class Stop(Protocol):
    """What ``stop=`` takes: a rule, or what becomes one after a look at the data."""

    def settled(
        self,
        operator: Operator,
        weights: npt.ArrayLike,
        start: FloatArray,
        progress: Progress | None,
    ) -> StoppingRule:
        """The rule to apply to these data."""


class StoppingRule(ABC):
    """Decides after every step whether the ascent ends, and says why."""

    maximum: int
    """The ascent ends here at the latest."""

    @abstractmethod
    def satisfied(self, trace: Trace) -> str | None:
        """Why the ascent ends here, in words; ``None`` to go on."""

    def reason(self, trace: Trace) -> str | None:
        """Why the ascent ends here, the limit on the steps included."""
        said = self.satisfied(trace)
        if said is None and trace.steps >= self.maximum:
            return (
                f"at the limit of {self.maximum} steps; the log-likelihood is at most "
                f"{trace.certificate[-1]:.2g} nats per report below its maximum"
            )
        return said

    def fraction(self, trace: Trace) -> float:
        """How much of the ascent is done, as far as can be told: the steps out of their limit."""
        return trace.steps / max(1, self.maximum)

    def settled(
        self,
        operator: Operator,
        weights: npt.ArrayLike,
        start: FloatArray,
        progress: Progress | None,
    ) -> StoppingRule:
        """This rule itself, whatever the data."""
        return self


@dataclass(frozen=True)
class Steps(StoppingRule):
    """A fixed number of steps, to reproduce the papers or to stop as another run did.

    >>> Steps(10).maximum
    10
    """

    number: int
    words: str = "as asked"

    def __post_init__(self) -> None:
        count("number", self.number, least=0)

    @property
    def maximum(self) -> int:  # type: ignore[override]
        return self.number

    def satisfied(self, trace: Trace) -> str | None:
        if trace.steps < self.number:
            return None
        return f"after {self.number} steps, {self.words}"


@dataclass(frozen=True)
class CertifiedWithin(StoppingRule):
    """Until the log-likelihood is proven to be within ``tolerance`` nats per report of its maximum.

    Law: log max_x g_x ≤ tolerance, which bounds f* − f from above.
    """

    tolerance: float = 1e-6
    maximum: int = 100_000

    def __post_init__(self) -> None:
        positive("tolerance", self.tolerance)
        count("maximum", self.maximum, least=0)

    def satisfied(self, trace: Trace) -> str | None:
        if trace.certificate[-1] > self.tolerance:
            return None
        return (
            f"certified within {self.tolerance:.2g} nats per report of the maximum, "
            f"after {trace.steps} steps"
        )

    def fraction(self, trace: Trace) -> float:
        return _way(trace.certificate[0], trace.certificate[-1], self.tolerance)


@dataclass(frozen=True)
class LikelihoodChange(StoppingRule):
    """Until one step changes the log-likelihood by less than ``tolerance`` nats per report.

    The rule of the papers (IBU and FREEWILL, Alg. 1: ``|L(θᵗ) − L(θᵗ⁻¹)| < δ``). A small change does not
    mean that the maximum is near: look at the certificate.
    """

    tolerance: float = 1e-8
    maximum: int = 100_000

    def __post_init__(self) -> None:
        positive("tolerance", self.tolerance)
        count("maximum", self.maximum, least=0)

    def satisfied(self, trace: Trace) -> str | None:
        values = trace.log_likelihood
        if trace.steps == 0 or abs(values[-1] - values[-2]) >= self.tolerance:
            return None
        return (
            f"the log-likelihood changed by less than {self.tolerance:.2g} nats per report, "
            f"after {trace.steps} steps"
        )

    def fraction(self, trace: Trace) -> float:
        values = trace.log_likelihood
        if trace.steps == 0:
            return 0.0
        return _way(abs(values[1] - values[0]), abs(values[-1] - values[-2]), self.tolerance)


def _way(first: float, now: float, last: float) -> float:
    """How far a falling positive number has come from first to last, in powers of ten."""
    if now <= last or first <= last:
        return 1.0
    return 1.0 - math.log(now / last) / math.log(first / last)
