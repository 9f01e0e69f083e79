"""Promises between positions: what they cost in distance and in time, beside promises between cells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import process_time

import numpy as np

from benchmarks.timing import Figure, best_of, city_prior, duration
from geoveil.arrays import FloatArray
from geoveil.campaign import Campaign
from geoveil.campaign.elastic_design import Between, elastic
from geoveil.channel.channel import Channel, Tally, positions_on_a_side
from geoveil.mechanism.elastic import Elastic
from geoveil.papers.data import PARIS, SAN_FRANCISCO, DataFolder, MissingData, load_city
from geoveil.position.positional import PositionalElastic
from geoveil.space.grid import Grid

_BETWEEN: tuple[Between, Between] = ("positions", "cells")
_TARGETS = {
    0.0: {0.5: 1 / 0.95, 1.0: 1 / 0.90, 2.0: 1 / 0.79},
    0.5: {0.5: 1 / 0.98, 1.0: 1 / 0.96, 2.0: 1 / 0.92},
}
"""By camouflage and ε per cell: the mean distance as a multiple of that between cells, at most."""
_REPORTS = 1_000_000


def positions() -> Iterator[Figure]:
    """Each figure of promises between positions beside its yardstick."""
    yield from distances()
    yield from checks()
    yield from many_cells()
    yield from closings()
    yield products()


def distances() -> Iterator[Figure]:
    """Mean distance with people spread in their cells, as a multiple of the law between centres."""
    folder = DataFolder()
    for cut in (PARIS, SAN_FRANCISCO):
        grid = Grid(rows=cut.rows, columns=cut.columns, cell_km=1.0)
        try:
            prior = load_city(cut, folder).truth
        except MissingData:
            prior = city_prior(grid)
        for camouflage, targets in _TARGETS.items():
            for epsilon, limit in targets.items():
                km = [
                    _spread_km(_designed(grid, prior, epsilon, camouflage, between), prior)
                    for between in _BETWEEN
                ]
                name = f"mean distance, {cut.name}, ε = {epsilon:g} per cell, camouflage {camouflage:g}"
                yield Figure(name, 0.0, km[0] / km[1], "×", limit, "the same ε between centres")


def _spread_km(mechanism: Channel, prior: FloatArray) -> float:
    """Mean distance from people spread evenly in their cells to the reported centre."""
    if isinstance(mechanism, PositionalElastic):
        return float(prior @ mechanism.mean_of_distance(lambda distance: distance))
    centres, total = mechanism.space.centres, np.zeros(len(prior))
    line, shares = positions_on_a_side(8)
    for east, of_column in zip(line, shares, strict=True):
        for north, of_row in zip(line, shares, strict=True):
            apart = centres[:, None] + (east, north) - centres
            means = (mechanism.matrix() * np.hypot(apart[..., 0], apart[..., 1])).sum(axis=1)
            total += of_column * of_row * means
    return float(prior @ total)


def _designed(
    grid: Grid, prior: FloatArray, epsilon: float, camouflage: float, between: Between = "positions"
) -> Channel:
    return elastic(grid, prior, epsilon_per_km=epsilon, camouflage=camouflage, between=between)


def checks() -> Iterator[Figure]:
    """How long a device takes to check a mechanism, and a collector to design one, on one core."""
    for side, camouflage, check, design in (
        (22, 0.5, 0.3, 30.0),
        (22, 0.0, 0.3, 120.0),
        (64, 0.5, 2.0, 30.0),
        (64, 0.0, 10.0, 120.0),
    ):
        grid = Grid(rows=side, columns=side, cell_km=0.5)
        designing = partial(_designed, grid, city_prior(grid), 2.0, camouflage)
        name = f"{grid.size:,} cells, camouflage {camouflage:g}"
        made: list[Channel] = []
        yield duration(
            f"design between positions, {name}",
            lambda designing=designing, made=made: made.append(designing()),  # type: ignore[misc]
            limit=design,
            clock=process_time,
        )
        yield duration(
            f"certificate over all positions, {name}",
            partial(_certified, grid, made[0]),
            limit=check,
            repeats=3,
            clock=process_time,
        )


def _certified(grid: Grid, law: Channel) -> float:
    """A certificate from the whole numbers alone."""
    assert isinstance(law, PositionalElastic)
    return PositionalElastic(grid, **law.parameters()).certificate.epsilon_per_km


def many_cells() -> Iterator[Figure]:
    """Whether more cells than least squares are done for make reports fall as steeply: β, at one promise."""
    fewer, more = (Grid(rows=64, columns=columns, cell_km=1.0) for columns in (64, 96))
    for epsilon in (0.25, 0.5, 1.0):
        steepness, before = [], 0.0
        for grid in (fewer, more):
            before = process_time()
            law = _designed(grid, city_prior(grid), epsilon, 0.0)
            assert isinstance(law, PositionalElastic)
            steepness.append(law.beta_per_km)
        spent, share = process_time() - before, steepness[1] / steepness[0]
        name = f"β of {more.size:,} cells, ε = {epsilon:g} per cell, camouflage 0"
        yield Figure(name, spent, share, "×", 0.95, f"that of {fewer.size:,}", at_least=True)


def closings() -> Iterator[Figure]:
    """How long a collector takes to close a round, with all it says about it: processor time."""
    grid = Grid(rows=64, columns=64, cell_km=0.5)
    prior, generator = city_prior(grid), np.random.default_rng(1)
    for epsilon in (0.5, 1.0, 2.0):
        campaign = Campaign(grid, epsilon_per_km=epsilon / grid.cell_km, between="positions")
        mechanism = campaign.mechanism
        law = mechanism.push(prior)
        campaign.receive(Tally(mechanism, generator.multinomial(_REPORTS, law / law.sum())))
        name = f"close a round of 4,096 cells, 10⁶ reports, ε = {epsilon:g} per cell"
        yield duration(name, partial(_closed, campaign), limit=60.0, clock=process_time)


def _closed(campaign: Campaign) -> None:
    """The estimate and the next mechanism, error bars, alarm and manipulation gain."""
    campaign.close_round()
    closing = campaign.closing
    closing.error_bars()
    closing.manipulation_gain()


def products() -> Figure:
    """A push and a pull on 10⁶ cells with four positions in each, beside those between cells."""
    grid = Grid(rows=1000, columns=1000, cell_km=0.5)
    theta = city_prior(grid)
    weights = np.ones(grid.size, dtype=np.int64)
    law = PositionalElastic(grid, beta_per_km=1.0, weights=weights, step=500)
    vars(law)["positions_across"] = 2  # without a certificate of a million cells
    cells = Elastic(grid, beta_per_km=1.0)

    def product(channel: Channel) -> None:
        channel._pull(channel._push(theta))

    ours, beside = best_of(
        partial(product, law), partial(product, cells), repeats=3, clock=process_time
    )
    name = "push and pull between positions, 10⁶ cells"
    return Figure(name, ours, ours / beside, "×", 3.75, "between cells", beside)
