"""Promise 21: a bad mechanism is refused before a location is read."""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.hostile import HOSTILE, Hostile
from client.world import Collector, Eye, device, document, honest, send, serving
from geoveil.client import Refused
from geoveil.client.collector import offered
from geoveil.position.position_certificate import Law


def refusal_of(case: Hostile, folder: Path) -> tuple[Refused, Eye, Collector, float]:
    collector = Collector(document(5).served())
    it = device(collector, folder / "ledger.db", again="round")
    if case.seen:
        it.report(locate=Eye())
    collector.served, before = case.body, len(collector.attempts)
    eye = Eye()
    offered.cache_clear()
    start = time.process_time()
    with pytest.raises(Refused) as caught:
        it.report(locate=eye)
    took_s = time.process_time() - start
    assert len(collector.attempts) == before
    return caught.value, eye, collector, took_s


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_refused_before_a_location_is_read(case: Hostile, tmp_path: Path) -> None:
    refused, eye, _, _ = refusal_of(case, tmp_path)
    assert (refused.reason, refused.detail) == (case.reason, case.detail)
    assert eye.looks == 0


def test_there_are_enough_and_each_is_another() -> None:
    assert len({case.body for case in HOSTILE}) == len(HOSTILE) >= 40
    assert len({case.name for case in HOSTILE}) == len(HOSTILE)


def test_the_honest_documents_are_accepted(tmp_path: Path) -> None:
    collector = Collector(document(5).served())
    it = device(collector, tmp_path / "ledger.db", again="round")
    for number, looks in ((5, 1), (5, 0), (6, 1), (9, 1)):
        collector.served = document(number).served()
        eye = Eye()
        it.report(locate=eye)
        assert eye.looks == looks
    assert len(collector.reports) == 3


@pytest.mark.slow
def test_how_long_the_slowest_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Printed, not asserted, in time of a processor: three are another area's sound document, and certified
    before the ledger knows them for that."""
    monkeypatch.setattr(Law, "certify", Law.certify.__wrapped__)  # type: ignore[attr-defined]
    times = {}
    for k, case in enumerate(HOSTILE):
        (tmp_path / str(k)).mkdir()
        times[case.name] = refusal_of(case, tmp_path / str(k))[3]
    slowest = sorted(times, key=times.__getitem__)[-5:]
    shown = ", ".join(f"{1000 * times[name]:.0f} ms: {name}" for name in slowest)
    sys.stdout.write(f"{len(times)} refusals, the slowest {shown}\n")


def redirect(location: str, status: int = 302) -> Callable[[Any], None]:
    return lambda handler: send(handler, status, b"", Location=location)


def bomb(handler: Any) -> None:
    body = gzip.compress(b" " * (1 << 26))
    send(handler, 200, body, Content_Encoding="gzip")


def flood(handler: Any) -> None:
    """A body without an end."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b" " * (1 << 16))
    except OSError:
        pass


def cut_off(handler: Any) -> None:
    body = document(5).served()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:100])
    handler.close_connection = True


ANSWERS = {
    "to another host": (redirect("https://elsewhere.example/api/campaigns/lyon"), "redirect"),
    "to another port": (redirect("http://127.0.0.1:9/mechanism"), "redirect"),
    "to a file": (redirect("file:///etc/passwd", 301), "redirect"),
    "without end": (redirect("/api/campaigns/lyon/mechanism", 307), "redirect"),
    "to nowhere": (redirect("http://[", 308), "redirect"),
    "gzip bomb": (bomb, "answer"),
    "flood": (flood, "answer"),
    "cut off": (cut_off, "unreachable"),
    "login page": (lambda h: send(h, 200, b"<html>", Content_Type="text/html"), "document"),
    "forbidden": (lambda h: send(h, 403, b"no"), "answer"),
    "no content": (lambda h: send(h, 204, b""), "answer"),
    "not modified at once": (lambda h: send(h, 304, b""), "answer"),
    "server error": (lambda h: send(h, 500, b"oops"), "unreachable"),
    "not HTTP": (lambda h: h.wfile.write(b"220 smtp\r\n\r\n") and h.connection.close(), "unreachable"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_refused_over_http_before_a_location_is_read(name: str, tmp_path: Path) -> None:
    respond, reason = ANSWERS[name]
    eye = Eye()
    with serving(respond) as service:
        it = device(service.url, tmp_path / "ledger.db")
        with pytest.raises(Refused) as caught:
            it.report(locate=eye)
    assert caught.value.reason == reason
    assert eye.looks == 0
    assert all(method == "GET" for method, *_ in service.requests)


def test_a_redirect_within_the_collector_is_followed(tmp_path: Path) -> None:
    counts: dict[str, int] = {}
    answer = honest(document(5).served(), counts)

    def respond(handler: Any) -> None:
        if handler.path.endswith("/mechanism"):
            redirect("/current?round=5")(handler)
        else:
            answer(handler)

    with serving(respond) as service:
        receipt = device(service.url, tmp_path / "ledger.db").report(lat=45.76, lng=4.84)
    assert counts == {receipt.report: receipt.cell}
