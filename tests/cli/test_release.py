"""``geoveil release``: tables of counts in, tables that may be published out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from geoveil.cli.program import program
from geoveil.cli.release import Published
from geoveil.errors import InvalidInput
from geoveil.release import CountRelease

COUNTS = "place,09:00,18:00\nstation,6,2\nmarket,1,5\npark,1,1\n"
PRIOR = [0.5, 0.3, 0.2]


def run(*arguments: Any, stdin: str | None = None) -> Result:
    return CliRunner().invoke(program, ["release", *map(str, arguments)], input=stdin)


def done(*arguments: Any, stdin: str | None = None) -> Result:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result


def table(text: str) -> dict[str, list[Any]]:
    return pc.read_csv(pa.BufferReader(text.encode())).to_pydict()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counts.csv").write_text(COUNTS)
    (tmp_path / "prior.csv").write_text("place,share\npark,0.2\nstation,0.5\nmarket,0.3\n")
    people = "\n".join(f"anna{m},{0.9 - m / 10:.1f},0.05,{0.05 + m / 10:.2f}" for m in range(8))
    (tmp_path / "people.csv").write_text(f"name,station,market,park\n{people}\n")
    (tmp_path / "past.csv").write_text("place,a,b\nmarket,3,2\npark,2,1\nstation,3,5\n")
    return tmp_path


def valid(columns: dict[str, list[Any]], people: int = 8) -> bool:
    moments = [columns[name] for name in columns if name != "place"]
    return all(sum(moment) == people and min(moment) >= 0 for moment in moments)


def test_counts_go_to_standard_output_and_words_beside(folder: Path) -> None:
    result = done(folder / "counts.csv", "--prior", folder / "prior.csv", "--multiplier", 1)
    columns = table(result.stdout)
    assert list(columns) == ["place", "09:00", "18:00"]
    assert columns["place"] == ["station", "market", "park"]
    assert valid(columns)
    for word in ("leakage", "distortion", "about one person", "worst case", "standard output"):
        assert word in result.stderr


def test_the_report_is_that_of_the_library(folder: Path) -> None:
    asked = [folder / "counts.csv", "--prior", folder / "prior.csv", "--multiplier", 1]
    values = json.loads(done(*asked, "-o", folder / "out.csv", "--json").stdout)
    release = CountRelease(people=8, prior=PRIOR, multiplier=1.0, timestamps=2)
    for name in ("leakage_bits", "least_leakage_bits", "distortion", "epsilon", "certificate_nats"):
        assert values[name] == pytest.approx(getattr(release, name), rel=1e-9)
    assert list(values["personal_leakage_bits"].values()) == pytest.approx(
        release.personal_leakage_bits.tolist()
    )
    assert values["chain_holds"] is True
    assert values["unchanged_bits"] > values["leakage_bits"]
    written = table((folder / "out.csv").read_text())
    assert values["released"] == {name: written[name] for name in ("09:00", "18:00")}


def test_many_equal_places_are_exchanged(folder: Path) -> None:
    names = [f"stop {number}" for number in range(120)]
    counts = [1] * 6 + [0] * 114
    rows = "".join(f"{name},{n}\n" for name, n in zip(names, counts, strict=True))
    (folder / "many.csv").write_text(f"place,09:00\n{rows}")
    (folder / "even.csv").write_text(
        "place,share\n" + "".join(f"{name},{1 / 120!r}\n" for name in names)
    )
    asked = [folder / "many.csv", "--prior", folder / "even.csv"]
    result = done(*asked, "--multiplier", 8, "-o", folder / "out.csv", "--json")
    values = json.loads(result.stdout)
    assert values["certificate_nats"] <= 1e-6
    assert values["chain_holds"] is True
    assert 0 < values["leakage_bits"] < values["unchanged_bits"]
    assert valid(table((folder / "out.csv").read_text()), people=6)
    beside = done(*asked, "--epsilon", 20, "-o", folder / "noisy.csv").stdout
    assert "what this one tells on average is out of reach" in " ".join(beside.split())


def test_personal_priors_name_the_people(folder: Path) -> None:
    asked = [folder / "counts.csv", "--prior", folder / "people.csv", "--leakage-bits", 1.0]
    result = done(*asked, "-o", folder / "out.parquet", "--personal", folder / "personal.csv")
    assert valid(pq.read_table(folder / "out.parquet").to_pydict())
    personal = table((folder / "personal.csv").read_text())
    assert personal["person"] == [f"anna{m}" for m in range(8)]
    assert 0 < max(personal["leakage_bits"]) < 1.0
    assert all(
        0 < told < unknown
        for told, unknown in zip(
            personal["leakage_bits"], personal["unknown_before_bits"], strict=True
        )
    )
    assert "most: anna" in result.stdout


@pytest.mark.parametrize(("kind", "text"), [
    ("past counts", "place,a,b\nmarket,3,2\npark,2,1\nstation,3,5\n"),
    ("visits", "person,place\n" + "".join(f"p{m},station\np{m} ,elsewhere\n" for m in range(8))),
])  # fmt: skip
def test_history_instead_of_a_prior(folder: Path, kind: str, text: str) -> None:
    (folder / "history.csv").write_text(text)
    asked = [folder / "counts.csv", "--history", folder / "history.csv", "--multiplier", 1]
    values = json.loads(done(*asked, "-o", folder / "out.csv", "--json").stdout)
    shares = [9 / 19, 6 / 19, 4 / 19] if kind == "past counts" else [[2 / 4, 1 / 4, 1 / 4]] * 8
    wanted = CountRelease(people=8, prior=shares, multiplier=1.0, timestamps=2)
    assert values["leakage_bits"] == pytest.approx(wanted.leakage_bits, rel=1e-9)


def test_a_visit_of_nobody_is_refused_and_named(folder: Path) -> None:
    rows = "".join(f"p{m},station\n" for m in range(8))
    (folder / "history.csv").write_text(f"person,place\n{rows},park\n")
    asked = [folder / "counts.csv", "--history", folder / "history.csv", "--multiplier", 1]
    result = run(*asked, "-o", folder / "out.csv")
    assert result.exit_code == 2
    assert "must name a person in every row; row 9 does not" in result.stderr


def test_priors_by_timestamp(folder: Path) -> None:
    (folder / "by_time.csv").write_text(
        "place,18:00,09:00\nstation,0.2,0.5\nmarket,0.5,0.3\npark,0.3,0.2\n"
    )
    rows = [f"{time},{who},{share},{1 - share - 0.2:.1f},0.2"
            for time, share in (("09:00", 0.5), ("18:00", 0.2)) for who in range(8)]  # fmt: skip
    (folder / "by_both.csv").write_text(
        "timestamp,person,station,market,park\n" + "\n".join(rows) + "\n"
    )
    told = {}
    for name in ("by_time", "by_both"):
        asked = [folder / "counts.csv", "--prior", folder / f"{name}.csv", "--multiplier", 1]
        told[name] = json.loads(done(*asked, "-o", folder / "o.csv", "--json").stdout)[
            "leakage_bits"
        ]
    layers = [[[0.5, 0.3, 0.2]], [[0.2, 0.5, 0.3]]]
    assert told["by_time"] == pytest.approx(
        CountRelease(people=8, prior=layers, multiplier=1.0).leakage_bits
    )
    layers = [[[0.5, 0.3, 0.2]], [[0.2, 0.6, 0.2]]]
    assert told["by_both"] == pytest.approx(
        CountRelease(people=8, prior=layers, multiplier=1.0).leakage_bits
    )


def test_merged_places_pipes_seeds_and_pictures(folder: Path) -> None:
    asked = ["-", "--prior", folder / "prior.csv", "--distortion", 2, "--seed", 3,
             "--merge", "town=station,market"]  # fmt: skip
    first = done(*asked, "--plot", folder / "curve.png", stdin=COUNTS)
    columns = table(first.stdout)
    assert columns["place"] == ["town", "park"]
    assert valid(columns)
    assert "seeded noise is for simulations" in first.stderr
    assert (folder / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert done(*asked, stdin=COUNTS).stdout == first.stdout
    with_tabs = COUNTS.replace(",", "\t")
    (folder / "prior.csv").write_text("place\tshare\npark\t0.2\nstation\t0.5\nmarket\t0.3\n")
    assert valid(table(done(*asked, "--delimiter", "tab", stdin=with_tabs).stdout))


@pytest.mark.parametrize(
    ("counts", "prior", "said"),
    [
        (COUNTS.replace("6", "6.5"), None, "whole numbers"),
        (COUNTS.replace("6", "-6"), None, "not be negative|at least one person"),
        (COUNTS.replace("5", "4"), None, "must sum to 8"),
        (COUNTS.replace("6", "x"), None, "must hold numbers only; row 1"),
        ('place,a\nx,"1,204"\ny,812\nz,3\n', None, "numbers only; row 1 does not: write them with"),
        (
            "place,a\nx,812\ny,1.000\nz,3\n",
            None,
            "may mark thousands, as in row 2; write 1.204 as 1204",
        ),
        (None, "place,u\npark,800\nstation,1.500\nmarket,3\n", "may mark thousands, as in row 2"),
        (COUNTS.replace("market", "station"), None, "name each place once"),
        ("place,a,a\nx,1,2\ny,2,1\n", None, "different names"),
        ("place\nx\n", None, "a column of counts for each timestamp"),
        ("place,a\n", None, "at least one row"),
        ("place,a\nstation,0\nmarket,0\npark,0\n", None, "at least one person"),
        ("place,a\nstation,1e19\nmarket,0\npark,0\n", None, "at most 16,777,216; --epsilon"),
        ("place,a\nstation,1e308\nmarket,1e308\npark,0\n", None, "at most 16,777,216; --epsilon"),
        (None, "place,share\npark,0.2\nstation,0.5\nmarket,0.4\n", "must sum to 1"),
        (None, "place,share\npark,0.5\nstation,0.5\n", "the places of the counts"),
        (None, "place,u,v\npark,0.2,0.2\nstation,0.5,0.5\nmarket,0.3,0.3\n", "one column of prob"),
        (None, "name,station,market,park\na,0.5,0.3,0.2\nb,0.5,0.3,0.2\n", "one per person"),
        (None, "timestamp,station,market,park\n09:00,0.5,0.3,0.2\n", "the same people at every"),
        (None, "name,station,market,park\na,0.5,0.3,0.2\n", "must be 8, one per person"),
        (None, "station,market,park\n0.5,0.3,0.2\n", "must be 8, one per person"),
        (None, "name,station,market,park\n" + "anna,0.5,0.3,0.2\n" * 8, "different names"),
    ],
)
def test_bad_tables_are_one_line_and_nothing_is_written(
    folder: Path, counts: str | None, prior: str | None, said: str
) -> None:
    if counts is not None:
        (folder / "counts.csv").write_text(counts)
    if prior is not None:
        (folder / "prior.csv").write_text(prior)
    target, personal = folder / "out.csv", folder / "personal.csv"
    asked = [folder / "counts.csv", "--prior", folder / "prior.csv", "--multiplier", 1]
    result = run(*asked, "-o", target, "--personal", personal)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert any(part in result.stderr for part in said.split("|"))
    assert not target.exists()
    assert not personal.exists()


@pytest.mark.parametrize(("first", "second"), [("1.204", "2.310"), ("1.204", "812")])
def test_averages_of_the_past_are_told_from_thousands(
    folder: Path, first: str, second: str
) -> None:
    past = folder / "history.csv"
    asked = [folder / "counts.csv", "--history", past, "--multiplier", 1]
    past.write_text(f"place,past\nstation,{first}\nmarket,{second}\npark,3.000\n")
    refused = run(*asked)
    assert refused.exit_code == 2
    assert "write 1.204 as 1204 where they do, and as 1.2040 where they are" in refused.stderr
    past.write_text(past.read_text().replace("1.204", "1.2040"))
    done(*asked)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "exactly one of --multiplier, --distortion, --leakage-bits"),
        (["--multiplier", 1, "--distortion", 1], "exactly one of"),
        (["--multiplier", 0], "above 0"),
        (["--multiplier", 1, "--history", "past.csv"], "one of them"),
        (["--multiplier", 1, "-o", "counts.csv"], "must not be the same file"),
        (
            ["--multiplier", 1, "-o", "out.csv", "--personal", "out.csv"],
            "must not be the same file",
        ),
        (["--multiplier", 1, "--plot", "curve.txt"], "must end in .png"),
        (["--multiplier", 1, "-o", "out.geojson"], "must end in .csv, .csv.gz or .parquet"),
        (
            ["--multiplier", 1, "-o", "o.csv", "--personal", "p.json"],
            "must end in .csv, .csv.gz or",
        ),
        (["--multiplier", 1, "--personal", "-"], "only one output can go to a pipe"),
        (["--multiplier", 1, "-o", "-", "--personal", "-", "--json"], "only one output"),
        (["--multiplier", 1, "--merge", "town=station"], "NAME=PLACE,PLACE"),
        (["--multiplier", 1, "--merge", "t=station,harbour"], "with places of: station, market"),
        (["--multiplier", 1, "--merge", "park=station,market"], "a name of its own"),
        (["--multiplier", 1, "--merge", "a=station,park", "--merge", "b=park,market"], "one group"),
    ],
)
def test_options_that_cannot_be(
    folder: Path, options: list[Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    result = run("counts.csv", "--prior", "prior.csv", *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert (folder / "counts.csv").read_text() == COUNTS


def test_beyond_reach_names_the_coarsening(folder: Path) -> None:
    places = "".join(f"p{k},{k % 2}\n" for k in range(30))
    (folder / "many.csv").write_text("place,now\n" + places)
    shares = "".join(f"p{k},{(100 + k) / 3435!r}\n" for k in range(30))
    (folder / "even.csv").write_text("place,share\n" + shares)
    result = run(folder / "many.csv", "--prior", folder / "even.csv", "--multiplier", 1)
    assert result.exit_code == 2
    assert "merge the places into" in result.stderr
    assert result.stdout == ""


def test_for_machines_the_counts_are_in_the_document_alone(folder: Path) -> None:
    asked = [folder / "counts.csv", "--prior", folder / "prior.csv", "--multiplier", 1, "--json"]
    result = done(*asked)
    values = json.loads(result.stdout)
    assert values["output"] is None
    assert values["places"] == ["station", "market", "park"]
    assert valid(values["released"])
    assert result.stderr == ""
    beside = done(*asked, "-o", "-")
    assert valid(table(beside.stdout))
    assert json.loads(beside.stderr)["output"] == "-"


def test_past_visits_of_too_few_people_are_refused(folder: Path) -> None:
    (folder / "visits.csv").write_text("person,place\nanna,station\nanna,park\n")
    asked = [folder / "counts.csv", "--history", folder / "visits.csv", "--multiplier", 1]
    result = run(*asked, "-o", folder / "out.csv")
    assert result.exit_code == 2
    assert "(1) must be 8, one per person" in result.stderr
    assert not (folder / "out.csv").exists()


def test_what_fails_fails_before_anything_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Published, written: object) -> None:
        raise InvalidInput("no words")

    monkeypatch.setattr(Published, "lines", fails)
    asked = [folder / "counts.csv", "--prior", folder / "prior.csv", "--multiplier", 1]
    result = run(*asked, "-o", folder / "out.csv", "--personal", folder / "personal.csv")
    assert "no words" in result.stderr
    assert not (folder / "out.csv").exists()
    assert not (folder / "personal.csv").exists()


@pytest.mark.parametrize("shares", ["1,0,0", "0.99998,0.00001,0.00001"])
def test_counts_that_the_prior_does_not_know_are_warned_about(folder: Path, shares: str) -> None:
    station, market, park = shares.split(",")
    (folder / "prior.csv").write_text(
        f"place,share\nstation,{station}\nmarket,{market}\npark,{park}\n"
    )
    (folder / "counts.csv").write_text(COUNTS.replace("6", "8").replace(",1,", ",0,"))
    asked = [folder / "counts.csv", "--prior", folder / "prior.csv", "--multiplier", 1]
    result = done(*asked, "-o", folder / "out.csv")
    assert "warning: the counts at 18:00 are all but impossible under the prior" in result.stderr


def test_a_limit_that_limits_nothing_is_warned_about(folder: Path) -> None:
    asked = [folder / "counts.csv", "--prior", folder / "prior.csv", "-o", folder / "out.csv"]
    loose = done(*asked, "--leakage-bits", 100)
    assert "warning: the limit (100 bits) is not below the" in loose.stderr
    assert "practically unchanged" in loose.stderr
    assert done(*asked, "--leakage-bits", 1).stderr == ""


def test_a_large_table_with_a_stated_epsilon(folder: Path) -> None:
    rows = [f"place {number},{number % 40},{(7 * number) % 50}" for number in range(400)]
    (folder / "large.csv").write_text("place,09:00,18:00\n" + "\n".join(rows) + "\n")
    out = folder / "released.csv"
    result = done(folder / "large.csv", "--epsilon", 2, "-o", out)
    before, after = pc.read_csv(folder / "large.csv").to_pydict(), pc.read_csv(out).to_pydict()
    assert after["place"] == before["place"]
    for moment in ("09:00", "18:00"):  # sums differ, and stay
        assert sum(after[moment]) == sum(before[moment])
        assert min(after[moment]) >= 0
        assert after[moment] != before[moment]
    words = " ".join(result.output.split())
    assert "400 places at 2 timestamps" in words
    assert "one person elsewhere, at all 2 timestamps, changes" in words
    assert "at most e^2" in words
    assert "least leakage" not in words
    document = json.loads(done(folder / "large.csv", "--epsilon", 2, "--json").stdout)
    assert document["epsilon"] == 2
    assert sum(document["released"]["09:00"]) == sum(before["09:00"])


def test_the_least_leakage_stands_beside_a_stated_epsilon(folder: Path) -> None:
    known = ("--prior", folder / "prior.csv", "-o", folder / "r.csv")
    result = done(folder / "counts.csv", "--epsilon", 6, *known)
    words = " ".join(result.output.split())
    assert "at the same worst case the release that leaks least (--multiplier) tells" in words
    document = json.loads(done(folder / "counts.csv", "--epsilon", 6, *known, "--json").stdout)
    beside = document["beside"]
    least = CountRelease(people=8, prior=PRIOR, timestamps=2, multiplier=6 / (4 * 2**0.5))
    assert least.epsilon == pytest.approx(6)  # the same worst case
    assert beside["least_bits"] == pytest.approx(least.leakage_bits)
    assert beside["least_distortion"] == pytest.approx(least.distortion)
    assert beside["geometric_bits"] > 0
    assert beside["geometric_distortion"] > 0
    (folder / "uneven.csv").write_text("place,09:00,18:00\nstation,6,2\nmarket,1,5\npark,1,2\n")
    uneven = done(folder / "uneven.csv", "--epsilon", 6, *known)
    assert "out of reach: it needs the same number" in " ".join(uneven.output.split())
    merged = done(folder / "counts.csv", "--epsilon", 6, "--merge", "town=station,market")
    assert merged.stdout.splitlines()[1].startswith("town,")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--epsilon", 1, "--multiplier", 1], "exactly one of"),
        (["--epsilon", 1, "--plot", "curve.png"], "--personal and --plot are not for --epsilon"),
        (["--epsilon", 0], "epsilon (0"),
        ([], "--epsilon needs neither"),
    ],
)
def test_what_a_stated_epsilon_cannot_be(folder: Path, options: list[Any], problem: str) -> None:
    result = run(folder / "counts.csv", *options)
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())
