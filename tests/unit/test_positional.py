"""The promise between positions: in whole numbers, in words, in campaigns, and against an attacker."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

import geoveil as gv
from geoveil.arrays import IntArray
from geoveil.channel.composed import AverageChannel
from geoveil.channel.joint import JointChannel
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict
from geoveil.errors import InvalidFile, InvalidInput, Unsupported
from geoveil.position.position_certificate import Law
from geoveil.position.whole_law import below_each, whole_weights

PARIS = gv.Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=1.0)


def steps_of(mechanism: gv.PositionalElastic, places_km: npt.ArrayLike) -> IntArray:
    """Places in the plane of the space, in km → steps of the lattice."""
    return mechanism.law.steps_of(np.asarray(places_km) - mechanism.space.centres[0])


def crowd(size: int, seed: int = 3) -> np.ndarray:
    people = np.random.default_rng(seed).gamma(0.4, size=size)
    return people / people.sum()


@pytest.fixture(scope="module", params=[0.0, 0.5, 1.0])
def mechanism(request: pytest.FixtureRequest) -> gv.PositionalElastic:
    return gv.elastic(
        PARIS,
        crowd(PARIS.size),
        epsilon_per_km=1.5,
        camouflage=request.param,
        between="positions",
    )


def test_columns_together_are_the_same_numbers_as_one_by_one(
    mechanism: gv.PositionalElastic,
) -> None:
    """Of the kernel, of the law, and of the law at places in the cells, those of the edge among them."""
    places = mechanism.places(3)
    assert places is not None
    for operator in (mechanism._spread, mechanism, places):
        for chosen in (np.arange(operator.shape[1])[::-3], np.zeros(0, dtype=np.int64)):
            alone = [operator._column(int(column)) for column in chosen]
            expected = np.reshape(alone, (chosen.size, operator.shape[0])).T
            assert np.array_equal(operator.columns(chosen), expected)


# -- the promise, from the whole numbers that are drawn from ---------------------------------------


def test_any_two_positions_keep_the_promise_in_whole_numbers(
    mechanism: gv.PositionalElastic,
) -> None:
    """Edges, corners, the rim, outside and neighbours a metre apart, exactly as drawn."""
    generator = np.random.default_rng(1)
    high = np.array([PARIS.width_km, PARIS.height_km]) / 2 + 1.5
    some = generator.uniform(-high, high, (400, 2))
    lines = np.array([(x, y) for x in np.arange(-4, 4.01, 0.5) for y in np.arange(-3, 3.01, 0.5)])
    close = np.concatenate((some, lines))
    pairs = [
        (close, close + generator.normal(size=close.shape) * reach) for reach in (1e-3, 0.05, 1.0)
    ]
    pairs.append((some, some[::-1]))
    promise = mechanism.guarantee
    for first, second in pairs:
        one, other = (mechanism.law.rows_at(steps_of(mechanism, at)) for at in (first, second))
        ratios = np.log(one) - np.log(other)
        ratios -= (np.log(one.sum(axis=1)) - np.log(other.sum(axis=1)))[:, None]
        allowed = promise.loss(np.linalg.norm(first - second, axis=1))
        assert (np.abs(ratios).max(axis=1) <= allowed * (1 + 1e-12)).all()


def test_what_is_promised_is_certified_and_close(mechanism: gv.PositionalElastic) -> None:
    certificate = gv.certify(mechanism)
    assert certificate.holds
    assert 0.998 * 1.5 <= certificate.epsilon_per_km <= 1.5
    assert mechanism.guarantee == gv.BetweenPositions(1.5, mechanism.slack)
    law = Law(mechanism.centres, mechanism.weights.astype(float), mechanism.cone)
    assert law.certify(1.5).epsilon_per_km <= 1.5  # as a device asks
    assert 0 < mechanism.slack < 0.02
    assert not gv.certify(mechanism, claim=gv.BetweenPositions(1.4, 0.02)).holds
    assert not gv.certify(mechanism, claim=gv.PerKilometre(1.5)).holds  # rounding is not free


def test_a_law_promises_a_little_more_than_was_certified(mechanism: gv.PositionalElastic) -> None:
    """Else a browser, which rounds the last digit otherwise, refuses what is published."""
    plain = gv.PositionalElastic.of_law(
        PARIS, mechanism.law, step=mechanism.step, rim=mechanism.rim, promise=None
    )
    promise, certified = plain.guarantee, plain.certificate.epsilon_per_km
    assert isinstance(promise, gv.BetweenPositions)
    assert certified * (1 + 1e-10) < promise.epsilon_per_km < certified * (1 + 1e-8)
    assert plain.law.keeps(promise)


def test_the_sentence_is_about_positions_and_true() -> None:
    mechanism = gv.elastic(PARIS, epsilon_per_km=1.0, between="positions")
    assert mechanism.explain(0.2).startswith(
        "Whoever stands within 200 m of you could have sent the same report: any report is at most 1.24 "
    )
    assert math.exp(0.2 * 1.0 + mechanism.slack) <= 1.24
    cells = gv.elastic(PARIS, epsilon_per_km=1.0, between="cells")
    assert "wherever they stand in their cells: any report is at most 4.12 times" in cells.explain(
        0.2
    )


def test_nothing_over_cells_keeps_or_claims_a_promise_between_positions() -> None:
    """Whoever is taken to a cell first is told apart from a neighbour by a whole cell."""
    grid = gv.Grid.from_box(south=48.83, west=2.29, north=48.85, east=2.33, cell_km=1.0)
    mechanism = gv.elastic(grid, epsilon_per_km=2.0, between="positions")
    promise = mechanism.guarantee
    with pytest.raises(InvalidInput, match="nothing between positions"):
        gv.DenseChannel(grid, mechanism.matrix(), guarantee=promise)
    assert not gv.certify(
        gv.elastic(grid, epsilon_per_km=1.0, between="cells"), claim=promise
    ).holds
    assert not gv.PerKilometre(1.0).implies(promise)
    assert not (gv.PerKilometre(0.1) + gv.LocalDifferentialPrivacy(0.001)).implies(promise)
    with pytest.raises(Unsupported, match="sample_at"):
        gv.ExactTable(mechanism)
    with pytest.raises(InvalidInput, match="sample_at"):
        gv.Budget(limit_per_km=9.0).report(mechanism, 0)


def test_reports_renamed_and_reports_together_are_certified_between_positions() -> None:
    mechanism = gv.elastic(PARIS, epsilon_per_km=1.5, between="positions")
    renamed = gv.Remapped(mechanism, np.arange(PARIS.size) // 2)
    assert gv.certify(renamed).holds
    assert not gv.certify(renamed, claim=gv.BetweenPositions(1.4, 0.02)).holds
    assert renamed.explain(0.2) == mechanism.explain(0.2)
    both = JointChannel([mechanism, mechanism])
    assert both.guarantee == 2 * mechanism.guarantee
    assert gv.certify(both).holds
    assert not gv.certify(both, claim=gv.BetweenPositions(2.9, 0.04)).holds
    stronger = gv.elastic(PARIS, epsilon_per_km=1.0, between="positions")
    crowd_of_two = AverageChannel([mechanism, stronger], [0.5, 0.5])
    assert crowd_of_two.guarantee == mechanism.guarantee
    assert gv.certify(crowd_of_two).holds
    assert not gv.certify(crowd_of_two, claim=gv.BetweenPositions(1.4, 0.02)).holds


def test_a_table_reaches_from_every_corner_to_every_centre() -> None:
    """Also beyond the centres, up to the edge of the box, on grids much smaller than the kernel."""
    for rows, columns in ((1, 2), (2, 3)):
        grid = gv.Grid(rows=rows, columns=columns, cell_km=1.0)
        mechanism = gv.elastic(grid, epsilon_per_km=2.0, between="positions")
        reach = np.hypot(*(mechanism.centres.rectangle_km[1] - mechanism.centres.points_km[0]))
        assert mechanism.law.table.size > reach / mechanism.centres.pitch_km


# -- draws -----------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_draws_from_one_position_follow_its_row(mechanism: gv.PositionalElastic) -> None:
    from contract.statistics import assert_follows

    place = np.array([0.31, -0.2])
    row = mechanism.law.rows_at(steps_of(mechanism, place)[None])[0].astype(float)
    drawn = mechanism.sample_at_km(np.tile(place, (20_000, 1)), randomness=gv.seeded(2))
    assert_follows(drawn, row / row.sum())


def test_positions_anywhere_on_the_globe_are_reported(mechanism: gv.PositionalElastic) -> None:
    lat = np.array([48.85, 90.0, -90.0, 48.85, -48.85, 0.0])
    lng = np.array([2.33, 0.0, 10.0, 180.0, -177.67, -180.0])
    reports = mechanism.sample_at(lat=lat, lng=lng, randomness=gv.seeded(1))
    assert reports.shape == (6,)
    assert ((reports >= 0) & (reports < mechanism.report_count)).all()
    one = mechanism.sample_at(lat=48.85, lon=2.33)
    assert one.shape == ()


def test_neighbours_keep_the_promise_anywhere_on_the_globe(
    mechanism: gv.PositionalElastic,
) -> None:
    """Also on either side of the circle where the globe turns away from the map of the campaign."""
    generator = np.random.default_rng(7)
    lat, lng = (
        np.degrees(np.arcsin(generator.uniform(-1, 1, 3000))),
        generator.uniform(-180, 180, 3000),
    )
    near = generator.normal(size=(2, 3000)) * 0.01
    other = np.clip(lat + near[0], -90, 90), lng + near[1]
    rows = []
    for at in ((lat, lng), other):
        places = PARIS.plane.to_plane(lat=at[0], lng=at[1], folded=True)
        rows.append(mechanism.law.rows_at(steps_of(mechanism, places)).astype(float))
    shares = [np.log(row / row.sum(axis=1, keepdims=True)) for row in rows]
    turn = np.radians(near[1]) * np.cos(np.radians((lat + other[0]) / 2))
    apart = 6378.2 * np.hypot(np.radians(other[0] - lat), turn)  # not less than on the ellipsoid
    apart = np.where(np.abs(lat) > 89, np.inf, apart)
    allowed = mechanism.guarantee.loss(apart)
    assert (np.abs(shares[0] - shares[1]).max(axis=1) <= allowed).all()


def test_outside_is_moved_to_the_nearest_point(mechanism: gv.PositionalElastic) -> None:
    far, edge = steps_of(mechanism, [50.0, 0.0]), steps_of(mechanism, [4.4, 0.0])
    assert far.tolist() == steps_of(mechanism, [5.0, 0.0]).tolist()
    assert far[0] >= edge[0]


def test_weights_become_whole_numbers_in_their_proportions() -> None:
    shares = np.array([0.0, 1.0, 3.0, 4.0])
    whole = whole_weights(shares)
    assert whole.tolist() == [1, 2**27, 3 * 2**27, 2**29]


class At(gv.Randomness):
    """Words that make a number below a total the one wanted."""

    def __init__(self, wanted: IntArray, totals: IntArray) -> None:
        bits = np.frexp(totals.astype(np.float64))[1].astype(np.uint64)
        self.given = wanted.astype(np.uint64) << (np.uint64(64) - bits)

    def bytes(self, size: int) -> bytes:
        return self.given.tobytes()[:size]


def test_a_report_begins_at_the_running_sum_of_those_before(
    mechanism: gv.PositionalElastic,
) -> None:
    law, steps = mechanism.law, np.zeros((4, 2), dtype=np.int64)
    sums = np.cumsum(law.rows_at(steps[:1])[0])
    wanted = np.array([0, sums[0] - 1, sums[0], sums[-1] - 1])
    drawn = law.sample(steps, At(wanted, np.full(4, sums[-1])))
    assert drawn.tolist() == [0, 0, 1, sums.size - 1]


def test_whole_numbers_below_a_total_are_even() -> None:
    totals = np.tile([3, 5, 2**62 + 1], 20_000)
    drawn = below_each(totals, gv.seeded(4)).reshape(-1, 3)
    assert (drawn < [3, 5, 2**62 + 1]).all()
    assert (drawn >= 0).all()
    assert np.abs(np.bincount(drawn[:, 0]) / 20_000 - 1 / 3).max() < 0.02
    assert drawn[:, 2].mean() == pytest.approx(2**61, rel=0.02)


# -- estimation ------------------------------------------------------------------------------------


def test_the_crowd_comes_back_where_people_stand_anywhere_in_their_cells() -> None:
    prior = crowd(PARIS.size, 9)
    mechanism = gv.elastic(PARIS, epsilon_per_km=1.5, camouflage=0.0, between="positions")
    cells = np.random.default_rng(1).choice(PARIS.size, size=60_000, p=prior)
    estimate = gv.IterativeBayesianUpdate().fit(
        mechanism.tally(mechanism.sample(cells, randomness=gv.seeded(8)))
    )
    truth = np.bincount(cells, minlength=PARIS.size) / cells.size
    assert gv.total_variation(truth, estimate.distribution) < 0.2


def test_several_reports_about_one_place_are_averaged_after_the_product() -> None:
    """The mean over positions of products is not the product of means: reports share the position."""
    grid = gv.Grid(rows=2, columns=3, cell_km=1.0)
    mechanism = gv.elastic(grid, epsilon_per_km=3.0, camouflage=0.5, between="positions")
    joint = JointChannel([mechanism, mechanism])
    cells = np.full(200_000, 1)
    counts = np.bincount(joint.sample(cells, randomness=gv.seeded(3)), minlength=joint.report_count)
    wanted, wrong = joint.row(1), np.outer(mechanism.row(1), mechanism.row(1)).ravel()
    chi = [
        float(((counts - 200_000 * law) ** 2 / (200_000 * law)).sum()) for law in (wanted, wrong)
    ]
    assert chi[0] < 3 * joint.report_count < chi[1]
    tally = gv.JointTally([mechanism, mechanism], [[0, 1], [1, 1]])
    np.testing.assert_allclose(
        tally.operator.matrix(),
        joint.columns(np.array([1, 7])) / joint.columns(np.array([1, 7])).max(axis=0),
    )


def test_reports_renamed_mixed_or_of_hexagons_share_the_position_as_well() -> None:
    grid = gv.Grid(rows=2, columns=3, cell_km=1.0)
    mechanism = gv.elastic(grid, epsilon_per_km=3.0, camouflage=0.5, between="positions")
    twice = JointChannel([mechanism, mechanism])
    same = gv.Remapped(mechanism, np.arange(6))
    one = gv.StackedChannel([mechanism])
    average = AverageChannel([mechanism, mechanism], [0.3, 0.7])
    for channel in (same, one, average):
        again = JointChannel([mechanism, channel])
        np.testing.assert_allclose(again.matrix(), twice.matrix(), rtol=1e-12)
        reports = again.sample(np.full(100_000, 1), randomness=gv.seeded(4))
        counts, wanted = np.bincount(reports, minlength=36), 100_000 * twice.row(1)
        assert ((counts - wanted) ** 2 / wanted).sum() < 80  # 36 of them; beyond once in 10⁴
    thrice = JointChannel([mechanism, mechanism, mechanism])
    np.testing.assert_allclose(JointChannel([twice, mechanism]).matrix(), thrice.matrix())

    ring = [[2.28, 48.83], [2.33, 48.83], [2.33, 48.86], [2.28, 48.86], [2.28, 48.83]]
    hexagons = gv.Hexagons({"type": "Polygon", "coordinates": [ring]}, resolution=8)
    among = gv.elastic(hexagons, epsilon_per_km=2.0)
    np.testing.assert_allclose(JointChannel([among]).matrix(), among.matrix())
    once, both = among.row(7), JointChannel([among, among]).row(7).reshape(hexagons.size, -1)
    np.testing.assert_allclose(both.sum(axis=0), once)
    assert np.trace(both) > 1.02 * (once @ once)  # who stands near an edge is reported there twice
    pairs = JointChannel([among, among]).sample(np.full(50_000, 7), randomness=gv.seeded(5))
    alike = np.mean(pairs // hexagons.size == pairs % hexagons.size)
    assert alike == pytest.approx(np.trace(both), abs=0.01)


def test_a_campaign_between_positions_runs_saves_and_goes_on() -> None:
    campaign = gv.Campaign(PARIS, epsilon_per_km=1.5, between="positions")
    cells = np.random.default_rng(2).choice(PARIS.size, size=3000, p=crowd(PARIS.size))
    for number in range(2):
        mechanism = campaign.mechanism
        assert isinstance(mechanism, gv.PositionalElastic)
        assert mechanism.guarantee.implies(campaign.rule.guarantee)
        campaign.receive(mechanism.tally(mechanism.sample(cells, randomness=gv.seeded(number))))
        assert campaign.close_round() is not None
        campaign = gv.Campaign.from_dict(campaign.to_dict())
    assert len(campaign.rounds) == 2
    with pytest.raises(InvalidInput, match="between"):
        gv.Campaign(PARIS, rule=campaign.rule, between="cells")


# -- borders ---------------------------------------------------------------------------------------


def test_documents_say_the_promise_and_false_ones_are_refused(
    mechanism: gv.PositionalElastic,
) -> None:
    values = mechanism_to_dict(mechanism)
    again = mechanism_from_dict(values)
    assert again == mechanism
    assert again.guarantee == mechanism.guarantee
    stolen = {**values, "guarantee": {**values["guarantee"], "epsilon_per_km": 1.0}}
    with pytest.raises(InvalidFile, match="must not be smaller"):
        mechanism_from_dict(stolen)
    with pytest.raises(InvalidFile, match="must not be smaller"):
        mechanism_from_dict({**values, "guarantee": {**values["guarantee"], "slack": 0.0}})


@pytest.mark.parametrize("wrong", [[np.nan, 0.0], [1.0, 2.0, 3.0], 5.0, [["a", "b"]]])
def test_places_that_are_none_are_not_drawn_from(wrong: object) -> None:
    mechanism = gv.PositionalElastic(
        gv.Grid(rows=2, columns=3, cell_km=1.0), beta_per_km=1.0, weights=np.ones(6, int), step=4
    )
    with pytest.raises(InvalidInput, match="places_km"):
        mechanism.sample_at_km(wrong)


def test_what_cannot_be_designed_is_refused_in_a_sentence() -> None:
    with pytest.raises(Unsupported, match="needs a grid"):
        gv.elastic(gv.Line(5), epsilon_per_km=1.0, between="positions")
    with pytest.raises(InvalidInput, match="at most 8"):
        gv.elastic(PARIS, epsilon_per_km=20.0, between="positions")
    with pytest.raises(InvalidInput, match="must be one of cells, positions"):
        gv.elastic(PARIS, epsilon_per_km=1.0, between="places")  # type: ignore[call-overload]
    with pytest.raises(Unsupported, match="most_leverage"):
        gv.elastic(PARIS, epsilon_per_km=1.0, most_leverage=3.0, between="positions")
    for wrong in ({"step": 3}, {"rim": 2}, {"weights": np.ones(6)}, {"weights": np.zeros(6, int)}):
        good = {"beta_per_km": 1.0, "weights": np.ones(6, dtype=int), "step": 4, "rim": 0}
        with pytest.raises(InvalidInput):
            gv.PositionalElastic(gv.Grid(rows=2, columns=3, cell_km=1.0), **{**good, **wrong})


@pytest.mark.parametrize(
    ("rows", "columns", "cell_km"), [(1, 1, 0.01), (1, 5, 100.0), (5, 1, 0.01), (2, 2, 1.0)]
)
@pytest.mark.parametrize("camouflage", [0.0, 0.5])
def test_small_and_narrow_grids_of_any_scale(
    rows: int, columns: int, cell_km: float, camouflage: float
) -> None:
    grid = gv.Grid(rows=rows, columns=columns, cell_km=cell_km)
    for steepness in (1.0,) if camouflage else (1e-3, 8.0):
        mechanism = gv.elastic(
            grid, epsilon_per_km=steepness / cell_km, camouflage=camouflage, between="positions"
        )
        assert gv.certify(mechanism).holds
        np.testing.assert_allclose(mechanism.matrix().sum(axis=1), 1.0, rtol=1e-12)


def test_a_mean_distance_is_met_from_above() -> None:
    mechanism = gv.elastic(PARIS, mean_distance_km=1.5, between="positions")
    assert 1.5 <= mechanism.mean_distance_km <= 1.5 * 1.002
