"""The pages in a real browser against a real service, and how large they are."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from web import node_tools

from server.live import Live

PAGES = ("c/index.html", "index.html", "m/index.html")
MOST_BYTES = 60_000
"""What a first visit to each of the pages may load in all, compressed."""


@pytest.fixture(scope="module")
def built() -> Path:
    """The pages, built from the source; skipped where they cannot be."""
    try:
        node_tools.build_pages()
        node_tools.prepare(node_tools.PAGES)
    except node_tools.Unavailable as reason:
        pytest.skip(f"the pages cannot be built: {reason}")
    return node_tools.BUILT


LONGER = (
    "campaign_choices",
    "dashboard_rarely",
    "districts",
    "flows",
    "participant_rarely",
    "places",
    "tiles",
    "times",
)
"""Files of browser tests that run with the long ones: ``make promises``."""


def test_they_do_in_a_browser_what_they_say(built: Path, tmp_path: Path) -> None:
    names = {each.name.split(".")[0] for each in (node_tools.PAGES / "test").glob("*.test.ts")}
    assert names > set(LONGER)
    run_in_a_browser(tmp_path, sorted(names - set(LONGER)), least=30)


@pytest.mark.slow
def test_they_also_do_what_takes_longer(built: Path, tmp_path: Path) -> None:
    run_in_a_browser(tmp_path, list(LONGER), least=10)


def run_in_a_browser(tmp_path: Path, names: list[str], least: int) -> None:
    if not any(map(shutil.which, node_tools.BROWSERS)):
        reason = "no Chromium is installed; sh web/install_browser.sh installs it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with Live(tmp_path, tick_s=0.1) as server:
        given = {"GEOVEIL_SERVICE": server.url, "GEOVEIL_OPERATOR": server.token}
        given["GEOVEIL_PYTHON"] = sys.executable  # for tests that stop a service and start it again
        given["LC_ALL"] = "en_US.UTF-8"  # parts that Node runs speak its language
        files = [f"test/{name}.test.ts" for name in names]
        done = node_tools.run(node_tools.PAGES, "vitest", "run", "--no-color", *files, **given)
    assert done.returncode == 0, done.stdout[-6000:]
    passed = re.search(r"Tests +(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) >= least
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_a_first_visit_is_small(built: Path, page: str) -> None:
    loaded = {built / page}
    waiting = [built / page]
    while waiting:
        text = waiting.pop().read_text(encoding="utf-8")
        found = {each for each in (built / "assets").iterdir() if each.name in text}
        waiting += [each for each in found - loaded if each.suffix in (".js", ".css")]
        loaded |= found
    assert {each.suffix for each in loaded} == {".html", ".js", ".css", ".svg"}
    size = sum(len(gzip.compress(each.read_bytes(), 9)) for each in loaded)
    assert 20_000 < size <= MOST_BYTES


def test_phones_of_some_years_ago_can_read_them(built: Path) -> None:
    # before Safari 16.4 a look behind or a static block ruins the whole file; 16 brought the others
    later = r"\(\?<[=!]|\bstatic\{|AbortSignal\.(any|timeout)\(|\.(with|toSpliced|toSorted|toReversed)\("
    for script in built.rglob("*.js"):
        assert not re.search(later, script.read_text(encoding="utf-8")), script


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(built: Path) -> None:
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|//", text), page
        for address in re.findall(r'(?:src|href)="([^"]*)"', text):
            assert (page.parent / address).resolve().is_relative_to(built / "assets"), address


def test_the_scripts_of_the_pictures_look_for_words_that_are_there() -> None:
    folders = (node_tools.PAGES / "src", Path(__file__).parents[1] / "src" / "geoveil")
    files = [
        each
        for folder in folders
        for each in folder.rglob("*")
        if each.suffix in {".ts", ".html", ".py"}
    ]
    source = "".join(each.read_text(encoding="utf-8") for each in files)
    scripts = "".join(each.read_text(encoding="utf-8") for each in node_tools.PAGES.glob("*.mjs"))
    wanted = re.findall(r'getBy(?:Text|Label)\("([^"]+)"', scripts)
    assert len(wanted) >= 5
    assert [each for each in wanted if each not in source] == []
