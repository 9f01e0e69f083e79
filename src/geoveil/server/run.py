"""Running the service: from settings to a listening process, and back down without losing a report."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from urllib.parse import urlsplit

import uvicorn

from geoveil.errors import InvalidInput
from geoveil.server.app import Application
from geoveil.server.logs import Log, capture_libraries
from geoveil.server.protocol import protocol_with
from geoveil.server.service import Service
from geoveil.server.settings import Settings
from geoveil.server.supervisor import Supervisor
from geoveil.server.tokens import Tokens
from geoveil.store import Store, open_store

DRAIN_S = 5
"""Within this time after SIGTERM everything accepted is committed and answered."""
_WORKER_STOP_S = 2.0
_KEEP_ALIVE_S = 75
_BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Started:
    """What to tell the operator when the service listens."""

    url: str
    store: str
    token: str | None
    """The first token, shown this once; ``None`` where one exists already."""


Announce = Callable[[Started], None]


def serve(settings: Settings, announce: Announce) -> None:
    """Run until SIGTERM or SIGINT; returns when everything is drained and closed."""
    listener = bind(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    with listener:
        if settings.processes == 1:
            _serve_one(settings, listener, announce)
        else:  # the socket, which never listens, keeps the port for the processes
            _serve_several(settings, announce)


def _serve_several(settings: Settings, announce: Announce) -> None:
    store = open_store(settings.database)
    try:
        started = _started(settings, store)
    finally:
        store.close()
    Supervisor(settings, _child, stop_s=DRAIN_S).run(lambda: announce(started))


def bind(settings: Settings) -> socket.socket:
    """A socket on the address of the settings, or one sentence why not."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if settings.processes > 1:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise InvalidInput(
            f"address ({settings.host}:{settings.port}) must be free to listen on: {error.strerror}; "
            "choose another with --host and --port"
        ) from None
    return listener


def url_of(settings: Settings) -> str:
    """Where the service is, as seen from this machine."""
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(settings.host, settings.host)
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{settings.port}"


def describe(database: str, store: Store) -> str:
    """The engine of a store and where it is, without user and password.

    >>> from geoveil.store import MemoryStore
    >>> describe("postgresql://user:secret@db.example:5432/geoveil", MemoryStore())
    'memory at db.example:5432/geoveil'
    """
    address = urlsplit(database)
    place = address.netloc.rpartition("@")[2] + address.path
    return f"{store.engine} at {place.removeprefix('/')}" if place else store.engine


def _started(settings: Settings, store: Store) -> Started:
    """Keep the operator's token, or make the first one."""
    token = Tokens(store).prepare(settings.operator_token)
    return Started(settings.base_url or url_of(settings), describe(settings.database, store), token)


def _serve_one(settings: Settings, listener: socket.socket, announce: Announce) -> None:
    log = Log(settings.log_level)
    config = uvicorn.Config(
        never,
        loop="auto",
        http=protocol_with(settings.body_timeout_s),
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
    server = Server(config, settings, log, announce)
    server.run(sockets=[listener])


async def never(scope: object, receive: object, send: object) -> None:
    """Stands in the configuration until the server has made the application."""
    raise RuntimeError("the application is made when the server starts")


class Server(uvicorn.Server):
    """uvicorn's server around one service: made inside its loop, closed after its last answer."""

    def __init__(
        self, config: uvicorn.Config, settings: Settings, log: Log, announce: Announce
    ) -> None:
        super().__init__(config)
        self._settings = settings
        self._log = log
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the store, begin to look after rounds, listen, and say so."""
        store = await asyncio.to_thread(open_store, self._settings.database)
        started = await asyncio.to_thread(_started, self._settings, store)
        self._service = Service(
            store, self._settings, base_url=url_of(self._settings), log=self._log
        )
        self.config.loaded_app = Application(self._service)
        await self._service.start()
        await super().startup(sockets)
        self._log.event("started", store=started.store, port=self._settings.port)
        self._announce(started)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, answer what was accepted, drain the writer, close the store."""
        self._service.closing.set()
        await super().shutdown(sockets)
        await self._service.stop(_WORKER_STOP_S)
        self._log.event("stopped")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal ends the service in order; a second one at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


def _child(settings: Settings, ready: Callable[[], None]) -> None:
    _serve_one(settings, bind(settings), lambda _: ready())
