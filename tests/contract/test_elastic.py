"""The elastic family on grids, lines and places, with and without weights."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from geoveil.errors import InvalidInput

SPOTS = np.random.default_rng(4).normal(size=(9, 2)) * [1.0, 3.0]
GENERATOR = np.random.default_rng(8)
WEIGHTS = GENERATOR.random(12) ** 3
SPARSE = np.where(np.arange(12) % 3 == 0, 0.0, WEIGHTS)


def grid(rows: int = 3, columns: int = 4, cell_km: float = 0.5) -> gv.Grid:
    return gv.Grid(rows=rows, columns=columns, cell_km=cell_km)


class TestElastic(ChannelContract):
    mechanism = gv.Elastic

    @staticmethod
    def cases() -> dict[str, Case]:
        def on_grid(weights: np.ndarray | None, beta: float = 1.5, **promise: float) -> Case:
            asked = promise or {"beta_per_km": beta}
            return Case(
                lambda: gv.Elastic(grid(), weights=weights, **asked),
                lambda: formulas.elastic(
                    formulas.lattice(3, 4, 0.5),
                    gv.Elastic(grid(), weights=weights, **asked).beta_per_km,
                    weights,
                ),
                lambda: formulas.lattice(3, 4, 0.5),
            )

        return {
            "weights": on_grid(WEIGHTS),
            "weights with zeros": on_grid(SPARSE),
            "one weight": on_grid(np.eye(12)[5]),
            "steep": on_grid(WEIGHTS, 100.0),
            "flat": on_grid(WEIGHTS, 0.01),
            "from a promise": on_grid(WEIGHTS, epsilon_per_km=2.0),
            "from a mean distance": on_grid(WEIGHTS, mean_distance_km=0.4),
            "line": Case(
                lambda: gv.Elastic(gv.Line(8), beta_per_km=0.7, weights=WEIGHTS[:8]),
                lambda: formulas.elastic(formulas.line(8), 0.7, WEIGHTS[:8]),
                lambda: formulas.line(8),
            ),
            "places": Case(
                lambda: gv.Elastic(gv.Points(xy_km=SPOTS), beta_per_km=0.9, weights=WEIGHTS[:9]),
                lambda: formulas.elastic(formulas.plane(SPOTS), 0.9, WEIGHTS[:9]),
                lambda: formulas.plane(SPOTS),
            ),
        }


class TestExponential(ChannelContract):
    mechanism = gv.Exponential

    @staticmethod
    def cases() -> dict[str, Case]:
        shapes = [(4, 4), (3, 5), (5, 3), (1, 6), (6, 1), (2, 2), (1, 1)]
        grids = {
            f"{r}x{c}": Case(
                lambda r=r, c=c: gv.Exponential(grid(r, c), epsilon_per_km=2.0),
                lambda r=r, c=c: formulas.exponential(formulas.lattice(r, c, 0.5), 2.0),
                lambda r=r, c=c: formulas.lattice(r, c, 0.5),
            )
            for r, c in shapes
        }
        return {
            **grids,
            "places": Case(
                lambda: gv.Exponential(gv.Points(xy_km=SPOTS), epsilon_per_km=1.0),
                lambda: formulas.exponential(formulas.plane(SPOTS), 1.0),
                lambda: formulas.plane(SPOTS),
            ),
        }


def test_the_promise_is_met_by_the_certificate_and_nearly_used_up() -> None:
    for weights in (None, WEIGHTS, SPARSE):
        mechanism = gv.Elastic(grid(), weights=weights, epsilon_per_km=2.0)
        certificate = gv.certify(mechanism)
        assert mechanism.guarantee.epsilon_per_km == 2.0
        assert certificate.holds
        assert mechanism.closed_form_loss().epsilon_per_km == pytest.approx(2.0, rel=1e-5)
        assert 1.0 <= mechanism.beta_per_km <= 2.0


def test_the_certificate_of_uniform_weights_lies_between_beta_and_twice_that() -> None:
    certificate = gv.certify(gv.Elastic(gv.Grid(rows=16, columns=24, cell_km=1.0), beta_per_km=1.0))
    assert certificate.exact
    assert 1.0 < certificate.epsilon_per_km < 2.0


@pytest.mark.parametrize(
    "weights", [[1.0] * 11, [0.0] * 12, [-1.0] + [1.0] * 11, [np.nan] * 12, "abc", [10**400] * 12]
)
def test_weights_must_be_one_number_per_cell(weights: object) -> None:
    with pytest.raises(InvalidInput):
        gv.Elastic(grid(), beta_per_km=1.0, weights=weights)


def test_weights_of_any_scale_give_the_same_mechanism() -> None:
    one = gv.Elastic(grid(), beta_per_km=1.0, weights=WEIGHTS)
    other = gv.Elastic(grid(), beta_per_km=1.0, weights=1e200 * WEIGHTS)
    np.testing.assert_allclose(one.matrix(), other.matrix(), rtol=1e-12)


@pytest.mark.parametrize(
    "options", [{"mean_distance_km": 0.7}, {"level": 3.0}, {"level": 3.0, "radius_km": 1.0}]
)
def test_a_beta_and_a_promise_to_find_one_exclude_each_other(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="beta_per_km must stand alone"):
        gv.Elastic(grid(), beta_per_km=10.0, **options)


def test_a_promise_beside_a_beta_is_kept_where_it_is_true_and_else_refused() -> None:
    true = gv.certify(gv.Elastic(grid(), beta_per_km=10.0)).epsilon_per_km
    assert true < 20.0
    modest = gv.Elastic(grid(), beta_per_km=10.0, epsilon_per_km=true * 1.001)
    assert modest.guarantee == gv.GeoIndistinguishability(true * 1.001)
    with pytest.raises(InvalidInput, match="must not be smaller than the loss"):
        gv.Elastic(grid(), beta_per_km=10.0, epsilon_per_km=true * 0.999)
