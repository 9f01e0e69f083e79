"""Maps of slots: each from its own reports, begun where held-out reports say."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.errors import InvalidInput

TOWN = gv.Grid(rows=6, columns=6, cell_km=0.5)
MECHANISM = gv.elastic(TOWN, epsilon_per_km=2.0, between="cells", camouflage=0.0)


def said(people: FloatArray, number: int, seed: int) -> gv.Tally:
    law = MECHANISM.push(people)
    return gv.Tally(MECHANISM, np.random.default_rng(seed).multinomial(number, law / law.sum()))


def towns(likeness: float, slots: int = 6) -> dict[int, FloatArray]:
    """A town by the hour: so much of it is the same at every hour."""
    generator = np.random.default_rng(3)
    always = generator.dirichlet(np.full(TOWN.size, 0.2))
    own = generator.dirichlet(np.full(TOWN.size, 0.2), size=slots)
    return {hour: likeness * always + (1 - likeness) * own[hour] for hour in range(slots)}


def mean_error(maps: dict[int, FloatArray], truth: dict[int, FloatArray]) -> float:
    return float(np.mean([gv.total_variation(maps[hour], truth[hour]) for hour in truth]))


def test_hours_that_are_alike_learn_from_each_other() -> None:
    truth = towns(0.9)
    tallies = {hour: said(people, 400, hour) for hour, people in truth.items()}
    maps = gv.IterativeBayesianUpdate().fit_slots(tallies)
    alone = {h: gv.IterativeBayesianUpdate().fit(t).distribution for h, t in tallies.items()}
    assert maps.started == "the pooled map of all slots, chosen by cross-validation"
    theirs = {hour: maps[hour].distribution for hour in truth}
    assert mean_error(theirs, truth) < 0.85 * mean_error(alone, truth)
    assert maps.pooled.total == 2400
    assert list(maps) == list(truth)
    assert len({maps[hour].steps for hour in truth}) == 1  # shared by all slots
    assert "for all slots together" in maps[0].stopped
    assert "SlotMaps(6 slots" in repr(maps)


def test_hours_that_differ_are_not_held_together() -> None:
    truth = towns(0.0)
    tallies = {hour: said(people, 3000, hour) for hour, people in truth.items()}
    maps = gv.IterativeBayesianUpdate().fit_slots(tallies)
    alone = {h: gv.IterativeBayesianUpdate().fit(t).distribution for h, t in tallies.items()}
    theirs = {hour: maps[hour].distribution for hour in truth}
    assert mean_error(theirs, truth) < 1.05 * mean_error(alone, truth)


def test_an_empty_slot_has_no_map_and_loses_nothing() -> None:
    people = towns(0.9)[0]
    empty = gv.Tally(MECHANISM, np.zeros(TOWN.size, dtype=np.int64))
    maps = gv.IterativeBayesianUpdate().fit_slots({"day": said(people, 500, 1), "night": empty})
    assert maps.empty == ("night",)
    assert list(maps) == ["day"]
    assert maps.pooled.total == 500
    with pytest.raises(KeyError, match="must have reports"):
        _ = maps["night"]
    with pytest.raises(InvalidInput, match="at least one report"):
        gv.IterativeBayesianUpdate().fit_slots({"night": empty})


def test_slots_without_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"slots \(list\) must be tallies by slot"):
        gv.IterativeBayesianUpdate().fit_slots([])  # type: ignore[arg-type]


def test_a_slot_may_have_several_mechanisms_and_one_report() -> None:
    other = gv.elastic(TOWN, epsilon_per_km=4.0, between="cells")
    people = towns(0.9)[0]
    slots = {8: [said(people, 300, 1), other.tally(np.arange(30))], 9: other.tally([5])}
    maps = gv.IterativeBayesianUpdate().fit_slots(slots)
    assert (maps[8].total, maps[9].total) == (330, 1)
    assert np.isclose(maps[9].distribution.sum(), 1.0)


def test_another_stopping_rule_begins_at_the_pooled_map() -> None:
    people = towns(0.9)[0]
    maps = gv.IterativeBayesianUpdate(stop=gv.Steps(3)).fit_slots({1: said(people, 500, 1)})
    assert maps.started == "the pooled map of all slots"
    assert maps[1].steps == 3


def test_intervals_of_a_slot_are_those_of_its_own_reports() -> None:
    truth = towns(0.9)
    tallies = {hour: said(people, 1500, hour) for hour, people in truth.items()}
    maps = gv.IterativeBayesianUpdate().fit_slots(tallies)
    held = []
    for hour, people in truth.items():
        low, high = maps[hour].interval(0.95)
        held.append(((low <= people) & (people <= high)).mean())
    assert np.mean(held) > 0.9
