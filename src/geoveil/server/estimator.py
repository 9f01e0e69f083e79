"""A process that estimates: closings in, conclusions out.

It is spawned, so that NumPy never holds up the server, and runs at a low priority. It knows no store:
it is sent a closing and answers with its conclusion, which is the same however often it is made.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Lock

from geoveil.errors import GeoveilError
from geoveil.server.logs import Trace, trace_of
from geoveil.server.rounds import Conclusion, Work, conclude

KEEP_EVERY_S = 20.0
"""Between two signs of life while a closing is worked on."""
_NICE = 10


class EstimatorLost(GeoveilError):
    """The process died, or was stopped because it took too long."""


class EstimatorFailed(GeoveilError):
    """The process could not make an estimate of these counts; ``trace`` says what was raised there."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(f"the estimate failed with {trace.kind}")
        self.trace = trace


class Estimator:
    """A process that concludes closings, started when it is first needed and again when it has died.

    Both ends of the pipe are ours alone: when the server is killed, the process reads its end and exits.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._over = False

    @property
    def pid(self) -> int | None:
        """The number of the process; ``None`` where there is none."""
        process = self._process
        return None if process is None else process.pid

    def conclude(
        self,
        work: Work,
        *,
        limit_s: float,
        keep: Callable[[], None] = lambda: None,
        keep_every_s: float = KEEP_EVERY_S,
    ) -> Conclusion:
        """What :func:`geoveil.server.rounds.conclude` answers, from the process.

        ``keep`` is called again and again meanwhile; where it raises, the process is stopped.
        """
        process, pipe = self._started()
        until = time.monotonic() + limit_s
        try:
            pipe.send(work)
            while not wait([pipe, process.sentinel], min(keep_every_s, until - time.monotonic())):
                if time.monotonic() >= until:
                    break
                keep()
            answer: Conclusion | Trace | None = pipe.recv() if pipe.poll() else None
        except (EOFError, OSError):
            answer = None
        except Exception:
            self.close()  # or it would answer a question that nobody asks any more
            raise
        if answer is None:
            self.close()
            raise EstimatorLost("the process that estimates must live until it has answered")
        if isinstance(answer, Trace):
            raise EstimatorFailed(answer)
        return answer

    def stop(self) -> None:
        """End the process whatever it is doing, and start no other; from any thread."""
        with self._lock:
            self._over = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """End the process and let go of it; from the thread that asks it, or when none does."""
        with self._lock:
            process, pipe = self._process, self._pipe
            self._process = self._pipe = None
        if process is not None and pipe is not None:
            process.kill()
            process.join()
            pipe.close()

    def _started(self) -> tuple[BaseProcess, Connection]:
        with self._lock:
            if self._over:
                raise EstimatorLost("an estimator that was stopped must not be asked again")
            if self._process is None or self._pipe is None:
                spawn = multiprocessing.get_context("spawn")
                self._pipe, theirs = spawn.Pipe()
                self._process = spawn.Process(
                    target=_serve, args=(theirs,), name="geoveil-estimator", daemon=True
                )
                self._process.start()
                theirs.close()
            return self._process, self._pipe


def _serve(pipe: Connection) -> None:
    """The life of the process: closings in, conclusions (or the trace of what was raised) out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server says when to stop
    with suppress(AttributeError, OSError):
        os.nice(_NICE)
    while True:
        try:
            work = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Conclusion | Trace = conclude(work)
        except Exception as problem:
            answer = trace_of(problem)
        with suppress(OSError):
            pipe.send(answer)
