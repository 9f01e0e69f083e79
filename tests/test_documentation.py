"""The documentation is true: its examples run.

Every ``python`` block of README.md and of the pages under docs/ is executed, in the order of the
page and in one namespace; lines after ``>>>`` also compare what they print. In ``console`` and
``bash`` blocks every line that starts with ``$ geoveil`` is run and must succeed. A page has a
folder of its own, empty at the start. ``<!-- not run: reason -->`` above a block leaves it out;
a block inside a longer comment runs without being shown.

Below that: what pages and docstrings name exists, and lists of names are complete.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from geoveil.cli.choice import ON_MAPS
from geoveil.cli.program import COMMANDS, program
from geoveil.papers import PAPERS, load_paper
from geoveil.papers.data import PARIS, SAN_FRANCISCO
from geoveil.papers.noise_functions import FILE as LOS_ANGELES

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [page for page in PAGES if page.name != "template.md"]
BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>python|pycon|console|bash) *\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = re.compile(r"<!-- not run: \S[^\n]* -->\s*$")
SHELL = re.compile(r"[|<>&;$`*\n]")
"""What a shell makes something of."""
COMMAND_LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Block:
    """One piece of code; ``line`` is that of its fence in the page."""

    language: str
    code: str
    page: Path
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    for found in BLOCK.finditer(text):
        if not NOT_RUN.search(text, 0, found.start()):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(found["language"], textwrap.dedent(found["code"]), page, line)


def run(page: Path, folder: Path) -> int:
    """Run the blocks of a page in order; how many there were."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = list(blocks(page))
    for block in found:
        if block.language in ("console", "bash"):
            run_commands(block, folder)
        elif block.code.lstrip().startswith(">>>"):
            run_session(block, namespace)
        else:  # blank lines in front, so that a traceback names the line of the page
            exec(compile("\n" * block.line + block.code, block.page, "exec"), namespace)
    return len(found)


def run_session(block: Block, namespace: dict[str, Any]) -> None:
    parser = doctest.DocTestParser()
    session = parser.get_doctest(block.code, {}, block.page.name, str(block.page), block.line)
    session.globs = namespace
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    runner.run(session, out=report.append, clear_globs=False)
    assert not runner.failures, "".join(report)


def run_commands(block: Block, folder: Path) -> None:
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    for command in re.findall(r"^\$ (geoveil\b(?:[^\n]*\\\n)*[^\n]*)$", block.code, re.MULTILINE):
        if not SHELL.search(command):  # in this process: importing takes longer than most commands
            told = CliRunner().invoke(program, shlex.split(command)[1:])
            assert told.exit_code == 0, f"{block.page.name}: {command}\n{told.output}"
            continue
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{block.page.name}: {command}\n{done.stdout}{done.stderr}"


LONGER = {"areas.md", "choice-and-time.md", "optimal.md", "release.md"}
"""Pages whose examples run with the long tests: ``make promises``."""


def _page(page: Path) -> Any:
    marks = [pytest.mark.slow] if page.name in LONGER else []
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.usefixtures("certified_once")
@pytest.mark.parametrize("page", [_page(page) for page in PAGES])
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    run(page, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert False\n```",
        "```python\nx = 1\n```\n* in a list\n\n  ```python\n  assert x == 2\n  ```",
        "```pycon\n>>> 1 + 1\n3\n```",
        "```console\n$ geoveil no-such-command\n```",
        "<!-- not run: -->\n```python\nassert False, 'a reason is needed'\n```",
    ],
)
def test_a_wrong_example_is_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError):
        run(page, tmp_path)


def test_what_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: fails -->\n\n```python\nassert False\n```\n```json\n{}\n```\n"
        "<!--\n```python\nhidden = 1\n```\n-->\n```python\n>>> hidden + 1\n2\n```\n"
        "```bash\n$ other\n```\n",
        encoding="utf-8",
    )
    assert run(page, tmp_path) == 3


def source_files() -> list[Path]:
    return sorted((ROOT / "src").rglob("*.py"))


def test_the_source_cites_nothing_that_a_reader_cannot_have() -> None:
    unpublished = re.compile(r"\b(method|system) §")
    citing = [path for path in source_files() if unpublished.search(path.read_text("utf-8"))]
    assert not citing


def test_pages_that_the_source_names_exist() -> None:
    named = {
        page
        for path in source_files()
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text("utf-8"))
    }
    assert "docs/privic.md" in named
    assert not [page for page in named if not (ROOT / page).is_file()]


def headings(page: Path) -> set[str]:
    """The places of a page that links lead to."""
    fenced = re.compile(r"^( *)```.*?(?:^\1```|\Z)", re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", fenced.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_the_repository_and_to_headings(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)[^)]*\)", page.read_text("utf-8"))
    local = [link.partition("#") for link in links if "://" not in link]
    built = (ROOT / "docs" / "reference").resolve()
    for name, _, heading in local:
        to = (page.parent / name).resolve() if name else page
        assert to.exists(), name
        assert built not in to.parents, name
        assert not heading or heading in headings(to), f"{name}#{heading}"


def test_the_first_page_has_every_other_in_its_table_and_in_its_menu() -> None:
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    table, menu = text.split("## Every page")[1].split("```{toctree}")
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} | {"decisions/index"}
    assert pages <= set(re.findall(r"\]\(([\w/-]+)\.md", table))
    assert pages <= set(menu.split())


def test_the_papers_are_cited_in_full() -> None:
    page = (ROOT / "docs" / "notation.md").read_text("utf-8")
    rows = [
        line for line in page.splitlines() if re.match(r"\| (PRIVIC|IBU|FREEWILL|NOISE|AGG) ", line)
    ]
    for paper in map(load_paper, PAPERS):
        assert any(paper.title in row for row in rows), paper.title


def test_the_data_of_the_papers_is_described() -> None:
    page = (ROOT / "docs" / "privic.md").read_text("utf-8")
    for name in (PARIS.file, SAN_FRANCISCO.file, LOS_ANGELES):
        assert f"| `{name}.csv.gz` |" in page


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == set(COMMANDS)


def test_the_page_of_mechanisms_has_the_names_of_the_command_line() -> None:
    page = (ROOT / "docs" / "mechanisms.md").read_text("utf-8")
    (sentence,) = re.findall(r"`--mechanism` takes (.*?), whose reports", page)
    assert set(re.findall(r"`([\w-]+)`", sentence)) == set(ON_MAPS)


def test_shares_are_written_with_a_space_before_the_sign() -> None:
    written = {page: re.sub(r'"\d+%"', "", page.read_text(encoding="utf-8")) for page in PAGES}
    assert not [
        page.name for page, text in written.items() if re.search(r"\d%(?![0-9A-F]{2})", text)
    ]
    sources = [
        each for part in ("src", "benchmarks", "tools") for each in (ROOT / part).rglob("*.py")
    ]
    assert len(sources) > 200
    assert not [
        each.name for each in sources if re.search(r":[^{}\s]*%\}", each.read_text("utf-8"))
    ]
