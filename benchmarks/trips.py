"""``python -m benchmarks.trips``: flows from noisy trips beside raw reports and the product of marginals.

Trips are consecutive check-ins of one user within eight hours, each its own person, of New York or of the
``--city`` that is asked for. The file is looked for in ``GEOVEIL_DATA`` or ``../shared/data``. The score is
the common part of commuters, Σ min of two flow matrices: 1 where they agree. ``--quick`` is one seed at one
promise. ``--time 24x16,100000`` measures how long so many drawn trips between so many cells take instead,
and the memory of the whole process. ``--worlds 40`` asks of made-up worlds, so many of each, how often
intervals hold the share that stays. ``--fakes 5`` sends fakes among the trips, so often of each kind.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Literal

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.papers.data import default_folder
from geoveil.trips.flows import Flows
from geoveil.trips.flows import blocks as trip_blocks
from geoveil.trips.pairs import TripTally

CITIES = {
    "New York": (
        "foursquare-nyc.csv.gz",
        gv.Grid.from_box(south=40.65, west=-74.05, north=40.82, east=-73.88, cell_km=1.0),
    ),
    "Los Angeles": (
        "gowalla-los-angeles.csv.gz",
        gv.Grid.from_box(south=33.98, west=-118.42, north=34.15, east=-118.22, cell_km=1.0),
    ),
}
"""Name → the file of its check-ins, and the map that trips begin and end on."""
_HOURS = 8
_BLOCK = 3
"""Cells a side of a district."""
_REPLICATES = 20
Between = Literal["cells", "positions"]


@dataclass(frozen=True)
class CityTrips:
    """Where trips began and ended, in degrees and in cells."""

    grid: gv.Grid
    begun: FloatArray
    """(trips, 2): latitude and longitude."""
    ended: FloatArray
    origins: IntArray
    destinations: IntArray

    @classmethod
    def load(cls, city: str) -> CityTrips:
        """The trips whose ends both lie on the map."""
        import pyarrow.csv

        file, grid = CITIES[city]
        table = pyarrow.csv.read_csv(default_folder() / file)
        user, time = table["user"].to_numpy(), table["time"].cast("int64").to_numpy()
        places = np.stack([table["lat"].to_numpy(), table["lon"].to_numpy()], axis=1)
        order = np.lexsort((time, user))
        user, time, places = user[order], time[order], places[order]
        follows = (user[1:] == user[:-1]) & (np.diff(time) <= _HOURS * 3600)
        begun, ended = places[:-1][follows], places[1:][follows]
        origins, on_map = grid.nearest_cells(lat=begun[:, 0], lng=begun[:, 1])
        destinations, also = grid.nearest_cells(lat=ended[:, 0], lng=ended[:, 1])
        taken = on_map & also
        return cls(grid, begun[taken], ended[taken], origins[taken], destinations[taken])

    def truth(self) -> FloatArray:
        """The share of trips from cell to cell."""
        return _shares(self.grid, self.origins, self.destinations)

    def reports(self, trips: gv.Trips, between: Between, seed: int) -> tuple[IntArray, IntArray]:
        """One report for each trip."""
        noise = gv.seeded(seed)
        if between == "cells":
            return trips.sample(self.origins, self.destinations, randomness=noise)
        return trips.sample_at(
            lat=self.begun[:, 0], lng=self.begun[:, 1],
            to_lat=self.ended[:, 0], to_lng=self.ended[:, 1], randomness=noise,
        )  # fmt: skip


def _shares(grid: gv.Grid, origins: IntArray, destinations: IntArray) -> FloatArray:
    matrix = np.zeros((grid.size, grid.size))
    here = (origins < grid.size) & (destinations < grid.size)  # not beside the map
    np.add.at(matrix, (origins[here], destinations[here]), 1.0)
    return matrix / matrix.sum()


def districts(grid: gv.Grid) -> IntArray:
    """Blocks of cells, the last ones smaller."""
    row, column = np.divmod(np.arange(grid.size), grid.columns)
    across = -(-grid.columns // _BLOCK)
    return np.asarray((row // _BLOCK) * across + column // _BLOCK)


def _summed(grid: gv.Grid, matrix: FloatArray) -> FloatArray:
    block = districts(grid)
    members = np.eye(int(block.max()) + 1)[block]
    return np.asarray(members.T @ matrix @ members)


def common_part(grid: gv.Grid, one: FloatArray, other: FloatArray) -> tuple[float, float]:
    """For pairs of cells, and for pairs of districts."""
    ours = float(np.minimum(one, other).sum())
    return ours, float(np.minimum(_summed(grid, one), _summed(grid, other)).sum())


@dataclass(frozen=True)
class Case:
    """One promise on one city."""

    epsilon_per_km: float
    camouflage: float
    between: Between

    def __str__(self) -> str:
        return f"{self.epsilon_per_km:g},{self.camouflage:g},{self.between}"

    def trips(self, city: CityTrips) -> gv.Trips:
        """Reports under the mechanism for where trips truly begin and end."""
        truth = city.truth()
        prior = (truth.sum(axis=0) + truth.sum(axis=1)) / 2
        return gv.Trips(
            gv.elastic(
                city.grid,
                prior,
                epsilon_per_km=self.epsilon_per_km,
                camouflage=self.camouflage,
                between=self.between,
            )
        )

    def lines(self, city: CityTrips, seeds: int) -> Iterator[str]:
        """The scores and how much the intervals hold, over all seeds."""
        truth, trips = city.truth(), self.trips(city)
        scores, spent = [], 0.0
        covered: list[float] = []
        stays: list[tuple[float, float]] = []
        for seed in range(seeds):
            reports = city.reports(trips, self.between, seed)
            before = process_time()
            flows = trips.fit(trips.tally(*reports), replicates=_REPLICATES)
            spent += process_time() - before
            product = np.outer(flows.origins, flows.destinations)
            matrices = (_shares(city.grid, *reports), product, flows.matrix)
            scores.append([common_part(city.grid, matrix, truth) for matrix in matrices])
            covered.append(_covered(city.grid, flows, truth))
            stays.append(flows.stay_interval())
        raw, product_of, ours = np.mean(scores, axis=0)
        yield (
            f"| ε = {self.epsilon_per_km:g}, camouflage {self.camouflage:g}, between {self.between} "
            f"| {_pair(raw)} | {_pair(product_of)} | {_pair(ours)} | {ours[0] / raw[0]:.2f} "
            f"| {_held(stays, float(np.trace(truth)))} | {np.mean(covered):.3f} | {spent / seeds:.0f} s |"
        )


def _pair(score: FloatArray) -> str:
    return f"{score[0]:.3f} ({score[1]:.3f})"


def _covered(grid: gv.Grid, flows: Flows, truth: FloatArray) -> float:
    """How many of the district pairs with a trip lie in their intervals."""
    low, high = flows.between(districts(grid)).interval()
    true = _summed(grid, truth)
    return float(((low <= true) & (true <= high))[true > 0].mean())


def _held(intervals: Sequence[tuple[float, float]], share: float) -> str:
    """How often the true share that stays lies inside, and the first interval."""
    held = sum(low <= share <= high for low, high in intervals)
    first = "–".join(f"{end:.3f}" for end in intervals[0])
    return f"{share:.3f} in {held} of {len(intervals)} ({first})"


def timed(asked: str) -> Iterator[str]:
    """Columns × rows of cells and trips between them, near ones more often: the flows, then the intervals."""
    sides, _, number = asked.partition(",")
    columns, rows = (int(side) for side in sides.split("x"))
    grid, people = gv.Grid(rows=rows, columns=columns, cell_km=1.0), int(number)
    generator = np.random.default_rng(0)
    crowd = generator.dirichlet(np.full(grid.size, 0.3))
    origins = generator.choice(grid.size, people, p=crowd)
    row, column = np.divmod(origins, columns)
    away = np.rint(generator.laplace(scale=2.0, size=(2, people))).astype(int)
    destinations = np.clip(row + away[0], 0, rows - 1) * columns + np.clip(
        column + away[1], 0, columns - 1
    )
    trips = gv.Trips(gv.elastic(grid, epsilon_per_km=2.0, between="cells"))
    tally = trips.tally(*trips.sample(origins, destinations, randomness=gv.seeded(1)))
    replicates = min(_REPLICATES, (1 << 27) // grid.size**2)
    begun, spent = perf_counter(), process_time()
    flows = trips.fit(tally, replicates=replicates)
    yield f"{grid.size:,} cells, {people:,} trips: flows in {_since(begun, spent)}; {flows.stopped}"
    begun, spent = perf_counter(), process_time()
    low, high = flows.stay_interval()
    yield f"the interval of the share that stays in {_since(begun, spent)}"
    begun, spent = perf_counter(), process_time()
    flows.between(trip_blocks(grid, _BLOCK)).interval()
    yield f"intervals of districts from {replicates} replicates in {_since(begun, spent)}"
    stay = float((origins == destinations).mean())
    yield f"the share that stays: {low:.3f}–{high:.3f}, truth {stay:.3f}"
    yield f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"


_ATTACKS = (
    "one pair, anywhere", "the largest flow", "inverse, a pair up", "inverse, the largest flow down",
)  # fmt: skip


def sent(
    name: str, truth: FloatArray, rows: FloatArray, seed: int
) -> tuple[FloatArray, tuple[int, int]]:
    """(reports, reports): how often fakes send each pair, and the pair of cells that they aim at.

    The inverse kernel F (CF = 1) says what each pair of reports weighs for a flow: W = F_o ⊗ F_d.
    """
    begun, ended = np.random.default_rng(seed).integers(len(truth), size=2).tolist()
    if "largest" in name:
        begun, ended = map(int, np.unravel_index(int(truth.argmax()), truth.shape))
    shares = np.zeros((rows.shape[1],) * 2)
    if "inverse" not in name:
        shares[begun, ended] = 1.0
        return shares, (begun, ended)
    inverse = np.linalg.pinv(rows)
    weights = np.outer(inverse[:, begun], inverse[:, ended])
    shares = np.maximum(-weights if "down" in name else weights, 0.0)
    return shares / shares.sum(), (begun, ended)


def fakes(city: CityTrips, case: Case, seeds: int) -> Iterator[str]:
    """How far fakes move flows, from those of the same trips without them, and which alarm is raised."""
    trips, truth, alarm = case.trips(city), city.truth(), gv.PoisoningAlarm()
    rows = trips.mechanism.matrix()
    honest = [trips.tally(*city.reports(trips, case.between, seed)) for seed in range(seeds)]
    plain = [trips.fit(tally).matrix for tally in honest]
    for name in _ATTACKS:
        for share in (0.001, 0.01, 0.05):
            runs = []
            for seed, (tally, before) in enumerate(zip(honest, plain, strict=True)):
                shares, pair = sent(name, truth, rows, seed)
                number = round(share * tally.total / (1 - share))
                drawn = np.random.default_rng(seed).multinomial(number, shares.ravel())
                first, second = np.divmod(np.flatnonzero(drawn), len(shares))
                poisoned = tally + TripTally(trips.mechanism, first, second, drawn[drawn > 0])
                change = (trips.fit(poisoned).matrix - before) / share
                districts_moved = _summed(city.grid, change)
                found = alarm.check_trips(poisoned)
                runs.append((change[pair], districts_moved.max(), districts_moved.min(), found.ends.raised,
                             len(found.pairs) > 0, found.raised))  # fmt: skip
            moved, up, down, *raised = np.sum(runs, axis=0)
            yield (
                f"| {case} | {name} | {100 * share:g} % | {moved / seeds:+.1f} | {up / seeds:+.1f} | "
                f"{down / seeds:+.1f} | {' | '.join(f'{number:.0f} of {seeds}' for number in raised)} |"
            )
    quiet = (
        trips.tally(*city.reports(trips, case.between, seeds + run)) for run in range(10 * seeds)
    )
    results = [alarm.check_trips(tally) for tally in quiet]
    false = [sum(one.ends.raised for one in results), sum(len(one.pairs) > 0 for one in results)]
    yield f"| {case} | nothing | 0 | | | | {false[0]} of {10 * seeds} | {false[1]} of {10 * seeds} | |"


_WORLDS = (
    *(("near", share) for share in (0.0, 0.02, 0.5, 0.98, 1.0)),
    *((go, share) for go in ("next", "anywhere") for share in (0.0, 0.5)),
)  # fmt: skip
_WITH_DISTRICTS = 5
"""So many of the worlds with few trips are asked for their districts too."""


def world(grid: gv.Grid, go: str, stay: float, people: int, seed: int) -> tuple[IntArray, IntArray]:
    """Trips of which a share stays and the others go near, all to the cell beside, or anywhere."""
    generator = np.random.default_rng(seed)
    crowd = generator.dirichlet(np.full(grid.size, 0.5))
    origins = generator.choice(grid.size, people, p=crowd)
    row, column = np.divmod(origins, grid.columns)
    destinations = origins + np.where(column + 1 < grid.columns, 1, -1)
    going = np.arange(people) if go != "next" else np.zeros(0, dtype=np.int64)
    while going.size:
        anywhere = generator.choice(grid.size, going.size, p=crowd)
        away = np.rint(generator.laplace(scale=1.5, size=(2, going.size))).astype(int)
        rows = np.clip(row[going] + away[0], 0, grid.rows - 1)
        columns = np.clip(column[going] + away[1], 0, grid.columns - 1)
        destinations[going] = anywhere if go == "anywhere" else rows * grid.columns + columns
        going = going[destinations[going] == origins[going]]
    stays = generator.permutation(people) < round(stay * people)
    return origins, np.where(stays, origins, destinations)


def worlds(number: int) -> Iterator[str]:
    """How often intervals hold the share that stays, and how wide they are; districts of 2 × 2 cells."""
    grid = gv.Grid(rows=6, columns=6, cell_km=1.0)
    blocks = trip_blocks(grid, 2)
    yield "| ε per cell | trips | others go | stay | held | mean width | districts held |"
    yield "|---|---|---|---|---|---|---|"
    for epsilon, people in ((2.0, 50_000), (2.0, 500), (1.0, 50_000), (1.0, 500)):
        trips = gv.Trips(gv.elastic(grid, epsilon_per_km=epsilon, between="cells"))
        for go, stay in _WORLDS:
            held, wide, districts_held = [], [], []
            for seed in range(number):
                origins, destinations = world(grid, go, stay, people, seed)
                # seeds of their own: the same would draw noise from what drew the world
                reports = trips.sample(origins, destinations, randomness=gv.seeded(1_000 + seed))
                steps = (
                    None if people < 1_000 else gv.Steps(10)
                )  # which hardly matters, and takes long
                flows = trips.fit(trips.tally(*reports), stop=steps, replicates=_REPLICATES)
                low, high = flows.stay_interval()
                held.append(low <= (origins == destinations).mean() <= high)
                wide.append(high - low)
                if people < 1_000 and seed < _WITH_DISTRICTS:
                    true = np.zeros((blocks.max() + 1,) * 2)
                    np.add.at(true, (blocks[origins], blocks[destinations]), 1 / people)
                    least, most = flows.between(blocks).interval()
                    districts_held.append(((least <= true) & (true <= most))[true > 0].mean())
            of_districts = f"{np.mean(districts_held):.2f}" if districts_held else "–"
            yield (
                f"| {epsilon:g} | {people:,} | {go} | {stay:g} | {np.mean(held):.2f} | {np.mean(wide):.3f} "
                f"| {of_districts} |"
            )


def _since(begun: float, spent: float) -> str:
    return f"{perf_counter() - begun:.0f} s ({process_time() - spent:.0f} s of processor)"


def main(given: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trips", description=__doc__)
    parser.add_argument("--city", choices=list(CITIES), default="New York")
    parser.add_argument("--quick", action="store_true", help="one seed at one promise")
    parser.add_argument("--seeds", type=int, default=3, help="how many the scores are a mean of")
    parser.add_argument("--time", metavar="CELLS,TRIPS", help="how long, such as 24x16,100000")
    parser.add_argument("--worlds", type=int, metavar="N", help="N made-up worlds of each kind")
    parser.add_argument("--fakes", type=int, metavar="N", help="fakes among the trips, N times")
    parser.add_argument(
        "cases", nargs="*", help="such as 0.5,0,cells: ε per km, camouflage, between; else all"
    )
    asked = parser.parse_args(sys.argv[1:] if given is None else given)
    if asked.time or asked.worlds:
        for line in timed(asked.time) if asked.time else worlds(asked.worlds):
            print(line, flush=True)
        return 0
    city = CityTrips.load(asked.city)
    if asked.fakes:
        print(
            "| case | fakes | share | flow, × the share | districts up | down | ends | pairs | alarm |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for epsilon, camouflage in ((2.0, 0.0), (1.0, 0.5)):
            for line in fakes(city, Case(epsilon, camouflage, "cells"), asked.fakes):
                print(line, flush=True)
        return 0
    print(
        "| | raw reports | product of marginals | flows | × raw | stays | districts covered | processor |"
    )
    print("|---|---|---|---|---|---|---|---|")
    cases = [Case(2.0, 0.0, "cells")]
    if not asked.quick:
        cases += [Case(2.0, 0.0, "positions")]
        cases += [
            Case(epsilon, camouflage, "cells")
            for epsilon in (0.5, 1.0, 2.0, 4.0)
            for camouflage in (0.0, 0.5)
            if (epsilon, camouflage) != (2.0, 0.0)
        ]
    if asked.cases:
        cases = [case for case in cases if str(case) in asked.cases]
    for case in cases:
        for line in case.lines(city, 1 if asked.quick else asked.seeds):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
