"""Sound mechanisms of every kind, drawn at random: an audit must blame none of them."""

from __future__ import annotations

import numpy as np

import geoveil as gv


def sound_mechanism(seed: int) -> gv.Channel:
    """The ``seed``-th sound mechanism; kinds take turns, everything else is random."""
    generator = np.random.default_rng(seed)
    return KINDS[seed % len(KINDS)](generator)


def some_epsilon(generator: np.random.Generator) -> float:
    return float(np.exp(generator.uniform(np.log(0.1), np.log(20))))


def some_grid(generator: np.random.Generator) -> gv.Grid:
    rows, columns = generator.integers(1, 13, size=2)
    if generator.random() < 0.5:
        return gv.Grid(rows=int(rows), columns=int(columns), cell_km=generator.uniform(0.1, 3))
    lat, lng = generator.uniform(-70, 70), generator.uniform(-180, 180)
    height, width = generator.uniform(0.01, 0.05, size=2)
    return gv.Grid.from_box(south=lat, west=lng, north=lat + height, east=lng + width, cell_km=0.6)


def some_space(generator: np.random.Generator) -> gv.Space:
    kind = generator.integers(3)
    if kind == 0:
        return some_grid(generator)
    if kind == 1:
        return gv.Line(int(generator.integers(1, 60)))
    return gv.Points(xy_km=generator.normal(size=(int(generator.integers(2, 40)), 2)) * 3)


def decay_of(grid: gv.Grid, epsilon: float) -> float:
    """ε per km, kept to where the sums over the lattice are quick."""
    return float(np.clip(epsilon, 0.15 / grid.cell_km, 20 / grid.cell_km))


def planar_geometric(generator: np.random.Generator) -> gv.Channel:
    grid = some_grid(generator)
    return gv.PlanarGeometric(grid, epsilon_per_km=decay_of(grid, some_epsilon(generator)))


def planar_laplace(generator: np.random.Generator) -> gv.Channel:
    grid = some_grid(generator)
    return gv.PlanarLaplace(grid, epsilon_per_km=decay_of(grid, some_epsilon(generator)))


def exponential(generator: np.random.Generator) -> gv.Channel:
    return gv.Exponential(some_space(generator), epsilon_per_km=some_epsilon(generator))


def elastic(generator: np.random.Generator) -> gv.Channel:
    space = some_space(generator)
    weights = generator.random(space.size) ** 4
    weights[generator.random(space.size) < generator.choice([0.0, 0.5])] = 0.0
    weights[generator.integers(space.size)] = 1.0
    if generator.random() < 0.5:
        return gv.Elastic(space, beta_per_km=some_epsilon(generator), weights=weights)
    return gv.Elastic(space, epsilon_per_km=some_epsilon(generator), weights=weights)


def randomized_response(generator: np.random.Generator) -> gv.Channel:
    return gv.RandomizedResponse(some_space(generator), epsilon=some_epsilon(generator))


def rappor(generator: np.random.Generator) -> gv.Channel:
    return gv.Rappor(some_space(generator), epsilon=min(8.0, some_epsilon(generator)))


def linear_geometric(generator: np.random.Generator) -> gv.Channel:
    line = gv.Line(int(generator.integers(1, 200)))
    return gv.LinearGeometric(line, epsilon_per_unit=some_epsilon(generator))


def disc(generator: np.random.Generator) -> gv.Channel:
    return gv.Disc(some_grid(generator), epsilon=some_epsilon(generator))


def exact_table(generator: np.random.Generator) -> gv.Channel:
    return gv.ExactTable(PLAIN[generator.integers(len(PLAIN))](generator))


def remapped(generator: np.random.Generator) -> gv.Channel:
    channel = PLAIN[generator.integers(len(PLAIN))](generator)
    return gv.Remapped(channel, generator.integers(channel.space.size, size=channel.report_count))


def stacked(generator: np.random.Generator) -> gv.Channel:
    space = some_space(generator)
    parts = [gv.Exponential(space, epsilon_per_km=some_epsilon(generator)) for _ in range(3)]
    return gv.StackedChannel(parts, generator.dirichlet(np.ones(3)))


def dense(generator: np.random.Generator) -> gv.Channel:
    space = some_space(generator)
    matrix = generator.dirichlet(np.full(7, 3.0), size=space.size) * 0.999 + 0.001 / 7
    return gv.DenseChannel(space, matrix)


PLAIN = [
    planar_geometric,
    planar_laplace,
    exponential,
    elastic,
    randomized_response,
    linear_geometric,
]
KINDS = [*PLAIN, rappor, exact_table, remapped, stacked, dense, disc]
