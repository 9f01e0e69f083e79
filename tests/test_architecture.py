"""A package imports only from those above it in docs/architecture.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "geoveil"
IMPORTS = re.compile(r"^ *(?:from|import) geoveil\.(\w+)", re.MULTILINE)
"""Every import stands on a line of its own: the formatter sees to that."""
TABLE = re.compile(r"^\| (?P<names>`[^|]+`) \|", re.MULTILINE)


def declared() -> list[str]:
    """The packages in the order of the page; several in one row stand side by side."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return [name for row in TABLE.findall(page) for name in re.findall(r"`(\w+)`", row)]


def imported(path: Path) -> set[str]:
    """Top-level packages of geoveil that a module imports, wherever in the module."""
    return set(IMPORTS.findall(path.read_text(encoding="utf-8")))


def packages() -> dict[str, list[Path]]:
    modules: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if not package.startswith("__"):
            modules.setdefault(package, []).append(path)
    return modules


def test_every_package_is_on_the_page() -> None:
    assert set(packages()) == set(declared())


def test_imports_go_upwards_only() -> None:
    order = {name: place for place, name in enumerate(declared())}
    wrong = [
        f"{path.relative_to(SOURCE)} imports {other}"
        for package, paths in packages().items()
        for path in paths
        for other in imported(path)
        if other != package and order[other] > order[package]
    ]
    assert not wrong


def test_the_check_sees_imports() -> None:
    assert {"channel", "space"} <= imported(SOURCE / "mechanism" / "elastic.py")


def test_every_file_on_the_page_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+(?:/\w+)?\.py)`", page))
    assert len(named) > 25
    assert not [name for name in named if not (SOURCE / name).is_file()]
