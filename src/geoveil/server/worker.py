"""Estimates outside the request path: a process that estimates, a thread that feeds it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from geoveil.errors import GeoveilError
from geoveil.server.apart import ProcessApart, Stopped
from geoveil.server.campaigns import Campaigns
from geoveil.server.conclusion import Conclusion, Work, conclude
from geoveil.server.logs import Trace, trace_of
from geoveil.server.trip_conclusion import conclude_trips
from geoveil.server.trusted_clock import uptime_s
from geoveil.store import ClosingRecord, StoreFailed

KEEP_EVERY_S = 20.0
"""Between two signs of life while a closing is worked on."""
CLAIM_S = 60
"""How long a closing is ours after the last sign of life; then another server process may take it."""
QUICK_S = 20.0
"""How long an estimate may keep others waiting; a longer one goes to a process for such."""
LIMIT_S = 120.0
"""How long an estimate may take at all: what is ready then is published, and says what it lacks."""
MOST_FAILURES = 10
"""Attempts at an estimate that fail before the round is given up and the campaign goes on."""
LONGEST_WAIT_S = 300.0
"""Between two attempts at the same closing."""
ELSEWHERE_S = 5.0
"""Before a closing that another process has is looked at again."""
_DOUBT_S = 1.0


class EstimatorLost(GeoveilError):
    """The process died before it had anything to show, or was stopped because it took too long."""


class EstimatorLate(EstimatorLost):
    """The process was stopped because it took too long."""


class EstimatorFailed(GeoveilError):
    """The process could not make an estimate of these counts; ``trace`` says what was raised there."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(f"the estimate failed with {trace.kind}")
        self.trace = trace


_FAULTS: dict[type[Exception], str] = {
    EstimatorFailed: "estimate-failed",
    EstimatorLost: "estimator-lost",
    EstimatorLate: "estimator-late",
}


class Estimator(ProcessApart):
    """A process that concludes closings."""

    def conclude(
        self,
        work: Work,
        *,
        limit_s: float,
        keep: Callable[[], None] = lambda: None,
        keep_every_s: float = KEEP_EVERY_S,
    ) -> Conclusion:
        """What :func:`geoveil.server.conclusion.conclude` answers, from the process.

        Where it takes too long, dies or fails on the way: what it had by then, with ``unfinished``
        parts. ``keep`` is called again and again meanwhile; where it raises, the process is stopped.
        """
        ready: list[Conclusion] = []
        try:
            return self._answer(work, ready, time.monotonic() + limit_s, keep, keep_every_s)
        except Exception as error:
            if not isinstance(error, EstimatorFailed):
                self.close()  # or it would answer a question that nobody asks any more
            if isinstance(error, (EOFError, OSError, Stopped)):
                error = EstimatorLost("the process must live until it has answered")
            if ready and not self.over and isinstance(error, (EstimatorLost, EstimatorFailed)):
                return ready[-1]
            raise error from None

    def _answer(
        self,
        work: Work,
        ready: list[Conclusion],
        until_s: float,
        keep: Callable[[], None],
        keep_every_s: float,
    ) -> Conclusion:
        """The whole conclusion; those before it, less and less unfinished, go into ``ready``."""
        process, pipe = self._started()
        pipe.send((_told, (work,)))
        while (left_s := until_s - time.monotonic()) > 0:
            if not wait([pipe, process.sentinel], min(keep_every_s, left_s)):
                keep()
                continue
            answer: Conclusion | Trace = pipe.recv()
            if isinstance(answer, Trace):
                raise EstimatorFailed(answer)
            if not answer.unfinished:
                return answer
            ready.append(answer)
        raise EstimatorLate("an estimate must be made in time")


def _told(send: Callable[[Any], None], work: Work) -> Conclusion:
    """The conclusion, and before it what there is so far."""
    return conclude_trips(work, send) if work.settings.trips else conclude(work, send)


class WorkedElsewhere(GeoveilError):
    """Another server process has this closing."""


class _TooLongHere(GeoveilError):
    """The estimate keeps others waiting."""


@dataclass(slots=True)
class _Attempts:
    """Where the work on one closing stands."""

    queued: bool = False
    failures: int = 0
    not_before_s: float = 0.0
    """By the uptime, which no clock moves."""
    claimed_until_s: int = 0
    """By the campaigns' clock."""


class _Lane:
    """A queue of closings, the thread that works on them one after another, and its process."""

    def __init__(self, name: str, estimator: Estimator, limit_s: float) -> None:
        self.estimator = estimator
        self.limit_s = limit_s
        self.queue: SimpleQueue[ClosingRecord | None] = SimpleQueue()
        self.name = name
        self.thread: Thread | None = None

    def start(self, work: Callable[[_Lane], None]) -> None:
        self.thread = Thread(target=work, args=(self,), name=self.name, daemon=True)
        self.thread.start()

    def stop(self, until_s: float) -> bool:
        """End the thread and the process; whether both ended in time."""
        if self.thread is not None:
            self.thread.join(max(0.0, until_s - time.monotonic()))
            if self.thread.is_alive():
                return False
        self.estimator.close()
        return True


class Worker:
    """Works on closings and publishes what they lead to.

    ``submit`` what ``Campaigns.tick`` returns, as often as it returns it: what waits, runs or failed a
    moment ago is not taken twice. Estimates are made one after another; one that takes longer than
    ``QUICK_S`` is left to a second process, as are the next ones of its campaign, so that a large
    campaign keeps no small one waiting. ``event`` is told "estimate-made"; ``fault`` is told
    "estimate-unfinished", "estimate-given-up", "estimate-failed", "estimator-lost", "estimator-late" or
    "estimate-not-kept", and the trace of what was raised: no counts, no cells.
    """

    def __init__(
        self,
        campaigns: Campaigns,
        *,
        event: Callable[[str], None],
        fault: Callable[[str, Trace], None],
        estimator: Estimator | None = None,
        patient: Estimator | None = None,
        uptime: Callable[[], float] = uptime_s,
    ) -> None:
        self._campaigns = campaigns
        self._uptime = uptime
        self._event = event
        self._fault = fault
        self._quick = _Lane("geoveil-worker", estimator or Estimator(), QUICK_S)
        self._patient = _Lane("geoveil-patient-worker", patient or Estimator(), LIMIT_S)
        self._slow: set[str] = set()
        """Campaigns whose last estimate took long."""
        self._attempts: dict[tuple[str, int], _Attempts] = {}
        self._lock = Lock()
        self._stopping = Event()

    @property
    def waiting(self) -> int:
        """How many closings are being worked on here or will be."""
        return sum(attempts.queued for attempts in list(self._attempts.values()))

    @property
    def pid(self) -> int | None:
        """The number of the process that estimates; ``None`` before the first closing."""
        return self._quick.estimator.pid or self._patient.estimator.pid

    def start(self) -> None:
        """Begin to work; a process is started with its first closing."""
        self._quick.start(self._run)
        self._patient.start(self._run)

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
        lane = self._patient if closing.campaign in self._slow else self._quick
        lane.queue.put(closing)
        return True

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Stop now: a closing under way is left for the next start. Whether all ended in time."""
        self._stopping.set()
        until_s = time.monotonic() + timeout_s
        lanes = (self._quick, self._patient)
        for lane in lanes:
            lane.queue.put(None)
            lane.estimator.stop()
        ended = [lane.stop(until_s) for lane in lanes]
        if not all(ended):
            return False
        # what was taken and not finished is free at once, not when its time is up
        now = self._campaigns.clock()
        for key, attempts in self._attempts.items():
            if now < attempts.claimed_until_s:
                with suppress(GeoveilError):
                    self._campaigns.release(*key)
        return True

    # -- inside ----------------------------------------------------------------------------------

    def _run(self, lane: _Lane) -> None:
        while (closing := lane.queue.get()) is not None and not self._stopping.is_set():
            self._try(lane, closing, self._attempts[closing.campaign, closing.round])

    def _try(self, lane: _Lane, closing: ClosingRecord, attempts: _Attempts) -> None:
        """Work on a closing once, and tell what became of it."""
        began_s = time.monotonic()
        try:
            published = self._published(lane, closing, attempts)
        except WorkedElsewhere:
            self._put_off(attempts, ELSEWHERE_S)
        except _TooLongHere:
            self._slow.add(closing.campaign)
            self._patient.queue.put(closing)
        except Exception as error:
            if not self._stopping.is_set():
                self._fault(_FAULTS.get(type(error), "estimate-not-kept"), trace_of(error))
            self._try_later(closing, attempts, isinstance(error, (EstimatorLost, EstimatorFailed)))
        else:
            with self._lock:
                del self._attempts[closing.campaign, closing.round]
            if lane is self._patient and time.monotonic() - began_s < QUICK_S / 2:
                self._slow.discard(closing.campaign)
            if published and not self._stopping.is_set():
                self._event("estimate-made")

    def _published(self, lane: _Lane, closing: ClosingRecord, attempts: _Attempts) -> bool:
        """Make and publish the estimate of a closing; ``False`` where another process has."""
        self._claim(closing, attempts)
        work = self._campaigns.work(closing)
        try:
            conclusion = lane.estimator.conclude(
                work, limit_s=lane.limit_s, keep=lambda: self._keep(closing, attempts)
            )
        except EstimatorLate:
            if lane is self._quick:
                raise _TooLongHere from None
            raise
        if conclusion.unfinished:
            if lane is self._quick:
                raise _TooLongHere
            self._fault("estimate-unfinished", Trace("Unfinished", conclusion.unfinished))
        while self._campaigns.clock.in_doubt and not self._stopping.wait(_DOUBT_S):
            self._keep(closing, attempts)  # no round opens while nobody knows the time
        return self._campaigns.publish(work, conclusion)

    def _try_later(self, closing: ClosingRecord, attempts: _Attempts, counts: bool) -> None:
        """Once more at the next look, then after 1, 2, 4 … seconds, and not for ever."""
        wait_s = 2.0 ** min(attempts.failures - 1, 16) if attempts.failures else 0.0
        attempts.failures += 1
        if counts and not self._stopping.is_set():
            with suppress(StoreFailed):
                if self._campaigns.failed(closing) >= MOST_FAILURES:
                    self._campaigns.give_up(closing)
                    self._fault("estimate-given-up", Trace("GivenUp", ()))
        self._put_off(attempts, min(LONGEST_WAIT_S, wait_s))

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
