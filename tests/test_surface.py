"""The names that the library offers: few, on a page, and imported when they are first used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import geoveil as gv

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8").split("## All names")[1]


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_every_name_is_on_the_page_and_no_other() -> None:
    assert set(re.findall(r"`([A-Za-z_]\w+)`", PAGE)) == set(gv.__all__)
    assert len(gv.__all__) == len(set(gv.__all__)) <= 90


def test_every_name_is_where_it_is_said_to_be() -> None:
    for name in gv.__all__:
        assert getattr(gv, name) is not None
        assert name in dir(gv)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = gv.nothing_of_the_kind


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "src" / "geoveil" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (f"{node.module}".removeprefix("geoveil."), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert seen == {(module, name) for module, names in gv._HOMES.items() for name in names}


def test_the_package_itself_loads_nothing() -> None:
    loaded = loaded_by("import geoveil")
    assert "numpy" not in loaded
    assert not {name for name in loaded if name.startswith("geoveil.")}


def test_a_device_loads_neither_estimation_nor_optimisation() -> None:
    loaded = loaded_by("from geoveil.client import Device")
    heavy = ("estimate", "optimal", "campaign", "release", "table", "server", "verify")
    assert not loaded & {f"geoveil.{package}" for package in heavy}
