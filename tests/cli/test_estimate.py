"""``geoveil estimate``: from files of reports to a distribution with error bars."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli.console import ProgressBar
from geoveil.cli.program import program
from geoveil.estimate import uncertainty
from geoveil.estimate.linear import MatrixInversion
from geoveil.table.results import read_result
from geoveil.table.tallies import load_tally, save_tally

BOX = ["--box", "48.83,2.28,48.86,2.34"]
COLUMNS = ["cell", "lat", "lng", "share", "standard_error", "low", "high", "reports"]


def run(*arguments: Any, stdin: str | None = None) -> Result:
    return CliRunner().invoke(program, [*map(str, arguments)], input=stdin)


def done(*arguments: Any) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two crowds: two thirds of the people near one place, a third near another."""
    folder = tmp_path_factory.mktemp("made")
    generator = np.random.default_rng(1)
    near = np.repeat([[48.838, 2.293], [48.853, 2.325]], [2000, 1000], axis=0)
    places = near + generator.normal(0, 0.002, near.shape)
    rows = "\n".join(f"{lat:.6f},{lng:.6f}" for lat, lng in places)
    (folder / "checkins.csv").write_text("lat,lng\n" + rows + "\n")
    promise = [
        "--mechanism",
        "planar-geometric",
        "--epsilon-per-km",
        "3",
        *BOX,
        "--seed",
        "1",
        "--outside",
        "clamp",
    ]
    for ending in ("parquet", "csv", "geojson"):
        saved = ["--save-mechanism", folder / "mechanism.json"]
        done(
            "obfuscate",
            folder / "checkins.csv",
            "-o",
            folder / f"noisy.{ending}",
            *promise,
            *saved,
        )
    done("tally", folder / "checkins.csv", "-o", folder / "tally.json",
         "--mechanism", "planar-geometric", "--epsilon-per-km", "1", *BOX,
         "--seed", "2", "--outside", "clamp")  # fmt: skip
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """Its own for every test, which may write there."""
    return copytree(made, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def library_estimate(made: Path) -> gv.Estimate:
    """The same by hand: reports counted with pyarrow, estimated with the library."""
    mechanism: Any = gv.load_mechanism(made / "mechanism.json")
    reports = pq.read_table(made / "noisy.parquet")["cell"].to_numpy()
    return gv.IterativeBayesianUpdate().fit(mechanism.tally(reports))


@pytest.mark.parametrize("ending", ["geojson", "parquet", "csv", "csv.gz"])
def test_the_file_holds_what_the_library_finds(
    folder: Path, ending: str, library_estimate: gv.Estimate
) -> None:
    done("estimate", folder / "noisy.parquet", "-o", folder / f"estimate.{ending}")
    expected = library_estimate
    found = read_result(str(folder / f"estimate.{ending}"))
    low, high = expected.interval(0.95)
    for name, values in {
        "share": expected.distribution,
        "standard_error": expected.standard_error,
        "low": low,
        "high": high,
    }.items():
        np.testing.assert_allclose(getattr(found, name), values, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("ending", ["csv", "geojson"])
def test_every_format_of_reports_gives_the_same(folder: Path, ending: str) -> None:
    mechanism = ["--mechanism", folder / "mechanism.json"] if ending == "csv" else []
    done("estimate", folder / "noisy.parquet", "-o", folder / "a.csv")
    done("estimate", folder / f"noisy.{ending}", "-o", folder / "b.csv", *mechanism)
    assert (folder / "a.csv").read_bytes() == (folder / "b.csv").read_bytes()


def test_coordinates_without_cells_are_put_in_cells(folder: Path) -> None:
    """The centres of the reported cells lie in these cells."""
    rows = (folder / "noisy.csv").read_text().splitlines()
    bare = "\n".join(row.split(",", 1)[1] for row in rows)
    (folder / "bare.csv").write_text(bare + "\n")
    mechanism = ["--mechanism", folder / "mechanism.json"]
    for name in ("noisy", "bare"):
        done("estimate", folder / f"{name}.csv", "-o", folder / f"{name}-estimate.csv", *mechanism)
    estimates = [(folder / f"{name}-estimate.csv").read_bytes() for name in ("noisy", "bare")]
    assert estimates[0] == estimates[1]


def test_geojson_has_polygons_and_says_how_it_was_found(
    folder: Path, library_estimate: gv.Estimate
) -> None:
    done("estimate", folder / "noisy.parquet", "-o", folder / "estimate.geojson")
    collection = json.loads((folder / "estimate.geojson").read_text())
    first = collection["features"][0]
    assert first["geometry"]["type"] == "Polygon"
    assert list(first["properties"]) == COLUMNS
    about = collection["geoveil"]
    assert about["reports"] == 3000
    assert about["steps"] > 0
    assert 0 < about["certificate_nats_per_report"] < 1
    assert "cross-validation" in about["stopped"]
    assert about["identifiability"] == library_estimate.identifiable.reason
    assert about["mechanisms"] == [json.loads((folder / "mechanism.json").read_text())]


def test_several_files_are_estimated_together(folder: Path) -> None:
    """GIBU: the certificate is that of the two likelihoods side by side, computed here by hand."""
    target = folder / "both.csv"
    values = json.loads(
        done("estimate", folder / "noisy.parquet", folder / "tally.json", "-o", target,
             "--stop", "certified:1e-7", "--json").stdout
    )  # fmt: skip
    assert values["reports"] == 6000
    theta = read_result(str(target)).share
    first: Any = gv.load_mechanism(folder / "mechanism.json")
    second = load_tally(str(folder / "tally.json"))
    counts = np.bincount(pq.read_table(folder / "noisy.parquet")["cell"], minlength=theta.size)
    parts = ((first.matrix(), counts), (second.channel.matrix(), second.counts))
    gradient = sum(matrix @ (seen / (theta @ matrix)) for matrix, seen in parts) / 6000
    assert np.log(gradient.max()) < 2e-7
    assert gv.total_variation(theta, np.full(theta.size, 1 / theta.size)) > 0.1


def test_inversion(folder: Path) -> None:
    done("estimate", folder / "noisy.parquet", "-o", folder / "i.csv", "--method", "inversion",
         "--repair", "normalise")  # fmt: skip
    mechanism: Any = gv.load_mechanism(folder / "mechanism.json")
    tally = mechanism.tally(pq.read_table(folder / "noisy.parquet")["cell"].to_numpy())
    expected = MatrixInversion(repair="normalise").fit(tally).distribution
    np.testing.assert_allclose(read_result(str(folder / "i.csv")).share, expected, atol=1e-12)


def test_inversion_of_several_mechanisms_averages_them(folder: Path) -> None:
    result = done("estimate", folder / "noisy.parquet", folder / "tally.json", "-o",
                  folder / "i.csv", "--method", "inversion", "--json")  # fmt: skip
    assert "average of 2 mechanisms" in json.loads(result.stdout)["stopped"]


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        ("steps:7", "after 7 steps"),
        ("certified", "certified within 1e-06"),
        ("change:1e-4", "changed by less than 0.0001"),
        ("cross-validated:3", "3 folds"),
    ],
)
def test_stopping_rules(folder: Path, stop: str, said: str) -> None:
    result = done(
        "estimate", folder / "tally.json", "-o", folder / "e.csv", "--stop", stop, "--json"
    )
    assert said in json.loads(result.stdout)["stopped"]


def test_reports_of_continuous_noise_are_put_on_a_grid(folder: Path) -> None:
    noisy = folder / "points.parquet"
    done("obfuscate", folder / "checkins.csv", "-o", noisy, "--mechanism", "continuous-laplace",
         "--epsilon-per-km", "3")  # fmt: skip
    done("estimate", noisy, "-o", folder / "e.parquet", *BOX, "--cell-km", "0.6")
    found = read_result(str(folder / "e.parquet"))
    assert found.reports is not None
    assert found.reports.sum() == 3000
    mechanisms = json.loads(pq.read_metadata(folder / "e.parquet").metadata[b"geoveil"])[
        "mechanisms"
    ]
    assert mechanisms[0]["mechanism"] == "planar-laplace"
    assert mechanisms[0]["parameters"] == {"epsilon_per_km": 3.0, "spread": True}


@pytest.mark.parametrize("other", ["noisy.parquet", "tally.json"])
@pytest.mark.parametrize("piped", [False, True])
def test_continuous_reports_join_the_map_of_the_other_file(
    folder: Path, other: str, piped: bool
) -> None:
    """In either order: the points are counted in the cells of the mechanism that has some."""
    points = folder / "points.csv"
    done("obfuscate", folder / "checkins.csv", "-o", points, "--mechanism", "continuous-laplace",
         "--epsilon-per-km", "3", "--seed", "4", "--save-mechanism", folder / "noise.json")  # fmt: skip
    sources = ["-", folder / other] if piped else [points, folder / other]
    result = run("estimate", *sources, "-o", folder / "e.csv", "--mechanism", folder / "noise.json",
                 "--stop", "steps:30", "--json", stdin=points.read_text() if piped else None)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    about = json.loads(result.stdout)
    assert about["reports"] == 6000
    assert [each["parameters"].get("spread", False) for each in about["mechanisms"]] == [
        True,
        False,
    ]
    first, second = about["mechanisms"]
    assert first["space"] == second["space"]
    grid = gv.Grid.from_dict(first["space"])
    lat, lng = np.loadtxt(points, delimiter=",", skiprows=1, usecols=(0, 1)).T
    own = gv.ContinuousLaplace(epsilon_per_km=3.0).tally(grid, lat=lat, lng=lng)
    seen = read_result(str(folder / "e.csv")).reports
    assert seen is not None
    assert (seen >= own.counts).all()


def test_points_need_the_cells_of_a_grid(folder: Path) -> None:
    done("obfuscate", folder / "checkins.csv", "-o", folder / "points.parquet", "--mechanism",
         "continuous-laplace", "--epsilon-per-km", "3")  # fmt: skip
    places = gv.Points(lat=[48.84, 48.85], lng=[2.3, 2.31])
    save_tally(gv.Tally(gv.RandomizedResponse(places, epsilon=1.0), [3, 4]), folder / "t.json")
    result = run("estimate", folder / "points.parquet", folder / "t.json", "-o", folder / "e.csv")
    assert result.exit_code == 2
    assert "must be counted in the cells of a grid" in result.stderr


def test_a_pipe_in_and_out(folder: Path) -> None:
    mechanism = ["--mechanism", folder / "mechanism.json"]
    result = run("estimate", "-", "-o", "-", *mechanism, stdin=(folder / "noisy.csv").read_text())
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(",".join(COLUMNS) + ",geoveil\n0,")


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_a_picture_is_drawn(folder: Path, ending: str) -> None:
    done(
        "estimate",
        folder / "tally.json",
        "-o",
        folder / "e.csv",
        "--plot",
        folder / f"map.{ending}",
    )
    start = {"png": b"\x89PNG", "pdf": b"%PDF"}[ending]
    assert (folder / f"map.{ending}").read_bytes().startswith(start)


def test_a_line_has_no_map_and_goes_into_csv(folder: Path) -> None:
    mechanism = gv.RandomizedResponse(gv.Line(4), epsilon=1.0)
    save_tally(gv.Tally(mechanism, [40, 30, 20, 10]), folder / "line.json")
    done("estimate", folder / "line.json", "-o", folder / "line.csv", "--plot", folder / "line.png")
    header = (folder / "line.csv").read_text().splitlines()[0]
    assert header == "cell,share,standard_error,low,high,reports,geoveil"
    assert read_result(str(folder / "line.csv")).space == gv.Line(4)
    refused = run("estimate", folder / "line.json", "-o", folder / "line.geojson")
    assert refused.exit_code == 2
    assert "has no map" in refused.stderr


def test_what_cannot_be_told_apart_is_said(folder: Path) -> None:
    """A mechanism that always answers the same tells nothing."""
    grid = gv.Grid(rows=1, columns=3, cell_km=1.0)
    channel = gv.DenseChannel(grid, [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    save_tally(gv.Tally(channel, [5, 5, 10]), folder / "alike.json")
    result = done("estimate", folder / "alike.json", "-o", folder / "e.csv")
    assert "warning: not identifiable" in result.stderr
    assert "cannot tell cells 0 and 1 apart" in result.stderr
    assert "not identifiable" not in result.stdout  # said once
    told = done("estimate", folder / "noisy.parquet", "-o", folder / "e.csv").stdout
    assert " ".join(told.split()).count("identifiable the reports tell all") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["checkins.csv", "-o", "e.csv"], "give it with --mechanism FILE"),
        (["noisy.parquet", "-o", "noisy.parquet"], "must not be the same file"),
        (["noisy.csv", "./noisy.csv", "-o", "e.csv"], "must be given once; its reports would count"),
        (["noisy.parquet", "-o", "e.csv", "--stop", "soon"], "must be cross-validated"),
        (["noisy.parquet", "-o", "e.csv", "--stop", "steps:-1"], "must be at least 0"),
        (["noisy.parquet", "-o", "e.csv", "--stop", "steps"], "steps:NUMBER"),
        (["noisy.parquet", "-o", "e.csv", "--level", "95"], "between 0 and 1"),
        (["noisy.parquet", "-o", "e.csv", "--plot", "map.jpg"], "must end in .png"),
        (["noisy.parquet", "-o", "e.csv", "--method", "inversion", "--stop", "steps:3"], "--stop"),
        (["noisy.parquet", "-o", "e.csv", "--repair", "project"], "--repair"),
        (["noisy.parquet", "-o", "e.csv", "--alarm", "--stop", "steps:3"], "--alarm must go with"),
        (["noisy.parquet", "-o", "e.csv", "--alarm", "--method", "inversion"], "--alarm must go with"),
        (["noisy.parquet", "-o", "e.csv", "--alarm", "--joint", "cell"], "without --stop and --joint"),
        (["noisy.parquet", "-o", "e.csv", *BOX], "--box is of no use"),
        (["noisy.parquet", "-o", "e.csv", "--zone-name", "n"], "--zone-name must come with --zones"),
        (["noisy.parquet", "-o", "e.csv", "--cell-km", "1"], "--cell-km is of no use here: the mech"),
        (["tally.json", "-o", "e.csv", "--cell-km", "1"], "--cell-km is of no use here: the mech"),
        (["missing.parquet", "-o", "e.csv"], "No such file"),
        (["checkins.csv", "-o", "e.csv", "--mechanism", "tally.json"], "tally.json"),
        (["other.csv", "-o", "e.csv", "--mechanism", "mechanism.json"], "row 2 of other.csv"),
        (["empty.csv", "-o", "e.csv", "--mechanism", "mechanism.json"], "at least one report"),
        (["estimate.parquet", "-o", "e.csv"], "an estimate already"),
        (["noisy.parquet", "line.json", "-o", "e.csv"], "same space"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    Path("other.csv").write_text("cell\n1\n100000\n")
    Path("empty.csv").write_text("cell\n")
    save_tally(gv.Tally(gv.RandomizedResponse(gv.Line(2), epsilon=1.0), [1, 1]), "line.json")
    if "estimate.parquet" in arguments:
        done("estimate", "noisy.parquet", "-o", "estimate.parquet")
    result = run("estimate", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("e.csv").exists()


@pytest.mark.parametrize("way", ["automatic", "bootstrap", "none"])
def test_the_progress_never_falls_and_knows_its_end(
    folder: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first step to the last error bar: one bar that fills once."""
    stages: dict[str, list[float]] = {"": []}

    def stage(self: ProgressBar, description: str) -> None:
        stages[description] = []

    def update(self: ProgressBar, fraction: float | None = None, detail: str = "") -> None:
        assert "at most" not in detail
        if fraction is not None:
            list(stages.values())[-1].append(fraction)

    monkeypatch.setattr(ProgressBar, "stage", stage)
    monkeypatch.setattr(ProgressBar, "update", update)
    monkeypatch.setattr(uncertainty, "MATRIX_CELLS", 0)
    monkeypatch.setattr(gv, "Bootstrap", partial(gv.Bootstrap, replicates=12))
    done("estimate", folder / "tally.json", "-o", folder / "out.csv", "--uncertainty", way)
    told = stages["estimating"]
    assert told == sorted(told)
    assert len(told) > 10
    assert told[-1] == pytest.approx(1)
    assert sum(fraction > 1 - 1e-9 for fraction in told) == 1


def test_the_method_of_the_error_bars_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["estimate", folder / "tally.json", "-o", folder / "out.parquet"]
    assert "Fisher information, one unbiased step" in done(*arguments).stdout
    monkeypatch.setattr(uncertainty, "MATRIX_CELLS", 20)
    said = " ".join(done(*arguments).stdout.split())
    assert "64 draws by conjugate gradients, because 63 cells are more than the 20" in said
    about = read_result(str(folder / "out.parquet")).description
    assert about is not None
    assert about["error_bars"].startswith("Fisher information, one nearly unbiased step")
    done(*arguments, "--uncertainty", "none")
    about = read_result(str(folder / "out.parquet")).description
    assert about is not None
    assert about["error_bars"] == "none: they were not asked for"


def test_a_tally_may_come_from_a_pipe(folder: Path) -> None:
    counted = [
        "tally",
        folder / "checkins.csv",
        "-o",
        "-",
        "--mechanism",
        "planar-geometric",
        "--epsilon-per-km",
        "1",
        *BOX,
        "--seed",
        "2",
    ]
    document = done(*counted, "--outside", "clamp").stdout
    for more in ([], ["--format", "geojson"]):
        piped = run("estimate", "-", "-o", folder / "piped.csv", *more, stdin=document)
        assert piped.exit_code == 0, piped.stderr
        done("estimate", folder / "tally.json", "-o", folder / "named.csv")
        named = read_result(str(folder / "named.csv")).share
        np.testing.assert_array_equal(read_result(str(folder / "piped.csv")).share, named)
    cut = run("estimate", "-", "-o", folder / "cut.csv", stdin=document[:-9])
    assert cut.exit_code == 2
    assert "standard input must be a JSON tally document" in cut.stderr


def test_swapped_columns_of_reports_are_noticed(folder: Path) -> None:
    """Reports outside the map belong to the nearest cell; nearly all of them there are a mistake."""
    made = ["estimate", "-o", folder / "out.csv", "--mechanism", folder / "mechanism.json"]
    noisy = {"fname": folder / "noisy.csv", "delimiter": ",", "skiprows": 1}
    lat, lng = np.loadtxt(**noisy, usecols=(1, 2), unpack=True)
    for columns, some in (((lng, lat), 0), ((lat, lng), 2900)):
        table = np.stack(columns, axis=1)
        table[some:] = np.stack([lng, lat], axis=1)[some:]
        np.savetxt(folder / "plain.csv", table, delimiter=",", header="lat,lng", comments="")
        result = run(*made, folder / "plain.csv")
        assert "latitude and longitude look swapped" in result.stderr
        assert result.exit_code == (0 if some else 2)
    assert "warning: 100 of 3,000 places (3.33 %) lie outside the map" in result.stderr
    assert "48.8" not in result.stderr
    right = run(*made, folder / "noisy.csv", "--lat", "lat", "--lng", "lng")
    assert right.exit_code == 0


def test_true_places_are_no_reports(folder: Path) -> None:
    made = ["-o", folder / "out.csv", "--mechanism", folder / "mechanism.json"]
    places = run("estimate", folder / "checkins.csv", *made)
    assert places.exit_code == 2
    assert "are they true places? obfuscate them first" in places.stderr
    lat, lng = np.loadtxt(folder / "checkins.csv", delimiter=",", skiprows=1, unpack=True)
    trips, names = np.stack([lat, lng, lat, lng], axis=1), "lat,lng,to_lat,to_lng"
    np.savetxt(folder / "ways.csv", trips, delimiter=",", header=names, comments="")
    ways = run("flows", folder / "ways.csv", *made)
    assert ways.exit_code == 2
    assert "are they true places? obfuscate them first" in ways.stderr


def test_reports_of_continuous_noise_may_lie_outside(folder: Path) -> None:
    """That is what such noise does, and the channel accounts for it: nothing to warn of."""
    done("obfuscate", folder / "checkins.csv", "-o", folder / "points.csv", "--mechanism",
         "continuous-laplace", "--epsilon-per-km", 2, "--seed", 1)  # fmt: skip
    asked = ["estimate", folder / "points.csv", "-o", folder / "out.csv", *BOX, "--cell-km", 1]
    assert "outside" not in done(*asked).stderr
    elsewhere = run(*asked[:-4], "--box", "45.7,4.8,45.8,4.9")
    assert elsewhere.exit_code == 2
    assert "all 3,000 lie outside" in elsewhere.stderr


def test_cells_that_may_all_be_empty_are_said_to_be_hardly_known(folder: Path) -> None:
    rows = (folder / "noisy.csv").read_text().splitlines()[::200]
    (folder / "few.csv").write_text("\n".join(rows) + "\n")
    said = {}
    for name in ("noisy", "few"):
        made = ["-o", folder / "map.csv", "--mechanism", folder / "mechanism.json"]
        words = " ".join(done("estimate", folder / f"{name}.csv", *made).stdout.split())
        low = read_result(str(folder / "map.csv")).low
        assert low is not None
        said[name] = "none of these is known not to be empty" in words, bool(low.any())
    assert said == {"noisy": (False, True), "few": (True, False)}
    assert "which is per kilometre" in words  # ε per metre by mistake hides everybody everywhere


def test_fakes_among_the_reports_are_looked_for_where_asked(
    folder: Path, library_estimate: gv.Estimate
) -> None:
    honest, output = folder / "noisy.csv", folder / "e.geojson"
    told = done("estimate", honest, "-o", output, "--alarm")
    assert "No alarm: the reports fit a map of honest people" in " ".join(told.stdout.split())
    assert json.loads(output.read_text())["geoveil"]["alarm"]["raised"] is False
    cell = int(library_estimate.distribution.argmin())
    with honest.open("a") as file:
        file.writelines([f"{cell},,,\n"] * 100)  # where nobody is
    told = done("estimate", honest, "-o", output, "--alarm", "--json")
    assert f"geoveil: warning: Alarm: reports {cell}, " in told.stderr  # the worst first
    found = json.loads(output.read_text())["geoveil"]["alarm"]
    assert (found["raised"], found["suspicious"][0]) == (True, cell)
    assert json.loads(told.stdout)["alarm"] == found


def test_an_alarm_that_cannot_look_is_refused_before_anything_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "two.json", tmp_path / "three.json"]
    for reports, file in enumerate(files, 2):
        channel = gv.DenseChannel(gv.Line(2), np.full((2, reports), 1 / reports))
        save_tally(channel.tally([0, 1]), file)
    monkeypatch.setattr(gv.IterativeBayesianUpdate, "fit", None)
    result = run("estimate", *files, "-o", tmp_path / "e.csv", "--alarm")
    assert (result.exit_code, "check tallies of other mechanisms" in result.stderr) == (2, True)
