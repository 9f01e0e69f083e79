"""The law of positions in whole numbers, entry by entry, beside arithmetic that rounds nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from geoveil.arrays import IntArray
from geoveil.channel.guarantee import BetweenPositions
from geoveil.errors import InvalidInput
from geoveil.position import whole_law
from geoveil.position.centres import Centres
from geoveil.position.cone import ROUNDING_CELLS, RoundedCone
from geoveil.position.position_certificate import Law, PositionCertificate
from geoveil.position.whole_law import WholeLaw, below_each, whole_weights
from geoveil.randomness import Randomness, seeded

STEP, PITCH_KM = 8, 1 / 16


def some_law(beta: float = 2.0, rim: int = 0, weights: IntArray | None = None) -> WholeLaw:
    centres = Centres.of_grid(3, 4, step=STEP, pitch_km=PITCH_KM, rim=rim)
    given = np.arange(3, 3 + centres.size) if weights is None else weights
    return WholeLaw(centres, given, RoundedCone(beta, 0.435))


# -- weights ---------------------------------------------------------------------------------------


def test_weights_sum_to_a_power_of_two_and_none_is_below_one() -> None:
    found = whole_weights(np.array([1.0, 1.0, 2.0, 1e-30]))
    assert found.tolist() == [2**28, 2**28, 2**29, 1]
    assert whole_weights(np.array([1.0, 2.0])).tolist() == [2**30 // 3, 2**30 * 2 // 3 + 1]


@pytest.mark.parametrize(
    "weights",
    [np.ones(12), np.ones(12, bool), np.ones(11, int), np.ones((12, 1), int), np.arange(12),
     np.array([2**31 - 11] + [1] * 11)],
)  # fmt: skip
def test_weights_that_no_document_may_have(weights: IntArray) -> None:
    """Fractions, too few, in another shape, nothing for a cell, and a sum of 2³¹."""
    with pytest.raises(InvalidInput, match="weights must be"):
        some_law(weights=weights)


def test_the_largest_weights_are_taken_and_cannot_be_changed_afterwards() -> None:
    given = np.array([2**31 - 12] + [1] * 11, dtype=np.uint32)
    law = some_law(weights=given)
    given[0] = 1
    assert law.weights.dtype == np.int64
    assert law.weights[0] == 2**31 - 12
    with pytest.raises(ValueError, match="read-only"):
        law.weights[0] = 1


# -- the kernel ------------------------------------------------------------------------------------


def test_distances_are_whole_roots_and_end_with_the_kernel() -> None:
    law = some_law()
    near = np.stack(np.meshgrid(np.arange(-30, 31), np.arange(-30, 31)), axis=-1).reshape(-1, 2)
    far = np.array([(2**25, 1), (2**26, 2**26), (0, 41), (40, 0), (-42, 3)])
    offsets = np.concatenate((near, far))
    whole = [min(math.isqrt(east**2 + north**2), 41) for east, north in offsets.tolist()]
    assert law._distance(offsets).tolist() == whole


@pytest.mark.parametrize(("beta", "length"), [(2.0, 42), (80.0, 13)])
def test_the_kernel_is_that_of_the_middles_of_steps_until_it_is_flat(
    beta: float, length: int
) -> None:
    """As far as somebody can be from a centre, or until only the floor is left."""
    law = some_law(beta)
    assert law._widest == math.isqrt(32**2 + 24**2) + 1 == 41
    flat_km = 32 * math.log(2) / beta + 0.435
    assert law.table.size == length == min(math.ceil(flat_km / PITCH_KM), 41) + 1
    middles = (np.arange(length) + 0.5) * PITCH_KM
    exact = (np.exp(-law.cone.decay(middles)) + 2.0**-21) * 2.0**31
    assert np.abs(law.table - exact).max() <= 0.5
    assert law.table.dtype == np.int64


def test_the_rim_is_as_far_away_as_it_lies() -> None:
    """Positions stay between the centres of cells, and centres lie a cell beyond."""
    assert some_law(rim=1)._widest == math.isqrt(40**2 + 32**2) + 1


def test_a_stated_kernel_is_taken_only_where_it_is_the_one() -> None:
    law = some_law()
    own = law.table

    def stated(table: IntArray) -> IntArray:
        return WholeLaw(law.centres, law.weights, law.cone, table).table

    assert stated(own.copy()).tolist() == own.tolist()
    longer = np.rint(law._kernel(60)).astype(np.int64)
    assert stated(longer).size == 60
    for entry in (0, 20, 41):
        off = own.copy()
        off[entry] += 1
        with pytest.raises(InvalidInput, match="must be that of its β"):
            stated(off)
    for wrong in (
        own[:0],
        own.astype(float),
        own[None],
        np.resize(own, whole_law.LONGEST_TABLE + 1),
    ):
        with pytest.raises(InvalidInput, match=f"1 to {whole_law.LONGEST_TABLE} whole numbers"):
            stated(wrong)
    with pytest.raises(InvalidInput, match="go on until it is flat"):
        stated(own[:41])
    steep = some_law(80.0)
    for enough in (8, 12):
        kept = steep.table[:enough]
        assert WholeLaw(steep.centres, steep.weights, steep.cone, kept).table.size == enough
    with pytest.raises(InvalidInput, match="go on until it is flat"):
        WholeLaw(steep.centres, steep.weights, steep.cone, steep.table[:7])


# -- the promise -----------------------------------------------------------------------------------


def test_slack_is_what_rounding_adds_rounded_up() -> None:
    law = some_law()
    exact = math.sqrt(2) * PITCH_KM * 3.0 + 2 * PITCH_KM * 2.0 + 4 * 0.51 / int(law.table.min())
    assert exact < law.slack_at(3.0) < exact + 1e-4
    assert law.slack_at(3.0) * 1e4 == pytest.approx(round(law.slack_at(3.0) * 1e4), abs=1e-9)
    assert law.slack == law.slack_at(law.certificate.epsilon_per_km)
    steep = some_law(20.0)  # the smallest number of its table is small, and its rounding counts
    exact = math.sqrt(2) * PITCH_KM * 3.0 + 2 * PITCH_KM * 20.0 + 4 * 0.51 / int(steep.table.min())
    assert int(steep.table.min()) < 2_000
    assert exact < steep.slack_at(3.0) < exact + 1e-4


def test_a_promise_is_kept_from_its_own_numbers_on() -> None:
    law = some_law()
    epsilon = law.certificate.epsilon_per_km
    slack = law.slack_at(epsilon)
    assert law.keeps(BetweenPositions(epsilon, slack))
    assert law.keeps(BetweenPositions(1.1 * epsilon, law.slack_at(1.1 * epsilon)))
    assert not law.keeps(BetweenPositions(epsilon, slack - 1e-4))
    assert not law.keeps(BetweenPositions(0.9 * epsilon, slack))


@pytest.mark.parametrize(
    ("rows", "columns", "beta", "first"),
    [(1, 2, 0.3, 3.0), (1, 2, 4.3, 1.0), (2, 2, 4.0, 1.0), (1, 3, 4.1, 1.0), (2, 3, 1.3, 1.0)],
)
def test_whoever_checks_a_law_confirms_what_its_design_was_certified_at(
    rows: int, columns: int, beta: float, first: float
) -> None:
    """Else a collector publishes what every device refuses."""
    centres = Centres.of_grid(rows, columns, step=100, pitch_km=0.01)
    weights = np.ones(centres.size)
    weights[0] = first
    designed, read = (
        WholeLaw(centres, whole_weights(weights), RoundedCone(beta, ROUNDING_CELLS))
        for _ in range(2)
    )
    certified = designed.certificate
    assert read.keeps(BetweenPositions(certified.epsilon_per_km, 1.0))
    assert not read.keeps(BetweenPositions(certified.seen_per_km * (1 - 1e-9), 1.0))


def test_a_certificate_that_is_known_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    law, asked = some_law(), []
    epsilon = law.certificate.epsilon_per_km
    certify = Law.certify

    def counted(self: Law, claim_per_km: float = 0.0) -> PositionCertificate:
        asked.append(claim_per_km)
        return certify(self, claim_per_km)

    monkeypatch.setattr(Law, "certify", counted)
    assert law.keeps(BetweenPositions(epsilon, law.slack_at(epsilon)))
    assert asked == []
    assert not law.keeps(
        BetweenPositions(0.9 * epsilon, law.slack_at(epsilon))
    )  # looked at by itself
    assert asked == [0.9 * epsilon]
    other = replace(law, weights=law.weights[::-1].copy())  # knows nothing of the first
    assert other.keeps(BetweenPositions(1.5 * epsilon, other.slack_at(1.5 * epsilon)))
    assert asked == [0.9 * epsilon, 1.5 * epsilon]


# -- draws -----------------------------------------------------------------------------------------


def test_places_are_moved_into_the_rectangle_and_to_the_lattice() -> None:
    law = some_law()
    places = [(0.0, 0.0), (0.03, 0.04), (-1e300, 0.09), (99.0, -99.0)]
    assert law.steps_of(places).tolist() == [[0, 0], [0, 1], [-4, 1], [28, -4]]


def test_a_row_is_weight_times_kernel_at_the_whole_distance() -> None:
    law = some_law(80.0)
    for east, north in ((0, 0), (3, 4), (-4, -4), (28, 20), (13, 7), (99, -99)):
        inside = min(max(east, -4), 28), min(max(north, -4), 20)
        exact = []
        for (x, y), weight in zip(law.centres.points.tolist(), law.weights.tolist(), strict=True):
            distance = math.isqrt((inside[0] - x) ** 2 + (inside[1] - y) ** 2)
            exact.append(weight * int(law.table[min(distance, law.table.size - 1)]))
        assert law.rows_at(np.array([(east, north)]))[0].tolist() == exact


def test_a_draw_is_the_place_of_its_bits_among_the_running_sums() -> None:
    law, at = some_law(), np.array((5, -2))
    row = [int(entry) for entry in law.rows_at(at[None])[0]]
    assert law.draw(at, b"\0" * 16) == 0
    assert law.draw(at, b"\xff" * 16) == len(row) - 1
    total, before = sum(row), 0
    for report, entry in enumerate(row):
        first = -(-before * 2**128 // total)  # the least bits that reach this report
        assert law.draw(at, first.to_bytes(16, "big")) == report
        if report:
            assert law.draw(at, (first - 1).to_bytes(16, "big")) == report - 1
        before += entry
    for wrong in (b"", b"\0" * 15, b"\0" * 17):
        with pytest.raises(InvalidInput, match="exactly 16 random bytes"):
            law.draw(at, wrong)


class Given(Randomness):
    """Words that somebody wrote down, one after another."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def bytes(self, size: int) -> bytes:
        given, self.left = self.left[: size // 8], self.left[size // 8 :]
        return np.array(given, dtype=np.uint64).tobytes()


def test_whole_numbers_below_each_total_are_exactly_even() -> None:
    """The highest bits of a word, as many as the total has; drawn again where that is not below it."""
    totals = np.array([5, 1, 2**62, 8, 2**63 - 1])
    given = Given(4 << 61, 0, 2**64 - 1, 7 << 60, 2**64 - 1, 2**61 - 1, (2**63 - 2) << 1)
    assert below_each(totals, given).tolist() == [4, 0, 2**60 - 1, 7, 2**63 - 2]
    assert given.left == []


def test_totals_of_one_and_of_powers_of_two_are_reached() -> None:
    many = below_each(np.repeat([1, 2, 3, 4], 500), seeded(1)).reshape(4, 500)
    assert [sorted(set(each.tolist())) for each in many] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("at_once", [1, 12 * 7, 1 << 22])
def test_reports_follow_their_rows_however_many_are_drawn_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_law, "_ROWS", at_once)
    law, at = some_law(), np.array([(5, -2), (0, 20), (28, 3)])
    rows = law.rows_at(at).astype(float)
    drawn = law.sample(np.repeat(at, 1000, axis=0), seeded(3)).reshape(3, 1000)
    for row, reports in zip(rows, drawn, strict=True):
        shares = np.bincount(reports, minlength=row.size) / 1000
        assert np.abs(shares - row / row.sum()).max() < 0.06


# -- draws for crowds ------------------------------------------------------------------------------


def everywhere(law: WholeLaw) -> IntArray:
    """(k, 2): every place of the lattice in the rectangle."""
    (west, south), (east, north) = law.centres.low, law.centres.high
    places = np.meshgrid(np.arange(west, east + 1), np.arange(south, north + 1))
    return np.stack(places, axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("side", [1, 3, 8, 100])
@pytest.mark.parametrize("rim", [0, 1])
def test_the_bound_of_a_square_holds_at_all_its_places(side: int, rim: int) -> None:
    """And is reached at one of them, so that no more draws are refused than must be."""
    law = some_law(rim=rim)
    raised = law.table.copy()
    raised[5] = raised[4] + 1  # no kernel, but a rounded one may rise by one where it is flat
    object.__setattr__(law, "stated", raised)
    del law.__dict__["table"]
    places = everywhere(law)
    squares, square = np.unique((places - law.centres.low) // side, axis=0, return_inverse=True)
    bound = law._bound_over(squares * side + law.centres.low, side)[square.ravel()]
    kernel = law.rows_at(places) // law.weights
    assert (bound >= kernel).all()
    assert (
        side > 1 or (bound == np.maximum(kernel, np.where(kernel == raised[4], raised[5], 0))).all()
    )


@pytest.mark.statistical
@pytest.mark.parametrize("beta", [0.2, 2.0, 12.0])
def test_a_crowd_draws_from_the_rows_of_its_places(beta: float) -> None:
    """Five places, some in one square, some outside: each drawn from its own row, exactly."""
    from contract.statistics import assert_follows

    law = some_law(beta, rim=1)
    places = np.array([(0, 0), (1, 2), (9, 3), (24, 16), (10_000, -50)])
    which = np.tile(np.arange(5), 20_000)
    drawn = law.sample(places[which], seeded(31))
    rows = law.rows_at(places).astype(float)
    for number in range(5):
        assert_follows(drawn[which == number], rows[number] / rows[number].sum())


def test_a_crowd_is_drawn_for_in_squares_and_a_few_people_one_by_one() -> None:
    law = some_law(weights=np.full(12, 2**26))
    made: list[int] = []
    rows_at = law.rows_at
    object.__setattr__(law, "rows_at", lambda steps: (made.append(len(steps)), rows_at(steps))[1])
    law.sample(np.zeros((7, 2), dtype=np.int64), seeded(1))
    assert made.pop() == 7
    law.sample(np.zeros((100_000, 2), dtype=np.int64), seeded(1))
    assert sum(made) < 1_000, "whoever was refused six times"


def test_weights_of_many_cells_keep_their_first_twelve_bits() -> None:
    weights = np.concatenate((np.arange(1, 20_000), 2 ** np.arange(12, 31) - 1))
    short = whole_law.leading_bits(weights)
    assert (short[weights < 2**12] == weights[weights < 2**12]).all()
    assert (np.abs(short - weights) * 2**12 <= weights).all()
    for number in short.tolist():
        assert number >> (number & -number).bit_length() - 1 < 2**12
