"""Reading sentences about privacy back, and the exact ratios they have to be true to.

Nothing here uses how the sentences are made: ratios come from the rows of the channel, and which
cells two people may be in from moving two points about the map and locating both. Where the promise is
between positions, the ratios are those of the whole numbers that are drawn from at both points.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.channel.certificate import pairwise_losses
from geoveil.channel.channel import Channel

_LENGTH = r"(?P<far>[\d.]+) (?P<unit>m|km|units?) apart"
RATIO = re.compile(
    r"(?:[Tt]wo (?P<who>people at places|people who each stay within (?P<roam>[\d.]+) (?P<roam_unit>m|km) "
    rf"of a place, these places|people|places|cells) {_LENGTH}(?P<how>[^:]*)"
    r"|Whoever stands within (?P<near>[\d.]+) (?P<near_unit>m|km) of you(?:, (?P<whose>[^:,]*),)? could "
    r"have sent the same (?:report|[\d,]+ reports, where neither of you moves)): "
    r"(?P<what>any report is|any [\d,]+ reports together are|a report|[\d,]+ reports together) "
    r"(?:at most (?P<factor>e\^[\d.e+]+|[\d.,e+]+) times as likely from one as from the other"
    r"(?:; of (?P<of>[\d,]+) such (?:sets of )?reports from one, at least (?P<least>\d+) on average "
    r"would also come from the other)?"
    r"|(?P<equal>exactly as likely from one as from the other)"
    r"|(?P<certain>may tell them apart with certainty))"
)
EPSILON = re.compile(
    r"ε = (?P<epsilon>[\d.e+-]+) (?:per (?P<unit>km|unit)(?: and (?P<slack>[\d.e+-]+) for rounding)?"
    r"|(?P<any>whatever the distance))"
)
_ANOTHER = (
    r"ε = [\d.e+-]+ (?:per (?:km|unit)(?: and [\d.e+-]+ for rounding)?|whatever the distance)"
)
_SPEAKS = re.compile(r"times as likely|exactly as likely|tell them apart with certainty")


@dataclass(frozen=True)
class Said:
    """One sentence: about whom, how far apart, the factor, and the frequency (1 where none is given)."""

    who: str
    distance_km: float
    level: float
    share: float
    several: bool
    in_cells: bool
    closest: bool = False


def read(text: str) -> list[Said]:
    """Every sentence about a ratio in a text; one that cannot be read is an error."""
    plain = " ".join(text.split())
    found = [_said(match) for match in RATIO.finditer(plain)]
    assert len(found) == len(_SPEAKS.findall(plain)), f"a sentence in other words: {plain}"
    return found


def _said(match: re.Match[str]) -> Said:
    far = float(match["far"] or match["near"])
    far /= 1000 if "m" in (match["unit"], match["near_unit"]) else 1
    if match["roam"]:  # both may have gone towards each other
        far += 2 * float(match["roam"]) / (1000 if match["roam_unit"] == "m" else 1)
    share = float(match["least"]) / float(match["of"].replace(",", "")) if match["of"] else 0.0
    level = math.inf
    if match["equal"]:
        level, share = 0.0, 1.0
    elif match["factor"]:
        factor = match["factor"].replace(",", "")
        level = float(factor[2:]) if factor.startswith("e^") else math.log(float(factor))
    several = "together" in match["what"]
    how = match["how"] or ""
    in_cells, closest = "in their cells" in how, "the closest" in how
    who = "people" if match["roam"] else match["who"] or "people"
    return Said(who, far, level, share, several, in_cells, closest)


@cache
def losses(channel: Channel) -> FloatArray:
    """The exact loss between every two cells, from the rows."""
    return pairwise_losses(np.stack([channel.row(x) for x in range(channel.space.size)]))


@cache
def cell_pairs(grid: gv.Grid, distance_km: float) -> tuple[FloatArray, FloatArray]:
    """Cells of two people this far apart: one at corners, edges and elsewhere, the other all around."""
    generator = np.random.default_rng(5)
    west, south = grid.corner_km
    size = np.array([grid.columns, grid.rows]) * grid.cell_km
    corners = np.stack(np.meshgrid(*(np.arange(n + 1) for n in grid.shape[::-1])), -1).reshape(
        -1, 2
    )
    beside = np.array([[i, j] for i in (-1e-7, 1e-7) for j in (-1e-7, 1e-7)])
    at_corners = (corners[:, None] * grid.cell_km + beside).reshape(-1, 2)
    one = np.concatenate([at_corners, generator.uniform(-0.2, 1.2, (1000, 2)) * size])
    one += np.array([west, south])
    angle = np.concatenate([np.arange(48) * np.pi / 24, generator.uniform(0, 2 * np.pi, 24)])
    step = distance_km * np.stack([np.cos(angle), np.sin(angle)], -1)
    other = (one[:, None] + step).reshape(-1, 2)
    return located(grid, np.repeat(one, len(step), axis=0)), located(grid, other)


def located(grid: gv.Grid, xy: FloatArray) -> FloatArray:
    """Cells of positions, in degrees where the grid has a map; outside ones to the nearest."""
    if grid.box is None:
        return np.asarray(grid.locate_km(xy, outside="clamp"))
    lat, lng = grid.plane.to_latlng(xy)
    return np.asarray(grid.locate(lat=lat, lng=lng, outside="clamp"))


def laws_at(channel: Channel, xy: FloatArray) -> FloatArray:
    """(k, reports): the law of the reports at positions (k, 2) in km, in the numbers drawn from."""
    if isinstance(channel, gv.Remapped):
        inner = laws_at(channel.channel, xy)
        laws = np.zeros((channel.report_count, len(inner)))
        np.add.at(laws, channel.map, inner.T)
        return laws.T
    assert isinstance(channel, gv.PositionalElastic)
    steps = channel.law.steps_of(xy - channel.space.centres[0])
    rows = channel.law.rows_at(steps).astype(np.float64)
    return rows / rows.sum(axis=1, keepdims=True)


_MARKED = 1500


@cache
def position_pairs(grid: gv.Grid, distance_km: float) -> tuple[FloatArray, FloatArray]:
    """Two people this far apart: corners, edges, middles, anywhere, outside, and far around the globe."""
    generator = np.random.default_rng(6)
    size = np.array([grid.columns, grid.rows]) * grid.cell_km
    halves = np.stack(
        np.meshgrid(*(np.arange(-1, 2 * n + 2) / 2 for n in grid.shape[::-1])), -1
    ).reshape(-1, 2)
    beside = np.array([[i, j] for i in (-1e-7, 1e-7) for j in (-1e-7, 1e-7)])
    marked = (halves[:, None] * grid.cell_km + beside).reshape(-1, 2)
    if len(marked) > _MARKED:  # of a large map, some
        marked = generator.choice(marked, _MARKED, replace=False)
    some = generator.uniform(-0.5, 1.5, (600, 2)) * size
    far = generator.normal(size=(40, 2)) * 300.0
    one = np.concatenate([marked, some, far]) + np.array(grid.corner_km)
    angle = np.concatenate([np.arange(8) * np.pi / 4, generator.uniform(0, 2 * np.pi, 8)])
    step = distance_km * np.stack([np.cos(angle), np.sin(angle)], -1)
    pairs = [np.repeat(one, len(step), axis=0), (one[:, None] + step).reshape(-1, 2)]
    if grid.box is None:
        return pairs[0], pairs[1]
    # around the globe: along a meridian no two places are nearer than their latitudes are apart
    lat = np.concatenate([generator.uniform(-89.0, 89.0, 200), [-90.0, 89.0, 0.0, 0.0]])
    lng = np.concatenate([generator.uniform(-180.0, 180.0, 200), [0.0, 0.0, 180.0, -180.0]])
    north = np.minimum(lat + distance_km / 111.8, 90.0)
    for index, latitude in enumerate((lat, north)):
        on_globe = grid.plane.to_plane(lat=latitude, lng=lng, folded=True)
        pairs[index] = np.concatenate([pairs[index], on_globe])
    return pairs[0], pairs[1]


@cache
def worst_between_positions(channel: Channel, distance_km: float) -> float:
    """The largest loss found between any two positions this far apart."""
    assert isinstance(channel.space, gv.Grid)
    xy, drawn = np.concatenate(position_pairs(channel.space, distance_km)), channel
    while isinstance(drawn, gv.Remapped):
        drawn = drawn.channel
    assert isinstance(drawn, gv.PositionalElastic)
    steps = drawn.law.centres.moved_inside(drawn.law.steps_of(xy - drawn.space.centres[0]))
    _, first, numbers = np.unique(steps @ [1, 1j], return_index=True, return_inverse=True)
    laws = laws_at(channel, xy[first])  # of places that are drawn for alike once
    pairs = np.unique(numbers.reshape(2, -1).T @ [1, 1j])  # and pairs of them
    ends = np.stack([pairs.real, pairs.imag]).astype(np.int64)
    impossible = laws == 0
    logs = np.log(np.where(impossible, 1.0, laws))
    worst = 0.0
    for one, other in np.array_split(ends, 1 + ends.size // 4096, axis=1):
        assert (impossible[one] == impossible[other]).all()
        worst = max(worst, float(np.abs(logs[one] - logs[other]).max()))
    return worst


def worst_loss(channel: Channel, said: Said) -> float:
    """The exact largest loss between those whom a sentence speaks of."""
    if channel.told_apart is None:
        assert said.who == "people"
        return worst_between_positions(channel, said.distance_km)
    between, space = losses(channel), channel.space
    if said.in_cells:
        assert isinstance(space, gv.Grid)
        one, other = cell_pairs(space, said.distance_km)
        return float(between[one, other].max())
    apart = space.distances_km()
    far = space.least_distance_km if said.closest else said.distance_km
    near = (apart <= far * (1 + 1e-9)) & (apart > 0)
    assert near.any() or not said.closest
    return float(between[near].max(initial=0.0))


def check(text: str, *channels: Channel) -> list[Said]:
    """Every sentence in the text is true of the channels together; there is at least one."""
    said = read(text)
    assert said, f"no sentence about privacy: {text}"
    for sentence in said:
        used = channels if sentence.several else channels[:1]
        _true(sentence, sum(worst_loss(channel, sentence) for channel in used))
    _check_epsilons(text, channels)
    return said


def _true(said: Said, exact: float) -> None:
    assert said.level >= exact * (1 - 1e-9) - 1e-9, f"{said} where e^{exact} is true"
    assert said.share <= math.exp(-exact) * (1 + 1e-9), f"{said} where e^-{exact} is true"


def _check_epsilons(text: str, channels: tuple[Channel, ...]) -> None:
    """What stands as ε covers the exact loss, per km of cells or between any two; sums are added."""
    plain = " ".join(text.split())
    for part in re.finditer(rf"{EPSILON.pattern}(?: plus {_ANOTHER})*", plain):
        for channel in channels:
            if channel.told_apart is None:
                _check_positions(part[0], channel)
                continue
            apart = channel.space.distances_km()
            allowed = np.zeros_like(apart)
            for term in EPSILON.finditer(part[0]):
                allowed += float(term["epsilon"]) * (1.0 if term["any"] else apart)
                assert term["any"] or term["unit"] == channel.space.unit
            excess = losses(channel) - allowed * (1 + 1e-9)
            np.fill_diagonal(excess, 0.0)
            assert excess.max() <= 1e-9, f"{part[0]} is {excess.max()} too little"


def _check_positions(part: str, channel: Channel) -> None:
    """The same between positions, near and far, with what is said of rounding."""
    for distance in (1e-4, 0.01, 0.2, 1.0, 3.0):
        allowed = 0.0
        for term in EPSILON.finditer(part):
            assert term["any"] or term["unit"] == channel.space.unit
            allowed += float(term["epsilon"]) * (1.0 if term["any"] else distance)
            allowed += float(term["slack"] or 0.0)
        exact = worst_between_positions(channel, distance)
        assert exact <= allowed + 1e-9, (
            f"{part} is {exact - allowed} too little {distance} km apart"
        )
