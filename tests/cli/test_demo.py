"""``geoveil demo`` and the simulated city behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from email.message import Message
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError

import numpy as np
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli import demo
from geoveil.cli.program import program
from geoveil.demo import LocalCollector, Story, simulated_city, tell
from geoveil.demo import story as story_module
from geoveil.demo.city import DISTRICTS, RIVER_HALF_WIDTH_KM, draw, river_north_km
from geoveil.demo.story import CollectorFailed, Released, made_again
from geoveil.document.saved import load_mechanism
from geoveil.randomness import seeded
from geoveil.table.results import read_result
from sentences import check

pytest.importorskip("matplotlib")
pytest.importorskip("ot")


@pytest.fixture(scope="module")
def story() -> Story:
    """On 88 cells: closing a round of the 486 of the demo takes several times as long."""
    with pytest.MonkeyPatch.context() as patch, LocalCollector() as collector:
        patch.setattr(story_module, "simulated_city", partial(simulated_city, cell_km=1.25))
        return tell(collector, people=20_000, rounds=2, randomness=seeded(3))


@pytest.fixture(scope="module")
def told(story: Story) -> Iterator[None]:
    """The command tells this story, without a collector."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "tell", lambda *_, **__: story)
        patch.setattr(
            demo, "LocalCollector", lambda log: nullcontext(SimpleNamespace(troubled=False))
        )
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def run(told: None, folder: Path) -> Result:
    """Without ``--once`` and without a terminal, where it ends by itself."""
    return CliRunner().invoke(program, ["demo", "--output", str(folder)])


@pytest.mark.slow
def test_the_whole_city_comes_back() -> None:
    with LocalCollector() as collector:
        story = tell(collector, people=20_000, rounds=3, randomness=seeded(3))
    comes_back(story, rounds=3)


def test_the_map_comes_back(story: Story) -> None:
    comes_back(story, rounds=2)


def comes_back(story: Story, *, rounds: int) -> None:
    assert story.certificate.holds
    assert story.certificate.epsilon_per_km <= 2.0
    assert story.audit.passed
    assert story.devices == 20 * rounds
    assert [document.round for document in story.documents] == list(range(1, rounds + 1))
    assert story.estimated_error_km < 0.75 * story.reported_error_km
    assert story.rounds[-1].estimated_error_km < story.rounds[0].estimated_error_km
    assert all(told.certificate.holds for told in story.rounds)
    for place in story.districts():
        assert abs(place.estimated_share - place.true_share) < 0.03, place.name


def test_the_summary_is_in_plain_words(run: Result) -> None:
    assert run.exit_code == 0, run.output
    for words in (
        "20,000 people",
        "40 of them through a device",
        "could have sent the same report",
        "between any two positions",
        "holds",
        "Old Town",
        "city.png",
    ):
        assert words in run.stdout
    for heading in ("round ", "district "):  # as far in as the sentences
        assert f"\n  {heading}" in run.stdout


@pytest.mark.usefixtures("run")
def test_the_files_are_what_they_say(story: Story, folder: Path) -> None:
    assert (folder / "city.png").read_bytes().startswith(b"\x89PNG")
    assert load_mechanism(folder / "mechanism.json").guarantee is not None
    cells = json.loads((folder / "estimate.geojson").read_text())["features"]
    assert sum(cell["properties"]["share"] for cell in cells) == pytest.approx(1.0)
    found = read_result(str(folder / "estimate.geojson"))
    assert found.space == story.city.grid
    np.testing.assert_allclose(found.share, story.estimate.distribution, rtol=1e-12)
    np.testing.assert_allclose(found.high, story.estimate.interval(0.95)[1], rtol=1e-12)


def test_what_it_says_about_privacy_is_true(run: Result, story: Story) -> None:
    """Promise 39, in the summary and in the picture."""
    (said,) = check(run.stdout, story.mechanism)
    assert not said.in_cells
    spent = "Every person has spent at most ε = 2 per km and 0.015 for rounding, in one report."
    assert spent in " ".join(run.stdout.split())
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = draw(story)
    footer = figure.texts[-1]
    assert check(footer.get_text(), story.mechanism) == [said]
    shown = footer.get_window_extent(FigureCanvasAgg(figure).get_renderer())
    assert shown.x1 < figure.bbox.x1
    assert shown.y0 > 0
    assert shown.y1 < figure.axes[0].get_window_extent().y0


@pytest.mark.usefixtures("told")
def test_the_json_form(tmp_path: Path, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_save", lambda *_: {})  # the files are those of every other form
    result = CliRunner().invoke(
        program, ["demo", "--once", "--json", "--output", str(tmp_path / "two")]
    )
    values = json.loads(result.stdout)
    assert values["people"] == 20_000
    assert check(f"{values['explanation']} {values['spent']}", story.mechanism)
    assert len(values["districts"]) == len(DISTRICTS)


def test_the_city_is_the_same_for_the_same_seed_and_keeps_dry() -> None:
    first, again, other = (simulated_city(people=3000, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.lat, again.lat)
    assert not np.array_equal(first.lat, other.lat)
    east, north = first.grid.plane.to_plane(lat=first.lat, lng=first.lng).T
    assert (np.abs(north - river_north_km(east)) >= RIVER_HALF_WIDTH_KM - 1e-6).all()


def test_districts_hold_about_their_share() -> None:
    city = simulated_city(people=40_000, seed=5)
    for place in DISTRICTS:
        share = city.distribution[city.cells_of(place)].sum()
        assert 0.55 * place.share < share < 1.6 * place.share, place.name


@pytest.fixture
def never_started() -> Iterator[LocalCollector]:
    collector = LocalCollector()
    yield collector
    collector.__exit__(None, None, None)


def test_a_slow_round_is_waited_for(
    never_started: LocalCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An estimate that takes two hours by the clock is not an error."""
    clock = [0.0]
    monkeypatch.setattr("time.sleep", lambda seconds: clock.append(clock[-1] + seconds))

    def text(path: str, body: object = None) -> str:
        if path.endswith("/estimate") and clock[-1] < 7200:
            clock.append(clock[-1] + 60)
            raise HTTPError(path, 404, "not yet", Message(), None)
        return '{"distribution": [0.25, 0.75], "rounds": [{"round": 1}]}'

    monkeypatch.setattr(never_started, "_text", text)
    released = never_started.close_round("a", 1)
    assert (released.distribution.tolist(), released.rounds) == ([0.25, 0.75], (1,))
    assert clock[-1] >= 7200


def test_an_estimate_that_keeps_failing_is_not_waited_for(
    never_started: LocalCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(path: str, body: object = None) -> str:
        if path.endswith("/estimate"):
            raise HTTPError(path, 404, "not yet", Message(), None)
        return 'geoveil_estimates_total{outcome="failed"} 3' if path == "/metrics" else "{}"

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(never_started, "_text", text)
    with pytest.raises(CollectorFailed, match="round 2 failed 3 times"):
        never_started.close_round("a", 2)


def test_a_round_that_waits_is_in_neither_map() -> None:
    line = gv.Grid(rows=1, columns=4, cell_km=1.0)
    mechanism = gv.Exponential(line, epsilon_per_km=2.0)
    tallies = [
        gv.Tally(mechanism, counts) for counts in ([90, 20, 5, 5], [5, 5, 20, 90], [80, 30, 5, 5])
    ]
    agreeing = gv.IterativeBayesianUpdate().fit([tallies[0], tallies[2]])
    released = Released(agreeing.distribution, (1, 3))
    assert made_again(tallies, released, alone=True).total == 240
    with pytest.raises(CollectorFailed, match="the one that the reports give"):
        made_again(tallies, released._replace(rounds=(1, 2, 3)), alone=True)
    assert made_again(tallies, released._replace(rounds=(1, 2, 3)), alone=False).total == 360


@pytest.mark.slow
def test_finished_rounds_are_kept_when_the_collector_dies() -> None:
    class Mortal(LocalCollector):
        def close_round(self, campaign: str, number: int) -> Released:
            if number == 2 and self._process is not None:
                self._process.kill()
                self._process.wait()
            return super().close_round(campaign, number)

    with Mortal() as collector:
        story = tell(collector, people=4000, rounds=3, randomness=seeded(3))
    assert [told.number for told in story.rounds] == [1]
    assert story.people == story.reports.size == 1334
    assert "round 2 of 3 failed" in story.problem


@pytest.mark.parametrize("trouble", ["", '{"level": "error", "event": "estimate-unfinished"}'])
def test_what_the_collector_logs_is_in_a_file_and_not_among_the_sentences(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server = tmp_path / "python"
    announced = '{"url": "http://127.0.0.1:1", "pages": false\n}'
    server.write_text(f"#!/bin/sh\nprintf '%s' '{trouble}' >&2\necho '{announced}'\nexec sleep 60")
    server.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(server))
    monkeypatch.setattr(demo, "LocalCollector", LocalCollector)
    monkeypatch.setattr(demo, "tell", lambda *_, **__: SimpleNamespace(problem=""))
    for name in ("_save", "_values", "_show"):
        monkeypatch.setattr(demo, name, lambda *_: {})
    run = CliRunner().invoke(program, ["demo", "--once", "--output", str(tmp_path / "out")])
    assert run.exit_code == 0, run.output
    log = tmp_path / "out" / "collector.log"
    assert "estimate-unfinished" not in run.output + "".join(capfd.readouterr())
    assert ("stands in" in run.stderr) == log.exists() == bool(trouble)
    assert not trouble or log.read_text() == trouble


def test_without_a_terminal_it_ends_by_itself(run: Result) -> None:
    assert run.exit_code == 0
    assert "goes on" not in run.stderr
