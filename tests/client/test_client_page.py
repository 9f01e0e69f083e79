"""docs/client.md names every reason there is, and no other; so does the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from client.hostile import HOSTILE
from client.world import NOW_S, Collector, device, document, refused
from geoveil.client import REASONS, Refused

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "src/geoveil/client").glob("*.py")]
WIRE = (ROOT / "src" / "geoveil" / "document" / "wire.py").read_text(encoding="utf-8")


_TABLE = PAGE.split("## What is checked")[1].split("\n\nA document is not sound")[0]
ORDER = re.findall(r"^\| `([\w-]+)` \|", _TABLE, re.MULTILINE)
"""The reasons, as the page lists them."""


def test_the_table_is_complete() -> None:
    assert sorted(ORDER) == sorted(REASONS)


OF_DEVICES: dict[str, dict[str, Any]] = {
    "clock": {"clock": lambda: -1.0},
    "level": {"promise_per_km": 3.0},
    "promise": {"max_epsilon_per_km": 1.0},
    "invitation": {"invitation": "where none is asked for"},
    "budget": {"budget_per_km": 1.0},
}
OF_DOCUMENTS: dict[str, dict[str, Any]] = {
    "campaign": {"campaign": "paris"},
    "trips": {"trips": True},
    "not-yet-valid": {"not_before_s": NOW_S + 301},
}
OF_FIXES: dict[str, tuple[Any, ...]] = {
    "location": ("here", 4.84, 9.0),
    "accuracy": (45.76, 4.84, 9.0),
}
FAULTS = sorted({*OF_DEVICES, *OF_DOCUMENTS, *OF_FIXES}, key=ORDER.index)


@pytest.mark.parametrize("first", FAULTS)
def test_checks_are_made_in_the_order_of_the_table(first: str, path: Path) -> None:
    """Where all is wrong that the table has from this reason on, this one is given."""
    wrong = FAULTS[FAULTS.index(first) :]
    options, parts = (
        {name: value for reason in wrong for name, value in given.get(reason, {}).items()}
        for given in (OF_DEVICES, OF_DOCUMENTS)
    )
    it = device(Collector(document(**parts).served()), path, **options)
    fix = next(OF_FIXES[reason] for reason in wrong if reason in OF_FIXES)
    assert refused(it.report, locate=lambda: fix).reason == first


def test_the_code_uses_every_reason() -> None:
    used = {name for text in SOURCES for name in re.findall(r'Refused\(\s*"([\w-]+)"', text)}
    assert used == set(REASONS)


def test_every_fault_of_a_document_is_on_the_page_and_in_the_corpus() -> None:
    words = r'(?:RefusedDocument\(|_whole\(|_number\(|_sound\(|_require\([^"]*,)\s*"(\w+)"'
    faults = set(re.findall(words, WIRE)) - {"levels"}  # of an answer, not of a document
    paragraph = PAGE.split("A document is not sound")[1].split("The corpus")[0]
    assert faults <= set(re.findall(r"`(\w+)`", paragraph))
    faults |= {"trips"}  # its condition is a text of its own
    assert faults == {case.detail for case in HOSTILE if case.reason == "document"}


def test_the_page_counts_the_corpus() -> None:
    assert f"holds {len(HOSTILE)} such documents" in PAGE


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_a_sentence_without_a_place_for_a_location(reason: str) -> None:
    refused = Refused(reason)
    assert str(refused) == f"not reported: {REASONS[reason]}"
    assert "{" not in REASONS[reason]
