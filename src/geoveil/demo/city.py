"""A simulated city: districts with names, a river nobody lives in, a village apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import geoveil as gv
from geoveil.arrays import BoolArray, FloatArray, IntArray, count

RIVER_HALF_WIDTH_KM = 0.28
_COUNTRYSIDE = 0.02


@dataclass(frozen=True)
class District:
    """A place people go to: its middle and spread in km (east, north), and its share of them."""

    name: str
    centre_km: tuple[float, float]
    spread_km: tuple[float, float]
    share: float


DISTRICTS = (
    District("Old Town", (-0.2, 0.5), (0.75, 0.55), 0.23),
    District("Station", (2.0, -0.3), (0.35, 0.30), 0.13),
    District("University", (-2.9, 1.9), (0.55, 0.60), 0.12),
    District("Harbour", (3.9, -3.0), (0.90, 0.35), 0.09),
    District("Stadium", (-4.5, -2.7), (0.25, 0.25), 0.09),
    District("Market", (1.5, 2.9), (0.35, 0.30), 0.08),
    District("Gardens", (-0.9, -3.2), (1.00, 0.50), 0.11),
    District("Hillside", (4.6, 2.2), (0.95, 0.80), 0.11),
    District("Mill", (-5.6, 3.7), (0.12, 0.12), 0.02),
)


@dataclass(frozen=True)
class City:
    """People of a simulated city: true places in degrees, the cell of each, and the map."""

    grid: gv.Grid
    districts: tuple[District, ...]
    lat: FloatArray
    lng: FloatArray
    cells: IntArray

    @property
    def distribution(self) -> FloatArray:
        """The true share of every cell."""
        counts = np.bincount(self.cells, minlength=self.grid.size)
        shares: FloatArray = counts / counts.sum()
        return shares

    def cells_of(self, district: District) -> IntArray:
        """The cells whose centre lies within two spreads of the district's middle."""
        offset = (self.grid.centres - np.array(district.centre_km)) / np.array(district.spread_km)
        reach = np.maximum(2.0, self.grid.cell_km / np.array(district.spread_km))
        return np.flatnonzero((np.square(offset / reach) <= 1.0).all(axis=1))


def simulated_city(*, people: int, seed: int, cell_km: float = 0.5) -> City:
    """A city of ``people`` drawn from a mixture of districts, the same for the same seed.

    >>> city = simulated_city(people=1000, seed=7)
    >>> city.lat.size, city.grid.shape
    (1000, (18, 27))
    """
    grid = gv.Grid.from_box(south=45.71, west=4.766, north=45.79, east=4.934, cell_km=cell_km)
    generator = np.random.Generator(np.random.PCG64(seed))
    places = np.empty((0, 2))
    while len(places) < count("people", people):
        drawn = _drawn(people, grid, generator)
        places = np.concatenate([places, drawn[~in_river(drawn)]])
    places = places[:people]
    lat, lng = grid.plane.to_latlng(places)
    return City(
        grid, DISTRICTS, lat, lng, np.asarray(grid.locate(lat=lat, lng=lng, outside="clamp"))
    )


def river_north_km(east_km: FloatArray) -> FloatArray:
    """How far north the middle of the river is, along the city."""
    bends: FloatArray = -1.45 + 0.55 * np.sin(east_km / 1.7) - 0.12 * east_km
    return bends


def in_river(places: FloatArray) -> BoolArray:
    """Which places (east, north in km) are wet."""
    middle = river_north_km(places[:, 0])
    wet: BoolArray = np.abs(places[:, 1] - middle) < RIVER_HALF_WIDTH_KM
    return wet


def _drawn(people: int, grid: gv.Grid, generator: np.random.Generator) -> FloatArray:
    """Places of a mixture: the districts, and a few people anywhere."""
    shares = np.array([district.share for district in DISTRICTS] + [_COUNTRYSIDE])
    chosen = generator.choice(shares.size, size=people, p=shares / shares.sum())
    half = np.array([grid.columns, grid.rows]) * grid.cell_km / 2
    places = generator.uniform(-half, half, size=(people, 2))
    for index, district in enumerate(DISTRICTS):
        here = chosen == index
        places[here] = generator.normal(
            district.centre_km, district.spread_km, size=(np.count_nonzero(here), 2)
        )
    return places
