"""What every mechanism shares: a name, its parameters, and equality by them."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, ClassVar

from geoveil.channel.base import Channel


class Mechanism(Channel):
    """A channel with a published law: ``name``, ``parameters()`` and ``reference`` say which.

    Two mechanisms are equal when their name, space and parameters are.
    """

    name: ClassVar[str]
    """How the command line and documents call it."""
    reference: ClassVar[str]
    """Where the law comes from."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments besides the space, as plain JSON values."""

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Mechanism)
            and self.name == other.name
            and self.space == other.space
            and self.parameters() == other.parameters()
        )

    def __hash__(self) -> int:
        return hash((self.name, self.space, json.dumps(self.parameters(), sort_keys=True)))

    def __repr__(self) -> str:
        shown = (f"{key}={_short(value)}" for key, value in self.parameters().items())
        return f"{type(self).__name__}({', '.join([repr(self.space), *shown])})"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{len(value)} numbers]"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
