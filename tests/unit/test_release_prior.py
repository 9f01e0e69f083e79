"""Laws of counts against every assignment of people to places, written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from geoveil.errors import InvalidInput
from geoveil.release import CountLaw, CountVectors, Prior
from geoveil.release.prior import TAIL, without_tail

PEOPLE = np.random.default_rng(3).dirichlet([1, 2, 1], size=5)
PEOPLE[3] = PEOPLE[0]
CERTAIN = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])


def enumerated(rows: np.ndarray, person: int | None = None) -> np.ndarray:
    """P(counts), or the joint law of one person's place (rows) and the counts."""
    people, places = rows.shape
    vectors = CountVectors(people, places)
    law = np.zeros((places, vectors.size))
    for where in itertools.product(range(places), repeat=people):
        counts = np.bincount(where, minlength=places)
        chance = math.prod(rows[m, place] for m, place in enumerate(where))
        law[where[0 if person is None else person], vectors.index(counts)] += chance
    return law.sum(axis=0) if person is None else law


@pytest.mark.parametrize("prior", [[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
def test_a_common_prior_is_multinomial(prior: list[float]) -> None:
    vectors = CountVectors(8, 3)
    law = Prior.parse(prior, 8).law(vectors)
    np.testing.assert_allclose(law, multinomial.pmf(vectors.vectors, 8, prior), rtol=1e-10)
    np.testing.assert_allclose(law.sum(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("rows", [PEOPLE, CERTAIN], ids=["five people", "with certainties"])
def test_personal_priors_are_poisson_multinomial(rows: np.ndarray) -> None:
    law = Prior.parse(rows, len(rows)).law(CountVectors(len(rows), 3))
    np.testing.assert_allclose(law, enumerated(rows), rtol=1e-12, atol=1e-300)


def test_small_probabilities_keep_their_digits() -> None:
    rows = np.tile([1 - 2e-9, 1e-9, 1e-9], (6, 1))
    rows[0] = [0.5, 0.25, 0.25]  # so that there are two kinds of people
    law = Prior.parse(rows, 6).law(CountVectors(6, 3))
    assert law.min() < 1e-45
    np.testing.assert_allclose(law, enumerated(rows), rtol=1e-12)


@pytest.mark.parametrize("bounds", [(), ((0, 0, 1), (3, 4, 4))])
def test_a_window_has_the_same_values(bounds: tuple[tuple[int, ...], ...]) -> None:
    window = CountVectors(5, 3, *bounds)
    whole = enumerated(PEOPLE)[CountVectors(5, 3).index(window.vectors)]
    np.testing.assert_allclose(Prior.parse(PEOPLE, 5).law(window), whole, rtol=1e-12)


@pytest.mark.parametrize(
    "rows", [PEOPLE, CERTAIN, np.tile([0.6, 0.4, 0.0], (4, 1)), np.tile([0.2, 0.3, 0.5], (3, 1))]
)
def test_laws_given_where_one_person_is(rows: np.ndarray) -> None:
    prior = Prior.parse(rows, len(rows))
    found = dict(prior.laws_given_place(CountVectors(len(rows), 3)))
    for person, kind in enumerate(prior.kind):
        joint = rows[person][:, None] * found[int(kind)]
        np.testing.assert_allclose(joint, enumerated(rows, person), rtol=1e-11, atol=1e-300)


def test_people_with_the_same_row_are_one_kind() -> None:
    prior = Prior.parse(PEOPLE, 5)
    assert prior.kind.tolist() == [0, 1, 2, 0, 3]
    assert prior.head_counts.tolist() == [2, 1, 1, 1]
    np.testing.assert_array_equal(prior.rows[prior.kind], PEOPLE / PEOPLE.sum(axis=1)[:, None])
    np.testing.assert_allclose(prior.mean, PEOPLE.mean(axis=0))
    assert Prior.parse([[0.3, 0.7]], 9).is_common
    assert Prior.parse([0.3, 0.7], 9).people == 9


@pytest.mark.parametrize(("people", "share"), [(50, 0.5), (1000, 0.1), (1000, 1 / 3), (40, 0.001)])
def test_bounds_leave_out_no_more_than_the_tail(people: int, share: float) -> None:
    tail = 1e-6
    lower, upper = Prior.parse([share, 1 - share], people).bounds(tail)
    outside = binom.cdf(lower[0] - 1, people, share) + binom.sf(upper[0], people, share)
    assert outside <= tail / 2
    assert upper[0] - lower[0] <= 2 + 14 * math.sqrt(people * share * (1 - share)) + 8
    assert lower[0] <= people * share <= upper[0]


def test_small_laws_are_whole_and_large_ones_leave_out_what_they_say() -> None:
    small = CountLaw.of(Prior.parse([0.2, 0.3, 0.5], 40))
    assert small.is_whole
    assert small.left_out == 0
    large = CountLaw.of(Prior.parse([0.2, 0.3, 0.5], 400))
    assert not large.is_whole
    assert large.left_out == TAIL
    exact = multinomial.pmf(large.vectors.vectors, 400, [0.2, 0.3, 0.5])
    kept = large.probabilities > 0
    assert 1 - exact[kept].sum() <= TAIL
    np.testing.assert_allclose(large.probabilities[kept], exact[kept], rtol=1e-8)


def test_the_tail_is_made_of_the_least_likely() -> None:
    law = np.array([0.5, 1e-5, 0.3, 2e-5, 0.2 - 3e-5])
    assert without_tail(law, 1.5e-5).tolist() == [0.5, 0.0, 0.3, 2e-5, 0.2 - 3e-5]
    assert without_tail(law, 1e-6).tolist() == law.tolist()


def test_counts_of_people_who_are_alike_are_as_unknown_as_a_multinomial() -> None:
    law = CountLaw.of(Prior.parse([0.2, 0.3, 0.5], 9))
    assert law.entropy_bits == pytest.approx(
        multinomial(9, [0.2, 0.3, 0.5]).entropy() / math.log(2)
    )


@pytest.mark.parametrize(
    ("prior", "people", "said"),
    [
        ([0.5, 0.4], 3, r"row 0 \(sum 0.9\) must sum to 1"),
        ([[0.5, 0.5], [0.5, 0.6]], 2, r"row 1 \(sum 1.1\)"),
        ([[0.5, 0.5]] * 3, 4, "one per person"),
        ([1.5, -0.5], 3, "not negative"),
        ([np.nan, 1.0], 3, "finite"),
        ("ab", 3, "numbers"),
        ([[0.5, 0.5], [1.0]], 2, "of one length"),
        ([], 2, "one distribution"),
        (1.0, 2, "one distribution"),
        ([0.5, 0.5], 0, "people"),
        ([0.5, 0.5], 2.5, "people"),
    ],
)
def test_priors_that_are_none_are_refused(prior: object, people: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Prior.parse(prior, people)  # type: ignore[arg-type]


def test_surprise_is_the_probability_of_counts_no_likelier() -> None:
    law = CountLaw.of(Prior.parse([0.5, 0.5], 4))
    surprises = [law.surprise(np.array([k, 4 - k])) for k in range(5)]
    assert surprises == pytest.approx([2 / 16, 10 / 16, 1.0, 10 / 16, 2 / 16])
    assert CountLaw.of(Prior.parse([1.0, 0.0], 4)).surprise(np.array([3, 1])) == 0.0
    wide = CountLaw.of(Prior.parse([0.5, 0.5], 5000))
    assert wide.surprise(np.array([2500, 2500])) == pytest.approx(1.0)
    assert wide.surprise(np.array([5000, 0])) == 0.0
