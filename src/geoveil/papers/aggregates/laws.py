"""Figure 4: how the prior shapes the law of the counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.papers.aggregates.series import PRIORS
from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.plot.curves import COLOURS
from geoveil.release import CountVectors, Prior

_PEOPLE, _PLACES = 5, 3
_MODES = {
    "p1": {(1, 2, 2), (2, 1, 2), (2, 2, 1)},
    "p2": {(1, 3, 1)},
    "p3": {(0, 0, 5)},
    "p4": {(5, 0, 0)},
}
"""The most likely count vectors that the paper names."""


def _figure_4(setting: Setting) -> Finding:
    vectors = CountVectors(_PEOPLE, _PLACES)
    laws = {name: Prior.parse(prior, _PEOPLE).law(vectors) for name, prior in PRIORS.items()}
    modes = {name: _modes(law, vectors) for name, law in laws.items()}
    spread = {name: float(law.max() - law.min()) for name, law in laws.items()}
    matched = np.allclose(np.sort(laws["p3"]), np.sort(laws["p4"]), rtol=1e-9, atol=0)
    rows = [
        [" ".join(map(str, vector)), *(laws[name][number] for name in laws)]
        for number, vector in enumerate(vectors.vectors.tolist())
    ]
    return Finding(
        agreement=Agreement.of(
            modes == _MODES, spread["p1"] < spread["p2"] < spread["p3"], bool(matched)
        ),
        conclusion=(
            f"The most likely vectors are {'' if modes == _MODES else 'not '}those the paper names; the "
            f"largest probability is {laws['p1'].max():.3f} under p1, {laws['p2'].max():.3f} under p2, "
            f"{laws['p3'].max():.3f} under p3 and {laws['p4'].max():.3f} under p4."
        ),
        table=Table.of(("counts", *laws), rows),
        draw=partial(_draw, laws, [row[0] for row in rows]),
        numbers={f"most_likely_{name}": float(law.max()) for name, law in laws.items()},
        figure_size=(8.4, 5.6),
    )


def _modes(law: FloatArray, vectors: CountVectors) -> set[tuple[int, ...]]:
    best = np.flatnonzero(law > law.max() * (1 - 1e-9))
    return {tuple(vectors.vectors[number].tolist()) for number in best}


def _draw(laws: dict[str, FloatArray], names: list[Any], figure: Any) -> None:
    axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    for each, (name, law) in zip(axes, laws.items(), strict=True):
        each.bar(range(len(law)), law, color=COLOURS[0])
        each.set_title(f"{name} = ({', '.join(f'{share:.2g}' for share in PRIORS[name])})")
        each.set_xticks(range(len(law)), names, rotation=90, fontsize=6)
    for each in axes[::2]:
        each.set_ylabel("probability")


FIGURE_4 = Experiment(
    "figure-4",
    "Figure 4: the law of the counts under four priors (5 people, 3 places)",
    "The more skewed the prior, the more skewed the law of the counts: most likely are 1 2 2 and its "
    "orders under p1, 1 3 1 under p2, 0 0 5 under p3 and 5 0 0 under p4.",
    _figure_4,
)
