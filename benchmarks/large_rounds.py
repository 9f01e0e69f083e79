"""Closing rounds of a country of up to 65,536 cells as the service does it: time, memory, and each part.

``python -m benchmarks.large_rounds --cells 65536 --rounds 1`` (and ``--rounds 15``) prints what a close
takes, the next mechanism, error bars, alarm and manipulation gain included. The document of the country is
designed first and kept in ``--document``, so that a second run begins with the close.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign.elastic_design import elastic
from geoveil.campaign.one_map import Standing
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import MechanismDocument, publish
from geoveil.position.positional import PositionalElastic
from geoveil.position.whole_law import whole_weights
from geoveil.server.conclusion import Conclusion, Work, conclude
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.space import MOST_CELLS, Grid, MapSpace, MaskedGrid

EPSILON_PER_KM = 1.0
_CROWD_KM = np.array((40.0, -30.0))
_APART = 0.02
"""How far the weights of one round lie from those of the next, as estimates move them."""


def country(cells: int) -> MaskedGrid:
    """A round country of so many cells of a kilometre."""
    side = np.sqrt(cells * 4.0 / np.pi) + 3.0
    north, east = 49.3 + side * 0.00449, 3.2 + side * 0.0069
    grid = Grid.from_box(south=98.6 - north, west=6.4 - east, north=north, east=east, cell_km=1.0)
    mask = np.zeros(grid.size, dtype=bool)
    mask[np.argsort(np.hypot(*grid.centres.T), kind="stable")[:cells]] = True
    return MaskedGrid(grid, mask)


def crowd(space: MapSpace) -> FloatArray:
    """Where its people are: one town over a thin spread."""
    away = np.hypot(*(space.centres - _CROWD_KM * np.sqrt(space.size / MOST_CELLS)).T)
    density = 0.05 + np.exp(-away / (20.0 * np.sqrt(space.size / MOST_CELLS)))
    shares: FloatArray = density / density.sum()
    return shares


def first_document(cells: int, kept: Path | None) -> MechanismDocument:
    """The document of the country, made once."""
    if kept is not None and kept.exists():
        return MechanismDocument.read(kept.read_bytes(), certified=True)
    land, before = country(cells), process_time()
    mechanism = elastic(land, crowd(land), epsilon_per_km=EPSILON_PER_KM, camouflage=0.5)
    assert isinstance(mechanism, PositionalElastic)
    print(f"designed in {process_time() - before:.0f} s of processor", flush=True)
    made = publish(mechanism, campaign="country", round=1, not_before_s=0, expires_s=1 << 32)
    if kept is not None:
        kept.write_bytes(made.to_bytes())
    return made


def work_of(document: MechanismDocument, rounds: int, reports: int) -> Work:
    """The close of the last of so many rounds, each with laws and reports of its own."""
    generator = np.random.default_rng(3)
    space = document.mechanism.space
    assert isinstance(space, MaskedGrid)
    people = crowd(space) * generator.gamma(0.5, size=space.size)
    documents: dict[int, bytes] = {}
    counts: dict[int, IntArray] = {}
    for number in range(1, rounds + 1):
        moved = 1.0 + _APART * generator.standard_normal(space.size) * (number > 1)
        weights = whole_weights(document.law.weights * moved, short=True)
        each = replace(document, round=number, law=replace(document.law, weights=weights))
        documents[number] = each.to_bytes()
        law = np.maximum(each.mechanism.push(people / people.sum()), 0.0)
        counts[number] = generator.multinomial(reports, law / law.sum())
    box = space.box
    assert box is not None
    settings = CampaignSettings(
        name="Country",
        id="country",
        box=(box.south, box.west, box.north, box.east),
        cell_km=space.cell_km,
        epsilon_per_km=EPSILON_PER_KM,
    )
    before = (rounds - 1, _said_before(people / people.sum(), rounds)) if rounds > 1 else None
    return Work("country", rounds, 1_000_000_000, settings, documents, counts, before)


def _said_before(people: FloatArray, rounds: int) -> bytes:
    """What the close of the round before would have said, as far as the next one asks: the people themselves
    in the place of their estimate, and that all rounds agreed."""
    standing = Standing(tuple(range(1, rounds)), looks=rounds - 2)
    return canonical_bytes({"distribution": people.tolist(), "drift": standing.to_dict()})


def main(given: Sequence[str] | None = None) -> int:
    """Print what each part takes, and the most memory."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_rounds", description=__doc__)
    parser.add_argument("--cells", type=int, default=MOST_CELLS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--reports", type=int, default=1_000_000, help="in every round")
    parser.add_argument("--document", type=Path, help="file that the document is kept in")
    asked = parser.parse_args(given)
    work = work_of(first_document(asked.cells, asked.document), asked.rounds, asked.reports)
    before = process_time()

    def tell(ready: Conclusion) -> None:
        spent = process_time() - before
        print(f"{spent:6.0f} s of processor; then {', '.join(ready.unfinished)}", flush=True)

    made = conclude(work, tell)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{process_time() - before:6.0f} s of processor for all; {most:.2f} GiB at most; the estimate has "
        f"{len(made.body) / 2**20:.1f} MiB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
