"""What other libraries take for the same work; run by ``benchmarks.peers`` in an environment of their own.

``python peer_timings.py`` prints one JSON object: for each library its version and what was measured, or what
it lacks. It needs nothing of Geoveil. Every library does what its documentation shows; what it does a person
at a time is timed for a share of the people and multiplied.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from importlib.metadata import version
from time import process_time
from typing import Any

import numpy as np

PEOPLE = 10**5
CELLS = 100
EPSILON = 1.0
_TIMED = 2000  # people who are timed where each is drawn for alone
SIDE, EPSILONS = (6, 8), (1.0, 0.2)
"""Of the optimal mechanism: rows and columns of cells of 1 km, and ε per km."""


def optimum_prior() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Uneven, and the same for both sides."""
    weights = 1.0 + np.sin(np.arange(SIDE[0] * SIDE[1])) ** 2
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def cell_distances() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Between the centres of the cells, in km."""
    row, column = np.divmod(np.arange(SIDE[0] * SIDE[1]), SIDE[1])
    return np.asarray(np.hypot(row[:, None] - row, column[:, None] - column), dtype=np.float64)


def _each(draw: Callable[[int], Any]) -> float:
    """Processor seconds for everybody, from those of a few; the first call, which compiles, is not timed."""
    draw(0)
    cells = np.random.default_rng(1).integers(0, CELLS, _TIMED)
    start = process_time()
    for cell in cells:
        draw(int(cell))
    return (process_time() - start) * PEOPLE / _TIMED


def multi_freq_ldpy() -> dict[str, float]:
    """k-RR and RAPPOR (symmetric unary encoding)."""
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client

    return {
        "response_seconds": _each(lambda cell: GRR_Client(cell, CELLS, EPSILON)),
        "rappor_seconds": _each(lambda cell: UE_Client(cell, CELLS, EPSILON, optimal=False)),
    }


def pure_ldp() -> dict[str, float]:
    """Direct encoding, which is k-RR, and symmetric unary encoding."""
    from pure_ldp.frequency_oracles.direct_encoding import DEClient
    from pure_ldp.frequency_oracles.unary_encoding import UEClient

    response = DEClient(epsilon=EPSILON, d=CELLS)
    bits = UEClient(epsilon=EPSILON, d=CELLS, use_oue=False)
    return {
        "response_seconds": _each(lambda cell: response.privatise(cell + 1)),
        "rappor_seconds": _each(lambda cell: bits.privatise(cell + 1)),
    }


def dit() -> dict[str, float]:
    """Mutual information of an elastic-like channel on 100 cells, in bits."""
    import dit as library

    joint = information_joint()
    outcomes = [(str(x), str(y)) for x in range(CELLS) for y in range(CELLS)]
    start = process_time()
    made = library.Distribution(outcomes, joint.ravel().tolist())
    bits = library.shannon.mutual_information(made, [0], [1])
    return {"information_seconds": process_time() - start, "information_bits": float(bits)}


def information_joint() -> np.ndarray[Any, np.dtype[np.float64]]:
    """A joint law of 100 cells and 100 reports, the same for both sides."""
    apart = np.abs(np.subtract.outer(np.arange(CELLS), np.arange(CELLS)))
    law = np.exp(-0.3 * apart)
    joint = law / law.sum(axis=1, keepdims=True) / CELLS
    return np.asarray(joint / joint.sum(), dtype=np.float64)


def qif() -> dict[str, float]:
    """The optimal mechanism on 48 cells: seconds, its loss, and the ε that the returned matrix has."""
    import qif as library

    apart, prior = cell_distances(), optimum_prior()
    found: dict[str, float] = {}
    for epsilon in EPSILONS:
        start = process_time()
        matrix = np.asarray(
            library.mechanism.d_privacy.min_loss_given_d(
                prior,
                len(prior),
                lambda x, y, each=epsilon: each * apart[x, y],
                lambda x, y: apart[x, y],
            )
        )
        found[f"optimum_seconds_{epsilon:g}"] = process_time() - start
        found[f"optimum_loss_{epsilon:g}"] = float((prior[:, None] * matrix * apart).sum())
        found[f"optimum_epsilon_{epsilon:g}"] = matrix_epsilon(matrix, apart)
    return found


def matrix_epsilon(
    matrix: np.ndarray[Any, Any], apart: np.ndarray[Any, np.dtype[np.float64]]
) -> float:
    """The largest loss per km of a matrix; infinite where one row has a report that another lacks."""
    worst = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(matrix)
        for x in range(len(matrix)):
            lost = np.abs(logs[x] - logs)
            lost[np.isnan(lost)] = 0.0  # neither row has the report
            per_km = lost.max(axis=1) / np.where(apart[x] > 0, apart[x], math.inf)
            worst = max(worst, float(per_km.max()))
    return worst


PEERS: dict[str, Callable[[], dict[str, float]]] = {
    "multi-freq-ldpy": multi_freq_ldpy,
    "pure-ldp": pure_ldp,
    "dit": dit,
    "qif": qif,
}


def main() -> int:
    """Measure every library that is there."""
    found: dict[str, dict[str, Any]] = {}
    for name, measure in PEERS.items():
        try:
            found[name] = {"version": version(name), **measure()}
        except Exception as problem:  # whatever keeps a library from running is said in its row
            found[name] = {"missing": type(problem).__name__}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
