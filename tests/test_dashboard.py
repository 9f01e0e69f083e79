"""The dashboard in a real browser, and what of the pages can be checked without one."""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path

import pytest
from web import node_tools

from geoveil.demo.handover import packed
from geoveil.server.pages import FOLDER

CHROMIUM = "/usr/bin/chromium"
LARGEST_BYTES = 600_000


def test_its_own_tests_pass() -> None:
    try:
        node_tools.prepare(node_tools.PAGES)
        node_tools.build_pages()
    except node_tools.Unavailable as reason:
        pytest.skip(f"the tests of the dashboard cannot run: {reason}")
    if not Path(CHROMIUM).exists():
        if os.environ.get("CI"):
            pytest.fail("Chromium must be there: sh web/install_browser.sh")
        pytest.skip("Chromium is not installed")
    done = node_tools.run(
        node_tools.PAGES, "vitest", "run", "--no-color", "test/dashboard.test.ts", "test/map.test.ts",
        GEOVEIL_PYTHON=sys.executable,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    passed = re.search(r"Tests +(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) >= 12


def test_the_dashboard_is_small() -> None:
    pages = FOLDER / "index.html"
    if not pages.is_file():
        pytest.skip("the pages are not built")
    needed = [FOLDER / name for name in re.findall(r'"\./(assets/[^"]+)"', pages.read_text())]
    for script in [each for each in needed if each.suffix == ".js"]:
        found = re.findall(r'from"\./([^"]+)"', script.read_text(encoding="utf-8"))
        needed += [FOLDER / "assets" / name for name in found]
    size = sum(len(gzip.compress(each.read_bytes(), 9)) for each in {pages, *needed})
    assert len(needed) >= 4
    assert size <= LARGEST_BYTES / 10  # no map library: a tenth of what it may have


def test_the_simulated_truth_survives_the_address() -> None:
    import numpy as np

    shares = np.random.default_rng(1).dirichlet(np.full(486, 0.3))
    text = packed(shares)
    assert re.fullmatch(r"[\w-]+", text)
    assert len(text) < 1400
