"""The page of promises names them in order, and every test it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import mutants

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
ROWS = {
    int(row[1]): row[0]
    for row in re.finditer(r"^\| (\d+) \| .*\|$", PAGE.partition("## Speeds")[0], re.MULTILINE)
}


def test_all_are_named_in_order() -> None:
    assert list(ROWS) == list(range(1, 40))


@pytest.mark.parametrize("number", ROWS)
def test_what_a_row_names_exists(number: int) -> None:
    named = re.findall(r"`((?:tests|benchmarks)/[\w/.]+\.py)", ROWS[number])
    assert named or "to come" in ROWS[number] or "not yet" in ROWS[number]
    for path in named:
        assert (ROOT / path).is_file(), path
    if "*long*" in ROWS[number]:
        assert any("mark.slow" in (ROOT / path).read_text(encoding="utf-8") for path in named)


def test_nothing_is_left_open_on_the_page() -> None:
    assert "@" not in PAGE


def test_planted_faults_add_up_to_what_their_row_says() -> None:
    modules = re.findall(r"^\| `(geoveil\.[\w.]+)` \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert {name for name, _, _ in modules} == set(mutants.CORE)
    planted, found = (sum(int(row[column]) for row in modules) for column in (1, 2))
    share = f"{100 * found / planted:.0f} %"
    assert f"| all | {planted} | {found}: {share} |" in PAGE
    assert f"{found} of {planted} faults are found ({share}" in ROWS[30]
