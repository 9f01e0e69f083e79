"""How far fakes reach, how well they are found, and how isolated places are hidden: measured.

Run ``python benchmarks/robustness.py PART…`` with the parts wanted (all of them for none), in the
folder of the repository, with the check-ins of the papers in ``GEOVEIL_DATA`` or ``../shared/data``.
Each part prints a table of docs/robustness.md or docs/privic.md, or draws its picture into docs/images;
attacks on whole campaigns are in benchmarks/attacks.py.
Distances are in cells of half a kilometre, as in the papers; ε is per cell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.campaign.elastic_design import DesignedElastic
from geoveil.campaign.long_run import LongRun, long_run
from geoveil.campaign.rules import PromiseRule, averaged
from geoveil.channel.channel import Channel, Tally
from geoveil.errors import percent
from geoveil.estimate import DenseOperator, Estimate, maximise
from geoveil.measure import (
    mean_posterior,
    most_crowded_cell,
    most_isolated_cell,
    plant_island,
    report_within,
)
from geoveil.papers.data import PARIS, SAN_FRANCISCO, City, DataFolder, MissingData, load_city
from geoveil.papers.report import style
from geoveil.plot.curves import COLOURS
from geoveil.plot.maps import Panel, draw_maps
from geoveil.verify.alarm import PoisoningAlarm
from geoveil.verify.manipulation import expected_counts, manipulation_gain

IMAGES = Path("docs/images")
REPORTS = 100_000
SHARE = 0.01
SHARES = (0.001, 0.01, 0.05)
BOUNDS = (4.0, 2.6)
"""What a report may weigh where that is bounded, at ε = 2 per cell: nearly free, and for gains below 3."""
ISLAND_CELL, ISLAND_RADIUS = 16, 2.9
"""Row 1, column 1 and the two rows and columns around: gives the posteriors of docs/privic.md."""


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
    """What a bound on the leverage does at ε = 2: gain by share of fakes, leakage, distance."""
    row("setting", "bound", "leverage", *(f"gain at {percent(share, 1)}" for share in SHARES), "leakage",
        "distance")  # fmt: skip
    for setting in SETTINGS[1::2]:
        for bound in (None, *BOUNDS):
            made, truth = setting.mechanism(most_leverage=bound), setting.city.truth
            gains = [manipulation_gain(made, truth, share=share).gain for share in SHARES]
            row(setting, bound, made.leverage, *gains, made.leakage_bits, made.mean_distance_km)


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


SCENARIOS: dict[str, Scenario] = {"one round": one_round, "opening round": opening_round}
RUNS = {"Paris": (200, 165), "San Francisco": (60, 60)}


def alarm() -> None:
    """False alarms and attacks found, by setting and scenario."""
    row("scenario", "setting", "false alarms", "found", "named", "gain of those missed")
    for name, scenario in SCENARIOS.items():
        for setting in SETTINGS:
            honest, attacks = RUNS[setting.name]
            quiet = [None] * honest
            false = sum(raised for raised, *_ in checks(setting, scenario, quiet, REPORTS, 0.0))
            found = list(checks(setting, scenario, drawn_targets(setting, attacks), REPORTS, SHARE))
            raised, named, gains = (np.array(each) for each in zip(*found, strict=True))
            missed = f"{gains[~raised].mean():.1f}" if (~raised).any() else "–"
            row(
                name,
                setting,
                f"{false} of {honest}",
                f"{raised.sum()} of {attacks}",
                f"{named.sum()}",
                missed,
            )


def curve() -> None:
    """Attacks found by number of reports and share of fakes: Paris, one round."""
    sizes, shares = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000), (0.003, 0.01, 0.03)
    row("setting", "fakes", *sizes)
    for setting in SETTINGS[:2]:
        for share in shares:
            found = [found_share(setting, one_round, size, share) for size in sizes]
            row(setting, percent(share, 1), *found)


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


def explained(lacks: list[float]) -> str:
    """How many lack too little likelihood to be noticed at 2 % among some hundred reports."""
    return percent(float(np.mean(np.array(lacks) < 15)), 0)


def attacked(channel: Channel, setting: Setting, target: int) -> FloatArray:
    """The law of reports with fakes among them."""
    honest = channel.push(setting.city.truth)
    return (1 - SHARE) * honest + SHARE * np.eye(honest.size)[target]


def lack(channels: Sequence[Channel], setting: Setting, target: int) -> float:
    """How much likelihood the best honest map lacks on the expected counts, as a χ² statistic."""
    matrix = np.hstack([channel.matrix() / len(channels) for channel in channels])
    laws = [attacked(channel, setting, target) for channel in channels]
    law = np.concatenate(laws) / len(channels)
    best = maximise(
        DenseOperator(matrix), law, stop=gv.CertifiedWithin(1e-6), accelerate=gv.ActiveSetNewton()
    )
    return float(2 * REPORTS * (law @ np.log(law) - best.log_likelihood))


# -- steering and the seed round -------------------------------------------------------------------


class Unaveraged(PromiseRule):
    """A campaign whose mechanisms are designed for the estimate itself."""

    def steering(self, space: gv.Space, estimated: FloatArray) -> FloatArray:
        return estimated


def steering() -> None:
    """P(own cell) of somebody in a lonely cell while fakes mimic people there for four rounds."""
    row(
        "setting", "fakes", "loneliest", "opening", "highest, designed for the estimate", "averaged"
    )
    for setting in SETTINGS[:2]:
        for share in (0.05, 0.2):
            for name, cell in lonely(setting.city).items():
                plain, ours = (
                    own_cell(setting, rule(setting.epsilon), cell, share)
                    for rule in (Unaveraged, PromiseRule)
                )
                row(
                    setting,
                    percent(share, 0),
                    name,
                    ours[0],
                    max(plain[1:]),
                    max(ours[1:]),
                )


def lonely(town: City) -> dict[str, int]:
    """The cells with the fewest people around: in a corner, at an edge, inside."""
    grid = town.grid
    around = averaged(grid, town.truth, epsilon_per_km=1.0, between="cells")
    line, column = np.divmod(np.arange(grid.size), grid.columns)
    top = np.minimum(line, grid.rows - 1 - line) == 0
    side = np.minimum(column, grid.columns - 1 - column) == 0
    kinds = {"corner": top & side, "edge": top ^ side, "inside": ~top & ~side}
    return {
        name: int(np.flatnonzero(kind)[np.argmin(around[kind])]) for name, kind in kinds.items()
    }


def own_cell(setting: Setting, rule: PromiseRule, cell: int, share: float) -> list[float]:
    """P(own cell) under every mechanism of a campaign of four rounds."""
    campaign, fakes = gv.Campaign(setting.city.grid, rule=rule), round(share * REPORTS / 4)
    chances = []
    for _ in range(4):
        mechanism = campaign.mechanism
        chances.append(float(mechanism.row(cell)[cell]))
        honest = expected_counts(mechanism.push(setting.city.truth), REPORTS // 4 - fakes)
        sent = expected_counts(mechanism.row(cell), fakes)
        campaign.receive(Tally(mechanism, honest + sent))
        campaign.close_round()
    return [*chances, float(campaign.mechanism.row(cell)[cell])]


def seed() -> None:
    """How far the error bars of an honest opening round of 10,000 let a crowd be moved."""
    row("setting", "largest crowd", "down at most", "up at most", "median cell, up at most")
    for setting in SETTINGS:
        mechanism, truth = setting.mechanism(opening=True), setting.city.truth
        tally = Tally(mechanism, expected_counts(mechanism.push(truth), 10_000))
        low, high = gv.IterativeBayesianUpdate().fit(tally).interval(1 - 0.05 / truth.size)
        crowd = int(np.argmax(truth))
        texts = (truth[crowd], truth[crowd] - low[crowd], high[crowd] - truth[crowd],
                 np.median(high - truth))  # fmt: skip
        row(setting, *(f"{value:.3f}" for value in texts))


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
        possible = percent(run.chain.possible.mean(), decimals=1)
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
    cells = most_isolated_cell(paris.grid, island), most_crowded_cell(paris.grid, island)
    shown = dict(island_mechanisms(paris, island))
    for name, mechanism in shown.items():
        found = [
            measured
            for cell in cells
            for measured in (
                report_within(mechanism, cell, radius_km=2.0),
                mean_posterior(mechanism, cell, island),
            )
        ]
        row(name, *found)
    draw_elastic(paris, cells, shown)


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


def draw_elastic(paris: City, cells: Sequence[int], shown: Mapping[str, Channel]) -> None:
    """Where the reports of the island and of the crowd go."""
    from matplotlib.figure import Figure

    names = ("planar Laplace", "camouflage 0.5", "camouflage 1")
    for part, cell in zip(("isolated", "crowded"), cells, strict=True):
        panels = [Panel(name, shown[name].row(cell)) for name in names]
        with style():
            figure = Figure(figsize=(9.6, 2.7), layout="constrained")
            draw_maps(figure, paris.grid, panels, label="share of the reports")
            for axis in figure.axes[:3]:
                axis.plot(*paris.grid.centres[cell], "x", color=COLOURS[1])
            save(figure, f"robustness-{part}.png")


PARTS: dict[str, Callable[[], None]] = {
    "gain": gain,
    "bounded": bounded,
    "alarm": alarm,
    "curve": curve,
    "limit": limit,
    "steering": steering,
    "seed": seed,
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
