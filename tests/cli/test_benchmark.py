"""``geoveil benchmark``: figures beside yardsticks; nothing here is a timed test."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import numpy as np
import pytest
from click.testing import CliRunner

from geoveil.benchmark import BENCHMARKS, Figure, markdown
from geoveil.benchmark.products import bare_transforms, both_products
from geoveil.benchmark.sampling import bare_laplace, bare_lattice, bare_response
from geoveil.benchmark.timing import best_of, duration, ratio, slope
from geoveil.cli.program import program
from geoveil.mechanism import PlanarGeometric
from geoveil.space import Grid


def two_figures() -> Iterator[Figure]:
    yield Figure("quick thing", 0.5, 2.0, "×", 2.5, "bare", 0.25)
    yield Figure("slow thing", 90.0, 90.0, "s", 60.0)


@pytest.fixture
def only_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(BENCHMARKS):
        monkeypatch.delitem(BENCHMARKS, name)
    monkeypatch.setitem(BENCHMARKS, "two", two_figures)


@pytest.mark.usefixtures("only_two")
def test_the_table_the_json_and_the_markdown() -> None:
    table = CliRunner().invoke(program, ["benchmark"])
    assert table.exit_code == 0
    assert "quick thing" in table.stdout
    assert "MISSED" in table.stdout
    values = json.loads(CliRunner().invoke(program, ["benchmark", "two", "--json"]).stdout)
    assert [figure["met"] for figure in values["figures"]] == [True, False]
    lines = CliRunner().invoke(program, ["benchmark", "--markdown"]).stdout.splitlines()
    assert lines[0].startswith("| figure | ours |")
    assert len({line.count("|") for line in lines}) == 1


def test_unknown_benchmarks_are_refused_with_the_known_ones() -> None:
    result = CliRunner().invoke(program, ["benchmark", "speed"])
    assert result.exit_code == 2
    assert all(name in result.stderr for name in BENCHMARKS)


def test_best_of_measures_and_takes_turns() -> None:
    order: list[str] = []

    def quick() -> None:
        order.append("quick")

    def slow() -> None:
        order.append("slow")
        time.sleep(0.01)

    quick_seconds, slow_seconds = best_of(quick, slow, repeats=3)
    assert quick_seconds < 0.01 <= slow_seconds
    assert order == ["quick", "slow"] * 4


def test_figures_of_each_kind() -> None:
    assert (
        ratio(
            "a", lambda: time.sleep(0.02), "b", lambda: time.sleep(0.01), limit=9, repeats=2
        ).value
        > 1
    )
    assert duration("a", lambda: time.sleep(0.01), limit=1).met
    works = (lambda: time.sleep(0.01), lambda: time.sleep(0.1))
    linear = slope("a", works, "bare", works, growth=10, limit=1.5, repeats=2)
    assert 0.8 < linear.value < 1.2
    assert "MISSED" in markdown([Figure("x", 1.0, 3.0, "×", 2.0)])


def test_the_yardsticks_do_what_they_say() -> None:
    generator = np.random.default_rng(1)
    lat, lng = bare_laplace(np.full(10**5, 48.0), np.full(10**5, 2.0), 2.0, generator)
    distance = np.hypot((lat - 48.0) * 111.2, (lng - 2.0) * 111.2 * np.cos(np.radians(48)))
    assert abs(distance.mean() - 1.0) < 0.02  # 2/ε
    cells = np.full(10**5, 7)
    reports = bare_response(cells, 10, 1.0, generator)
    assert abs((reports == 7).mean() - np.e / (9 + np.e)) < 0.01
    assert set(reports.tolist()) == set(range(10))
    lattice = bare_lattice(np.full(1000, 55), 10, 1.0, generator)
    assert lattice.min() >= 0
    assert lattice.max() < 100
    bare_transforms(8)()
    both_products(PlanarGeometric(Grid(rows=4, columns=5, cell_km=0.5), epsilon_per_km=2.0))()
