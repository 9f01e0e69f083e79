"""Limits that keep no address, logs that hold no person, clients that are slow or endless."""

from __future__ import annotations

import io
import json
import logging
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from geoveil.arrays import prior_over
from geoveil.cli.console import LibraryNotes
from geoveil.server.limits import Limiter, Limits, Networks, Shares
from geoveil.server.logs import Log, capture_libraries
from geoveil.server.problem import Problem
from server.conftest import InProcess
from server.live import HANG_S, Live, new_id

REPORTS = "/api/campaigns/lyon/reports"


def test_a_bucket_refills_with_time() -> None:
    now_s = [0.0]
    limiter = Limiter(60, clock=lambda: now_s[0])
    assert sum(limiter.admits("198.51.100.7") for _ in range(100)) == 60
    assert limiter.admits("198.51.100.8")
    now_s[0] = 10.0
    assert sum(limiter.admits("198.51.100.7") for _ in range(100)) == 10


def test_a_refused_request_costs_nothing_and_a_large_one_passes_when_the_bucket_is_full() -> None:
    now_s = [0.0]
    limiter = Limiter(10, clock=lambda: now_s[0])
    assert limiter.admits("a", 8)
    assert not limiter.admits("a", 8)
    assert limiter.admits("a", 2)
    now_s[0] = 60.0
    assert limiter.admits("a", 1000)
    assert not limiter.admits("a")


def test_a_customer_cannot_multiply_itself_with_ipv6() -> None:
    limiter = Limiter(1, clock=lambda: 0.0)
    assert limiter.admits("2001:db8:1:2::1")
    assert not limiter.admits("2001:db8:1:2:ffff::9")
    assert limiter.admits("2001:db8:1:3::1")


def test_networks_of_one_site_cannot_have_all_places_together() -> None:
    networks = Networks(loopback=True, trusted_proxy=False)

    def taken(shares: Shares, address: str) -> int:
        name = networks.of({"client": (address, 1)})
        return sum(shares.take(name) for _ in range(100))

    listeners = Shares(200, 20)
    of_one_site = [taken(listeners, f"2001:db8:1:{n:x}::1") for n in range(100)]
    assert of_one_site[:4] == [20, 20, 10, 0]
    assert not any(of_one_site[4:])
    assert taken(listeners, "2001:db8:2:1::1") == 20
    assert [taken(listeners, f"198.51.100.{n}") for n in range(6)] == 6 * [20]
    assert taken(listeners, "2001:db8:1:7::1") == 0
    for n in (0, 0, 1):
        listeners.give_back(networks.of({"client": (f"2001:db8:1:{n:x}::1", 1)}))
    assert taken(listeners, "2001:db8:1:7::1") == 3


def limits(**changes: object) -> Limits:
    settings = {
        "requests_per_minute": 1,
        "reports_per_minute": 1,
        "loopback": True,
        "trusted_proxy": False,
    }
    return Limits(**(settings | changes))


def forwarded(text: str) -> dict[str, object]:
    """A request by way of a proxy that says this."""
    header = (b"x-forwarded-for", f"10.0.0.1, {text}".encode("latin-1"))
    return {"client": ("198.51.100.7", 1), "headers": [header]}


@pytest.mark.parametrize("prefix", ["::ffff:", "64:ff9b::"])
def test_ipv4_clients_of_an_ipv6_socket_have_a_bucket_each(prefix: str) -> None:
    limiter = Limiter(1, clock=lambda: 0.0)
    assert limiter.admits(f"{prefix}198.51.100.7")
    assert limiter.admits(f"{prefix}198.51.100.8")
    assert not limiter.admits(f"{prefix}c633:6407")  # the first again, in hexadecimal
    assert not limiter.admits("198.51.100.7")


@pytest.mark.parametrize(
    "same",
    [
        ("203.0.113.5", "203.0.113.5:50001", "203.0.113.5:2", "::ffff:203.0.113.5", "[::ffff:203.0.113.5]:7"),
        ("2001:db8:1:2::1", "[2001:db8:1:2::1]", "[2001:db8:1:2::1]:443", "[2001:db8:1:2::9%eth0]:444"),
    ],
)  # fmt: skip
def test_a_port_makes_no_other_client(same: tuple[str, ...]) -> None:
    here = limits(requests_per_minute=1, trusted_proxy=True)
    clients = [here.client(forwarded(text)) for text in same]
    here.check_request(clients[0])
    for client in clients:
        with pytest.raises(Problem):
            here.check_request(client)


@pytest.mark.parametrize(
    "text", ["unknown", "", "1.2.3", "1.2.3.4.5", "x:1", "::g", "é", "1.2.3.4, "]
)
def test_what_is_no_address_counts_for_the_proxy(text: str) -> None:
    assert limits(trusted_proxy=True).client(forwarded(text)) == "198.51.100.7"


def test_buckets_are_bounded_hold_no_address_and_are_forgotten_each_day() -> None:
    now_s = [0.0]
    limiter = Limiter(5, clock=lambda: now_s[0], most_buckets=100)
    for number in range(1000):
        limiter.admits(f"198.51.{number // 250}.{number % 250}")
    assert len(limiter) == 100
    held = repr(vars(limiter)).encode()
    assert b"198.51" not in held
    assert socket.inet_aton("198.51.3.249") not in b"".join(limiter._buckets)
    now_s[0] = 86_400.0
    limiter.admits("198.51.100.7")
    assert len(limiter) == 1


def test_whose_address_counts() -> None:
    scope = {
        "client": ("198.51.100.7", 1),
        "headers": [(b"x-forwarded-for", b"10.0.0.1, 203.0.113.5")],
    }
    assert limits().client(scope) == "198.51.100.7"
    assert limits(trusted_proxy=True).client(scope) == "203.0.113.5"
    assert limits(trusted_proxy=True).client(scope | {"headers": []}) == "198.51.100.7"
    here = {"client": ("127.0.0.1", 1), "headers": []}
    assert limits().client(here) == "127.0.0.1"
    assert limits(loopback=False).client(here) is None
    assert limits(requests_per_minute=0, reports_per_minute=0).client(scope) is None
    assert limits().client({"client": None, "headers": []}) == ""


def test_too_many_requests_and_too_many_reports(inside: Callable[..., InProcess]) -> None:
    service = inside(requests_per_minute=20, reports_per_minute=30)
    service.campaign()
    mechanism = service.mechanism()["id"]
    batch = {"reports": [{"mechanism": mechanism, "id": new_id(), "cell": 0} for _ in range(20)]}
    assert service.post(REPORTS, json=batch).status_code == 200
    refused = service.post(REPORTS, json=batch)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    statuses = [service.get("/healthz").status_code for _ in range(30)]
    assert set(statuses) == {200, 429}
    assert statuses == sorted(statuses)
    assert service.store.counts("lyon")[1].sum() == 20


def test_logs_are_json_lines_at_their_level() -> None:
    stream = io.StringIO()
    log = Log("warning", stream=stream, clock=lambda: 0.0)
    log.event("started", port=1)
    log.event("trouble", level="warning", number=2)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00Z", "level": "warning", "event": "trouble", "number": 2,
    }  # fmt: skip


def test_all_but_operators_appear_as_totals_only() -> None:
    stream = io.StringIO()
    log = Log(stream=stream)
    for _ in range(5):
        log.count("/api/campaigns/{campaign}/reports", 200)
    assert stream.getvalue() == ""
    log.summary()
    assert json.loads(stream.getvalue())["number"] == 5
    log.summary()
    assert stream.getvalue().count("\n") == 1


def test_a_fault_is_logged_without_its_words() -> None:
    stream = io.StringIO()
    try:
        raise ValueError("cell 41 of 198.51.100.7")
    except ValueError as error:
        Log(stream=stream).fault("internal-error", error)
    assert "ValueError" in stream.getvalue()
    assert "41" not in json.loads(stream.getvalue())["error"]
    assert "198.51" not in stream.getvalue()


def test_a_problem_says_when_to_come_back() -> None:
    assert Problem("overloaded").response().headers["retry-after"] == "1"


# -- a real server and clients that misbehave ------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with Live(tmp_path_factory.mktemp("impatient"), body_timeout_s=0.5) as server:
        server.kept_campaign()
        yield server


@pytest.fixture
def patient(shared: Live) -> Live:
    shared.kept_campaign()
    return shared


HEAD = b"POST " + REPORTS.encode() + b" HTTP/1.1\r\nHost: x\r\n"


def talk(server: Live, *pieces: bytes, forever: bytes = b"") -> bytes:
    """Send pieces, then for ever one more, and read what comes until the server hangs up."""
    found = bytearray()
    with socket.create_connection(("127.0.0.1", server.port), HANG_S) as connection:
        connection.settimeout(HANG_S)
        try:
            for piece in pieces:
                connection.sendall(piece)
            while forever:
                connection.sendall(forever)
        except OSError:
            pass
        try:
            while received := connection.recv(65_536):
                found += received
        except OSError:
            pass
    return bytes(found)


@pytest.mark.parametrize(
    "pieces",
    [(), (b"POST /api",), (b"\r\n\r\n",), (HEAD,), (HEAD + b"Content-Length: 5\r\nX: ", b"y")],
    ids=["silence", "half a line", "empty lines", "half a head", "half a header"],
)
def test_a_head_that_never_ends_is_hung_up_on(impatient: Live, pieces: tuple[bytes, ...]) -> None:
    assert talk(impatient, *pieces) == b""


def test_a_body_that_never_ends_is_hung_up_on(impatient: Live) -> None:
    answer = talk(impatient, HEAD + b"Content-Length: 100\r\n\r\n", b'{"mecha')
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"problems/malformed-body" in answer
    assert b"connection: close" in answer


def test_an_answer_before_the_end_of_the_body_hangs_up(impatient: Live) -> None:
    head = b"POST /api/campaigns HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
    answer = talk(impatient, head, b'{"name": ')
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer


def test_a_refused_upload_keeps_its_connection(impatient: Live) -> None:
    bad = HEAD + b"Content-Length: 2\r\n\r\n{}"
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = talk(impatient, bad * 3 + last)
    assert answer.count(b"HTTP/1.1 400 ") == 3
    assert answer.count(b"connection: close") == answer.count(b"HTTP/1.1 200 ") == 1


def test_an_endless_body_is_cut_off(impatient: Live) -> None:
    endless = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    talk(impatient, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", forever=endless)
    with impatient.client() as client:
        assert client.get("/healthz").status_code == 200


def test_a_body_somewhat_too_long_gets_its_answer(impatient: Live) -> None:
    body = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    answer = talk(impatient, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", body * 6, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_an_endless_head_is_cut_off(impatient: Live) -> None:
    answer = talk(impatient, HEAD + b"X: ", forever=b"y" * 65_536)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
EVENTS = b"GET /api/campaigns/lyon/events HTTP/1.1\r\nHost: x\r\n\r\n"
MOST_BYTES = 32 << 20


@pytest.mark.parametrize(
    ("begins", "forever"),
    [
        (CHUNKED + b"0\r\n", b"x: y\r\n" * 10_000),
        (CHUNKED + b"0\r\nx: ", b"y" * 65_536),
        (CHUNKED + b"1", b";x=y" * 10_000),
        (CHUNKED + b"1\r\n{\r\n" * 1000 + b"0\r\n", b"x: y\r\n" * 10_000),
        (EVENTS + HEAD, b"x: y\r\n" * 10_000),
    ],
    ids=["trailers", "a trailer", "an extension of a chunk", "after a body", "a second head"],
)
def test_no_more_than_a_head_is_taken_of_what_is_no_body(
    patient: Live, begins: bytes, forever: bytes
) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", patient.port), HANG_S) as connection:
        connection.sendall(begins)
        time.sleep(0.2)
        try:
            while sent < MOST_BYTES:
                connection.sendall(forever)
                sent += len(forever)
        except OSError:
            pass
    with patient.client() as client:
        assert client.get("/healthz").status_code == 200
    assert sent < MOST_BYTES / 2  # what the system takes for the server, and a head


def test_what_follows_a_body_is_no_header(tmp_path: Path) -> None:
    body = json.dumps({"mechanism": "0" * 64, "id": new_id(), "cell": 1}).encode()
    with Live(tmp_path, requests_per_minute=2, trusted_proxy=True) as server:
        for number in range(4):
            proxied = CHUNKED.replace(b"Host", b"X-Forwarded-For: 203.0.113.9\r\nHost")
            close = proxied.replace(b"Host", b"Connection: close\r\nHost")
            trailer = b"0\r\nX-Forwarded-For: 198.51.100.%d\r\n\r\n" % number
            answer = talk(server, close + b"%x\r\n" % len(body) + body + b"\r\n" + trailer)
            assert answer.startswith(b"HTTP/1.1 404 " if number < 2 else b"HTTP/1.1 429 ")


def test_short_chunks_are_a_body_like_any_other(patient: Live) -> None:
    body = json.dumps({"mechanism": "0" * 64, "id": new_id(), "cell": 1}).encode()
    padded = body + b" " * (100_000 - len(body))
    chunks = b"".join(b"1\r\n%c\r\n" % each for each in padded)
    answer = talk(
        patient, CHUNKED.replace(b"Host", b"Connection: close\r\nHost") + chunks, b"0\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET \xff HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_a_problem(impatient: Live, line: bytes) -> None:
    answer = talk(impatient, line)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer
    assert b"problems/malformed-body" in answer


def test_nonsense_after_an_upload_is_not_its_answer(impatient: Live) -> None:
    body = json.dumps({"mechanism": "0" * 64, "id": new_id(), "cell": 1}).encode()
    upload = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert talk(impatient, upload + b"nonsense\r\n\r\n") == b""


def test_other_protocols_are_not_spoken(impatient: Live) -> None:
    answer = talk(
        impatient,
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n",
    )
    assert answer[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 400")
    assert b"connection: close" in answer  # and the server has hung up


def test_idle_connections_do_not_keep_others_waiting(impatient: Live) -> None:
    idle = [socket.create_connection(("127.0.0.1", impatient.port)) for _ in range(200)]
    began = time.monotonic()
    with impatient.client() as client:
        assert client.get("/healthz").status_code == 200
    assert time.monotonic() - began < HANG_S
    for each in idle:
        each.close()


def test_strangers_write_no_lines_into_the_log(impatient: Live) -> None:
    def lines() -> list[dict[str, object]]:
        return [json.loads(line) for line in Path(impatient.log).read_text().splitlines()]

    before = [line for line in lines() if line["event"] not in ("requests", "refused")]
    with impatient.client() as client:
        for _ in range(3):
            assert talk(impatient, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
            assert client.post("/api/campaigns", json={}).status_code == 401
        refused = [line for line in client.get("/metrics").text.splitlines() if "malformed" in line]
    assert int(refused[0].rpartition(" ")[2]) >= 3
    after = lines()
    assert all({"time", "level", "event"} <= set(line) for line in after)
    assert [line for line in after if line["event"] not in ("requests", "refused")] == before


@contextmanager
def captured() -> Iterator[io.StringIO]:
    """What is logged while the words of libraries are kept out of the log."""
    written, root = io.StringIO(), logging.getLogger()
    kept = root.handlers, root.level
    capture_libraries(Log(stream=written))
    try:
        yield written
    finally:
        root.handlers, root.level = kept
        logging.captureWarnings(False)


@pytest.mark.parametrize("library", ["uvicorn.error", "psycopg.pool", "of-tomorrow"])
def test_libraries_do_not_write_into_the_log(library: str) -> None:
    with captured() as written:
        for _ in range(3):  # what is said again is told once a minute
            logging.getLogger(library).warning("198.51.100.7 sent %s", "nonsense")
    (line,) = map(json.loads, written.getvalue().splitlines())
    assert (line["event"], line["library"]) == ("library", library)
    assert not any(word in written.getvalue() for word in ("198.51", "nonsense"))


def test_notes_of_a_command_are_not_written_among_the_lines_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LibraryNotes(), captured() as written:
        prior_over([1.0, 1.0], 2)
    assert capsys.readouterr().err == "" == written.getvalue()


def test_warnings_of_libraries_are_lines_of_the_log() -> None:
    with captured() as written, warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("198.51.100.7 divided by zero", RuntimeWarning, stacklevel=1)
    (line,) = map(json.loads, written.getvalue().splitlines())
    assert (line["event"], line["library"]) == ("library", "py.warnings")
