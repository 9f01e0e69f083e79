"""``geoveil`` on a machine whose clock somebody sets: the first argument names a file with the seconds."""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main() -> None:
    offset, real = Path(sys.argv.pop(1)), time.time

    def wall() -> float:
        try:
            return real() + float(offset.read_text())
        except (OSError, ValueError):
            return real()

    time.time = wall
    from geoveil.__main__ import main as program

    program()


if __name__ == "__main__":
    main()
