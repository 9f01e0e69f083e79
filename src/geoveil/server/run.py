"""The server process: protocol, supervision, start and stop."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from types import FrameType

import uvicorn

from geoveil.errors import InvalidInput
from geoveil.server.apart import start_deaf
from geoveil.server.app import Application, Service
from geoveil.server.connections import Protocol
from geoveil.server.logs import Log, capture_libraries
from geoveil.server.pages import are_built
from geoveil.server.settings import Settings, Tokens
from geoveil.server.trusted_clock import TrustedClock
from geoveil.store import Store, StoreFailed, open_store

DRAIN_S = 5
"""Within this time after SIGTERM everything accepted is committed and answered."""
_WORKER_STOP_S = 2.0
_KEEP_ALIVE_S = 75
_BACKLOG = 2048
_DOORS = 1 if sys.platform == "win32" else 16
"""So many new connections are taken in one turn of the event loop, which takes one at each socket: with one
door, whoever connects often and keeps the loop busy has others wait outside. Windows has another loop."""
_LOOK_S = 0.2
_YOUNG_S = 60.0
"""A process that ends sooner will hardly be the last: the next one in its place is waited with."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_SAID_WHY = 1
"""The exit status of a process whose own log says why it ended."""
_OTHER_FILES = 256


@dataclass(slots=True)
class _Pause:
    """Before the next process in the place of one: twice as long with each that ended young."""

    length_s: float = 0.0
    began_s: float = -math.inf
    """When the process was started that is in the place, or should have been."""
    over_s: float = math.inf
    """When the next one is due."""

    def begin(self) -> None:
        """From now on."""
        now_s = time.monotonic()
        young = now_s - self.began_s < _YOUNG_S
        longer_s = min(max(_FIRST_PAUSE_S, 2.0 * self.length_s), _LONGEST_PAUSE_S)
        self.length_s = longer_s if young else 0.0
        self.over_s = now_s + self.length_s

    def end(self) -> bool:
        """Whether it is over, so that a process is started now."""
        now_s = time.monotonic()
        over = now_s >= self.over_s
        if over:
            self.began_s, self.over_s = now_s, math.inf
        return over


class Supervisor:
    """Keeps ``settings.processes`` processes at work until a signal comes."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._settings, self._listener = settings, listener
        self._log = Log(settings.log_level)
        self._context = multiprocessing.get_context("spawn")
        self._stopping = False
        self._folder: Path | None = None
        self._started: list[tuple[BaseProcess, Event]] = []
        self._pauses: defaultdict[int, _Pause] = defaultdict(_Pause)

    def run(self, ready: Callable[[], None]) -> None:
        """Start all, say when all listen, replace those that die, and stop all in the end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        start_deaf(resource_tracker.ensure_running)  # beside Python's processes, to the end
        with suppress(OSError):  # where nothing can be written, each tells its own counts
            self._folder = Path(tempfile.mkdtemp(prefix="geoveil-metrics-"))
        self._started = [self._start(number) for number in range(self._settings.processes)]
        try:
            for process, listening in self._started:
                while not self._stopping and not listening.wait(_LOOK_S):
                    if not process.is_alive() and not self._stopping:
                        said = process.exitcode == _SAID_WHY
                        why = (
                            "its log says why it did not"
                            if said
                            else f"it ended with {process.exitcode}"
                        )
                        raise StoreFailed(f"a server process must start; {why}")
            if not self._stopping:
                ready()
            while not self._stopping:
                self._replace_dead()
        finally:
            self._listener.close()  # or connections would wait at it for nobody
            for process, _ in self._started:
                process.terminate()
            for process, _ in self._started:
                process.join(DRAIN_S)
                process.kill()
                process.join()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _replace_dead(self) -> None:
        there = {
            process.sentinel: place
            for place, (process, _) in enumerate(self._started)
            if self._pauses[place].over_s == math.inf
        }
        for sentinel in wait(there, _LOOK_S):
            place = there[sentinel]  # type: ignore[index]
            process, _ = self._started[place]
            if not self._stopping:
                process.join()
                if process.exitcode != _SAID_WHY:
                    self._log.event("process-failed", level="error", exit=process.exitcode)
                self._put_off(place)
        for place, pause in self._pauses.items():
            if not self._stopping and pause.end():
                try:
                    self._started[place] = self._start(place)
                except OSError as error:
                    # no memory for it, or no files: the others go on without it
                    self._log.fault("process-failed", error)
                    self._put_off(place)

    def _put_off(self, place: int) -> None:
        """Start the next process in a place at once, or after a pause that the log tells."""
        pause = self._pauses[place]
        pause.begin()
        if pause.length_s:
            self._log.event("process-waits", level="warning", seconds=pause.length_s)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """A signal ends all processes in order; a second one at once."""
        for process, _ in self._started if self._stopping else ():
            process.kill()
        self._stopping = True

    def _start(self, number: int) -> tuple[BaseProcess, Event]:
        """A process, and what says that it listens: it must be kept until then, or it is gone there too."""
        listening = self._context.Event()
        place = None if self._folder is None else self._folder / f"{number}.json"
        given = self._settings, self._listener, listening, place
        process = self._context.Process(target=_live, args=given)
        process.start()
        return process, listening


def _live(
    settings: Settings, listener: socket.socket, listening: Event, place: Path | None
) -> None:
    """The life of a process: it ends with its supervisor, however that ends."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            if place is not None:  # the supervisor was killed, and has left it
                shutil.rmtree(place.parent, ignore_errors=True)
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        _serve_one(settings, listener, lambda _: listening.set(), place)
    except Exception as error:  # in the log as any other, not in many lines
        Log(settings.log_level).fault("process-failed", error)
        sys.exit(_SAID_WHY)


# --- Running the service: from settings to a listening process, and back down without losing a report


@dataclass(frozen=True, slots=True)
class Started:
    """What to tell the operator when the service listens."""

    url: str
    store: str
    token: str | None
    """The first token, shown this once; ``None`` where one exists already."""
    pages: bool
    """Whether browsers get pages; without them links answer JSON."""


Announce = Callable[[Started], None]


def serve(settings: Settings, announce: Announce) -> None:
    """Run until SIGTERM or SIGINT; returns when everything is drained and closed."""
    listener = bind(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    with listener:
        if settings.processes == 1:
            _serve_one(settings, listener, announce)
        else:
            with closing(open_store(settings.database)) as store:
                started = _started(settings, store, Tokens(store).prepare(settings.operator_token))
            Supervisor(settings, listener).run(lambda: announce(started))


def bind(settings: Settings) -> socket.socket:
    """A socket that listens on the address of the settings, or one sentence why not.

    Connections wait at it until the service has started; from now on nobody else gets the port.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if sys.platform != "win32":  # where it would share the port with whoever has it
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except (OSError, TypeError) as error:  # of a host that can be no name
        listener.close()
        raise InvalidInput(
            f"address ({settings.host}:{settings.port}) must be free to listen on: "
            f"{getattr(error, 'strerror', error)}; "
            "choose another with --host and --port"
        ) from None
    return listener


def url_of(settings: Settings) -> str:
    """Where the service is, as seen from this machine."""
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(settings.host, settings.host)
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{settings.port}"


def _started(settings: Settings, store: Store, token: str | None) -> Started:
    url = (settings.base_url or url_of(settings)).rstrip("/")
    return Started(url, store.engine, token, are_built())


def _serve_one(
    settings: Settings, listener: socket.socket, announce: Announce, place: Path | None = None
) -> None:
    """``place`` is the file that one of several processes keeps its counts in."""
    log = Log(settings.log_level)
    settings = replace(settings, connections=_affordable(settings.connections, log))
    config = uvicorn.Config(
        never,
        loop="auto",
        http=type("Patient", (Protocol,), {"head_timeout_s": settings.body_timeout_s}),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S - 2,
    )
    capture_libraries(log)
    with ExitStack() as held:  # closed also where the start fails
        others = range(_DOORS // settings.processes - 1)  # or a burst would all be one process's
        doors = [listener, *(held.enter_context(listener.dup()) for _ in others)]
        Server(config, settings, log, announce, place).run(sockets=doors)


def _affordable(connections: int, log: Log) -> int:
    """As many connections as this process may have files for, where the system bounds them."""
    try:
        import resource
    except ModuleNotFoundError:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    affordable = min(connections, max(1, soft - _OTHER_FILES))
    if affordable < connections:
        log.event("few-files", level="warning", connections=affordable)
    return affordable


async def never(scope: object, receive: object, send: object) -> None:
    """Stands in the configuration until the server has made the application."""
    raise RuntimeError("the application is made when the server starts")


class Server(uvicorn.Server):
    """uvicorn's server around one service: made inside its loop, closed after its last answer."""

    def __init__(
        self,
        config: uvicorn.Config,
        settings: Settings,
        log: Log,
        announce: Announce,
        place: Path | None,
    ) -> None:
        super().__init__(config)
        self._settings, self._log = settings, log
        self._announce, self._place = announce, place

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the store, begin to look after rounds, listen, and say so."""
        store = await asyncio.to_thread(open_store, self._settings.database)
        token = None
        if self._settings.processes == 1:  # one of several may be new when tokens were taken back
            own_token = self._settings.operator_token
            token = await asyncio.to_thread(Tokens(store).prepare, own_token)
        started = _started(self._settings, store, token)
        seen_s = await asyncio.to_thread(store.time_kept)
        clock = await asyncio.to_thread(
            TrustedClock, seen_s=seen_s, shared=store.shared_time_s, tell=self._log.event
        )
        self._service = Service(
            store,
            self._settings,
            base_url=url_of(self._settings),
            log=self._log,
            clock=clock,
            place=self._place,
        )
        self.config.loaded_app = Application(self._service)
        self.config.http_protocol_class.places = self._service.places  # type: ignore[attr-defined]
        await self._service.start()
        await super().startup(sockets)
        self._log.event("started", store=started.store, port=self._settings.port)
        self._announce(started)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, answer what was accepted, drain the writer, close the store."""
        self._service.closing.set()
        for apart in self._service.calculators:
            apart.stop()  # whoever waits for an answer hears that there is none
        await super().shutdown(sockets)
        await self._service.stop(_WORKER_STOP_S)
        self._log.event("stopped")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal ends the service in order; a second one at once.

        One of several processes may hear the same signal from whoever sends it to all and from the
        supervisor, which says by itself when there was a second one.
        """
        self.force_exit = self.should_exit and self._settings.processes == 1
        self.should_exit = True
