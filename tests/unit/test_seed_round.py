"""A trusted first round bounds what fakes can move, and leaves honest campaigns alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.channel.channel import Tally
from geoveil.errors import InvalidInput
from geoveil.estimate.bounds import held_between, held_to_seed, held_within

TOWN = gv.Grid(rows=6, columns=6, cell_km=1.0)


def town(space: gv.Grid = TOWN) -> FloatArray:
    weights = np.exp(-space.distances_from_km(8)) + 0.01
    weights += np.exp(-space.distances_from_km(min(27, space.size - 1)))
    return np.asarray(weights / weights.sum())


def campaign(
    seed: int, fakes: float, later: int = 1, space: gv.Grid = TOWN, **options: bool
) -> gv.Campaign:
    """An honest round of 10,000, then some of 30,000 in which fakes behave like people of cell 5."""
    made = gv.Campaign(space, epsilon_per_km=2.0, between="cells", **options)
    generator = np.random.default_rng(seed)
    for reports, share in ((10_000, 0.0), *[(30_000, fakes)] * later):
        law = (1 - share) * made.mechanism.push(town(space)) + share * made.mechanism.row(5)
        made.receive(Tally(made.mechanism, generator.multinomial(reports, law / law.sum())))
        made.close_round()
    return made


def test_invisible_fakes_move_a_cell_by_the_bars_of_the_seed_at_most() -> None:
    tallies = [done.tally for done in campaign(1, 0.5).rounds]
    update = gv.IterativeBayesianUpdate()
    free = update.fit(tallies)
    held = held_to_seed(free, tallies, tallies[:1], update)
    low, high = update.fit(tallies[0]).interval(1 - 0.05 / TOWN.size)
    assert free.distribution[5] > 0.25
    assert (held.distribution <= high + 1e-9).all()
    assert (held.distribution >= low - 1e-9).all()
    assert held.distribution[5] < 0.06
    assert "held to the error bars of the trusted seed round" in held.stopped
    assert held.certificate > free.certificate  # it explains the reports less well
    interval = held.interval()
    assert (interval[0] <= held.distribution).all()
    assert (held.distribution <= interval[1]).all()


def test_rounds_that_disagree_never_take_over_from_a_trusted_seed() -> None:
    free, trusting = (campaign(1, 0.5, 3, trusted_seed=trusted) for trusted in (False, True))
    assert free.closing.standing.agreeing == (2, 3, 4)
    assert free.distribution[5] > 0.4
    assert trusting.closing.standing.agreeing == (1,)
    assert trusting.distribution[5] < 0.06


def test_what_comes_late_under_the_mechanism_of_the_seed_is_trusted_no_more_than_other_reports() -> (
    None
):
    made = campaign(1, 0.0, 0, trusted_seed=True)
    again = gv.Campaign.from_dict(made.to_dict())
    low, high = made.estimate.interval(1 - 0.05 / TOWN.size)
    for each in (made, again):
        first = each.rounds[0].tally.channel
        late = np.random.default_rng(5).multinomial(40_000, first.row(5))
        each.receive(Tally(first, late))
        law = each.mechanism.push(town())
        each.receive(Tally(each.mechanism, np.round(30_000 * law / law.sum()).astype(int)))
        each.close_round()
        assert (each.distribution <= high + 1e-9).all()
        assert (each.distribution >= low - 1e-9).all()
        assert each.distribution[5] < 0.02


def test_a_seed_bounds_the_average_over_promises_by_its_own_average() -> None:
    """All who chose the strong promise are in one corner and all others in the opposite one."""
    square = gv.Grid(rows=3, columns=3, cell_km=1.0)
    made = gv.Campaign(square, promises_per_km=[1.0, 4.0], between="cells", trusted_seed=True)
    truth, generator = np.zeros((2, 9)), np.random.default_rng(8)
    truth[0, [0, 1]], truth[1, [7, 8]] = (0.7, 0.3), (0.4, 0.6)
    moved = np.eye(9)[[2, 6]]  # in the third round, which waits
    for round_of in (truth, truth, moved):
        for mechanism, people in zip(made.mechanisms.values(), round_of, strict=True):
            law = mechanism.push(people)
            made.receive(Tally(mechanism, generator.multinomial(3000, law / law.sum())))
        made.close_round()
    closing, of_all = made.closing, truth.mean(axis=0)
    assert closing.choices.dependent
    assert closing.standing.waiting == (3,)
    assert closing.alarm.overall_p_value > 0.1  # against the map of those whose reports it looks at
    low, high = made.estimate.interval(0.999)
    assert ((low <= of_all) & (of_all <= high)).all()
    assert np.abs(made.distribution - of_all).sum() / 2 < 0.05

    either, _ = closing.error_bars()
    low, high = either.interval(0.999)
    newest = moved.mean(axis=0)
    assert ((low <= newest) & (newest <= high)).all()
    shown = np.full(9, 1 / 9)  # as if it had been held somewhere else
    kept = type(closing).recalled(closing.rounds, shown, steps=1, stopped="", dependent=True)
    low, high = kept.error_bars()[0].interval(0.999)
    for each in (shown, of_all):
        assert ((low <= each) & (each <= high)).all()


def test_honest_campaigns_are_left_alone() -> None:
    for seed in range(4):
        free, held = (campaign(seed, 0.0, trusted_seed=trusted) for trusted in (False, True))
        assert np.abs(free.distribution - held.distribution).max() < 0.01
        assert (
            np.abs(held.distribution - town()).sum()
            < 1.2 * np.abs(free.distribution - town()).sum()
        )


def test_the_option_survives_a_save_and_goes_with_the_guard() -> None:
    village = gv.Grid(rows=3, columns=3, cell_km=1.0)  # where the guard has fewer cells to fit
    made = campaign(2, 0.3, space=village, trusted_seed=True, guarded=True)
    assert made.closing.alarm.raised
    again = gv.Campaign.from_dict(made.to_dict())
    assert again.rule.to_dict() == made.rule.to_dict()
    assert again.rule.to_dict()["trusted_seed"] is True
    older = made.to_dict()
    del older["rounds"][0]["seed"]
    assert gv.Campaign.from_dict(older).to_dict() == made.to_dict()
    np.testing.assert_array_equal(again.estimate.distribution, made.estimate.distribution)
    with pytest.raises(InvalidInput, match="trusted_seed"):
        gv.Campaign(village, rule=made.rule, trusted_seed=True)


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_bounds_are_kept_and_the_nearest_is_found(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    inside, theta = generator.dirichlet(np.ones(size), 2)
    low, high = (
        inside * generator.random(size),
        np.minimum(1.0, inside * (1 + generator.random(size))),
    )
    held = held_within(theta, low, high)
    assert held.sum() == pytest.approx(1.0)
    assert (held >= low - 1e-9).all()
    assert (held <= high + 1e-9).all()
    others = inside + 0.3 * (held - inside)  # another distribution within the bounds

    def divergence(values: FloatArray) -> float:
        return float(values @ np.log(np.maximum(values, 1e-300) / theta))

    assert divergence(held) <= divergence(others) + 1e-9


@given(st.integers(2, 30), st.integers(0, 10_000))
def test_held_between_keeps_every_region_to_its_bounds(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    theta, allowed = generator.dirichlet(np.full(size, 0.3), 2)
    regions = (generator.random((12, size)) < 0.4).astype(float)
    least, most = regions @ allowed - 0.01, regions @ allowed + 0.02
    found = held_between(theta, regions, least, most, allowed)
    assert found.sum() == pytest.approx(1.0)
    assert found.min() >= 0
    assert (regions @ found <= most + 1e-9).all()
    assert (regions @ found >= least - 1e-9).all()
    free = held_between(theta, regions, np.zeros(12), np.ones(12), allowed)
    np.testing.assert_allclose(free, theta, atol=1e-9)


def test_held_between_is_the_nearest() -> None:
    """As Karush, Kuhn and Tucker say: log θ'/θ is constant but for the regions at a bound."""
    theta = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    regions = np.array([[1.0, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]])
    least, most = np.array([0.0, 0.0, 0.2]), np.array([0.5, 0.3, 0.9])
    allowed = np.array([0.2, 0.1, 0.1, 0.4, 0.2])
    found = held_between(theta, regions, least, most, allowed)
    assert found[:2].sum() == pytest.approx(0.5, abs=1e-5)
    assert found[1:3].sum() <= 0.3 + 1e-5
    change = np.log(found / theta)
    assert (change[:3] <= change[4] + 1e-5).all()
    assert found[3] >= 0.2 - 1e-5
    free = held_between(theta, regions, np.zeros(3), most, allowed)
    change = np.log(free / theta)
    assert change[3] == pytest.approx(change[4], abs=1e-5)
