"""Laws that hold for every channel, on channels that hypothesis makes up."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from contract.formulas import losses
from geoveil.channel.composed import AverageChannel
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict

sizes = st.integers(1, 5)
epsilons = st.floats(0.3, 6.0)
numbers = st.floats(-3, 3, allow_subnormal=False)

grids = st.builds(
    lambda rows, columns, cell: gv.Grid(rows=rows, columns=columns, cell_km=cell),
    sizes,
    sizes,
    st.sampled_from([0.25, 0.5, 1.0]),
)
lines = st.builds(gv.Line, st.integers(1, 12))
places = st.lists(
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=9, unique=True
).map(lambda spots: gv.Points(xy_km=np.array(spots, dtype=float) / 3))
spaces = grids | lines | places


@st.composite
def elastics(draw: st.DrawFn) -> gv.Elastic:
    space = draw(spaces)
    weights = draw(
        st.lists(
            st.sampled_from([0.0, 1e-9, 0.2, 1.0, 50.0]), min_size=space.size, max_size=space.size
        )
    )
    return gv.Elastic(
        space, beta_per_km=draw(epsilons), weights=np.array(weights) + np.eye(space.size)[0]
    )


plain = st.one_of(
    st.builds(lambda s, e: gv.PlanarGeometric(s, epsilon_per_km=e), grids, st.floats(1.2, 6.0)),
    st.builds(lambda s, e: gv.PlanarLaplace(s, epsilon_per_km=e), grids, st.floats(1.2, 6.0)),
    st.builds(lambda s, e: gv.Exponential(s, epsilon_per_km=e), spaces, epsilons),
    st.builds(lambda s, e: gv.RandomizedResponse(s, epsilon=e), spaces, epsilons),
    st.builds(lambda s, e: gv.LinearGeometric(s, epsilon_per_unit=e), lines, epsilons),
    st.builds(lambda s, e: gv.Disc(s, epsilon=e), lines, epsilons),
    st.builds(lambda n, e: gv.Rappor(gv.Line(n), epsilon=e), st.integers(1, 4), epsilons),
    elastics(),
)


@st.composite
def remaps(draw: st.DrawFn) -> gv.Remapped:
    channel = draw(plain)
    cells = st.integers(0, channel.space.size - 1)
    return gv.Remapped(
        channel, draw(st.lists(cells, min_size=channel.report_count, max_size=channel.report_count))
    )


channels = plain | remaps() | plain.map(gv.ExactTable)


def vector(
    data: st.DataObject, size: int, elements: st.SearchStrategy[float] = numbers
) -> np.ndarray:
    return np.array(data.draw(st.lists(elements, min_size=size, max_size=size)))


@given(channels, st.data())
def test_pull_is_the_adjoint_of_push(channel: gv.Channel, data: st.DataObject) -> None:
    theta, values = vector(data, channel.space.size), vector(data, channel.report_count)
    np.testing.assert_allclose(
        channel.push(theta) @ values, theta @ channel.pull(values), atol=1e-9
    )


@given(channels)
def test_rows_are_laws_and_products_are_those_of_the_rows(channel: gv.Channel) -> None:
    matrix = np.stack([channel.row(cell) for cell in range(channel.space.size)])
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(channel.push(np.eye(channel.space.size)), matrix, atol=1e-12)
    np.testing.assert_allclose(channel.pull(np.ones(channel.report_count)), 1.0, atol=1e-12)


@given(channels)
def test_the_claim_covers_every_pair(channel: gv.Channel) -> None:
    allowed = channel.guarantee.loss(channel.space.distances_km())
    assert (losses(channel.matrix()) <= allowed * (1 + 1e-9) + 1e-9).all()
    assert gv.certify(channel).holds


@given(plain, st.data())
def test_post_processing_never_weakens(channel: gv.Channel, data: st.DataObject) -> None:
    cells = st.integers(0, channel.space.size - 1)
    to = data.draw(st.lists(cells, min_size=channel.report_count, max_size=channel.report_count))
    before, after = losses(channel.matrix()), losses(gv.Remapped(channel, to).matrix())
    assert (after <= before + 1e-9).all()
    blurred = losses(gv.ExactTable(channel).matrix())
    assert (blurred <= before + 1e-9).all()


@given(spaces, st.lists(epsilons, min_size=1, max_size=3), st.data())
def test_a_crowd_is_no_weaker_than_its_weakest(
    space: gv.Space, promises: list[float], data: st.DataObject
) -> None:
    parts = [gv.Exponential(space, epsilon_per_km=epsilon) for epsilon in promises]
    shares = vector(data, len(parts), st.floats(0.01, 1.0))
    weakest = gv.GeoIndistinguishability(2 * max(part.beta_per_km for part in parts))
    for crowd in (
        gv.StackedChannel(parts, shares / shares.sum()),
        AverageChannel(parts, shares / shares.sum()),
    ):
        assert crowd.guarantee == weakest
        assert (losses(crowd.matrix()) <= weakest.loss(space.distances_km()) + 1e-9).all()


@given(channels, st.integers(0, 2**32))
def test_draws_are_reports_that_can_be(channel: gv.Channel, seed: int) -> None:
    cells = np.arange(40) % channel.space.size
    reports = channel.sample(cells, randomness=gv.seeded(seed))
    if isinstance(channel, gv.Rappor):
        reports = (reports.astype(np.int64) << np.arange(channel.space.size)).sum(axis=-1)
    assert (channel.matrix()[cells, reports] > 0).all()


@given(plain, st.data())
def test_merging_tallies_commutes_with_counting(channel: gv.Channel, data: st.DataObject) -> None:
    reports = channel.sample(np.arange(60) % channel.space.size, randomness=gv.seeded(1))
    cut = data.draw(st.integers(0, 60))
    first, second = channel.tally(reports[:cut]), channel.tally(reports[cut:])
    for merged in (first + second, second + first):
        assert merged.total == 60
        if not isinstance(channel, gv.Rappor):
            assert merged.counts.tolist() == channel.tally(reports).counts.tolist()
        else:
            assert merged.sums.tolist() == channel.tally(reports).sums.tolist()


@given(plain | remaps())
def test_documents_are_read_as_they_were_written(channel: gv.Channel) -> None:
    again = mechanism_from_dict(mechanism_to_dict(channel))
    assert again == channel
    assert np.array_equal(again.matrix(), channel.matrix())


@given(places, epsilons, st.randoms(use_true_random=False))
def test_renaming_cells_renames_the_channel(
    space: gv.Points, epsilon: float, chance: object
) -> None:
    order = list(range(space.size))
    chance.shuffle(order)
    renamed = gv.Points(xy_km=space.centres[order])
    before = gv.Exponential(space, epsilon_per_km=epsilon).matrix()
    after = gv.Exponential(renamed, epsilon_per_km=epsilon).matrix()
    np.testing.assert_allclose(after, before[np.ix_(order, order)], rtol=1e-9)


levels = st.just(0.0) | st.floats(1e-12, 5)  # products of subnormal numbers keep no digits
guarantees = st.recursive(
    st.one_of(
        st.builds(gv.GeoIndistinguishability, levels),
        st.builds(gv.LocalDifferentialPrivacy, levels),
        st.builds(gv.WithinRadius, st.floats(0.1, 5), levels),
    ),
    lambda inner: st.builds(lambda a, b: a + b, inner, inner),
    max_leaves=4,
)
DISTANCES = np.concatenate(([0.0], np.geomspace(1e-6, 1e6, 200)))


@given(guarantees, guarantees, guarantees)
def test_promises_add_in_any_order(a: gv.Guarantee, b: gv.Guarantee, c: gv.Guarantee) -> None:
    total = a.loss(DISTANCES) + b.loss(DISTANCES) + c.loss(DISTANCES)
    for sum_of in (a + b + c, c + (b + a), (a + c) + b):
        np.testing.assert_allclose(sum_of.loss(DISTANCES), total, rtol=1e-12)
    assert a.implies(a + b)
    assert a.loss(0.0) == 0.0
    assert (a.loss(DISTANCES[:-1]) <= a.loss(DISTANCES[1:])).all()


@given(guarantees, guarantees, guarantees)
@settings(max_examples=100)
def test_comparison_of_promises_is_an_order(
    a: gv.Guarantee, b: gv.Guarantee, c: gv.Guarantee
) -> None:
    assert a.implies(a)
    if a.implies(b):
        assert (a.loss(DISTANCES) <= b.loss(DISTANCES) * (1 + 1e-9)).all()
        if b.implies(c):
            assert (a.loss(DISTANCES) <= c.loss(DISTANCES) * (1 + 1e-9)).all()


@given(guarantees, st.integers(1, 20))
def test_several_reports_cost_several_times(promise: gv.Guarantee, reports: int) -> None:
    times = (promise * reports).loss(DISTANCES)
    np.testing.assert_allclose(times, reports * promise.loss(DISTANCES), rtol=1e-9)
