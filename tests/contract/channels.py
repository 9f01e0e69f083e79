"""What every channel must do, written once: a test class supplies cases with an independent matrix."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from contract.formulas import losses
from contract.statistics import assert_follows
from geoveil.document.canonical import canonical_bytes
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict
from geoveil.errors import InvalidInput, OutsideSpace, RandomnessFailed, Unsupported

DRAWS = 20_000


@dataclass
class Case:
    """A channel, and its matrix by a formula that shares nothing with the library."""

    make: Callable[[], gv.Channel]
    formula: Callable[[], np.ndarray]
    distances: Callable[[], np.ndarray]
    """Distances between the cells, computed apart as well."""
    relative: float = 1e-9
    absolute: float = 1e-300

    @cached_property
    def channel(self) -> gv.Channel:
        return self.make()

    @cached_property
    def matrix(self) -> np.ndarray:
        made = np.array(self.formula(), dtype=np.float64)
        made.setflags(write=False)
        return made


class ChannelContract:
    """Inherit, define ``cases()``, and every test below runs on each of them."""

    documented = True
    """Whether the channel has a document form."""

    @staticmethod
    def cases() -> dict[str, Case]:
        raise NotImplementedError

    @pytest.fixture
    def channel(self, case: Case) -> gv.Channel:
        return case.channel

    @pytest.fixture
    def formula(self, case: Case) -> np.ndarray:
        return case.matrix

    # -- products = matrix ---------------------------------------------------------------------

    def close(self, given: Any, wanted: Any, case: Case, *, scale: float = 1.0) -> None:
        np.testing.assert_allclose(given, wanted, rtol=case.relative, atol=scale * case.absolute)

    def test_matrix_is_that_of_the_formula(
        self, channel: gv.Channel, formula: np.ndarray, case: Case
    ) -> None:
        assert channel.matrix().shape == (channel.space.size, channel.report_count) == formula.shape
        self.close(channel.matrix(), formula, case)

    def test_rows_sum_to_one(self, channel: gv.Channel) -> None:
        np.testing.assert_allclose(channel.matrix().sum(axis=1), 1.0, rtol=0, atol=1e-12)
        assert (channel.matrix() >= 0).all()

    def test_rows_and_columns_are_those_of_the_matrix(self, channel: gv.Channel) -> None:
        matrix = channel.matrix()
        for cell in range(channel.space.size):
            np.testing.assert_allclose(channel.row(cell), matrix[cell], rtol=1e-12, atol=1e-300)
        for report in range(0, channel.report_count, max(1, channel.report_count // 20)):
            np.testing.assert_allclose(
                channel.likelihood(report), matrix[:, report], rtol=1e-9, atol=1e-300
            )

    def test_products_are_those_of_the_formula(
        self, channel: gv.Channel, formula: np.ndarray, case: Case
    ) -> None:
        generator = np.random.default_rng(1)
        theta = generator.dirichlet(np.ones(channel.space.size))
        values = generator.random(channel.report_count)
        self.close(channel.push(theta), theta @ formula, case)
        self.close(channel.pull(values), formula @ values, case, scale=channel.report_count)
        corner = np.eye(channel.space.size)[0]
        self.close(channel.push(corner), formula[0], case)

    def test_products_keep_leading_axes(self, channel: gv.Channel, formula: np.ndarray) -> None:
        generator = np.random.default_rng(2)
        theta = generator.normal(size=(2, 3, channel.space.size))
        values = generator.normal(size=(2, 3, channel.report_count))
        np.testing.assert_allclose(channel.push(theta), theta @ formula, rtol=0, atol=1e-9)
        np.testing.assert_allclose(channel.pull(values), values @ formula.T, rtol=0, atol=1e-9)

    def test_pull_is_the_adjoint_of_push(self, channel: gv.Channel) -> None:
        generator = np.random.default_rng(3)
        theta, values = (
            generator.normal(size=channel.space.size),
            generator.normal(size=channel.report_count),
        )
        there, back = channel.push(theta) @ values, theta @ channel.pull(values)
        assert there == pytest.approx(back, rel=1e-9, abs=1e-9)

    def test_means_and_entropies_of_rows(
        self, channel: gv.Channel, formula: np.ndarray, case: Case
    ) -> None:
        logs = np.log(formula, where=formula > 0, out=np.zeros_like(formula))
        np.testing.assert_allclose(
            channel.row_entropies_nats(), -(formula * logs).sum(axis=1), atol=1e-8
        )
        if channel.report_count == channel.space.size:
            distances = np.asarray(case.distances(), dtype=np.float64)
            wanted = (formula * distances).sum(axis=1)
            given = channel.mean_of_distance(lambda kilometres: kilometres)
            np.testing.assert_allclose(given, wanted, rtol=1e-8, atol=1e-9)

    def test_a_pickle_gives_the_same_law_and_read_only_arrays(self, channel: gv.Channel) -> None:
        again = pickle.loads(pickle.dumps(channel))
        arrays = [value for value in vars(again).values() if isinstance(value, np.ndarray)]
        assert not any(array.flags.writeable for array in arrays)
        assert again.space == channel.space
        assert again.guarantee == channel.guarantee
        np.testing.assert_array_equal(again.matrix(), channel.matrix())

    # -- claimed ≥ enumerated loss -------------------------------------------------------------

    def test_the_claim_covers_the_formula(
        self, channel: gv.Channel, formula: np.ndarray, case: Case
    ) -> None:
        assert channel.guarantee is not None
        allowed = channel.guarantee.loss(np.asarray(case.distances(), dtype=np.float64))
        found = losses(formula)
        assert (found <= allowed * (1 + 1e-9) + 1e-8).all()

    def test_the_certificate_is_the_enumerated_loss(
        self, channel: gv.Channel, formula: np.ndarray, case: Case
    ) -> None:
        certificate = gv.certify(channel)
        assert certificate.holds
        if channel.space.size == 1:
            assert certificate.epsilon_per_km == 0
            return
        distances = np.asarray(case.distances(), dtype=np.float64)
        np.fill_diagonal(distances, np.inf)
        enumerated = losses(formula) / distances
        assert certificate.epsilon_per_km >= enumerated.max() * (1 - 1e-9)
        if certificate.exact and formula[formula > 0].min() > 1e-290:
            assert certificate.epsilon_per_km == pytest.approx(enumerated.max(), rel=1e-6)
            assert certificate.worst_pair is not None
            x, other = certificate.worst_pair
            steepest = max(enumerated[x, other], enumerated[other, x])
            assert steepest == pytest.approx(enumerated.max(), rel=1e-6)

    # -- sampler ~ matrix ----------------------------------------------------------------------

    def draw(self, channel: gv.Channel, cells: Any, seed: int) -> np.ndarray:
        """Reports as column numbers."""
        return channel.sample(cells, randomness=gv.seeded(seed))

    @pytest.mark.statistical
    def test_draws_follow_the_formula(self, channel: gv.Channel, formula: np.ndarray) -> None:
        size = channel.space.size
        tested = sorted({0, size // 2, size - 1})
        reports = self.draw(channel, np.tile(tested, (DRAWS, 1)), 11)
        assert reports.shape == (DRAWS, len(tested))
        for k, cell in enumerate(tested):
            assert_follows(reports[:, k], formula[cell] / formula[cell].sum())

    def test_draws_repeat_with_the_seed_and_only_then(self, channel: gv.Channel) -> None:
        cells = np.arange(200) % channel.space.size
        first = self.draw(channel, cells, 5)
        assert np.array_equal(first, self.draw(channel, cells, 5))
        if channel.matrix().max(axis=1).mean() < 0.9:
            assert not np.array_equal(first, self.draw(channel, cells, 6))

    def test_draws_have_the_shape_of_the_cells(self, channel: gv.Channel) -> None:
        assert self.draw(channel, 0, 1).shape == ()
        assert self.draw(channel, [], 1).shape == (0,)
        assert self.draw(channel, [[0, 0, 0]], 1).shape == (1, 3)

    def test_no_draw_without_randomness(
        self, channel: gv.Channel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(size: int) -> bytes:
            raise OSError("no entropy")

        monkeypatch.setattr(os, "urandom", fail)
        with pytest.raises(RandomnessFailed, match="nothing was sampled"):
            channel.sample(np.zeros(100, dtype=np.int64))

    # -- tallies, borders and documents --------------------------------------------------------

    def test_tallies_count_and_add(self, channel: gv.Channel) -> None:
        reports = channel.sample(np.arange(300) % channel.space.size, randomness=gv.seeded(9))
        tally, again = channel.tally(reports), channel.tally(reports[:100])
        assert tally.total == 300
        assert (
            tally.counts.tolist() == np.bincount(reports, minlength=channel.report_count).tolist()
        )
        assert (tally + again).counts.tolist() == (tally.counts + again.counts).tolist()

    def test_cells_outside_are_refused_without_being_named(self, channel: gv.Channel) -> None:
        for cells in ([987_654], [-1], [[0, 987_654]]):
            with pytest.raises(OutsideSpace) as refused:
                channel.sample(cells)
            assert "987654" not in str(refused.value)
        for cell in (-1, channel.space.size):
            with pytest.raises(OutsideSpace):
                channel.row(cell)
        for report in (-1, channel.report_count):
            with pytest.raises(OutsideSpace):
                channel.likelihood(report)

    def test_cells_must_be_whole_numbers(self, channel: gv.Channel) -> None:
        for cells in ([0.0], ["0"], [True], [None], [[0], [0, 0]]):
            with pytest.raises(InvalidInput):
                channel.sample(cells)

    def test_products_refuse_what_is_no_vector(self, channel: gv.Channel) -> None:
        products = ((channel.push, channel.space.size), (channel.pull, channel.report_count))
        for product, size in products:
            for wrong in (
                np.ones(size + 1),
                np.full(size, np.nan),
                np.full(size, np.inf),
                "abc",
                1.0,
                None,
            ):
                with pytest.raises(InvalidInput):
                    product(wrong)

    def test_documents_give_the_same_mechanism(self, channel: gv.Channel) -> None:
        if not self.documented:
            with pytest.raises(Unsupported, match="no document form"):
                mechanism_to_dict(channel)
            return
        values = mechanism_to_dict(channel)
        again = mechanism_from_dict(values)
        assert again == channel
        assert hash(again) == hash(channel)
        assert again.guarantee == channel.guarantee
        assert canonical_bytes(mechanism_to_dict(again)) == canonical_bytes(values)
