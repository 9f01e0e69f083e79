"""Every mechanism has a contract test, a reference, a complete docstring and a row in the documents."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import geoveil as gv
from contract.channels import ChannelContract

ROOT = Path(__file__).resolve().parent.parent
CONTRACTS = [path.stem for path in sorted((ROOT / "tests" / "contract").glob("test_*.py"))]
PAGE = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")
every = pytest.mark.parametrize("name", gv.mechanism.MECHANISMS)


def contracts() -> dict[type, type]:
    """Mechanism → the class that tests it."""
    modules = [importlib.import_module(f"contract.{stem}") for stem in CONTRACTS]
    found = [value for module in modules for value in vars(module).values()]
    return {
        value.mechanism: value for value in found if "mechanism" in getattr(value, "__dict__", {})
    }


@every
def test_it_has_a_contract_test(name: str) -> None:
    kind = gv.mechanism.MECHANISMS[name]
    assert kind in contracts()
    if issubclass(kind, gv.Channel):
        assert issubclass(contracts()[kind], ChannelContract)
        assert contracts()[kind].cases()


@every
def test_it_has_a_name_a_reference_and_is_exported(name: str) -> None:
    kind = gv.mechanism.MECHANISMS[name]
    assert kind.name == name
    assert re.search(r"[A-Z]\w+.*(\d{4}|§)", kind.reference)
    assert getattr(gv, kind.__name__) is kind
    assert kind.__name__ in gv.__all__


@every
def test_its_docstring_says_law_guarantee_cost_and_reference(name: str) -> None:
    text = gv.mechanism.MECHANISMS[name].__doc__
    for part in ("Law:", "Guarantee:", "Cost:", "Reference:", ">>>"):
        assert part in text, f"{part} is missing"


@every
def test_it_has_a_row_in_the_documents(name: str) -> None:
    kind = gv.mechanism.MECHANISMS[name]
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{kind.__name__}`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert f"`{name}`" in cells[1]
    assert all(cells)
    author = kind.reference.split(",")[0].split(" &")[0].split()[0]
    assert author in row


def test_mechanisms_of_the_interface_are_all_there() -> None:
    assert set(gv.mechanism.MECHANISMS) == {
        "planar-geometric",
        "planar-laplace",
        "continuous-laplace",
        "exponential",
        "elastic",
        "randomized-response",
        "rappor",
        "disc",
        "linear-geometric",
    }
