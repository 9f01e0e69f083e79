"""What the ways of large maps cost in quality, at a size where the long way can be gone as well.

``python -m benchmarks.large_checks steps`` compares the maps of steps that rounds share with those of all
rounds at every step; ``alarm`` counts false alarms and found fakes with as many steps as the newest round
takes and with those of all rounds; ``drift`` counts moves found in blocks with soft and with sharp edges.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from itertools import islice
from time import process_time
from typing import NoReturn
from unittest import mock

import numpy as np

from benchmarks.large_rounds import EPSILON_PER_KM, country, crowd, first_document, work_of
from geoveil.arrays import FloatArray, uniform
from geoveil.campaign.elastic_design import elastic
from geoveil.channel.channel import Channel, Tally
from geoveil.document.wire import unpack_levels
from geoveil.estimate import CrossValidated, Estimate, IterativeBayesianUpdate
from geoveil.estimate.fitted import Observations
from geoveil.estimate.objective import Objective, em_path, pooled, shared_path
from geoveil.estimate.uneven import MAP_SHOWS, PlacesOfAll
from geoveil.server.conclusion import round_of
from geoveil.space import MapSpace
from geoveil.verify.agreement import agreement
from geoveil.verify.alarm import PoisoningAlarm

ROUNDS = 15
PER_CELL = 15
"""Reports in a round, as a million in a country of 65,536 cells."""
_STEPS = 100
_FAKES = (60, 120)


def people_of(space: MapSpace, seed: int) -> FloatArray:
    """A crowd whose cells differ much from their neighbours."""
    rough = crowd(space) * np.random.default_rng(seed).gamma(0.5, size=space.size)
    return np.asarray(rough / rough.sum())


def said(channel: Channel, people: FloatArray, reports: int, seed: int) -> Tally:
    """What people report."""
    law = np.maximum(channel.push(people), 0.0)
    return Tally(channel, np.random.default_rng(seed).multinomial(reports, law / law.sum()))


def rounds_of(cells: int, number: int) -> list[Tally]:
    """Rounds whose mechanisms differ as those of a campaign that has settled."""
    work = work_of(first_document(cells, None), number, PER_CELL * cells)
    kept = ((each, unpack_levels(work.documents[each])) for each in work.documents)
    return [round_of(each, levels, work.counts[each]).tally for each, levels in kept]


def steps(cells: int) -> None:
    """Mechanisms as far apart as those of a campaign can be: for nobody knows, for a thin guess, for all."""
    land = country(cells)
    people = people_of(land, 1)
    beliefs = uniform(cells), crowd(land), 0.5 * people + 0.5 * crowd(land), people
    made = [elastic(land, each, epsilon_per_km=EPSILON_PER_KM, camouflage=0.5) for each in beliefs]
    far = [said(each, people, 200 * cells, number) for number, each in enumerate(made)]
    for name, tallies in (("first rounds", far), ("later rounds", rounds_of(cells, ROUNDS))):
        observations = Observations(tallies)
        places = PlacesOfAll.of(observations, shows=MAP_SHOWS)
        assert places is not None
        counts = observations.counts.astype(np.float64)
        objective, start = Objective(places.operator, counts), places.spread(uniform(cells))
        before = process_time()
        plain = [point.theta for point in islice(em_path(objective, start), _STEPS + 1)]
        middle, worst, looks = process_time(), 0.0, 0
        few = pooled(places.operator, counts)
        for step, point in shared_path(objective, few, start, _STEPS):
            away = np.abs(places.by_cell(point.theta - plain[step])).sum() / 2
            worst, looks = max(worst, float(away)), looks + 1
            if step >= _STEPS:
                break
        shared = process_time() - middle
        print(
            f"{name}: {_STEPS} steps, all {len(tallies)} rounds looked at {looks} times, "
            f"{shared:.1f} s of processor (in every step {middle - before:.1f} s); at most {worst:.1e} of "
            "the people elsewhere",
            flush=True,
        )


def alarm(cells: int, trials: int, steps_of_all: int | None) -> None:
    """Honest rounds, and rounds with fakes at one cell, by steps of all rounds and of the newest."""
    tallies = rounds_of(cells, ROUNDS)
    taken = steps_of_all
    for number in (1, 4, ROUNDS) if taken is None else ():
        taken = IterativeBayesianUpdate(CrossValidated()).fit(tallies[-number:]).steps
        print(f"{number} rounds: {taken} steps by cross-validation", flush=True)
    assert taken is not None
    channel, reports = tallies[-1].channel, PER_CELL * cells
    land = country(cells)
    for which, share, number in (("fewer", ROUNDS, trials), ("all", 1, trials // 10)):
        before, named, odd, found = process_time(), 0, 0, dict.fromkeys(_FAKES, 0)
        for seed in range(number):
            people = people_of(land, 1_000 + seed)
            at = int(np.random.default_rng(seed).integers(cells))
            for fakes in (0, *_FAKES):
                counts = said(channel, people, reports, seed).counts.copy()
                counts[at] += fakes
                total = share * int(counts.sum())  # reports of the map, as the alarm is told
                first, whole = _checked(Tally(channel, counts), people, taken, total)
                if fakes:
                    found[fakes] += first
                else:
                    named, odd = named + first, odd + whole
        print(
            f"{which} steps: of {number} honest rounds {named} with a report named, {odd} odd as a whole; "
            f"fakes found, of {number}: {found}; {process_time() - before:.0f} s of processor",
            flush=True,
        )


def _not_asked() -> NoReturn:
    raise AssertionError("the alarm asks for the map and its steps alone")


def _checked(tally: Tally, people: FloatArray, steps: int, total: int) -> tuple[bool, bool]:
    """Whether a report is named, and whether all are odd, of a map with these steps and reports."""
    estimate = Estimate(
        space=tally.space,
        distribution=people,
        total=total,
        steps=steps,
        stopped="as asked",
        find_fit=_not_asked,
        find_errors=_not_asked,
        find_identifiability=_not_asked,
    )
    with mock.patch("geoveil.verify.alarm.MATRIX_LIMIT", 0):
        found = PoisoningAlarm(replicates=49).check(tally, estimate)
    return found.p_value <= found.false_alarm, found.overall_p_value <= found.false_alarm


def drift(cells: int, trials: int) -> None:
    """Rounds of people who stay, who all move by one kilometre, or one in a hundred of them to a new town."""
    first, second = (tally.channel for tally in rounds_of(cells, 2))
    space = first.space
    assert isinstance(space, MapSpace)
    people = people_of(space, 5)
    moved = np.zeros(cells)
    offsets = space.centres[:, None] - (space.centres + np.array((1.0, 0.0)))
    np.add.at(moved, np.square(offsets).sum(axis=-1).argmin(axis=0), people)
    town = np.exp(-np.hypot(*(space.centres - np.array((-10.0, 12.0))).T) / 1.5)
    later = {"nobody moved": people, "all by 1 km": moved}
    later["1 % to a new town"] = 0.99 * people + 0.01 * town / town.sum()
    for name, there in later.items():
        for edges in ("sharp", "soft"):
            limit = math.inf if edges == "sharp" else 0
            with mock.patch("geoveil.verify.agreement.MATRIX_LIMIT", limit):
                before, p = process_time(), []
                for seed in range(trials):
                    old = [said(first, people, 12 * cells, seed)]
                    new = [said(second, there, 12 * cells, 1_000 + seed)]
                    p.append(agreement([old, new], people).p_value)
            print(
                f"{name}, {edges} edges: p below 0.05 in {sum(each < 0.05 for each in p)} of {trials}, "
                f"median {np.median(p):.2g}; {(process_time() - before) / trials:.1f} s of processor each",
                flush=True,
            )


def main(given: Sequence[str] | None = None) -> int:
    """Print one of the comparisons."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_checks", description=__doc__)
    parser.add_argument("which", choices=("steps", "alarm", "drift"))
    parser.add_argument("--trials", type=int, default=50, help="of alarms and of moves")
    parser.add_argument("--cells", type=int, default=5_000)
    parser.add_argument("--steps", type=int, help="of the map of all rounds, for the alarm")
    asked = parser.parse_args(given)
    if asked.which == "steps":
        steps(asked.cells)
    elif asked.which == "alarm":
        alarm(asked.cells, asked.trials, asked.steps)
    else:
        drift(asked.cells, asked.trials)
    return 0


if __name__ == "__main__":
    sys.exit(main())
