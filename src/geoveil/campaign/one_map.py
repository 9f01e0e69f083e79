"""Whether all reports of a campaign are about one map: in every round, and under every promise.

A round that disagrees changes no map. It waits, and intervals hold both; only when later rounds say the same
does it take over, so that a burst of fakes cannot. Pooling the reports of all promises is right only where
people choose without regard to where they are: else the map is the average over those who chose alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from geoveil.arrays import FloatArray
from geoveil.channel.channel import Tally
from geoveil.errors import number_of
from geoveil.estimate import AverageOfEstimates, Estimate, Estimator
from geoveil.measure import mutual_information_bits
from geoveil.verify.agreement import LEAST_REPORTS, Agreement, agreement

CONFIRMING = 2
"""So many later rounds must agree with a round that disagreed before it takes over."""
_ALIKE = 0.01
"""Two rounds that both disagree with the others agree with each other unless p is below this."""
_LATE = 0.1
"""The part of the reports of a round that may come after it was compared."""
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
    """p of the last comparison; ``None`` where there were too few reports to compare."""
    reports: tuple[int, ...] = ()
    """How many reports each of those that agree had when it was compared."""

    @property
    def drifting(self) -> bool:
        """Whether some rounds disagree with those the estimate is made from."""
        return bool(self.waiting or self.aside)

    def summary(self, *, take_over: bool = True) -> str:
        """The standing in words; ``take_over=False`` where the first round is trusted."""
        if not self.drifting:
            return self._agreement()
        alike = ", not found to differ by more than chance" if len(self.agreeing) > 1 else ""
        said = [f"The map is made from {_rounds(self.agreeing)}{alike}."]
        if self.waiting:
            more = CONFIRMING + 1 - len(self.waiting)
            one = len(self.waiting) == 1
            like = f"{number_of(more, 'more round')} like {'it' if one else 'them'}"
            said.append(
                f"{_rounds(self.waiting).capitalize()} {'says' if one else 'say'} otherwise: people may "
                "have moved, or somebody sends fakes. Intervals hold both"
                f"{f'; {like} would take over' if take_over else ''}."
            )
        if self.aside:
            differ, are = ("disagrees", "is") if len(self.aside) == 1 else ("disagree", "are")
            said.append(
                f"{_rounds(self.aside).capitalize()} {differ} with these and {are} not used."
            )
        return " ".join(said)

    def _agreement(self) -> str:
        """Where no round disagrees: how the newest compares, if it was compared."""
        if not self.looks:
            return "There was no other round to compare the newest with."
        if self.p_value is None:
            return (
                "The newest round was not compared with those before it: it has, or they have, fewer than "
                f"{LEAST_REPORTS} reports."
            )
        return (
            "No round was found to differ from those before it by more than chance. The newest has p = "
            f"{self.p_value:.2g}; {_claim_in_words(allowed_at(self.looks))}."
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Standing:
        """The standing that ``to_dict`` described."""
        agreeing, waiting, aside = (
            tuple(map(int, values[name])) for name in ("agreeing", "waiting", "aside")
        )
        reports = tuple(map(int, values.get("reports", ())))  # older ones do not say
        return cls(agreeing, waiting, aside, int(values["looks"]), values["p_value"], reports)


NO_ROUNDS = Standing()


def _claim_in_words(level: float) -> str:
    """At which level a difference is claimed, and why there."""
    return (
        f"a difference is claimed below {level:.2g} at this look, so that at most about "
        f"{100 * FALSE_CLAIM:g} in 100 campaigns without any are ever told of one"
    )


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
    before: Standing,
    tallies: Tallies,
    fitted: Fitted,
    *,
    cleaned: Tallies = MappingProxyType({}),
    take_over: bool = True,
) -> Standing:
    """The standing after the rounds that it does not know yet, oldest first.

    One that agreed is compared again once many of its reports came late. ``fitted`` is asked for the estimate
    near which rounds are compared, those ``cleaned`` of fakes by what is left. Without ``take_over`` rounds
    that disagree wait for ever, and the first is not compared again.
    """
    now = {number: sum(tally.total for tally in each) for number, each in tallies.items()}
    then = dict(zip(before.agreeing, before.reports, strict=False))
    late = {
        number
        for number, reports in list(then.items())[0 if take_over else 1 :]
        if now.get(number, 0) - reports >= max(LEAST_REPORTS, _LATE * reports)
    }
    earlier = {*before.agreeing, *before.waiting, *before.aside} - late
    standing = replace(before, agreeing=tuple(n for n in before.agreeing if n not in late))
    left = {**tallies, **cleaned}
    for number in sorted(set(tallies) - earlier):
        standing = _with_round(standing, number, left, fitted, take_over, number in late)
    agreeing = sorted(standing.agreeing)
    compared = now | {number: reports for number, reports in then.items() if number not in late}
    reports = tuple(compared.get(number, 0) for number in agreeing)
    aside = tuple(sorted(standing.aside))
    return replace(standing, agreeing=tuple(agreeing), aside=aside, reports=reports)


def _with_round(
    standing: Standing, number: int, tallies: Tallies, fitted: Fitted, take_over: bool, late: bool
) -> Standing:
    """The standing with one more round; a ``late`` one confirms none that waits."""
    agreeing = [other for other in standing.agreeing if other in tallies]
    if not agreeing:
        return replace(standing, agreeing=(*standing.agreeing, number))
    looks = standing.looks + 1
    p_value = _p_value(agreeing, number, tallies, fitted(agreeing))
    with_look = replace(standing, looks=looks, p_value=p_value)
    if p_value is None or p_value >= allowed_at(looks):
        aside = (*standing.aside, *standing.waiting)
        return replace(with_look, agreeing=(*standing.agreeing, number), waiting=(), aside=aside)
    waiting = [other for other in standing.waiting if other in tallies]
    if not waiting:
        return replace(with_look, waiting=(number,))
    if late:
        return replace(with_look, aside=(*standing.aside, number))
    alike = _p_value(waiting, number, tallies, fitted(waiting))
    if alike is not None and alike < _ALIKE:
        return replace(with_look, waiting=(number,), aside=(*standing.aside, *standing.waiting))
    together = (*standing.waiting, number)
    if len(together) <= CONFIRMING or not take_over:
        return replace(with_look, waiting=together)
    aside = (*standing.aside, *standing.agreeing)
    return replace(with_look, agreeing=together, waiting=(), aside=aside)


def _p_value(
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


# --- Free will: what each promise contributed, and whether the choice depends on the place


FALSE_CLAIM = 0.02
"""How often a campaign whose people stay, or choose freely, is told the contrary, in its whole life."""


def allowed_at(look: int) -> float:
    """The share of :data:`FALSE_CLAIM` that the n-th look may spend; all looks together spend no more.

    >>> round(sum(allowed_at(look) for look in range(1, 10_000)), 4)
    0.02
    """
    return FALSE_CLAIM / (look * (look + 1))


class Level(NamedTuple):
    """What the people who chose one promise contributed."""

    promise_per_km: float
    reports: int
    bits_per_report: float | None
    """What a report tells about the cell on average, under the estimate and the newest mechanism; ``None``
    where fewer chose it than may be told."""


@dataclass(frozen=True)
class Choices:
    """What each promise contributed to an estimate, and whether the choice has to do with the place."""

    levels: tuple[Level, ...]
    """The strongest promise first."""
    minimum_reports: int
    compared: Agreement | None
    """How well the levels agree about one map; ``None`` where fewer than two had enough reports."""
    dependent: bool
    """Whether the choice was found to depend on the place, now or at an earlier close."""
    level: float = FALSE_CLAIM
    """It is found to where the p of the comparison is below this."""

    @property
    def released(self) -> tuple[Level, ...]:
        """The levels with the minimum of reports."""
        return tuple(level for level in self.levels if level.bits_per_report is not None)

    def summary(self) -> str:
        """In words: the contributions, and what was found about the choice."""
        amounts = "; ".join(
            f"ε = {level.promise_per_km:g} per km: {number_of(level.reports, 'report')}, "
            f"{level.bits_per_report:.2g} bits each"
            for level in self.released
        )
        small = len(self.levels) - len(self.released)
        note = f"{small} of the promises had fewer than {number_of(self.minimum_reports, 'report')}"
        counted = "; ".join(part for part in (amounts, note if small else "") if part)
        return f"{counted}. {self._verdict()}"

    def _verdict(self) -> str:
        if self.dependent:
            return (
                "The promises disagree about the map: which one people choose depends on where they are, "
                "or somebody sends fakes under one. The map is the average of one map for each promise, "
                "which is right whatever honest people choose, with wider intervals."
            )
        if self.compared is None:
            return (
                "Whether the choice depends on the place could not be tested: fewer than two promises "
                f"have {LEAST_REPORTS} reports; the map takes it that it does not."
            )
        return (
            "The choice was not found to depend on the place: the map is made from all reports together. "
            f"The promises compared have p = {self.compared.p_value:.2g}; {_claim_in_words(self.level)}."
        )


def by_promise(rounds: Sequence[Sequence[Tally]]) -> list[list[Tally]]:
    """The tallies of each promise over all rounds, those without reports left out."""
    return [[tally for tally in level if tally.total] for level in zip(*rounds, strict=True)]


def compared_levels(levels: Sequence[Sequence[Tally]], near: FloatArray) -> Agreement | None:
    """How well the levels with enough reports agree about one map."""
    enough = [level for level in levels if sum(t.total for t in level) >= LEAST_REPORTS]
    return agreement(enough, near) if len(enough) > 1 else None


def contributions(
    promises: Sequence[float], levels: Sequence[Sequence[Tally]], estimate: Estimate, minimum: int
) -> tuple[Level, ...]:
    """What each promise contributed to an estimate."""
    results = []
    for promise, level in zip(promises, levels, strict=True):
        reports = sum(tally.total for tally in level)
        bits = None
        if reports >= minimum:
            bits = mutual_information_bits(level[-1].channel, estimate.distribution)
        results.append(Level(promise, reports, bits))
    return tuple(results)


def average_of_levels(levels: Sequence[Sequence[Tally]], estimator: Estimator) -> Estimate:
    """Σ (n_l/n)·θ_l, each θ_l estimated from those who chose alike: right whatever the dependence."""
    return AverageOfEstimates(estimator).fit_groups([level for level in levels if level])
