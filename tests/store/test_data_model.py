"""docs/data-model.md describes every table and column, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from geoveil.store.records import TABLES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data-model.md"
SECTION = re.compile(r"^### `(?P<table>\w+)`\n(?P<text>.*?)(?=^##|\Z)", re.M | re.S)
ROW = re.compile(r"^\| `(?P<column>\w+)` \|[^|]*\|(?P<life>[^|]*)\|", re.M)


def described() -> dict[str, list[str]]:
    page = PAGE.read_text(encoding="utf-8")
    return {
        found["table"]: [row["column"] for row in ROW.finditer(found["text"])]
        for found in SECTION.finditer(page)
    }


def test_every_table_is_described() -> None:
    assert set(described()) == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_described_in_order(table: str) -> None:
    sharded = ["shard"] if table in ("tally", "round_total") else []
    columns = list(TABLES[table])
    assert described()[table] == [*columns[:-1], *sharded, *columns[-1:]]


def test_every_row_says_whether_the_column_changes() -> None:
    lives = [row["life"].strip() for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
    assert set(lives) <= {"never", "once", "yes", "only grows"}
