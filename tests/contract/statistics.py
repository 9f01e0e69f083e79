"""One test of draws against a law, for all statistical tests; it shares nothing with the audit."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

FALSE_ALARM = 1e-9
"""Of one statistical test: a thousand of them share 1e-6 a run."""


def p_value(counts: np.ndarray, law: np.ndarray, *, least: float = 60.0) -> float:
    """Pearson's χ² over outcomes in order, joined until each bin is expected ``least`` times."""
    draws = counts.sum()
    bins, filled = np.zeros(law.size, dtype=np.int64), 0.0
    for outcome in range(1, law.size):
        filled += draws * law[outcome - 1]
        enough = filled >= least and draws * law[outcome:].sum() >= least
        bins[outcome] = bins[outcome - 1] + enough
        filled *= not enough
    seen = np.bincount(bins, weights=counts)
    expected = draws * np.bincount(bins, weights=law)
    if seen.size == 1:
        return 1.0
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), seen.size - 1))


def assert_follows(letters: np.ndarray, law: np.ndarray) -> None:
    """The draws follow the law, and the test could tell: a tilted law is refused."""
    counts = np.bincount(letters.ravel(), minlength=law.size)
    assert counts[law == 0].sum() == 0, "a report that cannot be"
    assert p_value(counts, law) > FALSE_ALARM
    if np.square(law).sum() < 0.9:
        assert p_value(counts, tilted(law)) < FALSE_ALARM


def tilted(law: np.ndarray) -> np.ndarray:
    """A law a quarter of whose mass is wrong: half the outcomes gain what the others lose."""
    likely = np.argsort(-law, kind="stable")
    turn = np.ones(law.size)
    turn[likely[::2]] += 0.25
    turn[likely[1::2]] -= 0.25
    return turn * law / (turn * law).sum()
