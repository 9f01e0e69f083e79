"""A campaign: rounds of reports, each with the mechanism that the last estimate suggested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from geoveil import arrays
from geoveil.arrays import FloatArray, frozen, prior_over, uniform
from geoveil.campaign import one_map
from geoveil.campaign.elastic_design import Between, checked_between
from geoveil.campaign.rounds import Closing, NewestRounds, Round, as_saved, cleaned_rounds, counted
from geoveil.campaign.rules import PromiseRule, PublishedRule, Rule, rule_from_dict
from geoveil.channel.channel import Channel, Tally
from geoveil.document.canonical import canonical_bytes, file_json
from geoveil.errors import InvalidFile, InvalidInput, number_of
from geoveil.estimate import AverageOfEstimates, Estimate
from geoveil.estimate.bounds import held_to_seed
from geoveil.estimate.fitted import A_TALLY
from geoveil.files import replaced_file
from geoveil.space import Space, space_from_dict
from geoveil.space.space import checked_space
from geoveil.verify.agreement import Agreement
from geoveil.verify.guard import Guarded, GuardedUpdate, Suspicion

MINIMUM_REPORTS = 100
"""A round with fewer is neither released nor used, in the library and in the service, unless said."""
Inspected = Callable[..., Guarded | None]
"""What a guard says about the rounds of these numbers; ``None`` where there is none."""
_VERSION = 1
_COUNTING = Lock()
"""One tally at a time: of two threads that add to the same counts one would be lost."""


class Campaign:
    """Rounds of: publish a mechanism, receive tallies, close, estimate from all rounds, design the next.

    A campaign states one promise (``epsilon_per_km``, certified for every mechanism it publishes) and
    turns one dial (``camouflage``). With ``promises_per_km`` it states several instead and everybody
    chooses: ``mechanisms[promise]``. One map is made from all reports together while the choice has nothing
    to do with the place, which is tested at every close; else it is the average of one map for each
    promise (``closing.choices``). A report belongs to the mechanism that made it, whenever it arrives.
    Every close also tests whether the rounds agree (``closing.standing``): a round that disagrees changes
    no map until two later rounds say the same; meanwhile intervals hold both.
    A round with fewer than ``minimum_reports`` does not close: nothing is released or fed back, and
    its reports count on. Simulations of a few people may lower it.
    Against fakes: ``most_leverage`` bounds what a report may weigh, at the cost of camouflage;
    ``guarded=True`` leaves out, then and at every later close, the fewest fakes that explain what the alarm
    names; ``trusted_seed=True`` holds later estimates to the error bars of the first round, whose reports
    must be known to be honest (:class:`PromiseRule`).
    On a map the promise is between any two positions, unless ``between="cells"`` (see ``elastic``).
    A person who reports in every one of N rounds spends N times the promise (see ``Budget``).
    Reference: PRIVIC Alg. 1, with the corrections of docs/privic.md.

    >>> import numpy as np
    >>> import geoveil as gv
    >>> city = gv.Grid(rows=5, columns=5, cell_km=0.5)
    >>> campaign = Campaign(city, epsilon_per_km=2.0, camouflage=0.5)
    >>> people = np.repeat([6, 7, 18], 400)
    >>> for number in range(2):
    ...     mechanism = campaign.mechanism
    ...     reports = mechanism.sample(people, randomness=gv.seeded(number))
    ...     _ = campaign.receive(mechanism.tally(reports))
    ...     _ = campaign.close_round()
    >>> len(campaign.rounds), bool(campaign.estimate.distribution[[6, 7, 18]].sum() > 0.5)
    (2, True)
    """

    def __init__(
        self,
        space: Space,
        *,
        epsilon_per_km: float | None = None,
        promises_per_km: Iterable[float] | None = None,
        camouflage: float | None = None,
        most_leverage: float | None = None,
        guarded: bool | None = None,
        trusted_seed: bool | None = None,
        between: Between | None = None,
        prior: Any = None,
        minimum_reports: int = MINIMUM_REPORTS,
        rule: Rule | None = None,
    ) -> None:
        if sum(option is None for option in (rule, epsilon_per_km, promises_per_km)) != 2:
            raise InvalidInput(
                "a campaign must have a promise by exactly one of epsilon_per_km=, promises_per_km= "
                "(several, to choose from) and rule="
            )
        own = (camouflage, most_leverage, guarded, trusted_seed, between)
        if rule is not None and own != (None,) * len(own):
            raise InvalidInput(
                "camouflage, most_leverage, guarded, trusted_seed and between must go with "
                "epsilon_per_km or promises_per_km; a rule= has its own"
            )
        if rule is None:
            if promises_per_km is None:
                promises_per_km = [arrays.positive("epsilon_per_km", epsilon_per_km)]
            rule = PromiseRule.offering(
                promises_per_km,
                camouflage=0.5 if camouflage is None else camouflage,
                most_leverage=most_leverage,
                guarded=guarded is not None and arrays.yes_or_no("guarded", guarded),
                trusted_seed=trusted_seed is not None
                and arrays.yes_or_no("trusted_seed", trusted_seed),
                between=checked_between(between, space),
            )
        people = frozen(prior_over(prior, checked_space(space).size))
        self._begin(space, rule, people, minimum_reports)
        self._rounds.append(self._following(None))

    def _begin(self, space: Space, rule: Rule, prior: FloatArray, minimum_reports: int) -> None:
        self.space = space
        self.rule = rule
        self.prior = prior
        self.minimum_reports = arrays.count("minimum_reports", minimum_reports, least=0)
        self._rounds: list[Round] = []
        self._closing: Closing | None = None
        self._closed_from: tuple[tuple[Tally, ...], ...] = ()
        """The tallies of all rounds as they were when the last one closed."""

    @classmethod
    def as_published(
        cls, space: Space, *, beta_per_km: float, design_steps: int, update_steps: int
    ) -> Campaign:
        """The paper's own rule, for reproduction: no promise beyond 2β, no floor, the last round only.

        ``design_steps`` and ``update_steps`` are the paper's N_BA and N_IBU; N_BA channels are N_BA − 1
        updates of the weights (:class:`PublishedRule`). Rounds of any size close.
        """
        rule = PublishedRule(beta_per_km, design_steps, update_steps)
        return cls(space, rule=rule, minimum_reports=0)

    # -- the loop ------------------------------------------------------------------------------

    @property
    def mechanism(self) -> Channel:
        """What people use now, where the campaign offers one promise."""
        mechanisms = self._rounds[-1].mechanisms
        if len(mechanisms) > 1:
            offered = ", ".join(f"{promise:g}" for promise in self.rule.promises)
            raise InvalidInput(
                f"a campaign of several promises ({offered} per km) must be asked for one of them; "
                "take campaign.mechanisms[promise]"
            )
        return mechanisms[0]

    @property
    def mechanisms(self) -> dict[float, Channel]:
        """What people use now, by the promise in ε per km; the strongest promise, the smallest ε, first."""
        return dict(zip(self.rule.promises, self._rounds[-1].mechanisms, strict=True))

    @property
    def rounds(self) -> list[Round]:
        """The closed rounds, oldest first."""
        return [round_ for round_ in self._rounds if round_.closed]

    @property
    def current(self) -> Round:
        """The open round; the last one of a campaign that has ended."""
        return self._rounds[-1]

    @property
    def distribution(self) -> FloatArray:
        """What is believed now: the last estimate, or the prior before the first."""
        closed = self.rounds
        return self._believed(closed[-1] if closed else None)

    @property
    def closing(self) -> Closing:
        """The close of the last closed round: its estimate, alarm, error bars and manipulation gain."""
        closed = self.rounds
        if not closed:
            raise InvalidInput(
                "a campaign must close a round before it has an estimate; a round needs "
                f"{number_of(self._least, 'report')} to close"
            )
        if self._closing is None:  # after a resume: the same tallies give the same estimate
            self._closing = self._closing_of(closed, closed[:-1], self._closed_from)
        return self._closing

    @property
    def estimate(self) -> Estimate:
        """The estimate of the last closed round, with its error bars and certificate."""
        return self.closing.estimate

    def receive(self, tally: Tally) -> Round:
        """Count reports under the mechanism that made them, in the open round or late in an old one."""
        arrays.instance("tally", tally, Tally, A_TALLY)
        with _COUNTING:
            for round_ in reversed(self._rounds):
                tallies = round_.tallies
                for level, earlier in enumerate(tallies):
                    if earlier.channel == tally.channel:
                        more = earlier + Tally(earlier.channel, tally.counts)
                        round_.tallies = (*tallies[:level], more, *tallies[level + 1 :])
                        return round_
        raise InvalidInput("the tally must come from a mechanism that this campaign has published")

    @arrays.one_blas_thread()
    def close_round(self, *, last: bool = False) -> Round | None:
        """Estimate, and publish the next mechanism; ``None`` while the round has too few reports.

        With ``last`` the campaign ends: no mechanism follows.
        """
        current = self.current
        if current.closed:
            raise InvalidInput(f"round {current.number} was the last; the campaign has ended")
        if current.total < self._least:
            return None
        before = self._rounds[:-1]
        tallies = tuple(round_.tallies for round_ in self._rounds)
        seed = tallies[-1] if self.rule.trusted_seed and not before else current.seed
        closing = self._closing_of([*before, replace(current, seed=seed)], self.rounds, tallies)
        found: dict[str, Any] = {
            "distribution": closing.estimate.distribution,
            "fakes": closing.fakes,
            "standing": closing.standing,
            "dependent": closing.depends,
            "seed": seed,
        }
        following = [] if last else [self._following(replace(current, **found))]
        # what fails above has changed nothing: the round can be closed again
        self._closed_from, self._closing = tallies, closing
        vars(current).update(found)
        self._rounds += following
        return current

    @property
    def _least(self) -> int:
        """Reports without which a round is neither closed nor used."""
        return max(1, self.minimum_reports)

    def _believed(self, last: Round | None) -> FloatArray:
        """The estimate of the last closed round; the prior before the first."""
        distribution = self.prior if last is None else last.distribution
        assert distribution is not None
        return distribution

    def _closing_of(
        self,
        rounds: Sequence[Round],
        before: Sequence[Round],
        closed_from: Sequence[tuple[Tally, ...]],
    ) -> Closing:
        """The close of the last of these rounds, from the counts as they were then.

        ``before`` are the rounds that had an estimate before it. Fakes that were sure at the last of them
        stay out: the alarm looks at the newest rounds alone.
        """
        as_then = {
            round_.number: replace(round_, tallies=tallies)
            for round_, tallies in zip(rounds, closed_from, strict=True)
            if sum(tally.total for tally in tallies) >= self._least
        }
        last = before[-1] if before else None
        if not self.rule.pools:
            used = tuple(as_then.values())[-1:]
            return Closing(used, self.rule.estimate(used[0].counted, self._believed(last)))

        @cache
        def inspected(*numbers: int) -> Guarded | None:
            """What the guard says about these rounds, in seconds, asked twice where one disagreed."""
            guard = self.rule.guard(self._least)
            some = [as_then[number] for number in numbers]
            return None if guard is None else self._inspected(guard, some, last, counted(some))

        standing = self._standing(as_then, last, inspected)
        used = tuple(round_ for n, round_ in as_then.items() if n in standing.agreeing)
        waiting = tuple(round_ for n, round_ in as_then.items() if n in standing.waiting)
        choices, estimate, guarded = self._estimated(used, last, len(before) + 1, inspected)
        depends = choices is not None and choices.dependent
        held = self._held(used, estimate, depends=depends)
        return Closing(used, held, guarded, standing, waiting, choices)

    def _standing(
        self, as_then: Mapping[int, Round], last: Round | None, inspected: Inspected
    ) -> one_map.Standing:
        """Which rounds agree, going on from those that agreed at the last estimate."""
        tallies = {number: round_.counted for number, round_ in as_then.items()}
        before = one_map.NO_ROUNDS if last is None else last.standing
        agreeing = before.agreeing

        def fitted(numbers: Sequence[int]) -> FloatArray:
            if last is not None and tuple(n for n in agreeing if n in tallies) == tuple(numbers):
                return self._believed(last)
            some = [tally for number in numbers for tally in tallies[number]]
            return self.rule.estimate(some, self.prior).distribution

        take_over = not self.rule.trusted_seed
        standing = one_map.settled(before, tallies, fitted, take_over=take_over)
        if (standing.waiting, standing.aside) == (before.waiting, before.aside):
            return standing
        some = [round_ for number, round_ in as_then.items() if number not in before.aside]
        guarded = inspected(*(round_.number for round_ in some))
        if guarded is None:
            return standing
        # what the guard takes for fakes is no sign that people have moved
        cleaned = {round_.number: round_.counted for round_ in cleaned_rounds(some, guarded.left)}
        return one_map.settled(before, tallies, fitted, cleaned=cleaned, take_over=take_over)

    def _estimated(
        self, used: Sequence[Round], last: Round | None, look: int, inspected: Inspected
    ) -> tuple[one_map.Choices | None, Estimate, Guarded | None]:
        """The estimate from rounds that agree: of all reports together while the choice allows it."""
        tallies, believed = counted(used), self._believed(last)
        numbers = [round_.number for round_ in used]
        if len(self.rule.promises) == 1:
            guarded = inspected(*numbers)
            if guarded is None:
                return None, self.rule.estimate(tallies, believed), None
            return None, guarded.estimate, guarded
        levels = one_map.by_promise([round_.tallies for round_ in used])
        estimate = self.rule.estimate(tallies, believed)
        compared = one_map.compared_levels(levels, estimate.distribution)
        level = one_map.allowed_at(look)
        dependent = bool(last and last.dependent)
        if not dependent and compared is not None and compared.p_value < level:
            compared = self._compared_without_fakes(used, last, levels, compared)
            dependent = compared is not None and compared.p_value < level
        guarded = None if dependent else inspected(*numbers)
        if dependent:
            estimate = one_map.average_of_levels(levels, self.rule.estimator)
        elif guarded is not None:
            estimate = guarded.estimate
        parts = one_map.contributions(self.rule.promises, levels, estimate, self._least)
        return one_map.Choices(parts, self._least, compared, dependent, level), estimate, guarded

    def _compared_without_fakes(
        self,
        used: Sequence[Round],
        last: Round | None,
        levels: Sequence[Sequence[Tally]],
        compared: Agreement,
    ) -> Agreement | None:
        """How well promises that disagree do without the fakes that a guard finds, where there is one.

        Each promise is looked at by itself: beside one map for all, honest people who choose by where they
        are would be taken for fakes. How many of the reports named are fake is known within a range; where
        the promises agree somewhere in it, fakes explain what they differ in.
        """
        guard = self.rule.guard(self._least)
        if guard is None:
            return compared
        # in half of the time that the guard has for all promises together, which comes next
        guard = replace(guard, alarm=NewestRounds(), effort=0.5 / len(levels))
        looks = [self._inspected(guard, used, last, level) for level in levels if level]
        if not any(most.any() for guarded in looks for most in guarded.most):
            return compared
        agreements = []
        for rest in zip(*(guarded.left_within_range for guarded in looks), strict=True):
            some = [tally for level in rest for tally in level if tally.total]
            if not some:  # all may be fakes
                return None
            near = self.rule.estimate(some, self.prior)
            agreements.append(one_map.compared_levels(rest, near.distribution))
        return max(
            agreements, key=lambda agreement: 1.0 if agreement is None else agreement.p_value
        )

    def _inspected(
        self,
        guard: GuardedUpdate,
        used: Sequence[Round],
        last: Round | None,
        tallies: Sequence[Tally],
    ) -> Guarded:
        """What a guard says about tallies of some rounds, with the fakes of earlier closes in mind."""
        mechanisms = {
            (round_.number, level): mechanism
            for round_ in used
            for level, mechanism in enumerate(round_.mechanisms)
        }
        remembered = [
            Suspicion(mechanisms[number, level], report, least, most)
            for number, report, least, most, level in (last.fakes if last else ())
            if (number, level) in mechanisms
        ]
        return guard.inspect(tallies, remembered=remembered)

    def _held(self, used: Sequence[Round], estimate: Estimate, *, depends: bool) -> Estimate:
        """The estimate held to the first round, as it was when it closed, where that is trusted.

        Where the choice of a promise depends on the place, what that round says is an average too.
        """
        seed = [tally for round_ in used for tally in round_.seed if tally.total]
        if not seed or sum(tally.total for tally in seed) == sum(round_.total for round_ in used):
            return estimate
        alone = self.rule.estimator
        estimator = AverageOfEstimates(alone) if depends else alone
        return held_to_seed(estimate, counted(used), seed, estimator)

    def _following(self, last: Round | None) -> Round:
        """The round that follows one that was closed, or the first."""
        believed, mechanisms = self._believed(last), []
        for one in self.rule.choices:
            # what an operator believes before the first report needs no steering
            steered = one.steering(self.space, believed) if last else believed
            mechanisms.append(one.design(self.space, steered))
        return Round.opened(last.number + 1 if last else 1, mechanisms)

    # -- save and resume -----------------------------------------------------------------------

    @classmethod
    def from_rounds(
        cls,
        space: Space,
        rounds: Sequence[Round],
        *,
        rule: Rule,
        minimum_reports: int = MINIMUM_REPORTS,
    ) -> Campaign:
        """The campaign as it stood with these rounds, oldest first, the last one open.

        Every round needs its mechanism and its tally; of the estimates before, the last is enough.
        """
        resumed = cls.__new__(cls)
        resumed._begin(space, rule, frozen(uniform(space.size)), minimum_reports)
        resumed._rounds = list(rounds)
        return resumed

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly where it stopped, as plain JSON values."""
        return {
            "geoveil_collection": _VERSION,
            "space": self.space.to_dict(),
            "rule": self.rule.to_dict(),
            "prior": self.prior.tolist(),
            "minimum_reports": self.minimum_reports,
            "rounds": [round_.to_dict() for round_ in self._rounds],
            "estimated_from": [
                [tally.counts.tolist() for tally in tallies] for tallies in self._closed_from
            ],
        }

    @classmethod
    def from_dict(cls, values: Any) -> Campaign:
        """The campaign that ``to_dict`` described."""
        if not isinstance(values, dict) or values.get("geoveil_collection") != _VERSION:
            raise InvalidFile(f'a saved campaign must say "geoveil_collection": {_VERSION}')
        try:
            space, rule = space_from_dict(values["space"]), rule_from_dict(values["rule"])
            rounds = [
                Round.from_dict(number, fields, space.size, rule.guarantee)
                for number, fields in enumerate(values["rounds"], start=1)
            ]
            if not rounds or not all(round_.closed for round_ in rounds[:-1]):
                raise InvalidFile("a saved campaign must have one open round, its last")
            minimum = values["minimum_reports"]
            resumed = cls.from_rounds(space, rounds, rule=rule, minimum_reports=minimum)
            resumed.prior = as_saved("prior", values["prior"], space.size)
            closed = resumed.rounds
            if closed and rule.trusted_seed and not closed[0].seed:  # older files do not say
                closed[0].seed = closed[0].tallies
            now = [[tally.counts for tally in round_.tallies] for round_ in closed]
            saved = values.get("estimated_from", now)  # older files say what was counted only
            levels = [counts if isinstance(counts[0], Sized) else [counts] for counts in saved]
            resumed._closed_from = tuple(
                tuple(map(Tally, round_.mechanisms, counts))
                for round_, counts in zip(closed, levels, strict=True)
            )
        except (LookupError, OverflowError, TypeError, ValueError, InvalidInput) as problem:
            raise InvalidFile(f"the saved campaign is incomplete or malformed: {problem}") from None
        return resumed

    def save(self, path: str | Path) -> None:
        """Write the campaign to a file; written beside it first, so that a crash leaves the old one."""
        data = canonical_bytes(self.to_dict()) + b"\n"
        with replaced_file(path) as handle:
            handle.write(data)

    @classmethod
    def load(cls, path: str | Path) -> Campaign:
        """Resume from a saved file."""
        words = f"{path} must be a saved campaign: JSON in UTF-8 that names no entry twice"
        return cls.from_dict(file_json(Path(path).read_bytes(), words))

    def __repr__(self) -> str:
        total = sum(round_.total for round_ in self._rounds)
        closed = f"{number_of(len(self.rounds), 'round')} closed"
        return f"Campaign({self.space!r}, {closed}, {number_of(total, 'report')})"
