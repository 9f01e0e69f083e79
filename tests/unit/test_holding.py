"""Results one can hold: frames, files, pictures, small pages in notebooks."""

from __future__ import annotations

import importlib
import json
import pickle
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoveil as gv
from geoveil import errors, holding
from geoveil.errors import InvalidFile, MissingExtra, Unsupported
from geoveil.estimate.fitted import promises_of
from geoveil.plot.curves import Curve, draw_curves
from geoveil.plot.maps import Panel, blank_figure, draw_on_one_scale, round_amounts, round_degrees
from geoveil.plot.notebook import small_map
from geoveil.space.masked_grid import MaskedGrid
from geoveil.table.reports import ReportPlaces
from geoveil.table.results import write_result

PARIS = gv.Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=1.0)
LINE = gv.Line(6)
HOSTILE = "<script>alert('&')</script>"


def tally_of(mechanism: gv.Channel) -> gv.Tally:
    people = np.random.default_rng(1).choice(mechanism.space.size, size=4000)
    return mechanism.tally(mechanism.sample(people, randomness=gv.seeded(1)))


@pytest.fixture(scope="module")
def estimate() -> gv.Estimate:
    return gv.IterativeBayesianUpdate().fit(tally_of(gv.PlanarGeometric(PARIS, epsilon_per_km=2.0)))


@pytest.fixture(scope="module")
def advice() -> Any:
    small = gv.Grid(rows=3, columns=4, cell_km=1.0)
    prior = np.arange(1.0, small.size + 1)
    return gv.advise(small, prior / prior.sum(), epsilon_per_km=1.0, people=200, repeats=1)


def test_every_function_that_results_call_exists() -> None:
    for name, module in holding.BELOW.items():
        assert callable(getattr(importlib.import_module(module), name))


# --- Frames


def test_an_estimate_as_a_frame(estimate: gv.Estimate) -> None:
    frame = estimate.to_frame()
    assert list(frame) == ["cell", "lat", "lng", "share", "standard_error", "low", "high"]
    np.testing.assert_array_equal(frame["share"], estimate.distribution)
    np.testing.assert_array_equal(frame["high"], estimate.interval(0.95)[1])
    shapes = estimate.to_geodataframe()
    assert shapes.crs == "EPSG:4326"
    np.testing.assert_array_equal(shapes["share"], estimate.distribution)
    # every shape is that of its own cell
    centres = shapes.geometry.to_crs(3857).centroid.to_crs(4326)
    np.testing.assert_array_equal(
        PARIS.locate(lat=centres.y.to_numpy(), lng=centres.x.to_numpy()), np.arange(PARIS.size)
    )


def test_spaces_tallies_and_advice_as_frames(advice: Any) -> None:
    assert list(PARIS.to_frame()) == ["cell", "lat", "lng"]
    assert list(LINE.to_frame()) == ["cell"]
    assert len(PARIS.to_geodataframe()) == PARIS.size
    tally = tally_of(gv.Disc(PARIS, epsilon=1.0))
    frame = tally.to_frame()
    np.testing.assert_array_equal(frame["reports"], tally.counts[: PARIS.size])
    bits = tally_of(gv.Rappor(LINE, epsilon=2.0))
    np.testing.assert_array_equal(bits.to_frame()["reports"], bits.sums)
    table = advice.to_frame()
    assert table["recommended"].sum() == 1
    assert table.set_index("name").loc["discs", "mean_distance_km"] > 0
    for wrong in (LINE, gv.Grid(rows=2, columns=2, cell_km=1.0)):
        with pytest.raises(Unsupported, match="to_frame"):
            wrong.to_geodataframe()
    with pytest.raises(Unsupported, match="to_frame"):
        advice.to_geodataframe()
    with pytest.raises(Unsupported, match="do not name cells"):
        gv.Tally(gv.DenseChannel(LINE, np.full((6, 3), 1 / 3)), [1, 2, 3]).to_frame()


def test_what_is_missing_is_said(
    estimate: gv.Estimate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda module: None)
    for ask, package in (
        (estimate.to_frame, r"pandas; install geoveil\[geo\]"),
        (estimate.to_geodataframe, r"geopandas; install geoveil\[geo\]"),
        (estimate.plot, r"matplotlib; install geoveil\[plot\]"),
        (lambda: estimate.save(str(tmp_path / "map.csv")), r"pyarrow; install geoveil\[cli\]"),
    ):
        with pytest.raises(MissingExtra, match=package):
            ask()
    assert "<svg" in estimate._repr_html_()  # needs nothing


# --- Files


@pytest.mark.parametrize("ending", ["geojson", "parquet", "csv"])
def test_a_saved_estimate_comes_back(estimate: gv.Estimate, ending: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"map.{ending}")
    estimate.save(path)
    again = gv.load_estimate(path)
    np.testing.assert_allclose(again.distribution, estimate.distribution, rtol=1e-12)
    np.testing.assert_array_equal(again.standard_error, estimate.standard_error)
    np.testing.assert_array_equal(again.interval(0.95), estimate.interval(0.95))
    assert (again.space, again.total, again.steps) == (PARIS, estimate.total, estimate.steps)
    assert again.stopped == estimate.stopped
    assert again.certificate == estimate.certificate
    assert again.promises == estimate.promises == ("ε = 2 per km between cells for each report",)
    assert bool(again.identifiable) == bool(estimate.identifiable)
    with pytest.raises(Unsupported, match=r"level 0\.95; save it at level 0\.5"):
        again.interval(0.5)
    with pytest.raises(Unsupported, match="do not add up"):
        _ = again.region([0, 1]).standard_error
    estimate.save(path, level=0.5)
    np.testing.assert_array_equal(gv.load_estimate(path).interval(0.5), estimate.interval(0.5))


def test_an_estimate_of_the_service_is_loaded(tmp_path: Path) -> None:
    grid = gv.Grid.from_box(south=48.83, west=2.29, north=48.85, east=2.32, cell_km=1.0)
    size = grid.size
    document: dict[str, Any] = {
        "kind": "estimate", "epsilon_per_km": 2.0, "slack_nats": 0.013, "space": grid.to_dict(),
        "reports": 500, "distribution": [1 / size] * size, "standard_error": [0.01] * size,
        "interval": {"level": 0.95, "low": [0.0] * size, "high": [0.5] * size},
        "certificate_nats_per_report": 0.01, "steps": 7, "stopped": "after 7 steps",
    }  # fmt: skip
    path = tmp_path / "estimate.json"
    path.write_text(json.dumps(document))
    loaded = gv.load_estimate(str(path))
    assert (loaded.total, loaded.steps, loaded.space) == (500, 7, grid)
    assert loaded.interval(0.95)[1].tolist() == [0.5] * size
    said = "and 0.013 for rounding, between any two positions, for each report"
    assert loaded.promises == (f"ε = 2 per km {said}",)
    path.write_text(json.dumps({**document, "promises_per_km": [1.0, 2.0]}))
    several = gv.load_estimate(str(path)).promises
    assert several == (f"ε = 1 per km {said}", f"ε = 2 per km {said}")
    path.write_text(json.dumps({**document, "epsilon_per_km": "x"}))
    assert gv.load_estimate(str(path)).promises == ()


def test_city_limits_are_held_too(tmp_path: Path) -> None:
    mask = np.ones(PARIS.size, dtype=bool)
    mask[[0, 1, 20]] = False
    limits = MaskedGrid(PARIS, mask)
    mechanism = gv.Disc(limits, epsilon=2.0)
    places = ReportPlaces(mechanism)
    lat, lng = places.latlng
    np.testing.assert_array_equal(
        places.nearest_cells(lat=lat, lng=lng)[0], np.arange(mechanism.report_count)
    )
    estimate = gv.IterativeBayesianUpdate().fit(tally_of(mechanism))
    assert len(list(parsed(estimate._repr_html_()).iter("rect"))) == limits.size
    assert len(estimate.to_geodataframe()) == limits.size
    path = str(tmp_path / "map.geojson")
    estimate.save(path)
    assert gv.load_estimate(path).space == limits
    assert f"{limits.size} cells of 1 km" in words(estimate.plot())


def test_geoparquet_is_read_by_others(estimate: gv.Estimate, tmp_path: Path) -> None:
    import geopandas

    path = tmp_path / "map.parquet"
    estimate.save(str(path))
    found = geopandas.read_parquet(path).to_crs(4326)
    np.testing.assert_array_equal(found["share"], estimate.distribution)
    assert found.geometry.geom_equals_exact(estimate.to_geodataframe().geometry, 1e-6).all()


def test_what_is_no_estimate_is_refused(estimate: gv.Estimate, tmp_path: Path) -> None:
    path = str(tmp_path / "shares.csv")
    Path(path).write_text("cell,lat,lng,share\n0,48.8,2.3,1\n1,48.9,2.4,3\n")
    with pytest.raises(InvalidFile, match="how many reports"):
        gv.load_estimate(path)
    from dataclasses import replace

    from geoveil.table.results import estimate_result

    bare = estimate_result(estimate, with_bars=False)
    write_result(path, bare)
    with pytest.raises(Unsupported, match="no error bars"):
        _ = gv.load_estimate(path).errors
    strange = {**(bare.description or {}), "certificate_nats_per_report": "x", "steps": "y"}
    write_result(path, replace(bare, description=strange))
    again = gv.load_estimate(path)
    assert again.steps == 0
    assert np.isnan(again.certificate)


def test_a_pickled_estimate_knows_the_promise(estimate: gv.Estimate) -> None:
    assert pickle.loads(pickle.dumps(estimate)).promises == estimate.promises


def test_promises_of_all_mechanisms_are_known_once() -> None:
    tallies = [
        tally_of(gv.RandomizedResponse(LINE, epsilon=1.0)),
        tally_of(gv.RandomizedResponse(LINE, epsilon=1.0)),
        tally_of(gv.LinearGeometric(LINE, epsilon_per_unit=0.5)),
    ]
    wanted = (
        "ε = 1 whatever the distance for each report",
        "ε = 0.5 per unit between cells for each report",
    )
    assert gv.IterativeBayesianUpdate().fit(tallies).promises == wanted
    assert gv.AverageOfEstimates(gv.MatrixInversion()).fit(tallies).promises == wanted
    assert gv.AverageMechanism(gv.MatrixInversion()).fit(tallies).promises == wanted
    assert gv.MatrixInversion().fit(tallies[0]).promises == wanted[:1]
    assert gv.RandomizedResponseEstimator().fit(tallies[:2]).promises == wanted[:1]


def test_a_large_matrix_is_not_enumerated_for_a_page() -> None:
    line = gv.Line(1100)
    law = np.full((line.size, 2), 0.5)
    tally = gv.Tally(gv.DenseChannel(line, law), [5, 5])
    said = "a promise that was not worked out (gv.certify does)"
    assert promises_of([tally]) == (said,)
    assert said in tally.channel._repr_html_()
    assert "_enumerated" not in vars(tally.channel)
    claimed = gv.DenseChannel(line, law, guarantee=gv.LocalDifferentialPrivacy(1.0))
    assert claimed.short_promise == "ε = 1 whatever the distance for each report"


def test_promises_that_differ_in_rounding_are_one() -> None:
    tallies = []
    for slack in (0.011, 0.013, 0.012):
        channel = gv.PlanarGeometric(PARIS, epsilon_per_km=2.0)
        channel._fixed = gv.BetweenPositions(2.0, slack)
        tallies.append(tally_of(channel))
    other = tally_of(gv.PlanarGeometric(PARIS, epsilon_per_km=1.0))
    assert promises_of([*tallies, other]) == (
        "ε = 2 per km and 0.013 for rounding, between any two positions, for each report",
        "ε = 1 per km between cells for each report",
    )


# --- Pages in notebooks


def parsed(page: str) -> ElementTree.Element:
    """The page as a tree: it must be well-formed."""
    return ElementTree.fromstring(page.replace('xmlns="http://www.w3.org/2000/svg" ', ""))


def test_every_result_has_a_page(estimate: gv.Estimate, advice: Any) -> None:
    mechanism = gv.elastic(PARIS, np.full(PARIS.size, 1 / PARIS.size), epsilon_per_km=1.0)
    disc = gv.Disc(PARIS, epsilon=1.0)
    places = gv.Points(lat=[48.8, 48.9, 48.85], lng=[2.3, 2.4, 2.31])
    held: list[Any] = [
        PARIS, LINE, places, mechanism, disc, gv.Rappor(LINE, epsilon=1.0), estimate, advice,
        tally_of(disc), tally_of(gv.Rappor(LINE, epsilon=1.0)), gv.certify(mechanism), gv.certify(disc),
        gv.certify(disc, claim=gv.LocalDifferentialPrivacy(0.5)),
        gv.DenseChannel(LINE, np.full((6, 3), 1 / 3)),
        gv.Tally(gv.DenseChannel(LINE, np.full((6, 3), 1 / 3)), [1, 2, 3]),
    ]  # fmt: skip
    for thing in held:
        tree = parsed(thing._repr_html_())
        assert "".join(tree.itertext()).strip()
        assert not list(tree.iter("script"))
    said = "".join(parsed(estimate._repr_html_()).itertext())
    assert "4,000" in said
    assert "ε = 2 per km between cells for each report" in said
    assert "does not hold" in gv.certify(disc, claim=gv.LocalDifferentialPrivacy(0.5))._repr_html_()
    assert advice.recommended.name in str(
        next(
            row.find("td").text  # type: ignore[union-attr]
            for row in parsed(advice._repr_html_()).iter("tr")
            if "bold" in row.get("style", "")
        )
    )


@pytest.mark.parametrize("places", [2, 4])
def test_counts_at_places_have_pages_and_no_map(places: int) -> None:
    release = gv.CountRelease(people=3, prior=np.full(places, 1 / places), multiplier=1.0)
    channel = release.designs[0].channel
    tally = gv.Tally(channel, np.ones(channel.report_count, dtype=np.int64))
    fitted = gv.IterativeBayesianUpdate(gv.Steps(1)).fit(tally)
    for thing in (release.designs[0].vectors, channel, tally, fitted):
        page = thing._repr_html_()
        assert "<table>" in page
        assert "map" not in page
        assert "picture" not in page
    for drawn in (tally, fitted):
        with pytest.raises(Unsupported, match="no map to draw"):
            drawn.plot()


def test_what_a_file_says_is_escaped(estimate: gv.Estimate, tmp_path: Path) -> None:
    from dataclasses import replace

    from geoveil.table.results import estimate_result

    result = estimate_result(estimate)
    hostile = {**(result.description or {}), "stopped": HOSTILE, "promises": [HOSTILE]}
    path = str(tmp_path / "map.geojson")
    write_result(path, replace(result, description=hostile))
    page = gv.load_estimate(path)._repr_html_()
    assert "<script" not in page
    assert HOSTILE in "".join(parsed(page).itertext())


def test_the_small_map_shows_the_fullest_cell_darkest() -> None:
    grid = gv.Grid(rows=3, columns=4, cell_km=0.5)
    values = np.arange(12.0)
    rects = list(parsed(small_map(grid, values / values.sum())).iter("rect"))
    assert len(rects) == grid.size
    titles = [rect.find("title").text for rect in rects]  # type: ignore[union-attr]
    assert titles[-1] == "16.7 %"
    colours = [bytes.fromhex(str(rect.get("fill"))[1:]) for rect in rects]
    light = [0.21 * red + 0.72 * green + 0.07 * blue for red, green, blue in colours]
    assert light == sorted(light, reverse=True)
    first, last = rects[0], rects[-1]
    assert float(str(first.get("y"))) > float(str(last.get("y")))  # north is up
    assert float(str(first.get("x"))) < float(str(last.get("x")))


def test_a_large_map_is_drawn_in_larger_places() -> None:
    grid = gv.Grid(rows=300, columns=500, cell_km=0.1)
    shares = np.random.default_rng(1).dirichlet(np.ones(grid.size))
    page = small_map(grid, shares)
    rects = list(parsed(page).iter("rect"))
    assert len(rects) <= 64 * 64
    assert len(page) < 600_000
    assert len(gv.Line(1000)._repr_html_()) < 20_000


# --- Pictures


def words(figure: Any) -> str:
    parts = [figure.get_suptitle(), figure.get_supxlabel()]
    for axes in figure.axes:
        parts += [axes.get_title(), axes.get_ylabel(), axes.get_xlabel()]
    return " ".join(" ".join(parts).split())


def test_a_map_for_a_report_says_what_it_is(estimate: gv.Estimate, tmp_path: Path) -> None:
    said = words(estimate.plot())
    for wanted in (
        "Where people are", "4,000 reports; 48 cells of 1 km.", "half of the 95 % interval",
        "Promise: ε = 2 per km between cells for each report.", "share of people per cell",
    ):  # fmt: skip
        assert wanted in said
    path = tmp_path / "map.svg"
    estimate.plot(str(path), title="$\\frac{$, as it is written")
    figure = estimate.plot(str(path), title="Lyon")
    assert "Lyon" in words(figure)
    assert path.stat().st_size > 1000
    # the last panel shows the intervals
    unsure = figure.axes[1].images[0].get_array()
    low, high = estimate.interval(0.95)
    np.testing.assert_allclose(np.asarray(unsure).ravel(), (high - low) / 2)
    loaded = tmp_path / "map.csv"
    estimate.save(str(loaded), level=0.5)  # other intervals than the picture's
    assert "Error bars are not known" in words(gv.load_estimate(str(loaded)).plot())


def test_tallies_lines_and_advice_are_drawn(advice: Any) -> None:
    said = words(tally_of(gv.Disc(PARIS, epsilon=1.0)).plot())
    assert "noisy reports, not places of people" in said
    assert "reports name no cell of the map" in said
    line = gv.IterativeBayesianUpdate().fit(
        tally_of(gv.LinearGeometric(LINE, epsilon_per_unit=1.0))
    )
    assert "4,000 reports; 6 cells." in words(line.plot())
    assert "keeps the promise" in words(advice.plot())
    with pytest.raises(Unsupported, match="has no picture"):
        holding.below("picture_of")(LINE)


def test_lines_beside_each_other_have_one_scale() -> None:
    figure = blank_figure(8.0, 3.0)
    axes = list(figure.subplots(1, 2))
    panels = [Panel("reports", np.full(4, 0.25)), Panel("estimate", np.array([0.0, 0.9, 0.1, 0.0]))]
    draw_on_one_scale(figure, axes, gv.Line(4), panels, label="share")
    first, second = (part.get_ylim() for part in axes)
    assert first == second
    assert first[1] > 0.9


@given(st.floats(-179, 179), st.floats(1e-4, 90), st.integers(2, 4))
def test_ticks_are_round_and_inside(low: float, span: float, most: int) -> None:
    ticks = round_degrees(low, low + span, most)
    assert 1 <= ticks.size <= most
    assert (ticks >= low - 1e-9).all()
    assert (ticks <= low + span + 1e-9).all()
    if ticks.size > 1:
        steps = np.diff(ticks)
        assert np.ptp(steps) < 1e-6 * steps[0] + 1e-9
        assert f"{steps[0]:.0e}"[0] in "125"


@given(st.floats(1e-9, 1.0))
def test_ticks_of_the_colours_are_round_and_inside(top: float) -> None:
    ticks = round_amounts(top)
    assert ticks[0] == 0
    assert (np.diff(ticks) > 0).all()
    assert 0.4 * top <= ticks[-1] <= top * (1 + 1e-6)


def test_a_line_that_falls_to_zero_stays_on_a_log_axis() -> None:
    x = np.arange(5.0)
    falling = np.array([[1.0, 0.5, 0.1, 0.0, 0.0], [1.0, 0.4, 0.2, 0.0, 0.0]])
    axes = blank_figure(4, 3).subplots()
    curves = [Curve("falls", x, falling), Curve("stays", x, np.full((1, 5), 2.0))]
    draw_curves(axes, curves, x_label="round", y_label="error", y_scale="log")
    line = next(each for each in axes.lines if each.get_label() == "falls")
    np.testing.assert_allclose(line.get_ydata(), [1.0, 0.45, 0.15, np.nan, np.nan])
    assert axes.get_ylim()[0] > 0.05  # nothing pulls the axis down
    marks = next(each for each in axes.lines if each.get_marker() == "v")
    np.testing.assert_array_equal(marks.get_xdata(), [3.0, 4.0])
    assert [text.get_text() for text in axes.texts] == ["▽ zero"]
    axes.figure.canvas.draw()
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert {"0.2", "0.5", "1"} <= set(shown)  # no powers of ten
