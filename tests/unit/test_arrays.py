"""Small products run on one thread of BLAS, and what a user had is put back."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (its BLAS is there before threads are set)
from threadpoolctl import threadpool_info, threadpool_limits

import geoveil as gv
from geoveil.arrays import one_blas_thread
from geoveil.verify.guard import GuardedUpdate


def threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_entries_nest() -> None:
    with threadpool_limits(limits=2, user_api="blas"):
        with one_blas_thread(), one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_whoever_is_last_to_leave_puts_back_what_there_was() -> None:
    """Threads that estimate side by side enter and leave in any order."""
    with threadpool_limits(limits=2, user_api="blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {2}


class _Watching(gv.DenseChannel):
    """A matrix that remembers with how many threads it was multiplied."""

    seen: set[int]

    def _push(self, theta: np.ndarray) -> np.ndarray:
        self.seen |= threads()
        return super()._push(theta)


@pytest.mark.parametrize(
    "work",
    [
        lambda channel: gv.IterativeBayesianUpdate().fit(channel.tally([0, 1, 2, 2])).interval(),
        lambda channel: gv.manipulation_gain(channel, [0.2, 0.3, 0.5], reports=1000),
        lambda channel: gv.audit(channel, draws=1000),
        lambda channel: GuardedUpdate().inspect([channel.tally([0, 1, 2, 2])]),
        lambda channel: gv.mutual_information_bits(channel, [0.2, 0.3, 0.5]),
        lambda channel: gv.adversary_error_km(channel, [0.2, 0.3, 0.5]),
    ],
)
def test_a_library_user_gets_one_thread(work) -> None:
    line = gv.Line(3)
    channel = _Watching(line, gv.RandomizedResponse(line, epsilon=1.0).matrix())
    channel.seen = set()
    with threadpool_limits(limits=2, user_api="blas"):
        work(channel)
        assert threads() == {2}
    assert channel.seen <= {1}
