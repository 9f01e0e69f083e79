"""Work for engines that fails, or that shows when it is counted twice; workers import it from here."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from geoveil.engine.part_reports import PartCounter


class DiesOnce(PartCounter):
    """Kills the worker at the first attempt of every task, after it has drawn."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _dies_once, super().__reduce__()

    def __call__(self, part: Any) -> Any:
        from pyspark import TaskContext

        counted = super().__call__(part)
        if TaskContext.get().attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return counted


def _dies_once(make: Any, given: tuple[Any, ...]) -> DiesOnce:
    plain = make(*given)
    return DiesOnce(plain._mechanism, plain._reporter.outside.rule, plain._seed)


class AlwaysDies:
    """A worker that never comes to an end."""

    def __call__(self, part: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class OnOneAnother:
    """Parts that say which they are: an answer that comes twice would show as a two."""

    def __call__(self, part: int) -> Any:
        return Ones(np.eye(12, dtype=np.int64)[part])


class Ones:
    def __init__(self, values: Any) -> None:
        self.values = values

    def add(self, other: Ones) -> None:
        self.values = self.values + other.values


class Opens:
    def __call__(self, part: str) -> Any:
        return Path(part).read_bytes()


if __name__ == "__main__":
    # The process that Spark's workers are copies of: a worker that died costs no second look at all modules.
    for module in ("failing_work", "geoveil.engine.spark_worker", "pyspark.worker"):
        import_module(module)
    import_module("pyspark.daemon").manager()
