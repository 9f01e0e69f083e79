"""The same promise for the same people on the same cells is designed once by all processes of the tests."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

FOLDER = "DESIGNS_OF_THE_TESTS"
"""The variable with the folder of what was designed since these tests began."""


def made_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """The same design, which takes a second of the processor, made where no process has made it yet."""
    if hasattr(make, "made"):
        return make  # a worker of the tests, which began as every process that tests start
    made: dict[str, Any] = {}

    def remembered(space: Any, prior: Any, epsilon: float, camouflage: float, stop: Any) -> Any:
        asked = repr((space.to_dict(), prior.tobytes(), epsilon, camouflage, stop))
        key = hashlib.sha256(asked.encode()).hexdigest()
        if key not in made:
            made[key] = _kept(key, lambda: make(space, prior, epsilon, camouflage, stop))
        return copy(made[key])

    remembered.made = made  # type: ignore[attr-defined]
    return remembered


def _kept(key: str, make: Callable[[], Any]) -> Any:
    folder = Path(os.environ[FOLDER])
    if (folder / key).is_file():
        return pickle.loads((folder / key).read_bytes())
    made = make()
    own = folder / f"{key}.{os.getpid()}.{threading.get_ident()}"
    own.write_bytes(pickle.dumps(made))
    own.replace(folder / key)
    return made
