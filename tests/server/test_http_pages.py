"""Pages for browsers: who gets them, under which policy, and what happens where none were built."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from geoveil.server import pages
from geoveil.server.pages import ASSETS, PARTICIPANT, Pages
from server.conftest import InProcess

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
SCRIPT = b"export const cells = 1;\n" * 60
PAGE = b"<!doctype html><title>A page</title>"


@pytest.fixture
def built(service: InProcess, tmp_path: Path) -> InProcess:
    """An application with a page and a script of its own."""
    for name, content in {PARTICIPANT: PAGE, f"{ASSETS}page-1a2b.js": SCRIPT}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "source.sha256").write_text("secret")
    service.service.pages = Pages(tmp_path)
    return service


def test_the_link_is_a_page_for_browsers_and_an_address_for_programs(built: InProcess) -> None:
    shown = built.get("/c/lyon", headers={"accept": BROWSER})
    assert (shown.status_code, shown.content) == (200, PAGE)
    assert shown.headers["content-type"].startswith("text/html")
    for accept in ("", "*/*", "application/json", "image/png"):
        moved = built.get("/c/lyon", headers={"accept": accept})
        assert (moved.status_code, moved.headers["location"]) == (307, "../api/campaigns/lyon")
        assert "Accept" in moved.headers["vary"]


def test_an_unknown_campaign_is_a_page_too_with_its_status(built: InProcess) -> None:
    for name in ("nice", "No Campaign"):
        shown = built.get(f"/c/{name}", headers={"accept": BROWSER})
        assert (shown.status_code, shown.content) == (404, PAGE)
        assert shown.headers["cache-control"] == "no-store"  # the same page when there is one
        assert built.get(f"/c/{name}").json()["type"].endswith("unknown-campaign")


def test_the_policy_allows_nothing_inline_nothing_from_elsewhere_and_no_frame(
    built: InProcess,
) -> None:
    for path in ("/c/lyon", "/assets/page-1a2b.js"):
        headers = built.get(path, headers={"accept": BROWSER}).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == "'none'"
        assert policy.pop("frame-ancestors") == "'none'"
        assert policy.pop("base-uri") == policy.pop("form-action") == "'none'"
        assert set(policy) == {"script-src", "style-src", "img-src", "connect-src", "worker-src"}
        assert set(policy.values()) == {"'self'"}
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "geolocation=(self), camera=()" in headers["permissions-policy"]
        assert "set-cookie" not in headers


def test_a_script_is_kept_for_ever_and_a_page_asked_for_anew(built: InProcess) -> None:
    script = built.get("/assets/page-1a2b.js")
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-type"].startswith("text/javascript")
    page = built.get("/c/lyon", headers={"accept": BROWSER})
    assert page.headers["cache-control"] == "no-cache"
    for held in (
        page.headers["etag"],
        f'"x", W/{page.headers["etag"]}',
    ):  # as a proxy that packs says
        again = {"accept": BROWSER, "if-none-match": held}
        assert built.get("/c/lyon", headers=again).status_code == 304
    assert hashlib.sha256(PAGE).hexdigest()[:32] in page.headers["etag"]


def test_a_script_is_packed_for_whoever_unpacks(built: InProcess) -> None:
    plain = built.get("/assets/page-1a2b.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    refused = built.get("/assets/page-1a2b.js", headers={"accept-encoding": "gzip; q=0.0, br"})
    assert "content-encoding" not in refused.headers
    packed = built.get("/assets/page-1a2b.js", headers={"accept-encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content == SCRIPT  # httpx unpacks
    assert int(packed.headers["content-length"]) == len(gzip.compress(SCRIPT, 9)) < len(SCRIPT)
    assert packed.headers["etag"] != plain.headers["etag"]


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2Fc%2Findex.html", "../c/index.html", "%2e%2e/source.sha256", ""]
)
def test_nothing_but_the_built_files_is_served(built: InProcess, name: str) -> None:
    answer = built.get(f"/assets/{name}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_without_pages_every_link_is_an_address(service: InProcess, tmp_path: Path) -> None:
    service.service.pages = Pages(tmp_path / "none")
    moved = service.get("/c/lyon", headers={"accept": BROWSER})
    assert (moved.status_code, moved.headers["location"]) == (307, "../api/campaigns/lyon")
    assert service.get("/assets/page-1a2b.js").status_code == 404


def test_the_server_says_when_there_are_no_pages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    assert not pages.are_built()
    (tmp_path / "c").mkdir()
    (tmp_path / PARTICIPANT).write_bytes(PAGE)
    assert pages.are_built()
