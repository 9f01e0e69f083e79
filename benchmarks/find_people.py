"""``python -m benchmarks.find_people``: an operator who hunts people with campaigns of chosen grids.

Each person has one unmodified device with one ledger. The operator opens one campaign after another within
every limit of the device, lays the grid of each where half of what is believed about this person lies on
either side, and listens: to the cell, and to silence. The guess is the mean of the belief. Beside the
guesses stands what the same budget allows at best: one report of planar Laplace noise with all of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.campaign.elastic_design import elastic
from geoveil.channel.channel import Channel
from geoveil.client import Device, Ledger
from geoveil.client.network import Answer
from geoveil.document.area import Area
from geoveil.document.wire import MechanismDocument, publish
from geoveil.position.positional import PositionalElastic
from geoveil.randomness import Randomness, seeded
from geoveil.space.grid import Grid
from geoveil.space.projection import TangentPlane

EPSILON_PER_KM = 0.5
CAMPAIGNS = 16
TOWN = TangentPlane(lat=45.76, lng=4.84)
REACH_KM = 8.0
"""Everybody is known to be within so far of the middle of the town, east and north."""
_NEGLIGIBLE = 1e-9
"""Places less likely than this part of the likeliest are no longer looked at."""
SHAPES: dict[str, tuple[tuple[int, int, float], ...]] = {
    "two cells of 16 km": ((1, 2, 16.0), (2, 1, 16.0)),
    "two cells of 4 km": ((1, 2, 4.0), (2, 1, 4.0)),
    "64 cells of 2 km": ((8, 8, 2.0),),
    "64 cells of 200 m": ((8, 8, 0.2),),
    "64 cells of 20 m": ((8, 8, 0.02),),
}
"""Rows, columns and side of the cells of campaigns, in turn. ε times the side is at most 8."""


@dataclass
class Hunter:
    """A collector that shows one device a document of its choice and keeps what comes."""

    document: bytes = b""
    heard: list[int] = field(default_factory=list)

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        """The document, whatever is held already."""
        return Answer(200, "application/json", 0.0, self.document)

    def post(self, path: str, body: bytes, *, limit: int, ticket: str = "") -> Answer:
        """Counted."""
        report = json.loads(body)
        self.heard.append(report["cell"])
        answer = {"id": report["id"], "status": "counted"}
        return Answer(200, "application/json", 0.0, json.dumps(answer).encode())


@cache
def _designed(rows: int, columns: int, cell_km: float) -> PositionalElastic:
    """The sharpest law within the limit of the device."""
    made = elastic(
        _grid(TOWN, rows, columns, cell_km),
        epsilon_per_km=EPSILON_PER_KM,
        camouflage=0.0,
        between="positions",
    )
    assert isinstance(made, PositionalElastic)
    return made


def _grid(middle: TangentPlane, rows: int, columns: int, cell_km: float) -> Grid:
    """So many cells around a place."""
    half = np.array((columns, rows)) * cell_km / 2.0 - 0.02 * cell_km
    corners = np.array([(a, b) for a in (-half[0], half[0]) for b in (-half[1], half[1])])
    lat, lng = middle.to_latlng(corners)
    edges = {"south": lat.min(), "north": lat.max(), "west": lng.min(), "east": lng.max()}
    grid = Grid.from_box(**{name: float(edge) for name, edge in edges.items()}, cell_km=cell_km)
    assert grid.shape == (rows, columns)
    return grid


def _campaign(
    number: int, middle_km: FloatArray, shape: tuple[int, int, float]
) -> MechanismDocument:
    """A document whose grid lies around a place of the hunter's choice."""
    lat, lng = TOWN.to_latlng(middle_km)
    design = _designed(*shape)
    grid = _grid(TangentPlane(lat=float(lat), lng=float(lng)), *shape)
    now_s = int(time.time())
    opened = publish(
        design, campaign=f"c{number}", round=1, not_before_s=now_s - 60, expires_s=now_s + 3600
    )
    return replace(opened, area=Area.of_squares(grid))


def _places(many: int) -> FloatArray:
    line = np.linspace(-REACH_KM, REACH_KM, many)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def hunted(
    person_km: FloatArray, shapes: str, folder: Path, randomness: Randomness, many: int = 101
) -> float:
    """How far the best guess is from one person after all campaigns, in km.

    The hunter asks ``many`` by ``many`` places how likely each is.
    """
    places = _places(many)
    lat, lng = TOWN.to_latlng(person_km)
    belief = np.full(len(places), 1.0 / len(places))
    hunter, ledger = Hunter(), Ledger(folder / "ledger.db")
    for number in range(CAMPAIGNS):
        shape = SHAPES[shapes][number % len(SHAPES[shapes])]
        document = _campaign(number, belief @ places, shape)
        hunter.document, hunter.heard = document.served(), []
        device = Device(
            f"https://hunter.example/c/c{number}",
            max_epsilon_per_km=EPSILON_PER_KM,
            budget_per_km=10.0,
            ledger=ledger,
            transport=hunter,
            randomness=randomness,
        )
        device.report(lat=float(lat), lng=float(lng))
        (cell,) = hunter.heard  # never silent, wherever the person is
        grid, law = document.area.squares, document.law
        assert isinstance(grid, Grid)
        everywhere = TOWN.to_latlng(places)
        seen = grid.plane.to_plane(lat=everywhere[0], lng=everywhere[1]) - grid.centres[0]
        rows = law.rows_at(law.steps_of(seen)).astype(np.float64)
        belief *= rows[:, cell] / rows.sum(axis=1)
        likely = belief > _NEGLIGIBLE * belief.max()
        places, belief = places[likely], belief[likely] / belief[likely].sum()
    return float(np.linalg.norm(belief @ places - person_km))


def hunted_between_cells(person_km: FloatArray, randomness: Randomness) -> float:
    """The same with two cells of 16 km and a promise between cells, as version 1 of the wire made it."""
    places = _places(101)
    belief = np.full(len(places), 1.0 / len(places))
    for number in range(CAMPAIGNS):
        axis = number % 2
        law = _between_cells()
        side = np.vstack((person_km, places))[:, axis] > belief @ places[:, axis]
        cell = int(law.sample(int(side[0]), randomness=randomness))
        belief *= law.matrix()[side[1:].astype(int), cell]
        belief /= belief.sum()
    return float(np.linalg.norm(belief @ places - person_km))


@cache
def _between_cells() -> Channel:
    grid = Grid(rows=1, columns=2, cell_km=16.0)
    return elastic(grid, epsilon_per_km=EPSILON_PER_KM, camouflage=0.0, between="cells")


def people_of(number: int, seed: int) -> FloatArray:
    """Where people are: anywhere in the town."""
    return np.random.default_rng(seed).uniform(-0.9 * REACH_KM, 0.9 * REACH_KM, (number, 2))


def allowed(number: int, seed: int) -> FloatArray:
    """Misses of one report with planar Laplace noise that spends all 8 per km at once."""
    total = EPSILON_PER_KM * CAMPAIGNS
    return np.random.default_rng(seed).gamma(2.0, 1.0 / total, number)


def misses(number: int, *, seed: int = 6) -> Iterator[tuple[str, FloatArray]]:
    """How far each kind of hunter is from each of so many people."""
    people = people_of(number, seed)
    yield (
        "version 1, between cells: two cells of 16 km",
        np.array([hunted_between_cells(at, seeded(seed + k)) for k, at in enumerate(people)]),
    )
    for shapes in SHAPES:
        found = []
        for k, at in enumerate(people):
            with tempfile.TemporaryDirectory() as folder:
                found.append(hunted(at, shapes, Path(folder), seeded(seed + k)))
        yield shapes, np.array(found)
    yield "what the budget allows: planar Laplace, 8 per km at once", allowed(100_000, seed)


def main() -> int:
    """Print the table of docs/attack-model.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.find_people", description=__doc__)
    parser.add_argument("--people", type=int, default=24, help="how many are hunted")
    print("| grids | median miss | best of ten | people |\n|---|---|---|---|")
    for name, found in misses(parser.parse_args().people):
        middle, best = np.median(found), np.quantile(found, 0.1)
        print(f"| {name} | {middle:.2f} km | {best:.2f} km | {found.size:,} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
