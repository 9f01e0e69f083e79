"""At most so many reports a person: chosen fairly, charged rightly, and within memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from geoveil.errors import InvalidInput
from geoveil.randomness import seeded
from geoveil.table.columns import is_said
from geoveil.table.persons import LimitBy, PersonLimit, Reporting, Rows, Spend


def batches(reporting: Reporting, persons: list[str], size: int) -> Iterator[Rows]:
    """One row for each of the persons, whose place is its number."""
    for start in range(0, len(persons), size):
        numbers = np.arange(start, min(start + size, len(persons)))
        yield Rows(numbers, numbers, reporting.number([persons[k] for k in numbers]))


def reported(limit: PersonLimit, persons: list[str], size: int, seed: int = 1) -> list[int]:
    reporting = Reporting(limit, draw=lambda places: places, randomness=seeded(seed))
    parts = reporting.reports(batches(reporting, persons, size))
    return [number for part in parts for number in part.places.tolist()]


@pytest.mark.parametrize("by", ["sample", "cap"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_batches_do_not_change_how_many(by: LimitBy, size: int) -> None:
    persons = list("abcab" * 40 + "d")
    chosen = reported(PersonLimit("who", 3, by), persons, size)
    assert chosen == sorted(chosen)
    assert sorted(persons[k] for k in chosen) == list("aaabbbcccd")
    if by == "cap":
        assert chosen == [0, 1, 2, 3, 4, 5, 6, 7, 12, 200]


def test_blanks_around_a_name_make_no_other_person() -> None:
    assert reported(PersonLimit("who", 1, "cap"), ["ann", "ann ", "bob", " ann"], 2) == [0, 2]
    assert not is_said("  ")


def test_every_row_of_a_person_is_as_likely() -> None:
    """Two of five rows, over batches of two: each row in 2/5 of the draws, each pair in 1/10."""
    draws = 800
    counts, pairs = np.zeros(5), np.zeros((5, 5))
    for seed in range(draws):
        first, second = reported(PersonLimit("who", 2), list("aaaaa"), 2, seed)
        counts[[first, second]] += 1
        pairs[first, second] += 1
    assert (np.abs(counts / draws - 0.4) < 6 * np.sqrt(0.24 / draws)).all()
    assert (np.abs(pairs[np.triu_indices(5, 1)] / draws - 0.1) < 6 * np.sqrt(0.09 / draws)).all()
    assert not np.abs(counts[0] / draws - 0.6) < 6 * np.sqrt(0.24 / draws)  # the first rows win


def test_memory_is_for_persons_and_not_for_rows() -> None:
    reporting = Reporting(PersonLimit("who", 1), draw=lambda places: places, randomness=seeded(1))
    held = []

    def watched() -> Iterator[Rows]:
        for rows in batches(reporting, ["a", "b"] * 5000, 100):
            frames = [frame for frame in [sampling.gi_frame] if frame is not None]
            held.append(sum(part.numbers.size for part, _ in frames[0].f_locals["candidates"]))
            yield rows

    sampling = reporting._sampled(watched(), 1)
    assert [part.numbers.size for part in sampling] == [2]
    assert max(held) <= 4


def test_a_place_comes_back_with_its_report_and_is_charged_once() -> None:
    drawn: list[int] = []

    def draw(places: np.ndarray) -> np.ndarray:
        drawn.extend(places.tolist())
        return places + 100 * len(drawn)

    reporting = Reporting(PersonLimit("who", 2, "memoise"), draw=draw)
    a, b = reporting.number(["a", "b"])
    parts = [([5, 6, 5], [a, a, b]), ([5, 7, 6, 5], [a, a, a, b])]
    rows = (Rows(np.array(p), np.arange(len(p)), np.array(w)) for p, w in parts)
    first, second = reporting.reports(rows)
    assert len(drawn) == 3
    assert second.numbers.tolist() == [0, 2, 3]  # a third place of a is not reported
    assert second.places.tolist() == first.places.tolist()
    assert reporting.spend == Spend(persons=2, largest=2, typical=2)


def test_limits_that_cannot_be() -> None:
    with pytest.raises(InvalidInput, match=r"limit_by .* must be one of sample, cap, memoise"):
        PersonLimit("who", 1, "first")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="per_person"):
        PersonLimit("who", 0)


def test_a_batch_of_places_beyond_the_limit_gives_no_reports_of_the_same_kind() -> None:
    reporting = Reporting(PersonLimit("user", 1, "memoise"), draw=lambda places: places + 100)
    batches = [
        Rows(np.array([place]), np.array([place]), reporting.number(["a"])) for place in (0, 1)
    ]
    first, second = reporting.reports(batches)
    assert first.places.tolist() == [100]
    assert np.bincount(second.places).size == 0  # whole numbers, as the others
