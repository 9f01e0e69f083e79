"""Runs the tools of the TypeScript packages where Node is there, and says why where they cannot run.

``check`` and ``format`` are part of ``make check`` and ``make format``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SDK = Path(__file__).resolve().parent / "sdk"
OLDEST_NODE = (20, 19)
INSTALL_S = 240
RUN_S = 300
_SOON = ("--fetch-retries=0", "--fetch-timeout=30000")
"""Where no registry is in reach, npm says so within seconds instead of minutes."""


TASKS = {
    "check": (("tsc", "--noEmit"), ("prettier", "--check", ".")),
    "format": (("prettier", "--write", "."),),
}


class Unavailable(Exception):
    """The tools cannot run on this machine; the message says why."""


def node_version() -> tuple[int, int]:
    """The version of the installed Node; (0, 0) where there is none."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return 0, 0
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def prepare() -> None:
    """Install what the tools need, once for every lock; :class:`Unavailable` where that fails."""
    oldest = ".".join(map(str, OLDEST_NODE))
    if node_version() < OLDEST_NODE:
        raise Unavailable(f"Node {oldest} or newer with npm is not installed")
    wanted = b"".join((SDK / name).read_bytes() for name in ("package.json", "package-lock.json"))
    mark, lock = SDK / "node_modules" / ".installed", hashlib.sha256(wanted).hexdigest()
    if mark.is_file() and mark.read_text(encoding="utf-8") == lock:
        return
    install = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", *_SOON]
    try:
        done = _run(install, INSTALL_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm did not install its packages within {INSTALL_S} s") from None
    if done.returncode:
        raise Unavailable("npm could not install its packages (no registry in reach?)")
    mark.write_text(lock, encoding="utf-8")


def run(tool: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A tool that :func:`prepare` installed, with what it printed."""
    return _run([str(SDK / "node_modules" / ".bin" / tool), *arguments], RUN_S, **environment)


def _run(
    command: list[str], timeout_s: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    program = shutil.which(command[0]) or command[0]
    return subprocess.run(
        [program, *command[1:]],
        cwd=SDK,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=timeout_s,
        check=False,
    )


def main(task: str) -> int:
    """``check``: types and formatting of ``web/sdk``; ``format``: format it. Left out where Node is not."""
    if task not in TASKS:
        sys.stderr.write(f"usage: python web/node_tools.py {' | '.join(TASKS)}\n")
        return 2
    try:
        prepare()
    except Unavailable as reason:
        sys.stdout.write(f"web/sdk: {task} left out: {reason}\n")
        return 0
    for command in TASKS[task]:
        done = run(*command)
        sys.stdout.write(done.stdout if done.returncode else f"web/sdk: {command[0]} is content\n")
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
