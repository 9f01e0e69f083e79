"""Every sentence about privacy is true (promise 39): all mechanisms, all spaces, all who print."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import geoveil as gv
from client.world import Collector, device, document
from geoveil.campaign import advise, elastic
from geoveil.channel import words
from geoveil.channel.channel import Channel
from geoveil.channel.composed import AverageChannel
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.channel.joint import JointChannel
from geoveil.cli.program import program
from sentences import (
    cell_pairs,
    check,
    laws_at,
    located,
    losses,
    position_pairs,
    read,
    worst_between_positions,
)

MAP = gv.Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
ABSTRACT = gv.Grid(rows=3, columns=4, cell_km=0.5)
LINE = gv.Line(6)
PLACES = gv.Points(xy_km=np.random.default_rng(2).uniform(0, 2, (7, 2)))
SPACES = {"map": MAP, "abstract": ABSTRACT, "line": LINE, "points": PLACES}
DISTANCES = (0.013, 0.2, 0.61, 1.3)


@cache
def prior(space: gv.Space) -> Any:
    return np.random.default_rng(1).dirichlet(np.full(space.size, 0.5))


def on_cells(space: gv.Space) -> dict[str, Channel]:
    """Mechanisms for any space."""
    weighted = gv.Elastic(space, beta_per_km=1.3, weights=prior(space))
    local = gv.RandomizedResponse(space, epsilon=1.1)
    exponential = gv.Exponential(space, epsilon_per_km=2.0)
    far = gv.WithinRadius(1.0, float(losses(exponential)[space.distances_km() <= 1.0].max()))
    return {
        "elastic": gv.Elastic(space, epsilon_per_km=2.0, weights=prior(space)),
        "elastic by β": weighted,
        "exponential": exponential,
        "randomized response": local,
        "rappor": gv.Rappor(space, epsilon=1.4),
        "dense": gv.DenseChannel(space, exponential.matrix(), guarantee=exponential.guarantee),
        "within a radius": gv.DenseChannel(space, exponential.matrix(), guarantee=far),
        "a general ℓ": gv.DenseChannel(
            space,
            exponential.matrix(),
            guarantee=gv.GeneralPrivacy(lambda d: np.maximum(2 * d, d + 1), "2d, or d + 1"),
        ),
        "remapped": gv.Remapped(weighted, np.arange(space.size) // 2 * 2),
        "exact table": gv.ExactTable(weighted),
        "stacked": gv.StackedChannel([weighted, exponential]),
        "average": AverageChannel([weighted, exponential], [0.5, 0.5]),
        "together": JointChannel([local, exponential]),
        "optimal": gv.optimal_mechanism(space, prior(space), epsilon_per_km=2.0),
    }


def mechanisms(name: str) -> dict[str, Channel]:
    space = SPACES[name]
    made = on_cells(space)
    if isinstance(space, gv.Line):
        made["linear geometric"] = gv.LinearGeometric(space, epsilon_per_unit=0.7)
    if isinstance(space, gv.Grid):
        made["planar geometric"] = gv.PlanarGeometric(space, epsilon_per_km=2.0)
        made["planar Laplace"] = gv.PlanarLaplace(space, epsilon_per_km=2.0)
        for camouflage in (0.0, 0.5, 1.0):
            designed = elastic(
                space, prior(space), epsilon_per_km=2.0, camouflage=camouflage, between="cells"
            )
            made[f"camouflage {camouflage}"] = designed
    return made


@cache
def between_positions(camouflage: float, epsilon: float = 2.0) -> gv.PositionalElastic:
    """What a map is given unless cells are asked for."""
    made = elastic(MAP, prior(MAP), epsilon_per_km=epsilon, camouflage=camouflage)
    assert isinstance(made, gv.PositionalElastic)
    return made


# -- the library ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPACES)
def test_every_mechanism_tells_the_truth(name: str) -> None:
    for mechanism in mechanisms(name).values():
        for distance in (1.0, 3.0) if name == "line" else DISTANCES:
            (said,) = check(mechanism.explain(distance), mechanism)
            assert said.in_cells == isinstance(mechanism.space, gv.Grid)
        assert mechanism.guarantee is not None
        check_bare(mechanism)


@pytest.mark.parametrize("camouflage", [0.0, 0.5, 1.0])
def test_every_mechanism_between_positions_tells_the_truth(camouflage: float) -> None:
    """Edges, corners, outside and around the globe, exactly as drawn; the rounding is charged."""
    mechanism = between_positions(camouflage)
    inward = np.arange(mechanism.report_count) % MAP.size
    for told in (mechanism, gv.Remapped(mechanism, inward)):
        for distance in (1e-3, *DISTANCES, 40.0):
            (said,) = check(told.explain(distance), told)
            assert (said.who, said.in_cells) == ("people", False)
            needed = 2.0 * distance + mechanism.slack  # and no more than that
            assert said.level <= needed * 1.01 + 0.011
        near = told.explain(0.2)  # the consequence first, then odds and frequencies, then the cost
        assert near.startswith(
            "Whoever stands within 200 m of you could have sent the same report: any"
        )
        assert near.endswith(f". {words.spend_in_words(told.guarantee)}")
        assert told.explain(40.0).startswith(
            "Two people 40 km apart: any report is at most e^80.1 times"
        )
    promise = mechanism.guarantee
    assert promise is not None
    for text in (promise.sentence(), promise.amount(), words.spend_in_words(promise)):
        check(f"{text} {promise.explain(0.2)}", mechanism)
    certificate = gv.certify(mechanism)
    check(f"ε = {certificate.found} {mechanism.explain(0.2)}", mechanism)
    assert certificate.slack_nats == mechanism.slack
    place = np.array([certificate.worst_place_km])
    assert MAP.inside_km(place).all()
    steps = 0.1 * np.stack(
        [np.cos(np.arange(64) * np.pi / 32), np.sin(np.arange(64) * np.pi / 32)], -1
    )
    here, around = np.log(laws_at(mechanism, place)), np.log(laws_at(mechanism, place + steps))
    found = np.abs(here - around).max() / 0.1  # people beside that place lose nearly all of it
    assert 0.85 * certificate.epsilon_per_km <= found + mechanism.slack / 0.1


def test_a_sentence_about_positions_that_says_too_little_fails_here() -> None:
    mechanism = between_positions(0.5)
    true = mechanism.explain(0.2)
    with pytest.raises(AssertionError, match="is true"):
        check(re.sub(r"at most [\d.]+ times", "at most 1.3 times", true), mechanism)
    with pytest.raises(AssertionError, match="is true"):
        check(re.sub(r"at least \d+ on", "at least 80 on", true), mechanism)
    with pytest.raises(AssertionError, match="too little"):
        check(f"{true} ε = 1.8 per km and 0.02 for rounding", mechanism)
    with pytest.raises(
        AssertionError, match="too little"
    ):  # next to each other only rounding counts
        check(f"{true} ε = 2 per km", mechanism)


def check_bare(mechanism: Channel) -> None:
    """The guarantee by itself speaks only of places, and truly of those that there are."""
    guarantee, unit = mechanism.guarantee, mechanism.space.unit
    assert guarantee is not None
    for distance in np.unique(mechanism.space.distances_km().round(9))[1:4]:
        (said,) = check(guarantee.explain(float(distance)), mechanism) if unit == "km" else (None,)
        assert said is None or said.who == "places"
    sentence = guarantee.sentence(unit)
    assert "people" not in sentence
    check(f"{sentence} {guarantee.amount(unit)} {mechanism.explain(1.0)}", mechanism)


@pytest.mark.parametrize("grid", [MAP, ABSTRACT], ids=["map", "abstract"])
@pytest.mark.parametrize("distance", [0.05, 0.2, 0.49, 0.61, 1.3, 9.0])
def test_what_is_said_of_a_grid_is_no_more_than_needed(grid: gv.Grid, distance: float) -> None:
    mechanism = gv.PlanarGeometric(grid, epsilon_per_km=2.0)
    (said,) = check(mechanism.explain(distance), mechanism)
    farthest = 2.0 * grid.distance_km(*cell_pairs(grid, distance)).max()
    assert said.level <= farthest + 0.011  # two such people may really be in cells so far apart
    assert said.share >= math.exp(-farthest) / 2


def test_the_old_sentence_fails_here() -> None:
    mechanism = gv.PlanarGeometric(ABSTRACT, epsilon_per_km=2.0)
    said = "Two people 200 m apart{}: any report is at most {} times as likely from one as from the other."
    for where in ("", ", wherever they stand in their cells"):
        old = said.format(where, 1.49)
        with pytest.raises(AssertionError, match="is true"):
            check(old.replace("people", "places") if not where else old, *_fine(mechanism, where))
    assert [found.level for found in read(said.format("", 1.49))] == [math.log(1.49)]


def _fine(mechanism: Channel, where: str) -> list[Channel]:
    """Without cells the same words are about places 200 m apart, which a finer grid has."""
    if where:
        return [mechanism]
    return [gv.PlanarGeometric(gv.Grid(rows=3, columns=3, cell_km=0.1), epsilon_per_km=2.0)]


def test_sentences_in_other_words_are_noticed() -> None:
    with pytest.raises(AssertionError, match="in other words"):
        read("Somebody: any report is at most 1.5 times as likely from one as from the other.")


@pytest.mark.parametrize("epsilon", [0.7, 2.0])
def test_continuous_noise_is_about_the_people_themselves(epsilon: float) -> None:
    laplace = gv.ContinuousLaplace(epsilon_per_km=epsilon)
    staircase = gv.optimal_noise(privacy=gv.WithinRadius(0.5, epsilon), gap=0.01)
    for noise in (laplace, staircase):
        (said,) = read(noise.explain(0.2))
        assert (said.who, said.distance_km, said.in_cells) == ("people", 0.2, False)
        radius = np.linspace(0, 3, 3001)  # 200 m are 200 of them
        density = noise.density_per_km2(radius)
        density = density[density > 0]
        exact = np.abs(np.log(density[200:] / density[:-200])).max()
        assert exact <= said.level + 1e-9
        assert said.share <= math.exp(-exact)
    assert read(staircase.explain(0.7))[0].level == math.inf


@pytest.mark.parametrize("spread", [False, True])
def test_noise_that_is_remapped_starts_in_the_middle_of_a_cell_or_anywhere_in_it(
    spread: bool,
) -> None:
    noise = gv.ContinuousLaplace(epsilon_per_km=2.0)
    remapped = gv.NearestPlace(noise, ABSTRACT, spread=spread)
    law = gv.PlanarLaplace(ABSTRACT, epsilon_per_km=2.0, spread=spread)  # the same, by integrals
    assert check(remapped.explain(0.2), law)[0].in_cells


def test_a_mechanism_without_a_promise_says_so() -> None:
    strategy = gv.optimal_strategy(LINE, prior(LINE), mean_loss_km=0.5)
    for promised in (
        strategy,
        gv.DenseChannel(LINE, np.eye(6)),
        gv.NearestPlace(_plain(), ABSTRACT),
    ):
        assert (
            promised.explain(1.0) == "It promises nothing: a report may tell any two people apart."
        )
    assert words.spend_in_words(None, 3) == strategy.explain(1.0)


def _plain() -> gv.CircularNoise:
    return gv.CircularNoise.of_rings([0.0, 1.0], [1 / np.pi])


def test_a_false_claim_is_refused_and_a_matrix_speaks_of_its_loss() -> None:
    lie, elastic = gv.GeoIndistinguishability(0.1), gv.Elastic(ABSTRACT, beta_per_km=2.0)
    with pytest.raises(gv.errors.InvalidInput, match="must not be smaller than the loss"):
        gv.Elastic(ABSTRACT, beta_per_km=2.0, epsilon_per_km=0.1)
    with pytest.raises(gv.errors.InvalidInput, match="must not be smaller than the loss"):
        gv.DenseChannel(ABSTRACT, elastic.matrix(), guarantee=lie)
    dense = gv.DenseChannel(ABSTRACT, elastic.matrix())
    for told in (dense, gv.Remapped(dense, np.arange(ABSTRACT.size)), gv.ExactTable(dense)):
        check(told.explain(0.2), dense)


@pytest.mark.parametrize("epsilon", [2.0000004, 0.1 + 0.2, 1 / 3, 7.7e-5, 1234567.8])
def test_an_epsilon_is_never_printed_below_itself(epsilon: float) -> None:
    for promise in (
        gv.GeoIndistinguishability(epsilon),
        gv.LocalDifferentialPrivacy(epsilon),
        gv.WithinRadius(1 / 3, epsilon),
    ):
        for text in (str(promise), promise.amount(), words.spend_in_words(promise)):
            shown = float(text.split("ε = ")[1].split()[0].rstrip(":;,"))
            assert epsilon * (1 - 1e-12) <= shown <= epsilon * (1 + 1e-5)
    assert "within 0.333333 km" in str(gv.WithinRadius(1 / 3, epsilon))


@pytest.mark.parametrize("level", [1e-9, 0.4, math.log(4), 4.7, 9.0, 13.7, 13.9, 60.0, 900.0])
def test_factors_are_rounded_up_and_frequencies_down(level: float) -> None:
    (said,) = read(gv.LocalDifferentialPrivacy(level).explain(0.2))
    assert level * (1 - 1e-9) <= said.level <= level * 1.01 + 0.011
    assert said.share <= math.exp(-level) * (1 + 1e-9)
    assert said.share > 0 or level > 13


def test_reports_from_positions_are_spoken_of_together() -> None:
    """Laws between positions and between cells add up for people who do not move."""
    first, second = between_positions(0.5), between_positions(1.0)
    for distance, start in ((0.2, "Whoever stands within 200 m of you could have sent the same 2 rep"),
                            (2.0, "Two people 2 km apart, who do not move: any 2 reports")):  # fmt: skip
        text = words.explain_together([first, second], distance)
        assert text.startswith(start)
        (said,) = check(text, first, second)
        assert (said.who, said.several) == ("people", True)
    cells = gv.PlanarGeometric(MAP, epsilon_per_km=1.0)
    promise = first.guarantee
    assert promise is not None
    assert said.level <= 2 * float(promise.loss(2.0)) * 1.01
    for mixed in ([first, cells], [cells, first]):
        (said,) = read(words.explain_together(mixed, 0.2))
        one, other = position_pairs(MAP, 0.2)
        of_cells = losses(cells)[located(MAP, one), located(MAP, other)]
        assert said.level >= worst_between_positions(first, 0.2) + of_cells.max() - 1e-9
    (spent,) = read(words.between_places(2 * promise, 0.2, reports=2))
    assert (spent.who, spent.several) == ("people", True)
    assert spent.level >= 2 * worst_between_positions(first, 0.2)


# -- several reports -----------------------------------------------------------------------------


def test_the_ledger_speaks_of_all_reports_together() -> None:
    coarse = gv.PlanarGeometric(ABSTRACT, epsilon_per_km=1.0)
    fine = gv.PlanarGeometric(gv.Grid(rows=6, columns=8, cell_km=0.25), epsilon_per_km=2.0)
    budget = gv.Budget(limit_per_km=5.0)
    budget.report(coarse, 1)
    check(budget.summary(), coarse)
    budget.report(fine, 1)
    (said,) = check(budget.summary().partition("left.")[2], coarse, fine)
    assert said.several
    assert said.in_cells
    assert "together ε = 3 per km; 2 of 5 left" in budget.summary()
    budget.charge("by hand", 1.0)  # nobody knows how people came into that one
    (bare,) = read(budget.summary())
    assert (bare.who, bare.several) == ("places", True)
    assert read(gv.Budget(limit_per_km=5.0).summary()) == []  # of no report there is nothing to say


def test_reports_over_different_kinds_of_places_are_about_places_only() -> None:
    """Nobody knows how far apart the nearest places of two people on a grid are."""
    budget = gv.Budget(limit_per_km=5.0)
    budget.report(gv.PlanarGeometric(ABSTRACT, epsilon_per_km=1.0), 1)
    budget.report(gv.Exponential(PLACES, epsilon_per_km=2.0), 1)
    (said,) = read(budget.summary())
    assert (said.who, said.several, said.in_cells) == ("places", True, False)
    assert said.level >= 0.6


def test_a_person_is_spoken_of_only_where_reports_are_counted() -> None:
    promise = gv.GeoIndistinguishability(2.0)
    assert "Every person" not in words.spend_in_words(promise)
    assert "ε = 3256 per km, in at most 1,628 reports" in words.spend_in_words(promise, 1628)
    assert "ε = 2 per km, in one report" in words.spend_in_words(promise, 1)
    local = gv.LocalDifferentialPrivacy(1.5)
    assert "ε = 3 whatever the distance" in words.spend_in_words(local, 2)
    assert words.spend_in_words(promise + local).count(" plus ") == 1
    with pytest.raises(gv.errors.InvalidInput):
        words.spend_in_words(promise, 0)


# -- all who print -------------------------------------------------------------------------------


def geoveil(*arguments: object) -> str:
    result = CliRunner().invoke(program, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def checkins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("places") / "checkins.csv"
    lat, lng = MAP.centres_latlng()
    rows = np.column_stack([np.repeat(lat, 40), np.repeat(lng, 40)])
    np.savetxt(path, rows, delimiter=",", header="lat,lng", comments="")
    return path


BOX = ("--box", "48.85,2.30,48.862,2.326")
ASKED = {
    "planar-geometric": ("--epsilon-per-km", 2),
    "planar-laplace": ("--epsilon-per-km", 1.7),
    "exponential": ("--level", 1.1, "--radius-km", 0.4),
    "elastic": ("--beta-per-km", 1.2),
    "randomized-response": ("--epsilon", 1.3),
    "disc": ("--epsilon", 1.3),
}


@pytest.mark.parametrize(
    ("name", "json_form"),
    [*((name, False) for name in ASKED), ("planar-geometric", True), ("randomized-response", True)],
)
def test_obfuscate_tally_and_audit(
    name: str, json_form: bool, checkins: Path, tmp_path: Path
) -> None:
    machine = ("--json",) if json_form else ()
    saved = tmp_path / "mechanism.json"
    asked = ("--mechanism", name, *ASKED[name], *BOX, *machine)
    noisy = geoveil("obfuscate", checkins, "-o", tmp_path / "out.csv", *asked,
                    "--save-mechanism", saved)  # fmt: skip
    counted = geoveil("tally", checkins, "-o", tmp_path / "tally.json", *asked)
    audited = geoveil("audit", saved, "--draws", 1000, *machine)
    mechanism = gv.load_mechanism(saved)
    assert isinstance(mechanism, Channel)
    for shown in (noisy, counted, audited):
        text = _sentences(shown) if json_form else shown
        assert check(text, mechanism)[0].in_cells
        assert "Every person" not in text


def test_the_elastic_mechanism_is_between_positions_unless_told_otherwise(
    checkins: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "mechanism.json"
    asked = ("--mechanism", "elastic", "--epsilon-per-km", 2, *BOX)
    noisy = geoveil("obfuscate", checkins, "-o", tmp_path / "out.csv", *asked,
                    "--save-mechanism", saved)  # fmt: skip
    counted = geoveil("tally", checkins, "-o", tmp_path / "tally.json", *asked)
    audited = geoveil("audit", saved, "--draws", 1000)
    mechanism = gv.load_mechanism(saved)
    assert isinstance(mechanism, gv.PositionalElastic)
    for shown in (noisy, counted, audited):
        assert not check(shown, mechanism)[0].in_cells
    told = geoveil("obfuscate", checkins, "-o", tmp_path / "b.csv", *asked, "--between", "cells")
    assert read(told)[0].in_cells


def test_noise_on_points_is_obfuscated_from_where_people_stand(
    checkins: Path, tmp_path: Path
) -> None:
    shown = geoveil("obfuscate", checkins, "-o", tmp_path / "out.csv", "--mechanism",
                    "continuous-laplace", "--epsilon-per-km", 2)  # fmt: skip
    (said,) = read(shown)
    assert (said.who, said.in_cells, said.distance_km) == ("people", False, 0.2)
    assert said.level >= 0.4


def _sentences(output: str) -> str:
    """What a JSON document says in words."""
    values = json.loads(output)
    return " ".join(
        str(values[name]) for name in ("guarantee", "explanation", "spent") if name in values
    )


@pytest.mark.parametrize("kind", ["geojson", "csv", "parquet"])
def test_design_from_every_file_format(kind: str, checkins: Path, tmp_path: Path) -> None:
    tally, estimate = tmp_path / "tally.json", tmp_path / f"estimate.{kind}"
    geoveil("tally", checkins, "-o", tally, "--epsilon-per-km", 2, *BOX, "--seed", 3)
    geoveil("estimate", tally, "-o", estimate)
    designs = (("--camouflage", 0.7), ("--camouflage", 0.7, "--between", "cells"), ("--optimal",))
    for number, extra in enumerate(designs):
        saved = tmp_path / f"mechanism{number}.json"
        asked = ("design", "--prior", estimate, "--epsilon-per-km", 2, *extra, "-o", saved)
        shown, values = geoveil(*asked), geoveil(*asked, "--json")
        mechanism = gv.load_mechanism(saved)
        assert isinstance(mechanism, Channel)
        for text in (shown, _sentences(values)):
            for said in check(text, mechanism):
                between = mechanism.told_apart is None
                assert between == ("--camouflage" in extra and "cells" not in extra)
                assert said.in_cells != between
                assert (said.level < math.log(1.6)) == between  # a cell's diagonal, or 200 m


def test_advice_is_about_cells_and_reports() -> None:
    advice = advise(ABSTRACT, prior(ABSTRACT), epsilon_per_km=2.0, people=200, repeats=1)
    assert "ε = 2 per km between cells for each report" in advice.sentence()
    assert "people" not in advice.sentence()
    for choice in advice.choices:
        check(f"{advice.promise} {choice.mechanism.explain(0.2)}", choice.mechanism)


def test_a_device_explains_itself(tmp_path: Path) -> None:
    text = device(Collector(), tmp_path / "ledger").explain()
    (said,) = check(text, document().mechanism)
    assert (said.who, said.in_cells) == ("people", False)


def test_a_device_sums_up_its_ledger(tmp_path: Path) -> None:
    collector = Collector()
    it = device(collector, tmp_path / "ledger", again="round")
    assert read(it.summary()) == []  # of no report there is nothing to say
    for number in (1, 2):
        collector.served = document(number).served()
        it.report(lat=45.76, lng=4.84)
        said, *moving = check(it.summary(), *[document(k + 1).mechanism for k in range(number)])
        assert (said.who, said.several) == ("people", number == 2)
        assert 0.4 * number <= said.level <= 0.42 * number
        assert [each.distance_km for each in moving] == [0.4] * (
            number - 1
        )  # 200 m, and 100 m each


def test_a_simulation_counts_the_reports_of_its_people(checkins: Path) -> None:
    asked = ("--rounds", 2, "--epsilon-per-km", 3, "--cell-km", 1)
    rows = geoveil("simulate", checkins, *BOX, *asked)
    promise = gv.BetweenPositions(3.0, 0.02)
    assert words.spend_in_words(promise) in " ".join(rows.split())
    assert "person has" not in rows
    cells = geoveil("simulate", checkins, *BOX, *asked, "--between", "cells")
    assert words.spend_in_words(gv.GeoIndistinguishability(3.0)) in " ".join(cells.split())
    city = json.loads(
        geoveil("simulate", "--people", 200, *asked, "--everybody", "each-round", "--json")
    )
    assert city["spent"] == words.spend_in_words(promise, 2)
    assert city["reports_per_person"] == 2


def test_what_several_reports_tell_about_people_who_move_a_little() -> None:
    """The worst ratio of two walks around two places is what the sentence says, and no more."""
    line = gv.Line(9)
    mechanism = gv.LinearGeometric(line, epsilon_per_unit=0.4)
    rows = [mechanism.row(cell) for cell in range(9)]
    here, there = (1, 2, 3), (4, 5, 6)  # within 1 of 2 and of 5, which are 3 apart
    worst = max(math.log(rows[a][y] / rows[b][y]) for a in here for b in there for y in range(9))
    three = GeoIndistinguishability(1.2)
    said = words.explain_nearby(three, 3.0, 1.0, reports=3)
    factor = float(re.search(r"at most ([\d,.]+) times", said)[1].replace(",", ""))  # type: ignore[index]
    assert 3 * worst <= math.log(factor) <= 3 * 0.4 * 5 + 0.01
    assert "within 1 km of a place, these places 3 km apart: any 3 reports together" in said
