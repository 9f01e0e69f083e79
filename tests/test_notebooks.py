"""The notebooks run as they are: every cell, in order, in a folder of its own."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NAMES = ("researcher", "analyst", "operator")
PAGES = {"researcher": 4, "analyst": 1, "operator": 4}
"""How many cells of each show a small page."""


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return found


def run(cell: str, where: dict[str, Any]) -> Any:
    """Run a cell and give the value of its last expression, as a notebook would show it."""
    tree = ast.parse(cell)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), where)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), where)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), where)


def test_there_are_no_others() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_notebook_without_outputs(name: str) -> None:
    notebook = read(name)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert cells[0]["cell_type"] == "markdown"
    assert cells[0]["source"][0].startswith("# ")
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.usefixtures("certified_once")
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    where: dict[str, Any] = {"__name__": "__main__"}
    pages = 0
    for cell in read(name)["cells"]:
        if cell["cell_type"] != "code":
            continue
        shown = run("".join(cell["source"]), where)
        if type(shown).__module__.startswith("geoveil"):
            pages += 1
            assert "<div" in shown._repr_html_()
    assert pages == PAGES[name]
    assert capsys.readouterr().out
    for picture in tmp_path.glob("*.png"):
        assert picture.stat().st_size > 5000


@pytest.mark.parametrize("name", NAMES)
def test_what_it_links_to_exists(name: str) -> None:
    text = "".join("".join(cell["source"]) for cell in read(name)["cells"])
    targets = [part.split(")")[0] for part in text.split("](")[1:]]
    assert targets
    for target in targets:
        assert (FOLDER / target).is_file()
