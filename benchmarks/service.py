"""How fast the service stores reports, and what it does when there are too many: promises 6 to 11.

Run ``python benchmarks/service.py [PART…] [--seconds N]`` in the folder of the repository; parts are
yardsticks, single, batch, steady, overload and recovery, on SQLite and on a throw-away PostgreSQL; soak
(an hour: ``--seconds 3600``) and faults (``--seconds 900``) run only when they are named.
Server and load share the machine. Each line printed is a row of the table in docs/promises.md; every run
compares what was acknowledged with what was counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import apsw

from benchmarks.load import Connection, LoadResult, Plan, run_load
from databases import cluster
from server.faults import WITHIN_S, Faults
from server.live import Live

STORED = 1_000_000
CAMPAIGN = {"round_size": None, "minimum_reports": 1000, "cell_km": 0.5}
Row = tuple[str, str, str, str]


@contextmanager
def serving(kind: str, **settings: object) -> Iterator[Live]:
    """A server with one campaign over a fresh database."""
    with tempfile.TemporaryDirectory() as folder:
        database = cluster().database() if kind == "PostgreSQL" else None
        with Live(Path(folder), database, **settings) as live:
            live.campaign(**CAMPAIGN)
            yield live


def load(live: Live, **plan: object) -> LoadResult:
    """Run a plan against the campaign."""
    return run_load(f"{live.url}/c/lyon", Plan(**plan), max_epsilon_per_km=10.0)  # type: ignore[arg-type]


def counted(live: Live) -> int:
    """How many reports the server has counted."""
    with live.client() as client:
        return int(client.get("/api/campaigns/lyon").json()["reports_counted"]["all"])


def verdict(met: bool) -> str:
    """Whether a line is met, in a word."""
    return "met" if met else "MISSED"


def kept(live: Live, *results: LoadResult) -> str:
    """Whether every acknowledged report is counted, in words."""
    acknowledged = sum(result.counted for result in results)
    unsure = sum(result.unknown for result in results)
    found = counted(live)
    assert found >= acknowledged, f"{acknowledged - found} acknowledged reports are lost"
    return f"{acknowledged:,} acknowledged, {found:,} counted, {unsure} unknown"


def single(kind: str, seconds: float) -> Iterator[Row]:
    """One report a request, each connection waiting for its answer."""
    line = 5000 if kind == "SQLite" else 3500
    with serving(kind) as live:
        load(live, seconds=2, connections=128)
        before = counted(live)
        result = load(live, seconds=seconds, connections=128)
        assert counted(live) - before >= result.counted
    pace, late = result.reports_per_s, 1000 * result.latency_s(99)
    yield (
        f"6 single uploads, {kind}",
        f"{pace:,.0f}/s, p50 {1000 * result.latency_s(50):.1f} ms, p99 {late:.1f} ms",
        f"≥ {line:,}/s, p99 ≤ 60 ms",
        verdict(pace >= line and late <= 60),
    )


def batch(kind: str, seconds: float) -> Iterator[Row]:
    """Many reports a request."""
    line = 20_000 if kind == "SQLite" else 15_000
    with serving(kind) as live:
        result = load(live, seconds=seconds, connections=16, batch=100)
        kept(live, result)
    yield (
        f"7 batches of 100, {kind}",
        f"{result.reports_per_s:,.0f}/s",
        f"≥ {line:,}/s",
        verdict(result.reports_per_s >= line),
    )


def steady(kind: str, seconds: float) -> Iterator[Row]:
    """Requests at a fixed rate, whether answered or not."""
    with serving(kind) as live:
        result = load(live, seconds=seconds, connections=64, rate_per_s=1000.0)
        kept(live, result)
    half, late = (1000 * result.latency_s(p) for p in (50, 99))
    errors = result.refused + result.shed + result.unknown
    yield (
        f"8 open loop of 1,000/s for {seconds:g} s, {kind}",
        f"p50 {half:.1f} ms, p99 {late:.1f} ms, {errors} errors",
        "p50 ≤ 8 ms, p99 ≤ 40 ms, 0 errors",
        verdict(half <= 8 and late <= 40 and errors == 0),
    )


def overload(kind: str, seconds: float) -> Iterator[Row]:
    """More than the server can store: some is refused, nothing is lost."""
    with serving(kind) as live:
        able = load(live, seconds=4, connections=16, batch=100)
        rate = 3 * able.reports_per_s / 100
        pressed = load(live, seconds=seconds, connections=512, batch=100, rate_per_s=rate)
        ended = time.perf_counter()
        calm = load(live, seconds=3, connections=16, rate_per_s=200.0)
        normal_s = time.perf_counter() - ended - 3
        memory = _peak_mib(live)
        accounts = kept(live, able, pressed, calm)
    strange = set(pressed.statuses) - {200, 429, 503}
    sound = not strange and calm.shed == 0 and memory <= 300 and normal_s <= 5
    yield (
        f"9 three times the capacity for {seconds:g} s, {kind}",
        ", ".join(
            [
                f"{pressed.shed:,} requests shed",
                f"other answers: {sorted(strange) or 'none'}",
                f"{memory:.0f} MiB",
                f"{calm.shed} shed afterwards",
                accounts,
            ]
        ),
        "only 429/503, 0 lost, ≤ 300 MiB",
        verdict(sound),
    )


def _peak_mib(live: Live) -> float:
    assert live.process is not None
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def recovery(kind: str, seconds: float) -> Iterator[Row]:
    """Ended in order and killed, under load, with many ids stored."""
    with serving(kind) as live:
        while counted(live) < STORED:
            load(live, seconds=20, connections=16, batch=500)
        stored = counted(live)
        drained_s, ready_s = [], []
        for number in (signal.SIGTERM, signal.SIGKILL):
            worker = threading.Thread(
                target=load, args=(live,), kwargs={"seconds": 4, "connections": 64}
            )
            worker.start()
            time.sleep(2)
            before = counted(live)
            drained_s.append(live.stop(number))
            began = time.perf_counter()
            live.start()
            with live.client() as client:
                while client.get("/readyz").status_code != 200:
                    time.sleep(0.01)
            ready_s.append(time.perf_counter() - began)
            worker.join()
            assert counted(live) >= before
    yield (
        f"10 ended under load with {stored:,} stored ids, {kind}",
        f"drained in {drained_s[0]:.1f} s, ready in {ready_s[0]:.1f} s; killed: {ready_s[1]:.1f} s",
        "drained ≤ 5 s, ready ≤ 3 s",
        verdict(drained_s[0] <= 5 and max(ready_s) <= 3),
    )


def yardsticks(seconds: float) -> Iterator[Row]:
    """What the machine can do without us: a server that stores nothing, a disk without group commit."""
    with tempfile.TemporaryDirectory() as folder:
        database = apsw.Connection(f"{folder}/bare.db")
        for setting in ("journal_mode=WAL", "synchronous=FULL"):
            list(database.execute(f"PRAGMA {setting}"))
        database.execute("CREATE TABLE t (id BLOB)")
        began, commits = time.perf_counter(), 0
        while time.perf_counter() < began + min(seconds, 5):
            database.execute("INSERT INTO t VALUES (?)", (os.urandom(16),))
            commits += 1
        pace = commits / (time.perf_counter() - began)
        database.close()
    yield ("yardstick: SQLite, one durable row a commit", f"{pace:,.0f}/s", "", "")
    with serving("SQLite") as live:
        result = _healthz(live, min(seconds, 5))
    yield (
        "yardstick: the same server answering /healthz, 128 connections",
        f"{result:,.0f}/s",
        "",
        "",
    )


def _healthz(live: Live, seconds: float) -> float:
    import asyncio

    import uvloop

    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def hammer() -> int:
        loop, answered = asyncio.get_running_loop(), 0
        ends = time.perf_counter() + seconds

        def again(connection: Connection) -> None:
            def done(status: int, body: bytes) -> None:
                nonlocal answered
                answered += 1
                if connection.open and time.perf_counter() < ends:
                    connection.send(request, done)

            connection.send(request, done)

        for _ in range(128):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", live.port)
            again(connection)
        await asyncio.sleep(seconds)
        return answered

    return uvloop.run(hammer()) / seconds


def soak(kind: str, seconds: float) -> Iterator[Row]:
    """Reports at a steady rate, a roll-over each minute with its estimate: nothing may grow.

    Some reports come before, so that the database fills the cache of its writer and stays larger than it.
    """
    with serving(kind) as live:
        results = [load(live, seconds=30, connections=16, batch=500)]
        worker = threading.Thread(
            target=lambda: results.append(
                load(live, seconds=seconds, connections=16, rate_per_s=300.0)
            )
        )
        worker.start()
        seen = []
        while worker.is_alive():
            worker.join(min(60.0, seconds / 5))
            with live.operator() as operator:
                operator.post("/api/campaigns/lyon/rounds")
            seen.append(_size(live))
        with live.client() as client:
            closed = client.get("/api/campaigns/lyon").json()["rounds_closed"]
        accounts = kept(live, *results)
    errors = sum(result.refused + result.shed + result.unknown for result in results)
    half = seen[len(seen) // 2]
    grown = seen[-1][0] - half[0]
    yield (
        f"11 soak of {seconds / 60:g} min, {closed} rounds, {kind}",
        "; ".join(
            [
                f"{errors} errors, {accounts}",
                f"{half[0]:.0f} MiB and {half[1]} files half-way",
                f"{seen[-1][0]:.0f} MiB and {seen[-1][1]} files at the end",
                f"log {seen[-1][2]:.0f} MiB",
            ]
        ),
        "0 errors, memory, files and log flat",
        verdict(errors == 0 and grown < 10 and seen[-1][1] <= half[1] + 2),
    )


def _size(live: Live) -> tuple[float, int, float]:
    """Resident memory in MiB, open files, and MiB of SQLite's log."""
    assert live.process is not None
    folder = Path(f"/proc/{live.process.pid}")
    status = (folder / "status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    log = live.folder / "geoveil.db-wal"
    size = log.stat().st_size if log.exists() else 0
    return int(resident.split()[1]) / 1024, len(list((folder / "fd").iterdir())), size / 2**20


def faults(kind: str, seconds: float) -> Iterator[Row]:
    """Kills, stops, partitions, a full disk, wrong clocks and slow clients, while reports go on."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Faults(kind.lower().removesuffix("ql"), Path(folder)).running() as run,
    ):
        run.run(seconds)
        differs = run.difference().total()
        happened = ", ".join(f"{number} × {name}" for name, number in sorted(run.happened.items()))
        longest_s = max(run.longest_s.values())
        measured = (
            f"{run.acknowledged():,} acknowledged, {differs} lost or doubled,"
            f" a device reports again after {longest_s:.0f} s at most"
        )
        yield (
            f"1, 12, 33, 34 faults for {seconds / 60:g} min, {kind}: {happened}",
            measured,
            f"0 lost or doubled, ≤ {WITHIN_S:.0f} s",
            verdict(differs == 0 and longest_s <= WITHIN_S),
        )


PARTS: dict[str, Callable[[str, float], Iterator[Row]]] = {
    "single": single,
    "batch": batch,
    "steady": steady,
    "overload": overload,
    "recovery": recovery,
}
"""What a run without names measures."""
LONG = {"soak": soak, "faults": faults}


def main() -> None:
    """Print the rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kinds", nargs="*", default=["SQLite", "PostgreSQL"])
    given = parser.parse_args()
    if unknown := set(given.parts) - {"yardsticks", *PARTS, *LONG}:
        parser.error(f"PART ({unknown.pop()}) must be one of yardsticks, {', '.join(PARTS | LONG)}")
    print("| promise | measured | line | |\n|---|---|---|---|")
    for part in given.parts or ["yardsticks", *PARTS]:
        for kind in [""] if part == "yardsticks" else given.kinds:
            rows = (PARTS | LONG)[part](kind, given.seconds) if kind else yardsticks(given.seconds)
            for row in rows:
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
