"""The mechanism in whole numbers: the contract of channels, and exactness by arithmetic of its own."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from geoveil.document.exact import KERNEL_FLOOR, KERNEL_TOP, WEIGHTS_TOTAL, IntegerElastic, _scaled
from geoveil.errors import InvalidInput, RandomnessFailed

GRID = gv.Grid(rows=3, columns=4, cell_km=0.5)
LARGE = gv.Grid(rows=24, columns=30, cell_km=0.25)


def uneven(size: int) -> np.ndarray:
    weights = np.random.default_rng(size).random(size) ** 6 + 1e-6
    return weights / weights.sum()


def made(grid: gv.Grid, epsilon_per_km: float) -> IntegerElastic:
    designed = gv.Elastic(grid, epsilon_per_km=epsilon_per_km, weights=uneven(grid.size))
    return IntegerElastic.of(designed)


def exact_table(channel: IntegerElastic) -> list[list[int]]:
    """How many of the 2¹²⁸ draws give each report, by whole numbers of any size."""
    table = []
    for x in range(channel.space.size):
        row, line, before = divmod(x, channel.space.columns), [], 0
        for y in range(channel.space.size):
            other = divmod(y, channel.space.columns)
            offset = abs(row[0] - other[0]) * channel.space.columns + abs(row[1] - other[1])
            line.append(int(channel.kernel[offset]) * int(channel.weights[y]))
        total, running, counts = sum(line), 0, []
        for entry in line:
            running += entry
            reached = -(-(running << 128) // total)
            counts.append(reached - before)
            before = reached
        table.append(counts)
    return table


class TestIntegerElastic(ChannelContract):
    @staticmethod
    def cases() -> dict[str, Case]:
        def case(grid: gv.Grid, epsilon_per_km: float) -> Case:
            channel = made(grid, epsilon_per_km)

            def formula() -> np.ndarray:
                counts = exact_table(channel)
                return np.array([[float(Fraction(n, 2**128)) for n in row] for row in counts])

            return Case(
                lambda: channel,
                formula,
                lambda: formulas.lattice(grid.rows, grid.columns, grid.cell_km),
            )

        return {"3x4": case(GRID, 2.0), "7x9": case(gv.Grid(rows=7, columns=9, cell_km=0.25), 1.0)}


def test_fast_products_on_a_larger_grid_are_those_of_the_integers() -> None:
    channel = made(LARGE, 1.0)
    row, column = np.divmod(np.arange(LARGE.size), LARGE.columns)
    down, across = (np.abs(np.subtract.outer(axis, axis)) for axis in (row, column))
    whole = channel.kernel[down * LARGE.columns + across] * channel.weights
    matrix = whole / whole.sum(axis=1, keepdims=True)
    assert np.array_equal(channel.sums.astype(np.int64), whole.sum(axis=1))
    theta = np.random.default_rng(6).dirichlet(np.ones(LARGE.size))
    np.testing.assert_allclose(channel.push(theta), theta @ matrix, rtol=1e-9)
    np.testing.assert_allclose(channel.pull(theta), matrix @ theta, rtol=1e-9)
    np.testing.assert_allclose(channel.likelihood(17), matrix[:, 17], rtol=1e-12)


def test_the_integers_of_a_row_count_all_draws() -> None:
    channel = made(GRID, 2.0)
    for row in exact_table(channel):
        assert sum(row) == 2**128
        assert min(row) > 0


@pytest.mark.parametrize("edge", [-1, 0, 1])
def test_draws_change_exactly_where_the_table_says(edge: int) -> None:
    channel = made(GRID, 2.0)
    for cell, row in enumerate(exact_table(channel)):
        boundary = 0
        for report, size in enumerate(row[:-1]):
            boundary += size
            drawn = channel.draw(cell, (boundary + edge).to_bytes(16, "big"))
            assert drawn == (report if edge < 0 else report + 1)


def test_many_draws_at_once_are_those_one_by_one() -> None:
    channel = made(LARGE, 1.0)
    cells = np.arange(400) % channel.space.size
    source = gv.seeded(4)
    words = source.words(800).reshape(2, -1)
    together = channel.sample(cells, randomness=gv.seeded(4))
    for cell, high, low, report in zip(cells, *words, together, strict=True):
        bits = int(high).to_bytes(8, "big") + int(low).to_bytes(8, "big")
        assert channel.draw(int(cell), bits) == report


@given(st.integers(0, 2**128 - 1), st.integers(1, 2**63 - 1))
def test_scaling_a_draw_is_exact(drawn: int, total: int) -> None:
    high, low = np.array([drawn >> 64], np.uint64), np.array([drawn % 2**64], np.uint64)
    assert int(_scaled(high, low, np.uint64(total))[0]) == drawn * total >> 128


def largest_loss_per_km(channel: IntegerElastic) -> float:
    """max log(n/n′)/d over the exact table, by fractions."""
    table = exact_table(channel)
    worst = 0.0
    for x, row in enumerate(table):
        for other, line in enumerate(table):
            if x != other:
                ratio = max(Fraction(a, b) for a, b in zip(row, line, strict=True))
                loss = math.log(ratio.numerator) - math.log(ratio.denominator)
                worst = max(worst, loss / float(channel.space.distance_km(x, other)))
    return worst


@settings(max_examples=25)
@given(st.data())
def test_the_certificate_covers_the_exact_table_whatever_the_integers(data: st.DataObject) -> None:
    grid = gv.Grid(rows=2, columns=3, cell_km=data.draw(st.sampled_from([0.1, 1.0, 7.5])))
    kernel = data.draw(st.lists(st.integers(KERNEL_FLOOR, KERNEL_TOP), min_size=6, max_size=6))
    weights = data.draw(st.lists(st.integers(1, WEIGHTS_TOTAL // 6), min_size=6, max_size=6))
    channel = IntegerElastic(grid, kernel=kernel, weights=weights)
    assert channel.certified_epsilon_per_km >= largest_loss_per_km(channel) - 1e-13
    assert channel.certified_epsilon_per_km <= 2 * channel.beta_per_km + 1e-12
    assert channel.guarantee.epsilon_per_km == channel.certified_epsilon_per_km


@pytest.mark.parametrize("epsilon_per_km", [0.01, 0.2, 1.0, 2.0, 8.0, 60.0])
@pytest.mark.parametrize("camouflage", [0.0, 0.5, 1.0])
def test_publishing_meets_the_promise_from_below(epsilon_per_km: float, camouflage: float) -> None:
    prior = uneven(LARGE.size)
    designed = gv.elastic(LARGE, prior, epsilon_per_km=epsilon_per_km, camouflage=camouflage)
    exact = IntegerElastic.of(designed)
    assert exact.certified_epsilon_per_km <= epsilon_per_km
    if epsilon_per_km * LARGE.cell_km < 10:  # beyond, neighbours lie in the flat tail already
        assert exact.certified_epsilon_per_km >= 0.99 * epsilon_per_km
    assert gv.certify(exact).holds


@pytest.mark.slow
def test_a_thousand_hostile_weights_are_certified_within_the_claim() -> None:
    generator = np.random.default_rng(5)
    for power in generator.uniform(0, 40, size=1000):
        weights = generator.random(GRID.size) ** power + 1e-300
        exact = IntegerElastic.of(
            gv.Elastic(GRID, beta_per_km=1.5, weights=weights), epsilon_per_km=2.0
        )
        assert largest_loss_per_km(exact) <= exact.certified_epsilon_per_km <= 2.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": [KERNEL_TOP] * 11}, "12 whole numbers"),
        ({"kernel": [1.5] * 12}, "whole numbers"),
        ({"kernel": [[1], [1, 2]]}, "12 whole numbers"),
        ({"kernel": [9] * 12}, "must lie in"),
        ({"kernel": [KERNEL_TOP + 1] * 12}, "must lie in"),
        ({"weights": [0] * 12}, "must lie in"),
        ({"weights": [WEIGHTS_TOTAL // 2] * 12}, "sum to at most"),
        ({"epsilon_per_km": 0.0}, "above 0"),
        ({"kernel": [KERNEL_TOP] * 6 + [KERNEL_FLOOR] * 6}, "must not be smaller than the loss"),
    ],
)
def test_unsound_integers_are_refused(change: dict[str, object], message: str) -> None:
    sound = {"kernel": [KERNEL_TOP] * 12, "weights": [5] * 12, "epsilon_per_km": 1.0}
    IntegerElastic(GRID, **sound)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=message):
        IntegerElastic(GRID, **{**sound, **change})  # type: ignore[arg-type]


def test_other_spaces_are_refused() -> None:
    with pytest.raises(InvalidInput, match="grid"):
        IntegerElastic.of(gv.Elastic(gv.Line(4), beta_per_km=1.0))
    huge = gv.Grid(rows=100, columns=100, cell_km=0.5)
    with pytest.raises(InvalidInput, match="at most 4096"):
        IntegerElastic.of(gv.Elastic(huge, beta_per_km=1.0))


def test_a_failing_generator_gives_no_report() -> None:
    class Broken(gv.randomness.Randomness):
        def bytes(self, size: int) -> bytes:
            raise RandomnessFailed("no bits")

    with pytest.raises(RandomnessFailed):
        made(GRID, 2.0).sample([1, 2], randomness=Broken())
    with pytest.raises(InvalidInput, match="16 random bytes"):
        made(GRID, 2.0).draw(1, b"short")


def test_a_single_cell_is_certain() -> None:
    one = IntegerElastic.of(gv.Elastic(gv.Grid(rows=1, columns=1, cell_km=0.5), beta_per_km=1.0))
    assert one.matrix().tolist() == [[1.0]]
    assert one.row(0).tolist() == one.push([1.0]).tolist() == [1.0]
    assert one.sample([0, 0]).tolist() == [0, 0]


def test_a_promise_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="epsilon_per_km"):
        IntegerElastic.of(gv.Elastic(GRID, beta_per_km=1.0), epsilon_per_km=0.0)
