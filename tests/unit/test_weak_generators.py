"""No weak generator on the way of a report (promise 18).

Simulations, estimates and benchmarks may use NumPy's generator with a seed somebody chose; what makes
a person's report may not, nothing may draw without a seed, and nobody may use ``random`` at all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SCRIPTS = sorted(path for path in (ROOT / "web").rglob("*.ts") if "node_modules" not in path.parts)
SIMULATION = {
    "campaign",
    "demo",
    "estimate",
    "measure",
    "papers",
    "release",
    "verify",
}
RESAMPLING = {"flow_fit.py", "flow_map.py", "file_crowd.py"}
"""Files of other packages that draw estimates again, or a simulated crowd: never a person's report."""
SEEDED = {"Generator", "PCG64", "SeedSequence", "default_rng"}
WEAK = re.compile(r"(numpy\.)?random(\..*)?")


def weak_uses(text: str, *, simulation: bool) -> Iterator[int]:
    """Lines that use a generator they may not."""
    if not any(word in text for word in ("random", "rvs", *SEEDED)):
        return  # none of the words below: most files, of which no tree is made
    allowed = SEEDED if simulation else {"SeedSequence"}
    nodes = list(ast.walk(ast.parse(text)))
    fine = {
        id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in allowed
    }
    for node in nodes:
        if isinstance(node, ast.Import) and any(WEAK.fullmatch(name.name) for name in node.names):
            yield node.lineno
        if isinstance(node, ast.ImportFrom):
            named = node.module == "numpy" and any(name.name == "random" for name in node.names)
            if named or WEAK.fullmatch(node.module or ""):
                yield node.lineno
        if isinstance(node, ast.Attribute):
            numpy = isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")
            if (numpy and node.attr == "random" and id(node) not in fine) or node.attr == "rvs":
                yield node.lineno
        unseeded = isinstance(node, ast.Call) and not node.args and not node.keywords
        if unseeded and getattr(node.func, "attr", "") in SEEDED:
            yield node.lineno


def package(path: Path) -> str:
    return path.relative_to(ROOT / "src" / "geoveil").parts[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_weak_generator(path: Path) -> None:
    simulation = package(path) in SIMULATION | {"randomness.py"} or path.name in RESAMPLING
    assert list(weak_uses(path.read_text(encoding="utf-8"), simulation=simulation)) == []


def test_the_seeded_source_is_the_only_one_in_the_core() -> None:
    text = (ROOT / "src/geoveil/randomness.py").read_text(encoding="utf-8")
    (seeded,) = (n for n in ast.parse(text).body if getattr(n, "name", "") == "SeededRandomness")
    lines = set(weak_uses(text, simulation=False))
    assert lines
    assert all(seeded.lineno <= line <= seeded.end_lineno for line in lines)


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "from random import gauss",
        "import numpy.random as r",
        "from numpy.random import default_rng",
        "from numpy import random",
        "np.random.default_rng()",
        "np.random.rand(3)",
        "np.random.seed(1)",
        "norm.rvs(3)",
    ],
)
def test_a_weak_generator_is_noticed(line: str) -> None:
    assert list(weak_uses(line, simulation=True))
    assert list(weak_uses(line, simulation=False))


def test_a_seed_is_for_simulations_only() -> None:
    assert not list(weak_uses("np.random.default_rng(7).random()", simulation=True))
    assert list(weak_uses("np.random.default_rng(7)", simulation=False))


def test_pages_and_sdk_use_the_cryptographic_generator() -> None:
    assert [path for path in SCRIPTS if "Math.random" in path.read_text(encoding="utf-8")] == []
