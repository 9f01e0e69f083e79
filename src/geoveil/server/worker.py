"""Estimates outside the request path: a process that estimates, a thread that feeds it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Event, Lock, Thread

from geoveil.errors import GeoveilError
from geoveil.server.campaigns import Campaigns
from geoveil.server.conclusion import Conclusion, Work, conclude
from geoveil.server.logs import Trace, trace_of
from geoveil.server.trusted_clock import uptime_s
from geoveil.store import ClosingRecord, StoreFailed

KEEP_EVERY_S = 20.0
"""Between two signs of life while a closing is worked on."""
CLAIM_S = 60
"""How long a closing is ours after the last sign of life; then another server process may take it."""
LIMIT_S = 600.0
"""How long an estimate may take before its process is stopped."""
LONGEST_WAIT_S = 300.0
"""Between two attempts at the same closing."""
ELSEWHERE_S = 5.0
"""Before a closing that another process has is looked at again."""
_DOUBT_S = 1.0
_NICE = 10


class EstimatorLost(GeoveilError):
    """The process died, or was stopped because it took too long."""


class EstimatorFailed(GeoveilError):
    """The process could not make an estimate of these counts; ``trace`` says what was raised there."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(f"the estimate failed with {trace.kind}")
        self.trace = trace


_FAULTS: dict[type[Exception], str] = {
    EstimatorFailed: "estimate-failed",
    EstimatorLost: "estimator-lost",
}


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
        """What :func:`geoveil.server.conclusion.conclude` answers, from the process.

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


class WorkedElsewhere(GeoveilError):
    """Another server process has this closing."""


@dataclass(slots=True)
class _Attempts:
    """Where the work on one closing stands."""

    queued: bool = False
    failures: int = 0
    not_before_s: float = 0.0
    """By the uptime, which no clock moves."""
    claimed_until_s: int = 0
    """By the campaigns' clock."""


class Worker:
    """Works on closings one after another and publishes what they lead to.

    ``submit`` what ``Campaigns.tick`` returns, as often as it returns it: what waits, runs or failed a
    moment ago is not taken twice. ``event`` is told "estimate-made"; ``fault`` is told
    "estimate-failed", "estimator-lost" or "estimate-not-kept", and the trace of what was raised: no
    counts, no cells.
    """

    def __init__(
        self,
        campaigns: Campaigns,
        *,
        event: Callable[[str], None],
        fault: Callable[[str, Trace], None],
        estimator: Estimator | None = None,
        uptime: Callable[[], float] = uptime_s,
    ) -> None:
        self._campaigns = campaigns
        self._uptime = uptime
        self._event = event
        self._fault = fault
        self._estimator = estimator or Estimator()
        self._queue: SimpleQueue[ClosingRecord | None] = SimpleQueue()
        self._attempts: dict[tuple[str, int], _Attempts] = {}
        self._lock = Lock()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="geoveil-worker", daemon=True)

    @property
    def waiting(self) -> int:
        """How many closings are being worked on here or will be."""
        return sum(attempts.queued for attempts in list(self._attempts.values()))

    @property
    def pid(self) -> int | None:
        """The number of the process that estimates; ``None`` before the first closing."""
        return self._estimator.pid

    def start(self) -> None:
        """Begin to work; the process is started with the first closing."""
        self._thread.start()

    def submit(self, closing: ClosingRecord) -> bool:
        """Take a closing, unless it is being worked on or must wait; whether it was taken."""
        now = self._uptime()
        with self._lock:
            for key, old in list(self._attempts.items()):  # those another process has finished
                if not old.queued and now - old.not_before_s > LONGEST_WAIT_S:
                    del self._attempts[key]
            attempts = self._attempts.setdefault((closing.campaign, closing.round), _Attempts())
            if attempts.queued or now < attempts.not_before_s:
                return False
            attempts.queued = True
        self._queue.put(closing)
        return True

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Stop now: a closing under way is left for the next start. Whether all ended in time."""
        self._stopping.set()
        self._queue.put(None)
        self._estimator.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._estimator.close()
        # what was taken and not finished is free at once, not when its time is up
        now = self._campaigns.clock()
        for key, attempts in self._attempts.items():
            if now < attempts.claimed_until_s:
                with suppress(GeoveilError):
                    self._campaigns.release(*key)
        return True

    # -- inside ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while (closing := self._queue.get()) is not None and not self._stopping.is_set():
            self._try(closing, self._attempts[closing.campaign, closing.round])

    def _try(self, closing: ClosingRecord, attempts: _Attempts) -> None:
        """Work on a closing once, and tell what became of it."""
        try:
            self._claim(closing, attempts)
            work = self._campaigns.work(closing)
            conclusion = self._estimator.conclude(
                work, limit_s=LIMIT_S, keep=lambda: self._keep(closing, attempts)
            )
            while self._campaigns.clock.in_doubt and not self._stopping.wait(_DOUBT_S):
                self._keep(closing, attempts)  # no round opens while nobody knows the time
            published = self._campaigns.publish(work, conclusion)
        except WorkedElsewhere:
            self._put_off(attempts, ELSEWHERE_S)
        except Exception as error:
            # once more at the next tick, then after 1, 2, 4 … seconds
            wait_s = 2.0 ** min(attempts.failures - 1, 16) if attempts.failures else 0.0
            self._put_off(attempts, min(LONGEST_WAIT_S, wait_s))
            attempts.failures += 1
            if not self._stopping.is_set():
                self._fault(_FAULTS.get(type(error), "estimate-not-kept"), trace_of(error))
        else:
            with self._lock:
                del self._attempts[closing.campaign, closing.round]
            if published and not self._stopping.is_set():
                self._event("estimate-made")

    def _claim(self, closing: ClosingRecord, attempts: _Attempts) -> None:
        """Take a closing, or have it as long again."""
        attempts.claimed_until_s = self._campaigns.claim(
            closing, for_s=CLAIM_S, held_until_s=attempts.claimed_until_s
        )
        if not attempts.claimed_until_s:
            raise WorkedElsewhere(f"round {closing.round} must be left to the process that has it")

    def _keep(self, closing: ClosingRecord, attempts: _Attempts) -> None:
        """The claim outlives the estimate; a store that is gone for a moment does not end either."""
        with suppress(StoreFailed):
            self._claim(closing, attempts)

    def _put_off(self, attempts: _Attempts, wait_s: float) -> None:
        with self._lock:
            attempts.not_before_s = self._uptime() + wait_s
            attempts.queued = False
