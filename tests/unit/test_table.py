"""Exact tables: integers that sum to 2⁶², drawn by a scan of the whole row (promise 13)."""

from __future__ import annotations

import itertools
from decimal import Decimal, getcontext

import numpy as np
import pytest

import geoveil as gv
from geoveil.document import exact as exact_module
from geoveil.document.exact import integer_rows, scan
from geoveil.errors import InvalidInput, TooLarge, Unsupported

TOTAL = 2**62


def hostile_weights(seed: int, size: int) -> np.ndarray:
    """Weights that somebody who designs a mechanism might send, sound or not."""
    generator = np.random.default_rng(seed)
    kinds = [
        lambda: generator.random(size),
        lambda: np.eye(size)[generator.integers(size)],
        lambda: np.eye(size)[generator.integers(size)] + 1e-300,
        lambda: 10.0 ** generator.uniform(-300, 300, size),
        lambda: np.where(np.arange(size) % 2, 1.0, 1e-15),
        lambda: np.where(generator.random(size) < 0.8, 0.0, 1.0) + np.eye(size)[0],
        lambda: np.exp(-np.arange(size) * generator.uniform(0, 20)),
        lambda: np.full(size, 5e-324) * generator.integers(1, 4, size),
        lambda: np.full(size, 1.7e308),
        lambda: generator.pareto(0.3, size) + 1e-12,
    ]
    return kinds[seed % len(kinds)]()


def hostile_mechanism(seed: int) -> gv.Elastic:
    generator = np.random.default_rng(seed)
    spaces = [
        gv.Grid(
            rows=int(generator.integers(1, 7)), columns=int(generator.integers(1, 7)), cell_km=0.5
        ),
        gv.Line(int(generator.integers(2, 25))),
        gv.Points(xy_km=generator.normal(size=(12, 2))),
    ]
    space = spaces[int(generator.integers(3))]
    epsilon = float(np.exp(generator.uniform(np.log(1e-3), np.log(60))))
    weights = hostile_weights(seed, space.size)
    if generator.random() < 0.5:
        return gv.Elastic(space, beta_per_km=epsilon / 2, weights=weights)
    return gv.Elastic(space, epsilon_per_km=epsilon, weights=weights)


def check_certified(seed: int) -> None:
    mechanism = hostile_mechanism(seed)
    table = gv.ExactTable(mechanism)
    assert [sum(row) for row in table.integers.tolist()] == [TOTAL] * mechanism.space.size
    certificate = gv.certify(table)
    assert certificate.holds, certificate.problem
    assert certificate.exact
    assert certificate.epsilon_per_km <= mechanism.guarantee.epsilon_per_km


@pytest.mark.parametrize("seed", range(60))
def test_the_certified_loss_is_within_the_claim(seed: int) -> None:
    check_certified(seed)


@pytest.mark.slow
def test_the_certified_loss_is_within_the_claim_a_thousand_times() -> None:
    for seed in range(1000, 2000):
        check_certified(seed)


@pytest.mark.parametrize(
    "channel",
    [
        gv.RandomizedResponse(gv.Line(7), epsilon=1.0),
        gv.RandomizedResponse(gv.Line(300), epsilon=0.01),
        gv.LinearGeometric(gv.Line(60), epsilon_per_unit=2.0),
        gv.PlanarGeometric(gv.Grid(rows=6, columns=9, cell_km=0.5), epsilon_per_km=3.0),
        gv.PlanarLaplace(gv.Grid(rows=6, columns=9, cell_km=0.5), epsilon_per_km=3.0),
        gv.Rappor(gv.Line(6), epsilon=1.0),
    ],
    ids=repr,
)
def test_tight_mechanisms_stay_within_their_claim(channel: gv.Channel) -> None:
    certificate = gv.certify(gv.ExactTable(channel))
    assert certificate.holds, certificate.problem


def test_the_certificate_is_that_of_the_integers_rounded_up() -> None:
    table = gv.ExactTable(gv.Elastic(gv.Line(6), beta_per_km=0.8, weights=[1, 9, 2, 7, 3, 3]))
    getcontext().prec = 60
    logs = [[Decimal(value).ln() for value in row] for row in table.integers.tolist()]
    exact = max(
        max(a - b for a, b in zip(logs[x], logs[y], strict=True)) / abs(x - y)
        for x, y in itertools.permutations(range(6), 2)
    )
    certified = Decimal(gv.certify(table).epsilon_per_km)
    assert exact <= certified <= exact * (1 + Decimal("1e-11")) + Decimal("1e-13")


def test_a_table_that_breaks_its_claim_is_refuted() -> None:
    table = gv.ExactTable(gv.RandomizedResponse(gv.Line(4), epsilon=1.0))
    certificate = gv.certify(table, claim=gv.LocalDifferentialPrivacy(1.0 - 1e-5))
    assert not certificate.holds
    assert "are claimed" in certificate.problem
    zero = gv.ExactTable(gv.RandomizedResponse(gv.Line(2), epsilon=1.0))
    zero.integers = np.array([[TOTAL, 0], [TOTAL // 2, TOTAL // 2]], dtype=np.uint64)
    assert not gv.certify(zero).holds
    assert gv.certify(zero).epsilon == np.inf


class Counted:
    """A number that counts how often it is compared."""

    compared = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __le__(self, other: object) -> bool:
        Counted.compared += 1
        return self.value <= int(other)  # type: ignore[call-overload]


@pytest.mark.parametrize("drawn", [0, 1, 2**61, TOTAL - 1])
def test_the_scan_reads_the_whole_row_whatever_is_drawn(drawn: int) -> None:
    table = gv.ExactTable(gv.RandomizedResponse(gv.Line(9), epsilon=3.0))
    found = set()
    for cumulative in np.cumsum(table.integers, axis=1):
        row = np.array([[Counted(int(value)) for value in cumulative]], dtype=object)
        Counted.compared = 0
        found.add(int(scan(row, np.array([drawn], dtype=object))[0]))
        assert Counted.compared == 9
    assert found <= set(range(9))


def test_every_draw_falls_where_the_integers_say() -> None:
    table = gv.ExactTable(gv.Elastic(gv.Line(5), beta_per_km=1.0, weights=[1, 0, 3, 2, 1]))
    for row in table.integers:
        cumulative = np.cumsum(row)
        starts = np.concatenate((np.zeros(1, dtype=np.uint64), cumulative[:-1]))
        for report in range(5):
            first, last = starts[report], cumulative[report] - np.uint64(1)
            assert scan(cumulative[None], np.array([first])).item() == report
            assert scan(cumulative[None], np.array([last])).item() == report


def test_a_table_has_at_most_as_many_cells_as_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_module, "MATRIX_LIMIT", 5)
    for size in (5, 6):
        mechanism = gv.RandomizedResponse(gv.Line(size), epsilon=1.0)
        if size == 5:
            assert gv.ExactTable(mechanism).integers.shape == (5, 5)
            continue
        with pytest.raises(TooLarge, match="6 × 6"):
            gv.ExactTable(mechanism)


def test_integer_rows_close_what_rounding_leaves() -> None:
    for seed in range(40):
        generator = np.random.default_rng(seed)
        matrix = generator.dirichlet(np.full(generator.integers(1, 3000), 0.1), size=3)
        rows = integer_rows(matrix).tolist()
        assert [sum(row) for row in rows] == [TOTAL] * 3
        assert min(map(min, rows)) > 0
        blended = (1 - 2.0**-20) * matrix + 2.0**-20 / matrix.shape[1]
        np.testing.assert_allclose(np.array(rows, dtype=np.float64) / TOTAL, blended, rtol=1e-9)
        np.testing.assert_array_equal(integer_rows(4.0 * matrix), rows)  # whatever the rows sum to
    (small,) = integer_rows(np.array([[1.0 - 3e-7, 1e-7, 2e-7]]))
    exact = [((1 - 2.0**-20) * share + 2.0**-20 / 3) * 2.0**62 for share in (1e-7, 2e-7)]
    assert all(value % 1 for value in exact)
    assert small[1:].tolist() == [int(value) for value in exact]  # the largest alone is rounded up
    for wrong in ([[np.nan, 1.0]], [[-0.5, 1.5]], [[np.inf, 0.0]]):
        with pytest.raises(InvalidInput):
            integer_rows(np.array(wrong))


def test_tables_are_bounded_and_fixed() -> None:
    with pytest.raises(TooLarge):
        gv.ExactTable(gv.RandomizedResponse(gv.Line(5000), epsilon=1.0))
    with pytest.raises(TooLarge):
        gv.ExactTable(gv.Rappor(gv.Line(13), epsilon=1.0))
    table = gv.ExactTable(gv.RandomizedResponse(gv.Line(3), epsilon=1.0))
    with pytest.raises(ValueError, match="read-only"):
        table.integers[0, 0] = 0
    assert table == gv.ExactTable(gv.RandomizedResponse(gv.Line(3), epsilon=1.0))
    assert table != gv.ExactTable(gv.RandomizedResponse(gv.Line(3), epsilon=2.0))


@pytest.mark.slow
def test_a_thousand_cells_are_certified_exactly() -> None:
    grid = gv.Grid(rows=32, columns=32, cell_km=0.5)
    weights = np.random.default_rng(1).random(grid.size)
    certificate = gv.certify(gv.ExactTable(gv.Elastic(grid, beta_per_km=1.0, weights=weights)))
    assert certificate.holds
    assert certificate.exact


def test_a_table_of_cells_is_not_made_of_a_law_between_positions() -> None:
    grid = gv.Grid(rows=2, columns=3, cell_km=0.5)
    law = gv.elastic(grid, epsilon_per_km=1.0, camouflage=0.0, between="positions")
    with pytest.raises(Unsupported, match="cannot keep a promise between positions"):
        gv.ExactTable(law)
