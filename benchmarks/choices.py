"""``python -m benchmarks.choices choice|drift|bursts|hours|fakes``: people who choose, move, live by hours.

``choice``: how many people may choose a strong promise before the map suffers, on real cities; how often a
choice that depends on the place is found, and one that does not is called so. ``drift``: people who move
after three of four rounds, and campaigns that stand still. ``bursts``: the attacks of the corpus in one of
four rounds. ``hours``: maps of 24 hours against hours fitted alone. ``fakes``: one cell named by fakes in one
of the hours, how far its map moves and which alarm is raised. Errors are earth mover's distances in
kilometres. Without the data of a city, what needs it is left out.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

import geoveil as gv
from benchmarks.attacks import REPORTS, ROUNDS, Setting, attacks, counted
from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign.one_map import NO_ROUNDS, allowed_at, compared_levels, settled
from geoveil.papers.data import DataFolder

_NEW_YORK = (40.70, -74.03, 40.82, -73.91)
_MIXES = ((0, 0, 1), (1 / 3, 1 / 3, 1 / 3), (0.5, 0.25, 0.25), (0.8, 0.1, 0.1), (0.95, 0.04, 0.01))


@dataclass(frozen=True, eq=False)
class City:
    """A city of real people: cells of a grid, and their distribution."""

    name: str
    grid: gv.Grid
    cells: IntArray

    @property
    def truth(self) -> FloatArray:
        """Where its people are."""
        return np.bincount(self.cells, minlength=self.grid.size) / self.cells.size


def cities(folder: Path, named: str) -> Iterator[City]:
    """The shared cities whose files are there and whose names hold this, in cells of half a kilometre."""
    for name, box in (
        ("gowalla-paris", (48.8286, 2.2855, 48.8798, 2.3909)),
        ("gowalla-san-francisco", (37.7228, -122.5153, 37.7946, -122.3789)),
        ("foursquare-nyc", _NEW_YORK),
    ):
        if named in name and (folder / f"{name}.csv.gz").exists():
            south, west, north, east = box
            grid = gv.Grid.from_box(south=south, west=west, north=north, east=east, cell_km=0.5)
            lat, lng, _ = _rows(folder / f"{name}.csv.gz")
            yield City(name, grid, grid.locate(lat=lat, lng=lng, outside="drop"))


def _rows(path: Path) -> tuple[FloatArray, FloatArray, list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    places = np.array([(float(row["lat"]), float(row["lon"])) for row in rows])
    return places[:, 0], places[:, 1], [row.get("time", "") for row in rows]


def _said(mechanism: gv.Channel, people: FloatArray, number: int, seed: int) -> gv.Tally:
    """The reports of so many people."""
    law = np.maximum(mechanism.push(people), 0.0)
    return gv.Tally(mechanism, np.random.default_rng(seed).multinomial(number, law / law.sum()))


def choice(folder: Path, seeds: int, named: str) -> Iterator[str]:
    """The error by mix of promises, and how often dependence is found."""
    yield "| city (20,000 people) | mix at ε·cell = 0.5, 1, 2 | error (km) | ε·cell = 1 and 2 alone (km) |"
    yield "|---|---|---|---|"
    for city in cities(folder, named):
        levels = [gv.elastic(city.grid, epsilon_per_km=each) for each in (1.0, 2.0, 4.0)]
        for mix in _MIXES:
            errors = []
            for seed in range(seeds):
                tallies = [
                    _said(level, city.truth, round(20_000 * share), 10 * seed + k)
                    for k, (level, share) in enumerate(zip(levels, mix, strict=True))
                ]
                errors.append([_error(city, tallies), _error(city, tallies[1:])])
            together, alone = np.mean(errors, axis=0)
            shares = " : ".join(f"{100 * share:.0f}" for share in mix)
            yield f"| {city.name} | {shares} % | {together:.4f} | {alone:.4f} |"
        found, claimed = _dependence(city, levels, 5 * seeds)
        yield f"| {city.name} | dependence found in {found}, claimed in {claimed} of {5 * seeds} | | |"


def _error(city: City, tallies: list[gv.Tally]) -> float:
    used = [tally for tally in tallies if tally.total]
    if not used:
        return float("nan")
    estimate = gv.IterativeBayesianUpdate().fit(used)
    return gv.earth_movers_distance_km(estimate.distribution, city.truth, city.grid)


def _dependence(city: City, levels: Sequence[gv.Channel], runs: int) -> tuple[int, int]:
    """How often the choice is said to depend on the place: where one level lives elsewhere, and nowhere."""
    elsewhere = city.truth.reshape(city.grid.shape)[:, ::-1].ravel()
    near = gv.IterativeBayesianUpdate(stop=gv.Steps(50))
    counts = []
    for people in (elsewhere, city.truth):
        claims = 0
        for run in range(runs):
            tallies = [
                [_said(level, people if k == 0 else city.truth, 2000, 1000 + 10 * run + k)]
                for k, level in enumerate(levels)
            ]
            theta = near.fit([tally for (tally,) in tallies]).distribution
            found = compared_levels(tallies, theta)
            claims += found is not None and found.p_value < allowed_at(1)
        counts.append(claims)
    return counts[0], counts[1]


def drift(folder: Path, seeds: int, named: str) -> Iterator[str]:
    """New places inside their intervals, and false drift in campaigns of 15 rounds."""
    for city in cities(folder, named):
        still = 34 * seeds
        false = sum(_drifts_though_still(city, run) for run in range(still))
        yield f"{city.name}: false drift in {false} of {still} campaigns of 15 rounds that stand still"
        runs = 4 * seeds
        held = sum(_holds_new_places(city, run) for run in range(runs))
        yield f"{city.name}: the five busiest new places inside their intervals in {held} of {runs} runs"


def _drifts_though_still(city: City, seed: int) -> bool:
    mechanism = _opening(city)
    rounds = {
        number: [_said(mechanism, city.truth, 1000, 5000 + 20 * seed + number)]
        for number in range(1, 16)
    }
    near = gv.IterativeBayesianUpdate(stop=gv.Steps(60)).fit(rounds[1]).distribution
    return settled(NO_ROUNDS, rounds, partial(_near, near)).drifting


@cache
def _opening(city: City) -> gv.Channel:
    return gv.elastic(city.grid, epsilon_per_km=2.0)


def _holds_new_places(city: City, seed: int) -> bool:
    """Three rounds here and one mirrored, through a campaign with all its designs."""
    moved = city.truth.reshape(city.grid.shape)[:, ::-1].ravel()
    campaign = gv.Campaign(city.grid, epsilon_per_km=2.0)
    for number in range(4):
        people = moved if number == 3 else city.truth
        campaign.receive(_said(campaign.mechanism, people, 3000, 100 * seed + number))
        campaign.close_round(last=number == 3)
    low, high = campaign.closing.error_bars()[0].interval(0.95)
    return bool(((low <= moved) & (moved <= high))[np.argsort(-moved)[:5]].all())


def _near(theta: FloatArray, numbers: Sequence[int]) -> FloatArray:
    """Whatever the rounds, the same estimate to compare them at."""
    return theta


def hours(folder: Path, seeds: int, named: str) -> Iterator[str]:
    """The mean error of 24 hourly maps against that of hours fitted alone."""
    path = folder / "foursquare-nyc.csv.gz"
    if named not in path.name or not path.exists():
        return
    grid, truths = _by_hour(path)
    people = sum(int(counts.sum()) for counts in truths.values())
    yield f"New York, {people:,} check-ins in 24 hours, {grid.size} cells of 1 km"
    yield "| ε·cell | camouflage | hours alone (km) | from the pooled map (km) | share | begins at |"
    yield "|---|---|---|---|---|---|"
    for steepness, most in ((1.0, 0.9), (2.0, 1.02)):
        for camouflage in (0.0, 0.5):
            mechanism = gv.elastic(grid, epsilon_per_km=steepness, camouflage=camouflage)
            alone, together, began = [], [], set()
            for seed in range(seeds):
                tallies = {
                    hour: _said(
                        mechanism, counts / counts.sum(), int(counts.sum()), 100 * seed + hour
                    )
                    for hour, counts in truths.items()
                }
                maps = gv.IterativeBayesianUpdate().fit_slots(tallies)
                began.add(maps.started.split(",")[0])
                for hour, counts in truths.items():
                    truth = counts / counts.sum()
                    own = gv.IterativeBayesianUpdate().fit(tallies[hour])
                    alone.append(gv.earth_movers_distance_km(own.distribution, truth, grid))
                    theirs = maps[hour].distribution
                    together.append(gv.earth_movers_distance_km(theirs, truth, grid))
            share = float(np.mean(together) / np.mean(alone))
            yield (
                f"| {steepness:g} | {camouflage:g} | {np.mean(alone):.4f} | {np.mean(together):.4f} | "
                f"{share:.3f} (line {most}) | {', '.join(sorted(began))} |"
            )


def _by_hour(path: Path) -> tuple[gv.Grid, dict[int, IntArray]]:
    """The check-ins of New York in cells of a kilometre, by the hour of the day."""
    lat, lng, times = _rows(path)
    south, west, north, east = _NEW_YORK
    grid = gv.Grid.from_box(south=south, west=west, north=north, east=east, cell_km=1.0)
    cells = grid.locate(lat=lat, lng=lng, outside="clamp")
    inside = (lat >= south) & (lat <= north) & (lng >= west) & (lng <= east)
    zone = ZoneInfo("America/New_York")
    local = np.array([datetime.fromisoformat(time).astimezone(zone).hour for time in times])
    return grid, {
        hour: np.bincount(cells[inside & (local == hour)], minlength=grid.size)
        for hour in range(24)
    }


def fakes(folder: Path, seeds: int, named: str) -> Iterator[str]:
    """Fakes at one cell in one hour: how far its map moves, and which alarm is raised."""
    path = folder / "foursquare-nyc.csv.gz"
    if named not in path.name or not path.exists():
        return
    grid, truths = _by_hour(path)
    people = {hour: int(counts.sum()) for hour, counts in truths.items()}
    quiet, busy = (best(people, key=people.__getitem__) for best in (min, max))
    every = sum(people.values())
    cases = [(quiet, people[quiet], round(share * every)) for share in (0.001, 0.01, 0.05)]
    cases += [(busy, 10_000, sent) for sent in (100, 500)]
    yield "| ε·cell | hour | honest | fakes | their cell moves by | × their share | alarm of all | of slots |"
    yield "|---|---|---|---|---|---|---|---|"
    for steepness in (1.0, 2.0):
        mechanism = gv.elastic(grid, epsilon_per_km=steepness, between="cells")
        for hour, honest, sent in cases:
            runs = [
                _in_one_hour(mechanism, truths, hour, honest, sent, run) for run in range(seeds)
            ]
            moved, of_all, of_slots = np.mean(runs, axis=0)
            yield (
                f"| {steepness:g} | {hour} | {honest:,} | {sent:,} | {moved:.3f} | "
                f"{moved * (honest + sent) / sent:.1f} | {100 * of_all:.0f} % | {100 * of_slots:.0f} % |"
            )
        honest_runs = [
            _in_one_hour(mechanism, truths, busy, people[busy], 0, 500 + run)
            for run in range(5 * seeds)
        ]
        _, of_all, of_slots = np.sum(honest_runs, axis=0, dtype=int)
        yield f"| {steepness:g} | none | | 0 | | | {of_all} of {5 * seeds} | {of_slots} of {5 * seeds} |"


def _in_one_hour(
    mechanism: gv.Channel, truths: Mapping[int, IntArray], hour: int, honest: int, sent: int, seed: int
) -> tuple[float, bool, bool]:  # fmt: skip
    """How far fakes move the cell that they name in the map of the hour, and whether they raise the alarm:
    that of all hours together, and that of every hour, in this one."""
    cell = int(np.random.default_rng(seed).integers(mechanism.space.size))
    tallies = {}
    for slot, counts in truths.items():
        number = honest if slot == hour else int(counts.sum())
        tallies[str(slot)] = _said(mechanism, counts / counts.sum(), number, 100 * seed + slot)
    named = np.zeros(mechanism.report_count, dtype=np.int64)
    named[cell] = sent
    tallies[str(hour)] += gv.Tally(mechanism, named)
    maps, alarm = gv.IterativeBayesianUpdate().fit_slots(tallies), gv.PoisoningAlarm()
    of_all = alarm.check(list(tallies.values()), maps.pooled)
    of_slots = alarm.check_slots(tallies, maps.pooled)
    true = truths[hour][cell] / truths[hour].sum()
    right = of_slots.raised and (not sent or of_slots.groups[0] == str(hour))
    return float(maps[str(hour)].distribution[cell] - true), of_all.raised, right


def bursts(folder: Path, seeds: int, named: str) -> Iterator[str]:
    """The attacks of the corpus, in the third of four rounds only, and what they move."""
    yield "| attack in one round | share of it | set aside | largest movement (share of the map) | pooled |"
    yield "|---|---|---|---|---|"
    setting = Setting("synthetic", 1.0, adaptive=False, between="cells")
    for share in (0.05, 0.2):
        for name in dict(attacks(setting, share, 0)):
            rows = [_burst(setting, name, share, seed) for seed in range(seeds)]
            aside = sum(row[0] for row in rows)
            kept, pooled = np.max([row[1:] for row in rows], axis=0)
            yield f"| {name} | {100 * share:.0f} % | {aside} of {seeds} | {kept:.4f} | {pooled:.4f} |"


def _burst(setting: Setting, name: str, share: float, seed: int) -> tuple[bool, float, float]:
    """Whether the round was set aside, and how far the map moved: of the rounds that agree, and of all."""
    where, generator = setting.place, np.random.default_rng(seed)
    sent, number = dict(attacks(setting, share, seed))[name], REPORTS // ROUNDS
    opening, later = setting.foreseen
    rounds = {}
    for at, mechanism in enumerate((opening, later, later, later), start=1):
        fakes = round(share * number) if at == 3 else 0
        rounds[at] = [counted(mechanism, where.truth, sent, fakes, generator)[0]]

    def fitted(numbers: Sequence[int]) -> FloatArray:
        return gv.IterativeBayesianUpdate().fit([rounds[n][0] for n in numbers]).distribution

    standing = settled(NO_ROUNDS, rounds, fitted)
    if not {1, 2, 4} <= set(standing.agreeing):
        raise AssertionError("a burst must take over nothing")
    honest = fitted((1, 2, 4))
    moved = [
        float(np.abs(where.targets @ (fitted(each) - honest)).max())
        for each in (standing.agreeing, (1, 2, 3, 4))
    ]
    return 3 in standing.aside, moved[0], moved[1]


WHAT = {"choice": choice, "drift": drift, "hours": hours, "bursts": bursts, "fakes": fakes}


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choices", description=__doc__)
    parser.add_argument("what", choices=list(WHAT))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--city", default="", help="only cities whose names hold this")
    parser.add_argument("--data", metavar="DIR", default=None)
    asked = parser.parse_args()
    folder = Path(asked.data) if asked.data else DataFolder().path
    for line in WHAT[asked.what](folder, asked.seeds, asked.city):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
