"""Promise 30: the tool that plants faults in the privacy core, and sees whether they are found."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tools import mutants

SOURCE = '''
"""Words with 1 < 2 in them."""

LIMIT: int = 3


def inside(values, *, strict=True):
    """1 + 1."""
    if not values or min(values) < 0:
        raise ValueError(f"{1 + 1} values")
    total = 0
    for value in values:
        total += 2.0 * value
    values.clear()
    return total <= LIMIT


class Shown:
    def __repr__(self):
        return str(1 + 1)
'''


def changes() -> list[str]:
    return [fault.change for fault in mutants.faults("some.module", SOURCE)]


def test_every_place_is_listed_once_and_words_are_left_alone() -> None:
    assert changes() == [
        "3 → 4",
        "if not values or min(values) < 0 → the opposite",
        "not values or min(values) < 0 → Or → And",
        "not values → values",
        "min(values) < 0 → Lt → LtE",
        "min → max",
        "0 → 1",
        "raise ValueError(f'{1 + 1} values') → nothing",
        "0 → 1",
        "total += 2.0 * value → Add → Sub",
        "2.0 * value → Mult → Div",
        "2.0 → 4.0",
        "values.clear() → nothing",
        "total <= LIMIT → LtE → Lt",
    ]


def test_each_fault_changes_its_place_and_no_other() -> None:
    def law(number: int | None) -> list[object]:
        names: dict[str, object] = {}
        exec(mutants.planted("geoveil.root", SOURCE, -1 if number is None else number), names)
        outcomes: list[object] = []
        for values in ([], [1.0], [-1.0], [1.5, 0.0], [0.0], [2.0, -1.0], [2.0]):
            given = list(values)
            try:
                outcomes.append((names["inside"](given), given))  # type: ignore[operator]
            except (ValueError, ArithmeticError) as error:
                outcomes.append(type(error))
        return outcomes

    sound = law(None)
    assert sound == [
        ValueError,
        (True, []),
        ValueError,
        (True, []),
        (True, []),
        ValueError,
        (False, []),
    ]
    laws = [law(number) for number in range(len(changes()))]
    assert all(each != sound for each in laws)
    assert len({str(each) for each in laws}) >= 10


_CHILD = """
from tools import mutants
module = "geoveil.client.budget"
faults = mutants.faults(module, mutants.path_of(module).read_text(encoding="utf-8"))
looser = next(each for each in faults if each.change.endswith("per_km) → Gt → GtE"))
tests = ["tests/client/test_budget.py"]
print(mutants.passes(tests, None, 300.0), mutants.passes(tests, looser, 300.0))
"""


@pytest.mark.slow
def test_a_fault_in_the_budget_is_found_by_its_tests() -> None:
    """In a process that has not imported the module yet."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], cwd=mutants.ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_what_changes_nothing_is_never_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the list, or because a constant at the top only says how much is done at once."""
    source = "_CHUNK = 1 << 22\n_LEAST, _ROWS = 2, 3\n" + SOURCE
    faults = mutants.faults("some.module", source)
    named = [each.where for each in faults if each.line < 3]
    assert named == ["_CHUNK", "_CHUNK", "_CHUNK", "_LEAST", "_ROWS"]
    monkeypatch.setattr(mutants, "EQUIVALENT", {str(faults[5]): "because"})
    assert [each.number for each in faults if each.changes_nothing] == [0, 1, 2, 4, 5]
    monkeypatch.setattr(mutants, "passes", lambda tests, fault, limit_s: fault is None)
    monkeypatch.setattr(mutants, "faults", lambda module, text: faults)
    module = next(iter(mutants.CORE))
    planted = [fault.number for fault, found in mutants.examined(module, 1000, 1) if found]
    assert planted == [3, *range(6, len(faults))]


def test_constants_at_the_top_are_changed_one_at_a_time() -> None:
    source = "A = 1\nB, C = 2, 3\nD = (4, 5)\nE, F = (6, 7), 8\n"
    found = []
    for fault in mutants.faults("geoveil.root", source):
        names: dict[str, object] = {}
        exec(mutants.planted("geoveil.root", source, fault.number), names)
        found.append((fault.where, [names[name] for name in "ABCDEF"]))
    assert found == [
        ("A", [2, 2, 3, (4, 5), (6, 7), 8]),
        ("B", [1, 3, 3, (4, 5), (6, 7), 8]),
        ("C", [1, 2, 4, (4, 5), (6, 7), 8]),
        ("D", [1, 2, 3, (5, 5), (6, 7), 8]),
        ("D", [1, 2, 3, (4, 6), (6, 7), 8]),
        ("E", [1, 2, 3, (4, 5), (7, 7), 8]),
        ("E", [1, 2, 3, (4, 5), (6, 8), 8]),
        ("F", [1, 2, 3, (4, 5), (6, 7), 9]),
    ]


def test_every_module_and_test_file_exists() -> None:
    for module, tests in mutants.CORE.items():
        assert mutants.path_of(module).is_file()
        assert all((mutants.ROOT / each).is_file() for each in tests)
    for fault, reason in mutants.EQUIVALENT.items():
        module = fault.partition(",")[0]
        source = mutants.path_of(module).read_text(encoding="utf-8")
        assert fault in map(str, mutants.faults(module, source))
        assert len(reason) > 20
