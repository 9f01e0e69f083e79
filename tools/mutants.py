"""Plants small faults in the privacy core, one at a time, and counts those that its quick tests find.

Run by ``make mutants``. A fault is one operator, comparison, number, condition or call changed, or one
statement left out, in a sample of each module of ``CORE``; docstrings, messages and types are left alone.
Each runs in a process of its own, in which only the changed module differs, and is found when a test fails
or takes far too long. Faults that change nothing anybody could see are never drawn: those in ``EQUIVALENT``,
each with its reason, and the sizes in ``AT_ONCE``. Ends with 1 where fewer than 85 % are found.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[1]
WANTED = 0.85

_WIRE, _POSITIONAL = "tests/unit/test_wire.py", "tests/unit/test_positional.py"
_CERTIFICATE = "tests/unit/test_position_certificate.py"
_WHOLE, _SQUARES = "tests/unit/test_whole_law.py", "tests/unit/test_certified_squares.py"
_LEDGER, _ONE = "tests/client/test_ledger.py", "tests/client/test_one_report.py"
_TICKETS = "tests/client/test_device_tickets.py"
CORE: dict[str, tuple[str, ...]] = {
    "geoveil.randomness": ("tests/unit/test_randomness.py",),
    "geoveil.channel.guarantee": ("tests/unit/test_guarantee.py", "tests/unit/test_promise.py"),
    "geoveil.channel.certificate": ("tests/unit/test_certify.py", "tests/unit/test_promise.py"),
    "geoveil.position.centres": (_WIRE, _CERTIFICATE, _POSITIONAL),
    "geoveil.position.cone": ("tests/unit/test_cone_bounds.py", _CERTIFICATE, _POSITIONAL),
    "geoveil.position.position_certificate": (_SQUARES, _CERTIFICATE, _POSITIONAL),
    "geoveil.position.steepest": (_SQUARES, _CERTIFICATE),
    "geoveil.position.grid_sums": (_SQUARES, _CERTIFICATE),
    "geoveil.position.whole_law": (
        _WHOLE,
        _WIRE,
        "tests/client/test_client_sampling.py",
        _POSITIONAL,
    ),
    "geoveil.document.area": (
        "tests/unit/test_area.py",
        _WIRE,
        "tests/client/test_client_geometry.py",
    ),
    "geoveil.document.ticket": ("tests/unit/test_ticket.py",),
    "geoveil.document.exact": (
        "tests/unit/test_table.py",
        "tests/statistical/test_exact_sampling.py",
    ),
    "geoveil.document.wire": (
        _WIRE,
        "tests/client/test_hostile_documents.py",
        "tests/unit/test_vectors.py",
    ),
    "geoveil.client.budget": ("tests/client/test_budget.py", _LEDGER),
    "geoveil.client.ledger": (_LEDGER, _ONE),
    "geoveil.client.ledger_book": (_LEDGER, _ONE),
    "geoveil.client.device": (
        "tests/client/test_device.py",
        _TICKETS,
        _ONE,
        "tests/client/test_trip_reports.py",
    ),
}
"""Module → its tests, the likeliest to find a fault first."""

_SET_AT_ONCE = "any ε does: the exact one takes its place at once"
_NEAR_0_OR_FAR = "any distance does that is so near 0, or so far"
_HIDES = "what hides the time of a power is one number or its neighbour, and divided out again"
EQUIVALENT: dict[str, str] = {
    "geoveil.document.ticket, _SIEVE: n % d → Mod → Mult": (
        "composites among the factors have no other primes in them"
    ),
    "geoveil.document.ticket, encode: 1 → 2": "the last bit of every encoded number is 0",
    "geoveil.document.ticket, _mask: -size // _HASH_BYTES → FloorDiv → Mult": (
        "more blocks than are needed, cut off behind"
    ),
    "geoveil.document.ticket, SigningKey.sign: modulus - 1 → Sub → Add": _HIDES,
    "geoveil.document.ticket, SigningKey.sign: 1 → 2": _HIDES,
    "geoveil.document.ticket, SigningKey.sign: 1 + int.from_bytes(randomness.bytes(KEY_BYTES + 64))"
    " % (modulus - 1) → Add → Sub": _HIDES,
    "geoveil.document.ticket, _may_be_prime: 2 → 3": "whether 2 is ever a witness",
    "geoveil.randomness, _WORDS: 12 → 13": (
        "up to which bound 16 bits are drawn: numbers are exactly even either way, and fewer bytes are drawn"
    ),
    "geoveil.randomness, Randomness.chance: self.uniform(undecided.size) < rest → Lt → LtE": (
        "equal numbers come up once in 2⁵² of the one in 256 that are undecided: below the 2⁻⁶¹ stated"
    ),
    "geoveil.randomness, Randomness.chance: top < whole → Lt → LtE": (
        "where both are equal the draw is undecided, and what it is comes from the bits drawn next"
    ),
    "geoveil.channel.guarantee, GeoIndistinguishability.exactly: 0.0 → 1.0": _SET_AT_ONCE,
    "geoveil.channel.guarantee, BetweenPositions.exactly: 0.0 → 1.0": _SET_AT_ONCE,
    "geoveil.channel.guarantee, Guarantee.implies: 1e-300 → 2e-300": _NEAR_0_OR_FAR,
    "geoveil.channel.guarantee, Guarantee.implies: 1e-06 → 2e-06": _NEAR_0_OR_FAR,
    "geoveil.channel.guarantee, Guarantee.implies: 1e+300 → 2e+300": _NEAR_0_OR_FAR,
    "geoveil.channel.guarantee, _TRIED_KM: 10000.0 → 20000.0": _NEAR_0_OR_FAR,
    "geoveil.channel.guarantee, _TRIED_KM: 4001 → 4002": "a general ℓ is looked at about as closely",
    "geoveil.channel.certificate, _answers: cells > _ENUMERATED → Gt → GtE": (
        "where there are just as many cells the matrix is asked either way"
    ),
    "geoveil.channel.certificate, pairwise_losses: table > 0 → Gt → GtE": (
        "a report that nobody makes then adds a loss of 0, which is never the largest"
    ),
    "geoveil.channel.certificate, enumerated: 1.0 → 2.0": (
        "what stands for the distance of a cell from itself, where nothing is lost: any positive number does"
    ),
    "geoveil.position.whole_law, WholeLaw.slack_at: 1e-06 → 2e-06": (
        "a margin for the last digit before rounding up: the promise is as true, and the same but where the "
        "sum lies within 10⁻¹⁰ of a tenth of a thousandth"
    ),
    "geoveil.position.position_certificate, Law._few_ahead: self.centres.points_km.min → max": (
        "more squares are looked at closely, which takes longer: no bound becomes smaller than it may"
    ),
}
"""A fault as it is printed → why nobody could see it."""

AT_ONCE = {"_CHUNK", "_ROWS", "_ENTRIES", "_WINDOWS", "_TOGETHER"}
"""Constants that only say how much is worked on at once: with others the same numbers come out."""

_PRELOADED = (
    "pytest", "hypothesis", "hypothesis.internal.conjecture.engine", "hypothesis.strategies", "httpx",
    "scipy.stats", "scipy.optimize", "scipy.fft",
)  # fmt: skip
"""What tests import, once for all faults; nothing of ours."""

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_NAMES = {
    "minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "floor": "ceil",
    "ceil": "floor", "any": "all", "all": "any", "rint": "floor",
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One change: where, and what."""

    module: str
    number: int
    """Among all that can be planted in the module."""
    line: int
    where: str
    """The function, or the constant at the top."""
    change: str

    def __str__(self) -> str:
        return f"{self.module}, {self.where or 'top'}: {self.change}"

    @property
    def changes_nothing(self) -> bool:
        """Whether nobody could see it."""
        return self.where in AT_ONCE or str(self) in EQUIVALENT


class _Planter(ast.NodeTransformer):
    """Goes through a module and changes the place with the number wanted; remembers all places."""

    def __init__(self, module: str, wanted: int | None) -> None:
        self.module, self.wanted = module, wanted
        self.faults: list[Fault] = []
        self._inside: list[str] = []

    def _place(self, node: ast.AST, before: str, after: str) -> bool:
        number = len(self.faults)
        line, where = getattr(node, "lineno", 0), ".".join(self._inside)
        self.faults.append(Fault(self.module, number, line, where, f"{before} → {after}"))
        return number == self.wanted

    def visit(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
            return node  # words and names
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return self._definition(node)
        if isinstance(node, ast.Assign) and not self._inside:
            return self._constants(node)
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                node.value = self.visit(node.value)  # type: ignore[assignment]
            return node
        if isinstance(node, ast.Raise):
            return ast.copy_location(ast.Pass(), node) if self._left_out(node) else node
        changed = self._changed(node)
        return self.generic_visit(changed)

    def _definition(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        if node.name == "__repr__":
            return node
        self._inside.append(node.name)
        if isinstance(node, ast.FunctionDef):
            node.args.defaults = [self.visit(each) for each in node.args.defaults]  # type: ignore[misc]
        node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
        self._inside.pop()
        return node

    def _constants(self, node: ast.Assign) -> ast.AST:
        """At the top; several in one line have one value each."""
        named, values = node.targets[0], [node.value]
        names = named.elts if isinstance(named, ast.Tuple) else [named]
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(names) > 1:
            values = node.value.elts
        for name, value in zip(names, values, strict=False):
            self._inside.append(ast.unparse(name))
            changed = self.visit(value)
            self._inside.pop()
            assert isinstance(changed, ast.expr)
            if value is node.value:
                node.value = changed
            else:
                values[values.index(value)] = changed
        return node

    def _left_out(self, node: ast.stmt) -> bool:
        return self._place(node, _short(node), "nothing")

    def _changed(self, node: ast.AST) -> ast.AST:
        """The node itself, changed where it is the one wanted."""
        if isinstance(node, ast.Compare):
            node.ops = [self._swapped(node, each) for each in node.ops]  # type: ignore[misc]
        elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
            if not _of_text(node):
                node.op = self._swapped(node, node.op)  # type: ignore[assignment]
        elif isinstance(node, ast.UnaryOp):
            return self._unary(node)
        elif isinstance(node, ast.Constant):
            return self._constant(node)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            if self._place(node, f"if {_short(node.test)}", "the opposite"):
                node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return ast.copy_location(ast.Pass(), node) if self._left_out(node) else node
        elif isinstance(node, ast.Name | ast.Attribute):
            self._renamed(node)
        return node

    def _unary(self, node: ast.UnaryOp) -> ast.AST:
        if not isinstance(node.op, ast.Not | ast.USub):
            return node
        return node.operand if self._place(node, _short(node), _short(node.operand)) else node

    def _swapped(self, node: ast.AST, operator: ast.AST) -> ast.AST:
        other = _SWAPS.get(type(operator))
        if other is None:
            return operator
        change = f"{type(operator).__name__} → {other.__name__}"
        return other() if self._place(node, _short(node), change) else operator

    def _renamed(self, node: ast.Name | ast.Attribute) -> None:
        name = node.id if isinstance(node, ast.Name) else node.attr
        loaded = isinstance(node.ctx, ast.Load) and name in _NAMES
        if loaded and self._place(node, _short(node), _NAMES[name]):
            if isinstance(node, ast.Name):
                node.id = _NAMES[name]
            else:
                node.attr = _NAMES[name]

    def _constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, bool):
            other: float = not value
        elif isinstance(value, int):
            other = value + 1
        elif isinstance(value, float):
            other = 2.0 * value or 1.0
        else:
            return node
        place = self._place(node, repr(value), repr(other))
        return ast.copy_location(ast.Constant(other), node) if place else node


def _of_text(node: ast.BinOp | ast.AugAssign | ast.BoolOp) -> bool:
    """Whether words are put together, as far as can be seen."""
    if isinstance(node, ast.BoolOp):
        return False
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    return any(
        isinstance(each, ast.JoinedStr)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in sides
    )


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 70 else f"{text[:67]}..."


def faults(module: str, source: str) -> list[Fault]:
    """All that can be planted."""
    planter = _Planter(module, None)
    planter.visit(ast.parse(source))
    return planter.faults


def planted(module: str, source: str, number: int) -> CodeType:
    """The module with one of them."""
    tree = _Planter(module, number).visit(ast.parse(source))
    assert isinstance(tree, ast.Module)
    return compile(ast.fix_missing_locations(tree), str(path_of(module)), "exec")


def path_of(module: str) -> Path:
    """The file of a module."""
    return ROOT.joinpath("src", *module.split(".")).with_suffix(".py")


# --- Running the tests with a fault in place


class _Finder(importlib.abc.MetaPathFinder):
    """Gives one module changed code, whenever it is imported."""

    def __init__(self, module: str, code: CodeType) -> None:
        self.module, self.code = module, code

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        spec.loader = _Loader(name, str(path_of(name)), self.code)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def passes(tests: Sequence[str], fault: Fault | None, limit_s: float) -> bool:
    """Whether all tests pass with a fault in place, or none, in a process forked from this one."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os._exit(_run(tests, fault))
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run(tests: Sequence[str], fault: Fault | None) -> int:
    import pytest

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        if fault is not None:
            source = path_of(fault.module).read_text(encoding="utf-8")
            code = planted(fault.module, source, fault.number)
            sys.meta_path.insert(0, _Finder(fault.module, code))
        unused = [f"-pno:{name}" for name in ("cacheprovider", "schemathesis")]
        options = ["-q", "-x", "-n", "0", "-m", "not slow", "--assert=plain", *unused]
        return int(pytest.main([*options, *(str(ROOT / each) for each in tests)]))
    except BaseException:  # whatever a fault does to the import of the tests, it was found
        return 1


def examined(module: str, each: int, seed: int) -> Iterator[tuple[Fault, bool]]:
    """A sample of faults, and whether each was found."""
    source = path_of(module).read_text(encoding="utf-8")
    all_of_them = [fault for fault in faults(module, source) if not fault.changes_nothing]
    chosen = random.Random(f"{seed} {module}").sample(all_of_them, min(each, len(all_of_them)))  # noqa: S311
    began = time.monotonic()
    if not passes(CORE[module], None, 600.0):
        raise SystemExit(
            f"mutants: error: the tests of {module} must pass before faults are planted"
        )
    limit_s = 30.0 + 5.0 * (time.monotonic() - began)
    for fault in sorted(chosen, key=lambda fault: fault.number):
        yield fault, not passes(CORE[module], fault, limit_s)


def main(given: Sequence[str] | None = None) -> int:
    """Plant a sample in each module, and say what was not found."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(CORE)}")
    parser.add_argument("--each", type=int, default=6, help="faults a module (6)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    asked = parser.parse_args(given)
    if unknown := set(asked.modules) - set(CORE):
        parser.error(f"MODULE ({unknown.pop()}) must be one of {', '.join(CORE)}")
    os.chdir(ROOT)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no threads, so that a process can be forked
    for name in _PRELOADED:
        importlib.import_module(name)
    assert not any(name.startswith("geoveil.") for name in sys.modules)
    all_of_them: list[tuple[Fault, bool]] = []
    told = sys.stdout
    told.write("| module | planted | found |\n|---|---|---|\n")
    for module in asked.modules or CORE:
        outcomes = list(examined(module, asked.each, asked.seed))
        found = sum(seen for _, seen in outcomes)
        told.write(f"| `{module}` | {len(outcomes)} | {found} |\n")
        told.flush()
        all_of_them += outcomes
    left = [fault for fault, seen in all_of_them if not seen]
    planted_in_all = len(all_of_them)
    score = 1.0 - len(left) / max(planted_in_all, 1)
    told.write(
        f"\n{planted_in_all - len(left)} of {planted_in_all} faults found: {100 * score:.1f} % "
        f"(line {100 * WANTED:.0f} %)\n"
    )
    for fault in left:
        told.write(f"- line {fault.line} of {fault}\n")
    return 0 if score >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
