"""What all tests share: hypothesis settings, contract cases, and real data where it is present."""

from __future__ import annotations

import gc
import os
import pickle
import re
import signal
from collections.abc import Callable, Generator, Iterator
from copy import copy
from dataclasses import fields
from functools import cache, wraps
from pathlib import Path
from typing import Any

# Before numpy is imported: with several test processes, threads of BLAS would fight for the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from geoveil.campaign import positional_design
from geoveil.position.position_certificate import Law

pytest.register_assert_rewrite("contract", "faults", "store")

settings.register_profile(
    "geoveil",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("geoveil")

_EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)
ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """The processes that tests start share the cores evenly: see ``evenly/sitecustomize.py``."""
    evenly = str(ROOT / "tests" / "evenly")
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if evenly not in others:
        os.environ["PYTHONPATH"] = os.pathsep.join([evenly, *filter(None, others)])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Contract classes: every test of a class runs on each of its ``cases``."""
    if "case" in metafunc.fixturenames and hasattr(metafunc.cls, "cases"):
        made = _cases_of(metafunc.cls)
        metafunc.parametrize("case", made.values(), ids=made.keys())


_LONGEST = (
    "test_pages.py",
    "test_spark.py",
    "test_web.py",
    "test_demo.py",
    "test_documentation.py",
    "test_rounds_campaigns.py",
    "test_http_fuzz.py",
    "test_http_killed.py",
    "test_http_overload.py",
    "test_http_dashboard.py",
    "test_http_postgres.py",
    "test_http_round.py",
    "test_http_docs.py",
    "test_one_campaign.py",
    "test_uneven.py",
    "test_vectors.py",
    "test_simulate.py",
    "test_sentences.py",
    "test_optimal_radial.py",
    "test_audit.py",
    "test_budget_holds.py",
    "test_rounds_worker.py",
    "test_manipulation.py",
    "test_clock.py",
    "test_rounds_choices.py",
    "test_guard.py",
    "test_ledger.py",
    "test_papers_ibu.py",
    "test_papers_free_will.py",
)
"""Files whose tests take longest: begun first, so that at the end no worker waits for another."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; each is one worker's, so that what a file shares is made once."""
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Modules and tests stay to the end: garbage is not looked for among them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Here no file is searched for examples that has none: only to look, each would be imported."""
    found = yield
    others = [each for each in found if not isinstance(each, DoctestModule)]
    if len(others) == len(found) or _EXAMPLE.search(file_path.read_text(encoding="utf-8")):
        return found
    return others


@cache
def _cases_of(contract: Any) -> dict[str, Any]:
    """Made once, so that what a case computes is computed once."""
    return contract.cases()


@pytest.fixture(scope="session", autouse=True)
def designs_made_once() -> Iterator[None]:
    """The same promise for the same people on the same cells is designed once: it takes half a second."""
    make, made = positional_design._promising, {}

    def remembered(space: Any, prior: Any, epsilon: float, camouflage: float, stop: Any) -> Any:
        key = (repr(space.to_dict()), prior.tobytes(), epsilon, camouflage, repr(stop))
        if key not in made:
            made[key] = make(space, prior, epsilon, camouflage, stop)
        return copy(made[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positional_design, "_promising", remembered)
        yield


_CERTIFIED: dict[bytes, Any] = {}


@pytest.fixture(scope="module")
def certified_once() -> Iterator[None]:
    """The same law is certified once for all tests that ask for this: it takes longer than what they do."""
    certify, made = Law.certify, _CERTIFIED

    @wraps(certify)
    def remembered(law: Law, *claim: float) -> Any:
        about = [getattr(law.centres, each.name) for each in fields(law.centres)]
        key = pickle.dumps((about, law.weights, law.cone, claim))
        if key not in made:
            made[key] = certify(law, *claim)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Law, "certify", remembered)
        yield


@pytest.fixture
def heard_signals() -> Iterator[None]:
    """Programs started meanwhile hear every signal.

    What a shell runs in the background, or under ``nohup``, is deaf to some of them, and children inherit
    that; a handler they do not inherit.
    """
    numbers = [number for number in (signal.SIGINT, getattr(signal, "SIGHUP", None)) if number]
    before = [(number, signal.signal(number, lambda *_: None)) for number in numbers]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """The path of a file of real data; the test is skipped where there is none."""
    folder = Path(os.environ.get("GEOVEIL_DATA", ROOT.parent / "shared" / "data"))

    def find(name: str) -> Path:
        if not (folder / name).is_file():
            pytest.skip(f"{name} is not in {folder.name}/; set GEOVEIL_DATA to the folder with it")
        return folder / name

    return find
