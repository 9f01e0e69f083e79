"""Promise 36: slow and many clients take neither the memory nor the places of others."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from geoveil.server.connections import Places
from geoveil.server.limits import Networks
from server.live import HANG_S, Live, new_id
from server.uploads import stored

REPORTS = b"/api/campaigns/lyon/reports"
LINE = b"POST " + REPORTS + b" HTTP/1.1\r\nHost: x\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LISTEN = b"GET /api/campaigns/lyon/events HTTP/1.1\r\nHost: x\r\n\r\n"
SHORT = b"GET / HTTP/1.1\r\nHost:x\r\n\r\n"


def connected(server: Live, address: str = "127.0.0.1") -> socket.socket:
    """A connection from one of this machine's many addresses."""
    found = socket.create_connection(("127.0.0.1", server.port), HANG_S, (address, 0))
    found.settimeout(HANG_S)
    return found


def answer(connection: socket.socket, sent: bytes = b"") -> bytes:
    """What comes until the server hangs up."""
    found = bytearray()
    with contextlib.suppress(OSError):
        if sent:
            connection.sendall(sent)
        while received := connection.recv(65_536):
            found += received
    return bytes(found)


def asked(server: Live, sent: bytes, address: str = "127.0.0.1") -> bytes:
    """The answer to one request, by a connection of its own."""
    with connected(server, address) as connection:
        return answer(connection, sent)


def refused(server: Live, what: str) -> int:
    """How often the metrics say that something was refused."""
    with server.client() as client:
        lines = client.get("/metrics").text.splitlines()
    named = f'geoveil_refused_total{{what="{what}"}} '
    return sum(int(line.removeprefix(named)) for line in lines if line.startswith(named))


def report(mechanism: str) -> bytes:
    body = b'{"mechanism":"%b","id":"%b","cell":1}' % (mechanism.encode(), new_id().encode())
    head = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    return LINE + head + body


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    settings = {
        "body_timeout_s": 1.0, "body_memory_bytes": 1 << 20, "connections": 60,
        "connections_per_network": 25, "listeners": 6, "listeners_per_network": 3,
    }  # fmt: skip
    with Live(tmp_path_factory.mktemp("crowded"), **settings) as server:
        server.kept_campaign()
        yield server


@contextlib.contextmanager
def all_closed(connections: list[socket.socket]) -> Iterator[list[socket.socket]]:
    try:
        yield connections
    finally:
        for each in connections:
            each.close()


def test_bodies_on_their_way_are_bounded_in_all_and_by_address(crowded: Live) -> None:
    mechanism = crowded.mechanism("lyon")["id"]
    head = LINE + b"Content-Length: 200000\r\n\r\n"
    with all_closed([connected(crowded, f"127.0.0.{2 + n % 3}") for n in range(45)]) as slow:
        for each in slow:
            each.sendall(head + b" " * 60_000)
        assert asked(crowded, report(mechanism), "127.0.0.9").startswith(b"HTTP/1.1 200")
        answers = [answer(each) for each in slow]
    shed = [each for each in answers if each.startswith(b"HTTP/1.1 503")]
    cut = [each for each in answers if each.startswith(b"HTTP/1.1 400")]
    assert len(shed) + len(cut) == 45
    assert len(shed) >= 45 - (1 << 20) // 60_000
    assert all(b"connection: close" in each for each in answers)
    assert refused(crowded, "bodies") == len(shed)
    assert refused(crowded, "slow bodies") == len(cut)


def test_bodies_on_their_way_keep_no_report_out(crowded: Live) -> None:
    mechanism = crowded.mechanism("lyon")["id"]
    line, _, body = report(mechanism).partition(b"\r\n\r\n")
    with all_closed([connected(crowded, f"127.0.0.{2 + n % 5}") for n in range(50)]) as slow:
        for number, each in enumerate(slow):  # all there is, to the last byte
            size = 60_000 if number < 25 else 4_096 + 20_000 // 4 ** ((number - 25) // 5)
            each.sendall(LINE + b"Content-Length: 200000\r\n\r\n" + b" " * size)
        with connected(
            crowded, "127.0.0.9"
        ) as device:  # which sends head and body apart, as most do
            device.sendall(line + b"\r\n\r\n")
            time.sleep(0.1)
            assert answer(device, body).startswith(b"HTTP/1.1 200")


def test_one_address_cannot_take_all_places(crowded: Live) -> None:
    time.sleep(0.1)
    with all_closed([connected(crowded, "127.0.0.4") for _ in range(40)]) as held:
        assert asked(crowded, HEALTH).startswith(b"HTTP/1.1 200")
        over = [each for each in held[25:] if answer(each).startswith(b"HTTP/1.1 503")]
        assert len(over) == 15
        assert b"problems/overloaded" in asked(crowded, b"", "127.0.0.4")
    assert refused(crowded, "connections of one network") >= 16


def test_whoever_only_holds_a_place_gives_way(crowded: Live) -> None:
    busy = [connected(crowded, "127.0.0.5") for _ in range(3)]
    for each in busy:
        each.sendall(LINE + b"Content-Length: 20\r\n\r\n{")  # has a request
    with all_closed([connected(crowded, f"127.0.1.{n // 20}") for n in range(100)] + busy) as held:
        assert asked(crowded, HEALTH).startswith(b"HTTP/1.1 200")
        gone = sum(not answer(each) for each in held[:30])
        assert gone == 30  # the oldest, and nobody asked them anything
        for each in busy:
            each.sendall(b'"reports": [] }    ')
            assert each.recv(100).startswith(b"HTTP/1.1 ")
    assert refused(crowded, "connections") >= 40


def test_bodies_that_do_not_come_keep_nobody_out(crowded: Live) -> None:
    mechanism = crowded.mechanism("lyon")["id"]
    for _ in range(3):
        with all_closed([connected(crowded, f"127.0.2.{1 + n // 20}") for n in range(60)]) as slow:
            for each in slow:
                each.sendall(LINE + b"Content-Length: 20\r\n\r\n{")
            time.sleep(0.1)
            assert asked(crowded, report(mechanism)).startswith(b"HTTP/1.1 200")
            assert answer(slow[0]) == b""  # which was longest on its way
            assert answer(slow[-1]).startswith(b"HTTP/1.1 400")


def test_a_reader_that_never_reads_is_cut(crowded: Live) -> None:
    with connected(crowded, "127.0.0.6") as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        much = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 400
        threading.Thread(target=_push, args=(reader, much), daemon=True).start()
        before = refused(crowded, "slow readers")
        began = time.monotonic()
        while refused(crowded, "slow readers") == before:
            assert time.monotonic() - began < HANG_S
            time.sleep(0.1)


def test_answers_that_are_not_read_keep_nobody_out(tmp_path: Path) -> None:
    many = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 400
    with Live(tmp_path, connections=6) as server:
        mechanism = server.mechanism(server.kept_campaign())["id"]
        with all_closed([connected(server, "127.0.0.6") for _ in range(6)]) as readers:
            for each in readers:
                each.sendall(many)
            began = time.monotonic()
            while not asked(server, report(mechanism)).startswith(b"HTTP/1.1 200"):
                assert time.monotonic() - began < 8  # they are cut later
                time.sleep(0.2)


def test_an_answer_that_is_not_read_gives_way_with_no_request_behind_it() -> None:
    places = Places(2, 2, Networks(loopback=False, trusted_proxy=False), lambda what: None)
    read, unread = (
        Mock(pipeline=(), **{"transport.get_write_buffer_size.return_value": size})
        for size in (0, 9)
    )
    for each in (read, unread):
        assert places.enter(each, "127.0.0.1")
        places.waits(each, "answer")
    assert places.enter(Mock(), "127.0.0.1")
    assert (read.transport.abort.called, unread.transport.abort.called) == (False, True)


def test_requests_that_wait_for_earlier_answers_keep_nobody_out(tmp_path: Path) -> None:
    with Live(tmp_path, connections=6) as server:
        mechanism = server.mechanism(server.kept_campaign())["id"]
        with all_closed([connected(server) for _ in range(6)]) as busy:
            for each in busy:
                each.sendall(LISTEN + SHORT)
                assert each.recv(4096).startswith(b"HTTP/1.1 200")
            assert asked(server, report(mechanism)).startswith(b"HTTP/1.1 200")
            assert answer(busy[0]).count(b"HTTP/1.1") == 0  # the oldest


def test_whoever_keeps_it_busy_leaves_nobody_outside(tmp_path: Path) -> None:
    look = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with Live(tmp_path) as server, contextlib.ExitStack() as held:
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        for _ in range(200):
            held.enter_context(connected(server)).sendall(look * 60)
        with connected(server) as last:
            last.sendall(HEALTH.replace(b"healthz", b"metrics"))
            server.process.send_signal(signal.SIGCONT)
            told = answer(last)
    served = re.search(rb'route="/healthz",status="200"} (\d+)', told)
    assert served is not None
    assert (
        int(served[1]) < 200 * 60 / 2
    )  # of what came before it, most would have been answered first


def _push(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


def test_listeners_are_bounded_by_address_and_their_places_come_back(crowded: Live) -> None:
    def status(address: str) -> tuple[bytes, socket.socket]:
        connection = connected(crowded, address)
        connection.sendall(LISTEN)
        return connection.recv(4096)[:12], connection

    def open_three(address: str) -> list[socket.socket]:
        found = [status(address) for _ in range(3)]
        assert [first for first, _ in found] == [b"HTTP/1.1 200"] * 3
        return [connection for _, connection in found]

    with all_closed(open_three("127.0.0.7")) as listening:
        first, over = status("127.0.0.7")
        listening.append(over)
        assert first == b"HTTP/1.1 503"
        listening.extend(open_three("127.0.0.8"))
        first, over = status("127.0.0.10")
        listening.append(over)
        assert first == b"HTTP/1.1 503"
    began = time.monotonic()
    first = b""
    while first != b"HTTP/1.1 200":
        assert time.monotonic() - began < HANG_S
        first, again = status("127.0.0.7")
        again.close()
        time.sleep(0.1)
    assert refused(crowded, "listeners") >= 2


def test_nobody_asks_on_without_end_before_an_answer(tmp_path: Path) -> None:
    with Live(tmp_path) as server:
        server.kept_campaign()
        with all_closed([connected(server) for _ in range(20)]) as listening:
            for each in listening:
                each.sendall(LISTEN)
                assert each.recv(4096).startswith(b"HTTP/1.1 200")
            before_mib = resident_mib(server)
            for each in listening:
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    each.send(SHORT * 9000)
            time.sleep(0.5)
            assert asked(server, HEALTH).startswith(b"HTTP/1.1 200")
            assert resident_mib(server) - before_mib < 30  # and not ten for each of them


def test_a_listener_that_asked_on_and_left_gives_its_place_back(crowded: Live) -> None:
    def listening() -> bool:
        with crowded.client() as client:
            return "\ngeoveil_listeners 0\n" not in client.get("/metrics").text

    mechanism = crowded.mechanism("lyon")["id"]
    with connected(crowded, "127.0.0.12") as connection:
        connection.sendall(LISTEN)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        connection.sendall(SHORT)
        time.sleep(0.2)
        assert listening()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # it finds out by the first thing that it has to tell, and not by the sign of life 15 s later
    assert asked(crowded, report(mechanism)).startswith(b"HTTP/1.1 200")
    began = time.monotonic()
    while listening():
        assert time.monotonic() - began < 12
        time.sleep(0.2)


def test_refusals_are_in_the_log_as_totals(tmp_path: Path) -> None:
    with Live(tmp_path, connections_per_network=2) as server:
        with all_closed([connected(server, "127.0.0.4") for _ in range(9)]) as held:
            assert all(answer(each).startswith(b"HTTP/1.1 503") for each in held[2:])
        server.stop()
        log = server.log.read_text()
    assert '"event": "refused", "what": "connections of one network", "number": 7' in log
    assert "127.0.0" not in log.replace("http://127.0.0.1", "")


# -- HTTP that is odd, answered alike for every address ------------------------------------------------

UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
SOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"


def odd(changed: dict[bytes, bytes], mechanism: str) -> Iterator[bytes]:
    """A look and an upload, with something changed."""
    look = HEALTH.replace(b"Connection: close\r\n", b"")
    for plain in (look, report(mechanism).replace(b"Connection: close\r\n", b"")):
        request = plain
        for old, new in changed.items():
            request = request.replace(old, new, 1)
        yield request


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({b"Host: x": b"Host: x"}, b"200"),
        ({b"Host: x\r\n": b"Host: x\r\n" + UPGRADE}, b"200"),
        ({b"Host: x\r\n": b"Host: x\r\n" + SOCKET}, b"200"),
        ({b"Host: x\r\n": b"Host: x\r\nHost: x\r\n"}, b"400"),
        ({b"Host: x\r\n": b"Host: x\r\nhOST: y\r\n"}, b"400"),
        ({b"Host: x\r\n": b""}, b"400"),
        ({b"HTTP/1.1": b"HTTP/1.0", b"Host: x\r\n": b""}, b"200"),
        ({b" HTTP/1.1": b""}, b"400"),
        ({b"HTTP/1.1": b"HTTP/0.9"}, b"400"),
        ({b"HTTP/1.1": b"HTTP/2.0"}, b"400"),
        ({b"/healthz": b"/%2Fhealthz", b"lyon/reports": b"lyon%2Freports"}, b"404"),
        ({b"/healthz": b"/%5chealthz", b"/api/campaigns": b"/api%2fcampaigns"}, b"404"),
        ({b"/healthz": b"//healthz", b"/api": b"//api"}, b"404"),
    ],
)  # fmt: skip
def test_odd_requests_are_answered_alike(
    crowded: Live, changed: dict[bytes, bytes], status: bytes
) -> None:
    for request in odd(changed, crowded.mechanism("lyon")["id"]):
        with connected(crowded) as connection:
            connection.sendall(request)
            if status != b"400" and b"1.0" not in request:  # and the connection goes on
                connection.sendall(HEALTH)
            found = answer(connection)
            assert found[9:12] == status, (request[:60], found[:200])
            if status in (b"400", b"404"):
                assert b"application/problem+json" in found
            if status != b"400" and b"1.0" not in request:
                assert found.count(b"HTTP/1.1 200") == 1 + (status == b"200")


def test_a_tunnel_is_not_dug(crowded: Live) -> None:
    tunnel = b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"
    assert asked(crowded, tunnel).startswith(b"HTTP/1.1 400")
    assert asked(crowded, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(b"HTTP/1.1 400")


# -- the whole crowd -----------------------------------------------------------------------------------


def resident_mib(server: Live) -> float:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024


@pytest.mark.slow
@pytest.mark.parametrize("addresses", [1, 200])
def test_thousands_of_slow_clients_take_no_more_than_their_share(
    tmp_path: Path, addresses: int
) -> None:
    """3,000 slow bodies, 5,000 connections that say nothing, listeners that never read."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 20_000:
        pytest.skip("needs more open files than this machine allows")
    resource.setrlimit(resource.RLIMIT_NOFILE, (20_000, hard))
    with Live(tmp_path) as server:
        server.campaign()
        mechanism, sent, served = server.mechanism("lyon")["id"], 0, 0
        held: list[socket.socket] = []

        def crowd(number: int, first: bytes) -> None:
            for n in range(number):
                with contextlib.suppress(OSError):
                    held.append(
                        connected(server, f"127.1.{n % addresses // 200}.{1 + n % addresses}")
                    )
                    held[-1].setblocking(False)
                    if first:
                        held[-1].send(first)

        with all_closed(held):
            for number, first in (
                (3_000, LINE + b"Content-Length: 262000\r\n\r\n" + b" " * 100_000),
                (5_000, b""),
                (300, LISTEN + SHORT * 9000),
                (300, LISTEN),
                (500, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 50),
            ):
                crowd(number, first)
                for _ in range(5):
                    sent += 1
                    served += asked(server, report(mechanism)).startswith(b"HTTP/1.1 200")
            peak_mib = resident_mib(server)
        sys.stdout.write(f"\n{addresses} addresses: {peak_mib:.0f} MiB\n")
        assert peak_mib <= 300
        assert served == sent
        server.stop()
        assert stored(server.database, "lyon").total() == served
