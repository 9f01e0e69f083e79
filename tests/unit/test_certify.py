"""Certificates: exact where known by hand, infinite where they must be, and never too small."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest

import geoveil as gv
from contract.formulas import losses
from geoveil.channel import certificate
from geoveil.channel.certificate import pairwise_losses
from geoveil.channel.composed import AverageChannel
from geoveil.channel.joint import JointChannel
from geoveil.errors import InvalidInput, TooLarge

LINE = gv.Line(2)


def dense(
    matrix: object, claim: gv.Guarantee | None = None, space: gv.Space = LINE
) -> gv.Certificate:
    return gv.certify(gv.DenseChannel(space, matrix), claim=claim)


def test_a_coin_is_certified_by_hand() -> None:
    found = dense([[0.75, 0.25], [0.25, 0.75]])
    assert found.epsilon_per_km == pytest.approx(math.log(3), rel=1e-11)
    assert found.epsilon_per_km >= math.log(3)
    assert found.epsilon == found.epsilon_per_km
    assert found.holds
    assert found.exact
    assert found.worst_pair in ((0, 1), (1, 0))


@pytest.mark.parametrize("promise", [None, gv.LocalDifferentialPrivacy(1.2)])
def test_the_loss_of_a_matrix_is_enumerated_once(
    monkeypatch: pytest.MonkeyPatch, promise: gv.Guarantee | None
) -> None:
    calls: list[int] = []

    def counting(table: np.ndarray) -> np.ndarray:
        calls.append(len(table))
        return pairwise_losses(table)

    monkeypatch.setattr(certificate, "pairwise_losses", counting)
    coin = gv.DenseChannel(LINE, [[0.75, 0.25], [0.25, 0.75]], guarantee=promise)
    first = gv.certify(coin)
    assert first.claimed == coin.guarantee
    assert gv.certify(coin) == first
    assert gv.certify(coin, claim=gv.GeoIndistinguishability(2.0)).holds
    assert len(calls) == 1
    again = gv.DenseChannel(LINE, coin.matrix())
    for claim in (gv.GeoIndistinguishability(2.0), first.claimed, gv.GeoIndistinguishability(1.0)):
        afresh = certificate.enumerated.dispatch(gv.Channel)(again, claim)
        assert gv.certify(coin, claim=claim) == gv.certify(again, claim=claim) == afresh


def test_a_column_with_zero_and_positive_is_infinite() -> None:
    for matrix in ([[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]):
        assert dense(matrix).epsilon_per_km == math.inf
        assert not dense(matrix).holds
        assert not dense(matrix, gv.GeoIndistinguishability(1e6)).holds
    never = dense([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0]])
    assert never.holds
    assert never.epsilon == pytest.approx(math.log(0.5 / 0.4), rel=1e-11)


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        (gv.LocalDifferentialPrivacy(math.log(3)), True),
        (gv.LocalDifferentialPrivacy(math.log(3) - 1e-6), False),
        (gv.GeoIndistinguishability(math.log(3)), True),
        (gv.GeoIndistinguishability(1.0), False),
        (gv.WithinRadius(0.5, 0.0), True),
        (gv.WithinRadius(1.0, 1.0), False),
        (gv.WithinRadius(1.0, 1.1), True),
        (gv.GeneralPrivacy(lambda d: 1.1 * d), True),
        (gv.GeneralPrivacy(lambda d: 1.0 * d), False),
    ],
)
def test_claims_of_every_kind(claim: gv.Guarantee, holds: bool) -> None:
    found = dense([[0.75, 0.25], [0.25, 0.75]], claim)
    assert found.holds is holds
    assert (found.problem is None) is holds
    assert ("DOES NOT HOLD" in str(found)) is not holds


def test_a_law_over_cells_promises_nothing_between_positions_and_says_so() -> None:
    found = gv.certify(
        gv.PlanarGeometric(gv.Grid(rows=2, columns=2, cell_km=0.5), epsilon_per_km=1.0),
        claim=gv.BetweenPositions(9.0, 0.1),
    )
    assert (found.holds, found.exact, found.epsilon_per_km) == (False, False, math.inf)
    assert (found.epsilon, found.worst_pair, found.unit) == (None, None, "km")
    assert found.problem == "a law over cells promises nothing between positions"


def test_between_positions_the_certificate_is_the_bound_of_the_law_with_its_slack() -> None:
    box = gv.Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
    mechanism = gv.elastic(box, epsilon_per_km=2.0, between="positions")
    loss = mechanism.closed_form_loss()
    assert loss is not None
    assert loss.slack is not None
    found = gv.certify(mechanism)
    assert (found.holds, found.exact, found.problem) == (True, False, None)
    assert (found.epsilon_per_km, found.slack_nats) == (loss.epsilon_per_km, loss.slack)
    assert (found.worst_place_km, found.epsilon) == (loss.place_km, None)
    assert "per km and 0." in found.found
    less = gv.certify(mechanism, claim=gv.BetweenPositions(1.0, loss.slack))
    assert (less.holds, less.verdict) == (False, "is not shown to hold")
    assert less.problem is not None
    assert re.match(r"a bound of ε = .* is more than ε = 1 per km", less.problem)
    assert "IS NOT SHOWN TO HOLD: a bound" in str(less)


@pytest.mark.parametrize("loss", [0.1, 1.0])
def test_a_cell_and_itself_never_break_a_claim(loss: float) -> None:
    """Not even one of nothing, of a table whose rows are all the same, without a tolerance."""
    same = gv.ExactTable(gv.DenseChannel(LINE, [[loss / 2, 1 - loss / 2]] * 2))
    assert gv.certify(same, claim=gv.LocalDifferentialPrivacy(0.0)).holds
    assert gv.certify(same, claim=gv.GeoIndistinguishability(0.0)).holds


def test_a_claim_of_just_the_loss_holds_and_one_of_less_does_not() -> None:
    """However small the loss: what rounding adds counts for nothing, in neither direction."""
    for share in (0.5001, 0.51, 0.75):
        table, loss = [[share, 1 - share], [1 - share, share]], math.log(share / (1 - share))
        assert dense(table, gv.LocalDifferentialPrivacy(loss)).holds
        assert not dense(table, gv.LocalDifferentialPrivacy(loss - 1e-6)).holds


@pytest.mark.parametrize("apart_km", [1.0, 1e-3, 1e-6])
def test_no_loss_per_km_is_below_the_exact_one_however_near_the_cells(apart_km: float) -> None:
    """Rows of whole parts of 2⁵³, which floats hold exactly, against logarithms of fifty digits."""
    generator, whole = np.random.default_rng(0), 2**53
    near = gv.Points(xy_km=[[0.0, 0.0], [apart_km, 0.0]])
    for _ in range(60):
        first = int(generator.integers(2**50, 2**52))
        second = first + int(generator.integers(1, 2**30))
        rows = [[first, whole - first], [second, whole - second]]
        certificate = gv.certify(gv.DenseChannel(near, np.array(rows) / whole))
        with localcontext(prec=50):
            exact = max(
                abs((Decimal(a) / Decimal(b)).ln()) for a, b in zip(*rows, strict=True)
            ) / Decimal(apart_km)
            excess = float(Decimal(certificate.epsilon_per_km) - exact)
        assert 0 <= excess <= 1e-13 / apart_km


def test_a_broken_claim_is_named_where_the_loss_has_a_closed_form() -> None:
    channel = gv.LinearGeometric(gv.Line(100_000), epsilon_per_unit=0.1)
    found = gv.certify(channel, claim=gv.GeoIndistinguishability(0.05))
    assert not found.holds
    assert "is more than the 0.05 claimed" in found.problem


@pytest.mark.parametrize("seed", range(8))
def test_enumeration_agrees_with_loops(seed: int) -> None:
    generator = np.random.default_rng(seed)
    space = gv.Points(xy_km=generator.normal(size=(7, 2)))
    matrix = generator.dirichlet(np.ones(5), size=7) * 0.99 + 0.002
    found = dense(matrix, space=space)
    distances = space.distances_km() + np.diag(np.full(7, np.inf))
    assert found.epsilon == pytest.approx(losses(matrix).max(), rel=1e-10)
    per_km = losses(matrix) / distances
    assert found.epsilon_per_km == pytest.approx(per_km.max(), rel=1e-10)
    assert per_km[found.worst_pair] == pytest.approx(per_km.max(), rel=1e-10)
    assert found.epsilon >= losses(matrix).max()


def test_tables_that_are_no_channel_are_refuted() -> None:
    class Broken(gv.DenseChannel):
        def matrix(self) -> np.ndarray:
            return self.shown

    for shown, said in (
        ([[np.nan, 1], [0.5, 0.5]], "not finite"),
        ([[-0.1, 1.1], [0.5, 0.5]], "negative"),
        ([[0.5, 0.4], [0.5, 0.5]], "sums to 0.9"),
    ):
        channel = Broken(LINE, np.eye(2))
        channel.shown = np.array(shown)
        found = gv.certify(channel, claim=gv.LocalDifferentialPrivacy(9.0))
        assert not found.holds
        assert said in found.problem


@pytest.mark.parametrize(
    "channel",
    [
        gv.LinearGeometric(gv.Line(2000), epsilon_per_unit=1.0),
        gv.LinearGeometric(gv.Line(100_000), epsilon_per_unit=0.1),
        gv.RandomizedResponse(gv.Line(100_000), epsilon=1.0),
        gv.Rappor(gv.Line(1000), epsilon=1.0),
        gv.PlanarGeometric(gv.Grid(rows=2, columns=300, cell_km=1.0), epsilon_per_km=4.0),
        gv.PlanarLaplace(gv.Grid(rows=12, columns=12, cell_km=1.0), epsilon_per_km=90.0),
        gv.Elastic(gv.Line(300), beta_per_km=3.0, weights=np.r_[np.zeros(34), np.ones(266)]),
        gv.Exponential(gv.Grid(rows=150, columns=100, cell_km=1.0), epsilon_per_km=1.0),
    ],
    ids=repr,
)
def test_sound_laws_hold_where_floats_run_out(channel: gv.Channel) -> None:
    found = gv.certify(channel)
    assert found.holds, found.problem
    assert found.problem is None
    assert math.isfinite(found.epsilon_per_km)


def test_an_elastic_mechanism_of_ten_thousand_cells_is_certified_by_its_closed_form() -> None:
    grid = gv.Grid(rows=100, columns=100, cell_km=0.5)
    weights = np.random.default_rng(0).random(grid.size) ** 4
    found = gv.certify(gv.Elastic(grid, beta_per_km=1.0, weights=weights))
    assert found.exact
    assert 1.0 < found.epsilon_per_km <= 2.0


def test_narrow_grids_do_not_meet_their_bound() -> None:
    def certified(rows: int, columns: int) -> float:
        grid = gv.Grid(rows=rows, columns=columns, cell_km=1.0)
        return gv.certify(gv.PlanarGeometric(grid, epsilon_per_km=1.0)).epsilon_per_km

    for rows, columns in ((1, 7), (7, 1), (2, 2)):
        assert certified(rows, columns) < 0.99
    for rows, columns in ((2, 5), (5, 2), (3, 3), (2, 3), (3, 2)):
        assert certified(rows, columns) == pytest.approx(1.0, rel=1e-9)


def test_what_is_too_large_and_has_no_closed_form_is_refused() -> None:
    noise = gv.PlanarGeometric(gv.Grid(rows=80, columns=80, cell_km=1.0), epsilon_per_km=1.0)
    with pytest.raises(TooLarge):
        gv.certify(JointChannel([noise, noise]))


def test_channels_made_of_others_are_bounded_by_them() -> None:
    grid = gv.Grid(rows=80, columns=80, cell_km=1.0)
    near, far = (gv.PlanarGeometric(grid, epsilon_per_km=e) for e in (2.0, 1.0))
    remapped = gv.certify(gv.Remapped(near, np.zeros(6400, dtype=np.int64)))
    assert remapped.holds
    assert not remapped.exact
    assert remapped.epsilon_per_km == 2.0
    stacked = gv.certify(gv.StackedChannel([near, far]))
    assert stacked.holds
    assert stacked.exact
    assert stacked.epsilon_per_km == 2.0
    averaged = gv.certify(AverageChannel([near, far], [0.5, 0.5]))
    assert averaged.holds
    assert not averaged.exact
    assert averaged.epsilon_per_km == 2.0
    local = gv.certify(
        gv.StackedChannel([gv.RandomizedResponse(grid, epsilon=e) for e in (1.0, 3.0)])
    )
    assert local.holds
    assert local.epsilon == 3.0
    unused = gv.StackedChannel([far, near], [1.0, 0.0])
    assert not unused.closed_form_loss().exact
    assert (
        gv.StackedChannel([near, gv.DenseChannel(grid, np.ones((6400, 1)))]).closed_form_loss()
        is None
    )


class Unpromised(gv.DenseChannel):
    _promise = gv.Channel._promise

    def __init__(self, *promise: object) -> None:
        super().__init__(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]])
        del self._fixed
        if promise:
            self.guarantee = promise[0]


def test_a_class_that_says_nothing_of_its_promise_promises_nothing() -> None:
    assert Unpromised().guarantee is None
    assert gv.certify(Unpromised()).epsilon_per_km == pytest.approx(math.log(3))
    with pytest.raises(InvalidInput, match=r"guarantee \(float\) must be a guarantee, such as"):
        Unpromised(2.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda grid: gv.PlanarGeometric(grid, epsilon_per_km=1.0),
        lambda grid: gv.PlanarLaplace(grid, epsilon_per_km=1.0),
        lambda grid: gv.RandomizedResponse(grid, epsilon=1.0),
    ],
    ids=["geometric", "laplace", "response"],
)
def test_what_a_closed_form_shows_of_any_claim_needs_no_matrix(
    make: Callable[[gv.Grid], gv.Channel],
) -> None:
    channel = make(gv.Grid(rows=70, columns=70, cell_km=0.5))
    for claim in (
        gv.WithinRadius(1.0, 1.0),
        gv.PerKilometre(1.0) + gv.LocalDifferentialPrivacy(1.0),
    ):
        certificate = gv.certify(channel, claim=claim)
        assert certificate.holds
        assert certificate.claimed == claim
    with pytest.raises(TooLarge):  # only its matrix could say
        gv.certify(channel, claim=gv.WithinRadius(1.0, 0.9))


def test_a_bound_speaks_only_where_there_are_too_many_cells_for_a_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(certificate, "_ENUMERATED", 9)
    few, many = (
        gv.PlanarLaplace(gv.Grid(rows=rows, columns=columns, cell_km=1.0), epsilon_per_km=1.0)
        for rows, columns in ((3, 3), (2, 5))
    )
    for claim in (None, gv.WithinRadius(1.0, 1.0)):
        assert gv.certify(few, claim=claim).how == "enumeration"
        assert gv.certify(many, claim=claim).how == "the bound of the Laplace density"
    true = gv.GeoIndistinguishability(1.0001 * gv.certify(few).epsilon_per_km)
    assert gv.certify(few, claim=true).verdict == "holds"
    close = gv.GeoIndistinguishability(0.9999 * many.epsilon_per_km)
    assert gv.certify(many, claim=close).how == "enumeration"  # the bound does not prove it
    assert gv.certify(many, claim=close).holds
    assert gv.certify(few, claim=gv.GeoIndistinguishability(0.1)).verdict == "does not hold"
