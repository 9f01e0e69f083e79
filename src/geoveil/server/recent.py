"""What was made last, kept for others in a bounded number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The values that were asked for last: no more than so many bytes in all, and none longer. Thread-safe.

    >>> kept = Recent[str](most_bytes=5)
    >>> for word in ("so", "be", "it", "forever"):
    ...     kept.keep(word, word, len(word))
    >>> [kept.get(word) for word in ("so", "be", "it", "forever")]
    [None, 'be', 'it', None]
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held_bytes = 0
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """The value, if it is still here."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def keep(self, key: str, value: T, size: int) -> None:
        """Keep a value of so many bytes; those that nobody asked for longest go."""
        if size > self.most_bytes:
            return
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._values[key] = value, size
            self._held_bytes += size - before
            while self._held_bytes > self.most_bytes:
                _, (_, gone) = self._values.popitem(last=False)
                self._held_bytes -= gone
