"""Work outside the server process: a process of its own, that may die or be stopped at any moment."""

from __future__ import annotations

import asyncio
import atexit
import math
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

from geoveil.errors import GeoveilError
from geoveil.server.logs import Trace, trace_of
from geoveil.store import Overloaded

P = ParamSpec("P")
T = TypeVar("T")
_NICE = 10
_HANGUP = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
SENT_TO_ALL = (signal.SIGINT, signal.SIGTERM, *_HANGUP)
"""What a terminal or systemd sends to all processes of the service."""


class EstimatorLost(Overloaded):
    """The process ended before it had answered, and was told to, or took too long."""


class EstimatorLate(EstimatorLost):
    """The process was stopped because it took too long."""


class CalculationFailed(GeoveilError):
    """What was asked of a process ended in an error that nobody foresaw; ``trace`` says where."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(f"the calculation failed with {trace.kind}")
        self.trace = trace


class ProcessApart:
    """A process at a low priority, started when it is first needed and again when it has died.

    Both ends of the pipe are ours alone: when the server is killed, the process reads its end and exits.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self.over = False
        """Whether it was told to end for good."""
        atexit.register(self.stop)

    @property
    def pid(self) -> int | None:
        """The number of the process; ``None`` where there is none."""
        process = self._process
        return None if process is None else process.pid

    def stop(self) -> None:
        """End the process whatever it is doing, and start no other; from any thread."""
        with self._lock:
            self.over = True
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
            if self.over:
                raise EstimatorLost("the service is stopping")
            if self._process is None or self._pipe is None:
                spawn = multiprocessing.get_context("spawn")
                ours, theirs = spawn.Pipe()
                process = spawn.Process(
                    target=_serve, args=(theirs,), name="geoveil-apart", daemon=True
                )
                try:
                    _start_blocked(process.start)
                except OSError:  # no memory or no files for another: the next call tries again
                    ours.close()
                    raise
                finally:
                    theirs.close()
                self._process, self._pipe = process, ours
            return self._process, self._pipe

    def answers(
        self,
        until_s: float,
        call: Callable[..., Any],
        *arguments: Any,
        keep: Callable[[], None] = lambda: None,
        keep_every_s: float = math.inf,
    ) -> Iterator[Any]:
        """What ``call(send, *arguments)`` sends and returns in the process, as it comes, until a moment.

        ``keep`` is called again and again meanwhile. ``CalculationFailed``, ``EstimatorLost`` or
        ``EstimatorLate`` where no more answers come; a process that still works is then ended.
        """
        try:
            process, pipe = self._started()
            pipe.send((call, arguments))
            while (left_s := until_s - time.monotonic()) > 0:
                if not wait([pipe, process.sentinel], min(keep_every_s, left_s)):
                    keep()
                    continue
                answer = pipe.recv()
                if isinstance(answer, Trace):
                    raise CalculationFailed(answer)
                yield answer
            raise EstimatorLate("it takes too long; ask for less")
        except (CalculationFailed, GeneratorExit):
            raise
        except BaseException as error:
            self.close()  # or it would answer a question that nobody asks any more
            if isinstance(error, (EOFError, OSError)):
                raise EstimatorLost("the calculation was ended; try again later") from None
            raise


def _serve(pipe: Connection) -> None:
    """The life of the process: calls in, answers (or the trace of what was raised) out."""
    for number in SENT_TO_ALL:
        signal.signal(number, signal.SIG_IGN)  # the server says when to stop
    with suppress(AttributeError, OSError):
        os.nice(_NICE)
    warnings.simplefilter("ignore")  # they would stand between the lines of the log
    while True:
        try:
            call, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        with suppress(OSError):  # nobody listens any more
            try:
                pipe.send(call(pipe.send, *arguments))
            except Exception as problem:
                pipe.send(trace_of(problem))


def _start_blocked(start: Callable[[], None]) -> None:
    """Start a process in which signals wait until it ignores them, about a second later; from any thread."""
    if not hasattr(signal, "pthread_sigmask"):
        return start()
    resource_tracker.ensure_running()  # when it starts, it lets signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SENT_TO_ALL)
    try:
        start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_deaf(start: Callable[[], None]) -> None:
    """Start something that hears no terminal that is closed, as it hears no Ctrl-C."""
    handlers = [(number, signal.signal(number, signal.SIG_IGN)) for number in _HANGUP]
    try:
        start()
    finally:
        for number, before in handlers:
            signal.signal(number, before)


@asynccontextmanager
async def in_turn(turns: asyncio.Lock, limit_s: float) -> AsyncIterator[None]:
    """One after another, each on the event loop until then, where it holds no thread.

    ``Overloaded`` where that takes longer.
    """
    try:
        async with asyncio.timeout(limit_s):
            await turns.acquire()
    except TimeoutError:
        raise Overloaded("others are being answered; try again later") from None
    try:
        yield
    finally:
        turns.release()


class Calculator(ProcessApart):
    """Answers questions one after another, each within a time; whoever asks has waited :func:`in_turn`.

    Where not ``lasting``, the process ends with each answer, and with it the memory that it took.
    """

    def __init__(self, *, lasting: bool = True) -> None:
        super().__init__()
        self._turn = Lock()
        self._lasting = lasting

    def end(self) -> None:
        """End whatever is asked, and answer nothing more."""
        self.stop()
        with self._turn:
            self.close()

    def answer(
        self,
        limit_s: float,
        call: Callable[Concatenate[Callable[[Any], None], P], T],
        *arguments: P.args,
        **none: P.kwargs,
    ) -> T:
        """What ``call(send, *arguments)`` returns in the process; raises as :meth:`answers` does."""
        with self._turn:
            try:
                answer: T = next(self.answers(time.monotonic() + limit_s, call, *arguments))
                return answer
            finally:
                if not self._lasting:
                    self.close()
