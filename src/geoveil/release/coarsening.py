"""Coarsening: what to do when there are more count vectors than can be handled.

Places can be merged (:class:`MergedPlaces`) and people split into groups (:class:`GroupedRelease`). Neither
is an approximation: what comes out is the exact release of a coarser question.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoveil.arrays import IntArray, count
from geoveil.errors import InvalidInput, TooLarge
from geoveil.release import counts as counting
from geoveil.release.prior import Prior, put_together
from geoveil.release.symmetric_design import symmetric_within_reach


@dataclass(frozen=True)
class MergedPlaces:
    """Places put together: ``groups`` of their numbers, each place in exactly one.

    A release of the merged counts Ã′ depends on the counts A through the merged ones A′ alone, so
    I(A; Ã′) = I(A′; Ã′), and so for one person. What is lost are the counts inside a merged place.

    >>> merged = MergedPlaces(((0,), (1, 2)))
    >>> merged.counts([16, 2, 2]).tolist()
    [16, 4]
    >>> merged.prior([0.8, 0.1, 0.1]).round(3).tolist()
    [0.8, 0.2]
    """

    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        listed = sorted(place for group in self.groups for place in group)
        if listed != list(range(len(listed))) or not all(self.groups):
            raise InvalidInput("groups must hold each place, numbered from 0, exactly once")

    @property
    def places(self) -> int:
        """How many places there were."""
        return sum(len(group) for group in self.groups)

    def counts(self, counts: npt.ArrayLike) -> IntArray:
        """Counts (…, places) on the merged places."""
        return np.asarray(self._sums(np.asarray(counts)), dtype=np.int64)

    def prior(self, prior: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Priors (…, places) on the merged places."""
        return np.asarray(self._sums(np.asarray(prior, dtype=np.float64)), dtype=np.float64)

    def _sums(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        if values.ndim == 0 or values.shape[-1] != self.places:
            raise InvalidInput(
                f"values (shape {values.shape}) must have {self.places} entries, one per place"
            )
        return put_together(values, self.groups)


def merge_least_visited(prior: Prior, places: int) -> MergedPlaces:
    """Merge places, always the two least visited ones, until so many are left."""
    groups: list[tuple[int, ...]] = [(place,) for place in range(prior.places)]
    visits = prior.mean.tolist()
    while len(groups) > count("places", places):
        one, other = sorted(np.argsort(visits, kind="stable")[:2].tolist())
        groups[one] += groups.pop(other)
        visits[one] += visits.pop(other)
    return MergedPlaces(tuple(tuple(sorted(group)) for group in groups))


def even_groups(people: int, groups: int) -> list[IntArray]:
    """The people 0 … M − 1 in ``groups`` parts as equal as can be."""
    if count("groups", groups) > count("people", people):
        raise InvalidInput(f"groups ({groups}) must be at most {people}, the number of people")
    return np.array_split(np.arange(people, dtype=np.int64), groups)


# -- reach -----------------------------------------------------------------------------------------


def within_reach(prior: Prior) -> bool:
    """Whether a release for this prior can be designed, on count vectors or on orbits of them."""
    return listed_within_reach(prior) or symmetric_within_reach(prior)


def listed_within_reach(prior: Prior) -> bool:
    """Whether it can be designed on count vectors: these can be listed, and transforms made."""
    people, places = prior.people, prior.places
    lower, upper = prior.window()
    if not counting.within_products(people, lower, upper, counting.REACH):
        return False
    size = counting.CountVectors.estimated_size(people, lower, upper)
    if not prior.is_common:  # people join one at a time, so all smaller counts are needed too
        spare = int(np.argmax(np.subtract(upper, lower)))
        lower, upper = (0,) * places, (*upper[:spare], people, *upper[spare + 1 :])
        size = counting.CountVectors.estimated_size(people, lower, upper)
    return size <= counting.VECTOR_LIMIT


def check_reach(prior: Prior, *, listed: bool = False) -> None:
    """Refuse what is beyond reach, with the number of vectors and the coarsening that would fit."""
    if listed_within_reach(prior) or (not listed and symmetric_within_reach(prior)):
        return
    lower, upper = prior.window()
    size = counting.CountVectors.estimated_size(prior.people, lower, upper)
    points = float(min(counting.transform_points(lower, upper), 10**300))
    advice = []

    def merged_is_too_large(places: int) -> bool:
        return not listed_within_reach(prior.merged(merge_least_visited(prior, places).groups))

    # the finest merging within reach: fewer places have fewer vectors
    places = 1 + bisect.bisect_left(range(2, prior.places), True, key=merged_is_too_large)
    if places > 1:
        advice.append(f"merge the places into {places} (merge_least_visited)")
    groups = 2
    while groups <= prior.people:
        largest = -(-prior.people // groups)
        if (listed_within_reach if listed else within_reach)(Prior.parse(prior.mean, largest)):
            advice.append(
                f"split the people into {groups} groups of at most {largest} (GroupedRelease)"
            )
            break
        groups = max(groups + 1, groups * 5 // 4)
    raise TooLarge(
        f"count vectors ({size:.3g} for {prior.people} people and {prior.places} places) must have at most "
        f"{counting.ENTRY_LIMIT:.3g} distances between them ({size**2:.3g}), or a transform of at "
        f"most {counting.REACH:.3g} points ({points:.3g}) and {counting.VECTOR_LIMIT:.3g} vectors; "
        f"{' or '.join(advice)}"
    )
