"""Every file that the product writes is read back by the command or function that should read it.

Spaces come back equal, numbers to the last digits. The demo's estimate is read back in ``test_demo.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from click.testing import Result as Run

import geoveil as gv
from flow_files import read_flows
from geoveil.cli.program import COMMANDS, program
from geoveil.document.saved import save_mechanism
from geoveil.errors import Unsupported
from geoveil.mechanism import MECHANISMS
from geoveil.server.map_files import rendered
from geoveil.server.problem import VIEWS
from geoveil.table.count_table import read_counts
from geoveil.table.reader import open_table
from geoveil.table.results import Result, read_result, write_result
from geoveil.table.tallies import load_tally, save_tally
from server.rounds_support import City, campaign_settings

BOX = ["--box", "48.83,2.28,48.85,2.31"]
GRID = gv.Grid.from_box(south=48.83, west=2.28, north=48.85, east=2.31, cell_km=0.5)
PROMISE = ["--epsilon-per-km", "3"]
TABLES = ("csv", "csv.gz", "parquet", "geojson", "json")

WRITERS = {
    "obfuscate": {"output", "save_mechanism"},
    "tally": {"output"},
    "estimate": {"output"},
    "flows": {"output"},
    "design": {"output"},
    "release": {"output", "personal"},
    "demo": {"output"},
    # points for the service, which takes them in the tests of its own
    "hexagons": {"output"},
    # a copy of a database, pages and figures of papers: see their own tests
    "backup": {"target"},
    "reproduce": {"out"},
}
"""Each command that writes files, and the parameters that name them (pictures apart)."""


def run(*arguments: Any) -> Run:
    return CliRunner().invoke(program, [*map(str, arguments)])


def done(*arguments: Any) -> Run:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


def same(found: Result, expected: Result) -> None:
    assert found.space == expected.space
    assert found.description == expected.description
    for each in fields(Result):
        first, second = getattr(found, each.name), getattr(expected, each.name)
        if isinstance(second, np.ndarray):
            np.testing.assert_allclose(first, second, rtol=1e-14)
        elif each.name not in ("space", "description"):
            assert first is second


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports and estimates in every format, made by the commands."""
    made = tmp_path_factory.mktemp("files")
    places = np.random.default_rng(1).normal([48.84, 2.295], [0.003, 0.004], (300, 2))
    np.savetxt(made / "places.csv", places, delimiter=",", header="lat,lng", comments="")
    for ending in TABLES:
        done("obfuscate", made / "places.csv", "-o", made / f"noisy.{ending}", *PROMISE, *BOX,
             "--seed", 1, "--save-mechanism", made / "mechanism.json")  # fmt: skip
    for ending in TABLES:
        done("estimate", made / "noisy.parquet", "-o", made / f"estimate.{ending}")
    done("tally", made / "places.csv", "-o", made / "tally.json", *PROMISE, *BOX, "--seed", 1)
    return made


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the service answers to GET /api/campaigns/{id}/estimate, in every format."""
    city = City(campaign_settings())
    city.report(500)
    city.campaigns.close("paris")
    city.work()
    made = tmp_path_factory.mktemp("exports")
    for ending in VIEWS:
        body = city.campaigns.estimate("paris").body
        (made / f"estimate.{ending}").write_bytes(rendered(ending, body))
    return made


def test_no_command_writes_files_that_nobody_reads_back() -> None:
    """A new option that names a file to write belongs into ``WRITERS``, and into a test here."""
    names = {"output", "out", "target", "save_mechanism", "personal"}
    for name in COMMANDS:
        _, command, _ = program.resolve_command(click.Context(program), [name])
        assert command is not None
        found = {str(each.name) for each in command.params} & names
        assert found == WRITERS.get(name, set()), name


@pytest.mark.parametrize("ending", TABLES)
def test_reports_are_estimated_as_they_are(folder: Path, ending: str, tmp_path: Path) -> None:
    done("estimate", folder / f"noisy.{ending}", "-o", tmp_path / "again.csv")
    same(read_result(str(tmp_path / "again.csv")), read_result(str(folder / "estimate.csv")))


@pytest.fixture(scope="module")
def flows(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """What is read from a file of flows with this ending, made of reports with the same."""
    places, here = read_table(folder / "places.csv"), tmp_path_factory.mktemp("flows")
    trips = np.hstack([places[:150], places[150:]])
    names = "lat,lng,to_lat,to_lng"
    np.savetxt(here / "trips.csv", trips, delimiter=",", header=names, comments="")

    @cache
    def made(ending: str) -> Any:
        noisy, target = here / f"noisy.{ending}", here / f"flows.{ending}"
        done("obfuscate", here / "trips.csv", "--trips", "-o", noisy, *PROMISE, *BOX, "--seed", 1)
        done("flows", noisy, "-o", target, "--replicates", 3)
        return read_flows(str(target))

    return made


@pytest.mark.parametrize("ending", TABLES)
def test_flows_are_read_back_as_they_were(flows: Callable[[str], Any], ending: str) -> None:
    found, expected = flows(ending), flows("geojson" if ending == "parquet" else "parquet")
    assert found.names == expected.names
    assert found.description == expected.description
    for each in ("share", "standard_error", "low", "high", "latlng"):
        np.testing.assert_allclose(getattr(found, each), getattr(expected, each), rtol=1e-14)
    assert found.share.sum() == pytest.approx(1.0)


def read_table(path: Path) -> Any:
    return np.loadtxt(path, delimiter=",", skiprows=1)


@pytest.mark.parametrize("ending", TABLES)
def test_estimates_are_priors_and_are_evaluated(folder: Path, ending: str, tmp_path: Path) -> None:
    estimate, target = folder / f"estimate.{ending}", tmp_path / "mechanism.json"
    same(read_result(str(estimate)), read_result(str(folder / "estimate.parquet")))
    assert read_result(str(estimate)).space == GRID
    assert not done("design", "--prior", estimate, "-o", target, *PROMISE).stderr
    assert getattr(gv.load_mechanism(target), "space", None) == GRID
    for truth in (folder / "places.csv", estimate):
        assert "95 % intervals" in done("evaluate", estimate, "--truth", truth).stdout
    assert "as in the prior" in done("audit", target, "--prior", estimate, "--draws", 1000).stdout


@pytest.mark.parametrize("ending", VIEWS)
def test_estimates_of_the_service_are_read_like_our_own(
    exports: Path, ending: str, tmp_path: Path
) -> None:
    estimate, target = exports / f"estimate.{ending}", tmp_path / "mechanism.json"
    kept = json.loads((exports / "estimate.json").read_text())
    found = read_result(str(estimate))
    assert found.space == gv.Grid.from_dict(kept["space"])
    np.testing.assert_allclose(found.share, kept["distribution"], rtol=1e-14)
    np.testing.assert_allclose(found.high, kept["interval"]["high"], rtol=1e-14)
    same(found, read_result(str(exports / "estimate.json")))
    done("design", "--prior", estimate, "-o", target, *PROMISE)
    done("audit", target, "--prior", estimate, "--draws", 1000)
    assert "95 % intervals" in done("evaluate", estimate, "--truth", estimate).stdout


@pytest.mark.parametrize(
    "order", [("features", "geoveil", "type"), ("geoveil", "features", "type")]
)
def test_the_order_of_members_does_not_matter(
    folder: Path, order: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("estimate", "noisy"):
        values = json.loads((folder / f"{name}.geojson").read_text())
        (tmp_path / f"{name}.geojson").write_text(json.dumps({key: values[key] for key in order}))
    same(
        read_result(str(tmp_path / "estimate.geojson")),
        read_result(str(folder / "estimate.geojson")),
    )
    done("estimate", tmp_path / "noisy.geojson", "-o", tmp_path / "again.csv")
    same(read_result(str(tmp_path / "again.csv")), read_result(str(folder / "estimate.csv")))


MAPPED = [GRID, gv.Points(lat=[48.83912345678901, 48.84], lng=[2.29, 2.3000000000000003])]
UNMAPPED = [
    gv.Points(xy_km=[[0.1, 0.2], [3.0, 4.0]]), gv.Grid(rows=1, columns=2, cell_km=0.1), gv.Line(2)
]  # fmt: skip


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("space", [*MAPPED, *UNMAPPED], ids=repr)
def test_every_space_comes_back_equal(space: Any, ending: str, tmp_path: Path) -> None:
    share = np.random.default_rng(2).dirichlet(np.ones(space.size))
    error = np.r_[np.inf, np.full(space.size - 1, 1 / 3)]
    result = Result(
        space, share, error, share / 3, (share + 1) / 2, np.arange(space.size), {"about": "ε"}
    )
    path = str(tmp_path / f"result.{ending}")
    if space in UNMAPPED and ending.endswith("json"):
        with pytest.raises(Unsupported, match="has no map"):
            write_result(path, result)
        assert not list(tmp_path.iterdir())
        return
    write_result(path, result)
    same(read_result(path), result)


def test_tallies_mechanisms_and_collections_come_back(folder: Path, tmp_path: Path) -> None:
    tally = load_tally(str(folder / "tally.json"))
    save_tally(tally, tmp_path / "tally.json.gz")
    again = load_tally(str(tmp_path / "tally.json.gz"))
    assert again.channel == tally.channel == gv.load_mechanism(folder / "mechanism.json")
    assert again.counts.tolist() == tally.counts.tolist()
    assert tally.space == GRID
    collection = gv.Campaign(GRID, epsilon_per_km=2.0)
    mechanism = collection.mechanism
    collection.receive(mechanism.tally(mechanism.sample(np.arange(GRID.size))))
    collection.close_round()
    collection.save(tmp_path / "collection.json")
    resumed = gv.Campaign.load(tmp_path / "collection.json")
    assert resumed.space == collection.space
    assert resumed.to_dict() == collection.to_dict()


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_is_saved_and_loaded(name: str, tmp_path: Path) -> None:
    other = {
        "randomized-response": "epsilon",
        "rappor": "epsilon",
        "disc": "epsilon",
        "linear-geometric": "epsilon_per_unit",
    }
    promise = other.get(name, "epsilon_per_km")
    space = [] if name == "continuous-laplace" else [gv.Line(4) if name[:4] == "line" else GRID]
    made = MECHANISMS[name](*space, **{promise: 2.0})
    save_mechanism(made, tmp_path / "mechanism.json")
    assert gv.load_mechanism(tmp_path / "mechanism.json") == made


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_released_counts_are_a_table_of_counts(ending: str, tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("place,8h,9h\npark,2,1\nstation,1,2\n")
    (tmp_path / "prior.csv").write_text("place,share\npark,0.4\nstation,0.6\n")
    released, personal = tmp_path / f"released.{ending}", tmp_path / f"personal.{ending}"
    done("release", tmp_path / "counts.csv", "--prior", tmp_path / "prior.csv", "--multiplier", 1,
         "-o", released, "--personal", personal)  # fmt: skip
    found = read_counts(str(released))
    assert (found.places, found.timestamps) == (("park", "station"), ("8h", "9h"))
    assert found.counts.sum(axis=1).tolist() == [3, 3]
    with open_table(str(personal)) as reader:
        assert reader.columns == ["person", "leakage_bits", "unknown_before_bits"]
    done("release", released, "--prior", tmp_path / "prior.csv", "--multiplier", 1, "-o",
         tmp_path / "again.csv")  # fmt: skip


def test_common_readers_read_our_csv(folder: Path) -> None:
    """The document that it carries is a column of its own."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(folder / "estimate.csv", dtype=str)  # or it may round
    expected = read_result(str(folder / "estimate.csv"))
    np.testing.assert_allclose([*map(float, frame["share"])], expected.share, rtol=1e-14)
    assert frame["geoveil"].notna().tolist() == [True] + [False] * (GRID.size - 1)
    frame.sort_values("share").to_csv(folder / "sorted.csv", index=False)
    same(read_result(str(folder / "sorted.csv")), expected)


@pytest.mark.parametrize(
    "line",
    [
        "obfuscate a.csv --epsilon-per-km 1 --within f.json -o f.json",
        "obfuscate a.csv --epsilon-per-km 1 --within f.json -o b.csv --save-mechanism f.json",
        "tally a.csv --epsilon-per-km 1 --within f.json -o f.json",
        "estimate a.csv --mechanism f.json -o f.json",
        "estimate a.csv --zones f.json -o f.json",
        "estimate a.csv --zones b.json --within f.json -o f.json",
        "flows a.csv --mechanism f.json -o f.json",
        "flows a.csv --zones f.json -o f.json",
        "design --prior a.csv --epsilon-per-km 1 --within f.json -o f.json",
        "hexagons f.json --resolution 7 -o f.json",
    ],
)
def test_no_command_writes_over_a_file_that_it_reads(line: str) -> None:
    result = run(*line.split())
    assert result.exit_code == 2
    assert "(f.json) must not be the same file as f.json" in result.stderr


@pytest.mark.parametrize(
    "asked",
    [
        ["audit", "-", "--prior", "-"],
        ["estimate", "-", "-o", "map.csv", "--mechanism", "-"],
        ["flows", "-", "-o", "flows.csv", "--mechanism", "-"],
        ["evaluate", "-", "--truth", "-"],
        ["obfuscate", "-", "-o", "noisy.csv", "--mechanism", "-"],
        ["release", "-", "--prior", "-", "--multiplier", "1"],
    ],
)
def test_only_one_file_can_be_the_pipe(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(program, asked, input="{}")
    assert run.exit_code == 2
    assert "only one input can come from a pipe; name a file for the other" in run.stderr
