"""Estimates outside the request path: one thread that takes closings to the process and back.

A process that dies is started again, and the closing is worked on again from its kept counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Lock, Thread

from geoveil.errors import GeoveilError
from geoveil.server.campaigns import Campaigns
from geoveil.server.estimator import Estimator, EstimatorFailed, EstimatorLost
from geoveil.server.logs import Trace, trace_of
from geoveil.server.rounds import Work
from geoveil.store.contract import StoreFailed

CLAIM_S = 60
"""How long a closing is ours after the last sign of life; then another server process may take it."""
LIMIT_S = 600.0
"""How long an estimate may take before its process is stopped."""
LONGEST_WAIT_S = 300.0
"""Between two attempts at the same closing."""
ELSEWHERE_S = 5.0
"""Before a closing that another process has is looked at again."""

_log = logging.getLogger(__name__)


def _log_fault(name: str, trace: Trace) -> None:
    _log.error("%s: %s at %s", name, trace.kind, ", ".join(trace.where))


class WorkedElsewhere(GeoveilError):
    """Another server process has this closing."""


@dataclass(slots=True)
class _Attempts:
    """Where the work on one closing stands, in seconds of the campaigns' clock."""

    queued: bool = False
    failures: int = 0
    not_before_s: float = 0.0
    claimed_until_s: int = 0


def _wait_s(failures: int) -> float:
    """Once more at the next tick, then after 1, 2, 4 … seconds."""
    return min(LONGEST_WAIT_S, 2.0 ** min(failures - 1, 16)) if failures else 0.0


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
        event: Callable[[str], None] = _log.info,
        fault: Callable[[str, Trace], None] = _log_fault,
        estimator: Estimator | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._campaigns = campaigns
        self._event = event
        self._fault = fault
        self._limit_s = limit_s
        self._estimator = estimator or Estimator()
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
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

    def submit(self, work: Work) -> bool:
        """Take a closing, unless it is being worked on or must wait; whether it was taken."""
        now = self._campaigns.clock()
        with self._lock:
            self._forget_old(now)
            attempts = self._attempts.setdefault((work.campaign, work.round), _Attempts())
            if attempts.queued or now < attempts.not_before_s:
                return False
            attempts.queued = True
        self._queue.put(work)
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
        self._give_back()
        return True

    # -- inside ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._queue.get()) is not None and not self._stopping.is_set():
            self._try(work, self._attempts[work.campaign, work.round])

    def _try(self, work: Work, attempts: _Attempts) -> None:
        """Work on a closing once, and tell what became of it."""
        try:
            made = self._attempt(work, attempts)
        except WorkedElsewhere:
            self._put_off(attempts, ELSEWHERE_S)
        except Exception as error:
            self._put_off(attempts, _wait_s(attempts.failures))
            attempts.failures += 1
            if not self._stopping.is_set():
                self._fault(*_told(error))
        else:
            with self._lock:
                del self._attempts[work.campaign, work.round]
            if made and not self._stopping.is_set():
                self._event("estimate-made")

    def _attempt(self, work: Work, attempts: _Attempts) -> bool:
        self._claim(work, attempts)
        conclusion = self._estimator.conclude(
            work, limit_s=self._limit_s, keep=lambda: self._keep(work, attempts)
        )
        return self._campaigns.publish(work, conclusion)

    def _claim(self, work: Work, attempts: _Attempts) -> None:
        """Take a closing, or have it as long again."""
        attempts.claimed_until_s = self._campaigns.claim(
            work, for_s=CLAIM_S, held_until_s=attempts.claimed_until_s
        )
        if not attempts.claimed_until_s:
            raise WorkedElsewhere(f"round {work.round} must be left to the process that has it")

    def _keep(self, work: Work, attempts: _Attempts) -> None:
        """The claim outlives the estimate; a store that is gone for a moment does not end either."""
        with suppress(StoreFailed):
            self._claim(work, attempts)

    def _put_off(self, attempts: _Attempts, wait_s: float) -> None:
        with self._lock:
            attempts.not_before_s = self._campaigns.clock() + wait_s
            attempts.queued = False

    def _give_back(self) -> None:
        """Closings that were taken and not finished are free at once, not when their time is up."""
        now = self._campaigns.clock()
        for key, attempts in self._attempts.items():
            if now < attempts.claimed_until_s:
                with suppress(GeoveilError):
                    self._campaigns.release(*key)

    def _forget_old(self, now: float) -> None:
        """Closings that nobody has submitted for long were finished by another process."""
        for key, attempts in list(self._attempts.items()):
            if not attempts.queued and now - attempts.not_before_s > LONGEST_WAIT_S:
                del self._attempts[key]


def _told(error: Exception) -> tuple[str, Trace]:
    """The name of a failure, and the trace of what was raised, here or in the process."""
    if isinstance(error, EstimatorFailed):
        return "estimate-failed", error.trace
    name = "estimator-lost" if isinstance(error, EstimatorLost) else "estimate-not-kept"
    return name, trace_of(error)
