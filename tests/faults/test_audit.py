"""The audit finds every planted fault and blames no sound mechanism (promise 14)."""

from __future__ import annotations

import pytest

import geoveil as gv
from faults.corpus import MAKERS
from faults.sound import KINDS, sound_mechanism
from geoveil.verify.auditor import audit


def test_the_corpus_is_large_enough() -> None:
    assert len(MAKERS) >= 24


@pytest.mark.parametrize("name", MAKERS)
def test_a_planted_fault_is_found(name: str) -> None:
    report = audit(MAKERS[name](), randomness=gv.seeded(1))
    assert not report.passed
    assert all(finding and "\n" not in finding for finding in report.findings)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(2 * len(KINDS)))
def test_a_sound_mechanism_is_not_blamed(seed: int) -> None:
    report = audit(sound_mechanism(seed), draws=60_000, randomness=gv.seeded(seed))
    assert report.findings == ()


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_no_false_alarm_on_two_hundred(seed: int) -> None:
    report = audit(sound_mechanism(seed), randomness=gv.seeded(seed))
    assert report.findings == ()
