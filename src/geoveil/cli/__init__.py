"""The command line: parse, call, print. ``geoveil`` and ``python -m geoveil`` are this program."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the program; without its extra, say in one line what to install."""
    try:
        from geoveil.cli.program import run
    except ModuleNotFoundError as missing:
        if missing.name not in ("click", "rich"):
            raise
        sys.stderr.write(
            "geoveil: error: the command line needs click and rich; install geoveil[cli]\n"
        )
        sys.exit(2)
    run()
