"""A number together with what it counts."""

from __future__ import annotations


def number_of(number: int, one: str, several: str = "") -> str:
    """So many of them, in the singular where it is one.

    >>> number_of(1, "report"), number_of(1200, "report"), number_of(1, "person", "people")
    ('1 report', '1,200 reports', '1 person')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
