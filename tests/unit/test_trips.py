"""Trips: their promise by enumeration, the operator on pairs against a matrix, flows on a small city."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Literal

import numpy as np
import pytest
import scipy
from benchmarks import trips as benchmark

import geoveil as gv
from geoveil.channel.operator import DenseOperator
from geoveil.errors import InvalidInput, OutsideSpace, TooLarge, Unsupported
from geoveil.estimate import CrossValidated
from geoveil.trips.flow_fit import Plan, _parts, _Redraw, stay_bounds
from geoveil.trips.flows import DistrictFlows, Flows
from geoveil.trips.pairs import PairOperator, Spots, TripTally, _beside, pair_chances

GRID = gv.Grid(rows=4, columns=4, cell_km=1.0)
MAP = gv.Grid.from_box(south=48.83, west=2.30, north=48.87, east=2.36, cell_km=1.0)


def between_cells(epsilon_per_km: float = 2.0) -> gv.Channel:
    return gv.elastic(GRID, epsilon_per_km=epsilon_per_km, camouflage=0.0, between="cells")


def city_of_trips(people: int, stay: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """People of a lopsided city: half of them stay, the others go anywhere."""
    generator = np.random.default_rng(3)
    prior = np.arange(1.0, 17.0) ** 2 / (np.arange(1.0, 17.0) ** 2).sum()
    origins = generator.choice(16, size=people, p=prior)
    others = generator.choice(16, size=people, p=prior)
    return origins, np.where(generator.random(people) < stay, origins, others)


# --- The promise


def test_the_loss_between_two_trips_is_at_most_that_of_both_ends() -> None:
    small = gv.Grid(rows=2, columns=2, cell_km=1.0)
    trips = gv.Trips(gv.elastic(small, epsilon_per_km=1.5, between="cells"))
    matrix = trips.mechanism.matrix()
    whole = np.einsum("oy,dz->odyz", matrix, matrix).reshape(16, -1)
    losses = (np.log(whole)[:, None] - np.log(whole)[None]).max(axis=-1).reshape(4, 4, 4, 4)
    apart = small.distances_km()
    epsilon = trips.certify().epsilon_per_km
    allowed = epsilon * (apart[:, None, :, None] + apart[None, :, None, :])
    assert (losses <= allowed + 1e-9).all()
    # and it is no empty bound: both ends together reach what twice the promise allows, nearly
    assert (losses - 0.95 * allowed).max() > 0
    promised = trips.guarantee
    assert promised is not None
    assert losses.max() > float(trips.mechanism.guarantee.loss(apart.max()))  # type: ignore[union-attr]
    assert losses.max() <= float(promised.loss(apart.max())) + 1e-9


def test_a_trip_costs_twice() -> None:
    trips = gv.Trips(between_cells())
    assert trips.guarantee == trips.mechanism.guarantee * 2  # type: ignore[operator]
    assert "costs twice" in trips.sentence()
    assert "ε = 2 per km" in trips.sentence()
    nothing = gv.Trips(gv.DenseChannel(gv.Line(2), np.array([[1.0, 0.0], [0.5, 0.5]])))
    assert nothing.guarantee is None
    assert "nothing is promised" in nothing.sentence()


def test_both_ends_are_drawn_by_themselves() -> None:
    trips = gv.Trips(gv.RandomizedResponse(gv.Line(3), epsilon=1.0))
    begun, ended = trips.sample(
        np.zeros(40_000, int), np.ones(40_000, int), randomness=gv.seeded(1)
    )
    seen = np.zeros((3, 3))
    np.add.at(seen, (begun, ended), 1 / 40_000)
    wanted = np.outer(trips.mechanism.row(0), trips.mechanism.row(1))
    assert np.abs(seen - wanted).max() < 0.012


# --- Bad input


def test_only_one_end_known_is_refused() -> None:
    trips = gv.Trips(between_cells())
    with pytest.raises(InvalidInput, match=r"origins \(2\) must be as many as destinations \(1\)"):
        trips.sample([0, 1], [2])
    with pytest.raises(InvalidInput, match="only one end is known"):
        trips.tally([0, 1], [2])
    with pytest.raises(OutsideSpace, match="destinations must lie in"):
        trips.sample([0], [16])


def test_wrong_mechanisms_tallies_and_districts_are_refused() -> None:
    with pytest.raises(Unsupported, match="are not cells"):
        gv.Trips(gv.Rappor(GRID, epsilon=2.0))
    with pytest.raises(InvalidInput, match="must be a mechanism"):
        gv.Trips("elastic")  # type: ignore[arg-type]
    trips = gv.Trips(between_cells())
    with pytest.raises(InvalidInput, match="at least one trip"):
        trips.fit(trips.tally([], []))
    with pytest.raises(InvalidInput, match="must be a trip tally"):
        trips.fit(trips.mechanism.tally([1]))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"less than 2\^62"):
        TripTally(trips.mechanism, [0, 0], [1, 1], np.array([2**62, 2**62]))
    with pytest.raises(InvalidInput, match="one per pair"):
        TripTally(trips.mechanism, [0, 0], [1, 1], [1])
    with pytest.raises(InvalidInput, match="mechanism of these trips"):
        trips.fit(gv.Trips(between_cells(1.0)).tally([0], [1]))
    with pytest.raises(InvalidInput, match="same mechanism"):
        _ = trips.tally([0], [1]) + gv.Trips(between_cells(1.0)).tally([0], [1])
    with pytest.raises(Unsupported, match="draws from cells"):
        trips.sample_at(lat=[48.85], lng=[2.3], to_lat=[48.85], to_lng=[2.3])
    flows = trips.fit(trips.tally([0, 1], [0, 2]), stop=gv.Steps(1))
    with pytest.raises(InvalidInput, match="one for each cell"):
        flows.between([0, 1])
    with pytest.raises(InvalidInput, match="-1 for none"):
        flows.between([-1] * 16)


def test_half_a_million_pairs_each_seen_once_are_all_kept() -> None:
    space = gv.Line(1_000)
    channel = gv.RandomizedResponse(space, epsilon=3.0)
    begun, ended = np.divmod(np.arange(500_000), 1_000)
    tally = TripTally(channel, begun, ended)
    assert len(tally.pairs) == tally.total == 500_000
    assert (tally.counts == 1).all()
    assert (tally + tally).total == 1_000_000
    assert tally.of_origins()[:500].tolist() == [1_000] * 500


def test_the_same_place_twice_and_a_position_outside_are_trips() -> None:
    trips = gv.Trips(gv.elastic(MAP, epsilon_per_km=2.0))
    lat, lng = MAP.centres_latlng()
    here = {"lat": [lat[0]] * 3, "lng": [lng[0]] * 3}
    far = {"to_lat": [lat[0], 60.0, lat[0]], "to_lng": [lng[0], 10.0, lng[0]]}
    begun, ended = trips.sample_at(**here, **far, randomness=gv.seeded(5))
    tally = trips.tally(begun, ended)
    assert tally.total == 3
    flows = trips.fit(tally, stop=gv.Steps(2))
    assert flows.matrix.sum() == pytest.approx(1.0)


# --- The operator on pairs, and the start


def test_products_on_pairs_are_those_of_the_whole_matrix() -> None:
    generator = np.random.default_rng(0)
    side = generator.random((5, 6))
    pairs = np.array([[0, 0], [1, 5], [3, 2], [5, 5]])
    operator = PairOperator(DenseOperator(side), pairs)
    whole = np.kron(side, side).reshape(25, 6, 6)[:, pairs[:, 0], pairs[:, 1]]
    theta, values = generator.random((3, 25)), generator.random((3, 4))
    assert np.allclose(operator._push(theta), theta @ whole)
    assert np.allclose(operator._pull(values), values @ whole.T)
    assert np.allclose(operator.columns(np.arange(4)), whole)
    assert np.allclose(operator.matrix(), whole)
    assert np.allclose(operator.law(theta[0])[pairs[:, 0], pairs[:, 1]], theta[0] @ whole)


def test_products_by_fft_are_those_by_matrix() -> None:
    channel = between_cells()
    pairs = np.array([[0, 3], [7, 7], [15, 1]])
    by_fft, by_matrix = (
        PairOperator(channel, pairs),
        PairOperator(Spots.of(channel).operator, pairs),
    )
    theta = np.random.default_rng(1).dirichlet(np.ones(256))
    assert np.allclose(by_fft._push(theta), by_matrix._push(theta), rtol=1e-9)
    assert np.allclose(by_fft._pull(np.ones(3)), by_matrix._pull(np.ones(3)), rtol=1e-9)


LIMITS = gv.Grid.from_polygon(
    {
        "type": "Polygon",
        "coordinates": [[[2.3, 48.83], [2.36, 48.83], [2.36, 48.87], [2.3, 48.83]]],
    },
    cell_km=1.0,
)


@pytest.mark.parametrize("space", [MAP, LIMITS], ids=["box", "limits"])
def test_between_positions_the_spots_are_quarters_and_average_to_cells(
    space: gv.Grid | gv.MaskedGrid,
) -> None:
    channel = gv.elastic(space, epsilon_per_km=1.0)
    spots = Spots.of(channel)
    assert spots.size == 4 * space.size
    rows = spots.operator.matrix().reshape(4, space.size, -1)
    at = channel.laws_from(3, np.array([[-0.25, -0.25], [0.25, 0.25]]))
    assert rows[[0, 3], 3] == pytest.approx(at, rel=0.02)
    assert np.allclose(rows.sum(axis=-1), 1.0)
    assert np.abs(rows.mean(axis=0) - channel.matrix()).max() < 0.006
    assert np.abs(rows[0] - channel.matrix()).max() > 0.03
    flows = np.arange(float(spots.size**2))
    assert spots.between_cells(flows).sum() == pytest.approx(flows.sum())
    assert spots.between_cells(flows)[1, 2] == pytest.approx(
        flows.reshape(spots.size, -1)[1 :: space.size, 2 :: space.size].sum()
    )


def test_hexagons_have_the_spots_at_which_their_law_is_averaged() -> None:
    pytest.importorskip("h3")
    ring = [[2.28, 48.83], [2.40, 48.83], [2.40, 48.89], [2.28, 48.89], [2.28, 48.83]]
    space = gv.Hexagons({"type": "Polygon", "coordinates": [ring]}, resolution=7)
    channel = gv.elastic(space, epsilon_per_km=1.0, between="positions")
    spots = Spots.of(channel)
    assert spots.size == 3 * space.size
    rows = spots.operator.matrix().reshape(3, space.size, -1)
    assert rows.mean(axis=0) == pytest.approx(channel.matrix(), rel=1e-9)
    places = spots.centres_km.reshape(3, space.size, -1)
    assert places.mean(axis=0) == pytest.approx(space.centres)
    block = spots.blocks(2).reshape(3, space.size)
    assert (block == block[0]).all()
    apart, stay = spots.classes(np.multiply([1e-6, 1.2], spots.cell_km)), np.eye(space.size)
    assert ((apart == 0) == stay).all()
    assert (apart == 1).sum(axis=1).max() == 6  # all around


@pytest.mark.parametrize("most", [2_048, 50])
def test_short_trips_over_a_border_within_limits_are_not_taken_for_staying(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Everybody goes half a cell to the east, out of their own; above so many spots nothing is said."""
    monkeypatch.setattr("geoveil.trips.pairs.MOST_SPOTS", most)
    trips = gv.Trips(gv.elastic(LIMITS, epsilon_per_km=2.0))
    generator, east = np.random.default_rng(1), np.array([0.5 * LIMITS.cell_km, 0.0])
    begun = LIMITS.centres[generator.integers(LIMITS.size, size=30_000)]
    begun += (
        generator.random(begun.shape) * east + (generator.random(begun.shape) - 0.5) * east[::-1]
    )
    begun = begun[LIMITS.inside_km(begun + east)]
    (lat, lng), (to_lat, to_lng) = map(LIMITS.plane.to_latlng, (begun, begun + east))
    reports = trips.sample_at(
        lat=lat, lng=lng, to_lat=to_lat, to_lng=to_lng, randomness=gv.seeded(1)
    )
    flows = trips.fit(trips.tally(*reports), stop=gv.Steps(100))
    assert flows.stay_interval()[0] < 0.1
    assert (flows.stay_interval() == (0.0, 1.0)) == (most == 50)


@pytest.mark.parametrize("channel", [between_cells(), gv.elastic(MAP, epsilon_per_km=2.0)])
def test_no_flows_send_a_pair_oftener_than_its_neighbours_allow(channel: gv.Channel) -> None:
    """People of any two places, and anywhere in their cells: then of any mixture of them."""
    ratio, beside = _beside(channel)
    assert beside.sum() == 4 * channel.report_count
    assert not beside.diagonal().any()
    near = beside.toarray() + np.eye(channel.report_count)
    more = 1 + 1 / ratio
    for inside in ([0.0, 0.0], [0.4, -0.3], [-0.5, 0.07]):
        law = channel.columns_from(np.array(inside), np.arange(channel.report_count))
        around = law @ near
        assert (law * more <= around * (1 + 1e-9)).all()
        assert (law * more / around).max() > 0.8 or any(
            inside
        )  # the bound is met, nearly, at centres
    pairs = TripTally(channel, [0, 0, 5], [3, 3, 5], [1, 6, 2])
    first = pair_chances(pairs)[0]
    allowed = 1 / (more[0] * more[3])
    assert first == pytest.approx(scipy.special.bdtrc(6, 7, allowed))


def test_every_part_of_the_start_has_about_the_marginals() -> None:
    spots = Spots.of(between_cells())
    generator = np.random.default_rng(2)
    origins, destinations = generator.dirichlet(np.ones(16)), generator.dirichlet(np.ones(16))
    stay, *others = _parts(spots, origins, destinations)
    assert np.allclose(np.diag(stay), (origins + destinations) / 2)
    for part in others:
        assert np.allclose(part.sum(axis=0), destinations, atol=1e-3)
        assert np.abs(part.sum(axis=1) - origins).max() < 0.05


# --- Flows


@pytest.fixture(scope="module")
def flows() -> Flows:
    trips = gv.Trips(between_cells())
    reports = trips.sample(*city_of_trips(20_000), randomness=gv.seeded(7))
    return trips.fit(trips.tally(*reports), replicates=12)


def truth() -> np.ndarray:
    matrix = np.zeros((16, 16))
    np.add.at(matrix, city_of_trips(20_000), 1 / 20_000)
    return matrix


def common_part(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.minimum(one, other).sum())


def test_flows_are_closer_to_the_truth_than_reports_and_than_marginals(flows: Flows) -> None:
    trips = gv.Trips(between_cells())
    reports = trips.sample(*city_of_trips(20_000), randomness=gv.seeded(7))
    raw = np.zeros((16, 16))
    np.add.at(raw, reports, 1 / 20_000)
    product = np.outer(flows.origins, flows.destinations)
    ours = common_part(flows.matrix, truth())
    assert ours > 0.9
    assert ours > common_part(raw, truth()) + 0.1
    assert ours > common_part(product, truth()) + 0.1
    assert flows.matrix.sum() == pytest.approx(1.0)
    assert flows.stopped.startswith("after")
    assert "cross-validation (5 folds, once)" in flows.stopped


def test_the_share_that_stays_lies_in_its_interval(flows: Flows) -> None:
    wide = flows.stay_interval(0.99)
    assert wide[0] <= np.trace(truth()) <= wide[1]
    low, high = flows.stay_interval()
    assert low <= flows.stay_share <= high
    assert high - low < 0.08
    narrow = flows.stay_interval(0.5)
    assert narrow[1] - narrow[0] < high - low


@pytest.mark.parametrize(
    ("share", "epsilon_per_km"),
    [
        pytest.param(share, epsilon, marks=() if soon else pytest.mark.slow)
        for share, epsilon, soon in (
            (0.0, 1.0, True), (0.02, 1.0, False), (0.5, 1.0, False), (0.98, 1.0, True), (1.0, 1.0, False),
            (0.0, 2.0, False), (0.02, 2.0, True), (0.5, 2.0, True), (0.98, 2.0, False), (1.0, 2.0, True),
        )
    ],
)  # fmt: skip
def test_the_interval_of_those_who_stay_holds_where_all_or_none_do(
    share: float, epsilon_per_km: float
) -> None:
    """And it is no wider than noise makes it: at ε = 2 everybody is told from nobody by 500 trips."""
    trips = gv.Trips(gv.elastic(GRID, epsilon_per_km=epsilon_per_km, between="cells"))
    held, apart = [], []
    for seed in range(20):
        begun, ended = benchmark.world(GRID, "near", share, 500, seed)
        tally = trips.tally(*trips.sample(begun, ended, randomness=gv.seeded(1_000 + seed)))
        low, high = trips.fit(tally, stop=gv.Steps(8)).stay_interval()
        held.append(low <= (begun == ended).mean() <= high)
        apart.append(high - low)
    assert sum(held) >= 17
    assert epsilon_per_km < 2 or np.mean(apart) < 0.5


@pytest.mark.parametrize("between", ["cells", "positions"])
def test_sums_of_reports_lie_on_both_sides_of_the_share_that_stays_whatever_the_flows(
    between: Literal["cells", "positions"],
) -> None:
    """Of counts without chance, and with flows that have nothing to do with the true ones at hand."""
    channel = gv.elastic(MAP, epsilon_per_km=2.0, between=between)
    spots, generator = Spots.of(channel), np.random.default_rng(6)
    matrix, size = channel.matrix(), MAP.size
    for true in (
        np.eye(size) / size,
        np.roll(np.eye(size), 1, axis=1) / size,
        *generator.dirichlet(np.full(size**2, 0.01), size=3).reshape(3, size, size),
    ):
        law = matrix.T @ true @ matrix
        begun, ended = np.nonzero(law > 0)
        counts = np.rint(law[begun, ended] * 1e12).astype(np.int64)
        tally = TripTally(channel, begun, ended, counts)
        for near in (np.full((size, size), size**-2.0), 0.9 * true + 0.1 * size**-2.0):
            (low, _), (high, _) = stay_bounds(spots, tally, near)
            assert low - 1e-6 <= np.trace(true) <= high + 1e-6
    assert high - low < 0.5


def test_the_interval_of_those_who_stay_needs_the_memory_of_few_matrices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the same sums come out however many of their weights are held at once."""
    space = gv.Grid(rows=18, columns=18, cell_km=1.0)
    channel, cells = gv.PlanarGeometric(space, epsilon_per_km=2.0), np.arange(space.size)
    tally = TripTally(channel, cells, np.roll(cells, 1))
    spots, flows = Spots.of(channel), np.full((cells.size, cells.size), cells.size**-2.0)
    at_once = stay_bounds(spots, tally, flows)
    monkeypatch.setattr("geoveil.trips.flow_fit._WEIGHTS_AT_ONCE", 50_000)
    tracemalloc.start()
    in_turns = stay_bounds(spots, tally, flows)
    held = tracemalloc.get_traced_memory()[1] / flows.nbytes
    tracemalloc.stop()
    assert in_turns == pytest.approx(at_once, rel=1e-9)
    assert held < 12  # matrices of cells by cells; with the weights of all classes at once, 27


def test_nothing_is_known_of_staying_where_cells_are_not_told_apart() -> None:
    alike = gv.DenseChannel(gv.Line(3), np.array([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]]))
    trips = gv.Trips(alike)
    flows = trips.fit(trips.tally([0, 0, 1] * 50, [0, 1, 1] * 50), stop=gv.Steps(2))
    assert flows.stay_interval() == (0.0, 1.0)


def test_nothing_is_known_of_districts_that_no_report_tells_apart() -> None:
    """Cells 0 and 1 look alike, and 2 and 3; districts that part them are unknown, others are not."""
    alike = gv.DenseChannel(gv.Line(4), np.repeat([[0.9, 0.1], [0.1, 0.9]], 2, axis=0))
    trips = gv.Trips(alike)
    tally = trips.tally([0, 0, 1] * 50, [0, 1, 1] * 50)
    flows = trips.fit(tally, stop=gv.Steps(2), replicates=5)
    low, high = flows.between([0, 0, 1, 2]).interval()
    unknown = np.ones((3, 3), dtype=bool)
    unknown[0, 0] = False
    assert (low[unknown] == 0).all()
    assert (high[unknown] == 1).all()
    assert 0 < low[0, 0] < high[0, 0] < 1
    low, high = flows.between([0, 0, 1, 1]).interval()
    assert (high - low < 0.5).all()
    errors = flows.between([0, 0, 1, -1]).errors
    assert np.isinf(errors.standard_error()).tolist() == [False, True, True, True, True]
    assert np.isinf(errors.standard_error(np.eye(5)[1]))  # of one pair alone
    errors = flows.between([0, 0, -1, -1]).errors
    assert np.isfinite(errors.standard_error()).all()


def test_flows_between_districts_and_their_intervals(flows: Flows) -> None:
    districts = np.repeat([0, 1, 2, -1], 4)
    made = flows.between(districts)
    assert isinstance(made, DistrictFlows)
    assert made.matrix.shape == (3, 3)
    assert made.matrix[0, 1] == pytest.approx(flows.matrix[:4, 4:8].sum())
    assert made.elsewhere_share == pytest.approx(1 - flows.matrix[:12, :12].sum())
    assert made.stay_share == pytest.approx(np.trace(made.matrix))
    low, high = made.interval()
    true = truth().reshape(4, 4, 4, 4).sum(axis=(1, 3))[:3, :3]
    assert ((low <= true) & (true <= high)).mean() >= 7 / 9
    assert (low <= made.matrix).all()
    assert (made.matrix <= high).all()
    assert (made.standard_error > 0).all()


def test_one_district_is_known_no_better_than_beside_others(flows: Flows) -> None:
    alone = flows.between(np.repeat([0, -1, -1, -1], 4))
    beside = flows.between(np.repeat([0, 1, -1, -1], 4))
    assert alone.standard_error[0, 0] == pytest.approx(beside.standard_error[0, 0]) != 0
    np.testing.assert_allclose(np.ravel(alone.interval()), np.array(beside.interval())[:, 0, 0])
    everywhere = flows.between(np.zeros(16, dtype=np.int64))
    assert np.ravel(everywhere.interval()).tolist() == [1.0, 1.0]


def test_districts_are_those_of_estimates(flows: Flows) -> None:
    by_number = flows.between([*[0] * 4, *[1] * 4, *[-1] * 8])
    by_name = flows.between({"south": range(4), "middle": range(4, 8)})
    assert by_name.names == ("south", "middle")
    assert by_number.names == ("0", "1")
    np.testing.assert_allclose(by_name.matrix, by_number.matrix, rtol=1e-14)
    with pytest.raises(InvalidInput, match="must not overlap"):
        flows.between({"south": range(4), "corner": [0]})


def test_shapes_cut_cells_and_longitudes_have_two_names() -> None:
    trips = gv.Trips(gv.elastic(MAP, epsilon_per_km=2.0))
    place = {"lat": 48.84, "lon": 2.31, "to_lat": 48.86, "to_lon": 2.35}
    begun, ended = trips.sample_at(**place, randomness=gv.seeded(1))
    again = {name.replace("lon", "lng"): degrees for name, degrees in place.items()}
    assert (begun, ended) == trips.sample_at(**again, randomness=gv.seeded(1))
    flows = trips.fit(trips.tally(begun, ended), stop=gv.Steps(2))
    ring = [[2.30, 48.83], [2.33, 48.83], [2.33, 48.87], [2.30, 48.87], [2.30, 48.83]]
    west = {
        "type": "Feature",
        "properties": {"title": "west"},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }
    made = flows.between(west, name="title")
    assert made.names == ("west",)
    assert 0 < made.matrix[0, 0] < 1
    assert ((made.members > 0.1) & (made.members < 0.9)).any()


@pytest.mark.parametrize("shape", [(1, 1), (1, 3)])
def test_a_map_of_one_block_has_intervals(shape: tuple[int, int]) -> None:
    grid = gv.Grid(rows=shape[0], columns=shape[1], cell_km=1.0)
    trips = gv.Trips(gv.elastic(grid, epsilon_per_km=1.0))
    ends = np.zeros(300, dtype=np.int64)
    flows = trips.fit(trips.tally(*trips.sample(ends, ends, randomness=gv.seeded(1))))
    low, high = flows.stay_interval()
    assert 0 <= low <= flows.stay_share <= high <= 1


@pytest.mark.parametrize(
    "mechanism",
    [
        gv.DenseChannel(gv.Line(3), np.eye(3)),
        between_cells(epsilon_per_km=20.0),
        gv.elastic(MAP, epsilon_per_km=6.0),
    ],
    ids=["no noise", "hardly any", "between positions"],
)
@pytest.mark.parametrize("stays", [True, False])
def test_trips_that_are_all_one_have_intervals(mechanism: gv.Channel, stays: bool) -> None:
    trips, cells = gv.Trips(mechanism), mechanism.space.size
    begun, ended = (cells - 1 if stays else 0), cells - 1
    flows = trips.fit(trips.tally([begun] * 500, [ended] * 500), replicates=3)
    low, high = flows.stay_interval()
    assert low <= stays <= high
    assert high - low < 0.01
    for end in flows.between(np.arange(cells)).interval():
        assert end[begun, ended] > 0.9
        assert np.delete(end, begun * cells + ended).max() < 0.1


def test_a_copy_says_what_the_original_says(flows: Flows) -> None:
    copy = pickle.loads(pickle.dumps(flows))
    assert copy.stay_interval() == flows.stay_interval()
    assert not copy.matrix.flags.writeable


def test_too_many_replicates_are_refused_when_an_interval_is_asked_for() -> None:
    trips = gv.Trips(between_cells())
    made = trips.fit(trips.tally([0], [1]), stop=gv.Steps(1), replicates=1_000_000)
    with pytest.raises(TooLarge, match="fewer replicates"):
        made.between(np.zeros(16, dtype=np.int64)).interval()


def test_cross_validation_tells_how_well_a_start_predicts() -> None:
    channel, rule = between_cells(), CrossValidated(repeats=1)
    counts = channel.tally(channel.sample(np.zeros(2_000, int), randomness=gv.seeded(2))).counts
    at_home, elsewhere = np.full(16, 0.01), np.full(16, 0.01)
    at_home[0], elsewhere[15] = 0.85, 0.85
    good, bad = (
        CrossValidated(repeats=1, maximum=2).found(channel, counts, start, None)
        for start in (at_home, elsewhere)
    )
    assert good.held_out > bad.held_out
    assert rule.found(channel, counts, at_home, None).rule == rule.settled(
        channel, counts, at_home, None
    )


def test_the_score_of_the_benchmark() -> None:
    _, grid = benchmark.CITIES["New York"]
    one, other = np.zeros((grid.size, grid.size)), np.zeros((grid.size, grid.size))
    one[0, 0], other[0, 1] = 1.0, 1.0  # neighbours: other cells, one district
    assert benchmark.common_part(grid, one, other) == (0.0, 1.0)
    assert benchmark.common_part(grid, one, one) == (1.0, 1.0)
    blocks = benchmark.districts(grid)
    assert np.bincount(blocks).max() == 9
    assert blocks.max() + 1 == 7 * 5


def test_flows_are_roughened_as_far_as_estimates_do_not_show_it() -> None:
    """Under strong noise nearly all of a factor between blocks is lost; under weak noise little is."""
    grid = gv.Grid(rows=6, columns=6, cell_km=1.0)
    generator = np.random.default_rng(4)
    origins = generator.choice(36, size=20_000)
    ends = np.where(generator.random(20_000) < 0.4, origins, generator.choice(36, size=20_000))
    lost = []
    for epsilon_per_km in (0.3, 6.0):
        trips = gv.Trips(
            gv.elastic(grid, epsilon_per_km=epsilon_per_km, camouflage=0.0, between="cells")
        )
        tally = trips.tally(*trips.sample(origins, ends, randomness=gv.seeded(8)))
        redraw = _Redraw(Spots.of(trips.mechanism), tally, Plan(5, 5, 0.0, 5), generator)
        lost.append(redraw.lost([redraw.once(1.0) for _ in range(3)]))
        rough, again = redraw.once(1.0)
        assert rough.sum() == pytest.approx(1.0)
        assert again.sum() == pytest.approx(1.0)
    assert lost[0] > 0.5 > 0.3 > lost[1]


def test_blocks_of_spots_are_blocks_of_cells() -> None:
    trips = gv.Trips(gv.elastic(MAP, epsilon_per_km=2.0))
    spots = Spots.of(trips.mechanism)
    assert spots.size == 4 * MAP.size
    block = spots.blocks(2).reshape(4, MAP.size)
    assert (block == block[0]).all()  # all quarters of a cell lie in one
    assert np.bincount(block[0]).max() == 4
