"""Every verdict of three papers can come out either way: figures that agree, figures that do not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoveil import papers
from geoveil.papers import load_paper
from geoveil.papers.free_will import GENERAL, INVERTED, RESULTS, UPDATED, Simulated
from geoveil.papers.ibu_levels import EXACT
from geoveil.papers.ibu_small_spaces import DELTAS, LENGTHS, Surface
from geoveil.papers.privic_cycles import DIALS, PAPER, PROMISES, PUBLISHED, Once, spread
from geoveil.papers.privic_duality import Long
from geoveil.papers.privic_isolation import Hidden
from geoveil.papers.report import Agreement, Claim, Experiment, Measured, Setting, Verdict

JUDGED = ("privic", "ibu", "free-will")
Figures = tuple[Any, ...]
CASES: dict[tuple[str, str], tuple[Figures, Figures]] = {}
"""paper, experiment → figures that agree with the paper, figures of which nothing agrees."""


def a(*values: float) -> np.ndarray:
    return np.array(values)


# -- PRIVIC ----------------------------------------------------------------------------------------

CASES["privic", "oracle"] = (
    (a(6.0, 5.0, 3.0), a(6.1, 5.1, 3.1), a(6.2, 5.2, 3.2)),
    (a(6.0, 7.0, 6.5), a(9.0, 9.2, 9.5), a(19.0, 19.5, 19.2)),
)
CASES["privic", "figure-1"] = (
    (0.08, 0.0, 0.05, 0.05, 0.3, 0.15, 0.1, True),
    (0.3, 0.01, 0.02, 0.05, 0.05, 0.15, 0.1, False),
)
_HIDDEN = Hidden(
    np.array([[5.0, 4.0, 3.0, 2.0], [0.0] * 4]),
    np.array([[0.1] * 4, [0.95] * 4]),
    1.0,
    np.zeros((2, 4)),
)
_SHOWN = Hidden(
    np.array([[0.0, 1.0, 2.0, 3.0], [1.0] * 4]),
    np.array([[0.9] * 4, [0.2] * 4]),
    6.0,
    np.full((2, 4), 5.0),
)
CASES["privic", "figure-2"] = (
    ({"8.4%": _HIDDEN, "1%": _HIDDEN},),
    ({"8.4%": _SHOWN, "1%": _SHOWN},),
)
_BETAS = a(0.2, 0.6, 1.0, 5.0)
_LOW, _HIGH = np.array([[1.0, 0.5, 0.3, 0.01]] * 2), np.array([[2.0, 1.5, 0.9, 0.02]] * 2)
for letter in "ab":
    CASES["privic", f"figure-3{letter}"] = (
        (_BETAS, _LOW, _HIGH),
        (_BETAS, _HIGH + 1, _LOW),
    )
_PATH = np.array([[0.5, 0.5], [0.6, 0.4]])
CASES["privic", "figure-4"] = (
    (_PATH, _PATH, a(1.0, 0.1, 1e-6)),
    (_PATH, _PATH[::-1], a(1.0, 0.1, 0.2)),
)
CASES["privic", "collapse"] = (
    (384, 384, 384, a(0.1, 0.11)),
    (384, 62, 62, a(0.11, 0.58)),
)
CASES["privic", "figure-5"] = (
    (a(5, 10, 70), a(6, 36, 2346), a(0.4, 0.2, 0.02)),
    (a(5, 10, 70), a(26, 101, 5000), a(0.4, 0.5, 0.4)),
)
CASES["privic", "markov-chain"] = (
    ([Long("two cells", True, 1, 1.0, 1e-12, 1e-9, 0.02, 0.025)],),
    ([Long("two cells", False, 2, 0.5, 0.1, 0.4, 0.2, 0.025)],),
)
CASES["privic", "figure-6"] = (
    ([("Paris", (12, 16), 10_078, 2.02262), ("San Francisco", (17, 24), 123_025, 7.37595)],),
    ([("Paris", (11, 15), 9, 1.0), ("San Francisco", (16, 24), 9, 1.0)],),
)
for city in ("paris", "san-francisco"):
    CASES["privic", f"figure-7-{city}"] = (2.0, 0.3, 0.1), (2.0, 0.5, 0.6)


def _cycles(city: str, *, rising: bool) -> dict[float, np.ndarray]:
    """The printed rounds with the last two cycles as near as their spread allows, or rising for ever."""
    found = {beta: PUBLISHED[city, beta].copy() for beta in (1.0, 0.5)}
    for each in found.values():
        half = 0.49 * spread(each)
        each[:, -2:] = each[:, -2:].mean() + np.array([half, -half])
        each[:] += rising * np.arange(each.shape[1])
    return found


for number, name in ((2, "Paris"), (3, "San Francisco")):
    CASES["privic", f"table-{number}"] = (
        (_cycles(name, rising=False),),
        (_cycles(name, rising=True),),
    )
CASES["privic", "figure-10"] = (
    (a(0.1, 0.5, 0.9, 1.0), {"Paris": np.array([[1.0, 0.3, 0.2, 0.199]])}),
    (a(0.1, 0.5, 0.9, 1.0), {"Paris": np.array([[1.0, 0.9, 1.0, 0.1]])}),
)


def _once(paper: Once, dial: Once) -> Figures:
    return ({(e, n): paper if n == PAPER else dial for e in PROMISES for n in (PAPER, *DIALS)},)


for city in ("paris", "san-francisco"):
    CASES["privic", f"same-promise-{city}"] = (
        _once(Once(0.1, 1.0, 1.0), Once(0.05, 0.8, 2.0)),
        _once(Once(0.9, 1.0, 1.0), Once(0.05, 0.8, 0.5)),
    )

# -- IBU -------------------------------------------------------------------------------------------


def _methods(em: Any, projected: Any, normalised: Any, exact: Any = 1.0) -> dict[str, Any]:
    return {"INV-N": normalised, "INV-P": projected, "EM": em, EXACT: exact}


def _line(em: float, projected: float, normalised: float) -> Figures:
    values = _methods(em, projected, normalised)
    return ({("binomial", name): values[name] for name in ("EM", "INV-P", "INV-N")},)


CASES["ibu", "figure-2"] = _line(0.1, 3.0, 9.0), _line(5.0, 9.0, 3.0)
_CELLS = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]])
CASES["ibu", "figure-4"] = (
    (Surface(_CELLS, a(-1, -1, -2, -1), a(-1, -1), a(0, 0), _CELLS[[0, 1]]),),
    (Surface(_CELLS, a(-3, -2, -1, -2), a(-3, -2), a(0, 0), _CELLS[[2, 2]]),),
)
CASES["ibu", "figure-5"] = (
    (Surface(_CELLS, a(-1, -2, -2, -2), a(-1, -2), a(-0.5, -0.5), _CELLS[[0, 0]]),),
    (Surface(_CELLS, a(-2, -1, -1, -2), a(-2, -1), a(0.0, 0.0), _CELLS[[0, 1]]),),
)
_PAIRS = (len(LENGTHS), len(DELTAS))
_FALL, _FLAT = np.geomspace(0.5, 1e-6, len(LENGTHS)), np.full(len(LENGTHS), 0.5)
CASES["ibu", "bound-17"] = (
    (np.full(_PAIRS, 0.1), np.full(_PAIRS, 0.2), _FALL, _FLAT),
    (np.full(_PAIRS, 0.3), np.full(_PAIRS, 0.2), _FLAT, _FALL),
)


def _city(em: float, projected: float, normalised: float, empty: int) -> Figures:
    errors = _methods(em, projected, normalised, 0.3) | {"EM, cross-validated stop": 0.1}
    return errors, errors, {"EM": empty, EXACT: 200, "original": 50}, 384


CASES["ibu", "figure-9"] = _city(0.2, 0.5, 1.3, 40), _city(1.4, 1.3, 0.5, 2)
_GOOD = _methods(a(0.4, 0.2, 0.1), a(0.9, 0.5, 0.11), a(0.95, 0.5, 0.12))
_GOOD_EMD = _methods(a(0.4, 0.2, 0.1), a(2.0, 0.5, 0.11), a(3.0, 1.3, 0.12))
_BAD = _methods(a(0.1, 0.2, 0.9), a(0.05, 0.9, 1.0), a(0.06, 0.3, 1.2))
CASES["ibu", "figure-10"] = ((0.2, 1.0, 6.0), _GOOD, _GOOD_EMD), ((0.2, 1.0, 6.0), _BAD, _BAD)
_WORSE = _methods(a(0.8, 0.4, 0.2), a(1.8, 1.0, 0.3), a(2.0, 1.0, 0.4))
CASES["ibu", "figure-11"] = (
    ({"Laplace": _GOOD, "exponential": _WORSE},),
    (
        {
            "Laplace": _methods(a(2.0), a(1.0), a(1.0)),
            "exponential": _methods(a(1.5), a(1.0), a(1.0)),
        },
    ),
)
_ALIKE = _methods(a(0.5, 0.05), a(0.52, 0.051), a(0.6, 0.06), a(0.5, 0.05))
_UNLIKE = _methods(a(0.5, 0.05), a(0.1, 0.01), a(0.2, 0.02), a(0.5, 0.05))
CASES["ibu", "figure-12"] = ((1.0, 5.0), _ALIKE, _ALIKE), ((1.0, 5.0), _UNLIKE, _UNLIKE)
CASES["ibu", "figure-13"] = (
    ({"binomial": 0.05}, {"binomial": 0.4}),
    ({"binomial": 0.3}, {"binomial": 0.4}),
)
CASES["ibu", "figure-14"] = (
    ({("binomial", "INV-P"): a(1.0, 1.1), ("binomial", "INV-N"): a(0.95, 1.2)},),
    ({("binomial", "INV-P"): a(1.0, 0.5), ("binomial", "INV-N"): a(0.95, 1.6)},),
)

# -- FREEWILL --------------------------------------------------------------------------------------

_OTHERS = (
    *RESULTS,
    *INVERTED,
    UPDATED,
    *(f"[RAP]_{x}, {y}" for x in "RM" for y in ("normalised", "projected")),
)


def _errors(general: float, others: dict[str, float], last: float = 0.3) -> Simulated:
    """Two numbers of people; with the second every other method keeps ``last`` of its error."""
    errors = {GENERAL: np.array([[general], [0.3 * general]])}
    errors |= {
        name: np.array([[others.get(name, 9.0)], [last * others.get(name, 9.0)]])
        for name in _OTHERS
    }
    return Simulated((1_000, 10_000), errors, "units")


def _panels(one: Simulated) -> Figures:
    return (dict.fromkeys(("linear", "planar", "high privacy", "low privacy"), one),)


_FAR, _NEAR = _panels(_errors(1.0, {})), _panels(_errors(10.0, {}))
for number in (2, 3, 4, 5, 6, 8, 9, 11, 12):
    CASES["free-will", f"figure-{number}"] = _FAR, _NEAR
CASES["free-will", "figure-7"] = (
    _panels(_errors(1.0, {INVERTED[0]: 3.0, INVERTED[1]: 1.2})),
    _panels(_errors(1.0, {INVERTED[0]: 0.9, INVERTED[1]: 0.8})),
)
CASES["free-will", "figure-10"] = _panels(_errors(1.0, {UPDATED: 12.0})), _panels(_errors(10.0, {}))
CASES["free-will", "figure-13"] = _panels(_errors(1.0, {}, last=0.95)), _NEAR
_RAPPOR = {f"[RAP]_M, {each}": 1.0 for each in ("normalised", "projected")}
CASES["free-will", "figure-14"] = (
    ({"high privacy": _errors(1.0, _RAPPOR), "low privacy": _errors(0.5, _RAPPOR)},),
    ({"high privacy": _errors(0.5, _RAPPOR), "low privacy": _errors(1.0, _RAPPOR)},),
)
for number in (1, 2):
    CASES["free-will", f"table-{number}"] = (
        ([["k-RR", "linear", "[INV]_M", 1.1, "Excellent", "Excellent"]],),
        ([["k-RR", "linear", "[INV]_M", 0.5, "Excellent", "Bad"]],),
    )


def experiments() -> list[tuple[str, Experiment]]:
    return [(name, each) for name in JUDGED for each in load_paper(name).experiments]


def test_every_verdict_has_figures_for_both_outcomes() -> None:
    """The registry: an experiment without a judge, or without both cases here, fails."""
    named = {(paper, each.name) for paper, each in experiments()}
    assert named == set(CASES)


@pytest.mark.parametrize(
    ("paper", "experiment"), experiments(), ids=lambda value: getattr(value, "name", value)
)
def test_a_verdict_comes_out_either_way(paper: str, experiment: Experiment) -> None:
    agrees, differs = (experiment.judge(*figures) for figures in CASES[paper, experiment.name])
    assert agrees.agreement is Agreement.YES, agrees.conclusion
    assert differs.agreement is Agreement.NO, differs.conclusion
    assert "Does not hold: " in differs.conclusion
    assert "Holds: " in agrees.conclusion


def test_every_finding_of_these_papers_is_what_its_judge_says() -> None:
    """No run decides for itself: a paper only measures, and the finding is what the judge makes of it."""
    for paper in JUDGED:
        modules = list(Path(papers.__file__).parent.glob(f"{paper.replace('-', '_')}*.py"))
        assert modules
        for path in modules:
            source = path.read_text(encoding="utf-8")
            assert re.findall(r"\bAgreement\b|\bFinding\b|\bVerdict\(", source) == [], path
    for figure in (1, -1):
        rises = Experiment("x", "X", "It rises.", lambda x: Verdict.of(Claim("rises", x > 0, f"{x}")),
                           lambda setting, x=figure: Measured((x,), "x", [[x]]))  # fmt: skip
        agreement = Agreement.YES if figure > 0 else Agreement.NO
        assert rises.run(Setting()).agreement is agreement


def test_a_verdict_says_claim_by_claim_what_holds() -> None:
    partly = Verdict.of(Claim("rises", True, "1 to 2"), Claim("falls", False, "2"), note="So.")
    assert partly == (Agreement.PARTLY, "Holds: rises (1 to 2). Does not hold: falls (2). So.")
