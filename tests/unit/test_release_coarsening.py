"""Coarsening: merged places and groups of people, and that neither leaks more than it says."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import InvalidInput, TooLarge
from geoveil.release import (
    CountRelease,
    CountVectors,
    GroupedRelease,
    MergedPlaces,
    Prior,
    even_groups,
    merge_least_visited,
)

ROWS = np.random.default_rng(6).dirichlet([1, 1, 1, 1], size=4)


def information_bits(joint: np.ndarray) -> float:
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    here = joint > 0
    return float((joint[here] * np.log2(joint[here] / apart[here])).sum())


def test_a_merged_release_tells_what_it_says_about_the_finer_counts() -> None:
    merged = MergedPlaces(((0, 3), (1,), (2,)))
    release = CountRelease(people=4, prior=merged.prior(ROWS), multiplier=1.0)
    matrix = release.designs[0].channel.matrix()
    fine, coarse = CountVectors(4, 4), CountVectors(4, 3)
    law = Prior.parse(ROWS, 4).law(fine)
    rows = coarse.index(merged.counts(fine.vectors))
    assert information_bits(law[:, None] * matrix[rows]) == pytest.approx(
        release.leakage_bits, abs=1e-10
    )
    # The merged prior of the people is the prior of the merged counts.
    summed = np.bincount(rows, weights=law, minlength=coarse.size)
    np.testing.assert_allclose(summed, release.designs[0].law.probabilities, rtol=1e-10)
    wanted = Prior.parse(merged.prior(ROWS), 4).rows
    np.testing.assert_allclose(Prior.parse(ROWS, 4).merged(merged.groups).rows, wanted)


@pytest.mark.parametrize("groups", [2, [[0, 3], [1, 2]], 4])
def test_a_grouped_release_tells_at_most_what_it_says(groups: int | list[list[int]]) -> None:
    rows = ROWS[:, :3] / ROWS[:, :3].sum(axis=1, keepdims=True)
    grouped = GroupedRelease(people=4, prior=rows, multiplier=1.0, groups=groups)
    vectors = CountVectors(4, 3)
    number = cache(lambda counts: int(vectors.index(counts)))
    joint = np.zeros((vectors.size, vectors.size))
    personal = np.zeros((4, 3, vectors.size))
    error = 0.0
    laws: dict[tuple[tuple[int, ...], ...], dict[tuple[int, ...], float]] = {}
    for where in itertools.product(range(3), repeat=4):
        parts = tuple(
            tuple(np.bincount([where[m] for m in group], minlength=3).tolist())
            for group in grouped.groups
        )
        chance = math.prod(rows[m, place] for m, place in enumerate(where))
        if parts not in laws:
            laws[parts] = sum_law(grouped, parts)
        counts = tuple(np.sum(parts, axis=0).tolist())
        for released, share in laws[parts].items():
            column = number(released)
            joint[number(counts), column] += chance * share
            error += chance * share * math.dist(counts, released)
            for m in range(4):
                personal[m, where[m], column] += chance * share
    assert information_bits(joint) <= grouped.leakage_bits + 1e-12
    assert error <= grouped.distortion + 1e-12
    told = [information_bits(personal[m]) for m in range(4)]
    assert (np.array(told) <= grouped.personal_leakage_bits + 1e-12).all()
    assert grouped.epsilon == pytest.approx(2 * math.sqrt(2))


def sum_law(
    grouped: GroupedRelease, parts: tuple[tuple[int, ...], ...]
) -> dict[tuple[int, ...], float]:
    """The law of the sum of the groups' releases, written out."""
    law = {(0, 0, 0): 1.0}
    for counts, release in zip(parts, grouped.releases, strict=True):
        (made,) = release.designs
        row = made.row(np.array(counts))
        found: dict[tuple[int, ...], float] = {}
        for so_far, chance in law.items():
            for number, share in enumerate(row):
                total = tuple(np.add(so_far, made.vectors.vectors[number]).tolist())
                found[total] = found.get(total, 0.0) + chance * share
        law = found
    return law


def test_groups_with_the_same_people_share_one_design() -> None:
    grouped = GroupedRelease(people=12, prior=[0.5, 0.3, 0.2], multiplier=1.0, groups=4)
    assert len({id(release) for release in grouped.releases}) == 1
    drawn = grouped.sample([[3, 0, 0], [1, 1, 1], [0, 3, 0], [2, 0, 1]], randomness=gv.seeded(2))
    assert drawn.sum() == 12
    assert (drawn >= 0).all()
    assert "groups=4" in repr(grouped)


def test_the_least_visited_places_are_merged_first() -> None:
    merged = merge_least_visited(Prior.parse([0.4, 0.05, 0.3, 0.15, 0.1], 9), 3)
    assert merged.groups == ((0,), (1, 3, 4), (2,))
    assert merged.counts([4, 1, 2, 1, 1]).tolist() == [4, 3, 2]


def test_even_groups() -> None:
    listed, counted = (
        GroupedRelease(people=4, prior=[0.5, 0.5], multiplier=1.0, groups=groups)
        for groups in (np.array([[0, 1], [2, 3]]), np.int64(2))
    )
    assert listed.leakage_bits == counted.leakage_bits
    assert [part.tolist() for part in even_groups(7, 3)] == [[0, 1, 2], [3, 4], [5, 6]]
    with pytest.raises(InvalidInput, match="at most 3"):
        even_groups(3, 4)


@pytest.mark.parametrize(
    "groups",
    [
        ((0,), (2, 3)), ((0, 1), (1, 2)), ((0, 1, 2, 3), ()), ((0, -1),), ((0.4, 1.2), (2, 3)),
        (("a",), (1,)), ((False, True), (2, 3)), ((0, 1), (2, float("nan"))), ((0, 1), 2),
        ([[0, 1], [2, 3]],), "0123", None, 5.0,
    ],
)  # fmt: skip
def test_groups_must_take_each_place_or_person_once(groups: Any) -> None:
    with pytest.raises(InvalidInput, match="groups"):
        MergedPlaces(groups)
    with pytest.raises(InvalidInput, match="groups"):
        GroupedRelease(people=4, prior=[0.5, 0.5], multiplier=1.0, groups=groups)


def test_places_are_merged_however_their_groups_are_written() -> None:
    assert MergedPlaces([np.array([0, 1]), [2]]) == MergedPlaces(((0, 1), (2,)))  # type: ignore[arg-type]


@pytest.mark.parametrize("counts", [[1.5, 1.5, 1], [1, -1, 2], [1, np.nan, 2], ["a", 1, 2], 3])
def test_only_whole_counts_are_merged(counts: Any) -> None:
    with pytest.raises(InvalidInput, match="counts"):
        MergedPlaces(((0, 1), (2,))).counts(counts)


def test_refusals() -> None:
    with pytest.raises(InvalidInput, match="one per place"):
        MergedPlaces(((0, 1), (2,))).counts([1, 2])
    for groups in ([[0, 1], [1, 2, 3]], [[0, 1]], [[0, 1], [], [2, 3]], [], 5, 0, 2.0):
        with pytest.raises(InvalidInput, match="groups"):
            GroupedRelease(people=4, prior=[0.5, 0.5], multiplier=1.0, groups=groups)
    grouped = GroupedRelease(people=4, prior=[0.5, 0.5], multiplier=1.0, groups=2)
    for counts, said in (
        ([4, 0], "a row for each"),
        ([[2, 0]], "a row for each"),
        ([[2, 0], [3, 0]], "sum to 2"),
    ):
        with pytest.raises(InvalidInput, match=said):
            grouped.sample(counts)
    with pytest.raises(TooLarge, match="at most 16,777,216 here; GeometricRelease takes more"):
        GroupedRelease(people=10**15, prior=[0.5, 0.5], multiplier=1.0, groups=2)
    for release in (grouped.releases[0], gv.GeometricRelease(epsilon=1.0)):
        with pytest.raises(InvalidInput, match="must sum to"):
            release.sample([1e308, 1e308])
