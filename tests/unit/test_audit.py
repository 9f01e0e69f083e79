"""The parts of the audit: p-values that are p-values, intervals that cover, and what it says."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.stats import binomtest

import geoveil as gv
from faults.corpus import MAKERS, Bent
from geoveil.channel.composed import AverageChannel
from geoveil.errors import InvalidInput, RandomnessFailed
from geoveil.verify.auditor import audit, check_distances
from geoveil.verify.evidence import (
    chi_square,
    dependence,
    excess,
    goodness_of_fit,
    grouped,
    loss_bounds,
    lower_limit,
    repeats,
    spread_cells,
    tail,
    upper_limit,
)

LAWS = {
    "uniform": np.full(40, 1 / 40),
    "geometric": np.exp(-0.3 * np.abs(np.arange(60) - 20)),
    "skewed": np.r_[0.9, np.full(500, 2e-4)],
    "with zeros": np.r_[0.0, 0.5, 0.0, 0.3, 0.2, 0.0],
}
LAWS = {name: law / law.sum() for name, law in LAWS.items()}
laws = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())


@pytest.mark.statistical
@laws
def test_p_values_of_sound_draws_are_not_too_small(law: np.ndarray) -> None:
    generator = np.random.default_rng(1)
    counts = generator.multinomial(4000, law, size=1500)
    for test in (lambda c: tail(*chi_square(c, law)), lambda c: excess(c, law)):
        values = np.array([test(c) for c in counts])
        for level in (0.5, 0.1, 0.01, 0.002):
            assert (values <= level).mean() <= level + 6 * np.sqrt(level / len(values))


@pytest.mark.statistical
@laws
def test_p_values_of_wrong_draws_are_small(law: np.ndarray) -> None:
    wrong = law * np.where(np.arange(law.size) % 2, 1.2, 1.0)
    counts = np.random.default_rng(2).multinomial(60_000, wrong / wrong.sum())
    assert min(tail(*chi_square(counts, law)), excess(counts, law)) < 1e-6


def test_chi_square_has_the_mean_and_variance_it_says() -> None:
    law = LAWS["geometric"]
    counts = np.random.default_rng(3).multinomial(2000, law, size=4000)
    found = np.array([chi_square(c, law) for c in counts])
    assert found[:, 0].mean() == pytest.approx(found[0, 1], rel=0.03)
    assert found[:, 0].var() == pytest.approx(found[0, 2], rel=0.1)


@laws
def test_groups_are_likely_enough_and_cover_everything(law: np.ndarray) -> None:
    groups = grouped(law, 0.05)
    mass = np.bincount(groups, weights=law)
    assert mass.min() >= 0.05 * (1 - 1e-9)
    assert mass.sum() == pytest.approx(1.0)
    assert (grouped(law, 2.0) == 0).all()


def test_a_report_that_cannot_be_is_never_excused() -> None:
    law = LAWS["with zeros"]
    assert excess(np.array([1, 5000, 0, 3000, 2000, 0]), law) == 0.0
    found = goodness_of_fit(np.array([[0], [1], [1], [3]]), law[None, :])
    assert min(p for _, p in found) == 0.0


@pytest.mark.statistical
def test_a_small_tilt_shared_by_all_cells_is_found() -> None:
    matrix = np.full((12, 30), 1 / 30)
    wrong = matrix.copy()
    wrong[np.arange(12), np.arange(12)] += 0.01
    generator = np.random.default_rng(4)
    letters = np.stack([generator.choice(30, 4000, p=row / row.sum()) for row in wrong], axis=1)
    ranked = matrix + 1e-9 * np.eye(12, 30)  # the own cell is the likeliest
    found = dict(goodness_of_fit(letters, ranked / ranked.sum(axis=1, keepdims=True)))
    assert found["all cells, one rank"] < 1e-9
    assert min(p for where, p in found.items() if where.startswith("cell")) > 1e-9


@pytest.mark.statistical
def test_dependence_and_repetition() -> None:
    law = LAWS["geometric"]
    letters = np.random.default_rng(5).choice(60, 20_000, p=law)
    assert dependence(letters, law) > 1e-6
    assert dependence(np.repeat(letters[::2], 2), law) < 1e-12
    assert not repeats(letters[:8000], law, 1e-4)
    assert repeats(np.tile(letters[:700], 4), law, 1e-4)
    assert repeats(np.concatenate((letters[:5000], letters[1000:1100])), law, 1e-4)
    certain = np.array([1.0, 0.0])
    assert not repeats(np.zeros(5000, dtype=np.int64), certain, 1e-4)
    assert dependence(np.zeros(5000, dtype=np.int64), certain) == 1.0
    nearly = np.array([0.999, 0.001])
    rare = (np.arange(5000) % 1000 == 0).astype(np.int64)
    assert not repeats(rare, nearly, 1e-4)
    assert dependence(rare, nearly) == 1.0


@pytest.mark.parametrize(
    ("successes", "draws"), [(0, 10), (3, 10), (10, 10), (500, 1000), (1, 10_000)]
)
def test_limits_are_those_of_clopper_and_pearson(successes: int, draws: int) -> None:
    wanted = binomtest(successes, draws).proportion_ci(1 - 2e-3, method="exact")
    low = lower_limit(np.array([successes]), draws, 1e-3).item()
    high = upper_limit(np.array([successes]), draws, 1e-3).item()
    assert low == pytest.approx(max(wanted.low, 1e-300), rel=1e-9)
    assert high == pytest.approx(wanted.high, rel=1e-9)


@pytest.mark.statistical
def test_proven_losses_stay_below_the_truth_and_come_near_it() -> None:
    matrix = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    truth = np.log(7)
    best = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        letters = np.stack([generator.choice(3, 4000, p=row) for row in matrix], axis=1)
        best.append(loss_bounds(letters, 0.05)[2].max())
    assert (np.array(best) > truth).mean() <= 0.05
    assert np.median(best) > 0.8 * truth


@pytest.mark.statistical
def test_events_are_not_chosen_by_the_draws_they_are_counted_in() -> None:
    above = 0
    for seed in range(60):
        letters = np.random.default_rng(seed).integers(400, size=(3000, 2))
        above += loss_bounds(letters, 0.1)[2].max() > 0  # the truth is 0
    assert above <= 6 + 3 * np.sqrt(6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("squared distance as distance", "the triangle inequality fails"),
        ("one way streets", "not the distance back"),
        ("latitude and longitude swapped", "on the ground"),
        ("zero cell in a column", "the claim does not hold"),
        ("not a number", "not finite"),
        ("negative probability", "holds a negative number"),
        ("rows that do not sum to one", "sums to 0.999"),
        ("pull that takes the matrix for symmetric", "pull does not agree"),
        ("sampler with another epsilon", "do not follow the rows"),
        ("coin biased by one percent", "do not follow the rows"),
        ("draws that stick to the last", "depend on each other"),
        ("a generator with a short period", "occurred twice"),
        ("the same bits at every call", "same draws for different random bits"),
        ("a generator of its own", "from elsewhere"),
        ("reports that are not whole", "instead of whole numbers"),
        ("reports outside the space", "outside 0 … 34"),
        ("sampler that fails at the rim", "IndexError"),
        ("rappor with epsilon on every bit of many", "draws prove a loss"),
    ],
)
def test_each_fault_is_called_by_its_name(name: str, said: str) -> None:
    report = audit(MAKERS[name](), draws=120_000, randomness=gv.seeded(2))
    assert any(said in finding for finding in report.findings), report.findings


@pytest.mark.parametrize(
    ("distance", "said"),
    [
        (lambda a, b: np.abs(a - b) * np.where(a + b == 3, np.nan, 1.0), "not finite"),
        (lambda a, b: -1.0 * np.abs(a - b), "negative"),
        (lambda a, b: np.maximum(np.abs(a - b) - 1.0, 0.0), "zero between two cells"),
        (lambda a, b: np.abs(a - b) + 0.5, "not zero from a cell to itself"),
    ],
)
def test_distances_that_are_none(distance: object, said: str) -> None:
    spots = np.stack([np.arange(6.0), np.zeros(6)], axis=1)
    space = Bent(lambda a, b: np.asarray(distance(a, b)), xy_km=spots)
    (sentence,) = (s for s in check_distances(space) if said in s)
    assert sentence


def test_distances_that_disagree_with_each_other() -> None:
    class Torn(gv.Line):
        def distances_from_km(self, cell: int) -> np.ndarray:
            return 2 * super().distances_from_km(cell)

    assert list(check_distances(Torn(5))) == ["distance_km and distances_from_km disagree"]
    for space in (gv.Line(1), gv.Line(300), gv.Grid(rows=9, columns=20, cell_km=0.1)):
        assert list(check_distances(space)) == []


def test_cells_are_spread_over_the_space() -> None:
    assert spread_cells(gv.Line(5), 16).tolist() == [0, 1, 2, 3, 4]
    grid = gv.Grid(rows=40, columns=30, cell_km=1.0)
    cells = set(spread_cells(grid, 16).tolist())
    assert len(cells) == 16
    assert {0, 29, 39 * 30, 1199, 20 * 30 + 15} <= cells
    assert spread_cells(gv.Line(10**6), 8).size == 8


def test_what_a_report_says() -> None:
    sound = audit(
        gv.PlanarGeometric(gv.Grid(rows=3, columns=3, cell_km=1.0), epsilon_per_km=1.0),
        draws=40_000,
        randomness=gv.seeded(1),
    )
    assert sound.passed
    assert sound.findings == ()
    assert str(sound) == "nothing found (40,000 draws, false alarm at most 0.001)"
    assert sound.certificate == gv.certify(
        gv.PlanarGeometric(gv.Grid(rows=3, columns=3, cell_km=1.0), epsilon_per_km=1.0)
    )
    assert 0.5 < sound.epsilon_lower_bound_per_km <= 1.0
    assert 0.001 < sound.fit_p_value <= 1.0
    assert (sound.draws, sound.false_alarm) == (40_000, 1e-3)


def test_more_draws_prove_more() -> None:
    mechanism = gv.RandomizedResponse(gv.Line(4), epsilon=2.0)
    few, many = (audit(mechanism, draws=n, randomness=gv.seeded(2)) for n in (2000, 400_000))
    assert few.epsilon_lower_bound_per_km < many.epsilon_lower_bound_per_km <= 2.0


def test_no_claim_is_no_fault() -> None:
    report = audit(gv.DenseChannel(gv.Line(3), np.eye(3)), draws=10_000, randomness=gv.seeded(3))
    assert report.passed
    assert not report.certificate.holds
    assert report.epsilon_lower_bound_per_km > 3


def test_a_large_lattice_is_audited_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoveil.verify.auditor._COMPARED", 1 << 22)  # of 31 cells, not of 178
    grid = gv.Grid(rows=70, columns=60, cell_km=0.5)  # more than a matrix is made of
    noise = gv.PlanarGeometric(grid, epsilon_per_km=2.0)
    assert audit(noise, draws=12_000, randomness=gv.seeded(4)).passed
    crowd = AverageChannel([noise, gv.PlanarGeometric(grid, epsilon_per_km=1.0)], [0.5, 0.5])
    report = audit(crowd, draws=12_000, randomness=gv.seeded(4))
    assert report.passed
    assert report.certificate is not None
    assert not report.certificate.exact  # no more than its parts lose
    noise.closed_form_loss = lambda: None  # type: ignore[method-assign, assignment, return-value]
    report = audit(crowd, draws=12_000, randomness=gv.seeded(4))
    assert report.passed
    assert report.certificate is None


def test_what_cannot_be_audited() -> None:
    with pytest.raises(InvalidInput, match="must be a mechanism on cells"):
        audit(gv.ContinuousLaplace(epsilon_per_km=1.0))
    mechanism = gv.RandomizedResponse(gv.Line(3), epsilon=1.0)
    for asked in (
        {"draws": 10},
        {"draws": 1e5},
        {"false_alarm": 0.0},
        {"false_alarm": 1.0},
        {"false_alarm": "x"},
    ):
        with pytest.raises(InvalidInput):
            audit(mechanism, **asked)


def test_a_failing_generator_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(size: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr(os, "urandom", fail)
    with pytest.raises(RandomnessFailed):
        audit(gv.RandomizedResponse(gv.Line(3), epsilon=1.0))


def test_a_machine_without_memory_is_no_finding() -> None:
    with pytest.raises(MemoryError):
        audit(gv.RandomizedResponse(gv.Line(3), epsilon=1.0), draws=2**53)


# -- what it says ----------------------------------------------------------------------------------


def test_a_certificate_speaks_in_the_unit_of_its_claim() -> None:
    grid = gv.Grid(rows=2, columns=2, cell_km=0.5)
    assert "found 1 by" in str(gv.certify(gv.RandomizedResponse(grid, epsilon=1.0)))
    assert "found 2 per km by" in str(gv.certify(gv.PlanarGeometric(gv.Grid(rows=9, columns=9, cell_km=0.5),
                                                                    epsilon_per_km=2.0)))  # fmt: skip


def test_what_has_no_table_cannot_be_certified() -> None:
    with pytest.raises(InvalidInput, match="must be a mechanism on cells"):
        gv.certify(gv.ContinuousLaplace(epsilon_per_km=2.0))  # type: ignore[arg-type]


def test_a_seed_is_not_a_source_of_randomness() -> None:
    with pytest.raises(InvalidInput, match=r"gv\.seeded"):
        gv.RandomizedResponse(gv.Line(3), epsilon=1.0).sample([1], randomness=7)  # type: ignore[arg-type]
