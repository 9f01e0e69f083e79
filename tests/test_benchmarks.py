"""The benchmarks: figures beside yardsticks; nothing here is a timed test."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks import choosing, peer_timings, peers, timing
from benchmarks.__main__ import BENCHMARKS, TEXTS, main
from benchmarks.choices import City
from benchmarks.core import (
    bare_laplace,
    bare_lattice,
    bare_response,
    bare_transforms,
    both_products,
    kernel_transforms,
)
from benchmarks.country import country
from benchmarks.design import design_step, plain_iteration, update_step, whole_program
from benchmarks.engines import bare_group, city_mechanism, write_rows
from benchmarks.estimation import bare_rappor, best_stop_km
from benchmarks.growth import Growth, draw, growths, table
from benchmarks.local_privacy import subset_chances, subsets
from benchmarks.maps import Positions, _Cusp
from benchmarks.page import put
from benchmarks.timing import (
    Figure,
    Inside,
    best_of,
    city_prior,
    duration,
    faster,
    markdown,
    ratio,
    share,
    slope,
)

from geoveil.campaign import blahut_arimoto
from geoveil.channel.channel import Tally
from geoveil.engine.part_reports import tally_file
from geoveil.estimate import IterativeBayesianUpdate, Steps
from geoveil.mechanism import PlanarGeometric
from geoveil.optimal import optimal_mechanism
from geoveil.papers.data import Cut
from geoveil.papers.privic_cycles import PublishedCampaign
from geoveil.randomness import seeded
from geoveil.space import Grid
from geoveil.table.locations import Reading


def two_figures() -> Iterator[Figure]:
    yield Figure("quick thing", 0.5, 2.0, "×", 2.5, "bare", 0.25)
    yield Figure("slow thing", 90.0, 90.0, "s", 60.0)


@pytest.fixture
def only_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.__main__.BENCHMARKS", {"two": two_figures})
    monkeypatch.setattr("benchmarks.__main__.TEXTS", {})


@pytest.mark.usefixtures("only_two")
def test_the_table_and_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1, "a line is missed"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| figure | ours |")
    assert "quick thing" in lines[2]
    assert "MISSED" in lines[3]
    assert len({line.count("|") for line in lines}) == 1
    main(["two", "--json"])
    values = json.loads(capsys.readouterr().out)
    assert [figure["met"] for figure in values["figures"]] == [True, False]


@pytest.mark.usefixtures("only_two")
def test_a_set_is_written_into_its_part_of_the_page_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    above, below = "# Speed\n\n## Figures\n\nAll.\n\n### `two`\n\n", "\n\n### `three`\n\nkept\n"
    page.write_text(f"{above}old{below}")
    main(["two", "--page", str(page)])
    written = page.read_text()
    assert written.startswith(above)
    assert written.endswith(below)
    when, table = written.removeprefix(above).removesuffix(below).split("\n\n")
    assert "NumPy" in when
    assert table == capsys.readouterr().out.rstrip()
    put(page, "one", "first", ["one", "two", "three"])
    put(page, "two", "new", ["one", "two", "three"])
    assert page.read_text().split("## Figures\n\n")[1] == (
        "All.\n\n### `one`\n\nfirst\n\n### `two`\n\nnew\n\n### `three`\n\nkept\n"
    )
    page.write_text("# Speed\n")
    with pytest.raises(ValueError, match="must have the heading '## Figures'"):
        put(page, "two", "new", ["two"])


def test_the_page_of_the_documentation_has_sets_that_can_be_measured_again() -> None:
    page = Path(__file__).parent.parent / "docs" / "benchmarks.md"
    figures = page.read_text(encoding="utf-8").split("## Figures\n")[1]
    headings = re.findall("^### `(.*)`$", figures, re.MULTILINE)
    assert headings == [name for name in [*TEXTS, *BENCHMARKS] if name in headings], "in order"
    assert len(headings) >= 10


def test_growth_is_told_by_its_exponent_and_drawn(tmp_path: Path) -> None:
    found = [Growth("work", (10, 1000), (0.25, 25.0)), Growth("more", (4, 16, 64), (2.0, 4.0, 4.0))]
    rows = table(found).splitlines()[2:]
    assert rows[:2] == ["| work | 10 | 250 ms |  |", "| work | 1,000 | 25 s | cells^1.00 |"]
    assert [row.split(" | ")[-1] for row in rows[3:]] == ["cells^0.50 |", "cells^0.00 |"]
    draw(found, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 5000


@pytest.mark.slow
def test_growth_is_measured_at_every_size() -> None:
    for each in growths(0.08):
        assert len(each.cells) > 1
        assert list(each.cells) == sorted(set(each.cells))
        assert min(each.seconds) > 0


def test_a_country_is_estimated_with_progress_in_the_memory_of_some_vectors() -> None:
    seen = country(256, steps=2)
    assert seen.told == 3, "the start and every step"
    assert min(seen.step_s, seen.transforms_s) > 0
    assert seen.before_gib <= seen.most_gib
    assert seen.vector_gib == 256**2 * 8 / 2**30
    assert seen.transform_gib == pytest.approx(4 * seen.vector_gib, rel=0.02)


def test_unknown_benchmarks_are_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["speed"])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert all(name in said for name in BENCHMARKS)


class Clock:
    """A clock that only work moves on: no figure of a test depends on the machine."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, [""]

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float, name: str = "") -> Callable[[], None]:
        def done() -> None:
            self.now += seconds
            self.order.append(name)

        return done


def test_best_of_measures_and_takes_turns() -> None:
    clock = Clock()
    works = clock.work(0.25, "quick"), clock.work(2.0, "slow")
    assert best_of(*works, repeats=3, clock=clock) == [0.25, 2.0]
    assert clock.order[1:] == ["quick", "slow"] * 4
    brief = clock.work(1 / 256)
    assert best_of(brief, repeats=2, clock=lambda: math.floor(64 * clock()) / 64) == [1 / 256]


def test_figures_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(timing, "best_of", partial(best_of, clock=clock))
    twice = ratio("a", clock.work(2.0), "b", clock.work(1.0), limit=9, repeats=2)
    assert twice.value == 2.0
    assert duration("a", clock.work(0.5), limit=1).met
    works = clock.work(0.125), clock.work(1.25)
    linear = slope("a", works, "bare", works, growth=10, limit=1.5, repeats=2)
    assert linear.value == pytest.approx(1.0)
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


def test_figures_that_must_reach_a_line() -> None:
    quick = faster("a", time.time, "b", lambda: time.sleep(0.01), limit=5, scale=3)
    assert quick.met
    assert quick.yardstick_seconds is not None
    assert quick.yardstick_seconds >= 0.03
    assert "≥ 5 × faster" in quick.cells()
    assert not Figure("x", 1.0, 79.0, "%", 80.0, at_least=True).met
    assert Figure("x", 1.0, 5000.0, "×", 6000.0).cells()[4:6] == ("5,000 ×", "≤ 6,000 ×")


def test_time_inside_functions_is_counted_and_they_are_put_back() -> None:
    module = SimpleNamespace(work=lambda: sum(range(300_000)))
    kept = module.work

    def through() -> int:
        return int(module.work())

    figure = share("a", through, Inside(module, ["work"]), "bare", kept, limit=50)
    assert module.work is kept
    assert 0 < figure.value <= 100.1
    outside = share("a", kept, Inside(module, ["work"]), "bare", kept, limit=50)
    assert outside.value == 0


def test_nested_loops_make_the_same_steps_as_the_library() -> None:
    grid = Grid(rows=3, columns=4, cell_km=0.5)
    prior, flat = city_prior(grid), [1 / 12] * 12
    weights = design_step(flat, prior.tolist(), grid.distances_km().tolist(), 1.0)
    design = blahut_arimoto(grid, prior, beta_per_km=1.0, stop=Steps(1))
    np.testing.assert_allclose(weights, design.weights, rtol=1e-12)
    counts = np.arange(1, 13)
    theta = update_step(flat, (counts / counts.sum()).tolist(), design.matrix().tolist())
    fitted = IterativeBayesianUpdate(stop=Steps(1)).fit(Tally(design, counts))
    np.testing.assert_allclose(theta, fitted.distribution, rtol=1e-12)
    plain, certificate = plain_iteration(np.exp(-grid.distances_km()), prior, 1e-3)
    assert abs(plain.sum() - 1) < 1e-9
    assert certificate <= 1e-3


def test_the_yardsticks_of_estimation_do_what_they_say() -> None:
    generator = np.random.default_rng(1)
    cells = generator.choice(5, 10**5, p=[0.5, 0.3, 0.2, 0.0, 0.0])
    np.testing.assert_allclose(
        bare_rappor(cells, 5, 2.0, generator), [0.5, 0.3, 0.2, 0, 0], atol=0.02
    )
    grid = Grid(rows=3, columns=4, cell_km=0.5)
    truth = city_prior(grid)
    mechanism = PlanarGeometric(grid, epsilon_per_km=4.0)
    tally = Tally(mechanism, generator.multinomial(10**5, mechanism.push(truth)))
    assert 0 < best_stop_km(tally, truth) < 0.1
    kernel_transforms(8, 2)()


def test_the_whole_program_has_the_optimum_of_the_optimal_mechanism() -> None:
    grid = Grid(rows=2, columns=4, cell_km=1.0)
    prior = city_prior(grid)
    best = optimal_mechanism(grid, prior, epsilon_per_km=0.8).optimality.expected_loss
    assert whole_program(grid, prior, 0.8) == pytest.approx(best, rel=1e-7)


def test_the_yardstick_of_discs_is_subset_selection() -> None:
    people, size, epsilon = np.repeat([0, 3], 20_000), 8, 1.0
    vectors, chosen = subsets(people, size, epsilon, seeded(3))
    assert (vectors.sum(axis=1) == chosen).all()
    stays, other = subset_chances(size, chosen, epsilon)
    # any subset with the own cell is e^ε times as likely as any without
    with_own, without = math.comb(size - 1, chosen - 1), math.comb(size - 1, chosen)
    assert (stays / with_own) / ((1 - stays) / without) == pytest.approx(math.e)
    seen = vectors[:20_000].mean(axis=0)
    assert seen[0] == pytest.approx(stays, abs=0.02)
    np.testing.assert_allclose(seen[1:], other, atol=0.02)


def test_the_yardstick_of_maps_keeps_its_promise_and_finer_maps_are_put_together() -> None:
    generator = np.random.default_rng(1)
    grid = Grid(rows=3, columns=4, cell_km=1.0)
    law = _Cusp(grid, 0.7, generator.gamma(0.5, size=12) + 0.01)
    one, other = (generator.uniform(-2, 2, (200, 2)) for _ in range(2))
    ratios = np.abs(np.log(law.rows(one) / law.rows(other))).max(axis=1)
    assert (ratios <= 1.4 * np.linalg.norm(one - other, axis=1)).all()
    np.testing.assert_allclose(law.matrix().sum(axis=1), 1.0)
    drawn = law.drawn(np.tile(one[:1], (20_000, 1)), generator)
    share = np.bincount(drawn, minlength=12) / 20_000
    assert np.abs(share - law.rows(one[:1])[0]).max() < 0.02
    cut = Cut("here", "none", 0.0, 0.0, 1.0, 1.0, 3, 4)
    places = generator.uniform(0, (4, 3), (500, 2))
    people = Positions(PublishedCampaign(cut, 2, 2, 2), places)
    column, row = (2 * places).astype(int).T
    finer = np.bincount(row * 8 + column, minlength=48) / 500
    assert people.error(finer) == pytest.approx(0.0, abs=1e-12)
    assert people.error(people.truth[::-1]) > 0.0
    corner = people.in_plane(people.grid(2), np.arange(500)) - people.grid(2).centres[0]
    np.testing.assert_allclose(corner, places - 0.25)
    crowded = Positions(people.published, np.repeat(places[:40], 500, axis=0))
    (untold,) = crowded.errors(2.0, 0.0, 1, seeds=1)
    stopped, best = crowded.told(2.0, seed=0)
    assert best <= 1.2 * stopped  # only every twentieth step is looked at
    assert stopped < untold  # what it was told is true, and helps


def test_the_yardstick_of_engines_counts_every_row_on_the_map(tmp_path: Path) -> None:
    write_rows(tmp_path / "people.parquet", 5000)
    counts = bare_group(str(tmp_path / "people.parquet"), 0)
    assert 4900 < counts.sum() <= 5000
    people, _ = tally_file(str(tmp_path / "people.parquet"), Reading(), city_mechanism())
    assert people.total == counts.sum()


def test_every_way_of_the_page_of_choices_makes_a_map() -> None:
    grid = Grid(rows=4, columns=5, cell_km=0.5)
    cells = np.random.default_rng(1).choice(grid.size, 4000, p=city_prior(grid))
    town = City("town", grid, cells)
    knowing = choosing.error_m(town, np.full(grid.size, 1 / grid.size))
    errors = {}
    for name, way in choosing.ways().items():
        shares = way(town, 50_000, np.random.default_rng(2))
        assert shares.min() >= 0
        assert shares.sum() == pytest.approx(1.0)
        errors[name] = choosing.error_m(town, shares)
    assert max(errors.values()) < knowing
    assert errors["trusted server, exact counts"] < errors["randomised response, ε = 1"] / 5
    lines = list(choosing.table(town, 1, only="exact"))
    assert lines[-2].startswith("| trusted server, exact counts |")


def test_noise_of_counts_is_that_of_the_promise() -> None:
    """Who moves changes two counts by one: the law of both together changes by e^ε at most."""
    grid = Grid(rows=100, columns=100, cell_km=0.5)
    town = City("town", grid, np.arange(grid.size))
    generator = np.random.default_rng(1)
    stop = -np.expm1(-1.0 / 2)
    noise = np.subtract(*generator.geometric(stop, (2, 10**6)))
    ratios = np.bincount(noise[noise >= 0])[:4]
    np.testing.assert_allclose(ratios[1:] / ratios[:-1], np.exp(-0.5), rtol=0.02)
    assert choosing.noisy_counts(1.0)(town, 10**6, generator).shape == (grid.size,)


def test_peers_stand_beside_the_same_work() -> None:
    measured = {
        "one": {"version": "1", "response_seconds": 5.0, "rappor_seconds": 5.0},
        "two": {"version": "2", "information_seconds": 5.0, "information_bits": 2.5858304916},
        "gone": {"missing": "ModuleNotFoundError"},
    }
    rows = list(peers.beside(measured))
    assert [row.yardstick for row in rows] == ["one 1", "one 1", "two 2"]
    assert all(row.met for row in rows)
    joint = peer_timings.information_joint()
    bits = (joint * np.log2(joint / np.outer(joint.sum(1), joint.sum(0)))).sum()
    assert bits == pytest.approx(2.5858304916)
    exact = np.exp(-np.abs(np.subtract.outer(np.arange(3), np.arange(3))))
    apart = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    assert peer_timings.matrix_epsilon(exact, apart) == pytest.approx(1.0)
    assert peer_timings.matrix_epsilon(np.eye(3), apart) == np.inf
