"""Whether people have moved: which rounds of a campaign agree, and what becomes of those that do not.

A round that disagrees changes no map. It waits: meanwhile intervals hold what it says as well as what the
others say. Only when later rounds say the same does it take over, so that a burst of fakes cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from geoveil.arrays import FloatArray
from geoveil.campaign.promises import allowed_at
from geoveil.channel.channel import Tally
from geoveil.verify.agreement import LEAST_REPORTS, agreement

CONFIRMING = 2
"""So many later rounds must agree with a round that disagreed before it takes over."""
_ALIKE = 0.01
"""Two rounds that both disagree with the others agree with each other unless p is below this."""
_PRODUCTS = 8_000_000_000
"""Cells² × reports of all tallies compared with a new one: some seconds on one core."""

Tallies = Mapping[int, Sequence[Tally]]
"""Round number → its tallies, at least one of them with reports."""


@dataclass(frozen=True)
class Standing:
    """Which rounds say the same, as of a close; numbers of rounds, oldest first."""

    agreeing: tuple[int, ...] = ()
    """What the estimate is made from."""
    waiting: tuple[int, ...] = ()
    """Newer rounds that agree with each other and not with those, too few to take over."""
    aside: tuple[int, ...] = ()
    """Rounds that others took over from, or that no later round agreed with."""
    looks: int = 0
    """How often a round was compared; each look spends part of one error rate."""
    p_value: float | None = None
    """Of the last comparison."""

    @property
    def drifting(self) -> bool:
        """Whether some rounds disagree with those the estimate is made from."""
        return bool(self.waiting or self.aside)

    def summary(self) -> str:
        """In words."""
        if not self.drifting:
            chance = "" if self.p_value is None else f" (p = {self.p_value:.2g} for the newest)"
            return f"All rounds agree about one map{chance}."
        said = [f"The map is made from {_rounds(self.agreeing)}, which agree."]
        if self.waiting:
            more = CONFIRMING + 1 - len(self.waiting)
            differs = "says" if len(self.waiting) == 1 else "say"
            said.append(
                f"{_rounds(self.waiting).capitalize()} {differs} otherwise: people may have moved, or "
                f"somebody sends fakes. Intervals hold both; {more} more "
                f"{'round' if more == 1 else 'rounds'} like it would take over."
            )
        if self.aside:
            said.append(f"{_rounds(self.aside).capitalize()} disagree with these and are not used.")
        return " ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "agreeing": list(self.agreeing),
            "waiting": list(self.waiting),
            "aside": list(self.aside),
            "looks": self.looks,
            "p_value": self.p_value,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Standing:
        """The standing that ``to_dict`` described."""
        agreeing, waiting, aside = (
            tuple(map(int, values[name])) for name in ("agreeing", "waiting", "aside")
        )
        return cls(agreeing, waiting, aside, int(values["looks"]), values["p_value"])


NO_ROUNDS = Standing()


def _rounds(numbers: Sequence[int]) -> str:
    """ "round 3", "rounds 1 to 3", "rounds 1 and 4"."""
    if len(numbers) == 1:
        return f"round {numbers[0]}"
    if list(numbers) == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:
        return f"rounds {numbers[0]} to {numbers[-1]}"
    return f"rounds {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


Fitted = Callable[[Sequence[int]], FloatArray]
"""The distribution estimated from some rounds."""


def settled(
    before: Standing, tallies: Tallies, fitted: Fitted, *, take_over: bool = True
) -> Standing:
    """The standing after the rounds that it does not know yet, oldest first.

    ``fitted`` is asked for the estimate near which rounds are compared. Without ``take_over`` rounds that
    disagree wait for ever.
    """
    known = {*before.agreeing, *before.waiting, *before.aside}
    standing = before
    for number in sorted(set(tallies) - known):
        standing = _with(standing, number, tallies, fitted, take_over)
    return standing


def _with(
    standing: Standing, number: int, tallies: Tallies, fitted: Fitted, take_over: bool
) -> Standing:
    """The standing with one more round."""
    agreeing = [each for each in standing.agreeing if each in tallies]
    if not agreeing:
        return replace(standing, agreeing=(*standing.agreeing, number))
    looks = standing.looks + 1
    p_value = _compared(agreeing, number, tallies, fitted(agreeing))
    looked = replace(standing, looks=looks, p_value=p_value)
    if p_value is None or p_value >= allowed_at(looks):
        aside = (*standing.aside, *standing.waiting)
        return replace(looked, agreeing=(*standing.agreeing, number), waiting=(), aside=aside)
    waiting = [each for each in standing.waiting if each in tallies]
    if not waiting:
        return replace(looked, waiting=(number,))
    alike = _compared(waiting, number, tallies, fitted(waiting))
    if alike is not None and alike < _ALIKE:
        return replace(looked, waiting=(number,), aside=(*standing.aside, *standing.waiting))
    together = (*standing.waiting, number)
    if len(together) <= CONFIRMING or not take_over:
        return replace(looked, waiting=together)
    aside = tuple(sorted((*standing.aside, *standing.agreeing)))
    return replace(looked, agreeing=together, waiting=(), aside=aside)


def _compared(
    others: Sequence[int], number: int, tallies: Tallies, near: FloatArray
) -> float | None:
    """p of the hypothesis that a round and the newest of others come from one map."""
    new = tallies[number]
    group: list[Tally] = []
    products = near.size**2 * new[0].channel.report_count
    for other in reversed(others):
        if group and (len(group) + len(tallies[other])) * products > _PRODUCTS:
            break
        group = [*tallies[other], *group]
    if min(sum(t.total for t in part) for part in (group, new)) < LEAST_REPORTS:
        return None
    return agreement([group, new], near).p_value
