"""The truncated geometric mechanism on a line."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from geoveil.errors import InvalidInput


class TestLinearGeometric(ChannelContract):
    mechanism = gv.LinearGeometric

    @staticmethod
    def cases() -> dict[str, Case]:
        def case(size: int, epsilon: float) -> Case:
            return Case(
                lambda: gv.LinearGeometric(gv.Line(size), epsilon_per_unit=epsilon),
                lambda: formulas.linear_geometric(size, epsilon),
                lambda: formulas.line(size),
                absolute=1e-18,
            )

        return {
            **{f"{size} cells": case(size, 0.5) for size in (1, 2, 3, 17)},
            "little noise": case(6, 9.0),
            "much noise": case(6, 0.02),
        }


def test_far_cells_are_right_to_the_last_digits() -> None:
    mechanism = gv.LinearGeometric(gv.Line(1400), epsilon_per_unit=0.5)
    start = np.eye(1400)[0]
    inside = (1 - np.exp(-0.5)) / (1 + np.exp(-0.5))
    wanted = inside * np.exp(-0.5 * np.arange(1, 1399))
    np.testing.assert_allclose(mechanism.push(start)[1:-1], wanted, rtol=1e-9)
    assert gv.certify(mechanism).holds
    assert gv.certify(mechanism).epsilon_per_km == 0.5


def test_promises() -> None:
    line = gv.Line(10)
    assert gv.LinearGeometric(line, level=1.0, radius=4.0).epsilon_per_unit == 0.25
    wanted = gv.LinearGeometric(line, mean_distance=2.0)
    assert wanted.mean_of_distance(lambda d: d).mean() == pytest.approx(2.0, rel=1e-6)
    for asked in (
        {},
        {"epsilon_per_unit": 1e-12},
        {"epsilon_per_unit": 1.0, "mean_distance": 1.0},
        {"level": 1.0},
    ):
        with pytest.raises(InvalidInput):
            gv.LinearGeometric(line, **asked)
    with pytest.raises(InvalidInput, match="Line"):
        gv.LinearGeometric(gv.Grid(rows=1, columns=5, cell_km=1.0), epsilon_per_unit=1.0)
