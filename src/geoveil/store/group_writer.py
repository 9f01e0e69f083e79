"""Group commit: whatever was handed in while the last commit ran goes into the next one."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from geoveil.errors import GeoveilError, InvalidInput
from geoveil.store.contract import Store
from geoveil.store.records import Overloaded, StoreFailed, Upload

Answer = list[bool] | GeoveilError
"""Which ids were new, or why nothing was acknowledged."""


class _Submission(NamedTuple):
    uploads: Sequence[Upload]
    future: asyncio.Future[list[bool]]
    loop: asyncio.AbstractEventLoop


class GroupWriter:
    """A queue in front of ``store.add``, emptied by one thread, one transaction at a time.

    A future is resolved after the commit its reports were part of; where that commit failed, with
    ``StoreFailed``, and the next commit tries the store again. Beyond ``most_waiting`` reports new ones
    are refused with ``Overloaded``; where none wait, reports handed in together are taken however many
    they are. The store stays the caller's: ``close`` drains the queue and leaves it open.
    """

    def __init__(
        self, store: Store, *, most_a_commit: int = 4_096, most_waiting: int = 16_384
    ) -> None:
        self._store = store
        self._most_a_commit = most_a_commit
        self._most_waiting = most_waiting
        self._queue: deque[_Submission] = deque()
        self.waiting = 0
        """How many reports wait for a commit to begin."""
        self._closing = False
        self._changed = threading.Condition(threading.Lock())
        self._thread = threading.Thread(target=self._work, name="group-commit", daemon=True)
        self._thread.start()

    def submit(
        self, loop: asyncio.AbstractEventLoop, uploads: Sequence[Upload]
    ) -> asyncio.Future[list[bool]]:
        """Hand in reports, all of one commit; which of them were new, once they are on the disk.

        For a coroutine on ``loop``, which is woken once for each commit.
        """
        size, future = len(uploads), loop.create_future()
        with self._changed:
            if self._closing:
                raise Overloaded("the server is stopping; try again later")
            if self.waiting and self.waiting + size > self._most_waiting:
                raise Overloaded(f"reports waiting ({self.waiting}) are too many; try again later")
            self._queue.append(_Submission(uploads, future, loop))
            self.waiting += size
            self._changed.notify()
        return future

    def close(self) -> None:
        """Take no more, commit what waits, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._take():
            by_loop: dict[asyncio.AbstractEventLoop, _Resolved] = {}
            for (_, future, loop), answer in zip(batch, self._commit(batch), strict=True):
                by_loop.setdefault(loop, []).append((future, answer))
            for loop, resolved in by_loop.items():
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(_settle, resolved)

    def _take(self) -> list[_Submission]:
        """What goes into the next commit; nothing when the writer is closed and empty."""
        with self._changed:
            while not self._queue and not self._closing:
                self._changed.wait()
            batch: list[_Submission] = []
            size = 0
            while self._queue:
                size += len(self._queue[0].uploads)
                if batch and size > self._most_a_commit:
                    break
                batch.append(self._queue.popleft())
            self.waiting -= sum(len(submission.uploads) for submission in batch)
            return batch

    def _commit(self, batch: list[_Submission]) -> list[Answer]:
        """One answer a submission. A faulty one must not fail the others, nor cost a commit for each of them:
        then each half goes alone."""
        uploads = [upload for submission in batch for upload in submission.uploads]
        try:
            new = self._store.add(uploads)
        except InvalidInput as error:
            if len(batch) == 1:
                return [error]
            half = len(batch) // 2
            return [*self._commit(batch[:half]), *self._commit(batch[half:])]
        except GeoveilError as error:
            return [error] * len(batch)
        except Exception as error:
            failed = StoreFailed(f"the store failed ({type(error).__name__}); try again later")
            return [failed] * len(batch)
        answers = iter(new)
        return [list(islice(answers, len(submission.uploads))) for submission in batch]


_Resolved = list[tuple[asyncio.Future[list[bool]], Answer]]


def _settle(resolved: _Resolved) -> None:
    """Tell everybody on one event loop."""
    for future, answer in resolved:
        if future.done():  # cancelled: who asked went away; the reports count
            continue
        if isinstance(answer, list):
            future.set_result(answer)
        else:
            future.set_exception(answer)
