"""Certificates: the exact privacy loss of a channel, rounded up, against what it claims."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import singledispatch
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, one_blas_thread
from geoveil.channel.channel import FLOAT_TOLERANCE, Channel, PrivacyLoss, checked_channel
from geoveil.channel.guarantee import (
    BetweenPositions,
    GeoIndistinguishability,
    Guarantee,
    LocalDifferentialPrivacy,
    checked_guarantee,
)
from geoveil.channel.words import rounded_up
from geoveil.errors import InvalidInput, TooLarge, Unsupported
from geoveil.holding import Shown

_ENUMERATED = 1024
_ROUNDING = 1e-12
_LOGARITHM = 4e-14  # what the difference of two logarithms up to 43 can be off by
_SMALLEST = 1e-290
_CACHED = 1 << 16  # numbers


@dataclass(frozen=True)
class Certificate(Shown):
    """What ``certify`` found.

    ``epsilon_per_km`` is the largest loss per kilometre between two cells (nats), ``epsilon`` the
    largest loss between any two (``None`` where only the former has a closed form). ``holds`` says
    whether the claim is shown to be met; without a claim it says whether the loss is finite. Where they
    are not ``exact``, both are bounds, and a claim below them may still be true. Between positions,
    ``epsilon_per_km`` is a bound over any two of them, and ``slack_nats`` comes on top, once a report.
    """

    epsilon_per_km: float
    epsilon: float | None
    claimed: Guarantee | None
    holds: bool
    worst_pair: tuple[int, int] | None
    exact: bool
    how: str
    problem: str | None = None
    """Why it does not hold, or is not shown to, in words."""
    unit: str = "km"
    """The unit of the space, by which ``epsilon_per_km`` counts."""
    slack_nats: float | None = None
    """Between positions: what rounding adds to the loss at any distance; ``None`` between cells."""
    worst_place_km: tuple[float, float] | None = None
    """Between positions: around this place they lose most per km, in the plane of the space."""

    @property
    def verdict(self) -> str:
        """What may be said of the claim: a bound above it refutes nothing."""
        if self.holds:
            return "holds"
        shown = self.exact or math.isinf(self.epsilon_per_km)
        return "does not hold" if shown else "is not shown to hold"

    @property
    def found(self) -> str:
        """The loss in the unit of the claim: per km, or whatever the distance."""
        if isinstance(self.claimed, LocalDifferentialPrivacy) and self.epsilon is not None:
            return rounded_up(self.epsilon, 9)
        rounding = (
            "" if self.slack_nats is None else f" and {rounded_up(self.slack_nats, 2)} for rounding"
        )
        return f"{rounded_up(self.epsilon_per_km, 9)} per {self.unit}{rounding}"

    def __str__(self) -> str:
        verdict = "holds" if self.holds else f"{self.verdict.upper()}: {self.problem}"
        claim = "no claim" if self.claimed is None else self.claimed.sentence(self.unit)
        return f"{claim} — {verdict}; found {self.found} by {self.how}"


@one_blas_thread()
def certify(channel: Channel, *, claim: Guarantee | None = None) -> Certificate:
    """The exact loss of a channel by closed form or enumeration, rounded up, against a claim.

    The claim is what the channel promises, unless another one is given.

    A closed form is used where the law has one (then any size is fine); otherwise every pair of cells
    is compared at every report: m²·n steps, up to 4,096 cells (minutes). So it is where the closed form is
    a bound, up to 1,024 cells, or more where the bound does not prove the claim. A column that is zero for
    one cell and positive for another is an infinite loss. For an :class:`~geoveil.ExactTable` the ratios
    are those of its integers and the claim gets no tolerance. Between positions it is a bound over all of
    them.

    >>> import geoveil as gv
    >>> certificate = certify(gv.ExactTable(gv.RandomizedResponse(gv.Line(4), epsilon=1.0)))
    >>> certificate.holds, certificate.epsilon <= 1.0
    (True, True)
    """
    checked_channel("channel", channel)
    claim = checked_guarantee("claim", claim) or channel.guarantee
    loss = channel.closed_form_loss()
    if loss is not None and loss.slack is not None:  # no table of cells says more about positions
        epsilon_per_km, problem = loss.epsilon_per_km, None
        actual = BetweenPositions(epsilon_per_km, loss.slack)
        if claim is not None and not loss.proves(claim):
            problem = (
                f"a bound of {actual.amount(channel.space.unit)} is more than "
                f"{claim.amount(channel.space.unit)}"
            )
        elif isinstance(claim, BetweenPositions):
            epsilon_per_km = min(epsilon_per_km, claim.epsilon_per_km)
        return Certificate(
            epsilon_per_km, None, claim, problem is None,
            None, False, loss.how, problem, channel.space.unit, loss.slack, loss.place_km,
        )  # fmt: skip
    if isinstance(claim, BetweenPositions):
        problem = "a law over cells promises nothing between positions"
        return Certificate(
            math.inf, None, claim, False, None, False, "its kind", problem, channel.space.unit
        )
    if loss is None or not _answers(loss, claim, channel.space.size):
        return enumerated(channel, claim)
    shown = claim is None or loss.proves(claim)
    if loss.exact or (shown and channel.space.size > _ENUMERATED):
        return _from_closed_form(loss, claim, channel.space.unit)
    try:
        table = enumerated(channel, claim)
    except (TooLarge, Unsupported):  # there is no matrix to compare
        return _from_closed_form(loss, claim, channel.space.unit)
    # Floats this small have lost digits or are zero: there the law speaks, not its table.
    worn = not table.holds and bool((channel.matrix() < _SMALLEST).any())
    return _from_closed_form(loss, claim, channel.space.unit) if worn else table


def check_claim(channel: Channel, claim: Guarantee) -> None:
    """Raise, with both numbers, where a claim is smaller than the loss of the channel.

    A closed form within the claim is enough, whatever the size; ``certify`` says more and takes longer.
    """
    loss = channel.closed_form_loss()
    if loss is not None and loss.proves(claim):
        return
    certificate = certify(channel, claim=claim)
    if not certificate.holds:
        raise InvalidInput(
            f"guarantee ({claim.amount(channel.space.unit)}) must not be smaller than "
            f"{'' if certificate.exact else 'what is shown of '}the loss of the mechanism, "
            f"{certificate.found}: {certificate.problem}"
        )


_Law = TypeVar("_Law", bound=Channel)


def promising(channel: _Law, promise: Guarantee) -> _Law:
    """The same channel with another promise, after a check that its law keeps it."""
    check_claim(channel, promise)
    same = copy(channel)
    same._fixed = promise
    return same


def _answers(loss: PrivacyLoss, claim: Guarantee | None, cells: int) -> bool:
    """Whether a closed form says all that the claim asks about, or on larger maps enough to prove it."""
    if isinstance(claim, GeoIndistinguishability | None):
        return True
    if isinstance(claim, LocalDifferentialPrivacy) and loss.epsilon is not None:
        return True
    return cells > _ENUMERATED and loss.proves(claim)


def _from_closed_form(loss: PrivacyLoss, claim: Guarantee | None, unit: str) -> Certificate:
    local = isinstance(claim, LocalDifferentialPrivacy) and loss.epsilon is not None
    epsilon, per = (loss.epsilon or 0.0, "") if local else (loss.epsilon_per_km, f" per {unit}")
    allowed = math.inf if claim is None else float(claim.loss(1.0))
    holds = claim is None or loss.proves(claim)
    found = f"{'' if loss.exact else 'a bound of '}{epsilon:.9g}{per}"
    problem = None if holds else f"{found} is more than the {allowed:.9g} claimed"
    return Certificate(
        loss.epsilon_per_km, loss.epsilon, claim, holds, loss.pair, loss.exact, loss.how, problem, unit
    )  # fmt: skip


@singledispatch
def enumerated(channel: Channel, claim: Guarantee | None) -> Certificate:
    """The certificate from every pair of cells and every report, up to 4,096 cells.

    A kind of channel that remembers what was enumerated registers it here.
    """
    table, tolerance = channel.compared_table()
    how = "enumeration" if tolerance else "enumeration of its integers"
    problem, unit = malformed(table, integers=not tolerance), channel.space.unit
    if problem is not None:
        return Certificate(math.inf, math.inf, claim, False, None, True, how, problem, unit)
    losses = pairwise_losses(table)
    distances = channel.space.distances_km().copy()
    np.fill_diagonal(distances, 1.0)
    per_km = losses / distances
    worst = (int(per_km.argmax()) // len(losses), int(per_km.argmax()) % len(losses))
    problem = _broken_claim(claim, losses, distances, tolerance)
    above = _up(losses)  # before it is divided: among near cells an error of a logarithm grows
    return Certificate(
        float((above / distances).max()), float(above.max()), claim, problem is None,
        worst, True, how, problem, unit,
    )  # fmt: skip


def _broken_claim(
    claim: Guarantee | None, losses: FloatArray, distances: FloatArray, tolerance: float
) -> str | None:
    """In words, the pair that breaks the claim most; ``None`` where none does."""
    if claim is None:
        possible = np.isfinite(losses).all()
        return None if possible else "a report is possible at one cell and not at another"
    allowed = claim.loss(distances)
    with np.errstate(invalid="ignore"):
        excess = np.where(
            np.isinf(allowed), -np.inf, _up(losses) - allowed * (1 + tolerance) - tolerance
        )
    worst = int(np.argmax(excess))  # no cell and itself, which lose nothing
    if not excess.ravel()[worst] > 0:
        return None
    x, other = divmod(worst, len(losses))
    return (
        f"cells {x} and {other} differ by {losses[x, other]:.9g} nats where "
        f"{allowed[x, other]:.9g} are claimed"
    )


def pairwise_losses(table: FloatArray) -> FloatArray:
    """max_y log(T[x, y]/T[x′, y]) for every pair of rows; infinite where only one of them is zero."""
    possible = (table > 0).any(axis=0)
    with np.errstate(divide="ignore"):
        logs = np.log(table[:, possible])
    size, zeros = len(logs), bool(np.isneginf(logs).any())
    losses = np.zeros((size, size))
    rows = max(1, _CACHED // logs.shape[1])  # so many at once: twice as fast as all
    changes = np.empty((rows, logs.shape[1]))
    with np.errstate(invalid="ignore"):
        for first in range(0, size, rows):
            last = min(first + rows, size)
            for x in range(last - 1):
                others = slice(max(first, x + 1), last)
                change = np.subtract(logs[x], logs[others], out=changes[: last - others.start])
                if zeros:
                    change[np.isnan(change)] = 0.0  # impossible at both
                losses[x, others] = change.max(axis=1)
                losses[others, x] = -change.min(axis=1)
    return losses


def malformed(table: FloatArray, *, integers: bool = False) -> str | None:
    """What keeps a table from being a channel at all, in words."""
    if not np.isfinite(table).all():
        return (
            f"row {int(np.argwhere(~np.isfinite(table))[0, 0])} holds a number that is not finite"
        )
    if (table < 0).any():
        return f"row {int(np.argwhere(table < 0)[0, 0])} holds a negative number"
    sums = table.sum(axis=1)
    total = sums[0] if integers else 1.0
    worst = int(np.argmax(np.abs(sums - total)))
    if abs(sums[worst] / total - 1) > FLOAT_TOLERANCE:
        return f"row {worst} sums to {sums[worst]:.12g}"
    return None


def _up(values: npt.ArrayLike) -> FloatArray:
    """Rounded up past every error of the logarithms above."""
    losses = np.asarray(values, dtype=np.float64)
    return np.where(losses > 0, losses * (1 + _ROUNDING) + _LOGARITHM, 0.0)
