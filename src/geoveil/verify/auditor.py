"""The audit: everything that can be checked from outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count, one_blas_thread, part
from geoveil.channel.certificate import Certificate, certify, malformed, pairwise_losses
from geoveil.channel.channel import FLOAT_TOLERANCE, Channel, checked_channel
from geoveil.channel.guarantee import Guarantee, checked_guarantee
from geoveil.errors import RandomnessFailed, TooLarge, Unsupported
from geoveil.randomness import SYSTEM, Randomness, checked_randomness, seeded
from geoveil.space.projection import ECCENTRICITY_SQUARED, EQUATOR_KM
from geoveil.space.space import MapSpace, Space
from geoveil.verify import evidence
from geoveil.verify.evidence import Fault, View, spread_cells

_INSPECTED = 256
_COMPARED = 1 << 27
_SMALLEST = 1e-300
"""Floats cannot show smaller probabilities, and a claim is not blamed for that."""


def check_distances(space: Space) -> Iterator[str]:
    """The axioms of a metric on all triples of cells, or on a sample; and true lengths on a map."""
    cells = spread_cells(space, 64)
    distances = np.stack([np.asarray(space.distance_km(int(cell), cells)) for cell in cells])
    from_cells = np.stack([np.asarray(space.distances_from_km(int(cell)))[cells] for cell in cells])
    if not np.isfinite(distances).all() or (distances < 0).any():
        yield "a distance is negative or not finite"
        return
    slack = 1e-9 * max(distances.max(), 1e-300)
    apart = ~np.eye(cells.size, dtype=np.bool_)
    if (np.diag(distances) > slack).any() or (distances[apart] <= 0).any():
        yield "a distance is zero between two cells, or not zero from a cell to itself"
    if (np.abs(distances - distances.T) > slack).any():
        yield "the distance there is not the distance back"
    if (np.abs(distances - from_cells) > slack).any():
        yield "distance_km and distances_from_km disagree"
    detour = (distances[:, :, None] + distances[None, :, :]).min(axis=1)
    if (distances > detour + slack).any():
        yield "a detour is shorter than the distance: the triangle inequality fails"
    yield from _check_ground(space, cells, distances)


def _check_ground(space: Space, cells: IntArray, distances: FloatArray) -> Iterator[str]:
    """Distances on a map are at most those on the ground, and not much less."""
    if not isinstance(space, MapSpace):
        return
    try:
        lat, lng = (degrees[cells] for degrees in space.centres_latlng())
    except Unsupported:
        return
    # straight lines between places on WGS84, from their earth-centred coordinates
    phi, lam = np.radians(lat), np.radians(lng)
    normal = EQUATOR_KM / np.sqrt(1 - ECCENTRICITY_SQUARED * np.sin(phi) ** 2)
    up = (1 - ECCENTRICITY_SQUARED) * normal * np.sin(phi)
    axes = (normal * np.cos(phi) * np.cos(lam), normal * np.cos(phi) * np.sin(lam), up)
    chord = np.sqrt(sum((axis[:, None] - axis[None, :]) ** 2 for axis in axes) + math.ulp(0.0))
    if (distances > chord * (1 + 1e-6) + 1e-6).any() or (distances < 0.98 * chord - 1e-6).any():
        yield "distances are not those on the ground between the places of the cells"


_ENUMERATED = 1 << 31
_IN_A_ROW = 1 << 14


@dataclass(frozen=True)
class AuditReport:
    """What ``audit`` found. Not rejecting proves nothing: a fault can be too small, or elsewhere.

    ``findings`` are faults in plain sentences, and ``passed`` says that there are none. A sound
    channel fails with probability at most ``false_alarm``. ``epsilon_lower_bound_per_km`` is what the
    draws prove about the loss, whatever is claimed; ``fit_p_value`` how well they follow the rows
    (``None`` where that could not be tested). ``certificate`` is exact where it exists, and ``None``
    where the channel is too large for one.
    """

    findings: tuple[str, ...]
    certificate: Certificate | None
    fit_p_value: float | None
    epsilon_lower_bound_per_km: float
    draws: int
    false_alarm: float

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        verdict = "nothing found" if self.passed else "; ".join(self.findings)
        sample = f"{self.draws:,} draws, false alarm at most {self.false_alarm:g}"
        if self.fit_p_value is None:
            sample = "draws could not be compared with the rows"
        return f"{verdict} ({sample})"


@one_blas_thread()
def audit(
    channel: Channel,
    *,
    claim: Guarantee | None = None,
    draws: int = 200_000,
    false_alarm: float = 1e-3,
    randomness: Randomness = SYSTEM,
) -> AuditReport:
    """Try to refute a channel: its structure, its claim, and its public sampler.

    Without draws: distances are a metric (true to the ground where there is a map), rows are laws,
    products agree with them, the claim covers them, and ``certify``. With draws, at up to 16 cells:
    reports follow the rows, prove no loss above the claim (Clopper–Pearson), and do not depend on
    each other. The claim is what the channel promises, unless another one is given. ``false_alarm``
    bounds the chance that a sound channel is blamed; each of the three tests gets a third. A channel
    that raises or gives NaN is a finding. Not rejecting proves nothing.

    >>> import geoveil as gv
    >>> mechanism = gv.RandomizedResponse(gv.Line(4), epsilon=1.0)
    >>> audit(mechanism, draws=20_000, randomness=gv.seeded(7)).passed
    True
    """
    checked_channel("channel", channel)
    part("false_alarm", false_alarm)
    claim = checked_guarantee("claim", claim) or channel.guarantee
    source = checked_randomness(randomness)
    run = _Audit(channel, claim, count("draws", draws, least=1000), false_alarm / 3, source)
    run.attempt("the distances", check_distances, channel.space)
    run.attempt("the certificate", run.check_certificate)
    run.attempt("the rows", run.check_rows)
    run.attempt("the sampler", run.check_sampler)
    findings, proven = tuple(dict.fromkeys(run.findings)), run.proven_per_km
    return AuditReport(findings, run.certificate, run.fit_p_value, proven, draws, false_alarm)


@dataclass
class _Audit:
    """One audit: the channel, what was asked, and what was found so far."""

    channel: Channel
    claim: Guarantee | None
    draws: int
    false_alarm: float
    """For each of the three tests that use draws."""
    randomness: Randomness
    findings: list[str] = field(default_factory=list)
    certificate: Certificate | None = None
    fit_p_value: float | None = None
    proven_per_km: float = 0.0

    def attempt(self, what: str, check: Callable[..., Iterable[str]], *arguments: object) -> None:
        """Run a check; whatever goes wrong in it is a finding."""
        try:
            with np.errstate(all="ignore"):
                self.findings.extend(check(*arguments))
        except (RandomnessFailed, MemoryError):  # this machine's, not the channel's
            raise
        except Fault as fault:
            self.findings.append(str(fault))
        except Exception as problem:
            self.findings.append(f"{what} failed: {type(problem).__name__}: {problem}")

    def check_certificate(self) -> Iterator[str]:
        """The exact certificate, where the channel is small enough or has a closed form."""
        terms = self.channel.space.size**2 * self.channel.report_count
        if terms > _ENUMERATED and self.channel.closed_form_loss() is None:
            return
        try:
            self.certificate = certify(self.channel, claim=self.claim)
        except TooLarge:
            return
        if self.certificate.claimed is not None and not self.certificate.holds:
            yield f"the claim {self.certificate.verdict}: {self.certificate.problem}"

    def check_rows(self) -> Iterator[str]:
        """The rows of as many cells as is cheap: laws that keep the claim and agree with the products."""
        channel = self.channel
        most = max(8, min(_INSPECTED, math.isqrt(_COMPARED // channel.report_count)))
        cells = spread_cells(channel.space, most)
        try:
            rows = np.stack([np.asarray(channel.row(int(cell)), np.float64) for cell in cells])
        except TooLarge:
            return  # rows of too many entries: only draws can be looked at
        if rows.shape != (cells.size, channel.report_count):
            raise Fault(f"rows have {rows.shape[1]} entries for {channel.report_count} reports")
        problem = malformed(rows)
        if problem is not None:
            raise Fault(f"of the rows inspected, {problem}")
        if self.claim is not None:
            losses = pairwise_losses(np.maximum(rows, _SMALLEST))
            distances = np.stack([channel.space.distance_km(int(cell), cells) for cell in cells])
            allowed = np.asarray(self.claim.loss(distances)) * (1 + FLOAT_TOLERANCE)
            excess = np.where(np.isinf(allowed), -np.inf, losses - allowed - FLOAT_TOLERANCE)
            x, other = np.unravel_index(int(np.argmax(excess)), excess.shape)
            if not excess[x, other] <= 0:
                yield (
                    f"rows {cells[x]} and {cells[other]} differ by {losses[x, other]:.6g} nats, "
                    f"{distances[x, other]:.6g} {channel.space.unit} apart, where "
                    f"{allowed[x, other]:.6g} are claimed"
                )
        yield from self._check_products(cells, rows)

    def _check_products(self, cells: IntArray, rows: FloatArray) -> Iterator[str]:
        """push, pull and likelihood against the rows inspected."""
        channel, source = self.channel, seeded(self.channel.space.size)
        weights = source.uniform(cells.size)
        theta = np.zeros(channel.space.size)
        theta[cells] = weights / weights.sum()
        values = source.uniform(channel.report_count)
        reports = source.below(min(channel.report_count, 2**32), 8)
        columns = np.stack([channel.likelihood(int(report)) for report in reports], axis=1)
        answers = {
            "push": (channel.push(theta), theta[cells] @ rows),
            "push of two": (channel.push(np.stack([theta, theta]))[1], theta[cells] @ rows),
            "pull": (channel.pull(values)[cells], rows @ values),
            "likelihood": (columns[cells], rows[:, reports]),
        }
        for name, (product, exact) in answers.items():
            same_shape = np.shape(product) == exact.shape
            if not (same_shape and (np.abs(product - exact) <= 1e-9 * np.abs(exact).max()).all()):
                yield f"{name} does not agree with the rows"

    def check_sampler(self) -> tuple[()]:
        """Draw at several cells in one call, and put the three tests to the draws."""
        try:
            view = View.of(self.channel)
        except TooLarge:
            return ()  # more reports than could be told apart by their frequencies
        cells = np.tile(view.cells, (max(100, self.draws * 3 // 4 // view.cells.size), 1))
        letters = view.draw(cells, self.randomness)
        self.attempt("the law of the draws", self._check_fit, view, letters)
        self.attempt("the loss of the draws", self._check_loss, view, letters)
        self.attempt("the order of the draws", self._check_order, view)
        return ()

    def _check_fit(self, view: View, letters: IntArray) -> Iterator[str]:
        p_values = evidence.goodness_of_fit(letters, view.excerpt.laws)
        where, smallest = min(p_values, key=lambda result: result[1])
        self.fit_p_value = min(1.0, smallest * len(p_values))
        if not smallest * len(p_values) > self.false_alarm:
            yield f"draws do not follow the rows ({where}, p = {smallest:.2g})"

    def _check_loss(self, view: View, letters: IntArray) -> Iterator[str]:
        """The largest loss per km that the draws prove, and the claim it breaks, if it does."""
        one, another, losses = evidence.loss_bounds(letters, self.false_alarm)
        if not losses.size:
            return
        first, second = view.cells[one], view.cells[another]
        distances = np.asarray(self.channel.space.distance_km(first, second))
        self.proven_per_km = max(0.0, float((losses / distances).max()))
        if self.claim is None:
            return
        excess = losses - self.claim.loss(distances)
        worst = int(np.argmax(excess))
        if not excess[worst] <= 1e-9:
            yield (
                f"draws prove a loss of {losses[worst]:.4g} nats between cells {first[worst]} "
                f"and {second[worst]}, {losses[worst] - excess[worst]:.4g} are claimed"
            )

    def _check_order(self, view: View) -> Iterator[str]:
        """Draws at one place, in a row: independent, never the same again, from the given source."""
        k = int(np.argmin(np.square(view.excerpt.laws).sum(axis=1)))
        law = view.excerpt.laws[k]
        cells = np.full(min(_IN_A_ROW, self.draws // 16 * 2), view.cells[k])
        calls = [view.draw(cells, self.randomness) for _ in range(2)]
        p_value = evidence.dependence(np.concatenate(calls), law)
        if not 2 * p_value > self.false_alarm:
            yield f"consecutive draws depend on each other (p = {p_value:.2g})"
        if evidence.repeats(np.concatenate(calls), law, self.false_alarm / 4):
            yield "the sampler repeats itself: a long stretch of draws occurred twice"
        again = [view.draw(cells, seeded(seed)) for seed in (1, 1, 2)]
        if not np.array_equal(again[0], again[1]):
            yield "the sampler draws randomness from elsewhere than the source it is given"
        if evidence.repeats(np.concatenate(again[1:]), law, self.false_alarm / 4):
            yield "the sampler gives the same draws for different random bits"
