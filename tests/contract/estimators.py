"""What every estimator must do, written once.

A test class inherits :class:`EstimatorContract` and supplies ``make``; one made for a certain kind of
mechanism also supplies ``make_channel``. Everything an estimator does not promise is switched off by name.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.channel.channel import Channel
from geoveil.errors import ImpossibleReport, InvalidInput


@st.composite
def matrices(draw: st.DrawFn, cells: int | None = None, sharp: bool = False) -> FloatArray:
    """Stochastic matrices without zeros; ``sharp`` ones are well conditioned."""
    rows = draw(st.integers(2, 6)) if cells is None else cells
    columns = rows if sharp else draw(st.integers(2, 7))
    seed = draw(st.integers(0, 2**32 - 1))
    matrix = np.random.default_rng(seed).dirichlet(np.ones(columns), size=rows) + 1e-3
    if sharp:
        matrix += 2 * np.eye(rows)
    return matrix / matrix.sum(axis=1, keepdims=True)


@st.composite
def counts_of(draw: st.DrawFn, reports: int, most: int = 60) -> Any:
    """Whole counts, zeros among them, not all zero."""
    counts = draw(st.lists(st.integers(0, most), min_size=reports, max_size=reports))
    if not any(counts):
        counts[draw(st.integers(0, reports - 1))] = 1
    return np.array(counts)


class EstimatorContract:
    """Tests of ``fit`` and of the estimate it returns, for any estimator."""

    cells = 6
    splits = True
    """Whether the tallies of one channel may be passed apart, with the same result as together."""
    relabels = True
    """Whether any channel will do, so that cells and reports can be renumbered."""
    exact_recovery = 1e-6
    """How near the truth it comes when the reports follow their law exactly."""

    def make(self) -> Any:
        raise NotImplementedError

    def make_channel(self, space: gv.Space) -> Channel:
        matrix = np.full((space.size, space.size), 0.3 / (space.size - 1))
        np.fill_diagonal(matrix, 0.7)
        skew = matrix * (1 + 0.3 * np.arange(space.size))
        return gv.DenseChannel(space, skew / skew.sum(axis=1, keepdims=True))

    def make_tally(self, *, people: int = 20_000, seed: int = 3) -> gv.Tally:
        """A tally of simulated people who are nowhere absent."""
        channel = self.make_channel(gv.Line(self.cells))
        cells = np.random.default_rng(seed).choice(self.cells, size=people, p=self.truth())
        return channel.tally(channel.sample(cells, randomness=gv.seeded(seed)))

    def truth(self) -> FloatArray:
        weights = np.arange(1.0, self.cells + 1)
        return weights / weights.sum()

    # -- the estimate ----------------------------------------------------------------------------

    def test_the_estimate_is_a_distribution_over_the_space(self) -> None:
        tally = self.make_tally()
        estimate = self.make().fit(tally)
        assert estimate.space == tally.channel.space
        assert estimate.distribution.shape == (self.cells,)
        assert (estimate.distribution >= 0).all()
        assert estimate.distribution.sum() == pytest.approx(1, abs=1e-12)

    def test_the_estimate_says_how_it_was_found(self) -> None:
        tally = self.make_tally()
        estimate = self.make().fit(tally)
        assert estimate.total == tally.total
        assert estimate.steps >= 0
        assert len(estimate.stopped.split()) >= 2
        assert estimate.certificate >= 0
        assert np.isfinite(estimate.log_likelihood)

    def test_the_estimate_cannot_be_changed(self) -> None:
        estimate = self.make().fit(self.make_tally())
        with pytest.raises(ValueError, match="read-only"):
            estimate.distribution[0] = 1.0

    def test_a_pickled_estimate_says_the_same(self) -> None:
        estimate = self.make().fit(self.make_tally())
        again = pickle.loads(pickle.dumps(estimate))
        assert again.space == estimate.space
        assert repr(again) == repr(estimate)
        for name in ("total", "steps", "stopped", "certificate", "log_likelihood"):
            assert getattr(again, name) == getattr(estimate, name), name
        assert bool(again.identifiable) == bool(estimate.identifiable)
        assert again.identifiable.reason == estimate.identifiable.reason
        assert again.errors.method == estimate.errors.method
        for name in ("distribution", "standard_error"):
            np.testing.assert_array_equal(getattr(again, name), getattr(estimate, name))
            assert not getattr(again, name).flags.writeable
        np.testing.assert_array_equal(again.interval(0.8), estimate.interval(0.8))
        assert again.region([0, 2]).interval() == estimate.region([0, 2]).interval()

    def test_the_same_tally_gives_the_same_estimate(self) -> None:
        tally = self.make_tally()
        before = tally.counts.copy()
        first, second = self.make().fit(tally), self.make().fit(tally)
        np.testing.assert_array_equal(first.distribution, second.distribution)
        np.testing.assert_array_equal(tally.counts, before)

    def test_people_are_found_where_they_are(self) -> None:
        # 20,000 people, sharp channels: the root mean square error is below 0.01 in every cell, so
        # 0.1 is ten standard errors away.
        estimate = self.make().fit(self.make_tally())
        np.testing.assert_allclose(estimate.distribution, self.truth(), atol=0.1)

    def test_reports_that_follow_their_law_exactly_give_the_truth(self) -> None:
        if not self.relabels:
            pytest.skip("this estimator takes the tallies of its own mechanism only")
        matrix = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
        channel = gv.DenseChannel(gv.Line(3), matrix)
        law = np.array([0.5, 0.25, 0.25]) @ matrix
        estimate = self.make().fit(gv.Tally(channel, (law * 16_000_000).round()))
        np.testing.assert_allclose(
            estimate.distribution, [0.5, 0.25, 0.25], atol=self.exact_recovery
        )

    # -- error bars ------------------------------------------------------------------------------

    def test_every_cell_has_an_error_bar(self) -> None:
        estimate = self.make().fit(self.make_tally())
        assert estimate.standard_error.shape == (self.cells,)
        assert (estimate.standard_error > 0).all()
        assert (estimate.standard_error < 0.1).all()
        low, high = estimate.interval(0.95)
        assert (low >= 0).all()
        assert (low <= estimate.distribution).all()
        assert (estimate.distribution <= high).all()
        assert (high <= 1).all()

    def test_a_higher_level_gives_a_wider_interval(self) -> None:
        estimate = self.make().fit(self.make_tally())
        low, high = estimate.interval(0.5)
        lower, higher = estimate.interval(0.99)
        assert (lower <= low).all()
        assert (high <= higher).all()
        assert (higher - lower > high - low).any()

    def test_error_bars_shrink_with_more_people(self) -> None:
        few = self.make().fit(self.make_tally(people=2_000))
        many = self.make().fit(self.make_tally(people=200_000))
        assert (many.standard_error < few.standard_error / 3).all()

    def test_a_region_is_the_sum_of_its_cells(self) -> None:
        estimate = self.make().fit(self.make_tally())
        region = estimate.region([0, 2, 2])
        assert region.share == pytest.approx(estimate.distribution[[0, 2]].sum())
        low, high = region.interval(0.95)
        assert low <= region.share <= high
        assert region.standard_error > 0

    def test_all_cells_together_are_certain(self) -> None:
        estimate = self.make().fit(self.make_tally())
        everything = estimate.region(np.arange(self.cells))
        assert everything.share == pytest.approx(1)
        assert everything.standard_error == pytest.approx(0, abs=1e-6)

    def test_a_region_must_lie_in_the_space(self) -> None:
        estimate = self.make().fit(self.make_tally())
        with pytest.raises(InvalidInput, match="cells"):
            estimate.region([self.cells])
        with pytest.raises(InvalidInput, match="empty"):
            estimate.region([])

    @pytest.mark.parametrize("level", [0.0, 1.0, -1.0, float("nan")])
    def test_a_level_lies_between_zero_and_one(self, level: float) -> None:
        with pytest.raises(InvalidInput, match="level"):
            self.make().fit(self.make_tally()).interval(level)

    # -- laws ------------------------------------------------------------------------------------

    def test_merging_tallies_commutes_with_estimation(self) -> None:
        if not self.splits:
            pytest.skip("this estimator treats every tally as a mechanism of its own")
        first, second = self.make_tally(seed=5), self.make_tally(seed=6)
        together, apart = self.make().fit(first + second), self.make().fit([first, second])
        np.testing.assert_allclose(apart.distribution, together.distribution, atol=1e-9)
        assert apart.total == together.total

    def test_renumbering_cells_renumbers_the_estimate(self) -> None:
        if not self.relabels:
            pytest.skip("this estimator is made for one kind of mechanism")
        tally = self.make_tally()
        order = np.random.default_rng(1).permutation(self.cells)
        moved = gv.DenseChannel(tally.channel.space, tally.channel.matrix()[order])
        plain, renumbered = self.make().fit(tally), self.make().fit(gv.Tally(moved, tally.counts))
        np.testing.assert_allclose(
            renumbered.distribution, plain.distribution[order], rtol=1e-8, atol=1e-10
        )

    def test_renumbering_reports_changes_nothing(self) -> None:
        if not self.relabels:
            pytest.skip("this estimator is made for one kind of mechanism")
        tally = self.make_tally()
        order = np.random.default_rng(2).permutation(tally.counts.size)
        moved = gv.DenseChannel(tally.channel.space, tally.channel.matrix()[:, order])
        plain = self.make().fit(tally)
        renumbered = self.make().fit(gv.Tally(moved, tally.counts[order]))
        np.testing.assert_allclose(renumbered.distribution, plain.distribution, atol=2e-2)

    # -- bad input -------------------------------------------------------------------------------

    def test_no_tally_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="empty"):
            self.make().fit([])

    @pytest.mark.parametrize("wrong", [3, "tally", [[1, 2, 3]], None])
    def test_what_is_not_a_tally_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidInput, match="tally"):
            self.make().fit(wrong)

    def test_a_tally_without_reports_is_refused(self) -> None:
        tally = self.make_tally(people=0)
        with pytest.raises(InvalidInput, match="zero"):
            self.make().fit(tally)

    def test_tallies_of_different_spaces_are_refused(self) -> None:
        other = self.make_channel(gv.Line(self.cells + 1))
        cells = np.zeros(50, dtype=np.int64)
        stray = other.tally(other.sample(cells, randomness=gv.seeded(1)))
        with pytest.raises(InvalidInput, match="tally 1 must be about the same space"):
            self.make().fit([self.make_tally(), stray])

    def test_impossible_reports_are_refused_by_name(self) -> None:
        if not self.relabels:
            pytest.skip("the mechanism of this estimator has no impossible report")
        channel = gv.DenseChannel(gv.Line(2), [[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])
        with pytest.raises(ImpossibleReport, match=r"tally 0 .* report 2"):
            self.make().fit(gv.Tally(channel, [5, 5, 1]))
