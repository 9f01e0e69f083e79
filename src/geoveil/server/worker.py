"""Estimates outside the request path: what is to be made, a process that makes it, a thread that feeds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from geoveil.arrays import IntArray
from geoveil.errors import GeoveilError
from geoveil.server import round_documents
from geoveil.server.apart import CalculationFailed, EstimatorLate, EstimatorLost, ProcessApart
from geoveil.server.campaigns import Campaigns
from geoveil.server.conclusion import Conclusion, Work, conclude, read_body
from geoveil.server.logs import Trace, trace_of
from geoveil.server.problem import NewerSettings, Problem
from geoveil.server.round_documents import Prepared, Preparing
from geoveil.server.trip_conclusion import conclude_trips
from geoveil.server.trusted_clock import uptime_s
from geoveil.store import ClosingRecord, EstimateRecord, Job, PreparationRecord, StoreFailed

KEEP_EVERY_S = 20.0
"""Between two signs of life while a closing is worked on."""
CLAIM_S = 60
"""How long a closing is ours after our last sign of life. Another server process measures this by its own
clock, and may take the closing then."""
QUICK_S = 20.0
"""How long an estimate may keep others waiting; a longer one goes to the process for long ones."""
LIMIT_S = 120.0
"""How long an estimate may take at all: what is ready then is published, and says what it lacks."""
LARGE_LIMIT_S = 900.0
"""The same where there are more cells than a mechanism is made for while the operator waits."""
MOST_FAILURES = 10
"""Attempts at an estimate that fail before the round is given up and the campaign goes on."""
LONGEST_WAIT_S = 300.0
"""The longest wait between two attempts at the same closing."""
ELSEWHERE_S = 5.0
"""Before a closing that another process has is looked at again."""
_MANY_ROUNDS = 24
"""Up to so many are not what an estimate takes its time for."""
_DOUBT_S = 1.0
GIVEN_UP = "its mechanism could not be made; make another campaign of fewer cells"
AnyWork = Work | Preparing
Outcome = Conclusion | Prepared


class Jobs:
    """The jobs of all campaigns of a store; thread-safe."""

    def __init__(self, campaigns: Campaigns) -> None:
        self._campaigns = campaigns
        self._store = campaigns.store

    def preparations(self) -> list[PreparationRecord]:
        """What can be prepared now; a box of too many cells waits for city limits."""
        ready = []
        for record in self._store.preparations():
            with suppress(Problem, NewerSettings):  # deleted meanwhile
                settings = self._campaigns.settings(record.campaign)
                if not round_documents.lacks_area(record, settings):
                    ready.append(record)
        return ready

    def claim(self, job: Job, *, for_s: int, held_until_s: int = 0) -> int:
        """Claim a job for a while, or again for longer; until when, 0 where another process has it.

        Each claim ends after the one before, also where the clock was set back, so that it is a sign of life.
        """
        until_s = max(int(self._campaigns.clock()) + for_s, held_until_s + 1)
        claimed = self._store.claim(job, until_s=until_s, held_until_s=held_until_s)
        return until_s if claimed else 0

    def work(self, job: Job) -> AnyWork:
        """A job with all that it is made from, for another process.

        Of all rounds, unless these take too long (:func:`newest_rounds`); the first is among them where that
        is trusted. The estimate says which it is made from.
        """
        settings = self._campaigns.settings(job.campaign)
        if isinstance(job, PreparationRecord):
            return Preparing(job, settings, int(self._campaigns.clock()))
        campaign, store = job.campaign, self._store
        filled = store.reported_rounds(campaign, job.round)
        before = store.estimate(campaign)
        estimate = None if before is None or settings.trips else read_body(before.body)
        newest = set(newest_rounds(filled, estimate, job.failures))
        seed = self._seed(job) if settings.trusted_seed else None
        newest |= set() if seed is None else {seed[0]}
        counted = store.closing_pairs if settings.trips else store.closing_counts
        counts = counted(campaign, job.round, newest)
        rounds = store.rounds(campaign, newest)
        documents = {round_.number: round_.document for round_ in rounds}
        if job.round not in documents:  # the first to go
            raise Problem("unknown-campaign", "the campaign was deleted meanwhile")
        return Work(
            campaign,
            job.round,
            job.closed_at_s,
            settings,
            documents,
            {number: counts[number] for number in documents},
            None if before is None else (before.round, before.body),
            settings.ends_with(store.rounds_concluded(campaign)),
            bool(rounds[-1].around),
            seed,
            len(set(filled) - newest),
        )

    def _seed(self, closing: ClosingRecord) -> tuple[int, IntArray] | None:
        """The first round that closed before this one, as it closed, if nobody had reported in one before it.

        Whatever comes later, in whichever round, may be anybody's, and changes neither.
        """
        campaign, store = closing.campaign, self._store
        waiting = (other.round for other in store.closings() if other.campaign == campaign)
        closed = {*store.estimated_rounds(campaign), *store.given_up(campaign), *waiting}
        first = min(closed, default=closing.round)
        if first == closing.round or store.reported_rounds(campaign, first) != [first]:
            return None
        return next(iter(store.closing_counts(campaign, first, [first]).items()), None)

    def publish(self, work: AnyWork, outcome: Outcome) -> bool:
        """Keep what a job led to; ``False`` where another process has, or another preparation is wanted.

        The next round opens now; a document of which too little is left gets a lifetime that begins now.
        """
        now = int(self._campaigns.clock())
        if isinstance(work, Preparing):
            assert isinstance(outcome, Prepared)
            campaign = work.record.campaign
            if outcome.opened is None:
                accepted = self._store.refuse_preparation(work.record, outcome.problem)
            else:
                following = round_documents.opened(outcome.opened, work.settings, now)
                accepted = self._store.finish_preparation(work.record, following, at_s=now)
        else:
            assert isinstance(outcome, Conclusion)
            campaign, contents = work.campaign, (outcome.reports, outcome.body, outcome.slots)
            estimate, after = EstimateRecord(campaign, work.round, now, *contents), None
            if outcome.following is not None:
                after = round_documents.opened(outcome.following, work.settings, now)
            accepted = self._store.publish(estimate, after)
        self._campaigns.forget(campaign)
        return accepted

    def give_up(self, job: Job) -> bool:
        """Make no further attempt; ``False`` where another process has made or given it up.

        A campaign goes on without an estimate, with the mechanism it has, and the reports enter the next
        one; at its end it stays there. Without its mechanism it ends.
        """
        if isinstance(job, PreparationRecord):
            accepted = self._store.refuse_preparation(job, GIVEN_UP)
        else:
            now, settings = int(self._campaigns.clock()), self._campaigns.settings(job.campaign)
            current = self._campaigns.look(job.campaign)
            record = round_documents.renewed(current, settings, now, current.number + 1)
            accepted = self._store.give_up(job.round, record)
        self._campaigns.forget(job.campaign)
        return accepted


_FAULTS: dict[type[Exception], str] = {
    CalculationFailed: "estimate-failed",
    EstimatorLost: "estimator-lost",
    EstimatorLate: "estimator-late",
}


def newest_rounds(filled: list[int], before: Mapping[str, Any] | None, failures: int) -> list[int]:
    """The rounds with reports that an estimate is made from: all, or as many as there is time for.

    Every round has a mechanism of its own, and a step of an estimate takes them all. The second attempt that
    fails, and every further one, leaves a quarter of them. The estimate ``before`` says how many it left out:
    where it left out any, the next begins with two more than it had, so that none fails for long and all
    come back where a machine was only busy; where it was not finished, with three quarters of them.
    """
    most = len(filled)
    if before is not None:
        left_out = before.get("rounds_left_out", 0)
        had = sum(number <= before["round"] for number in filled) - left_out
        if before.get("unfinished") and had > _MANY_ROUNDS:
            most = max(_MANY_ROUNDS, 3 * had // 4)
        elif left_out:
            most = min(most, had + 2)
    return filled[-max(1, most >> 2 * max(0, failures - 1)) :]


class Estimator(ProcessApart):
    """A process that concludes closings, and prepares rounds of many cells."""

    def conclude(
        self,
        work: AnyWork,
        *,
        limit_s: float,
        keep: Callable[[], None] = lambda: None,
        keep_every_s: float = KEEP_EVERY_S,
    ) -> Outcome:
        """What :func:`geoveil.server.conclusion.conclude` answers, from the process, or ``prepare``.

        Where it takes too long, dies or fails on the way: what it had by then, with ``unfinished``
        parts. ``keep`` is called again and again meanwhile; where it raises, the process is stopped.
        """
        ready: list[Outcome] = []
        until_s = time.monotonic() + limit_s
        try:
            for answer in self.answers(until_s, _work, work, keep=keep, keep_every_s=keep_every_s):
                ready.append(answer)
                if not answer.unfinished:
                    break
        except (EstimatorLost, CalculationFailed):
            if not ready or self.over:
                raise
        return ready[-1]


def _work(send: Callable[[Any], None], work: AnyWork) -> Outcome:
    """What a piece of work leads to; of a conclusion, what there is so far is sent before."""
    if isinstance(work, Preparing):
        return round_documents.prepare(work)
    return conclude_trips(work, send) if work.settings.trips else conclude(work, send)


class WorkedElsewhere(GeoveilError):
    """Another server process has this closing."""


class _TooLongHere(GeoveilError):
    """The work keeps others waiting, and belongs to another lane."""

    def __init__(self, lane: _Lane) -> None:
        super().__init__(lane.name)
        self.lane = lane


@dataclass(slots=True)
class _Attempts:
    """Where the work on one job stands."""

    job: Job
    queued: bool = False
    failures: int = 0
    not_before_s: float = 0.0
    """By the uptime, which no clock moves."""
    claimed_until_s: int = 0
    """When our own claim ends, by the campaigns' clock."""
    seen_until_s: int = 0
    """When the claim ended that stood on it when it was last submitted."""
    seen_since_s: float = 0.0
    """Since when that claim has not changed, by the uptime."""


class _Lane:
    """A queue of jobs, the thread that works on them one after another, and its process."""

    def __init__(self, name: str, estimator: Estimator, limit_s: float) -> None:
        self.estimator = estimator
        self.limit_s = limit_s
        self.queue: SimpleQueue[Job | None] = SimpleQueue()
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
    """Works on closings and preparations, and publishes what they lead to.

    ``submit`` what ``Campaigns.tick`` and ``Jobs.preparations`` return, as often as they return it: what
    waits, runs or failed a moment ago is not taken twice. Estimates are made one after another; one that
    takes longer than ``QUICK_S`` is left to a second process, as are the next ones of its campaign, so that
    a large campaign keeps no small one waiting. Preparations are made there too. Estimates of many cells,
    which may take ``LARGE_LIMIT_S``, have a third process, and keep nobody waiting but each other.

    ``event`` is told "estimate-made", "campaign-prepared" or "preparation-refused"; ``fault`` is told
    "estimate-unfinished", "estimate-given-up", "estimate-failed", "estimator-lost", "estimator-late",
    "estimate-not-kept", or of preparations "preparation-failed" or "preparation-given-up", and the trace of
    what was raised: no counts, no cells.
    """

    def __init__(
        self,
        campaigns: Campaigns,
        *,
        event: Callable[[str], None],
        fault: Callable[[str, Trace], None],
        estimator: Estimator | None = None,
        patient: Estimator | None = None,
        large: Estimator | None = None,
        uptime: Callable[[], float] = uptime_s,
    ) -> None:
        self.jobs = Jobs(campaigns)
        self._clock, self._store = campaigns.clock, campaigns.store
        self._uptime = uptime
        self._event = event
        self._fault = fault
        self._quick = _Lane("geoveil-worker", estimator or Estimator(), QUICK_S)
        self._patient = _Lane("geoveil-patient-worker", patient or Estimator(), LIMIT_S)
        self._large = _Lane("geoveil-large-worker", large or Estimator(), LARGE_LIMIT_S)
        self._lanes = self._quick, self._patient, self._large
        self._slow: dict[str, _Lane] = {}
        """Campaigns whose last work took long → where the next of it begins."""
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
        return next((lane.estimator.pid for lane in self._lanes if lane.estimator.pid), None)

    def start(self) -> None:
        """Begin to work; a process is started with its first closing."""
        for lane in self._lanes:
            lane.start(self._run)

    def submit(self, job: Job) -> bool:
        """Take a job, unless it is being worked on or must wait; whether it was taken."""
        now = self._uptime()
        with self._lock:
            for key, old in list(self._attempts.items()):  # those another process has finished
                if not old.queued and now - old.not_before_s > LONGEST_WAIT_S:
                    del self._attempts[key]
            attempts = self._attempts.setdefault((job.campaign, job.round), _Attempts(job))
            if attempts.seen_until_s != job.claimed_until_s:
                attempts.seen_until_s, attempts.seen_since_s = job.claimed_until_s, now
            if attempts.queued or now < attempts.not_before_s:
                return False
            attempts.queued, attempts.job = True, job
        self._slow.get(job.campaign, self._quick).queue.put(job)
        return True

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Stop now: a closing under way is left for the next start. Whether all ended in time."""
        self._stopping.set()
        until_s = time.monotonic() + timeout_s
        for lane in self._lanes:
            lane.queue.put(None)
            lane.estimator.stop()
        ended = [lane.stop(until_s) for lane in self._lanes]
        if not all(ended):
            return False
        # what was taken and not finished is free at once, not when its time is up
        for attempts in self._attempts.values():
            if held_s := attempts.claimed_until_s:
                with suppress(GeoveilError):
                    self._store.release(attempts.job, held_until_s=held_s)
        return True

    # -- inside ----------------------------------------------------------------------------------

    def _run(self, lane: _Lane) -> None:
        while (job := lane.queue.get()) is not None and not self._stopping.is_set():
            self._try(lane, job, self._attempts[job.campaign, job.round])

    def _try(self, lane: _Lane, job: Job, attempts: _Attempts) -> None:
        """Work on a job once, and tell what became of it."""
        began_s = time.monotonic()
        prepares = isinstance(job, PreparationRecord)
        try:
            event = self._work_on(lane, job, attempts)
        except WorkedElsewhere:
            self._put_off(attempts, ELSEWHERE_S)
        except _TooLongHere as elsewhere:
            self._slow[job.campaign] = elsewhere.lane
            elsewhere.lane.queue.put(job)
        except Exception as error:
            if isinstance(error, Problem) and error.name == "unknown-campaign":  # deleted meanwhile
                return self._put_off(attempts, ELSEWHERE_S)
            if not self._stopping.is_set():
                name = _FAULTS.get(type(error), "estimate-not-kept")
                self._fault("preparation-failed" if prepares else name, trace_of(error))
            self._try_later(job, attempts, isinstance(error, (EstimatorLost, CalculationFailed)))
        else:
            with self._lock:
                del self._attempts[job.campaign, job.round]
            if lane is not self._quick and time.monotonic() - began_s < QUICK_S / 2:
                self._slow.pop(job.campaign, None)
            if event and not self._stopping.is_set():
                self._event(event)

    def _work_on(self, lane: _Lane, job: Job, attempts: _Attempts) -> str:
        """Do a job, store its outcome and return the event to log; empty where another process did it."""
        self._claim(job, attempts)
        work = self.jobs.work(job)
        long = self._patient if isinstance(work, Preparing) else self._large
        if work.large and lane is not long:
            raise _TooLongHere(long)
        limit_s = LARGE_LIMIT_S if work.large else lane.limit_s
        try:
            outcome = lane.estimator.conclude(
                work, limit_s=limit_s, keep=lambda: self._keep(job, attempts)
            )
        except EstimatorLate:
            if lane is self._quick:
                raise _TooLongHere(self._patient) from None
            raise
        if outcome.unfinished:
            if lane is self._quick:
                raise _TooLongHere(self._patient)
            self._fault("estimate-unfinished", Trace("Unfinished", outcome.unfinished))
        while self._clock.in_doubt and not self._stopping.wait(_DOUBT_S):
            self._keep(job, attempts)  # no round opens while nobody knows the time
        self._claim(job, attempts)  # what it was made from is what waits for it
        return outcome.event if self.jobs.publish(work, outcome) else ""

    def _try_later(self, job: Job, attempts: _Attempts, counts: bool) -> None:
        """Once more at the next look, then after 1, 2, 4 … seconds, and not for ever."""
        wait_s = 2.0 ** min(attempts.failures - 1, 16) if attempts.failures else 0.0
        attempts.failures += 1
        if counts and not self._stopping.is_set():
            what = "preparation" if isinstance(job, PreparationRecord) else "estimate"
            try:
                if self._store.failed(job) >= MOST_FAILURES:
                    self.jobs.give_up(job)
                    self._fault(f"{what}-given-up", Trace("GivenUp", ()))
            except (StoreFailed, Problem):  # the campaign may have been deleted meanwhile
                pass
            except Exception as error:  # what no estimate can be made of may not be given up either
                self._fault(f"{what}-failed", trace_of(error))
        self._put_off(attempts, min(LONGEST_WAIT_S, wait_s))

    def _claim(self, job: Job, attempts: _Attempts) -> None:
        """Take a job, also from a process that shows no sign of life, or have it as long again."""
        held_s = attempts.claimed_until_s
        if not held_s and self._uptime() - attempts.seen_since_s >= CLAIM_S:
            held_s = attempts.seen_until_s
        attempts.claimed_until_s = self.jobs.claim(job, for_s=CLAIM_S, held_until_s=held_s)
        if not attempts.claimed_until_s:
            raise WorkedElsewhere(f"round {job.round} must be left to the process that has it")

    def _keep(self, job: Job, attempts: _Attempts) -> None:
        """The claim outlives the work; a store that is gone for a moment does not end either."""
        with suppress(StoreFailed):
            self._claim(job, attempts)

    def _put_off(self, attempts: _Attempts, wait_s: float) -> None:
        with self._lock:
            attempts.not_before_s = self._uptime() + wait_s
            attempts.queued = False
