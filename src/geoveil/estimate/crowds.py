"""Crowds: weighted people around a cell, of whom its own are a part."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from geoveil.arrays import FloatArray, IntArray

_ENDS = 3.0
_ENTRIES = 1 << 22
"""Of the weights of crowds, at most."""


class Nearby:
    """Crowds around cells and regions, which hold all the people of these: weights v ≥ a for every a ≥ 0.

    Since nobody counts less than nothing, a·θ ≤ v·θ. Law: v_y = max_x a_x·exp(−d(x, y)²/2s²), cut off where
    d exceeds 3s, with s from 0.63 of the distance of neighbours on, each 1.26 times the last.
    """

    widths = range(12)
    """The numbers of s."""

    def __init__(self, centres_km: FloatArray) -> None:
        self._centres_km = centres_km

    def crowds(
        self, width: int, wanted: IntArray, combinations: sparse.csr_array | None
    ) -> sparse.csr_array | None:
        """(wanted, cells): around these cells or combinations; ``None`` where they are too many weights."""
        from scipy.spatial import cKDTree  # here, since it is slow to import

        cells, tree = len(self._centres_km), cKDTree(self._centres_km)
        nearest_km = np.asarray(tree.query(self._centres_km, k=2)[0])[:, 1]
        spread_km = float(np.median(nearest_km)) * 2 ** ((width - 2) / 3)
        pairs = tree.sparse_distance_matrix(tree, _ENDS * spread_km, output_type="ndarray")
        weights = np.exp(-np.square(pairs["v"] / spread_km) / 2)
        around = sparse.csr_array((weights, (pairs["i"], pairs["j"])), shape=(cells, cells))
        if combinations is None:
            return around[wanted] if around.nnz <= _ENTRIES else None
        given = combinations[wanted]
        if given.nnz * (around.nnz / cells) > _ENTRIES:
            return None
        return _largest(given, around)


def _largest(combinations: sparse.csr_array, around: sparse.csr_array) -> sparse.csr_array:
    """(k, cells): max_x a_x·around[x, y] for each combination a of (k, cells)."""
    found, cells = around[combinations.indices], around.shape[1]
    weights = found.data * np.repeat(combinations.data, np.diff(found.indptr))
    row = np.repeat(np.arange(combinations.shape[0]), np.diff(combinations.indptr))
    place = np.repeat(row, np.diff(found.indptr)) * cells + found.indices
    order = np.argsort(place, kind="stable")
    places, first = np.unique(place[order], return_index=True)
    largest = np.maximum.reduceat(weights[order], first)
    return sparse.csr_array((largest, np.divmod(places, cells)), shape=combinations.shape)
