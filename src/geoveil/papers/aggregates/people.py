"""Figure 7: what leaks about one person, below what leaks about the counts."""

from __future__ import annotations

from functools import partial
from typing import Any

from geoveil.papers.aggregates.series import CASES, MULTIPLIERS, QUICK_MULTIPLIERS, THRESHOLD
from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.plot.curves import COLOURS
from geoveil.release import CountRelease

COLUMNS = (
    "case",
    "λ",
    "distortion (people)",
    "most about one person (bits)",
    "person",
    "about the counts (bits)",
    "chain of Theorem 1",
)


def _figure_7(setting: Setting) -> Finding:
    multipliers = QUICK_MULTIPLIERS if setting.quick else MULTIPLIERS
    rows: list[list[Any]] = []
    for number, (name, prior) in enumerate(CASES.items()):
        setting.progress(number / len(CASES), name)
        for rate in multipliers:
            release = CountRelease.as_published(
                people=len(prior), prior=prior, multiplier=rate, threshold=THRESHOLD
            )
            chain = release.chain
            person = int(release.personal_leakage_bits.argmax()) + 1
            rows.append([name, rate, release.distortion, chain.personal_bits, person,
                         chain.aggregate_bits, chain.holds])  # fmt: skip
    share = max(row[3] / row[5] for row in rows if row[5] > 1e-6)
    return Finding(
        agreement=Agreement.of(all(row[6] for row in rows), all(row[3] <= row[5] for row in rows)),
        conclusion=(
            f"In {sum(row[6] for row in rows)} of {len(rows)} releases the leakages are in the order of the "
            f"theorem; what leaks about one person is at most {share:.0%} of what leaks about the counts."
        ),
        table=Table.of(COLUMNS, rows),
        draw=partial(_draw, rows),
        numbers={"largest_personal_share": share},
        figure_size=(8.4, 3.6),
    )


def _draw(rows: list[list[Any]], figure: Any) -> None:
    cases = list(CASES)
    for axes, names in zip(figure.subplots(1, 2, sharey=True), (cases[:3], cases[3:]), strict=True):
        for number, name in enumerate(names):
            own = [row for row in rows if row[0] == name]
            for column, line, what in ((5, "-", "the counts"), (3, "--", "one person")):
                axes.plot([row[2] for row in own], [row[column] for row in own], linestyle=line,
                          color=COLOURS[number], label=f"{name}, {what}")  # fmt: skip
        axes.set(xlabel="distortion (people)", ylabel="leakage (bits)", ylim=(0, None))
        axes.legend(fontsize=7)


FIGURE_7 = Experiment(
    "figure-7",
    "Figure 7: leakage about the most exposed person and about the counts",
    "The largest leakage about one person is always less than the leakage about the counts (Theorem 1).",
    _figure_7,
)
