"""What databases share about counting: reports sorted by campaign, each id once, each cell checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from geoveil.errors import InvalidInput
from geoveil.store.contract import Upload

ID_BYTES = 16


class RoundKeys(NamedTuple):
    """What counting needs to know of a round; none of it ever changes."""

    campaign_key: int
    round_key: int
    cells: int


Counting = tuple[int, int, int]
"""Round key and cell that an id would count for, and the position of its upload."""

Pending = dict[int, dict[bytes, Counting]]
"""Campaign key → id → what it adds; of several uploads with one id, the first."""


def sort_out(
    uploads: Sequence[Upload], find: Callable[[str, int], RoundKeys]
) -> tuple[Pending, list[int]]:
    """Uploads by campaign and id, and the keys of all rounds they name.

    ``find`` knows rounds and raises ``InvalidInput`` for others.
    """
    pending: Pending = {}
    known: dict[tuple[str, int], RoundKeys] = {}
    for position, (campaign, number, id, cell) in enumerate(uploads):
        keys = known.get((campaign, number))
        if keys is None:
            keys = known[campaign, number] = find(campaign, number)
        campaign_key, round_key, cells = keys
        if not 0 <= cell < cells:
            raise InvalidInput(f"cell of the report at position {position} must be below {cells}")
        if len(id) != ID_BYTES:
            raise InvalidInput(f"id of the report at position {position} must have 16 bytes")
        ids = pending.get(campaign_key)
        if ids is None:
            ids = pending[campaign_key] = {}
        ids.setdefault(id, (round_key, cell, position))
    return pending, [keys.round_key for keys in known.values()]


def over() -> InvalidInput:
    """What to say of a report whose round is over for good."""
    return InvalidInput("round must still know its ids; reports for it came to an end")
