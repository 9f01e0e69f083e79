"""The names that the library offers: few, on a page, and imported when they are first used."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import GeoveilError, InvalidInput, Unsupported

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8").split("## All names")[1]


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_every_name_is_on_the_page_and_no_other() -> None:
    assert set(re.findall(r"`([A-Za-z_]\w+)`", PAGE)) == set(gv.__all__)
    assert len(gv.__all__) == len(set(gv.__all__)) <= 90


def test_every_name_is_where_it_is_said_to_be() -> None:
    for name in gv.__all__:
        assert getattr(gv, name) is not None
    offered = {name for name in dir(gv) if not name.startswith("_")}
    assert set(gv.__all__) <= offered <= {*gv.__all__, *gv._PACKAGES}  # and nothing that it imports
    assert "geoveil.errors" in loaded_by("import geoveil as gv; gv.errors.GeoveilError")
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = gv.nothing_of_the_kind


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "src" / "geoveil" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (f"{node.module}".removeprefix("geoveil."), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert seen == {(module, name) for module, names in gv._HOMES.items() for name in names}


PARTS_OF_SCIPY = {f"scipy.{part}" for part in ("fft", "linalg", "ndimage", "sparse", "special")}
"""They take as long to load as everything else."""


def test_the_package_itself_loads_nothing() -> None:
    loaded = loaded_by("import geoveil")
    assert "numpy" not in loaded
    assert not {name for name in loaded if name.startswith("geoveil.")}


def test_a_device_loads_neither_estimation_nor_optimisation() -> None:
    loaded = loaded_by("from geoveil.client import Device")
    heavy = ("estimate", "optimal", "campaign", "release", "table", "server", "verify")
    assert not loaded & {f"geoveil.{package}" for package in heavy}
    assert not loaded & PARTS_OF_SCIPY


def test_the_service_and_the_command_line_load_no_part_of_scipy_before_it_is_used() -> None:
    loaded = loaded_by("import geoveil.cli.serve, geoveil.cli.demo, geoveil.server.run")
    assert "geoveil.estimate.bars" in loaded
    assert not loaded & PARTS_OF_SCIPY


GRID, NINTH = gv.Grid(rows=3, columns=3, cell_km=1.0), [1 / 9] * 9
MECHANISM, NOISE = (
    gv.Exponential(GRID, epsilon_per_km=1.0),
    gv.ContinuousLaplace(epsilon_per_km=1.0),
)
PROMISE, SHORT = gv.PerKilometre(1.0), gv.IterativeBayesianUpdate(stop=gv.Steps(2))
CAMPAIGN = gv.Campaign(GRID, epsilon_per_km=1.0)

CALLS: dict[str, dict[str, Any]] = {
    "Tally": {"channel": MECHANISM, "counts": [1] * 9},
    "DenseChannel": {"space": GRID, "matrix": np.eye(9), "guarantee": None},
    "Remapped": {"channel": MECHANISM, "map": range(9)},
    "StackedChannel": {"channels": [MECHANISM]},
    "JointTally": {"channels": [MECHANISM], "reports": [[1], [2]]},
    "advise": {"space": GRID, "prior": NINTH, "epsilon_per_km": 1.0, "seed": 1},
    "Campaign": {"space": GRID, "epsilon_per_km": 1.0},
    "blahut_arimoto": {"space": GRID, "prior": NINTH, "beta_per_km": 1.0, "floor": 0.0},
    "elastic": {"space": GRID, "prior": NINTH, "epsilon_per_km": 1.0},
    "simulate": {"campaign": CAMPAIGN, "crowd": None},
    "certify": {"channel": MECHANISM, "claim": None},
    "ExactTable": {"channel": MECHANISM},
    "load_mechanism": {"path": "missing.json"},
    "save_mechanism": {"mechanism": MECHANISM},
    "load_estimate": {"path": "missing.csv"},
    "load_tally": {"path": "missing.json"},
    "AverageMechanism": {"estimator": SHORT},
    "AverageOfEstimates": {"estimator": SHORT},
    "adversary_error_km": {"channel": MECHANISM},
    "earth_movers_distance_km": {"p": NINTH, "q": NINTH, "space": GRID},
    "expected_loss": {"channel": MECHANISM, "prior": None, "loss": gv.distance_km},
    "mean_distance_km": {"channel": MECHANISM},
    "mutual_information_bits": {"channel": MECHANISM},
    "total_variation": {"p": [1.0], "q": [1.0]},
    "Disc": {"space": GRID, "epsilon": 1.0},
    "Elastic": {"space": GRID, "beta_per_km": 1.0},
    "Exponential": {"space": GRID, "mean_distance_km": 1.0},
    "RandomizedResponse": {"space": GRID, "epsilon": 1.0},
    "Rappor": {"space": GRID, "epsilon": 1.0},
    "LinearGeometric": {"space": gv.Line(3), "epsilon_per_unit": 1.0},
    "PlanarGeometric": {"space": GRID, "epsilon_per_km": 1.0},
    "PlanarLaplace": {"space": GRID, "epsilon_per_km": 1.0},
    "NearestPlace": {"noise": NOISE, "space": GRID},
    "BayesianPlace": {"noise": NOISE, "space": GRID, "prior": NINTH},
    "bayesian_remap": {"channel": MECHANISM, "prior": NINTH},
    "nearest_remap": {"channel": MECHANISM, "cells": [1]},
    "CircularNoise": {"pieces": None},
    "optimal_mechanism": {"space": GRID, "prior": NINTH, "privacy": PROMISE},
    "optimal_noise": {"privacy": PROMISE, "gap": 0.1, "region": None, "tightness": None},
    "applicable_theorems": {"privacy": PROMISE, "region": None},
    "optimal_strategy": {"space": GRID, "prior": NINTH, "mean_loss_km": 0.5},
    "leakage_curve": {"build": None},
    "Grid": {"rows": 3, "columns": 3, "cell_km": 1.0, "box": None},
    "RadialLoss": {"function": None},
    "distance_km": {"space": GRID, "a": 0, "b": 1},
    "Trips": {"mechanism": MECHANISM},
    "audit": {"channel": MECHANISM, "claim": None, "draws": 1000},
    "manipulation_gain": {"mechanisms": MECHANISM, "prior": NINTH, "estimator": SHORT},
}  # fmt: skip
"""Calls, each of whose arguments is tried with what is of the wrong kind."""

UNTRIED: dict[str, dict[str, Any]] = {
    "RadialLoss": {"name": "steps"},
    "save_mechanism": {"path": "nowhere/mechanism.json"},
    "simulate": {"rounds": 1, "seed": 1},
}
"""Arguments besides, which anything may be or are met later."""


@pytest.mark.parametrize("name", CALLS)
def test_what_is_of_the_wrong_kind_is_refused_in_a_sentence(name: str) -> None:
    function: Callable[..., Any] = getattr(gv, name)
    for argument in CALLS[name]:
        for wrong in ("1", {"kind": "grid"}, [0.5, None], gv.Grid, object()):
            with pytest.raises((GeoveilError, FileNotFoundError), match=r" must |; |No such file"):
                function(**{**UNTRIED.get(name, {}), **CALLS[name], argument: wrong})


OTHERS: dict[str, dict[str, Any]] = {
    "ActiveSetNewton": {},
    "BetweenPositions": {"epsilon_per_km": 1.0},
    "Bootstrap": {},
    "Box": {"south": 48.8, "west": 2.2, "north": 48.9, "east": 2.4},
    "Budget": {"limit_per_km": 1.0},
    "CertifiedWithin": {},
    "ContinuousLaplace": {"epsilon_per_km": 1.0},
    "CountRelease": {"people": 2, "prior": [0.5, 0.5], "multiplier": 1.0},
    "CrossValidated": {},
    "FisherInformation": {},
    "GeneralPrivacy": {"function": np.sqrt},
    "GeometricRelease": {"epsilon": 1.0},
    "IterativeBayesianUpdate": {},
    "LikelihoodChange": {},
    "Line": {"size": 3},
    "MatrixInversion": {},
    "PerKilometre": {"epsilon_per_km": 1.0},
    "Points": {"lat": [48.8, 48.9], "lng": [2.3, 2.4]},
    "PoisoningAlarm": {},
    "RapporEstimator": {},
    "Region": {"name": "a park", "diameter_km": 2.0, "disk_km": 1.0},
    "Squarem": {},
    "Steps": {"number": 2},
    "WithinRadius": {"radius_km": 1.0, "epsilon": 1.0},
    "obfuscate": {"frame": {"lat": [], "lng": []}, "mechanism": NOISE},
    "seeded": {"seed": 1},
}


@pytest.mark.parametrize("name", [name for name in CALLS | OTHERS if name != "advise"])
def test_no_argument_ends_in_an_error_from_inside(name: str) -> None:
    """Yes for a function, an array for a yes, nothing for a list: all is well or said in a sentence."""
    function: Callable[..., Any] = getattr(gv, name)
    call = {**UNTRIED.get(name, {}), **(CALLS | OTHERS)[name]}
    for argument, kind in inspect.signature(function).parameters.items():
        for wrong in (np.eye(2), True, None, 7, ["1"], gv.Grid):
            if kind.kind not in (kind.VAR_POSITIONAL, kind.VAR_KEYWORD):
                with suppress(GeoveilError, FileNotFoundError):
                    function(**{**call, argument: wrong})


def test_what_is_masked_is_unknown_and_what_is_no_real_number_is_none() -> None:
    hidden = np.ma.array([1] * 9, mask=[True] + [False] * 8)
    release = gv.CountRelease(people=9, prior=NINTH, multiplier=1.0)
    for asked, name in (
        (lambda given: gv.mutual_information_bits(MECHANISM, given), "prior"),
        (MECHANISM.push, "theta"), (MECHANISM.sample, "cells"), (MECHANISM.tally, "reports"),
        (lambda given: gv.Tally(MECHANISM, given), "counts"), (release.sample, "counts"),
        (lambda given: gv.DenseChannel(gv.Line(1), given[None]), "matrix"),
    ):  # fmt: skip
        asked(np.ma.array(NINTH if name in ("theta", "matrix") else [1] * 9))  # none of it masked
        for wrong in (hidden, np.ones(9) + 1j, np.ones(9, "m8[s]")):
            with pytest.raises(InvalidInput, match=f"^{name}.* must "):
                asked(wrong)
    with pytest.raises(InvalidInput, match="must sum to 1; divide it by its sum"):
        gv.DenseChannel(gv.Line(1), np.full((1, 3), 1 / 3, np.float32))
    table = {"lat": [48.8, 48.9], "lng": [2.3, 2.4], "age": np.ma.array([30, 40], mask=[0, 1])}
    kept = gv.obfuscate(table, NOISE, keep=["age"])["age"]
    assert kept.tolist() == [30, None]
    with pytest.raises(InvalidInput, match="position 1 of column 'age' must say whom"):
        gv.obfuscate(table, NOISE, person="age")


@pytest.mark.parametrize("mechanism", [gv.PlanarGeometric, gv.PlanarLaplace, gv.Exponential])
def test_whoever_writes_on_a_likelihood_changes_no_mechanism(mechanism: Any) -> None:
    channel = mechanism(GRID, epsilon_per_km=1.0)
    for report in range(9):
        before = np.array(channel.likelihood(report))
        channel.likelihood(report)[:] = 0.0
        assert (channel.likelihood(report) == before).all()


def test_a_region_is_checked_where_it_is_made() -> None:
    park = OTHERS["Region"]
    for argument, wrong in (
        ("name", 3), ("diameter_km", "wide"), ("diameter_km", 0.5), ("disk_km", -1.0), ("is_disk", [True]),
        ("lengths_km", [1.0]), ("lengths_km", [0.0, 2.0, 1.0]), ("lengths_km", "near"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=f"{argument}.* must be "):
            gv.Region(**{**park, argument: wrong})
    for made, asked in ((gv.Region.box, "box"), (gv.Region.cells, "space")):
        with pytest.raises(InvalidInput, match=rf"{asked} \(int\) must be "):
            made(3)  # type: ignore[operator]
    places = gv.Region(**park, lengths_km=[0.0, 1.0, 2.0])  # type: ignore[arg-type]
    assert places.shortest_km == 1.0


def test_what_is_told_how_far_the_work_is_is_asked_for_before_the_work() -> None:
    advise: Callable[..., Any] = gv.advise
    for wrong in (True, "bar", np.eye(2)):
        with pytest.raises(InvalidInput, match=r"progress \(.*\) must be a function"):
            advise(**CALLS["advise"], progress=wrong)
        with pytest.raises(InvalidInput, match=r"progress \(.*\) must be a function"):
            gv.IterativeBayesianUpdate(progress=wrong)


def test_a_matrix_is_neither_a_space_nor_a_channel_and_noise_is_no_channel() -> None:
    for name, call in CALLS.items():
        for argument in {"space", "channel"} & set(call):
            for wrong in (np.eye(9), NOISE):
                with pytest.raises(
                    InvalidInput, match=rf"space|{argument} \({type(wrong).__name__}\) must"
                ):
                    getattr(gv, name)(**{**call, argument: wrong})


def test_distances_and_radii_are_not_negative() -> None:
    circle = gv.CircularNoise.of_rings([0.0, 1.0], [1 / np.pi])
    for asked in (
        PROMISE.loss, gv.WithinRadius(1.0, 1.0).loss, gv.distance_km.at,
        NOISE.density_per_km2, circle.density_per_km2, circle.probability_within,
    ):  # fmt: skip
        asked([0.0, 1.0])
        for wrong in (-0.1, [1.0, -2.0], float("nan"), "near", None):
            with pytest.raises(InvalidInput, match=r"(distance|radius)_km must be"):
                asked(wrong)


def test_files_may_be_named_by_paths(tmp_path: Path) -> None:
    SHORT.fit(MECHANISM.tally([1, 2, 2])).save(tmp_path / "estimate.csv")
    assert gv.load_estimate(tmp_path / "estimate.csv").total == 3
    MECHANISM.tally([1, 2, 2]).save(tmp_path / "tally.json")
    assert gv.load_tally(tmp_path / "tally.json").counts.tolist() == [0, 1, 2] + [0] * 6
    for seen in (gv.Rappor(GRID, epsilon=1.0).tally([[1] * 9]), gv.JointTally([MECHANISM], [[1]])):
        with pytest.raises(
            Unsupported, match="Tally has no document form: it counts what was seen"
        ):
            seen.save(tmp_path / "seen.json")
    assert not (tmp_path / "seen.json").exists()
    with pytest.raises(InvalidInput, match=r"path \(int\) must be the name of a file"):
        gv.save_mechanism(MECHANISM, 3)  # type: ignore[arg-type]


def test_a_column_of_places_is_not_shown_where_its_name_was_meant() -> None:
    people = {"lat": [48.85], "lng": [2.35]}
    grid = gv.Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=2.0)
    with pytest.raises(InvalidInput, match="column") as refused:
        gv.obfuscate(
            people,
            gv.Exponential(grid, epsilon_per_km=1.0),
            lat=np.array(people["lat"]),
            lng="lng",  # type: ignore[arg-type]
        )
    assert "48.85" not in str(refused.value)
