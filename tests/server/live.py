"""Real servers for tests: ``geoveil serve`` as a process of its own on a free loopback port.

Most are copies of one process that has loaded everything, which no server needs to do again.
"""

from __future__ import annotations

import atexit
import base64
import gc
import json
import multiprocessing
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import msgspec

from geoveil.server.campaigns import Campaigns
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.store import open_store

TOKEN = "a-token-for-tests-only"
_TESTS = str(Path(__file__).resolve().parents[1])
HANG_S = 180
"""Nothing here may take so long; figures are printed, not asserted."""
LYON: dict[str, Any] = {
    "name": "Lyon",
    "id": "lyon",
    "box": [45.72, 4.80, 45.78, 4.88],
    "cell_km": 1.0,
    "epsilon_per_km": 1.0,
    "camouflage": 0.5,
    "minimum_reports": 50,
}


def new_id() -> str:
    """The id of a report."""
    return secrets.token_hex(16)


def cells_of(mechanism: dict[str, Any]) -> int:
    """How many different reports a document as JSON has."""
    return len(base64.b64decode(mechanism["weights"])) // 4


_PROGRAM = ["-m", "geoveil"]


class Live:
    """A server that can be started, stopped and killed, again and again, over one database."""

    def __init__(self, folder: Path, database: str | None = None, **settings: Any) -> None:
        self.folder = folder
        self.database = database or f"sqlite:///{folder / 'geoveil.db'}"
        self.settings = {"requests_per_minute": 0, "reports_per_minute": 0, **settings}
        self.log = folder / "server.log"
        self.port = 0
        self.token = TOKEN
        self.program: list[str] = []
        """What Python runs in the place of a copy."""
        self.printed = ""
        self.process: subprocess.Popen[str] | Copy | None = None

    @classmethod
    def whole(cls, folder: Path) -> Live:
        """Begins as it does for operators, with nothing loaded: where the start itself is looked at."""
        server = cls(folder)
        server.program = _PROGRAM
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Live:
        """Start and wait until it listens; the port stays the same over restarts."""
        flags = [
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
            for name, value in self.settings.items()
        ]
        words = ["serve", "--json", f"--port={self.port}", *flags]
        environment = {name: text for name, text in os.environ.items() if "GEOVEIL_" not in name}
        environment |= {"GEOVEIL_DATABASE": self.database, "GEOVEIL_OPERATOR_TOKEN": self.token}
        with self.log.open("a") as errors:
            if self.program or sys.platform != "linux":
                self.process = subprocess.Popen(
                    [sys.executable, *(self.program or _PROGRAM), *words],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=self.folder,
                )
            else:
                self.process = _copies().start(words, environment, self.folder, errors.fileno())
        self.printed = self._announcement()
        self.port = int(json.loads(self.printed)["url"].rpartition(":")[2])
        return self

    def _announcement(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.rstrip() == "}":
                return "".join(lines)
        self.process.stdout.close()
        self.process.wait(HANG_S)
        self.process = None
        raise AssertionError(f"the server did not start:\n{self.log.read_text()}")

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Send a signal and wait for the end; how long that took."""
        assert self.process is not None
        began = time.perf_counter()
        self.process.send_signal(number)
        self.process.wait(HANG_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.code, self.process = self.process.returncode, None
        return time.perf_counter() - began

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def __enter__(self) -> Live:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()

    def client(self, **options: Any) -> httpx.Client:
        """One that reads no certificates, which takes longer than most answers: there is no TLS here."""
        options |= {"trust_env": False, "verify": False}
        return httpx.Client(base_url=self.url, timeout=HANG_S, **options)

    def operator(self) -> httpx.Client:
        return self.client(headers={"Authorization": f"Bearer {self.token}"})

    def campaign(self, **changes: Any) -> str:
        """Make a campaign; its id."""
        with self.operator() as operator:
            answer = operator.post("/api/campaigns", json=LYON | changes)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def kept_campaign(self, **changes: Any) -> str:
        """Put a campaign into the store as another process of the service would; its id.

        The same one is designed once in this process, and in the server it would take a second each time.
        """
        with closing(open_store(self.database)) as store:
            return Campaigns(store).create(msgspec.convert(LYON | changes, CampaignSettings)).id

    def mechanism(self, campaign: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.get(f"/api/campaigns/{campaign}/mechanism").json())


# --- Copies of a process: to load the service takes a second of the processor, and to fork nearly nothing


class Copy:
    """A copy that became ``geoveil``, or the process that one works in apart."""

    def __init__(self, told: int) -> None:
        self.sentinel = told
        """Can be read when it has ended."""
        self.pid = self._number()
        self.returncode: int | None = None
        self.stdout: Any = None

    def _number(self) -> int:
        return int.from_bytes(os.read(self.sentinel, 8), "big")

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout_s: float) -> int:
        if self.returncode is None:
            if not select.select([self.sentinel], [], [], timeout_s)[0]:
                raise subprocess.TimeoutExpired("geoveil", timeout_s)
            self.returncode = os.waitstatus_to_exitcode(self._number())
            os.close(self.sentinel)
        return self.returncode

    def join(self) -> None:
        self.wait(HANG_S)


class Copies:
    """The process that copies are made of; it ends with the first that asked it."""

    def __init__(self, asking: socket.socket | None = None) -> None:
        self._asking = asking or self._begun()

    def _begun(self) -> socket.socket:
        asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = "import sys; from server.live import become_copy; become_copy(int(sys.argv[1]))"
        path = os.pathsep.join(filter(None, (_TESTS, os.environ.get("PYTHONPATH"))))
        with asked:
            process = subprocess.Popen(
                [sys.executable, "-c", code, str(asked.fileno())],
                env=os.environ | {"PYTHONPATH": path},
                pass_fds=[asked.fileno()],
            )

        def end() -> None:
            with asking, suppress(BrokenPipeError):
                asking.send(b"")
            process.wait(HANG_S)

        atexit.register(end)
        return asking

    def _copy(self, message: Any, *files: int) -> Copy:
        told, telling = os.pipe()
        sent = [telling, self._asking.fileno(), *files]
        socket.send_fds(self._asking, [json.dumps(message).encode()], sent)
        os.close(telling)
        return Copy(told)

    def start(
        self, words: list[str], environment: dict[str, str], folder: Path, errors: int
    ) -> Copy:
        """``geoveil`` with these words."""
        import resource

        printed, printing = os.pipe()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        copy = self._copy([words, environment, str(folder), limits], printing, errors)
        os.close(printing)
        copy.stdout = os.fdopen(printed)
        return copy

    # What ``geoveil.server.apart`` needs of multiprocessing

    Pipe = staticmethod(multiprocessing.Pipe)

    def get_context(self, _: str) -> Copies:
        return self

    def Process(self, *, args: tuple[Connection], **_: Any) -> _Apart:
        return _Apart(lambda: self._copy(None, args[0].fileno()))


class _Apart:
    """A process of :class:`geoveil.server.apart.ProcessApart`."""

    def __init__(self, start: Callable[[], Copy]) -> None:
        self._start = start

    def start(self) -> None:
        copy = self._start()
        self.pid, self.sentinel, self.kill, self.join = (
            copy.pid,
            copy.sentinel,
            copy.kill,
            copy.join,
        )


@cache
def _copies() -> Copies:
    return Copies()


def become_copy(asked: int) -> None:
    """Load all that a server does, then copy this process as often as asked."""
    import resource

    import scipy.fft
    import scipy.linalg
    import scipy.optimize
    import scipy.special  # noqa: F401
    import uvicorn.lifespan.on
    import uvicorn.loops.auto  # noqa: F401

    from geoveil.cli import main, serve  # noqa: F401
    from geoveil.server import apart, round_documents, run  # noqa: F401

    own = msgspec.convert(LYON, CampaignSettings)
    round_documents.first_documents(own, "lyon", int(time.time()))  # which most of them begin with
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    assert len(list(Path("/proc/self/task").iterdir())) == 1  # a copy would have one alone
    gc.freeze()  # or every copy would look for garbage among all that was loaded
    with socket.socket(fileno=asked) as asking:
        while True:
            message, files, _, _ = socket.recv_fds(asking, 2**20, 4)
            if not message:
                return
            if not os.fork():
                break
            for each in files:
                os.close(each)
            with suppress(ChildProcessError):  # what ended counts as time of this process
                while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
                    pass
    _tell_life(*files)
    telling, again, *files = files
    os.close(telling)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.path.remove(_TESTS)
    if (given := json.loads(message)) is None:
        os.close(again)
        apart._serve(Connection(files[0]))
        return
    for number, each in enumerate(files, 1):
        os.dup2(each, number)
        os.close(each)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)
    sys.argv[1:], environment, folder, limits = given
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(limits))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    apart.multiprocessing = Copies(socket.socket(fileno=again))
    main()


def _tell_life(telling: int, *others: int) -> None:
    """Fork once more: the child goes on, and its parent tells its number and how it ended."""
    number = os.fork()
    if number:
        for each in others:
            os.close(each)
        os.write(telling, number.to_bytes(8, "big"))
        os.write(telling, os.waitpid(number, 0)[1].to_bytes(8, "big"))
        os._exit(0)
