"""How far fakes reach, how well they are found, and how isolated places are hidden: measured.

Run ``python benchmarks/robustness.py PART…`` with the parts wanted (all of them for none), in the
folder of the repository, with the check-ins of the papers in ``GEOVEIL_DATA`` or ``../shared/data``.
Each part prints the tables of docs/robustness.md and draws its picture into docs/images.
Distances are in cells of half a kilometre, as in the papers; ε is per cell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.campaign import Crowd, simulate
from geoveil.campaign.elastic_design import DesignedElastic
from geoveil.campaign.long_run import LongRun, long_run
from geoveil.channel.channel import Channel, Tally
from geoveil.estimate import DenseOperator, Estimate, maximise
from geoveil.measure.elasticity import Elasticity, elasticity, plant_island
from geoveil.papers.data import PARIS, SAN_FRANCISCO, City, DataFolder, MissingData, load_city
from geoveil.papers.privic.cycles import PARIS_CAMPAIGN, SAN_FRANCISCO_CAMPAIGN
from geoveil.papers.report import style
from geoveil.plot.curves import COLOURS
from geoveil.plot.maps import Panel, draw_maps
from geoveil.verify.alarm import PoisoningAlarm
from geoveil.verify.guard import GuardedUpdate
from geoveil.verify.manipulation import (
    campaign_manipulation_gain,
    expected_counts,
    manipulation_gain,
)

IMAGES = Path("docs/images")
REPORTS = 100_000
SHARE = 0.01
ROUNDS = 4
SHARES = (0.001, 0.01, 0.05)
BOUNDS = (4.0, 2.6)
"""What a report may weigh where that is bounded, at ε = 2 per cell: nearly free, and for gains below 3."""
HEAD_STARTS = (1_000, 3_000, 10_000)
ISLAND_CELL, ISLAND_RADIUS = 16, 2.9
"""Row 1, column 1 and the two rows and columns around: gives the posteriors of docs/robustness.md."""


@cache
def city(name: str) -> City:
    """Paris or San Francisco, as PRIVIC cuts it."""
    return load_city({"Paris": PARIS, "San Francisco": SAN_FRANCISCO}[name], DataFolder())


@dataclass(frozen=True)
class Setting:
    """A city and a promise, ε per cell."""

    name: str
    epsilon: float

    @property
    def city(self) -> City:
        return city(self.name)

    def mechanism(
        self,
        camouflage: float = 0.5,
        *,
        opening: bool = False,
        most_leverage: float | None = None,
    ) -> DesignedElastic:
        """Designed for the truth, or (opening) the first mechanism of a campaign, which knows nothing."""
        return gv.elastic(
            self.city.grid,
            None if opening else self.city.truth,
            epsilon_per_km=self.epsilon,
            camouflage=camouflage,
            most_leverage=most_leverage,
            between="cells",
        )

    def campaign(self, **arguments: Any) -> gv.Campaign:
        """A campaign at the default dial, between cells."""
        dial = {"epsilon_per_km": self.epsilon, "camouflage": 0.5, "between": "cells"}
        return gv.Campaign(self.city.grid, **{**dial, **arguments})

    def __str__(self) -> str:
        return f"{self.name} ε={self.epsilon:g}"


SETTINGS = [Setting(name, epsilon) for name in ("Paris", "San Francisco") for epsilon in (1.0, 2.0)]


def row(*fields: Any) -> None:
    """One line of a Markdown table, shown at once."""
    texts = (f"{field:.2f}" if isinstance(field, float) else str(field) for field in fields)
    print("| " + " | ".join(texts) + " |", flush=True)


def save(figure: Any, name: str) -> None:
    """Into the documentation, small."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / name, dpi=110, metadata={"Software": None})


# -- manipulation gain -----------------------------------------------------------------------------


def gain() -> None:
    """Worst and median target, for fixed mechanisms."""
    row("setting", "mechanism", "worst gain", "at cell", "median target")
    for setting in SETTINGS:
        made = {f"camouflage {dial:g}": setting.mechanism(dial) for dial in (0, 0.5, 0.9, 1)}
        made["camouflage 0.5, opening round"] = setting.mechanism(opening=True)
        if setting.epsilon == 2:
            for bound in BOUNDS:
                name = f"camouflage 0.5, leverage at most {bound:g}"
                made[name] = setting.mechanism(most_leverage=bound)
        for name, mechanism in made.items():
            prior = setting.city.truth
            found = manipulation_gain(mechanism, prior, share=SHARE, reports=REPORTS)
            row(setting, name, found.gain, found.target, found.median)


def bounded() -> None:
    """What a bound on the leverage does at ε = 2: gain by share of fakes, leakage, distance, error."""
    row("setting", "bound", "leverage", *(f"gain at {share:.1%}" for share in SHARES), "leakage",
        "distance", "EMD, five campaigns", "of the paper's rule")  # fmt: skip
    for setting in SETTINGS[1::2]:
        published = np.mean([error(setting, seed, as_published=True) for seed in range(5)])
        for bound in (None, *BOUNDS):
            made, truth = setting.mechanism(most_leverage=bound), setting.city.truth
            gains = [manipulation_gain(made, truth, share=share).gain for share in SHARES]
            ours = np.mean([error(setting, seed, most_leverage=bound) for seed in range(5)])
            row(setting, bound, made.leverage, *gains, made.leakage_bits, made.mean_distance_km,
                f"{ours:.3f}", float(ours / published))  # fmt: skip


def error(setting: Setting, seed: int, *, as_published: bool = False, **arguments: Any) -> float:
    """The error of a campaign in which everybody reports once, in cells; as PRIVIC's tables go."""
    paper = PARIS_CAMPAIGN if setting.name == "Paris" else SAN_FRANCISCO_CAMPAIGN
    campaign = (
        paper.as_published(setting.city, setting.epsilon / 2)
        if as_published
        else setting.campaign(**arguments)
    )
    crowd = Crowd(setting.city.people)
    return simulate(campaign, crowd, rounds=paper.cycles + 1, seed=seed).rounds[-1].error_km


def campaign() -> None:
    """The same over campaigns of four rounds: plain, guarded, and with a bound on the leverage."""
    row("setting", "campaign", "fakes", "from round", "worst gain", "at cell", "median target")
    for setting in SETTINGS:
        prior = setting.city.truth
        screened = manipulation_gain(setting.mechanism(), prior, candidates=1)
        likely = np.argsort(-screened.gains)[:12]
        others = np.random.default_rng(3).permutation(prior.size)[:12]
        kinds: dict[str, dict[str, Any]] = {"plain": {}, "guarded": {"guarded": True}}
        if setting.epsilon == 2:
            for bound in BOUNDS:
                kinds[f"leverage at most {bound:g}"] = {"most_leverage": bound}
        for kind, arguments in kinds.items():
            for share, onset in ((0.001, 1), (0.01, 1), (0.05, 1), (0.01, 2), (0.01, ROUNDS)):
                found = campaign_manipulation_gain(
                    partial(setting.campaign, **arguments), prior, rounds=ROUNDS,
                    targets=np.union1d(likely, others), share=share, onset=onset,
                )  # fmt: skip
                row(setting, kind, f"{share:.1%}", onset, found.gain, found.target, found.median)


def guard() -> None:
    """The plain update and the guarded one against the same attacks, one round, sampled counts.

    On the ten worst targets, the ten largest crowds and others at random; the least gain says how far
    a crowd can be made to look smaller by somebody who is found.
    """
    row("setting", "attacks", "plain: worst", "mean", "guarded: worst", "mean", "least")
    for setting, attacks in zip(SETTINGS, (80, 80, 40, 40), strict=True):
        generator = np.random.default_rng(5)
        truth, moved = setting.city.truth, []
        worst = np.argsort(-manipulation_gain(setting.mechanism(), truth, candidates=1).gains)[:10]
        chosen = [*worst, *np.argsort(-truth)[:10], *generator.permutation(truth.size)]
        for target in chosen[:attacks]:
            tallies, plain = one_round(setting, generator, REPORTS, SHARE, int(target))
            kept = GuardedUpdate(PoisoningAlarm(replicates=99)).fit(tallies)
            pair = (plain.distribution[target], kept.distribution[target])
            moved.append([(share - truth[target]) / SHARE for share in pair])
        gains, kept_gains = np.array(moved).T
        row(
            setting, attacks, gains.max(), gains.mean(), kept_gains.max(), kept_gains.mean(),
            kept_gains.min(),
        )  # fmt: skip


# -- alarm -----------------------------------------------------------------------------------------


def one_round(
    setting: Setting,
    generator: np.random.Generator,
    reports: int,
    share: float,
    target: int | None,
) -> tuple[list[Tally], Estimate]:
    """One round under the mechanism for the truth."""
    tally = poisoned(setting.mechanism(), setting.city.truth, generator, reports, share, target)
    return [tally], gv.IterativeBayesianUpdate().fit(tally)


def opening_round(
    setting: Setting,
    generator: np.random.Generator,
    reports: int,
    share: float,
    target: int | None,
) -> tuple[list[Tally], Estimate]:
    """The first round of a campaign, poisoned."""
    mechanism = setting.mechanism(opening=True)
    tally = poisoned(mechanism, setting.city.truth, generator, reports, share, target)
    return [tally], gv.IterativeBayesianUpdate().fit(tally)


def later_round(
    setting: Setting,
    generator: np.random.Generator,
    reports: int,
    share: float,
    target: int | None,
    honest: int = 0,
) -> tuple[list[Tally], Estimate]:
    """So many honest reports in the first round, then a poisoned round of ``reports``."""
    campaign, truth = setting.campaign(), setting.city.truth
    for number, wanted in ((honest, None), (reports, target)):
        campaign.receive(poisoned(campaign.mechanism, truth, generator, number, share, wanted))
        campaign.close_round()
    return [done.tally for done in campaign.rounds], campaign.estimate


def rounds(
    setting: Setting,
    generator: np.random.Generator,
    reports: int,
    share: float,
    target: int | None,
    honest: int = 0,
) -> tuple[list[Tally], Estimate]:
    """A campaign of four rounds, the first ``honest`` of them without fakes."""
    campaign, truth = setting.campaign(), setting.city.truth
    for number in range(ROUNDS):
        wanted = target if number >= honest else None
        made = poisoned(campaign.mechanism, truth, generator, reports // ROUNDS, share, wanted)
        campaign.receive(made)
        campaign.close_round()
    return [done.tally for done in campaign.rounds], campaign.estimate


def history(setting: Setting, *rest: Any) -> tuple[list[Tally], Estimate]:
    """A campaign whose first round is honest."""
    return partial(rounds, honest=1)(setting, *rest)


def poisoned(
    mechanism: Channel,
    truth: FloatArray,
    generator: np.random.Generator,
    reports: int,
    share: float,
    target: int | None,
) -> Tally:
    """Reports of honest people and, where there is a target, fakes of that report among them."""
    fakes = 0 if target is None else round(share * reports)
    law = mechanism.push(truth)
    counts = generator.multinomial(reports - fakes, law / law.sum())
    if target is not None:
        counts[target] += fakes
    return Tally(mechanism, counts)


Scenario = Callable[..., tuple[list[Tally], Estimate]]


def checks(
    setting: Setting, scenario: Scenario, targets: Sequence[int | None], reports: int, share: float
) -> Iterator[tuple[bool, bool, float]]:
    """For each target: whether the alarm was raised, whether it named the target, and the gain."""
    generator = np.random.default_rng(11)
    alarm = PoisoningAlarm(replicates=99)
    for target in targets:
        tallies, estimate = scenario(setting, generator, reports, share, target)
        result = alarm.check(tallies, estimate)
        moved = estimate.distribution - setting.city.truth
        gained = 0.0 if target is None else float(moved[target] / share)
        yield result.raised, target in result.suspicious, gained


def drawn_targets(setting: Setting, number: int) -> list[int | None]:
    """Cells at random, each at most once."""
    order = np.random.default_rng(2).permutation(setting.city.truth.size)
    return [int(cell) for cell in order[:number]]


SCENARIOS: dict[str, Scenario] = {
    "one round": one_round,
    "opening round": opening_round,
    "four rounds, first honest": history,
    "four rounds, all poisoned": rounds,
}
RUNS = {"Paris": (200, 165), "San Francisco": (60, 60)}
CAMPAIGN_RUNS = {"Paris": (60, 60), "San Francisco": (25, 30)}


def alarm() -> None:
    """False alarms and attacks found, by setting and scenario."""
    row("scenario", "setting", "false alarms", "found", "named", "gain of those missed")
    for name, scenario in SCENARIOS.items():
        for setting in SETTINGS:
            single = scenario in (one_round, opening_round)
            honest, attacks = (RUNS if single else CAMPAIGN_RUNS)[setting.name]
            quiet = [None] * (
                0 if scenario is rounds else honest
            )  # honest rounds are the same twice
            false = sum(raised for raised, *_ in checks(setting, scenario, quiet, REPORTS, 0.0))
            found = list(checks(setting, scenario, drawn_targets(setting, attacks), REPORTS, SHARE))
            raised, named, gains = (np.array(each) for each in zip(*found, strict=True))
            missed = f"{gains[~raised].mean():.1f}" if (~raised).any() else "–"
            shown = f"{false} of {len(quiet)}" if quiet else "as above"
            row(name, setting, shown, f"{raised.sum()} of {attacks}", f"{named.sum()}", missed)


def head_start() -> None:
    """How many honest reports before an attack suffice to find it: 1 % fakes among 100,000 after."""
    row("setting", "honest reports before", "found", "false alarms")
    for setting in SETTINGS[1::2]:
        for honest in HEAD_STARTS:
            scenario = partial(later_round, honest=honest)
            counts = [
                sum(raised for raised, *_ in checks(setting, scenario, targets, REPORTS, share))
                for targets, share in ((drawn_targets(setting, 30), SHARE), ([None] * 30, 0.0))
            ]
            row(setting, honest, *(f"{number} of 30" for number in counts))


def curve() -> None:
    """Attacks found by number of reports and share of fakes: Paris, one round and with a history."""
    from matplotlib.figure import Figure

    sizes, shares = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000), (0.003, 0.01, 0.03)
    row("scenario", "setting", "fakes", *sizes)
    with style():
        figure = Figure(figsize=(8.4, 3.2), layout="constrained")
        axes = figure.subplots(1, 3, sharey=True)
        panels = [(one_round, SETTINGS[0]), (one_round, SETTINGS[1]), (history, SETTINGS[1])]
        for axis, (scenario, setting) in zip(axes, panels, strict=True):
            name = "one round" if scenario is one_round else "first of four rounds honest"
            for colour, share in zip(COLOURS, shares, strict=False):
                found = [found_share(setting, scenario, size, share) for size in sizes]
                row(name, setting, f"{share:.1%}", *found)
                axis.plot(
                    sizes, found, marker="o", markersize=3.5, color=colour, label=f"{share:.1%}"
                )
            axis.axhline(0.9, color="0.6", linestyle=":")
            axis.set(xscale="log", xlabel="reports", title=f"{setting}\n{name}", ylim=(-0.02, 1.04))
        axes[0].set_ylabel("attacks found")
        axes[2].legend(title="fakes", fontsize=8)
        save(figure, "robustness-alarm.png")


def found_share(setting: Setting, scenario: Scenario, reports: int, share: float) -> float:
    """The share of 30 attacks that the alarm finds."""
    targets = drawn_targets(setting, 30)
    return float(np.mean([hit for hit, *_ in checks(setting, scenario, targets, reports, share)]))


def limit() -> None:
    """Attacks that a map of honest people explains: no test that allows for any map can find them."""
    row("setting", "explained in", "share of the targets")
    for setting in SETTINGS:
        opening, made = setting.mechanism(opening=True), setting.mechanism()
        fixed = {"one round": [made], "opening round": [opening], "both": [opening, made]}
        if setting.epsilon == 2:
            for bound in BOUNDS:
                name = f"one round, leverage at most {bound:g}"
                fixed[name] = [setting.mechanism(most_leverage=bound)]
        cells = range(0, setting.city.truth.size, 3)
        for name, channels in fixed.items():
            row(setting, name, explained([lack(channels, setting, cell) for cell in cells]))
        for name, onset in (("all poisoned", 1), ("first honest", 2)):
            found = [lack(published(setting, cell, onset), setting, cell, onset) for cell in cells]
            row(setting, f"four rounds, {name}", explained(found))


def explained(lacks: list[float]) -> str:
    """How many lack too little likelihood to be noticed at 2 % among some hundred reports."""
    return f"{np.mean(np.array(lacks) < 15):.0%}"


def published(setting: Setting, target: int, onset: int) -> list[Channel]:
    """The mechanisms of a campaign under attack from a round on, with the expected counts."""
    campaign, channels = setting.campaign(), []
    for number in range(1, ROUNDS + 1):
        channels.append(campaign.mechanism)
        law = attacked(channels[-1], setting, target if number >= onset else None)
        counts = expected_counts(law, REPORTS // ROUNDS)
        campaign.receive(Tally(channels[-1], counts))
        campaign.close_round()
    return channels


def attacked(channel: Channel, setting: Setting, target: int | None) -> FloatArray:
    """The law of reports, with fakes among them where there is a target."""
    honest = channel.push(setting.city.truth)
    if target is None:
        return honest
    return (1 - SHARE) * honest + SHARE * np.eye(honest.size)[target]


def lack(channels: Sequence[Channel], setting: Setting, target: int, onset: int = 1) -> float:
    """How much likelihood the best honest map lacks on the expected counts, as a χ² statistic."""
    matrix = np.hstack([channel.matrix() / len(channels) for channel in channels])
    wanted = [target if number >= onset else None for number in range(1, len(channels) + 1)]
    laws = [attacked(channel, setting, to) for channel, to in zip(channels, wanted, strict=True)]
    law = np.concatenate(laws) / len(channels)
    best = maximise(
        DenseOperator(matrix), law, stop=gv.CertifiedWithin(1e-6), accelerate=gv.ActiveSetNewton()
    )
    return float(2 * REPORTS * (law @ np.log(law) - best.log_likelihood))


# -- long run --------------------------------------------------------------------------------------


def long() -> None:
    """Chains of the published rule on two and three cells, beside simulated runs."""
    from matplotlib.figure import Figure

    row(
        "truth",
        "people",
        "states",
        "pairs possible",
        "ψ-mean",
        "error",
        "TV on mesh",
        "TV as published",
    )
    for truth, people, parts in (
        ((0.7, 0.3), 40, 40), ((0.7, 0.3), 200, 40), ((0.7, 0.3), 1000, 40),
        ((0.5, 0.3, 0.2), 100, 20), ((0.4, 0.3, 0.2, 0.1), 20, 12),
    ):  # fmt: skip
        run = chain(truth, people, parts)
        mean = " ".join(f"{share:.3f}" for share in run.mean)
        near = [visits(run, on_mesh=on_mesh, runs=3) for on_mesh in (True, False)]
        apart = [0.5 * np.abs(each - run.chain.stationary).sum() for each in near]
        possible = f"{run.chain.possible.mean():.1%}"
        row(truth, people, len(run.mesh.states), possible, mean, run.expected_error, *apart)
        print(f"<!-- {run.summary()} -->")
    with style():
        figure = Figure(figsize=(7.6, 2.9), layout="constrained")
        for axis, people in zip(figure.subplots(1, 2), (40, 200), strict=True):
            draw_long(axis, chain((0.7, 0.3), people, 40))
        save(figure, "robustness-long-run.png")


def chain(truth: tuple[float, ...], people: int, parts: int) -> LongRun:
    """At β = 1 per cell with the paper's step numbers for Paris."""
    return long_run(
        gv.Line(len(truth)), truth, beta_per_km=1.0, design_steps=8, update_steps=10,
        people=people, parts=parts,
    )  # fmt: skip


def visits(run: LongRun, *, on_mesh: bool, runs: int) -> FloatArray:
    """How often each state is visited, over runs of 600 cycles from the middle of the mesh."""
    middle = int(run.mesh.nearest(np.full((1, run.space.size), 1 / run.space.size))[0])
    seen = [
        run.simulate(600, randomness=gv.seeded(seed), on_mesh=on_mesh, start=middle)[20:]
        for seed in range(runs)
    ]
    return np.bincount(np.concatenate(seen), minlength=len(run.mesh.states)) / (580 * runs)


def draw_long(axis: Any, run: LongRun) -> None:
    """Two cells: the share believed to be in the first, in the long run."""
    shares = run.mesh.states[:, 0]
    axis.plot(shares, run.chain.stationary, color=COLOURS[0], label="stationary law")
    for on_mesh, colour, name in ((True, COLOURS[2], "simulated, on the mesh"),
                                  (False, COLOURS[1], "simulated, as published")):  # fmt: skip
        seen = visits(run, on_mesh=on_mesh, runs=3)
        axis.plot(shares, seen, "o", markersize=2.5, color=colour, label=name)
    axis.axvline(run.truth[0], color="0.6", linestyle=":", label="truth")
    axis.set(
        ylabel="share of cycles",
        xlabel="share believed in the first cell",
        title=f"{run.people} people a cycle",
    )
    axis.legend(fontsize=7)


# -- elastic property ------------------------------------------------------------------------------


def elastic() -> None:
    """The planted island of Paris under the dial and under Laplace, at ε = 0.8 per cell."""
    paris = city("Paris")
    island = plant_island(paris.grid, paris.truth, cell=ISLAND_CELL, radius_km=ISLAND_RADIUS)
    row(
        "mechanism",
        "island within 2 cells",
        "island posterior",
        "crowd within 2",
        "crowd posterior",
    )
    shown: dict[str, Elasticity] = {}
    for name, mechanism in island_mechanisms(paris, island):
        shown[name] = found = elasticity(mechanism, island, radius_km=2.0)
        alone, crowd = found.isolated, found.crowded
        row(name, alone.within, alone.mean_posterior, crowd.within, crowd.mean_posterior)
    draw_elastic(paris, island, shown)


def island_mechanisms(paris: City, island: FloatArray) -> Iterator[tuple[str, Channel]]:
    """The dial with the paper's seven updates of c, then Laplace."""
    for dial in (0.0, 0.5, 0.9, 1.0):
        yield (
            f"camouflage {dial:g}",
            gv.elastic(
                paris.grid,
                island,
                epsilon_per_km=0.8,
                camouflage=dial,
                stop=gv.Steps(7),
                between="cells",
            ),
        )
    yield "planar Laplace", gv.PlanarLaplace(paris.grid, epsilon_per_km=0.8)
    yield "planar geometric", gv.PlanarGeometric(paris.grid, epsilon_per_km=0.8)


def draw_elastic(paris: City, island: FloatArray, shown: dict[str, Elasticity]) -> None:
    """Where people are, and where the reports of the island and of the crowd go."""
    from matplotlib.figure import Figure

    names = ("planar Laplace", "camouflage 0.5", "camouflage 1")
    for part in ("isolated", "crowded"):
        panels = [Panel(name, getattr(shown[name], part).reports) for name in names]
        with style():
            figure = Figure(figsize=(9.6, 2.7), layout="constrained")
            draw_maps(figure, paris.grid, panels, label="share of the reports")
            cell = getattr(shown[names[0]], part).cell
            for axis in figure.axes[:3]:
                axis.plot(*paris.grid.centres[cell], "x", color=COLOURS[1])
            save(figure, f"robustness-{part}.png")


PARTS: dict[str, Callable[[], None]] = {
    "gain": gain,
    "bounded": bounded,
    "campaign": campaign,
    "guard": guard,
    "alarm": alarm,
    "head-start": head_start,
    "curve": curve,
    "limit": limit,
    "long-run": long,
    "elastic": elastic,
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        print(f"\n## {part}\n", flush=True)
        try:
            PARTS[part]()
        except MissingData as missing:
            sys.exit(f"robustness.py: error: {missing}")
