"""Releasing counts from the outside: what leaks, what is asked for, what comes out, what is refused."""

from __future__ import annotations

import itertools
import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoveil as gv
from contract.statistics import assert_follows
from geoveil.errors import InvalidInput, RandomnessFailed, TooLarge
from geoveil.release import CountRelease, CountVectors, LeakageChain, Prior, merge_least_visited
from geoveil.release import counts as box
from geoveil.release.count_release import listed_within_reach, within_reach

SKEWED = [0.8, 0.1, 0.1]
FIVE = np.random.default_rng(2).dirichlet([1, 1, 1], size=5)


def personal_by_hand(release: CountRelease, rows: np.ndarray) -> list[float]:
    """I(A_m; Ã) in bits from the joint law of one person's place and the release, written out."""
    people, places = rows.shape
    vectors = CountVectors(people, places)
    channel = release.designs[0].channel.matrix()
    found = []
    for person in range(people):
        joint = np.zeros((places, vectors.size))
        for where in itertools.product(range(places), repeat=people):
            chance = math.prod(rows[m, place] for m, place in enumerate(where))
            counts = np.bincount(where, minlength=places)
            joint[where[person]] += chance * channel[int(vectors.index(counts))]
        apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
        here = joint > 0
        found.append(float((joint[here] * np.log2(joint[here] / apart[here])).sum()))
    return found


# -- what leaks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [FIVE, np.tile(SKEWED, (4, 1)), np.tile([0.5, 0.5, 0.0], (4, 1))])
def test_personal_leakage_is_that_of_the_joint_law(rows: np.ndarray) -> None:
    release = CountRelease(people=len(rows), prior=rows, multiplier=1.0)
    wanted = personal_by_hand(release, rows)
    np.testing.assert_allclose(release.personal_leakage_bits, wanted, atol=1e-12)
    assert release.most_personal_leakage_bits == pytest.approx(max(wanted), abs=1e-12)


@pytest.mark.parametrize("rate", [0.2, 1.0, 4.0])
def test_the_chain_of_theorem_1_holds(rate: float) -> None:
    release = CountRelease(people=5, prior=FIVE, multiplier=rate)
    chain = release.chain
    assert chain.holds
    assert chain.personal_bits <= chain.aggregate_bits == chain.upper_bits
    assert chain.least_bits <= chain.aggregate_bits
    assert not LeakageChain(0.3, 0.2, 0.2, 0.1).holds
    assert not LeakageChain(0.1, 0.2, 0.2, 0.3).holds


def test_an_unchanged_release_tells_everything_and_a_fixed_one_nothing() -> None:
    open_hand = CountRelease(people=6, prior=SKEWED, multiplier=50.0)
    assert open_hand.leakage_bits == pytest.approx(open_hand.designs[0].law.entropy_bits, abs=1e-9)
    assert open_hand.distortion < 1e-20
    fist = CountRelease(people=6, prior=SKEWED, multiplier=1e-3)
    assert fist.leakage_bits < 1e-5
    law = fist.designs[0].law
    of_each_vector = law.vectors.distances_km() @ law.probabilities
    assert fist.distortion == pytest.approx(of_each_vector.min(), abs=1e-3)


def test_one_person_elsewhere_changes_little_in_the_worst_case() -> None:
    release = CountRelease(people=6, prior=SKEWED, multiplier=0.8)
    (made,) = release.designs
    assert release.epsilon == pytest.approx(2 * math.sqrt(2) * 0.8)
    matrix, distances = made.channel.matrix(), made.vectors.distances_km()
    neighbours = np.argwhere(np.isclose(distances, math.sqrt(2)))
    possible = matrix.max(axis=0) > 0
    ratio = np.abs(np.log(matrix[neighbours[:, 0]][:, possible])
                   - np.log(matrix[neighbours[:, 1]][:, possible]))  # fmt: skip
    assert ratio.max() <= release.epsilon
    assert ratio.max() > release.epsilon / 3
    assert gv.certify(made.channel).holds


# -- what is asked for -----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.01, 0.5, 2.0, 3.0])
def test_a_leakage_limit_is_kept_and_nearly_used(limit: float) -> None:
    release = CountRelease(people=9, prior=SKEWED, leakage_bits=limit)
    assert release.leakage_bits <= limit
    assert release.leakage_bits >= 0.995 * limit


@pytest.mark.parametrize("wanted", [0.01, 0.5, 1.2])
def test_a_wanted_distortion_is_kept_and_nearly_used(wanted: float) -> None:
    release = CountRelease(people=9, prior=SKEWED, distortion=wanted)
    assert 0.995 * wanted <= release.distortion <= wanted


def test_targets_beyond_the_ends_of_the_curve() -> None:
    everything = CountRelease(people=9, prior=SKEWED, leakage_bits=100.0)
    assert everything.distortion < 1e-12
    nothing = CountRelease(people=9, prior=SKEWED, distortion=100.0)
    assert nothing.leakage_bits < 1e-8
    with pytest.raises(InvalidInput, match="publish the counts"):
        CountRelease(people=9, prior=SKEWED, distortion=1e-60)


def test_timestamps_add_up_under_one_multiplier() -> None:
    even = [1 / 3] * 3
    layers = np.array([[SKEWED], [even], [SKEWED]])
    release = CountRelease(people=8, prior=layers, multiplier=1.2)
    parts = [CountRelease(people=8, prior=row, multiplier=1.2) for row in (SKEWED, even, SKEWED)]
    assert release.timestamps == 3
    assert release.leakage_bits == pytest.approx(sum(part.leakage_bits for part in parts))
    assert release.distortion == pytest.approx(sum(part.distortion for part in parts))
    assert release.epsilon == pytest.approx(3 * parts[0].epsilon)
    np.testing.assert_allclose(
        release.personal_leakage_bits, sum(part.personal_leakage_bits for part in parts)
    )
    assert release.designs[0] is release.designs[2]
    assert release.sample([[8, 0, 0], [3, 3, 2], [6, 1, 1]]).shape == (3, 3)
    twice = CountRelease(people=8, prior=SKEWED, timestamps=2, leakage_bits=1.0)
    assert 0.99 <= twice.leakage_bits <= 1.0
    personal = np.stack([FIVE, FIVE[::-1]])
    assert CountRelease(people=5, prior=personal, multiplier=1.0).timestamps == 2


# -- what comes out --------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(any),
    st.floats(0.01, 20.0),
    st.integers(0, 2**20),
)
def test_every_release_is_valid(counts: list[int], rate: float, seed: int) -> None:
    places, people = len(counts), sum(counts)
    release = CountRelease(people=people, prior=np.full(places, 1 / places), multiplier=rate)
    drawn = release.sample(counts, randomness=gv.seeded(seed))
    assert drawn.shape == (places,)
    assert drawn.sum() == people
    assert (drawn >= 0).all()
    assert drawn.dtype == np.int64


@pytest.mark.statistical
def test_draws_follow_the_row() -> None:
    release = CountRelease(people=4, prior=SKEWED, multiplier=1.0)
    (made,) = release.designs
    randomness = gv.seeded(3)
    draws = np.array([release.sample([1, 2, 1], randomness=randomness) for _ in range(3000)])
    number = int(made.vectors.index([1, 2, 1]))
    assert_follows(made.vectors.index(draws), made.channel.matrix()[number])


def test_the_operating_system_draws_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    release = CountRelease(people=4, prior=SKEWED, multiplier=1.0)
    seeded = [release.sample([2, 1, 1], randomness=gv.seeded(5)).tolist() for _ in range(3)]
    assert seeded[0] == seeded[1] == seeded[2]

    def fail(size: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr(os, "urandom", fail)
    with pytest.raises(RandomnessFailed, match="nothing was sampled"):
        release.sample([2, 1, 1])


def test_the_interface_page() -> None:
    release = CountRelease(people=20, prior=[0.8, 0.1, 0.1], multiplier=1.0)
    assert release.leakage_bits == pytest.approx(0.7975, abs=1e-4)
    assert release.distortion == pytest.approx(1.5346, abs=1e-4)
    assert release.personal_leakage_bits.shape == (20,)
    assert release.sample([16, 2, 2]).sum() == 20
    assert repr(release) == "CountRelease(people=20, places=3, multiplier=1)"


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([4, 0, 0], "sum to 5"),
        ([6, -1, 0], "negative"),
        ([2.5, 2.5, 0], "whole"),
        ([5, 0], "one per place"),
        ([[5, 0, 0], [0, 5, 0]], "a row for each timestamp"),
        (None, "whole|one per place"),
    ],
)
def test_counts_are_checked_before_anything_is_drawn(
    counts: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = CountRelease(people=5, prior=SKEWED, multiplier=1.0)
    monkeypatch.setattr(os, "urandom", lambda size: pytest.fail("drawn"))
    with pytest.raises(InvalidInput, match=said):
        release.sample(counts)


def test_a_wrong_timestamp_stops_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    release = CountRelease(people=5, prior=SKEWED, multiplier=1.0, timestamps=2)
    monkeypatch.setattr(os, "urandom", lambda size: pytest.fail("half released"))
    with pytest.raises(InvalidInput, match="vector 1 does not"):
        release.sample([[5, 0, 0], [5, 1, 0]])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "exactly one of multiplier, distortion, leakage_bits must be given, not 0"),
        ({"multiplier": 1.0, "distortion": 1.0}, "not 2"),
        ({"multiplier": 0.0}, "above 0"),
        ({"multiplier": -1.0}, "above 0"),
        ({"multiplier": math.nan}, "finite"),
        ({"multiplier": "1"}, "must be a number"),
        ({"leakage_bits": 0.0}, "above 0"),
        ({"distortion": -2}, "above 0"),
        ({"multiplier": 1.0, "timestamps": 0}, "timestamps"),
        ({"multiplier": 1.0, "people": 0}, "people"),
        ({"multiplier": 1.0, "people": 2.5}, "people"),
        ({"multiplier": 1.0, "prior": [0.5, 0.4, 0.0]}, "must sum to 1"),
        ({"multiplier": 1.0, "prior": [[0.5, 0.5]] * 3}, "one per person"),
        ({"multiplier": 1.0, "prior": [[[[1.0]]]]}, "timestamps, people or 1, places"),
        ({"multiplier": 1.0, "prior": np.empty((0, 1, 3))}, "timestamps, people or 1, places"),
        ({"multiplier": 1.0, "prior": [[[1.0]]] * 2, "timestamps": 3}, "timestamps, people or 1"),
        ({"multiplier": 1.0, "prior": [[0.5, 0.5], [1.0]]}, "of one length"),
    ],
)
def test_nonsense_is_refused_in_one_line(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        CountRelease(**({"people": 5, "prior": SKEWED} | asked))
    assert "\n" not in str(refused.value)


def test_what_is_beyond_reach_says_what_would_fit() -> None:
    prior = np.arange(100.0, 130.0)
    prior /= prior.sum()
    with pytest.raises(TooLarge) as refused:
        CountRelease(people=5, prior=prior, multiplier=1.0)
    text = str(refused.value)
    assert f"{math.comb(34, 29):.3g} for 5 people and 30 places" in text
    places = int(text.split("merge the places into ")[1].split(maxsplit=1)[0])
    groups = int(text.split("split the people into ")[1].split(maxsplit=1)[0])
    # The coarsenings that were named do fit, and the next finer ones do not.
    merged = merge_least_visited(Prior.parse(prior, 5), places)
    assert within_reach(Prior.parse(merged.prior(prior), 5))
    assert within_reach(Prior.parse(prior, -(-5 // groups)))
    finer = merge_least_visited(Prior.parse(prior, 5), places + 1)
    with pytest.raises(TooLarge, match="distances between them"):
        CountRelease(people=5, prior=finer.prior(prior), multiplier=9.0)


def test_many_places_and_few_people() -> None:
    """1,820 vectors in a box of 2·10⁸: no transform, yet certified and fair to all places."""
    release = CountRelease(people=4, prior=np.full(13, 1 / 13), multiplier=1.0)
    (design,) = release.designs
    assert design.vectors.size == math.comb(16, 12)
    assert release.certificate_nats < 1e-6
    assert release.chain.holds
    # any two vectors that are orders of each other are as likely to be released
    sums = {}
    for vector, share in zip(design.vectors.vectors.tolist(), design.output.tolist(), strict=True):
        sums.setdefault(tuple(sorted(vector)), []).append(share)
    assert len(sums) == 5
    for shares in sums.values():
        np.testing.assert_allclose(shares, np.mean(shares), rtol=1e-6, atol=1e-12)
    assert int(release.sample([4] + [0] * 12).sum()) == 4


TABLE_2 = [(1, 53), (2, 33), (3, 27), (4, 23), (5, 21), (10, 16), (20, 12), (35, 11)]


@pytest.mark.parametrize(("people", "places"), TABLE_2)
def test_the_pairs_of_table_2_fit_or_say_why_not(people: int, places: int) -> None:
    """AGG Table 2: up to four people fit; the others are refused with their vectors and distances, unless
    places are equal and people at most twenty."""
    prior = Prior.parse(np.full(places, 1 / places), people)
    vectors = math.comb(people + places - 1, places - 1)
    assert listed_within_reach(prior) is (vectors**2 <= box.ENTRY_LIMIT)
    assert within_reach(prior) is (people <= 20)
    unequal = np.linspace(1.0, 1.1, places) / np.linspace(1.0, 1.1, places).sum()
    if not listed_within_reach(prior):
        with pytest.raises(TooLarge, match=r"distances between them \(.*e\+.*transform"):
            CountRelease(people=people, prior=unequal, multiplier=1.0)


@pytest.mark.parametrize(("people", "places"), [(1000, 6), (10**5, 4), (30, 400)])
def test_sizes_beyond_reach_are_refused_at_once(people: int, places: int) -> None:
    with pytest.raises(TooLarge, match=f"{people} people and {places} places"):
        CountRelease(people=people, prior=np.full(places, 1 / places), multiplier=1.0)
