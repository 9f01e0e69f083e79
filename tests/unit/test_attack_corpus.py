"""The corpus of attacks: what is called invisible is, and the lines are read off the outcomes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks import attacks
from benchmarks.attacks import Outcome, Setting

import geoveil as gv

GRID = gv.Grid(rows=4, columns=4, cell_km=1.0)
TRUTH = np.random.default_rng(5).dirichlet(np.ones(16))
MECHANISMS = [
    gv.elastic(GRID, prior, epsilon_per_km=1.0, between="cells") for prior in (None, TRUTH)
]
SETTING = Setting("synthetic", 2.0, adaptive=False, between="cells")


def test_the_farthest_map_can_be_made_up_and_no_other_goes_farther() -> None:
    share, target = 0.1, np.eye(16)[3]
    there = attacks.farthest(MECHANISMS, TRUTH, target, share)
    assert there.sum() == pytest.approx(1.0)
    for mechanism in MECHANISMS:
        left = mechanism.push(there) - (1 - share) * mechanism.push(TRUTH)
        assert left.min() > -1e-7  # a law of fakes, times α
        assert left.sum() == pytest.approx(share)
    assert there[3] > TRUTH[3] + share  # more than as many people could
    beyond = TRUTH + 1.1 * (there - TRUTH)
    assert any(
        (mechanism.push(beyond) - (1 - share) * mechanism.push(TRUTH)).min() < -1e-7
        for mechanism in MECHANISMS
    )


def test_what_fakes_send_is_a_law_of_reports() -> None:
    names = []
    for name, sent in attacks.attacks(SETTING, 0.05, 0):
        names.append(name)
        if not name.startswith("invisible"):
            law = sent(SETTING.foreseen[0])
            assert law.min() >= 0
            assert law.sum() == pytest.approx(1.0)
    assert len(set(names)) == len(names) == 9
    assert {"bait at a crowd", "spread over 60", "inverse, a crowd down"} <= set(names)


def test_a_shape_of_the_inverse_pushes_its_crowd_down() -> None:
    crowd = int(np.argmax(TRUTH))
    mechanism = MECHANISMS[0]
    law = attacks.inverse_shape(crowd, -1.0)(mechanism)
    unbiased = np.linalg.lstsq(mechanism.matrix().T, law, rcond=1e-6)[0]
    assert unbiased[crowd] < -1  # each fake takes more than a person out of it


def outcome(**changed: float | str) -> Outcome:
    plain = Outcome(
        "somewhere", "one cell", 0.01, 0, 1000, True, 1, 900, 1100, 1000,
        5.0, -2.0, 1.0, -0.5, 3.0, -1.0, 0, 0, 5.0,
    )  # fmt: skip
    return replace(plain, **changed)  # type: ignore[arg-type]


def test_the_lines_say_what_was_missed(capsys: pytest.CaptureFixture[str]) -> None:
    good = list(attacks.lines([outcome()]))
    assert "at most 0.90 (line 1.1); above 1.1 in 0 of 1" in good[0]
    assert good[1].endswith("in: 0 (line 0)")
    assert "at most -4.00 α" in good[2]
    assert "in 1 of 1" in good[3]
    bad = list(attacks.lines([outcome(removed=1200, left_interval=2, guarded_down=-9.0)]))
    assert "above 1.1 in 1 of 1" in bad[0]
    assert bad[1].endswith("in: 2 (line 0)")
    assert "at most +4.00 α (line +0.1); above it in 1 of 1" in bad[2]
    assert "in 0 of 1" in bad[3]
    followed = [outcome(setting="x adaptive", apart=apart) for apart in (1.5, 2.5)]
    assert "-1.00 ± 0.50 α in the mean of 2" in list(attacks.lines(followed))[3]
    attacks.tables(
        [outcome(), outcome(fakes=0, share=0.0, attack="nobody", raised=False, removed=0)]
    )
    shown = capsys.readouterr().out
    assert (
        "| one cell | 1.0 % | 1 | 1 of 1 | 0.90; 0.90 | 5.0 | 1.0 | 3.0 | -2.0 | -0.5 | -1.0 |"
        in shown
    )
    assert "0 of 1 alarms" in shown


def test_a_baited_crowd_keeps_its_people() -> None:
    found = attacks.outcome(SETTING, "bait at a crowd", 0.05, 0)
    assert found.raised
    assert found.removed <= 1.1 * found.fakes
    assert found.removed <= found.fakes_named <= found.most
    assert found.left_interval == 0
    assert max(found.guarded_up, -found.guarded_down) <= found.plain_up + 0.1
