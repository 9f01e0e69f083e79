"""The lattice of count vectors and products on it, against lists and sums written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.channel import kernel as kernel_module
from geoveil.channel.kernel import DenseKernel, LatticeKernel, PartialKernel, kernel_on
from geoveil.errors import InvalidFile, InvalidInput, OutsideSpace, TooLarge
from geoveil.release import CountVectors, number_of_vectors
from geoveil.release import counts as box
from geoveil.release.counts import box_sides, checked_counts, transform_points
from geoveil.space import space_from_dict


def listed(
    people: int, places: int, lower: tuple[int, ...] = (), upper: tuple[int, ...] = ()
) -> list[tuple[int, ...]]:
    ranges = [
        range(lower[i] if lower else 0, (upper[i] if upper else people) + 1) for i in range(places)
    ]
    return [counts for counts in itertools.product(*ranges) if sum(counts) == people]


@pytest.mark.parametrize(("people", "places"), [(1, 1), (7, 1), (5, 2), (6, 3), (4, 5), (1, 12)])
def test_all_vectors_in_lexicographic_order(people: int, places: int) -> None:
    vectors = CountVectors(people, places)
    assert [tuple(vector) for vector in vectors.vectors.tolist()] == listed(people, places)
    assert vectors.size == number_of_vectors(people, places) == len(listed(people, places))
    assert vectors.index(vectors.vectors).tolist() == list(range(vectors.size))


@given(st.data())
def test_a_window_is_what_its_bounds_leave(data: st.DataObject) -> None:
    people, places = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
    bound = st.integers(0, people)
    pairs = [sorted((data.draw(bound), data.draw(bound))) for _ in range(places)]
    lower, upper = tuple(low for low, _ in pairs), tuple(high for _, high in pairs)
    wanted = listed(people, places, lower, upper)
    if not wanted:
        with pytest.raises(InvalidInput, match="leave a vector"):
            CountVectors(people, places, lower, upper)
        return
    window = CountVectors(people, places, lower, upper)
    assert [tuple(vector) for vector in window.vectors.tolist()] == wanted
    assert window.index(wanted).tolist() == list(range(len(wanted)))
    inside = [all(lo <= c <= hi for lo, c, hi in zip(lower, v, upper, strict=True))
              for v in listed(people, places)]  # fmt: skip
    assert window.holds(listed(people, places)).tolist() == inside


def test_sizes_of_the_scale_are_counted_without_listing() -> None:
    assert number_of_vectors(60, 4) == 39_711
    assert number_of_vectors(20, 5) == 10_626
    assert CountVectors(1000, 3).size == 501_501
    # The sums behind the order pass 2⁶³ here, the window itself is small.
    far = CountVectors(10**6, 5, (333_333, 333_330, 333_330, 0, 0), (333_340,) * 3 + (3, 3))
    assert far.index(far.vectors).tolist() == list(range(far.size))


def test_distances_are_euclidean_in_all_places() -> None:
    vectors = CountVectors(5, 4)
    wanted = np.array([[math.dist(a, b) for b in listed(5, 4)] for a in listed(5, 4)])
    np.testing.assert_allclose(vectors.distances_km(), wanted, rtol=1e-15)
    np.testing.assert_allclose(vectors.distance_km(3, range(vectors.size)), wanted[3], rtol=1e-15)
    np.testing.assert_allclose(vectors.distances_from_km(9), wanted[9], rtol=1e-15)
    assert vectors.least_distance_km == pytest.approx(math.sqrt(2))
    assert vectors.unit == "people"


@pytest.mark.parametrize(
    ("people", "places", "bounds"),
    [(9, 2, ()), (7, 3, ()), (6, 4, ()), (4, 5, ()), (9, 3, ((2, 0, 1), (6, 5, 4)))],
)
def test_products_by_fft_are_the_sums_written_out(
    people: int, places: int, bounds: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "_DENSE_ADVANTAGE", 0)
    monkeypatch.setattr(box, "WHOLE_LIMIT", 0)
    monkeypatch.setattr(kernel_module, "_DENSE_SIZE", 0)
    vectors = CountVectors(people, places, *bounds)
    kernel = kernel_on(vectors, lambda distance: np.exp(-0.8 * distance))
    assert isinstance(kernel, PartialKernel)
    matrix = np.exp(-0.8 * vectors.distances_km())
    values = np.random.default_rng(0).normal(size=(2, vectors.size))
    np.testing.assert_allclose(kernel._push(values), values @ matrix, rtol=0, atol=1e-12)
    assert (np.abs(kernel._push(values) - values @ matrix) <= kernel.noise(values)).all()
    np.testing.assert_allclose(kernel.rows(np.arange(vectors.size)), matrix, rtol=1e-14)
    np.testing.assert_allclose(kernel.apply_exactly(np.abs(values[0])), np.abs(values[0]) @ matrix)


@pytest.mark.parametrize(
    ("people", "places", "bounds"), [(9, 2, ()), (3, 12, ()), (9, 3, ((2, 0, 1), (6, 5, 4)))]
)
def test_products_entry_by_entry_are_the_sums_written_out(
    people: int, places: int, bounds: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "_MATRIX_ENTRIES", 0)
    monkeypatch.setattr(box, "_CHUNK", 1000)
    vectors = CountVectors(people, places, *bounds)
    kernel = kernel_on(vectors, lambda distance: np.exp(-0.8 * distance))
    assert isinstance(kernel, box.CountKernel)
    matrix = np.exp(-0.8 * vectors.distances_km())
    values = np.random.default_rng(0).normal(size=(2, vectors.size))
    np.testing.assert_allclose(kernel._push(values), values @ matrix, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel._push(values[0]), values[0] @ matrix, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel.rows(np.arange(vectors.size)), matrix, rtol=1e-14)


@pytest.mark.parametrize("dense_size", [0, 512], ids=["by FFT", "as a matrix"])
@pytest.mark.parametrize("shape", [(4,), (1, 5), (3, 4), (2, 3, 4), (3, 1, 2, 4)])
def test_kernels_in_any_number_of_dimensions(
    shape: tuple[int, ...], dense_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_module, "_DENSE_SIZE", dense_size)
    generator = np.random.default_rng(1)
    table = generator.random(tuple(2 * n - 1 for n in shape))
    table += table[(slice(None, None, -1),) * len(shape)]  # k(−o) = k(o), and no more than that
    kernel = LatticeKernel(table, signed=True)
    cells = list(np.ndindex(*shape))
    matrix = np.array([
        [table[tuple(a - b + n - 1 for a, b, n in zip(x, z, shape, strict=True))] for z in cells]
        for x in cells
    ])  # fmt: skip
    values = generator.normal(size=(2, len(cells)))
    np.testing.assert_allclose(kernel._push(values), values @ matrix, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel.rows(np.arange(len(cells))), matrix, rtol=1e-15)
    even = LatticeKernel(table[tuple(slice(n - 1, None) for n in shape)])
    around = np.array([
        [even.table[tuple(abs(a - b) for a, b in zip(x, z, strict=True))] for z in cells]
        for x in cells
    ])  # fmt: skip
    np.testing.assert_allclose(even._push(values), values @ around, rtol=0, atol=1e-12)
    assert even.norm >= np.sqrt(np.square(around).sum(axis=1).max()) * (1 - 1e-12)


def test_few_vectors_become_a_matrix_and_many_a_lattice() -> None:
    def plain(distance: np.ndarray) -> np.ndarray:
        return np.exp(-distance)

    assert isinstance(kernel_on(CountVectors(3, 20), plain), DenseKernel)
    assert isinstance(kernel_on(CountVectors(5, 12), plain), DenseKernel)
    assert isinstance(kernel_on(CountVectors(200, 3), plain), PartialKernel)
    assert box_sides((0,) * 3, (200,) * 3) == (201, 201)
    with pytest.raises(TooLarge, match="merge places or split"):
        kernel_on(CountVectors(5, 20), plain)
    assert transform_points((0,) * 20, (5,) * 20) > 10**15


def test_documents() -> None:
    window = CountVectors(9, 3, (0, 1, 2), (4, 9, 9))
    again = space_from_dict(window.to_dict())
    assert again == window
    assert again != CountVectors(9, 3)
    with pytest.raises(InvalidFile):
        CountVectors.from_dict({"kind": "count-vectors", "people": 9})


@pytest.mark.parametrize(
    ("people", "places"), [(0, 3), (-1, 3), (2.0, 3), (True, 3), (4, 0), (4, "3")]
)
def test_sizes_must_be_whole_and_positive(people: object, places: object) -> None:
    with pytest.raises(InvalidInput, match=r"people|places"):
        CountVectors(people, places)  # type: ignore[arg-type]


def test_too_many_vectors_are_refused_with_their_number() -> None:
    with pytest.raises(TooLarge, match=r"8\.46e\+12.*1000 people over 6 places"):
        CountVectors(1000, 6)
    with pytest.raises(InvalidInput, match="one per place"):
        CountVectors(5, 3, (0, 0))


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([1, 2, 3], "must sum to 5"),
        ([[1, 2, 2], [5, 1, 0]], "vector 1 does not"),
        ([-1, 3, 3], "not be negative"),
        ([1.5, 1.5, 2], "whole numbers"),
        ([np.nan, 3, 2], "whole numbers"),
        ([np.inf, 0, 0], "whole numbers"),
        ([5, 0], "one per place"),
        (5, "one per place"),
        ("abc", "whole numbers"),
        ([[5, 0, 0], [5, 0]], "whole numbers"),
    ],
)
def test_counts_that_are_none_are_refused_without_being_named(counts: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        checked_counts(counts, 5, 3)  # type: ignore[arg-type]


def test_counts_outside_a_window_are_refused() -> None:
    window = CountVectors(9, 3, (0, 1, 2), (4, 9, 9))
    with pytest.raises(OutsideSpace):
        window.index([9, 0, 0])
