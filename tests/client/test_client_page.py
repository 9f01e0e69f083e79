"""docs/client.md names every reason there is, and no other; so does the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from client.hostile import HOSTILE
from geoveil.client import REASONS, Refused

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "src/geoveil/client").glob("*.py")]
WIRE = (ROOT / "src" / "geoveil" / "document" / "wire.py").read_text(encoding="utf-8")


def test_the_table_is_complete() -> None:
    table = PAGE.split("## What is checked")[1].split("\n\nA document is not sound")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == sorted(REASONS)


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
