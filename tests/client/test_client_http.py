"""Devices over real HTTP: what they send, what they take for an answer, whom they talk to."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from client.world import (
    PLACE,
    device,
    document,
    honest,
    refused,
    send,
    serving,
)
from geoveil.client import Patience, Refused
from geoveil.client.network import HEADERS, Address, Network, Unreachable, _hang_up
from geoveil.errors import InvalidInput


def test_over_http(path: Path) -> None:
    counts: dict[str, int] = {}
    with serving(honest(document().served(), counts)) as service:
        receipt = device(service.url, path).report(**PLACE)
        device(service.url, path.with_name("another.db")).report(lat=45.745, lng=4.82)
    assert counts[receipt.report] == receipt.cell
    assert len(counts) == 2
    methods = [(method, where) for method, where, *_ in service.requests]
    assert (
        methods
        == [
            ("GET", "/api/campaigns/lyon/mechanism"),
            ("POST", "/api/campaigns/lyon/reports"),
        ]
        * 2
    )
    _, first, _, second = (headers for _, _, headers, _ in service.requests)
    assert set(first) == {"Host", "Accept-Encoding", "User-Agent", "Accept", "Content-Length",
                          "Content-Type"}  # fmt: skip
    assert first["User-Agent"] == HEADERS["User-Agent"] == "geoveil"
    assert first["Accept-Encoding"] == "identity"
    assert {k for k in first if first[k] != second[k]} <= {"Content-Length"}


def test_a_cookie_and_a_tag_of_the_collectors_choosing_do_not_come_back(path: Path) -> None:
    """Either would mark the device."""
    answer = honest(document().served(), {})

    def respond(handler: Any) -> None:
        if handler.command == "GET":
            body = document().served()
            send(handler, 200, body, ETag='"device-4711"', Set_Cookie="device=4711")
        else:
            answer(handler)

    with serving(respond) as service:
        it = device(service.url, path, again="round")
        it.report(**PLACE)
        it.report(**PLACE)
    assert all("4711" not in str(headers) for _, _, headers, _ in service.requests)


def test_an_answer_that_drips_is_hung_up_on(path: Path) -> None:
    """Bytes that keep coming, and never end, do not hold a device longer than it was told."""
    let_go = threading.Event()

    def respond(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        while not let_go.wait(0.02):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    with serving(respond) as service:
        network = Network(Address.of(service.url), timeout_s=0.2)
        it = device(service.url, path, patience=Patience(attempts=1), transport=network)
        assert refused(it.report, **PLACE).reason == "unreachable"
        let_go.set()


@pytest.mark.parametrize("size", [b"-1", b"-2", b"7fffffff"])
def test_a_chunk_of_any_size_is_read_as_far_as_the_limit(size: bytes) -> None:
    sent: list[bytes] = []

    def respond(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(size + b"\r\n")
        while len(sent) < 64:
            handler.wfile.write(b" " * (1 << 20))
            sent.append(size)

    with serving(respond) as service, pytest.raises((Unreachable, Refused)):
        Network(Address.of(service.url)).get("/", tag=None, limit=1000)
    assert len(sent) < 32


def test_nothing_leaves_in_the_clear_while_a_device_hangs_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread hangs up while another sends: until the connection has ended, TLS stays on."""
    monkeypatch.setattr(socket.socket, "shutdown", lambda *_: None)  # it has not ended yet
    here, there = socket.socketpair()
    secured = ssl.create_default_context().wrap_socket(
        here, do_handshake_on_connect=False, server_hostname="collector.example"
    )
    with secured, there:
        secured.settimeout(0.05)
        _hang_up(secured)
        with pytest.raises(OSError, match="timed out"):  # hands are not shaken
            secured.send(b"a report")
        assert b"a report" not in there.recv(4096)


def test_redirects_share_the_time_of_one_request(path: Path) -> None:
    def respond(handler: Any) -> None:
        time.sleep(0.15)
        send(handler, 302, b"", Location=handler.path)

    with serving(respond) as service:
        network = Network(Address.of(service.url), timeout_s=0.4)
        it = device(service.url, path, patience=Patience(attempts=1), transport=network)
        assert refused(it.report, **PLACE).reason == "unreachable"


def test_nobody_there(path: Path) -> None:
    with serving(lambda _: None) as service:
        url = service.url
    assert refused(device(url, path).report, **PLACE).reason == "unreachable"


def test_a_name_with_many_addresses_that_never_answer_holds_nobody_longer_than_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    class Silent(socket.socket):
        def connect(self, place: Any) -> None:
            clock[0] += self.gettimeout() or 0.0
            raise TimeoutError

    listed = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("203.0.113.1", 443))] * 500
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: listed)
    monkeypatch.setattr(socket, "socket", Silent)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    it = device("https://collector.example/c/lyon", path, patience=Patience(attempts=1))
    assert refused(it.report, **PLACE).reason == "unreachable"
    assert 9.0 < clock[0] < 11.0


@pytest.mark.parametrize("after", ["seconds", "date"])
def test_retry_after_is_read(after: str, path: Path) -> None:
    answer = honest(document().served(), {})
    value = {"seconds": "2", "date": "Thu, 01 Jan 1970 00:00:00 GMT"}[after]
    pauses: list[float] = []

    def respond(handler: Any) -> None:
        if len(service.requests) == 1:
            send(handler, 503, b"", Retry_After=value)
        else:
            answer(handler)

    with serving(respond) as service:
        patience = Patience(sleep=pauses.append, jitter=lambda: 0.1)
        device(service.url, path, patience=patience).report(**PLACE)
    assert pauses == [{"seconds": 2.0, "date": 0.05}[after]]


def test_a_date_is_read_in_the_one_form_that_http_has() -> None:
    dates = {
        "Fri, 15 Jan 2027 08:00:00 GMT": 1_800_000_000.0,
        "Fri, 31 Dec 9999 23:59:59 GMT": 253_402_300_799.0,
        "Sat, 01 Jan 12000 00:00:00 GMT": None,
        "Fri, 15 Jan 2027 08:00:00 +0000": None,
        "Sun, 31 Feb 2027 08:00:00 GMT": None,
        "soon": None,
    }
    left = list(dates)

    def respond(handler: Any) -> None:
        handler.send_response_only(200)
        handler.send_header("Date", left.pop(0))
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with serving(respond) as service:
        network = Network(Address.of(service.url, insecure=True))
        read = {date: network.get("/", tag=None, limit=1).date_s for date in dates}
    assert read == dates


def test_a_certificate_that_nobody_vouches_for_and_the_same_where_somebody_does(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = f"req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -keyout {key} -out {certificate}"
    named = "-addext subjectAltName=DNS:localhost"
    subprocess.run([openssl, *made.split(), *named.split()], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(honest(document().served(), {})) as service:
        service.wrap(context)
        url = service.url.replace("http://127.0.0.1", "https://localhost")
        caught = refused(device(url, path).report, **PLACE)
        assert caught.reason == "insecure"
        assert service.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert device(url, path).report(**PLACE).acknowledged
        another = url.replace("localhost", "127.0.0.1")  # which it does not vouch for
        assert refused(device(another, path).report, **PLACE).reason == "insecure"


# -- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://collector.example/c/lyon", "https://collector.example/c/lyon"),
        ("https://collector.example:443/c/lyon/", "https://collector.example/c/lyon"),
        ("https://COLLECTOR.example/api/campaigns/lyon", "https://collector.example/c/lyon"),
        ("https://x.example:8443/geo/veil/c/lyon-ab12", "https://x.example:8443/geo/veil/c/lyon-ab12"),
        ("http://localhost:8000/c/lyon", "http://localhost:8000/c/lyon"),
        ("http://127.0.0.1/c/lyon", "http://127.0.0.1/c/lyon"),
        ("http://[::1]:8000/c/lyon", "http://[::1]:8000/c/lyon"),
        ("https://collector.example./c/lyon", "https://collector.example/c/lyon"),
        ("https://collector.example.:8443/c/lyon", "https://collector.example:8443/c/lyon"),
        ("https://collector\u3002example/c/lyon", "https://collector.example/c/lyon"),
        ("https://coll\u00adector.example/c/lyon", "https://collector.example/c/lyon"),
        ("https://\uff43ollector.example/c/lyon", "https://collector.example/c/lyon"),
        ("https://b\u00fccher.example/c/lyon", "https://xn--bcher-kva.example/c/lyon"),
        ("https://B\u00dcCHER.example/c/lyon", "https://xn--bcher-kva.example/c/lyon"),
        ("https://XN--bcher-kva.example/c/lyon", "https://xn--bcher-kva.example/c/lyon"),
        ("https://[2001:DB8:0:0::1]/c/lyon", "https://[2001:db8::1]/c/lyon"),
        ("https://[::ffff:192.0.2.1]/c/lyon", "https://192.0.2.1/c/lyon"),
    ],
)  # fmt: skip
def test_one_spelling_for_one_campaign(url: str, name: str, path: Path) -> None:
    assert device(url, path).address.name == name


@pytest.mark.parametrize(
    "url",
    [
        "",
        "collector.example/c/lyon",
        "ftp://collector.example/c/lyon",
        "https:///c/lyon",
        "https://collector.example/",
        "https://collector.example/c/",
        "https://collector.example/c/Lyon",
        "https://collector.example/c/lyon/../../x",
        "https://collector.example/x/../c/lyon",  # another spelling would be another campaign
        "https://collector.example/./c/lyon",
        "https://collector.example/c/lyon?device=4711",
        "https://collector.example/c/lyon#x",
        "https://me:secret@collector.example/c/lyon",
        "https://collector.example:99999/c/lyon",
        "https://[/c/lyon",
        "https://3221225985/c/lyon",  # 192.0.2.1, in some of its other spellings
        "https://0xc0000201/c/lyon",
        "https://192.0.513/c/lyon",
        "https://192.0.2.01/c/lyon",
        "https://collector..example/c/lyon",
        "https://collector.example../c/lyon",
        "https://collector%2eexample/c/lyon",
        "https://collector example/c/lyon",
        "https://stra\u00dfe.example/c/lyon",  # not strasse.example, which a browser would not ask
        "https://colle\u200dctor.example/c/lyon",
        "https://collector\u1d49.example/c/lyon",  # newer than 2003, and an e in a browser
        "https://\u13a9.example/c/lyon",
        "https://[2001:db8::1%7]/c/lyon",  # the same host whatever the number
        "http://[::1%7]:8000/c/lyon",
        None,
    ],
)
def test_what_is_no_campaign(url: Any, path: Path) -> None:
    with pytest.raises(InvalidInput, match="campaign's link"):
        device(url, path)


def test_another_spelling_of_a_link_is_no_second_report_and_no_other_operator(path: Path) -> None:
    counts: dict[str, int] = {}
    with serving(honest(document().served(), counts)) as service:
        url = service.url.replace("127.0.0.1", "localhost")
        first = device(url, path).report(**PLACE)
        again = device(url.replace("localhost", "LOCALHOST."), path)
        assert again.report(**PLACE) == first
        assert again.report(**PLACE).operator_spent_per_km == first.epsilon_per_km
    assert len(counts) == 1


@pytest.mark.parametrize(
    "host", ["collector.example", "10.0.0.7", "localhost.example", "[fe80::1]"]
)
def test_plain_http_is_for_this_machine_only(host: str, path: Path) -> None:
    url = f"http://{host}/c/lyon"
    assert refused(device, url, path).reason == "insecure"
    assert device(url, path, insecure=True).address.name == url
