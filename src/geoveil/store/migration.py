"""Numbered steps from an empty database to the schema of this program, and back.

A step is two SQL files, ``schema/<database>/NNNN_name.up.sql`` and ``….down.sql``. The number of the
last step that ran is kept in the database; each database runs the missing ones in one transaction when
it is opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from geoveil.store.contract import NewerSchema

_NAME = re.compile(r"(?P<number>\d{4})_(?P<name>\w+)\.up\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step, and how to take it back."""

    number: int
    name: str
    up: str
    down: str


@cache
def migrations(database: str) -> tuple[Migration, ...]:
    """All steps for ``sqlite`` or ``postgres``, in order.

    >>> [step.number for step in migrations("sqlite")]
    [1, 2, 3]
    """
    folder = files("geoveil.store") / "schema" / database
    found = [match for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    return tuple(
        Migration(
            number=int(match["number"]),
            name=match["name"],
            up=(folder / match[0]).read_text(encoding="utf-8"),
            down=(folder / match[0].replace(".up.", ".down.")).read_text(encoding="utf-8"),
        )
        for match in sorted(found, key=lambda match: match[0])
    )


def missing(steps: tuple[Migration, ...], version: int) -> tuple[Migration, ...]:
    """The steps a database of this version has yet to take."""
    latest = steps[-1].number
    if version > latest:
        raise NewerSchema(
            f"schema ({version}) must be at most {latest}: a newer program made this database; "
            "use that program"
        )
    return tuple(step for step in steps if step.number > version)
