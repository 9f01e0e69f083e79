"""``geoveil audit``: sound mechanisms pass, broken claims are found, bad documents are refused."""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from client.world import document, honest, send, serving
from geoveil.campaign.elastic_design import elastic
from geoveil.channel.composed import DenseChannel
from geoveil.cli.program import program
from geoveil.document import saved
from geoveil.document.saved import mechanism_to_dict, save_mechanism
from geoveil.document.wire import publish, served_levels
from geoveil.mechanism import ContinuousLaplace, Elastic, PlanarGeometric, PlanarLaplace
from geoveil.space import Grid, MaskedGrid, Points
from geoveil.space.points import at_places
from geoveil.table.reader import Format, format_of
from geoveil.table.results import Result as Shares
from geoveil.table.results import write_result
from geoveil.verify.manipulation import manipulation_gain

GRID = Grid(rows=3, columns=4, cell_km=0.5)
DRAWS = ["--draws", "20000"]


def audit(*arguments: Any) -> Result:
    return CliRunner().invoke(program, ["audit", *map(str, arguments)])


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    save_mechanism(PlanarGeometric(GRID, epsilon_per_km=2.0), tmp_path / "sound.json")
    return tmp_path / "sound.json"


def save_claimed(channel: DenseChannel, epsilon_per_km: float, path: Path) -> None:
    """A document whose claim somebody has written into it."""
    claim = {"kind": "per-km", "epsilon_per_km": epsilon_per_km}
    path.write_text(json.dumps({**mechanism_to_dict(channel), "guarantee": claim}))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The document of a matrix that claims half of what it loses."""
    matrix = Elastic(GRID, beta_per_km=1.0).matrix()
    save_claimed(DenseChannel(GRID, matrix), 0.5, tmp_path / "broken.json")
    return tmp_path / "broken.json"


def test_a_sound_mechanism_passes(sound: Path) -> None:
    result = audit(sound, *DRAWS)
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    for expected in (
        "holds: the loss is exactly 2 per km",
        "mean distance",
        "nothing found",
    ):
        assert expected in words
    assert "gain" not in words, "it takes long, so it is shown when asked for"
    asked = " ".join(audit(sound, *DRAWS, "--gain").stdout.split())
    assert "of the map onto one place: a gain of" in asked


def test_the_json_form(sound: Path) -> None:
    values = json.loads(audit(sound, *DRAWS, "--json").stdout)
    assert values["passed"] is True
    assert values["findings"] == []
    assert values["certificate"]["holds"] is True
    assert math.isclose(values["certificate"]["epsilon_per_km"], 2.0, rel_tol=1e-9)
    assert len(values["certificate"]["worst_pair"]) == 2
    assert 0 < values["epsilon_lower_bound_per_km"] <= 2.0
    mechanism = PlanarGeometric(GRID, epsilon_per_km=2.0)
    distances = GRID.distances_km()
    mean = float((mechanism.matrix() * distances).sum() / GRID.size)
    assert math.isclose(values["mean_distance_km"], mean, rel_tol=1e-9)


def test_costs_are_those_of_where_people_are(tmp_path: Path) -> None:
    grid = Grid.from_box(south=48.83, west=2.31, north=48.86, east=2.36, cell_km=1.0)
    share = np.where(np.arange(grid.size) == 8, 0.9, 0.1 / (grid.size - 1))
    prior, target = tmp_path / "prior.geojson", tmp_path / "mechanism.json"
    write_result(str(prior), Shares(grid, share))
    mechanism = Elastic(grid, beta_per_km=2.0, weights=share)
    save_mechanism(mechanism, target)
    flat, crowd = (
        json.loads(audit(target, *DRAWS, "--json", *more).stdout)
        for more in ((), ("--prior", prior, "--gain"))
    )
    wanted = manipulation_gain(mechanism, share)
    assert crowd["manipulation_gain"] == {"worst": wanted.gain, "target": wanted.target}
    assert crowd["mean_distance_km"] < flat["mean_distance_km"]
    assert flat["manipulation_gain"] is None
    other = tmp_path / "other.geojson"
    elsewhere = Grid.from_box(south=48.8, west=2.31, north=48.83, east=2.36, cell_km=1.0)
    write_result(str(other), Shares(elsewhere, np.full(elsewhere.size, 1 / elsewhere.size)))
    refused = audit(target, "--prior", other)
    assert refused.exit_code == 2
    assert "must have the cells of the mechanism" in refused.stderr


@pytest.mark.parametrize("columns", ["cell,population", "lat,lng,population"])
def test_a_prior_is_read_as_design_reads_it(tmp_path: Path, columns: str) -> None:
    """Any column of amounts, beside cells of the mechanism or places on its map."""
    grid = Grid.from_box(south=48.83, west=2.31, north=48.86, east=2.36, cell_km=0.5)
    save_mechanism(PlanarGeometric(grid, epsilon_per_km=2.0), tmp_path / "mechanism.json")
    people = np.arange(grid.size) + 1.0
    lat, lng = grid.centres_latlng()
    table = {"cell": np.arange(grid.size), "lat": lat, "lng": lng, "population": people}
    rows = np.stack([table[name] for name in columns.split(",")], axis=1)
    np.savetxt(tmp_path / "census.csv", rows, delimiter=",", header=columns, comments="")
    asked = [tmp_path / "mechanism.json", *DRAWS, "--prior", tmp_path / "census.csv"]
    assert "--column must name the amounts" in audit(*asked).stderr
    values = json.loads(audit(*asked, "--column", "population", "--json").stdout)
    matrix = PlanarGeometric(grid, epsilon_per_km=2.0).matrix()
    mean = float(people @ (matrix * grid.distances_km()).sum(axis=1) / people.sum())
    assert math.isclose(values["mean_distance_km"], mean, rel_tol=1e-9)
    alone = audit(tmp_path / "mechanism.json", "--column", "population")
    assert (alone.exit_code, alone.stderr.count("\n")) == (2, 1)
    assert "--column must come with --prior" in alone.stderr


def test_a_broken_claim_ends_with_one(broken: Path) -> None:
    result = audit(broken, *DRAWS)
    assert result.exit_code == 1
    assert "THE CLAIM IS BROKEN" in result.stdout
    assert "DOES NOT HOLD" in result.stdout
    values = json.loads(audit(broken, *DRAWS, "--json").stdout)
    assert values["passed"] is False
    assert values["certificate"]["holds"] is False
    # the exact loss per km of the matrix, by comparing every pair of rows
    logs = np.log(Elastic(GRID, beta_per_km=1.0).matrix())
    losses = np.abs(logs[:, None, :] - logs[None, :, :]).max(axis=2)
    distances = GRID.distances_km() + np.eye(GRID.size)
    expected = float((losses / distances).max())
    assert math.isclose(values["certificate"]["epsilon_per_km"], expected, rel_tol=1e-6)


def test_a_claim_a_little_below_a_bound_is_called_unshown_and_not_broken(tmp_path: Path) -> None:
    many = Grid(rows=65, columns=64, cell_km=0.5)
    values = mechanism_to_dict(PlanarLaplace(many, epsilon_per_km=1.0))
    values["guarantee"]["epsilon_per_km"] = 0.9999999
    path = tmp_path / "below.json"
    path.write_text(json.dumps(values))
    result = audit(path, *DRAWS)
    said = " ".join(result.stdout.split())
    assert result.exit_code == 1
    assert "IS NOT SHOWN TO HOLD: the loss is at most 1 per km" in said
    assert "THE CLAIM IS NOT SHOWN" in said
    assert "DOES NOT HOLD" not in said
    assert "BROKEN" not in said
    certificate = json.loads(audit(path, *DRAWS, "--json").stdout)["certificate"]
    assert (certificate["holds"], certificate["verdict"]) == (False, "is not shown to hold")


@pytest.mark.parametrize("kind", ["planar", "elastic", "positions", "published"])
def test_an_edited_document_says_what_it_claims_and_what_is_true(kind: str, tmp_path: Path) -> None:
    map_grid = Grid.from_box(south=48.83, west=2.31, north=48.86, east=2.36, cell_km=0.5)
    made = elastic(map_grid, epsilon_per_km=4.0, between="cells")
    values = {
        "planar": lambda: mechanism_to_dict(PlanarGeometric(GRID, epsilon_per_km=4.0)),
        "elastic": lambda: mechanism_to_dict(made),
        "positions": lambda: mechanism_to_dict(elastic(map_grid, epsilon_per_km=4.0)),
        "published": lambda: json.loads(
            publish(
                elastic(map_grid, epsilon_per_km=4.0),  # type: ignore[arg-type]
                campaign="paris",
                round=1,
                not_before_s=0,
                expires_s=10,
            ).served()
        ),
    }[kind]()
    values.get("guarantee", values)["epsilon_per_km"] = 0.125
    values.pop("id", None)  # an edited document is another one
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(values))
    result = audit(path, *DRAWS)
    assert result.exit_code == 1, result.output
    said = " ".join(result.stdout.split())
    assert "THE CLAIM IS BROKEN" in said
    positions = " between positions" if kind in ("positions", "published") else ""
    assert f"claim geo-indistinguishability{positions}, ε = 0.125 per km" in said
    shown = "IS NOT SHOWN TO HOLD" if positions else "DOES NOT HOLD"  # there it is a bound only
    assert re.search(rf"{shown}: the loss is (exactly|at most) (4|3\.99\d*) per km", said)
    assert "times as likely" not in said  # nothing is promised in the name of a false claim
    machine = json.loads(audit(path, *DRAWS, "--json").stdout)
    assert "0.125" in machine["guarantee"]
    table = tmp_path / "a.csv"
    table.write_text("lat,lng\n48.85,2.35\n")
    command = ["obfuscate", str(table), "-o", str(tmp_path / "b.csv"), "--mechanism", str(path)]
    refused = CliRunner().invoke(program, command)
    assert refused.exit_code == 2
    assert not (tmp_path / "b.csv").exists()


def test_an_infinite_loss_is_a_word_in_json(tmp_path: Path) -> None:
    matrix = np.eye(GRID.size)
    save_claimed(DenseChannel(GRID, matrix), 2.0, tmp_path / "none.json")
    result = audit(tmp_path / "none.json", *DRAWS, "--json")
    assert result.exit_code == 1
    values = json.loads(result.stdout, parse_constant=pytest.fail)
    assert values["certificate"]["epsilon_per_km"] == "infinite"


def test_continuous_noise_has_no_table_to_audit(tmp_path: Path) -> None:
    save_mechanism(ContinuousLaplace(epsilon_per_km=2.0), tmp_path / "noise.json")
    result = audit(tmp_path / "noise.json")
    assert result.exit_code == 2
    assert "must be a mechanism on cells" in result.stderr


DOCUMENT = mechanism_to_dict(PlanarGeometric(GRID, epsilon_per_km=2.0))
HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "text": b"not json",
    "list": b"[]",
    "number": b"3",
    "binary": bytes(range(256)),
    "nan": b'{"geoveil": NaN}',
    "other": b'{"type": "FeatureCollection", "features": []}',
    "version": json.dumps({**DOCUMENT, "geoveil": 99}).encode(),
    "unknown": json.dumps({**DOCUMENT, "mechanism": "magic"}).encode(),
    "no-space": json.dumps({key: DOCUMENT[key] for key in DOCUMENT if key != "space"}).encode(),
    "odd-parameter": json.dumps({**DOCUMENT, "parameters": {"colour": 1}}).encode(),
    "negative": json.dumps({**DOCUMENT, "parameters": {"epsilon_per_km": -1}}).encode(),
    "deep": b"[" * 100_000,
    "deep-remaps": b'{"geoveil":1,"mechanism":"remapped","map":[0],"of":'
    + b'{"mechanism":"remapped","map":[0],"of":' * 900
    + b"0"
    + b"}" * 901,
    "long-number": json.dumps({**DOCUMENT, "parameters": {"epsilon_per_km": 10**4000}}).encode(),
    "endless": json.dumps(DOCUMENT).replace("2.0", "1e999").encode(),
    "long-name": json.dumps({**DOCUMENT, "mechanism": "m" * 100_000}).encode(),
    "coloured": json.dumps({**DOCUMENT, "mechanism": "\x1b[31mred"}).encode(),
    "listed": json.dumps({**DOCUMENT, "mechanism": ["elastic"]}).encode(),
    "no-parameters": json.dumps({**DOCUMENT, "parameters": None}).encode(),
    "no-promise": json.dumps({**DOCUMENT, "guarantee": {}}).encode(),
    "odd-promise": json.dumps({**DOCUMENT, "guarantee": {"kind": ["per-km"]}}).encode(),
    "more-promise": json.dumps(
        {**DOCUMENT, "guarantee": {"kind": "per-km", "epsilon_per_km": 2, "radius_km": 1}}
    ).encode(),
    "world": json.dumps({**DOCUMENT, "space": {**DOCUMENT["space"], "rows": 10**9}}).encode(),
    "no-levels": b'{"geoveil": 2, "kind": "levels", "levels": []}',
    "newer": b'{"geoveil": 3, "kind": "mechanism"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_documents_get_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.json"
    path.write_bytes(HOSTILE[name])
    result = audit(path)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("geoveil: error: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.rstrip("\n").isprintable()
    assert len(result.stderr) < 700
    for words_of_python in ("object is", "unexpected keyword", "unhashable", "subscriptable"):
        assert words_of_python not in result.stderr or name == "odd-parameter"


def test_a_file_without_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "LARGEST_FILE", 1000)
    (tmp_path / "long.json").write_bytes(b" " * 1001)
    result = audit(tmp_path / "long.json")
    assert result.exit_code == 2
    assert "must be a mechanism document, of at most 1,000 bytes" in result.stderr


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("collector.example/c/lyon", "a campaign's link that begins with https://"),
        ("https:/collector.example/c/lyon", "a campaign's link that begins with https://"),
        ("https://collector.example/c/Lyon", "must be a campaign's link"),
        ("https://collector.example/c/lyon?lang=fr", "nothing after the campaign's name"),
        ("https://collector.example/operate", "must be a campaign's link"),
        ("file:///etc/passwd", "must be a campaign's link"),
        ("http://127.0.0.1:1/c/lyon", "nobody listens at its host and port"),
        ("missing.json", "missing.json: No such file or directory"),
    ],
)
def test_a_wrong_link_is_told_what_a_right_one_looks_like(link: str, words: str) -> None:
    result = audit(link)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr
    assert link in result.stderr


def test_a_password_in_a_link_is_not_repeated() -> None:
    result = audit("https://me:secret@collector.example/c/lyon")
    assert result.exit_code == 2
    assert "the link must be a campaign's link" in result.stderr
    assert "secret" not in result.output


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "no campaign of that name"), (410, "has ended"), (503, "try again later")],
)
def test_an_answer_that_is_no_document_is_explained(status: int, words: str) -> None:
    with serving(lambda handler: send(handler, status, b"{}")) as service:
        result = audit(service.url)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"not with {status}" in result.stderr
    assert words in result.stderr


def test_of_several_promises_the_strongest_is_audited_from_a_link_and_a_file(
    tmp_path: Path,
) -> None:
    grid = Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
    times: dict[str, Any] = {"round": 3, "not_before_s": 0, "expires_s": 1 << 31}
    levels = [
        publish(
            elastic(grid, epsilon_per_km=epsilon, between="positions"),
            campaign="lyon",
            level=level,
            **times,
        )
        for level, epsilon in enumerate((1.0, 2.0))
    ]
    (tmp_path / "levels.json").write_bytes(served_levels(levels))
    with serving(_plain(served_levels(levels))) as service:
        results = [audit(given, *DRAWS) for given in (service.url, tmp_path / "levels.json")]
    for result in results:
        said = " ".join(result.stdout.split())
        assert result.exit_code == 0, result.output
        assert "the strongest of the 2 promises in round 3 of the campaign lyon" in said
        assert levels[0].id in said
        assert "ε = 1 per km" in said


def test_what_obfuscate_saves_can_be_audited(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("lat,lng\n48.85,2.35\n")
    options = ["--epsilon-per-km", "2", "--box", "48.84,2.34,48.86,2.36"]
    CliRunner().invoke(
        program,
        ["obfuscate", str(tmp_path / "a.csv"), "-o", str(tmp_path / "b.csv"), *options,
         "--save-mechanism", str(tmp_path / "m.json")],
    )  # fmt: skip
    assert audit(tmp_path / "m.json", *DRAWS).exit_code == 0


@pytest.mark.parametrize("between", ["cells", "positions"])
def test_a_sound_document_is_spoken_of_by_what_it_promises(between: Any, tmp_path: Path) -> None:
    """Not by what its law would promise by itself, and under the id of the document."""
    grid = Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
    path = tmp_path / "mechanism.json"
    save_mechanism(elastic(grid, epsilon_per_km=2.0, between=between), path)
    values = json.loads(audit(path, *DRAWS, "--json").stdout)
    assert "ε = 2 per km" in values["guarantee"]
    assert values["mechanism"] == json.loads(path.read_text())
    assert "ε = 2 per km" in " ".join(audit(path, *DRAWS).stdout.split())


def test_a_campaigns_link_is_audited_by_what_it_publishes_now() -> None:
    with serving(honest(document().served(), {})) as service:
        result = audit(service.url, *DRAWS)
        values = json.loads(audit(service.url, *DRAWS, "--json").stdout)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert document().id in said
    assert "round 1 of the campaign lyon, until 2027-01-15" in said
    assert values["fingerprint"] == document().id
    assert values["certificate"]["epsilon_per_km"] <= 2.0
    gone = audit(service.url, *DRAWS)
    assert (gone.exit_code, gone.stderr.count("\n")) == (2, 1)
    assert "must answer with a mechanism document" in gone.stderr


def test_a_link_that_publishes_something_else_is_refused() -> None:
    for answer in (b"[]", document().served().replace(b'"geoveil":2', b'"geoveil":1')):
        with serving(honest(answer, {}) if answer != b"[]" else _plain(answer)) as service:
            result = audit(service.url, *DRAWS)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert "the mechanism document was refused" in result.stderr


def _plain(body: bytes) -> Callable[[Any], None]:
    return lambda handler: send(handler, 200, body)


@pytest.mark.parametrize("vector", ["lagoon", "places"])
@pytest.mark.parametrize(("epsilon", "code"), [(None, 0), (0.1, 1)])
def test_a_mask_and_a_list_of_places_are_certified_and_audited(
    vector: str, epsilon: float | None, code: int, tmp_path: Path
) -> None:
    vectors = Path(__file__).resolve().parents[2] / "vectors"
    text = json.loads((vectors / f"mechanism-{vector}.json").read_text("utf-8"))["document"]
    values = json.loads(text)
    if epsilon is not None:
        values["epsilon_per_km"] = epsilon
    (tmp_path / "lagoon.json").write_text(json.dumps(values))
    result = audit(tmp_path / "lagoon.json", *DRAWS)
    said = " ".join(result.stdout.split())
    assert result.exit_code == code, result.output
    assert ("IS NOT SHOWN TO HOLD" in said) is ("THE CLAIM IS BROKEN" in said) is bool(code)
    assert "draws follow the rows" in said or code
    assert (_AT_PLACES if vector == "places" else _IN_CELLS) in said
    machine = audit(tmp_path / "lagoon.json", *DRAWS, "--json")
    assert json.loads(machine.stdout)["passed"] is not bool(code)


_BOX = Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
_CORNER = MaskedGrid(_BOX, np.arange(_BOX.size) > 0)
_LAT, _LNG = _BOX.centres_latlng()
_IN_CELLS = "to the middle of the reported cell, people standing anywhere in their cells"
_AT_PLACES = "from a person to the reported place, people standing at the places"


@pytest.mark.parametrize(
    ("space", "between", "words"),
    [
        (_BOX, "positions", _IN_CELLS),
        (_CORNER, "positions", _IN_CELLS),
        (Points(lat=_LAT, lng=_LNG, cell_km=0.5), "positions", _IN_CELLS),
        (Points(lat=_LAT, lng=_LNG), "positions", _AT_PLACES),
        (_BOX, "cells", "between the cell of a person and the report"),
        (Points(lat=_LAT, lng=_LNG), "cells", "between the place of a person and the report"),
    ],
)
def test_the_mean_distance_says_where_people_are_taken_to_stand(
    space: Any, between: Any, words: str, tmp_path: Path
) -> None:
    mechanism = elastic(space, epsilon_per_km=2.0, between=between)
    save_mechanism(mechanism, tmp_path / "mechanism.json")
    said = " ".join(audit(tmp_path / "mechanism.json", *DRAWS).stdout.split())
    assert words in said
    assert " cells" not in said or not at_places(space)
    if words == _AT_PLACES:  # as far as the rows of people at the places say
        apart = np.linalg.norm(space.centres[:, None] - space.centres, axis=2)
        mean = float((mechanism.matrix() * apart).sum(axis=1).mean())
        told = re.search(r"mean distance ([0-9.]+) km", said)
        assert told is not None
        assert float(told[1]) == pytest.approx(mean, rel=2e-3)


def test_a_document_for_longer_than_the_calendar_is_audited(tmp_path: Path) -> None:
    values = json.loads(document().served()) | {"expires": 1 << 40}
    del values["id"]
    (tmp_path / "far.json").write_text(json.dumps(values))
    result = audit(tmp_path / "far.json", *DRAWS)
    assert result.exit_code == 0, result.output
    assert "for longer than the year 9999" in " ".join(result.stdout.split())


def test_a_document_can_come_from_a_pipe(sound: Path, tmp_path: Path) -> None:
    data = sound.read_bytes()
    result = CliRunner().invoke(program, ["audit", "-", *DRAWS], input=data)
    assert result.exit_code == 0, result.output
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True).start()
    assert audit(pipe, *DRAWS).exit_code == 0
    assert format_of(str(pipe)) is Format.CSV  # as of standard input
    wrong = CliRunner().invoke(program, ["audit", "-"], input=b"{}")
    assert wrong.exit_code == 2
    assert "standard input: a mechanism document must say" in wrong.stderr
    tally = b'{"counts":[1],"mechanism":' + data + b',"space":{}}'
    beside = CliRunner().invoke(program, ["audit", "-"], input=tally)
    assert beside.exit_code == 2
    assert "must hold nothing else, as a tally does" in beside.stderr


def test_a_mechanism_can_go_to_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_result("prior.csv", Shares(GRID, np.full(GRID.size, 1 / GRID.size)))
    promise = ["--epsilon-per-km", "2", "--between", "cells"]
    made = CliRunner().invoke(program, ["design", "--prior", "prior.csv", *promise, "-o", "-"])
    assert made.exit_code == 0, made.stderr
    assert re.search("saved +standard output", made.stderr)
    Path("places.csv").write_text("lat,lng\n48.85,2.35\n")
    drawn = ["obfuscate", "places.csv", "-o", "noisy.csv", "--save-mechanism", "-"]
    box = ["--epsilon-per-km", "2", "--box", "48.84,2.34,48.86,2.36"]
    noisy = CliRunner().invoke(program, [*drawn, *box])
    for data in (made.stdout_bytes, noisy.stdout_bytes):
        result = CliRunner().invoke(program, ["audit", "-", *DRAWS], input=data)
        assert result.exit_code == 0, result.output
    assert not Path("-").exists()
    drawn[3] = "-"
    both = CliRunner().invoke(program, [*drawn, *box])
    assert both.exit_code == 2
    assert "only one output can go to a pipe" in both.stderr
