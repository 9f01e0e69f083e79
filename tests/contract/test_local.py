"""Randomised response and RAPPOR: local differential privacy, whatever the distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from contract.statistics import assert_follows
from geoveil.errors import InvalidInput, OutsideSpace, TooLarge


class TestRandomizedResponse(ChannelContract):
    mechanism = gv.RandomizedResponse

    @staticmethod
    def cases() -> dict[str, Case]:
        def case(size: int, epsilon: float) -> Case:
            return Case(
                lambda: gv.RandomizedResponse(gv.Line(size), epsilon=epsilon),
                lambda: formulas.randomized_response(size, epsilon),
                lambda: formulas.line(size),
            )

        return {
            **{f"{size} cells": case(size, 1.0) for size in (1, 2, 3, 20)},
            "weak": case(5, 12.0),
            "strong": case(5, 1e-3),
            "grid": Case(
                lambda: gv.RandomizedResponse(gv.Grid(rows=2, columns=3, cell_km=0.5), epsilon=1.3),
                lambda: formulas.randomized_response(6, 1.3),
                lambda: formulas.lattice(2, 3, 0.5),
            ),
        }


def test_no_noise_or_all_noise() -> None:
    assert gv.RandomizedResponse(gv.Line(3), epsilon=800.0).row(1).tolist() == [0.0, 1.0, 0.0]
    for size in (1, 2, 49, 2996):  # 1/size is rounded: the chance of any cell must not exceed one
        nothing = gv.RandomizedResponse(gv.Line(size), epsilon=1e-15)
        assert nothing.sample(np.zeros(300, dtype=np.int64), randomness=gv.seeded(1)).max() < size


class TestRappor(ChannelContract):
    mechanism = gv.Rappor

    @staticmethod
    def cases() -> dict[str, Case]:
        def case(size: int, epsilon: float) -> Case:
            return Case(
                lambda: gv.Rappor(gv.Line(size), epsilon=epsilon),
                lambda: formulas.rappor(size, epsilon),
                lambda: formulas.line(size),
            )

        return {**{f"{size} cells": case(size, 1.0) for size in (1, 2, 5)}, "weak": case(4, 5.0)}

    def draw(self, channel: gv.Channel, cells: Any, seed: int) -> np.ndarray:
        bits = channel.sample(cells, randomness=gv.seeded(seed))
        assert bits.shape == (*np.shape(cells), channel.space.size)
        assert set(np.unique(bits)) <= {0, 1}
        return (bits.astype(np.int64) << np.arange(channel.space.size)).sum(axis=-1)

    def test_tallies_count_and_add(self, channel: gv.Channel) -> None:
        bits = channel.sample(np.arange(300) % channel.space.size, randomness=gv.seeded(9))
        tally, again = channel.tally(bits), channel.tally(bits[:100])
        assert tally.total == 300
        assert tally.sums.tolist() == bits.sum(axis=0).tolist()
        assert dict(_vectors(tally)) == _counted(bits)
        assert dict(_vectors(tally + again)) == _counted(np.concatenate((bits, bits[:100])))


def _vectors(tally: Any) -> list[tuple[tuple[int, ...], int]]:
    keys = map(tuple, tally.operator.vectors.tolist())
    return list(zip(keys, tally.counts.tolist(), strict=True))


def _counted(bits: np.ndarray) -> dict[tuple[int, ...], int]:
    found: dict[tuple[int, ...], int] = {}
    for vector in map(tuple, bits.tolist()):
        found[vector] = found.get(vector, 0) + 1
    return found


def test_the_columns_of_a_tally_are_those_of_the_alphabet_up_to_a_factor() -> None:
    mechanism = gv.Rappor(gv.Line(5), epsilon=1.7)
    tally = mechanism.tally(mechanism.sample([0, 1, 2, 3, 4] * 9, randomness=gv.seeded(2)))
    matrix = formulas.rappor(5, 1.7)
    for report, vector in enumerate(tally.operator.vectors):
        column = matrix[:, int((vector.astype(int) << np.arange(5)).sum())]
        given = tally.operator.column(report)
        np.testing.assert_allclose(given / given.sum(), column / column.sum(), rtol=1e-12)
        unit = np.eye(tally.counts.size)[report]
        np.testing.assert_allclose(tally.operator.pull(unit), given, rtol=1e-12)
    theta = np.full(5, 0.2)
    rows = np.stack([tally.operator.row(cell) for cell in range(5)])
    np.testing.assert_allclose(tally.operator.push(theta), theta @ rows, rtol=1e-12)


@pytest.mark.statistical
def test_rappor_on_many_cells_flips_every_bit_alike() -> None:
    mechanism = gv.Rappor(gv.Line(300), epsilon=2.0)
    bits = mechanism.sample(np.full(3000, 123), randomness=gv.seeded(3))
    keep = np.e / (1 + np.e)
    flipped = bits.astype(np.int64)
    flipped[:, 123] ^= 1
    assert_follows(flipped.ravel(), np.array([keep, 1 - keep]))
    letters = flipped[:, :298:2] * 2 + flipped[:, 1:299:2]
    assert_follows(letters.ravel(), np.outer([keep, 1 - keep], [keep, 1 - keep]).ravel())
    assert gv.certify(mechanism).holds


def test_rappor_refuses_what_it_cannot_do() -> None:
    large = gv.Rappor(gv.Line(40), epsilon=1.0)
    with pytest.raises(TooLarge, match="use sample and tally"):
        large.row(0)
    assert large.likelihood(3).shape == (40,)
    for wrong in ([[0, 1]], [[2] * 40], [[0.5] * 40], 3):
        with pytest.raises(InvalidInput):
            large.tally(wrong)
    with pytest.raises(OutsideSpace):
        large.sample([40])
    for epsilon in (0.0, -1.0, 1e5, np.inf):
        with pytest.raises(InvalidInput):
            gv.Rappor(gv.Line(3), epsilon=epsilon)
    with pytest.raises(InvalidInput, match="same channel"):
        large.tally(large.sample([0])) + gv.Rappor(gv.Line(40), epsilon=2.0).tally(
            large.sample([0])
        )
