"""The one way to solve for a parameter: what it returns was evaluated, and is safe."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geoveil.errors import InvalidInput
from geoveil.root import NeverSafe, Trial, safe_root

LEAST, MOST = 1e-6, 1e6


def _solved(
    excess: Callable[[float], float],
    start: list[float],
    *,
    rising: bool = True,
    **options: float | None,
) -> tuple[Trial[float], list[float]]:
    """The answer for a function of x itself, and every x that was evaluated."""
    tried: list[float] = []

    def build(at: float) -> float:
        tried.append(at)
        return at

    within = (MOST, LEAST) if rising else (LEAST, MOST)
    settings = {"tolerance": 1e-6, **options}
    return safe_root(build, excess, start, within=within, **settings), tried


@given(
    root=st.floats(1e-5, 1e5),
    start=st.floats(LEAST, MOST),
    power=st.floats(0.2, 5.0),
    rising=st.booleans(),
)
def test_smooth_functions_are_met_to_the_tolerance_in_few_evaluations(root, start, power, rising):
    sign = power if rising else -power

    def excess(x: float) -> float:
        return sign * math.log(x / root)

    found, tried = _solved(excess, [start], rising=rising)
    assert -1e-6 <= found.excess <= 0
    assert found.excess == excess(found.at)
    assert found.at == found.result
    assert len(set(tried)) == len(tried) <= 30
    assert min(tried) >= LEAST
    assert max(tried) <= MOST


@given(
    root=st.floats(1e-3, 1e3),
    start=st.floats(0.4, 2.5),
    power=st.floats(0.8, 1.3),
    end=st.sampled_from([LEAST, 1e-3]),
)
def test_a_law_that_is_nearly_right_takes_four_evaluations(root, start, power, end):
    found, tried = _solved(
        lambda x: (x / root) ** power - 1, [root * start, end], tolerance=1e-3, power=1.0
    )
    assert -1e-3 <= found.excess <= 0
    assert found.at == tried[-1]
    assert len(tried) <= 4


LAWS = st.sampled_from([None, 1.0, 0.1])
"""What is believed of functions that follow no such law."""


@given(
    jump=st.floats(1e-5, 1e5),
    below=st.one_of(st.floats(-1e9, -1e-3), st.just(-math.inf)),
    above=st.one_of(st.floats(1e-9, 1e9), st.just(math.inf), st.just(math.nan)),
    start=st.floats(LEAST, MOST),
    law=LAWS,
)
@example(jump=1.0, below=-math.inf, above=math.nan, start=1.0, law=1.0)
def test_a_jump_is_found_to_the_step_whatever_its_heights(jump, below, above, start, law):
    found, tried = _solved(lambda x: below if x <= jump else above, [start], step=1e-9, power=law)
    assert found.at <= jump <= found.at * math.exp(2e-9)
    assert len(tried) <= 120


@given(
    edges=st.lists(st.floats(1e-5, 1e5), min_size=1, max_size=6, unique=True).map(sorted),
    start=st.floats(LEAST, MOST),
    target=st.integers(0, 5),
    law=LAWS,
)
def test_a_staircase_ends_on_its_last_safe_step(edges, start, target, law):
    """Plateaus: the function only ever takes whole values."""

    def excess(x: float) -> float:
        return float(sum(x > edge for edge in edges) - target)

    found, _ = _solved(excess, [start], step=1e-9, power=law)
    assert found.excess <= 0
    if target < len(edges):
        assert excess(found.at * math.exp(2e-9)) > 0 or found.excess == 0
    else:
        assert found.at == MOST or found.excess == 0


@given(
    depth=st.floats(0.01, 3.0),
    wave=st.floats(0.1, 20.0),
    root=st.floats(1e-3, 1e3),
    start=st.floats(1e-4, 1e4),
    law=LAWS,
)
def test_what_is_not_monotone_is_still_safe(depth, wave, root, start, law):
    def excess(x: float) -> float:
        return math.log(x / root) + depth * math.sin(wave * math.log(x))

    found, _ = _solved(excess, [start], power=law)
    assert found.excess == excess(found.at) <= 0


def test_a_root_at_an_end_of_the_range_is_the_end():
    for start in (LEAST, 1.0, MOST):
        low, _ = _solved(lambda x: math.log(x / LEAST), [start])
        high, _ = _solved(lambda x: math.log(x / MOST), [start])
        assert -1e-6 <= low.excess <= 0
        assert -1e-6 <= high.excess <= 0
        assert low.at == LEAST
        assert high.at == pytest.approx(MOST, rel=1e-6)


def test_a_range_that_is_safe_everywhere_answers_with_its_unsafe_end():
    found, tried = _solved(lambda x: -2.0, [1.0])
    assert (found.at, found.excess) == (MOST, -2.0)
    assert len(tried) <= 8


def test_a_range_that_is_never_safe_is_refused_after_one_look():
    with pytest.raises(NeverSafe, match="must hold a safe one") as failed:
        _solved(lambda x: 1 + x, [3.0, 2.0])
    assert isinstance(failed.value, InvalidInput)
    assert (failed.value.at, failed.value.excess) == (LEAST, 1 + LEAST)


def test_the_look_can_be_spared_and_is_not_believed_when_it_is_wrong():
    tried: list[float] = []

    def build(at: float) -> float:
        tried.append(at)
        return at

    with pytest.raises(NeverSafe) as refused:
        safe_root(build, lambda x: x, [3.0], within=(9.0, 1.0), tolerance=0.1, end_excess=lambda: 7)
    assert tried == [3.0]
    assert refused.value.excess == 7
    with pytest.raises(NeverSafe) as failed:
        safe_root(build, lambda x: x, [3.0], within=(9.0, 1.0), tolerance=0.1, end_excess=lambda: 0)
    assert failed.value.excess == 1.0


def test_places_to_begin_are_tried_until_one_is_safe():
    found, tried = _solved(lambda x: math.log(x / 3), [9.0, 5.0, 2.5, 1.0])
    assert tried[:3] == [9.0, 5.0, 2.5]
    assert 1.0 not in tried
    assert all(2.5 < at < 5.0 for at in tried[3:])
    assert -1e-6 <= found.excess <= 0


def test_neighbouring_numbers_are_told_apart():
    """A jump between two floats that are given is found without another evaluation."""
    edge = 1.5
    found, tried = _solved(
        lambda x: 1.0 if x > edge else -1.0, [2.0, math.nextafter(edge, 2), edge, 0.5]
    )
    assert found.at == edge
    assert len(tried) == 3


@given(root=st.floats(0.0, 1.0))
def test_a_linear_scale_may_hold_zero(root):
    found = safe_root(
        lambda x: x,
        lambda x: 1.0 if x > root else -1.0,
        [1.0, 0.0],
        within=(1.0, 0.0),
        tolerance=0.0,
        step=2.0**-8,
        linear=True,
    )
    assert found.at <= root <= found.at + 2.0**-8


def test_what_was_built_comes_back_and_is_built_once():
    made: list[float] = []

    def build(at: float) -> list[float]:
        made.append(at)
        return [at]

    found = safe_root(
        build, lambda one: math.log(one[0] / 7), [1.0], within=(MOST, LEAST), tolerance=1e-9
    )
    assert found.result == [found.at]
    assert len(set(made)) == len(made)
