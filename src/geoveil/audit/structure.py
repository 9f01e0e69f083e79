"""Is it a channel at all? Checks of rows, products, claim and distances that need no draws."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.audit.draws import Fault, spread_cells
from geoveil.channel.base import Channel
from geoveil.channel.guarantee import Guarantee
from geoveil.channel.loss import FLOAT_TOLERANCE
from geoveil.errors import Unsupported
from geoveil.randomness import seeded
from geoveil.report.certify import malformed, pairwise_losses
from geoveil.space.base import Space
from geoveil.space.projection import EQUATOR_KM

_INSPECTED = 256
_COMPARED = 1 << 27
_SMALLEST = 1e-300
"""Floats cannot show smaller probabilities, and a claim is not blamed for that."""


def inspected_rows(channel: Channel) -> tuple[IntArray, FloatArray]:
    """Cells, as many as is cheap, and their rows; a table that is no channel is a fault."""
    most = max(8, min(_INSPECTED, math.isqrt(_COMPARED // channel.report_count)))
    cells = spread_cells(channel.space, most)
    rows = np.stack([np.asarray(channel.row(int(cell)), dtype=np.float64) for cell in cells])
    if rows.shape != (cells.size, channel.report_count):
        raise Fault(f"rows have {rows.shape[1]} entries for {channel.report_count} reports")
    problem = malformed(rows)
    if problem is not None:
        raise Fault(f"of the rows inspected, {problem}")
    return cells, rows


def check_claim(
    channel: Channel, claim: Guarantee | None, cells: IntArray, rows: FloatArray
) -> Iterator[str]:
    """The claim against the rows inspected, entry by entry."""
    if claim is None:
        return
    losses = pairwise_losses(np.maximum(rows, _SMALLEST))
    distances = np.stack([channel.space.distance_km(int(cell), cells) for cell in cells])
    allowed = np.asarray(claim.loss(distances)) * (1 + FLOAT_TOLERANCE)
    excess = np.where(np.isinf(allowed), -np.inf, losses - allowed - FLOAT_TOLERANCE)
    x, other = np.unravel_index(int(np.argmax(excess)), excess.shape)
    if not excess[x, other] <= 0:
        yield (
            f"rows {cells[x]} and {cells[other]} differ by {losses[x, other]:.6g} nats, "
            f"{distances[x, other]:.6g} {channel.space.unit} apart, where "
            f"{allowed[x, other]:.6g} are claimed"
        )


def check_products(channel: Channel, cells: IntArray, rows: FloatArray) -> Iterator[str]:
    """push, pull and likelihood against the rows inspected."""
    source = seeded(channel.space.size)
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
    for name, (given, wanted) in answers.items():
        if np.shape(given) != wanted.shape or not _close(np.asarray(given), wanted):
            yield f"{name} does not agree with the rows"


def _close(given: FloatArray, wanted: FloatArray) -> bool:
    return bool((np.abs(given - wanted) <= 1e-9 * np.abs(wanted).max()).all())


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
    try:
        lat, lng = (part[cells] for part in space.centres_latlng())  # type: ignore[attr-defined]
    except (AttributeError, Unsupported):
        return
    chord = _chords_km(lat, lng)
    if (distances > chord * (1 + 1e-6) + 1e-6).any() or (distances < 0.98 * chord - 1e-6).any():
        yield "distances are not those on the ground between the places of the cells"


def _chords_km(lat: FloatArray, lng: FloatArray) -> FloatArray:
    """Straight lines between places on WGS84, from their earth-centred coordinates."""
    flattening = 1 / 298.257223563
    squared = flattening * (2 - flattening)
    phi, lam = np.radians(lat), np.radians(lng)
    normal = EQUATOR_KM / np.sqrt(1 - squared * np.sin(phi) ** 2)
    across = normal * np.cos(phi)
    axes = (across * np.cos(lam), across * np.sin(lam), (1 - squared) * normal * np.sin(phi))
    return np.sqrt(sum((axis[:, None] - axis[None, :]) ** 2 for axis in axes) + math.ulp(0.0))
