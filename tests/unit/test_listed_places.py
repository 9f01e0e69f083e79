"""The law of positions among places and hexagons: its products, its promise, its documents."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import geoveil as gv
from geoveil.campaign.weights import flat_weights, least_loss_weights
from geoveil.channel.composed import AverageChannel
from geoveil.channel.joint import JointChannel
from geoveil.cli.program import program
from geoveil.document.wire import MechanismDocument, publish
from geoveil.errors import InvalidInput, TooLarge
from geoveil.position.cone import RoundedCone
from geoveil.position.position_certificate import Law
from geoveil.position.positional import PositionalElastic, centres_over, step_among
from geoveil.space import space_from_dict

LIMITS: dict[str, Any] = {
    "type": "Polygon",
    "coordinates": [[[2.28, 48.83], [2.40, 48.83], [2.40, 48.89], [2.28, 48.89], [2.28, 48.83]]],
}


def places(number: int = 30) -> gv.Points:
    generator = np.random.default_rng(5)
    return gv.Points(
        lat=48.85 + 0.03 * generator.random(number), lng=2.30 + 0.05 * generator.random(number)
    )


def hexagons() -> gv.Hexagons:
    pytest.importorskip("h3")
    return gv.Hexagons(LIMITS, resolution=7)


SPACES = pytest.mark.parametrize("make", [places, hexagons], ids=["places", "hexagons"])


def cone(distance: np.ndarray, beta: float, radius: float) -> np.ndarray:
    t = np.minimum(distance / radius, 1.0)
    psi = beta * radius * (5 * t**2 / 2 - t**6 / 6) / 4
    return np.exp(-psi - beta * np.maximum(distance - radius, 0.0)) + 2.0**-21


@SPACES
def test_products_are_means_of_rows_where_people_stand(make: Any) -> None:
    space = make()
    mechanism = gv.elastic(space, epsilon_per_km=1.0, between="positions")
    points = mechanism.centres.points_km
    low, high = points.min(axis=0), points.max(axis=0)
    wanted = np.zeros((space.size, space.size))
    for away in space.standing * space.cell_km:
        at = np.clip(points + away, low, high)
        distance = np.hypot(*np.moveaxis(at[:, None] - points, -1, 0))
        law = mechanism.weights * cone(distance, mechanism.beta_per_km, 0.87 * space.cell_km)
        wanted += law / law.sum(axis=1, keepdims=True) / len(space.standing)
    assert mechanism.matrix() == pytest.approx(wanted, abs=1e-12)
    theta = np.random.default_rng(1).dirichlet(np.ones(space.size))
    assert mechanism.push(theta) == pytest.approx(theta @ wanted, abs=1e-12)
    assert mechanism.pull(theta) == pytest.approx(wanted @ theta, abs=1e-12)
    assert mechanism.row(3) == pytest.approx(wanted[3], abs=1e-12)


@SPACES
def test_draws_follow_the_matrix(make: Any) -> None:
    mechanism = gv.elastic(make(), epsilon_per_km=2.0, between="positions")
    reports = mechanism.sample(np.full(20_000, 2), randomness=gv.seeded(1))
    seen = np.bincount(reports, minlength=mechanism.report_count) / 20_000
    law = mechanism.row(2)
    assert (np.abs(seen - law) <= 5 * np.sqrt(law / 20_000) + 0.004).all()


@SPACES
@pytest.mark.parametrize("camouflage", [0.0, 0.5])
def test_no_two_positions_lose_more_than_promised(make: Any, camouflage: float) -> None:
    space = make()
    mechanism = gv.elastic(space, epsilon_per_km=1.0, camouflage=camouflage, between="positions")
    assert 0.99 < mechanism.certificate.epsilon_per_km <= 1.0
    generator = np.random.default_rng(3)
    low, high = mechanism.centres.rectangle_km
    one = generator.uniform(low - 1.0, high + 1.0, size=(2000, 2))
    other = one + generator.normal(scale=0.3, size=one.shape)
    rows = [mechanism.law.rows_at(mechanism.law.steps_of(each)) for each in (one, other)]
    logs = [np.log(row / row.sum(axis=1, keepdims=True)) for row in rows]
    distance = np.hypot(*(one - other).T)
    assert (np.abs(logs[0] - logs[1]).max(axis=1) <= distance + mechanism.slack).all()


@SPACES
def test_documents_need_no_hexagons(make: Any) -> None:
    space = make()
    mechanism = gv.elastic(space, epsilon_per_km=1.0, between="positions")
    document = publish(mechanism, campaign="a", round=1, not_before_s=0, expires_s=9)
    read = MechanismDocument.read(document.served())
    assert read.id == document.id
    assert read.to_dict()["space"]["kind"] == "centres"
    again = read.mechanism
    assert isinstance(again, PositionalElastic)
    assert again.space.centres == pytest.approx(space.centres, abs=0.6 * mechanism.centres.pitch_km)
    at = mechanism.law.steps_of(space.centres[4])
    assert read.law.draw(at, bytes(range(16))) == mechanism.law.draw(at, bytes(range(16)))


@SPACES
def test_a_campaign_goes_round(make: Any) -> None:
    space = make()
    generator = np.random.default_rng(4)
    truth = generator.dirichlet(np.full(space.size, 0.5))
    campaign = gv.Campaign(space, epsilon_per_km=3.0, camouflage=0.5, between="positions")
    for number in range(2):
        people = generator.choice(space.size, size=6000, p=truth)
        mechanism = campaign.mechanism
        assert isinstance(mechanism, PositionalElastic)
        campaign.receive(mechanism.tally(mechanism.sample(people, randomness=gv.seeded(number))))
        campaign.close_round()
    assert campaign.estimate is not None
    low, high = campaign.estimate.interval(0.95)
    assert ((low <= truth) & (truth <= high)).mean() > 0.85


def test_flat_weights_make_the_sum_even_among_places() -> None:
    space = places(60)
    centres = centres_over(space, step=200, rim=0)
    kernel = RoundedCone(1.0, 0.87 * space.cell_km)
    away = np.hypot(*np.moveaxis(centres.points_km[:, None] - centres.points_km, -1, 0))
    flat, even = flat_weights(centres, kernel, space.cell_km), np.full(60, 1 / 60)
    spread = [np.std(np.log(kernel.values(away) @ weights)) for weights in (flat, even)]
    assert spread[0] < 0.6 * spread[1]
    assert flat.min() > 0.02 / 60


@pytest.mark.parametrize("number", [2, 3, 60])
def test_weights_of_least_loss_bring_the_worst_position_down(number: int) -> None:
    space = places(number)
    centres, cone = centres_over(space, step=200, rim=0), RoundedCone(1.0, 0.87 * space.cell_km)
    least = least_loss_weights(centres, cone, space.cell_km)
    assert least.sum() == pytest.approx(1.0)
    assert least.min() >= 0.39 / number
    flat = flat_weights(centres, cone, space.cell_km)
    ours, theirs = (Law(centres, each, cone).certify().epsilon_per_km for each in (least, flat))
    assert ours <= theirs * (1.0 if number > 3 else 1.05)
    if number == 60:
        assert ours < 0.95 * theirs
    again = least_loss_weights(centres, RoundedCone(1.02, cone.radius_km), space.cell_km, least)
    assert np.abs(np.log(again / least)).max() < 0.7


def test_the_sharpest_law_of_hexagons_is_nearly_as_steep_as_that_of_squares() -> None:
    cells = hexagons()
    squares = gv.Grid.from_polygon(LIMITS, cell_km=cells.cell_km)
    ours, theirs = (
        gv.elastic(space, epsilon_per_km=1.0, camouflage=0.0, between="positions")
        for space in (cells, squares)
    )
    assert ours.certified_epsilon_per_km <= 1.0
    assert ours.beta_per_km > 0.92 * theirs.beta_per_km
    assert ours.weights.min() >= 0.39 * ours.weights.mean()


def test_islands_far_apart_take_no_more_memory() -> None:
    north = [[[x, y + 6.0] for x, y in LIMITS["coordinates"][0]]]
    both = {"type": "MultiPolygon", "coordinates": [LIMITS["coordinates"], north]}
    space = gv.Hexagons(both, resolution=7)
    centres, cone = centres_over(space, step=200, rim=0), RoundedCone(0.5, 0.87 * space.cell_km)
    tracemalloc.start()
    least = least_loss_weights(centres, cone, space.cell_km)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 60e6
    assert least.min() >= 0.39 / space.size


def test_one_place_alone_tells_nothing() -> None:
    mechanism = gv.elastic(
        gv.Points(lat=[10.0], lng=[20.0]), epsilon_per_km=1.0, between="positions"
    )
    assert mechanism.sample_at(lat=[10.0, 11.0], lng=[20.0, 20.0]).tolist() == [0, 0]
    assert gv.certify(mechanism).epsilon_per_km == 0.0


def test_places_that_are_too_close() -> None:
    near = gv.Points(lat=[48.85, 48.850005, 48.87], lng=[2.30, 2.30, 2.33])
    with pytest.raises(InvalidInput, match="at least a metre apart; those at positions 0 and 1"):
        gv.elastic(near, epsilon_per_km=1.0, between="positions")
    close = gv.Points(lat=[48.85, 48.85005, 48.9, 49.5], lng=[2.30, 2.30, 2.33, 3.5])
    with pytest.raises(InvalidInput, match=r"at least \d+ m apart at this promise"):
        gv.elastic(close, epsilon_per_km=0.2, between="positions")
    fine = gv.Points(lat=[48.85, 48.85005, 48.852], lng=[2.30, 2.30, 2.303])  # six metres
    assert fine.cell_km / step_among(fine, 1.0) < 0.004
    many = gv.Points(xy_km=np.stack(np.meshgrid(range(65), range(65)), -1).reshape(-1, 2) * 0.1)
    with pytest.raises(TooLarge, match="at most 4,096"):
        gv.elastic(many, epsilon_per_km=1.0, between="positions")


def test_hexagons_find_their_places() -> None:
    space = hexagons()
    lat, lng = space.centres_latlng()
    assert np.array_equal(space.locate(lat=lat, lng=lng), np.arange(space.size))
    assert space.inside(lat=[48.86, 50.0], lng=[2.34, 2.3]).tolist() == [True, False]
    uniform = np.random.default_rng(1).random((500, 2))
    inside = space.somewhere_km(np.full(500, 3), uniform) + space.centres[3]
    assert (space.locate_km(inside) == 3).all()
    # three places stand for the whole: the same second moments
    moments = np.cov((inside - space.centres[3]).T, bias=True) / space.cell_km**2
    assert np.cov(space.standing.T, bias=True) == pytest.approx(moments, abs=0.02)


def test_hexagons_as_documents_and_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    space = hexagons()
    for again in (
        space_from_dict(json.loads(json.dumps(space.to_dict()))),
        pickle.loads(pickle.dumps(space)),
    ):
        assert again == space
    features = space.to_geojson({"share": np.ones(space.size)})["features"]
    assert {each["geometry"]["type"] for each in features} <= {"Polygon", "MultiPolygon"}
    assert "of resolution 7" in repr(space)
    for ids in ([], ["nonsense"], [space.ids[0], space.ids[0]]):
        with pytest.raises(InvalidInput):
            gv.Hexagons.of_ids(ids)
    with pytest.raises(InvalidInput, match="resolution"):
        gv.Hexagons(LIMITS, resolution=16)
    with pytest.raises(TooLarge, match="lower resolution"):
        gv.Hexagons(LIMITS, resolution=15)  # 10⁸, which H3 itself would go on making for hours
    monkeypatch.setattr("geoveil.space.points._MOST", 1 << 11)
    with pytest.raises(TooLarge, match="lower resolution"):
        gv.Hexagons(LIMITS, resolution=10)


def test_hexagons_on_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("h3")
    (tmp_path / "limits.geojson").write_text(json.dumps(LIMITS))
    people = np.random.default_rng(1).normal([48.855, 2.34], [0.01, 0.02], size=(800, 2))
    np.savetxt(tmp_path / "people.csv", people, delimiter=",", header="lat,lng", comments="")

    def run(*arguments: Any) -> str:
        done = CliRunner().invoke(program, list(map(str, arguments)))
        assert done.exit_code == 0, done.output
        return done.output

    area = ("--within", tmp_path / "limits.geojson", "--hexagons", 7)
    run("obfuscate", tmp_path / "people.csv", "-o", tmp_path / "noisy.csv", "--mechanism", "elastic",
        "--epsilon-per-km", 1, *area, "--seed", 1)  # fmt: skip
    run("estimate", tmp_path / "noisy.csv", "-o", tmp_path / "map.geojson")
    made = json.loads((tmp_path / "map.geojson").read_text())
    assert made["geoveil"]["space"]["kind"] == "hexagons"
    assert sum(each["properties"]["share"] for each in made["features"]) == pytest.approx(1.0)
    wrong = CliRunner().invoke(
        program, ["obfuscate", str(tmp_path / "people.csv"), "-o", "x.csv", "--hexagons", "7"]
    )
    assert wrong.exit_code == 2
    limits = str(tmp_path / "limits.geojson")
    for output in (limits, str(tmp_path / "middles.csv"), str(tmp_path / "none" / "a.geojson")):
        wrong = CliRunner().invoke(program, ["hexagons", limits, "--resolution", "7", "-o", output])
        assert wrong.exit_code == 2
        assert wrong.stderr.startswith(f"geoveil: error: output ({output}) must ")
    assert json.loads((tmp_path / "limits.geojson").read_text()) == LIMITS


def all_over(mechanism: PositionalElastic) -> np.ndarray:
    """(cells, reports): the laws of people at 900 places of every cell, in the mean."""
    even = (np.arange(30) + 0.5) / 30
    uniform = np.stack(np.meshgrid(even, even), axis=-1).reshape(-1, 2)
    total = np.zeros((mechanism.space.size, mechanism.report_count))
    for cell in range(len(total)):
        inside = mechanism.somewhere(np.full(len(uniform), cell), uniform)
        places = mechanism.centres.points_km[cell] + inside * mechanism.space.cell_km
        for _, rows in mechanism._rows_from(places):
            total[cell] += rows.sum(axis=0) / len(uniform)
    return total


@pytest.mark.parametrize(
    ("kind", "epsilon_cells", "camouflage", "most"),
    [
        ("squares", 1.0, 0.5, 0.0005),
        ("squares", 2.0, 0.5, 0.0005),
        ("squares", 2.0, 0.0, 0.011),
        ("squares", 8.0, 0.5, 0.008),
        ("hexagons", 1.0, 0.5, 0.004),
        ("hexagons", 2.0, 0.5, 0.01),
        ("hexagons", 8.0, 0.5, 0.06),
    ],
)
def test_rows_of_a_few_positions_are_as_near_those_of_all_as_the_documentation_says(
    kind: str, epsilon_cells: float, camouflage: float, most: float
) -> None:
    space: Any = hexagons() if kind == "hexagons" else gv.Grid(rows=4, columns=5, cell_km=1.0)
    mechanism = gv.elastic(
        space,
        epsilon_per_km=epsilon_cells / space.cell_km,
        camouflage=camouflage,
        between="positions",
    )
    exact = all_over(mechanism)
    assert np.abs(mechanism.matrix() - exact).sum(axis=1).max() / 2 <= most
    cells = np.array([0, space.size // 2])
    drawn_from = mechanism.excerpt(cells).laws  # what an audit compares draws with
    assert np.abs(drawn_from - exact[cells]).sum(axis=1).max() / 2 < 1e-3


@pytest.mark.statistical
@pytest.mark.parametrize(("kind", "draws"), [("hexagons", 100_000), ("squares", 1_000_000)])
def test_an_audit_does_not_blame_a_mechanism_for_the_positions_of_its_products(
    kind: str, draws: int
) -> None:
    if kind == "hexagons":
        space: Any = hexagons()
        mechanism = gv.elastic(space, epsilon_per_km=5.0 / space.cell_km)
    else:  # with a rim half of every cell at an edge is moved to its centre
        space = gv.Grid(rows=1, columns=5, cell_km=1.0)
        mechanism = gv.elastic(space, epsilon_per_km=2.0, camouflage=0.0, between="positions")
    # also where its reports are moved afterwards
    moved = gv.Remapped(mechanism, np.minimum(np.arange(mechanism.report_count), space.size - 1))
    for sound, some in ((mechanism, draws), (moved, 100_000)):
        assert gv.audit(sound, draws=some, randomness=gv.seeded(5)).passed

    class FromTheMiddle(PositionalElastic):
        def _sample_from(self, cells: Any, inside: Any, randomness: Any) -> Any:
            return super()._sample_from(cells, 0.5 * inside, randomness)

    wrong = FromTheMiddle(
        mechanism.space,
        beta_per_km=mechanism.beta_per_km,
        weights=mechanism.weights,
        step=mechanism.step,
        rim=mechanism.rim,
    )
    found = gv.audit(wrong, draws=max(40_000, draws // 5), randomness=gv.seeded(5)).findings
    assert any("do not follow" in each for each in found)


@pytest.mark.statistical
def test_an_audit_looks_all_over_the_cells_where_mechanisms_are_put_together() -> None:
    space, cell = hexagons(), np.array([11])
    flat = np.full(space.size, 1000)
    parts = [
        PositionalElastic(space, beta_per_km=loss / space.cell_km, weights=flat, step=2000)
        for loss in (6.0, 5.0)
    ]
    average, stacked = AverageChannel(parts, [0.5, 0.5]), gv.StackedChannel(parts, [0.5, 0.5])
    joint = JointChannel(parts)
    one, other = (part.excerpt(cell).laws[0] for part in parts)
    all_over = average.excerpt(cell).laws[0]
    np.testing.assert_allclose(all_over, (one + other) / 2)
    np.testing.assert_allclose(stacked.excerpt(cell).laws[0], np.append(one, other) / 2)
    pairs = joint.excerpt(cell).laws[0].reshape(space.size, -1)
    np.testing.assert_allclose(pairs.sum(axis=1), one)
    assert np.abs(pairs.ravel() - joint.row(11)).sum() / 2 > 0.05
    assert gv.audit(joint, draws=20_000, randomness=gv.seeded(5)).passed

    drawn = average.sample(np.repeat(cell, 10_000), randomness=gv.seeded(5))
    shares = np.bincount(drawn, minlength=space.size) / drawn.size
    laws = all_over, average.row(11)
    far = [float((np.square(shares - law) / law).sum()) for law in laws]
    assert (
        far[0] < far[1] / 2
    )  # draws of an average come from all over the cell, as those of its parts


def test_an_audit_of_more_combinations_than_can_be_listed_blames_nobody() -> None:
    coin = gv.RandomizedResponse(gv.Grid(rows=20, columns=20, cell_km=1.0), epsilon=1.0)
    found = gv.audit(JointChannel([coin] * 3), draws=1000, randomness=gv.seeded(5))
    assert found.passed
    assert found.fit_p_value is None
    assert str(found) == "nothing found (draws could not be compared with the rows)"
