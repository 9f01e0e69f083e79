"""Mechanism documents: they rebuild the same mechanism, and refuse everything else in one line."""

from __future__ import annotations

import copy
import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.document import wire
from geoveil.document.canonical import canonical_bytes, document_id
from geoveil.document.saved import (
    load_mechanism_and_claim,
    mechanism_and_claim,
    mechanism_from_dict,
    mechanism_to_dict,
)
from geoveil.document.wire import publish
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported

PARIS = gv.Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=0.5)
LINE = gv.Line(4)
MECHANISMS = {
    "planar-geometric": gv.PlanarGeometric(PARIS, epsilon_per_km=0.1 + 0.2),
    "planar-laplace": gv.PlanarLaplace(PARIS, level=1.0, radius_km=0.3),
    "continuous-laplace": gv.ContinuousLaplace(epsilon_per_km=1 / 3),
    "exponential": gv.Exponential(
        gv.Points(lat=[48.85, 48.86], lng=[2.3, 2.35]), epsilon_per_km=1 / 7
    ),
    "elastic": gv.Elastic(
        PARIS, epsilon_per_km=1.1, weights=np.random.default_rng(0).random(PARIS.size)
    ),
    "randomized-response": gv.RandomizedResponse(LINE, epsilon=1 / 3),
    "rappor": gv.Rappor(LINE, epsilon=1.0),
    "disc": gv.Disc(PARIS, epsilon=1 / 3),
    "linear-geometric": gv.LinearGeometric(LINE, epsilon_per_unit=0.7),
    "dense": gv.DenseChannel(LINE, np.full((4, 3), 1 / 3), guarantee=gv.WithinRadius(2.0, 0.5)),
    "remapped": gv.Remapped(gv.RandomizedResponse(LINE, epsilon=1.0), [3, 2, 1, 0]),
    "a strategy": gv.optimal_strategy(LINE, np.full(4, 1 / 4), mean_loss_km=0.5),
}


def test_every_mechanism_has_a_document() -> None:
    assert set(gv.mechanism.MECHANISMS) <= set(MECHANISMS)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_saved_mechanism_is_the_same_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mechanism.json"
    gv.save_mechanism(MECHANISMS[name], path)
    again = gv.load_mechanism(path)
    assert mechanism_to_dict(again) == mechanism_to_dict(MECHANISMS[name])
    assert again.guarantee == MECHANISMS[name].guarantee
    assert again == MECHANISMS[name]
    assert hash(again) == hash(MECHANISMS[name])
    if isinstance(again, gv.Channel):
        assert np.array_equal(again.matrix(), MECHANISMS[name].matrix())
        cells = np.arange(50) % again.space.size
        draws = [m.sample(cells, randomness=gv.seeded(3)) for m in (again, MECHANISMS[name])]
        assert np.array_equal(*draws)
    values = json.loads(path.read_bytes())
    assert path.read_bytes() == canonical_bytes(values) + b"\n"


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond 64 bytes, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_a_document_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "mechanism.json"
    gv.save_mechanism(MECHANISMS["elastic"], path)
    with pytest.raises(OSError, match="File too large"), small_files():
        gv.save_mechanism(MECHANISMS["planar-geometric"], path)
    assert gv.load_mechanism(path) == MECHANISMS["elastic"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_document_goes_through_links_and_into_devices(tmp_path: Path) -> None:
    path, link = tmp_path / "mechanism.json", tmp_path / "link.json"
    link.symlink_to(path)
    gv.save_mechanism(MECHANISMS["rappor"], link)
    assert link.is_symlink()
    assert gv.load_mechanism(path) == MECHANISMS["rappor"]
    gv.save_mechanism(MECHANISMS["rappor"], os.devnull)
    assert not Path(os.devnull).is_file()


def test_the_identity_is_that_of_the_canonical_bytes() -> None:
    values = mechanism_to_dict(MECHANISMS["elastic"])
    shuffled = dict(reversed(list(values.items())))
    assert canonical_bytes(shuffled) == canonical_bytes(values)
    assert document_id(shuffled) == document_id(values)
    assert len(document_id(values)) == 64
    changed = copy.deepcopy(values)
    changed["parameters"]["beta_per_km"] += 1e-15
    assert document_id(changed) != document_id(values)
    with pytest.raises(ValueError, match="JSON"):
        canonical_bytes({"a": float("nan")})


def weakened(values: dict[str, Any], epsilon: float) -> dict[str, Any]:
    """The document with another number in its claim."""
    changed = copy.deepcopy(values)
    claim = changed.get("of", changed)["guarantee"]
    claim["epsilon_per_km" if claim["kind"] == "per-km" else "epsilon"] = epsilon
    return changed


def test_a_matrix_that_promises_nothing_is_not_the_one_that_promises() -> None:
    strategy = MECHANISMS["a strategy"]
    promising = gv.DenseChannel(strategy.space, strategy.matrix())
    assert promising.guarantee is not None
    assert strategy != promising
    assert promising != strategy


UNEVEN = np.array([[5, 3, 1, 1], [4, 4, 1, 1], [3, 4, 2, 1], [2, 4, 3, 1]]) / 10
UNCLAIMED = ("continuous-laplace", "a strategy")
CLAIMED = {
    **{name: made for name, made in MECHANISMS.items() if name not in (*UNCLAIMED, "dense")},
    "dense": gv.DenseChannel(LINE, UNEVEN, guarantee=gv.WithinRadius(2.0, 1.1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CLAIMED)
def test_a_document_that_claims_less_than_its_law_loses_is_refused(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "mechanism.json"
    false = weakened(mechanism_to_dict(CLAIMED[name]), 0.01)
    path.write_bytes(canonical_bytes(false))
    channel = CLAIMED[name]
    truth = gv.certify(channel.channel if isinstance(channel, gv.Remapped) else channel)
    with pytest.raises(InvalidFile, match=r"must not be smaller than the loss") as refused:
        gv.load_mechanism(path)
    assert "ε = 0.01" in str(refused.value)
    assert truth.found in str(refused.value)
    mechanism, claim, _ = load_mechanism_and_claim(path)
    assert 0.01 in (getattr(claim, "epsilon", None), getattr(claim, "epsilon_per_km", None))
    found = gv.certify(mechanism, claim=claim)
    assert not found.holds
    assert found.epsilon_per_km == gv.certify(channel).epsilon_per_km


@pytest.mark.parametrize("name", CLAIMED)
def test_a_document_may_claim_more_than_its_law_loses_and_is_charged_what_it_promises(
    name: str,
) -> None:
    weak = weakened(mechanism_to_dict(CLAIMED[name]), 50.0)
    if name == "dense":  # which promises what its document states
        assert mechanism_from_dict(weak).guarantee == gv.WithinRadius(2.0, 50.0)
        assert mechanism_from_dict(weak) != CLAIMED[name]
    else:
        assert mechanism_from_dict(weak) == CLAIMED[name]
        assert mechanism_from_dict(weak).guarantee == CLAIMED[name].guarantee


@pytest.mark.parametrize("name", ["elastic"])
def test_a_promise_among_the_parameters_is_a_claim_too(name: str) -> None:
    values = mechanism_to_dict(CLAIMED[name])
    values["parameters"]["epsilon_per_km"] = 0.01
    del values["guarantee"]
    with pytest.raises(InvalidFile, match=r"ε = 0\.01 .* must not be smaller than the loss"):
        mechanism_from_dict(values)
    values["guarantee"] = {"kind": "per-km", "epsilon_per_km": 5.0}
    with pytest.raises(InvalidFile, match=r"ε = 0\.01 .* must not be smaller than the loss"):
        mechanism_from_dict(values)


def test_what_devices_would_check_for_minutes_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mechanism = gv.elastic(PARIS, epsilon_per_km=2.0)
    assert isinstance(mechanism, gv.PositionalElastic)
    times = {"campaign": "paris", "round": 1, "not_before_s": 0, "expires_s": 10}
    monkeypatch.setattr(wire, "MOST_WORK", mechanism.law.work)
    assert publish(mechanism, **times).round == 1
    monkeypatch.setattr(wire, "MOST_WORK", mechanism.law.work - 1)
    with pytest.raises(
        InvalidInput, match=r"cells \(\d+\) must be fewer at ε × cell = 1: devices .*larger"
    ):
        publish(mechanism, **times)


def test_a_published_document_can_be_audited_though_nobody_believes_it() -> None:
    times = {"not_before_s": 0, "expires_s": 10}
    design = gv.elastic(PARIS, epsilon_per_km=2.0)
    assert isinstance(design, gv.PositionalElastic)
    values = publish(design, campaign="paris", round=1, **times).to_dict() | {"epsilon_per_km": 0.5}
    with pytest.raises(InvalidFile, match="do not keep the promise"):
        mechanism_from_dict(values)
    mechanism, claim, _ = mechanism_and_claim(values)
    assert claim == gv.BetweenPositions(0.5, design.guarantee.slack)  # type: ignore[union-attr]
    assert not gv.certify(mechanism, claim=claim).holds
    made = {"step": design.step, "rim": design.rim, "promise": claim}
    unkept = gv.PositionalElastic.of_law(design.space, design.law, **made)
    with pytest.raises(wire.RefusedDocument, match="do not keep the promise"):
        publish(unkept, campaign="paris", round=1, **times)
    with pytest.raises(InvalidFile, match="expires before"):
        mechanism_and_claim(values | {"expires": 0})


def test_a_guarantee_cannot_be_changed() -> None:
    for mechanism in MECHANISMS.values():
        if isinstance(mechanism, gv.Channel):
            before = mechanism.guarantee
            with pytest.raises(Unsupported, match="cannot be changed"):
                mechanism.guarantee = gv.GeoIndistinguishability(0.1)
            assert mechanism.guarantee == before
            assert copy.deepcopy(mechanism).guarantee == before


def hostile_documents() -> list[Any]:
    """Every value of a sound document replaced by something else, and some that are no document."""
    made: list[Any] = [None, [], 3, "x", {}, {"geoveil": 2}, {"geoveil": 1}, {"geoveil": "1"}]
    for mechanism in MECHANISMS.values():
        sound = mechanism_to_dict(mechanism)
        for path in list(_paths(sound))[:40]:
            for poison in (None, "x", -1, float("nan"), [], {}, True, 1e999, 10**40, 10**400):
                hostile = copy.deepcopy(sound)
                _put(hostile, path, poison)
                made.append(hostile)
            missing = copy.deepcopy(sound)
            _put(missing, path, _ABSENT)
            made.append(missing)
    return made


_ABSENT = object()


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Any:
    if at:
        yield at
    if isinstance(value, dict):
        for key in value:
            yield from _paths(value[key], (*at, key))
    elif isinstance(value, list):
        for key in range(min(2, len(value))):
            yield from _paths(value[key], (*at, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    if new is _ABSENT:
        del value[path[-1]]
    else:
        value[path[-1]] = new


def test_hostile_documents_are_refused_in_one_line_or_harmless() -> None:
    refused = []
    for values in hostile_documents():
        try:
            made = mechanism_from_dict(values)  # what was changed may not matter
            assert repr(made)
            assert hash(made) == hash(made)
        except GeoveilError as problem:
            refused.append(str(problem))
    assert len(refused) > 1000
    assert not any("\n" in message for message in refused)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[1]",
        '{"geoveil": 1, "mechanism": NaN}',
        '"\\ud800"',
        "[" * 100_000,
        '{"geoveil": 1',
    ],
)
def test_files_that_are_no_document_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mechanism.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFile, match=r"mechanism\.json"):
        gv.load_mechanism(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidFile):
        gv.load_mechanism(path)


def test_what_has_no_document_says_so() -> None:
    stacked = gv.StackedChannel([MECHANISMS["rappor"]])
    general = gv.DenseChannel(LINE, UNEVEN, guarantee=gv.GeneralPrivacy(lambda d: 2 * d))
    for channel in (stacked, general):
        with pytest.raises(Unsupported):
            mechanism_to_dict(channel)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"geoveil":1', '"geoveil":1,"geoveil":1'),
        lambda text: text.replace('"epsilon_per_km":', '"epsilon_per_km":9,"epsilon_per_km":', 1),
        lambda text: text.replace('"geoveil":1', '"geoveil":true'),
        lambda text: text.replace('"geoveil":1', '"geoveil":1.5'),
        lambda text: text.replace('"geoveil":1', '"geoveil":1,"note":"x"'),
        lambda text: text.encode("utf-16"),
    ],
)
def test_a_file_is_read_as_strictly_as_a_published_document(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "mechanism.json"
    gv.save_mechanism(MECHANISMS["planar-geometric"], path)
    changed = change(path.read_text(encoding="utf-8"))
    path.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    with pytest.raises(InvalidFile, match=r"mechanism\.json"):
        gv.load_mechanism(path)


def test_a_number_of_a_file_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "mechanism.json"
    gv.save_mechanism(MECHANISMS["planar-geometric"], path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"geoveil":1', '"geoveil":1.0'), encoding="utf-8")
    assert gv.load_mechanism(path) == MECHANISMS["planar-geometric"]


@pytest.mark.parametrize("name", MECHANISMS)
def test_unknown_entries_are_refused(name: str) -> None:
    values = mechanism_to_dict(MECHANISMS[name])
    with pytest.raises(InvalidFile, match="must have no entries but"):
        mechanism_from_dict({**values, "surprise": 1})


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("elastic", {"kind": "local", "epsilon": 1.0}),
        ("planar-geometric", {"kind": "within-radius", "radius_km": 1.0, "epsilon": 1.0}),
        ("rappor", {"kind": "per-km", "epsilon_per_km": 1.0}),
    ],
)
def test_a_document_cannot_claim_another_kind_of_promise(name: str, claim: Any) -> None:
    values = {**mechanism_to_dict(MECHANISMS[name]), "guarantee": claim}
    with pytest.raises(InvalidFile, match=f"guarantee of {name} must be of kind"):
        mechanism_from_dict(values)


@pytest.mark.parametrize("kind", [7, None, ["local"], "none"])
def test_a_kind_of_promise_that_does_not_exist_is_refused(kind: Any) -> None:
    values = {**mechanism_to_dict(MECHANISMS["rappor"]), "guarantee": {"kind": kind}}
    with pytest.raises(InvalidFile, match=r"guarantee \(.*\) must be one of"):
        mechanism_from_dict(values)


def test_numbers_beyond_all_floats_are_refused() -> None:
    elastic = mechanism_to_dict(MECHANISMS["elastic"])
    elastic["parameters"]["weights"][0] = 10**400
    dense = mechanism_to_dict(MECHANISMS["dense"])
    dense["matrix"][0][0] = 10**400
    for values in (elastic, dense):
        with pytest.raises(GeoveilError, match="numbers"):
            mechanism_from_dict(values)
