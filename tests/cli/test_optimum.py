"""``geoveil design --optimal``: the mechanism of least loss from a terminal, and its audit."""

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


def geoveil(*words: object) -> Result:
    return CliRunner().invoke(program, [str(word) for word in words])


@pytest.fixture(scope="module")
def prior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    grid = gv.Grid.from_box(south=48.83, west=2.31, north=48.86, east=2.36, cell_km=1.0)
    share = np.random.default_rng(2).dirichlet(np.full(grid.size, 0.3))
    share[share < 0.01] = 0.0
    path = tmp_path_factory.mktemp("prior") / "prior.geojson"
    write_result(str(path), Shares(grid, share / share.sum()))
    return path


def design(prior: Path, target: Path, *words: object) -> Result:
    return geoveil("design", "--prior", prior, "--optimal", "-o", target, *words)


@pytest.mark.parametrize("loss", ["distance", "squared-distance"])
def test_the_optimum_is_saved_and_passes_the_audit(prior: Path, tmp_path: Path, loss: str) -> None:
    target = tmp_path / "mechanism.json"
    result = design(prior, target, "--epsilon-per-km", 2, "--loss", loss, "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert values["holds"]
    assert values["certified_epsilon_per_km"] <= 2
    assert values["gap"] <= 1e-6
    assert values["lower_bound"] <= values["expected_loss"]
    assert gv.certify(gv.load_mechanism(target)).holds
    audited = geoveil("audit", target, "--draws", 20000, "--json")
    assert audited.exit_code == 0, audited.output


def test_a_sentence_for_people(prior: Path, tmp_path: Path) -> None:
    result = design(prior, tmp_path / "m.json", "--epsilon-per-km", 2, "--spanner", 1.2)
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "no mechanism with this promise is below" in words
    assert "stretch" in words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "must have a promise and a file"),
        (("--epsilon-per-km", 2, "--camouflage", 0.5), "--camouflage is not for --optimal"),
        (("--epsilon-per-km", 2, "--mean-distance-km", 1), "--mean-distance-km is not for"),
        (("--epsilon-per-km", 2, "--advise"), "--advise is not for --optimal"),
        (("--epsilon-per-km", -2), "epsilon_per_km"),
        (("--epsilon-per-km", 2, "--spanner", 0.5), "spanner (0.5) must be above 1"),
        (("--epsilon-per-km", 2, "--gap", 0), "--gap"),
    ],
)
def test_bad_input_is_one_line(
    prior: Path, tmp_path: Path, words: tuple[object, ...], told: str
) -> None:
    result = design(prior, tmp_path / "m.json", *words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "m.json").exists()


def test_what_belongs_to_the_optimum_needs_it(prior: Path, tmp_path: Path) -> None:
    result = geoveil("design", "--prior", prior, "--epsilon-per-km", 2, "-o", tmp_path / "m.json",
                     "--gap", 0.01)  # fmt: skip
    assert result.exit_code == 2
    assert "--gap must go with --optimal" in result.stderr
