"""Manipulation gain against closed forms, brute force and the lines for the two cities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.campaign import Campaign, Round
from geoveil.campaign.elastic_design import elastic
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.composed import DenseChannel
from geoveil.errors import InvalidInput
from geoveil.estimate import (
    ActiveSetNewton,
    AverageMechanism,
    AverageOfEstimates,
    CertifiedWithin,
    IterativeBayesianUpdate,
    MatrixInversion,
    Steps,
)
from geoveil.estimate.mixture import Estimator
from geoveil.mechanism import PlanarGeometric, RandomizedResponse
from geoveil.papers.data import PARIS, DataFolder, load_city
from geoveil.randomness import seeded
from geoveil.space.grid import Grid, Line
from geoveil.verify.manipulation import (
    expected_counts,
    manipulation_gain,
)
from poisoned_campaigns import campaign_manipulation_gain

GRID = Grid(rows=4, columns=4, cell_km=0.5)
EXACT = IterativeBayesianUpdate(stop=CertifiedWithin(1e-12))


def hilly(size: int = 16) -> np.ndarray:
    weights = 1.0 + np.arange(size) % 5
    return weights / weights.sum()


@given(st.integers(1, 9), st.integers(1, 10_000), st.integers(0, 2**32 - 1))
def test_expected_counts_are_whole_near_and_complete(size: int, total: int, seed: int) -> None:
    law = np.random.default_rng(seed).dirichlet(np.ones(size))
    counts = expected_counts(law, total)
    assert counts.sum() == total
    assert np.abs(counts - total * law).max() < 1 + 1e-6


def test_two_rounds_of_one_mechanism_are_one_of_twice_the_reports() -> None:
    mechanism = PlanarGeometric(GRID, epsilon_per_km=3.0)
    once, twice = (manipulation_gain([mechanism] * rounds, hilly()) for rounds in (1, 2))
    assert (twice.target, twice.fake) == (once.target, once.fake)
    assert twice.gain == pytest.approx(once.gain, rel=0.01)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_gain_of_the_exact_estimate_is_a_column_of_the_inverse(epsilon: float) -> None:
    """Interior maximum: θ̂ = qC⁻¹, so fakes y move it by share·(e_y − q)C⁻¹, whatever the share."""
    mechanism = RandomizedResponse(Line(6), epsilon=epsilon)
    prior = hilly(6)
    moved = (np.eye(6) - mechanism.push(prior)) @ np.linalg.inv(mechanism.matrix())
    found = manipulation_gain(mechanism, prior, estimator=EXACT, reports=10_000_000)
    assert found.gain == pytest.approx(moved.max(), rel=1e-3)
    assert moved[found.fake, found.target] == pytest.approx(moved.max())  # both ends are alike
    assert found.moved == pytest.approx(0.01 * found.gain)


def test_without_noise_a_fake_is_worth_a_person() -> None:
    channel = DenseChannel(Line(4), np.eye(4))
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    found = manipulation_gain(channel, prior, reports=10_000)
    assert found.gain == pytest.approx(0.9)
    assert found.target == found.fake == 3
    np.testing.assert_allclose(found.gains, 1 - prior, atol=1e-9)


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_search_finds_what_brute_force_finds(rounds: int) -> None:
    estimator = IterativeBayesianUpdate()
    channels = [elastic(GRID, prior, epsilon_per_km=3.0) for prior in (None, hilly())[-rounds:]]
    found = manipulation_gain(channels, hilly(), reports=20_000, candidates=16)
    each = 20_000 // rounds
    laws = [channel.push(hilly()) for channel in channels]

    def fitted(fake: int | None) -> np.ndarray:
        fakes = each // 100 * (fake is not None)
        counts = [expected_counts(law, each - fakes) for law in laws]
        for one in counts:
            one[fake or 0] += fakes
        tallies = [Tally(c, n) for c, n in zip(channels, counts, strict=True)]
        return estimator.fit(tallies).distribution

    honest = fitted(None)
    gains = np.array([fitted(fake) - honest for fake in range(16)]) / 0.01
    assert found.gain == pytest.approx(gains.max(), abs=1e-9)
    np.testing.assert_allclose(found.gains, gains.max(axis=0), atol=1e-9)


@pytest.mark.parametrize(
    "estimator",
    [
        MatrixInversion(),
        AverageMechanism(MatrixInversion()),
        IterativeBayesianUpdate(stop=CertifiedWithin(1e-9), accelerate=ActiveSetNewton()),
        AverageOfEstimates(
            IterativeBayesianUpdate(stop=CertifiedWithin(1e-9), accelerate=ActiveSetNewton())
        ),
    ],
    ids=["inversion", "average mechanism", "newton", "average of newton"],
)
def test_estimators_without_plain_steps_are_given_every_fake(estimator: Estimator) -> None:
    """A single plain step, all that can be told of them, would rank the fakes wrongly."""
    prior = np.random.default_rng(0).dirichlet(np.full(25, 0.5))
    mechanism = elastic(Grid(rows=5, columns=5, cell_km=0.5), prior, epsilon_per_km=4.0)
    few, every = (
        manipulation_gain(mechanism, prior, estimator=estimator, reports=20_000, candidates=n)
        for n in (1, 25)
    )
    np.testing.assert_array_equal(few.tried, np.arange(25))
    np.testing.assert_array_equal(few.gains, every.gains)
    honest = estimator.fit(Tally(mechanism, expected_counts(mechanism.push(prior), 20_000)))
    counts = expected_counts(mechanism.push(prior), 19_800)
    counts[few.fake] += 200
    moved = estimator.fit(Tally(mechanism, counts)).distribution - honest.distribution
    assert few.gain == pytest.approx(moved[few.target] / 0.01)
    assert few.gain == few.gains.max() > 5


@pytest.mark.parametrize("people", [hilly(), np.full(16, 1 / 16)], ids=["hilly", "flat"])
def test_few_candidates_come_close_and_say_which(people: np.ndarray) -> None:
    """Also where the estimator takes no step without fakes, since people stand as it begins."""
    mechanism = elastic(GRID, hilly(), epsilon_per_km=3.0)
    every, few = (manipulation_gain(mechanism, people, candidates=n) for n in (16, 3))
    assert few.tried.size == 3
    assert 0.9 * every.gain <= few.gain <= every.gain
    assert "gain of" in few.summary()


def test_less_noise_less_gain() -> None:
    many = IterativeBayesianUpdate(stop=Steps(300))
    gains = [
        manipulation_gain(
            PlanarGeometric(GRID, epsilon_per_km=epsilon), hilly(), estimator=many
        ).gain
        for epsilon in (2.0, 4.0, 16.0)
    ]
    assert gains[0] > gains[1] > gains[2] > 0.7


def test_regions() -> None:
    mechanism = elastic(GRID, hilly(), epsilon_per_km=3.0)
    ten = IterativeBayesianUpdate(stop=Steps(10))
    gain = partial(manipulation_gain, mechanism, hilly(), estimator=ten, candidates=16)
    cells = gain()
    halves = gain(regions=[range(8), range(8, 16), range(16)])
    assert halves.gains.shape == (3,)
    assert halves.gains[2] == pytest.approx(0.0, abs=1e-9)  # the whole map cannot grow
    assert halves.gain < cells.gain  # most of what a cell wins, its neighbours lose
    assert gain(regions=[[cell] for cell in range(16)]).gain == pytest.approx(cells.gain)


def test_sampled_people() -> None:
    mechanism = PlanarGeometric(GRID, epsilon_per_km=4.0)
    estimator = IterativeBayesianUpdate(stop=Steps(50))
    drawn = [
        manipulation_gain(mechanism, hilly(), estimator=estimator, randomness=seeded(seed))
        for seed in (1, 1, 2)
    ]
    expected = manipulation_gain(mechanism, hilly(), estimator=estimator)
    assert drawn[0].gain == drawn[1].gain != drawn[2].gain
    assert drawn[0].gain == pytest.approx(expected.gain, rel=0.1)


def test_a_campaign_of_one_round_is_its_opening_mechanism() -> None:
    def start() -> Campaign:
        return Campaign(Grid(rows=3, columns=3, cell_km=0.5), epsilon_per_km=3.0)

    whole = campaign_manipulation_gain(start, hilly(9), rounds=1, targets=range(9))
    opening = manipulation_gain(start().mechanism, hilly(9), candidates=9)
    assert whole.gain == pytest.approx(opening.gain, abs=1e-9)
    assert whole.target == opening.target


def test_fakes_sharpen_the_mechanism_they_poison() -> None:
    """The design takes fakes of a lonely corner for people, hides it less, and so weakens them."""
    prior, share, people = np.where(np.arange(16) == 5, 0.85, 0.01), 0.2, 100_000

    def following(fakes: int) -> Channel:
        campaign = Campaign(GRID, epsilon_per_km=3.0, camouflage=1.0)
        counts = expected_counts(campaign.mechanism.push(prior), people - fakes)
        counts[0] += fakes
        campaign.receive(Tally(campaign.mechanism, counts))
        campaign.close_round()
        return campaign.mechanism

    honest, poisoned = following(0), following(round(share * people))
    assert poisoned.matrix()[0, 0] > 1.2 * honest.matrix()[0, 0]
    gain = partial(
        manipulation_gain,
        prior=prior,
        estimator=IterativeBayesianUpdate(stop=Steps(100)),
        share=share,
    )
    assert gain(poisoned).gains[0] < 0.95 * gain(honest).gains[0]


def test_fakes_that_begin_late_are_denser_and_as_many() -> None:
    received: list[list[int]] = []

    class Spy(Campaign):
        def receive(self, tally: Tally) -> Round:
            received[-1].append(int(tally.counts[2]))
            return super().receive(tally)

    def start() -> Campaign:
        received.append([])
        return Spy(GRID, epsilon_per_km=3.0)

    found = campaign_manipulation_gain(
        start, hilly(), rounds=4, targets=[2], share=0.02, reports=40_000, onset=3
    )
    honest, poisoned = received
    assert poisoned[:2] == honest[:2]
    assert all(p - h > 300 for p, h in zip(poisoned[2:], honest[2:], strict=True))
    assert found.share == pytest.approx(0.02)
    for onset, share in ((5, 0.02), (4, 0.3)):
        with pytest.raises(InvalidInput, match="onset"):
            campaign_manipulation_gain(
                start, hilly(), rounds=4, targets=[2], share=share, onset=onset
            )


def test_a_bound_on_the_leverage_bounds_the_gain_in_paris(
    shared_data: Callable[[str], Path],
) -> None:
    """The mechanism for the true map at the default dial, ε = 2 per cell: the line is 3."""
    city = load_city(PARIS, DataFolder(shared_data("gowalla-paris.csv.gz").parent))
    mechanism = elastic(city.grid, city.truth, epsilon_per_km=2.0, most_leverage=2.6)
    for share in (0.001, 0.01, 0.05):
        assert 2 < manipulation_gain(mechanism, city.truth, share=share, candidates=3).gain <= 3


def test_fakes_that_all_come_in_the_last_round_gain_nothing_in_paris(
    shared_data: Callable[[str], Path],
) -> None:
    """1 % fakes, all in the last of four rounds, ε = 2 per cell: a round that the others contradict is
    set aside until later ones agree with it, guarded or not."""
    city = load_city(PARIS, DataFolder(shared_data("gowalla-paris.csv.gz").parent))
    plain, guarded = (
        campaign_manipulation_gain(
            partial(Campaign, city.grid, epsilon_per_km=2.0, guarded=guarded),
            city.truth, rounds=4, targets=[96], onset=4,
        ).gain
        for guarded in (False, True)
    )  # fmt: skip
    assert max(abs(plain), abs(guarded)) < 0.5


@pytest.mark.parametrize(
    ("epsilon", "opening", "line"), [(1.0, False, 20.0), (1.0, True, 20.0), (2.0, True, 3.0)]
)
def test_lines_for_paris(
    shared_data: Callable[[str], Path], epsilon: float, opening: bool, line: float
) -> None:
    """Per cell of half a kilometre; at ε = 2 a designed mechanism meets 3 only where it is bounded."""
    city = load_city(PARIS, DataFolder(shared_data("gowalla-paris.csv.gz").parent))
    mechanism = elastic(city.grid, None if opening else city.truth, epsilon_per_km=epsilon)
    assert 1 < manipulation_gain(mechanism, city.truth, candidates=3).gain <= line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"share": 0.0}, "share"),
        ({"share": 1e-9}, "at least one fake"),
        ({"reports": 0}, "reports"),
        ({"candidates": 0}, "candidates"),
    ],
)
def test_wrong_input(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        manipulation_gain(RandomizedResponse(Line(3), epsilon=1.0), [0.2, 0.3, 0.5], **arguments)


def test_rounds_with_other_reports_are_refused() -> None:
    channels = [DenseChannel(Line(2), np.eye(2)), DenseChannel(Line(2), [[0.5, 0.2, 0.3]] * 2)]
    with pytest.raises(InvalidInput, match="same reports"):
        manipulation_gain(channels, [0.5, 0.5])
