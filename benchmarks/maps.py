"""``python -m benchmarks.maps [CITY] [--seeds N]``: the map that comes back from people where they are.

The check-ins of two cities are dealt into rounds, and everybody reports once, from where they are. Beside
the law between positions stands the published rule made pointwise: β = ε/2, which keeps ε between any two
positions whatever the weights, each report drawn from the position, rows that are means over the positions
of a cell, and the last round alone. Errors are earth mover's distances from the true crowd, in cells of the
city's grid; figures are shares of the published rule's, means of five seeds; cells of half the pitch with
camouflage are measured with ``--seeds 1`` only. ``python -m benchmarks maps`` measures both cities.
``python -m benchmarks.maps --told`` asks how much better an estimate could be that was told, for every
cell, where in it its people stand, and how many people would make up for not being told.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.timing import Figure, markdown
from geoveil.arrays import FloatArray, IntArray, uniform
from geoveil.campaign.campaign import Campaign
from geoveil.campaign.elastic_design import elastic
from geoveil.campaign.rules import PublishedRule
from geoveil.channel.channel import positions_on_a_side
from geoveil.channel.composed import DenseChannel
from geoveil.channel.operator import DenseOperator
from geoveil.estimate import CrossValidated, IterativeBayesianUpdate, Steps, maximise
from geoveil.measure import earth_movers_distance_km
from geoveil.mechanism.elastic import Elastic
from geoveil.papers.data import DataFolder, MissingData
from geoveil.papers.privic_cycles import CAMPAIGNS, PublishedCampaign
from geoveil.position.positional import PositionalElastic
from geoveil.randomness import seeded
from geoveil.space.grid import Grid

_SEEDS = 5
_TARGETS = {
    "Paris": {(2.0, 0.0): 0.45, (1.0, 0.0): 0.60, (2.0, 0.5): 0.62, (1.0, 0.5): 0.70},
    "San Francisco": {(2.0, 0.0): 0.40, (1.0, 0.0): 0.50, (2.0, 0.5): 0.66, (1.0, 0.5): 0.66},
}
"""By ε per cell and camouflage: the error as a share of the published rule's, at most."""
_AT_ONCE = 4000
"""People drawn for together."""
_MORE = 4, 16
"""How many times as many people, where more of them are asked about."""
_HINDSIGHT, _EVERY = 400, 20
"""Steps among which the best is looked for, and how many lie between two that are looked at."""


def maps() -> Iterator[Figure]:
    """Each error beside that of the published rule."""
    for published in CAMPAIGNS.values():
        yield from maps_of(published)


def maps_of(published: PublishedCampaign, seeds: int = _SEEDS) -> Iterator[Figure]:
    """Real positions, the same in cells of half the pitch, and people spread evenly in their cells."""
    try:
        real = Positions.of(published)
    except MissingData:
        return
    spread = real.spread_evenly()
    beside: dict[tuple[str, float], float] = {}
    for (epsilon, camouflage), limit in _TARGETS[published.cut.name].items():
        for name, people, finer in (
            ("", real, 1),
            (", cells of half the pitch", real, 2),
            (", people spread evenly in their cells", spread, 1),
        ):
            if camouflage > 0.0 and (people is spread or (finer > 1 and seeds > 1)):
                continue  # a design for every round and seed: hours
            key = name if finer == 1 else "", epsilon
            if key not in beside:
                beside[key] = _mean(people.published_error(epsilon, seed) for seed in range(seeds))
            ours = _mean(people.errors(epsilon, camouflage, finer, seeds))
            yield Figure(
                f"map error, {published.cut.name}, ε = {epsilon:g} per cell, camouflage {camouflage:g}{name}",
                0.0,
                ours / beside[key],
                "×",
                limit,
                f"{ours:.3f} cells; published rule {beside[key]:.3f}",
            )


def _mean(values: Iterator[float]) -> float:
    return float(np.mean(list(values)))


@dataclass(frozen=True, eq=False)
class Positions:
    """Where the people of a city are, in cells from its south-west corner."""

    published: PublishedCampaign
    places: FloatArray
    """(n, 2): east and north."""

    @classmethod
    def of(cls, published: PublishedCampaign) -> Positions:
        """Everybody inside the grid."""
        cut = published.cut
        points = DataFolder().check_ins(cut.file)
        places = np.stack(
            ((points.lng - cut.west) / cut.lng_step, (points.lat - cut.south) / cut.lat_step), -1
        )
        inside = (places >= 0.0) & (places < (cut.columns, cut.rows))
        return cls(published, places[inside.all(axis=1)])

    def spread_evenly(self) -> Positions:
        """Everybody elsewhere in the same cell."""
        elsewhere = np.random.default_rng(1).random(self.places.shape)
        return Positions(self.published, np.floor(self.places) + elsewhere)

    def at_one_place(self) -> Positions:
        """Everybody of a cell at one place in it, anywhere."""
        cells = np.floor(self.places)
        grid = self.grid()
        place = np.random.default_rng(2).random((grid.size, 2))
        return Positions(
            self.published,
            cells + place[grid.columns * cells[:, 1].astype(int) + cells[:, 0].astype(int)],
        )

    def repeated(self, times: int) -> Positions:
        """So many times as many people, at the same places."""
        return Positions(self.published, np.tile(self.places, (times, 1)))

    @property
    def rounds(self) -> int:
        """One more than the published campaign has, as its table counts the start."""
        return self.published.cycles + 1

    def grid(self, finer: int = 1) -> Grid:
        """The city's grid, measured in its cells, each cut into ``finer``²."""
        cut = self.published.cut
        return Grid(rows=cut.rows * finer, columns=cut.columns * finer, cell_km=1.0 / finer)

    @cached_property
    def cells(self) -> IntArray:
        """The cell of everybody."""
        column, row = np.floor(self.places).astype(np.int64).T
        return row * self.grid().columns + column

    @cached_property
    def truth(self) -> FloatArray:
        """The crowd by cell."""
        return np.bincount(self.cells, minlength=self.grid().size) / len(self.places)

    def error(self, estimate: FloatArray) -> float:
        """In cells of the city's grid, into which finer cells are put together."""
        grid = self.grid()
        finer = round((estimate.size / grid.size) ** 0.5)
        shape = grid.rows, finer, grid.columns, finer
        return earth_movers_distance_km(
            estimate.reshape(shape).sum(axis=(1, 3)).ravel(), self.truth, grid
        )

    def dealt(self, seed: int) -> list[IntArray]:
        """Who reports in each round."""
        return np.array_split(
            np.random.default_rng(seed).permutation(len(self.places)), self.rounds
        )

    def in_plane(self, grid: Grid, people: IntArray) -> FloatArray:
        """Places in the plane of a grid of this city."""
        corner = grid.centres[0] - grid.cell_km / 2.0
        return corner + self.places[people]

    # -- ours ----------------------------------------------------------------------------------

    def errors(self, epsilon: float, camouflage: float, finer: int, seeds: int) -> Iterator[float]:
        """The law between positions, all rounds pooled; one error a seed."""
        grid = self.grid(finer)
        if (
            camouflage == 0.0
        ):  # no crowd in the law: every round has the same, and reports may be pooled
            law = elastic(grid, epsilon_per_km=epsilon, camouflage=0.0, between="positions")
            for seed in range(seeds):
                everybody = self.in_plane(grid, np.arange(len(self.places)))
                reports = law.sample_at_km(everybody, randomness=seeded(seed))
                yield self.error(IterativeBayesianUpdate().fit(law.tally(reports)).distribution)
            return
        for seed in range(seeds):
            campaign = Campaign(
                grid, epsilon_per_km=epsilon, camouflage=camouflage, between="positions"
            )
            for number, people in enumerate(self.dealt(seed)):
                mechanism = campaign.mechanism
                assert isinstance(mechanism, PositionalElastic)
                source = seeded(1_000_003 * seed + number)
                places = self.in_plane(grid, people)
                campaign.receive(mechanism.tally(mechanism.sample_at_km(places, randomness=source)))
                campaign.close_round()
            yield self.error(campaign.distribution)

    def told(self, epsilon: float, seed: int) -> tuple[float, float]:
        """Errors at camouflage 0 of an estimate that knows where in each cell its people stand: at the
        cross-validated stop, and at the best of 400 steps in hindsight."""
        grid = self.grid()
        law = elastic(grid, epsilon_per_km=epsilon, camouflage=0.0, between="positions")
        assert isinstance(law, PositionalElastic)
        places = self.in_plane(grid, np.arange(len(self.places)))
        reports = law.sample_at_km(places, randomness=seeded(seed))
        counts = np.bincount(reports, minlength=law.report_count)
        rows = law.matrix()  # people spread evenly, where there are none
        here = self.truth > 0.0
        rows[here] = 0.0
        for some, laws in law._rows_from(self.places - 0.5):
            np.add.at(rows, self.cells[some], laws)
        operator = DenseOperator(rows / rows.sum(axis=1, keepdims=True))
        stopped = maximise(operator, counts, stop=CrossValidated()).distribution
        path, theta = [], uniform(grid.size)
        for _ in range(_HINDSIGHT // _EVERY):
            theta = maximise(operator, counts, start=theta, stop=Steps(_EVERY)).distribution
            path.append(self.error(theta))
        return self.error(stopped), min(path)

    # -- the published rule, made pointwise ----------------------------------------------------

    def published_error(self, epsilon: float, seed: int) -> float:
        """After the last round."""
        grid, beta = self.grid(), epsilon / 2.0
        rule = PublishedRule(beta, self.published.design_steps, self.published.update_steps)
        believed, generator = uniform(grid.size), np.random.default_rng(1000 + seed)
        for people in self.dealt(seed):
            mechanism = rule.design(grid, believed)
            assert isinstance(mechanism, Elastic)
            law = _Cusp(grid, beta, mechanism.weights)
            reports = np.concatenate(
                [
                    law.drawn(self.in_plane(grid, some), generator)
                    for some in np.array_split(people, len(people) // _AT_ONCE + 1)
                ]
            )
            tally = DenseChannel(grid, law.matrix()).tally(reports)
            believed = rule.estimate([tally], believed).distribution
        return self.error(believed)


@dataclass(frozen=True, eq=False)
class _Cusp:
    """P(y|x) ∝ c(y)·e^{−β|x − y|} from positions x."""

    grid: Grid
    beta: float
    weights: FloatArray

    def rows(self, places: FloatArray) -> FloatArray:
        apart = places[:, None] - self.grid.centres
        rows = self.weights * np.exp(-self.beta * np.hypot(apart[..., 0], apart[..., 1]))
        return rows / rows.sum(axis=1, keepdims=True)

    def drawn(self, places: FloatArray, generator: np.random.Generator) -> IntArray:
        sums = np.cumsum(self.rows(places), axis=1)
        return (sums < (generator.random(len(places)) * sums[:, -1])[:, None]).sum(axis=1)

    def matrix(self) -> FloatArray:
        """Means over nine positions in each cell."""
        line, shares = positions_on_a_side(3)
        total = np.zeros((self.grid.size, self.grid.size))
        for east, of_column in zip(line, shares, strict=True):
            for north, of_row in zip(line, shares, strict=True):
                places = self.grid.centres + self.grid.cell_km * np.array((east, north))
                total += of_column * of_row * self.rows(places)
        return total


def _print_told(people: Positions, seeds: int) -> None:
    """Shares of the published rule's error, means over the seeds."""
    for epsilon in (2.0, 1.0):
        beside = _mean(people.published_error(epsilon, seed) for seed in range(seeds))
        stopped, best = np.mean([people.told(epsilon, seed) for seed in range(seeds)], axis=0)
        print(
            f"{people.published.cut.name}, ε = {epsilon:g} per cell, camouflage 0, told where people stand: "
            f"{stopped / beside:.3f}, best stop in hindsight {best / beside:.3f}",
            flush=True,
        )
        for times in _MORE:
            ours = _mean(people.repeated(times).errors(epsilon, 0.0, 1, seeds))
            print(f"  told nothing, {times} times as many people: {ours / beside:.3f}", flush=True)


def main() -> int:
    """Print the figures as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("city", nargs="?", choices=CAMPAIGNS)
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    parser.add_argument("--told", action="store_true", help="where in their cells people stand")
    asked = parser.parse_args()
    for name, published in CAMPAIGNS.items():
        if asked.told:
            if asked.city in (None, name):
                _print_told(Positions.of(published), asked.seeds)
            continue
        for figure in maps_of(published, asked.seeds) if asked.city in (None, name) else ():
            print(markdown([figure]).splitlines()[-1], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
