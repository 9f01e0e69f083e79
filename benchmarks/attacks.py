"""A corpus of attacks with fake reports: guarded, plain, and the limit that no estimator passes.

Run ``python -m benchmarks.attacks`` in the folder of the repository (``--help``); Paris and San Francisco
need the check-ins of the papers in ``GEOVEIL_DATA`` or ``../shared/data``. Every attack is made on a
campaign of four rounds and 100,000 reports, whose mechanisms are fixed beforehand or follow the estimates.
Movements are in units of α, the share of fakes: 1 is what as many people would move.
"""

# The runs behind docs/robustness.md:
#
# The corpus, an hour of one core:
#   --campaign fixed
#   --city paris --campaign adaptive --epsilon 2 --share 0.01 --share 0.05
#   --city paris --campaign adaptive --epsilon 1 --share 0.01
#   --city synthetic --campaign adaptive --share 0.01 --share 0.05
#   --city san-francisco --campaign fixed --share 0.01 --share 0.05
#   --city san-francisco --campaign adaptive --epsilon 2 --share 0.01
# The attacks drawn anew, as long:
#   --campaign fixed --share 0.01 --share 0.05 --share 0.2 --first-seed 8 --no-limits --honest 0
#   --campaign fixed --epsilon 1 --share 0.01 --share 0.05 --attack "spread over 8"
#       --attack "spread over 20" --first-seed 6 --seeds 2 --no-limits --honest 0
#   --campaign fixed --epsilon 1 --share 0.2 --attack "spread over 20" --attack "spread over 60"
#       --attack "bait at a crowd" --first-seed 6 --no-limits --honest 0
#   --city paris --campaign fixed --epsilon 2 --share 0.01 --share 0.05 --attack "spread over 8"
#       --attack "spread over 20" --attack "inverse, a crowd down" --first-seed 6 --no-limits --honest 0
#   --city san-francisco --campaign fixed --share 0.2 --share 0.001 --no-limits --honest 0
#   --city synthetic --campaign adaptive --share 0.2 --share 0.001 --no-limits --honest 0
# Between positions, five minutes an attack:
#   --between positions --city synthetic --epsilon 1 --campaign fixed --share 0.05 --no-limits --honest 2
#       --attack nobody --attack "one cell" --attack "bait at a crowd" --attack "spread over 8"
#       --attack "spread over 20" --attack "spread over 60" --attack "inverse, a cell up"
#   --between positions --city synthetic --epsilon 2 --campaign fixed --share 0.05 --no-limits --honest 2
#       --attack nobody --attack "one cell" --attack "bait at a crowd" --attack "spread over 8"
#       --attack "inverse, a crowd down" --attack "invisible, a crowd down"
# What the guard costs, six minutes:
#   --times --between positions --city synthetic --campaign fixed --epsilon 1 --share 0.05
#       --attack "one cell" --attack "spread over 8" --first-seed 1 --honest 0

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from time import process_time

import numpy as np
from scipy.optimize import linprog

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign.elastic_design import Between
from geoveil.campaign.rounds import Closing, Round
from geoveil.campaign.rules import PromiseRule
from geoveil.channel.channel import Channel, Tally
from geoveil.errors import percent
from geoveil.papers.data import PARIS, SAN_FRANCISCO, DataFolder, MissingData, load_city
from geoveil.space import Grid

REPORTS, ROUNDS = 100_000, 4
SHARES = (0.001, 0.01, 0.05, 0.2)
EPSILONS = (1.0, 2.0)
CAMPAIGNS = ("fixed", "adaptive")
CROWDS = 10
"""The largest cells, whose intervals are looked at."""
LEVEL = 0.95


@dataclass(frozen=True)
class Place:
    """A city whose truth is known, cut into cells of one unit; ε is per cell."""

    name: str
    grid: Grid
    truth: FloatArray

    def block(self, cell: int, reach: int = 1) -> IntArray:
        """The cells within so many rows and columns."""
        rows, columns = np.divmod(np.arange(self.grid.size), self.grid.columns)
        row, column = divmod(cell, self.grid.columns)
        near = (np.abs(rows - row) <= reach) & (np.abs(columns - column) <= reach)
        return np.flatnonzero(near)

    @property
    def targets(self) -> FloatArray:
        """(2·cells, cells): every cell, and every cell with those around it."""
        blocks = np.zeros((self.grid.size, self.grid.size))
        for cell in range(self.grid.size):
            blocks[cell, self.block(cell)] = 1.0
        return np.concatenate((np.eye(self.grid.size), blocks))


@cache
def place(name: str) -> Place:
    """Paris, San Francisco, or a city made up of crowds, suburbs and single busy cells."""
    if name == "synthetic":
        grid = Grid(rows=12, columns=16, cell_km=1.0)
        generator = np.random.default_rng(8)
        weights = np.full(grid.size, 0.02)
        for centre, width in zip(
            generator.permutation(grid.size)[:5], (1, 1, 2, 2, 3), strict=True
        ):
            weights += np.exp(-((grid.distances_from_km(int(centre)) / width) ** 2))
        weights[generator.permutation(grid.size)[:8]] += generator.uniform(0.3, 1.5, 8)
        return Place(name, grid, weights / weights.sum())
    city = load_city({"paris": PARIS, "san-francisco": SAN_FRANCISCO}[name], DataFolder())
    return Place(name, city.grid, city.truth)


@dataclass(frozen=True)
class Setting:
    """Where and how a campaign runs."""

    city: str
    epsilon: float
    adaptive: bool
    between: Between

    @property
    def place(self) -> Place:
        return place(self.city)

    def rule(self, *, guarded: bool) -> PromiseRule:
        return PromiseRule(self.epsilon, guarded=guarded, between=self.between)

    @property
    def foreseen(self) -> list[Channel]:
        """The mechanisms of a fixed campaign; of an adaptive one, what an attacker can foresee."""
        return _foreseen(self.city, self.epsilon, self.between)

    def __str__(self) -> str:
        how = "adaptive" if self.adaptive else "fixed"
        return f"{self.city} ε={self.epsilon:g} {how} {self.between}"


@cache
def _foreseen(city: str, epsilon: float, between: Between) -> list[Channel]:
    rule, where = PromiseRule(epsilon, between=between), place(city)
    flat = np.full(where.grid.size, 1 / where.grid.size)
    opening = rule.design(where.grid, flat)
    return [opening, rule.design(where.grid, rule.steering(where.grid, where.truth))]


# --- Attacks: what the fakes of a round send, given its mechanism

Sent = Callable[[Channel], FloatArray]
"""From the mechanism of a round to the law of the fakes' reports."""


def at_cells(cells: Iterable[int], size: int) -> Sent:
    """The same cells in every round, each as often."""
    law = np.bincount(np.fromiter(cells, dtype=np.int64), minlength=size).astype(np.float64)

    def sent(mechanism: Channel) -> FloatArray:
        padded = np.zeros(mechanism.report_count)
        padded[:size] = law / law.sum()
        return padded

    return sent


def inverse_shape(cell: int, sign: float) -> Sent:
    """Reports in proportion to the positive (or negative) part of a column of the inverse channel.

    An unbiased estimate of a cell adds these up, so nothing moves it faster, up or down.
    """

    def sent(mechanism: Channel) -> FloatArray:
        unit = np.zeros(mechanism.space.size)
        unit[cell] = 1.0
        weights = np.linalg.lstsq(mechanism.matrix(), unit, rcond=1e-6)[0]
        law = np.maximum(sign * weights, 0.0)
        return np.asarray(law / law.sum())

    return sent


def invisible(setting: Setting, target: FloatArray, share: float) -> Sent:
    """Fakes that make the reports those of honest people somewhere else, as far as can be foreseen."""
    truth = setting.place.truth

    @cache
    def pretended() -> FloatArray:
        return farthest(setting.foreseen, truth, target, share)

    def sent(mechanism: Channel) -> FloatArray:
        law = np.maximum(mechanism.push(pretended()) - (1 - share) * mechanism.push(truth), 0.0)
        return np.asarray(law / law.sum())

    return sent


def farthest(
    mechanisms: Sequence[Channel], truth: FloatArray, target: FloatArray, share: float
) -> FloatArray:
    """The map θ' farthest along a target whose reports fakes can make up: θ'C ≥ (1 − α)θC everywhere.

    No estimator that is right for every map can tell it from the truth: the limit of every guard.
    """
    laws = np.concatenate([mechanism.push(truth) for mechanism in mechanisms])
    matrix = np.concatenate([mechanism.matrix() for mechanism in mechanisms], axis=1)
    found = linprog(
        -target, A_ub=-matrix.T, b_ub=-(1 - share) * laws, A_eq=np.ones((1, truth.size)), b_eq=[1.0],
        bounds=(0, None), method="highs",
    )  # fmt: skip
    return np.asarray(truth if found.x is None else found.x / found.x.sum())


def attacks(setting: Setting, share: float, seed: int) -> Iterator[tuple[str, Sent]]:
    """All kinds, by name; cells are drawn anew for every seed."""
    where, generator = setting.place, np.random.default_rng(1000 + seed)
    size, order = where.grid.size, np.argsort(-where.truth)
    crowd = int(order[seed % CROWDS])
    quiet = int(generator.choice(order[size // 2 :]))
    yield "one cell", at_cells([quiet], size)
    yield "bait at a crowd", at_cells([crowd], size)
    for number in (8, 20, 60):
        yield f"spread over {number}", at_cells(generator.permutation(size)[:number], size)
    yield "inverse, a cell up", inverse_shape(quiet, 1.0)
    yield "inverse, a crowd down", inverse_shape(crowd, -1.0)
    unit = np.eye(size)
    yield "invisible, a cell up", invisible(setting, unit[quiet], share)
    yield "invisible, a crowd down", invisible(setting, -unit[crowd], share)


# --- One attack, measured


@dataclass(frozen=True)
class Outcome:
    """What one attack did to the plain and to the guarded estimate."""

    setting: str
    attack: str
    share: float
    seed: int
    fakes: int
    raised: bool
    named: int
    removed: int
    most: int
    fakes_named: int
    """Fakes among the reports named: what the range is about."""
    plain_up: float
    """Farthest up that the plain estimate of the same reports moves a cell or block, in units of α."""
    plain_down: float
    guarded_up: float
    guarded_down: float
    limit_up: float
    """How far fakes that nobody can see could move the target that moved up most, in units of α."""
    limit_down: float
    left_interval: int
    """Crowds that the plain estimate of the same reports has inside their intervals, the guarded one not."""
    pushed_below: int
    """Crowds whose guarded interval lies below the truth."""
    apart: float
    """How far a plain campaign of its own moves a cell or block; of mechanisms that follow the estimates
    other people draw other reports, so that chance differs."""

    @property
    def excess(self) -> float:
        """The largest movement of the guarded estimate less that of the plain one, of the same reports."""
        plain = max(self.plain_up, -self.plain_down)
        return max(self.guarded_up, -self.guarded_down) - plain


def counted(
    mechanism: Channel,
    truth: FloatArray,
    sent: Sent | None,
    fakes: int,
    generator: np.random.Generator,
) -> tuple[Tally, IntArray]:
    """The reports of a round, and the fakes among them."""
    law = mechanism.push(truth)
    counts = generator.multinomial(REPORTS // ROUNDS - fakes, law / law.sum())
    fake = np.zeros_like(counts)
    if sent is not None and fakes:
        fake = generator.multinomial(fakes, sent(mechanism))
    return Tally(mechanism, counts + fake), fake


def closing(
    setting: Setting, sent: Sent | None, fakes: int, seed: int, *, guarded: bool
) -> tuple[Closing, list[IntArray]]:
    """The last close of a campaign under attack, and the fakes of every round."""
    where, generator = setting.place, np.random.default_rng(seed)
    campaign = gv.Campaign(where.grid, rule=setting.rule(guarded=guarded))
    fixed = [setting.foreseen[0], *[setting.foreseen[1]] * (ROUNDS - 1)]
    sent_fakes, tallies = [], []
    for number in range(ROUNDS):
        mechanism = campaign.mechanism if setting.adaptive else fixed[number]
        tally, fake = counted(mechanism, where.truth, sent, fakes, generator)
        sent_fakes.append(fake)
        tallies.append(tally)
        if setting.adaptive:
            campaign.receive(tally)
            campaign.close_round()
    if setting.adaptive:
        return campaign.closing, sent_fakes
    rounds = tuple(Round(n, (tally,)) for n, tally in enumerate(tallies, start=1))
    guard = setting.rule(guarded=True).guard(1) if guarded else None
    if guard is None:
        return Closing(
            rounds, setting.rule(guarded=False).estimate(tallies, where.truth)
        ), sent_fakes
    inspected = guard.inspect(tallies)
    return Closing(rounds, inspected.estimate, inspected), sent_fakes


def outcome(setting: Setting, attack: str, share: float, seed: int, limits: bool = True) -> Outcome:
    """Both estimates under one attack; ``attack`` is ``nobody`` for honest people."""
    where, fakes = setting.place, round(share * REPORTS / ROUNDS)
    sent = None if attack == "nobody" else dict(attacks(setting, share, seed))[attack]
    kept, sent_fakes = closing(setting, sent, fakes, seed, guarded=True)
    tallies = [tally for done in kept.rounds for tally in done.tallies]
    plain = Closing(kept.rounds, setting.rule(guarded=False).estimate(tallies, where.truth))

    def moved(by: Closing) -> FloatArray:
        away = by.estimate.distribution - where.truth
        return np.asarray(where.targets @ away / (share or 1.0))

    inspected, by_plain, by_kept = kept.inspected, moved(plain), moved(kept)
    apart = np.abs(by_plain).max()
    if setting.adaptive and share:
        apart = np.abs(moved(closing(setting, sent, fakes, seed, guarded=False)[0])).max()
    crowds = np.argsort(-where.truth)[:CROWDS]
    truth = where.truth[crowds]
    (low, high), (kept_low, kept_high) = (
        (end[crowds] for end in each.error_bars()[0].interval(LEVEL)) for each in (plain, kept)
    )
    inside = (low <= truth) & (truth <= high)
    kept_inside = (kept_low <= truth) & (truth <= kept_high)
    limit_up = limit_down = 0.0
    if limits and share:
        limit_up = _limit(setting, where.targets[np.argmax(by_plain)], share)
        limit_down = -_limit(setting, -where.targets[np.argmin(by_plain)], share)
    named = list(inspected.named)
    removed, most = inspected.fake_range
    return Outcome(
        str(setting), attack, share, seed, fakes * ROUNDS, inspected.alarms[0].raised, len(named),
        removed, most, int(sum(each[named].sum() for each in sent_fakes)),
        float(by_plain.max()), float(by_plain.min()), float(by_kept.max()), float(by_kept.min()),
        limit_up, limit_down, int((inside & ~kept_inside).sum()), int((kept_high < truth).sum()),
        float(apart),
    )  # fmt: skip


def _limit(setting: Setting, target: FloatArray, share: float) -> float:
    truth = setting.place.truth
    there = farthest(setting.foreseen, truth, target, share)
    return float(target @ (there - truth)) / share


def times(setting: Setting, attack: str, share: float, seed: int) -> tuple[str, float, float]:
    """Seconds of processor of the last close of a fixed campaign, with its alarm: plain, then guarded."""
    fakes, sent = round(share * REPORTS / ROUNDS), dict(attacks(setting, share, seed))[attack]
    generator = np.random.default_rng(seed)
    mechanisms = [setting.foreseen[0], *[setting.foreseen[1]] * (ROUNDS - 1)]
    truth = setting.place.truth
    tallies = [counted(each, truth, sent, fakes, generator)[0] for each in mechanisms]
    guard, spent = setting.rule(guarded=True).guard(1), [process_time()]
    assert guard is not None
    guard.alarm.check(tallies, guard.estimator.fit(tallies))
    spent.append(process_time())
    guard.inspect(tallies)
    spent.append(process_time())
    return (
        f"{setting}, {attack}, {percent(share, 1)}",
        spent[1] - spent[0],
        spent[2] - spent[1],
    )


# --- The command


def row(*fields: object) -> None:
    """One line of a Markdown table, shown at once."""
    texts = (f"{field:.2f}" if isinstance(field, float) else str(field) for field in fields)
    print("| " + " | ".join(texts) + " |", flush=True)


def tables(outcomes: Sequence[Outcome]) -> None:
    """By attack, and the lines of the promise."""
    attacked = [each for each in outcomes if each.fakes]
    row("attack", "fakes", "runs", "alarm", "removed of fakes, mean; most", "plain up", "guarded up",
        "limit up", "plain down", "guarded down", "limit down")  # fmt: skip
    for attack in dict.fromkeys(each.attack for each in attacked):
        for share in sorted({each.share for each in attacked}):
            runs = [each for each in attacked if (each.attack, each.share) == (attack, share)]
            if runs:
                _row_of(attack, share, runs)
    print()
    for line in lines(outcomes):
        print(f"- {line}")


def _row_of(attack: str, share: float, runs: Sequence[Outcome]) -> None:
    removed = [each.removed / each.fakes for each in runs]
    names = ("plain_up", "guarded_up", "limit_up", "plain_down", "guarded_down", "limit_down")
    means = [f"{np.mean([getattr(each, name) for each in runs]):.1f}" for name in names]
    found = f"{sum(each.raised for each in runs)} of {len(runs)}"
    row(
        attack,
        percent(share, 1),
        len(runs),
        found,
        f"{np.mean(removed):.2f}; {max(removed):.2f}",
        *means,
    )


def lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What the promise asks for, and what was measured."""
    attacked = [each for each in outcomes if each.fakes]
    honest = [each for each in outcomes if not each.fakes]
    ratios = np.array([each.removed / each.fakes for each in attacked] or [0.0])
    yield (
        f"removed over sent: at most {ratios.max():.2f} (line 1.1); above 1.1 in "
        f"{(ratios > 1.1).sum()} of {ratios.size}, above 1 in {(ratios > 1).sum()}"
    )
    left = sum(each.left_interval for each in attacked)
    yield f"crowds that left the interval which the plain estimate kept them in: {left} (line 0)"
    excess = np.array([each.excess for each in attacked] or [0.0])
    yield (
        f"largest movement, guarded less plain: at most {excess.max():+.2f} α (line +0.1); "
        f"above it in {(excess > 0.1).sum()} of {excess.size}; mean {excess.mean():+.2f}"
    )
    following = [each for each in attacked if "adaptive" in each.setting]
    if following:
        apart = [max(each.guarded_up, -each.guarded_down) - each.apart for each in following]
        spread = np.std(apart, ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan
        yield (
            f"the same against a plain campaign of its own, where mechanisms follow the estimates: "
            f"{np.mean(apart):+.2f} ± {spread:.2f} α in the mean of {len(apart)}"
        )
    named = [each for each in attacked if each.named]
    held = sum(each.removed <= each.fakes_named <= each.most for each in named)
    held_all = sum(each.removed <= each.fakes <= each.most for each in named)
    yield (
        f"the range holds the fakes among the reports named in {held} of {len(named)} (line nine of "
        f"ten), and all fakes in {held_all}"
    )
    one = [each for each in attacked if each.attack == "one cell" and each.share == 0.01]
    yield f"1 % at one cell raise the alarm in {sum(each.raised for each in one)} of {len(one)}"
    false, lost = sum(each.raised for each in honest), [each.removed for each in honest]
    yield (
        f"honest campaigns: {false} of {len(honest)} alarms (line 2 %), "
        f"{sum(1 for each in lost if each)} lost reports, {max(lost, default=0)} at most"
    )


def chosen_settings(
    cities: Sequence[str], campaigns: Sequence[str], epsilons: Sequence[float], between: Between
) -> list[Setting]:
    """Every city, promise and kind of campaign."""
    return [
        Setting(city, epsilon, campaign == "adaptive", between)
        for campaign in campaigns
        for city in cities
        for epsilon in epsilons
    ]


def jobs(
    settings: Sequence[Setting], shares: Sequence[float], seeds: Sequence[int], honest: int
) -> Iterator[tuple[Setting, str, float, int]]:
    """Everything to be measured; honest campaigns first."""
    for setting in settings:
        first = 500 + honest * seeds[0]
        yield from ((setting, "nobody", 0.0, first + number) for number in range(honest))
        for share in shares:
            for seed in seeds:
                yield from (
                    (setting, name, share, seed) for name, _ in attacks(setting, share, seed)
                )


def main(given: Sequence[str] | None = None) -> int:
    """Measure the corpus, or a part of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument("--city", action="append", choices=["paris", "san-francisco", "synthetic"])
    parser.add_argument("--campaign", action="append", choices=CAMPAIGNS)
    parser.add_argument("--epsilon", action="append", type=float, help="per cell, such as 1")
    parser.add_argument("--share", action="append", type=float, help="of fakes, such as 0.01")
    parser.add_argument("--between", choices=["cells", "positions"], default="cells")
    parser.add_argument("--seeds", type=int, default=1, help="runs of every attack")
    parser.add_argument("--first-seed", type=int, default=0, help="other cells and reports (0)")
    parser.add_argument("--honest", type=int, default=5, help="honest campaigns a setting")
    parser.add_argument("--attack", action="append", help="such as 'one cell'; all unless named")
    parser.add_argument("--no-limits", action="store_true", help="leave the linear programs out")
    parser.add_argument("--times", action="store_true", help="only how long a close takes")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a file for the outcomes, JSON by line")
    parser.add_argument(
        "--show", type=Path, nargs="*", help="kept files to show instead of measuring"
    )
    asked = parser.parse_args(given)
    if asked.show:
        kept = [line for path in asked.show for line in path.read_text().splitlines()]
        tables([Outcome(**json.loads(line)) for line in kept])
        return 0
    settings = chosen_settings(
        asked.city or ["synthetic", "paris"],
        asked.campaign or CAMPAIGNS,
        asked.epsilon or EPSILONS,
        asked.between,
    )
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    work = [
        (*job, not asked.no_limits)
        for job in jobs(settings, asked.share or SHARES, seeds, asked.honest)
        if asked.attack is None or job[1] in asked.attack
    ]
    if asked.times:
        row("setting", "plain, s", "guarded, s")
        for setting, attack, share, seed, _ in work:
            if share:
                row(*times(setting, attack, share, seed))
        return 0
    outcomes = []
    with ProcessPoolExecutor(asked.workers) as pool:
        for number, found in enumerate(pool.map(outcome, *zip(*work, strict=True)), start=1):
            outcomes.append(found)
            print(f"{number} of {len(work)}: {found.setting}, {found.attack}", file=sys.stderr)
            if asked.keep is not None:
                with asked.keep.open("a") as sink:
                    sink.write(json.dumps(asdict(found)) + "\n")
    tables(outcomes)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MissingData as missing:
        sys.exit(f"attacks.py: error: {missing}")
