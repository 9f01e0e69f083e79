"""Takes the pictures of the dashboard in the documentation anew, from the demo's simulated city.

Part of ``make pictures``; needs the development environment, Node and Chromium.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.real_city import FOLDER, ready, shown

from geoveil.cli.demo import dashboard_address
from geoveil.demo import City, LocalCollector, tell
from geoveil.randomness import seeded

PEOPLE, ROUNDS = 60_000, 4


def main() -> int:
    """Play the demo, then show its dashboard to a browser."""
    ready()
    seen: list[str] = []
    with LocalCollector() as collector:

        def begun(city: City, link: str) -> None:
            seen.append(dashboard_address(collector, city, link))

        tell(collector, people=PEOPLE, rounds=ROUNDS, randomness=seeded(7), begun=begun)
        return shown("dashboard_pictures.mjs", *seen, str(FOLDER))


if __name__ == "__main__":
    sys.exit(main())
