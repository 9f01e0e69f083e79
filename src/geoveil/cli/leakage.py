"""What a release of counts tells, and about whom, in words and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import entr

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.words import rounded_up
from geoveil.release import CountRelease, CurvePoint
from geoveil.table.counts import CountTable
from geoveil.table.format import PIPE
from geoveil.table.writer import create_table

_SHOWN = 5
_UNLIKELY = 1e-6
"""Counts are all but impossible where no likelier ones have less probability together."""


@dataclass(frozen=True)
class Published:
    """A release that was drawn: the table it stands for, what comes out, and the curve behind it."""

    table: CountTable
    counts: IntArray
    """(timestamps, places): the true ones."""
    named: tuple[str, ...]
    """The names of the people where a file has them."""
    release: CountRelease
    released: IntArray
    curve: Sequence[CurvePoint]

    @property
    def names(self) -> list[str]:
        """The people by name, or by number from 1."""
        return list(self.named) or [str(number + 1) for number in range(self.release.people)]

    @property
    def chosen(self) -> CurvePoint:
        """The point of the curve that this release is."""
        multiplier = self.release.multiplier
        return next(point for point in self.curve if point.multiplier == multiplier)

    @property
    def unchanged_bits(self) -> float:
        """What unchanged counts would tell, in bits."""
        return sum(made.law.entropy_bits for made in self.release.designs)

    @property
    def unknown_bits(self) -> FloatArray:
        """What is unknown about each person before the release, over all timestamps, in bits."""
        priors = [made.law.prior for made in self.release.designs]
        each = [entr(prior.rows).sum(axis=1)[prior.kind] for prior in priors]
        return np.sum(each, axis=0) / np.log(2)

    def cautions(self, wanted_bits: float | None) -> Iterator[str]:
        """What the figures do not say: counts they do not describe, a limit that limits nothing."""
        laws = [made.law for made in self.release.designs]
        rows = zip(self.table.timestamps, laws, self.counts, strict=True)
        unlikely = [when for when, law, row in rows if law.surprise(row) < _UNLIKELY]
        if unlikely:
            more = f" and {len(unlikely) - _SHOWN} more" if len(unlikely) > _SHOWN else ""
            yield (
                f"the counts at {', '.join(unlikely[:_SHOWN])}{more} are all but impossible under the "
                "prior: leakage and distortion are averages that do not describe them, only the worst "
                "case does; check the prior"
            )
        if wanted_bits is not None and wanted_bits >= self.unchanged_bits > 0:
            yield (
                f"the limit ({wanted_bits:.4g} bits) is not below the {self.unchanged_bits:.4g} bits that "
                "unchanged counts would tell: the counts are released practically unchanged; lower it"
            )

    def write_personal(self, path: str, format: str | None) -> None:
        """A table of what leaks about each person."""
        import pyarrow as pa

        columns = {
            "person": pa.array(self.names),
            "leakage_bits": pa.array(self.release.personal_leakage_bits),
            "unknown_before_bits": pa.array(self.unknown_bits),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        with create_table(path, batch.schema, format=format) as target:
            target.write(batch)

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        release, table = self.release, self.table
        personal = release.personal_leakage_bits.tolist()
        return {
            "people": release.people,
            "places": list(table.places),
            "timestamps": list(table.timestamps),
            "multiplier": release.multiplier,
            "leakage_bits": release.leakage_bits,
            "least_leakage_bits": release.least_leakage_bits,
            "unchanged_bits": self.unchanged_bits,
            "certificate_nats": release.certificate_nats,
            "distortion": release.distortion,
            "epsilon": release.epsilon,
            "chain_holds": release.chain.holds,
            "personal_leakage_bits": dict(zip(self.names, personal, strict=True)),
            "released": dict(zip(table.timestamps, self.released.tolist(), strict=True)),
            "curve": [asdict(point) for point in self.curve],
        }

    def lines(self, written: Mapping[str, str | None]) -> dict[str, str]:
        """For people: what there is to say, by its name."""
        release = self.release
        moments = f" at {release.timestamps} timestamps" if release.timestamps > 1 else ""
        where = "standard output" if written["output"] == PIPE else written["output"]
        lines = {
            "released": f"{release.people} people over {release.places} places{moments}, in {where}",
            "leakage": (
                f"{release.leakage_bits:.4g} of the {self.unchanged_bits:.4g} bits that unchanged "
                f"counts would tell; no release this accurate can tell less than "
                f"{release.least_leakage_bits:.4g}"
            ),
            "distortion": f"{release.distortion:.4g} people on average, λ = {release.multiplier:.6g}",
            "about one person": self._exposed(),
            "worst case": (
                "whatever is known before, one person elsewhere changes the probability of a "
                f"release by at most e^{rounded_up(release.epsilon, 3)}"
            ),
            "personal": written["personal"] or "",
            "curve": written["plot"] or "",
        }
        return {name: text for name, text in lines.items() if text}

    def _exposed(self) -> str:
        """The people who are told most about, beside what is unknown about them."""
        personal, unknown = self.release.personal_leakage_bits, self.unknown_bits
        if np.ptp(personal) < 1e-12:
            return f"{personal[0]:.3g} bits about each, of {unknown[0]:.3g} unknown before"
        order = np.argsort(-personal, kind="stable")[:_SHOWN]
        most = ", ".join(
            f"{self.names[m]} {personal[m]:.3g} of {unknown[m]:.3g}" for m in order.tolist()
        )
        return f"at most {personal.max():.3g} bits, mean {personal.mean():.3g}; most: {most}"
