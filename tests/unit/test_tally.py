"""Tallies: whole counts with the channel that made them."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import InvalidInput, OutsideSpace, TooLarge
from geoveil.estimate import JointTally, Steps

CHANNEL = gv.RandomizedResponse(gv.Line(3), epsilon=1.0)


def test_tallies_of_equal_channels_add_and_of_others_do_not() -> None:
    same = gv.RandomizedResponse(gv.Line(3), epsilon=1.0)
    total = CHANNEL.tally([0, 0, 2]) + same.tally([1])
    assert total.counts.tolist() == [2, 1, 1]
    assert total.total == 4
    assert "4 reports" in repr(total)
    with pytest.raises(InvalidInput, match="same channel"):
        CHANNEL.tally([0]) + gv.RandomizedResponse(gv.Line(3), epsilon=2.0).tally([0])
    with pytest.raises(TypeError):
        CHANNEL.tally([0]) + 1
    with pytest.raises(TypeError):
        1 + CHANNEL.tally([0])


def test_tallies_of_every_kind_can_be_summed() -> None:
    trips = gv.Trips(CHANNEL)
    for one in (
        CHANNEL.tally([0, 2]),
        gv.JointTally([CHANNEL, CHANNEL], [[0, 1], [2, 2]]),
        gv.Rappor(gv.Line(3), epsilon=1.0).tally([[0, 1, 0], [1, 1, 0]]),
        trips.tally([0, 2], [1, 1]),
    ):
        assert sum([one, one, one]).total == 6


def test_counts_are_kept_as_they_were() -> None:
    given = np.array([1, 2, 3])
    tally = gv.Tally(CHANNEL, given)
    given[0] = 99
    assert tally.counts.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        tally.counts[0] = 5
    assert gv.Tally(CHANNEL, [1.0, 2.0, 0.0]).counts.dtype == np.int64
    assert CHANNEL.tally([]).total == 0


@pytest.mark.parametrize(
    "wrong", [[1, 2], [1, 2, -1], [1.5, 0, 0], [np.nan, 0, 0], ["1", "2", "3"], 3]
)
def test_counts_must_be_whole_and_one_per_report(wrong: object) -> None:
    with pytest.raises(InvalidInput):
        gv.Tally(CHANNEL, wrong)


def test_reports_must_be_reports() -> None:
    for wrong in ([3], [-1]):
        with pytest.raises(OutsideSpace):
            CHANNEL.tally(wrong)
    with pytest.raises(InvalidInput):
        CHANNEL.tally([0.5])


@pytest.mark.parametrize(
    "wrong",
    [
        [1e19, 0, 0],
        np.array([2**63, 0, 0], dtype=np.uint64),
        [2**62, 2**62, 0],
        [2**61, 2**61, 0],
        [2**70, 0, 0],
        [[1], [1, 2], [3]],
    ],
)
def test_counts_beyond_64_bits_are_refused(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="counts"):
        gv.Tally(CHANNEL, wrong)
    large = gv.Tally(CHANNEL, [2**62 - 1024, 0, 0])
    assert large.total == 2**62 - 1024
    with pytest.raises(InvalidInput, match="less than 2"):
        large + large


def test_counts_of_all_combinations_and_of_those_seen_do_not_add() -> None:
    """One combination seen has one count, which NumPy would add to every other."""
    seen = JointTally([CHANNEL, CHANNEL], [[0, 0]] * 5)
    every = seen.channel.tally([0, 1, 2])
    for one, other in ((seen, every), (every, seen)):
        with pytest.raises(InvalidInput, match=r"to be added; pass both to fit"):
            one + other


GRID = gv.Grid(rows=2, columns=3, cell_km=1.0)
RAPPOR = gv.Rappor(GRID, epsilon=2.0)


@pytest.mark.parametrize(
    "tally",
    [
        CHANNEL.tally([0, 0, 2]),
        gv.PlanarGeometric(GRID, epsilon_per_km=1.0).tally([0, 5, 5]),
        gv.elastic(GRID, np.arange(6), epsilon_per_km=1.0).tally([1, 1]),
        JointTally([CHANNEL, CHANNEL], [[0, 1], [2, 2], [0, 1]]),
        RAPPOR.tally(RAPPOR.sample([0, 1, 5], randomness=gv.seeded(1))),
    ],
    ids=lambda tally: type(tally).__name__,
)
def test_tallies_can_be_pickled(tally: gv.Tally) -> None:
    again = pickle.loads(pickle.dumps(tally))
    assert type(again) is type(tally)
    assert again.channel == tally.channel
    assert again.space == tally.space
    assert again.total == tally.total
    assert again.counts.tolist() == tally.counts.tolist()
    assert not again.counts.flags.writeable
    first, second = (gv.IterativeBayesianUpdate(stop=Steps(3)).fit(each) for each in (tally, again))
    assert first.distribution.tolist() == second.distribution.tolist()


def test_a_collection_can_be_pickled() -> None:
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0, minimum_reports=1)
    mechanism = campaign.mechanism
    campaign.receive(mechanism.tally(mechanism.sample([0, 1, 1, 5])))
    campaign.close_round()
    again = pickle.loads(pickle.dumps(campaign))
    assert again.to_dict() == campaign.to_dict()
    assert again.estimate.certificate == campaign.estimate.certificate


def test_a_pickled_estimate_refuses_what_the_original_refuses() -> None:
    fit = gv.IterativeBayesianUpdate(stop=Steps(1), uncertainty=gv.Bootstrap(replicates=10**9)).fit
    again = pickle.loads(pickle.dumps(fit(CHANNEL.tally([0, 1]))))
    with pytest.raises(TooLarge, match="fewer replicates"):
        again.interval()


def test_the_log_likelihood_is_that_of_the_reports_with_all_its_factors() -> None:
    """RAPPOR and joint reports are fitted with columns that lack factors, which no map depends on."""
    line, theta = gv.Line(3), np.array([0.5, 0.3, 0.2])
    rappor = gv.Rappor(line, epsilon=2.0)
    bits = rappor.sample([0, 0, 1, 2, 2, 2, 0], randomness=gv.seeded(1))
    first, second = (gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 3.0))
    pairs = np.array([[0, 0], [0, 1], [2, 2], [0, 0]])
    single = first.tally([0, 1, 1])
    fixed = gv.IterativeBayesianUpdate(stop=gv.Steps(0), start=theta)

    of_bits = np.log(rappor.push(theta)[bits @ (1 << np.arange(3))])
    of_pairs = np.log(theta @ (first.matrix()[:, pairs[:, 0]] * second.matrix()[:, pairs[:, 1]]))
    of_singles = np.log(first.push(theta)[[0, 1, 1]])
    joint = gv.JointTally([first, second], pairs)
    for tallies, logs in [
        ([rappor.tally(bits)], of_bits),
        ([rappor.tally(bits[:3]), rappor.tally(bits[3:])], of_bits),
        ([joint], of_pairs),
        ([joint, rappor.tally(bits), single], np.concatenate([of_pairs, of_bits, of_singles])),
    ]:
        assert fixed.fit(tallies).log_likelihood == pytest.approx(logs.mean())
    closed = gv.RapporEstimator().fit(rappor.tally(bits))
    law = rappor.push(closed.distribution)[bits @ (1 << np.arange(3))]
    assert closed.log_likelihood == pytest.approx(np.log(law).mean())


def test_what_is_no_channel_or_no_single_cell_is_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"channel \(int\) must be a mechanism"):
        gv.Tally(3, [1])
    for ask in (CHANNEL.row, CHANNEL.column):
        with pytest.raises(InvalidInput, match="must be one number"):
            ask([0, 1])


def test_more_reports_than_there_can_be_still_have_intervals() -> None:
    channel = gv.PlanarGeometric(gv.Grid(rows=3, columns=4, cell_km=1.0), epsilon_per_km=1.0)
    estimate = gv.IterativeBayesianUpdate().fit(gv.Tally(channel, np.full(12, 4 * 10**16)))
    low, high = estimate.interval(0.95)
    assert (low <= estimate.distribution).all()
    assert (estimate.distribution <= high).all()
    assert np.isfinite(high - low).all()


def test_joint_columns_take_no_memory_for_positions_in_a_cell() -> None:
    city = gv.Grid.from_box(south=48.81, west=2.24, north=48.91, east=2.43, cell_km=1.0)
    wide = gv.elastic(city, epsilon_per_km=2.0)
    people = np.random.default_rng(0).integers(0, city.size, 4000)
    reports = [wide.sample(people, randomness=gv.seeded(number)) for number in range(3)]
    gv.JointTally([wide] * 3, np.stack(reports, axis=1)[:2])  # what is made once
    tracemalloc.start()
    tally = gv.JointTally([wide] * 3, np.stack(reports, axis=1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    columns = tally.operator.matrix()
    assert len(wide.standing[0]) > 3
    assert len(tally.combinations) > 3000
    assert peak < 3 * columns.nbytes
    some = slice(0, None, 100)
    apart = sum(
        share
        * np.prod([wide.columns_from(inside, part) for part in tally.combinations[some].T], axis=0)
        for inside, share in zip(*wide.standing, strict=True)
    )
    assert columns[:, some] == pytest.approx(apart / apart.max(axis=0), rel=1e-9)
