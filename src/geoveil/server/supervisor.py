"""Several server processes on one port: started together, started again when they die, stopped together."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from types import FrameType

from geoveil.server.settings import Settings
from geoveil.store.contract import StoreFailed

Child = Callable[[Settings, Callable[[], None]], None]
"""What a process does: serve by the settings, and call back once it listens."""
_LOOK_S = 0.2


class Supervisor:
    """Keeps ``settings.processes`` processes at work until a signal comes."""

    def __init__(self, settings: Settings, child: Child, *, stop_s: float) -> None:
        self._settings = settings
        self._child = child
        self._stop_s = stop_s
        self._context = multiprocessing.get_context("spawn")
        self._stopping = False

    def run(self, ready: Callable[[], None]) -> None:
        """Start all, say when all listen, replace those that die, and stop all in the end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        started = [self._start() for _ in range(self._settings.processes)]
        processes = [process for process, _ in started]
        try:
            for process, listening in started:
                self._await(process, listening)
            if not self._stopping:
                ready()
            self._keep(processes)
        finally:
            self._end(processes)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self) -> tuple[BaseProcess, Event]:
        listening = self._context.Event()
        process = self._context.Process(target=_live, args=(self._child, self._settings, listening))
        process.start()
        return process, listening

    def _await(self, process: BaseProcess, listening: Event) -> None:
        while not self._stopping and not listening.wait(_LOOK_S):
            if not process.is_alive():
                raise StoreFailed("a server process must start; its log says why it did not")

    def _keep(self, processes: list[BaseProcess]) -> None:
        while not self._stopping:
            dead = wait([process.sentinel for process in processes], _LOOK_S)
            for place, process in enumerate(processes):
                if process.sentinel in dead and not self._stopping:
                    process.join()
                    processes[place], _ = self._start()

    def _end(self, processes: list[BaseProcess]) -> None:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(self._stop_s)
            process.kill()
            process.join()


def _live(child: Child, settings: Settings, listening: Event) -> None:
    """The life of a process: it ends with its supervisor, however that ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    child(settings, listening.set)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
