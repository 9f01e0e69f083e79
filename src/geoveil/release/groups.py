"""People in groups: the counts of each are released by themselves and added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, positive
from geoveil.errors import InvalidInput
from geoveil.randomness import SYSTEM, Randomness
from geoveil.release.coarsening import even_groups
from geoveil.release.count_release import CountRelease
from geoveil.release.counts import checked_counts
from geoveil.release.prior import Prior


class GroupedRelease:
    """A release for more people than one release can handle: one for each group of them.

    Law: ã = Σ_g ã_g, each group's counts released by a :class:`CountRelease` of its own with the same
    multiplier. ``groups`` is their number, or the people of each.
    Guarantee: that of the groups; a person is in one of them. All measures are upper bounds, since
    only the sum is published: I(A; Ã) ≤ Σ_g I(A_g; Ã_g), I(A_m; Ã) ≤ I(A_m; Ã_g), E d ≤ Σ_g D_g.
    Cost: one design for each different group. Units: bits, people.

    >>> grouped = GroupedRelease(people=40, prior=[0.8, 0.1, 0.1], multiplier=1.0, groups=2)
    >>> round(grouped.leakage_bits, 3), grouped.sample([[16, 2, 2], [15, 5, 0]]).sum().item()
    (1.595, 40)
    """

    def __init__(
        self,
        *,
        people: int,
        prior: npt.ArrayLike,
        multiplier: float,
        groups: int | Sequence[Sequence[int]],
    ) -> None:
        known = Prior.parse(prior, people)
        self.multiplier = positive("multiplier", multiplier)
        self.groups = _checked_groups(groups, people)
        self.people, self.places = known.people, known.places
        made: dict[tuple[int, bytes], CountRelease] = {}
        self.releases = tuple(self._release(known, group, made) for group in self.groups)

    def _release(
        self, known: Prior, group: IntArray, made: dict[Any, CountRelease]
    ) -> CountRelease:
        kinds = np.sort(known.kind[group])
        key = (group.size, kinds.tobytes())
        if key not in made:
            rows = known.rows[kinds]
            made[key] = CountRelease(people=group.size, prior=rows, multiplier=self.multiplier)
        return made[key]

    @property
    def leakage_bits(self) -> float:
        """At least I(A; Ã), in bits."""
        return sum(release.leakage_bits for release in self.releases)

    @property
    def distortion(self) -> float:
        """At least E d(A, Ã), in people."""
        return sum(release.distortion for release in self.releases)

    @property
    def personal_leakage_bits(self) -> FloatArray:
        """(people,): at least I(A_m; Ã) of each person, in bits."""
        result = np.zeros(self.people)
        for group, release in zip(self.groups, self.releases, strict=True):
            result[group] = release.most_personal_leakage_bits
        return result

    @property
    def epsilon(self) -> float:
        """Differential privacy of one release, in nats: a person is in one group only."""
        return self.releases[0].epsilon

    def sample(self, counts: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> IntArray:
        """What to publish for the counts of each group, (groups, places): one valid vector for all."""
        if np.ndim(counts) != 2 or len(np.asarray(counts)) != len(self.groups):
            raise InvalidInput(
                f"counts (shape {np.shape(counts)}) must have a row for each of the "
                f"{len(self.groups)} groups"
            )
        rows = [
            checked_counts(row, release.people, self.places)
            for row, release in zip(np.asarray(counts), self.releases, strict=True)
        ]
        drawn = [
            release.sample(row, randomness=randomness)
            for row, release in zip(rows, self.releases, strict=True)
        ]
        return np.sum(drawn, axis=0)

    def __repr__(self) -> str:
        return (
            f"GroupedRelease(people={self.people}, places={self.places}, "
            f"groups={len(self.groups)}, multiplier={self.multiplier:.6g})"
        )


def _checked_groups(groups: int | Sequence[Sequence[int]], people: int) -> tuple[IntArray, ...]:
    if isinstance(groups, int):
        return tuple(even_groups(people, groups))
    listed = tuple(np.asarray(group, dtype=np.int64) for group in groups)
    if not listed or not np.array_equal(np.sort(np.concatenate(listed)), np.arange(people)):
        raise InvalidInput(f"groups must hold each person 0 … {people - 1} exactly once")
    return listed
