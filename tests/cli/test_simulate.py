"""``geoveil simulate`` and ``geoveil design``: campaigns and mechanisms from a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli.program import program
from geoveil.table.results import Result as Shares
from geoveil.table.results import write_result

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")
pytest.importorskip("ot")


def geoveil(*words: object) -> Result:
    return CliRunner().invoke(program, [str(word) for word in words])


@pytest.fixture(scope="module")
def checkins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    places = np.random.default_rng(4).normal([48.855, 2.345], [0.008, 0.012], size=(2000, 2))
    path = tmp_path_factory.mktemp("data") / "checkins.csv"
    np.savetxt(path, places, delimiter=",", header="lat,lng", comments="")
    return path


BOX = ("--box", "48.83,2.31,48.88,2.38")


def test_a_campaign_comes_closer_every_round(checkins: Path, tmp_path: Path) -> None:
    curve, maps = tmp_path / "curve.png", tmp_path / "map.png"
    result = geoveil("simulate", checkins, "--rounds", 3, "--epsilon-per-km", 2, *BOX, "--cell-km", 1,
                     "--json", "--plot", curve, "--map", maps)  # fmt: skip
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    errors = [done["error_km"] for done in values["rounds"]]
    assert len(errors) == 3
    assert errors[-1] < values["start_error_km"] / 3
    assert values["rounds"][-1]["reports"] == 1996
    assert (values["outside_dropped"], values["outside_clamped"]) == (4, 0)
    assert values["reports_per_person"] is None  # the rows of a file may be one person's
    spent = (
        "Each report spends ε = 2 per km and 0.02 for rounding; the reports of one person add up."
    )
    assert values["spent"] == spent
    assert values["rule"]["between"] == "positions"
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (curve, maps))


def test_a_campaign_on_one_cell_is_drawn_without_a_warning(tmp_path: Path) -> None:
    source, curve = tmp_path / "one.csv", tmp_path / "curve.svg"
    source.write_text("lat,lng\n" + "48.85,2.35\n" * 200)
    result = geoveil("simulate", source, "--epsilon-per-km", 2, "--cell-km", 1, "--rounds", 2,
                     "--box", "48.8496,2.3496,48.8504,2.3504", "--plot", curve)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "log-scale" not in result.stderr
    assert curve.exists()


def test_the_papers_rule_and_everybody_each_round(checkins: Path) -> None:
    result = geoveil("simulate", checkins, "--rounds", 2, "--epsilon-per-km", 4, *BOX,
                     "--as-published", "--everybody", "each-round", "--json")  # fmt: skip
    values = json.loads(result.stdout)
    assert values["rule"] == {
        "kind": "published", "beta_per_km": 2.0, "design_steps": 8, "update_steps": 10,
    }  # fmt: skip
    assert values["rounds"][-1]["reports"] == 2 * 1993
    assert "Every person" not in values["spent"]


@pytest.mark.parametrize(
    ("limit", "reports", "spent"),
    [
        (["--per-person", 2], 14, "ε = 8 per km and 0.08 for rounding, in at most 4 reports"),
        (
            ["--limit-by", "memoise", "--between", "cells"],
            21,
            "ε = 12 per km, in at most 6 reports",
        ),
    ],
)
def test_persons_report_within_their_limit(
    tmp_path: Path, limit: list[object], reports: int, spent: str
) -> None:
    """Seven persons with 30 visits to three places each, in two rounds."""
    path = tmp_path / "visits.csv"
    rows = [f"{k % 7},{48.84 + 0.01 * (k // 7 % 3)},2.34" for k in range(630)]
    path.write_text("\n".join(["user,lat,lon", *rows]) + "\n")
    result = geoveil("simulate", path, "--rounds", 2, "--epsilon-per-km", 2, *BOX, "--cell-km", 1,
                     "--person", "user", *limit, "--everybody", "each-round")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert f" {2 * reports} " in result.stdout
    shown = " ".join(result.stdout.split())
    assert spent in shown
    assert "Persons: 7, typically with" in shown


def test_people_report_from_where_their_rows_are(tmp_path: Path) -> None:
    """Moved within their cells, people send other reports between positions, and the same between cells."""
    grid = gv.Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
    shown = []
    for number, moved_km in enumerate((0.0, 0.2)):
        lat, lng = grid.plane.to_latlng(np.repeat(grid.centres, 20, axis=0) + moved_km)
        path = tmp_path / f"{number}.csv"
        np.savetxt(path, np.column_stack([lat, lng]), delimiter=",", header="lat,lng", comments="")
        words = ("simulate", path, "--rounds", 1, "--epsilon-per-km", 2, "--box",
                 "48.85,2.30,48.862,2.326", "--cell-km", 0.5, "--json")  # fmt: skip
        for between in ("positions", "cells"):
            result = geoveil(*words, "--between", between)
            assert result.exit_code == 0, result.output
            shown.append(json.loads(result.stdout)["rounds"])
    assert shown[0] != shown[2]
    assert shown[1] == shown[3]


def test_a_city_is_simulated_where_no_file_is_given() -> None:
    result = geoveil("simulate", "--people", 3000, "--rounds", 1, "--epsilon-per-km", 4,
                     "--cell-km", 1, "--fakes", 0.1, "--churn", 0.2, "--between", "cells")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Every person has spent at most ε = 4 per km" in " ".join(result.stdout.split())


def test_rounds_that_did_not_close_are_spent_all_the_same() -> None:
    result = geoveil("simulate", "--people", 50, "--rounds", 3, "--epsilon-per-km", 1, "--cell-km", 2,
                     "--everybody", "each-round", "--minimum-reports", 1000)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "at most ε = 3 per km and 0.06 for rounding, in at most 3 reports" in " ".join(
        result.stdout.split()
    )


def test_fakes_are_bounded_and_left_out(checkins: Path) -> None:
    words = ("simulate", checkins, "--rounds", 2, "--epsilon-per-km", 4, *BOX, "--cell-km", 1,
             "--fakes", 0.3, "--fake-cell", 0, "--between", "cells", "--json")  # fmt: skip
    plain, guarded = (json.loads(geoveil(*words, *more).stdout) for more in ((), ("--guarded",)))
    assert guarded["rule"]["guarded"]
    assert guarded["rounds"][-1]["error_km"] < plain["rounds"][-1]["error_km"] / 2
    bounded = geoveil(*words, "--most-leverage", 1000)
    assert json.loads(bounded.stdout)["rule"]["most_leverage"] == 1000


def test_rounds_below_the_minimum_release_nothing(checkins: Path) -> None:
    result = geoveil("simulate", checkins, "--rounds", 1, "--epsilon-per-km", 4, *BOX,
                     "--minimum-reports", 5000, "--between", "cells")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "nothing was released" in result.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--rounds", 1),  # no promise
        ("--rounds", 0, "--epsilon-per-km", 1),
        ("--rounds", 1, "--epsilon-per-km", -1),
        ("--rounds", 1, "--epsilon-per-km", 1, "--camouflage", 2),
        ("--rounds", 1, "--epsilon-per-km", 1, "--plot", "curve.doc"),
        ("--rounds", 1, "--epsilon-per-km", 1, "--as-published", "--between", "positions"),
        ("--rounds", 1, "--epsilon-per-km", 1, "--most-leverage", 3),  # kept between cells only
        ("--rounds", 1, "--epsilon-per-km", 100),  # too much for cells of 500 m
        ("--rounds", 1, "--epsilon-per-km", 1, "--fake-cell", 10**6),  # before anything is designed
    ],
)
def test_bad_campaigns_are_one_line(checkins: Path, words: tuple[object, ...]) -> None:
    result = geoveil("simulate", checkins, *BOX, *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("geoveil: error: ")
    assert result.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def prior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    grid = gv.Grid.from_box(south=48.83, west=2.31, north=48.86, east=2.36, cell_km=0.75)
    share = np.random.default_rng(2).dirichlet(np.full(grid.size, 0.3))
    path = tmp_path_factory.mktemp("prior") / "prior.geojson"
    write_result(str(path), Shares(grid, share))
    return path


def test_a_design_meets_its_promise_and_passes_the_audit(prior: Path, tmp_path: Path) -> None:
    target = tmp_path / "mechanism.json"
    result = geoveil("design", "--prior", prior, "--epsilon-per-km", 2, "-o", target, "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert 1.98 <= values["certified_epsilon_per_km"] <= 2
    mechanism = gv.load_mechanism(target)
    assert isinstance(mechanism, gv.PositionalElastic)  # on a map, unless cells are asked for
    assert gv.certify(mechanism).holds
    assert values["slack"] == mechanism.slack
    audited = geoveil("audit", target, "--draws", 20000)
    assert audited.exit_code == 0
    said = " ".join(audited.stdout.split())
    assert (
        f"{values['mean_distance_km']:.4g} km from the position of a person" not in said
    )  # a prior
    assert "km from the position of a person to the middle of the reported cell" in said
    assert " for rounding, by a bound over all positions" in said
    place = gv.certify(mechanism).worst_place_km
    assert place is not None
    east, north = "east" if place[0] >= 0 else "west", "north" if place[1] >= 0 else "south"
    assert (
        f"positions around {abs(place[0]):.3g} km {east} and {abs(place[1]):.3g} km {north} of"
        in said
    )


def test_a_design_can_bound_what_a_fake_weighs(prior: Path, tmp_path: Path) -> None:
    words = ("design", "--prior", prior, "--epsilon-per-km", 6, "--between", "cells",
             "-o", tmp_path / "m.json", "--json")  # fmt: skip
    free = json.loads(geoveil(*words).stdout)["leverage"]
    sharpest = json.loads(geoveil(*words, "--camouflage", 0).stdout)["leverage"]
    limit = (free + sharpest) / 2
    found = json.loads(geoveil(*words, "--most-leverage", limit).stdout)["leverage"]
    assert sharpest < found <= limit < free
    refused = geoveil(*words, "--most-leverage", 0.9 * sharpest)
    assert refused.exit_code == 2
    assert "most_leverage" in refused.stderr


def test_advice_shows_the_whole_dial(prior: Path, tmp_path: Path) -> None:
    picture = tmp_path / "dial.png"
    result = geoveil("design", "--prior", prior, "--epsilon-per-km", 2, "--advise", "--people", 500,
                     "--plot", picture, "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    dial = [choice for choice in values["choices"] if choice["camouflage"] is not None]
    assert [choice["camouflage"] for choice in dial] == [0, 0.25, 0.5, 0.75, 0.9, 1]
    assert dial[0]["mean_distance_km"] < dial[-1]["mean_distance_km"]
    assert dial[0]["leakage_bits"] > dial[-1]["leakage_bits"]
    assert dial[0]["leverage"] < dial[2]["leverage"]
    assert values["recommended"] in (0, 0.25, 0.5, 0.75, 0.9)
    rounding = "between any two positions, for each report"
    assert "keeps the promise, ε = 2 per km and 0.014 for rounding" in values["sentence"]
    assert rounding in values["sentence"]
    beside = [choice["name"] for choice in values["choices"] if choice["camouflage"] is None]
    assert all(name.endswith(", between cells") for name in beside)  # a weaker promise
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_advice_keeps_a_bound_on_the_leverage(prior: Path, tmp_path: Path) -> None:
    asked = ("design", "--prior", prior, "--epsilon-per-km", 8, "--between", "cells")
    made = geoveil(*asked, "--camouflage", 0, "-o", tmp_path / "m.json", "--json")
    sharpest = json.loads(made.stdout)["leverage"]
    words = (*asked, "--advise", "--people", 100)
    bounded = geoveil(*words, "--most-leverage", 2 * sharpest)
    assert bounded.exit_code == 0, bounded.output
    assert "fake weighs" in bounded.stdout
    values = json.loads(geoveil(*words, "--most-leverage", 2 * sharpest, "--json").stdout)
    dial = [choice for choice in values["choices"] if choice["camouflage"] is not None]
    assert all(choice["leverage"] <= 2 * sharpest for choice in dial)


@pytest.mark.parametrize(
    "words",
    [
        ("--epsilon-per-km", 2),
        ("--advise",),
        ("--epsilon-per-km", 2, "-o", "m.json", "--plot", "a.png"),
    ],
)
def test_bad_designs_are_one_line(prior: Path, words: tuple[object, ...]) -> None:
    result = geoveil("design", "--prior", prior, *words)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_people_choose_among_promises(checkins: Path) -> None:
    result = geoveil("simulate", checkins, "--rounds", 2, "--promises", "2,1", "--choices", "1,3", *BOX,
                     "--cell-km", 1, "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    levels = values["choices"]["levels"]
    assert [each["promise_per_km"] for each in levels] == [1.0, 2.0]
    assert levels[0]["reports"] + levels[1]["reports"] == 1996
    assert levels[0]["reports"] > 2 * levels[1]["reports"]
    assert values["choices"]["dependent"] is False
    assert values["drift"]["agreeing"] == [1, 2]
    assert values["spent"].startswith("Each report spends at most ε = 2 per km")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--people", 90, *BOX), "--box must come with a file of people"),
        (("--people", 90, "--person", "user"), "--person must come with a file of people"),
        (("places.csv", "--people", 90), "--people is for the simulated city"),
        (("--as-published", "--camouflage", 0.5), "--camouflage must not go with --as-published"),
        (("--update-steps", 3), "--update-steps must come with --as-published"),
    ],
)
def test_what_would_do_nothing_is_refused(words: tuple[object, ...], said: str) -> None:
    result = geoveil("simulate", *words, "--epsilon-per-km", 1)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "a promise must be given"),
        (("--promises", "1,2", "--epsilon-per-km", 1), "a promise must be given"),
        (("--promises", "1,two"), "numbers with commas"),
        (("--promises", "1,2", "--choices", "1"), "one share for each of 2 promises"),
        (("--promises", "1,2", "--choices", "1,-1"), "must not be negative"),
        (("--epsilon-per-km", 1, "--choices", "1,1"), "must come with --promises"),
        (("--promises", "1,2", "--as-published"), "the paper has one"),
    ],
)
def test_choices_that_cannot_be(checkins: Path, words: tuple[object, ...], said: str) -> None:
    result = geoveil("simulate", checkins, *words, *BOX)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
