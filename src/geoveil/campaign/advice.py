"""The whole dial at one promise: what each setting costs and hides, and a recommendation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from geoveil import arrays
from geoveil.arrays import (
    ArrayLike,
    FloatArray,
    checked_seed,
    count,
    one_blas_thread,
    positive,
    prior_over,
)
from geoveil.campaign.elastic_design import Between, checked_between, elastic
from geoveil.channel.channel import Channel
from geoveil.channel.guarantee import BetweenPositions, GeoIndistinguishability, Guarantee
from geoveil.channel.words import promise_of_a_report
from geoveil.errors import InvalidInput, number_of
from geoveil.estimate import IterativeBayesianUpdate, Progress
from geoveil.holding import Drawn, Framed, Shown
from geoveil.measure import (
    check_transport,
    earth_movers_distance_km,
    mean_distance_km,
    mean_posterior,
    most_isolated_cell,
    mutual_information_bits,
)
from geoveil.mechanism import Disc, Exponential, PlanarGeometric, PlanarLaplace
from geoveil.randomness import seeded
from geoveil.space import Grid, Space

DIAL = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class Choice:
    """One mechanism at the promise, seen from all sides."""

    name: str
    camouflage: float | None
    """``None`` for the mechanisms beside the dial."""
    mechanism: Channel
    mean_distance_km: float
    """From a person's position to the report, or from the cell, as the mechanism draws."""
    leakage_bits: float
    expected_error_km: float
    """Earth mover's distance of the estimate from one report of so many people each, on average."""
    isolated_posterior: float
    """The attacker's mean posterior on the most isolated place; its prior share is the least possible."""
    leverage: float
    """How many honest reports a fake one may weigh for, to first order (``Channel.leverage``)."""


@dataclass(frozen=True)
class Advice(Framed, Drawn, Shown):
    """The dial and its neighbours at one promise."""

    epsilon_per_km: float
    people: int
    isolated_cell: int
    choices: tuple[Choice, ...]

    @property
    def dial(self) -> tuple[Choice, ...]:
        """The settings of the dial, from the sharpest map to the least leakage."""
        return tuple(choice for choice in self.choices if choice.camouflage is not None)

    @property
    def recommended(self) -> Choice:
        """The setting that does best at error × √(leakage × belief in the isolated place).

        Halving what leaks on both counts is worth doubling the error; only ratios matter, so units do
        not. Camouflage 1 is left out: it may empty cells (see ``DesignedElastic.warning``).
        """
        allowed = [choice for choice in self.dial if choice.camouflage != 1.0]
        return min(
            allowed,
            key=lambda c: c.expected_error_km * (c.leakage_bits * c.isolated_posterior) ** 0.5,
        )

    @property
    def promise(self) -> str:
        """What every setting keeps, in words."""
        promises = [choice.mechanism.guarantee for choice in self.dial]
        slacks = [promise.slack for promise in promises if isinstance(promise, BetweenPositions)]
        common: Guarantee = GeoIndistinguishability(self.epsilon_per_km)
        if slacks:
            common = BetweenPositions(self.epsilon_per_km, max(slacks))
        return promise_of_a_report(common, self.dial[0].mechanism.space.unit)

    def sentence(self) -> str:
        """The recommendation in one sentence."""
        best, sharp = self.recommended, self.dial[0]
        promise = f"every setting keeps the promise, {self.promise}"
        error = f"{best.expected_error_km * 1000:.0f} m off"
        belief = (
            f"an attacker believes in the most isolated place with {best.isolated_posterior:.2f}"
        )
        reports = number_of(self.people, "report")
        if best is sharp:
            return (
                f"Camouflage 0: with {reports} the map is expected to be {error} and "
                f"{belief}; more camouflage would cost more than it hides here; {promise}."
            )
        return (
            f"Camouflage {best.camouflage:g}: with {reports} the map is expected to be "
            f"{error} (sharpest setting: {sharp.expected_error_km * 1000:.0f} m) and {belief} instead of "
            f"{sharp.isolated_posterior:.2f}; {promise}."
        )


@one_blas_thread()
def advise(
    space: Space,
    prior: ArrayLike,
    *,
    epsilon_per_km: float,
    people: int = 10_000,
    most_leverage: float | None = None,
    between: Between | None = None,
    repeats: int = 3,
    seed: int = 1,
    progress: Progress | None = None,
) -> Advice:
    """Every setting of the dial at a promise, beside planar geometric, Laplace, exponential and discs.

    All settings have the same worst-case promise, between positions or cells as in ``elastic``. Those beside
    the dial have the same number between cells, whatever the dial's is between: a weaker promise on a map.
    Discs (:class:`~geoveil.Disc`, on grids) keep it by losing no more between any two cells than it allows
    between neighbours. Those of which no law is computed for noise as wide are left out. The error is
    measured: ``people`` are drawn from the prior, report, and are estimated, ``repeats`` times over.
    The most isolated place is sought among cells with at least half of an equal share.
    ``most_leverage`` bounds the leverage of every setting of the dial (see ``elastic``).
    """
    check_transport(space)
    tell = arrays.teller(progress)
    people_at = prior_over(prior, space.size)
    epsilon = positive("epsilon_per_km", epsilon_per_km)
    number, start = count("people", people), checked_seed(seed)
    lived_in = np.where(people_at >= 0.5 / space.size, people_at, 0.0)
    isolated = most_isolated_cell(space, lived_in / lived_in.sum())
    between = checked_between(between, space)
    dial = partial(
        elastic,
        space,
        people_at,
        epsilon_per_km=epsilon,
        most_leverage=most_leverage,
        between=between,
    )
    makers: list[tuple[str, float | None, Callable[[], Channel]]] = [
        (f"camouflage {k:g}", k, partial(dial, camouflage=k)) for k in DIAL
    ]
    beside: dict[str, Callable[[], Channel]] = {
        "exponential": partial(Exponential, space, epsilon_per_km=epsilon)
    }
    if isinstance(space, Grid):
        beside = {
            "planar geometric": partial(PlanarGeometric, space, epsilon_per_km=epsilon),
            "planar Laplace": partial(PlanarLaplace, space, epsilon_per_km=epsilon),
            **beside,
            "discs": partial(Disc, space, epsilon=epsilon * space.cell_km),
        }
    weaker = ", between cells" if between == "positions" else ""
    makers += [(f"{name}{weaker}", None, make) for name, make in beside.items()]
    choices = []
    for step, (name, camouflage, make) in enumerate(makers, start=1):
        try:
            mechanism = make()
        except InvalidInput:
            if camouflage is not None:
                raise
            continue
        choices.append(
            Choice(
                name=name,
                camouflage=camouflage,
                mechanism=mechanism,
                mean_distance_km=mean_distance_km(mechanism, people_at),
                leakage_bits=mutual_information_bits(mechanism, people_at),
                expected_error_km=_expected_error_km(mechanism, people_at, number, repeats, start),
                isolated_posterior=mean_posterior(mechanism, isolated, people_at),
                leverage=mechanism.leverage,
            )
        )
        tell(step, len(makers))
    return Advice(epsilon, number, isolated, tuple(choices))


def _expected_error_km(
    mechanism: Channel, prior: FloatArray, people: int, repeats: int, seed: int
) -> float:
    """The mean over repeats; the truth is the prior, so the sampling of people counts too."""
    errors = []
    for repeat in range(count("repeats", repeats)):
        generator = np.random.default_rng([seed, repeat])
        cells = np.repeat(np.arange(prior.size), generator.multinomial(people, prior))
        tally = mechanism.tally(mechanism.sample(cells, randomness=seeded(seed * 1000 + repeat)))
        estimate = IterativeBayesianUpdate().fit(tally).distribution
        errors.append(earth_movers_distance_km(estimate, prior, mechanism.space))
    return float(np.mean(errors))
