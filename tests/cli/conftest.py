"""Commands, run one after another on the same few maps."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _certified_once(certified_once: None) -> None:
    """One command designs what the next ones read, check and audit."""
