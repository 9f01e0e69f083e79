"""A process that counts until it is killed, and says which reports it was told are kept."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from geoveil.store import open_store
from store.devices import Writer, upload

THREADS = 8

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["geoveil.store.sqlite", "geoveil.store.postgres"])


def begin(address: str, first: int) -> tuple[BaseProcess, Connection]:
    """Start a process that hands in devices ``first``, ``first + 1``, …; it writes their numbers, a
    line each, when it knows them kept."""
    reader, writer = _context.Pipe(duplex=False)
    process = _context.Process(target=_count, args=(address, first, writer))
    process.start()
    writer.close()
    return process, reader


def _count(address: str, first: int, told: Connection) -> None:
    writer = Writer(open_store(address))
    numbers = itertools.count(first)

    def send() -> None:
        for number in numbers:
            writer.hand_in([upload(number)]).result()
            os.write(told.fileno(), f"{number}\n".encode())

    threads = [threading.Thread(target=send) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
