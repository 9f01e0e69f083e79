"""Remapping against loops, and that it costs no privacy and gains on average."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import InvalidInput, TooLarge
from geoveil.space.space import squared_distance_km2

GRID = gv.Grid(rows=3, columns=4, cell_km=0.5)
PRIOR = np.random.default_rng(5).dirichlet(np.full(12, 0.4))
NOISE = gv.PlanarGeometric(GRID, epsilon_per_km=1.0)


def mean_loss(channel: gv.Channel, losses: np.ndarray) -> float:
    return float((PRIOR[:, None] * channel.matrix() * losses).sum())


def test_nearest_remap_goes_to_the_nearest() -> None:
    land = [0, 5, 11]
    remapped = gv.nearest_remap(NOISE, land)
    distances = GRID.distances_km()
    for report in range(12):
        assert remapped.map[report] in land
        assert distances[report, remapped.map[report]] == min(distances[report, z] for z in land)
    assert remapped.guarantee == NOISE.guarantee
    assert set(remapped.sample(np.arange(12).repeat(50), randomness=gv.seeded(1))) == set(land)


@pytest.mark.parametrize("loss", [None, squared_distance_km2])
def test_bayesian_remap_minimises_the_posterior_loss(loss: object) -> None:
    remapped = gv.bayesian_remap(NOISE, PRIOR, **({} if loss is None else {"loss": loss}))
    losses = GRID.distances_km() if loss is None else np.square(GRID.distances_km())
    matrix = NOISE.matrix()
    for report in range(12):
        posterior = [
            sum(PRIOR[x] * matrix[x, report] * losses[x, z] for x in range(12)) for z in range(12)
        ]
        assert posterior[remapped.map[report]] == pytest.approx(min(posterior), rel=1e-12)
    assert mean_loss(remapped, losses) <= mean_loss(NOISE, losses)


def test_a_report_the_prior_rules_out_keeps_the_best_guess_without_it() -> None:
    channel = gv.DenseChannel(gv.Line(3), [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    remapped = gv.bayesian_remap(channel, [0.0, 0.3, 0.7])
    assert remapped.map.tolist() == [2, 1, 2]


def test_remapping_costs_no_privacy() -> None:
    before = gv.certify(NOISE).epsilon_per_km
    for remapped in (gv.bayesian_remap(NOISE, PRIOR), gv.nearest_remap(NOISE, [1, 7])):
        certificate = gv.certify(remapped)
        assert certificate.holds
        assert certificate.epsilon_per_km <= before * (1 + 1e-12)


def test_what_cannot_be_remapped() -> None:
    with pytest.raises(InvalidInput, match="reports are cells"):
        gv.nearest_remap(gv.Rappor(gv.Line(3), epsilon=1.0), [0])
    with pytest.raises(InvalidInput, match="empty"):
        gv.nearest_remap(NOISE, [])
    with pytest.raises(InvalidInput):
        gv.bayesian_remap(NOISE, [-0.5] * 12)
    with pytest.raises(InvalidInput, match="such as gv"):
        gv.bayesian_remap(NOISE, [1.0] * 12, loss=3)  # type: ignore[arg-type]
    with pytest.raises(TooLarge):
        gv.bayesian_remap(
            gv.Exponential(gv.Line(5000), epsilon_per_km=1.0), np.full(5000, 1 / 5000)
        )
    for wrong in ([0] * 11, [12] * 12, [-1] * 12, [0.5] * 12, "abc"):
        with pytest.raises(InvalidInput):
            gv.Remapped(NOISE, wrong)
